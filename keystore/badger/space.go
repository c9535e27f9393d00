package badger

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"

	"counterfoil/keystore"
)

// Badger writes through memory-mapped files that it makes sparse. On a full
// file system the kernel answers such a write with SIGBUS, and no Go program
// survives that. So the store stops before the disk is full, twice: below the
// reserve nothing new is begun, and below the floor nothing is written at all.
//
// Badger's background work needs room too, whatever we refuse: flushing the
// memtables, and compaction, which writes the new tables before it removes the
// old. How much is estimated from the tables that it would take; the reserve
// and the floor lie above that.

// A room says what the disk has room for.
type room uint8

const (
	forAll room = iota
	// forReceipts: what is in flight may end, nothing new may begin.
	forReceipts
	// forNothing: not even that.
	forNothing
)

// A space watches the free disk. The committer asks it before each batch.
type space struct {
	measure func(dir string) (free, total int64, err error)
	dir     string
	// reserve is Config.ReserveBytes.
	reserve int64
	current atomic.Uint32
	// free is what the last measurement found.
	free atomic.Int64
}

func (s *space) room() room { return room(s.current.Load()) }

// check measures. background is what Badger may write on its own account.
func (s *space) check(background int64) room {
	r := s.judge(background)
	s.current.Store(uint32(r))
	return r
}

func (s *space) judge(background int64) room {
	if s.reserve < 0 {
		return forAll
	}
	free, total, err := s.measure(s.dir)
	if err != nil {
		s.free.Store(0)
		return forNothing
	}
	s.free.Store(free)
	reserve := s.reserve
	if reserve == 0 {
		reserve = min(ReserveDefault, total/4)
	}
	floor := background + floorBytes
	switch {
	case free < floor:
		return forNothing
	case free < max(reserve, floor+receiptBytes):
		return forReceipts
	}
	return forAll
}

const (
	// floorBytes is what one more batch and its part of the log may take.
	floorBytes = 8 << 20
	// receiptBytes is what the calls in flight may still write once nothing new
	// is begun.
	receiptBytes = 16 << 20
)

// background estimates what Badger may write on its own account: the memtables
// flushed, level 0 and the level below rewritten while the old tables still
// stand, and one table of the deepest level merged with those it overlaps.
func (e *engine) background() int64 {
	o := e.db.Opts()
	need := e.wal.unflushed(o.MemTableSize, o.NumMemtables)
	var deepest int64
	for _, level := range e.db.Levels() {
		switch {
		case level.Level == 0 || level.IsBaseLevel:
			need += level.Size
		case level.NumTables > 0:
			deepest = min(level.Size, int64(1+o.LevelSizeMultiplier)*level.TargetFileSize)
		}
	}
	return need + deepest
}

// roomToOpen refuses to open a store where there is no room even for that: what
// the logs hold becomes tables at once, and the new epoch is written.
func roomToOpen(c Config) error {
	s := space{measure: c.Space, dir: c.Dir, reserve: c.ReserveBytes}
	files, err := os.ReadDir(c.Dir)
	if err != nil {
		return fmt.Errorf("reading the store's directory: %w", err)
	}
	var logs int64
	for _, f := range files {
		if strings.HasSuffix(f.Name(), ".mem") {
			logs += takes(filepath.Join(c.Dir, f.Name()))
		}
	}
	if s.judge(logs) == forNothing {
		return fmt.Errorf("opening %s takes %d bytes of free disk, and there are %d; free some: %w", c.Dir, logs+floorBytes, s.free.Load(), keystore.ErrFull)
	}
	return nil
}

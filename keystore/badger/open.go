package badger

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/dgraph-io/badger/v4"

	"counterfoil/keystore"
)

// layout numbers the arrangement of keys described in keys.go. A higher one is
// refused.
const layout = 1

// Open opens the store in c.Dir, and makes it if there is none. It counts a new
// epoch, and what was pending under earlier ones is in doubt when it returns.
// ctx bounds the wait for another process's lock.
//
// Errors: keystore.ErrLocked if another process has the directory open,
// keystore.ErrNewerFormat, keystore.ErrCorrupt, and what the file system says.
func Open(ctx context.Context, c Config) (*Store, error) {
	c, err := c.withDefaults()
	if err != nil {
		return nil, err
	}
	codec, err := keystore.NewCodec()
	if err != nil {
		return nil, err
	}
	e, err := openEngine(ctx, c)
	if err != nil {
		return nil, err
	}
	s := &Store{
		config: c, codec: codec, engine: e,
		space:   space{measure: c.Space, dir: c.Dir, reserve: c.ReserveBytes},
		stages:  stages{byID: map[number]*stage{}},
		queue:   make(chan *operation, queueOps),
		stopped: make(chan struct{}),
		known:   newKnown(),

		idleAfter: idleAfter,
	}
	if s.lot, err = drawLot(); err != nil {
		return nil, errors.Join(err, e.close())
	}
	s.clock.read, s.opened = c.Now, keystore.Instant(c.Watch())
	if err := s.start(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("opening %s: %w", c.Dir, err), e.close())
	}
	return s, nil
}

func drawLot() (uint64, error) {
	var b [8]byte
	if _, err := rand.Read(b[:]); err != nil {
		return 0, fmt.Errorf("drawing a lot: %w", err)
	}
	return binary.BigEndian.Uint64(b[:]) >> (64 - lotBits), nil
}

// start brings the store from what is on disk to where it can serve.
func (s *Store) start(ctx context.Context) error {
	s.batchBytes = int(s.engine.db.MaxBatchSize() * 9 / 10)
	s.batchChanges = int(s.engine.db.MaxBatchCount() * 9 / 10)
	if err := s.identify(); err != nil {
		return err
	}
	if err := s.load(s.engine); err != nil {
		return err
	}
	go s.commitLoop()
	if err := s.recover(ctx); err != nil {
		close(s.queue)
		<-s.stopped
		return err
	}
	return nil
}

// identify checks the layout, and counts the epoch.
func (s *Store) identify() error {
	r := reader{s.engine.snapshot(), s.codec}
	defer r.release()
	format, err := r.get(formatKey)
	if err != nil {
		return err
	}
	if format == nil {
		return s.create(r)
	}
	if len(format) != 2 {
		return fmt.Errorf("the layout number has %d bytes: %w", len(format), keystore.ErrCorrupt)
	}
	if n := binary.BigEndian.Uint16(format); n > layout {
		return fmt.Errorf("it has layout %d, this program knows up to %d: %w", n, layout, keystore.ErrNewerFormat)
	}
	secret, err := r.get(secretKey)
	if err != nil || len(secret) != len(s.facts.Secret) {
		return fmt.Errorf("the store's secret has %d bytes: %w", len(secret), errors.Join(keystore.ErrCorrupt, err))
	}
	epoch, err := r.get(epochKey)
	if err != nil {
		return err
	}
	n, err := decodeNumber(epoch)
	if err != nil {
		return fmt.Errorf("the epoch: %w", err)
	}
	s.facts.Secret = [32]byte(secret)
	s.facts.Epoch = keystore.Epoch(n + 1)
	return s.engine.commit([]change{{key: epochKey, value: encodeNumber(n + 1)}})
}

// create makes a new store, unless something else lives in the directory.
func (s *Store) create(r reader) error {
	empty := true
	err := r.scan(nil, nil, keysOnly, func(*badger.Item) (bool, error) {
		empty = false
		return false, nil
	})
	if err != nil {
		return err
	}
	if !empty {
		return errors.New("a Badger store of another program lies there; give this one a directory of its own")
	}
	s.facts.Epoch = 1
	if _, err := rand.Read(s.facts.Secret[:]); err != nil {
		return fmt.Errorf("making the store's secret: %w", err)
	}
	return s.engine.commit([]change{
		{key: formatKey, value: binary.BigEndian.AppendUint16(nil, layout)},
		{key: secretKey, value: s.facts.Secret[:]},
		{key: epochKey, value: encodeNumber(1)},
	})
}

// load reads what the committer keeps in memory.
func (s *Store) load(e *engine) error {
	r := reader{e.snapshot(), s.codec}
	defer r.release()
	value, err := r.get(marksKey)
	if err != nil {
		return err
	}
	s.marks = marks{}
	if value != nil {
		if err := s.codec.Decode(value, &s.marks); err != nil {
			return fmt.Errorf("the marks: %w", err)
		}
	}
	s.floors.Store(&s.marks.Floors)
	s.last.Store(max(s.last.Load(), uint64(s.marks.Reserved)))
	for i, state := range indexes {
		n, err := r.count(unsettledPrefix(state), s.marks.floor(i))
		if err != nil {
			return err
		}
		s.counts[i].Store(n)
		s.marks.leftSince[i] = raiseAfter // look once what the floor can be
	}
	return nil
}

func (r reader) count(prefix byte, from []byte) (n int64, err error) {
	err = r.scan([]byte{prefix}, from, keysOnly, func(*badger.Item) (bool, error) {
		n++
		return true, nil
	})
	return n, err
}

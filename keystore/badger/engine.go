package badger

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/dgraph-io/badger/v4"
	"github.com/dgraph-io/badger/v4/options"

	"counterfoil/keystore"
)

// An engine is Badger with timestamps of ours: a commit gets the next one, and
// reads see what is durable, never what is being synced, and never wait for it.
type engine struct {
	db  *badger.DB
	wal *wal

	mu      sync.Mutex
	durable uint64
	reads   map[uint64]int
}

func badgerOptions(c Config) badger.Options {
	o := badger.DefaultOptions(c.Dir)
	o.Logger = bridge{c.Logger}
	o.MetricsEnabled = false
	o.DetectConflicts = false // one writer
	o.NumVersionsToKeep = 1
	o.SyncWrites = c.tuning.badgerSyncs || !syncsWAL
	o.MemTableSize = c.tuning.memTableBytes
	o.NumMemtables = 2
	o.NumLevelZeroTables = 8
	o.NumLevelZeroTablesStall = 16
	o.NumCompactors = 2
	o.Compression = options.None
	o.BlockCacheSize = 0 // blocks are not compressed: the tables are mapped, and the kernel caches them
	o.IndexCacheSize = 32 << 20
	o.ValueThreshold = min(1<<20, c.tuning.memTableBytes*15/100) // above every value: nothing goes to the value log
	o.ValueLogFileSize = 16 << 20                                // which is mapped at twice its size
	o.ChecksumVerificationMode = options.OnBlockRead
	o.LmaxCompaction = true
	o.BaseLevelSize = 1 << 30 // up to there level 0 is merged into the last level at once: what never moves again is written once less
	return o
}

func openEngine(ctx context.Context, c Config) (*engine, error) {
	db, err := openLocked(ctx, c)
	if err != nil {
		return nil, err
	}
	e := &engine{db: db, durable: db.MaxVersion(), reads: map[uint64]int{}}
	e.wal, err = followWAL(c.Dir, c.tuning, c.Logger)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("following the write-ahead log in %s: %w", c.Dir, err), db.Close())
	}
	return e, nil
}

const lockPoll = 50 * time.Millisecond

func openLocked(ctx context.Context, c Config) (*badger.DB, error) {
	if err := checkDir(c.Dir); err != nil {
		return nil, err
	}
	if err := roomToOpen(c); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, c.LockWait)
	defer cancel()
	for told := false; ; told = true {
		if err := dropEmptyLogs(c.Dir); err != nil {
			return nil, err
		}
		if !isInUse(c.Dir) {
			if err := errors.Join(checkManifest(c.Dir), checkTables(c.Dir), checkLogs(c.Dir)); err != nil {
				return nil, fmt.Errorf("opening %s: %w", c.Dir, err)
			}
		}
		db, err := badger.OpenManaged(badgerOptions(c))
		if err == nil {
			return db, nil
		}
		err = explainOpen(c.Dir, err)
		if !errors.Is(err, keystore.ErrLocked) {
			return nil, err
		}
		if !told && c.LockWait > 0 {
			c.Logger.Warn("waiting for the other sidecar that has this directory", "data", c.Dir, "at_most", c.LockWait)
		}
		select {
		case <-ctx.Done():
			return nil, err
		case <-time.After(lockPoll):
		}
	}
}

func checkDir(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		if errors.Is(err, syscall.ENOTDIR) || errors.Is(err, fs.ErrExist) {
			return fmt.Errorf("%s is not a directory: name one for the store: %w", dir, err)
		}
		return fmt.Errorf("making the store's directory %s; make it yourself for this user, or name another: %w", dir, err)
	}
	if err := checkIsOurs(dir); err != nil {
		return err
	}
	probe, err := os.CreateTemp(dir, ".probe-*")
	if err != nil {
		return fmt.Errorf("the store's directory %s cannot be written to; check its owner, its mode and that the file system is not read-only: %w", dir, err)
	}
	return errors.Join(probe.Close(), os.Remove(probe.Name()))
}

// checkIsOurs refuses a directory in which something else lives: without a
// manifest, everything there but hidden files, and what a file system or a crash
// in the first moments of a store leaves.
func checkIsOurs(dir string) error {
	if _, err := os.Stat(filepath.Join(dir, badger.ManifestFilename)); err == nil {
		return nil
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return fmt.Errorf("listing the store's directory: %w", err)
	}
	for _, e := range entries {
		if name := e.Name(); !mayBeThere.MatchString(name) {
			return fmt.Errorf("%s holds %q and no journal: name an empty directory, or the one where the journal is", dir, name)
		}
	}
	return nil
}

// mayBeThere are the names that a directory for a new store may hold.
var mayBeThere = regexp.MustCompile(`^(\..*|lost\+found|LOCK|KEYREGISTRY|DISCARD|MANIFEST-REWRITE|[0-9]+\.(sst|vlog|mem))$`)

// explainOpen says in our words what Badger says in its own. Badger has no
// errors to compare with for these.
func explainOpen(dir string, err error) error {
	switch text := err.Error(); {
	case errors.Is(err, syscall.EWOULDBLOCK), strings.Contains(text, "Cannot acquire directory lock"):
		return fmt.Errorf("opening %s: %w: stop the other sidecar or give this one a directory of its own", dir, keystore.ErrLocked)
	case strings.Contains(text, "unsupported version"):
		return fmt.Errorf("opening %s: %w: %w", dir, keystore.ErrNewerFormat, err)
	}
	return fmt.Errorf("opening %s: %w", dir, err)
}

// errReplaced: the directory was removed, moved away, or another took its place.
var errReplaced = errors.New("the store's directory was removed or replaced while it was open; put it back and start again")

// close leaves a directory that is no longer ours alone: Badger would write its
// last tables there, into another store perhaps.
func (e *engine) close() error {
	if err := e.wal.inPlace(); errors.Is(err, errReplaced) {
		return errors.Join(err, e.wal.close())
	}
	return errors.Join(e.wal.close(), e.db.Close())
}

// leave ends without Badger's last tables, which a full disk would turn into a
// fault: what they would hold is in the log. What it has of memory, and the lock
// on its directory, go with the process.
func (e *engine) leave() error {
	return errors.Join(errNoRoomToClose, e.wal.close())
}

var errNoRoomToClose = errors.New("the disk has no room for the store's last tables: what they would hold is in its log, and is there at the next start")

// closePatience bounds the wait for Badger's last writes. What was acknowledged
// is durable without them.
const closePatience = 30 * time.Second

func (e *engine) closeWithin(patience time.Duration) error {
	ended := make(chan error, 1)
	go func() { ended <- e.close() }()
	select {
	case err := <-ended:
		return err
	case <-time.After(patience):
		return fmt.Errorf("the disk did not take the last writes within %s; they are in the log", patience)
	}
}

// A snapshot is what was durable at one moment. It must be released soon: while
// it lives, nothing that it sees is removed.
type snapshot struct {
	*badger.Txn
	e  *engine
	ts uint64
}

func (e *engine) snapshot() snapshot {
	e.mu.Lock()
	ts := e.durable
	e.reads[ts]++
	e.mu.Unlock()
	return snapshot{e.db.NewTransactionAt(ts, false), e, ts}
}

func (s snapshot) release() {
	s.Discard()
	s.e.mu.Lock()
	defer s.e.mu.Unlock()
	if s.e.reads[s.ts]--; s.e.reads[s.ts] == 0 {
		delete(s.e.reads, s.ts)
	}
}

// get returns the value under key, nil if there is none. The caller owns it.
func (s snapshot) get(key []byte) ([]byte, error) {
	item, err := s.Get(key)
	if errors.Is(err, badger.ErrKeyNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, readError(err)
	}
	value, err := item.ValueCopy(nil)
	if err != nil {
		return nil, readError(err)
	}
	return value, nil
}

// has reports whether there is anything under key.
func (s snapshot) has(key []byte) (bool, error) {
	_, err := s.Get(key)
	if errors.Is(err, badger.ErrKeyNotFound) {
		return false, nil
	}
	if err != nil {
		return false, readError(err)
	}
	return true, nil
}

// readError tells bytes that are wrong from a store that is away.
func readError(err error) error {
	if errors.Is(err, badger.ErrDBClosed) {
		return fmt.Errorf("%w: it is closed", keystore.ErrUnavailable)
	}
	return fmt.Errorf("reading the store: %w: %w", keystore.ErrCorrupt, err)
}

// scan hands the keys under prefix to fn in order, from the first that is not
// before start, until fn says that it has enough. The item is valid only during
// the call.
func (s snapshot) scan(prefix, start []byte, fetch fetch, fn func(*badger.Item) (more bool, err error)) error {
	o := badger.DefaultIteratorOptions
	o.Prefix = prefix
	o.PrefetchValues = fetch == values
	o.PrefetchSize = 16
	it := s.NewIterator(o)
	defer it.Close()
	for it.Seek(start); it.Valid(); it.Next() {
		more, err := fn(it.Item())
		if err != nil || !more {
			return err
		}
	}
	return nil
}

// fetch says whether a scan wants values.
type fetch uint8

const (
	keysOnly fetch = iota
	values
)

// commit writes all changes in one transaction and returns once they are
// durable. After an error the engine must be closed: it may hold what the disk
// does not.
func (e *engine) commit(changes []change) error {
	ts := e.durable + 1
	txn := e.db.NewTransactionAt(math.MaxUint64, true)
	defer txn.Discard()
	for _, c := range changes {
		set := txn.Set
		if c.removes {
			set = func(key, _ []byte) error { return txn.Delete(key) }
		}
		if err := set(c.key, c.value); err != nil {
			return fmt.Errorf("filling the transaction: %w", err)
		}
	}
	if err := txn.CommitAt(ts, nil); err != nil {
		return fmt.Errorf("committing: %w", err)
	}
	if err := e.wal.sync(); err != nil {
		return fmt.Errorf("syncing the write-ahead log: %w", err)
	}
	e.advance(ts)
	return nil
}

// advance makes a commit visible, and lets go of what no reader can see.
func (e *engine) advance(ts uint64) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.durable = ts
	oldest := ts
	for read := range e.reads {
		oldest = min(oldest, read)
	}
	e.db.SetDiscardTs(oldest)
}

// A bridge passes on what Badger logs. Its information is our debugging.
type bridge struct{ to *slog.Logger }

func (b bridge) Errorf(format string, args ...any)   { b.log(slog.LevelError, format, args) }
func (b bridge) Warningf(format string, args ...any) { b.log(slog.LevelWarn, format, args) }
func (b bridge) Infof(format string, args ...any)    { b.log(slog.LevelDebug, format, args) }
func (b bridge) Debugf(string, ...any)               {}

func (b bridge) log(level slog.Level, format string, args []any) {
	if b.to.Enabled(context.Background(), level) {
		b.to.Log(context.Background(), level, "badger: "+strings.TrimSpace(fmt.Sprintf(format, args...)))
	}
}

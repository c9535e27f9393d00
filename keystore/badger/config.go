package badger

import (
	"errors"
	"fmt"
	"log/slog"
	"time"
)

// Config says how a store is opened. Only Dir has to be set.
type Config struct {
	// Dir is the directory of the store, made if it is missing.
	Dir string
	// Now is the clock; nil means time.Now. What is written never goes back in
	// time while the store is open, whatever the clock does.
	Now func() time.Time
	// Watch tells what has passed, for leases; nil means what has passed since
	// Open on the machine's monotonic clock. It never goes back, and does not
	// follow Now where that is set.
	Watch func() time.Duration
	// Logger hears what Badger has to say; nil means silence.
	Logger *slog.Logger
	// LockWait is how long Open waits for another process to give the directory
	// up; 0 means not at all.
	LockWait time.Duration
	// ReserveBytes of free disk are kept for what is in flight: below them
	// Begin sends nothing new. 0 means 256 MiB, but no more than a quarter of
	// the file system; a negative number means no reserve, for file systems
	// that cannot fill up.
	ReserveBytes int64
	// Space measures the file system that holds dir, in bytes; nil means
	// statfs.
	Space func(dir string) (free, total int64, err error)
	// Observe is told what the store does. Its functions are called by the
	// committer and must be quick.
	Observe Observer

	// tuning is what benchmarks compare.
	tuning tuning
}

// An Observer is a set of functions, any of which may be nil.
type Observer struct {
	// BatchCommitted: a batch of so many operations and bytes became durable.
	BatchCommitted func(ops, bytes int, took time.Duration)
	// CommitFailed: a batch failed as a whole; the store is opened again.
	CommitFailed func(err error)
}

// Bounds of a store.
const (
	// ReserveDefault is Config.ReserveBytes where nothing else is said.
	ReserveDefault = 256 << 20
	// BodyBytesMax bounds one body.
	BodyBytesMax = 64 << 20
	// InlineBytesMax is up to what size a receipt's body lies in its record.
	InlineBytesMax = 4 << 10
	// pieceBytes is the size of a body's pieces. It must stay what it is: the
	// pieces of a stored body are found by it.
	pieceBytes = 256 << 10
	// stageBytes is how much of a body one operation takes; longer ones are
	// staged.
	stageBytes = 1 << 20
	// queueOps is how many operations wait for the committer at most, batchOps
	// how many it takes at once.
	queueOps = 4096
	batchOps = 1024
)

// tuning holds the settings whose worth the benchmarks show.
type tuning struct {
	memTableBytes int64
	noAdvice      bool
	badgerSyncs   bool
}

func (c Config) withDefaults() (Config, error) {
	if c.Dir == "" {
		return c, errors.New("no directory is named for the store: set Config.Dir")
	}
	if c.LockWait < 0 {
		return c, fmt.Errorf("LockWait is %s: it cannot be negative", c.LockWait)
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Watch == nil {
		opened := time.Now()
		c.Watch = func() time.Duration { return time.Since(opened) }
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.Space == nil {
		c.Space = statfs
	}
	if c.tuning.memTableBytes == 0 {
		c.tuning.memTableBytes = 16 << 20
	}
	return c, nil
}

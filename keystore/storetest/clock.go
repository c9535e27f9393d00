package storetest

import (
	"sync/atomic"
	"time"

	"counterfoil/keystore"
)

// A Clock stands still until it is told to move. It is safe for concurrent use.
type Clock struct{ nanos, elapsed atomic.Int64 }

// NewClock returns a clock that shows an ordinary moment, the same one each
// time.
func NewClock() *Clock {
	c := &Clock{}
	c.nanos.Store(time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC).UnixNano())
	return c
}

// Now returns what the clock shows, in UTC.
func (c *Clock) Now() time.Time { return time.Unix(0, c.nanos.Load()).UTC() }

// Instant returns what the clock shows.
func (c *Clock) Instant() keystore.Instant { return keystore.Instant(c.nanos.Load()) }

// Advance lets d pass.
func (c *Clock) Advance(d time.Duration) {
	c.nanos.Add(int64(d))
	c.elapsed.Add(int64(d))
}

// Elapsed returns what has passed since the clock was made, whatever the clock was
// set to.
func (c *Clock) Elapsed() time.Duration { return time.Duration(c.elapsed.Load()) }

// Set moves what the clock shows by d, as a person or a time server does: nothing
// passes.
func (c *Clock) Set(d time.Duration) { c.nanos.Add(int64(d)) }

package badger

import (
	"sync/atomic"
	"time"

	"counterfoil/keystore"
)

// A clock never goes back.
type clock struct {
	read func() time.Time
	last atomic.Int64
}

func (c *clock) now() keystore.Instant {
	t := int64(keystore.At(c.read()))
	for {
		last := c.last.Load()
		if t <= last {
			return keystore.Instant(last)
		}
		if c.last.CompareAndSwap(last, t) {
			return keystore.Instant(t)
		}
	}
}

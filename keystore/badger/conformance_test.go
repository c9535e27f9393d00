package badger

import (
	"context"
	"sync/atomic"
	"testing"

	"counterfoil/keystore"
	"counterfoil/keystore/storetest"
)

func TestConformance(t *testing.T) {
	storetest.Run(t, func(t *testing.T) storetest.Place {
		t.Helper()
		dir := t.TempDir()
		var full atomic.Bool
		space := func(string) (free, total int64, err error) {
			if full.Load() {
				return ReserveDefault - 1, 1 << 40, nil
			}
			return 1 << 40, 1 << 40, nil
		}
		return storetest.Place{
			Open: func(c *storetest.Clock) (keystore.Store, error) {
				return Open(context.Background(), Config{Dir: dir, Now: c.Now, Watch: c.Elapsed, Space: space})
			},
			SetFull: full.Store,
		}
	})
}

package badger

import (
	"context"
	"testing"

	"counterfoil/keystore"
	"counterfoil/keystore/storetest"
)

func TestConformance(t *testing.T) {
	storetest.Run(t, func(t *testing.T) storetest.Place {
		t.Helper()
		dir := t.TempDir()
		return storetest.Place{Open: func(c *storetest.Clock) (keystore.Store, error) {
			return Open(context.Background(), Config{Dir: dir, Now: c.Now, Watch: c.Elapsed})
		}}
	})
}

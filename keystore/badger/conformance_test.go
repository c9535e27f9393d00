package badger

import (
	"context"
	"testing"
	"time"

	"counterfoil/keystore"
	"counterfoil/keystore/storetest"
)

func TestConformance(t *testing.T) {
	storetest.Run(t, func(t *testing.T) storetest.Place {
		t.Helper()
		dir := t.TempDir()
		return storetest.Place{Open: func(now func() time.Time) (keystore.Store, error) {
			return Open(context.Background(), Config{Dir: dir, Now: now})
		}}
	})
}

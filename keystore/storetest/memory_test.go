package storetest

import (
	"testing"
	"time"

	"counterfoil/keystore"
)

func TestMemoryKeepsTheContract(t *testing.T) {
	Run(t, func(*testing.T) Place {
		disk := NewDisk()
		return Place{
			Open: func(now func() time.Time) (keystore.Store, error) {
				s, err := OpenMemory(disk, now)
				if err != nil {
					return nil, err
				}
				return s, nil
			},
			Crash: func(s keystore.Store) { s.(*Memory).Crash() },
		}
	})
}

package badger

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"counterfoil/keystore"
)

// A process that is killed while Badger makes a log, or deletes one, which it
// first empties, leaves a log without a byte. It must not keep the store shut.
func TestOpenAfterKillLeftEmptyLogs(t *testing.T) {
	for _, logs := range [][]string{{"%05d.mem"}, {"%06d.vlog"}, {"%05d.mem", "%06d.vlog"}} {
		t.Run(fmt.Sprint(logs), func(t *testing.T) {
			c := Config{Dir: t.TempDir()}
			s := mustOpen(t, c)
			k := key("run", "call")
			begin(t, s, k, "{}", keystore.Send)
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			for _, pattern := range logs {
				for id := 97; id <= 99; id++ {
					if err := os.WriteFile(filepath.Join(c.Dir, fmt.Sprintf(pattern, id)), nil, 0o600); err != nil {
						t.Fatal(err)
					}
				}
			}
			s = openTest(t, c)
			r, err := s.Call(t.Context(), k)
			if err != nil || r.State != keystore.InDoubt {
				t.Errorf("the call that was pending: %v, %v", r, err)
			}
		})
	}
}

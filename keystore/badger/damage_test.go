package badger

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"counterfoil/keystore"
)

// Badger cuts a log off at its first bad byte. Where acknowledged commits lie
// behind it the store stays shut, or their calls would be sent again; where the
// last commit is torn it opens.
func TestALogThatIsDamagedBeforeAcknowledgedCommitsIsRefused(t *testing.T) {
	dir, small := t.TempDir(), tuning{memTableBytes: 1 << 20}
	s := mustOpen(t, Config{Dir: dir, tuning: small})
	const calls = 20
	for i := range calls {
		k := key("r", string(rune('a'+i)))
		begin(t, s, k, "intent", keystore.Send)
	}
	image := map[string][]byte{}
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	log := ""
	for _, e := range entries {
		if image[e.Name()], err = os.ReadFile(filepath.Join(dir, e.Name())); err != nil {
			t.Fatal(err)
		}
		if filepath.Ext(e.Name()) == ".mem" {
			log = e.Name()
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	end := len(bytes.TrimRight(image[log], "\x00"))
	for name, c := range map[string]struct {
		change func(b []byte)
		want   error
	}{
		"as it was":             {func([]byte) {}, nil},
		"a bit in the middle":   {func(b []byte) { b[end/2] ^= 1 }, keystore.ErrCorrupt},
		"a bit at the start":    {func(b []byte) { b[logHeadBytes+3] ^= 1 }, keystore.ErrCorrupt},
		"a page of zeros":       {func(b []byte) { clear(b[end/2 : end/2+512]) }, keystore.ErrCorrupt},
		"the last commit torn":  {func(b []byte) { clear(b[end-100 : end]) }, nil},
		"a bit in its last end": {func(b []byte) { b[end-3] ^= 1 }, nil},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			for file, b := range image {
				if file == log {
					b = bytes.Clone(b)
					c.change(b)
				}
				if err := os.WriteFile(filepath.Join(dir, file), b, 0o600); err != nil {
					t.Fatal(err)
				}
			}
			s, err := Open(context.Background(), Config{Dir: dir, tuning: small})
			if !errors.Is(err, c.want) || c.want == nil && err != nil {
				t.Errorf("opened with %v, want %v", err, c.want)
			}
			if err != nil {
				return
			}
			defer s.Close()
			n, err := s.Calls(context.Background(), "default", "r", keystore.Page{Limit: 100})
			if err != nil || len(n.Items) < calls-1 {
				t.Errorf("%d calls are left, %v", len(n.Items), err)
			}
		})
	}
}

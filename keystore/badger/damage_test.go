package badger

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/dgraph-io/badger/v4"

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

// Badger opens a store whose list of tables is cut short or gone as one without
// those tables, and removes them.
func TestAListOfTablesThatIsDamagedIsRefused(t *testing.T) {
	for name, damage := range map[string]func(path string, b []byte) error{
		"gone":      func(path string, _ []byte) error { return os.Remove(path) },
		"cut short": func(path string, b []byte) error { return os.WriteFile(path, b[:len(b)/2], 0o600) },
		"zeros":     func(path string, b []byte) error { clear(b[8:]); return os.WriteFile(path, b, 0o600) },
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			s := mustOpen(t, Config{Dir: dir})
			begin(t, s, key("r", "c"), "intent", keystore.Send)
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			path := filepath.Join(dir, badger.ManifestFilename)
			b, err := os.ReadFile(path)
			if err == nil {
				err = damage(path, b)
			}
			if err != nil {
				t.Fatal(err)
			}
			for range 2 {
				if s, err := Open(context.Background(), Config{Dir: dir}); !errors.Is(err, keystore.ErrCorrupt) {
					t.Fatalf("opened with %v, %v", s, err)
				}
			}
			if tables, err := filepath.Glob(filepath.Join(dir, "*.sst")); err != nil || len(tables) == 0 {
				t.Errorf("the tables are %v, %v", tables, err)
			}
		})
	}
}

// TestADamagedTableIsRefused: Badger would say of what lies in a damaged block
// that it is not there, and of a call that it was never sent.
func TestADamagedTableIsRefused(t *testing.T) {
	dir := t.TempDir()
	s := mustOpen(t, Config{Dir: dir})
	const calls = 200
	for i := range calls {
		begin(t, s, key("r", fmt.Sprint(i)), "intent", keystore.Send)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	tables, err := filepath.Glob(filepath.Join(dir, "*.sst"))
	if err != nil || len(tables) != 1 {
		t.Fatalf("the tables are %v, %v", tables, err)
	}
	whole, err := os.ReadFile(tables[0])
	if err != nil {
		t.Fatal(err)
	}
	for part := range 50 { // all over the table: its blocks, index and foot
		at := len(whole) - 1 - part*len(whole)/50
		b := bytes.Clone(whole)
		b[at] ^= 0x10
		if err := os.WriteFile(tables[0], b, 0o600); err != nil {
			t.Fatal(err)
		}
		if s, err := Open(t.Context(), Config{Dir: dir}); !errors.Is(err, keystore.ErrCorrupt) {
			t.Fatalf("with byte %d of %d changed opened with %v, %v", at, len(whole), s, err)
		}
	}
	if err := os.WriteFile(tables[0], whole, 0o600); err != nil {
		t.Fatal(err)
	}
	s = openTest(t, Config{Dir: dir})
	for i := range calls {
		begin(t, s, key("r", fmt.Sprint(i)), "", keystore.Stop)
	}
}

package badger

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/dgraph-io/badger/v4"

	"counterfoil/keystore"
)

func TestDirectoriesThatCannotHoldAStore(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct{ dir, want string }{
		"a file":           {file, "not a directory"},
		"below a file":     {filepath.Join(file, "store"), "not a directory"},
		"read-only system": {"/proc/store", "/proc/store"},
	} {
		_, err := Open(context.Background(), Config{Dir: c.dir})
		if err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), c.dir) {
			t.Errorf("%s: got %v", name, err)
		}
	}
}

func TestAnotherProgramsStoreIsLeftAlone(t *testing.T) {
	dir := t.TempDir()
	db, err := badger.Open(badger.DefaultOptions(dir).WithLoggingLevel(badger.ERROR))
	if err != nil {
		t.Fatal(err)
	}
	err = db.Update(func(txn *badger.Txn) error { return txn.Set([]byte("theirs"), []byte("value")) })
	if err := errors.Join(err, db.Close()); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(context.Background(), Config{Dir: dir}); err == nil || !strings.Contains(err.Error(), "another program") {
		t.Errorf("got %v", err)
	}
}

func TestDirectoryNamesWithOddCharacters(t *testing.T) {
	dir := filepath.Join(t.TempDir(), `odd [name] *?\ with spaces`)
	s := mustOpen(t, Config{Dir: dir})
	begin(t, s, key("r", "c"), "intent", keystore.Send)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}

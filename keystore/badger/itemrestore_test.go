package badger

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"counterfoil/keystore"
)

// TestVersionsOfARestoredFolderAreNew: a folder that is brought back from a copy
// counts on from where the copy was, and yet gives no version twice.
func TestVersionsOfARestoredFolderAreNew(t *testing.T) {
	ctx, dir := context.Background(), t.TempDir()
	original, restored := filepath.Join(dir, "original"), filepath.Join(dir, "restored")
	s := mustOpen(t, Config{Dir: original})
	if _, _, err := s.PutItemStore(ctx, &keystore.ItemStore{Namespace: "default", Name: "notes"}); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if err := os.CopyFS(restored, os.DirFS(original)); err != nil {
		t.Fatal(err)
	}
	given := map[keystore.ItemVersion]bool{}
	for _, dir := range []string{original, restored} {
		s := openTest(t, Config{Dir: dir})
		for range 50 {
			written, err := s.WriteItems(ctx, &keystore.Batch{
				Space:  keystore.Space{Namespace: "default", Store: "notes"},
				Writes: []keystore.ItemWrite{{Kind: keystore.PutItem, Key: "marker", Value: []byte("1")}},
			})
			if err != nil {
				t.Fatal(err)
			}
			if v := written[0].Item.Version; given[v] {
				t.Fatalf("version %x was given out in the folder that was copied too", v)
			} else {
				given[v] = true
			}
		}
	}
}

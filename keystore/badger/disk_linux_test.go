package badger

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"counterfoil/keystore"
)

// TestC84FullDisk fills a small file system: new effects are refused before a
// memory-mapped write can fault, what is in flight gets its receipt, and freed
// space is used without a restart.
func TestC84FullDisk(t *testing.T) {
	dir, space := smallDisk(t, 128<<20)
	ballast := filepath.Join(dir, "ballast")
	if err := os.WriteFile(ballast, noise(1, 24<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	s := openTest(t, Config{Dir: filepath.Join(dir, "store"), Space: space})
	answer := string(noise(2, 256<<10))
	inFlight := make([]keystore.Key, 8)
	for i := range inFlight {
		inFlight[i] = key("r", fmt.Sprintf("in flight %d", i))
		begin(t, s, inFlight[i], "intent", keystore.Send)
	}
	kept := fill(t, s, answer)
	if kept < 8 {
		t.Fatalf("only %d calls fitted", kept)
	}
	for range 500 { // the agents do not give up
		if _, err := s.Begin(context.Background(), request(s, key("r", "again")), []byte(answer)); err == nil {
			break // compaction has made room
		} else if !errors.Is(err, keystore.ErrUnavailable) {
			t.Fatal(err)
		}
	}
	for _, k := range inFlight {
		apply(t, s, k, applied(1), answer)
	}
	if err := os.Remove(ballast); err != nil {
		t.Fatal(err)
	}
	until(t, func() bool {
		_, err := s.Begin(context.Background(), request(s, key("r", "after")), nil)
		return err == nil
	})
	for i := range kept {
		k := key("r", fmt.Sprint(i))
		if rec := begin(t, s, k, "", keystore.Replay); readBody(t, s, rec.Receipt.Body) != answer {
			t.Fatalf("%s: another receipt", k)
		}
	}
	recount(t, s)
	t.Logf("%d calls of 256 KiB fitted", kept)
}

func fill(t *testing.T, s *Store, answer string) (kept int) {
	t.Helper()
	for ; kept < 10_000; kept++ {
		k := key("r", fmt.Sprint(kept))
		_, err := s.Begin(context.Background(), request(s, k), nil)
		if errors.Is(err, keystore.ErrFull) {
			return kept
		}
		if err != nil {
			t.Fatal(err)
		}
		apply(t, s, k, applied(1), answer)
	}
	t.Fatal("the disk never filled up")
	return 0
}

// smallDisk mounts a file system in memory. Where that is not permitted it
// measures the same directory against a size of the same bytes.
func smallDisk(t *testing.T, size int64) (dir string, space func(string) (int64, int64, error)) {
	t.Helper()
	dir = t.TempDir()
	err := syscall.Mount("tmpfs", dir, "tmpfs", 0, fmt.Sprintf("size=%d", size))
	if err == nil {
		t.Cleanup(func() { syscall.Unmount(dir, syscall.MNT_DETACH) })
		return dir, nil
	}
	t.Logf("mounting is not permitted here (%v): the space is counted instead", err)
	return dir, func(string) (int64, int64, error) { return size - blocksUnder(dir), size, nil }
}

package badger

import (
	"context"
	"errors"
	"path/filepath"
	"sync/atomic"
	"testing"

	"counterfoil/keystore"
)

func TestReserveRefusesNewEffectsAndTakesReceipts(t *testing.T) {
	const roomy = 10 << 30
	var free atomic.Int64
	free.Store(roomy)
	s := openTest(t, Config{Space: func(string) (int64, int64, error) { return free.Load(), 100 << 30, nil }})
	a, b := key("r", "a"), key("r", "b")
	begin(t, s, a, "intent", keystore.Send)

	free.Store(ReserveDefault - 1)
	if _, err := s.Begin(context.Background(), request(s, b), nil); !errors.Is(err, keystore.ErrFull) {
		t.Fatalf("below the reserve: %v", err)
	}
	if !s.Stats().Full {
		t.Error("the statistics do not say that the disk is full")
	}
	apply(t, s, a, applied(1), "receipt")
	begin(t, s, a, "", keystore.Replay)

	free.Store(roomy)
	begin(t, s, b, "intent", keystore.Send)

	free.Store(1 << 20)
	if _, err := s.Apply(context.Background(), b, applied(1), nil); !errors.Is(err, keystore.ErrUnavailable) || errors.Is(err, keystore.ErrFull) {
		t.Fatalf("below the floor: %v", err)
	}
	begin(t, s, a, "", keystore.Replay) // reads need no room

	free.Store(roomy)
	apply(t, s, b, applied(1), "receipt")
	if s.Stats().Full {
		t.Error("the statistics say that the disk is full")
	}
}

func TestSpaceThatCannotBeMeasuredCountsAsNone(t *testing.T) {
	broken := errors.New("no such device")
	var fails atomic.Bool
	s := openTest(t, Config{Space: func(string) (int64, int64, error) {
		if fails.Load() {
			return 0, 0, broken
		}
		return 1 << 40, 1 << 40, nil
	}})
	fails.Store(true)
	if _, err := s.Begin(context.Background(), request(s, key("r", "a")), nil); !errors.Is(err, keystore.ErrUnavailable) {
		t.Errorf("got %v", err)
	}
	fails.Store(false) // for its end
}

// To write Badger's last tables to a full disk would be the end of the process,
// and of what it still has to say.
func TestNoTablesAreWrittenToAFullDiskAtTheEnd(t *testing.T) {
	var free atomic.Int64
	free.Store(10 << 30)
	dir := t.TempDir()
	s := mustOpen(t, Config{Dir: dir, Space: func(string) (int64, int64, error) { return free.Load(), 100 << 30, nil }})
	begin(t, s, key("r", "a"), "intent", keystore.Send)
	free.Store(0)
	left := s.engine.db // which is left to the process's end, and here to the test's
	defer left.Close()
	if err := s.Close(); !errors.Is(err, errNoRoomToClose) {
		t.Errorf("closing: %v", err)
	}
	if tables, err := filepath.Glob(filepath.Join(dir, "*.sst")); err != nil || len(tables) != 0 {
		t.Errorf("it wrote %q, %v", tables, err)
	}
}

func TestAFullDiskIsNamedAtTheStart(t *testing.T) {
	_, err := Open(t.Context(), Config{Dir: t.TempDir(), Space: func(string) (int64, int64, error) { return 1 << 20, 1 << 30, nil }})
	if !errors.Is(err, keystore.ErrFull) {
		t.Errorf("got %v", err)
	}
}

package badger

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/dgraph-io/badger/v4"

	"counterfoil/keystore"
)

// A hand is a clock that is set by hand.
type hand struct{ nanos atomic.Int64 }

func newHand() *hand {
	h := new(hand)
	h.nanos.Store(time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC).UnixNano())
	return h
}

func (h *hand) now() time.Time          { return time.Unix(0, h.nanos.Load()) }
func (h *hand) advance(d time.Duration) { h.nanos.Add(int64(d)) }

// calls makes so many finished calls of a run, in few commits.
func calls(t testing.TB, s *Store, run string, n int, receipt string) {
	t.Helper()
	const portion = 500
	for from := 0; from < n; from += portion {
		var steps []func(v *view) (*step, error)
		for i := from; i < min(from+portion, n); i++ {
			k := key(run, fmt.Sprint(i))
			in, err := s.receive(context.Background(), []byte("intent of "+k.Call), 0)
			if err != nil {
				t.Fatal(err)
			}
			answer, err := s.receive(context.Background(), []byte(receipt), InlineBytesMax)
			if err != nil {
				t.Fatal(err)
			}
			steps = append(steps,
				func(v *view) (*step, error) {
					st, _, err := v.begin(request(s, k), in)
					return st, err
				},
				func(v *view) (*step, error) {
					st, _, err := v.apply(k, applied(1), answer)
					return st, err
				})
		}
		for _, err := range s.doAll(context.Background(), steps) {
			if err != nil {
				t.Fatal(err)
			}
		}
	}
}

func sweepAll(t testing.TB, s *Store, r keystore.Retention) (steps int) {
	t.Helper()
	for more := true; more; steps++ {
		var err error
		if more, err = s.Sweep(context.Background(), r); err != nil {
			t.Fatal(err)
		}
	}
	return steps
}

// keysUnder counts what lies under a prefix.
func keysUnder(t testing.TB, s *Store, prefix ...byte) (n int) {
	t.Helper()
	err := s.read(func(r reader) error {
		return r.scan(prefix, prefix, keysOnly, func(*badger.Item) (bool, error) {
			n++
			return true, nil
		})
	})
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// piecesKept counts the pieces of bodies.
func piecesKept(t testing.TB, s *Store) (n int) {
	t.Helper()
	err := s.read(func(r reader) error {
		return r.scan([]byte{dataPrefix}, nil, keysOnly, func(item *badger.Item) (bool, error) {
			if len(item.Key()) == len(pieceKey(0, 0)) {
				n++
			}
			return true, nil
		})
	})
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// recordsKept counts the records of calls.
func recordsKept(t testing.TB, s *Store) int {
	t.Helper()
	return keysUnder(t, s, dataPrefix) - piecesKept(t, s)
}

// TestC86LongRunGoesInPortions: a run too long for a transaction is over for
// every reader at once, goes in portions, can be interrupted at any of them,
// and leaves no bodies.
func TestC86LongRunGoesInPortions(t *testing.T) {
	const long = 5_000
	h, dir := newHand(), t.TempDir()
	s := mustOpen(t, Config{Dir: dir, Now: h.now})
	calls(t, s, "long", long, strings.Repeat("r", InlineBytesMax+1))
	begin(t, s, key("young", "pending"), "intent", keystore.Send)
	h.advance(91 * 24 * time.Hour)
	calls(t, s, "young", 1, "receipt")

	steps := 0
	for more := true; more; steps++ {
		var err error
		if more, err = s.Sweep(context.Background(), keystore.Retention{}); err != nil {
			t.Fatal(err)
		}
		for _, i := range []int{0, long / 2, long - 1} { // a reader at every portion
			rec, err := s.Call(context.Background(), key("long", fmt.Sprint(i)))
			if err != nil || rec.State != keystore.Expired {
				t.Fatalf("step %d: call %d: %v, %v", steps, i, rec, err)
			}
			begin(t, s, key("long", fmt.Sprint(i)), "", keystore.Stop)
		}
		if _, err := s.Run(context.Background(), "default", "long"); !errors.Is(err, keystore.ErrNotFound) {
			t.Fatalf("step %d: the run: %v", steps, err)
		}
		if steps%3 == 2 { // the process ends in the midst of it
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			s = mustOpen(t, Config{Dir: dir, Now: h.now})
		}
	}
	defer func() { s.Close() }()
	if steps < long/sweepCalls {
		t.Errorf("%d calls went in %d steps", long, steps)
	}
	if got := piecesKept(t, s); got != 2 {
		t.Errorf("%d pieces of bodies are left, want the 2 of the run that is not over", got)
	}
	if rec, err := s.Call(context.Background(), key("young", "pending")); err != nil || rec.State == keystore.Expired {
		t.Errorf("the run that is not over: %v, %v", rec, err)
	}
	recount(t, s)

	// The run may begin anew beside its tombstones.
	begin(t, s, key("long", "new"), "intent", keystore.Send)
	apply(t, s, key("long", "new"), applied(1), "receipt")
	sum, err := s.Run(context.Background(), "default", "long")
	if err != nil || sum.Total() != 1 {
		t.Errorf("begun anew: %v, %v", sum.Calls, err)
	}
	h.advance(92 * 24 * time.Hour)
	sweepAll(t, s, keystore.Retention{})
	h.advance(401 * 24 * time.Hour)
	sweepAll(t, s, keystore.Retention{})
	for _, prefix := range []byte{callPrefix, indexPrefix} {
		if got := keysUnder(t, s, prefix); got != 2 {
			t.Errorf("%d keys are left under %c, want those of the run with a call in doubt", got, prefix)
		}
	}
	if got := recordsKept(t, s); got != 2 {
		t.Errorf("%d records are left, want those of the run with a call in doubt", got)
	}
	for _, prefix := range []byte{namePrefix, runPrefix, listPrefix} {
		if got := keysUnder(t, s, prefix); got != 1 {
			t.Errorf("%d keys are left under %c, want 1", got, prefix)
		}
	}
	begin(t, s, key("long", "0"), "", keystore.Send)
}

// TestC87DeletedRecordsFreeTheDisk: with a steady load and a short retention,
// what the store takes on disk levels off, and falls when the load ends.
func TestC87DeletedRecordsFreeTheDisk(t *testing.T) {
	h, dir := newHand(), t.TempDir()
	const memTable = 2 << 20
	s := openTest(t, Config{Dir: dir, Now: h.now, tuning: tuning{memTableBytes: memTable}})
	retention := keystore.Retention{AfterChange: time.Minute, Tombstone: time.Hour}
	receipt := string(noise(3, 64<<10))
	const perRound, live = 100, 4 // a round lives for a minute: with the one being written, four
	var peak int64
	for round := range 24 {
		calls(t, s, fmt.Sprintf("run %d", round), perRound, receipt)
		h.advance(25 * time.Second)
		sweepAll(t, s, retention)
		peak = max(peak, blocksUnder(dir))
	}
	liveBytes := int64(live * perRound * len(receipt))
	unmerged := int64(12 * memTable) // four memtables, and level 0 before it is merged
	if peak > 3*liveBytes+unmerged {
		t.Errorf("at its peak the store took %d MiB, the live set %d MiB", peak>>20, liveBytes>>20)
	}
	h.advance(2 * time.Minute)
	sweepAll(t, s, retention)
	loaded := blocksUnder(dir)
	s.idleAfter = 0
	sweepAll(t, s, retention)
	idle := blocksUnder(dir)
	t.Logf("peak %d MiB, when the load ended %d MiB, after idling %d MiB, live set %d MiB", peak>>20, loaded>>20, idle>>20, liveBytes>>20)
	// What was live at the end stays until its removals have left the memtable.
	if idle > loaded || idle > liveBytes {
		t.Errorf("%d bytes when the load ended, and %d after idling", loaded, idle)
	}
}

// TestC88StartPassesOverTombstones: what left an index long ago costs neither a
// start nor a look.
func TestC88StartPassesOverTombstones(t *testing.T) {
	dir := t.TempDir()
	s := mustOpen(t, Config{Dir: dir})
	const cycles = 20_000
	calls(t, s, "r", cycles, "receipt")
	begin(t, s, key("r", "pending"), "intent", keystore.Send)
	floor := s.floor(indexOf(keystore.Pending))
	passed := 0
	for i := range cycles {
		rec, err := s.Call(context.Background(), key("r", fmt.Sprint(i)))
		if err != nil {
			t.Fatal(err)
		}
		if at := rec.Attempts[0].BegunAt; floor != nil && at < unsettledSince(floor) {
			passed++
		}
	}
	if passed < cycles-4*raiseAfter {
		t.Errorf("a start passes over %d of %d calls that left the index", passed, cycles)
	}
	s.Close()
	s = openTest(t, Config{Dir: dir})
	if got := s.Facts().Doubtful; got != 1 {
		t.Errorf("doubtful: %d, want 1", got)
	}
	list, err := s.Unsettled(context.Background(), keystore.InDoubt, keystore.Page{})
	if err != nil || len(list.Items) != 1 {
		t.Errorf("in doubt: %v, %v", list.Items, err)
	}
}

// TestC90AbandonedListingsHoldNothing: a listing that is left half-way keeps
// neither a snapshot nor an iterator.
func TestC90AbandonedListingsHoldNothing(t *testing.T) {
	s := openTest(t, Config{})
	calls(t, s, "r", 50, "receipt")
	for range 2_000 {
		list, err := s.Calls(context.Background(), "default", "r", keystore.Page{Limit: 5})
		if err != nil || list.Next == "" {
			t.Fatalf("%v, next %q", err, list.Next)
		}
		enough := errors.New("enough")
		err = s.ReadBody(context.Background(), list.Items[0].Intent.Body, func([]byte) error { return enough })
		if !errors.Is(err, enough) {
			t.Fatal(err)
		}
	}
	s.engine.mu.Lock()
	defer s.engine.mu.Unlock()
	if len(s.engine.reads) != 0 {
		t.Errorf("snapshots are held: %v", s.engine.reads)
	}
}

func TestStagedBodiesOfADeadProcessAreDropped(t *testing.T) {
	dir := t.TempDir()
	s := mustOpen(t, Config{Dir: dir})
	orphan, err := s.StageBody(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	if err := orphan.Write(context.Background(), noise(1, 3<<20)); err != nil {
		t.Fatal(err)
	}
	named, err := s.StageBody(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	content := noise(2, 5<<20+17)
	if err := named.Write(context.Background(), content); err != nil {
		t.Fatal(err)
	}
	k := key("r", "c")
	begin(t, s, k, "", keystore.Send)
	e := applied(1)
	e.Receipt.Body = named.Body()
	apply(t, s, k, e, "")
	named.Discard(context.Background())
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = openTest(t, Config{Dir: dir})
	if got, want := piecesKept(t, s), int(pieces(int64(len(content)))); got != want {
		t.Errorf("%d pieces, want %d", got, want)
	}
	if got := keysUnder(t, s, stagedPrefix); got != 0 {
		t.Errorf("%d markers are left", got)
	}
	rec, err := s.Call(context.Background(), k)
	if err != nil || readBody(t, s, rec.Receipt.Body) != string(content) {
		t.Errorf("the named body: %v", err)
	}
}

func TestALargeIntentIsKeptWholeOrNotAtAll(t *testing.T) {
	s := openTest(t, Config{})
	k, body := key("r", "c"), string(noise(1, 10<<20))
	rec := begin(t, s, k, body, keystore.Send)
	if readBody(t, s, rec.Intent.Body) != body {
		t.Error("the intent's body is not what was given")
	}
	before := piecesKept(t, s)
	begin(t, s, k, body, keystore.Wait)
	if after := piecesKept(t, s); after != before {
		t.Errorf("a begin that recorded nothing left %d pieces", after-before)
	}
}

func TestAReplacedIntentLeavesNoBody(t *testing.T) {
	s := openTest(t, Config{})
	k := key("r", "c")
	begin(t, s, k, "first", keystore.Send)
	unsent := keystore.Event{Kind: keystore.SawUnsent, Attempt: 1, Evidence: 1}
	apply(t, s, k, unsent, "")
	rec := begin(t, s, k, "second", keystore.Send)
	if got := readBody(t, s, rec.Intent.Body); got != "second" {
		t.Errorf("intent %q", got)
	}
	if got := piecesKept(t, s); got != 1 {
		t.Errorf("%d pieces, want 1", got)
	}
}

// blocksUnder is how many bytes the files below dir take on disk.
func blocksUnder(dir string) (n int64) {
	filepath.WalkDir(dir, func(path string, _ fs.DirEntry, _ error) error {
		var st syscall.Stat_t
		if syscall.Stat(path, &st) == nil {
			n += st.Blocks * 512
		}
		return nil
	})
	return n
}

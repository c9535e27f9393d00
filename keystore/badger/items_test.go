package badger

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"counterfoil/keystore"
)

var notes = keystore.Space{Namespace: "default", Store: "notes"}

func putStore(t testing.TB, s *Store, ttl time.Duration) {
	t.Helper()
	_, _, err := s.PutItemStore(context.Background(), &keystore.ItemStore{Namespace: notes.Namespace, Name: notes.Store, TTL: ttl})
	if err != nil {
		t.Fatal(err)
	}
}

func put(key, value string) keystore.ItemWrite {
	return keystore.ItemWrite{Kind: keystore.PutItem, Key: key, Value: []byte(value)}
}

func del(key string) keystore.ItemWrite {
	return keystore.ItemWrite{Kind: keystore.DeleteItem, Key: key}
}

func tryWrite(s *Store, writes ...keystore.ItemWrite) error {
	_, err := s.WriteItems(context.Background(), &keystore.Batch{Space: notes, Writes: writes})
	return err
}

func write(t testing.TB, s *Store, writes ...keystore.ItemWrite) {
	t.Helper()
	if err := tryWrite(s, writes...); err != nil {
		t.Fatal(err)
	}
}

// fillItems makes the items from…to-1.
func fillItems(t testing.TB, s *Store, from, to int, nth func(i int) keystore.ItemWrite) {
	t.Helper()
	for ; from < to; from += keystore.WritesMax {
		var writes []keystore.ItemWrite
		for i := from; i < min(to, from+keystore.WritesMax); i++ {
			writes = append(writes, nth(i))
		}
		write(t, s, writes...)
	}
}

func listedKeys(t testing.TB, s *Store, q keystore.ItemQuery) (keys []string) {
	t.Helper()
	q.Space, q.Limit = notes, keystore.ItemsMax
	for {
		l, err := s.Items(context.Background(), &q)
		if err != nil {
			t.Fatal(err)
		}
		for _, i := range l.Items {
			keys = append(keys, i.Key)
		}
		if q.After = l.Next; q.After == "" {
			return keys
		}
	}
}

// reads returns how many keys fn makes the store read for items.
func reads(t testing.TB, s *Store, fn func() error) int64 {
	t.Helper()
	before := s.itemReads.Load()
	if err := fn(); err != nil {
		t.Fatal(err)
	}
	return s.itemReads.Load() - before
}

// TestItemsCostTheSameInALargeStore counts what is read, in a store of 200 items
// and in one of 20,000, half of which have taken each other's place.
func TestItemsCostTheSameInALargeStore(t *testing.T) {
	s := openTest(t, Config{})
	putStore(t, s, 0)
	page := func(q keystore.ItemQuery) func() error {
		q.Space = notes
		return func() error {
			l, err := s.Items(context.Background(), &q)
			if err == nil && len(l.Items) != keystore.ItemsDefault {
				err = fmt.Errorf("%d items are listed", len(l.Items))
			}
			return err
		}
	}
	n := 0
	operations := map[string]func() error{
		"first page":     page(keystore.ItemQuery{}),
		"last page":      page(keystore.ItemQuery{Order: keystore.Descending}),
		"page of keys":   page(keystore.ItemQuery{Fetch: keystore.KeysOnly}),
		"page by prefix": page(keystore.ItemQuery{Order: keystore.Descending, Prefix: "item"}),
		"page in the midst": func() error {
			first, err := s.Items(context.Background(), &keystore.ItemQuery{Space: notes, Order: keystore.Descending, Limit: 50})
			return errors.Join(err, page(keystore.ItemQuery{Order: keystore.Descending, After: first.Next})())
		},
		"one item": func() error { _, err := s.Item(context.Background(), notes, "item 7"); return err },
		"create":   func() error { n++; return tryWrite(s, put(fmt.Sprint("item new ", n), "1")) },
		"replace":  func() error { return tryWrite(s, put("item 7", "2")) },
		"delete":   func() error { return tryWrite(s, del(fmt.Sprint("item new ", n))) },
	}
	order := []string{"first page", "last page", "page of keys", "page by prefix", "page in the midst", "one item", "create", "replace", "delete"}
	measure := func() map[string]int64 {
		cost := map[string]int64{}
		for _, name := range order {
			cost[name] = reads(t, s, operations[name])
		}
		return cost
	}
	nth := func(i int) keystore.ItemWrite { return put(fmt.Sprint("item ", i), `{"some":"value"}`) }
	fillItems(t, s, 0, 200, nth)
	small := measure()
	fillItems(t, s, 200, 20_000, nth)
	fillItems(t, s, 0, 10_000, nth)
	large := measure()
	for _, name := range order {
		t.Logf("%s: %d keys are read with 200 items, %d with 20,000", name, small[name], large[name])
		if large[name] > small[name]+2 || small[name] == 0 {
			t.Errorf("%s: %d keys are read with 20,000 items, %d with 200", name, large[name], small[name])
		}
	}
	if small["first page"] > 2*keystore.ItemsDefault {
		t.Errorf("%d keys are read for a page of %d items", small["first page"], keystore.ItemsDefault)
	}
}

// TestKeysOnlyReadsNoValues: a long value lies apart, and is read for those who
// want it.
func TestKeysOnlyReadsNoValues(t *testing.T) {
	s := openTest(t, Config{})
	putStore(t, s, 0)
	const n = 10
	fillItems(t, s, 0, n, func(i int) keystore.ItemWrite {
		w := put(fmt.Sprint(i), string(noise(uint64(i), keystore.ValueBytesMax)))
		if i%2 == 0 {
			w.Tags = map[string]string{"even": "yes"}
		}
		return w
	})
	cost := func(q keystore.ItemQuery) int64 {
		q.Space = notes
		return reads(t, s, func() error { _, err := s.Items(context.Background(), &q); return err })
	}
	keys, even := cost(keystore.ItemQuery{Fetch: keystore.KeysOnly}), cost(keystore.ItemQuery{Tags: map[string]string{"even": "yes"}})
	perValue := int64(pieces(keystore.ValueBytesMax))
	if keys > n+2 || even != n+2+n/2*perValue {
		t.Errorf("%d keys are read without values, %d with half of them; want %d and %d", keys, even, n+2, n+2+n/2*perValue)
	}
}

// nothingLeft wants no trace of items.
func nothingLeft(t testing.TB, s *Store) {
	t.Helper()
	for _, prefix := range []byte{itemStoreNamePrefix, itemStorePrefix, itemKeyPrefix, itemPrefix, itemEndPrefix, stagedPrefix, dataPrefix} {
		if got := keysUnder(t, s, prefix); got != 0 {
			t.Errorf("%d keys are left under %c", got, prefix)
		}
	}
}

// TestReplacedAndDeletedValuesAreFreed: no piece stays of a value that is not
// there any more, and none of one that was never written.
func TestReplacedAndDeletedValuesAreFreed(t *testing.T) {
	h := newHand()
	s := openTest(t, Config{Now: h.now})
	putStore(t, s, 0)
	long := func(seed uint64) string { return string(noise(seed, 700<<10)) }
	perValue := int(pieces(700 << 10))
	holds := func(what string, values int) {
		t.Helper()
		if got := piecesKept(t, s); got != values*perValue {
			t.Errorf("%s: %d pieces are kept, want those of %d values", what, got, values)
		}
		if got := keysUnder(t, s, stagedPrefix); got != 0 {
			t.Errorf("%s: %d values are still staged", what, got)
		}
	}
	write(t, s, put("a", long(1)), put("b", long(2)), put("c", long(3)))
	holds("written", 3)
	write(t, s, put("a", long(4)), put("b", "short"), del("c"))
	holds("replaced", 1)
	impossible := put("z", "1")
	impossible.If.Present = true
	if err := tryWrite(s, put("a", long(5)), put("b", long(6)), put("c", long(7)), impossible); err == nil {
		t.Error("an impossible write was made")
	}
	holds("refused", 1)
	brief := put("b", long(8))
	brief.TTL = time.Second
	write(t, s, brief, put("c", long(9)))
	holds("written again", 3)
	h.advance(time.Second)
	write(t, s, put("b", long(10))) // over, and not yet swept
	holds("made anew", 3)
	write(t, s, brief)
	h.advance(time.Second)
	sweepAll(t, s, keystore.Retention{})
	holds("swept", 2)
	if got := keysUnder(t, s, itemEndPrefix); got != 0 {
		t.Errorf("%d ends are still noted", got)
	}
	write(t, s, del("a"), del("c"))
	holds("deleted", 0)
}

// TestSmallItemsCountAsRemoved: what was replaced, deleted or is over makes idle
// compaction worth while, however short the items are.
func TestSmallItemsCountAsRemoved(t *testing.T) {
	h := newHand()
	s := openTest(t, Config{Now: h.now})
	putStore(t, s, 0)
	const bytes = 1000
	brief := put("over", string(noise(4, bytes)))
	brief.TTL = time.Second
	for _, step := range []struct {
		what string
		do   func()
	}{
		{"replaced", func() { write(t, s, put("a", "1")) }},
		{"deleted", func() { write(t, s, del("b")) }},
		{"swept", func() { h.advance(time.Second); sweepAll(t, s, keystore.Retention{}) }},
	} {
		write(t, s, put("a", string(noise(2, bytes))), put("b", string(noise(3, bytes))), brief)
		before := s.removed.Load()
		step.do()
		if got := s.removed.Load() - before; got < bytes || got > 2*bytes {
			t.Errorf("%s: %d bytes count as removed, of an item of %d", step.what, got, bytes)
		}
	}
}

// TestStagedValuesOfADeadProcessAreDropped: values that were staged for a batch
// that never came go at the next start.
func TestStagedValuesOfADeadProcessAreDropped(t *testing.T) {
	dir := t.TempDir()
	s := mustOpen(t, Config{Dir: dir})
	putStore(t, s, 0)
	writes := []keystore.ItemWrite{put("a", string(noise(1, 1<<20))), put("b", string(noise(2, 1<<20))), put("c", string(noise(3, 900<<10)))}
	write(t, s, writes...)
	kept := piecesKept(t, s)
	if _, err := s.receiveValues(t.Context(), writes); err != nil {
		t.Fatal(err)
	}
	if piecesKept(t, s) == kept {
		t.Fatal("nothing was staged")
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = openTest(t, Config{Dir: dir})
	if got := piecesKept(t, s); got != kept {
		t.Errorf("%d pieces, want %d", got, kept)
	}
	for _, w := range writes {
		i, err := s.Item(t.Context(), notes, w.Key)
		if err != nil || string(i.Value) != string(w.Value) {
			t.Errorf("%s: %v", w.Key, err)
		}
	}
}

// TestDiscardSparesWhatIsNamed: where a commit seemed to fail and was durable all
// the same, its values must stay.
func TestDiscardSparesWhatIsNamed(t *testing.T) {
	s := openTest(t, Config{})
	in, err := s.stageValue(t.Context(), noise(1, 900<<10))
	if err != nil {
		t.Fatal(err)
	}
	err = s.do(t.Context(), func(v *view) (*step, error) {
		st := v.step()
		_, err := st.place(in)
		return st, err
	})
	if err != nil {
		t.Fatal(err)
	}
	s.stages.offer(in.stage) // as if nobody had heard of the commit
	in.release(t.Context())
	if got := piecesKept(t, s); got != int(pieces(900<<10)) {
		t.Errorf("%d pieces are left", got)
	}
}

// TestAStoreThatIsOverGoesInPortions: nobody sees it from the first of them on,
// whatever the clock does, and nothing is left after the last.
func TestAStoreThatIsOverGoesInPortions(t *testing.T) {
	const long = 3_000
	h, dir := newHand(), t.TempDir()
	var most atomic.Int64
	config := Config{Dir: dir, Now: h.now, Observe: Observer{BatchCommitted: func(_, bytes int, _ time.Duration) {
		most.Store(max(most.Load(), int64(bytes)))
	}}}
	s := mustOpen(t, config)
	putStore(t, s, time.Hour)
	fillItems(t, s, 0, long, func(i int) keystore.ItemWrite {
		w := put(fmt.Sprint(i), string(noise(uint64(i), InlineBytesMax+1)))
		if i%3 == 0 {
			w.TTL = 2 * time.Hour
		}
		return w
	})
	h.advance(time.Hour)
	most.Store(0)
	steps := 0
	for more := true; more; steps++ {
		var err error
		if more, err = s.Sweep(context.Background(), keystore.Retention{}); err != nil {
			t.Fatal(err)
		}
		if steps%2 == 0 { // the process ends, and the clock is set back
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			h.advance(-time.Hour)
			s = mustOpen(t, config)
			if _, err := s.ItemStore(t.Context(), notes.Namespace, notes.Store); !errors.Is(err, keystore.ErrNotFound) {
				t.Fatalf("step %d: the store that is over: %v", steps, err)
			}
			h.advance(time.Hour)
		}
	}
	defer func() { s.Close() }()
	if steps < long/sweepCalls {
		t.Errorf("%d items went in %d steps", long, steps)
	}
	if most.Load() > int64(s.batchBytes) {
		t.Errorf("one step changed %d bytes", most.Load())
	}
	nothingLeft(t, s)
}

// TestManyEndsGoInPortions: items whose time is up together, among others.
func TestManyEndsGoInPortions(t *testing.T) {
	h := newHand()
	s := openTest(t, Config{Now: h.now})
	putStore(t, s, 0)
	fillItems(t, s, 0, 2_000, func(i int) keystore.ItemWrite {
		w := put(fmt.Sprint(i), "1")
		if i%4 != 0 {
			w.TTL = time.Duration(1+i%3) * time.Minute
		}
		return w
	})
	for minute, want := range []int{2_000, 1_500, 1_000, 500} {
		steps := sweepAll(t, s, keystore.Retention{})
		if got := keysUnder(t, s, itemPrefix); got != want || minute > 0 && steps < 500/sweepCalls {
			t.Errorf("after %d minutes %d items are kept, swept in %d steps; want %d", minute, got, steps, want)
		}
		h.advance(time.Minute)
	}
	if got := keysUnder(t, s, itemEndPrefix) + keysUnder(t, s, itemKeyPrefix); got != 500 {
		t.Errorf("%d ends and names are kept, want 500", got)
	}
}

// TestALivingStoreIsLookedAtAgain: its entry among the ends moves with it.
func TestALivingStoreIsLookedAtAgain(t *testing.T) {
	h := newHand()
	s := openTest(t, Config{Now: h.now})
	putStore(t, s, time.Minute)
	for range 5 {
		h.advance(50 * time.Second)
		write(t, s, put("k", "1"))
		sweepAll(t, s, keystore.Retention{})
		if got := keysUnder(t, s, itemEndPrefix); got != 1 {
			t.Fatalf("%d ends are noted", got)
		}
	}
	h.advance(time.Minute)
	sweepAll(t, s, keystore.Retention{})
	nothingLeft(t, s)
}

// garbleItem overwrites what is kept under a key that change makes of an item.
func garbleItem(t *testing.T, s *Store, key string, change func(st *step, p part, i *placed)) {
	t.Helper()
	err := s.do(context.Background(), func(v *view) (*step, error) {
		st := v.step()
		r := v.itemReader(st)
		_, p, err := r.open(notes)
		if err != nil {
			return nil, err
		}
		i, err := r.at(p, key)
		if err != nil {
			return nil, err
		}
		change(st, p, i)
		return st, nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// TestAnItemThatCannotBeRead is never taken for one that is not there, and hides
// nothing else.
func TestAnItemThatCannotBeRead(t *testing.T) {
	for name, damage := range map[string]func(st *step, p part, i *placed){
		"garbage":         func(st *step, p part, i *placed) { st.set(p.itemKey(i.place), []byte("\x01garbage")) },
		"nothing":         func(st *step, p part, i *placed) { st.set(p.itemKey(i.place), nil) },
		"gone":            func(st *step, p part, i *placed) { st.remove(p.itemKey(i.place)) },
		"of another user": func(st *step, p part, i *placed) { i.User = "x"; _ = st.layItem(p, i.place, i.item) },
		"another item":    func(st *step, p part, i *placed) { i.Item.Key = "x"; _ = st.layItem(p, i.place, i.item) },
		"no place":        func(st *step, p part, _ *placed) { st.set(p.nameKey("b"), []byte("x")) },
		"a piece gone":    func(st *step, _ part, i *placed) { st.remove(pieceKey(number(i.Value.Ref), 1)) },
		"a piece changed": func(st *step, _ part, i *placed) { st.set(pieceKey(number(i.Value.Ref), 0), []byte("x")) },
		"a length that lies": func(st *step, p part, i *placed) {
			i.Value.Bytes = 1 << 60
			_ = st.layItem(p, i.place, i.item)
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := openTest(t, Config{})
			putStore(t, s, 0)
			write(t, s, put("a", "1"), put("b", string(noise(1, 600<<10))), put("c", "1"))
			garbleItem(t, s, "b", damage)
			if _, err := s.Item(t.Context(), notes, "b"); !errors.Is(err, keystore.ErrCorrupt) {
				t.Errorf("read: %v", err)
			}
			absent := put("b", "2")
			absent.If.Absent = true
			if err := tryWrite(s, absent); err == nil {
				t.Error("it is taken for one that is not there")
			}
			keys := strings.Join(listedKeys(t, s, keystore.ItemQuery{}), " ")
			if keys != "a c" && !(name == "another item" && keys == "a x c") && !(name == "no place" && keys == "a b c") {
				t.Errorf("listed %q", keys)
			}
			write(t, s, put("a", "2"), del("c"))
		})
	}
}

func TestAnItemStoreThatCannotBeRead(t *testing.T) {
	h := newHand()
	s := openTest(t, Config{Now: h.now})
	putStore(t, s, time.Minute)
	write(t, s, put("a", "1"))
	garbleItem(t, s, "a", func(st *step, p part, _ *placed) { st.set(itemStoreKey(p.store), []byte("\x01garbage")) })
	if _, err := s.ItemStore(t.Context(), notes.Namespace, notes.Store); !errors.Is(err, keystore.ErrCorrupt) {
		t.Errorf("read: %v", err)
	}
	if _, _, err := s.PutItemStore(t.Context(), &keystore.ItemStore{Namespace: notes.Namespace, Name: notes.Store}); !errors.Is(err, keystore.ErrCorrupt) {
		t.Errorf("put: %v", err)
	}
	if err := tryWrite(s, put("a", "2")); !errors.Is(err, keystore.ErrCorrupt) {
		t.Errorf("written: %v", err)
	}
	h.advance(time.Hour)
	sweepAll(t, s, keystore.Retention{}) // which comes to an end
}

func TestItemsBelowTheReserve(t *testing.T) {
	const roomy = 10 << 30
	var free atomic.Int64
	free.Store(roomy)
	s := openTest(t, Config{Space: func(string) (int64, int64, error) { return free.Load(), 100 << 30, nil }})
	putStore(t, s, 0)
	write(t, s, put("k", "1"))
	free.Store(ReserveDefault - 1)
	long := string(noise(1, 1<<20))
	for name, err := range map[string]error{
		"short": tryWrite(s, put("k", "2")), "long": tryWrite(s, put("k", long), put("l", long)), "delete": tryWrite(s, del("k")),
	} {
		if !errors.Is(err, keystore.ErrFull) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, _, err := s.PutItemStore(t.Context(), &keystore.ItemStore{Namespace: "default", Name: "new"}); !errors.Is(err, keystore.ErrFull) {
		t.Errorf("a new store: %v", err)
	}
	putStore(t, s, 0)
	if i, err := s.Item(t.Context(), notes, "k"); err != nil || string(i.Value) != "1" {
		t.Errorf("read: %v, %v", i, err)
	}
	free.Store(roomy)
	write(t, s, put("k", "2"))
	if got := piecesKept(t, s); got != 0 {
		t.Errorf("%d pieces are left of what was refused", got)
	}
}

// TestBatchesOfOneCommitSeeEachOther: of two creates in one commit the second
// meets the first, and a put after a delete finds nothing.
func TestBatchesOfOneCommitSeeEachOther(t *testing.T) {
	s := openTest(t, Config{})
	putStore(t, s, 0)
	write(t, s, put("there", "1"))
	absent := keystore.Condition{Absent: true}
	create := func(key string) keystore.ItemWrite {
		w := put(key, "1")
		w.If = absent
		return w
	}
	var refused atomic.Int64
	together(t, s, hold(t, s), []outcome{{name: "new"}, {name: "new"}, {name: "delete"}, {name: "there"}, {name: "there"}}, func(name string) error {
		w := create(name)
		if name == "delete" {
			w = del("there")
		}
		err := tryWrite(s, w)
		if r, ok := errors.AsType[*keystore.Refused](err); ok && r.Reason == keystore.ItemExists && r.Version != 0 {
			refused.Add(1)
			return nil
		}
		return err
	})
	if refused.Load() != 2 {
		t.Errorf("%d creates were refused, want 2", refused.Load())
	}
}

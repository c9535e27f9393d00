package storetest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/anishathalye/porcupine"

	"counterfoil/keystore"
)

// TestItemsAreLinearizable lets clients loose on few items of a Memory whose
// disk fails and crashes, and judges what they saw.
func TestItemsAreLinearizable(t *testing.T) {
	for seed := range uint64(20) {
		b, disk := onDisk(t)
		b.withNotes()
		random := rand.New(rand.NewPCG(seed, 1))
		h := &recorded{}
		for life := range 4 {
			for range 3 {
				disk.Fail(Fault{
					Op: []Op{Sync, WriteItems, Read}[random.IntN(3)], Nth: 1 + random.IntN(40),
					Moment: Moment(random.IntN(2)), Course: []Course{Once, Deadly}[random.IntN(2)],
				})
			}
			h.clients(t, b.store, seed, life)
			disk.Heal()
			b.crash()
		}
		h.clients(t, b.store, seed, 4)
		CheckItems(t, seed, h.events)
	}
}

// A recorded is a history of one process.
type recorded struct {
	mu     sync.Mutex
	events []ItemEvent
}

func (h *recorded) tell(e ItemEvent) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.events = append(h.events, e)
}

func (h *recorded) clients(t *testing.T, s keystore.Store, seed uint64, life int) {
	t.Helper()
	var group sync.WaitGroup
	errs := make([]error, 5)
	for n := range errs {
		number := life*len(errs) + n
		c := ItemClient{
			Number: number, Store: s, Space: notes, Keys: []string{"a", "b"},
			Random: rand.New(rand.NewPCG(seed, uint64(100+number))), Tell: h.tell,
		}
		group.Go(func() { errs[n] = c.Run(40) })
	}
	group.Wait()
	if err := errors.Join(errs...); err != nil {
		t.Fatalf("seed %d, life %d: %v", seed, life, err)
	}
}

// TestHistoriesThatCannotBe: the judge finds what it is there to find.
func TestHistoriesThatCannotBe(t *testing.T) {
	made := func(client int, op ItemOp) []ItemEvent {
		call := op
		call.Outcome, call.Version, call.Found, call.Was = 0, 0, "", false
		return []ItemEvent{{Client: client, Op: call}, {Client: client, IsReturn: true, Op: op}}
	}
	create := ItemOp{Kind: CreateOp, Key: "k", Value: "one", Outcome: Made, Version: 1}
	replaced := func(value string, v keystore.ItemVersion) ItemOp {
		return ItemOp{Kind: ReplaceOp, Key: "k", Value: value, If: 1, Outcome: Made, Version: v, Was: true}
	}
	got := func(value string, v keystore.ItemVersion) ItemOp {
		return ItemOp{Kind: GetOp, Key: "k", Outcome: Made, Version: v, Found: value, Was: v != 0}
	}
	open := []ItemEvent{{Client: 9, Op: ItemOp{Kind: ReplaceOp, Key: "k", Value: "open", If: 1}}}
	for name, c := range map[string]struct {
		ops  [][]ItemEvent
		want porcupine.CheckResult
	}{
		"one after the other":          {[][]ItemEvent{made(0, create), made(1, replaced("two", 2)), made(0, got("two", 2))}, porcupine.Ok},
		"a lost update":                {[][]ItemEvent{made(0, create), made(1, replaced("two", 2)), made(2, replaced("three", 3))}, porcupine.Illegal},
		"a lost write":                 {[][]ItemEvent{made(0, create), made(1, got("", 0))}, porcupine.Illegal},
		"a stale read":                 {[][]ItemEvent{made(0, create), made(1, replaced("two", 2)), made(0, got("one", 1))}, porcupine.Illegal},
		"an open write that was made":  {[][]ItemEvent{made(0, create), open, made(1, got("open", 5)), made(2, got("open", 5))}, porcupine.Ok},
		"an open write that was not":   {[][]ItemEvent{made(0, create), open, made(1, got("one", 1)), made(2, replaced("two", 2))}, porcupine.Ok},
		"an open write that came back": {[][]ItemEvent{made(0, create), open, made(1, replaced("two", 2)), made(2, got("open", 5))}, porcupine.Illegal},
	} {
		var events []ItemEvent
		for _, op := range c.ops {
			events = append(events, op...)
		}
		valueOf, err := versions(events)
		history, _ := operations(events)
		if got := porcupine.CheckOperationsTimeout(itemModel(valueOf), history, LinearizableWithin); got != c.want || err != nil {
			t.Errorf("%s: judged %s, %v; want %s", name, got, err, c.want)
		}
	}
	if _, err := versions(append(made(0, create), made(0, got("another", 1))...)); err == nil {
		t.Error("a version that stands for two values is taken")
	}
}

// TestNthSyncFailsUnderBatches fails the first, second, third … sync under
// batches of two writes, on both sides of durability, once and deadly, until a
// run is untouched: no batch is ever half there.
func TestNthSyncFailsUnderBatches(t *testing.T) {
	for _, moment := range []Moment{BeforeDurable, AfterDurable} {
		for _, course := range []Course{Once, Deadly} {
			for n := 1; ; n++ {
				b, disk := onDisk(t)
				b.withNotes()
				armed := disk.Fail(Fault{Op: Sync, Nth: n, Moment: moment, Course: course})
				acknowledged := b.pairs(20)
				disk.Heal()
				b.crash()
				b.holdsPair(acknowledged)
				if armed.Struck() == 0 {
					break
				}
				if n > 100 {
					t.Fatal("the history has no end")
				}
			}
		}
	}
}

// pairs writes equal values to two items, and returns the last that was
// acknowledged.
func (b *trial) pairs(n int) (acknowledged int) {
	for i := 1; i <= n; i++ {
		value := fmt.Sprint(i)
		if _, err := b.tryWrite(notes, put("left", value), del("gone"), put("right", value)); err == nil {
			acknowledged = i
		}
	}
	return acknowledged
}

func (b *trial) holdsPair(atLeast int) {
	b.Helper()
	left, err := b.store.Item(context.Background(), notes, "left")
	if errors.Is(err, keystore.ErrNotFound) && atLeast == 0 {
		b.noItem(notes, "right")
		return
	}
	if err != nil {
		b.Fatal(err)
	}
	right := b.item(notes, "right")
	var got int
	fmt.Sscan(string(left.Value), &got)
	if string(left.Value) != string(right.Value) || got < atLeast {
		b.Fatalf("left %s, right %s; %d was acknowledged", left.Value, right.Value, atLeast)
	}
}

func TestItemsOnAFullDisk(t *testing.T) {
	b, disk := onDisk(t)
	b.withNotes()
	v := b.write(notes, put("k", "1"))[0].Item.Version
	disk.SetFull(true)
	_, err := b.tryWrite(notes, put("k", "2"))
	b.wants(err, keystore.ErrFull)
	b.refusing(keystore.ItemExists, notes, only(put("k", "2"), keystore.Condition{Absent: true}))
	_, _, err = b.store.PutItemStore(context.Background(), &keystore.ItemStore{Namespace: "default", Name: "new"})
	b.wants(err, keystore.ErrFull)
	b.withNotes()
	if got := b.item(notes, "k"); got.Version != v {
		b.Fatalf("version %d, want %d", got.Version, v)
	}
	disk.SetFull(false)
	b.write(notes, put("k", "2"))
}

// TestAnItemThatCannotBeRead hides nothing else, and is never taken for one that
// is not there.
func TestAnItemThatCannotBeRead(t *testing.T) {
	b, _ := onDisk(t)
	b.withNotes()
	b.write(notes, put("a", "1"), put("b", "1"), put("c", "1"))
	m := b.store.(*Memory)
	m.mu.Lock()
	for name, e := range m.live.items.items {
		if name.key == "b" {
			e.stored = []byte("\x01garbage")
			m.change(func(i *image) { i.items.items[name] = e })
		}
	}
	m.mu.Unlock()
	_, err := b.store.Item(context.Background(), notes, "b")
	b.wants(err, keystore.ErrCorrupt)
	_, err = b.tryWrite(notes, only(put("b", "2"), keystore.Condition{Absent: true}))
	b.wants(err, keystore.ErrCorrupt)
	b.lists(keystore.ItemQuery{Space: notes, Limit: 1}, "a c")
	b.sweep()
	b.lists(keystore.ItemQuery{Space: notes, Order: keystore.Descending}, "c a")
}

package storetest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"

	"counterfoil/classify"
	"counterfoil/keystore"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestMemoryKeepsTheContract(t *testing.T) {
	Run(t, func(*testing.T) Place { return memoryPlace(NewDisk()) })
}

func memoryPlace(disk *Disk) Place {
	return Place{
		Open: func(c *Clock) (keystore.Store, error) {
			s, err := openMemory(disk, c.Now, c.Elapsed)
			if err != nil {
				return nil, err
			}
			return s, nil
		},
		Crash:   func(s keystore.Store) { s.(*Memory).Crash() },
		SetFull: disk.SetFull,
	}
}

// onDisk returns a trial of a Memory, and its disk.
func onDisk(t *testing.T) (*trial, *Disk) {
	t.Helper()
	disk := NewDisk()
	b := &trial{T: t, place: memoryPlace(disk), clock: NewClock(), seen: map[keystore.Key]*keystore.Record{}}
	b.open()
	t.Cleanup(func() { b.store.Close() })
	return b, disk
}

func (b *trial) failsToBegin(q *keystore.Request) {
	b.Helper()
	_, err := b.store.Begin(context.Background(), q, nil)
	b.wants(err, keystore.ErrUnavailable)
}

func TestCrashForgetsWhatWasNotSynced(t *testing.T) {
	b, disk := onDisk(t)
	b.succeed(key("before"))
	disk.Fail(Fault{Op: Sync, Course: Deadly})
	b.failsToBegin(b.request(key("a")))
	if disk.Record(key("a")) != nil || disk.Record(key("before")) == nil {
		t.Fatal("the disk holds what was not synced, or lost what was")
	}
	b.failsToBegin(b.request(key("b")))
	b.open()
	b.beginning(b.request(key("a")), keystore.Send)
	if r := disk.Record(key("a")); r == nil || r.State != keystore.Pending {
		t.Fatalf("after begin the disk holds %+v", r)
	}
}

func TestCrashAfterTheSync(t *testing.T) {
	b, disk := onDisk(t)
	disk.Fail(Fault{Op: Sync, Moment: AfterDurable, Course: Deadly})
	b.failsToBegin(b.lookup(key("a")))
	b.open()
	if b.store.Facts().Doubtful != 1 {
		t.Fatalf("%d doubtful, want 1", b.store.Facts().Doubtful)
	}
	b.beginning(b.lookup(key("a")), keystore.Ask)
}

func TestLostAcknowledgement(t *testing.T) {
	b, disk := onDisk(t)
	armed := disk.Fail(Fault{Op: Begin, Nth: 2, Moment: AfterDurable})
	b.beginning(b.request(key("a")), keystore.Send)
	b.failsToBegin(b.request(key("b")))
	b.beginning(b.request(key("b")), keystore.Wait)
	b.beginning(b.request(key("c")), keystore.Send)
	if armed.Struck() != 1 {
		t.Fatalf("struck %d times, want 1", armed.Struck())
	}
}

func TestFaultsBeforeDurable(t *testing.T) {
	b, disk := onDisk(t)
	full := errors.New("a cause of the test's own")
	armed := disk.Fail(Fault{Op: Apply, Nth: 2, Course: Lasting, Err: full})
	b.succeed(key("a"))
	b.beginning(b.request(key("b")), keystore.Send)
	for range 3 {
		_, err := b.store.Apply(context.Background(), key("b"), answered(keystore.SawApplied, 1), nil)
		b.wants(err, full)
		b.inState(key("b"), keystore.Pending)
	}
	disk.Heal()
	b.apply(key("b"), answered(keystore.SawApplied, 1), nil)
	if armed.Struck() != 3 {
		t.Fatalf("struck %d times, want 3", armed.Struck())
	}
}

func TestEveryKindOfOperationFails(t *testing.T) {
	ctx := context.Background()
	for op, try := range map[Op]func(*trial) error{
		Begin: func(b *trial) error { _, err := b.store.Begin(ctx, b.request(key("x")), nil); return err },
		Apply: func(b *trial) error {
			_, err := b.store.Apply(ctx, key("a"), answered(keystore.LateApplied, 1), nil)
			return err
		},
		Read:  func(b *trial) error { _, err := b.store.Call(ctx, key("a")); return err },
		Sweep: func(b *trial) error { _, err := b.store.Sweep(ctx, keystore.Retention{}); return err },
		StageWrite: func(b *trial) error {
			s, err := b.store.StageBody(ctx)
			return errors.Join(err, s.Write(ctx, []byte("x")))
		},
		WriteItems: func(b *trial) error { _, err := b.tryWrite(notes, put("k", "1")); return err },
		Sync:       func(b *trial) error { _, err := b.store.Begin(ctx, b.request(key("x")), nil); return err },
		Open: func(b *trial) error {
			b.store.Close()
			s, err := b.place.Open(b.clock)
			if err == nil {
				b.store = s
			}
			return err
		},
	} {
		for _, moment := range []Moment{BeforeDurable, AfterDurable} {
			b, disk := onDisk(t)
			b.doubt(b.request(key("a")))
			b.withNotes()
			disk.Fail(Fault{Op: op, Moment: moment})
			if err := try(b); !errors.Is(err, keystore.ErrUnavailable) {
				t.Errorf("%s: %v", op, err)
			}
			if err := try(b); op != Sync && op != Apply && err != nil {
				t.Errorf("%s, the second time: %v", op, err)
			}
		}
	}
}

// TestFailedSyncTakesItsBatch: of callers whose operations were lost together,
// each is told so, and the store goes on from what is durable.
func TestFailedSyncTakesItsBatch(t *testing.T) {
	b, disk := onDisk(t)
	disk.Fail(Fault{Op: Sync})
	errs := make([]error, 64)
	var group sync.WaitGroup
	for i := range errs {
		q := b.request(keyIn("batch", fmt.Sprint(i)))
		group.Go(func() { _, errs[i] = b.store.Begin(context.Background(), q, nil) })
	}
	group.Wait()
	failed := 0
	for i, err := range errs {
		k := keyIn("batch", fmt.Sprint(i))
		if err == nil {
			b.inState(k, keystore.Pending)
			continue
		}
		failed++
		b.wants(err, keystore.ErrUnavailable)
		_, err := b.store.Call(context.Background(), k)
		b.wants(err, keystore.ErrNotFound)
	}
	if failed == 0 {
		t.Fatal("a sync failed, and nobody was told")
	}
	b.beginning(b.request(keyIn("batch", "after")), keystore.Send)
	if s := b.run("batch"); s.Total() != len(errs)-failed+1 {
		t.Fatalf("the run has %d calls, want %d", s.Total(), len(errs)-failed+1)
	}
}

// TestFailedSyncKeepsTheStage: an operation that failed can be repeated with the
// same staged body.
func TestFailedSyncKeepsTheStage(t *testing.T) {
	b, disk := onDisk(t)
	b.beginning(b.request(key("a")), keystore.Send)
	want := noise(100<<10, 9)
	e := answered(keystore.SawApplied, 1)
	e.Receipt.Body = b.stage(want, 1<<14).Body()
	disk.Fail(Fault{Op: Sync})
	_, err := b.store.Apply(context.Background(), key("a"), e, nil)
	b.wants(err, keystore.ErrUnavailable)
	r := b.apply(key("a"), e, nil)
	b.holds(r.Receipt.Body, want)
	b.crash()
	b.holds(b.call(key("a")).Receipt.Body, want)
}

func TestFullDisk(t *testing.T) {
	b, disk := onDisk(t)
	b.beginning(b.request(key("a")), keystore.Send)
	b.doubt(b.keyed(key("doubt")))
	disk.SetFull(true)
	for _, q := range []*keystore.Request{b.request(key("b")), b.keyed(key("doubt"))} {
		_, err := b.store.Begin(context.Background(), q, nil)
		b.wants(err, keystore.ErrFull)
		b.wants(err, keystore.ErrUnavailable)
	}
	if !b.store.Stats().Full {
		t.Error("the stats do not say that the disk is full")
	}
	s, err := b.store.StageBody(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	b.wants(s.Write(context.Background(), []byte("x")), keystore.ErrFull)
	b.apply(key("a"), answered(keystore.SawApplied, 1), nil)
	b.beginning(b.request(key("a")), keystore.Replay)
	disk.SetFull(false)
	b.beginning(b.request(key("b")), keystore.Send)
}

func TestOneStorePerDisk(t *testing.T) {
	b, disk := onDisk(t)
	_, err := OpenMemory(disk, b.clock.Now)
	b.wants(err, keystore.ErrLocked)
	old := b.store.(*Memory)
	old.Crash()
	b.open()
	old.Crash()
	old.Close()
	b.beginning(b.request(key("a")), keystore.Send)
	_, err = OpenMemory(disk, b.clock.Now)
	b.wants(err, keystore.ErrLocked)
	_, err = old.Begin(context.Background(), b.request(key("b")), nil)
	b.wants(err, keystore.ErrUnavailable)
}

// TestDeadEpochWithinBegin: an attempt of an epoch that is not this one is in
// doubt before anything is decided, in the same step.
func TestDeadEpochWithinBegin(t *testing.T) {
	b, _ := onDisk(t)
	stale := b.lookup(key("a"))
	stale.Epoch = 77
	b.beginning(stale, keystore.Send)
	r := b.beginning(b.lookup(key("a")), keystore.Ask)
	if r.State != keystore.InDoubt || r.Attempts[0].Evidence != classify.Lost || !same(r, b.call(key("a"))) {
		t.Fatalf("got %+v", r)
	}
}

func TestCancelledContext(t *testing.T) {
	b, _ := onDisk(t)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_, err := b.store.Begin(ctx, b.request(key("a")), nil)
	b.wants(err, context.Canceled)
	b.wants(err, keystore.ErrUnavailable)
	_, err = b.store.StageBody(ctx)
	b.wants(err, context.Canceled)
	b.beginning(b.request(key("a")), keystore.Send)
}

func TestForeignCursor(t *testing.T) {
	b, _ := onDisk(t)
	_, err := b.store.Runs(context.Background(), "default", keystore.Page{After: "!"})
	b.wants(err, keystore.ErrNotFound)
}

// TestNthSyncFails fails the first, second, third … sync of one history, on
// both sides of durability, once and deadly, until a run is untouched. After
// each: certainly there is what was acknowledged, certainly absent what was
// never asked for, and perhaps there what failed.
func TestNthSyncFails(t *testing.T) {
	for _, moment := range []Moment{BeforeDurable, AfterDurable} {
		for _, course := range []Course{Once, Deadly} {
			for n := 1; ; n++ {
				b, disk := onDisk(t)
				armed := disk.Fail(Fault{Op: Sync, Nth: n, Moment: moment, Course: course})
				b.history()
				disk.Heal()
				b.crash()
				b.agreesPerhaps()
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

// history leads one call to its receipt and on to nothing, repeating what
// failed once; where the store has died it stops.
func (b *trial) history() {
	k := key("a")
	for range 2 {
		if a, err := b.store.Begin(context.Background(), b.keyed(k), noise(100<<10, 1)); err == nil {
			b.seen[k] = a.Record
			break
		}
	}
	for _, e := range []keystore.Event{answered(keystore.SawAmbiguous, 1), {Kind: keystore.LookupFailed}, {Kind: keystore.LookupFound, Receipt: receipt(200)}} {
		for range 2 {
			if r, err := b.store.Apply(context.Background(), k, e, noise(50<<10, 2)); err == nil {
				b.seen[k] = r
				break
			}
		}
	}
}

func (b *trial) agreesPerhaps() {
	b.Helper()
	want, acknowledged := b.seen[key("a")]
	got, err := b.store.Call(context.Background(), key("a"))
	if errors.Is(err, keystore.ErrNotFound) && !acknowledged {
		return
	}
	if err != nil {
		b.Fatalf("what was acknowledged is gone: %v", err)
	}
	if acknowledged && got.Version < want.Version {
		b.Fatalf("acknowledged was %+v, on record is %+v", want, got)
	}
	if got.State == keystore.Succeeded {
		b.holds(got.Receipt.Body, noise(50<<10, 2))
	}
	b.holds(got.Intent.Body, noise(100<<10, 1))
	if _, err := b.store.Call(context.Background(), key("never asked for")); !errors.Is(err, keystore.ErrNotFound) {
		b.Fatalf("what was never asked for: %v", err)
	}
}

package storetest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"

	"counterfoil/keystore"
)

// A runOp is an operation on a run that has a lease, a plan and a position, and a
// look at whether it is on record.
type runOp struct {
	op    Op
	do    func(*trial) error
	there func(*trial) bool
	// again says that repeating the operation after a lost answer is no error.
	again bool
}

var runOps = []runOp{
	{PutRun, func(b *trial) error {
		_, _, err := b.store.PutRun(context.Background(), &keystore.RunSpec{Namespace: "default", Run: "r", Labels: map[string]string{"a": "b"}})
		return err
	}, func(b *trial) bool { return b.run("r").Labels["a"] == "b" }, true},
	{AcquireLease, func(b *trial) error { _, err := b.tryAcquire("r", "w2"); return err }, func(b *trial) bool { return b.lease("r").Fence == 2 }, false},
	{RenewLease, func(b *trial) error {
		_, err := b.store.RenewLease(context.Background(), "default", "r", b.lease("r").Fence, 2*ttl)
		return err
	}, func(b *trial) bool { return b.lease("r").TTL == 2*ttl }, true},
	{ReleaseLease, func(b *trial) error { return b.store.ReleaseLease(context.Background(), "default", "r", 1) }, func(b *trial) bool { return b.lease("r").Left == 0 }, true},
	{PutPlan, func(b *trial) error {
		_, err := b.store.PutPlan(context.Background(), plan("2", "x", "y"), keystore.Guard{Fence: b.lease("r").Fence})
		return err
	}, func(b *trial) bool {
		p, err := b.store.Plan(context.Background(), "default", "r", "2")
		planned := b.run("r").Calls[keystore.Planned]
		if there := err == nil; there && (len(p.Calls) != 2 || planned != 2) || !there && planned != 0 {
			b.Fatalf("half a plan: %+v, %d calls", p, planned)
		}
		return err == nil
	}, true},
	{Step, func(b *trial) error {
		return b.store.Step(context.Background(), slotKey(ordinal(0, 1)), ordinal(0, 1), keystore.Forth)
	}, func(b *trial) bool { return b.position("1").Through == 1 }, true},
}

// aRun puts on record what the operations need.
func (b *trial) aRun(op Op) {
	b.succeedAt(ordinal(0, 1), 1)
	b.acquire("r", "w1")
	if op == AcquireLease {
		b.release("r", 1)
	}
}

// TestRunOperationsThatFail fails each operation on either side of durability,
// once and deadly, by itself and by its sync: what was done before durability is
// nowhere, what was done after it is there whole, and a repeat comes to the same.
func TestRunOperationsThatFail(t *testing.T) {
	for _, o := range runOps {
		for _, at := range []Op{o.op, Sync} {
			for _, moment := range []Moment{BeforeDurable, AfterDurable} {
				for _, course := range []Course{Once, Deadly} {
					t.Run(fmt.Sprint(o.op, " at ", at, " ", moment, " ", course), func(t *testing.T) {
						b, disk := onDisk(t)
						b.aRun(o.op)
						armed := disk.Fail(Fault{Op: at, Moment: moment, Course: course})
						b.wants(o.do(b), keystore.ErrUnavailable)
						if armed.Struck() != 1 {
							t.Fatal("the fault did not strike")
						}
						disk.Heal()
						b.crash()
						if there := o.there(b); there != (moment == AfterDurable) {
							t.Fatalf("on record: %t", there)
						}
						err := o.do(b)
						if _, isRefused := errors.AsType[*keystore.Refused](err); err != nil && (o.again || moment == BeforeDurable || !isRefused) {
							t.Fatalf("repeated: %v", err)
						}
						if !o.there(b) {
							t.Fatal("repeated, and not on record")
						}
					})
				}
			}
		}
	}
}

// TestLeasesAreLinearizableThroughCrashes kills the store at random operations and
// syncs.
func TestLeasesAreLinearizableThroughCrashes(t *testing.T) {
	ops := []Op{AcquireLease, RenewLease, ReleaseLease, Begin, Sync}
	for seed := range uint64(30) {
		b, disk := onDisk(t)
		crash := b.place.Crash
		b.place.Crash = func(s keystore.Store) {
			disk.Heal()
			crash(s)
		}
		t.Logf("seed %d", seed)
		random := rand.New(rand.NewPCG(seed, 99))
		CheckLeases(t, b.leaseHistory(seed, func() {
			for range 1 + random.IntN(3) {
				disk.Fail(Fault{
					Op: ops[random.IntN(len(ops))], Nth: 1 + random.IntN(20),
					Moment: Moment(random.IntN(2)), Course: []Course{Once, Deadly}[random.IntN(2)],
				})
			}
		}))
	}
}

package storetest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"counterfoil/classify"
	"counterfoil/keystore"
)

// runCases test what a store keeps of a run besides its calls.
var runCases = []testCase{
	{"a lease is given, renewed and given back", testLeaseLife},
	{"a lease that is held is refused, whoever asks", testLeaseHeld},
	{"a lease that is over is lost, though nobody took it", testLeaseOver},
	{"a hundred ask for a lease and one gets it", testLeaseContention},
	{"fences only grow, through releases, expiries and restarts", testFencesGrow},
	{"a restart gives every lease anew for its TTL", testLeaseAfterRestart},
	{"the wall clock neither ends nor prolongs a lease", testLeaseWallClock},
	{"an owner takes over from its own dead epoch, and from no other", testInheritance},
	{"a full disk takes renewals and releases, and gives no leases", testLeaseFullDisk},
	{"begin checks the fence, for replays too", testBeginFence},
	{"begin checks the fence in its own atomic step", testBeginFenceAtomic},
	{"a receipt is kept whoever sent it", testReceiptWithoutFence},
	{"the leases of a run under random load are linearizable", testLeasesLinearizable},

	{"a run is made by what is said of it", testPutRun},
	{"a run keeps its flow version", testFlowVersion},
	{"a flow version is pinned where the record does not change", testPinsWithoutRecord},
	{"a budget bounds the effects of a run", testBudget},
	{"a budget holds under a hundred begins at once", testBudgetAtOnce},
	{"the store keeps no memory of a run's callers", testRunOwnership},
	{"a run without calls is on record, and is swept", testRunWithoutCalls},
	{"a run whose lease is held is not swept", testHeldLeaseStays},
	{"a swept run's fence goes on growing", testFenceAfterSweep},

	{"a plan puts its calls on record", testPlan},
	{"a turn has one plan", testPlanConflict},
	{"of many plans at once one is the turn's", testPlansAtOnce},
	{"a plan leaves what is on record as it is", testPlanOverCalls},
	{"a plan bounds the effects of its turn", testNotInPlan},
	{"a plan is checked against the fence and the flow version", testPlanGuard},
	{"the largest plan is taken", testLargestPlan},
	{"plans and positions go with their run", testPlansGoWithRun},
	{"a model's plan is on record with its answer, and those of a turn add up", testDecided},
	{"an agent's own plan stands over a model's", testDecidedAndPut},
	{"a model's answer to a stale worker plans nothing", testDecidedStale},
	{"of many answers at once no call is lost", testDecidedAtOnce},
	{"the largest answer", testLargestDecision},
	{"a plan that is only shown refuses nothing", testAdvisoryPlan},
	{"resending that is over, and what cannot be judged", testSpent},

	{"a slot is taken by begin, in the same step", testSlots},
	{"a receipt moves its position on, in the same step", testAnswered},
	{"a receipt is kept whatever becomes of its position", testAnsweredStale},
	{"a final call takes its slot though it does not change", testFinalTakesSlot},
	{"positions move forth and back", testStep},
	{"an incarnation that was replaced is refused", testStaleIncarnation},
	{"a replay that diverges is held", testDivergence},
	{"a call that needs approval is held with its intent", testHeldByBegin},
	{"a full disk takes steps, and no runs, plans or holds", testRunsFullDisk},
	{"what is not on record of a run", testRunNotFound},
	{"what was acknowledged of a run is there after a crash", testRunAcknowledged},
}

const ttl = 30 * time.Second

func (b *trial) tryAcquire(run, owner string) (keystore.Grant, error) {
	return b.store.AcquireLease(context.Background(), &keystore.LeaseRequest{Namespace: "default", Run: run, Owner: owner, TTL: ttl})
}

func (b *trial) acquire(run, owner string) keystore.Grant {
	b.Helper()
	g, err := b.tryAcquire(run, owner)
	if err != nil {
		b.Fatalf("acquiring the lease of %s: %v", run, err)
	}
	return g
}

func (b *trial) renew(run string, f keystore.Fence) (keystore.Grant, error) {
	return b.store.RenewLease(context.Background(), "default", run, f, 0)
}

func (b *trial) release(run string, f keystore.Fence) {
	b.Helper()
	if err := b.store.ReleaseLease(context.Background(), "default", run, f); err != nil {
		b.Fatalf("releasing fence %d of %s: %v", f, run, err)
	}
}

func (b *trial) lease(run string) keystore.Grant {
	b.Helper()
	g, err := b.store.Lease(context.Background(), "default", run)
	if err != nil {
		b.Fatalf("the lease of %s: %v", run, err)
	}
	return g
}

// refused wants the refusal of that reason.
func (b *trial) refused(err error, want keystore.Reason) *keystore.Refused {
	b.Helper()
	r, ok := errors.AsType[*keystore.Refused](err)
	if !ok || r.Reason != want {
		b.Fatalf("got error %v, want a refusal: %s", err, want)
	}
	return r
}

// fenced asks for an effect under a fence.
func (b *trial) fenced(k keystore.Key, f keystore.Fence) *keystore.Request {
	q := b.request(k)
	q.Fence = f
	return q
}

func testLeaseLife(b *trial) {
	g := b.acquire("r", "w1")
	want := keystore.Grant{Fence: 1, Owner: "w1", Left: ttl, TTL: ttl, ExpiresAt: b.clock.Instant().Add(ttl)}
	if g != want || b.lease("r") != want {
		b.Fatalf("got %+v, on record %+v, want %+v", g, b.lease("r"), want)
	}
	b.clock.Advance(20 * time.Second)
	if g = b.lease("r"); g.Left != 10*time.Second {
		b.Fatalf("after 20 s: %+v", g)
	}
	if g, err := b.renew("r", 1); err != nil || g.Left != ttl || g.TTL != ttl || g.Fence != 1 {
		b.Fatalf("renewed: %+v, %v", g, err)
	}
	b.clock.Advance(20 * time.Second)
	if g, err := b.store.RenewLease(context.Background(), "default", "r", 1, time.Minute); err != nil || g.Left != time.Minute || g.TTL != time.Minute {
		b.Fatalf("renewed for a minute: %+v, %v", g, err)
	}
	b.release("r", 1)
	b.release("r", 1)
	if g = b.lease("r"); g.Left != 0 || g.ExpiresAt != 0 || g.Fence != 1 {
		b.Fatalf("given back: %+v", g)
	}
	_, err := b.renew("r", 1)
	b.refused(err, keystore.Fenced)
	if g = b.acquire("r", "w2"); g.Fence != 2 {
		b.Fatalf("the next lease: %+v", g)
	}
	b.refused(b.store.ReleaseLease(context.Background(), "default", "r", 1), keystore.Fenced)
	if g = b.lease("r"); g.Left != ttl {
		b.Fatalf("after a stale release: %+v", g)
	}
	for _, bad := range []time.Duration{time.Second - 1, 24*time.Hour + 1, -time.Second} {
		if _, err := b.store.RenewLease(context.Background(), "default", "r", 2, bad); err == nil {
			b.Fatalf("a lease for %s was given", bad)
		}
		if _, err := b.store.AcquireLease(context.Background(), &keystore.LeaseRequest{Namespace: "default", Run: "other", Owner: "w", TTL: bad}); err == nil {
			b.Fatalf("a lease for %s was given", bad)
		}
	}
}

func testLeaseHeld(b *trial) {
	b.acquire("r", "w1")
	b.clock.Advance(10 * time.Second)
	for _, owner := range []string{"w1", "w2"} {
		_, err := b.tryAcquire("r", owner)
		if r := b.refused(err, keystore.LeaseHeld); r.Fence != 1 || r.Owner != "w1" || r.After != 20*time.Second {
			b.Fatalf("the refusal: %+v", r)
		}
	}
	if g := b.acquire("another", "w2"); g.Fence != 1 {
		b.Fatalf("the lease of another run: %+v", g)
	}
	other := &keystore.LeaseRequest{Namespace: "other", Run: "r", Owner: "w2", TTL: ttl}
	if g, err := b.store.AcquireLease(context.Background(), other); err != nil || g.Fence != 1 {
		b.Fatalf("the lease of a run of that name in another namespace: %+v, %v", g, err)
	}
}

func testLeaseOver(b *trial) {
	b.acquire("r", "w1")
	b.clock.Advance(ttl - 1)
	if _, err := b.renew("r", 1); err != nil {
		b.Fatalf("renewing at the last moment: %v", err)
	}
	b.clock.Advance(ttl)
	_, err := b.renew("r", 1)
	b.refused(err, keystore.Fenced)
	b.beginning(b.fenced(key("nobody took it"), 1), keystore.Send)
	if g := b.acquire("r", "w2"); g.Fence != 2 {
		b.Fatalf("the next lease: %+v", g)
	}
	_, err = b.renew("r", 1)
	if r := b.refused(err, keystore.Fenced); r.Fence != 2 {
		b.Fatalf("the refusal: %+v", r)
	}
}

func testLeaseContention(b *trial) {
	for round := range 5 {
		run := fmt.Sprint("r", round)
		won := b.acquireAtOnce(run, 100)
		if len(won) != 1 || won[0].Fence != 1 {
			b.Fatalf("round %d: %d got the lease: %+v", round, len(won), won)
		}
		b.clock.Advance(ttl)
		if won = b.acquireAtOnce(run, 100); len(won) != 1 || won[0].Fence != 2 {
			b.Fatalf("round %d, once it was over: %d got the lease: %+v", round, len(won), won)
		}
	}
}

// acquireAtOnce lets n ask for a lease together and returns what was given.
func (b *trial) acquireAtOnce(run string, n int) (won []keystore.Grant) {
	b.Helper()
	grants, errs := make([]keystore.Grant, n), make([]error, n)
	var group sync.WaitGroup
	start := make(chan struct{})
	for i := range n {
		group.Go(func() {
			<-start
			grants[i], errs[i] = b.tryAcquire(run, fmt.Sprint("w", i%7))
		})
	}
	close(start)
	group.Wait()
	for i, err := range errs {
		if err == nil {
			won = append(won, grants[i])
			continue
		}
		b.refused(err, keystore.LeaseHeld)
	}
	return won
}

func testFencesGrow(b *trial) {
	last := keystore.Fence(0)
	next := func(how string) {
		b.Helper()
		g := b.acquire("r", "w")
		if g.Fence <= last {
			b.Fatalf("%s: fence %d after %d", how, g.Fence, last)
		}
		last = g.Fence
	}
	for range 3 {
		next("new, or over")
		b.release("r", last)
		next("released")
		b.clock.Advance(ttl)
		next("over")
		b.release("r", last)
		b.crash()
		next("released before a crash")
		b.reopen()
		b.clock.Advance(ttl)
		next("over after reopening")
		b.crash()
		b.clock.Advance(ttl)
	}
}

func testLeaseAfterRestart(b *trial) {
	b.acquire("r", "w1")
	for _, end := range []func(){b.crash, b.reopen} {
		b.clock.Advance(20 * time.Second)
		end()
		if g := b.lease("r"); g.Fence != 1 || g.Left != ttl {
			b.Fatalf("after a restart: %+v", g)
		}
		_, err := b.tryAcquire("r", "w2")
		b.refused(err, keystore.LeaseHeld)
	}
	b.clock.Advance(10 * time.Second)
	if _, err := b.renew("r", 1); err != nil {
		b.Fatalf("renewing after a restart: %v", err)
	}
	b.clock.Advance(ttl)
	if g := b.acquire("r", "w2"); g.Fence != 2 {
		b.Fatalf("the next lease: %+v", g)
	}
	b.release("r", 2)
	b.crash()
	if g := b.acquire("r", "w3"); g.Fence != 3 {
		b.Fatalf("after a release and a restart: %+v", g)
	}
}

func testLeaseWallClock(b *trial) {
	const decade = 10 * 365 * day
	b.acquire("r", "w1")
	for _, jump := range []time.Duration{decade, -2 * decade, decade} {
		b.clock.Set(jump)
		if g := b.lease("r"); g.Left != ttl {
			b.Fatalf("after the clock was set by %s: %+v", jump, g)
		}
		_, err := b.tryAcquire("r", "w2")
		b.refused(err, keystore.LeaseHeld)
		if _, err := b.renew("r", 1); err != nil {
			b.Fatalf("renewing after the clock was set by %s: %v", jump, err)
		}
	}
	b.clock.Set(-decade)
	b.crash()
	b.clock.Advance(ttl)
	if g := b.acquire("r", "w2"); g.Fence != 2 {
		b.Fatalf("the clock was set back and the TTL has passed: %+v", g)
	}
}

func testInheritance(b *trial) {
	ctx := context.Background()
	ask := func(owner string) (keystore.Grant, error) {
		return b.store.AcquireLease(ctx, &keystore.LeaseRequest{Namespace: "default", Run: "r", Owner: owner, TTL: ttl, From: keystore.FromOwnEarlierLife})
	}
	b.acquire("r", "w1")
	_, err := ask("w1")
	b.refused(err, keystore.LeaseHeld)
	b.crash()
	_, err = ask("w2")
	b.refused(err, keystore.LeaseHeld)
	_, err = b.tryAcquire("r", "w1")
	b.refused(err, keystore.LeaseHeld)
	if g, err := ask("w1"); err != nil || g.Fence != 2 || g.Left != ttl {
		b.Fatalf("from its own dead epoch: %+v, %v", g, err)
	}
	_, err = ask("w1")
	b.refused(err, keystore.LeaseHeld)
	b.crash()
	if _, err := b.renew("r", 2); err != nil { // its holder lives, though its sidecar died
		b.Fatalf("renewing: %v", err)
	}
	_, err = ask("w1")
	b.refused(err, keystore.LeaseHeld)
}

// full runs fn while the disk's reserve is reached.
func (b *trial) full(fn func()) {
	b.Helper()
	b.place.SetFull(true)
	fn()
	b.place.SetFull(false)
}

func testLeaseFullDisk(b *trial) {
	b.acquire("r", "w1")
	b.full(func() {
		_, err := b.tryAcquire("another", "w1")
		b.wants(err, keystore.ErrFull)
		_, err = b.tryAcquire("r", "w2")
		b.refused(err, keystore.LeaseHeld)
		b.clock.Advance(20 * time.Second)
		if g, err := b.renew("r", 1); err != nil || g.Left != ttl {
			b.Fatalf("renewing: %+v, %v", g, err)
		}
		b.release("r", 1)
		_, err = b.tryAcquire("r", "w2")
		b.wants(err, keystore.ErrFull)
	})
	if g := b.acquire("r", "w2"); g.Fence != 2 {
		b.Fatalf("once there is room again: %+v", g)
	}
}

func testBeginFence(b *trial) {
	b.succeed(key("before any lease"))
	b.acquire("r", "w1")
	read := b.request(key("read"))
	read.Class = classify.Read
	b.beginning(read, keystore.Send)
	b.stopping(b.fenced(key("a"), 0), keystore.FenceRequired)
	b.stopping(b.fenced(key("before any lease"), 0), keystore.FenceRequired)
	if r := b.beginning(b.fenced(key("a"), 1), keystore.Send); r.Fence != 1 || r.Attempts[0].Fence != 1 {
		b.Fatalf("begun under fence 1: %+v", r)
	}
	b.apply(key("a"), answered(keystore.SawApplied, 1), nil)
	b.stopping(b.fenced(key("b"), 2), keystore.Fenced)
	b.release("r", 1)
	b.stopping(b.fenced(key("b"), 1), keystore.Fenced)
	b.acquire("r", "w2")
	for range 2 {
		b.stopping(b.fenced(key("a"), 1), keystore.Fenced)
		b.stopping(b.fenced(key("b"), 1), keystore.Fenced)
		b.beginning(b.fenced(key("a"), 2), keystore.Replay)
		b.crash()
	}
	_, err := b.store.Call(context.Background(), key("b"))
	b.wants(err, keystore.ErrNotFound)
}

// testBeginFenceAtomic: no begin that starts after a lease was given out sends
// under the fence before it.
func testBeginFenceAtomic(b *trial) {
	for round := range 10 {
		run := fmt.Sprint("r", round)
		old := b.acquire(run, "w1").Fence
		b.clock.Advance(ttl)
		var given atomic.Bool
		var group sync.WaitGroup
		late := make([]int, 20)
		for i := range late {
			group.Go(func() {
				for n, done := 0, false; !done; n++ {
					done = given.Load()
					q := b.fenced(keyIn(run, fmt.Sprintf("%d-%d", i, n)), old)
					a, err := b.store.Begin(context.Background(), q, nil)
					if err != nil || done && a.Verdict.Reason != keystore.Fenced {
						late[i]++
					}
				}
			})
		}
		b.acquire(run, "w2")
		given.Store(true)
		group.Wait()
		for i, n := range late {
			if n != 0 {
				b.Fatalf("round %d: caller %d sent under fence %d after the next one was given out, or failed", round, i, old)
			}
		}
	}
}

func testReceiptWithoutFence(b *trial) {
	b.acquire("r", "w1")
	b.beginning(b.fenced(key("a"), 1), keystore.Send)
	doubtful := b.fenced(key("b"), 1)
	b.beginning(doubtful, keystore.Send)
	b.apply(key("b"), answered(keystore.SawAmbiguous, 1), nil)
	b.release("r", 1)
	b.acquire("r", "w2")
	if r := b.apply(key("a"), answered(keystore.SawApplied, 1), []byte("late")); r.State != keystore.Succeeded {
		b.Fatalf("the old holder's receipt: %+v", r)
	}
	b.apply(key("b"), answered(keystore.LateApplied, 1), []byte("later"))
	b.crash()
	b.beginning(b.fenced(key("a"), 2), keystore.Replay)
	b.beginning(b.fenced(key("b"), 2), keystore.Replay)
}

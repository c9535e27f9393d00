package storetest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"sync"
	"time"

	"counterfoil/classify"
	"counterfoil/keystore"
)

func (b *trial) putRun(q keystore.RunSpec) (keystore.RunSummary, bool) {
	b.Helper()
	q.Namespace = "default"
	sum, isNew, err := b.store.PutRun(context.Background(), &q)
	if err != nil {
		b.Fatalf("putting run %s: %v", q.Run, err)
	}
	return sum, isNew
}

// atMost is a budget.
func atMost(effects uint32, upstreams map[string]uint32) *keystore.Budget {
	return &keystore.Budget{Effects: &effects, Upstreams: upstreams}
}

func testPutRun(b *trial) {
	made := b.clock.Instant()
	spec := keystore.RunSpec{Run: "r", FlowVersion: "v1", Budget: atMost(10, map[string]uint32{"tickets": 2}), Labels: map[string]string{"env": "test", "team": "a"}}
	sum, isNew := b.putRun(spec)
	if !isNew || sum.Name != "r" || sum.Namespace != "default" || sum.CreatedAt != made || sum.FlowVersion != "v1" || sum.State() != keystore.ActiveRun {
		b.Fatalf("a new run: %t, %+v", isNew, sum)
	}
	b.clock.Advance(time.Hour)
	if sum, isNew = b.putRun(spec); isNew || sum.TouchedAt != made {
		b.Fatalf("said once more: %t, %+v", isNew, sum)
	}
	for _, end := range []func(){func() {}, b.crash} {
		end()
		sum = b.run("r")
		if *sum.Budget.Effects != 10 || sum.Budget.Upstreams["tickets"] != 2 || !maps.Equal(sum.Labels, spec.Labels) || sum.Total() != 0 {
			b.Fatalf("on record: %+v", sum)
		}
	}
	sum, isNew = b.putRun(keystore.RunSpec{Run: "r", Labels: map[string]string{"env": "prod"}})
	if isNew || len(sum.Labels) != 1 || sum.Labels["env"] != "prod" || *sum.Budget.Effects != 10 || sum.CreatedAt != made || sum.TouchedAt != b.clock.Instant() {
		b.Fatalf("other labels: %t, %+v", isNew, sum)
	}
	sum, _ = b.putRun(keystore.RunSpec{Run: "r", Budget: &keystore.Budget{}, Labels: map[string]string{}})
	if sum.Budget.Effects != nil || len(sum.Budget.Upstreams) != 0 || len(sum.Labels) != 0 || sum.FlowVersion != "v1" {
		b.Fatalf("without budget and labels: %+v", sum)
	}
	b.succeed(key("a"))
	if sum, isNew = b.putRun(keystore.RunSpec{Run: "r"}); isNew || sum.Calls[keystore.Succeeded] != 1 || sum.Begun["tickets"] != 1 {
		b.Fatalf("with a call: %t, %+v", isNew, sum)
	}
	if _, _, err := b.store.PutRun(context.Background(), &keystore.RunSpec{Namespace: "default"}); err == nil {
		b.Fatal("a run without a name was made")
	}
}

func testFlowVersion(b *trial) {
	flow := func(call, version string) *keystore.Request {
		q := b.request(key(call))
		q.FlowVersion = version
		return q
	}
	b.beginning(flow("a", ""), keystore.Send)
	b.apply(key("a"), answered(keystore.SawApplied, 1), nil)
	b.beginning(flow("b", "v1"), keystore.Send)
	for _, end := range []func(){func() {}, b.crash} {
		end()
		b.stopping(flow("c", "v2"), keystore.FlowVersionMismatch)
		b.stopping(flow("a", "v2"), keystore.FlowVersionMismatch)
		b.beginning(flow("a", "v1"), keystore.Replay)
		b.beginning(flow("a", ""), keystore.Replay)
		_, _, err := b.store.PutRun(context.Background(), &keystore.RunSpec{Namespace: "default", Run: "r", FlowVersion: "v2", Labels: map[string]string{"x": "y"}})
		if r := b.refused(err, keystore.FlowVersionMismatch); r.FlowVersion != "v1" {
			b.Fatalf("the refusal: %+v", r)
		}
		if sum := b.run("r"); sum.FlowVersion != "v1" || len(sum.Labels) != 0 {
			b.Fatalf("the run: %+v", sum)
		}
	}
}

func testPinsWithoutRecord(b *trial) {
	for name, reach := range map[string]func(keystore.Key) keystore.Action{
		"replay": func(k keystore.Key) keystore.Action { b.succeed(k); return keystore.Replay },
		"wait": func(k keystore.Key) keystore.Action {
			b.beginning(b.request(k), keystore.Send)
			return keystore.Wait
		},
	} {
		k := keyIn(name, "a")
		want := reach(k)
		before := b.call(k)
		q := b.request(k)
		q.FlowVersion = "v1"
		b.beginning(q, want)
		if !same(b.call(k), before) {
			b.Fatalf("%s: the record changed", name)
		}
		if v := b.run(name).FlowVersion; v != "v1" {
			b.Fatalf("%s: the run is pinned to %q", name, v)
		}
	}
	b.crash()
	for _, name := range []string{"replay", "wait"} {
		if v := b.run(name).FlowVersion; v != "v1" {
			b.Fatalf("%s, after a crash: the run is pinned to %q", name, v)
		}
	}
}

func testBudget(b *trial) {
	b.putRun(keystore.RunSpec{Run: "r", Budget: atMost(3, map[string]uint32{"mail": 1})})
	mail := func(call string) *keystore.Request {
		q := b.request(key(call))
		q.Intent.Upstream = "mail"
		return q
	}
	b.beginning(mail("first"), keystore.Send)
	b.apply(key("first"), answered(keystore.SawNotApplied, 1), nil)
	b.beginning(mail("first"), keystore.Send) // a further attempt is no further effect
	b.stopping(mail("second"), keystore.BudgetExhausted)
	read := mail("read")
	read.Class = classify.Read
	b.beginning(read, keystore.Send)
	b.succeed(key("a"))
	b.succeed(key("b"))
	for _, end := range []func(){func() {}, b.crash} {
		end()
		b.stopping(b.request(key("c")), keystore.BudgetExhausted)
		b.beginning(b.request(key("a")), keystore.Replay)
		if sum := b.run("r"); sum.EffectsBegun() != 3 || sum.Begun["mail"] != 1 || sum.Begun["tickets"] != 2 {
			b.Fatalf("begun: %v", sum.Begun)
		}
	}
	b.putRun(keystore.RunSpec{Run: "r", Budget: atMost(4, nil)})
	b.beginning(mail("second"), keystore.Send)
	b.stopping(b.request(key("c")), keystore.BudgetExhausted)
}

func testBudgetAtOnce(b *trial) {
	b.putRun(keystore.RunSpec{Run: "r", Budget: atMost(10, nil)})
	sent := 0
	for _, a := range b.beginAtOnce(100, func(i int) *keystore.Request { return b.request(key(fmt.Sprint(i))) }) {
		switch {
		case a.Verdict.Action == keystore.Send:
			sent++
		case a.Verdict.Reason != keystore.BudgetExhausted:
			b.Fatalf("got %+v", a.Verdict)
		}
	}
	if sum := b.run("r"); sent != 10 || sum.EffectsBegun() != 10 || sum.Total() != 10 {
		b.Fatalf("%d sent, %d counted, %d on record; want 10", sent, sum.EffectsBegun(), sum.Total())
	}
}

func testRunOwnership(b *trial) {
	spec := keystore.RunSpec{Run: "r", Budget: atMost(5, map[string]uint32{"tickets": 5}), Labels: map[string]string{"a": "b"}}
	sum, _ := b.putRun(spec)
	*spec.Budget.Effects, spec.Budget.Upstreams["tickets"], spec.Labels["a"] = 0, 0, "changed"
	b.succeed(key("a"))
	read := b.run("r")
	list, err := b.store.Runs(context.Background(), "default", keystore.Page{})
	if err != nil || len(list.Items) != 1 {
		b.Fatalf("runs: %+v, %v", list, err)
	}
	for _, own := range []keystore.RunSummary{sum, read, list.Items[0]} {
		*own.Budget.Effects, own.Budget.Upstreams["tickets"], own.Labels["a"] = 0, 0, "changed"
		if own.Begun != nil {
			own.Begun["tickets"] = 99
		}
	}
	b.succeed(key("b"))
	if sum := b.run("r"); *sum.Budget.Effects != 5 || sum.Budget.Upstreams["tickets"] != 5 || sum.Labels["a"] != "b" || sum.Begun["tickets"] != 2 {
		b.Fatalf("the run changed with its callers' memory: %+v", sum)
	}
	p := plan("1", "x")
	b.putPlan(p, keystore.Guard{}, isNew)
	clear(p.Decision)
	got := b.plan("1")
	clear(got.Decision)
	clear(got.Calls[0].Args)
	if want, got := plan("1", "x"), b.plan("1"); string(got.Decision) != string(want.Decision) || string(got.Calls[0].Args) != string(want.Calls[0].Args) {
		b.Fatalf("the plan changed with its callers' memory: %+v", got)
	}
}

func (b *trial) runNames() (names []string) {
	b.Helper()
	for _, sum := range pages(b, 2, func(p keystore.Page) (keystore.List[keystore.RunSummary], error) {
		return b.store.Runs(context.Background(), "default", p)
	}) {
		names = append(names, sum.Name)
	}
	return names
}

func testRunWithoutCalls(b *trial) {
	b.acquire("leased", "w1")
	b.putRun(keystore.RunSpec{Run: "said"})
	p := plan("1")
	p.Run = "planned"
	b.putPlan(p, keystore.Guard{}, isNew)
	for _, end := range []func(){func() {}, b.crash, func() { b.clock.Advance(89 * day); b.sweep() }} {
		end()
		if got := fmt.Sprint(b.runNames()); got != "[leased said planned]" {
			b.Fatalf("the runs: %s", got)
		}
		for _, name := range []string{"leased", "said", "planned"} {
			if sum := b.run(name); sum.Name != name || sum.Total() != 0 {
				b.Fatalf("run %s: %+v", name, sum)
			}
		}
	}
	b.clock.Advance(2 * day)
	b.sweep()
	for _, end := range []func(){func() {}, b.crash} {
		end()
		if got := b.runNames(); len(got) != 0 {
			b.Fatalf("after their retention: %s", got)
		}
		for _, name := range []string{"leased", "said", "planned"} {
			_, err := b.store.Run(context.Background(), "default", name)
			b.wants(err, keystore.ErrNotFound)
			_, err = b.store.Lease(context.Background(), "default", name)
			b.wants(err, keystore.ErrNotFound)
		}
	}
	b.clock.Advance(401 * day)
	b.sweep()
	if g := b.acquire("leased", "w1"); g.Fence != 1 {
		b.Fatalf("a name that nothing is known of: %+v", g)
	}
}

func testHeldLeaseStays(b *trial) {
	hasty := keystore.Retention{AfterChange: time.Second}
	sweep := func() {
		b.Helper()
		for range 100 {
			more, err := b.store.Sweep(context.Background(), hasty)
			if err != nil {
				b.Fatalf("sweeping: %v", err)
			}
			if !more {
				return
			}
		}
	}
	b.acquire("r", "w1")
	b.succeedFenced(key("a"), 1)
	b.clock.Advance(ttl - 1)
	sweep()
	b.beginning(b.fenced(key("a"), 1), keystore.Replay)
	if _, err := b.renew("r", 1); err != nil {
		b.Fatalf("renewing: %v", err)
	}
	b.release("r", 1)
	b.clock.Advance(2 * time.Second)
	sweep()
	b.inState(key("a"), keystore.Expired)
}

func (b *trial) succeedFenced(k keystore.Key, f keystore.Fence) {
	b.Helper()
	b.beginning(b.fenced(k, f), keystore.Send)
	b.apply(k, answered(keystore.SawApplied, 1), nil)
}

func testFenceAfterSweep(b *trial) {
	b.putRun(keystore.RunSpec{Run: "r", FlowVersion: "v1", Labels: map[string]string{"a": "b"}, Budget: atMost(1, nil)})
	b.acquire("r", "w1")
	b.release("r", 1)
	b.acquire("r", "w2")
	b.succeedFenced(key("a"), 2)
	b.clock.Advance(91 * day)
	b.sweep()
	b.inState(key("a"), keystore.Expired)
	b.crash()
	b.stopping(b.fenced(key("a"), 0), keystore.FenceRequired)
	b.stopping(b.fenced(key("new"), 1), keystore.Fenced)
	b.stopping(b.fenced(key("new"), 2), keystore.Fenced)
	_, err := b.renew("r", 2)
	b.wants(err, keystore.ErrNotFound)
	if g := b.acquire("r", "w3"); g.Fence != 3 {
		b.Fatalf("the name is used again: %+v", g)
	}
	made := b.clock.Instant()
	for _, end := range []func(){func() {}, b.crash} {
		end()
		if sum := b.run("r"); sum.FlowVersion != "" || sum.Labels != nil || sum.Budget.Effects != nil || sum.Begun != nil || sum.CreatedAt != made || sum.Lease.Fence != 3 {
			b.Fatalf("the run that has that name now: %+v", sum)
		}
		b.stopping(b.fenced(key("a"), 3), keystore.ReceiptExpired)
	}
	b.succeedFenced(key("new"), 3)
	b.clock.Advance(91 * day)
	b.sweep()
	if g := b.acquire("r", "w4"); g.Fence != 4 {
		b.Fatalf("swept twice: %+v", g)
	}
}

func testRunsFullDisk(b *trial) {
	ctx := context.Background()
	b.succeedAt(ordinal(0, 1), 1)
	b.putRun(keystore.RunSpec{Run: "r", Labels: map[string]string{"a": "b"}})
	b.putPlan(plan("planned", "x"), keystore.Guard{}, isNew)
	b.full(func() {
		_, _, err := b.store.PutRun(ctx, &keystore.RunSpec{Namespace: "default", Run: "new"})
		b.wants(err, keystore.ErrFull)
		_, _, err = b.store.PutRun(ctx, &keystore.RunSpec{Namespace: "default", Run: "r", Labels: map[string]string{}})
		b.wants(err, keystore.ErrFull)
		b.putRun(keystore.RunSpec{Run: "r", Labels: map[string]string{"a": "b"}})
		_, err = b.store.PutPlan(ctx, plan("2", "x"), keystore.Guard{})
		b.wants(err, keystore.ErrFull)
		b.putPlan(plan("planned", "x"), keystore.Guard{}, isOld)
		held := b.request(key("held"))
		held.Approval = classify.ApprovalRequired
		_, err = b.store.Begin(ctx, held, []byte("intent"))
		b.wants(err, keystore.ErrFull)
		b.step(ordinal(0, 1), keystore.Forth)
	})
	if p := b.position("1"); p.Through != 1 {
		b.Fatalf("the step on a full disk: %+v", p)
	}
	if labels := b.run("r").Labels; labels["a"] != "b" {
		b.Fatalf("a refused change changed the labels: %v", labels)
	}
}

func testRunNotFound(b *trial) {
	ctx := context.Background()
	_, err := b.renew("r", 1)
	b.wants(err, keystore.ErrNotFound)
	b.wants(b.store.ReleaseLease(ctx, "default", "r", 1), keystore.ErrNotFound)
	_, err = b.store.Lease(ctx, "default", "r")
	b.wants(err, keystore.ErrNotFound)
	_, err = b.store.Plan(ctx, "default", "r", "1")
	b.wants(err, keystore.ErrNotFound)
	b.wants(b.store.Step(ctx, key("a"), ordinal(0, 1), keystore.Forth), keystore.ErrNotFound)
	if p := b.position("1"); p.Incarnation != 0 {
		b.Fatalf("a position of no run: %+v", p)
	}
	_, err = b.store.Run(ctx, "default", "r")
	b.wants(err, keystore.ErrNotFound)
	b.putRun(keystore.RunSpec{Run: "r"})
	if g := b.lease("r"); g != (keystore.Grant{}) {
		b.Fatalf("a run that never had a lease: %+v", g)
	}
	_, err = b.store.Plan(ctx, "default", "r", "1")
	b.wants(err, keystore.ErrNotFound)
	_, err = b.renew("r", 0)
	b.refused(err, keystore.Fenced)
	b.refused(b.store.ReleaseLease(ctx, "default", "r", 0), keystore.Fenced)
}

// testRunAcknowledged lets many callers loose on few runs, and wants all that was
// said of them after a crash.
func testRunAcknowledged(b *trial) {
	const callers = 16
	fences := make([]map[string]keystore.Fence, callers)
	plans := make([]map[string]bool, callers)
	errs := make([]error, callers)
	var group sync.WaitGroup
	for i := range callers {
		fences[i], plans[i] = map[string]keystore.Fence{}, map[string]bool{}
		random := rand.New(rand.NewPCG(3, uint64(i)))
		group.Go(func() { errs[i] = b.useRuns(random, i, fences[i], plans[i]) })
	}
	group.Wait()
	if err := errors.Join(errs...); err != nil {
		b.Fatalf("under load: %v", err)
	}
	b.crash()
	for i := range callers {
		for run, f := range fences[i] {
			if g := b.lease(run); g.Fence < f {
				b.Fatalf("%s: fence %d was given out, on record is %d", run, f, g.Fence)
			}
		}
		for turn := range plans[i] {
			if p, err := b.store.Plan(context.Background(), "default", "run 0", turn); err != nil || p.Turn != turn {
				b.Fatalf("the plan of turn %s: %+v, %v", turn, p, err)
			}
		}
	}
	b.agrees()
}

func (b *trial) useRuns(random *rand.Rand, caller int, fences map[string]keystore.Fence, plans map[string]bool) error {
	ctx := context.Background()
	for n := range 20 {
		run := fmt.Sprintf("run %d", 1+random.IntN(3))
		if g, err := b.tryAcquire(run, "w"); err == nil {
			if g.Fence <= fences[run] {
				return fmt.Errorf("%s: fence %d after %d", run, g.Fence, fences[run])
			}
			fences[run] = g.Fence
			if err := b.store.ReleaseLease(ctx, "default", run, g.Fence); err != nil {
				return err
			}
		} else if r, ok := errors.AsType[*keystore.Refused](err); !ok || r.Reason != keystore.LeaseHeld {
			return err
		}
		p := plan(fmt.Sprintf("%d-%d", caller, n), "x", "y")
		p.Run = "run 0"
		if _, err := b.store.PutPlan(ctx, p, keystore.Guard{}); err != nil {
			return err
		}
		plans[p.Turn] = true
	}
	return nil
}

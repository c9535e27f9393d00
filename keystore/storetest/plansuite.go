package storetest

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"slices"
	"strings"
	"sync"

	"counterfoil/classify"
	"counterfoil/keystore"
)

// plan is a plan of run "r" that names the given calls.
func plan(turn string, calls ...string) *keystore.Plan {
	p := &keystore.Plan{Namespace: "default", Run: "r", Turn: turn, Decision: []byte(`{"text":"let us see"}`)}
	for _, call := range calls {
		p.Calls = append(p.Calls, keystore.PlannedCall{ID: call, Tool: "tool of " + call, Args: []byte(`{"of":"` + call + `"}`)})
	}
	p.Digest = sha256.Sum256(fmt.Appendf(nil, "%s %s %q", p.Decision, turn, calls))
	return p
}

// A novelty says whether a plan is to be new.
type novelty bool

const (
	isNew novelty = true
	isOld novelty = false
)

func (b *trial) putPlan(p *keystore.Plan, g keystore.Guard, want novelty) {
	b.Helper()
	got, err := b.store.PutPlan(context.Background(), p, g)
	if err != nil || novelty(got) != want {
		b.Fatalf("the plan of turn %s: new %t, %v; want %t", p.Turn, got, err, want)
	}
}

func (b *trial) plan(turn string) *keystore.Plan {
	b.Helper()
	p, err := b.store.Plan(context.Background(), "default", "r", turn)
	if err != nil {
		b.Fatalf("the plan of turn %s: %v", turn, err)
	}
	return p
}

func samePlan(x, y *keystore.Plan) bool {
	return x.Namespace == y.Namespace && x.Run == y.Run && x.Turn == y.Turn && x.Digest == y.Digest && bytes.Equal(x.Decision, y.Decision) &&
		slices.EqualFunc(x.Calls, y.Calls, func(a, b keystore.PlannedCall) bool {
			return a.ID == b.ID && a.Tool == b.Tool && bytes.Equal(a.Args, b.Args)
		})
}

func (b *trial) callsIn(run string) []*keystore.Record {
	b.Helper()
	return pages(b, 100, func(p keystore.Page) (keystore.List[*keystore.Record], error) {
		return b.store.Calls(context.Background(), "default", run, p)
	})
}

func testPlan(b *trial) {
	p := plan("1", "z", "a", "m")
	b.putPlan(p, keystore.Guard{}, isNew)
	for _, end := range []func(){func() {}, b.crash} {
		end()
		if got := b.plan("1"); !samePlan(got, p) || got.CreatedAt != b.clock.Instant() {
			b.Fatalf("got  %+v\nwant %+v", got, p)
		}
		records := b.callsIn("r")
		if got := callsOf(records); !slices.Equal(got, []string{"z", "a", "m"}) {
			b.Fatalf("the planned calls: %q", got)
		}
		for _, r := range records {
			if r.State != keystore.Planned || r.Class != 0 || r.Fingerprint != (classify.Fingerprint{}) || r.Tool != "tool of "+r.Key.Call || r.AttemptsMade != 0 {
				b.Fatalf("a planned call: %+v", r)
			}
		}
		if sum := b.run("r"); sum.Plans != 1 || sum.Calls[keystore.Planned] != 3 || sum.EffectsBegun() != 0 {
			b.Fatalf("the run: %+v", sum)
		}
		b.putPlan(p, keystore.Guard{}, isOld)
	}
	r := b.beginning(b.request(key("a")), keystore.Send)
	if r.Tool != "tool of a" || r.Class != classify.Effect || r.AttemptsMade != 1 {
		b.Fatalf("begun: %+v", r)
	}
	b.putPlan(plan("2"), keystore.Guard{}, isNew)
	if sum := b.run("r"); sum.Plans != 2 || sum.EffectsBegun() != 1 {
		b.Fatalf("the run: %+v", sum)
	}
}

func testPlanConflict(b *trial) {
	p := plan("1", "a", "b")
	b.putPlan(p, keystore.Guard{}, isNew)
	for _, other := range []*keystore.Plan{plan("1", "a"), plan("1", "a", "b", "c"), plan("1", "b", "a")} {
		_, err := b.store.PutPlan(context.Background(), other, keystore.Guard{})
		b.refused(err, keystore.PlanConflict)
	}
	if got := b.plan("1"); !samePlan(got, p) {
		b.Fatalf("a refused plan changed what is there: %+v", got)
	}
	if got := callsOf(b.callsIn("r")); !slices.Equal(got, []string{"a", "b"}) {
		b.Fatalf("the planned calls: %q", got)
	}
	twice := plan("2", "a", "a")
	if _, err := b.store.PutPlan(context.Background(), twice, keystore.Guard{}); err == nil {
		b.Fatal("a plan that names a call twice was taken")
	}
}

func testPlansAtOnce(b *trial) {
	for turn, differ := range map[string]int{"all differ": 50, "all are equal": 1, "two differ": 2} {
		news := make([]bool, 50)
		errs := make([]error, len(news))
		var group sync.WaitGroup
		for i := range news {
			group.Go(func() {
				news[i], errs[i] = b.store.PutPlan(context.Background(), plan(turn, fmt.Sprint(i%differ), "common"), keystore.Guard{})
			})
		}
		group.Wait()
		winner := slices.Index(news, true)
		if winner < 0 || slices.Contains(news[winner+1:], true) {
			b.Fatalf("%s: not exactly one is new: %v", turn, news)
		}
		for i, err := range errs {
			switch equal := i%differ == winner%differ; {
			case equal && err != nil:
				b.Fatalf("%s: an equal plan: %v", turn, err)
			case !equal:
				b.refused(err, keystore.PlanConflict)
			}
		}
		if got := b.plan(turn); !got.Names(fmt.Sprint(winner%differ)) || len(got.Calls) != 2 {
			b.Fatalf("%s: %d has won, on record is %+v", turn, winner, got)
		}
	}
	if sum := b.run("r"); sum.Plans != 3 || sum.Calls[keystore.Planned] != 6 {
		b.Fatalf("the run: %+v", sum)
	}
}

func testPlanOverCalls(b *trial) {
	b.succeed(key("succeeded"))
	b.openCall("open")
	b.hold(key("held"))
	b.beginning(b.request(key("pending")), keystore.Send)
	b.doubt(b.request(key("in doubt")))
	before := map[string]*keystore.Record{}
	for _, r := range b.callsIn("r") {
		before[r.Key.Call] = r
	}
	b.putPlan(plan("1", "succeeded", "open", "held", "pending", "in doubt", "new"), keystore.Guard{}, isNew)
	after := b.callsIn("r")
	if len(after) != len(before)+1 {
		b.Fatalf("%d calls, want %d", len(after), len(before)+1)
	}
	for _, r := range after {
		if want := before[r.Key.Call]; want != nil && !same(r, want) {
			b.Fatalf("got  %+v\nwant %+v", r, want)
		}
	}
	b.inState(key("new"), keystore.Planned)
}

func testNotInPlan(b *trial) {
	b.succeed(key("before"))
	b.openCall("open before")
	b.putPlan(plan("1", "a"), keystore.Guard{}, isNew)
	for _, end := range []func(){func() {}, b.crash} {
		end()
		b.stopping(b.request(key("other")), keystore.NotInPlan)
		b.stopping(b.request(key("open before")), keystore.NotInPlan)
		b.beginning(b.request(key("before")), keystore.Replay)
		_, err := b.store.Call(context.Background(), key("other"))
		b.wants(err, keystore.ErrNotFound)
	}
	read := b.request(key("read"))
	read.Class = classify.Read
	b.beginning(read, keystore.Send)
	free := key("other")
	free.Turn = "2"
	b.beginning(b.request(free), keystore.Send)
	b.beginning(b.request(keyIn("another", "other")), keystore.Send)
	b.beginning(b.request(key("a")), keystore.Send)
	b.putPlan(plan("3"), keystore.Guard{}, isNew)
	empty := key("x")
	empty.Turn = "3"
	b.stopping(b.request(empty), keystore.NotInPlan)
}

func testPlanGuard(b *trial) {
	ctx := context.Background()
	b.acquire("r", "w1")
	_, err := b.store.PutPlan(ctx, plan("1", "a"), keystore.Guard{})
	b.refused(err, keystore.FenceRequired)
	b.putPlan(plan("1", "a"), keystore.Guard{Fence: 1, FlowVersion: "v1"}, isNew)
	_, err = b.store.PutPlan(ctx, plan("2", "a"), keystore.Guard{Fence: 1, FlowVersion: "v2"})
	b.refused(err, keystore.FlowVersionMismatch)
	b.release("r", 1)
	b.acquire("r", "w2")
	for _, turn := range []string{"1", "2"} {
		_, err = b.store.PutPlan(ctx, plan(turn, "a"), keystore.Guard{Fence: 1})
		b.refused(err, keystore.Fenced)
	}
	b.putPlan(plan("1", "a"), keystore.Guard{Fence: 2}, isOld)
	if sum := b.run("r"); sum.Plans != 1 || sum.FlowVersion != "v1" {
		b.Fatalf("the run: %+v", sum)
	}
}

// testLargestPlan fills every limit at once.
func testLargestPlan(b *trial) {
	name := func(i int) string { return fmt.Sprintf("%0*d", keystore.PartBytesMax, i) }
	p := &keystore.Plan{Namespace: strings.Repeat("n", keystore.PartBytesMax), Run: name(0), Turn: name(1), Digest: [32]byte{1}}
	for i := range keystore.PlanCallsMax {
		p.Calls = append(p.Calls, keystore.PlannedCall{ID: name(i), Tool: strings.Repeat("t", keystore.ToolBytesMax)})
	}
	p.Decision = noise(keystore.PlanBytesMax, 3)
	b.putPlan(p, keystore.Guard{}, isNew)
	b.crash()
	got, err := b.store.Plan(context.Background(), p.Namespace, p.Run, p.Turn)
	if err != nil || !samePlan(got, p) {
		b.Fatalf("the largest plan: %v", err)
	}
	sum, err := b.store.Run(context.Background(), p.Namespace, p.Run)
	if err != nil || sum.Calls[keystore.Planned] != keystore.PlanCallsMax {
		b.Fatalf("its calls: %v, %v", sum.Calls, err)
	}
	b.putPlan(p, keystore.Guard{}, isOld)
	p.Turn, p.Decision = "2", append(p.Decision, 'x')
	if _, err := b.store.PutPlan(context.Background(), p, keystore.Guard{}); err == nil {
		b.Fatal("a plan that is too long was taken")
	}
	long := plan("long", "a")
	long.Decision = noise(keystore.PlanBytesMax-1000, 4)
	b.putPlan(long, keystore.Guard{}, isNew)
	other := plan("long", "b")
	other.Decision = long.Decision
	_, err = b.store.PutPlan(context.Background(), other, keystore.Guard{})
	b.refused(err, keystore.PlanConflict)
	if got := b.plan("long"); !samePlan(got, long) {
		b.Fatal("a long plan is not what was put")
	}
}

func testPlansGoWithRun(b *trial) {
	ctx := context.Background()
	long := plan("long", "x")
	long.Decision = noise(300<<10, 5)
	for i := range 20 {
		b.putPlan(plan(fmt.Sprint("turn ", i), "a", "b"), keystore.Guard{}, isNew)
	}
	b.putPlan(long, keystore.Guard{}, isNew)
	b.succeedAt(ordinal(0, 1), 1)
	b.clock.Advance(91 * day)
	for n, more := 0, true; more; n++ { // whatever is left to sweep, nothing of it shows
		var err error
		if more, err = b.store.Sweep(ctx, keystore.Retention{}); err != nil {
			b.Fatalf("sweeping: %v", err)
		}
		if n == 0 {
			continue
		}
		_, err = b.store.Plan(ctx, "default", "r", "long")
		b.wants(err, keystore.ErrNotFound)
		if p := b.position("1"); p.Incarnation != 0 {
			b.Fatalf("a position of a run that was swept: %+v", p)
		}
	}
	planned := key("a")
	planned.Turn = "turn 1"
	if r := b.inState(planned, keystore.Expired); r.Tool != "" {
		b.Fatalf("the tombstone of a planned call: %+v", r)
	}
	b.stopping(b.request(planned), keystore.ReceiptExpired)

	b.putPlan(plan("long", "y"), keystore.Guard{}, isNew)
	for _, end := range []func(){func() {}, b.crash, b.sweep} {
		end()
		if got := b.plan("long"); !got.Names("y") {
			b.Fatalf("the plan of the run that has that name now: %+v", got)
		}
		if sum := b.run("r"); sum.Plans != 1 || sum.Calls[keystore.Planned] != 1 {
			b.Fatalf("the run that has that name now: %+v", sum)
		}
		_, err := b.store.Plan(ctx, "default", "r", "turn 1")
		b.wants(err, keystore.ErrNotFound)
	}
}

package storetest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"counterfoil/classify"
	"counterfoil/keystore"
)

// decidedPlan is what a model's answer in turn 1 of run "r" has decided.
func decidedPlan(calls ...string) *keystore.Plan {
	p := &keystore.Plan{Namespace: "default", Run: "r", Turn: "1", FromAnswer: true}
	for _, call := range calls {
		p.Calls = append(p.Calls, keystore.PlannedCall{ID: call, Tool: "tool of " + call, Args: []byte(`{"of":"` + call + `"}`)})
	}
	_ = p.SetDigest() // its JSON is sound
	return p
}

// deciding begins a question to a model.
func (b *trial) deciding(call string, f keystore.Fence) *keystore.Record {
	b.Helper()
	q := b.fenced(key(call), f)
	q.Class = classify.Decision
	return b.beginning(q, keystore.Send)
}

func decides(p *keystore.Plan) keystore.Event {
	e := answered(keystore.SawApplied, 1)
	e.Plan = p
	e.Receipt.Usage = &keystore.Usage{Input: 20, Output: 9, CachedInput: 4, Reasoning: 1}
	return e
}

// decide brings a question to a model from begin to its receipt.
func (b *trial) decide(call string, p *keystore.Plan) {
	b.Helper()
	b.deciding(call, 0)
	b.apply(key(call), decides(p), []byte("answer to "+call))
}

func (b *trial) names(turn string, want ...string) *keystore.Plan {
	b.Helper()
	p := b.plan(turn)
	got := make([]string, len(p.Calls))
	for i := range p.Calls {
		got[i] = p.Calls[i].ID
	}
	if !slices.Equal(got, want) {
		b.Fatalf("the plan names %q, want %q", got, want)
	}
	return p
}

func testDecided(b *trial) {
	b.decide("ask", decidedPlan("x", "y"))
	made := b.clock.Instant()
	for _, end := range []func(){func() {}, b.crash} {
		end()
		if p := b.names("1", "x", "y"); !samePlan(p, decidedPlan("x", "y")) || !p.FromAnswer || p.Advisory || p.CreatedAt != made {
			b.Fatalf("the plan: %+v", p)
		}
		if r := b.inState(key("ask"), keystore.Succeeded); *r.Receipt.Usage != (keystore.Usage{Input: 20, Output: 9, CachedInput: 4, Reasoning: 1}) {
			b.Fatalf("the usage: %+v", r.Receipt.Usage)
		}
		if r := b.inState(key("y"), keystore.Planned); r.Tool != "tool of y" {
			b.Fatalf("a planned call: %+v", r)
		}
		b.stopping(b.request(key("other")), keystore.NotInPlan)
	}
	b.succeed(key("y"))
	before := b.call(key("y"))

	// The calls of a second answer come behind those of the first.
	b.clock.Advance(time.Second)
	b.decide("ask again", decidedPlan("y", "z"))
	second := b.clock.Instant()
	b.crash()
	b.names("1", "x", "y", "z")
	if !same(b.call(key("y")), before) {
		b.Fatalf("a call that is on record was changed: %+v", b.call(key("y")))
	}
	b.beginning(b.request(key("z")), keystore.Send)

	// An equal one changes nothing, and neither does one whose answer came to nothing.
	b.clock.Advance(time.Second)
	b.decide("ask a third time", decidedPlan("z", "x"))
	b.deciding("lost", 0)
	lost := decides(decidedPlan("never"))
	lost.Kind, lost.Receipt, lost.Evidence, lost.Outcome = keystore.SawAmbiguous, nil, classify.Lost, classify.Ambiguous
	b.apply(key("lost"), lost, nil)
	if p := b.names("1", "x", "y", "z"); p.CreatedAt != second {
		b.Fatalf("an equal plan was written anew: %+v", p)
	}
	if sum := b.run("r"); sum.Plans != 1 {
		b.Fatalf("%d plans, want 1", sum.Plans)
	}
}

// testDecidedAndPut: an agent's own word stands, and may take the place of what was
// read out of an answer, if it leaves nothing out.
func testDecidedAndPut(b *trial) {
	b.putPlan(plan("1", "a"), keystore.Guard{}, isNew)
	b.decide("ask", decidedPlan("b"))
	if p := b.names("1", "a"); p.FromAnswer {
		b.Fatalf("the plan: %+v", p)
	}
	_, err := b.store.Call(context.Background(), key("b"))
	b.wants(err, keystore.ErrNotFound)

	read := decidedPlan("x", "y")
	read.Turn = "2"
	b.putPlan(read, keystore.Guard{}, isNew)
	b.putPlan(read, keystore.Guard{}, isOld)
	for _, other := range []*keystore.Plan{plan("2", "x"), plan("2", "x", "z")} {
		_, err := b.store.PutPlan(context.Background(), other, keystore.Guard{})
		b.refused(err, keystore.PlanConflict)
	}
	own := plan("2", "y", "w", "x")
	own.Decision = noise(5000, 2)
	b.putPlan(own, keystore.Guard{}, isNew)
	for _, end := range []func(){func() {}, b.crash} {
		end()
		if p := b.names("2", "y", "w", "x"); p.FromAnswer || !bytes.Equal(p.Decision, own.Decision) {
			b.Fatalf("the plan: %+v", p)
		}
		b.putPlan(own, keystore.Guard{}, isOld)
		b.putPlan(read, keystore.Guard{}, isOld)
	}
	if sum := b.run("r"); sum.Plans != 2 || sum.Calls[keystore.Planned] != 4 {
		b.Fatalf("the run: %+v", sum)
	}
}

// testDecidedStale: the receipt of a worker that lost its lease is kept, and plans
// nothing.
func testDecidedStale(b *trial) {
	b.acquire("r", "w1")
	b.deciding("ask", 1)
	b.release("r", 1)
	b.acquire("r", "w2")
	if r := b.apply(key("ask"), decides(decidedPlan("x")), []byte("late")); r.State != keystore.Succeeded {
		b.Fatalf("the old holder's receipt: %+v", r)
	}
	_, err := b.store.Plan(context.Background(), "default", "r", "1")
	b.wants(err, keystore.ErrNotFound)
	b.putPlan(decidedPlan("x"), keystore.Guard{Fence: 1}, isOld)
	b.putPlan(decidedPlan("x"), keystore.Guard{Fence: 2}, isNew)
	b.names("1", "x")
}

// testDecidedAtOnce: no call of many answers at once is lost, whichever share a
// commit.
func testDecidedAtOnce(b *trial) {
	const answers = 40
	errs := make([]error, answers)
	var group sync.WaitGroup
	for i := range errs {
		b.deciding(fmt.Sprint("ask ", i), 0)
	}
	for i := range errs {
		group.Go(func() {
			_, errs[i] = b.store.Apply(context.Background(), key(fmt.Sprint("ask ", i)), decides(decidedPlan(fmt.Sprint("of ", i), "common")), nil)
		})
	}
	group.Wait()
	if err := errors.Join(errs...); err != nil {
		b.Fatal(err)
	}
	b.crash()
	p := b.plan("1")
	if len(p.Calls) != answers+1 {
		b.Fatalf("the plan names %d calls, want %d", len(p.Calls), answers+1)
	}
	for i := range errs {
		if !p.Names(fmt.Sprint("of ", i)) {
			b.Fatalf("call %d is missing", i)
		}
		b.inState(key(fmt.Sprint("of ", i)), keystore.Planned)
	}
}

// testLargestDecision: the largest plan comes with the largest answer; what a plan
// has no room to name is not refused for that.
func testLargestDecision(b *trial) {
	p := decidedPlan()
	for i := range keystore.PlanCallsMax {
		id := fmt.Sprintf("%0*d", keystore.PartBytesMax, i)
		p.Calls = append(p.Calls, keystore.PlannedCall{ID: id, Tool: strings.Repeat("t", keystore.ToolBytesMax), Args: []byte(`"` + strings.Repeat("a", keystore.PlanBytesMax/keystore.PlanCallsMax-2) + `"`)})
	}
	if err := errors.Join(p.Validate(), p.SetDigest()); err != nil {
		b.Fatal(err)
	}
	b.deciding("ask", 0)
	b.apply(key("ask"), decides(p), noise(1<<20, 1))
	if got := b.plan("1"); len(got.Calls) != keystore.PlanCallsMax || got.Advisory {
		b.Fatalf("%d calls, advisory %t", len(got.Calls), got.Advisory)
	}
	b.stopping(b.request(key("other")), keystore.NotInPlan)
	b.decide("ask again", decidedPlan("one too many"))
	b.crash()
	if got := b.plan("1"); len(got.Calls) != keystore.PlanCallsMax || !got.Advisory {
		b.Fatalf("%d calls, advisory %t", len(got.Calls), got.Advisory)
	}
	b.beginning(b.request(key("one too many")), keystore.Send)
}

func testAdvisoryPlan(b *trial) {
	p := decidedPlan("x")
	p.Advisory = true
	b.decide("ask", p)
	for _, end := range []func(){func() {}, b.crash} {
		end()
		if got := b.names("1", "x"); !got.Advisory {
			b.Fatalf("the plan: %+v", got)
		}
	}
	b.beginning(b.request(key("other")), keystore.Send)
	b.beginning(b.request(key("x")), keystore.Send)
}

// testSpent: that resending is over is on record, and what cannot be judged is a
// person's, through any number of lives.
func testSpent(b *trial) {
	spent := b.keyed(key("spent"))
	spent.Terms.Errors = keystore.ErrorsAreKept
	b.doubt(spent)
	again := answered(keystore.SawAmbiguous, b.beginning(spent, keystore.Resend).AttemptsMade)
	again.Evidence, again.Status, again.Reason = classify.Answered, 500, ""
	b.apply(spent.Key, again, nil)
	stuck := b.keyed(key("stuck"))
	b.doubt(stuck)
	b.apply(stuck.Key, keystore.Event{Kind: keystore.LookupFailed, Reason: "the program failed", Stuck: true}, nil)
	scoped := b.keyed(key("scoped"))
	scoped.Intent.Scope = "account 1"
	b.doubt(scoped)

	b.crash()
	b.clock.Advance(time.Hour)
	if r := b.stopping(spent, keystore.UnknownOutcome); !r.ResendSpent || r.Terms.Errors != keystore.ErrorsAreKept {
		b.Fatalf("after an answer to a copy: %+v", r)
	}
	if r := b.stopping(stuck, keystore.UnknownOutcome); r.Stuck != "the program failed" || r.History[len(r.History)-1].Note != r.Stuck {
		b.Fatalf("after a failure to judge: %+v", r)
	}
	other := *scoped
	other.Intent.Scope = "account 2"
	if a := b.begin(&other, nil); a.Verdict.Action == keystore.Resend || a.Verdict.Action == keystore.Send {
		b.Fatalf("for another account: %+v", a.Verdict)
	}
	for _, q := range []*keystore.Request{spent, stuck} {
		if r := b.apply(q.Key, operator(keystore.OperatorRecheck), nil); r.ResendSpent || r.Stuck != "" {
			b.Fatalf("after a recheck: %+v", r)
		}
		b.beginning(q, keystore.Resend)
	}
}

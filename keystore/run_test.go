package keystore

import (
	"errors"
	"strings"
	"testing"
	"time"

	"counterfoil/classify"

	"pgregory.net/rapid"
)

func refused(err error) Reason {
	if r, ok := errors.AsType[*Refused](err); ok {
		return r.Reason
	}
	return 0
}

func leased(fence Fence) *Run { return &Run{Lease: Lease{Fence: fence, Owner: "w", TTL: time.Minute}} }

// TestWhoMayAct: fence, flow version and incarnation are checked for replays
// too; plan, budget and pause only where something would be sent.
func TestWhoMayAct(t *testing.T) {
	fence := func(f Fence) func(*Request) { return func(q *Request) { q.Fence = f } }
	asRead := func(q *Request) { q.Class = classify.Read }
	version := func(v string) func(*Request) { return func(q *Request) { q.FlowVersion = v } }
	released := leased(3)
	released.Lease.Released = true
	pinned := &Run{FlowVersion: "v1"}
	spent := &Run{Budget: Budget{Effects: new(uint32(2))}, Begun: map[string]uint32{"tickets": 1, "mail": 1}}
	spentThere := &Run{Budget: Budget{Effects: new(uint32(9)), Upstreams: map[string]uint32{"tickets": 1}}, Begun: map[string]uint32{"tickets": 1}}
	begunOnce := inState(Open)
	neverBegun := inState(Planned)
	neverBegun.AttemptsMade, neverBegun.Attempts = 0, nil
	for _, tc := range []struct {
		name   string
		r      *Record
		facts  RunFacts
		with   func(*Request)
		action Action
		reason Reason
	}{
		{name: "no lease, no fence", facts: RunFacts{Run: &Run{}}, action: Send},
		{name: "no lease, a fence that was never given", facts: RunFacts{Run: &Run{}}, with: fence(1), action: Stop, reason: Fenced},
		{name: "no run, a fence", with: fence(1), action: Stop, reason: Fenced},
		{name: "no fence", facts: RunFacts{Run: leased(3)}, action: Stop, reason: FenceRequired},
		{name: "no fence, a read", facts: RunFacts{Run: leased(3)}, with: asRead, action: Send},
		{name: "the fence", facts: RunFacts{Run: leased(3)}, with: fence(3), action: Send},
		{name: "a lower fence", facts: RunFacts{Run: leased(3)}, with: fence(2), action: Stop, reason: Fenced},
		{name: "a lower fence, a read", facts: RunFacts{Run: leased(3)}, with: both2(fence(2), asRead), action: Stop, reason: Fenced},
		{name: "a higher fence", facts: RunFacts{Run: leased(3)}, with: fence(4), action: Stop, reason: Fenced},
		{name: "a lease given back", facts: RunFacts{Run: released}, with: fence(3), action: Stop, reason: Fenced},
		{name: "a lease given back, no fence", facts: RunFacts{Run: released}, action: Stop, reason: FenceRequired},
		{name: "a replay without a fence", r: inState(Succeeded), facts: RunFacts{Run: leased(3)}, action: Stop, reason: FenceRequired},
		{name: "a replay with a lower fence", r: inState(Succeeded), facts: RunFacts{Run: leased(3)}, with: fence(1), action: Stop, reason: Fenced},
		{name: "a replay with the fence", r: inState(Succeeded), facts: RunFacts{Run: leased(3)}, with: fence(3), action: Replay},
		{name: "recovery without an agent", r: inState(InDoubt), facts: RunFacts{Run: leased(3)}, with: recovering, action: Resend},
		{name: "another request before a lower fence", r: inState(Succeeded), facts: RunFacts{Run: leased(3)}, with: both2(fence(1), otherRequest), action: Stop, reason: KeyReused},

		{name: "another flow version", facts: RunFacts{Run: pinned}, with: version("v2"), action: Stop, reason: FlowVersionMismatch},
		{name: "another flow version, a replay", r: inState(Succeeded), facts: RunFacts{Run: pinned}, with: version("v2"), action: Stop, reason: FlowVersionMismatch},
		{name: "the flow version", facts: RunFacts{Run: pinned}, with: version("v1"), action: Send},
		{name: "no flow version", facts: RunFacts{Run: pinned}, action: Send},

		{name: "not in the plan", facts: RunFacts{Plan: OutOfPlan}, action: Stop, reason: NotInPlan},
		{name: "not in the plan, a decision", facts: RunFacts{Plan: OutOfPlan}, with: func(q *Request) { q.Class = classify.Decision }, action: Send},
		{name: "not in the plan, a replay", r: inState(Succeeded), facts: RunFacts{Plan: OutOfPlan}, action: Replay},
		{name: "in the plan", facts: RunFacts{Plan: InPlan}, action: Send},

		{name: "budget spent", facts: RunFacts{Run: spent}, action: Stop, reason: BudgetExhausted},
		{name: "budget spent, a read", facts: RunFacts{Run: spent}, with: asRead, action: Send},
		{name: "budget spent at that upstream", facts: RunFacts{Run: spentThere}, action: Stop, reason: BudgetExhausted},
		{name: "budget spent at another upstream", facts: RunFacts{Run: spentThere}, with: func(q *Request) { q.Intent.Upstream = "mail" }, action: Send},
		{name: "budget spent, a replay", r: inState(Succeeded), facts: RunFacts{Run: spent}, action: Replay},
		{name: "budget spent, a call that was counted", r: begunOnce, facts: RunFacts{Run: spent}, action: Send},
		{name: "budget spent, a planned call", r: neverBegun, facts: RunFacts{Run: spent}, action: Stop, reason: BudgetExhausted},
		{name: "a budget of nothing", facts: RunFacts{Run: &Run{Budget: Budget{Effects: new(uint32(0))}}}, action: Stop, reason: BudgetExhausted},
	} {
		q := request(ByResend)
		if tc.with != nil {
			tc.with(q)
		}
		got := Decide(tc.r, tc.facts, q, t0.Add(time.Hour))
		if got.Action != tc.action || got.Reason != tc.reason {
			t.Errorf("%s: got %s (%s), want %s (%s)", tc.name, got.Action, got.Reason, tc.action, tc.reason)
		}
	}
}

func both2(f, g func(*Request)) func(*Request) {
	return func(q *Request) { f(q); g(q) }
}

func TestFirstFlowVersionIsPinned(t *testing.T) {
	q := request()
	q.FlowVersion = "v1"
	a, err := Admit(nil, RunFacts{}, q, t0)
	if err != nil || a.Run == nil || a.Run.FlowVersion != "v1" {
		t.Fatalf("a first call: %+v, %v", a.Run, err)
	}
	a, err = Admit(inState(Succeeded), RunFacts{Run: &Run{}}, q, t0)
	if err != nil || !q.Writes(nil, RunFacts{}, a.Verdict) || a.Run == nil || a.Run.FlowVersion != "v1" || a.Record != nil {
		t.Fatalf("a replay that names the first version: %+v, %v", a, err)
	}
	a, err = Admit(inState(Unknown), RunFacts{Run: &Run{}}, q, t0)
	if err != nil || a.Run != nil {
		t.Fatalf("a refusal pins nothing: %+v, %v", a.Run, err)
	}
}

func TestBudgetCountsCallsNotAttempts(t *testing.T) {
	run := &Run{Begun: map[string]uint32{"mail": 3}}
	a, err := Admit(nil, RunFacts{Run: run}, request(), t0)
	if err != nil || a.Run.Begun["tickets"] != 1 || a.Run.EffectsBegun() != 4 {
		t.Fatalf("a first attempt: %v, %v", a.Run, err)
	}
	if run.Begun["tickets"] != 0 {
		t.Error("Admit changed the run that it was given")
	}
	a, err = Admit(inState(Open), RunFacts{Run: run}, request(), t0)
	if err != nil || a.Run != nil {
		t.Errorf("a further attempt counts: %v, %v", a.Run, err)
	}
}

// TestApprovals: a call is held until a person agrees, and that leave is for this
// request and this call alone, and may end.
func TestApprovals(t *testing.T) {
	q := request()
	q.Approval = classify.ApprovalRequired
	a, err := Admit(nil, RunFacts{}, q, t0)
	if err != nil || a.Record == nil || a.Record.State != Held || a.Record.HeldFor != ApprovalRequired || a.Verdict.Reason != ApprovalRequired {
		t.Fatalf("got %+v, %v; want it held", a, err)
	}
	if a.Run != nil {
		t.Error("a held call counts against the budget")
	}
	if v := Decide(a.Record, RunFacts{}, q, t0); v.Action != Stop || v.Reason != ApprovalRequired || v.Hold {
		t.Errorf("asked again: %+v", v)
	}
	approved, err := Next(a.Record, Event{Kind: WasApproved, Actor: "ann", Until: t0.Add(time.Minute)}, t0)
	if err != nil || approved.State != Planned || approved.Approval == nil || approved.Approval.Actor != "ann" {
		t.Fatalf("got %+v, %v", approved, err)
	}
	if v := Decide(approved, RunFacts{}, q, t0.Add(time.Minute-1)); v.Action != Send {
		t.Errorf("approved: %+v", v)
	}
	if v := Decide(approved, RunFacts{}, q, t0.Add(time.Minute)); v.Action != Stop || v.Reason != ApprovalRequired || !v.Hold {
		t.Errorf("the approval is over: %+v", v)
	}
	other := *q
	other.Fingerprint = classify.Fingerprint{2}
	if v := Decide(approved, RunFacts{}, &other, t0); v.Reason != KeyReused {
		t.Errorf("another request under an approved call: %+v", v)
	}
	again := *q
	again.Key.Call = "another"
	if v := Decide(nil, RunFacts{}, &again, t0); v.Reason != ApprovalRequired {
		t.Errorf("an equal request as another call: %+v", v)
	}
	denied, err := Next(a.Record, Event{Kind: WasDenied, Actor: "ann"}, t0)
	if err != nil || Decide(denied, RunFacts{}, q, t0).Reason != CallDenied {
		t.Errorf("denied: %+v, %v", denied, err)
	}
}

func TestDivergence(t *testing.T) {
	run := &Run{Repeats: Repeats{Incarnation: 1, Effects: 2}}
	q := request()
	q.Ordinal = &Ordinal{Content: "0123456789ab", Incarnation: 2}
	v := Decide(nil, RunFacts{Run: run}, q, t0)
	if v.Action != Send || !v.Diverges {
		t.Errorf("a new effect before the earlier ones: %+v", v)
	}
	known := RunFacts{Run: run, Position: Position{Incarnation: 1, Taken: 1, Through: 1}}
	if v := Decide(inState(Open), known, q, t0); v.Diverges {
		t.Errorf("an effect that was sent before: %+v", v)
	}
	read := *q
	read.Class = classify.Decision
	if v := Decide(nil, RunFacts{Run: run}, &read, t0); v.Diverges {
		t.Errorf("a decision: %+v", v)
	}
	q.HoldDiverged = true
	a, err := Admit(nil, RunFacts{Run: run}, q, t0)
	if err != nil || a.Verdict.Reason != Diverged || a.Record == nil || a.Record.State != Held || a.Record.HeldFor != Diverged || a.Run.Repeats.DivergedAt != t0 {
		t.Errorf("held: %+v, %v", a, err)
	}
	if v := Decide(a.Record, RunFacts{Run: run}, q, t0); v.Reason != Diverged || v.Hold {
		t.Errorf("asked again: %+v", v)
	}
	done := &Run{Repeats: Repeats{Incarnation: 2, Effects: 2, Earlier: 2, Repeated: 2}}
	if v := Decide(nil, RunFacts{Run: done}, q, t0); v.Diverges || v.Action != Send {
		t.Errorf("a new effect after the earlier ones: %+v", v)
	}
	stale := *q
	stale.Ordinal = &Ordinal{Content: "0123456789ab", Incarnation: 1}
	if v := Decide(nil, RunFacts{Run: done}, &stale, t0); v.Reason != Fenced {
		t.Errorf("an earlier incarnation: %+v", v)
	}
}

// Who asks for an earlier call has repeated it, though it gets no answer; who is
// refused for what it is has not.
func TestWhatCountsAsRepeated(t *testing.T) {
	missing := inState(Succeeded)
	missing.Receipt = &Receipt{Status: 200, Body: Body{Bytes: 1, Missing: true}}
	for _, tc := range []struct {
		name   string
		r      *Record
		change func(*Request)
		want   uint32
	}{
		{name: "held", r: inState(Held), want: 1},
		{name: "unknown", r: inState(Unknown), want: 1},
		{name: "given up", r: inState(Abandoned), want: 1},
		{name: "expired", r: inState(Expired), want: 1},
		{name: "under way", r: inState(Pending), want: 1},
		{name: "an answer that is not kept", r: missing, want: 1},
		{name: "sent again", r: inState(Open), want: 1},
		{name: "a replay, before it has ended", r: inState(Succeeded)},
		{name: "another request", r: inState(Held), change: func(q *Request) { q.Fingerprint = classify.Fingerprint{9} }},
		{name: "a stale fence", r: inState(Held), change: func(q *Request) { q.Fence = 7 }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			f := RunFacts{Run: &Run{Repeats: Repeats{Incarnation: 1, Effects: 1}}, Position: Position{Incarnation: 1, Taken: 1}}
			q := request()
			q.Ordinal = &Ordinal{Content: "0123456789ab", Incarnation: 2}
			if tc.change != nil {
				tc.change(q)
			}
			a, err := Admit(tc.r, f, q, t0)
			if err != nil || q.Writes(tc.r, f, a.Verdict) != (a.Run != nil || a.Record != nil) {
				t.Fatalf("%+v, %v", a, err)
			}
			if a.Run == nil {
				a.Run = f.Run
			}
			if a.Run.Repeats.Repeated != tc.want {
				t.Fatalf("%+v repeated %d", a.Verdict, a.Run.Repeats.Repeated)
			}
			if a.Position == nil || a.Verdict.Action == Send {
				return
			}
			if v := Decide(tc.r, RunFacts{Run: a.Run, Position: *a.Position}, q, t0); q.Writes(tc.r, RunFacts{Run: a.Run, Position: *a.Position}, v) && !v.GiveUp {
				t.Errorf("asked once more, it writes again: %+v", v)
			}
		})
	}
}

func TestTheFirstToDivergeMayWait(t *testing.T) {
	f := RunFacts{Run: &Run{Repeats: Repeats{Incarnation: 1, Effects: 1}}}
	q := request()
	q.Ordinal = &Ordinal{Content: "0123456789ab", Incarnation: 2}
	q.AwaitRepeats = true
	a, err := Admit(nil, f, q, t0)
	if err != nil || a.Verdict != (Verdict{Action: Wait, Reason: Diverged}) || a.Run != nil || a.Record != nil {
		t.Fatalf("the first: %+v, %v", a, err)
	}
	q.AwaitRepeats = false
	if a, err = Admit(nil, f, q, t0); err != nil || !a.Verdict.Diverges || !a.Run.Repeats.Diverged {
		t.Fatalf("once it has waited: %+v, %v", a, err)
	}
	q.AwaitRepeats = true
	if v := Decide(nil, RunFacts{Run: a.Run}, q, t0); v.Action != Send || !v.Diverges {
		t.Errorf("the second: %+v", v)
	}
	q.Ordinal.Incarnation = 3
	if v := Decide(nil, RunFacts{Run: a.Run}, q, t0); v.Action != Wait {
		t.Errorf("the next incarnation's first: %+v", v)
	}
}

func TestPutRun(t *testing.T) {
	first, changed, err := (*Run)(nil).Put(&RunSpec{Namespace: "n", Run: "r", FlowVersion: "v1", Labels: map[string]string{"a": "b"}}, t0)
	if err != nil || !changed || first.CreatedAt != t0 || first.FlowVersion != "v1" {
		t.Fatalf("got %+v, %t, %v", first, changed, err)
	}
	if _, changed, err := first.Put(&RunSpec{FlowVersion: "v1", Labels: map[string]string{"a": "b"}}, t0+1); changed || err != nil {
		t.Errorf("an equal one: %t, %v", changed, err)
	}
	if _, _, err := first.Put(&RunSpec{FlowVersion: "v2"}, t0); refused(err) != FlowVersionMismatch {
		t.Errorf("another version: %v", err)
	}
	next, changed, err := first.Put(&RunSpec{Budget: &Budget{Effects: new(uint32(1))}}, t0+1)
	if err != nil || !changed || *next.Budget.Effects != 1 || next.Labels["a"] != "b" || first.Budget.Effects != nil {
		t.Errorf("a budget: %+v, %t, %v", next, changed, err)
	}
}

func TestRunSpecLimits(t *testing.T) {
	many := map[string]string{}
	for i := range LabelsMax + 1 {
		many[strings.Repeat("x", i+1)] = ""
	}
	for name, q := range map[string]RunSpec{
		"no name":          {},
		"flow version":     {Run: "r", FlowVersion: strings.Repeat("v", PartBytesMax+1)},
		"many labels":      {Run: "r", Labels: many},
		"empty label":      {Run: "r", Labels: map[string]string{"": "x"}},
		"long label":       {Run: "r", Labels: map[string]string{"x": strings.Repeat("v", LabelValueBytesMax+1)}},
		"label, not UTF-8": {Run: "r", Labels: map[string]string{"x": "\xff"}},
	} {
		if q.Validate() == nil {
			t.Errorf("%s: it is taken", name)
		}
	}
	if err := (&RunSpec{Run: "r", FlowVersion: "v", Labels: map[string]string{"a": ""}}).Validate(); err != nil {
		t.Error(err)
	}
}

// TestLeases leads one lease through requests of several holders, over restarts
// and at any pace, and holds it against what a holder may believe: that nobody
// else has the run until its time, measured by the watch, is up.
func TestLeases(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var l Lease
		w := Watch{Era: 1, Epoch: 1}
		// safeFor is how much longer the holder may count on the lease, as time
		// really passes: a restart takes some, and the watch does not see it.
		var safeFor time.Duration
		var holder Fence
		// quiet is how long nobody has taken, renewed or restarted anything.
		var quiet time.Duration
		t.Repeat(map[string]func(*rapid.T){
			"time": func(t *rapid.T) {
				d := rapid.SampledFrom([]time.Duration{time.Millisecond, time.Second, 10 * time.Second}).Draw(t, "passes")
				w.Now = w.Now.Add(d)
				safeFor -= d
				quiet += d
			},
			"restart": func(t *rapid.T) {
				safeFor -= rapid.SampledFrom([]time.Duration{0, time.Second, time.Hour}).Draw(t, "down")
				began := Instant(rapid.SampledFrom([]time.Duration{5, 1000 * time.Hour}).Draw(t, "the new watch shows"))
				w = Watch{Era: w.Era + 1, Epoch: w.Epoch + 1, Now: began, Began: began}
				quiet = 0
			},
			"acquire": func(t *rapid.T) {
				ttl := rapid.SampledFrom([]time.Duration{time.Second, 5 * time.Second}).Draw(t, "ttl")
				before := l
				next, err := l.Acquire(&LeaseRequest{Owner: "w", TTL: ttl}, w, true)
				if err != nil && quiet >= l.TTL {
					t.Fatalf("nobody renewed a lease of %s for %s, and it is held: %v", l.TTL, quiet, err)
				}
				if err == nil && safeFor > 0 && holder != 0 {
					t.Fatalf("fence %d was given while %d had %s left", next.Fence, holder, safeFor)
				}
				if err == nil && next.Fence <= before.Fence {
					t.Fatalf("fence %d after %d", next.Fence, before.Fence)
				}
				if err == nil {
					l, holder, safeFor, quiet = next, next.Fence, ttl, 0
				} else if refused(err) != LeaseHeld || next != before {
					t.Fatalf("got %+v, %v", next, err)
				}
			},
			"renew": func(t *rapid.T) {
				f := Fence(rapid.Uint64Range(0, uint64(l.Fence)+1).Draw(t, "fence"))
				next, err := l.Renew(f, 0, w)
				if err == nil && f != l.Fence || err != nil && refused(err) != Fenced {
					t.Fatalf("renewed with %d, the newest is %d: %v", f, l.Fence, err)
				}
				if err == nil {
					l, safeFor, quiet = next, l.TTL, 0
				} else if f == holder && f != 0 && safeFor > 0 {
					t.Fatalf("the holder could not renew with %s left: %v", safeFor, err)
				}
			},
			"release": func(t *rapid.T) {
				f := Fence(rapid.Uint64Range(0, uint64(l.Fence)+1).Draw(t, "fence"))
				next, err := l.Release(f)
				if (err == nil) != (f != 0 && f == l.Fence) {
					t.Fatalf("released with %d, the newest is %d: %v", f, l.Fence, err)
				}
				if err == nil {
					l, holder, safeFor = next, 0, 0
					if next.Left(w) != 0 || next.Admits(f, true) != Fenced {
						t.Fatal("a lease that was given back still counts")
					}
				}
			},
			"": func(t *rapid.T) {
				for f := Fence(0); f <= l.Fence+1; f++ {
					want := Reason(0)
					switch {
					case f == 0 && l.Fence > 0:
						want = FenceRequired
					case f != l.Fence || f > 0 && l.Released:
						want = Fenced
					}
					if got := l.Admits(f, true); got != want {
						t.Fatalf("fence %d, the newest is %d: %s, want %s", f, l.Fence, got, want)
					}
				}
			},
		})
	})
}

func TestOnlyADeadOwnersSuccessorTakesOver(t *testing.T) {
	w := Watch{Era: 2, Epoch: 2, Now: 1}
	l := Lease{Fence: 4, Owner: "exec", TTL: time.Hour, Era: 1, Epoch: 1}
	q := &LeaseRequest{Owner: "exec", TTL: time.Minute, From: FromOwnEarlierLife}
	if next, err := l.Acquire(q, w, true); err != nil || next.Fence != 5 {
		t.Errorf("got %+v, %v", next, err)
	}
	if _, err := l.Acquire(q, w, false); refused(err) != LeaseHeld {
		t.Errorf("its sidecar lives: %v", err)
	}
	other := *q
	other.Owner = "worker"
	if _, err := l.Acquire(&other, w, true); refused(err) != LeaseHeld {
		t.Errorf("another owner: %v", err)
	}
}

func TestRunGuards(t *testing.T) {
	run := leased(3)
	run.FlowVersion = "v1"
	for _, tc := range []struct {
		run  *Run
		g    Guard
		want Reason
	}{
		{nil, Guard{Run: "r"}, 0},
		{nil, Guard{Run: "r", Fence: 1}, Fenced},
		{run, Guard{Run: "r"}, FenceRequired},
		{run, Guard{Run: "r", Fence: 2}, Fenced},
		{run, Guard{Run: "r", Fence: 3}, 0},
		{run, Guard{Run: "r", Fence: 3, FlowVersion: "v1"}, 0},
		{run, Guard{Run: "r", Fence: 3, FlowVersion: "v2"}, FlowVersionMismatch},
	} {
		if got := refused(tc.run.Check(tc.g)); got != tc.want {
			t.Errorf("%+v: %s, want %s", tc.g, got, tc.want)
		}
	}
}

package journal

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"counterfoil/classify"
	"counterfoil/keystore"
	"counterfoil/keystore/storetest"
)

// report asks for the whole report of the bench's run.
func (b *bench) report() Report {
	b.t.Helper()
	r, err := b.journal.Report(context.Background(), "default", "r", keystore.Page{Limit: 1000})
	if err != nil {
		b.t.Fatal(err)
	}
	return r
}

// wantStep checks what the report says of one call.
func (b *bench) wantStep(r Report, id string, state keystore.State, action keystore.Action) Step {
	b.t.Helper()
	i := slices.IndexFunc(r.Calls, func(s Step) bool { return s.Key.Call == id })
	if i < 0 {
		b.t.Fatalf("the report does not name %s: %+v", id, r.Calls)
	}
	s := r.Calls[i]
	if s.State != state || s.Action != action || !strings.HasSuffix(s.Reason, ".") {
		b.t.Errorf("%s: %s, %s (%s), want %s, %s", id, s.State, s.Action, s.Reason, state, action)
	}
	return s
}

func (b *bench) wantVerdict(r Report, want RunVerdict) {
	b.t.Helper()
	if r.Verdict != want || r.Run != "r" {
		b.t.Errorf("verdict = %s of %q, want %s: %+v", r.Verdict, r.Run, want, r.Calls)
	}
}

// dies lets the store crash in the middle of an attempt, as a process that is
// killed: what was not synced is gone.
func (b *bench) dies(then script) script {
	return func(p *provider, r *classify.Request) *classify.Response {
		resp := then(p, r)
		b.store.Crash()
		return resp
	}
}

// reborn lets the call die, and starts a new life.
func (b *bench) reborn(id string) {
	b.t.Helper()
	wantProblem(b.t, b.do(call(id)), JournalUnavailable)
	b.journal.Close()
	b.open()
}

func (b *bench) plan(ids ...string) {
	b.t.Helper()
	p := &keystore.Plan{Namespace: "default", Run: "r", Turn: "1"}
	for _, id := range ids {
		p.Calls = append(p.Calls, keystore.PlannedCall{ID: id, Tool: "charge"})
	}
	if _, err := b.store.PutPlan(context.Background(), p, keystore.Guard{Run: "r"}); err != nil {
		b.t.Fatal(err)
	}
}

// Window 1 of design section 1: the crash falls before the call was sent.
func TestWindowBeforeTheCallWasSent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, newProvider(commits(201, "{}")), lookupOperation)
		b.plan("c", "d")
		b.crash()
		r := b.report()
		b.wantVerdict(r, Resume)
		if s := b.wantStep(r, "c", keystore.Planned, keystore.Send); s.Tool != "charge" {
			t.Errorf("tool %q", s.Tool)
		}
		b.wantStep(r, "d", keystore.Planned, keystore.Send)
		wantReply(t, b.do(call("c")), Executed, 201, "{}")
		b.want(1, 1)
	})
}

// The same, with the intent on record: nobody can tell it from the next window.
func TestWindowBeforeTheCallWasSentButIntended(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newProvider(nil, commits(201, `{"id":1}`))
		p.lookup = answers(404, "{}")
		b := newBench(t, p, lookupOperation)
		p.steps[0] = b.dies(loses(false))
		b.reborn("c")
		r := b.report()
		b.wantVerdict(r, Resume)
		b.wantStep(r, "c", keystore.InDoubt, keystore.Ask)
		wantReply(t, b.do(call("c")), Executed, 201, `{"id":1}`)
		b.want(2, 1)
	})
}

// Window 2: after sending, no answer.
func TestWindowAfterSendingWithoutAnAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newProvider(nil)
		p.lookup = answers(200, `{"id":1}`)
		b := newBench(t, p, lookupOperation)
		p.steps[0] = b.dies(loses(true))
		b.reborn("c")
		r := b.report()
		b.wantVerdict(r, Resume)
		b.wantStep(r, "c", keystore.InDoubt, keystore.Ask)
		wantReply(t, b.do(call("c")), Recovered, 201, `{"id":1}`)
		b.want(1, 1)
	})
}

// Window 3: after the effect, before the receipt was stored.
func TestWindowAfterTheEffectBeforeTheReceipt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newProvider(nil, commitsOnce(201, `{"id":1}`))
		b := newBench(t, p, keyedOperation)
		p.steps[0] = b.dies(commits(201, `{"id":1}`))
		b.reborn("c")
		r := b.report()
		b.wantVerdict(r, Resume)
		b.wantStep(r, "c", keystore.InDoubt, keystore.Resend)
		wantReply(t, b.do(call("c")), Recovered, 201, `{"id":1}`)
		b.want(2, 1)
	})
}

// Window 4: after the receipt was stored.
func TestWindowAfterTheReceipt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, newProvider(commits(201, `{"id":1}`)), "")
		wantReply(t, b.do(call("c")), Executed, 201, `{"id":1}`)
		b.crash()
		r := b.report()
		b.wantVerdict(r, Resume)
		b.wantStep(r, "c", keystore.Succeeded, keystore.Replay)
		wantReply(t, b.do(call("c")), Replayed, 201, `{"id":1}`)
		b.want(1, 1)
	})
}

// Window 5: no reliable way to ask, and a repeat could do harm.
func TestWindowWithoutAnyWayToAsk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newProvider(nil)
		b := newBench(t, p, "")
		p.steps[0] = b.dies(commits(201, `{"id":1}`))
		b.reborn("c")
		r := b.report()
		b.wantVerdict(r, StopFirst)
		if s := b.wantStep(r, "c", keystore.InDoubt, keystore.Stop); s.Problem != UnknownOutcome {
			t.Errorf("problem %s", s.Problem)
		}
		wantProblem(t, b.do(call("c")), UnknownOutcome)
		b.plan("c", "d")
		r = b.report()
		b.wantVerdict(r, StopFirst)
		b.wantStep(r, "c", keystore.Unknown, keystore.Stop)
		b.wantStep(r, "d", keystore.Planned, keystore.Stop)
		b.want(1, 1)
	})
}

// What is under way, and what is too young to be believed, makes a run wait.
func TestTheReportWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		p := newProvider(loses(false), func(p *provider, r *classify.Request) *classify.Response {
			<-release
			return commits(201, "{}")(p, r)
		})
		p.lookup = answers(404, "{}")
		b := newBench(t, p, lookupOperation)
		c := call("c")
		c.Wait = 0
		wantProblem(t, b.do(c), InProgress)
		began := keystore.At(time.Now())
		r := b.report()
		b.wantVerdict(r, WaitFirst)
		if s := b.wantStep(r, "c", keystore.InDoubt, keystore.Wait); s.NotBefore <= began {
			t.Errorf("not before %d, and it is %d", s.NotBefore, began)
		}
		time.Sleep(time.Minute)
		b.wantVerdict(b.report(), Resume)
		done := make(chan *Reply)
		go func() { done <- b.do(call("d")) }()
		synctest.Wait()
		r = b.report()
		b.wantVerdict(r, WaitFirst)
		b.wantStep(r, "d", keystore.Pending, keystore.Wait)
		close(release)
		wantReply(t, <-done, Executed, 201, "{}")
	})
}

// The verdict is about the whole run, whichever page is asked for.
func TestTheReportIsPaged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, newProvider(commits(201, "{}")), "")
		ids := make([]string, 450)
		for i := range ids {
			ids[i] = fmt.Sprintf("c%03d", i)
		}
		b.plan(ids...)
		limit := uint32(0)
		if _, _, err := b.store.PutRun(t.Context(), &keystore.RunSpec{Namespace: "default", Run: "r", Budget: &keystore.Budget{Effects: &limit}}); err != nil {
			t.Fatal(err)
		}
		var seen []string
		for page := (keystore.Page{Limit: 100}); ; {
			r, err := b.journal.Report(t.Context(), "default", "r", page)
			if err != nil {
				t.Fatal(err)
			}
			b.wantVerdict(r, StopFirst)
			for _, s := range r.Calls {
				seen = append(seen, s.Key.Call)
				if s.Problem != BudgetExhausted {
					t.Fatalf("%+v", s)
				}
			}
			if page.After = r.Next; r.Next == "" {
				break
			}
		}
		if !slices.Equal(seen, ids) {
			t.Errorf("got %d calls in another order", len(seen))
		}
		if _, err := b.journal.Report(t.Context(), "default", "none", keystore.Page{}); !errors.Is(err, keystore.ErrNotFound) {
			t.Errorf("a run that is not there: %v", err)
		}
	})
}

// A run may have thousands of turns with plans of 1 MiB: no more of them than the
// names of their calls is kept while its report is made.
func TestTheReportKeepsNoDecisions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, newProvider(nil), "")
		for turn := range 3 {
			p := &keystore.Plan{Namespace: "default", Run: "r", Turn: fmt.Sprint(turn), Decision: []byte(`"long"`)}
			p.Calls = []keystore.PlannedCall{{ID: "c", Tool: "charge", Args: []byte(`"long"`)}}
			if _, err := b.store.PutPlan(t.Context(), p, keystore.Guard{Run: "r"}); err != nil {
				t.Fatal(err)
			}
		}
		sum, err := b.store.Run(t.Context(), "default", "r")
		if err != nil {
			t.Fatal(err)
		}
		rp := &reporter{Journal: b.journal, run: &sum, now: keystore.At(time.Now()), plans: map[string]*keystore.Plan{}}
		if _, _, err := rp.page(t.Context(), keystore.Page{}); err != nil || len(rp.plans) != 3 {
			t.Fatalf("%d plans, %v", len(rp.plans), err)
		}
		for turn, p := range rp.plans {
			if p.Decision != nil || len(p.Calls) != 1 || p.Calls[0].Args != nil || p.Fact("c") != keystore.InPlan {
				t.Errorf("turn %s: %+v", turn, p)
			}
		}
	})
}

// A repeat for an upstream that is not configured any more is refused by the proxy.
func TestTheReportOfAnUpstreamThatIsGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, newProvider(answers(429, "{}")), "")
		b.do(call("c"))
		delete(b.journal.upstreams, b.upstream.Name)
		r := b.report()
		b.wantVerdict(r, StopFirst)
		if s := b.wantStep(r, "c", keystore.Open, keystore.Stop); s.Problem != UnknownUpstream {
			t.Errorf("problem %s", s.Problem)
		}
	})
}

// A watched store notes what each call's first verdict is.
type watched struct {
	keystore.Store
	first *keystore.Admission
}

func (w *watched) Begin(ctx context.Context, q *keystore.Request, body []byte) (keystore.Admission, error) {
	a, err := w.Store.Begin(ctx, q, body)
	if w.first == nil && err == nil {
		w.first = &a
	}
	return a, err
}

// For any history, what the report says of each call is what Do then does.
func TestReportAndBehaviourAgree(t *testing.T) {
	actions := map[keystore.Action]int{}
	for range 6 { // a single check is short under -short
		rapid.Check(t, func(rt *rapid.T) { playReport(t, rt, actions) })
	}
	for _, a := range []keystore.Action{keystore.Send, keystore.Replay, keystore.Ask, keystore.Resend, keystore.Wait, keystore.Stop} {
		if actions[a] == 0 {
			t.Errorf("no history came to %s: %v", a, actions)
		}
	}
}

// kinds are requests of every class, and one that a rule wants approved.
var kinds = [...]struct{ method, target string }{
	{"POST", "/charges"}, {"POST", "/looked-up"}, {"POST", "/keyed"}, {"PUT", "/things/1"}, {"POST", "/model"}, {"POST", "/refunds"},
}

const everyOperation = `
- name: looked_up
  when: {method: [POST], path: /looked-up}
  class: effect
  lookup:
    request: "GET /effects/{key}"
    found: ".id != null"
    response: {status: 201, body: "."}
    not_found: {status: [404]}
    consistency: {kind: strong}
- name: keyed
  when: {method: [POST], path: /keyed}
  class: keyed
  guarantee: {retention: 24h}
`

// A player makes a history on a bench.
type player struct {
	*bench
	rt    *rapid.T
	clock *storetest.Clock
	watch *watched
	known []*Call
}

func playReport(t *testing.T, rt *rapid.T, actions map[keystore.Action]int) {
	t.Helper()
	p := newProvider(nil)
	clock := storetest.NewClock()
	b := newBenchAt(t, p, everyOperation, clock.Now)
	match := func(target string) classify.Match {
		m, err := classify.CompileMatch([]string{"POST"}, target)
		if err != nil {
			t.Fatal(err)
		}
		return m
	}
	b.upstream.Rules = classify.Rules{
		{Match: match("/refunds"), Approval: classify.ApprovalRequired}, {Match: match("/model"), Class: classify.Decision},
	}
	b.upstream.PauseOnUnknown = rapid.Bool().Draw(rt, "pause on unknown")
	pl := &player{bench: b, rt: rt, clock: clock}
	pl.watchStore()
	for range rapid.IntRange(1, 12).Draw(rt, "moves") {
		pl.move()
	}
	pl.settle()
	for _, c := range pl.known {
		actions[pl.compare(c)]++
	}
}

// watchStore puts the watch between journal and store.
func (pl *player) watchStore() {
	pl.watch = &watched{Store: pl.bench.store}
	pl.journal.store = pl.watch
}

// settle lets the providers of all later attempts answer.
func (pl *player) settle() {
	pl.provider.steps = []script{commits(201, `{"id":1}`)}
	pl.provider.lookup = pl.lookupScript()
}

func (pl *player) move() {
	switch rapid.IntRange(0, 9).Draw(pl.rt, "move") {
	case 0, 1, 2, 3, 4:
		pl.request()
	case 5:
		pl.dieIn()
	case 6:
		pl.decide()
	case 7:
		limit := rapid.Uint32Range(0, 6).Draw(pl.rt, "budget")
		_, _, _ = pl.bench.store.PutRun(context.Background(), &keystore.RunSpec{Namespace: "default", Run: "r", Budget: &keystore.Budget{Effects: &limit}})
	case 8:
		pl.clock.Advance([]time.Duration{time.Second, time.Minute, 20 * time.Minute, 25 * time.Hour}[rapid.IntRange(0, 3).Draw(pl.rt, "pause")])
	case 9:
		pl.putPlan()
	}
}

// pick returns a call of the history, or a new one.
func (pl *player) pick() *Call {
	if n := rapid.IntRange(0, len(pl.known)).Draw(pl.rt, "call"); n < len(pl.known) {
		return pl.known[n]
	}
	kind := kinds[rapid.IntRange(0, len(kinds)-1).Draw(pl.rt, "kind")]
	c := call(fmt.Sprintf("c%d", len(pl.known)))
	c.Key.Turn = fmt.Sprint(rapid.IntRange(1, 2).Draw(pl.rt, "turn"))
	c.Request.Method, c.Request.Target, c.Wait = kind.method, kind.target, 0
	pl.known = append(pl.known, c)
	return c
}

func (pl *player) request() {
	pl.provider.steps, pl.provider.lookup = []script{pl.script()}, pl.lookupScript()
	pl.do(pl.pick())
}

func (pl *player) script() script {
	return []script{
		commits(201, `{"id":1}`), answers(422, `{}`), answers(429, `{}`), answers(500, `{}`), loses(true), loses(false), unsent,
	}[rapid.IntRange(0, 6).Draw(pl.rt, "script")]
}

func (pl *player) lookupScript() script {
	return []script{answers(404, "{}"), answers(200, `{"id":2}`), answers(403, ""), answers(503, "")}[rapid.IntRange(0, 3).Draw(pl.rt, "lookup")]
}

// dieIn kills the process in the middle of a request.
func (pl *player) dieIn() {
	pl.provider.steps, pl.provider.lookup = []script{pl.dies(pl.script())}, pl.lookupScript()
	pl.do(pl.pick())
	pl.bench.store.Crash()
	pl.journal.Close()
	pl.open()
	pl.watchStore()
}

// decide lets a person decide about a call that waits for one.
func (pl *player) decide() {
	for _, c := range pl.known {
		r, err := pl.bench.store.Call(context.Background(), c.Key)
		if err != nil {
			continue
		}
		ruling := &Ruling{Key: c.Key, Actor: "ada", TTL: time.Duration(rapid.IntRange(0, 1).Draw(pl.rt, "minutes")) * 30 * time.Second}
		event := keystore.Event{Kind: keystore.OperatorNotApplied, Actor: "ada"}
		switch yes := rapid.Bool().Draw(pl.rt, "yes"); {
		case r.State == keystore.Held && yes:
			_, _ = pl.journal.Approve(context.Background(), ruling)
		case r.State == keystore.Held:
			_, _ = pl.journal.Deny(context.Background(), ruling)
		case r.State == keystore.Unknown:
			if yes {
				event.Kind = keystore.OperatorAbandoned
			}
			_, _ = pl.bench.store.Apply(context.Background(), c.Key, event, nil)
		}
	}
}

// putPlan plans some of the history's calls for a turn, and leaves others out.
func (pl *player) putPlan() {
	p := &keystore.Plan{Namespace: "default", Run: "r", Turn: fmt.Sprint(rapid.IntRange(1, 2).Draw(pl.rt, "turn"))}
	for range rapid.IntRange(0, 3).Draw(pl.rt, "planned") {
		c := pl.pick()
		if c.Key.Turn == p.Turn && !p.Names(c.Key.Call) {
			p.Calls = append(p.Calls, keystore.PlannedCall{ID: c.Key.Call})
		}
	}
	_, _ = pl.bench.store.PutPlan(context.Background(), p, keystore.Guard{Run: "r"})
}

// compare holds what the report says of a call against what is done, and returns
// what that was.
func (pl *player) compare(c *Call) keystore.Action {
	report, err := pl.journal.Report(context.Background(), "default", "r", keystore.Page{Limit: 1000})
	if errors.Is(err, keystore.ErrNotFound) {
		return 0
	}
	if err != nil {
		pl.rt.Fatal(err)
	}
	i := slices.IndexFunc(report.Calls, func(s Step) bool { return s.Key == c.Key })
	if i < 0 {
		return 0
	}
	said := report.Calls[i]
	if said.State == keystore.Planned && said.Key.Turn != "" && !pl.intended(c.Key) {
		// Nothing says yet that it will be a refund, or no effect at all.
		if c.Request.Target == "/refunds" || c.Request.Target == "/model" {
			return 0
		}
	}
	hits := pl.provider.hitCount()
	pl.watch.first = nil
	reply := pl.do(c)
	did, first := keystore.Action(0), pl.watch.first
	if first != nil {
		did = first.Verdict.Action
	}
	if did == keystore.Ask && first.Verdict.After > keystore.At(pl.clock.Now()) {
		did = keystore.Wait
	}
	if did != said.Action {
		pl.rt.Fatalf("%s: the report says %s (%s), and it was %s: %s", c.Key, said.Action, said.Reason, did, problem(reply))
	}
	switch said.Action {
	case keystore.Stop:
		if problem(reply) != said.Problem {
			pl.rt.Fatalf("%s: the report says %s, and it was %s", c.Key, said.Problem, problem(reply))
		}
	case keystore.Wait:
		if problem(reply) != InProgress {
			pl.rt.Fatalf("%s: the report says wait, and it was %s %s", c.Key, reply.Outcome, problem(reply))
		}
	case keystore.Replay:
		if reply.Outcome != Replayed || pl.provider.hitCount() != hits {
			pl.rt.Fatalf("%s: the report says replay, and it was %s", c.Key, reply.Outcome)
		}
	case keystore.Send, keystore.Resend:
		if pl.provider.hitCount() == hits {
			pl.rt.Fatalf("%s: the report says %s, and nothing was sent", c.Key, said.Action)
		}
	case keystore.Ask:
	}
	return said.Action
}

// intended reports whether a request for the call was ever on record.
func (pl *player) intended(k keystore.Key) bool {
	r, err := pl.bench.store.Call(context.Background(), k)
	return err == nil && r.Intent.Method != ""
}

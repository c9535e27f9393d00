package journal

import (
	"context"
	"errors"
	"fmt"

	"counterfoil/classify"
	"counterfoil/keystore"
)

// A RunVerdict says what a restarted agent is to do about a whole run.
type RunVerdict string

// The verdicts.
const (
	// Resume: repeat the calls in order; none of them has to wait.
	Resume RunVerdict = "resume"
	// WaitFirst: a call is still under way, or too young to be recovered.
	WaitFirst RunVerdict = "wait"
	// StopFirst: a person has to act before the run can go on.
	StopFirst RunVerdict = "stop"
)

// A Report is what a restarted agent needs to know about a run.
type Report struct {
	Run         string
	FlowVersion string
	// Verdict is about the whole run, whichever page of it is shown.
	Verdict RunVerdict
	// Calls is one page of the run's calls, in the order in which they came on
	// record.
	Calls []Step
	// Next is the cursor of the next page, empty on the last.
	Next string
}

// A Step is what will happen if the agent now repeats a call as it was.
type Step struct {
	Key    keystore.Key
	Tool   string
	State  keystore.State
	Action keystore.Action
	// Reason says why, in a sentence for people and models.
	Reason string
	// Problem is what a repeat would be refused with, empty where it is not.
	Problem Problem
	// NotBefore is when a repeat makes sense, zero if it is not known or now.
	NotBefore keystore.Instant
}

// reportPage is how many calls are judged at a time for the verdict.
const reportPage = 200

// Report says what to do about a run, call by call. It is made from what is on
// record by the rules that [Journal.Do] goes by, as if the run's present holder
// repeated each request exactly, with the same credential, under the current
// configuration. Errors: keystore.ErrNotFound if the run or the cursor is not
// known, others of the store.
func (j *Journal) Report(ctx context.Context, namespace, run string, p keystore.Page) (Report, error) {
	summary, err := j.store.Run(ctx, namespace, run)
	if err != nil {
		return Report{}, fmt.Errorf("reporting on a run: %w", err)
	}
	rp := &reporter{Journal: j, run: &summary, now: keystore.At(j.now()), plans: map[string]*keystore.Plan{}}
	steps, next, err := rp.page(ctx, p)
	if err != nil {
		return Report{}, err
	}
	verdict, err := rp.verdict(ctx)
	if err != nil {
		return Report{}, err
	}
	return Report{Run: run, FlowVersion: summary.FlowVersion, Verdict: verdict, Calls: steps, Next: next}, nil
}

// A reporter judges the calls of one run.
type reporter struct {
	*Journal
	run *keystore.RunSummary
	now keystore.Instant
	// plans are those of the turns that were looked at, but for their decisions
	// and arguments: together these may be more than memory holds.
	plans map[string]*keystore.Plan
}

func (rp *reporter) page(ctx context.Context, p keystore.Page) ([]Step, string, error) {
	list, err := rp.store.Calls(ctx, rp.run.Namespace, rp.run.Name, p)
	if err != nil {
		return nil, "", fmt.Errorf("listing a run's calls: %w", err)
	}
	steps := make([]Step, len(list.Items))
	for i, r := range list.Items {
		if steps[i], err = rp.step(ctx, r); err != nil {
			return nil, "", err
		}
	}
	return steps, list.Next, nil
}

// verdict takes the calls together. What is settled holds nothing up, so where
// the totals tell enough, no call is read.
func (rp *reporter) verdict(ctx context.Context) (RunVerdict, error) {
	n := &rp.run.Calls
	if n[keystore.Unknown]+n[keystore.Held] > 0 {
		return StopFirst, nil
	}
	verdict := Resume
	left := n[keystore.Pending] + n[keystore.InDoubt] + n[keystore.Open] + n[keystore.Planned]
	for page := (keystore.Page{Limit: reportPage}); left > 0; {
		steps, next, err := rp.page(ctx, page)
		if err != nil {
			return "", err
		}
		for i := range steps {
			s := &steps[i]
			if !s.State.Final() {
				left--
			}
			switch {
			case s.holdsUp():
				return StopFirst, nil
			case s.Action == keystore.Wait:
				verdict = WaitFirst
			}
		}
		if page.After = next; next == "" {
			break
		}
	}
	return verdict, nil
}

// holdsUp reports whether the run cannot go on before someone acts. A call that
// was given up or refused for good is over: the run goes on without it.
func (s *Step) holdsUp() bool { return s.Action == keystore.Stop && !s.State.Final() }

// step says what a repeat of the call would meet.
func (rp *reporter) step(ctx context.Context, r *keystore.Record) (Step, error) {
	s := Step{Key: r.Key, Tool: r.Tool, State: r.State}
	facts, err := rp.facts(ctx, r)
	if err != nil {
		return s, err
	}
	q := rp.repeat(ctx, r)
	v := keystore.Decide(r, facts, &q.ask, rp.now)
	s.Action = v.Action
	switch {
	case v.Action == keystore.Stop:
		s.Problem = problemOf[v.Reason]
	case q.upstream.Sender == nil && r.Intent.Upstream != "":
		s.Problem = UnknownUpstream
		s.Action, s.Reason = keystore.Stop, "Its upstream "+r.Intent.Upstream+" is not configured any more, so a repeat is refused."
		return s, nil
	case v.Action == keystore.Wait && rp.isOrphan(r):
		s.Action = keystore.Send
	case v.Action == keystore.Ask && v.After > rp.now, v.Action == keystore.Wait:
		s.Action, s.NotBefore = keystore.Wait, v.After
	}
	s.Reason = because(r, v, s.Action)
	return s, nil
}

// facts is what Decide has to know of the run. Who repeats is its holder: where
// the lease is over or given back, whoever takes it next.
func (rp *reporter) facts(ctx context.Context, r *keystore.Record) (keystore.RunFacts, error) {
	run := rp.run.Run
	run.Lease = keystore.Lease{}
	f := keystore.RunFacts{Run: &run, Unknown: rp.run.Calls[keystore.Unknown]}
	if run.Plans == 0 || r.State != keystore.Open && r.State != keystore.Planned {
		return f, nil
	}
	plan, known := rp.plans[r.Key.Turn]
	if !known {
		whole, err := rp.store.Plan(ctx, run.Namespace, run.Name, r.Key.Turn)
		if err != nil && !errors.Is(err, keystore.ErrNotFound) {
			return f, fmt.Errorf("reading a turn's plan: %w", err)
		}
		plan = whole.Outline()
		rp.plans[r.Key.Turn] = plan
	}
	f.Plan = plan.Fact(r.Key.Call)
	return f, nil
}

// repeat makes of a record the request that its agent would make, as the current
// configuration takes it.
func (j *Journal) repeat(ctx context.Context, r *keystore.Record) *work {
	w := j.workFor(ctx, r)
	q := &w.ask
	q.OnlyRecover = false
	q.Credential, q.Principal = r.Credential, w.upstream.principalOf(j, r)
	q.PauseOnUnknown, q.HoldDiverged = w.upstream.PauseOnUnknown && r.Key.Run != keystore.NoPart, w.upstream.HoldDiverged
	if r.Intent.Upstream == "" { // a plan names it, and nothing says yet what it will be
		q.Class, q.PauseOnUnknown = classify.Effect, j.anyPauses() && r.Key.Run != keystore.NoPart
		return w
	}
	request := &w.call.Request
	q.Class, q.Intent.Operation = w.upstream.Rules.Class(request, w.rd.Class()), operationName(w.rd.Operation)
	q.Terms = w.terms(request, q.Class)
	q.Means = w.means(request, q.Class)
	q.Approval = w.upstream.Rules.Approval(request)
	return w
}

// principalOf is what a repeat with the same credential would be bound to now.
func (u *Upstream) principalOf(j *Journal, r *keystore.Record) keystore.Digest {
	switch u.Bind {
	case BindAuthorization:
		if r.Credential != "" {
			return r.Credential
		}
		return keystore.Digest(j.mac([]byte("nobody")))
	case BindSubject:
		return r.Principal
	case BindShared:
		return keystore.Digest(j.mac([]byte("shared")))
	case BindNothing:
	}
	return ""
}

func (j *Journal) anyPauses() bool {
	for _, u := range j.upstreams {
		if u.PauseOnUnknown {
			return true
		}
	}
	return false
}

// isOrphan reports whether the attempt on record is one that nobody owns: its
// intent was kept without being acknowledged, so nothing was sent for it.
func (j *Journal) isOrphan(r *keystore.Record) bool {
	if r.State != keystore.Pending || len(r.Attempts) == 0 || r.Attempts[len(r.Attempts)-1].Epoch != j.epoch {
		return false
	}
	j.flights.mu.Lock()
	f := j.flights.of[r.Key]
	j.flights.mu.Unlock()
	if f == nil {
		return true
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	return !f.owned && f.beginning == 0
}

// because says why, in a plain sentence.
func because(r *keystore.Record, v keystore.Verdict, action keystore.Action) string {
	switch action {
	case keystore.Send:
		return becauseSend(r)
	case keystore.Replay:
		return "It is done, and its receipt is kept: a repeat is answered from it and sends nothing."
	case keystore.Ask:
		return "Its effect may exist: a repeat asks the provider first, and sends it only if it is not there."
	case keystore.Resend:
		return "Its effect may exist, but sending it again under the same key cannot cause a second one: a repeat does that."
	case keystore.Wait:
		return becauseWait(r, v)
	case keystore.Stop:
		return becauseStop(v)
	}
	return ""
}

func becauseSend(r *keystore.Record) string {
	switch {
	case r.State == keystore.Pending:
		return "Nothing was sent for it, since its intent could not be confirmed: a repeat sends it."
	case r.Approval != nil && r.AttemptsMade == 0:
		return "A person approved it, and it was not sent yet: a repeat sends it."
	case r.AttemptsMade == 0:
		return "It was planned and never sent: a repeat sends it."
	}
	return "It was tried, and nothing came of it: a repeat sends it again."
}

func becauseWait(r *keystore.Record, v keystore.Verdict) string {
	switch {
	case r.State == keystore.Pending:
		return "It is under way right now: a repeat waits for its answer."
	case v.Reason == keystore.OtherAccount:
		return "Its effect may exist, and only the credential that it was made with can tell: repeat it with that one."
	}
	return "Its effect may exist, and it is too early to believe the provider or to try again: repeat it later."
}

func becauseStop(v keystore.Verdict) string {
	switch v.Reason { //nolint:exhaustive // the others cannot stop the repeat of what is on record
	case keystore.UnknownOutcome:
		return "Nobody can tell whether it had its effect: a person has to look and decide (sidecar resolve)."
	case keystore.RunPaused:
		return "Another call of this run is unknown, which pauses its effects: that one has to be decided about first."
	case keystore.ApprovalRequired:
		return "It waits for a person's approval (sidecar approve), and was not sent."
	case keystore.Diverged:
		return "The run did not repeat its earlier steps when it came: a person has to approve it (sidecar approve), and it was not sent."
	case keystore.CallDenied:
		return "A person refused it, and it was never sent: go on without it."
	case keystore.CallAbandoned:
		return "A person gave it up, and it is not sent again: go on without its answer."
	case keystore.ReceiptExpired:
		return "It was made long ago, and its receipt is no longer kept: it is not sent again."
	case keystore.BudgetExhausted:
		return "It was not sent, and the run's budget is used up: whoever set that can set a larger one."
	case keystore.NotInPlan:
		return "Nothing has come of it, and the plan that its turn has since does not name it."
	}
	return "A repeat is refused: " + v.Reason.String() + "."
}

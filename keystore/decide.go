package keystore

import (
	"cmp"
	"slices"
	"time"

	"counterfoil/classify"
)

// An Action is what may be done about a call.
type Action uint8

const (
	// Send: record an attempt and send the request.
	Send Action = iota + 1
	// Replay: answer from the receipt.
	Replay
	// Ask: look the effect up at the provider, not before Verdict.After.
	Ask
	// Resend: record another attempt and send the recorded intent, under the
	// same provider key.
	Resend
	// Wait: an attempt is under way, or it is too early to go on; come back at
	// Verdict.After.
	Wait
	// Stop: refuse, for Verdict.Reason.
	Stop
)

var actionNames = [...]string{Send: "send", Replay: "replay", Ask: "ask", Resend: "resend", Wait: "wait", Stop: "stop"}

func (a Action) String() string {
	if a > 0 && int(a) < len(actionNames) {
		return actionNames[a]
	}
	return "invalid"
}

// A Reason says why a verdict stops a call, or why an operation was refused.
// Package proxy maps each to a problem. The numbers are stored: they are only
// ever appended to.
type Reason uint8

const (
	// KeyReused: the same key came with another request.
	KeyReused Reason = iota + 1
	// PrincipalMismatch: the call belongs to another credential.
	PrincipalMismatch
	// UnknownOutcome: nobody can know whether the effect exists; a person
	// decides.
	UnknownOutcome
	// RunPaused: another call of the run is unknown.
	RunPaused
	// ApprovalRequired: a person has to approve the call first.
	ApprovalRequired
	// CallDenied: a person refused the call.
	CallDenied
	// CallAbandoned: a person gave the call up.
	CallAbandoned
	// ReceiptExpired: the call was made, and its receipt is gone.
	ReceiptExpired
	// OtherAccount, which comes with Wait: only who asks on the account that the
	// call was made with can learn what came of it.
	OtherAccount
	// FenceRequired: the run has had a lease, and who asks names no fence.
	FenceRequired
	// Fenced: the fence is not the newest, or its lease was given back.
	Fenced
	// FlowVersionMismatch: the run is pinned to another version of its flow.
	FlowVersionMismatch
	// LeaseHeld: the lease is another's, and not over.
	LeaseHeld
	// PlanConflict: the turn has another plan.
	PlanConflict
	// NotInPlan: the turn has a plan, and it does not name the call.
	NotInPlan
	// BudgetExhausted: the run has begun as many effects as its budget allows.
	BudgetExhausted
	// Diverged: the agent sends a new effect before it has repeated those of its
	// earlier incarnations, and a person has to look first; with Wait, they may be
	// on their way.
	Diverged
	// ETagMismatch: the item has another version.
	ETagMismatch
	// ItemExists: the item is there already.
	ItemExists
	// ReceiptRequired: the write stands for a call that has no receipt.
	ReceiptRequired

	numReasons
)

var reasonNames = [numReasons]string{
	KeyReused: "key_reused", PrincipalMismatch: "principal_mismatch", UnknownOutcome: "unknown_outcome", RunPaused: "run_paused",
	ApprovalRequired: "approval_required", CallDenied: "call_denied", CallAbandoned: "call_abandoned", ReceiptExpired: "receipt_expired",
	OtherAccount: "other_account", FenceRequired: "fence_required", Fenced: "fenced", FlowVersionMismatch: "flow_version_mismatch",
	LeaseHeld: "lease_held", PlanConflict: "plan_conflict", NotInPlan: "not_in_plan", BudgetExhausted: "budget_exhausted",
	Diverged: "diverged", ETagMismatch: "etag_mismatch", ItemExists: "item_exists", ReceiptRequired: "receipt_required",
}

func (r Reason) String() string {
	if r > 0 && r < numReasons {
		return reasonNames[r]
	}
	return "invalid"
}

// A Verdict is what [Decide] says about a call.
type Verdict struct {
	Action Action
	// Reason is set with Stop, and with Wait where there is more to say.
	Reason Reason
	// After is when Ask or Wait make sense; zero means now.
	After Instant
	// GiveUp comes with Stop and UnknownOutcome when recovery has nothing left
	// to try and that is not yet on record.
	GiveUp bool
	// Hold comes with Stop and ApprovalRequired or Diverged when the call is to
	// be put on record as held.
	Hold bool
	// Diverges says that the call is a new effect of an agent that has not
	// repeated all of its earlier ones.
	Diverges bool
	// Pins says that the request's flow version is to become the run's.
	Pins bool
	// AsApproved comes with Send: what is sent is the request on record, which is
	// the one that a person has seen. An equal one may have other header fields.
	AsApproved bool
}

// KeepsIntent reports whether the asking request's intent, and its body, go on
// record.
func (v Verdict) KeepsIntent() bool { return v.Action == Send && !v.AsApproved || v.Hold }

// Means is one way to learn what came of a call in doubt.
type Means uint8

const (
	// ByResend: send the intent again under the same provider key, where that
	// is safe.
	ByResend Means = iota + 1
	// ByLookup: ask the provider.
	ByLookup
	// ByResendIfAbsent: ByResend, once a lookup has found nothing since the doubt
	// began. The provider refuses a second copy.
	ByResendIfAbsent
)

// A Request is what someone asks about a call.
type Request struct {
	Beginning

	// Means are the ways of recovery, in the order to be tried.
	Means []Means
	// NoMeans says, where Means is empty, what is missing for there to be some.
	NoMeans string
	// Lookup says how fresh the lookup among the means is. Its AskedAt is not
	// used.
	Lookup Absence
	// LookupSpent says that the lookup was tried and cannot tell: it is not
	// permitted, or its answer makes no sense.
	LookupSpent bool
	// LookupReason says why, in plain words.
	LookupReason string
	// OnlyRecover says that who asks has no request to send: a call that is open
	// waits for its agent, and so does one in doubt that only its agent's
	// account can tell of.
	OnlyRecover bool
	// PauseOnUnknown says that an unknown call pauses the effects of its whole
	// run.
	PauseOnUnknown bool

	// FlowVersion is the version of the flow that who asks runs; empty if it
	// does not say. The fence is the beginning's.
	FlowVersion string
	// Approval says whether a person has to agree first.
	Approval classify.Approval
	// Ordinal is set where the call's id was made by counting.
	Ordinal *Ordinal
	// HoldDiverged says that a call that diverges is held.
	HoldDiverged bool
	// AwaitRepeats says that who asks would rather come back than be the first of
	// its incarnation to diverge: calls in parallel come in any order.
	AwaitRepeats bool
}

// isEffect reports whether the call may change something outside.
func (q *Request) isEffect() bool { return IsEffect(q.Class) }

// IsEffect reports whether a call of that class may change something outside.
func IsEffect(c classify.Class) bool { return c != classify.Read && c != classify.Decision }

// RunFacts is what a verdict needs to know about a call's run.
type RunFacts struct {
	// Run is nil where the run is not on record.
	Run *Run
	// Unknown counts the run's calls in Unknown.
	Unknown int
	// Plan is what the plan of the call's turn says about the call. It need not
	// be looked up where Run.Plans is 0.
	Plan PlanFact
	// Position is what is on record for the request's Ordinal, if it has one.
	Position Position
}

func (f *RunFacts) run() *Run {
	if f.Run == nil {
		return &Run{}
	}
	return f.Run
}

// Bounds on recovery.
const (
	// LookupFailuresMax is how many times over at least LookupPatience a lookup
	// may give no answer before it is given up.
	LookupFailuresMax = 5
	LookupPatience    = 15 * time.Minute
	// OtherAccountPatience is for how long a call that only its own account can
	// tell of is kept in doubt when others ask for it: a stranger must not end
	// the recovery of a call, and an agent whose token was refreshed must not
	// wait for ever.
	OtherAccountPatience = 15 * time.Minute
	// ResendRestMin is what a resend that settled nothing is given before the
	// next, and each further one four times as long, up to ResendRestMax: the
	// provider may still be at work on the first sending.
	ResendRestMin = 500 * time.Millisecond
	ResendRestMax = 30 * time.Second
)

// Decide says what may be done about a call, changing nothing. r is nil where
// nothing is on record. Begin, reports and the inspector all ask here, so they
// cannot disagree.
func Decide(r *Record, f RunFacts, q *Request, now Instant) Verdict {
	if stop := decideAsker(r, &f, q); stop != 0 {
		return Verdict{Action: Stop, Reason: stop}
	}
	v := decideCall(r, &f, q, now)
	v.Pins = (v.Action != Stop || v.Hold) && q.FlowVersion != "" && f.run().FlowVersion == ""
	return v
}

// decideAsker refuses whoever may not act for the run, or means another request:
// for replays too, since a worker that was replaced should stop.
func decideAsker(r *Record, f *RunFacts, q *Request) Reason {
	if r != nil {
		if stop := decideIdentity(r, q); stop != 0 {
			return stop
		}
	}
	run := f.run()
	if q.OnlyRecover {
		return 0
	}
	if stop := run.Lease.Admits(q.Fence, q.isEffect()); stop != 0 {
		return stop
	}
	if q.FlowVersion != "" && run.FlowVersion != "" && q.FlowVersion != run.FlowVersion {
		return FlowVersionMismatch
	}
	if q.Ordinal != nil && q.Ordinal.Incarnation < run.Repeats.Incarnation {
		return Fenced
	}
	return 0
}

func decideCall(r *Record, f *RunFacts, q *Request, now Instant) Verdict {
	if r == nil {
		return decideFresh(nil, f, q, now)
	}
	switch r.State {
	case None, Planned, Open:
		return decideFresh(r, f, q, now)
	case Held:
		return Verdict{Action: Stop, Reason: cmp.Or(r.HeldFor, ApprovalRequired)}
	case Pending:
		return Verdict{Action: Wait}
	case InDoubt:
		return decideInDoubt(r, q, now)
	case Succeeded, Rejected:
		return Verdict{Action: Replay}
	case Unknown:
		return Verdict{Action: Stop, Reason: UnknownOutcome}
	case Abandoned:
		if r.Denied {
			return Verdict{Action: Stop, Reason: CallDenied}
		}
		return Verdict{Action: Stop, Reason: CallAbandoned}
	case Expired, numStates:
	}
	return Verdict{Action: Stop, Reason: ReceiptExpired}
}

// decideIdentity compares who asks and what for with what is on record. Another
// principal learns nothing, not even that the request differs; while nothing
// has happened a call belongs to nobody.
func decideIdentity(r *Record, q *Request) Reason {
	free := r.State == None || r.State == Planned || r.State == Open
	if !free && r.Principal != "" && r.Principal != q.Principal {
		return PrincipalMismatch
	}
	if r.Fingerprint != (classify.Fingerprint{}) && r.Fingerprint != q.Fingerprint {
		return KeyReused
	}
	return 0
}

// decideFresh decides about a call of which nothing has happened: may it be
// sent? r is nil where nothing is on record.
func decideFresh(r *Record, f *RunFacts, q *Request, now Instant) Verdict {
	if q.OnlyRecover {
		return Verdict{Action: Wait}
	}
	if !q.isEffect() {
		return Verdict{Action: Send}
	}
	diverges := q.diverges(f)
	isFirst := diverges && !f.run().Repeats.in(q.Ordinal.Incarnation).Diverged
	switch {
	case f.Plan == OutOfPlan && q.Ordinal == nil: // no plan can name an id that is made by counting
		return Verdict{Action: Stop, Reason: NotInPlan}
	case (r == nil || r.AttemptsMade == 0) && f.run().exhausted(q.Intent.Upstream):
		return Verdict{Action: Stop, Reason: BudgetExhausted}
	case q.PauseOnUnknown && f.Unknown > 0:
		return Verdict{Action: Stop, Reason: RunPaused}
	case r.isApprovedFor(&q.Beginning, now):
		return Verdict{Action: Send, AsApproved: true, Diverges: diverges}
	case isFirst && q.AwaitRepeats:
		return Verdict{Action: Wait, Reason: Diverged}
	case diverges && q.HoldDiverged:
		return Verdict{Action: Stop, Reason: Diverged, Hold: true, Diverges: true}
	case q.Approval == classify.ApprovalRequired:
		return Verdict{Action: Stop, Reason: ApprovalRequired, Hold: true, Diverges: diverges}
	}
	return Verdict{Action: Send, Diverges: diverges}
}

// diverges reports whether the call is a new effect of an agent that has not
// repeated all of its earlier ones.
func (q *Request) diverges(f *RunFacts) bool {
	if q.Ordinal == nil || !f.run().Repeats.diverges(q.Ordinal.Incarnation) {
		return false
	}
	p, err := f.Position.In(q.Ordinal.Incarnation)
	return err == nil && q.Ordinal.Slot >= p.Known
}

func decideInDoubt(r *Record, q *Request, now Instant) Verdict {
	if r.Stuck != "" {
		return Verdict{Action: Stop, Reason: UnknownOutcome, GiveUp: true}
	}
	var later Verdict // the earliest of what has to wait
	for _, means := range q.Means {
		v := tryMeans(means, r, q, now)
		switch {
		case v.Action == 0:
		case v.After <= now:
			return v
		case later.Action == 0 || v.After < later.After:
			later = v
		}
	}
	if later.Action != 0 {
		return later
	}
	if len(q.Means) > 0 && !sameAccount(r, &q.Beginning) {
		if until := r.DoubtSince.Add(OtherAccountPatience); q.OnlyRecover || now < until {
			return Verdict{Action: Wait, Reason: OtherAccount, After: max(until, now)}
		}
	}
	return Verdict{Action: Stop, Reason: UnknownOutcome, GiveUp: true}
}

// tryMeans says what one way of recovery has to offer, and when; nothing if it
// is spent.
func tryMeans(means Means, r *Record, q *Request, now Instant) Verdict {
	switch means {
	case ByResendIfAbsent:
		if r.LastMissAt == 0 || r.LastMissAt < r.DoubtSince {
			return Verdict{} // what was asked before shows nothing of what was sent since
		}
		return tryMeans(ByResend, r, q, now)
	case ByResend:
		if !repeatIsSafeFor(r, &q.Beginning, now) {
			return Verdict{}
		}
		if after := nextResend(r); after > now {
			return Verdict{Action: Wait, After: after}
		}
		return Verdict{Action: Resend}
	case ByLookup:
		if after, ok := nextLookup(r, q, now); ok {
			return Verdict{Action: Ask, After: after}
		}
	}
	return Verdict{}
}

// nextResend returns when the next resend may be made. The first is made at
// once.
func nextResend(r *Record) Instant {
	var ended Instant
	rest := ResendRestMin / 4
	for i := len(r.Attempts) - 1; i >= 0 && r.Attempts[i].Resend; i-- {
		ended = max(ended, r.Attempts[i].EndedAt)
		rest = min(4*rest, ResendRestMax)
	}
	if ended == 0 {
		return 0
	}
	return ended.Add(rest)
}

// nextLookup returns when the next lookup makes sense, and false if none does.
// The first is asked at once, since a hit may be believed at any time.
func nextLookup(r *Record, q *Request, now Instant) (Instant, bool) {
	believable := q.Lookup.BelievableFrom(r.DoubtSince)
	switch {
	case q.LookupSpent || r.LookupFailures >= LookupFailuresMax && now >= r.FailingSince.Add(LookupPatience):
		return 0, false
	case r.LastMissAt == 0:
		return now, true
	case r.LastMissAt < believable:
		return believable, true
	case !q.Lookup.Believable || r.convergesNowhere() || !sameAccount(r, &q.Beginning):
		return 0, false
	}
	return max(now, r.LastMissAt.Add(q.Lookup.Spacing)), true
}

// Admitted is what Admit came to: the verdict, and what must be on record for
// it. What is nil does not change.
type Admitted struct {
	Verdict  Verdict
	Record   *Record
	Run      *Run
	Position *Position
}

// Admit decides about a call and says what must be on record for it. Every
// store's Begin is Admit inside one atomic step. Where facts.Run is nil, a Run
// that follows has only what Admit knows: its store gives it a name.
func Admit(r *Record, f RunFacts, q *Request, now Instant) (a Admitted, err error) {
	a.Verdict = Decide(r, f, q, now)
	switch v := a.Verdict; {
	case v.Action == Send:
		a.Record, err = Next(r, Event{Kind: Begun, Begin: &q.Beginning}, now)
	case v.Action == Resend:
		a.Record, err = Next(r, Event{Kind: ResendBegun, Begin: &q.Beginning}, now)
	case v.GiveUp:
		a.Record, err = Next(r, Event{Kind: GaveUp, Reason: q.gaveUpBecause(r)}, now)
	case v.Hold:
		a.Record, err = Next(r, Event{Kind: WasHeld, Begin: &q.Beginning, Reason: v.Reason.String()}, now)
		if err == nil {
			a.Record.HeldFor = v.Reason
		}
	}
	if err != nil {
		return a, err
	}
	return a, a.follow(r, &f, q, now)
}

// follow says what the verdict means for the run and for the position.
func (a *Admitted) follow(r *Record, f *RunFacts, q *Request, now Instant) error {
	run := *f.run()
	v, changed := a.Verdict, false
	if v.Pins {
		run.FlowVersion, changed = q.FlowVersion, true
	}
	if v.Action == Send && q.isEffect() && (r == nil || r.AttemptsMade == 0) {
		run.begun(q.Intent.Upstream)
		changed = true
	}
	if q.takesSlot(r, f, v) {
		p, repeats, err := takeSlot(run.Repeats, f.Position, q.Ordinal, q.isEffect())
		if err != nil {
			return err
		}
		run.Repeats, a.Position, changed = repeats, &p, true
		if v.Diverges {
			run.Repeats.DivergedAt, run.Repeats.Diverged = now, true
		}
	}
	if changed {
		a.Run = &run
	}
	return nil
}

// Writes reports whether something follows from a verdict about q that has to be
// put on record. r is the call's record, nil if there is none.
func (q *Request) Writes(r *Record, f RunFacts, v Verdict) bool {
	return v.Action == Send || v.Action == Resend || v.GiveUp || v.Hold || v.Pins || q.takesSlot(r, &f, v)
}

// takesSlot reports whether a verdict makes the slot the incarnation's: where the
// call goes on, and where one of an earlier incarnation is asked for. A replay
// takes it when its answer ends, see [Step].
func (q *Request) takesSlot(r *Record, f *RunFacts, v Verdict) bool {
	switch {
	case q.Ordinal == nil || v.refusesAsker() || v.Action == Replay && !r.bodyIsMissing():
		return false
	case v.Action == Send || v.Action == Resend || v.Hold:
		return true
	}
	p, err := f.Position.In(q.Ordinal.Incarnation)
	return err == nil && q.Ordinal.Slot >= p.Taken && q.Ordinal.Slot < p.Known
}

// bodyIsMissing reports whether there is a receipt that cannot be replayed.
func (r *Record) bodyIsMissing() bool {
	return r.Receipt != nil && r.Receipt.Body.Missing && r.Receipt.Body.Bytes > 0
}

// refusesAsker reports whether a verdict is about who asks, not about the call.
func (v Verdict) refusesAsker() bool {
	switch v.Reason { //nolint:exhaustive // the others are about the call
	case KeyReused, PrincipalMismatch, FenceRequired, Fenced, FlowVersionMismatch:
		return v.Action == Stop
	}
	return false
}

func (q *Request) gaveUpBecause(r *Record) string {
	switch {
	case r.Stuck != "":
		return r.Stuck
	case q.LookupReason != "":
		return q.LookupReason
	case q.LookupSpent || r.LookupFailures >= LookupFailuresMax:
		return "the lookup cannot tell"
	case len(q.Means) == 0:
		return cmp.Or(q.NoMeans, "nothing says how to ask its provider, or that the provider deduplicates a repeat")
	case !sameAccount(r, &q.Beginning):
		return "who asks would reach another target or account than the call did"
	case r.LastMissAt != 0 && slices.Contains(q.Means, ByLookup) && !q.Lookup.Believable:
		return "the lookup found nothing, which proves nothing here: its operation declares no consistency (strong or lag)"
	case r.Class == classify.Keyed:
		return "the provider may have forgotten the key"
	case r.Class == classify.Idempotent:
		return "the first attempt is too long ago: a repeat could undo what others did since"
	}
	return "nothing is left to try"
}

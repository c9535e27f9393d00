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

// A Reason says why a verdict stops a call. Package proxy maps each to a
// problem.
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
)

var reasonNames = [...]string{
	KeyReused: "key_reused", PrincipalMismatch: "principal_mismatch", UnknownOutcome: "unknown_outcome", RunPaused: "run_paused",
	ApprovalRequired: "approval_required", CallDenied: "call_denied", CallAbandoned: "call_abandoned", ReceiptExpired: "receipt_expired",
	OtherAccount: "other_account",
}

func (r Reason) String() string {
	if r > 0 && int(r) < len(reasonNames) {
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
}

// Means is one way to learn what came of a call in doubt.
type Means uint8

const (
	// ByResend: send the intent again under the same provider key, where that
	// is safe.
	ByResend Means = iota + 1
	// ByLookup: ask the provider.
	ByLookup
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
}

// RunFacts is what a verdict needs to know about a call's run.
type RunFacts struct {
	// Unknown counts the run's calls in Unknown.
	Unknown int
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
func Decide(r *Record, run RunFacts, q *Request, now Instant) Verdict {
	if r == nil {
		return decideFresh(run, q)
	}
	if stop := decideIdentity(r, q); stop != 0 {
		return Verdict{Action: Stop, Reason: stop}
	}
	switch r.State {
	case None, Planned, Open:
		return decideFresh(run, q)
	case Held:
		return Verdict{Action: Stop, Reason: ApprovalRequired}
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

func decideFresh(run RunFacts, q *Request) Verdict {
	if q.OnlyRecover {
		return Verdict{Action: Wait}
	}
	isEffect := q.Class != classify.Read && q.Class != classify.Decision
	if isEffect && q.PauseOnUnknown && run.Unknown > 0 {
		return Verdict{Action: Stop, Reason: RunPaused}
	}
	return Verdict{Action: Send}
}

func decideInDoubt(r *Record, q *Request, now Instant) Verdict {
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
	case !q.Lookup.Believable || !sameAccount(r, &q.Beginning):
		return 0, false
	}
	return max(now, r.LastMissAt.Add(q.Lookup.Spacing)), true
}

// Admit decides about a call and, where an attempt is to be made or recovery
// has nothing left to try, says what must be on record for it. next is nil if
// nothing changes. Every store's Begin is Admit inside one atomic step.
func Admit(r *Record, run RunFacts, q *Request, now Instant) (next *Record, v Verdict, err error) {
	v = Decide(r, run, q, now)
	switch {
	case v.Action == Send:
		next, err = Next(r, Event{Kind: Begun, Begin: &q.Beginning}, now)
	case v.Action == Resend:
		next, err = Next(r, Event{Kind: ResendBegun, Begin: &q.Beginning}, now)
	case v.GiveUp:
		next, err = Next(r, Event{Kind: GaveUp, Reason: q.gaveUpBecause(r)}, now)
	}
	return next, v, err
}

func (q *Request) gaveUpBecause(r *Record) string {
	switch {
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

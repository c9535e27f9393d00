package keystore

import (
	"cmp"
	"errors"
	"fmt"
	"time"
	"unicode/utf8"

	"counterfoil/classify"
)

// An Event is something that happened to a call, with what is needed to put it
// on record.
type Event struct {
	Kind EventKind

	// Attempt is the number of the attempt that a Saw event or LateApplied
	// speaks of.
	Attempt uint32
	// Status is the provider's status, Reason what the attempt or the lookup
	// showed in plain words: no header, body or query.
	Status int
	Reason string
	// Evidence and Outcome are what a Saw event judged.
	Evidence classify.Evidence
	Outcome  classify.Outcome

	// InFlight comes with SawAmbiguous: the provider says that another copy of the
	// request is at work, so that waiting is right and nothing is spent.
	InFlight bool
	// Stuck comes with SawAmbiguous and LookupFailed: what came cannot be judged,
	// now or later, so that nothing more may be tried. Reason says why.
	Stuck bool
	// Receipt comes with SawApplied, SawRejected, LookupFound, OperatorApplied
	// and LateApplied. Its Source and SettledAt are set by Next.
	Receipt *Receipt
	// Absence comes with LookupAbsent.
	Absence Absence
	// Begin comes with Begun, ResendBegun, WasHeld and WasPlanned; and with
	// LookupAbsent, where it says on whose account the provider was asked.
	Begin *Beginning
	// Actor names the person behind an operator's event, Note says why.
	Actor string
	Note  string
	// Until comes with WasApproved: when the approval is over; 0 is never.
	Until Instant
	// Tool comes with WasPlanned.
	Tool string
	// Plan, which may come with SawApplied, is what a model's answer has decided. It
	// goes on record in the same step, as [Run.Decided] says.
	Plan *Plan
	// Answered, which may come with a Saw event, moves on the position of an
	// agent without call ids, in the same step, if the call is settled by it.
	Answered *Ordinal
}

// PlanOf is the plan that goes on record with the event that has made r what it is,
// and the fence under which it was decided; nil if there is none.
func (e *Event) PlanOf(r *Record) (*Plan, Fence) {
	p := e.Plan
	if p == nil || e.Kind != SawApplied || p.Namespace != r.Key.Namespace || p.Run != r.Key.Run || p.Turn != r.Key.Turn || p.Validate() != nil {
		return nil, 0
	}
	if a := r.Attempt(e.Attempt); a != nil {
		return p, a.Fence
	}
	return p, r.Fence
}

// A Beginning is what a begun attempt puts on record.
type Beginning struct {
	Key         Key
	Class       classify.Class
	Fingerprint classify.Fingerprint
	Intent      Intent
	Terms       Terms
	Credential  Digest
	Principal   Digest
	Epoch       Epoch
	Fence       Fence
}

// An Absence is what a lookup that found nothing is worth.
type Absence struct {
	// AskedAt is when the lookup was sent.
	AskedAt Instant
	// Quiesce is how long a request that was cut off may still be running at
	// the provider.
	Quiesce time.Duration
	// Lag is how far the lookup's view may be behind; zero if it is strongly
	// consistent.
	Lag time.Duration
	// MissesNeeded is how many lookups in a row must find nothing; 0 counts as
	// 1.
	MissesNeeded uint32
	// Spacing is how far apart those lookups must be.
	Spacing time.Duration
	// Believable says that the provider publishes how fresh the lookup is. If
	// not, a miss proves nothing.
	Believable bool
}

// BelievableFrom is the earliest time at which a miss of a lookup counts for a
// call in doubt since then.
func (a Absence) BelievableFrom(doubtSince Instant) Instant {
	return doubtSince.Add(a.Quiesce).Add(a.Lag)
}

// Errors of [Next]. Whoever raised the event has a bug, or came too late.
var (
	// ErrNoTransition: the event means nothing in the call's state.
	ErrNoTransition = errors.New("the event means nothing in this state")
	// ErrGuard: no rule's guard holds.
	ErrGuard = errors.New("the event is not allowed now")
	// ErrStaleAttempt: the event speaks of an attempt that is not the one under
	// way, or of one that was never made.
	ErrStaleAttempt = errors.New("the event speaks of another attempt")
)

// IdempotentResendMax is for how long after its first attempt an idempotent
// call may be repeated: later, a repeat could undo what others did since.
const IdempotentResendMax = 10 * time.Minute

// A rule is one way that an event may take.
type rule struct {
	to    State
	needs guard
}

// rules is the life of a call. Of several rules the first whose guard holds is
// taken. An empty cell is an event that means nothing in that state: Next
// refuses it.
var rules = [numStates][numEvents][]rule{
	None: {
		WasPlanned: {{to: Planned}},
		WasHeld:    {{to: Held}},
		Begun:      {{to: Pending}},
	},
	Planned: {
		WasHeld:       {{to: Held}},
		Begun:         {{to: Pending}},
		RetentionOver: {{to: Expired}},
	},
	Held: {
		WasApproved: {{to: Planned}},
		WasDenied:   {{to: Abandoned}},
	},
	Pending: {
		SawUnsent:     {{to: Open, needs: noDoubt}, {to: InDoubt}},
		SawNotApplied: {{to: Open, needs: noDoubt}, {to: InDoubt}},
		SawApplied:    {{to: Succeeded, needs: hasReceipt}},
		SawRejected:   {{to: Rejected, needs: rejectionCounts}},
		SawAmbiguous:  {{to: InDoubt}},
		EpochDied:     {{to: InDoubt}},
		LateApplied:   {{to: Succeeded, needs: hasReceipt}},
	},
	Open: {
		WasHeld:       {{to: Held}},
		Begun:         {{to: Pending}},
		LookupFound:   {{to: Succeeded, needs: hasReceipt}},
		LateApplied:   {{to: Succeeded, needs: hasReceipt}},
		RetentionOver: {{to: Expired}},
	},
	InDoubt: {
		LookupFound:  {{to: Succeeded, needs: hasReceipt}},
		LookupAbsent: {{to: Open, needs: absenceBelievable}, {to: InDoubt}},
		LookupFailed: {{to: InDoubt}},
		ResendBegun:  {{to: Pending, needs: repeatIsSafe}},
		GaveUp:       {{to: Unknown}},
		LateApplied:  {{to: Succeeded, needs: hasReceipt}},
	},
	Unknown: {
		OperatorApplied:    {{to: Succeeded, needs: hasReceipt}},
		OperatorNotApplied: {{to: Open}},
		OperatorAbandoned:  {{to: Abandoned}},
		OperatorRecheck:    {{to: InDoubt}},
		LookupFound:        {{to: Succeeded, needs: hasReceipt}},
		LateApplied:        {{to: Succeeded, needs: hasReceipt}},
	},
	Succeeded: {RetentionOver: {{to: Expired}}},
	Rejected:  {RetentionOver: {{to: Expired}}},
	Abandoned: {RetentionOver: {{to: Expired}}},
}

// A guard is a condition of a rule, by name.
type guard uint8

const (
	always guard = iota
	// noDoubt: no earlier attempt may have had an effect.
	noDoubt
	// hasReceipt: the event brings what is known to have come of the call.
	hasReceipt
	// rejectionCounts: the event brings a receipt, and either no earlier attempt
	// is in doubt, or a rejection of the repeat speaks of the first sending too:
	// the provider deduplicates, or there was no effect to begin with.
	rejectionCounts
	// absenceBelievable: the lookup was sent after the quiesce time and its
	// lag, to where the call was sent and on the same account, its freshness is
	// published, and enough of them found nothing.
	absenceBelievable
	// repeatIsSafe: the provider deduplicates the key that was sent, or refuses a
	// second copy, and its retention has not run out; or the call is a read, a
	// decision, or idempotent and younger than IdempotentResendMax; to the same
	// target, for the same account and principal; and no answer has shown since
	// that a copy would be answered the same, or have its effect anew.
	repeatIsSafe

	numGuards
)

var guards = [numGuards]struct {
	short string
	name  string
	holds func(r *Record, e *Event, now Instant) bool
}{
	always:     {"", "", func(*Record, *Event, Instant) bool { return true }},
	noDoubt:    {"noDoubt", "no earlier attempt is in doubt", func(r *Record, _ *Event, _ Instant) bool { return r.DoubtSince == 0 }},
	hasReceipt: {"hasReceipt", "the event brings a receipt", func(_ *Record, e *Event, _ Instant) bool { return e.Receipt != nil }},
	rejectionCounts: {"rejectionCounts", "the event brings a receipt, and the rejection speaks of earlier attempts in doubt too", func(r *Record, e *Event, _ Instant) bool {
		return e.Receipt != nil && RejectionCounts(r)
	}},
	absenceBelievable: {"absenceBelievable", "the absence may be believed: waits, target, account, principal and number of lookups; and a copy sent then would converge", func(r *Record, e *Event, now Instant) bool {
		return missCounts(r, e, now) && r.Misses+1 >= max(e.Absence.MissesNeeded, 1)
	}},
	repeatIsSafe: {"repeatIsSafe", "a repeat is safe: retention or age, target, account and principal, and resending is not spent", func(r *Record, e *Event, now Instant) bool {
		return e.Begin != nil && repeatIsSafeFor(r, e.Begin, now)
	}},
}

// RejectionCounts reports whether a rejection of the attempt under way settles
// the call. After doubt about a call that its provider does not deduplicate, it
// may be the first attempt's own trace: what is closed already cannot be closed.
func RejectionCounts(r *Record) bool {
	return r.DoubtSince == 0 || r.Class == classify.Keyed || r.Class == classify.Read || r.Class == classify.Decision
}

// missCounts reports whether a lookup that found nothing brings the call nearer
// to being believed absent.
func missCounts(r *Record, e *Event, now Instant) bool {
	a := e.Absence
	return a.Believable && r.Stuck == "" && !r.convergesNowhere() && e.Begin != nil && sameAccount(r, e.Begin) &&
		a.AskedAt <= now && a.AskedAt >= a.BelievableFrom(r.DoubtSince) &&
		(r.Misses == 0 || a.AskedAt >= r.LastMissAt.Add(a.Spacing))
}

// repeatIsSafeFor reports whether the one who asks may repeat the call: it has
// to reach the same target on the same account as the first sending.
func repeatIsSafeFor(r *Record, b *Beginning, now Instant) bool {
	return sameAccount(r, b) && RepeatIsSafe(r, now)
}

// sameAccount reports whether b would reach what the newest attempt reached: on
// another account an effect cannot be seen, and its key is not known.
func sameAccount(r *Record, b *Beginning) bool {
	return r.Intent.Origin == b.Intent.Origin && r.Intent.Scope == b.Intent.Scope && samePrincipal(r, b.Credential, b.Principal)
}

// RepeatIsSafe reports whether sending the recorded intent again, under the
// same provider key, cannot cause a second effect now.
func RepeatIsSafe(r *Record, now Instant) bool {
	switch {
	case r.ResendSpent || r.Stuck != "":
		return false
	case r.Terms.Conditional:
		return youngerThan(r.Terms.Retention-RetentionMargin(r.Terms.Retention), r, now)
	}
	switch r.Class {
	case classify.Read, classify.Decision:
		return true
	case classify.Idempotent:
		return youngerThan(IdempotentResendMax, r, now)
	case classify.Keyed:
		return r.Terms.Retention > 0 && youngerThan(r.Terms.Retention-RetentionMargin(r.Terms.Retention), r, now)
	case classify.Effect:
		return false
	}
	return false
}

// convergesNowhere reports whether the provider would answer any further copy as
// it has answered the last: with an error that leaves open what happened. Then
// a lookup that finds nothing settles nothing, since a call that is sent anew
// bears the same key.
func (r *Record) convergesNowhere() bool {
	return r.ResendSpent && r.Terms.Errors == ErrorsAreKept && !r.Terms.Conditional
}

// ClockSlack is how far the clock may be set back between two lives of a sidecar,
// as time servers do, before its time says nothing about a call's age.
const ClockSlack = 10 * time.Second

// youngerThan reports whether the call was first sent less than d ago. If that
// lies in the future, the clock was set back, nobody knows by how much more, and
// the call may be of any age.
func youngerThan(d time.Duration, r *Record, now Instant) bool {
	return now < r.FirstSentAt.Add(d) && now.Add(ClockSlack) >= r.FirstSentAt
}

// RetentionMargin is how long before the end of a provider's retention we stop
// relying on it: five minutes or a twentieth of it, whichever is longer, but
// never more than half of it.
func RetentionMargin(retention time.Duration) time.Duration {
	return min(max(5*time.Minute, retention/20), retention/2)
}

// samePrincipal reports whether a repeat would reach the provider on the same
// account as the first sending, as far as can be told.
func samePrincipal(r *Record, credential, principal Digest) bool {
	if r.Principal != "" || principal != "" {
		return r.Principal == principal
	}
	return r.Credential == credential
}

// Next returns what must be on record after e. It does no I/O, reads no clock
// and draws no randomness; now is the store's time. r is nil where nothing is
// on record, and is never changed. Errors wrap ErrNoTransition, ErrGuard or
// ErrStaleAttempt.
func Next(r *Record, e Event, now Instant) (*Record, error) {
	from := None
	next := &Record{CreatedAt: now}
	if r != nil {
		from = r.State
		next = r.clone()
	}
	to, err := target(next, from, &e, now)
	if err != nil {
		return nil, fmt.Errorf("%s in state %s: %w", e.Kind, from, err)
	}
	next.State = to
	next.Version++
	next.UpdatedAt = now
	if err := effects[e.Kind](next, &e, now); err != nil {
		return nil, fmt.Errorf("%s in state %s: %w", e.Kind, from, err)
	}
	next.settleDoubt(from)
	next.note(&e, from, now)
	return next, nil
}

func target(r *Record, from State, e *Event, now Instant) (State, error) {
	if from >= numStates || e.Kind == noEvent || e.Kind >= numEvents || len(rules[from][e.Kind]) == 0 {
		return None, ErrNoTransition
	}
	if e.Kind.speaksOfCurrent() && e.Attempt != r.AttemptsMade {
		return None, ErrStaleAttempt
	}
	if e.Kind == LateApplied && (e.Attempt == 0 || e.Attempt > r.AttemptsMade) {
		return None, ErrStaleAttempt
	}
	for _, rule := range rules[from][e.Kind] {
		if guards[rule.needs].holds(r, e, now) {
			return rule.to, nil
		}
	}
	return None, ErrGuard
}

// speaksOfCurrent reports whether the event is about the attempt under way.
func (k EventKind) speaksOfCurrent() bool {
	return k >= SawUnsent && k <= SawAmbiguous
}

// effects puts on record what each event brings, besides the new state.
var effects = [numEvents]func(r *Record, e *Event, now Instant) error{
	WasPlanned:         planned,
	WasHeld:            planned,
	WasApproved:        approve,
	WasDenied:          func(r *Record, _ *Event, _ Instant) error { r.Denied = true; return nil },
	Begun:              begin,
	SawUnsent:          endAttempt,
	SawNotApplied:      endAttempt,
	SawApplied:         settle,
	SawRejected:        settle,
	SawAmbiguous:       endAmbiguous,
	EpochDied:          ownerDied,
	LookupFound:        settle,
	LookupAbsent:       missed,
	ResendBegun:        resend,
	GaveUp:             nothing,
	OperatorApplied:    settle,
	OperatorNotApplied: nothing,
	OperatorAbandoned:  nothing,
	OperatorRecheck:    nothing,
	LateApplied:        settle,
	RetentionOver:      expire,
	LookupFailed:       lookupFailed,
}

func nothing(*Record, *Event, Instant) error { return nil }

var (
	errNoBeginning = fmt.Errorf("the event brings no beginning: %w", ErrGuard)
	errOtherKey    = fmt.Errorf("the event brings the beginning of another call: %w", ErrGuard)
)

func planned(r *Record, e *Event, _ Instant) error {
	if e.Begin == nil {
		return errNoBeginning
	}
	if r.Key != (Key{}) && r.Key != e.Begin.Key {
		return errOtherKey
	}
	r.Key = e.Begin.Key
	r.Class, r.Fingerprint, r.Intent = e.Begin.Class, e.Begin.Fingerprint, e.Begin.Intent
	if e.Tool != "" {
		r.Tool = clip(e.Tool, ToolBytesMax)
	}
	return nil
}

// approve puts a person's leave on record.
func approve(r *Record, e *Event, now Instant) error {
	r.Approval = &Approval{Actor: clip(e.Actor, ReasonBytesMax), At: now, ExpiresAt: e.Until}
	r.HeldFor = 0
	return nil
}

// begin records a fresh intent: with no doubt left, the newest request is the
// one that counts. Where a person has approved one, that one does.
func begin(r *Record, e *Event, now Instant) error {
	approved := e.Begin != nil && r.isApprovedFor(e.Begin, now)
	intent := r.Intent
	if err := planned(r, e, now); err != nil {
		return err
	}
	if approved {
		r.Intent = intent
	}
	r.Terms, r.Principal = e.Begin.Terms, e.Begin.Principal
	r.startAttempt(e.Begin, now, false)
	return nil
}

// resend keeps the recorded intent: what is repeated is what was sent.
func resend(r *Record, e *Event, now Instant) error {
	r.startAttempt(e.Begin, now, true)
	return nil
}

func (r *Record) startAttempt(b *Beginning, now Instant, isResend bool) {
	if r.FirstSentAt == 0 {
		r.FirstSentAt = now
	}
	r.Credential = b.Credential
	r.Fence = max(r.Fence, b.Fence)
	r.AttemptsMade++
	r.Attempts = bounded(append(r.Attempts, Attempt{
		Number: r.AttemptsMade, Epoch: b.Epoch, Fence: b.Fence, BegunAt: now, Resend: isResend,
	}), AttemptsKept)
}

func endAttempt(r *Record, e *Event, now Instant) error {
	a := r.Attempt(e.Attempt)
	if a == nil {
		return ErrStaleAttempt
	}
	a.EndedAt, a.Evidence, a.Outcome = now, e.Evidence, e.Outcome
	a.Status, a.Reason = e.Status, clip(e.Reason, ReasonBytesMax)
	if e.Kind == SawUnsent && r.neverSent() {
		r.FirstSentAt = 0
	}
	return nil
}

// endAmbiguous also takes note of what the answer says about further copies.
func endAmbiguous(r *Record, e *Event, now Instant) error {
	if err := endAttempt(r, e, now); err != nil {
		return err
	}
	r.becomesStuck(e)
	if e.Evidence != classify.Answered || e.InFlight {
		return nil
	}
	isResend := r.Attempt(e.Attempt).Resend
	switch {
	case r.Terms.Errors == ErrorsAreForgotten && r.Class == classify.Keyed:
		r.ResendSpent = true
	case isResend && (r.Terms.Conditional || r.Terms.Errors == ErrorsAreKept):
		r.ResendSpent = true
	}
	return nil
}

// becomesStuck ends all that could be tried, where the event says so.
func (r *Record) becomesStuck(e *Event) {
	if e.Stuck {
		r.Stuck = cmp.Or(clip(e.Reason, ReasonBytesMax), "what came cannot be judged")
	}
}

// neverSent reports whether every attempt is proven unsent.
func (r *Record) neverSent() bool {
	for i := range r.Attempts {
		if r.Attempts[i].Evidence != classify.Unsent {
			return false
		}
	}
	return len(r.Attempts) == int(r.AttemptsMade)
}

func ownerDied(r *Record, _ *Event, now Instant) error {
	if a := r.Attempt(r.AttemptsMade); a != nil {
		a.EndedAt, a.Evidence, a.Outcome = now, classify.Lost, classify.Ambiguous
		a.Reason = "the sidecar that sent it ended before the answer was on record"
	}
	return nil
}

func settle(r *Record, e *Event, now Instant) error {
	receipt := *e.Receipt
	receipt.SettledAt = now
	receipt.Source = r.sourceOf(e)
	r.Receipt = &receipt
	if e.Attempt == 0 {
		return nil
	}
	receipt.Attempt = e.Attempt
	if e.Kind == LateApplied && r.Attempt(e.Attempt) == nil {
		return nil
	}
	return endAttempt(r, e, now)
}

func (r *Record) sourceOf(e *Event) Source {
	switch e.Kind { //nolint:exhaustive // the others tell of answers
	case LookupFound:
		return FromLookup
	case OperatorApplied:
		return FromOperator
	case LateApplied:
		return FromLateAnswer
	}
	if a := r.Attempt(e.Attempt); a != nil && a.Resend {
		return FromResend
	}
	return FromAnswer
}

// missed keeps the newest miss that could be told: answers may come in another
// order than they were asked for.
func missed(r *Record, e *Event, now Instant) error {
	if missCounts(r, e, now) {
		r.Misses++
	}
	r.LastMissAt = max(r.LastMissAt, min(e.Absence.AskedAt, now))
	r.LookupFailures, r.FailingSince = 0, 0
	return nil
}

func lookupFailed(r *Record, e *Event, now Instant) error {
	r.becomesStuck(e)
	if r.LookupFailures == 0 {
		r.FailingSince = now
	}
	r.LookupFailures++
	return nil
}

// expire leaves the tombstone: identity, fingerprint, and in the history the
// state that it had.
func expire(r *Record, _ *Event, _ Instant) error {
	*r = Record{
		Key: r.Key, State: Expired, Class: r.Class, Fingerprint: r.Fingerprint,
		AttemptsMade: r.AttemptsMade, Fence: r.Fence, Version: r.Version,
		CreatedAt: r.CreatedAt, UpdatedAt: r.UpdatedAt,
	}
	return nil
}

// settleDoubt keeps invariant 3.
func (r *Record) settleDoubt(from State) {
	switch r.State {
	case InDoubt:
		if from == Pending {
			r.DoubtSince = r.UpdatedAt
		}
		if from != InDoubt {
			r.forgetLookups()
		}
		if from == Unknown {
			// A person asks to look again. Where a copy would have its effect anew, that
			// is no leave to send one.
			r.ResendSpent, r.Stuck = r.ResendSpent && r.Terms.Errors == ErrorsAreForgotten, ""
		}
	case Unknown, Pending, Held, Planned:
	case None, Open, Succeeded, Rejected, Abandoned, Expired, numStates:
		r.DoubtSince, r.ResendSpent, r.Stuck = 0, false, ""
		r.forgetLookups()
	}
}

func (r *Record) forgetLookups() {
	r.Misses, r.LastMissAt, r.LookupFailures, r.FailingSince = 0, 0, 0, 0
}

// note keeps the history of what no attempt tells.
func (r *Record) note(e *Event, from State, now Instant) {
	if e.Kind == Begun || e.Kind == ResendBegun || e.Kind.speaksOfCurrent() {
		return
	}
	note := e.Note
	if note == "" {
		note = e.Reason
	}
	r.History = bounded(append(r.History, Change{
		Event: e.Kind, From: from, To: r.State, At: now, Actor: clip(e.Actor, ReasonBytesMax), Note: clip(note, NoteBytesMax),
	}), HistoryKept)
}

// bounded drops from the middle of a list that has grown over max.
func bounded[T any](list []T, limit int) []T {
	if len(list) <= limit {
		return list
	}
	head := limit / 4
	return append(list[:head:head], list[len(list)-(limit-head):]...)
}

func clip(s string, limit int) string {
	if len(s) <= limit {
		return s
	}
	for limit > 0 && !utf8.RuneStart(s[limit]) {
		limit--
	}
	return s[:limit]
}

// clone copies what Next may change.
func (r *Record) clone() *Record {
	c := *r
	c.Attempts = append(make([]Attempt, 0, len(r.Attempts)+1), r.Attempts...)
	c.History = append(make([]Change, 0, len(r.History)+1), r.History...)
	return &c
}

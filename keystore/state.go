package keystore

// A State is where a call stands. The numbers are stored: they are only ever
// appended to.
type State uint8

const (
	// None: nothing is on record. Begin, a plan or a hold moves it on.
	None State = iota
	// Planned: a plan names the call, or an approval freed it. Begin moves it
	// on.
	Planned
	// Held: it waits for a person's approval; that person moves it on. It was
	// never sent, or nothing came of it.
	Held
	// Pending: an attempt is under way. Its owner moves it on; if the owner
	// dies, the next epoch does.
	Pending
	// Open: nothing has happened, and trying again is right. The next begin
	// sends.
	Open
	// InDoubt: the effect may exist, and recovery is not at its end. The
	// replaying request or the scan at start moves it on.
	InDoubt
	// Succeeded: the effect exists, and the receipt says so. Final.
	Succeeded
	// Rejected: nothing happened and nothing will. Final.
	Rejected
	// Unknown: the effect may exist, and recovery has nothing left to try. A
	// person moves it on.
	Unknown
	// Abandoned: a person gave the call up, or refused it. Final.
	Abandoned
	// Expired: the tombstone of a final call whose retention is over.
	Expired

	numStates
)

var stateNames = [numStates]string{"none", "planned", "held", "pending", "open", "in_doubt", "succeeded", "rejected", "unknown", "abandoned", "expired"}

func (s State) String() string {
	if s < numStates {
		return stateNames[s]
	}
	return "invalid"
}

// ParseState returns the state of that name, or false.
func ParseState(name string) (State, bool) {
	for s := range numStates {
		if stateNames[s] == name {
			return s, true
		}
	}
	return None, false
}

// Final reports whether the call will stay as it is until its retention is
// over.
func (s State) Final() bool {
	return s == Succeeded || s == Rejected || s == Abandoned || s == Expired
}

// EffectPossible reports whether a call in that state may have, or has, had its
// effect.
func (s State) EffectPossible() bool {
	switch s {
	case Pending, InDoubt, Succeeded, Unknown, Abandoned, Expired:
		return true
	case None, Planned, Held, Open, Rejected, numStates:
	}
	return false
}

// An EventKind says what happened to a call. The numbers are stored: they are
// only ever appended to.
type EventKind uint8

const (
	noEvent EventKind = iota
	// WasPlanned: a recorded plan names the call.
	WasPlanned
	// WasHeld: a rule wants a person's approval first.
	WasHeld
	// WasApproved and WasDenied: a person decided about a held call.
	WasApproved
	WasDenied
	// Begun: an attempt is about to be sent.
	Begun
	// SawUnsent, SawNotApplied, SawApplied, SawRejected and SawAmbiguous: what
	// the attempt under way came to.
	SawUnsent
	SawNotApplied
	SawApplied
	SawRejected
	SawAmbiguous
	// EpochDied: the process that owned the attempt under way is gone.
	EpochDied
	// LookupFound, LookupAbsent: the provider was asked, and answered.
	LookupFound
	LookupAbsent
	// ResendBegun: another attempt, under the same provider key, is about to be
	// sent while an earlier one is in doubt.
	ResendBegun
	// GaveUp: recovery has nothing left to try.
	GaveUp
	// OperatorApplied, OperatorNotApplied, OperatorAbandoned and
	// OperatorRecheck: a person decided about an unknown call.
	OperatorApplied
	OperatorNotApplied
	OperatorAbandoned
	OperatorRecheck
	// LateApplied: an answer to an earlier attempt came after all, and says
	// that the effect exists.
	LateApplied
	// RetentionOver: the record's time is up.
	RetentionOver
	// LookupFailed: the provider was asked, and gave no answer.
	LookupFailed

	numEvents
)

var eventNames = [numEvents]string{
	"", "was_planned", "was_held", "was_approved", "was_denied", "begun",
	"saw_unsent", "saw_not_applied", "saw_applied", "saw_rejected", "saw_ambiguous", "epoch_died",
	"lookup_found", "lookup_absent", "resend_begun", "gave_up",
	"operator_applied", "operator_not_applied", "operator_abandoned", "operator_recheck",
	"late_applied", "retention_over", "lookup_failed",
}

func (k EventKind) String() string {
	if k > noEvent && k < numEvents {
		return eventNames[k]
	}
	return "invalid"
}

package keystore

import (
	"fmt"
	"math"
	"time"

	"counterfoil/classify"
)

// An Instant is a time as nanoseconds since the Unix epoch, by the store's
// clock. Zero means never.
type Instant int64

// At returns the instant of t; the zero time is never.
func At(t time.Time) Instant {
	if t.IsZero() {
		return 0
	}
	return Instant(t.UnixNano())
}

// Time returns i in UTC; never is the zero time.
func (i Instant) Time() time.Time {
	if i == 0 {
		return time.Time{}
	}
	return time.Unix(0, int64(i)).UTC()
}

// Add returns i moved by d, or the first or last instant where that would lie
// beyond them: a wait of centuries never turns into one that is over.
func (i Instant) Add(d time.Duration) Instant {
	sum := i + Instant(d)
	switch {
	case d > 0 && sum < i:
		return math.MaxInt64
	case d < 0 && sum > i:
		return math.MinInt64
	}
	return sum
}

// An Epoch numbers one life of one sidecar process on one store. It only grows.
type Epoch uint64

// A Fence is the number of a run's lease. It only grows; 0 means that the run
// has never had one.
type Fence uint64

// Bounds on what one record holds.
const (
	// AttemptsKept is how many attempts a record lists: the first few and the
	// newest. AttemptsMade counts all of them.
	AttemptsKept = 32
	// HistoryKept is how many changes a record lists, likewise.
	HistoryKept = 32
	// NoteBytesMax bounds an operator's note.
	NoteBytesMax = 4 << 10
	// ReasonBytesMax bounds the reason kept with an attempt or a change.
	ReasonBytesMax = 512
)

// A Record is all that is known about one call.
//
// Invariants, which [Next] keeps and tests cite by number:
//
//  1. A record in Succeeded or Rejected has a receipt, and it never changes.
//  2. AttemptsMade, Fence and Version only grow.
//  3. DoubtSince is set while an attempt may have had an effect that nobody has
//     confirmed or ruled out; a record in InDoubt or Unknown has it set.
//  4. Fingerprint, Class, Terms and Intent do not change once an attempt has
//     left doubt behind, until that doubt is ruled out.
type Record struct {
	Key         Key                  `cbor:"1,keyasint"`
	State       State                `cbor:"2,keyasint"`
	Class       classify.Class       `cbor:"3,keyasint"`
	Fingerprint classify.Fingerprint `cbor:"4,keyasint"`
	Intent      Intent               `cbor:"5,keyasint"`
	Terms       Terms                `cbor:"6,keyasint"`

	// Attempts lists the first and the newest attempts in order.
	Attempts     []Attempt `cbor:"7,keyasint,omitempty"`
	AttemptsMade uint32    `cbor:"8,keyasint,omitempty"`
	Receipt      *Receipt  `cbor:"9,keyasint,omitempty"`
	History      []Change  `cbor:"10,keyasint,omitempty"`

	// FirstSentAt is when the oldest attempt that is not proven unsent began.
	// A provider's retention of our key counts from it.
	FirstSentAt Instant `cbor:"11,keyasint,omitempty"`
	// DoubtSince is when the newest doubtful attempt ended, or its process was
	// found dead.
	DoubtSince Instant `cbor:"12,keyasint,omitempty"`
	// Misses counts lookups since then that found nothing; LastMissAt is when
	// the newest of them was asked.
	Misses     uint32  `cbor:"13,keyasint,omitempty"`
	LastMissAt Instant `cbor:"14,keyasint,omitempty"`

	// Credential is a keyed hash of the credentials of the newest attempt's
	// request; Principal, set only where replays are bound, of what they are
	// bound to.
	Credential Digest `cbor:"15,keyasint,omitempty"`
	Principal  Digest `cbor:"16,keyasint,omitempty"`

	Fence     Fence   `cbor:"17,keyasint,omitempty"`
	Version   uint64  `cbor:"18,keyasint"`
	CreatedAt Instant `cbor:"19,keyasint"`
	UpdatedAt Instant `cbor:"20,keyasint"`
	// LookupFailures counts lookups in a row that gave no answer, since
	// FailingSince.
	LookupFailures uint32  `cbor:"22,keyasint,omitempty"`
	FailingSince   Instant `cbor:"23,keyasint,omitempty"`
	// Denied tells an abandoned call that a person refused to approve from one
	// that a person gave up.
	Denied bool `cbor:"21,keyasint,omitempty"`
	// Tool is the name that a plan gives the call's tool.
	Tool string `cbor:"24,keyasint,omitempty"`
	// HeldFor says why a held call is held. Approval is a person's leave to send
	// it: it stands until the call is final, or the approval is over.
	HeldFor  Reason    `cbor:"25,keyasint,omitempty"`
	Approval *Approval `cbor:"26,keyasint,omitempty"`
	// ResendSpent says that no further copy may be sent while the call is in
	// doubt: it would be answered the same, or have its effect anew. Of the first a
	// person's wish to check again is leave to try once more, of the second not.
	// Stuck says why nothing at all may be tried; empty if something may.
	ResendSpent bool   `cbor:"27,keyasint,omitempty"`
	Stuck       string `cbor:"28,keyasint,omitempty"`
}

// An Approval is a person's leave to send a call: exactly the request whose
// fingerprint the record has, and no other call.
type Approval struct {
	Actor string  `cbor:"1,keyasint,omitempty"`
	At    Instant `cbor:"2,keyasint"`
	// ExpiresAt is when it is over, if no attempt has begun by then; 0 is never.
	ExpiresAt Instant `cbor:"3,keyasint,omitempty"`
}

// IsApproved reports whether a person's leave to begin an attempt stands.
func (r *Record) IsApproved(now Instant) bool {
	return r != nil && r.Approval != nil && (r.Approval.ExpiresAt == 0 || now < r.Approval.ExpiresAt)
}

// isApprovedFor reports whether it does for one that is taken for the same, by the
// configuration of now: that may have changed since the person looked.
func (r *Record) isApprovedFor(b *Beginning, now Instant) bool {
	return r.IsApproved(now) && r.Class == b.Class && r.Intent.Origin == b.Intent.Origin && r.Intent.Operation == b.Intent.Operation
}

// Validate reports what r breaks of its invariants 1 and 3, or what it holds
// that no record can. The error wraps ErrCorrupt. [Codec.Decode] asks it, so
// that damage never passes for a call that nothing is known about.
func (r *Record) Validate() error {
	final := r.State == Succeeded || r.State == Rejected
	doubtful := r.State == InDoubt || r.State == Unknown
	sent := final || doubtful || r.State == Pending
	switch {
	case r.State == None || r.State >= numStates:
		return fmt.Errorf("%w: state %d", ErrCorrupt, r.State)
	case r.Class == 0 && r.State != Planned && r.State != Expired || r.Class > classify.Effect:
		return fmt.Errorf("%w: class %d", ErrCorrupt, r.Class)
	case r.Version == 0:
		return fmt.Errorf("%w: it has no version", ErrCorrupt)
	case final != (r.Receipt != nil):
		return fmt.Errorf("%w: %s, and a receipt: %t", ErrCorrupt, r.State, r.Receipt != nil)
	case doubtful && r.DoubtSince == 0:
		return fmt.Errorf("%w: %s since never", ErrCorrupt, r.State)
	case sent && r.Attempt(r.AttemptsMade) == nil:
		return fmt.Errorf("%w: %s without its attempt %d", ErrCorrupt, r.State, r.AttemptsMade)
	}
	if err := r.Key.Validate(); err != nil {
		return fmt.Errorf("%w: %w", ErrCorrupt, err)
	}
	return nil
}

// A Digest is a truncated keyed hash; empty means none.
type Digest string

// An Intent is what was about to be sent, without credentials.
type Intent struct {
	// Upstream is the configured name, Origin the base URL that it stood for
	// when the intent was recorded.
	Upstream string `cbor:"1,keyasint"`
	Origin   string `cbor:"2,keyasint"`
	Method   string `cbor:"3,keyasint"`
	// Target is the target as sent, secret query values replaced by keyed
	// hashes.
	Target string          `cbor:"4,keyasint"`
	Header classify.Header `cbor:"5,keyasint,omitempty"`
	Body   Body            `cbor:"6,keyasint"`
	// SentKey is what the provider is sent as the call's key, and what {key}
	// means in a lookup.
	SentKey string `cbor:"7,keyasint"`
	// Operation names the adapter's operation that matched, if one did.
	Operation string `cbor:"8,keyasint,omitempty"`
	// Scope is a keyed hash of what the request says about on whose behalf it is,
	// credentials apart; empty if nothing.
	Scope Digest `cbor:"9,keyasint,omitempty"`
}

// Terms are the promises under which a call may be repeated, as they stood
// when its newest attempt was first recorded. They are frozen with the intent:
// a key that was not sent with the first attempt protects nothing, whatever the
// configuration says later.
type Terms struct {
	// Retention is for how long after the first sending the provider
	// deduplicates our key. Zero means that it does not.
	Retention time.Duration `cbor:"1,keyasint,omitempty"`
	// Conditional says that the request names the version that it expects, which
	// is gone once it has had its effect: within Retention a copy is refused.
	Conditional bool `cbor:"2,keyasint,omitempty"`
	// Errors says what a copy is answered where the first was answered with an
	// error.
	Errors ErrorReplay `cbor:"3,keyasint,omitempty"`
}

// An ErrorReplay says what becomes of errors at a provider that honours keys. The
// numbers are stored: they are only ever appended to.
type ErrorReplay uint8

const (
	// ErrorsRunAnew: what failed runs anew, and has its effect once.
	ErrorsRunAnew ErrorReplay = iota
	// ErrorsAreKept: a copy gets the answer that the first got, or is refused. An
	// ambiguous answer to a resend ends resending.
	ErrorsAreKept
	// ErrorsAreForgotten: a copy of what failed runs anew, whatever the first one
	// did. Any ambiguous answer ends resending.
	ErrorsAreForgotten
)

// A Body says where a body's bytes are. The zero Body is an empty body.
type Body struct {
	Bytes  int64    `cbor:"1,keyasint,omitempty"`
	SHA256 [32]byte `cbor:"2,keyasint"`
	// Inline holds a small body. The record owns the slice.
	Inline []byte `cbor:"3,keyasint,omitempty"`
	// Ref names a body that the store keeps apart; zero if there is none.
	Ref BodyRef `cbor:"4,keyasint,omitempty"`
	// Missing says that the bytes were not kept, only their number and digest.
	Missing bool `cbor:"5,keyasint,omitempty"`
}

// A BodyRef names a body kept apart from its record. Only the store that gave
// it out can read it.
type BodyRef uint64

// An Attempt is one sending of an intent.
type Attempt struct {
	// Number counts from 1.
	Number   uint32            `cbor:"1,keyasint"`
	Epoch    Epoch             `cbor:"2,keyasint"`
	Fence    Fence             `cbor:"3,keyasint,omitempty"`
	BegunAt  Instant           `cbor:"4,keyasint"`
	EndedAt  Instant           `cbor:"5,keyasint,omitempty"`
	Evidence classify.Evidence `cbor:"6,keyasint,omitempty"`
	Outcome  classify.Outcome  `cbor:"7,keyasint,omitempty"`
	// Status is the provider's, 0 if it gave none.
	Status int    `cbor:"8,keyasint,omitempty"`
	Reason string `cbor:"9,keyasint,omitempty"`
	// Resend says that the attempt was begun while an earlier one was in
	// doubt.
	Resend bool `cbor:"10,keyasint,omitempty"`
}

// A Source says where the knowledge in a receipt came from. The numbers are
// stored: they are only ever appended to.
type Source uint8

const (
	// FromAnswer: the provider's answer to an attempt.
	FromAnswer Source = iota + 1
	// FromLookup: the provider, asked whether the effect exists.
	FromLookup
	// FromResend: the answer to an attempt under the same provider key after
	// doubt.
	FromResend
	// FromOperator: a person.
	FromOperator
	// FromLateAnswer: an answer to an earlier attempt that came after doubt
	// had begun.
	FromLateAnswer
)

var sourceNames = [...]string{FromAnswer: "answer", FromLookup: "lookup", FromResend: "resend", FromOperator: "operator", FromLateAnswer: "late_answer"}

func (s Source) String() string {
	if int(s) < len(sourceNames) && s > 0 {
		return sourceNames[s]
	}
	return "invalid"
}

// A Receipt is what is known to have come of a call, as every later asker sees
// it.
type Receipt struct {
	Status int             `cbor:"1,keyasint"`
	Header classify.Header `cbor:"2,keyasint,omitempty"`
	// Body holds the answer's bytes as the provider sent them: content coding
	// kept, transfer coding removed.
	Body   Body   `cbor:"3,keyasint"`
	Source Source `cbor:"4,keyasint"`
	// Attempt is the number of the attempt that the answer belongs to, 0 if it
	// belongs to none.
	Attempt uint32 `cbor:"5,keyasint,omitempty"`
	// SettledAt is when the receipt was written, by the store's clock. It
	// orders nothing: use Record.Version for that.
	SettledAt Instant `cbor:"6,keyasint"`
	// CloseDelimited says that the body ended with the connection, so that a
	// cut could not have been told from an end.
	CloseDelimited bool `cbor:"7,keyasint,omitempty"`
	// Usage counts the tokens of a model's answer, nil where there are none.
	Usage *Usage `cbor:"8,keyasint,omitempty"`
}

// Usage counts tokens as the provider says.
type Usage struct {
	Input       int64 `cbor:"1,keyasint,omitempty" json:"input"`
	Output      int64 `cbor:"2,keyasint,omitempty" json:"output"`
	CachedInput int64 `cbor:"3,keyasint,omitempty" json:"cached_input,omitempty"`
	Reasoning   int64 `cbor:"4,keyasint,omitempty" json:"reasoning,omitempty"`
}

// A Change is one step of a record's history that no attempt tells: what
// lookups found, what operators decided, what a restart found.
type Change struct {
	Event EventKind `cbor:"1,keyasint"`
	From  State     `cbor:"2,keyasint"`
	To    State     `cbor:"3,keyasint"`
	At    Instant   `cbor:"4,keyasint"`
	Actor string    `cbor:"5,keyasint,omitempty"`
	Note  string    `cbor:"6,keyasint,omitempty"`
}

// Attempt returns the attempt of that number, nil if it is not listed. The
// record owns it.
func (r *Record) Attempt(number uint32) *Attempt {
	for i := len(r.Attempts) - 1; i >= 0; i-- {
		if r.Attempts[i].Number == number {
			return &r.Attempts[i]
		}
	}
	return nil
}

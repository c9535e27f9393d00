package journal

import (
	"time"

	"counterfoil/classify"
	"counterfoil/keystore"
)

// An Outcome says how an answer came about, in the words of the header
// Counterfoil-Outcome.
type Outcome string

const (
	// Executed: sent now, whatever the provider answered.
	Executed Outcome = "executed"
	// Replayed: from the stored receipt.
	Replayed Outcome = "replayed"
	// Coalesced: an equal call was in flight; its answer.
	Coalesced Outcome = "coalesced"
	// Recovered: learned by a lookup, or by a resend after an interruption.
	Recovered Outcome = "recovered"
	// Passthrough: a read, not journaled.
	Passthrough Outcome = "passthrough"
	// OutcomeUnknown: nobody can know; a person decides.
	OutcomeUnknown Outcome = "unknown"
	// Held: waiting for a person's approval.
	Held Outcome = "held"
	// Refused: nothing was sent for this request.
	Refused Outcome = "refused"
)

// A Problem is a refusal by name. The names go over the wire: they are only
// ever added to.
type Problem string

// The problems that the journal raises. Package proxy has the statuses.
const (
	KeyReused           Problem = "key-reused"
	PrincipalMismatch   Problem = "principal-mismatch"
	UnknownOutcome      Problem = "unknown-outcome"
	RunPaused           Problem = "run-paused"
	ApprovalRequired    Problem = "approval-required"
	Denied              Problem = "denied"
	CallAbandoned       Problem = "call-abandoned"
	ReceiptExpired      Problem = "receipt-expired"
	InProgress          Problem = "in-progress"
	BodyNotKept         Problem = "body-not-kept"
	UpstreamUnreachable Problem = "upstream-unreachable"
	JournalUnavailable  Problem = "journal-unavailable"
	Draining            Problem = "draining"
	InvalidRequest      Problem = "invalid-request"
	UnknownUpstream     Problem = "unknown-upstream"
	InputTooLarge       Problem = "input-too-large"
	FenceRequired       Problem = "fence-required"
	Fenced              Problem = "fenced"
	FlowVersionMismatch Problem = "flow-version-mismatch"
	LeaseHeld           Problem = "lease-held"
	PlanConflict        Problem = "plan-conflict"
	NotInPlan           Problem = "not-in-plan"
	BudgetExhausted     Problem = "budget-exhausted"
	Diverged            Problem = "diverged"
	ETagMismatch        Problem = "etag-mismatch"
	ItemExists          Problem = "item-exists"
	ReceiptRequired     Problem = "receipt-required"
)

// ProblemOf names the problem of a reason for which a verdict stops a call, or an
// operation was refused. OtherAccount stops nothing: it comes with a call in
// progress.
func ProblemOf(r keystore.Reason) Problem { return problemOf[r] }

var problemOf = map[keystore.Reason]Problem{
	keystore.KeyReused:           KeyReused,
	keystore.PrincipalMismatch:   PrincipalMismatch,
	keystore.UnknownOutcome:      UnknownOutcome,
	keystore.RunPaused:           RunPaused,
	keystore.ApprovalRequired:    ApprovalRequired,
	keystore.CallDenied:          Denied,
	keystore.CallAbandoned:       CallAbandoned,
	keystore.ReceiptExpired:      ReceiptExpired,
	keystore.OtherAccount:        InProgress,
	keystore.FenceRequired:       FenceRequired,
	keystore.Fenced:              Fenced,
	keystore.FlowVersionMismatch: FlowVersionMismatch,
	keystore.LeaseHeld:           LeaseHeld,
	keystore.PlanConflict:        PlanConflict,
	keystore.NotInPlan:           NotInPlan,
	keystore.BudgetExhausted:     BudgetExhausted,
	keystore.Diverged:            Diverged,
	keystore.ETagMismatch:        ETagMismatch,
	keystore.ItemExists:          ItemExists,
	keystore.ReceiptRequired:     ReceiptRequired,
}

// A Refusal says why Counterfoil itself, rather than the provider, answered.
type Refusal struct {
	Problem Problem
	// Detail says what to do next. It holds no body, header or query.
	Detail string
	// RetryAfter is when asking again makes sense; 0 if it never does by
	// itself.
	RetryAfter time.Duration
	// UpstreamStatus is what the provider answered, 0 if it did not.
	UpstreamStatus int
	// EffectPossible says that the effect may exist, so that asking anew under
	// another key is not harmless.
	EffectPossible bool

	// Fence and Owner are the newest lease's, FlowVersion the version that the
	// run is pinned to, where the problem is about them and they are known.
	Fence       keystore.Fence
	Owner       string
	FlowVersion string
	// ETag is the item's present one, its quotes included; empty where the
	// problem is about none.
	ETag string
	// Operation is the number, from 0, of the operation of a batch that failed;
	// nil where it was no batch.
	Operation *int
}

// A Reply is what the agent gets.
type Reply struct {
	Outcome Outcome
	// Refusal is nil where the answer is a provider's.
	Refusal *Refusal
	// Record is the call's, nil where nothing is on record.
	Record *keystore.Record
	// SentKey is what the provider was or would be sent as the call's key.
	SentKey string

	// Status and Header are the provider's answer, hop-by-hop fields removed.
	Status int
	Header classify.Header
	// Bytes is the body if it is at hand; otherwise Body says where the store
	// has it.
	Bytes []byte
	Body  keystore.Body
	// Length is set for Stream.Head alone: the declared length of the body that
	// follows, -1 where none was declared.
	Length int64

	// Streamed says that the answer went to the Stream already; Broken, that it
	// was cut there and must not be ended cleanly.
	Streamed bool
	Broken   bool
	// Rest is the end of a streamed answer, which is still to be written.
	Rest []byte

	// Diverged says that the call is a new effect of an agent that has not
	// repeated all of its earlier ones.
	Diverged bool

	// seat is the request's place among equal calls, where they are counted.
	seat *seat
}

// Attempts returns how many attempts the call has had.
func (r *Reply) Attempts() uint32 {
	if r.Record == nil {
		return 0
	}
	return r.Record.AttemptsMade
}

// A Stream passes an answer on as it comes.
type Stream interface {
	// Head is called once, before the first Write.
	Head(r *Reply)
	// Write passes a piece on, within bounded time. After an error the agent
	// counts as gone; the attempt goes on without it. The slice is valid only
	// during the call.
	Write(piece []byte) error
}

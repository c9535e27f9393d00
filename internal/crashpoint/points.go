// Package crashpoint names the moments of a call's life at which crash tests
// end the process. The moments exist only in binaries built with the tag
// crashpoints: a released binary has no such switch.
package crashpoint

// A Point is a moment, by name. docs/guarantees.md lists them; a test keeps
// both lists equal.
type Point string

const (
	// BeginBefore: identity and class are known, nothing is on record.
	BeginBefore Point = "begin.before"
	// BeginAfter: the intent is durable.
	BeginAfter Point = "begin.after"
	// SendBefore: the request is ready, not one byte has left.
	SendBefore Point = "send.before"
	// SendAfter: the head of the answer is here, or the attempt has failed.
	SendAfter Point = "send.after"
	// AnswerPiece: a piece of the answer's body is here.
	AnswerPiece Point = "answer.piece"
	// FinishBefore: the answer is judged, the receipt is not on record.
	FinishBefore Point = "finish.before"
	// FinishAfter: the receipt is durable, the agent has not been told.
	FinishAfter Point = "finish.after"
	// LookupBefore and LookupAfter: before the provider is asked, and when it
	// has answered but the finding is not on record.
	LookupBefore Point = "lookup.before"
	LookupAfter  Point = "lookup.after"
	// ReplyBefore: the reply is built, not one byte of it has left; of one that
	// streams, not its end.
	ReplyBefore Point = "reply.before"
	// StepBefore: the answer of a call that has no id of its agent's is about to
	// end, and it is not on record that the agent gets it. StepAfter: it is, and
	// the end has not left. Neither is reached where the receipt's commit has
	// recorded it.
	StepBefore Point = "step.before"
	StepAfter  Point = "step.after"
)

// Points lists every point.
var Points = [...]Point{
	BeginBefore, BeginAfter, SendBefore, SendAfter, AnswerPiece, FinishBefore, FinishAfter, LookupBefore, LookupAfter, ReplyBefore,
	StepBefore, StepAfter,
}

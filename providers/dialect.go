package providers

import (
	"context"

	"counterfoil/classify"
)

// A Dialect reads what requests and answers say in their content, where
// method, path and jq programs cannot. One value serves one upstream; it is
// safe for concurrent use.
type Dialect interface {
	// Read says what r is in this dialect: nil if it is none of it. A Refusal
	// says that r must not be sent.
	Read(r *classify.Request) (Content, *Refusal)
}

// A Refusal says why a request must not be sent.
type Refusal struct {
	// Reason is for people and holds nothing of the request's content.
	Reason string
	// Answer is what the client gets, in its dialect; nil leaves it to the
	// proxy, which answers 400 invalid-request.
	Answer *Answer
}

// Settings are what an upstream's configuration says to its adapter.
type Settings struct {
	// BasePath is the path of the upstream's URL without a last slash. The
	// paths of an adapter file are the provider's own and begin before it.
	BasePath string
	// Host is the host of the upstream's URL in lower case, with its port where that
	// is given. Pages of a list that are elsewhere are not asked for; empty, where
	// nobody says, lets all hosts pass for it.
	Host string
	// TrustAnnotations says that an MCP server's word on its tools is taken.
	TrustAnnotations bool
	// IsKnownHost says that the adapter is of a certain provider: it names hosts or
	// operations. For sets it.
	IsKnownHost bool
}

// Dialects make a dialect by name.
type Dialects map[string]func(Settings) Dialect

// Content is a request as its dialect reads it. It is immutable. What else a
// dialect can do it says by the interfaces below.
type Content interface {
	// Kind is the sort of request: query, mutation or subscription for
	// GraphQL, the JSON-RPC method for MCP, the API for a model.
	Kind() string
	// Names are what operations are matched by: root fields, tools.
	Names() []string
	// Class is what the content says the request does; 0 if nothing.
	Class() classify.Class
}

// A Changer may know that the request changes something, so that no operation can
// call it a read.
type Changer interface{ Changes() bool }

// A Passer may be none of the journal's business: it is sent on untouched,
// whatever its method.
type Passer interface{ Passes() bool }

// An Identity is what the content says about whose call it is; empty parts were
// not named.
type Identity struct{ Run, Turn, Call string }

// An Identifier names the call in its content.
type Identifier interface{ Identity() (Identity, error) }

// A Printer says what of the request its fingerprint is taken of.
type Printer interface {
	// Print returns the request as it is to be compared; r itself if nothing
	// differs.
	Print(r *classify.Request) *classify.Request
}

// A Placer puts values where a [Placement] of its dialect says.
type Placer interface {
	Place(r *classify.Request, p *Placement, value string) (classify.Request, error)
	// Value returns what stands there.
	Value(r *classify.Request, p *Placement) (string, bool)
}

// A Head is the head of an answer. Length is -1 where none was declared.
type Head struct {
	Status int
	Header classify.Header
	Length int64
}

// A Watcher sees an answer's body as it comes, in bounded memory.
type Watcher interface {
	// Holds reports whether the client waits for the judgement; else the body
	// is passed on as it comes, all but its end.
	Holds() bool
	// Write takes the next piece, content coding still on. It is not kept.
	Write(piece []byte)
	// End judges, after the body's clean end. ctx bounds programs.
	End(ctx context.Context) Judgement
}

// A Gated watcher keeps back the end of a stream: the event that tells the client
// the result, and what follows it. The receipt has to be durable before that.
type Gated interface {
	// Take returns what of the pieces written so far may be passed on; it is valid
	// until the next Write. Rest is what was kept back.
	Take() []byte
	Rest() []byte
}

// A Late is an answer that comes on another way than the request's own: on a
// stream that the client resumed. Token is what [Judgement.Awaits] was.
type Late struct {
	Token string
	Body  []byte
}

// A Teller is a watcher that hears of late answers.
type Teller interface{ Told() []Late }

// A Watchable has something to read in the answer's body. Watch returns nil
// where the head says that there is nothing.
type Watchable interface{ Watch(h Head) Watcher }

// A Replier makes of an answer on record the one that this request expects,
// which may differ from the first in what names the request alone.
type Replier interface {
	Reply(a Answer) (Answer, error)
}

// A Refuser words a refusal of the sidecar's own for its client. Problem is the
// problem+json document, text what it says in plain words.
type Refuser interface {
	Refuse(problem []byte, text string) Answer
}

// A Seeker builds a lookup in its dialect from what l.Dialect holds.
type Seeker interface {
	Seek(l *Lookup, q *Query) (*classify.Request, error)
	Sought(ctx context.Context, l *Lookup, q *Query, a Answer) Finding
}

// A Judgement is what an answer's content shows.
type Judgement struct {
	// Outcome is 0 where the content says nothing and the status decides.
	Outcome classify.Outcome
	// InFlight comes with Ambiguous: another copy of the request is at work at
	// the provider. Waiting and asking again is right.
	InFlight bool
	// Stuck comes with Ambiguous: the answer cannot be judged, now or later;
	// nothing may be sent again, and a person decides.
	Stuck bool
	// Awaits comes with Ambiguous where the server has ended its answer cleanly and
	// has the client come back for the result: a [Late] of that token brings it.
	Awaits string
	// Reason is for people and holds nothing of the content.
	Reason string
	// Alarm is what an operator should look into; empty for nothing.
	Alarm string
	// Decision is what a model decided; nil if it is none of a model's answers.
	Decision *Decision
}

// A Decision is what a model's answer says.
type Decision struct {
	// Calls are the tool calls in their order.
	Calls []ToolCall
	Usage Usage
}

// A ToolCall is one tool call of a model's answer. Args is JSON, nil where the
// model gave none or what is none.
type ToolCall struct {
	ID, Tool string
	Args     []byte
}

// Usage counts tokens, as the provider says. A model that says nothing leaves
// zeros.
type Usage struct {
	Input, Output, CachedInput, Reasoning int64
}

// Package view is how what is on record looks in JSON, for the agent API and
// for the admin API alike. What only one of the two shows is left out for the
// other, by [Audience].
package view

import (
	"encoding/base64"
	"encoding/hex"
	"strings"
	"time"
	"unicode/utf8"

	"counterfoil/classify"
	"counterfoil/keystore"
)

// An Audience says who will read.
type Audience uint8

const (
	// Agent: who made the call. It sees small bodies, but nothing that other
	// agents' credentials are bound to, and no operator's name.
	Agent Audience = iota
	// Operator: who looks after the sidecar. It sees namespaces, origins,
	// epochs and who decided what, but no body.
	Operator
)

// A List is one page of a list. Next is the cursor of the next page, empty on
// the last.
type List[T any] struct {
	Items []T    `json:"items"`
	Next  string `json:"next,omitempty"`
}

// ListOf shows a page of what a store listed.
func ListOf[S, T any](l keystore.List[S], show func(S) T) *List[T] {
	v := &List[T]{Items: make([]T, len(l.Items)), Next: l.Next}
	for i, item := range l.Items {
		v.Items[i] = show(item)
	}
	return v
}

// A Run is one run.
type Run struct {
	Namespace string `json:"namespace,omitempty"`
	Run       string `json:"run"`
	// State is active, or paused while a call of it is unknown.
	State     string    `json:"state"`
	CreatedAt time.Time `json:"created_at"`
	// UpdatedAt is when something of the run last changed, exact to the store's
	// retention step.
	UpdatedAt time.Time `json:"updated_at"`
	EndedAt   time.Time `json:"ended_at,omitzero"`
	// FlowVersion is the one that the run is pinned to.
	FlowVersion string            `json:"flow_version,omitempty"`
	Labels      map[string]string `json:"labels,omitempty"`
	Budget      *Budget           `json:"budget,omitempty"`
	// Begun counts the effects begun, against the budget.
	Begun Begun `json:"begun"`
	// Lease is absent if the run has never had one.
	Lease *Lease `json:"lease,omitempty"`
	// Replay is how an agent without call ids repeats its earlier steps; absent
	// if there is none.
	Replay *Replay `json:"replay,omitempty"`
	// Totals counts the run's calls by state; states without calls are left
	// out.
	Totals map[string]int `json:"totals"`
	// Calls is one page of them, in the order of their first begin.
	Calls *List[*Call] `json:"calls,omitempty"`
}

// runOf shows a run without its calls.
func runOf(s *keystore.RunSummary, who Audience) *Run {
	v := &Run{
		Run: s.Name, CreatedAt: s.CreatedAt.Time(), UpdatedAt: s.TouchedAt.Time(),
		EndedAt: s.EndedAt.Time(), Totals: map[string]int{},
	}
	for state, n := range s.Calls {
		if n > 0 {
			v.Totals[keystore.State(state).String()] = n
		}
	}
	if who == Operator {
		v.Namespace = s.Namespace
	}
	v.State = stateOf(s).String()
	v.showTerms(s)
	return v
}

// A Call is what is on record about one call: no credential and no secret of a
// query.
type Call struct {
	Namespace string `json:"namespace,omitempty"`
	Run       string `json:"run"`
	Turn      string `json:"turn"`
	Call      string `json:"call"`
	// Key is what the provider was sent as the call's key.
	Key   string `json:"key"`
	State string `json:"state"`
	// Class is absent where a plan names the call and nothing was sent yet.
	Class string `json:"class,omitempty"`
	// Tool is the name that a plan gives the call's tool.
	Tool string `json:"tool,omitempty"`
	// HeldFor says, of a held call, why: approval or divergence. Approval is a
	// person's leave to send it.
	HeldFor  string    `json:"held_for,omitempty"`
	Approval *Approval `json:"approval,omitempty"`
	Upstream string    `json:"upstream,omitempty"`
	Origin   string    `json:"origin,omitempty"`
	Method   string    `json:"method,omitempty"`
	Target   string    `json:"target,omitempty"`
	// Operation names, for operators, which of the upstream's operations the
	// call was; empty if it was none.
	Operation string `json:"operation,omitempty"`
	// Since and Reason say to operators since when, and why, the call is
	// unknown.
	Since  time.Time `json:"since,omitzero"`
	Reason string    `json:"reason,omitempty"`
	// Attempts lists the first and the newest; AttemptsMade counts all.
	Attempts     []Attempt `json:"attempts"`
	AttemptsMade uint32    `json:"attempts_made"`
	Receipt      *Receipt  `json:"receipt,omitempty"`
	History      []Change  `json:"history"`
	CreatedAt    time.Time `json:"created_at"`
	UpdatedAt    time.Time `json:"updated_at"`
}

// CallOf shows a record.
func CallOf(r *keystore.Record, who Audience) *Call {
	in := &r.Intent
	v := &Call{
		Run: r.Key.Run, Turn: r.Key.Turn, Call: r.Key.Call, Key: SentKey(r),
		State: r.State.String(), Tool: r.Tool, Upstream: in.Upstream, Method: in.Method, Target: in.Target,
		Attempts: make([]Attempt, len(r.Attempts)), AttemptsMade: r.AttemptsMade, History: make([]Change, len(r.History)),
		CreatedAt: r.CreatedAt.Time(), UpdatedAt: r.UpdatedAt.Time(),
	}
	if r.Class != 0 {
		v.Class = r.Class.String()
	}
	if r.State == keystore.Held {
		v.HeldFor = heldFor(r)
	}
	v.Approval = approvalOf(r.Approval, who)
	for i := range r.Attempts {
		v.Attempts[i] = attemptOf(&r.Attempts[i], who)
	}
	for i := range r.History {
		v.History[i] = changeOf(&r.History[i], who)
	}
	if r.Receipt != nil {
		v.Receipt = receiptOf(r, who)
	}
	if who == Operator {
		v.Namespace, v.Origin, v.Operation = r.Key.Namespace, in.Origin, in.Operation
		v.Since, v.Reason = unknownSince(r)
	}
	return v
}

// SentKey is what the provider was sent as the key of a call on record.
func SentKey(r *keystore.Record) string {
	if r.Intent.SentKey != "" {
		return r.Intent.SentKey
	}
	return string(r.Key.ProviderKey())
}

// unknownSince says since when, and why, a call is unknown; zero if it is not.
func unknownSince(r *keystore.Record) (since time.Time, reason string) {
	for i := len(r.History) - 1; i >= 0 && r.State == keystore.Unknown; i-- {
		if c := &r.History[i]; c.To == keystore.Unknown {
			return c.At.Time(), c.Note
		}
	}
	return time.Time{}, ""
}

// An Attempt is one sending of the call.
type Attempt struct {
	Number   uint32    `json:"number"`
	Epoch    uint64    `json:"epoch,omitempty"`
	BegunAt  time.Time `json:"begun_at"`
	EndedAt  time.Time `json:"ended_at,omitzero"`
	Evidence string    `json:"evidence,omitempty"`
	Outcome  string    `json:"outcome,omitempty"`
	Status   int       `json:"status,omitempty"`
	Reason   string    `json:"reason,omitempty"`
	Resend   bool      `json:"resend,omitempty"`
}

func attemptOf(a *keystore.Attempt, who Audience) Attempt {
	v := Attempt{
		Number: a.Number, BegunAt: a.BegunAt.Time(), EndedAt: a.EndedAt.Time(),
		Status: a.Status, Reason: a.Reason, Resend: a.Resend,
	}
	if a.EndedAt != 0 {
		v.Evidence, v.Outcome = a.Evidence.String(), a.Outcome.String()
	}
	if who == Operator {
		v.Epoch = uint64(a.Epoch)
	}
	return v
}

// A Change is one step of the call's history that no attempt tells.
type Change struct {
	Event string    `json:"event"`
	From  string    `json:"from"`
	To    string    `json:"to"`
	At    time.Time `json:"at"`
	Actor string    `json:"actor,omitempty"`
	Note  string    `json:"note,omitempty"`
}

func changeOf(c *keystore.Change, who Audience) Change {
	v := Change{Event: c.Event.String(), From: c.From.String(), To: c.To.String(), At: c.At.Time(), Note: c.Note}
	if who == Operator {
		v.Actor = c.Actor
	}
	return v
}

// A Receipt is the head of what is known to have come of the call.
type Receipt struct {
	Status     int                 `json:"status"`
	Headers    map[string][]string `json:"headers,omitempty"`
	BodyBytes  int64               `json:"body_bytes"`
	BodySHA256 string              `json:"body_sha256,omitempty"`
	// BodyMissing says that only the body's length and digest were kept.
	BodyMissing bool `json:"body_missing,omitempty"`
	// Body is a small body that is UTF-8; BodyBase64 one that is not. Larger
	// ones are at URL alone. Agents see them.
	Body       string    `json:"body,omitempty"`
	BodyBase64 string    `json:"body_base64,omitempty"`
	Source     string    `json:"source"`
	Attempt    uint32    `json:"attempt,omitempty"`
	SettledAt  time.Time `json:"settled_at"`
	// Usage counts the tokens of a model's answer.
	Usage *keystore.Usage `json:"usage,omitempty"`
	// URL is where the response itself is, for agents.
	URL string `json:"url,omitempty"`
}

// bodyBytesShown is how long a body may be to be shown within a record.
const bodyBytesShown = 4 << 10

// receiptOf leaves out, for agents, the content of what is bound to a
// credential.
func receiptOf(record *keystore.Record, who Audience) *Receipt {
	r := record.Receipt
	v := &Receipt{
		Status: r.Status, BodyBytes: r.Body.Bytes, BodyMissing: r.Body.Missing,
		Source: r.Source.String(), Attempt: r.Attempt, SettledAt: r.SettledAt.Time(), Usage: r.Usage,
	}
	if r.Body.Bytes > 0 {
		v.BodySHA256 = hex.EncodeToString(r.Body.SHA256[:])
	}
	switch {
	case who == Operator:
		v.Headers = headers(r.Header)
	case record.Principal == "":
		v.Headers = headers(r.Header)
		v.showBody(r.Body.Inline)
	}
	return v
}

func (v *Receipt) showBody(body []byte) {
	switch {
	case len(body) > bodyBytesShown:
	case utf8.Valid(body):
		v.Body = string(body)
	default:
		v.BodyBase64 = base64.StdEncoding.EncodeToString(body)
	}
}

// headers leaves out the values of Set-Cookie: they are credentials.
func headers(h classify.Header) map[string][]string {
	v := make(map[string][]string, len(h))
	for _, f := range h {
		if strings.EqualFold(f.Name, "Set-Cookie") {
			f.Value = "(not shown)"
		}
		v[f.Name] = append(v[f.Name], f.Value)
	}
	return v
}

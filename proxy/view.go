package proxy

import (
	"encoding/base64"
	"encoding/hex"
	"strings"
	"time"
	"unicode/utf8"

	"counterfoil/classify"
	"counterfoil/keystore"
)

// A List is one page of a list. Next is the cursor of the next page, empty on
// the last.
type List[T any] struct {
	Items []T    `json:"items"`
	Next  string `json:"next,omitempty"`
}

// A Run is one run, as the agent API shows it.
type Run struct {
	Run string `json:"run"`
	// State is active, or paused while a call of it is unknown.
	State     string    `json:"state"`
	CreatedAt time.Time `json:"created_at"`
	// UpdatedAt is when something of the run last changed, exact to the store's
	// retention step.
	UpdatedAt time.Time `json:"updated_at"`
	EndedAt   time.Time `json:"ended_at,omitzero"`
	// Totals counts the run's calls by state; states without calls are left
	// out.
	Totals map[string]int `json:"totals"`
	// Calls is one page of them, in the order of their first begin.
	Calls List[*Call] `json:"calls"`
}

// A Call is what is on record about one call, as the agent API shows it: no
// credential and no secret of a query.
type Call struct {
	Run  string `json:"run"`
	Turn string `json:"turn"`
	Call string `json:"call"`
	// Key is what the provider was sent as the call's key.
	Key      string `json:"key"`
	State    string `json:"state"`
	Class    string `json:"class"`
	Upstream string `json:"upstream,omitempty"`
	Method   string `json:"method,omitempty"`
	Target   string `json:"target,omitempty"`
	// Attempts lists the first and the newest; AttemptsMade counts all.
	Attempts     []Attempt `json:"attempts"`
	AttemptsMade uint32    `json:"attempts_made"`
	Receipt      *Receipt  `json:"receipt,omitempty"`
	History      []Change  `json:"history"`
	CreatedAt    time.Time `json:"created_at"`
	UpdatedAt    time.Time `json:"updated_at"`
}

// An Attempt is one sending of the call.
type Attempt struct {
	Number   uint32    `json:"number"`
	BegunAt  time.Time `json:"begun_at"`
	EndedAt  time.Time `json:"ended_at,omitzero"`
	Evidence string    `json:"evidence,omitempty"`
	Outcome  string    `json:"outcome,omitempty"`
	Status   int       `json:"status,omitempty"`
	Reason   string    `json:"reason,omitempty"`
	Resend   bool      `json:"resend,omitempty"`
}

// A Receipt is the head of what is known to have come of the call. The response
// itself is at URL.
type Receipt struct {
	Status     int                 `json:"status"`
	Headers    map[string][]string `json:"headers,omitempty"`
	BodyBytes  int64               `json:"body_bytes"`
	BodySHA256 string              `json:"body_sha256,omitempty"`
	// BodyMissing says that only the body's length and digest were kept.
	BodyMissing bool `json:"body_missing,omitempty"`
	// Body is a small body that is UTF-8; BodyBase64 one that is not. Larger
	// ones are at URL alone.
	Body       string    `json:"body,omitempty"`
	BodyBase64 string    `json:"body_base64,omitempty"`
	Source     string    `json:"source"`
	Attempt    uint32    `json:"attempt,omitempty"`
	SettledAt  time.Time `json:"settled_at"`
	URL        string    `json:"url"`
}

// A Change is one step of the call's history that no attempt tells.
type Change struct {
	Event string    `json:"event"`
	From  string    `json:"from"`
	To    string    `json:"to"`
	At    time.Time `json:"at"`
	Note  string    `json:"note,omitempty"`
}

// bodyBytesShown is how long a body may be to be shown within a record.
const bodyBytesShown = 4 << 10

func viewRun(s *keystore.RunSummary, calls keystore.List[*keystore.Record]) *Run {
	v := &Run{
		Run: s.Name, State: "active", CreatedAt: s.CreatedAt.Time(), UpdatedAt: s.TouchedAt.Time(),
		EndedAt: s.EndedAt.Time(), Totals: map[string]int{}, Calls: viewCalls(calls),
	}
	if s.Calls[keystore.Unknown] > 0 && s.Name != keystore.NoPart {
		v.State = "paused"
	}
	for state, n := range s.Calls {
		if n > 0 {
			v.Totals[keystore.State(state).String()] = n
		}
	}
	return v
}

func viewCalls(l keystore.List[*keystore.Record]) List[*Call] {
	v := List[*Call]{Items: make([]*Call, len(l.Items)), Next: l.Next}
	for i, r := range l.Items {
		v.Items[i] = viewCall(r)
	}
	return v
}

func viewCall(r *keystore.Record) *Call {
	in := &r.Intent
	v := &Call{
		Run: r.Key.Run, Turn: r.Key.Turn, Call: r.Key.Call, Key: sentKey(r),
		State: r.State.String(), Class: r.Class.String(), Upstream: in.Upstream, Method: in.Method, Target: in.Target,
		Attempts: make([]Attempt, len(r.Attempts)), AttemptsMade: r.AttemptsMade, History: make([]Change, len(r.History)),
		CreatedAt: r.CreatedAt.Time(), UpdatedAt: r.UpdatedAt.Time(),
	}
	for i := range r.Attempts {
		v.Attempts[i] = viewAttempt(&r.Attempts[i])
	}
	for i, c := range r.History {
		v.History[i] = Change{c.Event.String(), c.From.String(), c.To.String(), c.At.Time(), c.Note}
	}
	if r.Receipt != nil {
		v.Receipt = viewReceipt(r)
	}
	return v
}

func viewAttempt(a *keystore.Attempt) Attempt {
	v := Attempt{
		Number: a.Number, BegunAt: a.BegunAt.Time(), EndedAt: a.EndedAt.Time(),
		Status: a.Status, Reason: a.Reason, Resend: a.Resend,
	}
	if a.EndedAt != 0 {
		v.Evidence, v.Outcome = a.Evidence.String(), a.Outcome.String()
	}
	return v
}

// viewReceipt leaves out the content of what is bound to a credential.
func viewReceipt(record *keystore.Record) *Receipt {
	r := record.Receipt
	v := &Receipt{
		Status: r.Status, BodyBytes: r.Body.Bytes, BodyMissing: r.Body.Missing, Source: r.Source.String(),
		Attempt: r.Attempt, SettledAt: r.SettledAt.Time(), URL: callPath(record.Key) + "/receipt",
	}
	if r.Body.Bytes > 0 {
		v.BodySHA256 = hex.EncodeToString(r.Body.SHA256[:])
	}
	if record.Principal != "" {
		return v
	}
	v.Headers = viewHeader(r.Header)
	switch body := r.Body.Inline; {
	case len(body) > bodyBytesShown:
	case utf8.Valid(body):
		v.Body = string(body)
	default:
		v.BodyBase64 = base64.StdEncoding.EncodeToString(body)
	}
	return v
}

// viewHeader leaves out Set-Cookie: it is a credential.
func viewHeader(h classify.Header) map[string][]string {
	v := make(map[string][]string, len(h))
	for _, f := range h {
		if !strings.EqualFold(f.Name, "Set-Cookie") {
			v[f.Name] = append(v[f.Name], f.Value)
		}
	}
	return v
}

// sentKey is what the provider was sent as the key of a call on record.
func sentKey(r *keystore.Record) string {
	if r.Intent.SentKey != "" {
		return r.Intent.SentKey
	}
	return string(r.Key.ProviderKey())
}

package admin

import (
	"encoding/hex"
	"net/url"
	"strings"
	"time"

	"counterfoil/classify"
	"counterfoil/keystore"
)

// A List is one page of a list. Next is the cursor of the next page, empty on
// the last.
type List[T any] struct {
	Items []T    `json:"items"`
	Next  string `json:"next,omitempty"`
}

// A Run is one run, as the API shows it.
type Run struct {
	Namespace string    `json:"namespace"`
	Run       string    `json:"run"`
	CreatedAt time.Time `json:"created_at"`
	// UpdatedAt is when something of the run last changed, exact to the store's
	// retention step.
	UpdatedAt time.Time `json:"updated_at"`
	EndedAt   time.Time `json:"ended_at,omitzero"`
	// Totals counts the run's calls by state; states without calls are left
	// out.
	Totals map[string]int `json:"totals"`
	// Calls is one page of them in order, where one run was asked for.
	Calls *List[*Call] `json:"calls,omitempty"`
}

// A Call is what is on record about one call, as the API shows it: no body, no
// credential, no secret of a query.
type Call struct {
	Namespace string `json:"namespace"`
	Run       string `json:"run"`
	Turn      string `json:"turn"`
	Call      string `json:"call"`
	// Key is what the provider was sent as the call's key.
	Key      string `json:"key"`
	State    string `json:"state"`
	Class    string `json:"class"`
	Upstream string `json:"upstream,omitempty"`
	Origin   string `json:"origin,omitempty"`
	Method   string `json:"method,omitempty"`
	Target   string `json:"target,omitempty"`
	// Since and Reason say since when, and why, the call is unknown.
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

// An Attempt is one sending of the call.
type Attempt struct {
	Number   uint32    `json:"number"`
	Epoch    uint64    `json:"epoch"`
	BegunAt  time.Time `json:"begun_at"`
	EndedAt  time.Time `json:"ended_at,omitzero"`
	Evidence string    `json:"evidence,omitempty"`
	Outcome  string    `json:"outcome,omitempty"`
	Status   int       `json:"status,omitempty"`
	Reason   string    `json:"reason,omitempty"`
	Resend   bool      `json:"resend,omitempty"`
}

// A Receipt is the head of what is known to have come of the call.
type Receipt struct {
	Status     int                 `json:"status"`
	Headers    map[string][]string `json:"headers"`
	BodyBytes  int64               `json:"body_bytes"`
	BodySHA256 string              `json:"body_sha256,omitempty"`
	// BodyMissing says that only the body's length and digest were kept.
	BodyMissing bool      `json:"body_missing,omitempty"`
	Source      string    `json:"source"`
	Attempt     uint32    `json:"attempt,omitempty"`
	SettledAt   time.Time `json:"settled_at"`
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

func viewRun(s *keystore.RunSummary) *Run {
	v := &Run{
		Namespace: s.Namespace, Run: s.Name, CreatedAt: s.CreatedAt.Time(), UpdatedAt: s.TouchedAt.Time(),
		EndedAt: s.EndedAt.Time(), Totals: map[string]int{},
	}
	for state, n := range s.Calls {
		if n > 0 {
			v.Totals[keystore.State(state).String()] = n
		}
	}
	return v
}

func viewCall(r *keystore.Record) *Call {
	in := &r.Intent
	v := &Call{
		Namespace: r.Key.Namespace, Run: r.Key.Run, Turn: r.Key.Turn, Call: r.Key.Call, Key: in.SentKey,
		State: r.State.String(), Class: r.Class.String(), Upstream: in.Upstream, Origin: in.Origin, Method: in.Method, Target: in.Target,
		Attempts: make([]Attempt, len(r.Attempts)), AttemptsMade: r.AttemptsMade, History: make([]Change, len(r.History)),
		CreatedAt: r.CreatedAt.Time(), UpdatedAt: r.UpdatedAt.Time(),
	}
	if v.Key == "" {
		v.Key = string(r.Key.ProviderKey())
	}
	for i := range r.Attempts {
		v.Attempts[i] = viewAttempt(&r.Attempts[i])
	}
	for i, c := range r.History {
		v.History[i] = Change{c.Event.String(), c.From.String(), c.To.String(), c.At.Time(), c.Actor, c.Note}
		if r.State == keystore.Unknown && c.To == keystore.Unknown {
			v.Since, v.Reason = c.At.Time(), c.Note
		}
	}
	if r.Receipt != nil {
		v.Receipt = viewReceipt(r.Receipt)
	}
	return v
}

func viewAttempt(a *keystore.Attempt) Attempt {
	v := Attempt{
		Number: a.Number, Epoch: uint64(a.Epoch), BegunAt: a.BegunAt.Time(), EndedAt: a.EndedAt.Time(),
		Status: a.Status, Reason: a.Reason, Resend: a.Resend,
	}
	if a.EndedAt != 0 {
		v.Evidence, v.Outcome = a.Evidence.String(), a.Outcome.String()
	}
	return v
}

func viewReceipt(r *keystore.Receipt) *Receipt {
	v := &Receipt{
		Status: r.Status, Headers: viewHeader(r.Header), BodyBytes: r.Body.Bytes, BodyMissing: r.Body.Missing,
		Source: r.Source.String(), Attempt: r.Attempt, SettledAt: r.SettledAt.Time(),
	}
	if r.Body.Bytes > 0 {
		v.BodySHA256 = hex.EncodeToString(r.Body.SHA256[:])
	}
	return v
}

// viewHeader leaves out the values of Set-Cookie: they are credentials.
func viewHeader(h classify.Header) map[string][]string {
	v := make(map[string][]string, len(h))
	for _, f := range h {
		if strings.EqualFold(f.Name, "Set-Cookie") {
			f.Value = "(not shown)"
		}
		v[f.Name] = append(v[f.Name], f.Value)
	}
	return v
}

func viewList[S, T any](l keystore.List[S], view func(S) T) *List[T] {
	v := &List[T]{Items: make([]T, len(l.Items)), Next: l.Next}
	for i, item := range l.Items {
		v.Items[i] = view(item)
	}
	return v
}

// RunPath is where the API shows a run, CallPath where it shows a call, with
// every part percent-encoded. The namespace goes into the query.
func RunPath(run string) string { return "/api/v1/runs/" + segment(run) }

// CallPath is where the API shows the call.
func CallPath(k keystore.Key) string {
	return "/api/v1/calls/" + segment(k.Run) + "/" + segment(k.Turn) + "/" + segment(k.Call)
}

// segment spells a part so that no client and no router takes it for a dot
// segment.
func segment(part string) string {
	if part == "." || part == ".." {
		return strings.ReplaceAll(part, ".", "%2E")
	}
	return url.PathEscape(part)
}

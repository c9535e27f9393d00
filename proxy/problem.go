package proxy

import (
	"context"
	"encoding/json"
	"log/slog"
	"strconv"
	"time"

	"counterfoil/classify"
	"counterfoil/internal/journal"
	"counterfoil/keystore"
)

// The problems that this package raises itself, beside the journal's.
const (
	MissingKey         journal.Problem = "missing-key"
	InvalidKey         journal.Problem = "invalid-key"
	InvalidPath        journal.Problem = "invalid-path"
	Unauthorized       journal.Problem = "unauthorized"
	HostNotAllowed     journal.Problem = "host-not-allowed"
	NotFound           journal.Problem = "not-found"
	MethodNotAllowed   journal.Problem = "method-not-allowed"
	RequestTimeout     journal.Problem = "request-timeout"
	HeaderTooLarge     journal.Problem = "header-too-large"
	UpgradeUnsupported journal.Problem = "upgrade-unsupported"
	UpstreamFailed     journal.Problem = "upstream-failed"
	Overloaded         journal.Problem = "overloaded"
)

// ResultConflict is a problem of the protocol that nothing raises yet.
const ResultConflict journal.Problem = "result-conflict"

// sameKey says whether the same request under the same key, later and by
// itself, may bring an answer.
type sameKey bool

const (
	worthwhile sameKey = true
	pointless  sameKey = false
)

// newKey says whether asking anew under another key is harmless.
type newKey uint8

const (
	// harmless: nothing was sent, and no effect of the call can exist.
	harmless newKey = iota
	// unlessEffect: harmless unless an effect of the call may exist.
	unlessEffect
	// harmful: an effect may exist, or a person has decided against it.
	harmful
)

func (n newKey) safe(effectPossible bool) bool {
	return n == harmless || n == unlessEffect && !effectPossible
}

// problems is design section 3.3: the one place that knows how each problem is
// answered. The names go over the wire: rows are only ever added.
var problems = [...]struct {
	name   journal.Problem
	status int
	title  string
	same   sameKey
	anew   newKey
}{
	{MissingKey, 400, "The call has no id", pointless, harmless},
	{InvalidKey, 400, "The identity of the call is not valid", pointless, harmless},
	{InvalidPath, 400, "The path is not valid", pointless, harmless},
	{journal.InvalidRequest, 400, "The request is not valid", pointless, harmless},
	{Unauthorized, 401, "The token is missing or wrong", pointless, harmless},
	{journal.BudgetExhausted, 403, "The budget is used up", pointless, unlessEffect},
	{journal.PrincipalMismatch, 403, "The call belongs to another credential", pointless, unlessEffect},
	{journal.Denied, 403, "A person refused the call", pointless, harmful},
	{HostNotAllowed, 403, "The host or origin is not allowed", pointless, harmless},
	{journal.UnknownUpstream, 404, "No such upstream", pointless, harmless},
	{NotFound, 404, "Nothing is on record under that name", pointless, harmless},
	{MethodNotAllowed, 405, "The method is not allowed here", pointless, harmless},
	{RequestTimeout, 408, "The request came too slowly", worthwhile, harmless},
	{journal.InProgress, 409, "The call is in progress", worthwhile, harmful},
	{journal.BodyNotKept, 409, "The answer was not kept", pointless, harmful},
	{journal.FlowVersionMismatch, 409, "The run has another flow version", pointless, unlessEffect},
	{journal.PlanConflict, 409, "The turn has another plan", pointless, unlessEffect},
	{journal.NotInPlan, 409, "The turn's plan does not name the call", pointless, unlessEffect},
	{journal.LeaseHeld, 409, "Another holds the run's lease", worthwhile, unlessEffect},
	{ResultConflict, 409, "The run has another result", pointless, unlessEffect},
	{journal.ReceiptExpired, 410, "The receipt is no longer kept", pointless, harmful},
	{journal.CallAbandoned, 410, "The call was given up", pointless, harmful},
	{journal.Fenced, 412, "A newer holder has the run", pointless, unlessEffect},
	{journal.ETagMismatch, 412, "The item has another version", pointless, harmless},
	{journal.ItemExists, 412, "The item exists", pointless, harmless},
	{journal.ReceiptRequired, 412, "The call that is required has no receipt", pointless, harmless},
	{journal.InputTooLarge, 413, "The request is too large", pointless, harmless},
	{journal.KeyReused, 422, "The key belongs to another request", pointless, unlessEffect},
	{journal.UnknownOutcome, 423, "Nobody can tell whether the call had its effect", pointless, harmful},
	{journal.RunPaused, 423, "The run is paused", pointless, unlessEffect},
	{journal.ApprovalRequired, 423, "A person has to approve the call", pointless, harmful},
	{journal.Diverged, 423, "The run does not repeat its earlier steps", pointless, unlessEffect},
	{journal.FenceRequired, 428, "The call names no fence", pointless, unlessEffect},
	{HeaderTooLarge, 431, "The header is too large", pointless, harmless},
	{UpgradeUnsupported, 501, "Upgrades are not supported", pointless, harmless},
	{journal.UpstreamUnreachable, 502, "The upstream cannot be reached", worthwhile, unlessEffect},
	{UpstreamFailed, 502, "The upstream gave no whole answer to a read", worthwhile, harmless},
	{journal.JournalUnavailable, 503, "The journal is not available", worthwhile, unlessEffect},
	{journal.Draining, 503, "The sidecar is shutting down", worthwhile, unlessEffect},
	{Overloaded, 503, "Too many large requests at once", worthwhile, harmless},
}

// row returns the index of a problem's row. A name without one is a bug; it is
// answered as the journal's trouble, never as success.
func row(name journal.Problem) int {
	unavailable := 0
	for i := range problems {
		switch problems[i].name { //nolint:exhaustive // it looks for two names
		case name:
			return i
		case journal.JournalUnavailable:
			unavailable = i
		}
	}
	return unavailable
}

// stops reports whether SDKs must be told not to try again by themselves.
func stops(status int) bool { return status == 423 || status == 410 }

// problemType begins the type of every problem document (RFC 9457).
const problemType = "urn:counterfoil:problem:"

// A Document is the body of a refusal (RFC 9457).
type Document struct {
	Type   string `json:"type"`
	Title  string `json:"title"`
	Status int    `json:"status"`
	// Detail says what to do next.
	Detail string `json:"detail"`
	// Instance is where to look or to act: a link to the admin listener for
	// what waits for a person, else the path of the call's record.
	Instance string `json:"instance,omitempty"`
	// SafeToRetry: the same request under the same key, later and by itself,
	// may bring an answer. SafeNewKey: asking anew under another key is
	// harmless.
	SafeToRetry bool `json:"safe_to_retry"`
	SafeNewKey  bool `json:"safe_new_key"`
	// UpstreamStatus is what the provider answered, where it did.
	UpstreamStatus int    `json:"upstream_status,omitempty"`
	Run            string `json:"run,omitempty"`
	Turn           string `json:"turn,omitempty"`
	Call           string `json:"call,omitempty"`
	Key            string `json:"key,omitempty"`
	// Fence and Owner are the newest of the run's lease, FlowVersion the version
	// that it is pinned to, where the problem is about them.
	Fence       uint64 `json:"fence,omitempty"`
	Owner       string `json:"owner,omitempty"`
	FlowVersion string `json:"flow_version,omitempty"`
	// ETag is the item's present one, which is in the header too; Operation the
	// number, from 0, of the operation of a batch that failed.
	ETag      string `json:"etag,omitempty"`
	Operation *int   `json:"operation,omitempty"`
	// Error says it again for SDKs that do not go by the status: Stripe's for
	// Node returns any JSON without this member as the object asked for.
	Error SDKError `json:"error"`
}

// An SDKError is a refusal in the form that SDKs turn into their exceptions.
type SDKError struct {
	Type    string `json:"type"` // api_error, which Stripe, OpenAI and Anthropic have
	Code    string `json:"code"` // the problem's name
	Message string `json:"message"`
}

// document renders a refusal and the header fields that go with it. k may be
// incomplete; sentKey is the key that the provider was or would be sent.
func document(r *journal.Refusal, k keystore.Key, sentKey, instance string) (Document, classify.Header) {
	form := &problems[row(r.Problem)]
	d := Document{
		Type: problemType + string(form.name), Title: form.title, Status: form.status, Detail: r.Detail, Instance: instance,
		SafeToRetry: bool(form.same), SafeNewKey: form.anew.safe(r.EffectPossible), UpstreamStatus: r.UpstreamStatus,
		Run: k.Run, Turn: k.Turn, Call: k.Call, Key: sentKey,
		Fence: uint64(r.Fence), Owner: r.Owner, FlowVersion: r.FlowVersion, ETag: r.ETag, Operation: r.Operation,
		Error: SDKError{Type: "api_error", Code: string(form.name), Message: r.Detail},
	}
	h := classify.Header{{Name: "Content-Type", Value: "application/problem+json"}, {Name: "Cache-Control", Value: "no-store"}}
	if r.RetryAfter > 0 {
		seconds := (r.RetryAfter + time.Second - 1) / time.Second
		h = append(h, classify.Field{Name: "Retry-After", Value: strconv.Itoa(int(seconds))})
	}
	if r.ETag != "" {
		h = append(h, classify.Field{Name: "ETag", Value: r.ETag})
	}
	if stops(form.status) {
		h = append(h, classify.Field{Name: "x-should-retry", Value: "false"}, classify.Field{Name: "stripe-should-retry", Value: "false"})
	}
	return d, h
}

func (d *Document) body() []byte {
	b, err := json.Marshal(d)
	if err != nil {
		return []byte(`{"type":"` + d.Type + `"}`)
	}
	return append(b, '\n')
}

// refuse answers with a problem of this package's own.
func (x *exchange) refuse(r *journal.Refusal) {
	k := x.key()
	var sentKey string
	if k.Validate() == nil {
		if sentKey = x.claim.ownKey; sentKey == "" {
			sentKey = string(k.ProviderKey())
		}
	}
	reply := &journal.Reply{Outcome: journal.Refused, Refusal: r, SentKey: sentKey}
	x.refuseReply(reply)
	x.logRefusal(r.Problem, k)
	x.aside(journal.Refused, r.Problem)
}

// refuseReply answers with a problem.
func (x *exchange) refuseReply(r *journal.Reply) {
	k := x.key()
	d, h := document(r.Refusal, k, r.SentKey, x.instance(r.Refusal, k))
	if r.Refusal.Problem == MethodNotAllowed {
		h = append(h, classify.Field{Name: "Allow", Value: x.allowed()})
	}
	body := d.body()
	if x.reading != nil {
		if a, ok := x.reading.Refuse(body, d.Title+". "+d.Detail); ok {
			_ = x.whole(&answer{status: a.Status, header: a.Header, own: ownFields(r), length: int64(len(a.Body))}, a.Body) // the connection is closed then
			return
		}
	}
	_ = x.whole(&answer{status: d.Status, header: h, own: ownFields(r), length: int64(len(body))}, body) // the connection is closed then
}

// logRefusal warns of what is refused before the journal hears of it: no other
// line tells. Of each problem the first in a minute is enough; asking for a
// record that is not there is no mistake.
func (x *exchange) logRefusal(p journal.Problem, k keystore.Key) {
	level, upstream := slog.LevelDebug, ""
	more, speak := x.hush.speak(p, time.Now())
	if speak && p != NotFound {
		level = slog.LevelWarn
	}
	if x.route.upstream != nil {
		upstream = x.route.upstream.name
	}
	x.log.Log(context.Background(), level, "refused", "problem", string(p), "more_since_last_warning", more,
		"method", x.method, "upstream", upstream, "namespace", k.Namespace, "run", k.Run, "turn", k.Turn, "call", k.Call)
}

// instance is where to act on what waits for a person, else where the call's
// record is.
func (x *exchange) instance(r *journal.Refusal, k keystore.Key) string {
	if k.Validate() != nil {
		return ""
	}
	switch {
	case r.Problem == journal.RunPaused && x.adminURL != "":
		// What pauses the run is another call.
		return x.adminURL + "/api/v1/runs/" + segment(k.Run) + "?namespace=" + queryEscape(k.Namespace)
	case stops(problems[row(r.Problem)].status) && x.adminURL != "":
		return x.adminURL + "/?namespace=" + queryEscape(k.Namespace) + "&call=" + queryEscape(k.String())
	}
	return callPath(k)
}

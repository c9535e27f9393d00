package proxy

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"counterfoil/classify"
	"counterfoil/internal/journal"
	"counterfoil/internal/view"
	"counterfoil/keystore"
)

const (
	apiPrefix = "/-/v1"
	// listMax is how many items one page may have; without a limit it has the
	// store's default, 100.
	listMax = 1000
)

// api answers what is asked of the sidecar itself.
func (x *exchange) api(ctx context.Context) {
	refusal := x.answerAPI(ctx)
	if x.hasBody() && !x.bodyRead {
		x.close, x.conn.linger = true, true
	}
	if refusal != nil {
		x.refuse(unchanged(refusal))
	}
}

// unchanged says a refusal in the words of the agent API: what is not done there
// is a change.
func unchanged(r *journal.Refusal) *journal.Refusal {
	said := *r
	said.Detail = strings.ReplaceAll(r.Detail, "Nothing was sent.", "Nothing was changed.")
	return &said
}

func (x *exchange) answerAPI(ctx context.Context) *journal.Refusal {
	path, query, _ := strings.Cut(x.route.target, "?")
	segments, refusal := splitPath(path)
	if refusal != nil {
		return refusal
	}
	x.about.Namespace = x.namespace
	x.methods = x.find(segments)
	if x.methods == nil {
		return nowhere
	}
	handle := x.methods[x.method]
	if x.method == "HEAD" && handle == nil {
		handle = x.methods["GET"]
	}
	if handle == nil {
		return &journal.Refusal{Problem: MethodNotAllowed, Detail: "This path takes " + x.allowed() + "."}
	}
	values, err := url.ParseQuery(query)
	if err != nil {
		return x.refusalOf(invalid("The query cannot be read: percent-encode its values."))
	}
	return x.refusalOf(handle(ctx, values))
}

// A handler answers one method of one path of the agent API, or returns why not.
type handler func(ctx context.Context, query url.Values) error

// methods are the handlers of one path.
type methods map[string]handler

var nowhere = &journal.Refusal{Problem: NotFound, Detail: "The agent API has no such path. docs/protocol.md lists its paths."}

// find returns the handlers of a path, nil if there is no such path.
func (x *exchange) find(s []string) methods {
	if len(s) < 2 || s[0] != "v1" {
		return nil
	}
	switch s[1] {
	case "runs":
		return x.findRun(s[2:])
	case "stores":
		return x.findStore(s[2:])
	}
	return nil
}

// findRun returns the handlers of what follows /-/v1/runs.
func (x *exchange) findRun(s []string) methods {
	if len(s) == 0 {
		return methods{"GET": x.listRuns}
	}
	k := keystore.Key{Namespace: x.namespace, Run: s[0]}
	x.about = k
	of := func(handle func(ctx context.Context, k keystore.Key, query url.Values) error) handler {
		return func(ctx context.Context, query url.Values) error { return handle(ctx, k, query) }
	}
	switch s = s[1:]; {
	case len(s) == 0:
		return methods{"GET": of(x.showRun), "PUT": of(x.putRun)}
	case len(s) == 1 && s[0] == "calls":
		return methods{"GET": of(x.listCalls)}
	case len(s) == 1 && s[0] == "recovery":
		return methods{"GET": of(x.showRecovery)}
	case len(s) == 1 && s[0] == "lease":
		return methods{"GET": of(x.showLease), "POST": of(x.acquireLease), "PUT": of(x.renewLease), "DELETE": of(x.releaseLease)}
	case s[0] == "turns" && len(s) >= 2:
		k.Turn = s[1]
		return x.findTurn(k, s[2:])
	}
	return nil
}

// findTurn returns the handlers of what follows /-/v1/runs/{run}/turns/{turn}.
func (x *exchange) findTurn(k keystore.Key, s []string) methods {
	x.about = k
	if len(s) == 0 {
		return methods{
			"GET": func(ctx context.Context, query url.Values) error { return x.showPlan(ctx, k, query) },
			"PUT": func(ctx context.Context, query url.Values) error { return x.putPlan(ctx, k, query) },
		}
	}
	if len(s) < 2 || s[0] != "calls" {
		return nil
	}
	k.Call = s[1]
	x.about = k
	switch s = s[2:]; {
	case len(s) == 0:
		return methods{"GET": func(ctx context.Context, query url.Values) error { return x.showCall(ctx, k, query) }}
	case len(s) == 1 && s[0] == "receipt":
		return methods{"GET": func(ctx context.Context, query url.Values) error { return x.showReceipt(ctx, k, query) }}
	}
	return nil
}

// splitPath decodes the segments of a path; one with an empty segment has none.
func splitPath(path string) ([]string, *journal.Refusal) {
	segments := strings.Split(strings.TrimPrefix(path, "/"), "/")
	if slices.Contains(segments, "") {
		return nil, nil
	}
	for i, s := range segments {
		var refusal *journal.Refusal
		if segments[i], refusal = decodeSegment(segments[:i], s); refusal != nil {
			return nil, refusal
		}
	}
	return segments, nil
}

// decodeSegment decodes one segment. Those before it, which are decoded, say
// whether it is one of stores and their items, whose names have limits of their own.
func decodeSegment(before []string, s string) (string, *journal.Refusal) {
	if len(before) >= 2 && before[0] == "v1" && before[1] == "stores" {
		name, err := decodeName("the path", s)
		if err != nil {
			return "", &journal.Refusal{Problem: journal.InvalidRequest, Detail: fmt.Sprintf("%s A name has 1 to %d characters, percent-encoded, / as %%2F. Nothing was changed.", sentence(err), keystore.NameCharsMax)}
		}
		return name, nil
	}
	part, err := decodePart("the path", s)
	if err != nil {
		return "", &journal.Refusal{Problem: InvalidKey, Detail: sentence(err) + " Percent-encode each part of the path."}
	}
	return part, nil
}

// allowed lists the methods of a path here.
func (x *exchange) allowed() string {
	if x.methods == nil {
		return "DELETE, GET, HEAD, OPTIONS, PATCH, POST, PUT"
	}
	names := slices.Collect(maps.Keys(x.methods))
	if x.methods["GET"] != nil {
		names = append(names, "HEAD")
	}
	slices.Sort(names)
	return strings.Join(names, ", ")
}

// refusalOf is the refusal for an error, nil for none.
func (x *exchange) refusalOf(err error) *journal.Refusal {
	var known *refusalError
	var refused *keystore.Refused
	switch {
	case err == nil:
		return nil
	case errors.As(err, &known):
		return known.Refusal
	case errors.As(err, &refused):
		return refusalFor(refused)
	case errors.Is(err, keystore.ErrCursor):
		return x.refusalOf(otherCursor())
	case errors.Is(err, keystore.ErrNotFound):
		return &journal.Refusal{Problem: NotFound, Detail: "Nothing is on record under that name. Look at its spelling."}
	case errors.Is(err, keystore.ErrFull):
		return &journal.Refusal{Problem: journal.JournalUnavailable, Detail: "The journal's disk is full up to its reserve, so nothing was changed. Free disk space, then ask again.", RetryAfter: time.Second}
	case errors.Is(err, keystore.ErrTooLarge):
		return &journal.Refusal{Problem: journal.InputTooLarge, Detail: "This is larger than the journal can keep. Nothing was changed."}
	}
	x.log.Warn("the agent API could not use the journal", "error", err)
	return &journal.Refusal{Problem: journal.JournalUnavailable, Detail: "The journal cannot be used now. Ask again later.", RetryAfter: time.Second}
}

func otherCursor() error {
	return invalid("The cursor in after is none that this list gave: leave it out to begin anew.")
}

// refusalFor says what is on record that an operation was refused for.
func refusalFor(e *keystore.Refused) *journal.Refusal {
	r := &journal.Refusal{
		Problem: journal.ProblemOf(e.Reason), Fence: e.Fence, Owner: e.Owner, FlowVersion: e.FlowVersion, RetryAfter: e.After,
	}
	switch e.Reason {
	case keystore.LeaseHeld:
		r.Detail = "Another holder has the run's lease, and it is not over. Nothing was changed. Try again when it may be; asking under the same owner's name does not help."
	case keystore.FenceRequired:
		r.Detail = "The run has a lease, so this needs its fence as Counterfoil-Fence. Nothing was changed."
	case keystore.Fenced:
		r.Detail = "The fence is not the run's newest, or its lease is over or was given back. Nothing was changed. Stop: another may be carrying the run on. To take part again, take the lease anew."
	case keystore.FlowVersionMismatch:
		r.Detail = "The run is pinned to another version of its flow. Nothing was changed. Run that version, or begin a new run."
	case keystore.PlanConflict:
		r.Detail = "This turn has another plan, and a plan stays as it was first recorded. Nothing was changed. GET this path to go on by it, or use another turn."
	default:
		r.Detail = "What is on record does not allow it. Nothing was changed."
	}
	return r
}

// A refusalError is a refusal on its way up.
type refusalError struct{ *journal.Refusal }

func (e refusalError) Error() string { return e.Detail }

func (x *exchange) listCalls(ctx context.Context, k keystore.Key, query url.Values) error {
	page, err := pageOf(query)
	if err != nil {
		return err
	}
	if _, err := x.records.Run(ctx, k.Namespace, k.Run); err != nil {
		return err
	}
	calls, err := x.records.Calls(ctx, k.Namespace, k.Run, page)
	if err != nil {
		return mistaken(page, err)
	}
	return x.json(viewCalls(calls))
}

// mistaken tells a cursor that no list gave from a list that is not there.
func mistaken(p keystore.Page, err error) error {
	if p.After != "" && errors.Is(err, keystore.ErrNotFound) {
		return otherCursor()
	}
	return err
}

// pageOf reads limit and after; more names what else the query may have.
func pageOf(query url.Values, more ...string) (keystore.Page, error) {
	p := keystore.Page{After: query.Get("after")}
	if err := checkQuery(query, append(more, "limit", "after")...); err != nil {
		return p, err
	}
	if limit := query.Get("limit"); limit != "" {
		var err error
		if p.Limit, err = strconv.Atoi(limit); err != nil || p.Limit < 1 || p.Limit > listMax {
			return p, invalid("limit is a whole number from 1 to 1000.")
		}
	}
	return p, nil
}

func (x *exchange) showCall(ctx context.Context, k keystore.Key, query url.Values) error {
	if err := checkQuery(query); err != nil {
		return err
	}
	r, err := x.records.Call(ctx, k)
	if err != nil {
		return err
	}
	return x.json(viewCall(r))
}

// showReceipt answers with the stored response itself. Who is bound to the
// first request's credential cannot be checked here, so what is bound is not
// shown; nor is Set-Cookie, which belongs to that credential.
func (x *exchange) showReceipt(ctx context.Context, k keystore.Key, query url.Values) error {
	if err := checkQuery(query); err != nil {
		return err
	}
	r, err := x.records.Call(ctx, k)
	switch {
	case err != nil:
		return err
	case r.Receipt == nil:
		return &refusalError{&journal.Refusal{Problem: NotFound, Detail: "The call has no receipt (it is " + r.State.String() + ").", EffectPossible: r.State.EffectPossible()}}
	case r.Principal != "":
		return &refusalError{&journal.Refusal{Problem: journal.PrincipalMismatch, Detail: "This receipt is bound to the credential of its first request. Repeat that request to get it.", EffectPossible: true}}
	case r.Receipt.Body.Missing && r.Receipt.Body.Bytes > 0:
		return &refusalError{&journal.Refusal{Problem: journal.BodyNotKept, Detail: "The answer was too large to keep. Its status, length and SHA-256 are in the call's record.", UpstreamStatus: r.Receipt.Status, EffectPossible: true}}
	}
	reply := &journal.Reply{
		Outcome: journal.Replayed, Record: r, SentKey: view.SentKey(r), Status: r.Receipt.Status, Body: r.Receipt.Body,
		Header: r.Receipt.Header.Without(func(name string) bool { return strings.EqualFold(name, "Set-Cookie") }),
	}
	if r.Receipt.Body.Ref == 0 {
		reply.Bytes = r.Receipt.Body.Inline
	}
	x.answerReply(ctx, reply)
	return nil
}

// json answers with a document.
func (x *exchange) json(v any) error { return x.jsonAs(200, v) }

// jsonAs answers with a document and a status.
func (x *exchange) jsonAs(status int, v any) error {
	body, err := json.Marshal(v)
	if err != nil {
		return err
	}
	body = append(body, '\n')
	h := classify.Header{{Name: "Content-Type", Value: "application/json"}, {Name: "Cache-Control", Value: "no-store"}}
	_ = x.whole(&answer{status: status, header: h, length: int64(len(body))}, body) // the connection is closed then
	return nil
}

// noContent answers that it is done.
func (x *exchange) noContent() error {
	_ = x.whole(&answer{status: 204, header: classify.Header{{Name: "Cache-Control", Value: "no-store"}}}, nil) // the connection is closed then
	return nil
}

func queryEscape(s string) string { return url.QueryEscape(s) }

// callPath is where the agent API shows a call.
func callPath(k keystore.Key) string {
	return apiPrefix + "/runs/" + segment(k.Run) + "/turns/" + segment(k.Turn) + "/calls/" + segment(k.Call)
}

// segment spells a part so that nobody takes it for a dot segment.
func segment(part string) string {
	if part == "." || part == ".." {
		return strings.ReplaceAll(part, ".", "%2E")
	}
	return url.PathEscape(part)
}

package proxy

import (
	"context"
	"encoding/json"
	"errors"
	"net/url"
	"slices"
	"strconv"
	"strings"

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
	if x.hasBody() {
		x.close, x.conn.linger = true, true // no body is read here
	}
	path, query, _ := strings.Cut(x.route.target, "?")
	segments, err := splitPath(path)
	if errors.Is(err, keystore.ErrInvalidKey) {
		x.refuse(&journal.Refusal{Problem: InvalidKey, Detail: sentence(err) + " Percent-encode each part of the path."})
		return
	}
	handle := x.find(segments)
	switch {
	case handle == nil:
		x.refuse(nowhere)
	case x.method != "GET" && x.method != "HEAD":
		x.refuse(&journal.Refusal{Problem: MethodNotAllowed, Detail: "This path can only be read."})
	default:
		x.failed(handle(ctx, query))
	}
}

// A handler answers one path of the agent API, or returns why not.
type handler func(ctx context.Context, query string) error

var nowhere = &journal.Refusal{Problem: NotFound, Detail: "The agent API has no such path. docs/protocol.md lists its paths."}

// find returns the handler of a path, nil if there is none.
func (x *exchange) find(s []string) handler {
	if len(s) < 3 || s[0] != "v1" || s[1] != "runs" {
		return nil
	}
	k := keystore.Key{Namespace: x.namespace, Run: s[2]}
	switch {
	case len(s) == 3:
		return func(ctx context.Context, query string) error { return x.showRun(ctx, k, query) }
	case len(s) == 4 && s[3] == "calls":
		return func(ctx context.Context, query string) error { return x.listCalls(ctx, k, query) }
	case len(s) < 7 || s[3] != "turns" || s[5] != "calls":
		return nil
	}
	k.Turn, k.Call = s[4], s[6]
	switch {
	case len(s) == 7:
		return func(ctx context.Context, _ string) error { return x.showCall(ctx, k) }
	case len(s) == 8 && s[7] == "receipt":
		return func(ctx context.Context, _ string) error { return x.showReceipt(ctx, k) }
	}
	return nil
}

// splitPath decodes the segments of a path; one with an empty segment has none.
func splitPath(path string) ([]string, error) {
	segments := strings.Split(strings.TrimPrefix(path, "/"), "/")
	if slices.Contains(segments, "") {
		return nil, nil
	}
	for i, s := range segments {
		part, err := decodePart("the path", s)
		if err != nil {
			return nil, err
		}
		segments[i] = part
	}
	return segments, nil
}

// allowed lists the methods of a path here.
func (x *exchange) allowed() string {
	if x.route.upstream == nil && x.route.target != "" {
		return "GET, HEAD"
	}
	return "DELETE, GET, HEAD, OPTIONS, PATCH, POST, PUT"
}

// failed answers for an error of the store, nil being none.
func (x *exchange) failed(err error) {
	var known *refusalError
	switch {
	case err == nil:
	case errors.As(err, &known):
		x.refuse(known.Refusal)
	case errors.Is(err, keystore.ErrNotFound):
		x.refuse(&journal.Refusal{Problem: NotFound, Detail: "Nothing is on record under that name. Look at its spelling."})
	default:
		x.log.Warn("the agent API could not read the journal", "error", err)
		x.refuse(&journal.Refusal{Problem: journal.JournalUnavailable, Detail: "The journal cannot be read now. Ask again later.", RetryAfter: 1e9})
	}
}

// A refusalError is a refusal on its way up.
type refusalError struct{ *journal.Refusal }

func (e refusalError) Error() string { return e.Detail }

func (x *exchange) showRun(ctx context.Context, k keystore.Key, query string) error {
	page, err := pageOf(query)
	if err != nil {
		return err
	}
	summary, err := x.records.Run(ctx, k.Namespace, k.Run)
	if err != nil {
		return err
	}
	calls, err := x.records.Calls(ctx, k.Namespace, k.Run, page)
	if err != nil {
		return err
	}
	return x.json(viewRun(&summary, calls))
}

func (x *exchange) listCalls(ctx context.Context, k keystore.Key, query string) error {
	page, err := pageOf(query)
	if err != nil {
		return err
	}
	if _, err := x.records.Run(ctx, k.Namespace, k.Run); err != nil {
		return err
	}
	calls, err := x.records.Calls(ctx, k.Namespace, k.Run, page)
	if err != nil {
		return err
	}
	return x.json(viewCalls(calls))
}

func pageOf(query string) (keystore.Page, error) {
	values, err := url.ParseQuery(query)
	if err != nil {
		return keystore.Page{}, &refusalError{malformed("The query cannot be read.")}
	}
	p := keystore.Page{After: values.Get("after")}
	if limit := values.Get("limit"); limit != "" {
		if p.Limit, err = strconv.Atoi(limit); err != nil || p.Limit < 1 || p.Limit > listMax {
			return p, &refusalError{malformed("limit is a whole number from 1 to 1000.")}
		}
	}
	return p, nil
}

func (x *exchange) showCall(ctx context.Context, k keystore.Key) error {
	r, err := x.records.Call(ctx, k)
	if err != nil {
		return err
	}
	return x.json(viewCall(r))
}

// showReceipt answers with the stored response itself. Who is bound to the
// first request's credential cannot be checked here, so what is bound is not
// shown; nor is Set-Cookie, which belongs to that credential.
func (x *exchange) showReceipt(ctx context.Context, k keystore.Key) error {
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

func (x *exchange) json(v any) error {
	body, err := json.Marshal(v)
	if err != nil {
		return err
	}
	body = append(body, '\n')
	h := classify.Header{{Name: "Content-Type", Value: "application/json"}, {Name: "Cache-Control", Value: "no-store"}}
	x.whole(&answer{status: 200, header: h, length: int64(len(body))}, body)
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

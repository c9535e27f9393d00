package graphql

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"io"
	"slices"
	"strings"

	"counterfoil/classify"
	"counterfoil/providers"
)

// judgedBytesMax bounds an answer that is judged, as it came and unpacked.
const judgedBytesMax = 1 << 20

// Watch implements [providers.Watchable]. GraphQL says in the body of a success
// what went wrong; a status of failure speaks for itself.
func (c *mutation) Watch(h providers.Head) providers.Watcher {
	if h.Status < 200 || h.Status > 299 {
		return nil
	}
	return &watcher{mutation: c, head: h}
}

// A watcher holds an answer and judges it.
type watcher struct {
	mutation *mutation
	head     providers.Head
	body     []byte
	isLong   bool
}

// Holds is true: what an answer means is known at its end.
func (w *watcher) Holds() bool { return true }

// Write takes the next piece.
func (w *watcher) Write(piece []byte) {
	switch {
	case w.isLong:
	case len(w.body)+len(piece) > judgedBytesMax:
		w.body, w.isLong = nil, true
	default:
		w.body = append(w.body, piece...)
	}
}

// End judges the answer.
func (w *watcher) End(context.Context) providers.Judgement {
	body, ok := w.plain()
	if !ok {
		return ambiguous("the answer to the mutation cannot be read, or is longer than 1 MiB")
	}
	var a answer
	if json.Unmarshal(body, &a) != nil {
		return ambiguous("the answer to the mutation is not GraphQL's")
	}
	return w.mutation.judge(&a)
}

func ambiguous(reason string) providers.Judgement {
	return providers.Judgement{Outcome: classify.Ambiguous, Reason: reason}
}

// plain undoes gzip.
func (w *watcher) plain() ([]byte, bool) {
	coding := strings.ToLower(strings.Join(w.head.Header.Values("Content-Encoding"), ","))
	switch {
	case w.isLong:
		return nil, false
	case coding == "" || coding == "identity":
		return w.body, true
	case coding != "gzip" && coding != "x-gzip":
		return nil, false
	}
	z, err := gzip.NewReader(bytes.NewReader(w.body))
	if err != nil {
		return nil, false
	}
	body, err := io.ReadAll(io.LimitReader(z, judgedBytesMax+1))
	return body, err == nil && len(body) <= judgedBytesMax
}

// An answer is what a GraphQL server says (GraphQL October 2021, section 7.1).
type answer struct {
	Data   map[string]json.RawMessage `json:"data"`
	Errors []struct {
		Extensions struct {
			Code any `json:"code"`
		} `json:"extensions"`
	} `json:"errors"`
}

// refusedCodes say that a request was refused before any of it was carried out:
// they are Apollo Server's, which many others give as well.
var refusedCodes = []string{
	"GRAPHQL_PARSE_FAILED", "GRAPHQL_VALIDATION_FAILED", "BAD_USER_INPUT", "PERSISTED_QUERY_NOT_FOUND", "PERSISTED_QUERY_NOT_SUPPORTED",
	"OPERATION_RESOLUTION_FAILURE", "BAD_REQUEST",
}

// isRefused reports whether every error says so.
func (a *answer) isRefused() bool {
	for i := range a.Errors {
		code, _ := a.Errors[i].Extensions.Code.(string)
		if !slices.Contains(refusedCodes, code) {
			return false
		}
	}
	return len(a.Errors) > 0
}

// judge says what an answer shows about the root fields. They are applied where
// each of them has a value and there is no error, and rejected where the request
// was refused as a whole, or each payload lists errors and holds nothing else.
func (c *mutation) judge(a *answer) providers.Judgement {
	values, refused := 0, 0
	for _, f := range c.op.roots {
		value, there := a.Data[f.Alias]
		if !there || string(value) == "null" {
			continue
		}
		values++
		outcome := c.payload(f.SelectionSet, value)
		if outcome == classify.Ambiguous {
			return ambiguous("the mutation's payload lists errors, and something may have happened all the same")
		}
		if outcome == classify.Rejected {
			refused++
		}
	}
	switch {
	case values == 0 && a.isRefused():
		return providers.Judgement{Outcome: classify.Rejected}
	case values == 0 && len(a.Errors) > 0:
		return ambiguous("the answer has errors that do not prove that nothing happened")
	case values < len(c.op.roots):
		return ambiguous("the answer says nothing about some of the mutation's fields")
	case len(a.Errors) > 0:
		return ambiguous("the answer has data and errors as well")
	case refused == len(c.op.roots):
		return providers.Judgement{Outcome: classify.Rejected}
	case refused > 0:
		return ambiguous("some of the mutation's fields were refused, and others were not")
	}
	return providers.Judgement{Outcome: classify.Applied}
}

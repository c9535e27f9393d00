package graphql

import (
	"bytes"
	"context"
	"encoding/json"
	"slices"
	"strings"

	"counterfoil/classify"
	"counterfoil/providers"
)

// answerBytesMax bounds an answer that is judged.
const answerBytesMax = 1 << 20

// Watch judges the answers to mutations: errors come in a 200.
func (c *content) Watch(h providers.Head) providers.Watcher {
	if c.Class() == classify.Read || h.Status != 200 {
		return nil
	}
	return &watcher{content: c}
}

type watcher struct {
	content *content
	body    []byte
	tooLong bool
}

func (w *watcher) Holds() bool { return true }

func (w *watcher) Write(piece []byte) {
	if w.tooLong = w.tooLong || len(w.body)+len(piece) > answerBytesMax; !w.tooLong {
		w.body = append(w.body, piece...)
	}
}

// An answer is the response of the GraphQL specification (October 2021, section
// 7.1).
type answer struct {
	Data   map[string]json.RawMessage `json:"data"`
	Errors []struct {
		Message    string `json:"message"`
		Extensions struct {
			Code string `json:"code"`
		} `json:"extensions"`
	} `json:"errors"`
}

// beforeExecution are codes by which servers say that nothing ran.
var beforeExecution = []string{
	"GRAPHQL_PARSE_FAILED", "GRAPHQL_VALIDATION_FAILED", "BAD_USER_INPUT", "PERSISTED_QUERY_NOT_FOUND", "PERSISTED_QUERY_NOT_SUPPORTED",
	"OPERATION_RESOLUTION_FAILURE", "BAD_REQUEST", "UNAUTHENTICATED", "FORBIDDEN",
}

func (w *watcher) End(context.Context) providers.Judgement {
	if w.tooLong {
		return providers.Judgement{Outcome: classify.Ambiguous, Stuck: true, Reason: "the answer is longer than can be judged"}
	}
	var a answer
	d := json.NewDecoder(bytes.NewReader(w.body))
	if d.Decode(&a) != nil {
		return providers.Judgement{Outcome: classify.Ambiguous, Reason: "the answer is no GraphQL"}
	}
	made := 0
	for _, f := range w.content.roots {
		value := strings.TrimSpace(string(a.Data[f.Alias]))
		if value == "" || value == "null" || isRefusal([]byte(value)) {
			continue
		}
		made++
	}
	switch {
	case len(a.Errors) == 0 && made == len(w.content.roots):
		return providers.Judgement{Outcome: classify.Applied}
	case made > 0:
		return providers.Judgement{Outcome: classify.Ambiguous, Reason: "the mutation was done in part"}
	case len(a.Errors) == 0 && len(w.content.roots) == len(a.Data):
		return providers.Judgement{Outcome: classify.Rejected}
	case len(a.Errors) > 0 && !slices.ContainsFunc(codes(&a), func(code string) bool { return !slices.Contains(beforeExecution, code) }):
		return providers.Judgement{Outcome: classify.Rejected}
	}
	return providers.Judgement{Outcome: classify.Ambiguous, Reason: "the answer holds errors that do not say whether the mutation ran"}
}

func codes(a *answer) []string {
	list := make([]string, len(a.Errors))
	for i := range a.Errors {
		list[i] = a.Errors[i].Extensions.Code
	}
	return list
}

// isRefusal reports whether a payload says by userErrors that nothing was done,
// and holds nothing that was made.
func isRefusal(payload []byte) bool {
	var members map[string]json.RawMessage
	if json.Unmarshal(payload, &members) != nil {
		return false
	}
	refused := false
	for name, raw := range members {
		text := strings.TrimSpace(string(raw))
		switch {
		case strings.HasSuffix(strings.ToLower(name), "usererrors"):
			refused = refused || text != "[]" && text != "null"
		case strings.HasPrefix(text, "{") || strings.HasPrefix(text, "["):
			return false
		}
	}
	return refused
}

package mcp

import (
	"bytes"
	"context"
	"encoding/json"
	"mime"

	"counterfoil/classify"
	"counterfoil/providers"
	"counterfoil/providers/sse"
)

// responseBytesMax bounds a message of a server that is read.
const responseBytesMax = 8 << 20

// A collector takes the messages out of an answer: one in JSON, or the data of
// each event.
type collector struct {
	isStream bool
	parser   *sse.Parser
	whole    []byte
	isLong   bool
	each     func(message []byte)
}

func newCollector(h providers.Head) *collector {
	media, _, _ := mime.ParseMediaType(h.Header.Value("Content-Type"))
	c := &collector{isStream: media == "text/event-stream"}
	c.parser = sse.New(responseBytesMax, func(e sse.Event) {
		if c.each != nil {
			c.each(e.Data)
		}
	}, func() { c.isLong = true })
	return c
}

func (c *collector) write(piece []byte) {
	switch {
	case c.isStream:
		c.parser.Write(piece)
	case len(c.whole)+len(piece) > responseBytesMax:
		c.whole, c.isLong = nil, true
	case !c.isLong:
		c.whole = append(c.whole, piece...)
	}
}

func (c *collector) end() {
	if !c.isStream && c.each != nil && len(c.whole) > 0 {
		c.each(c.whole)
	}
}

// A response is what matters of a JSON-RPC response.
type response struct {
	ID     json.RawMessage `json:"id"`
	Method *string         `json:"method"`
	Result json.RawMessage `json:"result"`
	Error  *struct {
		Code int `json:"code"`
	} `json:"error"`
}

func (r *response) isResponse() bool { return r.Method == nil && (r.Result != nil || r.Error != nil) }

// Watch judges answers of success by their content; the adapter says what other
// statuses mean.
func (c *call) Watch(h providers.Head) providers.Watcher {
	if h.Status < 200 || h.Status > 299 {
		return nil
	}
	w := &callWatcher{collector: newCollector(h), token: token(c.session, c.message.id), isResumable: c.revision < statelessRevision}
	w.gate = sse.NewGate(w.parser, func() bool { return w.response != nil })
	w.each = func(text []byte) {
		var r response
		if json.Unmarshal(text, &r) == nil && r.isResponse() && sameID(r.ID, c.message.id) {
			w.response = &r
		}
	}
	return w
}

func sameID(a, b []byte) bool { return bytes.Equal(bytes.TrimSpace(a), bytes.TrimSpace(b)) }

type callWatcher struct {
	*collector
	gate     *sse.Gate
	token    string
	passed   []byte
	response *response
	// isResumable says that the client may come back for what a stream had left to
	// say, as the revisions with sessions have it.
	isResumable bool
}

// Holds is false: progress reaches the client as it comes.
func (w *callWatcher) Holds() bool { return false }

func (w *callWatcher) Write(piece []byte) {
	if w.isStream {
		w.gate.Write(piece)
		return
	}
	w.write(piece)
	w.passed = piece
}

// Take keeps back the event with the response: who has it has the answer.
func (w *callWatcher) Take() []byte {
	if w.isStream {
		return w.gate.Take()
	}
	passed := w.passed
	w.passed = nil
	return passed
}

// Rest is that event, and what follows it.
func (w *callWatcher) Rest() []byte { return w.gate.Rest() }

func (w *callWatcher) End(context.Context) providers.Judgement {
	w.end()
	switch r := w.response; {
	case r == nil && w.isLong:
		return providers.Judgement{Outcome: classify.Ambiguous, Reason: "a message of the server is too long to be read"}
	case r == nil && w.isStream && w.isResumable: // MCP 2025-11-25, transports: a stream may end before the response
		return providers.Judgement{
			Outcome: classify.Ambiguous, Awaits: w.token,
			Reason: "the server ended the stream before the response, for the client to come back for it",
		}
	case r == nil:
		return providers.Judgement{Outcome: classify.Ambiguous, Reason: "the answer ended without the response"}
	case r.Error != nil:
		return judgeError(r.Error.Code)
	default:
		return judgeResult(r.Result)
	}
}

// judgeError goes by the code: those of the protocol say that no tool ran, and
// what is wrong may be mended; the others may come out of the tool.
func judgeError(code int) providers.Judgement {
	switch code {
	case parseError, invalidRequest, methodNotFound, invalidParams, headerMismatch, missingFeature, unknownRevision:
		return providers.Judgement{Outcome: classify.NotApplied}
	}
	return providers.Judgement{Outcome: classify.Ambiguous, Reason: "the server reports an error that may have come out of the tool"}
}

// judgeResult takes a result as final, the tool's own errors (isError) too: it
// ran, and has said what it has to say. One that asks for input is not the end.
func judgeResult(raw json.RawMessage) providers.Judgement {
	var result struct {
		ResultType string `json:"resultType"`
	}
	if json.Unmarshal(raw, &result) == nil && result.ResultType == "input_required" {
		return providers.Judgement{Outcome: classify.NotApplied}
	}
	return providers.Judgement{Outcome: classify.Applied}
}

// token names a call whose response the client is to come back for: JSON-RPC ids
// are unique in their session.
func token(session string, id []byte) string { return session + "\x00" + string(bytes.TrimSpace(id)) }

// resuming is a GET: a stream of what the server says by itself, or of what a
// stream that was cut off had left to say.
type resuming struct {
	passing
	session string
}

// Watch listens for responses to earlier calls.
func (r resuming) Watch(h providers.Head) providers.Watcher {
	if h.Status != 200 {
		return nil
	}
	w := &resumeWatcher{collector: newCollector(h)}
	w.each = func(text []byte) {
		var m response
		if json.Unmarshal(text, &m) == nil && m.isResponse() {
			w.told = append(w.told, providers.Late{Token: token(r.session, m.ID), Body: bytes.Clone(text)})
		}
	}
	return w
}

type resumeWatcher struct {
	*collector
	told []providers.Late
}

// Holds is false: the stream passes.
func (w *resumeWatcher) Holds() bool { return false }

func (w *resumeWatcher) Write(piece []byte) {
	if w.isStream {
		w.write(piece)
	}
}

// Told returns the responses that have come since it was last asked.
func (w *resumeWatcher) Told() []providers.Late {
	told := w.told
	w.told = nil
	return told
}

// End judges nothing.
func (w *resumeWatcher) End(context.Context) providers.Judgement { return providers.Judgement{} }

// responseIn is the last response in an answer on record, nil if there is none.
func responseIn(a providers.Answer) []byte {
	var found []byte
	c := newCollector(providers.Head{Status: a.Status, Header: a.Header})
	c.each = func(text []byte) {
		var r response
		if json.Unmarshal(text, &r) == nil && r.isResponse() {
			found = bytes.TrimSpace(bytes.Clone(text))
		}
	}
	c.write(a.Body)
	c.end()
	return found
}

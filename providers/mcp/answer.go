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

// isFinal reports whether nothing is left in doubt by it, and nothing to come.
func (r *response) isFinal() bool {
	return r.Error == nil && judgeResult(r.Result).Outcome == classify.Applied
}

// Watch judges answers of success by their content; the adapter says what other
// statuses mean.
func (c *call) Watch(h providers.Head) providers.Watcher {
	if h.Status < 200 || h.Status > 299 {
		return nil
	}
	w := &callWatcher{collector: newCollector(h), call: c}
	w.gate = sse.NewGate(w.parser, func() bool { return w.response != nil })
	w.each = func(text []byte) {
		var r response
		if json.Unmarshal(text, &r) == nil && r.isResponse() && w.isMine(&r) {
			w.response = &r
		}
	}
	return w
}

type callWatcher struct {
	*collector
	call     *call
	gate     *sse.Gate
	passed   []byte
	response *response
}

// isMine reports whether a response is this call's. One that is all of the answer
// is, too, where it says that the request could not be read: its id is null then
// (JSON-RPC 2.0, section 5).
func (w *callWatcher) isMine(r *response) bool {
	isNull := len(r.ID) == 0 || string(r.ID) == "null"
	return spelt(r.ID) == spelt(w.call.message.id) || !w.isStream && r.Error != nil && isNull
}

// awaits is under what name the response may come yet, "" if the stream should not
// have ended: in the revisions with sessions a client comes back for what it had
// left to say.
func (w *callWatcher) awaits() string {
	at := streamPoint{w.call.session, w.parser.LastID()}
	switch {
	case !w.isStream || w.call.revision >= statelessRevision:
		return ""
	case !w.call.streams.follow(at, at):
		return nowhere
	}
	return token(at, w.call.message.id)
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
	case r == nil:
		return w.unanswered()
	case r.Error != nil:
		return judgeError(r.Error.Code)
	default:
		return judgeResult(r.Result)
	}
}

// unanswered is no fault of the server's where the client can come back: a stream
// may end before the response (MCP 2025-11-25, transports).
func (w *callWatcher) unanswered() providers.Judgement {
	j := providers.Judgement{Outcome: classify.Ambiguous, Reason: "the answer ended without the response"}
	if j.Awaits = w.awaits(); j.Awaits != "" {
		j.Reason = "the server ended the stream before the response, for the client to come back for it"
	}
	return j
}

// judgeError goes by the code: those of the protocol say that no tool ran, and
// what is wrong may be mended; the others may come out of the tool.
func judgeError(code int) providers.Judgement {
	switch code {
	case parseError, invalidRequest, methodNotFound, invalidParams, headerMismatch, missingFeature, unknownRevision, elicitFirst:
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

// resuming is a GET: a stream of what the server says by itself, or of what a
// stream that was cut off had left to say.
type resuming struct {
	passing
	at      streamPoint
	streams *streams
}

// Watch listens for the response to the call whose stream this goes on with.
func (r resuming) Watch(h providers.Head) providers.Watcher {
	from, ok := r.streams.origin(r.at)
	w := &resumeWatcher{collector: newCollector(h), resumed: r, from: from}
	if h.Status != 200 || !ok || !w.isStream {
		return nil
	}
	w.each = func(text []byte) {
		var m response
		if json.Unmarshal(text, &m) == nil && m.isResponse() && m.isFinal() {
			w.told = append(w.told, providers.Late{Token: token(from, m.ID), Body: bytes.Clone(text)})
		}
	}
	return w
}

type resumeWatcher struct {
	*collector
	resumed resuming
	from    streamPoint
	told    []providers.Late
}

// Holds is false: the stream passes.
func (w *resumeWatcher) Holds() bool { return false }

// Write follows the stream: the client may come back more than once.
func (w *resumeWatcher) Write(piece []byte) {
	w.write(piece)
	if now := (streamPoint{w.resumed.at.session, w.parser.LastID()}); now != w.resumed.at {
		w.resumed.streams.follow(now, w.from)
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

package llm

import (
	"bytes"
	"compress/gzip"
	"compress/zlib"
	"context"
	"io"
	"mime"
	"strings"

	"counterfoil/classify"
	"counterfoil/providers"
)

const (
	// wholeBytesMax bounds an answer that has to be held to be read: one that is
	// no stream, or is compressed. What is longer is kept all the same.
	wholeBytesMax = 4 << 20
	// inflatedBytesMax bounds what such an answer may grow to.
	inflatedBytesMax = 16 << 20
)

// A watcher reads an answer as it comes.
type watcher struct {
	class    classify.Class
	reader   reader
	isStream bool
	stream   *stream
	// coding is the content coding that is on, "" for none.
	coding string
	held   []byte
	isLong bool
	// passed is the last piece, where nothing of it is kept back.
	passed []byte
}

// newWatcher returns nil for what is neither JSON nor an event stream.
func newWatcher(class classify.Class, r reader, h providers.Head) providers.Watcher {
	media, _, err := mime.ParseMediaType(h.Header.Value("Content-Type"))
	if err != nil || media != "application/json" && media != "text/event-stream" {
		return nil
	}
	w := &watcher{class: class, reader: r, isStream: media == "text/event-stream"}
	w.coding = strings.ToLower(strings.Join(h.Header.Values("Content-Encoding"), ","))
	if w.coding == "identity" {
		w.coding = ""
	}
	if w.isStream {
		w.stream = newStream(r)
	}
	return w
}

// Holds is false: a client sees its tokens as they come.
func (w *watcher) Holds() bool { return false }

// Take keeps back the last event of a stream.
func (w *watcher) Take() []byte {
	if w.isStream && w.coding == "" {
		return w.stream.gate.Take()
	}
	passed := w.passed
	w.passed = nil
	return passed
}

// Rest is that event, and what follows it.
func (w *watcher) Rest() []byte {
	if w.isStream && w.coding == "" {
		return w.stream.gate.Rest()
	}
	return nil
}

// Write takes the next piece.
func (w *watcher) Write(piece []byte) {
	w.passed = piece
	switch {
	case w.isStream && w.coding == "":
		w.stream.write(piece)
	case len(w.held)+len(piece) > wholeBytesMax:
		w.held, w.isLong = nil, true
	case !w.isLong:
		w.held = append(w.held, piece...)
	}
}

// End judges the answer. A status of success says that the model was asked, not
// that it answered to the end.
func (w *watcher) End(context.Context) providers.Judgement {
	if w.isLong {
		return providers.Judgement{Reason: "the model's answer is longer than 4 MiB: its tool calls were not read"}
	}
	if j, ok := w.inflate(); !ok {
		return j
	}
	if !w.isStream && !w.reader.whole(w.held) {
		return w.broken("the model's answer is not JSON")
	}
	return w.judge(w.reader.account())
}

func (w *watcher) judge(a *account) providers.Judgement {
	switch {
	case a.isFailed && w.class == classify.Decision:
		return providers.Judgement{Outcome: classify.NotApplied, Reason: "the model's provider reports an error within its answer"}
	case !a.isEnded && a.isFailed:
		return w.broken("the model's provider reports an error within its answer")
	case !a.isEnded && w.stream != nil && w.stream.hasGap:
		return providers.Judgement{Reason: "the model's answer has an event that is too long to be read"}
	case !a.isEnded:
		return w.broken("the model's answer ended without its last event")
	}
	j := providers.Judgement{Decision: a.decision()}
	if a.gap != "" {
		j.Reason = "the tool calls of the model's answer are not known: " + a.gap
	}
	return j
}

func (w *watcher) broken(reason string) providers.Judgement {
	return providers.Judgement{Outcome: classify.Ambiguous, Reason: reason}
}

// inflate undoes the content coding of what is held; false where that is the end
// of judging.
func (w *watcher) inflate() (providers.Judgement, bool) {
	open := decoders[w.coding]
	switch {
	case w.coding == "":
		return providers.Judgement{}, true
	case open == nil:
		return providers.Judgement{Reason: "the model's answer bears a content coding that is not known: its tool calls were not read"}, false
	}
	plain, err := inflate(w.held, open)
	w.held = plain
	switch {
	case err != nil:
		return w.broken("the content coding of the model's answer is damaged"), false
	case len(plain) > inflatedBytesMax:
		return providers.Judgement{Reason: "the model's answer is longer than 16 MiB: its tool calls were not read"}, false
	case w.isStream:
		w.stream.write(plain)
	}
	return providers.Judgement{}, true
}

type decoder = func(io.Reader) (io.ReadCloser, error)

// decoders undo a content coding.
var decoders = map[string]decoder{
	"gzip":    func(r io.Reader) (io.ReadCloser, error) { return gzip.NewReader(r) },
	"x-gzip":  func(r io.Reader) (io.ReadCloser, error) { return gzip.NewReader(r) },
	"deflate": zlib.NewReader,
}

// inflate returns one byte more than inflatedBytesMax of what is longer.
func inflate(body []byte, open decoder) ([]byte, error) {
	r, err := open(bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	return io.ReadAll(io.LimitReader(r, inflatedBytesMax+1))
}

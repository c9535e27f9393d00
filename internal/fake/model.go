package fake

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"time"
	"unicode/utf8"
)

// questionBytesMax bounds what a model is asked.
const questionBytesMax = 4 << 20

// A Model answers as OpenAI's, Anthropic's and Gemini's do, streamed or whole.
// Each time it is asked it says something else, other words and other ids of tool
// calls, even if the question is the same.
type Model struct {
	// Decide says what a model would. It is called at once by all who ask.
	Decide func(Question) Said

	asked atomic.Int64
}

// A Question is what a model is asked, in whichever API.
type Question struct {
	// API is chat, responses, messages or generateContent.
	API string
	// Nth counts all questions from 1.
	Nth int64
	// IsStream: the answer is to be a stream.
	IsStream bool
	// Task is the first text of the user's.
	Task string
	// Steps is how often the model has answered in this conversation.
	Steps int
	// Results are those of tools, in their order.
	Results []Result
}

// A Result is what a tool answered to the call of that id.
type Result struct{ Call, Text string }

// Said is what a model says.
type Said struct {
	Text string
	Uses []Use
	// Fault spoils the answer.
	Fault Fault
}

// A Use is one tool call. Args are made JSON.
type Use struct {
	Tool string
	Args any
}

// A Fault is what may go wrong with an answer.
type Fault uint8

const (
	// Cut breaks the connection off in the middle of the answer.
	Cut Fault = iota + 1
	// Short ends a stream cleanly, but before its last event.
	Short
	// Overloaded sends an error event in the middle of a stream.
	Overloaded
	// Unavailable answers 500.
	Unavailable
)

// A modelWire is how an API writes an answer.
type modelWire struct {
	// answer is the whole one.
	answer any
	// events are those of a stream; the last one ends it.
	events []modelEvent
	// failure is the event that reports an error.
	failure modelEvent
}

// A modelEvent without a name has data alone.
type modelEvent struct {
	name string
	data any
}

// Serve answers on a free port of loopback until ctx ends. It says its URL once
// it can be asked.
func (m *Model) Serve(ctx context.Context, ready func(url string)) error {
	var lc net.ListenConfig
	listener, err := lc.Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return fmt.Errorf("listening as a model: %w", err)
	}
	server := &http.Server{Handler: m, ReadHeaderTimeout: 30 * time.Second}
	defer context.AfterFunc(ctx, func() { _ = server.Close() })()
	ready("http://" + listener.Addr().String())
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serving as a model: %w", err)
	}
	return nil
}

// ServeHTTP implements http.Handler.
func (m *Model) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	write := m.modelAPI(r.Method, r.URL.Path)
	if write == nil {
		http.Error(w, `{"error":{"message":"there is no such thing here"}}`, http.StatusNotFound)
		return
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, questionBytesMax))
	if err != nil {
		return
	}
	q, err := write.read(body)
	if err != nil {
		http.Error(w, `{"error":{"message":"the body is not JSON"}}`, http.StatusBadRequest)
		return
	}
	q.IsStream = q.IsStream || strings.HasSuffix(r.URL.Path, ":streamGenerateContent")
	q.Nth = m.asked.Add(1)
	said := m.Decide(q)
	sendSaid(w, q, said, write.say(q.Nth, said))
}

// A modelAPI is one API: how it asks, and how it says.
type modelAPI struct {
	read func(body []byte) (Question, error)
	say  func(nth int64, s Said) modelWire
}

func (m *Model) modelAPI(method, path string) *modelAPI {
	switch {
	case method != http.MethodPost:
		return nil
	case strings.HasSuffix(path, "/chat/completions"):
		return &modelAPI{readChat, sayChat}
	case strings.HasSuffix(path, "/responses"):
		return &modelAPI{readResponses, sayResponses}
	case strings.HasSuffix(path, "/messages"):
		return &modelAPI{readMessages, sayMessages}
	case strings.HasSuffix(path, ":generateContent"), strings.HasSuffix(path, ":streamGenerateContent"):
		return &modelAPI{readGemini, sayGemini}
	}
	return nil
}

func sendSaid(w http.ResponseWriter, q Question, s Said, answer modelWire) {
	switch {
	case s.Fault == Unavailable:
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusInternalServerError)
		_, _ = io.WriteString(w, `{"error":{"message":"the server had an error"}}`)
	case q.IsStream:
		sendSaidStream(w, s.Fault, answer)
	default:
		sendSaidWhole(w, s.Fault, answer.answer)
	}
}

func sendSaidWhole(w http.ResponseWriter, f Fault, answer any) {
	text := saidJSON(answer)
	w.Header().Set("Content-Type", "application/json")
	if f == Cut {
		w.Header().Set("Content-Length", fmt.Sprint(len(text)))
		text = text[:len(text)/2]
	}
	_, _ = w.Write(text)
	if f == Cut {
		cutSaid(w)
	}
}

func sendSaidStream(w http.ResponseWriter, f Fault, answer modelWire) {
	w.Header().Set("Content-Type", "text/event-stream")
	events := answer.events
	switch f {
	case Cut:
		events = events[:len(events)/2]
	case Short:
		events = events[:len(events)-1]
	case Overloaded:
		events = append(events[:len(events)/2:len(events)/2], answer.failure)
	case Unavailable: // it has no stream
	}
	for _, e := range events {
		if e.name != "" {
			_, _ = fmt.Fprintf(w, "event: %s\n", e.name)
		}
		_, _ = fmt.Fprintf(w, "data: %s\n\n", saidText(e.data))
		_ = http.NewResponseController(w).Flush()
	}
	if f == Cut {
		cutSaid(w)
	}
}

// cutSaid closes the connection under an answer that is not done.
func cutSaid(w http.ResponseWriter) {
	_ = http.NewResponseController(w).Flush()
	if conn, _, err := http.NewResponseController(w).Hijack(); err == nil {
		_ = conn.Close()
	}
}

func saidText(data any) []byte {
	if text, isText := data.(string); isText {
		return []byte(text)
	}
	return saidJSON(data)
}

// saidJSON is for what is made of texts, numbers, lists and maps.
func saidJSON(v any) []byte {
	text, err := json.Marshal(v)
	if err != nil {
		return []byte(`{"error":{"message":"the stand-in cannot write its answer"}}`)
	}
	return text
}

// saidHalves are the two pieces in which a stream says a text.
func saidHalves(text string) []string {
	at := len(text) / 2
	for at > 0 && !utf8.RuneStart(text[at]) {
		at--
	}
	return []string{text[:at], text[at:]}
}

// saidID is the id of the nth answer's call at a place.
func saidID(prefix string, nth int64, place int) string {
	return fmt.Sprintf("%s_%d_%d", prefix, nth, place)
}

// plainText is the text of a content: a string, or a list of parts that have one.
func plainText(content json.RawMessage) string {
	var text string
	if json.Unmarshal(content, &text) == nil {
		return text
	}
	var parts []struct {
		Text    string          `json:"text"`
		Content json.RawMessage `json:"content"`
	}
	if json.Unmarshal(content, &parts) != nil {
		return ""
	}
	var all strings.Builder
	for _, p := range parts {
		all.WriteString(cmp.Or(p.Text, plainText(p.Content)))
	}
	return all.String()
}

type modelObject = map[string]any

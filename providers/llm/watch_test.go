package llm

import (
	"bytes"
	"compress/gzip"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"counterfoil/classify"
	"counterfoil/providers"
)

// requests are one of each API that has tool calls.
var requests = map[string][2]string{
	"chat":      {"/v1/chat/completions", chatBody},
	"responses": {"/v1/responses", `{"model":"m","input":"hi"}`},
	"messages":  {"/v1/messages", `{"model":"m","max_tokens":9,` + turns + `}`},
	"gemini":    {"/v1beta/models/g:streamGenerateContent", `{"contents":[]}`},
}

func watch(t testing.TB, api, media, coding string) providers.Watcher {
	t.Helper()
	q := requests[api]
	h := classify.Header{}.Set("Content-Type", media)
	if coding != "" {
		h = h.Set("Content-Encoding", coding)
	}
	w := read(t, "", q[0], q[1]).(providers.Watchable).Watch(providers.Head{Status: 200, Header: h, Length: -1})
	if w == nil {
		t.Fatalf("%s %s: nobody watches", api, media)
	}
	if w.Holds() {
		t.Errorf("%s %s: the client has to wait", api, media)
	}
	return w
}

func judge(t testing.TB, api, media string, pieces ...string) providers.Judgement {
	t.Helper()
	w := watch(t, api, media, "")
	for _, p := range pieces {
		w.Write([]byte(p))
	}
	return w.End(t.Context())
}

func recorded(t testing.TB, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

const (
	asJSON   = "application/json; charset=utf-8"
	asStream = "text/event-stream"
)

// told is what every recorded answer says.
var told = providers.Decision{
	Calls: []providers.ToolCall{
		{ID: "call_a", Tool: "refund", Args: []byte(`{"order":7}`)},
		{ID: "call_b", Tool: "mail", Args: []byte(`{}`)},
	},
	Usage: providers.Usage{Input: 20, Output: 9, CachedInput: 4, Reasoning: 2},
}

func wantTold(t *testing.T, how string, j providers.Judgement) {
	t.Helper()
	if j.Outcome != 0 || j.Decision == nil || !reflect.DeepEqual(*j.Decision, told) {
		t.Errorf("%s: got %+v %+v, want %+v", how, j, j.Decision, told)
	}
}

// Streamed or whole, in one piece or byte by byte, compressed or not: the same
// decision.
func TestDecisions(t *testing.T) {
	for _, tt := range []struct{ api, file, media string }{
		{"chat", "chat.sse", asStream}, {"chat", "chat.json", asJSON},
		{"responses", "responses.sse", asStream}, {"responses", "responses.json", asJSON},
		{"messages", "messages.sse", asStream}, {"messages", "messages.json", asJSON},
		{"gemini", "gemini.sse", asStream}, {"gemini", "gemini.json", asJSON}, {"gemini", "gemini-list.json", asJSON},
	} {
		text := recorded(t, tt.file)
		wantTold(t, tt.file, judge(t, tt.api, tt.media, text))
		wantTold(t, tt.file+" byte by byte", judge(t, tt.api, tt.media, strings.Split(text, "")...))
		wantTold(t, tt.file+" with CRLF", judge(t, tt.api, tt.media, strings.Split(strings.ReplaceAll(text, "\n", "\r\n"), "")...))

		w := watch(t, tt.api, tt.media, "gzip")
		w.Write(compress(t, text))
		wantTold(t, tt.file+" compressed", w.End(t.Context()))
	}
}

func compress(t *testing.T, text string) []byte {
	t.Helper()
	var buf bytes.Buffer
	z := gzip.NewWriter(&buf)
	if _, err := z.Write([]byte(text)); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return buf.Bytes()
}

// A stream that is cut anywhere before its last event is never a receipt, even
// if the connection ended cleanly.
func TestCutStreams(t *testing.T) {
	for api := range requests {
		text := recorded(t, api+".sse")
		for at := range len(text) - 1 {
			if j := judge(t, api, asStream, text[:at]); j.Outcome != classify.Ambiguous || j.Reason == "" || j.Decision != nil {
				t.Fatalf("%s cut after %d of %d bytes: got %+v", api, at, len(text), j)
			}
		}
		compressed := compress(t, text)
		w := watch(t, api, asStream, "gzip")
		w.Write(compressed[:len(compressed)-9])
		if j := w.End(t.Context()); j.Outcome != classify.Ambiguous {
			t.Errorf("%s compressed and cut: got %+v", api, j)
		}
	}
}

func TestCutJSON(t *testing.T) {
	for _, file := range []string{"chat.json", "responses.json", "messages.json", "gemini.json", "gemini-list.json"} {
		api, _, _ := strings.Cut(strings.TrimSuffix(file, ".json"), "-")
		text := strings.TrimSpace(recorded(t, file))
		for at := range len(text) {
			if j := judge(t, api, asJSON, text[:at]); j.Outcome != classify.Ambiguous || j.Decision != nil {
				t.Fatalf("%s cut after %d bytes: got %+v", file, at, j)
			}
		}
	}
}

// An error within an answer of status 200 is passed on and not kept: asking
// again asks the model.
func TestErrorsInside(t *testing.T) {
	start := func(api string) string { return strings.SplitAfter(recorded(t, api+".sse"), "\n\n")[0] }
	for _, tt := range []struct{ api, media, text string }{
		{"chat", asStream, start("chat") + "data: {\"error\":{\"message\":\"overloaded\"}}\n\n"},
		{"chat", asStream, start("chat") + "event: error\ndata: {\"message\":\"overloaded\"}\n\ndata: [DONE]\n\n"},
		{"chat", asJSON, `{"error":{"message":"overloaded","code":502}}`},
		{"responses", asStream, start("responses") + "event: error\ndata: {\"type\":\"error\",\"code\":\"server_error\"}\n\n"},
		{"responses", asStream, start("responses") + "event: response.failed\ndata: {\"type\":\"response.failed\",\"response\":{\"status\":\"failed\"}}\n\n"},
		{"responses", asJSON, `{"id":"resp_1","status":"failed","error":{"code":"server_error"},"output":[]}`},
		{"messages", asStream, start("messages") + "event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"overloaded_error\"}}\n\n"},
		{"messages", asJSON, `{"type":"error","error":{"type":"overloaded_error"}}`},
		{"gemini", asStream, start("gemini") + "data: {\"error\":{\"code\":503}}\n\n"},
		{"gemini", asJSON, `[{"error":{"code":503}}]`},
	} {
		if j := judge(t, tt.api, tt.media, tt.text); j.Outcome != classify.NotApplied || j.Reason == "" || j.Decision != nil {
			t.Errorf("%s %s: got %+v", tt.api, tt.text, j)
		}
	}
}

// A request by which the provider acts is judged as strictly as any effect.
func TestEffectsKeepWhatFailed(t *testing.T) {
	head := providers.Head{Status: 200, Header: classify.Header{}.Set("Content-Type", asStream), Length: -1}
	for text, want := range map[string]classify.Outcome{
		"data: {\"type\":\"response.failed\",\"response\":{\"status\":\"failed\"}}\n\n": 0,
		"data: {\"type\":\"error\"}\n\n":                                                classify.Ambiguous,
		"data: {\"type\":\"response.created\"}\n\n":                                     classify.Ambiguous,
	} {
		c := read(t, "", "/v1/responses", `{"model":"m","input":"hi","tools":[{"type":"mcp"}]}`)
		w := c.(providers.Watchable).Watch(head)
		w.Write([]byte(text))
		if j := w.End(t.Context()); j.Outcome != want {
			t.Errorf("%s: got %+v, want %s", text, j, want)
		}
	}
}

func TestOddAnswers(t *testing.T) {
	for _, tt := range []struct {
		name, api, media, text string
		want                   []providers.ToolCall
	}{
		{"a legacy function call", "chat", asStream, `data: {"choices":[{"delta":{"function_call":{"name":"f","arguments":"{"}}}]}` + "\n\n" +
			`data: {"choices":[{"delta":{"function_call":{"arguments":"}"}}}]}` + "\n\ndata: [DONE]\n\n", []providers.ToolCall{{ID: "call-1", Tool: "f", Args: []byte("{}")}}},
		{"arguments that are no JSON", "chat", asJSON, `{"choices":[{"message":{"tool_calls":[{"id":"a","function":{"name":"f","arguments":"{\"x\":"}}]}}]}`, []providers.ToolCall{{ID: "a", Tool: "f"}}},
		{"a custom tool", "chat", asJSON, `{"choices":[{"message":{"tool_calls":[{"id":"a","type":"custom","custom":{"name":"f","input":"say \"hi\""}}]}}]}`, []providers.ToolCall{{ID: "a", Tool: "f", Args: []byte(`"say \"hi\""`)}}},
		{"index 0 for all", "chat", asStream, `data: {"choices":[{"delta":{"tool_calls":[{"index":0,"id":"a","function":{"name":"f","arguments":"{}"}}]}}]}` + "\n\n" +
			`data: {"choices":[{"delta":{"tool_calls":[{"index":0,"id":"b","function":{"name":"g","arguments":"{}"}}]}}]}` + "\n\ndata: [DONE]\n\n",
			[]providers.ToolCall{{ID: "a", Tool: "f", Args: []byte("{}")}, {ID: "b", Tool: "g", Args: []byte("{}")}}},
		{"two choices", "chat", asJSON, `{"choices":[{"index":0,"message":{"tool_calls":[{"id":"a","function":{"name":"f","arguments":"{}"}}]}},{"index":1,"message":{"tool_calls":[{"id":"b","function":{"name":"f","arguments":"{}"}}]}}]}`,
			[]providers.ToolCall{{ID: "a", Tool: "f", Args: []byte("{}")}, {ID: "b", Tool: "f", Args: []byte("{}")}}},
		{"a computer", "responses", asJSON, `{"status":"completed","output":[{"type":"computer_call","call_id":"a","action":{"type":"click"}},{"type":"custom_tool_call","call_id":"b","name":"f","input":"x"},{"type":"mcp_call","id":"m"}]}`,
			[]providers.ToolCall{{ID: "a", Tool: "computer", Args: []byte(`{"type":"click"}`)}, {ID: "b", Tool: "f", Args: []byte(`"x"`)}}},
		{"items and no output at the end", "responses", asStream, `data: {"type":"response.output_item.done","item":{"type":"function_call","call_id":"a","name":"f","arguments":"{}"}}` + "\n\n" +
			`data: {"type":"response.incomplete","response":{"status":"incomplete"}}` + "\n\n", []providers.ToolCall{{ID: "a", Tool: "f", Args: []byte("{}")}}},
		{"calls without ids", "gemini", asJSON, `{"candidates":[{"content":{"parts":[{"functionCall":{"name":"f","args":{}}},{"functionCall":{"name":"f","args":{}}}]}}]}`,
			[]providers.ToolCall{{ID: "call-1", Tool: "f", Args: []byte("{}")}, {ID: "call-2", Tool: "f", Args: []byte("{}")}}},
		{"a blocked prompt", "gemini", asStream, `data: {"promptFeedback":{"blockReason":"SAFETY"}}` + "\n\n", nil},
		{"usage after the end", "gemini", asStream, `data: {"candidates":[{"finishReason":"STOP"}]}` + "\n\n" + `data: {"candidates":[{}],"usageMetadata":{}}` + "\n\n", nil},
		{"no calls", "messages", asJSON, `{"type":"message","content":[{"type":"text","text":"hi"}]}`, nil},
	} {
		j := judge(t, tt.api, tt.media, tt.text)
		if j.Outcome != 0 || j.Decision == nil || !reflect.DeepEqual(j.Decision.Calls, tt.want) {
			t.Errorf("%s: got %+v %+v, want %s", tt.name, j, j.Decision, tt.want)
		}
	}
}

// What is too much is kept as an answer, and its calls are not known: half a
// plan would refuse the other half.
func TestBounds(t *testing.T) {
	piece := `data: {"choices":[{"delta":{"tool_calls":[{"index":0,"id":"a","function":{"name":"f","arguments":"` + strings.Repeat("x", 64<<10) + `"}}]}}]}` + "\n\n"
	pieces := strings.Split(strings.Repeat(piece+"\x00", 17), "\x00")
	calls := `data: {"choices":[{"delta":{"tool_calls":[` + strings.TrimSuffix(strings.Repeat(`{"function":{}},`, 10_000), ",") + `]}}]}` + "\n\n"
	huge := "data: {\"choices\":[{\"delta\":{\"content\":\"" + strings.Repeat("x", eventBytesMax) + "\"}}]}\n\n"
	done := "data: [DONE]\n\n"
	for name, j := range map[string]providers.Judgement{
		"arguments":               judge(t, "chat", asStream, append(pieces, done)...),
		"many calls":              judge(t, "chat", asStream, calls, done),
		"no JSON":                 judge(t, "chat", asStream, "data: {\n\n", done),
		"a long JSON":             judge(t, "chat", asJSON, strings.Repeat(" ", wholeBytesMax), "{}"),
		"a long event of lines":   judge(t, "chat", asStream, "data: {\"choices\":[\n", "data: "+strings.Repeat(" ", eventBytesMax)+"\n", "data: ]}\n\n", done),
		"a long event and no end": judge(t, "responses", asStream, huge),
		"a long event":            judge(t, "chat", asStream, huge, done),
		"arguments in part":       judge(t, "gemini", asJSON, `{"candidates":[{"content":{"parts":[{"functionCall":{"name":"f","willContinue":true}}]}}]}`),
		"an unknown coding":       unknownCoding(t),
		"a bomb":                  bomb(t),
	} {
		if j.Outcome != 0 || j.Decision != nil || j.Reason == "" {
			t.Errorf("%s: got %+v %+v", name, j, j.Decision)
		}
	}
}

func unknownCoding(t *testing.T) providers.Judgement {
	t.Helper()
	w := watch(t, "chat", asStream, "br")
	w.Write([]byte("anything"))
	return w.End(t.Context())
}

func bomb(t *testing.T) providers.Judgement {
	t.Helper()
	w := watch(t, "chat", asJSON, "gzip")
	w.Write(compress(t, strings.Repeat(" ", inflatedBytesMax+1)))
	return w.End(t.Context())
}

// Other statuses and media types say nothing of a model.
func TestNobodyWatches(t *testing.T) {
	chat := read(t, "", "/v1/chat/completions", chatBody).(providers.Watchable)
	count := read(t, "", "/v1/messages/count_tokens", chatBody).(providers.Watchable)
	jsonHead := providers.Head{Status: 200, Header: classify.Header{}.Set("Content-Type", asJSON)}
	if count.Watch(jsonHead) != nil {
		t.Error("somebody watches a read")
	}
	for _, h := range []providers.Head{
		{Status: 500, Header: jsonHead.Header}, {Status: 429, Header: jsonHead.Header}, {Status: 200},
		{Status: 200, Header: classify.Header{}.Set("Content-Type", "text/html")},
	} {
		if chat.Watch(h) != nil {
			t.Errorf("somebody watches %+v", h)
		}
	}
}

// Whatever a server says, reading it ends without a panic, and a decision is
// never half of one.
func FuzzWatch(f *testing.F) {
	for api := range requests {
		f.Add(api, true, []byte(recorded(f, api+".sse")))
		f.Add(api, false, []byte(recorded(f, api+".json")))
	}
	f.Fuzz(func(t *testing.T, api string, isStream bool, text []byte) {
		if _, isKnown := requests[api]; !isKnown {
			return
		}
		media := asJSON
		if isStream {
			media = asStream
		}
		one := judge(t, api, media, string(text))
		two := judge(t, api, media, strings.Split(string(text), "")...)
		if !reflect.DeepEqual(one, two) {
			t.Errorf("in one piece %+v, in many %+v", one, two)
		}
		if one.Outcome != 0 && one.Decision != nil {
			t.Errorf("a decision of %s", one.Outcome)
		}
	})
}

package mcp

import (
	"context"
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"counterfoil/classify"
	"counterfoil/providers"

	"pgregory.net/rapid"
)

func TestIdentity(t *testing.T) {
	for _, tt := range []struct {
		meta string
		want providers.Identity
		ok   bool
	}{
		{`{}`, providers.Identity{}, true},
		{`null`, providers.Identity{}, true},
		{`{"progressToken":1,"counterfoil/run":"r","counterfoil/turn":"2","counterfoil/call":"\u00fc"}`, providers.Identity{Run: "r", Turn: "2", Call: "ü"}, true},
		{`{"counterfoil/call":"c"}`, providers.Identity{Call: "c"}, true},
		{`{"Counterfoil/call":"c"}`, providers.Identity{}, true},
		{`{"counterfoil/call":"` + strings.Repeat("x", 256) + `"}`, providers.Identity{Call: strings.Repeat("x", 256)}, true},
		{`{"counterfoil/call":"` + strings.Repeat("x", 257) + `"}`, providers.Identity{}, false},
		{`{"counterfoil/call":""}`, providers.Identity{}, false},
		{`{"counterfoil/call":7}`, providers.Identity{}, false},
		{`{"counterfoil/call":null}`, providers.Identity{}, false},
		{`{"counterfoil/call":"\ud800"}`, providers.Identity{}, false},
		{`{"counterfoil/call":"a","counterfoil/call":"b"}`, providers.Identity{}, false},
	} {
		c := readCall(t, New(providers.Settings{}), posted(toolCall("1", `{"name":"a","_meta":`+tt.meta+`}`)))
		got, err := c.Identity()
		if (err == nil) != tt.ok || err == nil && got != tt.want {
			t.Errorf("%.80s: %+v, %v", tt.meta, got, err)
		}
	}
}

// Tool and arguments are what a call is compared by, and nothing else is.
func TestPrint(t *testing.T) {
	fingerprint := func(body string) classify.Fingerprint {
		r := posted(body)
		return classify.Print(readCall(t, New(providers.Settings{}), r).Print(r), nil)
	}
	first := fingerprint(toolCall("1", `{"name":"a","arguments":{"x":1,"y":{"z":[2]}},"_meta":{"progressToken":1}}`))
	for _, same := range []string{
		toolCall(`"2"`, `{"_meta":{"progressToken":"t","counterfoil/call":"c"},"arguments":{"y":{"z":[2.0]},"x":1},"name":"\u0061"}`),
		toolCall("3", `{"name":"a","arguments":{"x":1,"y":{"z":[2]}},"inputResponses":{"q":1},"requestState":"s"}`),
	} {
		if fingerprint(same) != first {
			t.Errorf("%s is another call", same)
		}
	}
	for _, other := range []string{
		toolCall("1", `{"name":"b","arguments":{"x":1,"y":{"z":[2]}}}`), toolCall("1", `{"name":"a","arguments":{"x":1,"y":{"z":[3]}}}`),
		toolCall("1", `{"name":"a","arguments":{"x":1}}`), toolCall("1", `{"name":"a"}`),
	} {
		if fingerprint(other) == first {
			t.Errorf("%s is the same call", other)
		}
	}
	if fingerprint(toolCall("1", `{"name":"a"}`)) != fingerprint(toolCall("1", `{"name":"a","arguments":{}}`)) {
		t.Error("no arguments are others than none")
	}
}

// A replay is one message with the id of the request that asks, in the form that
// its client takes.
func TestReply(t *testing.T) {
	const response = `{"jsonrpc":"2.0","id":1,"result":{"id":9,"content":[]}}`
	whole := providers.Answer{Status: 200, Header: classify.Header{{Name: "Content-Type", Value: "application/json"}, {Name: "ETag", Value: "x"}, {Name: "Mcp-Session-Id", Value: "s"}}, Body: []byte(response)}
	stream := providers.Answer{Status: 200, Header: classify.Header{{Name: "Content-Type", Value: "text/event-stream"}}, Body: []byte(
		"id: 1\ndata: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/progress\"}\n\ndata: {\"jsonrpc\":\"2.0\",\"id\":5,\"method\":\"elicitation/create\"}\n\ndata: {\"jsonrpc\":\"2.0\",\"id\":1,\ndata: \"result\":{\"id\":9,\"content\":[]}}\n\n")}
	for accept, media := range map[string]string{
		"application/json, text/event-stream": "application/json", "*/*": "application/json", "": "application/json", "text/event-stream": "text/event-stream",
	} {
		for _, id := range []string{"12", `"12"`, `"ü\n"`} {
			for what, stored := range map[string]providers.Answer{"a whole answer": whole, "a stream": stream} {
				r := posted(toolCall(id, `{"name":"a"}`))
				r.Header = r.Header.Set("Accept", accept)
				got, err := readCall(t, New(providers.Settings{}), r).Reply(stored)
				if err != nil || got.Status != 200 || got.Header.Value("Content-Type") != media || got.Header.Has("ETag") {
					t.Fatalf("%s for %q: %v, %d %v", what, accept, err, got.Status, got.Header)
				}
				if text := messageIn(t, got); !sameJSON(text, strings.Replace(response, `"id":1`, `"id":`+id, 1)) {
					t.Errorf("%s for %q, id %s: %s", what, accept, id, text)
				}
			}
		}
	}
}

// messageIn is the one message of an answer, in its one event where it is a stream.
func messageIn(t testing.TB, a providers.Answer) string {
	t.Helper()
	text := string(a.Body)
	if a.Header.Value("Content-Type") != "text/event-stream" {
		return text
	}
	text, hasHead := strings.CutPrefix(text, "event: message\ndata: ")
	text, hasEnd := strings.CutSuffix(text, "\n\n")
	if !hasHead || !hasEnd || strings.ContainsAny(text, "\r\n") {
		t.Fatalf("no event: %q", a.Body)
	}
	return text
}

func sameJSON(a, b string) bool {
	var x, y any
	return json.Unmarshal([]byte(a), &x) == nil && json.Unmarshal([]byte(b), &y) == nil && reflect.DeepEqual(x, y)
}

// What holds no response is given again as it is where HTTP alone refused, and
// else not at all.
func TestReplyWithoutAResponse(t *testing.T) {
	c := readCall(t, New(providers.Settings{}), posted(toolCall("1", `{"name":"a"}`)))
	plain := classify.Header{{Name: "Content-Type", Value: "text/plain"}}
	if got, err := c.Reply(providers.Answer{Status: 422, Header: plain, Body: []byte("no")}); err != nil || got.Status != 422 || string(got.Body) != "no" || got.Header.Value("Content-Type") != "text/plain" {
		t.Errorf("%v %+v", err, got)
	}
	for _, body := range []string{"", "no", `{"result":{}}`, `{"id":1,"method":"x"}`} {
		if _, err := c.Reply(providers.Answer{Status: 200, Header: classify.Header{{Name: "Content-Type", Value: "application/json"}}, Body: []byte(body)}); err == nil {
			t.Errorf("%q was made an answer", body)
		}
	}
}

// A refusal is a result that a model can read, with the request's id.
func TestRefuse(t *testing.T) {
	for revision, kind := range map[string]string{"2025-11-25": "", "2026-07-28": "complete", "": ""} {
		for _, id := range []string{"3", `"3"`} {
			c := readCall(t, New(providers.Settings{}), posted(toolCall(id, `{"name":"a"}`), "MCP-Protocol-Version: "+revision))
			a := c.Refuse([]byte("{\"type\":\"t\"}\n"), "why \"so\"")
			var m struct {
				JSONRPC string
				ID      json.RawMessage
				Result  struct {
					ResultType string
					IsError    bool
					Content    []struct{ Type, Text string }
					Structured struct{ Type string } `json:"structuredContent"`
				}
			}
			if err := json.Unmarshal(a.Body, &m); err != nil {
				t.Fatal(err)
			}
			if a.Status != 200 || m.JSONRPC != "2.0" || string(m.ID) != id || !m.Result.IsError || m.Result.ResultType != kind ||
				len(m.Result.Content) != 1 || m.Result.Content[0].Text != "why \"so\"" || m.Result.Content[0].Type != "text" || m.Result.Structured.Type != "t" {
				t.Errorf("revision %q, id %s: %d %s", revision, id, a.Status, a.Body)
			}
		}
	}
}

// Whatever order of lists and calls: an untrusted server never makes a call laxer
// than effect, a trusted one only as its last word on the tool says.
func TestClassFollowsTheLastWord(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		trusts := rapid.Bool().Draw(t, "trusts")
		d := New(providers.Settings{TrustAnnotations: trusts})
		said := map[string]map[string]bool{}
		for range rapid.IntRange(0, 6).Draw(t, "lists") {
			name := rapid.SampledFrom([]string{"a", "b"}).Draw(t, "tool")
			hints := map[string]bool{}
			for _, h := range []string{"readOnlyHint", "destructiveHint", "idempotentHint"} {
				if rapid.Bool().Draw(t, h+" is said") {
					hints[h] = rapid.Bool().Draw(t, h)
				}
			}
			said[name] = hints
			text, err := json.Marshal(hints)
			if err != nil {
				t.Fatal(err)
			}
			list(t, d, rapid.Bool().Draw(t, "streamed"), fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"result":{"tools":[{"name":%q,"annotations":%s}]}}`, name, text))
		}
		for _, name := range []string{"a", "b", "c"} {
			content, _ := d.Read(posted(toolCall("1", `{"name":"`+name+`"}`)))
			want := classify.Effect
			switch {
			case trusts && said[name]["readOnlyHint"]:
				want = classify.Read
			case trusts && said[name]["idempotentHint"]:
				want = classify.Idempotent
			}
			readOnly, isSaid := said[name]["readOnlyHint"]
			changes := isSaid && !readOnly || said[name]["destructiveHint"] && !readOnly
			if got := content.Class(); got != want || content.(providers.Changer).Changes() != changes {
				t.Fatalf("%s of which %v is said, trusted %t: %v", name, said[name], trusts, got)
			}
		}
	})
}

// A failer is a test, or one run of a property.
type failer interface {
	Fatalf(format string, args ...any)
}

// list lets the answer to a tools/list pass.
func list(t failer, d providers.Dialect, isStream bool, answer string) {
	content, refusal := d.Read(posted(`{"jsonrpc":"2.0","id":1,"method":"tools/list"}`))
	if refusal != nil {
		t.Fatalf("%+v", refusal)
	}
	media := "application/json"
	if isStream {
		media, answer = "text/event-stream", "data: "+answer+"\n\n"
	}
	w := content.(providers.Watchable).Watch(providers.Head{Status: 200, Header: classify.Header{{Name: "Content-Type", Value: media}}, Length: -1})
	for _, piece := range []string{answer[:len(answer)/2], answer[len(answer)/2:]} {
		w.Write([]byte(piece))
	}
	w.End(context.Background())
}

// However many tools a server lists, a bounded number is remembered.
func TestToolsAreBounded(t *testing.T) {
	d := New(providers.Settings{TrustAnnotations: true})
	const annotations = `"annotations":{"readOnlyHint":true}`
	var b strings.Builder
	fmt.Fprintf(&b, `{"jsonrpc":"2.0","id":1,"result":{"tools":[{"name":%q,%s}`, strings.Repeat("x", toolNameBytesMax+1), annotations)
	for i := range toolsMax + 10 {
		fmt.Fprintf(&b, `,{"name":"t%d",%s}`, i, annotations)
	}
	list(t, d, false, b.String()+"]}}")
	if n := len(d.(*dialect).tools.all); n != toolsMax {
		t.Errorf("%d tools are remembered", n)
	}
	for name, want := range map[string]classify.Class{"t0": classify.Read, fmt.Sprintf("t%d", toolsMax): classify.Effect, strings.Repeat("x", toolNameBytesMax+1): classify.Effect} {
		if got := readCall(t, d, posted(toolCall("1", `{"name":"`+name+`"}`))).Class(); got != want {
			t.Errorf("%.10s: %v, want %v", name, got, want)
		}
	}
}

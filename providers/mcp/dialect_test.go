package mcp

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"counterfoil/classify"
	"counterfoil/providers"
)

// posted is a POST as a client sends it, with more fields as "name: value".
func posted(body string, fields ...string) *classify.Request {
	r := &classify.Request{Method: "POST", Target: "/mcp", Body: []byte(body)}
	for _, f := range append([]string{"Content-Type: application/json", "Accept: application/json, text/event-stream"}, fields...) {
		name, value, _ := strings.Cut(f, ": ")
		r.Header = append(r.Header, classify.Field{Name: name, Value: value})
	}
	return r
}

func toolCall(id, params string) string {
	return `{"jsonrpc":"2.0","id":` + id + `,"method":"tools/call","params":` + params + `}`
}

// readCall reads a tools/call that has to be one.
func readCall(t testing.TB, d providers.Dialect, r *classify.Request) *call {
	t.Helper()
	content, refusal := d.Read(r)
	c, ok := content.(*call)
	if refusal != nil || !ok {
		t.Fatalf("%s is %T, refused %v", r.Body, content, refusal)
	}
	return c
}

// sortOf says in a word what a request was taken for.
func sortOf(t testing.TB, r *classify.Request) string {
	t.Helper()
	content, refusal := New(providers.Settings{}).Read(r)
	if refusal != nil {
		var m struct {
			JSONRPC string
			ID      json.RawMessage
			Error   struct{ Code int }
		}
		if refusal.Answer == nil || refusal.Answer.Status != 400 || json.Unmarshal(refusal.Answer.Body, &m) != nil || m.JSONRPC != "2.0" || len(m.ID) == 0 {
			t.Fatalf("%s: refused with %+v", r.Body, refusal)
		}
		return fmt.Sprint(m.Error.Code)
	}
	if content == nil {
		return "none"
	}
	if p, ok := content.(providers.Passer); ok && p.Passes() {
		return "passes " + content.Kind()
	}
	return content.Kind() + " " + strings.Join(content.Names(), ",")
}

func TestRead(t *testing.T) {
	const a = `{"name":"a","arguments":{}}`
	for _, tt := range []struct {
		what string
		r    *classify.Request
		want string
	}{
		{"a call", posted(toolCall("1", a)), "tools/call a"},
		{"a call without arguments", posted(toolCall(`"x"`, `{"name":"a"}`)), "tools/call a"},
		{"a call whose arguments are null", posted(toolCall("1", `{"name":"a","arguments":null}`)), "tools/call a"},
		{"white space around it", posted(" \r\n\t" + toolCall("1", a) + "\n"), "tools/call a"},
		{"a method that is spelt out", posted(strings.Replace(toolCall("1", a), "tools/call", `tools\u002fcall`, 1)), "tools/call a"},
		{"a name that is spelt out", posted(toolCall("1", `{"name":"\u0061"}`)), "tools/call a"},
		{"a member whose name is spelt out", posted(strings.Replace(toolCall("1", a), `"method"`, `"m\u0065thod"`, 1)), "tools/call a"},
		{"no version", posted(`{"id":1,"method":"tools/call","params":` + a + `}`), "tools/call a"},
		{"as text", posted(toolCall("1", a), "Content-Type: text/plain"), "tools/call a"},
		{"names that nobody reads, twice in arguments' depth", posted(toolCall("1", `{"name":"a","arguments":{"x":{"y":1,"y":2}}}`)), "tools/call a"},

		{"a list", posted(`{"jsonrpc":"2.0","id":1,"method":"tools/list"}`), "passes tools/list"},
		{"initialize", posted(`{"jsonrpc":"2.0","id":0,"method":"initialize","params":{}}`), "passes initialize"},
		{"a notification", posted(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}`), "passes notifications/cancelled"},
		{"an answer to the server", posted(`{"jsonrpc":"2.0","id":1,"result":{"method":"tools/call"}}`), "passes "},
		{"params that are a list, of a method we don't know", posted(`{"jsonrpc":"2.0","id":1,"method":"x","params":[1]}`), "passes x"},
		{"a stream", &classify.Request{Method: "GET", Target: "/mcp"}, "passes "},
		{"the end of a session", &classify.Request{Method: "DELETE", Target: "/mcp", Header: classify.Header{{Name: "mcp-session-id", Value: "s"}}}, "passes "},
		{"a token", &classify.Request{Method: "POST", Target: "/token", Header: classify.Header{{Name: "Content-Type", Value: "application/x-www-form-urlencoded; charset=utf-8"}}, Body: []byte("grant_type=x")}, "passes "},
		{"a client's registration", posted(`{"redirect_uris":["http://x"]}`), "passes "},

		{"DELETE of something else", &classify.Request{Method: "DELETE", Target: "/x"}, "none"},
		{"PUT", &classify.Request{Method: "PUT", Target: "/mcp", Body: []byte(toolCall("1", a))}, "none"},
		{"JSON that is no JSON-RPC", posted(`{"pay":1}`), "none"},
		{"a form that is no token's", &classify.Request{Method: "POST", Target: "/x", Header: classify.Header{{Name: "Content-Type", Value: "application/x-www-form-urlencoded"}}, Body: []byte("a=b")}, "none"},

		{"no JSON", posted(`x`), "-32700"},
		{"nothing", posted(``), "-32700"},
		{"half", posted(`{"jsonrpc":"2.0"`), "-32700"},
		{"two", posted(toolCall("1", a) + toolCall("2", a)), "-32700"},
		{"a byte order mark", posted("\xef\xbb\xbf" + toolCall("1", a)), "-32700"},
		{"a number", posted(`7`), "-32700"},
		{"no UTF-8", posted(toolCall("1", "{\"name\":\"a\xff\"}")), "-32700"},
		{"a batch", posted("[" + toolCall("1", a) + "]"), "-32600"},
		{"a batch behind white space", posted("\n [" + toolCall("1", a) + "]"), "-32600"},
		{"a batch behind a byte order mark", posted("\xef\xbb\xbf[" + toolCall("1", a) + "]"), "-32600"},
		{"an empty batch", posted("[]"), "-32600"},
		{"compressed", posted("\x1f\x8b", "Content-Encoding: gzip"), "-32600"},
		{"a method twice", posted(`{"method":"ping","method":"tools/call"}`), "-32600"},
		{"a method twice, once spelt out", posted(`{"method":"ping","m\u0065thod":"tools/call"}`), "-32600"},
		{"a method in another case", posted(`{"jsonrpc":"2.0","method":"ping","METHOD":"tools/call"}`), "-32600"},
		{"a method in a case of Unicode's", posted(`{"jsonrpc":"2.0","method":"ping","param\u017f":{}}`), "-32600"},
		{"a method that is no text", posted(`{"jsonrpc":"2.0","method":["tools/call"]}`), "-32600"},
		{"params twice", posted(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"a"},"params":{"name":"b"}}`), "-32600"},
		{"a name twice", posted(toolCall("1", `{"name":"a","name":"b"}`)), "-32600"},
		{"a name in another case", posted(toolCall("1", `{"name":"a","Name":"b"}`)), "-32600"},
		{"an argument twice", posted(toolCall("1", `{"name":"a","arguments":{"x":1,"x":2}}`)), "-32600"},
		{"an argument twice, once spelt out", posted(toolCall("1", `{"name":"a","arguments":{"x":1,"\u0078":2}}`)), "-32600"},
		{"a call whose params are a list", posted(toolCall("1", `["a"]`)), "-32600"},
		{"a call without an id", posted(`{"jsonrpc":"2.0","method":"tools/call","params":` + a + `}`), "-32600"},
		{"a call whose id is null", posted(toolCall("null", a)), "-32600"},
		{"a call whose id is a list", posted(toolCall("[1]", a)), "-32600"},
		{"a call whose id is true", posted(toolCall("true", a)), "-32600"},
		{"a call without a name", posted(toolCall("1", `{}`)), "-32602"},
		{"a call with an empty name", posted(toolCall("1", `{"name":""}`)), "-32602"},
		{"a call whose name is a number", posted(toolCall("1", `{"name":7}`)), "-32602"},
		{"a name with half a pair", posted(toolCall("1", `{"name":"a\ud800"}`)), "-32602"},
		{"arguments that are a list", posted(toolCall("1", `{"name":"a","arguments":[1]}`)), "-32602"},

		{"headers that say the same", posted(toolCall("1", a), "mcp-method: tools/call", "MCP-NAME: a"), "tools/call a"},
		{"a name in base64", posted(toolCall("1", `{"name":"ü"}`), "Mcp-Name: =?base64?w7w=?="), "tools/call ü"},
		{"the name of a resource", posted(`{"jsonrpc":"2.0","id":1,"method":"resources/read","params":{"uri":"file:///x"}}`, "Mcp-Name: file:///x"), "passes resources/read"},
		{"another resource", posted(`{"jsonrpc":"2.0","id":1,"method":"resources/read","params":{"uri":"file:///x"}}`, "Mcp-Name: file:///y"), "-32020"},
		{"another method", posted(toolCall("1", a), "Mcp-Method: tools/list"), "-32020"},
		{"another name", posted(toolCall("1", a), "Mcp-Name: b"), "-32020"},
		{"a name in another case than the body's", posted(toolCall("1", a), "Mcp-Name: A"), "-32020"},
		{"an empty name", posted(toolCall("1", a), "Mcp-Name: "), "-32020"},
		{"the name twice", posted(toolCall("1", a), "Mcp-Name: a", "mcp-name: a"), "-32020"},
		{"the method twice", posted(toolCall("1", a), "Mcp-Method: tools/call", "Mcp-Method: tools/call"), "-32020"},
		{"a list that says it is a call", posted(`{"jsonrpc":"2.0","id":1,"method":"tools/list"}`, "Mcp-Method: tools/call"), "-32020"},
	} {
		if got := sortOf(t, tt.r); got != tt.want {
			t.Errorf("%s: %s, want %s", tt.what, got, tt.want)
		}
	}
}

// A refusal bears the id of the request where that is known, of its own type.
func TestRefusalBearsTheID(t *testing.T) {
	for _, id := range []string{"7", `"7"`} {
		_, refusal := New(providers.Settings{}).Read(posted(toolCall(id, `{"name":"a"}`), "Mcp-Name: b"))
		if refusal == nil || !bytes.Contains(refusal.Answer.Body, []byte(`"id":`+id+`,`)) {
			t.Errorf("id %s: %+v", id, refusal)
		}
	}
}

// FuzzRead holds Read against what any server might take a body for: one that
// takes names in every case and the last of several, or that undoes a batch, must
// not find a tools/call in what passes.
func FuzzRead(f *testing.F) {
	for _, body := range []string{
		toolCall("1", `{"name":"a","arguments":{"x":1}}`), "[" + toolCall("1", `{"name":"a"}`) + "]", "\xef\xbb\xbf" + toolCall("1", `{"name":"a"}`),
		`{"method":"ping","Method":"tools/call","params":{"name":"a"}}`, `{"jsonrpc":"2.0","id":1,"method":"tools/list"}`, `{"redirect_uris":[],"METHOD":"tools/call"}`,
		`{"jsonrpc":"2.0","id":1,"result":{}}`, "grant_type=x",
	} {
		f.Add([]byte(body), "application/json")
		f.Add([]byte(body), "application/x-www-form-urlencoded")
	}
	f.Fuzz(func(t *testing.T, body []byte, media string) {
		r := &classify.Request{Method: "POST", Target: "/mcp", Header: classify.Header{{Name: "Content-Type", Value: media}}, Body: body}
		content, refusal := New(providers.Settings{}).Read(r)
		if refusal != nil && (content != nil || refusal.Answer == nil || !json.Valid(refusal.Answer.Body)) {
			t.Fatalf("%q: %v and %+v", body, content, refusal)
		}
		if p, ok := content.(providers.Passer); ok && p.Passes() && mayCall(body) {
			t.Fatalf("%q passes", body)
		}
		c, ok := content.(*call)
		if !ok {
			return
		}
		var m struct {
			ID     json.RawMessage
			Params struct{ Name string }
		}
		if json.Unmarshal(body, &m) != nil || m.Params.Name != c.Names()[0] {
			t.Fatalf("%q is taken for a call of %q", body, c.Names())
		}
		answer, err := c.Reply(providers.Answer{Status: 200, Header: classify.Header{{Name: "Content-Type", Value: "application/json"}}, Body: []byte(`{"id":0,"result":{}}`)})
		if want := `{"id":` + string(m.ID) + `,"result":{}}`; err != nil || string(answer.Body) != want {
			t.Fatalf("%q is answered %s (%v), want %s", body, answer.Body, err, want)
		}
		if !json.Valid(c.Print(r).Body) {
			t.Fatalf("%q is compared as %s", body, c.Print(r).Body)
		}
	})
}

// mayCall reports whether a lenient server might find a tools/call in it.
func mayCall(body []byte) bool {
	body = bytes.TrimPrefix(body, []byte("\xef\xbb\xbf"))
	var one struct{ Method string }
	if json.Unmarshal(body, &one) == nil && one.Method == "tools/call" {
		return true
	}
	var several []struct{ Method string }
	return json.Unmarshal(body, &several) == nil
}

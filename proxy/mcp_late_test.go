package proxy

import (
	"fmt"
	"io"
	"net"
	"strings"
	"sync/atomic"
	"testing"

	"counterfoil/internal/journal"
	"counterfoil/keystore"
	"counterfoil/providers"
)

// pollingServer is an MCP server that ends the stream of each call before the
// response, for the client to come back: each stream has event ids of its own, as
// MCP 2025-11-25 asks, and a GET that names the last one gets what is left.
func pollingServer(t testing.TB, effects *atomic.Int64) *provider {
	t.Helper()
	return provide(t, func(w net.Conn, h *heard) {
		if strings.HasPrefix(h.line, "GET") {
			id := h.value("Last-Event-ID")
			name, rest, _ := strings.Cut(id, "-")
			if rest == "0" { // once more nothing
				say(w, 200, "id: "+name+"-1\ndata:\n\n", "Content-Type: text/event-stream")
				return
			}
			say(w, 200, fmt.Sprintf("id: %s-2\ndata: {\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{\"content\":[{\"type\":\"text\",\"text\":%q}]}}\n\n", name, name), "Content-Type: text/event-stream")
			return
		}
		m := readRPC(t, h.body)
		if m.Method == "tools/call" {
			effects.Add(1)
		}
		streamOf(w, "id: "+m.Params.Name+"-0\ndata:\n\n")
	})
}

// streamOf answers with a stream that ends.
func streamOf(w net.Conn, text string) {
	_, _ = io.WriteString(w, eventHead)
	chunk(w, text)
	_, _ = io.WriteString(w, "0\r\n\r\n")
}

func (st *stack) comeBack(id string) *got {
	st.t.Helper()
	return st.get("/tickets/mcp", "Accept: text/event-stream", "Last-Event-ID: "+id)
}

// C18, over streams that are resumed: two clients of a server without sessions both
// count their requests from 1. What a resumed stream brings is the answer to the
// call whose stream it was, and to no other of that id.
func TestC18OneIDOnResumedStreams(t *testing.T) {
	var effects atomic.Int64
	st := start(t, setup{provider: pollingServer(t, &effects), upstream: asMCP(t, providers.Settings{}, "")})
	for _, tool := range []string{"a", "b"} {
		if g := st.callTool("R1", tool, "1", tool, `{}`); g.status != 200 || !strings.Contains(g.body, tool+"-0") {
			t.Fatalf("%s: %d %q", tool, g.status, g.body)
		}
	}
	st.sendMCP(`{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{"name":"list"}}`)
	st.comeBack("list-1")
	st.comeBack("a-0")
	if g := st.comeBack("a-1"); !strings.Contains(g.body, `"text":"a"`) {
		t.Fatalf("the answer that came late: %d %q", g.status, g.body)
	}
	if g := st.callTool("R1", "a", "7", "a", `{}`); g.outcome() != "replayed" || readRPC(t, g.body).Result.Content[0].Text != "a" {
		t.Errorf("the call whose answer came: %s %s", g.outcome(), g.body)
	}
	if c, err := st.store.Call(t.Context(), keystore.Key{Namespace: "default", Run: "R1", Turn: "1", Call: "b"}); err != nil || c.Receipt != nil {
		t.Errorf("a call whose answer has not come: %v, receipt %v", err, c.Receipt)
	}
	st.comeBack("b-0")
	st.comeBack("b-1")
	if g := st.callTool("R1", "b", "8", "b", `{}`); g.outcome() != "replayed" || readRPC(t, g.body).Result.Content[0].Text != "b" {
		t.Errorf("the other call: %s %s", g.outcome(), g.body)
	}
	if effects.Load() != 2 {
		t.Errorf("%d effects", effects.Load())
	}
}

// A stream without event ids that ends before the response, as the official Go SDK
// ends one that it polls, passes as it is. Nobody can come back for it.
func TestMCPStreamThatCannotBeResumed(t *testing.T) {
	const text = "event: close\nretry: 10\ndata: \n\n"
	p := provide(t, func(w net.Conn, _ *heard) { streamOf(w, text) })
	st := start(t, setup{provider: p, upstream: asMCP(t, providers.Settings{}, "")})
	if g := st.callTool("R1", "1", "1", "a", `{}`); g.broken || g.body != text {
		t.Errorf("broken %t, %q", g.broken, g.body)
	}
	g := st.callTool("R1", "1", "2", "a", `{}`)
	if m := readRPC(t, g.body); m.Result.Problem == nil || m.Result.Problem.Type != problemType+string(journal.UnknownOutcome) || len(p.hits()) != 1 {
		t.Errorf("%s, sent %d times", g.body, len(p.hits()))
	}
}

// An id may come back spelt in another way, since many a server escapes more than
// it has to.
func TestMCPAnIDSpeltInAnotherWay(t *testing.T) {
	for sent, back := range map[string]string{`"a+b/ü"`: `"a\u002Bb\/\u00fc"`, `"\u0061"`: `"a"`, `1`: `1.0`, `1e2`: `100`} {
		p := provide(t, func(w net.Conn, _ *heard) {
			say(w, 200, `{"jsonrpc":"2.0","id":`+back+`,"result":{"content":[]}}`, "Content-Type: application/json")
		})
		st := start(t, setup{provider: p, upstream: asMCP(t, providers.Settings{}, "")})
		if g := st.callTool("R1", "1", sent, "a", `{}`); g.outcome() != "executed" || readRPC(t, g.body).Result.IsError {
			t.Errorf("%s as %s: %s %s", sent, back, g.outcome(), g.body)
		}
	}
}

// A server that wants its user somewhere first (MCP 2025-11-25, URL mode
// elicitation) has run no tool: the client gets to know where, and comes again.
func TestMCPElicitationFirst(t *testing.T) {
	var n atomic.Int64
	p := provide(t, func(w net.Conn, h *heard) {
		m := readRPC(t, h.body)
		if n.Add(1) == 1 {
			say(w, 200, fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"error":{"code":-32042,"message":"m","data":{"elicitations":[{"mode":"url","url":"https://x.example"}]}}}`, m.ID), "Content-Type: application/json")
			return
		}
		say(w, 200, fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":{"content":[]}}`, m.ID), "Content-Type: application/json")
	})
	st := start(t, setup{provider: p, upstream: asMCP(t, providers.Settings{}, "")})
	if g := st.callTool("R1", "1", "1", "a", `{}`); g.outcome() != "executed" || !strings.Contains(g.body, "x.example") {
		t.Errorf("%s %s", g.outcome(), g.body)
	}
	if g := st.callTool("R1", "1", "2", "a", `{}`); g.outcome() != "executed" || readRPC(t, g.body).Error != nil || n.Load() != 2 {
		t.Errorf("the next try: %s %s", g.outcome(), g.body)
	}
}

// What a server refuses by its status, in words that are no JSON-RPC, is refused
// in the same words again.
func TestMCPRejectedByStatus(t *testing.T) {
	p := provide(t, func(w net.Conn, _ *heard) { say(w, 422, "too strange", "Content-Type: text/plain") })
	st := start(t, setup{provider: p, upstream: asMCP(t, providers.Settings{}, "")})
	for _, want := range []string{"executed", "replayed"} {
		if g := st.callTool("R1", "1", "1", "a", `{}`); g.outcome() != want || g.status != 422 || g.body != "too strange" {
			t.Errorf("%s: %s %d %s", want, g.outcome(), g.status, g.body)
		}
	}
}

package proxy

import (
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"counterfoil/internal/journal"
	"counterfoil/keystore"
	"counterfoil/providers"
	"counterfoil/providers/mcp"

	"go.yaml.in/yaml/v3"
)

// mcpAdapter is what mcp.yaml says, and perhaps more about some tools.
func mcpAdapter(t testing.TB, s providers.Settings, operations string) *providers.Adapter {
	t.Helper()
	var doc yaml.Node
	text := "name: mcp\ndialects: [mcp]\nerrors: [{status: [400, 401, 403, 404, 405, 406, 415], outcome: not_applied}]\noperations: [" + operations + "]\n"
	if err := yaml.Unmarshal([]byte(text), &doc); err != nil {
		t.Fatal(err)
	}
	a, err := providers.Parse(providers.Position{Source: "mcp.yaml"}, &doc)
	if err != nil {
		t.Fatal(err)
	}
	return a.For(providers.Dialects{"mcp": mcp.New}, s)
}

// asMCP makes the upstreams MCP servers.
func asMCP(t testing.TB, s providers.Settings, operations string) func(*journal.Upstream) {
	t.Helper()
	a := mcpAdapter(t, s, operations)
	return func(u *journal.Upstream) { u.Adapter = a }
}

// A rpc is a JSON-RPC message as a test looks at it.
type rpc struct {
	ID     json.RawMessage
	Method string
	Params struct {
		Name      string
		Arguments json.RawMessage
	}
	Result struct {
		Content []struct{ Text string }
		IsError bool
		Problem *Document `json:"structuredContent"`
	}
	Error *struct {
		Code    int
		Message string
	}
}

func readRPC(t testing.TB, text string) (m rpc) {
	t.Helper()
	if err := json.Unmarshal([]byte(text), &m); err != nil {
		t.Fatalf("%v: %.200s", err, text)
	}
	return m
}

// toolServer is an MCP server that counts what its tools did.
func toolServer(t testing.TB, effects *atomic.Int64) *provider {
	t.Helper()
	return provide(t, func(w net.Conn, h *heard) {
		if h.line[:3] != "POS" {
			say(w, 405, "")
			return
		}
		if !strings.HasPrefix(h.body, "{") {
			say(w, 200, "{}")
			return
		}
		m := readRPC(t, h.body)
		if m.Method == "tools/call" {
			effects.Add(1)
		}
		say(w, 200, fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":{"content":[{"type":"text","text":%q}]}}`, m.ID, string(m.Params.Arguments)),
			"Content-Type: application/json", "Mcp-Session-Id: s-1")
	})
}

const mcpAccept = "Accept: application/json, text/event-stream"

// callTool sends a tools/call on its own connection.
func (st *stack) callTool(run, call, id, tool, arguments string, fields ...string) *got {
	st.t.Helper()
	body := fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"method":"tools/call","params":{"name":%q,"arguments":%s,"_meta":{"progressToken":%s}}}`, id, tool, arguments, id)
	return st.sendMCP(body, append([]string{"Counterfoil-Run: " + run, "Counterfoil-Turn: 1", "Counterfoil-Call: " + call}, fields...)...)
}

func (st *stack) sendMCP(body string, fields ...string) *got {
	st.t.Helper()
	return ask(st.t, st.addr, request("POST", "/tickets/mcp", body, append([]string{"Content-Type: application/json", mcpAccept}, fields...)...))
}

// C18: many requests with one id on one session; each answer is its own, and
// without a key of ours an unsafe tool is refused.
func TestC18OneIDForEverything(t *testing.T) {
	var effects atomic.Int64
	st := start(t, setup{provider: toolServer(t, &effects), upstream: asMCP(t, providers.Settings{}, "")})
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	const rounds = 60
	for round := range rounds {
		var busy sync.WaitGroup
		for _, run := range []string{"R1", "R2"} {
			pause := time.Duration(random.IntN(3)) * time.Millisecond
			busy.Go(func() {
				timer := time.NewTimer(pause)
				defer timer.Stop()
				<-timer.C
				argument := fmt.Sprintf(`{"of":"%s-%d"}`, run, round)
				g := st.callTool(run, fmt.Sprint(round), "1", "slow", argument, "Mcp-Session-Id: s-1")
				if m := readRPC(t, g.body); len(m.Result.Content) != 1 || m.Result.Content[0].Text != argument {
					t.Errorf("%s got %s", argument, g.body)
				}
			})
		}
		busy.Wait()
	}
	if n := effects.Load(); n != 2*rounds {
		t.Errorf("%d effects, want %d", n, 2*rounds)
	}
	g := st.sendMCP(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"slow","arguments":{}}}`, "Mcp-Session-Id: s-1")
	m := readRPC(t, g.body)
	if g.status != 200 || !m.Result.IsError || m.Result.Problem == nil || m.Result.Problem.Type != problemType+string(MissingKey) || effects.Load() != 2*rounds {
		t.Errorf("without a key: %d %s", g.status, g.body)
	}
}

// C20: the envelope changes with each try, the call does not.
func TestC20TheEnvelopeDoesNotCount(t *testing.T) {
	var effects atomic.Int64
	st := start(t, setup{provider: toolServer(t, &effects), upstream: asMCP(t, providers.Settings{}, "")})
	first := st.callTool("R1", "1", "7", "create_issue", `{"title":"x"}`)
	for _, id := range []string{"12", `"12"`} {
		g := st.callTool("R1", "1", id, "create_issue", `{"title":"x"}`)
		m := readRPC(t, g.body)
		if g.outcome() != "replayed" || string(m.ID) != id || m.Result.Content[0].Text != readRPC(t, first.body).Result.Content[0].Text {
			t.Errorf("id %s: %s %s", id, g.outcome(), g.body)
		}
	}
	other := st.callTool("R1", "1", "13", "create_issue", `{"title":"y"}`)
	if m := readRPC(t, other.body); string(m.ID) != "13" || m.Result.Problem == nil || m.Result.Problem.Status != 422 {
		t.Errorf("another argument: %s", other.body)
	}
	if effects.Load() != 1 {
		t.Errorf("%d effects", effects.Load())
	}
}

// The identity may stand in params._meta, after header fields.
func TestMCPIdentityInMeta(t *testing.T) {
	var effects atomic.Int64
	st := start(t, setup{provider: toolServer(t, &effects), upstream: asMCP(t, providers.Settings{}, "")})
	body := `{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"a","arguments":{},"_meta":{"counterfoil/run":"R1","counterfoil/turn":"2","counterfoil/call":"c"}}}`
	st.sendMCP(fmt.Sprintf(body, 1))
	if g := st.sendMCP(fmt.Sprintf(body, 2), "baggage: counterfoil.run=other"); g.outcome() != "replayed" {
		t.Errorf("%s %s", g.outcome(), g.body)
	}
	k := keystore.Key{Namespace: "default", Run: "R1", Turn: "2", Call: "c"}
	if _, err := st.store.Call(t.Context(), k); err != nil || effects.Load() != 1 {
		t.Errorf("%v, %d effects", err, effects.Load())
	}
	bad := st.sendMCP(strings.Replace(fmt.Sprintf(body, 3), `"c"}`, `7}`, 1))
	if m := readRPC(t, bad.body); m.Result.Problem == nil || m.Result.Problem.Type != problemType+string(InvalidKey) {
		t.Errorf("a call that is a number: %s", bad.body)
	}
}

// C22: a dead session is a 404 at once, and nothing of it is kept.
func TestC22DeadSession(t *testing.T) {
	var effects atomic.Int64
	alive := toolServer(t, &effects)
	p := provide(t, func(w net.Conn, h *heard) {
		if h.value("Mcp-Session-Id") == "old" {
			say(w, 404, `{"jsonrpc":"2.0","id":null,"error":{"code":-32001,"message":"Session not found"}}`, "Content-Type: application/json")
			return
		}
		alive.play(w, h)
	})
	st := start(t, setup{provider: p, upstream: asMCP(t, providers.Settings{}, "")})
	list := `{"jsonrpc":"2.0","id":1,"method":"tools/list"}`
	began := time.Now()
	if g := st.sendMCP(list, "Mcp-Session-Id: old"); g.status != 404 || !strings.Contains(g.body, "Session not found") || time.Since(began) > time.Second {
		t.Errorf("%d %s", g.status, g.body)
	}
	if g := st.callTool("R1", "1", "1", "a", `{}`, "Mcp-Session-Id: old"); g.status != 404 || !strings.Contains(g.body, "Session not found") {
		t.Errorf("a call: %d %s", g.status, g.body)
	}
	if g := st.sendMCP(list, "Mcp-Session-Id: new"); g.status != 200 {
		t.Errorf("%d", g.status)
	}
	if g := st.callTool("R1", "1", "2", "a", `{}`, "Mcp-Session-Id: new"); g.status != 200 || g.outcome() != "executed" || effects.Load() != 1 {
		t.Errorf("the call on a new session: %d %s, %d effects", g.status, g.outcome(), effects.Load())
	}
}

// C23: every end-to-end header arrives, and session set-up is never answered from
// a receipt.
func TestC23Headers(t *testing.T) {
	var sessions atomic.Int64
	p := provide(t, func(w net.Conn, h *heard) {
		m := readRPC(t, h.body)
		say(w, 200, fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":{}}`, m.ID), "Content-Type: application/json", fmt.Sprintf("Mcp-Session-Id: s-%d", sessions.Add(1)),
			"MCP-Protocol-Version: 2025-11-25", `WWW-Authenticate: Bearer realm="x"`, "Retry-After: 3", "X-Vendor: 1")
	})
	st := start(t, setup{provider: p, upstream: asMCP(t, providers.Settings{}, "")})
	key := []string{"Counterfoil-Run: R1", "Counterfoil-Turn: 1", "Counterfoil-Call: init"}
	initialize := `{"jsonrpc":"2.0","id":0,"method":"initialize","params":{}}`
	sent := []string{"Mcp-Session-Id: mine", "MCP-Protocol-Version: 2025-11-25", "Mcp-Method: initialize", "Last-Event-ID: e7"}
	first := st.sendMCP(initialize, append(key, sent...)...)
	for _, f := range []string{"Mcp-Session-Id: s-1", "MCP-Protocol-Version: 2025-11-25", `WWW-Authenticate: Bearer realm="x"`, "Retry-After: 3", "X-Vendor: 1"} {
		name, want, _ := strings.Cut(f, ": ")
		if got := first.value(name); got != want {
			t.Errorf("%s is %q, want %q", name, got, want)
		}
	}
	for _, f := range sent {
		name, want, _ := strings.Cut(f, ": ")
		if got := p.hits()[0].value(name); got != want {
			t.Errorf("the server got %s %q, want %q", name, got, want)
		}
	}
	st.callTool("R1", "1", "1", "a", `{}`)
	st = st.restart()
	if again := st.sendMCP(initialize, key...); again.value("Mcp-Session-Id") != "s-3" || again.outcome() != "passthrough" {
		t.Errorf("the second initialize: %q %s", again.value("Mcp-Session-Id"), again.outcome())
	}
}

// C26: no event is answered from here: a stream is resumed at the server alone.
func TestC26ResumptionIsTheServers(t *testing.T) {
	p := provide(t, func(w net.Conn, h *heard) {
		switch {
		case strings.HasPrefix(h.line, "GET") && h.value("Mcp-Session-Id") != "SX":
			say(w, 404, "")
		case strings.HasPrefix(h.line, "GET"):
			say(w, 400, "")
		default:
			m := readRPC(t, h.body)
			body := fmt.Sprintf("id: x1\ndata: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/progress\"}\n\nid: x2\ndata: {\"jsonrpc\":\"2.0\",\"id\":%s,\"result\":{\"secret\":1}}\n\n", m.ID)
			say(w, 200, body, "Content-Type: text/event-stream")
		}
	})
	st := start(t, setup{provider: p, upstream: asMCP(t, providers.Settings{}, "")})
	if g := st.callTool("R1", "1", "1", "a", `{}`, "Mcp-Session-Id: SX"); !strings.Contains(g.body, "secret") {
		t.Fatalf("%d %s", g.status, g.body)
	}
	for i := range 50 {
		if g := st.get("/tickets/mcp", "Accept: text/event-stream", "Mcp-Session-Id: SY", fmt.Sprintf("Last-Event-ID: x%d", i)); g.status != 404 || strings.Contains(g.body, "secret") {
			t.Fatalf("x%d: %d %s", i, g.status, g.body)
		}
	}
	if g := st.get("/tickets/mcp", "Accept: text/event-stream", "Mcp-Session-Id: SX", "Last-Event-ID: gone"); g.status != 400 {
		t.Errorf("an id that is over: %d", g.status)
	}
}

// C29: a call that was cancelled and done is done; one that was cancelled and
// never answered is unknown, and nothing is sent again.
func TestC29Cancelled(t *testing.T) {
	for _, answers := range []bool{true, false} {
		t.Run(fmt.Sprintf("answers %t", answers), func(t *testing.T) {
			var effects atomic.Int64
			began, cancelled := make(chan struct{}), make(chan struct{})
			p := provide(t, func(w net.Conn, h *heard) {
				m := readRPC(t, h.body)
				if m.Method == "notifications/cancelled" {
					say(w, 202, "")
					close(cancelled)
					return
				}
				effects.Add(1)
				close(began)
				<-cancelled
				if !answers {
					_ = w.Close()
					return
				}
				say(w, 200, fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":{"content":[]}}`, m.ID), "Content-Type: application/json")
			})
			st := start(t, setup{provider: p, upstream: asMCP(t, providers.Settings{}, "")})
			done := make(chan *got)
			go func() { done <- st.callTool("R1", "1", "1", "a", `{}`) }()
			<-began
			if g := st.sendMCP(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}`); g.status != 202 {
				t.Errorf("the cancellation: %d", g.status)
			}
			<-done
			g := st.callTool("R1", "1", "2", "a", `{}`)
			m := readRPC(t, g.body)
			switch {
			case answers && (g.outcome() != "replayed" || m.Result.IsError || string(m.ID) != "2"):
				t.Errorf("%s %s", g.outcome(), g.body)
			case !answers && (m.Result.Problem == nil || m.Result.Problem.Type != problemType+string(journal.UnknownOutcome)):
				t.Errorf("%s %s", g.outcome(), g.body)
			}
			if effects.Load() != 1 {
				t.Errorf("%d effects", effects.Load())
			}
		})
	}
}

// C31: what routing headers say and the body does not is refused; the body alone
// says what a request is.
func TestC31HeadersThatContradict(t *testing.T) {
	var effects atomic.Int64
	read := `{name: read, class: read, when: {tool: [read_doc]}}`
	st := start(t, setup{provider: toolServer(t, &effects), upstream: asMCP(t, providers.Settings{}, read)})
	for name, fields := range map[string][]string{
		"another tool": {"Mcp-Method: tools/call", "Mcp-Name: read_doc"}, "another method": {"Mcp-Method: tools/list"},
		"another case": {"Mcp-Name: Delete_Doc"}, "twice": {"Mcp-Name: delete_doc", "Mcp-Name: delete_doc"},
	} {
		g := st.callTool("R1", "1", "1", "delete_doc", `{}`, fields...)
		if m := readRPC(t, g.body); g.status != 400 || m.Error == nil || m.Error.Code != -32020 || string(m.ID) != "1" {
			t.Errorf("%s: %d %s", name, g.status, g.body)
		}
	}
	if effects.Load() != 0 {
		t.Fatalf("%d effects", effects.Load())
	}
	for _, fields := range [][]string{nil, {"mcp-method: tools/call", "Mcp-Name: delete_doc "}, {"Mcp-Name: =?base64?ZGVsZXRlX2RvYw==?="}} {
		if g := st.callTool("R1", fmt.Sprint(len(fields), fields), "1", "delete_doc", `{}`, fields...); g.outcome() != "executed" {
			t.Errorf("%q: %s %s", fields, g.outcome(), g.body)
		}
	}
	if g := st.sendMCP(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"read_doc","arguments":{}}}`); g.outcome() != "passthrough" {
		t.Errorf("a tool that reads: %s %s", g.outcome(), g.body)
	}
}

// C32: nothing walks past the ledger inside something else.
func TestC32Wrapped(t *testing.T) {
	var effects atomic.Int64
	st := start(t, setup{provider: toolServer(t, &effects), upstream: asMCP(t, providers.Settings{}, "")})
	one := `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"a","arguments":{}}}`
	for name, body := range map[string]string{
		"one in an array": "[" + one + "]", "two": "[" + one + "," + one + "]", "none": "[]", "white space before": " \n[" + one + "]",
		"byte order mark before": "\xef\xbb\xbf[" + one + "]", "byte order mark alone": "\xef\xbb\xbf" + one,
		"method twice": `{"jsonrpc":"2.0","id":1,"method":"ping","method":"tools/call","params":{"name":"a"}}`,
		"another case": `{"jsonrpc":"2.0","id":1,"method":"ping","Method":"tools/call","params":{"name":"a"}}`,
		"tool twice":   `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"a","name":"b"}}`,
		"no id":        `{"jsonrpc":"2.0","method":"tools/call","params":{"name":"a"}}`,
		"two values":   one + one, "nothing": "x",
	} {
		g := st.sendMCP(body, "Counterfoil-Run: R1", "Counterfoil-Turn: 1", "Counterfoil-Call: 1")
		if m := readRPC(t, g.body); g.status != 400 || m.Error == nil || g.outcome() != "refused" {
			t.Errorf("%s: %d %s", name, g.status, g.body)
		}
	}
	if effects.Load() != 0 || st.records("R1") != 0 {
		t.Errorf("%d effects, %d records", effects.Load(), st.records("R1"))
	}
}

// What a request claims to be does not take it past the ledger: a call is one under
// any media type, and a method that MCP does not have is judged as everywhere.
func TestMCPCallsInDisguise(t *testing.T) {
	var effects atomic.Int64
	st := start(t, setup{provider: toolServer(t, &effects), upstream: asMCP(t, providers.Settings{}, "")})
	one := `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"a","arguments":{}}}`
	key := func(call string, more ...string) []string {
		return append([]string{"Counterfoil-Run: R1", "Counterfoil-Turn: 1", "Counterfoil-Call: " + call}, more...)
	}
	for i, media := range []string{"text/plain", "application/octet-stream", "application/x-www-form-urlencoded", "", "application/vnd.api+json"} {
		call := fmt.Sprint(i)
		g := ask(t, st.addr, request("POST", "/tickets/mcp", one, key(call, "Content-Type: "+media)...))
		if g.outcome() != "executed" || st.records("R1") != i+1 {
			t.Errorf("%q: %s, %d records", media, g.outcome(), st.records("R1"))
		}
	}
	if g := ask(t, st.addr, request("POST", "/tickets/mcp", one, "Content-Encoding: gzip")); g.status != 400 {
		t.Errorf("compressed: %d %s", g.status, g.body)
	}
	for _, raw := range []string{request("PATCH", "/tickets/mcp", one), request("POST", "/tickets/mcp", `{"pay":1}`), request("DELETE", "/tickets/mcp", "")} {
		if g := ask(t, st.addr, raw); g.status != 400 || !strings.Contains(g.body, string(MissingKey)) {
			t.Errorf("%.20q: %d %s", raw, g.status, g.body)
		}
	}
	for _, raw := range []string{
		request("DELETE", "/tickets/mcp", "", "Mcp-Session-Id: s-1"),
		request("POST", "/tickets/token", "grant_type=authorization_code&code=x", "Content-Type: application/x-www-form-urlencoded"),
	} {
		if g := ask(t, st.addr, raw); g.outcome() != "passthrough" && g.status != 502 {
			t.Errorf("%.30q: %d %s", raw, g.status, g.outcome())
		}
	}
}

// C33: a stream cut anywhere reaches the client byte for byte, and its response is
// found.
func TestC33StreamsInPieces(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	const text = "\xef\xbb\xbf: ping\r\n\r\ndata:{\"jsonrpc\":\"2.0\",\"method\":\"notifications/progress\",\"params\":{}}\r\rid: 9\ndata: {\"jsonrpc\":\"2.0\",\"id\":1,\ndata: \"result\":{\"content\":[{\"type\":\"text\",\"text\":\"🎟\"}]}}\n\n"
	var mu sync.Mutex
	p := provide(t, func(w net.Conn, _ *heard) {
		_, _ = io.WriteString(w, eventHead)
		for at := 0; at < len(text); {
			mu.Lock()
			n := min(len(text)-at, 1+random.IntN(12))
			mu.Unlock()
			chunk(w, text[at:at+n])
			at += n
		}
		_, _ = io.WriteString(w, "0\r\n\r\n")
	})
	st := start(t, setup{provider: p, upstream: asMCP(t, providers.Settings{}, "")})
	for i := range 100 {
		call := fmt.Sprint(i)
		if g := st.callTool("R1", call, "1", "a", `{}`); g.body != text {
			t.Fatalf("got %q", g.body)
		}
		again := st.callTool("R1", call, `"x"`, "a", `{}`)
		if m := readRPC(t, again.body); again.outcome() != "replayed" || string(m.ID) != `"x"` || m.Result.Content[0].Text != "🎟" {
			t.Fatalf("%s %s", again.outcome(), again.body)
		}
	}
}

// What follows the response is kept back until the receipt is durable, in bounds: a
// server that goes on and on is given up, and the response is not passed on.
func TestMCPEndlessAfterTheResponse(t *testing.T) {
	gaveUp := make(chan struct{})
	p := provide(t, func(w net.Conn, _ *heard) {
		_, _ = io.WriteString(w, eventHead)
		chunk(w, "data: {\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{\"content\":[]}}\n\n")
		more := strings.Repeat(": more\n\n", 8<<10)
		for {
			if _, err := fmt.Fprintf(w, "%x\r\n%s\r\n", len(more), more); err != nil {
				break
			}
		}
		close(gaveUp)
	})
	st := start(t, setup{provider: p, upstream: asMCP(t, providers.Settings{}, "")})
	if g := st.callTool("R1", "1", "1", "a", `{}`); !g.broken || strings.Contains(g.body, "result") {
		t.Errorf("broken %t: %.200s", g.broken, g.body)
	}
	<-gaveUp
}

// A read that is passed on is judged by nobody, so that nothing holds it: a
// client sees each event as it comes.
func TestMCPReadStreamsPass(t *testing.T) {
	p := provide(t, func(w net.Conn, _ *heard) {
		_, _ = io.WriteString(w, eventHead)
		chunk(w, "data: {\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{\"content\":[]}}\n\n")
		chunk(w, ": more\n\n")
		_, _ = io.WriteString(w, "0\r\n\r\n")
	})
	st := start(t, setup{provider: p, upstream: asMCP(t, providers.Settings{}, `{name: look, class: read, when: {tool: [look]}}`)})
	g := st.callTool("R1", "1", "1", "look", `{}`)
	if g.outcome() != "passthrough" || g.broken || !strings.HasSuffix(g.body, ": more\n\n") {
		t.Errorf("%s broken %t: %s", g.outcome(), g.broken, g.body)
	}
}

// A stream that ends without the response is no receipt; one that asks for input
// is not the end of the call.
func TestMCPAnswersThatAreNoReceipt(t *testing.T) {
	var n atomic.Int64
	p := provide(t, func(w net.Conn, h *heard) {
		m := readRPC(t, h.body)
		switch n.Add(1) {
		case 1:
			say(w, 200, fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":{"resultType":"input_required"}}`, m.ID), "Content-Type: application/json")
		case 2:
			say(w, 200, fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":{"isError":true,"content":[]}}`, m.ID), "Content-Type: application/json")
		default:
			say(w, 200, "data: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/message\"}\n\n", "Content-Type: text/event-stream")
		}
	})
	st := start(t, setup{provider: p, upstream: asMCP(t, providers.Settings{}, "")})
	for i, want := range []string{"executed", "executed", "replayed"} {
		if g := st.callTool("R1", "1", fmt.Sprint(i), "a", `{}`); g.outcome() != want {
			t.Errorf("try %d: %s %s", i, g.outcome(), g.body)
		}
	}
	g := st.callTool("R1", "2", "1", "a", `{}`)
	if m := readRPC(t, g.body); m.Result.Problem == nil || m.Result.Problem.Type != problemType+string(journal.UnknownOutcome) {
		t.Errorf("%s", g.body)
	}
}

// What a server says about its tools is learnt from the list that passes: trusted
// it may make a call laxer, untrusted only stricter.
func TestMCPAnnotations(t *testing.T) {
	var effects atomic.Int64
	tools := toolServer(t, &effects)
	p := provide(t, func(w net.Conn, h *heard) {
		if strings.Contains(h.body, "tools/list") {
			say(w, 200, `{"jsonrpc":"2.0","id":1,"result":{"tools":[{"name":"look","annotations":{"readOnlyHint":true}},{"name":"set","annotations":{"idempotentHint":true}},
				{"name":"wipe","annotations":{"readOnlyHint":false,"destructiveHint":true}}]}}`, "Content-Type: application/json")
			return
		}
		tools.play(w, h)
	})
	vouched := `{name: wiped, class: read, when: {tool: [wipe]}}`
	for _, trusts := range []bool{false, true} {
		st := start(t, setup{provider: p, upstream: asMCP(t, providers.Settings{TrustAnnotations: trusts}, vouched)})
		if g := st.callTool("R0", "1", "1", "wipe", `{}`); g.outcome() != "passthrough" {
			t.Errorf("before the list, a tool of which the configuration says that it reads: %s", g.outcome())
		}
		st.sendMCP(`{"jsonrpc":"2.0","id":1,"method":"tools/list"}`)
		want := map[string]string{"look": "executed", "set": "executed", "wipe": "executed"}
		if trusts {
			want["look"] = "passthrough"
		}
		for tool, outcome := range want {
			if g := st.callTool("R1", tool, "1", tool, `{}`); g.outcome() != outcome {
				t.Errorf("trusted %t: %s is %s, want %s", trusts, tool, g.outcome(), outcome)
			}
		}
	}
}

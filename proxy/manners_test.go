package proxy

import (
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"
)

// C68: lines, order, spelling and repetition of header fields stay, both ways.
func TestC68Fields(t *testing.T) {
	answer := []string{
		"Set-Cookie: a=1; Expires=Wed, 21 Oct 2026 07:28:00 GMT", "Set-Cookie: a=2; Path=/x", "set-cookie: b=3",
		"Link: <a>; rel=next", "Link: <b>; rel=prev", `WWW-Authenticate: Basic realm="a"`, "WWW-Authenticate: Bearer",
		"x-lower: 1", "X_Under: 1", "X-Empty: ", "content-type: text/plain", "Date: today", "SERVER: p", "Content-Encoding: x-none", "Trailer-Ish: 1",
	}
	p := provide(t, func(w net.Conn, _ *heard) { say(w, 200, "ok", answer...) })
	st := start(t, setup{provider: p})
	sent := []string{
		"X-Multi: 1", "x-lower: a", "X-Multi: 2", "cookie: a=1; b=2", "Cookie: c=3", "Signature: sig=(\"x-multi\" \"cookie\")",
		"X_Under: 1", "X-Empty: ", "accept-encoding: gzip, br", "User-agent: me", "content-Type: application/json", "Forwarded: for=x",
	}
	for name, g := range map[string]*got{
		"read":   st.get("/tickets/x", sent...),
		"effect": st.post("r", "t", "c", "/tickets/x", "{}", sent...),
		"replay": st.post("r", "t", "c", "/tickets/x", "{}", sent...),
	} {
		if got := provided(g); !equalLines(got, answer) {
			t.Errorf("%s: the client got\n%q\nwant\n%q", name, got, answer)
		}
	}
	for _, h := range p.hits() {
		var got []string
		for _, f := range h.fields {
			name, _, _ := strings.Cut(f, ":")
			if name != "Host" && name != "Content-Length" && name != "Idempotency-Key" {
				got = append(got, f)
			}
		}
		if !equalLines(got, sent) {
			t.Errorf("%s: the provider got\n%q\nwant\n%q", h.line, got, sent)
		}
	}
}

// Hop-by-hop fields go no further, those that Connection names included; Expect
// neither.
func TestHopByHop(t *testing.T) {
	p := provide(t, func(w net.Conn, _ *heard) {
		say(w, 200, "ok", "Connection: keep-alive, X-Hop", "X-Hop: 1", "Keep-Alive: timeout=5", "Proxy-Authenticate: Basic", "Upgrade: h3", "X-Stays: 1")
	})
	st := start(t, setup{provider: p})
	g := st.get("/tickets/x", "Connection: X-Mine", "Connection: keep-alive, X-Too", "X-Mine: 1", "X-Too: 1", "Keep-Alive: 1", "TE: trailers",
		"Proxy-Connection: keep-alive", "Proxy-Authorization: Basic abc", "Expect: something-else", "X-Stays: 1")
	if got := provided(g); !equalLines(got, []string{"X-Stays: 1"}) {
		t.Errorf("the client got %q", got)
	}
	for _, f := range p.hits()[0].fields {
		if name, _, _ := strings.Cut(f, ":"); name != "Host" && name != "X-Stays" {
			t.Errorf("the provider got %q", f)
		}
	}
}

// C70: answers that have no body, and those to HEAD, keep their length and do
// not swallow the next answer.
func TestC70Bodiless(t *testing.T) {
	p := provide(t, func(w net.Conn, h *heard) {
		switch h.target() {
		case "/chunked":
			_, _ = io.WriteString(w, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
		case "/9757":
			_, _ = io.WriteString(w, "HTTP/1.1 200 OK\r\nContent-Length: 9757\r\n\r\n")
		case "/204":
			_, _ = io.WriteString(w, "HTTP/1.1 204 No Content\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nstray")
		case "/304":
			_, _ = io.WriteString(w, "HTTP/1.1 304 Not Modified\r\nContent-Length: 12\r\nETag: \"a\"\r\n\r\n")
		case "/205":
			_, _ = io.WriteString(w, "HTTP/1.1 205 Reset Content\r\nContent-Length: 0\r\n\r\n")
		case "/next":
			say(w, 200, "next")
		}
	})
	st := start(t, setup{provider: p})
	c := dial(t, st.addr)
	for _, row := range []struct {
		method, target string
		status         int
		length         []string
	}{
		{"HEAD", "/chunked", 200, nil},
		{"HEAD", "/9757", 200, []string{"9757"}},
		{"GET", "/204", 204, nil},
		{"GET", "/304", 304, []string{"12"}},
		{"GET", "/205", 205, []string{"0"}},
	} {
		began := time.Now()
		c.say(request(row.method, "/tickets"+row.target, ""))
		g, err := c.hear(row.method)
		if err != nil || g.status != row.status {
			t.Fatalf("%s: %+v, %v", row.target, g, err)
		}
		if got := g.values("Content-Length"); fmt.Sprint(got) != fmt.Sprint(row.length) {
			t.Errorf("%s: Content-Length %q, want %q", row.target, got, row.length)
		}
		c.say(request("GET", "/tickets/next", ""))
		if g, err = c.hear("GET"); err != nil || g.body != "next" {
			t.Fatalf("after %s: %+v, %v", row.target, g, err)
		}
		if took := time.Since(began); took > time.Second {
			t.Errorf("%s took %v", row.target, took)
		}
	}
	if g := ask(t, st.addr, request("OPTIONS", "/tickets/next", "", "Counterfoil-Run: r", "Counterfoil-Call: c")); g.outcome() != "passthrough" {
		t.Errorf("OPTIONS is %s", g.outcome())
	}
	st.nothingOf("r")
	for _, target := range []string{"/9757", "/304"} {
		method := map[string]string{"/9757": "HEAD", "/304": "GET"}[target]
		for i := range 2 {
			g := ask(t, st.addr, request(method, "/tickets"+target, "", "Counterfoil-Record: true", "Counterfoil-Run: r"+target[1:], "Counterfoil-Call: c"))
			if got := g.values("Content-Length"); len(got) > 0 && got[0] == "0" || g.body != "" || g.broken {
				t.Errorf("recorded %s, answer %d: %+v", target, i+1, g)
			}
		}
	}
	c.say(request("HEAD", "/nobody", ""))
	g, err := c.hear("HEAD")
	if err != nil || g.status != 404 || g.value("Content-Length") == "" {
		t.Fatalf("a problem to HEAD: %+v, %v", g, err)
	}
	c.say(request("GET", "/tickets/next", ""))
	if g, err = c.hear("GET"); err != nil || g.body != "next" {
		t.Errorf("after it: %+v, %v", g, err)
	}
}

// Pipelined requests are answered in order, reads and effects mixed.
func TestPipelining(t *testing.T) {
	p := provide(t, func(w net.Conn, h *heard) { say(w, 200, h.target()) })
	st := start(t, setup{provider: p})
	c := dial(t, st.addr)
	raw := request("GET", "/tickets/1", "") +
		request("POST", "/tickets/2", "{}", "Counterfoil-Run: r", "Counterfoil-Call: c") +
		request("GET", "/-/v1/runs/none", "") +
		request("POST", "/tickets/3", "{}") +
		request("GET", "/tickets/4", "")
	c.say(raw)
	for i, want := range []string{"/1", "/2", "", "", ""} {
		g, err := c.hear("GET")
		if i == 4 {
			// The fourth was refused with its body unread, or read: either
			// way the fifth is answered or the connection is closed.
			if err == nil && g.body != "/4" {
				t.Errorf("answer 5: %+v", g)
			}
			break
		}
		if err != nil || want != "" && g.body != want {
			t.Fatalf("answer %d: %+v, %v", i+1, g, err)
		}
	}
}

// HTTP/1.0 clients get no chunks.
func TestHTTP10(t *testing.T) {
	p := provide(t, func(w net.Conn, h *heard) {
		if h.target() == "/stream" {
			_, _ = io.WriteString(w, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n0\r\n\r\n")
			return
		}
		say(w, 200, "ok")
	})
	st := start(t, setup{provider: p})
	c := dial(t, st.addr)
	c.say("GET /tickets/x HTTP/1.0\r\nConnection: keep-alive\r\n\r\n")
	if g, err := c.hear("GET"); err != nil || g.body != "ok" || g.value("Connection") != "keep-alive" {
		t.Fatalf("first: %+v, %v", g, err)
	}
	c.say("GET /tickets/stream HTTP/1.0\r\nConnection: keep-alive\r\n\r\n")
	g, err := c.hear("GET")
	if err != nil || g.body != "ab" || g.value("Transfer-Encoding") != "" || g.value("Connection") != "close" {
		t.Fatalf("stream: %+v, %v", g, err)
	}
	g = ask(t, st.addr, "POST /tickets/stream HTTP/1.0\r\nCounterfoil-Run: r\r\nCounterfoil-Call: c\r\nContent-Length: 2\r\n\r\n{}")
	if g.body != "ab" || g.value("Transfer-Encoding") != "" {
		t.Errorf("an effect's stream: %+v", g)
	}
}

// C78: upgrades get a definite answer within a second; an offer of h2c is passed
// over, and the call is recorded.
func TestC78Upgrades(t *testing.T) {
	p := provide(t, created)
	st := start(t, setup{provider: p})
	for name, fields := range map[string][]string{
		"websocket":            {"Connection: Upgrade", "Upgrade: websocket", "Sec-WebSocket-Key: x"},
		"two Connection lines": {"Connection: keep-alive", "Connection: upgrade", "Upgrade: websocket"},
		"a list":               {"Connection: keep-alive, Upgrade", "Upgrade: websocket"},
		"among others":         {"Connection: Upgrade", "Upgrade: h2c, websocket"},
	} {
		began := time.Now()
		st.get("/tickets/x", fields...).isProblem(t, UpgradeUnsupported)
		if took := time.Since(began); took > time.Second {
			t.Errorf("%s took %v", name, took)
		}
	}
	if n := len(p.hits()); n != 0 {
		t.Fatalf("%d requests reached the provider", n)
	}
	g := st.post("r", "t", "c", "/tickets/x", "{}", "Connection: Upgrade, HTTP2-Settings", "Upgrade: h2c", "HTTP2-Settings: AAMAAABk")
	if g.status != 201 || st.records("r") != 1 {
		t.Fatalf("POST with h2c: %d", g.status)
	}
	for _, f := range p.hits()[0].fields {
		if name, _, _ := strings.Cut(f, ":"); strings.EqualFold(name, "Upgrade") || strings.EqualFold(name, "HTTP2-Settings") || strings.EqualFold(name, "Connection") {
			t.Errorf("%q left", f)
		}
	}
}

// C78: a provider that wants an upgrade says so to the client.
func TestC78UpgradeRequired(t *testing.T) {
	p := provide(t, func(w net.Conn, _ *heard) { say(w, 426, "", "Upgrade: websocket", "Connection: Upgrade") })
	st := start(t, setup{provider: p})
	if g := st.get("/tickets/x"); g.status != 426 || g.value("Upgrade") != "" {
		t.Errorf("%d %q", g.status, g.fields)
	}
}

// C79: trailers of requests are read and go nowhere; above all they name no
// call. Trailers of answers are not passed on, at the first time as at a replay.
func TestC79Trailers(t *testing.T) {
	p := provide(t, func(w net.Conn, _ *heard) {
		_, _ = io.WriteString(w, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: X-Sum\r\n\r\n2\r\nab\r\n0\r\nX-Sum: abc\r\nContent-Length: 5\r\n\r\n")
	})
	st := start(t, setup{provider: p})
	upload := func(fields string) string {
		return "POST /tickets/x HTTP/1.1\r\nHost: localhost\r\nTE: trailers\r\nTransfer-Encoding: chunked\r\nTrailer: X-Req, Counterfoil-Call\r\n" + fields +
			"\r\n2\r\n{}\r\n0\r\nX-Req: 1\r\nCounterfoil-Run: r9\r\nCounterfoil-Call: c9\r\nIdempotency-Key: k9\r\n\r\n"
	}
	named := "Counterfoil-Run: r\r\nCounterfoil-Turn: t\r\nCounterfoil-Call: c\r\n"
	first, second := ask(t, st.addr, upload(named)), ask(t, st.addr, upload(named))
	if first.status != 200 || first.body != "ab" || first.value("X-Sum") != "" || first.value("Trailer") != "" {
		t.Errorf("first: %+v", first)
	}
	same(t, "replay", first, second)
	ask(t, st.addr, upload("")).isProblem(t, MissingKey)
	st.nothingOf("r9")
	hits := p.hits()
	if len(hits) != 1 || hits[0].value("X-Req") != "" || hits[0].value("Trailer") != "" || hits[0].body != "{}" {
		t.Fatalf("the provider got %d requests: %q", len(hits), hits[0].fields)
	}
	// A forbidden one is refused.
	g := ask(t, st.addr, strings.Replace(upload(named), "X-Req: 1", "Content-Length: 5", 1))
	if g.status != 400 && g.outcome() != "replayed" {
		t.Errorf("forbidden trailer: %+v", g)
	}
}

// What goes on holds no field of one hop and none of ours, and everything else
// as it came.
func FuzzFilter(f *testing.F) {
	f.Add("X-A", "1", "close, X-A")
	f.Add("Counterfoil-Run", "r", "")
	f.Add("baggage", "counterfoil.run=r, a=b", "keep-alive")
	f.Fuzz(func(t *testing.T, name, value, connection string) {
		if !isToken(name) {
			return // no head has such a field
		}
		came := headerOf("First", "1", name, value, "Connection", connection, "HOST", "h", "expect", "100-continue", "Last", "2")
		x := &exchange{header: came, route: route{upstream: &origin{name: "u"}, target: "/"}}
		before := fmt.Sprint(came)
		r := x.request(nil)
		if fmt.Sprint(came) != before {
			t.Fatal("the header that came was changed")
		}
		for _, field := range r.Header {
			switch lower := strings.ToLower(field.Name); {
			case isOwn(field.Name), lower == "host", lower == "expect", lower == "connection", lower == "content-length", lower == "transfer-encoding", hasOption(came, "Connection", field.Name):
				t.Errorf("%q goes on", field.Name)
			}
		}
	})
}

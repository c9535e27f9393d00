package upstream

import (
	"bufio"
	"context"
	"io"
	"net"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"counterfoil/classify"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	const fasthttp = "github.com/valyala/fasthttp."
	goleak.VerifyTestMain(m,
		// Of the benchmarks' server and of the client beside which they
		// measure; they outlive both, or end late.
		goleak.IgnoreAnyFunction(fasthttp+"updateServerDate.func1"),
		goleak.IgnoreAnyFunction(fasthttp+"(*workerPool).Start.func2"),
		goleak.IgnoreAnyFunction(fasthttp+"(*HostClient).connsCleaner"),
		goleak.IgnoreAnyFunction(fasthttp+"(*TCPDialer).tcpAddrsClean"),
	)
}

// patience bounds every wait in these tests. Reaching it is a failure.
const patience = 10 * time.Second

// A provider is a real TCP server whose every connection plays a script.
type provider struct {
	addr  string
	mu    sync.Mutex
	heard []heard // whole requests, as they came
	conns int
}

// heard is one request, byte for byte.
type heard struct {
	line  string   // without CRLF
	lines []string // header lines without CRLF
	body  string
}

func (h *heard) values(name string) []string {
	var vs []string
	for _, l := range h.lines {
		if k, v, _ := strings.Cut(l, ":"); strings.EqualFold(k, name) {
			vs = append(vs, strings.TrimSpace(v))
		}
	}
	return vs
}

// A peer is the provider's end of one connection.
type peer struct {
	net.Conn
	t  *testing.T
	p  *provider
	br *bufio.Reader
	n  int // 1 for the provider's first connection
}

func provide(t *testing.T, play func(*peer)) *provider {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return provideOn(t, ln, play)
}

// provideOn plays until the test ends, and closes all that is open then.
func provideOn(t *testing.T, ln net.Listener, play func(*peer)) *provider {
	t.Helper()
	p := &provider{addr: ln.Addr().String()}
	var open sync.Map
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			nc, err := ln.Accept()
			if err != nil {
				return
			}
			p.mu.Lock()
			p.conns++
			pe := &peer{Conn: nc, t: t, p: p, br: bufio.NewReader(nc), n: p.conns}
			p.mu.Unlock()
			open.Store(nc, nil)
			wg.Go(func() {
				defer nc.Close()
				play(pe)
			})
		}
	})
	t.Cleanup(func() {
		ln.Close()
		open.Range(func(nc, _ any) bool { nc.(net.Conn).Close(); return true })
		wg.Wait()
	})
	return p
}

// hear reads a request whole, or reports false at the connection's end.
func (pe *peer) hear() (heard, bool) {
	h, ok := pe.hearHead()
	if !ok {
		return h, false
	}
	if n := h.values("Content-Length"); len(n) == 1 {
		length, err := strconv.Atoi(n[0])
		if err != nil {
			pe.t.Errorf("Content-Length %q", n[0])
			return h, false
		}
		body := make([]byte, length)
		if _, err := io.ReadFull(pe.br, body); err != nil {
			return h, false
		}
		h.body = string(body)
	}
	pe.p.mu.Lock()
	pe.p.heard = append(pe.p.heard, h)
	pe.p.mu.Unlock()
	return h, true
}

func (pe *peer) hearHead() (h heard, ok bool) {
	for {
		line, err := pe.br.ReadString('\n')
		if err != nil {
			return h, false
		}
		line = strings.TrimSuffix(line, "\r\n")
		switch {
		case line == "":
			return h, true
		case h.line == "":
			h.line = line
		default:
			h.lines = append(h.lines, line)
		}
	}
}

func (pe *peer) say(s string) { io.WriteString(pe.Conn, s) } // a client that hung up is no failure

// reset ends the connection with RST instead of FIN.
func (pe *peer) reset() {
	pe.Conn.(*net.TCPConn).SetLinger(0)
	pe.Close()
}

// waitGone returns once the client has hung up.
func (pe *peer) waitGone() { io.Copy(io.Discard, pe.br) }

func (p *provider) hits() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.heard)
}

func (p *provider) last() heard {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.heard[len(p.heard)-1]
}

func (p *provider) connections() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.conns
}

// answering is a script: every request gets the same answer, as is.
func answering(answer string) func(*peer) {
	return func(pe *peer) {
		for {
			if _, ok := pe.hear(); !ok {
				return
			}
			pe.say(answer)
		}
	}
}

const okAnswer = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"

func (p *provider) client(t *testing.T) *Client {
	t.Helper()
	return newClient(t, Config{URL: "http://" + p.addr})
}

func newClient(t *testing.T, cfg Config) *Client {
	t.Helper()
	c, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

func request(method, target, body string) *classify.Request {
	return &classify.Request{Method: method, Target: target, Body: []byte(body)}
}

func send(t *testing.T, c *Client, r *classify.Request) *classify.Response {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	t.Cleanup(cancel)
	return c.Send(ctx, r)
}

func wantEvidence(t *testing.T, resp *classify.Response, want classify.Evidence) {
	t.Helper()
	if resp.Evidence != want {
		t.Fatalf("evidence %v (%s), want %v", resp.Evidence, resp.Reason, want)
	}
	if want != classify.Answered && (resp.Reason == "" || resp.Body != nil) {
		t.Fatalf("%v: reason %q, body %v; want a reason and no body", want, resp.Reason, resp.Body)
	}
}

// read reads a whole body and fails unless it ended cleanly.
func read(t *testing.T, resp *classify.Response) string {
	t.Helper()
	wantEvidence(t, resp, classify.Answered)
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatalf("body after %d bytes: %v", len(b), err)
	}
	if err := resp.Body.Close(); err != nil {
		t.Fatalf("closing the body: %v", err)
	}
	return string(b)
}

// exchangeOK sends r and wants a clean answer with that status and body.
func exchangeOK(t *testing.T, c *Client, r *classify.Request, status int, body string) *classify.Response {
	t.Helper()
	resp := send(t, c, r)
	got := read(t, resp)
	if resp.Status != status || got != body {
		t.Fatalf("%s %s: %d %q, want %d %q", r.Method, r.Target, resp.Status, got, status, body)
	}
	return resp
}

// eventually polls what no signal tells: the state of a socket.
func eventually(t *testing.T, what string, cond func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !cond(); {
		if time.Now().After(end) {
			t.Fatalf("%s did not come true within %v", what, patience)
		}
		<-time.After(time.Millisecond)
	}
}

// idleConn is the one idle connection of c.
func idleConn(t *testing.T, c *Client) *conn {
	t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.idle) != 1 {
		t.Fatalf("%d idle connections, want 1", len(c.idle))
	}
	return c.idle[0]
}

func idleCount(c *Client) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.idle)
}

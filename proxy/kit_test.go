package proxy

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http/httputil"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"counterfoil/classify"
	"counterfoil/internal/journal"
	"counterfoil/internal/upstream"
	"counterfoil/keystore"
	"counterfoil/keystore/storetest"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m,
		// fasthttp's sweeper of idle workers sleeps out its last ten seconds
		// after a server has stopped.
		goleak.IgnoreAnyFunction("github.com/valyala/fasthttp.(*workerPool).Start.func2"))
}

// deadline bounds every wait in these tests. Reaching it is a failure.
const deadline = 20 * time.Second

// A heard is a request as it reached a provider, byte for byte.
type heard struct {
	line   string // without CRLF
	fields []string
	body   string
}

func (h *heard) target() string { return strings.Fields(h.line)[1] }

// values are the values of a field, in order.
func (h *heard) values(name string) []string { return fieldValues(h.fields, name) }

func (h *heard) value(name string) string {
	if vs := h.values(name); len(vs) > 0 {
		return vs[0]
	}
	return ""
}

func fieldValues(fields []string, name string) []string {
	var vs []string
	for _, line := range fields {
		if n, v, _ := strings.Cut(line, ":"); strings.EqualFold(n, name) {
			vs = append(vs, strings.TrimSpace(v))
		}
	}
	return vs
}

// A provider is a real TCP server that plays a script for each request.
type provider struct {
	t    testing.TB
	addr string
	play func(w net.Conn, h *heard)

	mu    sync.Mutex
	heard []*heard
	open  map[net.Conn]bool
	busy  sync.WaitGroup
}

func provide(t testing.TB, play func(w net.Conn, h *heard)) *provider {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &provider{t: t, addr: ln.Addr().String(), play: play, open: map[net.Conn]bool{}}
	p.busy.Go(func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			p.mu.Lock()
			p.open[c] = true
			p.mu.Unlock()
			p.busy.Go(func() { p.converse(c) })
		}
	})
	t.Cleanup(func() {
		_ = ln.Close()
		p.mu.Lock()
		for c := range p.open {
			_ = c.Close()
		}
		p.mu.Unlock()
		p.busy.Wait()
	})
	return p
}

func (p *provider) converse(c net.Conn) {
	defer func() {
		_ = c.Close()
		p.mu.Lock()
		delete(p.open, c)
		p.mu.Unlock()
	}()
	br := bufio.NewReader(c)
	for {
		h, err := hear(br)
		if err != nil {
			return
		}
		p.mu.Lock()
		p.heard = append(p.heard, h)
		p.mu.Unlock()
		p.play(c, h)
	}
}

func hear(br *bufio.Reader) (*heard, error) {
	lines, err := readHead(br)
	if err != nil {
		return nil, err
	}
	h := &heard{line: lines[0], fields: lines[1:]}
	if n, _ := strconv.Atoi(h.value("Content-Length")); n > 0 {
		b := make([]byte, n)
		if _, err := io.ReadFull(br, b); err != nil {
			return nil, err
		}
		h.body = string(b)
	}
	return h, nil
}

func readHead(br *bufio.Reader) ([]string, error) {
	var lines []string
	for {
		line, err := br.ReadString('\n')
		if err != nil {
			return nil, err
		}
		line = strings.TrimRight(line, "\r\n")
		if line == "" && len(lines) > 0 {
			return lines, nil
		}
		lines = append(lines, line)
	}
}

// hits are the requests that have reached the provider.
func (p *provider) hits() []*heard {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]*heard(nil), p.heard...)
}

func (p *provider) conns() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.open)
}

// say writes an answer with a Content-Length.
func say(w net.Conn, status int, body string, fields ...string) {
	var b strings.Builder
	fmt.Fprintf(&b, "HTTP/1.1 %d X\r\n", status)
	for _, f := range fields {
		b.WriteString(f + "\r\n")
	}
	fmt.Fprintf(&b, "Content-Length: %d\r\n\r\n%s", len(body), body)
	_, _ = io.WriteString(w, b.String())
}

func created(w net.Conn, _ *heard) {
	say(w, 201, `{"id":"e-1"}`, "Content-Type: application/json")
}

// A stack is a sidecar's data path from listener to store.
type stack struct {
	t       testing.TB
	disk    *storetest.Disk
	store   *storetest.Memory
	journal *journal.Journal
	server  *Server
	addr    string
	own     string // the listener of upstream "tickets" alone
	setup   setup
	stop    func()
}

type setup struct {
	provider *provider
	base     string // path of the upstream's URL
	proxy    func(*Config)
	upstream func(*journal.Upstream)
	wire     func(*upstream.Config)
	store    func(keystore.Store) keystore.Store // what the journal gets
}

// start runs a stack whose upstreams "tickets" and "other" are the provider.
func start(t testing.TB, s setup) *stack {
	t.Helper()
	return open(t, s, storetest.NewDisk())
}

func open(t testing.TB, s setup, disk *storetest.Disk) *stack {
	t.Helper()
	store, err := storetest.OpenMemory(disk, time.Now)
	if err != nil {
		t.Fatal(err)
	}
	st := &stack{t: t, disk: disk, store: store, setup: s}
	target := "http://" + s.provider.addr + s.base
	cfg := Config{Records: store, Upstreams: []Upstream{{Name: "tickets", URL: target}, {Name: "other", URL: target}}}
	wire := upstream.Config{URL: target}
	if s.wire != nil {
		s.wire(&wire)
	}
	var known []*journal.Upstream
	for _, u := range cfg.Upstreams {
		client, err := upstream.New(wire)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(client.Close)
		secrets, err := classify.NewSecrets(nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		ju := &journal.Upstream{Name: u.Name, Origin: "http://" + s.provider.addr, Sender: client, Finder: client, Secrets: secrets, PauseOnUnknown: true}
		if s.upstream != nil {
			s.upstream(ju)
		}
		known = append(known, ju)
	}
	jc := journal.Config{Store: store, Upstreams: known}
	if s.store != nil {
		jc.Store = s.store(store)
	}
	if st.journal, err = journal.New(jc); err != nil {
		t.Fatal(err)
	}
	cfg.Journal = st.journal
	if s.proxy != nil {
		s.proxy(&cfg)
	}
	if st.server, err = New(cfg); err != nil {
		t.Fatal(err)
	}
	var serving sync.WaitGroup
	listen := func(upstream string) string {
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		serving.Go(func() {
			if err := st.server.Serve(ln, upstream); err != nil {
				t.Errorf("serving: %v", err)
			}
		})
		return ln.Addr().String()
	}
	st.addr, st.own = listen(""), listen("tickets")
	// A listener that has answered is one that Shutdown will find.
	for _, addr := range []string{st.addr, st.own} {
		ask(t, addr, "GET /-/ready HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
	}
	st.stop = sync.OnceFunc(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
		defer cancel()
		_ = st.server.Shutdown(ctx)
		serving.Wait()
		_ = st.journal.Drain(ctx)
		st.journal.Close()
		_ = store.Close()
	})
	t.Cleanup(st.stop)
	return st
}

// restart is what a new process would find.
func (st *stack) restart() *stack {
	st.t.Helper()
	st.stop()
	return open(st.t, st.setup, st.disk)
}

// records counts the calls of a run on record.
func (st *stack) records(run string) int {
	st.t.Helper()
	l, err := st.store.Calls(context.Background(), "default", run, keystore.Page{})
	if err != nil {
		st.t.Fatalf("listing calls of %s: %v", run, err)
	}
	return len(l.Items)
}

// A got is an answer as it came, byte for byte.
type got struct {
	status int
	fields []string // without framing's meaning lost
	body   string
	// broken says that the body did not come to a clean end.
	broken bool
}

func (g *got) values(name string) []string { return fieldValues(g.fields, name) }

func (g *got) value(name string) string {
	if vs := g.values(name); len(vs) > 0 {
		return vs[0]
	}
	return ""
}

func (g *got) outcome() string { return g.value("Counterfoil-Outcome") }

// problem reads a problem document.
func (g *got) problem(t *testing.T) Document {
	t.Helper()
	var d Document
	if g.value("Content-Type") != "application/problem+json" {
		t.Fatalf("answer is no problem: %d %q %s", g.status, g.fields, g.body)
	}
	if err := json.Unmarshal([]byte(g.body), &d); err != nil {
		t.Fatalf("problem %q: %v", g.body, err)
	}
	if d.Status != g.status || d.Detail == "" || d.Title == "" {
		t.Errorf("problem %+v does not go with status %d", d, g.status)
	}
	return d
}

// isProblem checks a refusal's name, and that its status is the table's.
func (g *got) isProblem(t *testing.T, name journal.Problem) Document {
	t.Helper()
	d := g.problem(t)
	if d.Type != problemType+string(name) {
		t.Fatalf("problem is %s (%s), want %s", d.Type, d.Detail, name)
	}
	if want := problems[row(name)].status; d.Status != want {
		t.Errorf("status is %d, want %d", d.Status, want)
	}
	return d
}

// A client is a raw connection to a listener.
type client struct {
	net.Conn
	t  testing.TB
	br *bufio.Reader
}

func dial(t testing.TB, addr string) *client {
	t.Helper()
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	_ = c.SetDeadline(time.Now().Add(deadline))
	return &client{Conn: c, t: t, br: bufio.NewReader(c)}
}

func (c *client) say(raw string) {
	c.t.Helper()
	if _, err := io.WriteString(c, raw); err != nil {
		c.t.Fatalf("sending: %v", err)
	}
}

// head reads an answer's head.
func (c *client) head() (*got, error) {
	lines, err := readHead(c.br)
	if err != nil {
		return nil, err
	}
	if len(lines[0]) < 12 {
		return nil, fmt.Errorf("status line %q", lines[0])
	}
	status, err := strconv.Atoi(lines[0][9:12])
	return &got{status: status, fields: lines[1:]}, err
}

// hear reads a whole answer to a request of that method.
func (c *client) hear(method string) (*got, error) {
	g, err := c.head()
	if err != nil {
		return nil, err
	}
	return g, c.body(method, g)
}

func (c *client) body(method string, g *got) error {
	var b []byte
	var err error
	switch length := g.value("Content-Length"); {
	case method == "HEAD", g.status < 200, g.status == 204, g.status == 304:
		return nil
	case g.value("Transfer-Encoding") != "":
		b, err = io.ReadAll(httputil.NewChunkedReader(c.br))
		if err == nil {
			_, err = readTrailer(c.br)
		}
	case length != "":
		n, _ := strconv.Atoi(length)
		b = make([]byte, n)
		var read int
		read, err = io.ReadFull(c.br, b)
		b = b[:read]
	default:
		b, err = io.ReadAll(c.br)
	}
	g.body, g.broken = string(b), err != nil
	return nil
}

func readTrailer(br *bufio.Reader) ([]string, error) {
	var lines []string
	for {
		line, err := br.ReadString('\n')
		if err != nil {
			return nil, err
		}
		if line = strings.TrimRight(line, "\r\n"); line == "" {
			return lines, nil
		}
		lines = append(lines, line)
	}
}

// ask sends one raw request on a connection of its own.
func ask(t testing.TB, addr, raw string) *got {
	t.Helper()
	c := dial(t, addr)
	defer c.Close()
	c.say(raw)
	g, err := c.hear(strings.Fields(raw)[0])
	if err != nil {
		t.Fatalf("answer to %.60q: %v", raw, err)
	}
	return g
}

// request writes a raw request with a length.
func request(method, target, body string, fields ...string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s HTTP/1.1\r\nHost: localhost\r\n", method, target)
	for _, f := range fields {
		b.WriteString(f + "\r\n")
	}
	if body != "" {
		fmt.Fprintf(&b, "Content-Length: %d\r\n", len(body))
	}
	return b.String() + "\r\n" + body
}

// post sends an effect of a call.
func (st *stack) post(run, turn, call, target, body string, fields ...string) *got {
	st.t.Helper()
	return ask(st.t, st.addr, request("POST", target, body, append([]string{
		"Counterfoil-Run: " + run, "Counterfoil-Turn: " + turn, "Counterfoil-Call: " + call,
	}, fields...)...))
}

func (st *stack) get(target string, fields ...string) *got {
	st.t.Helper()
	return ask(st.t, st.addr, request("GET", target, "", fields...))
}

// same checks that two answers are the same but for what a replay changes.
func same(t *testing.T, what string, first, second *got) {
	t.Helper()
	if first.status != second.status || first.body != second.body || second.broken {
		t.Errorf("%s: got %d %q (broken %v), want %d %q", what, second.status, second.body, second.broken, first.status, first.body)
	}
	if a, b := provided(first), provided(second); !equalLines(a, b) {
		t.Errorf("%s: fields are\n%q\nwant\n%q", what, b, a)
	}
}

// provided are the fields that are the provider's.
func provided(g *got) []string {
	var kept []string
	for _, line := range g.fields {
		name, _, _ := strings.Cut(line, ":")
		switch {
		case isOwn(name), name == "Idempotent-Replayed", name == "Connection", name == "Content-Length", name == "Transfer-Encoding":
		default:
			kept = append(kept, line)
		}
	}
	return kept
}

func equalLines(a, b []string) bool { return strings.Join(a, "\n") == strings.Join(b, "\n") }

// eventually polls for what no signal tells.
func eventually(t *testing.T, what string, within time.Duration, is func() bool) {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(within); !is(); <-tick.C {
		if time.Now().After(end) {
			t.Fatalf("%s: not within %v", what, within)
		}
	}
}

func tcpAddr(s string) net.Addr {
	a, err := net.ResolveTCPAddr("tcp", s)
	if err != nil {
		panic(err)
	}
	return a
}

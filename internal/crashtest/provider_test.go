package crashtest

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// pieceBytes is how a provider cuts an answer that it streams.
const pieceBytes = 16 << 10

// order is the body of every request: which call it stands for, and how large
// the answer is to be.
type order struct {
	Call  string `json:"call"`
	Bytes int    `json:"bytes,omitempty"`
}

// An effect is one line of the ledger: all that one call has come to.
type effect struct {
	call string
	// count is how often the effect happened, hits how often it was asked for.
	count, hits int
	keys        map[string]bool
	requests    []string
	// object is the answer to the first request that had the effect.
	object string
}

// A mishap is what befalls one request. The zero value is none.
type mishap struct {
	// hold keeps the answer back after the effect until it is closed; holdMid
	// keeps back all but its first piece.
	hold, holdMid <-chan struct{}
	// cut resets the connection instead of answering: before the effect, after
	// it, or in the middle of the answer.
	cut cut
	// status answers with that status after the effect, if not 0.
	status int
}

type cut uint8

const (
	notCut cut = iota
	beforeEffect
	afterEffect
	midAnswer
)

// A provider is a real HTTP server that changes a ledger. Under /none it
// deduplicates nothing and cannot be asked; under /keyed it deduplicates by
// Idempotency-Key; under /lookup it answers GET /effects/{key}, and what it
// answers is strongly consistent: a request that arrived before is counted.
type provider struct {
	addr   string
	server *http.Server

	mu     sync.Mutex
	ledger map[string]*effect
	byKey  map[string]*effect
	made   int
	// arrived holds the connections whose request is not yet decided.
	arrived map[net.Conn]chan struct{}
	// befall says what happens to the nth request (from 1) for a call.
	befall func(call string, nth int) mishap
	// lookupBroken is how many lookups are still answered 503; lookups counts
	// them all.
	lookupBroken, lookups int
	// watch gets each effect's call as it happens.
	watch func(call string)
}

func newProvider(t *testing.T) *provider {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal("listening as a provider:", err)
	}
	p := &provider{
		addr: ln.Addr().String(), ledger: map[string]*effect{}, byKey: map[string]*effect{}, arrived: map[net.Conn]chan struct{}{},
		befall: func(string, int) mishap { return mishap{} }, watch: func(string) {},
	}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /{kind}/things", p.create)
	mux.HandleFunc("GET /lookup/effects/{key}", p.find)
	p.server = &http.Server{Handler: mux, ReadHeaderTimeout: patience, ConnState: p.follow, ConnContext: withConn}
	go func() { _ = p.server.Serve(ln) }() // it ends with Close
	t.Cleanup(func() { _ = p.server.Close() })
	return p
}

type connKey struct{}

func withConn(ctx context.Context, c net.Conn) context.Context {
	return context.WithValue(ctx, connKey{}, c)
}

// follow keeps count of the connections that may still bring an effect.
func (p *provider) follow(c net.Conn, state http.ConnState) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if state == http.StateNew {
		p.arrived[c] = make(chan struct{})
	} else if state != http.StateActive {
		p.decide(c)
	}
}

// decide notes that c brings nothing that is not in the ledger. It needs mu.
func (p *provider) decide(c net.Conn) {
	if ch := p.arrived[c]; ch != nil {
		close(ch)
		delete(p.arrived, c)
	}
}

func (p *provider) create(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(io.LimitReader(r.Body, 1<<20))
	var o order
	if err != nil || json.Unmarshal(body, &o) != nil {
		http.Error(w, "the body is no order", http.StatusBadRequest)
		return
	}
	key, kind := r.Header.Get("Idempotency-Key"), r.PathValue("kind")
	object, m, report := p.commit(r, kind, key, o, string(body))
	report()
	if m.hold != nil {
		<-m.hold
	}
	switch {
	case m.cut == beforeEffect || m.cut == afterEffect:
		reset(w)
	case m.status != 0:
		http.Error(w, `{"error":"something went wrong"}`, m.status)
	default:
		if kind == "lookup" {
			w.Header().Set("Connection", "close") // so that arrived is exact: no request waits unseen on a pooled connection
		}
		answer(w, r, object, m)
	}
}

// commit has the effect, unless the key is known to a provider that
// deduplicates. report tells the watcher, and must be called without mu.
func (p *provider) commit(r *http.Request, kind, key string, o order, raw string) (object string, m mishap, report func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	defer p.decide(r.Context().Value(connKey{}).(net.Conn))
	e := p.ledger[o.Call]
	if e == nil {
		e = &effect{call: o.Call, keys: map[string]bool{}}
		p.ledger[o.Call] = e
	}
	e.hits++
	e.keys[key] = true
	e.requests = append(e.requests, raw)
	m = p.befall(o.Call, e.hits)
	if m.cut == beforeEffect {
		return "", m, func() {}
	}
	if first := p.byKey[key]; kind == "keyed" && first != nil {
		return first.object, m, func() {}
	}
	e.count++
	p.made++
	made := objectOf(o, key, p.made)
	if e.count == 1 {
		e.object = made
	}
	p.byKey[key] = e
	watch := p.watch
	return made, m, func() { watch(o.Call) }
}

// objectOf is unlike any other, even if the same call has its effect twice.
func objectOf(o order, key string, n int) string {
	head := fmt.Sprintf(`{"id":"effect-%d","call":%q,"key":%q,"fill":"`, n, o.Call, key)
	fill := max(0, o.Bytes-len(head)-3)
	line := strconv.Itoa(n) + "."
	return head + strings.Repeat(line, fill/len(line)+1)[:fill] + "\"}\n"
}

func (p *provider) find(w http.ResponseWriter, r *http.Request) {
	p.settle(r)
	p.mu.Lock()
	p.lookups++
	broken := p.lookupBroken > 0
	if broken {
		p.lookupBroken--
	}
	e := p.byKey[r.PathValue("key")]
	p.mu.Unlock()
	w.Header().Set("Connection", "close")
	switch {
	case broken:
		http.Error(w, `{"error":"not now"}`, http.StatusServiceUnavailable)
	case e == nil:
		http.Error(w, `{"error":"no such effect"}`, http.StatusNotFound)
	default:
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, e.object)
	}
}

// settle waits until every request that arrived before r is decided.
func (p *provider) settle(r *http.Request) {
	p.mu.Lock()
	p.decide(r.Context().Value(connKey{}).(net.Conn))
	var earlier []chan struct{}
	for _, ch := range p.arrived {
		earlier = append(earlier, ch)
	}
	p.mu.Unlock()
	for _, ch := range earlier {
		select {
		case <-ch:
		case <-r.Context().Done():
			return
		}
	}
}

// answer sends the object as the target asks: with a length, in chunks, or as
// an event stream.
func answer(w http.ResponseWriter, r *http.Request, object string, m mishap) {
	manner := r.URL.Query().Get("answer")
	w.Header().Set("Content-Type", "application/json")
	if manner == "sse" {
		w.Header().Set("Content-Type", "text/event-stream")
	}
	if manner == "plain" || manner == "long" {
		w.Header().Set("Content-Length", strconv.Itoa(len(object)))
	}
	w.WriteHeader(http.StatusCreated)
	for first := true; len(object) > 0; first = false {
		if !first && m.holdMid != nil {
			<-m.holdMid
		}
		if !first && m.cut == midAnswer {
			reset(w)
			return
		}
		piece := object[:min(len(object), pieceBytes)]
		object = object[len(piece):]
		_, _ = io.WriteString(w, piece) // the sidecar may be dead, which is the point
		w.(http.Flusher).Flush()
	}
}

// reset ends the connection at once, as a host does that has crashed.
func reset(w http.ResponseWriter) {
	conn, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return
	}
	if tcp, ok := conn.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0) // sends RST
	}
	_ = conn.Close()
}

// effectOf returns a copy of the ledger's line on a call; the zero value if
// there is none.
func (p *provider) effectOf(call string) effect {
	p.mu.Lock()
	defer p.mu.Unlock()
	if e := p.ledger[call]; e != nil {
		return *e
	}
	return effect{call: call}
}

// befalls sets what happens to each nth request for a call.
func (p *provider) befalls(f func(call string, nth int) mishap) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.befall = f
}

// first befalls the first request alone.
func first(m mishap) func(string, int) mishap {
	return func(_ string, nth int) mishap {
		if nth == 1 {
			return m
		}
		return mishap{}
	}
}

// effects returns a channel that gets each call whose effect happens.
func (p *provider) effects() <-chan string {
	ch := make(chan string, 1024)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.watch = func(call string) {
		select {
		case ch <- call:
		default: // the test has seen enough
		}
	}
	return ch
}

// await waits for something, no longer than patience.
func await[T any](t *testing.T, what string, ch <-chan T) T {
	t.Helper()
	select {
	case v := <-ch:
		return v
	case <-time.After(patience):
		t.Fatalf("waited %s for %s", patience, what)
		panic("unreachable")
	}
}

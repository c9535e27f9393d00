package crashtest

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// TestC01_RetriedRun: the framework runs the turn again, the model invents
// another id for the tool call, the sidecar has been killed in between.
func TestC01_RetriedRun(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	c := things("none", "plain")
	s := b.released()
	before := s.send(c, "X-Tool-Call-Id", "call_1")
	checkVerdict(t, b.provider, c, before, verdict{"executed", 1, 1})
	s.kill()
	again := b.released().send(c, "X-Tool-Call-Id", "call_3")
	checkVerdict(t, b.provider, c, again, verdict{"replayed", 1, 1})
	sameAnswer(t, before, again)
}

// TestC05_OtherHeaders: attempt numbers, trace ids and the like are neither key
// nor fingerprint.
func TestC05_OtherHeaders(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	c := things("none", "plain")
	s := b.released()
	before := s.send(c, "Attempt", "1", "Traceparent", "00-aa000000000000000000000000000001-00f067aa0ba902b7-01",
		"X-Request-Id", "q1", "User-Agent", "sdk/1", "X-Stainless-Retry-Count", "0")
	checkVerdict(t, b.provider, c, before, verdict{"executed", 1, 1})
	s.kill()
	again := b.released().send(c, "Attempt", "2", "Traceparent", "00-bb000000000000000000000000000002-00f067aa0ba902b7-01",
		"X-Request-Id", "q2", "User-Agent", "sdk/1.1", "X-Stainless-Retry-Count", "1")
	checkVerdict(t, b.provider, c, again, verdict{"replayed", 1, 1})
	sameAnswer(t, before, again)
}

// TestC06_ImpatientSDK: a client that gives up and retries twice while the
// provider takes its time.
func TestC06_ImpatientSDK(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	hold := make(chan struct{})
	release := onceClose(t, hold)
	b.provider.befalls(first(mishap{hold: hold}))
	effects := b.provider.effects()
	s, c := b.released(), things("none", "long")
	for attempt := range 2 {
		ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
		if r := s.sendWithin(ctx, c, "X-Stainless-Retry-Count", fmt.Sprint(attempt)); !errors.Is(r.err, context.DeadlineExceeded) {
			t.Fatalf("attempt %d: %s", attempt+1, r)
		}
		cancel()
	}
	await(t, "the effect", effects)
	third := make(chan reply, 1)
	go func() { third <- s.send(c, "X-Stainless-Retry-Count", "2") }()
	release()
	r := await(t, "the third attempt's answer", third)
	e := b.provider.effectOf(c.String())
	if r.status != http.StatusCreated || r.body != e.object || len(r.body) != 3<<20 || e.count != 1 || e.hits != 1 {
		t.Errorf("%d effects of %d requests, and %s", e.count, e.hits, r)
	}
	if o := r.outcome(); o != "coalesced" && o != "replayed" {
		t.Errorf("the third attempt was %q", o)
	}
	checkRepeat(t, s, c, r)
	s.kill()
	checkRepeat(t, b.released(), c, r)
}

// TestC08_EqualArguments: equal requests in two turns are two calls, and each
// keeps its own answer.
func TestC08_EqualArguments(t *testing.T) {
	t.Parallel()
	var polls atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = fmt.Fprintf(w, `{"attempt":%d}`, polls.Add(1))
	}))
	t.Cleanup(server.Close)
	b := newBench(t)
	b.configure("upstreams:\n  poll: {url: " + server.URL + "}\n")
	s := b.released()
	poll := func(s *sidecar, turn, want string) {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.base+"/poll/status", strings.NewReader(`{"job":7}`))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Counterfoil-Run", "R1")
		req.Header.Set("Counterfoil-Turn", turn)
		req.Header.Set("Counterfoil-Call", "1")
		if r := do(b.client, req); r.err != nil || r.body != want {
			t.Errorf("turn %s: %s, not %s", turn, r, want)
		}
	}
	poll(s, "1", `{"attempt":1}`)
	poll(s, "2", `{"attempt":2}`)
	s.kill()
	s = b.released()
	poll(s, "1", `{"attempt":1}`)
	poll(s, "2", `{"attempt":2}`)
	if n := polls.Load(); n != 2 {
		t.Errorf("%d requests reached the provider, not 2", n)
	}
}

// TestC10_OutputLost: the receipt is durable, the agent was never told. It finds
// the call in the list of its run, and gets the answer.
func TestC10_OutputLost(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	c := things("none", "plain")
	doomed := b.crashing("finish.after", 1)
	if r := doomed.send(c); r.err == nil {
		t.Fatalf("the agent was told: %s", r)
	}
	doomed.crashed()

	s := b.released()
	var run struct {
		Calls struct {
			Items []struct {
				Turn, Call, State string
				Receipt           struct {
					Status     int
					BodySHA256 string `json:"body_sha256"`
					SettledAt  string `json:"settled_at"`
				}
			}
		}
	}
	s.get("/-/v1/runs/"+c.run, &run)
	object := b.provider.effectOf(c.String()).object
	digest := sha256.Sum256([]byte(object))
	if len(run.Calls.Items) != 1 {
		t.Fatalf("the run lists %d calls, not 1", len(run.Calls.Items))
	}
	listed := run.Calls.Items[0]
	if listed.Turn != c.turn || listed.Call != c.id || listed.State != "succeeded" || listed.Receipt.Status != 201 ||
		listed.Receipt.BodySHA256 != hex.EncodeToString(digest[:]) || listed.Receipt.SettledAt == "" {
		t.Errorf("listed as %+v", listed)
	}
	checkVerdict(t, b.provider, c, s.send(c), verdict{"replayed", 1, 1})
}

// TestC13_ParallelCalls: fifty calls of one turn at once, answered in any order,
// some of them to nobody. Each agent reads its own answer, before a restart and
// after.
func TestC13_ParallelCalls(t *testing.T) {
	t.Parallel()
	const calls, leaving = 50, 5
	b := newBench(t)
	order := rand.New(rand.NewPCG(13, 50)).Perm(calls)
	holds := make([]chan struct{}, calls)
	for i := range holds {
		holds[i] = make(chan struct{})
	}
	b.provider.befalls(func(name string, _ int) mishap {
		var i int
		_, _ = fmt.Sscanf(name, "run-1:1:%d", &i) // the test's own names
		return mishap{hold: holds[i]}
	})
	effects := b.provider.effects()
	nth := func(i int) call {
		c := things("none", "plain")
		c.id, c.bytes = fmt.Sprint(i), 2000
		return c
	}

	s := b.released()
	replies := make([]reply, calls)
	ctx, hangUp := context.WithCancel(t.Context())
	var staying, leavers sync.WaitGroup
	for i := range calls {
		if i < leaving {
			leavers.Go(func() { s.sendWithin(ctx, nth(i)) })
		} else {
			staying.Go(func() { replies[i] = s.send(nth(i)) })
		}
	}
	for range calls {
		await(t, "all effects", effects)
	}
	hangUp()
	leavers.Wait()
	for _, i := range order {
		close(holds[i])
	}
	staying.Wait()
	for i := leaving; i < calls; i++ {
		checkVerdict(t, b.provider, nth(i), replies[i], verdict{"executed", 1, 1})
	}
	s.terminate() // so that those whom nobody waits for get their receipts too
	if code := s.ended(); code != 0 {
		t.Fatalf("exit code %d", code)
	}

	s = b.released()
	var again sync.WaitGroup
	for i := range calls {
		again.Go(func() { replies[i] = s.send(nth(i)) })
	}
	again.Wait()
	for i := range calls {
		checkVerdict(t, b.provider, nth(i), replies[i], verdict{"replayed", 1, 1})
	}
}

// A gate is a listener whose first connection says nothing until it is opened.
type gate struct {
	net.Listener
	reached chan struct{}
	open    chan struct{}
	once    sync.Once
}

func (g *gate) Accept() (net.Conn, error) {
	conn, err := g.Listener.Accept()
	if err != nil {
		return nil, err
	}
	held := false
	g.once.Do(func() { held = true })
	if held {
		conn = &gatedConn{Conn: conn, gate: g}
	}
	return conn, nil
}

// A gatedConn has been accepted, and its client has begun the TLS handshake.
type gatedConn struct {
	net.Conn
	gate *gate
	once sync.Once
}

func (c *gatedConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.once.Do(func() {
		close(c.gate.reached)
		<-c.gate.open
	})
	return n, err
}

// TestC17c_ConnectedNothingSent: the connection is there, the handshake is not
// through, so that no byte of the request can have left.
func TestC17c_ConnectedNothingSent(t *testing.T) {
	for kind, want := range intentKnown {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			g := b.secure()
			s, c := b.released(), things(kind, "plain")
			answered := s.sendAway(c)
			await(t, "the handshake to begin", g.reached)
			s.kill()
			close(g.open)
			if r := await(t, "the agent's end", answered); r.err == nil {
				t.Fatalf("a killed sidecar answered %s", r)
			}
			s = b.released()
			r := s.ask(c)
			checkVerdict(t, b.provider, c, r, want)
			checkRepeat(t, s, c, r)
		})
	}
}

// secure puts the bench's provider behind TLS and a gate.
func (b *bench) secure() *gate {
	b.Helper()
	g := &gate{reached: make(chan struct{}), open: make(chan struct{})}
	server := httptest.NewUnstartedServer(b.provider.server.Handler)
	server.Config.ConnState, server.Config.ConnContext = b.provider.follow, withConn
	server.Config.ErrorLog = log.New(io.Discard, "", 0) // handshakes that are cut off
	g.Listener = server.Listener
	server.Listener = g
	server.TLS = &tls.Config{MinVersion: tls.VersionTLS12}
	server.StartTLS()
	b.Cleanup(server.Close)
	pemFile := filepath.Join(b.dir, "ca.pem")
	block := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	if err := os.WriteFile(pemFile, block, 0o600); err != nil {
		b.Fatal(err)
	}
	text := strings.ReplaceAll(fmt.Sprintf(configuration, g.Addr()), "http://", "https://")
	b.configure(strings.ReplaceAll(text, "    pause_on_unknown: call\n", "    pause_on_unknown: call\n    ca: "+pemFile+"\n"))
	return g
}

package proxy

import (
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"counterfoil/internal/journal"
	"counterfoil/internal/upstream"
	"counterfoil/keystore/storetest"
)

// chunk writes one chunk.
func chunk(w io.Writer, s string) { _, _ = fmt.Fprintf(w, "%x\r\n%s\r\n", len(s), s) }

const eventHead = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"

// readChunk reads the next chunk that comes.
func (c *client) readChunk() string {
	c.t.Helper()
	size, err := c.br.ReadString('\n')
	if err != nil {
		c.t.Fatalf("reading a chunk: %v", err)
	}
	var n int
	if _, err := fmt.Sscanf(size, "%x", &n); err != nil {
		c.t.Fatalf("chunk size %q", size)
	}
	b := make([]byte, n+2)
	if _, err := io.ReadFull(c.br, b); err != nil {
		c.t.Fatal(err)
	}
	return string(b[:n])
}

// C24: each event reaches the client before the provider writes the next, of a
// read and of an effect, with no length, no coding of ours, and all of it kept.
func TestC24EventsAtOnce(t *testing.T) {
	for _, method := range []string{"GET", "POST"} {
		t.Run(method, func(t *testing.T) {
			next := make(chan struct{})
			p := provide(t, func(w net.Conn, _ *heard) {
				_, _ = io.WriteString(w, eventHead)
				for i := range 10 {
					<-next
					chunk(w, fmt.Sprintf("data: %d\n\n", i))
				}
				<-next
				_, _ = io.WriteString(w, "0\r\n\r\n")
			})
			st := start(t, setup{provider: p})
			c := dial(t, st.addr)
			raw := request(method, "/tickets/x", strings.Repeat("{}", len(method)-3), "Accept: text/event-stream", "Accept-Encoding: gzip, br",
				"Counterfoil-Run: r", "Counterfoil-Turn: t", "Counterfoil-Call: c")
			c.say(raw)
			g, err := c.head()
			if err != nil || g.status != 200 {
				t.Fatalf("%+v, %v", g, err)
			}
			if g.value("Content-Length") != "" || g.value("Content-Encoding") != "" || g.value("Content-Type") != "text/event-stream" {
				t.Errorf("head %q", g.fields)
			}
			whole := ""
			for i := range 10 {
				next <- struct{}{}
				began := time.Now()
				event := c.readChunk()
				if took := time.Since(began); took > 100*time.Millisecond {
					t.Errorf("event %d took %v", i, took)
				}
				if want := fmt.Sprintf("data: %d\n\n", i); event != want {
					t.Fatalf("event %d is %q", i, event)
				}
				whole += event
			}
			next <- struct{}{}
			if last := c.readChunk(); last != "" {
				t.Fatalf("after the last event came %q", last)
			}
			if method == "POST" {
				if again := ask(t, st.addr, raw); again.body != whole || again.outcome() != "replayed" {
					t.Errorf("replay %s: %q", again.outcome(), again.body)
				}
			}
		})
	}
}

// C42 (a, c): the stored stream is whole, whether its first client stayed or
// not.
func TestC42Stream(t *testing.T) {
	tenth, left := make(chan struct{}), make(chan struct{})
	p := provide(t, func(w net.Conn, h *heard) {
		_, _ = io.WriteString(w, eventHead)
		for i := range 21 {
			if i == 10 && h.target() == "/leave" {
				close(tenth)
				<-left
			}
			chunk(w, fmt.Sprintf("id: %d\n\n", i))
		}
		_, _ = io.WriteString(w, "0\r\n\r\n")
	})
	st := start(t, setup{provider: p})
	whole := ""
	for i := range 21 {
		whole += fmt.Sprintf("id: %d\n\n", i)
	}
	first, second := st.post("r", "1", "1", "/tickets/stay", "{}"), st.post("r", "1", "1", "/tickets/stay", "{}")
	if first.body != whole || second.body != whole || second.outcome() != "replayed" || second.value("Content-Length") == "" {
		t.Errorf("%s: %q then %q", second.outcome(), first.body, second.body)
	}
	c := dial(t, st.addr)
	c.say(request("POST", "/tickets/leave", "{}", "Counterfoil-Run: r", "Counterfoil-Turn: 1", "Counterfoil-Call: 2"))
	<-tenth
	_ = c.Close()
	close(left)
	g := st.post("r", "1", "2", "/tickets/leave", "{}")
	if g.body != whole || len(p.hits()) != 2 {
		t.Errorf("after its client left: %s %q, %d requests", g.outcome(), g.body, len(p.hits()))
	}
}

// C42 (b) and C64: a stream that broke off is no answer: the client's is broken
// off too, and a second send neither reaches the provider nor gets the part.
func TestC64CutInMidBody(t *testing.T) {
	for name, script := range map[string]struct {
		head, part string
		reset      bool
	}{
		"chunks then FIN": {eventHead, "3\r\nabc\r\n3\r\ndef\r\n", false},
		"within a chunk":  {eventHead, "9\r\nabc", false},
		"chunks then RST": {eventHead, "3\r\nabc\r\n3\r\ndef\r\n", true},
		"400 of 1000":     {"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n", strings.Repeat("x", 400), false},
		"large, cut":      {"HTTP/1.1 200 OK\r\nContent-Length: 2000000\r\n\r\n", strings.Repeat("x", 400000), false},
	} {
		t.Run(name, func(t *testing.T) {
			read := make(chan struct{})
			p := provide(t, func(w net.Conn, _ *heard) {
				_, _ = io.WriteString(w, script.head+script.part)
				if script.reset {
					<-read
					_ = w.(*net.TCPConn).SetLinger(0)
				}
				_ = w.Close()
			})
			st := start(t, setup{provider: p})
			c := dial(t, st.addr)
			c.say(request("POST", "/tickets/x", "{}", "Counterfoil-Run: r", "Counterfoil-Turn: t", "Counterfoil-Call: c"))
			g, err := c.head()
			close(read)
			if err != nil {
				t.Fatal(err)
			}
			if g.status == 200 {
				if err = c.body("POST", g); err != nil || !g.broken {
					t.Errorf("the client saw a clean end of %q (%v)", g.body, err)
				}
			} else {
				_ = c.body("POST", g)
				g.isProblem(t, journal.UnknownOutcome)
			}
			again := st.post("r", "t", "c", "/tickets/x", "{}", "Prefer: wait=0")
			d := again.isProblem(t, journal.UnknownOutcome)
			if d.SafeNewKey || d.SafeToRetry || again.outcome() != "unknown" || again.value("x-should-retry") != "false" || again.value("stripe-should-retry") != "false" {
				t.Errorf("second: %+v %q", d, again.fields)
			}
			if strings.Contains(again.body, "abc") || len(p.hits()) != 1 {
				t.Errorf("%q, %d requests", again.body, len(p.hits()))
			}
			// Another effect of the run waits, reads do not.
			other := st.post("r", "t", "c2", "/tickets/x", "{}")
			other.isProblem(t, journal.RunPaused)
			eventually(t, "no connection to the provider to be kept", deadline, func() bool { return p.conns() == 0 })
			// A read that is cut is cut for the client, or refused.
			c = dial(t, st.addr)
			c.say(request("GET", "/tickets/x", ""))
			if g, err := c.hear("GET"); err == nil && g.status == 200 && !g.broken {
				t.Errorf("a cut read ended cleanly: %q", g.body)
			}
		})
	}
}

// C64 (d): a body that ends with the connection is whole, and flagged.
func TestC64CloseDelimited(t *testing.T) {
	p := provide(t, func(w net.Conn, _ *heard) {
		_, _ = io.WriteString(w, "HTTP/1.0 200 OK\r\nContent-Type: text/plain\r\n\r\nuntil the end")
		_ = w.Close()
	})
	st := start(t, setup{provider: p})
	first, second := st.post("r", "t", "c", "/tickets/x", "{}"), st.post("r", "t", "c", "/tickets/x", "{}")
	if first.body != "until the end" || first.broken {
		t.Errorf("%+v", first)
	}
	same(t, "replay", first, second)
}

// The end of a streamed answer, which is its last byte where its length is
// known, comes after the receipt is durable.
func TestEndAfterReceipt(t *testing.T) {
	for name, head := range map[string]string{"chunked": eventHead, "sized": "HTTP/1.1 200 OK\r\nContent-Length: 2000000\r\n\r\n"} {
		t.Run(name, func(t *testing.T) {
			body := strings.Repeat("x", 2_000_000)
			p := provide(t, func(w net.Conn, _ *heard) {
				_, _ = io.WriteString(w, head)
				if head != eventHead {
					_, _ = io.WriteString(w, body)
					return
				}
				chunk(w, body)
				_, _ = io.WriteString(w, "0\r\n\r\n")
			})
			st := start(t, setup{provider: p})
			st.disk.Fail(storetest.Fault{Op: storetest.Apply, Moment: storetest.BeforeDurable})
			g := st.post("r", "t", "c", "/tickets/x", "{}")
			if !g.broken || g.status != 200 {
				t.Errorf("the client saw a clean end (%d, %d bytes) of what is not on record", g.status, len(g.body))
			}
		})
	}
}

// C41: the first client gets every byte of a large answer, and every replay the
// same or none.
func TestC41LargeAnswers(t *testing.T) {
	p := provide(t, func(w net.Conn, h *heard) {
		var n int
		_, _ = fmt.Sscanf(h.target(), "/%d", &n)
		body := strings.Repeat("0123456789abcdef", n/16+1)[:n]
		if strings.HasSuffix(h.target(), "chunked") {
			_, _ = io.WriteString(w, "HTTP/1.1 201 Created\r\nTransfer-Encoding: chunked\r\n\r\n")
			chunk(w, body)
			_, _ = io.WriteString(w, "0\r\n\r\n")
			return
		}
		say(w, 201, body)
	})
	st := start(t, setup{provider: p})
	targets := []string{}
	for _, n := range []int{1<<20 - 1, 1 << 20, 1<<20 + 1, 5 << 20} {
		targets = append(targets, fmt.Sprintf("/%d", n), fmt.Sprintf("/%d?chunked", n))
	}
	firsts := map[string]*got{}
	for _, target := range targets {
		var n int
		_, _ = fmt.Sscanf(target, "/%d", &n)
		first := st.post("r", "t", target, "/tickets"+target, "{}")
		if first.status != 201 || len(first.body) != n || first.broken {
			t.Fatalf("%s: %d, %d bytes", target, first.status, len(first.body))
		}
		if !strings.HasSuffix(target, "chunked") && first.value("Content-Length") != fmt.Sprint(n) {
			t.Errorf("%s: Content-Length %q", target, first.value("Content-Length"))
		}
		firsts[target] = first
		same(t, target, first, st.post("r", "t", target, "/tickets"+target, "{}"))
	}
	st = st.restart()
	for _, target := range targets {
		same(t, target+" after a restart", firsts[target], st.post("r", "t", target, "/tickets"+target, "{}"))
	}
	if n := len(p.hits()); n != len(targets) {
		t.Errorf("%d requests reached the provider, want %d", n, len(targets))
	}
}

// C74 (a): an effect whose client left is carried to its end.
func TestC74ClientGoneFromEffect(t *testing.T) {
	arrived, answer := make(chan struct{}), make(chan struct{})
	p := provide(t, func(w net.Conn, h *heard) {
		close(arrived)
		<-answer
		created(w, h)
	})
	st := start(t, setup{provider: p})
	c := dial(t, st.addr)
	c.say(request("POST", "/tickets/x", "{}", "Counterfoil-Run: r", "Counterfoil-Turn: t", "Counterfoil-Call: c"))
	<-arrived
	_ = c.Close()
	close(answer)
	if g := st.post("r", "t", "c", "/tickets/x", "{}"); g.status != 201 || len(p.hits()) != 1 {
		t.Errorf("%d %s, %d requests", g.status, g.outcome(), len(p.hits()))
	}
}

// C74 (b): streams whose clients left are given up, at the provider too.
func TestC74ManyStreamsLeft(t *testing.T) {
	const streams = 1000
	var asked sync.WaitGroup
	asked.Add(streams)
	p := provide(t, func(w net.Conn, _ *heard) {
		_, _ = io.WriteString(w, eventHead)
		asked.Done()
		_, _ = io.Copy(io.Discard, w) // never ends by itself
	})
	st := start(t, setup{provider: p, wire: func(u *upstream.Config) { u.MaxConns = 2 * streams }})
	clients := make([]*client, streams)
	for i := range clients {
		clients[i] = dial(t, st.addr)
		clients[i].say(request("GET", "/tickets/x", ""))
	}
	asked.Wait()
	for _, c := range clients {
		if _, err := c.head(); err != nil {
			t.Fatal(err)
		}
		_ = c.Close()
	}
	eventually(t, "no connection to the provider is left", 10*time.Second, func() bool { return p.conns() == 0 })
	eventually(t, "no client's connection is left", 10*time.Second, func() bool { return st.open() == 0 })
}

// open counts the connections of clients.
func (st *stack) open() (n int) {
	st.server.conns.Range(func(any, any) bool { n++; return true })
	return n
}

// C74 (c): a client that only stops sending gets its answer, of an effect and of
// a read that streams.
func TestC74HalfClosed(t *testing.T) {
	p := provide(t, func(w net.Conn, _ *heard) {
		_, _ = io.WriteString(w, eventHead)
		chunk(w, "a")
		chunk(w, "b")
		_, _ = io.WriteString(w, "0\r\n\r\n")
	})
	st := start(t, setup{provider: p})
	for _, raw := range []string{
		request("POST", "/tickets/x", "{}", "Counterfoil-Run: r", "Counterfoil-Turn: t", "Counterfoil-Call: c"),
		request("GET", "/tickets/x", ""),
	} {
		c := dial(t, st.addr)
		c.say(raw)
		_ = c.Conn.(*net.TCPConn).CloseWrite()
		if g, err := c.hear("GET"); err != nil || g.body != "ab" || g.broken {
			t.Errorf("%.10s: %+v, %v", raw, g, err)
		}
	}
}

// A client that sends its next request early is no gone one, and that request is
// answered.
func TestPipelinedBehindStream(t *testing.T) {
	early := make(chan struct{})
	p := provide(t, func(w net.Conn, h *heard) {
		if h.target() == "/next" {
			say(w, 200, "next")
			return
		}
		_, _ = io.WriteString(w, eventHead)
		<-early
		chunk(w, "a")
		_, _ = io.WriteString(w, "0\r\n\r\n")
	})
	st := start(t, setup{provider: p, proxy: func(c *Config) { c.Limits.watchAfter = 1 }})
	c := dial(t, st.addr)
	c.say(request("GET", "/tickets/stream", ""))
	g, err := c.head()
	if err != nil {
		t.Fatal(err)
	}
	c.say(request("GET", "/tickets/next", ""))
	close(early)
	if err := c.body("GET", g); err != nil || g.body != "a" || g.broken {
		t.Fatalf("%+v, %v", g, err)
	}
	if g, err = c.hear("GET"); err != nil || g.body != "next" {
		t.Errorf("%+v, %v", g, err)
	}
}

// C76, scaled: (a) a stream is cut by none of the time-outs that (b) slow heads
// and (c) slow bodies run into.
func TestC76SlowClients(t *testing.T) {
	resume := make(chan struct{})
	p := provide(t, func(w net.Conn, _ *heard) {
		_, _ = io.WriteString(w, eventHead)
		chunk(w, "a")
		<-resume
		chunk(w, "b")
		_, _ = io.WriteString(w, "0\r\n\r\n")
	})
	st := start(t, setup{provider: p, proxy: func(c *Config) {
		c.Limits = Limits{HeadTimeout: 200 * time.Millisecond, BodyTimeout: 200 * time.Millisecond, IdleTimeout: 200 * time.Millisecond, WriteTimeout: 200 * time.Millisecond}
	}})
	goOn := sync.OnceFunc(func() { close(resume) })
	defer goOn()
	streams := []*client{dial(t, st.addr), dial(t, st.addr)}
	streams[0].say(request("GET", "/tickets/x", ""))
	streams[1].say(request("POST", "/tickets/x", "{}", "Counterfoil-Run: r", "Counterfoil-Turn: t", "Counterfoil-Call: c"))
	heads := make([]*got, 2)
	for i, c := range streams {
		var err error
		if heads[i], err = c.head(); err != nil {
			t.Fatal(err)
		}
		if first := c.readChunk(); first != "a" {
			t.Fatalf("%q", first)
		}
	}
	for name, raw := range map[string]string{
		"head": "POST /tickets/x HTTP/1.1\r\nHost: lo",
		"body": "POST /tickets/x HTTP/1.1\r\nHost: localhost\r\nCounterfoil-Run: slow\r\nCounterfoil-Call: c\r\nContent-Length: 1000000\r\n\r\n" + strings.Repeat("x", 20000),
		"few":  "POST /tickets/x HTTP/1.1\r\nHost: localhost\r\nCounterfoil-Run: slow\r\nCounterfoil-Call: c\r\nContent-Length: 100\r\n\r\nx",
		"chunks": "POST /tickets/x HTTP/1.1\r\nHost: localhost\r\nCounterfoil-Run: slow\r\nCounterfoil-Call: c\r\nTransfer-Encoding: chunked\r\n\r\n" +
			"2\r\nab\r\n",
	} {
		g := ask(t, st.addr, raw) // blocks until the server has had enough
		if d := g.isProblem(t, RequestTimeout); d.Status != 408 || g.value("Connection") != "close" {
			t.Errorf("%s: %+v", name, g)
		}
	}
	st.nothingOf("slow")
	// A connection that says nothing is closed without an answer.
	if b, err := io.ReadAll(dial(t, st.addr)); len(b) > 0 || err != nil {
		t.Errorf("a silent client heard %q, %v", b, err)
	}
	goOn()
	for i, c := range streams {
		if err := c.body("GET", heads[i]); err != nil || heads[i].body != "b" || heads[i].broken {
			t.Errorf("stream %d: %+v, %v", i, heads[i], err)
		}
	}
	if n := len(p.hits()); n != 2 {
		t.Errorf("%d requests reached the provider, want 2", n)
	}
}

// A client that takes nothing does not hold its call up.
func TestClientThatTakesNothing(t *testing.T) {
	big := strings.Repeat("x", 16<<20)
	p := provide(t, func(w net.Conn, _ *heard) {
		_, _ = io.WriteString(w, eventHead)
		chunk(w, big)
		_, _ = io.WriteString(w, "0\r\n\r\n")
	})
	st := start(t, setup{provider: p, proxy: func(c *Config) { c.Limits.WriteTimeout = 100 * time.Millisecond }})
	raw := request("POST", "/tickets/x", "{}", "Counterfoil-Run: r", "Counterfoil-Turn: t", "Counterfoil-Call: c")
	dial(t, st.addr).say(raw)
	if g := ask(t, st.addr, raw); len(g.body) != len(big) || len(p.hits()) != 1 {
		t.Errorf("%d %s, %d bytes, %d requests", g.status, g.outcome(), len(g.body), len(p.hits()))
	}
}

// C61: interim answers are no answers.
func TestC61EarlyHints(t *testing.T) {
	p := provide(t, func(w net.Conn, h *heard) {
		_, _ = io.WriteString(w, "HTTP/1.1 103 Early Hints\r\nLink: <a>\r\n\r\n")
		say(w, 200, h.target())
	})
	st := start(t, setup{provider: p, wire: func(u *upstream.Config) { u.MaxConns = 1 }})
	for i := range 50 {
		for _, run := range []string{"r1", "r2"} {
			call := fmt.Sprint(i)
			if g := st.post(run, "1", call, "/tickets/"+run+call, "{}"); g.status != 200 || g.body != "/"+run+call {
				t.Fatalf("%s %s: %d %q", run, call, g.status, g.body)
			}
		}
	}
}

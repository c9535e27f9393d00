package proxy

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"counterfoil/internal/journal"
)

const named = "Counterfoil-Run: r\r\nCounterfoil-Turn: t\r\nCounterfoil-Call: c\r\n"

func upload(length int) string {
	return "POST /tickets/x HTTP/1.1\r\nHost: localhost\r\n" + named + fmt.Sprintf("Content-Length: %d\r\n\r\n", length)
}

// C72: a body over the limit is refused, whether it says its length or not, and
// the answer is seen although the client is still sending.
func TestC72TooLarge(t *testing.T) {
	p := provide(t, created)
	st := start(t, setup{provider: p})
	for name, send := range map[string]func(c *client){
		"a length over the limit, nothing sent": func(c *client) { c.say(upload(BodyBytesMax + 1)) },
		"500 MB": func(c *client) {
			c.say(upload(500 << 20))
			c.say(strings.Repeat("x", 4<<20)) // is taken, or clients would see a reset before the answer
		},
		"chunks over the limit": func(c *client) {
			c.say("POST /tickets/x HTTP/1.1\r\nHost: localhost\r\n" + named + "Transfer-Encoding: chunked\r\n\r\n")
			for range 11 {
				if _, err := fmt.Fprintf(c, "%x\r\n%s\r\n", 1<<20, strings.Repeat("x", 1<<20)); err != nil {
					return
				}
			}
		},
		"one byte over the limit, chunked": func(c *client) {
			c.say("POST /tickets/x HTTP/1.1\r\nHost: localhost\r\n" + named + "Transfer-Encoding: chunked\r\n\r\n")
			chunk(c, strings.Repeat("x", BodyBytesMax))
			chunk(c, "x")
			_, _ = io.WriteString(c, "0\r\n\r\n")
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := dial(t, st.addr)
			send(c)
			g, err := c.hear("POST")
			if err != nil {
				t.Fatalf("no answer: %v", err)
			}
			g.isProblem(t, journal.InputTooLarge)
			if g.value("Connection") != "close" {
				t.Error("the connection stays open with a body unread")
			}
		})
	}
	if len(p.hits()) != 0 {
		t.Errorf("%d requests reached the provider", len(p.hits()))
	}
	st.nothingOf("r")
}

// The limit itself is allowed, and every byte of it reaches the provider.
func TestC72AtTheLimit(t *testing.T) {
	p := provide(t, created)
	st := start(t, setup{provider: p})
	for i, size := range []int{bodyBytesSmall, bodyBytesSmall + 1, BodyBytesMax} {
		body := strings.Repeat("0123456789abcdef", size/16+1)[:size]
		c := dial(t, st.addr)
		c.say("POST /tickets/x HTTP/1.1\r\nHost: localhost\r\n" + strings.Replace(named, "Call: c", fmt.Sprintf("Call: c%d", i), 1) + "Transfer-Encoding: chunked\r\n\r\n")
		for rest := body; rest != ""; {
			n := min(len(rest), 1<<20)
			chunk(c, rest[:n])
			rest = rest[n:]
		}
		c.say("0\r\n\r\n")
		if g, err := c.hear("POST"); err != nil || g.status != 201 {
			t.Fatalf("%d bytes in chunks: %+v, %v", size, g, err)
		}
		if got := p.hits()[2*i].body; got != body {
			t.Errorf("%d bytes in chunks: the provider got %d", size, len(got))
		}
		if g := st.post("sized", "t", fmt.Sprint(i), "/tickets/x", body); g.status != 201 || p.hits()[2*i+1].body != body {
			t.Errorf("%d bytes: %d", size, g.status)
		}
	}
}

// C72: an upload that stops half-way has sent nothing.
func TestC72StopsHalfway(t *testing.T) {
	p := provide(t, created)
	st := start(t, setup{provider: p})
	for _, raw := range []string{
		upload(1000) + "half",
		upload(1<<20) + strings.Repeat("x", 300<<10),
		"POST /tickets/x HTTP/1.1\r\nHost: localhost\r\n" + named + "Transfer-Encoding: chunked\r\n\r\n5\r\nab",
		"POST /tickets/x HTTP/1.1\r\nHost: localhost\r\n" + named + "Transfer-Encoding: chunked\r\n\r\n2\r\nab\r\n",
		"POST /tickets/x HTTP/1.1\r\nHost: localhost\r\n" + named + "Transfer-Encoding: chunked\r\n\r\n80000\r\n" + strings.Repeat("x", 400<<10),
	} {
		c := dial(t, st.addr)
		c.say(raw)
		_ = c.Conn.(*net.TCPConn).CloseWrite()
		if g, err := c.hear("POST"); err == nil {
			g.isProblem(t, journal.InvalidRequest)
		}
	}
	if len(p.hits()) != 0 {
		t.Errorf("%d requests reached the provider", len(p.hits()))
	}
	st.nothingOf("r")
}

// C72: many large uploads at once share a bounded memory: each is answered, with
// its result or with an overload that sent nothing.
func TestC72ManyLarge(t *testing.T) {
	p := provide(t, created)
	st := start(t, setup{provider: p, proxy: func(c *Config) { c.Limits.LargeBytes = BodyBytesMax; c.Limits.LargeWait = 50 * time.Millisecond }})
	holder := dial(t, st.addr)
	holder.say(upload(BodyBytesMax) + strings.Repeat("x", bodyBytesSmall))
	// The holder has its share once another cannot get one.
	raw := request("POST", "/tickets/x", strings.Repeat("y", 1<<20), "Counterfoil-Run: r2", "Counterfoil-Call: c")
	eventually(t, "the memory is taken", deadline, func() bool {
		g := ask(t, st.addr, raw)
		if g.status == 201 {
			return false
		}
		d := g.isProblem(t, Overloaded)
		if !d.SafeToRetry || !d.SafeNewKey || g.value("Retry-After") != "1" {
			t.Errorf("%+v, Retry-After %q", d, g.value("Retry-After"))
		}
		return true
	})
	// Small ones are not held up.
	if g := st.post("r3", "t", "c", "/tickets/x", strings.Repeat("z", bodyBytesSmall)); g.status != 201 {
		t.Errorf("a small one: %d", g.status)
	}
	holder.say(strings.Repeat("x", BodyBytesMax-bodyBytesSmall))
	if g, err := holder.hear("POST"); err != nil || g.status != 201 {
		t.Fatalf("the holder: %+v, %v", g, err)
	}
	if g := ask(t, st.addr, raw); g.status != 201 {
		t.Errorf("after it: %d", g.status)
	}
}

// C72: a download is passed on in bounded memory.
func TestC72Download(t *testing.T) {
	const total = 256 << 20
	piece := []byte(strings.Repeat("x", 1<<20))
	p := provide(t, func(w net.Conn, _ *heard) {
		_, _ = fmt.Fprintf(w, "HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n", total)
		for range total / len(piece) {
			if _, err := w.Write(piece); err != nil {
				return
			}
		}
	})
	st := start(t, setup{provider: p})
	c := dial(t, st.addr)
	c.say(request("GET", "/tickets/x", ""))
	g, err := c.head()
	if err != nil || g.value("Content-Length") != fmt.Sprint(total) {
		t.Fatalf("%+v, %v", g, err)
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	if n, err := io.CopyN(io.Discard, c.br, total); err != nil {
		t.Fatalf("%d bytes, then %v", n, err)
	}
	runtime.ReadMemStats(&after)
	if grown := int64(after.TotalAlloc - before.TotalAlloc); grown > 16<<20 {
		t.Errorf("%d bytes were allocated for %d", grown, total)
	}
}

// Expect: 100-continue: leave is given, or the refusal comes in its place.
func TestExpectContinue(t *testing.T) {
	p := provide(t, created)
	st := start(t, setup{provider: p})
	c := dial(t, st.addr)
	c.say("POST /tickets/x HTTP/1.1\r\nHost: localhost\r\n" + named + "Expect: 100-continue\r\nContent-Length: 2\r\n\r\n")
	g, err := c.head()
	if err != nil || g.status != 100 || len(p.hits()) != 0 {
		t.Fatalf("%+v, %v", g, err)
	}
	c.say("{}")
	if g, err = c.hear("POST"); err != nil || g.status != 201 {
		t.Fatalf("%+v, %v", g, err)
	}
	if v := p.hits()[0].value("Expect"); v != "" {
		t.Errorf("the provider got Expect: %s", v)
	}
	// The connection goes on.
	c.say(request("GET", "/tickets/y", ""))
	if g, err = c.hear("GET"); err != nil || g.status != 201 {
		t.Fatalf("after it: %+v, %v", g, err)
	}
	before := len(p.hits())
	for want, head := range map[journal.Problem]string{
		journal.InputTooLarge:   "POST /tickets/x HTTP/1.1\r\nHost: localhost\r\n" + named + fmt.Sprintf("Content-Length: %d\r\n", BodyBytesMax+1),
		journal.UnknownUpstream: "POST /nobody/x HTTP/1.1\r\nHost: localhost\r\n" + named + "Content-Length: 2\r\n",
		InvalidKey:              "POST /tickets/x HTTP/1.1\r\nHost: localhost\r\nCounterfoil-Call: %zz\r\nContent-Length: 2\r\n",
		HostNotAllowed:          "POST /tickets/x HTTP/1.1\r\nHost: evil.example\r\n" + named + "Content-Length: 2\r\n",
		journal.InvalidRequest:  "POST /tickets/x HTTP/1.1\r\nHost: localhost\r\n" + named + "Content-Length: 2\r\nTransfer-Encoding: chunked\r\n",
	} {
		c := dial(t, st.addr)
		c.say(head + "Expect: 100-continue\r\n\r\n")
		g, err := c.hear("POST") // a 100 would be heard first
		if err != nil {
			t.Fatalf("%s: %v", want, err)
		}
		g.isProblem(t, want)
		if rest, _ := io.ReadAll(c.br); len(rest) > 0 || g.value("Connection") != "close" {
			t.Errorf("%s: then came %q", want, rest)
		}
	}
	if n := len(p.hits()) - before; n != 0 {
		t.Errorf("%d refused requests reached the provider", n)
	}
}

// Shutdown answers what is under way, and takes nothing new.
func TestShutdown(t *testing.T) {
	arrived, answer := make(chan struct{}), make(chan struct{})
	p := provide(t, func(w net.Conn, h *heard) {
		close(arrived)
		<-answer
		created(w, h)
	})
	st := start(t, setup{provider: p})
	c, idle, fresh := dial(t, st.addr), dial(t, st.addr), dial(t, st.addr)
	eventually(t, "three connections are open", deadline, func() bool { return st.open() == 3 })
	idle.say(request("GET", "/-/none", ""))
	if g, err := idle.hear("GET"); err != nil || g.status != 404 {
		t.Fatalf("%+v, %v", g, err)
	}
	c.say(request("POST", "/tickets/x", "{}", "Counterfoil-Run: r", "Counterfoil-Call: c"))
	<-arrived
	var stopping sync.WaitGroup
	stopping.Go(st.stop)
	for name, quiet := range map[string]*client{"idle": idle, "new": fresh} {
		if b, err := io.ReadAll(quiet.br); len(b) > 0 || err != nil {
			t.Errorf("a connection that is %s heard %q, %v", name, b, err)
		}
	}
	close(answer)
	g, err := c.hear("POST")
	if err != nil || g.status != 201 || g.value("Connection") != "close" {
		t.Errorf("%+v, %v", g, err)
	}
	stopping.Wait()
	if nc, err := net.Dial("tcp", st.addr); err == nil {
		_ = nc.Close()
		t.Error("the listener is still open")
	}
}

// A short listener has no file descriptors for its first connections.
type shortListener struct {
	net.Listener
	left atomic.Int32
}

func (l *shortListener) Accept() (net.Conn, error) {
	if l.left.Add(-1) >= 0 {
		return nil, &net.OpError{Op: "accept", Net: "tcp", Err: os.NewSyscallError("accept4", syscall.EMFILE)}
	}
	return l.Listener.Accept()
}

// Clients that take every file descriptor must not end the sidecar.
func TestAListenerOutlastsAShortageOfDescriptors(t *testing.T) {
	st := start(t, setup{provider: provide(t, created)})
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	short := &shortListener{Listener: ln}
	short.left.Store(3)
	served := make(chan error, 1)
	go func() { served <- st.server.Serve(short, "") }()
	if g := ask(t, ln.Addr().String(), request("GET", "/tickets/x", "", "Connection: close")); g.status != 201 {
		t.Errorf("%+v", g)
	}
	st.stop()
	if err := <-served; err != nil {
		t.Errorf("serving ended with %v", err)
	}
}

// When its time is up, Shutdown cuts off what is under way and tells the clients
// so, reads and effects alike.
func TestShutdownCutsOff(t *testing.T) {
	for method, want := range map[string]int{"GET": 502, "POST": 503} {
		arrived, over := make(chan struct{}), make(chan struct{})
		p := provide(t, func(net.Conn, *heard) {
			close(arrived)
			<-over
		})
		st := start(t, setup{provider: p})
		c := dial(t, st.addr)
		c.say(request(method, "/tickets/x", "", "Counterfoil-Run: r", "Counterfoil-Call: c"))
		<-arrived
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := st.server.Shutdown(ctx); err != nil {
			t.Errorf("%s: %v", method, err)
		}
		if g, err := c.hear(method); err != nil || g.status != want {
			t.Errorf("%s: %+v, %v", method, g, err)
		}
		close(over)
	}
}

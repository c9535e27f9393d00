package upstream

import (
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"counterfoil/classify"
)

// refusing is an address where nobody listens.
func refusing(t *testing.T) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	return ln.Addr().String()
}

func TestUnreachableIsUnsent(t *testing.T) {
	for name, url := range map[string]string{
		"refused": "http://" + refusing(t),
		// An empty label is no name, so no resolver is asked.
		"no such name": "http://no..name",
	} {
		t.Run(name, func(t *testing.T) {
			c := newClient(t, Config{URL: url})
			wantEvidence(t, send(t, c, request("POST", "/secret?token=t", "x")), classify.Unsent)
			if len(c.slots) != 0 {
				t.Errorf("%d slots taken", len(c.slots))
			}
		})
	}
}

func TestClosingWithoutAnswerIsLost(t *testing.T) {
	for name, play := range map[string]func(*peer){
		"at once":     func(pe *peer) { pe.hear() },
		"by reset":    func(pe *peer) { pe.hear(); pe.reset() },
		"in the head": func(pe *peer) { pe.hear(); pe.say("HTTP/1.1 200 OK\r\nContent-Le") },
		"after a 100": func(pe *peer) { pe.hear(); pe.say("HTTP/1.1 100 Continue\r\n\r\n") },
	} {
		t.Run(name, func(t *testing.T) {
			p := provide(t, play)
			resp := send(t, p.client(t), request("POST", "/secret?token=t", "x"))
			wantEvidence(t, resp, classify.Lost)
			if p.hits() != 1 || strings.Contains(resp.Reason, "secret") {
				t.Errorf("%d requests, reason %q", p.hits(), resp.Reason)
			}
		})
	}
}

func TestCancelledBeforeSendingIsUnsent(t *testing.T) {
	p := provide(t, answering(okAnswer))
	c := p.client(t)
	exchangeOK(t, c, request("GET", "/", ""), 200, "ok")
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	wantEvidence(t, c.Send(ctx, request("POST", "/", "x")), classify.Unsent)
	ctx, cancel = context.WithDeadline(context.Background(), time.Now().Add(-time.Second))
	defer cancel()
	wantEvidence(t, c.Send(ctx, request("POST", "/", "x")), classify.Unsent)
	if p.hits() != 1 {
		t.Errorf("%d requests came, want the first alone", p.hits())
	}
}

// The context ends between the slot and the write: with the connection's
// deadlines already in the past, nothing leaves.
func TestAbortedBeforeTheWriteIsUnsent(t *testing.T) {
	p := provide(t, answering(okAnswer))
	c := p.client(t)
	exchangeOK(t, c, request("GET", "/", ""), 200, "ok")
	idleConn(t, c).aborted.Store(true)
	cn := c.popIdle()
	resp := cn.exchange(context.Background(), time.Now().Add(patience), request("POST", "/", "x"))
	wantEvidence(t, resp, classify.Unsent)
	cn.close()
	if p.hits() != 1 {
		t.Errorf("%d requests came, want the first alone", p.hits())
	}
}

func TestCancelledWhileWaitingIsLost(t *testing.T) {
	came, gone := make(chan struct{}), make(chan struct{})
	p := provide(t, func(pe *peer) {
		pe.hear()
		close(came)
		pe.waitGone()
		close(gone)
	})
	c := p.client(t)
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		<-came
		cancel()
	}()
	wantEvidence(t, c.Send(ctx, request("POST", "/", "x")), classify.Lost)
	<-gone
	if len(c.slots) != 0 {
		t.Errorf("%d slots taken", len(c.slots))
	}
}

func TestCancelledInTheBodyIsACut(t *testing.T) {
	gone := make(chan struct{})
	p := provide(t, func(pe *peer) {
		pe.hear()
		pe.say(chunkedHead + "3\r\none\r\n")
		pe.waitGone()
		close(gone)
	})
	c := p.client(t)
	ctx, cancel := context.WithCancel(context.Background())
	resp := c.Send(ctx, request("POST", "/", "x"))
	wantEvidence(t, resp, classify.Answered)
	if _, err := io.ReadFull(resp.Body, make([]byte, 3)); err != nil {
		t.Fatal(err)
	}
	cancel()
	if _, err := resp.Body.Read(make([]byte, 1)); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("error %v, want a cut", err)
	}
	<-gone
}

// A context that ends after its answer did must not touch who uses the
// connection next.
func TestCancelledAfterTheEndHarmsNobody(t *testing.T) {
	p := provide(t, answering(okAnswer))
	c := p.client(t)
	for range 200 {
		ctx, cancel := context.WithCancel(context.Background())
		resp := c.Send(ctx, request("GET", "/", ""))
		if got := read(t, resp); got != "ok" {
			t.Fatalf("body %q", got)
		}
		go cancel()
	}
	if p.connections() != 1 {
		t.Errorf("%d connections, want 1", p.connections())
	}
}

func TestCancelledDuringUploadIsLost(t *testing.T) {
	came, over := make(chan struct{}), make(chan struct{})
	p := provide(t, func(pe *peer) {
		pe.hearHead()
		close(came)
		<-over
	})
	defer close(over)
	c := p.client(t)
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		<-came
		cancel()
	}()
	resp := c.Send(ctx, request("POST", "/", strings.Repeat("x", 32<<20)))
	wantEvidence(t, resp, classify.Lost)
	if !strings.Contains(resp.Reason, "given up") || len(c.slots) != 0 {
		t.Errorf("reason %q, %d slots taken", resp.Reason, len(c.slots))
	}
}

// An abort that comes between two operations counts for the next one, which
// sets a deadline of its own.
func TestArmingDoesNotUndoAnAbort(t *testing.T) {
	p := provide(t, answering(okAnswer))
	c := p.client(t)
	one := make([]byte, 1)
	for name, use := range map[string]func(*conn) error{
		"read":         func(cn *conn) error { cn.aborted.Store(true); cn.armRead(patience); return second(cn.wire.Read(one)) },
		"write":        func(cn *conn) error { cn.aborted.Store(true); cn.armWrite(patience); return second(cn.wire.Write(one)) },
		"both, read":   func(cn *conn) error { cn.aborted.Store(true); cn.armBoth(patience); return second(cn.wire.Read(one)) },
		"both, write":  func(cn *conn) error { cn.aborted.Store(true); cn.armBoth(patience); return second(cn.wire.Write(one)) },
		"halted write": func(cn *conn) error { cn.halted.Store(true); cn.armWrite(patience); return second(cn.wire.Write(one)) },
	} {
		exchangeOK(t, c, request("GET", "/", ""), 200, "ok")
		cn := c.popIdle()
		cn.deadline = time.Now().Add(patience)
		if err := use(cn); !timedOut(err) {
			t.Errorf("%s: %v, want a time-out", name, err)
		}
		cn.close()
	}
}

func second(_ int, err error) error { return err }

// If the context's end can no longer be kept from aborting, the connection
// is not used again.
func TestConnectionThatMayBeAbortedIsDropped(t *testing.T) {
	p := provide(t, answering(okAnswer))
	c := p.client(t)
	resp := send(t, c, request("GET", "/", ""))
	wantEvidence(t, resp, classify.Answered)
	cn := resp.Body.(*body).cn
	stop := cn.unwatch
	cn.unwatch = func() bool { stop(); return false }
	read(t, resp)
	if idleCount(c) != 0 || len(c.slots) != 0 {
		t.Errorf("%d idle, %d slots taken", idleCount(c), len(c.slots))
	}
}

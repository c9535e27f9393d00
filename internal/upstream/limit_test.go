package upstream

import (
	"context"
	"strings"
	"sync"
	"testing"

	"counterfoil/classify"
)

func TestConnectionLimit(t *testing.T) {
	p := provide(t, answering(okAnswer))
	c := newClient(t, Config{URL: "http://" + p.addr, MaxConns: 1, Timeouts: Timeouts{Connect: short}})
	held := send(t, c, request("GET", "/held", ""))
	wantEvidence(t, held, classify.Answered)

	resp := send(t, c, request("POST", "/2", "x"))
	wantEvidence(t, resp, classify.Unsent)
	if !strings.Contains(resp.Reason, "connection limit") {
		t.Errorf("reason %q", resp.Reason)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	wantEvidence(t, c.Send(ctx, request("POST", "/3", "x")), classify.Unsent)

	read(t, held)
	exchangeOK(t, c, request("POST", "/4", "x"), 200, "ok")
	if p.connections() != 1 || p.hits() != 2 {
		t.Errorf("%d requests over %d connections, want 2 over 1", p.hits(), p.connections())
	}
}

func TestWaitingForAConnection(t *testing.T) {
	const callers, conns = 40, 3
	p := provide(t, answering(okAnswer))
	c := newClient(t, Config{URL: "http://" + p.addr, MaxConns: conns})
	var wg sync.WaitGroup
	for range callers {
		wg.Go(func() {
			resp := c.Send(context.Background(), request("POST", "/", "x"))
			if resp.Evidence != classify.Answered {
				t.Errorf("%v: %s", resp.Evidence, resp.Reason)
				return
			}
			resp.Body.Close() // early: the connection is given up, the slot is not
		})
	}
	wg.Wait()
	if p.hits() != callers || len(c.slots) != 0 {
		t.Errorf("%d requests, %d slots taken; want %d and 0", p.hits(), len(c.slots), callers)
	}
}

func TestOpenConnectionsStayBelowTheLimit(t *testing.T) {
	const callers, conns = 32, 4
	var open, most int
	var mu sync.Mutex
	p := provide(t, func(pe *peer) {
		mu.Lock()
		open++
		most = max(most, open)
		mu.Unlock()
		answering(okAnswer)(pe)
		mu.Lock()
		open--
		mu.Unlock()
	})
	c := newClient(t, Config{URL: "http://" + p.addr, MaxConns: conns})
	var wg sync.WaitGroup
	for range callers {
		wg.Go(func() {
			for range 20 {
				exchangeOK(t, c, request("POST", "/", "x"), 200, "ok")
			}
		})
	}
	wg.Wait()
	mu.Lock()
	defer mu.Unlock()
	if most > conns || p.hits() != callers*20 {
		t.Errorf("%d connections at once, %d requests; want at most %d, and %d", most, p.hits(), conns, callers*20)
	}
}

func TestCloseWithAnAnswerOpen(t *testing.T) {
	gone := make(chan struct{}, 2)
	p := provide(t, func(pe *peer) {
		answering(okAnswer)(pe)
		gone <- struct{}{}
	})
	c := p.client(t)
	first, second := send(t, c, request("GET", "/1", "")), send(t, c, request("GET", "/2", ""))
	read(t, first)
	c.Close()
	<-gone // the idle one
	if got := read(t, second); got != "ok" {
		t.Errorf("body %q", got)
	}
	<-gone
	wantEvidence(t, send(t, c, request("GET", "/3", "")), classify.Unsent)
	c.Close()
	if p.hits() != 2 || len(c.slots) != 0 {
		t.Errorf("%d requests, %d slots taken", p.hits(), len(c.slots))
	}
}

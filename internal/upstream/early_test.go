package upstream

import (
	"io"
	"strconv"
	"strings"
	"testing"

	"counterfoil/classify"
)

const tooLarge = "HTTP/1.1 413 Content Too Large\r\nContent-Length: 3\r\nConnection: close\r\n\r\nbig"

// The upstream refuses a request that is still on its way.
func TestEarlyRefusalIsKept(t *testing.T) {
	keepsOpen := strings.Replace(tooLarge, "Connection: close\r\n", "", 1)
	for name, tc := range map[string]struct {
		answer string
		after  func(pe *peer, over <-chan struct{})
	}{
		"then closes":   {tooLarge, func(*peer, <-chan struct{}) {}},
		"then resets":   {tooLarge, func(pe *peer, _ <-chan struct{}) { io.CopyN(io.Discard, pe.br, 1<<20); pe.reset() }},
		"then waits":    {tooLarge, func(_ *peer, over <-chan struct{}) { <-over }},
		"then reads":    {tooLarge, func(pe *peer, _ <-chan struct{}) { pe.waitGone() }},
		"after a 103":   {earlyHints + tooLarge, func(pe *peer, _ <-chan struct{}) { pe.waitGone() }},
		"without close": {keepsOpen, func(_ *peer, over <-chan struct{}) { <-over }},
	} {
		t.Run(name, func(t *testing.T) {
			over := make(chan struct{})
			p := provide(t, func(pe *peer) {
				pe.hearHead()
				pe.say(tc.answer)
				tc.after(pe, over)
			})
			t.Cleanup(func() { close(over) })
			c := p.client(t)
			exchangeOK(t, c, request("POST", "/", strings.Repeat("x", 16<<20)), 413, "big")
			if p.connections() != 1 || idleCount(c) != 0 {
				t.Errorf("%d connections, %d idle; want 1 and 0", p.connections(), idleCount(c))
			}
		})
	}
}

// A refusal that has come although the first write of the request failed half
// way: it is looked for before the attempt counts as lost.
func TestRefusalBesideAFailedWrite(t *testing.T) {
	p := provide(t, func(pe *peer) {
		pe.hear()
		pe.say(okAnswer)
		pe.br.ReadByte()
		pe.say(tooLarge)
		pe.waitGone()
	})
	c := p.client(t)
	exchangeOK(t, c, request("GET", "/", ""), 200, "ok")
	cn := idleConn(t, c)
	cn.wire.Conn = brokenSocket{cn.wire.Conn, 1}
	exchangeOK(t, c, request("POST", "/", "x"), 413, "big")
	if p.connections() != 1 || idleCount(c) != 0 {
		t.Errorf("%d connections, %d idle; want 1 and 0", p.connections(), idleCount(c))
	}
}

// After an early 2xx the upstream may still want the body.
func TestEarlySuccessStillGetsTheBody(t *testing.T) {
	const size = 16 << 20
	got := make(chan int64, 1)
	p := provide(t, func(pe *peer) {
		pe.hearHead()
		pe.say(okAnswer)
		n, _ := io.CopyN(io.Discard, pe.br, size)
		got <- n
		pe.hear()
		pe.say(okAnswer)
		pe.waitGone()
	})
	c := p.client(t)
	exchangeOK(t, c, request("POST", "/"+strconv.Itoa(size), strings.Repeat("x", size)), 200, "ok")
	if n := <-got; n != size {
		t.Errorf("%d bytes of the body came, want %d", n, size)
	}
	exchangeOK(t, c, request("GET", "/", ""), 200, "ok")
	if p.connections() != 1 {
		t.Errorf("%d connections, want 1", p.connections())
	}
}

// Reading fails while the request is still on its way.
func TestResetDuringUploadIsLost(t *testing.T) {
	p := provide(t, func(pe *peer) {
		pe.hearHead()
		io.CopyN(io.Discard, pe.br, 1<<20)
		pe.reset()
	})
	c := p.client(t)
	wantEvidence(t, send(t, c, request("POST", "/", strings.Repeat("x", 16<<20))), classify.Lost)
	if p.connections() != 1 || len(c.slots) != 0 {
		t.Errorf("%d connections, %d slots taken", p.connections(), len(c.slots))
	}
}

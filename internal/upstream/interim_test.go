package upstream

import (
	"strings"
	"testing"

	"counterfoil/classify"
)

const earlyHints = "HTTP/1.1 103 Early Hints\r\nLink: </a.css>; rel=preload\r\nContent-Length: 9\r\n\r\n"

func TestC61_InterimAnswersAreSkipped(t *testing.T) {
	for name, before := range map[string]string{
		"none":      "",
		"continue":  "HTTP/1.1 100 Continue\r\n\r\n",
		"103":       earlyHints,
		"102":       "HTTP/1.1 102 Processing\r\n\r\n",
		"three 103": strings.Repeat(earlyHints, 3),
		"sixteen":   strings.Repeat(earlyHints, 16),
		"mixed":     "HTTP/1.1 100\r\n\r\n" + earlyHints + "HTTP/1.1 104 Upload Resumption\r\n\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			p := provide(t, func(pe *peer) {
				for {
					h, ok := pe.hear()
					if !ok {
						return
					}
					if strings.Contains(h.line, "/a ") {
						pe.say(before + "HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nA")
					} else {
						pe.say("HTTP/1.1 500 No\r\nContent-Length: 1\r\n\r\nB")
					}
				}
			})
			c := newClient(t, Config{URL: "http://" + p.addr, MaxConns: 1})
			for range 250 {
				a := exchangeOK(t, c, request("POST", "/a", "x"), 200, "A")
				if a.Header.Has("Link") {
					t.Fatal("a field of the interim answer got into the final one")
				}
				exchangeOK(t, c, request("POST", "/b", "x"), 500, "B")
			}
			if p.connections() != 1 || p.hits() != 500 {
				t.Errorf("%d requests over %d connections, want 500 over 1", p.hits(), p.connections())
			}
		})
	}
}

func TestC61_EndlessInterimAnswersAreBounded(t *testing.T) {
	gone := make(chan struct{})
	p := provide(t, func(pe *peer) {
		pe.hear()
		for {
			if _, err := pe.Write([]byte(earlyHints)); err != nil {
				close(gone)
				return
			}
		}
	})
	c := p.client(t)
	resp := send(t, c, request("POST", "/", "x"))
	wantEvidence(t, resp, classify.Lost)
	if resp.Reason != "waiting for the answer: "+errTooMany1xx.Error() {
		t.Errorf("reason %q", resp.Reason)
	}
	<-gone
	if p.hits() != 1 || idleCount(c) != 0 {
		t.Errorf("%d requests, %d idle connections; want 1 and 0", p.hits(), idleCount(c))
	}
}

func TestC61_UnaskedSwitchIsNoAnswer(t *testing.T) {
	gone := make(chan struct{})
	p := provide(t, func(pe *peer) {
		pe.hear()
		pe.say("HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n")
		pe.waitGone()
		close(gone)
	})
	resp := send(t, p.client(t), request("GET", "/", ""))
	wantEvidence(t, resp, classify.Lost)
	if resp.Reason != "waiting for the answer: "+errSwitched.Error() {
		t.Errorf("reason %q", resp.Reason)
	}
	<-gone
}

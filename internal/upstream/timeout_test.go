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

// short is a time-out under test.
const short = 40 * time.Millisecond

func silentAfterRequest(pe *peer) {
	pe.hear()
	pe.waitGone()
}

func TestFirstByteTimeoutIsLost(t *testing.T) {
	for name, play := range map[string]func(*peer){
		"nothing":     silentAfterRequest,
		"half a head": func(pe *peer) { pe.hear(); pe.say("HTTP/1.1 200 OK\r\nX-A: b\r\n"); pe.waitGone() },
		"only a 103":  func(pe *peer) { pe.hear(); pe.say(earlyHints); pe.waitGone() },
	} {
		t.Run(name, func(t *testing.T) {
			p := provide(t, play)
			c := newClient(t, Config{URL: "http://" + p.addr, Timeouts: Timeouts{FirstByte: short}})
			start := time.Now()
			resp := c.Send(context.Background(), request("POST", "/", "x"))
			wantEvidence(t, resp, classify.Lost)
			if took := time.Since(start); took < short || took > patience {
				t.Errorf("took %v, want %v", took, short)
			}
			if !strings.Contains(resp.Reason, "took too long") {
				t.Errorf("reason %q", resp.Reason)
			}
		})
	}
}

func TestAttemptTimeout(t *testing.T) {
	p := provide(t, silentAfterRequest)
	c := newClient(t, Config{URL: "http://" + p.addr, Timeouts: Timeouts{Attempt: short}})
	resp := c.Send(context.Background(), request("POST", "/", "x"))
	wantEvidence(t, resp, classify.Lost)
	if !strings.Contains(resp.Reason, "time is over") {
		t.Errorf("reason %q", resp.Reason)
	}
}

func TestNearerDeadlineOfTheContextWins(t *testing.T) {
	p := provide(t, silentAfterRequest)
	ctx, cancel := context.WithTimeout(context.Background(), short)
	defer cancel()
	wantEvidence(t, p.client(t).Send(ctx, request("POST", "/", "x")), classify.Lost)
}

func TestIdleTimeoutIsPerRead(t *testing.T) {
	proceed := make(chan struct{})
	p := provide(t, func(pe *peer) {
		pe.hear()
		pe.say(chunkedHead)
		for range proceed {
			pe.say("1\r\nx\r\n")
		}
		pe.waitGone()
	})
	const idle = 100 * time.Millisecond
	c := newClient(t, Config{URL: "http://" + p.addr, Timeouts: Timeouts{Idle: idle}})
	resp := c.Send(context.Background(), request("GET", "/", ""))
	wantEvidence(t, resp, classify.Answered)
	start := time.Now()
	for time.Since(start) < 3*idle { // longer in all than any one wait may be
		<-time.After(idle / 10)
		proceed <- struct{}{}
		if _, err := io.ReadFull(resp.Body, make([]byte, 1)); err != nil {
			t.Fatalf("cut after %v: %v", time.Since(start), err)
		}
	}
	close(proceed)
	if _, err := resp.Body.Read(make([]byte, 1)); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Fatalf("error %v, want a cut", err)
	}
}

func TestAttemptTimeoutEndsAStream(t *testing.T) {
	p := provide(t, func(pe *peer) {
		pe.hear()
		pe.say(chunkedHead)
		for {
			if _, err := pe.Write([]byte("1\r\nx\r\n")); err != nil {
				return
			}
		}
	})
	c := newClient(t, Config{URL: "http://" + p.addr, Timeouts: Timeouts{Attempt: short}})
	resp := c.Send(context.Background(), request("GET", "/", ""))
	wantEvidence(t, resp, classify.Answered)
	if _, err := io.Copy(io.Discard, resp.Body); !errors.Is(err, io.ErrUnexpectedEOF) || !strings.Contains(err.Error(), "time is over") {
		t.Fatalf("error %v, want the end of the attempt", err)
	}
}

// A listener whose backlog is never accepted from takes TCP connections, so a
// TLS handshake with it gets no answer.
func TestConnectTimeoutCoversTheHandshake(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	c := newClient(t, Config{URL: "https://" + ln.Addr().String(), Timeouts: Timeouts{Connect: short}})
	wantEvidence(t, c.Send(context.Background(), request("POST", "/", "x")), classify.Unsent)
}

// An upload that the upstream stops reading ends with the idle time-out.
func TestStalledUploadIsLost(t *testing.T) {
	over := make(chan struct{})
	p := provide(t, func(pe *peer) {
		pe.hearHead()
		<-over
	})
	defer close(over)
	c := newClient(t, Config{URL: "http://" + p.addr, Timeouts: Timeouts{Idle: short}})
	resp := c.Send(context.Background(), request("POST", "/", strings.Repeat("x", 32<<20)))
	wantEvidence(t, resp, classify.Lost)
	if !strings.Contains(resp.Reason, "sending: the upstream took too long") {
		t.Errorf("reason %q", resp.Reason)
	}
}

func TestIdleConnectionsAreClosedInTime(t *testing.T) {
	for name, tc := range map[string]struct {
		keep   time.Duration
		answer string
	}{
		"by setting":    {short, okAnswer},
		"by the header": {time.Hour, "HTTP/1.1 200 OK\r\nKeep-Alive: max=5, timeout=1\r\nContent-Length: 2\r\n\r\nok"},
	} {
		t.Run(name, func(t *testing.T) {
			p := provide(t, answering(tc.answer))
			c := newClient(t, Config{URL: "http://" + p.addr, Timeouts: Timeouts{Keep: tc.keep}})
			exchangeOK(t, c, request("GET", "/", ""), 200, "ok")
			if tc.keep == short {
				eventually(t, "the idle connection's end", func() bool { return idleCount(c) == 0 })
			}
			exchangeOK(t, c, request("GET", "/", ""), 200, "ok")
			if p.connections() != 2 {
				t.Errorf("%d connections, want 2", p.connections())
			}
		})
	}
}

func TestKeepTime(t *testing.T) {
	for value, want := range map[string]time.Duration{
		"timeout=5": 4 * time.Second, "max=9, Timeout=60": 59 * time.Second, "timeout=1": 1, "timeout=0": 1,
		"": 0, "timeout": 0, "timeout=x": 0, "timeout=-1": 0, "timeout=999999": 0, "max=5": 0,
	} {
		if got := keepTime(value); got != want {
			t.Errorf("keepTime(%q) = %v, want %v", value, got, want)
		}
	}
}

package upstream

import (
	"errors"
	"net"
	"testing"

	"counterfoil/classify"
)

// A server that takes a request and hangs up has been sent it once, whatever
// the method. fasthttp's and net/http's clients would send some again.
func TestC58_NothingIsRepeated(t *testing.T) {
	for _, method := range []string{"GET", "HEAD", "OPTIONS", "POST", "PUT", "PATCH", "DELETE"} {
		t.Run(method, func(t *testing.T) {
			p := provide(t, func(pe *peer) {
				for {
					h, ok := pe.hear()
					if !ok || h.line != "GET /warm HTTP/1.1" {
						return
					}
					pe.say(okAnswer)
				}
			})
			c := p.client(t)
			for round := range 3 {
				exchangeOK(t, c, request("GET", "/warm", ""), 200, "ok")
				wantEvidence(t, send(t, c, request(method, "/effect", "")), classify.Lost)
				if got, want := p.hits(), 2*(round+1); got != want {
					t.Fatalf("round %d: %d requests came, want %d", round, got, want)
				}
				if got, want := p.connections(), round+1; got != want {
					t.Fatalf("round %d: %d connections, want %d: the effect must go over the warm one", round, got, want)
				}
			}
		})
	}
}

func TestDeadPooledConnectionIsNoticed(t *testing.T) {
	for name, hangUp := range map[string]func(*peer){
		"fin": func(pe *peer) { pe.Close() },
		"rst": func(pe *peer) { pe.reset() },
	} {
		t.Run(name, func(t *testing.T) {
			p := provide(t, func(pe *peer) {
				pe.hear()
				pe.say(okAnswer)
				if pe.n == 1 {
					hangUp(pe)
					return
				}
				pe.waitGone()
			})
			c := p.client(t)
			exchangeOK(t, c, request("POST", "/1", "x"), 200, "ok")
			cn := idleConn(t, c)
			eventually(t, "the connection's end", func() bool { return !cn.quiet() })
			exchangeOK(t, c, request("POST", "/2", "x"), 200, "ok")
			if p.hits() != 2 || p.connections() != 2 {
				t.Errorf("%d requests over %d connections, want 2 over 2", p.hits(), p.connections())
			}
		})
	}
}

// A broken socket takes the first `takes` bytes of a write and fails.
type brokenSocket struct {
	net.Conn
	takes int
}

func (b brokenSocket) Write(p []byte) (int, error) {
	n, _ := b.Conn.Write(p[:b.takes])
	return n, errors.New("broken pipe")
}

// The pooled connection dies between the look at it and the write.
func TestWriteFailsOnPooledConnection(t *testing.T) {
	for name, tc := range map[string]struct {
		takes    int
		evidence classify.Evidence
		conns    int
	}{
		"nothing left": {0, classify.Answered, 2},
		"a byte left":  {1, classify.Lost, 1},
	} {
		t.Run(name, func(t *testing.T) {
			p := provide(t, answering(okAnswer))
			c := p.client(t)
			exchangeOK(t, c, request("POST", "/", "x"), 200, "ok")
			cn := idleConn(t, c)
			cn.wire.Conn = brokenSocket{cn.wire.Conn, tc.takes}
			resp := send(t, c, request("POST", "/effect", "x"))
			wantEvidence(t, resp, tc.evidence)
			if resp.Body != nil {
				read(t, resp)
			}
			if p.connections() != tc.conns {
				t.Errorf("%d connections, want %d", p.connections(), tc.conns)
			}
			if len(c.slots) != 0 {
				t.Errorf("%d slots still taken", len(c.slots))
			}
		})
	}
}

func TestRedirectIsNotFollowed(t *testing.T) {
	p := provide(t, answering("HTTP/1.1 302 Found\r\nLocation: /elsewhere\r\nContent-Length: 0\r\n\r\n"))
	resp := exchangeOK(t, p.client(t), request("GET", "/", ""), 302, "")
	if p.hits() != 1 || resp.Header.Value("Location") != "/elsewhere" {
		t.Errorf("%d requests, Location %q", p.hits(), resp.Header.Value("Location"))
	}
}

package upstream

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"counterfoil/classify"
)

func TestMalformedHeadsAreLost(t *testing.T) {
	for name, answer := range map[string]string{
		"no HTTP":                  "SSH-2.0-OpenSSH_9.9\r\n",
		"HTTP/2":                   "HTTP/2 200 OK\r\n\r\n",
		"HTTP/1.2":                 "HTTP/1.2 200 OK\r\n\r\n",
		"empty line first":         "\r\nHTTP/1.1 200 OK\r\n\r\n",
		"no status":                "HTTP/1.1\r\n\r\n",
		"status of two digits":     "HTTP/1.1 20 OK\r\n\r\n",
		"status of four digits":    "HTTP/1.1 2000 OK\r\n\r\n",
		"status below 100":         "HTTP/1.1 099 OK\r\n\r\n",
		"signed status":            "HTTP/1.1 +20 OK\r\n\r\n",
		"two spaces":               "HTTP/1.1  200 OK\r\n\r\n",
		"NUL in reason":            "HTTP/1.1 200 O\x00K\r\n\r\n",
		"no colon":                 "HTTP/1.1 200 OK\r\nX-A\r\n\r\n",
		"space in name":            "HTTP/1.1 200 OK\r\nX A: b\r\n\r\n",
		"no name":                  "HTTP/1.1 200 OK\r\n: b\r\n\r\n",
		"fold first":               "HTTP/1.1 200 OK\r\n X-A: b\r\n\r\n",
		"NUL in value":             "HTTP/1.1 200 OK\r\nX-A: b\x00c\r\n\r\n",
		"CR in value":              "HTTP/1.1 200 OK\r\nX-A: b\rc\r\n\r\n",
		"NUL in a fold":            "HTTP/1.1 200 OK\r\nX-A: b\r\n \x00\r\n\r\n",
		"two lengths":              "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab",
		"two lengths in a line":    "HTTP/1.1 200 OK\r\nContent-Length: 1, 2\r\n\r\nab",
		"negative length":          "HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",
		"signed length":            "HTTP/1.1 200 OK\r\nContent-Length: +1\r\n\r\na",
		"empty length":             "HTTP/1.1 200 OK\r\nContent-Length:\r\n\r\n",
		"huge length":              "HTTP/1.1 200 OK\r\nContent-Length: 99999999999999999999\r\n\r\n",
		"length and chunked":       "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
		"chunked and length":       "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n",
		"gzip, chunked":            "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
		"chunked twice":            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
		"identity":                 "HTTP/1.1 200 OK\r\nTransfer-Encoding: identity\r\n\r\n",
		"chunked in HTTP/1.0":      "HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
		"head of more than 64 KiB": "HTTP/1.1 200 OK\r\nX-A: " + strings.Repeat("a", headBytesMax) + "\r\n\r\n",
		"endless head":             "HTTP/1.1 200 OK\r\n" + strings.Repeat("X-A: b\r\n", 1<<17),
		"bad interim answer":       "HTTP/1.1 103 Hints\r\nX A: b\r\n\r\n" + okAnswer,
	} {
		t.Run(name, func(t *testing.T) {
			gone := make(chan struct{})
			p := provide(t, func(pe *peer) {
				pe.hear()
				pe.say(answer)
				pe.waitGone()
				close(gone)
			})
			c := p.client(t)
			resp := send(t, c, request("POST", "/", "x"))
			wantEvidence(t, resp, classify.Lost)
			if strings.Contains(resp.Reason, "X-A") || strings.Contains(resp.Reason, "took too long") {
				t.Errorf("reason %q", resp.Reason)
			}
			<-gone
			if idleCount(c) != 0 || len(c.slots) != 0 {
				t.Errorf("%d idle, %d slots taken", idleCount(c), len(c.slots))
			}
		})
	}
}

func TestHeadsThatAreFine(t *testing.T) {
	for name, tc := range map[string]struct{ answer, field, value string }{
		"no reason":            {"HTTP/1.1 200\r\nContent-Length: 2\r\nX-A: b\r\n\r\nok", "X-A", "b"},
		"empty reason":         {"HTTP/1.1 200 \r\nContent-Length: 2\r\nX-A: b\r\n\r\nok", "X-A", "b"},
		"LF alone":             {"HTTP/1.1 200 OK\nContent-Length: 2\nX-A: b\n\nok", "X-A", "b"},
		"no space after colon": {"HTTP/1.1 200 OK\r\nContent-Length:2\r\nX-A:b\r\n\r\nok", "X-A", "b"},
		"space before colon":   {"HTTP/1.1 200 OK\r\nContent-Length : 2\r\nX-A : b\r\n\r\nok", "X-A", "b"},
		"fold":                 {"HTTP/1.1 200 OK\r\nX-A: b\r\n  c\r\n\td \r\nContent-Length: 2\r\n\r\nok", "X-A", "b c d"},
		"equal lengths":        {"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 2, 2\r\nX-A: b\r\n\r\nok", "X-A", "b"},
		"colon in value":       {"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nX-A: b:c: d\r\n\r\nok", "X-A", "b:c: d"},
		"60 KiB value": {"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nX-A: " + strings.Repeat("b", 60<<10) + "\r\n\r\nok",
			"X-A", strings.Repeat("b", 60<<10)},
	} {
		t.Run(name, func(t *testing.T) {
			p := provide(t, answering(tc.answer))
			c := p.client(t)
			for range 2 {
				resp := exchangeOK(t, c, request("GET", "/", ""), 200, "ok")
				if got := resp.Header.Value(tc.field); got != tc.value {
					t.Errorf("%s = %.80q, want %.80q", tc.field, got, tc.value)
				}
			}
			if p.connections() != 1 {
				t.Errorf("%d connections, want 1", p.connections())
			}
		})
	}
}

// An answer that comes byte by byte is the same answer.
func TestAnswerInSmallPieces(t *testing.T) {
	p := provide(t, func(pe *peer) {
		for {
			if _, ok := pe.hear(); !ok {
				return
			}
			for _, b := range []byte(earlyHints + chunkedHead + "2\r\nok\r\n0\r\nX-A: b\r\n\r\n") {
				pe.Write([]byte{b})
			}
		}
	})
	c := p.client(t)
	for range 3 {
		exchangeOK(t, c, request("GET", "/", ""), 200, "ok")
	}
	if p.connections() != 1 {
		t.Errorf("%d connections, want 1", p.connections())
	}
}

// A canned connection brings fixed bytes, some at a time, and then its end.
type canned struct {
	io.Reader
	writes int
}

func (c *canned) Write(p []byte) (int, error)      { c.writes++; return len(p), nil }
func (c *canned) Close() error                     { return nil }
func (c *canned) LocalAddr() net.Addr              { return nil }
func (c *canned) RemoteAddr() net.Addr             { return nil }
func (c *canned) SetDeadline(time.Time) error      { return nil }
func (c *canned) SetReadDeadline(time.Time) error  { return nil }
func (c *canned) SetWriteDeadline(time.Time) error { return nil }

// slowly brings at most n bytes per read.
type slowly struct {
	r io.Reader
	n int
}

func (s slowly) Read(p []byte) (int, error) { return s.r.Read(p[:min(len(p), s.n)]) }

func FuzzResponseHead(f *testing.F) {
	for _, seed := range []string{
		okAnswer, earlyHints + okAnswer, chunkedHead + "3;a=b\r\none\r\n0\r\nX: y\r\n\r\n", "HTTP/1.0 200\n\nbody",
		"HTTP/1.1 204 No\r\nConnection: close, x\r\nX: y\r\n\r\n", "HTTP/1.1 200 OK\r\nX: a\r\n b\r\nContent-Length: 1, 1\r\n\r\nz",
		"HTTP/1.1 101 S\r\n\r\n", "HTTP/1.1 200 OK\r\nKeep-Alive: timeout=5, max=3\r\n\r\n", "\r\n\r\n", "HTTP/1.1 205 R\r\n\r\n",
	} {
		f.Add([]byte(seed), "GET", 1)
		f.Add([]byte(seed), "HEAD", 4096)
	}
	c, err := New(Config{URL: "http://127.0.0.1"})
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(c.Close)
	f.Fuzz(func(t *testing.T, raw []byte, method string, piece int) {
		r := request(method, "/", "")
		if checkRequest(r) != nil {
			return
		}
		wire := &canned{Reader: slowly{bytes.NewReader(raw), max(piece%5000, 1)}}
		cn := &conn{client: c, keep: time.Minute}
		cn.wire = newWire(wire)
		cn.nc = cn.wire
		c.slots <- struct{}{}
		resp := cn.exchange(context.Background(), time.Now().Add(time.Hour), r)
		if wire.writes != 1 {
			t.Fatalf("%d writes", wire.writes)
		}
		if resp.Evidence != classify.Answered {
			cn.close()
			c.release()
			wantEvidence(t, resp, classify.Lost)
			return
		}
		checkAnswer(t, raw, method, resp)
		if kept := c.popIdle(); kept != nil && kept.in.buffered() > 0 {
			t.Fatal("kept a connection with bytes left over")
		}
		if len(c.slots) != 0 {
			t.Fatal("a slot leaked")
		}
	})
}

func checkAnswer(t *testing.T, raw []byte, method string, resp *classify.Response) {
	t.Helper()
	for _, f := range resp.Header {
		if !validToken(f.Name) || !validValue(f.Value) || hopOf(f.Name) != endToEnd {
			t.Fatalf("field %q: %q got through", f.Name, f.Value)
		}
	}
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return
	}
	if resp.Status < 200 || resp.Status > 999 || len(body) > len(raw) {
		t.Fatalf("status %d, %d bytes of %d", resp.Status, len(body), len(raw))
	}
	if bodyless := method == "HEAD" || resp.Status == 304; !bodyless && resp.Length >= 0 && resp.Length != int64(len(body)) {
		t.Fatalf("length %d, %d bytes", resp.Length, len(body))
	}
	compareWithNetHTTP(t, raw, method, resp, body)
}

// compareWithNetHTTP: what net/http reads to a clean end as well, it must have
// read alike. (It knows no interim answers here, and waits for a bare 205's end.)
func compareWithNetHTTP(t *testing.T, raw []byte, method string, resp *classify.Response, body []byte) {
	t.Helper()
	want, err := http.ReadResponse(bufio.NewReader(bytes.NewReader(raw)), &http.Request{Method: method}) //nolint:bodyclose // there is no connection behind it
	if err != nil || want.StatusCode < 200 || want.StatusCode == 205 {
		return
	}
	wantBody, err := io.ReadAll(want.Body)
	if err != nil {
		return
	}
	if resp.Status != want.StatusCode || !bytes.Equal(body, wantBody) {
		t.Fatalf("%d %q, net/http reads %d %q", resp.Status, body, want.StatusCode, wantBody)
	}
}

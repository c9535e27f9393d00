package proxy

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"

	"counterfoil/keystore"
)

// hidden is the request that each ambiguous one below tries to carry past the
// sidecar.
const hidden = "POST /tickets/hidden HTTP/1.1\r\nHost: localhost\r\nCounterfoil-Run: R9\r\nCounterfoil-Turn: 9\r\nCounterfoil-Call: 9\r\nContent-Length: 2\r\n\r\n{}"

const front = "POST /tickets/front HTTP/1.1\r\nHost: localhost\r\nCounterfoil-Run: r1\r\nCounterfoil-Turn: 1\r\nCounterfoil-Call: 1\r\n"

// C66: what two servers could frame in two ways is answered 400 and the
// connection closed, so that nothing after it is read as a request.
func TestC66Smuggling(t *testing.T) {
	chunked := "Transfer-Encoding: chunked\r\n"
	for name, raw := range map[string]string{
		"length and chunked":           front + "Content-Length: 4\r\n" + chunked + "\r\n0\r\n\r\n",
		"chunked and length":           front + chunked + "Content-Length: 4\r\n\r\n0\r\n\r\n",
		"two lengths":                  front + "Content-Length: 2\r\nContent-Length: 5\r\n\r\n{}",
		"two equal lengths":            front + "Content-Length: 2\r\nContent-Length: 2\r\n\r\n{}",
		"a list of lengths":            front + "Content-Length: 2, 2\r\n\r\n{}",
		"a length with a sign":         front + "Content-Length: +2\r\n\r\n{}",
		"a negative length":            front + "Content-Length: -2\r\n\r\n{}",
		"a length in hex":              front + "Content-Length: 0x2\r\n\r\n{}",
		"an empty length":              front + "Content-Length: \r\n\r\n",
		"a length beyond 64 bits":      front + "Content-Length: 18446744073709551618\r\n\r\n{}",
		"two codings":                  front + chunked + chunked + "\r\n0\r\n\r\n",
		"an unknown coding":            front + "Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n",
		"a list of codings":            front + "Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
		"identity":                     front + "Transfer-Encoding: identity\r\n\r\n",
		"identity and a length":        front + "Transfer-Encoding: identity\r\nContent-Length: 2\r\n\r\n{}",
		"an empty coding":              front + "Transfer-Encoding:\r\n\r\n",
		"a coding with a vertical tab": front + "Transfer-Encoding: chunked\v\r\n\r\n0\r\n\r\n",
		"space before the colon":       front + "Content-Length : 2\r\n\r\n{}",
		"tab before the colon":         front + "Transfer-Encoding\t: chunked\r\n\r\n0\r\n\r\n",
		"a name with a space":          front + "X Y: 1\r\nContent-Length: 2\r\n\r\n{}",
		"no colon":                     front + "nonsense\r\nContent-Length: 2\r\n\r\n{}",
		"an empty name":                front + ": 1\r\nContent-Length: 2\r\n\r\n{}",
		"size 0_0":                     front + chunked + "\r\n0_0\r\n\r\n",
		"size 0x1":                     front + chunked + "\r\n0x1\r\na\r\n0\r\n\r\n",
		"size -1":                      front + chunked + "\r\n-1\r\na\r\n0\r\n\r\n",
		"size +1":                      front + chunked + "\r\n+1\r\na\r\n0\r\n\r\n",
		"no size":                      front + chunked + "\r\n\r\na\r\n0\r\n\r\n",
		"size of 17 digits":            front + chunked + "\r\n00000000000000001\r\na\r\n0\r\n\r\n",
		"size that overflows":          front + chunked + "\r\nfffffffffffffffff\r\na\r\n0\r\n\r\n",
		"line feed in an extension":    front + chunked + "\r\n2;a\nb\r\n{}\r\n0\r\n\r\n",
		"bare LF after a size":         front + chunked + "\r\n2\n{}\r\n0\r\n\r\n",
		"bare LF after a chunk":        front + chunked + "\r\n2\r\n{}\n0\r\n\r\n",
		"a chunk longer than its size": front + chunked + "\r\n1\r\n{}\r\n0\r\n\r\n",
		"chunked on HTTP/1.0":          strings.Replace(front, "HTTP/1.1", "HTTP/1.0", 1) + chunked + "\r\n2\r\n{}\r\n0\r\n\r\n",
		"bare LF line ends":            strings.ReplaceAll(front+"Content-Length: 2\r\n\r\n", "\r\n", "\n") + "{}",
		"one bare LF":                  front + "X-A: 1\nContent-Length: 2\r\n\r\n{}",
		"bare CR in a value":           front + "X-A: 1\rContent-Length: 0\r\nContent-Length: 2\r\n\r\n{}",
		"NUL in a value":               front + "X-A: a\x00b\r\nContent-Length: 2\r\n\r\n{}",
		"NUL in a name":                front + "X-\x00: a\r\nContent-Length: 2\r\n\r\n{}",
		"folding":                      front + "X-A: 1\r\n b\r\nContent-Length: 2\r\n\r\n{}",
		"a folded coding":              front + "Transfer-Encoding:\r\n chunked\r\n\r\n0\r\n\r\n",
		"a folded first line":          "POST /tickets/front HTTP/1.1\r\n Host: localhost\r\nHost: localhost\r\n\r\n",
		"two hosts":                    front + "Host: evil.example\r\nContent-Length: 2\r\n\r\n{}",
		"no host":                      "POST /tickets/front HTTP/1.1\r\nContent-Length: 2\r\n\r\n{}",
		"HTTP/2.0":                     strings.Replace(front, "HTTP/1.1", "HTTP/2.0", 1) + "Content-Length: 2\r\n\r\n{}",
		"HTTP/1.2":                     strings.Replace(front, "HTTP/1.1", "HTTP/1.2", 1) + "Content-Length: 2\r\n\r\n{}",
		"no version":                   "POST /tickets/front\r\nHost: localhost\r\n\r\n",
		"two spaces":                   strings.Replace(front, "front HTTP", "front  HTTP", 1) + "\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			p := provide(t, created)
			st := start(t, setup{provider: p})
			c := dial(t, st.addr)
			c.say(raw + hidden)
			g, err := c.hear("POST")
			if err != nil {
				t.Fatalf("no answer: %v", err)
			}
			if g.status != 400 {
				t.Errorf("answer is %d, want 400", g.status)
			}
			if rest, _ := io.ReadAll(c.br); len(rest) > 0 {
				t.Errorf("after the answer came %q", rest)
			}
			if n := len(p.hits()); n != 0 {
				t.Errorf("%d requests reached the provider", n)
			}
			st.nothingOf("R9")
		})
	}
}

// C66, the other half: what is odd but can be read in one way only is one
// request, and what follows it is another.
func TestC66OneWellFramedRequest(t *testing.T) {
	chunked := "Transfer-Encoding: chunked\r\n"
	for name, raw := range map[string]string{
		"a tab after chunked": front + "Transfer-Encoding: chunked\t\r\n\r\n2\r\n{}\r\n0\r\n\r\n",
		"CHUNKED":             front + "Transfer-Encoding: CHUNKED\r\n\r\n2\r\n{}\r\n0\r\n\r\n",
		"a chunk extension":   front + chunked + "\r\n2;a=b\r\n{}\r\n0\r\n\r\n",
		"leading zeros":       front + chunked + "\r\n0002\r\n{}\r\n0\r\n\r\n",
		"an empty line first": "\r\n" + front + "Content-Length: 2\r\n\r\n{}",
	} {
		t.Run(name, func(t *testing.T) {
			p := provide(t, created)
			st := start(t, setup{provider: p})
			c := dial(t, st.addr)
			c.say(raw + strings.Replace(hidden, "R9", "r2", 1))
			for i := range 2 {
				if g, err := c.hear("POST"); err != nil || g.status != 201 {
					t.Fatalf("answer %d: %+v, %v", i+1, g, err)
				}
			}
			hits := p.hits()
			if len(hits) != 2 || hits[0].target() != "/front" || hits[1].target() != "/hidden" {
				t.Fatalf("the provider got %d requests", len(hits))
			}
			for _, h := range hits {
				if len(h.values("Content-Length")) != 1 || len(h.values("Transfer-Encoding")) != 0 || h.body != "{}" {
					t.Errorf("framed as %q, body %q", h.fields, h.body)
				}
			}
		})
	}
}

// nothingOf checks that no intent of a run is on record.
func (st *stack) nothingOf(run string) {
	st.t.Helper()
	_, err := st.store.Run(context.Background(), "default", run)
	if !errors.Is(err, keystore.ErrNotFound) {
		st.t.Errorf("run %s is on record (%v)", run, err)
	}
}

// A head beyond 64 KiB is refused and the connection closed.
func TestHeadTooLarge(t *testing.T) {
	p := provide(t, created)
	st := start(t, setup{provider: p})
	g := ask(t, st.addr, request("GET", "/tickets/x", "", "X-Long: "+strings.Repeat("a", HeadBytesMax)))
	g.isProblem(t, HeaderTooLarge)
	if g = ask(t, st.addr, request("GET", "/tickets/x", "", "X-Long: "+strings.Repeat("a", HeadBytesMax-1000))); g.status != 201 {
		t.Errorf("a head of nearly 64 KiB: %d", g.status)
	}
	if n := len(p.hits()); n != 1 {
		t.Errorf("%d requests reached the provider, want 1", n)
	}
}

// FuzzHead holds the strict reader against a plain statement of what it takes.
func FuzzHead(f *testing.F) {
	f.Add("Host: a\r\nX: y\r\n\r\n")
	f.Add("a:b\r\n c\r\n\r\n")
	f.Add("a: b\nc: d\r\n\r\n")
	f.Fuzz(func(t *testing.T, block string) {
		h, err := parseHead(block)
		if err != nil {
			return
		}
		for _, field := range h {
			if !isToken(field.Name) || !isFieldValue(field.Value) || strings.ContainsAny(field.Value, "\r\n\x00") {
				t.Errorf("field %q: %q", field.Name, field.Value)
			}
		}
		if n := strings.Count(strings.TrimSuffix(block, "\r\n"), "\n"); n > len(h)+1 {
			t.Errorf("%d lines became %d fields", n, len(h))
		}
	})
}

package upstream

import (
	"errors"
	"io"
	"strings"
	"testing"

	"counterfoil/classify"
)

const chunkedHead = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"

func TestC64_CutBodiesDoNotLookComplete(t *testing.T) {
	for name, tc := range map[string]struct{ answer, want string }{
		"on a chunk's edge":        {chunkedHead + "3\r\none\r\n3\r\ntwo\r\n3\r\nsix\r\n", "onetwosix"},
		"before a chunk's CRLF":    {chunkedHead + "3\r\none", "one"},
		"in a chunk":               {chunkedHead + "9\r\none", "one"},
		"in a size line":           {chunkedHead + "3\r\none\r\n1", "one"},
		"before any chunk":         {chunkedHead, ""},
		"after the last chunk":     {chunkedHead + "3\r\none\r\n0\r\n", "one"},
		"in the trailers":          {chunkedHead + "3\r\none\r\n0\r\nX-Sum: 1\r\n", "one"},
		"short of its length":      {"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n" + strings.Repeat("x", 400), strings.Repeat("x", 400)},
		"before any of its length": {"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n", ""},
	} {
		for how, hangUp := range map[string]func(*peer){
			"fin": func(pe *peer) { pe.Close() },
			"rst": func(pe *peer) { pe.reset() },
		} {
			t.Run(name+"/"+how, func(t *testing.T) {
				read := make(chan struct{})
				p := provide(t, func(pe *peer) {
					pe.hear()
					pe.say(tc.answer)
					<-read // so that RST does not overtake the bytes
					hangUp(pe)
				})
				c := p.client(t)
				resp := send(t, c, request("POST", "/", "x"))
				wantEvidence(t, resp, classify.Answered)
				got := make([]byte, len(tc.want))
				if _, err := io.ReadFull(resp.Body, got); err != nil || string(got) != tc.want {
					t.Fatalf("read %q, %v; want %q", got, err, tc.want)
				}
				close(read)
				for range 2 {
					if n, err := io.Copy(io.Discard, resp.Body); n != 0 || err == nil {
						t.Fatalf("after the cut: %d bytes, error %v; want an error", n, err)
					}
				}
				if idleCount(c) != 0 || len(c.slots) != 0 {
					t.Errorf("%d idle, %d slots taken after a cut", idleCount(c), len(c.slots))
				}
				if resp.CloseDelimited || p.hits() != 1 {
					t.Errorf("close-delimited %v, %d requests", resp.CloseDelimited, p.hits())
				}
			})
		}
	}
}

func TestC64_CloseDelimitedIsFlagged(t *testing.T) {
	for name, answer := range map[string]string{
		"1.0": "HTTP/1.0 200 OK\r\n\r\nall of it",
		"1.1": "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nall of it",
	} {
		t.Run(name, func(t *testing.T) {
			p := provide(t, func(pe *peer) {
				pe.hear()
				pe.say(answer)
			})
			c := p.client(t)
			resp := exchangeOK(t, c, request("GET", "/", ""), 200, "all of it")
			if !resp.CloseDelimited || resp.Length != -1 || idleCount(c) != 0 {
				t.Errorf("close-delimited %v, length %d, %d idle", resp.CloseDelimited, resp.Length, idleCount(c))
			}
		})
	}
}

func TestC64_ResetEndsNoCloseDelimitedBody(t *testing.T) {
	read := make(chan struct{})
	p := provide(t, func(pe *peer) {
		pe.hear()
		pe.say("HTTP/1.1 200 OK\r\n\r\npart")
		<-read
		pe.reset()
	})
	resp := send(t, p.client(t), request("GET", "/", ""))
	wantEvidence(t, resp, classify.Answered)
	got := make([]byte, 4)
	io.ReadFull(resp.Body, got)
	close(read)
	if _, err := resp.Body.Read(got); err == nil || errors.Is(err, io.EOF) {
		t.Fatalf("error %v, want a cut", err)
	}
}

func TestMalformedChunksAreCuts(t *testing.T) {
	for name, chunks := range map[string]string{
		"no size":               "\r\nabc\r\n0\r\n\r\n",
		"size not hex":          "xyz\r\nabc\r\n0\r\n\r\n",
		"signed size":           "+3\r\nabc\r\n0\r\n\r\n",
		"hex prefix":            "0x3\r\nabc\r\n0\r\n\r\n",
		"huge size":             "fffffffffffffffff\r\nabc\r\n0\r\n\r\n",
		"longer than its size":  "3\r\nabcd\r\n0\r\n\r\n",
		"bare LF":               "3\nabc\r\n0\r\n\r\n",
		"bare LF after data":    "3\r\nabc\n0\r\n\r\n",
		"LF in an extension":    "3;a=\nb\r\nabc\r\n0\r\n\r\n",
		"CR in an extension":    "3;a=\rb\r\nabc\r\n0\r\n\r\n",
		"endless extension":     "3;" + strings.Repeat("a", 1<<20) + "\r\nabc\r\n0\r\n\r\n",
		"endless trailers":      "3\r\nabc\r\n0\r\n" + strings.Repeat("X-A: b\r\n", 1<<16) + "\r\n",
		"endless trailer":       "3\r\nabc\r\n0\r\nX-A: " + strings.Repeat("b", 1<<20) + "\r\n\r\n",
		"another answer inside": "3\r\nabcHTTP/1.1 200 OK\r\n\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			p := provide(t, func(pe *peer) {
				pe.hear()
				pe.say(chunkedHead + chunks)
				pe.waitGone()
			})
			c := p.client(t)
			resp := send(t, c, request("GET", "/", ""))
			wantEvidence(t, resp, classify.Answered)
			if b, err := io.ReadAll(resp.Body); err == nil {
				t.Fatalf("read %d bytes to a clean end", len(b))
			}
			if idleCount(c) != 0 {
				t.Error("the connection went back to the pool")
			}
		})
	}
}

func TestChunksThatAreFine(t *testing.T) {
	p := provide(t, answering(chunkedHead+"3;sig=\"x;y\"\r\none\r\n00000A \r\n0123456789\r\n0;last\r\n\r\n"))
	c := p.client(t)
	for range 2 {
		exchangeOK(t, c, request("GET", "/", ""), 200, "one0123456789")
	}
	if p.connections() != 1 {
		t.Errorf("%d connections, want 1", p.connections())
	}
}

// Early Close gives up the connection, and a late reader learns of it.
func TestClosingEarlyDropsTheConnection(t *testing.T) {
	gone := make(chan struct{})
	p := provide(t, func(pe *peer) {
		pe.hear()
		pe.say("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n12345")
		pe.waitGone()
		close(gone)
	})
	c := p.client(t)
	resp := send(t, c, request("GET", "/", ""))
	wantEvidence(t, resp, classify.Answered)
	for range 2 {
		if err := resp.Body.Close(); err != nil {
			t.Fatal(err)
		}
	}
	<-gone
	if n, err := resp.Body.Read(make([]byte, 1)); n != 0 || err != errBodyClosed { //nolint:errorlint // readers compare
		t.Errorf("Read after Close: %d, %v", n, err)
	}
	if idleCount(c) != 0 || len(c.slots) != 0 {
		t.Errorf("%d idle, %d slots taken", idleCount(c), len(c.slots))
	}
}

// Bytes past the end of an answer belong to no request.
func TestSurplusBytesEndTheConnection(t *testing.T) {
	for name, answer := range map[string]string{
		"sized":   okAnswer + "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil",
		"chunked": chunkedHead + "2\r\nok\r\n0\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil",
		"CRLF":    okAnswer + "\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			p := provide(t, answering(answer))
			c := p.client(t)
			for range 3 {
				exchangeOK(t, c, request("GET", "/", ""), 200, "ok")
			}
			if p.connections() != 3 {
				t.Errorf("%d connections, want 3", p.connections())
			}
		})
	}
}

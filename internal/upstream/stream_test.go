package upstream

import (
	"bytes"
	"io"
	"runtime"
	"strconv"
	"testing"

	"counterfoil/classify"
)

const bigBytes = 128 << 20

// allocated is how many bytes were allocated while f ran, by anyone.
func allocated(f func()) int64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return int64(after.TotalAlloc - before.TotalAlloc)
}

func TestLargeAnswerInLittleMemory(t *testing.T) {
	piece := bytes.Repeat([]byte("0123456789abcdef"), 4<<10)
	chunk := append(append([]byte(strconv.FormatInt(int64(len(piece)), 16)+"\r\n"), piece...), "\r\n"...)
	for name, play := range map[string]func(*peer){
		"sized": func(pe *peer) {
			pe.say("HTTP/1.1 200 OK\r\nContent-Length: " + strconv.Itoa(bigBytes) + "\r\n\r\n")
			for range bigBytes / len(piece) {
				pe.Write(piece)
			}
		},
		"chunked": func(pe *peer) {
			pe.say(chunkedHead)
			for range bigBytes / len(piece) {
				pe.Write(chunk)
			}
			pe.say("0\r\n\r\n")
		},
		"close-delimited": func(pe *peer) {
			pe.say("HTTP/1.1 200 OK\r\n\r\n")
			for range bigBytes / len(piece) {
				pe.Write(piece)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := provide(t, func(pe *peer) { pe.hear(); play(pe) })
			c := p.client(t)
			buf := make([]byte, 32<<10)
			var n int64
			grew := allocated(func() {
				resp := send(t, c, request("GET", "/", ""))
				wantEvidence(t, resp, classify.Answered)
				for {
					m, err := resp.Body.Read(buf)
					if want := piece[n&15:][:m]; !bytes.Equal(buf[:m], want) {
						t.Fatalf("wrong bytes after the first %d", n)
					}
					n += int64(m)
					if err == io.EOF {
						break
					}
					if err != nil {
						t.Fatalf("after %d bytes: %v", n, err)
					}
				}
			})
			if n != bigBytes || grew > 2<<20 {
				t.Errorf("%d bytes came, %d were allocated; want %d, and at most 2 MiB", n, grew, bigBytes)
			}
		})
	}
}

// The body is the caller's; sending it copies no more than its beginning.
func TestLargeRequestIsNotCopied(t *testing.T) {
	body := bytes.Repeat([]byte("0123456789abcdef"), bigBytes/16)
	p := provide(t, func(pe *peer) {
		pe.hearHead()
		buf := make([]byte, 64<<10)
		for n := 0; n < bigBytes; {
			m, err := pe.br.Read(buf)
			if err != nil || !bytes.Equal(buf[:m], body[n:n+m]) {
				t.Errorf("byte %d: %v", n, err)
				return
			}
			n += m
		}
		pe.say(okAnswer)
		pe.waitGone()
	})
	c := p.client(t)
	grew := allocated(func() {
		exchangeOK(t, c, &classify.Request{Method: "PUT", Target: "/", Body: body}, 200, "ok")
	})
	if grew > 2<<20 {
		t.Errorf("%d bytes were allocated, want at most 2 MiB", grew)
	}
}

// Events reach the reader as they come.
func TestStreamIsNotHeldBack(t *testing.T) {
	next := make(chan struct{})
	p := provide(t, func(pe *peer) {
		pe.hear()
		pe.say(chunkedHead)
		for range next {
			pe.say("8\r\ndata: x\n\r\n")
		}
		pe.say("0\r\n\r\n")
		pe.waitGone()
	})
	resp := send(t, p.client(t), request("GET", "/", ""))
	wantEvidence(t, resp, classify.Answered)
	buf := make([]byte, 64<<10)
	for range 100 {
		next <- struct{}{}
		if n, err := io.ReadAtLeast(resp.Body, buf, 8); err != nil || string(buf[:n]) != "data: x\n" {
			t.Fatalf("read %q, %v", buf[:n], err)
		}
	}
	close(next)
	if n, err := resp.Body.Read(buf); n != 0 || err != io.EOF {
		t.Fatalf("at the end: %d, %v", n, err)
	}
}

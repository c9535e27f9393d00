package upstream

import "testing"

func TestC70_AnswersWithoutBody(t *testing.T) {
	const stray = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nstray"
	for name, tc := range map[string]struct {
		method, answer string
		status         int
		length         int64
		reused         bool
	}{
		"HEAD chunked":          {"HEAD", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", 200, -1, true},
		"HEAD with length":      {"HEAD", "HTTP/1.1 200 OK\r\nContent-Length: 9757\r\n\r\n", 200, 9757, true},
		"HEAD bare":             {"HEAD", "HTTP/1.1 200 OK\r\n\r\n", 200, -1, true},
		"HEAD with a body":      {"HEAD", "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nstray", 200, 5, false},
		"HEAD with another":     {"HEAD", "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n" + stray, 200, 5, false},
		"204":                   {"POST", "HTTP/1.1 204 No Content\r\n\r\n", 204, 0, true},
		"204 of length 0":       {"POST", "HTTP/1.1 204 No Content\r\nContent-Length: 0\r\n\r\n", 204, 0, true},
		"204 with a body":       {"POST", "HTTP/1.1 204 No Content\r\nContent-Length: 5\r\n\r\nstray", 204, 0, false},
		"204 chunked":           {"POST", "HTTP/1.1 204 No Content\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nstray\r\n0\r\n\r\n", 204, 0, false},
		"204 with an answer":    {"POST", "HTTP/1.1 204 No Content\r\n\r\n" + stray, 204, 0, false},
		"204 declaring a body":  {"POST", "HTTP/1.1 204 No Content\r\nContent-Length: 5\r\n\r\n", 204, 0, false},
		"304 with length":       {"GET", "HTTP/1.1 304 Not Modified\r\nContent-Length: 77\r\n\r\n", 304, 77, true},
		"304 bare":              {"GET", "HTTP/1.1 304 Not Modified\r\n\r\n", 304, -1, true},
		"205 of length 0":       {"POST", "HTTP/1.1 205 Reset Content\r\nContent-Length: 0\r\n\r\n", 205, 0, true},
		"205 chunked":           {"POST", "HTTP/1.1 205 Reset Content\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 205, -1, true},
		"205 bare":              {"POST", "HTTP/1.1 205 Reset Content\r\n\r\n", 205, 0, false},
		"205 with an answer":    {"POST", "HTTP/1.1 205 Reset Content\r\n\r\n" + stray, 205, 0, false},
		"200 of length 0":       {"POST", "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", 200, 0, true},
		"200 of length 0, more": {"POST", "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n" + stray, 200, 0, false},
		"HEAD, close":           {"HEAD", "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n", 200, -1, false},
		"HEAD, 1.0":             {"HEAD", "HTTP/1.0 200 OK\r\n\r\n", 200, -1, false},
		"HEAD, 1.0 keep-alive":  {"HEAD", "HTTP/1.0 200 OK\r\nConnection: Keep-Alive\r\n\r\n", 200, -1, true},
	} {
		t.Run(name, func(t *testing.T) {
			p := provide(t, func(pe *peer) {
				for {
					h, ok := pe.hear()
					if !ok {
						return
					}
					if h.line == "GET /next HTTP/1.1" {
						pe.say(okAnswer)
					} else {
						pe.say(tc.answer)
					}
				}
			})
			c := p.client(t)
			resp := exchangeOK(t, c, request(tc.method, "/", ""), tc.status, "")
			if resp.Length != tc.length || resp.CloseDelimited || resp.Header.Has("Content-Length") {
				t.Errorf("length %d, close-delimited %v, header %v; want length %d", resp.Length, resp.CloseDelimited, resp.Header, tc.length)
			}
			exchangeOK(t, c, request("GET", "/next", ""), 200, "ok")
			if want := map[bool]int{true: 1, false: 2}[tc.reused]; p.connections() != want {
				t.Errorf("%d connections, want %d", p.connections(), want)
			}
		})
	}
}

// A stray body that comes only after the answer was read is seen before the
// connection is used again.
func TestC70_LateStrayBytesEndTheConnection(t *testing.T) {
	read := make(chan struct{})
	p := provide(t, func(pe *peer) {
		pe.hear()
		if pe.n > 1 {
			pe.say(okAnswer)
			return
		}
		pe.say("HTTP/1.1 204 No Content\r\n\r\n")
		<-read
		pe.say("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nstray")
		pe.waitGone()
	})
	c := p.client(t)
	exchangeOK(t, c, request("POST", "/", "x"), 204, "")
	close(read)
	cn := idleConn(t, c)
	eventually(t, "the stray bytes' arrival", func() bool { return !cn.quiet() })
	exchangeOK(t, c, request("POST", "/", "x"), 200, "ok")
	if p.connections() != 2 {
		t.Errorf("%d connections, want 2", p.connections())
	}
}

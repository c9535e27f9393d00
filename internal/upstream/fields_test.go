package upstream

import (
	"reflect"
	"strings"
	"testing"

	"counterfoil/classify"
)

func TestC68_FieldsKeepNameOrderAndNumber(t *testing.T) {
	want := classify.Header{
		{Name: "Set-Cookie", Value: "a=1; Expires=Wed, 21 Oct 2026 07:28:00 GMT"},
		{Name: "x-lower", Value: "1"},
		{Name: "Link", Value: "</1>; rel=next"},
		{Name: "content-type", Value: "text/plain"},
		{Name: "Set-Cookie", Value: "b=2"},
		{Name: "X_Under", Value: "1"},
		{Name: "WWW-Authenticate", Value: "Basic realm=\"x, y\""},
		{Name: "Link", Value: "</2>; rel=prev"},
		{Name: "X-Empty", Value: ""},
		{Name: "SERVER", Value: "p"},
		{Name: "set-cookie", Value: "c=3"},
		{Name: "WWW-Authenticate", Value: "Bearer"},
		{Name: "Content-Type", Value: "text/html"},
		{Name: "X-Latin", Value: "caf\xe9"},
		{Name: "x-lower", Value: "2"},
	}
	var answer strings.Builder
	answer.WriteString("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n")
	for _, f := range want {
		answer.WriteString(f.Name + ": " + f.Value + "\r\n")
	}
	p := provide(t, answering(answer.String()+"\r\n"))
	r := request("POST", "/", "body")
	r.Header = classify.Header{
		{Name: "X-Multi", Value: "1"},
		{Name: "cookie", Value: "a=1; b=2"},
		{Name: "content-type", Value: "application/json"},
		{Name: "X-Multi", Value: "2"},
		{Name: "signature", Value: "headers=\"cookie x-multi\""},
		{Name: "X-Empty", Value: ""},
		{Name: "Cookie", Value: "c=3"},
		{Name: "X_Under", Value: "1"},
		{Name: "accept", Value: "a, b"},
		{Name: "Trailing-Case-X", Value: "caf\xe9"},
	}
	resp := exchangeOK(t, p.client(t), r, 200, "")
	if !reflect.DeepEqual(resp.Header, want) {
		t.Errorf("answer's header\n got %v\nwant %v", resp.Header, want)
	}
	wantLines := []string{"Host: " + p.addr}
	for _, f := range r.Header {
		wantLines = append(wantLines, f.Name+": "+f.Value)
	}
	wantLines = append(wantLines, "Content-Length: 4")
	if got := p.last(); !reflect.DeepEqual(got.lines, wantLines) || got.body != "body" {
		t.Errorf("request's header\n got %q\nwant %q", got.lines, wantLines)
	}
}

func TestRequestFraming(t *testing.T) {
	p := provide(t, answering("HTTP/1.1 204 No\r\n\r\n"))
	c := p.client(t)
	for _, tc := range []struct {
		method, body string
		lengths      []string
	}{
		{"GET", "", nil}, {"HEAD", "", nil}, {"DELETE", "", nil}, {"OPTIONS", "", nil}, {"TRACE", "", nil}, {"PURGE", "", nil},
		{"POST", "", []string{"0"}}, {"PUT", "", []string{"0"}}, {"PATCH", "", []string{"0"}},
		{"GET", "abc", []string{"3"}}, {"DELETE", "abc", []string{"3"}}, {"POST", "abc", []string{"3"}},
		{"POST", strings.Repeat("x", outBytesOnce), []string{"16384"}}, {"PUT", strings.Repeat("y", 1<<20+1), []string{"1048577"}},
	} {
		exchangeOK(t, c, request(tc.method, "/", tc.body), 204, "")
		got := p.last()
		if !reflect.DeepEqual(got.values("Content-Length"), tc.lengths) || got.body != tc.body {
			t.Errorf("%s with %d bytes: lengths %q, %d bytes came", tc.method, len(tc.body), got.values("Content-Length"), len(got.body))
		}
		if want := 1 + len(tc.lengths); len(got.lines) != want {
			t.Errorf("%s: lines %q: something was invented", tc.method, got.lines)
		}
	}
	if p.connections() != 1 {
		t.Errorf("%d connections, want 1", p.connections())
	}
}

func TestHopByHopFieldsStayHere(t *testing.T) {
	p := provide(t, answering("HTTP/1.1 200 OK\r\nKeep-Alive: timeout=9\r\nX-A: 1\r\nConnection: keep-alive, x-private\r\n"+
		"X-Private: 2\r\nProxy-Authenticate: Basic\r\nTrailer: X-Sum\r\nUpgrade: h2c\r\ncontent-length: 2\r\nTE: trailers\r\n"+
		"Proxy-Connection: keep-alive\r\nX-B: 3\r\n\r\nok"))
	resp := exchangeOK(t, p.client(t), request("GET", "/", ""), 200, "ok")
	want := classify.Header{{Name: "X-A", Value: "1"}, {Name: "X-B", Value: "3"}}
	if !reflect.DeepEqual(resp.Header, want) || resp.Length != 2 {
		t.Errorf("got %v, length %d; want %v, 2", resp.Header, resp.Length, want)
	}
}

// The head is parsed from a copy: a later answer on the same connection must
// not show through.
func TestHeaderOutlivesItsConnection(t *testing.T) {
	p := provide(t, func(pe *peer) {
		for n := 'a'; ; n++ {
			if _, ok := pe.hear(); !ok {
				return
			}
			pe.say("HTTP/1.1 200 OK\r\nX-Nonce: " + strings.Repeat(string(n), 9) + "\r\nContent-Length: 0\r\n\r\n")
		}
	})
	c := p.client(t)
	first := exchangeOK(t, c, request("GET", "/", ""), 200, "")
	exchangeOK(t, c, request("GET", "/", ""), 200, "")
	if got := first.Header.Value("X-Nonce"); got != "aaaaaaaaa" {
		t.Errorf("the first answer's field now reads %q", got)
	}
}

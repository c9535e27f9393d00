package upstream

import (
	"slices"
	"strconv"
	"strings"
	"testing"

	"counterfoil/classify"
)

func TestC67_PathBytesAreUntouched(t *testing.T) {
	p := provide(t, answering(okAnswer))
	for base, prefix := range map[string]string{"": "", "/": "", "/v1": "/v1", "/v1/": "/v1", "/a%2Fb/%7e": "/a%2Fb/%7e"} {
		c := newClient(t, Config{URL: "http://" + p.addr + base})
		for _, target := range []string{
			"/", "/a%2Fb", "/a//b", "//evil.example/x", "/a/../b", "/a/./b", "/safe/%2e%2e/danger", "/a;p=1", "/a%00b", "/a%zz",
			"/%E2%82%AC", "/€", "/a?b=c&d=%20e+f", "/a?", "/?q=http://other/x?y", "/a:b@c", "/UPPER/lower", "/a#b",
		} {
			exchangeOK(t, c, request("GET", target, ""), 200, "ok")
			if got, want := p.last().line, "GET "+prefix+target+" HTTP/1.1"; got != want {
				t.Errorf("base %q: request line %q, want %q", base, got, want)
			}
			if got := c.Target(target); got != prefix+target {
				t.Errorf("Target(%q) = %q", target, got)
			}
		}
	}
}

// A base URL can be the whole endpoint: nothing is put behind it.
func TestTheBaseItselfGetsNoSlash(t *testing.T) {
	p := provide(t, answering(okAnswer))
	for base, want := range map[string]string{"": "/", "/": "/", "/graphql": "/graphql", "/graphql/": "/graphql/", "/a%2Fb": "/a%2Fb"} {
		c := newClient(t, Config{URL: "http://" + p.addr + base})
		for _, query := range []string{"", "?a=b"} {
			exchangeOK(t, c, request("POST", query, ""), 200, "ok")
			if got := strings.Fields(p.last().line)[1]; got != want+query {
				t.Errorf("base %q: the provider got %s, want %s", base, got, want+query)
			}
		}
	}
}

func TestC67_UnsendableRequestsAreUnsent(t *testing.T) {
	field := func(name, value string) *classify.Request {
		r := request("GET", "/", "")
		r.Header = classify.Header{{Name: name, Value: value}}
		return r
	}
	p := provide(t, answering(okAnswer))
	c := p.client(t)
	for name, r := range map[string]*classify.Request{
		"absolute target":    request("GET", "http://other/x", ""),
		"asterisk":           request("OPTIONS", "*", ""),
		"NUL in target":      request("GET", "/a\x00b", ""),
		"space in target":    request("GET", "/a b", ""),
		"CRLF in target":     request("GET", "/a HTTP/1.1\r\nX: y\r\n\r\n", ""),
		"DEL in target":      request("GET", "/a\x7f", ""),
		"no method":          request("", "/", ""),
		"method with space":  request("GET /x", "/", ""),
		"CONNECT":            request("CONNECT", "/", ""),
		"CRLF in value":      field("X-A", "b\r\nX-C: d"),
		"LF in value":        field("X-A", "b\nX-C: d"),
		"NUL in value":       field("X-A", "b\x00"),
		"colon in name":      field("X-A:", "b"),
		"no name":            field("", "b"),
		"Host":               field("host", "evil.example"),
		"Content-Length":     field("content-length", "5"),
		"Transfer-Encoding":  field("Transfer-encoding", "chunked"),
		"Connection":         field("connection", "close"),
		"Expect":             field("expect", "100-continue"),
		"Upgrade":            field("upgrade", "websocket"),
		"space before colon": field("Content-Length ", "5"),
	} {
		wantEvidence(t, send(t, c, r), classify.Unsent)
		if p.connections() != 0 {
			t.Fatalf("%s: a connection was opened", name)
		}
	}
}

// Whatever is accepted makes one request with exactly the lines it should.
func FuzzRequestHead(f *testing.F) {
	f.Add("GET", "/", "X-A", "b", []byte(nil))
	f.Add("POST", "/a%2F?b#c", "cookie", "caf\xe9\t", []byte("x\r\n\r\nGET / HTTP/1.1"))
	f.Add("PUT", "/\r\n", "X-A\r\n", "\n", []byte("x"))
	f.Add("M-SEARCH", "//€", "content-type", "", []byte("x"))
	c, err := New(Config{URL: "http://h/base"})
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(c.Close)
	f.Fuzz(func(t *testing.T, method, target, name, value string, body []byte) {
		r := &classify.Request{Method: method, Target: target, Header: classify.Header{{Name: name, Value: value}}, Body: body}
		if checkRequest(r) != nil {
			return
		}
		cn := &conn{client: c}
		rest := cn.compose(r)
		head, sent, _ := strings.Cut(string(cn.out), "\r\n\r\n")
		want := []string{method + " /base" + target + " HTTP/1.1", "Host: h", name + ": " + value}
		if len(body) > 0 || expectsBody(method) {
			want = append(want, "Content-Length: "+strconv.Itoa(len(body)))
		}
		if got := strings.Split(head, "\r\n"); !slices.Equal(got, want) {
			t.Fatalf("lines %q, want %q", got, want)
		}
		if sent+string(rest) != string(body) {
			t.Fatalf("body %q, want %q", sent+string(rest), body)
		}
	})
}

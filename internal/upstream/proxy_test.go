package upstream

import (
	"io"
	"net"
	"net/url"
	"reflect"
	"strings"
	"testing"
	"time"

	"counterfoil/classify"

	"golang.org/x/net/http/httpproxy"
)

// via sends everything to one proxy.
func via(proxy string) func(*url.URL) (*url.URL, error) {
	return func(*url.URL) (*url.URL, error) { return url.Parse(proxy) }
}

// tunnelling is the script of a CONNECT proxy that leads to where it is told.
func tunnelling(pe *peer) {
	h, ok := pe.hear()
	if !ok {
		return
	}
	addr := strings.Fields(h.line)[1]
	origin, err := net.Dial("tcp", addr)
	if err != nil {
		pe.say("HTTP/1.1 502 Bad Gateway\r\nContent-Length: 0\r\n\r\n")
		return
	}
	defer origin.Close()
	pe.say("HTTP/1.1 200 Connection established\r\nX-Proxy: yes\r\n\r\n")
	done := make(chan struct{})
	go func() {
		defer close(done)
		io.Copy(pe.Conn, origin)
		pe.Close()
	}()
	io.Copy(origin, pe.br)
	origin.Close()
	<-done
}

func TestTunnelThroughProxy(t *testing.T) {
	ca := newAuthority(t)
	p := ca.provide(t, answering(okAnswer))
	for name, proxy := range map[string]struct {
		*provider
		scheme string
	}{
		"http":  {provide(t, tunnelling), "http"},
		"https": {ca.provide(t, tunnelling), "https"},
	} {
		t.Run(name, func(t *testing.T) {
			c := newClient(t, Config{URL: "https://" + p.addr, CAFile: ca.file, Proxy: via(proxy.scheme + "://me:s%20cret@" + proxy.addr)})
			for range 3 {
				resp := exchangeOK(t, c, request("POST", "/x", "body"), 200, "ok")
				if resp.Header.Has("X-Proxy") {
					t.Error("the proxy's field got into the answer")
				}
			}
			got := proxy.last()
			wantLines := []string{"Host: " + p.addr, "Proxy-Authorization: Basic bWU6cyBjcmV0"}
			if proxy.hits() != 1 || got.line != "CONNECT "+p.addr+" HTTP/1.1" || !reflect.DeepEqual(got.lines, wantLines) {
				t.Errorf("%d requests at the proxy, last %q %q", proxy.hits(), got.line, got.lines)
			}
			if got := p.last(); got.line != "POST /x HTTP/1.1" || len(got.values("Proxy-Authorization")) != 0 {
				t.Errorf("the origin heard %q %q", got.line, got.lines)
			}
		})
	}
}

func TestRefusedTunnelIsUnsent(t *testing.T) {
	ca := newAuthority(t)
	p := ca.provide(t, answering(okAnswer))
	for name, proxy := range map[string]string{
		"unreachable": refusing(t),
		"407":         provide(t, answering("HTTP/1.1 407 Authenticate\r\nContent-Length: 2\r\n\r\nno")).addr,
		"301":         provide(t, answering("HTTP/1.1 301 Moved\r\nLocation: http://127.0.0.1/\r\nContent-Length: 0\r\n\r\n")).addr,
		"nonsense":    provide(t, answering("hello\r\n\r\n")).addr,
		"closed":      provide(t, func(pe *peer) { pe.hear() }).addr,
		"silent":      provide(t, silentAfterRequest).addr,
		"talkative":   provide(t, func(pe *peer) { pe.hear(); pe.say("HTTP/1.1 200 OK\r\n\r\nmore"); pe.waitGone() }).addr,
		"closed then": provide(t, func(pe *peer) { pe.hear(); pe.say("HTTP/1.1 200 OK\r\n\r\n") }).addr,
	} {
		t.Run(name, func(t *testing.T) {
			c := newClient(t, Config{
				URL: "https://" + p.addr, CAFile: ca.file, Proxy: via("http://me:secret@" + proxy),
				Timeouts: Timeouts{Connect: 500 * time.Millisecond},
			})
			resp := send(t, c, request("POST", "/", "x"))
			wantEvidence(t, resp, classify.Unsent)
			if strings.Contains(resp.Reason, "secret") {
				t.Errorf("reason %q shows a password", resp.Reason)
			}
		})
	}
	if p.hits() != 0 {
		t.Errorf("%d requests reached the origin", p.hits())
	}
}

// What fails inside an open tunnel, before the request, is unsent too: the
// proxy heard CONNECT and a handshake, the origin no request.
func TestHandshakeFailsInTheTunnel(t *testing.T) {
	p := newAuthority(t).provide(t, answering(okAnswer))
	c := newClient(t, Config{URL: "https://" + p.addr, Proxy: via("http://" + provide(t, tunnelling).addr)})
	wantEvidence(t, send(t, c, request("POST", "/", "x")), classify.Unsent)
}

func TestAnswerLostInTheTunnel(t *testing.T) {
	ca := newAuthority(t)
	p := ca.provide(t, func(pe *peer) { pe.hear() })
	c := newClient(t, Config{URL: "https://" + p.addr, CAFile: ca.file, Proxy: via("http://" + provide(t, tunnelling).addr)})
	wantEvidence(t, send(t, c, request("POST", "/", "x")), classify.Lost)
	if p.hits() != 1 {
		t.Errorf("%d requests, want 1", p.hits())
	}
}

func TestPlainHTTPThroughProxy(t *testing.T) {
	proxy := provide(t, answering(okAnswer))
	c := newClient(t, Config{URL: "http://api.example.com:8080/v1/", Proxy: via("http://me:secret@" + proxy.addr)})
	r := request("POST", "//x?y=%2F", "body")
	r.Header = classify.Header{{Name: "X-A", Value: "b"}}
	exchangeOK(t, c, r, 200, "ok")
	got := proxy.last()
	wantLines := []string{"Host: api.example.com:8080", "Proxy-Authorization: Basic bWU6c2VjcmV0", "X-A: b", "Content-Length: 4"}
	if got.line != "POST http://api.example.com:8080/v1//x?y=%2F HTTP/1.1" || !reflect.DeepEqual(got.lines, wantLines) {
		t.Errorf("the proxy heard %q %q", got.line, got.lines)
	}
}

func TestProxySettingsOfTheEnvironment(t *testing.T) {
	env := httpproxy.Config{HTTPProxy: "proxy.test:3128", HTTPSProxy: "https://proxy.test", NoProxy: "internal.example,10.0.0.0/8"}
	for target, want := range map[string]string{
		"http://api.example.com":   "http://proxy.test:3128",
		"https://api.example.com":  "https://proxy.test",
		"https://internal.example": "",
		"http://10.1.2.3":          "",
		"http://127.0.0.1:9090":    "",
		"http://localhost:9090":    "",
		"https://[::1]:9090":       "",
	} {
		c := newClient(t, Config{URL: target, Proxy: env.ProxyFunc()})
		got := ""
		if c.proxy != nil {
			got = c.proxy.String()
		}
		if got != want {
			t.Errorf("%s goes through %q, want %q", target, got, want)
		}
	}
}

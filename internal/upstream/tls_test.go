package upstream

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"io"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"counterfoil/classify"
)

// An authority is a CA of this test's own.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	file string // PEM
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	a := &authority{key: newKey(t)}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test CA"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &a.key.PublicKey, a.key)
	if err != nil {
		t.Fatal(err)
	}
	if a.cert, err = x509.ParseCertificate(der); err != nil {
		t.Fatal(err)
	}
	a.file = filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(a.file, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o600); err != nil {
		t.Fatal(err)
	}
	return a
}

func newKey(t *testing.T) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

// serverConfig is for a server that the authority vouches for as 127.0.0.1.
func (a *authority) serverConfig(t *testing.T) *tls.Config {
	t.Helper()
	key := newKey(t)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(2), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, &key.PublicKey, a.key)
	if err != nil {
		t.Fatal(err)
	}
	return &tls.Config{
		Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}},
		NextProtos:   []string{"h2", "http/1.1"},
	}
}

func (a *authority) provide(t *testing.T, play func(*peer)) *provider {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return provideOn(t, tls.NewListener(ln, a.serverConfig(t)), play)
}

func TestTLS(t *testing.T) {
	ca := newAuthority(t)
	p := ca.provide(t, func(pe *peer) {
		answering(okAnswer)(pe)
		if got := pe.Conn.(*tls.Conn).ConnectionState().NegotiatedProtocol; got != "http/1.1" {
			t.Errorf("protocol %q", got)
		}
	})
	c := newClient(t, Config{URL: "https://" + p.addr + "/v1", CAFile: ca.file})
	for range 50 {
		exchangeOK(t, c, request("POST", "/x", "body"), 200, "ok")
	}
	exchangeOK(t, c, request("PUT", "/x", string(make([]byte, 4<<20))), 200, "ok")
	if p.connections() != 1 || p.last().line != "PUT /v1/x HTTP/1.1" {
		t.Errorf("%d connections, last %q", p.connections(), p.last().line)
	}
}

func TestUntrustedServerIsUnsent(t *testing.T) {
	p := newAuthority(t).provide(t, answering(okAnswer))
	for name, cfg := range map[string]Config{
		"system roots":   {URL: "https://" + p.addr},
		"another CA":     {URL: "https://" + p.addr, CAFile: newAuthority(t).file},
		"not even TLS":   {URL: "https://" + provide(t, func(pe *peer) { pe.say("HTTP/1.1 400 No\r\n\r\n"); pe.waitGone() }).addr},
		"another's name": {URL: "https://localhost:" + portOf(t, p.addr), CAFile: newAuthority(t).file},
	} {
		wantEvidence(t, send(t, newClient(t, cfg), request("POST", "/", "x")), classify.Unsent)
		if p.hits() != 0 {
			t.Fatalf("%s: a request arrived", name)
		}
	}
}

func portOf(t *testing.T, addr string) string {
	t.Helper()
	_, port, err := net.SplitHostPort(addr)
	if err != nil {
		t.Fatal(err)
	}
	return port
}

func TestDeadPooledTLSConnectionIsNoticed(t *testing.T) {
	ca := newAuthority(t)
	p := ca.provide(t, func(pe *peer) {
		pe.hear()
		pe.say(okAnswer)
		if pe.n > 1 {
			pe.waitGone()
		}
	})
	c := newClient(t, Config{URL: "https://" + p.addr, CAFile: ca.file})
	exchangeOK(t, c, request("POST", "/1", "x"), 200, "ok")
	cn := idleConn(t, c)
	eventually(t, "the connection's end", func() bool { return !cn.quiet() })
	exchangeOK(t, c, request("POST", "/2", "x"), 200, "ok")
	if p.hits() != 2 || p.connections() != 2 {
		t.Errorf("%d requests over %d connections, want 2 over 2", p.hits(), p.connections())
	}
}

// A corked socket holds writes back until it is uncorked, and then makes one
// of them.
type corked struct {
	net.Conn
	held []byte
	cork bool
}

func (c *corked) Write(p []byte) (int, error) {
	if !c.cork {
		return c.Conn.Write(p)
	}
	c.held = append(c.held, p...)
	return len(p), nil
}

func (c *corked) uncork() {
	c.cork = false
	c.Conn.Write(c.held)
}

type corkedListener struct{ net.Listener }

func (l corkedListener) Accept() (net.Conn, error) {
	nc, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &corked{Conn: nc}, nil
}

// Surplus that TLS has already taken off the socket, where no look at the
// socket shows it, ends the connection too.
func TestSurplusInsideTLSEndsTheConnection(t *testing.T) {
	ca := newAuthority(t)
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := provideOn(t, tls.NewListener(corkedListener{ln}, ca.serverConfig(t)), func(pe *peer) {
		for {
			if _, ok := pe.hear(); !ok {
				return
			}
			socket := pe.Conn.(*tls.Conn).NetConn().(*corked)
			socket.cork = true
			pe.say(okAnswer)
			pe.say("HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil")
			socket.uncork()
		}
	})
	c := newClient(t, Config{URL: "https://" + p.addr, CAFile: ca.file})
	exchangeOK(t, c, request("POST", "/1", "x"), 200, "ok")
	if !silent(idleConn(t, c).raw) {
		t.Fatal("the surplus is still in the socket: this test shows nothing")
	}
	exchangeOK(t, c, request("POST", "/2", "x"), 200, "ok")
	if p.connections() != 2 {
		t.Errorf("%d connections, want 2", p.connections())
	}
}

// The end of a close-delimited body counts only with TLS's own farewell.
func TestTLSTruncationIsACut(t *testing.T) {
	ca := newAuthority(t)
	for name, tc := range map[string]struct {
		end  func(*tls.Conn)
		want error
	}{
		"farewell":    {func(nc *tls.Conn) { nc.Close() }, nil},
		"no farewell": {func(nc *tls.Conn) { nc.NetConn().Close() }, io.ErrUnexpectedEOF},
	} {
		t.Run(name, func(t *testing.T) {
			p := ca.provide(t, func(pe *peer) {
				pe.hear()
				pe.say("HTTP/1.1 200 OK\r\n\r\npart")
				tc.end(pe.Conn.(*tls.Conn))
			})
			resp := send(t, newClient(t, Config{URL: "https://" + p.addr, CAFile: ca.file}), request("GET", "/", ""))
			wantEvidence(t, resp, classify.Answered)
			if b, err := io.ReadAll(resp.Body); string(b) != "part" || !errors.Is(err, tc.want) {
				t.Errorf("read %q, %v; want error %v", b, err, tc.want)
			}
		})
	}
}

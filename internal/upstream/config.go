package upstream

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"strings"
	"time"
)

// Config is one upstream's target. Credentials are not here: whoever calls
// Send puts them into the request's header.
type Config struct {
	// URL is the base: http or https, a host, optionally a port and a path
	// that every target is joined to. It holds no user, query or fragment.
	URL string
	// Timeouts bound the parts of an attempt.
	Timeouts Timeouts
	// MaxConns is how many connections may be open at once, idle ones
	// included. Zero means 512.
	MaxConns int
	// CAFile names a PEM file of certificates that are trusted besides the
	// system's. Empty means the system's alone.
	CAFile string
	// Proxy says which proxy leads to a URL, nil for none; the ProxyFunc of
	// golang.org/x/net/http/httpproxy fits. It is asked once, in New, with
	// URL. Proxies are spoken to over http or https. A nil Proxy means none.
	Proxy func(*url.URL) (*url.URL, error)
}

// Timeouts bound the parts of an attempt. Zero means the default that each
// field names; a negative one is refused.
type Timeouts struct {
	// Connect bounds the wait for a free connection, and then, once more, name
	// lookup, dialling, CONNECT and the TLS handshake together. Default 5 s.
	Connect time.Duration
	// FirstByte bounds the wait for the whole head of the final answer, from
	// the moment the request was written. Default 2 min.
	FirstByte time.Duration
	// Idle bounds each wait for progress on a body, in either direction.
	// Default 1 min.
	Idle time.Duration
	// Attempt bounds everything from Send to the end of the answer's body. A
	// nearer deadline of the context wins. Default 10 min.
	Attempt time.Duration
	// Keep is how long an unused connection stays open, unless the upstream's
	// Keep-Alive header asks for less. Default 55 s, below the 60 s and 75 s
	// after which common servers hang up.
	Keep time.Duration
}

const maxConnsDefault = 512

func (t Timeouts) withDefaults() (Timeouts, error) {
	for _, f := range []struct {
		name  string
		value *time.Duration
		unset time.Duration
	}{
		{"connect", &t.Connect, 5 * time.Second},
		{"first byte", &t.FirstByte, 2 * time.Minute},
		{"idle", &t.Idle, time.Minute},
		{"attempt", &t.Attempt, 10 * time.Minute},
		{"keep", &t.Keep, 55 * time.Second},
	} {
		if *f.value < 0 {
			return t, fmt.Errorf("%s time-out is negative: use a positive duration, or zero for %v", f.name, f.unset)
		}
		if *f.value == 0 {
			*f.value = f.unset
		}
	}
	return t, nil
}

// parseBase accepts what Config.URL describes. Its errors never repeat a URL
// that may hold a password.
func parseBase(text string) (*url.URL, error) {
	u, err := url.Parse(text)
	switch {
	case err != nil:
		return nil, errors.New("base URL cannot be parsed: write it like https://api.example.com/v1")
	case u.Scheme != "http" && u.Scheme != "https":
		return nil, fmt.Errorf("base URL has scheme %q: use http or https", u.Scheme)
	case u.Hostname() == "":
		return nil, errors.New("base URL has no host: write it like https://api.example.com/v1")
	case !isASCII(u.Host):
		return nil, errors.New("base URL's host is not ASCII: write it in its xn-- form")
	case u.User != nil:
		return nil, errors.New("base URL holds a user or password: set the upstream's auth instead")
	case u.RawQuery != "" || u.ForceQuery || u.Fragment != "":
		return nil, errors.New("base URL holds a query or fragment: leave it out")
	}
	return u, nil
}

func isASCII(s string) bool {
	for i := range len(s) {
		if s[i] >= 0x80 {
			return false
		}
	}
	return true
}

// address is where to dial for u: host and port, the scheme's port if u has none.
func address(u *url.URL) string {
	switch port := u.Port(); {
	case port != "":
		return net.JoinHostPort(u.Hostname(), port)
	case u.Scheme == "https":
		return net.JoinHostPort(u.Hostname(), "443")
	}
	return net.JoinHostPort(u.Hostname(), "80")
}

func (cfg *Config) proxyFor(base *url.URL) (*url.URL, error) {
	if cfg.Proxy == nil {
		return nil, nil
	}
	p, err := cfg.Proxy(base)
	if err != nil {
		return nil, errors.New("proxy setting cannot be used: write it like http://proxy.example.com:3128")
	}
	if p == nil {
		return nil, nil
	}
	if p.Scheme != "http" && p.Scheme != "https" || p.Hostname() == "" {
		return nil, fmt.Errorf("proxy has scheme %q: only http and https proxies can be used", p.Scheme)
	}
	return p, nil
}

// trust is the TLS setting shared by all handshakes; the server's name is
// added per host. HTTP/1.1 alone is offered.
func (cfg *Config) trust() (*tls.Config, error) {
	t := &tls.Config{
		MinVersion:         tls.VersionTLS12,
		NextProtos:         []string{"http/1.1"},
		ClientSessionCache: tls.NewLRUClientSessionCache(16),
	}
	if cfg.CAFile == "" {
		return t, nil
	}
	pem, err := os.ReadFile(cfg.CAFile)
	if err != nil {
		return nil, fmt.Errorf("reading the CA file: %w", err)
	}
	roots, err := x509.SystemCertPool()
	if err != nil {
		return nil, fmt.Errorf("loading the system's roots: %w", err)
	}
	if !roots.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("CA file %s holds no PEM certificate", cfg.CAFile)
	}
	t.RootCAs = roots
	return t, nil
}

// basePath is the part of u that stands before every target, byte for byte.
func basePath(u *url.URL) string {
	return strings.TrimSuffix(u.EscapedPath(), "/")
}

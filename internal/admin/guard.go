package admin

import (
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"
	"mime"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
)

// CheckBind reports whether the listener may be bound to an address: beyond
// loopback only with a token, since who reaches it decides about effects.
func CheckBind(listen, token string) error {
	host, _, err := net.SplitHostPort(listen)
	if err != nil {
		return fmt.Errorf("admin address %q: %w", listen, err)
	}
	if token == "" && !isLoopback(host) {
		return fmt.Errorf("admin address %q is not loopback: set COUNTERFOIL_ADMIN_TOKEN, or bind to 127.0.0.1", listen)
	}
	return nil
}

func isLoopback(host string) bool {
	if ip, err := netip.ParseAddr(host); err == nil {
		return ip.Unmap().IsLoopback()
	}
	return isLocalName(host)
}

func isLocalName(host string) bool {
	host = strings.ToLower(strings.TrimSuffix(host, "."))
	return host == "localhost" || strings.HasSuffix(host, ".localhost")
}

// A guard decides who gets in.
type guard struct {
	token  [sha256.Size]byte
	locked bool
	hosts  map[string]bool
}

func newGuard(cfg *Config) *guard {
	g := &guard{token: sha256.Sum256([]byte(cfg.Token)), locked: cfg.Token != "", hosts: map[string]bool{}}
	for _, h := range cfg.AllowedHosts {
		g.hosts[hostOf(h)] = true
	}
	g.hosts[hostOf(cfg.Listen)] = true
	for _, everywhere := range [...]string{"", "0.0.0.0", "::"} {
		delete(g.hosts, everywhere)
	}
	return g
}

// admit returns why a request may not come in, nil if it may.
func (g *guard) admit(r *http.Request) *refusal {
	if !g.allowsHost(r, r.Host) {
		return refuse(HostNotAllowed, "The Host of this request is neither loopback nor allowed. Add it to COUNTERFOIL_ALLOWED_HOSTS if it is yours.")
	}
	if !g.allowsOrigin(r) {
		return refuse(HostNotAllowed, "The Origin of this request is neither loopback nor allowed. Add its host to COUNTERFOIL_ALLOWED_HOSTS if it is yours.")
	}
	if g.locked && !g.knows(r.Header.Get("Authorization")) {
		return refuse(Unauthorized, "Send the admin token as Authorization: Bearer; it is in COUNTERFOIL_ADMIN_TOKEN of the sidecar.")
	}
	return nil
}

// allowsHost reports whether a page can only have come by that name if its
// owner is meant to be here. An address that this very connection came to
// cannot be the work of a name server.
func (g *guard) allowsHost(r *http.Request, hostport string) bool {
	host := hostOf(hostport)
	if host == "" {
		return false
	}
	if isLoopback(host) || g.hosts[host] {
		return true
	}
	ip, err := netip.ParseAddr(host)
	return err == nil && ip.Unmap() == localIP(r)
}

func (g *guard) allowsOrigin(r *http.Request) bool {
	for _, origin := range r.Header.Values("Origin") {
		u, err := url.Parse(origin)
		if err != nil || !g.allowsHost(r, u.Host) {
			return false
		}
	}
	return true
}

// knows compares in constant time, whatever the length.
func (g *guard) knows(authorization string) bool {
	scheme, token, _ := strings.Cut(authorization, " ")
	given := sha256.Sum256([]byte(strings.TrimLeft(token, " ")))
	return strings.EqualFold(scheme, "Bearer") && subtle.ConstantTimeCompare(given[:], g.token[:]) == 1
}

func localIP(r *http.Request) netip.Addr {
	local, _ := r.Context().Value(http.LocalAddrContextKey).(net.Addr)
	if tcp, ok := local.(*net.TCPAddr); ok {
		return tcp.AddrPort().Addr().Unmap()
	}
	return netip.Addr{}
}

// hostOf is the host of a host with or without a port, in lower case.
func hostOf(hostport string) string {
	host := hostport
	if h, _, err := net.SplitHostPort(hostport); err == nil {
		host = h
	}
	return strings.ToLower(strings.Trim(host, "[]"))
}

// wantJSON refuses what a web form could send without asking first.
func wantJSON(r *http.Request) error {
	mediaType, params, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if err != nil || mediaType != "application/json" {
		return refuse(UnsupportedMediaType, "Send the body as Content-Type: application/json.")
	}
	if charset := params["charset"]; charset != "" && !strings.EqualFold(charset, "utf-8") {
		return refuse(UnsupportedMediaType, "Send the body in UTF-8.")
	}
	return nil
}

func isTooLarge(err error) bool {
	var tooLarge *http.MaxBytesError
	return errors.As(err, &tooLarge)
}

package proxy

import (
	"net"
	"net/netip"
	"strings"

	"counterfoil/classify"
)

// A guard keeps web pages out: a page that has its name rebound to loopback
// still sends its own name as Host, and its own origin.
type guard struct {
	allowed map[string]bool
}

func newGuard(allowedHosts []string) guard {
	g := guard{allowed: make(map[string]bool, len(allowedHosts))}
	for _, h := range allowedHosts {
		g.allowed[hostname(strings.TrimSpace(h))] = true
	}
	return g
}

// admits reports whether Host and every Origin may come in at an address of
// ours. An HTTP/1.0 request without Host was not made by a browser. A browser
// leaves Origin out of a request for an image, say, or of one that follows a
// link, and then Sec-Fetch-Site tells that another site is behind it.
func (g *guard) admits(h classify.Header, local net.Addr) bool {
	if strings.EqualFold(h.Value("Sec-Fetch-Site"), "cross-site") && !h.Has("Origin") {
		return false
	}
	for i := range h {
		switch f := &h[i]; {
		case strings.EqualFold(f.Name, "Host"):
			if !g.knows(hostname(f.Value), local) {
				return false
			}
		case strings.EqualFold(f.Name, "Origin"):
			_, host, found := strings.Cut(f.Value, "://")
			if !found || !g.knows(hostname(host), local) {
				return false
			}
		}
	}
	return true
}

func (g *guard) knows(host string, local net.Addr) bool {
	if host == "localhost" || strings.HasSuffix(host, ".localhost") || g.allowed[host] {
		return true
	}
	ip, err := netip.ParseAddr(host)
	if err != nil {
		return false
	}
	// The address that this very connection came to is no name server's work.
	tcp, isTCP := local.(*net.TCPAddr)
	return ip.Unmap().IsLoopback() || isTCP && tcp.AddrPort().Addr().Unmap() == ip.Unmap()
}

// hostname is the host of host or host:port in lower case, without the brackets
// of an IPv6 address and without a last dot.
func hostname(hostport string) string {
	host := hostport
	if end := strings.LastIndexByte(host, ']'); strings.HasPrefix(host, "[") && end > 0 {
		host = host[1:end]
	} else if colon := strings.IndexByte(host, ':'); colon >= 0 && strings.LastIndexByte(host, ':') == colon {
		host = host[:colon]
	}
	return strings.TrimSuffix(strings.ToLower(host), ".")
}

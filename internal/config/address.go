package config

import (
	"errors"
	"net"
	"net/netip"
	"strconv"
	"strings"
)

// An Address is where to listen: ip:port as net.Listen takes it, with an empty
// ip for all interfaces. Port 0 takes a free one.
type Address string

// UnmarshalText reads ip:port, localhost:port, :port, or a port alone.
func (a *Address) UnmarshalText(text []byte) error {
	s := strings.TrimSpace(string(text))
	if _, err := strconv.ParseUint(s, 10, 16); err == nil {
		*a = Address(s)
		return nil
	}
	host, port, err := net.SplitHostPort(s)
	if err != nil {
		return errors.New("no address: write ip:port, as in 127.0.0.1:8100 or [::1]:8100")
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || strconv.FormatUint(n, 10) != port {
		return errors.New("no port: write a number from 0 to 65535 behind the last colon")
	}
	if host == "localhost" {
		host = "127.0.0.1"
	}
	if _, err := netip.ParseAddr(host); host != "" && err != nil {
		return errors.New("a host name cannot be bound safely: write the IP address of an interface, as in 127.0.0.1:8100")
	}
	*a = Address(net.JoinHostPort(host, port))
	return nil
}

// split returns the address's two halves. One of a port alone has no host.
func (a Address) split() (host, port string) {
	host, port, err := net.SplitHostPort(string(a))
	if err != nil {
		return "", string(a)
	}
	return host, port
}

// isPort reports whether a is a port alone.
func (a Address) isPort() bool { return a != "" && !strings.Contains(string(a), ":") }

// onHost puts host in front of a port alone.
func (a Address) onHost(host string) Address {
	if !a.isPort() {
		return a
	}
	return Address(net.JoinHostPort(host, string(a)))
}

// IsLoopback reports whether only this machine can reach a.
func (a Address) IsLoopback() bool {
	host, _ := a.split()
	ip, err := netip.ParseAddr(host)
	return err == nil && ip.Unmap().IsLoopback()
}

// clashes reports whether a and b cannot both be bound.
func (a Address) clashes(b Address) bool {
	hostA, portA := a.split()
	hostB, portB := b.split()
	if portA != portB || portA == "0" {
		return false
	}
	return hostA == hostB || covers(hostA, hostB) || covers(hostB, hostA)
}

// covers reports whether binding host binds other too: no host and :: stand
// for all addresses of both families, 0.0.0.0 for those of IPv4.
func covers(host, other string) bool {
	if host == "" || host == "::" {
		return true
	}
	ip, err := netip.ParseAddr(other)
	return host == "0.0.0.0" && (err != nil || ip.Unmap().Is4())
}

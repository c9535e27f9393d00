//go:build unix && !linux

package proxy

import (
	"net"
	"syscall"
)

// present reports whether the client is still there, without waiting and without
// taking anything that it sent. One that has closed its sending half counts as
// gone: it cannot be told from one that gave up. One that has sent more than its
// request counts as there.
func (c *conn) present() bool {
	sc, ok := c.Conn.(syscall.Conn)
	if !ok {
		return true
	}
	raw, err := sc.SyscallConn()
	if err != nil {
		return false
	}
	there := false
	// Not Read: that would wait for whoever reads now.
	err = raw.Control(func(fd uintptr) {
		var one [1]byte
		for {
			n, _, err := syscall.Recvfrom(int(fd), one[:], syscall.MSG_PEEK|syscall.MSG_DONTWAIT)
			if err == syscall.EINTR {
				continue
			}
			there = n > 0 || err == syscall.EAGAIN || err == syscall.EWOULDBLOCK
			return
		}
	})
	return err == nil && there
}

// boundUnsent does nothing: how much the kernel takes ahead of the client is
// known of Linux alone.
func boundUnsent(net.Conn) {}

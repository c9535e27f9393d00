//go:build unix

package proxy

import "syscall"

// present reports whether the client is still there, without waiting and without
// taking anything that it sent. One that has closed its sending half counts as
// gone: it cannot be told from one that gave up.
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
	// Not raw.Read: that would wait for whoever reads now.
	err = raw.Control(func(fd uintptr) { there = isThere(int(fd)) })
	return err == nil && there
}

package proxy

import (
	"syscall"

	"golang.org/x/sys/unix"
)

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
	isThere := false
	// Not raw.Read: that would wait for whoever reads now.
	err = raw.Control(func(fd uintptr) {
		ask := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLRDHUP}}
		_, err := unix.Poll(ask, 0)
		for err == unix.EINTR {
			_, err = unix.Poll(ask, 0)
		}
		isThere = err == nil && ask[0].Revents == 0
	})
	return err == nil && isThere
}

package proxy

import (
	"net"
	"syscall"

	"golang.org/x/sys/unix"
)

// isThere reports whether the other end of a socket has not closed its sending
// half.
func isThere(fd int) bool {
	ask := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLRDHUP}}
	_, err := unix.Poll(ask, 0)
	for err == unix.EINTR {
		_, err = unix.Poll(ask, 0)
	}
	return err == nil && ask[0].Revents == 0
}

// unsentMax is how much of an answer may wait in the kernel to be sent.
const unsentMax = 16 << 10

// boundUnsent keeps writes from running ahead of the client by more than
// unsentMax and what its own machine takes: the kernel would swallow MiB of an
// answer at once, and its end would count as written to a client that never came
// so far (tcp(7), TCP_NOTSENT_LOWAT). Where it fails, that is how it is.
func boundUnsent(nc net.Conn) {
	sc, ok := nc.(syscall.Conn)
	if !ok {
		return
	}
	if raw, err := sc.SyscallConn(); err == nil {
		_ = raw.Control(func(fd uintptr) { _ = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_NOTSENT_LOWAT, unsentMax) })
	}
}

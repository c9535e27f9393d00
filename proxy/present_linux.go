package proxy

import "golang.org/x/sys/unix"

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

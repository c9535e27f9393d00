//go:build unix && !linux

package proxy

import "syscall"

// isThere reports whether the other end of a socket has not closed its sending
// half. One that has sent more than its request counts as there.
func isThere(fd int) bool {
	var one [1]byte
	for {
		n, _, err := syscall.Recvfrom(fd, one[:], syscall.MSG_PEEK|syscall.MSG_DONTWAIT)
		if err == syscall.EINTR {
			continue
		}
		return n > 0 || err == syscall.EAGAIN || err == syscall.EWOULDBLOCK
	}
}

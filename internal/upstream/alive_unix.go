//go:build unix

package upstream

import "syscall"

// silent reports whether the socket is open and has nothing to be read. It
// does not block and takes nothing out.
func silent(raw syscall.RawConn) bool {
	var one [1]byte
	var got error
	err := raw.Control(func(fd uintptr) {
		for {
			_, _, got = syscall.Recvfrom(int(fd), one[:], syscall.MSG_PEEK|syscall.MSG_DONTWAIT)
			if got != syscall.EINTR {
				return
			}
		}
	})
	return err == nil && (got == syscall.EAGAIN || got == syscall.EWOULDBLOCK)
}

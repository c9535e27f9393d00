//go:build unix

package supervise

import (
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// isForeground reports whether what is typed on the terminal is for this
// program's process group.
func isForeground(tty *os.File) bool {
	group, err := unix.IoctlGetInt(int(tty.Fd()), unix.TIOCGPGRP)
	return err == nil && group == syscall.Getpgrp()
}

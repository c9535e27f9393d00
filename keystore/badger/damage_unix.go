//go:build unix

package badger

import (
	"os"

	"golang.org/x/sys/unix"
)

// isInUse reports whether another has the directory open, as Badger locks it.
func isInUse(dir string) bool {
	d, err := os.Open(dir)
	if err != nil {
		return false
	}
	defer d.Close()
	return unix.Flock(int(d.Fd()), unix.LOCK_EX|unix.LOCK_NB) == unix.EWOULDBLOCK
}

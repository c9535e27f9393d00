//go:build unix

package badger

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// statfs measures what this process may still write below dir.
func statfs(dir string) (free, total int64, err error) {
	var st unix.Statfs_t
	for {
		if err = unix.Statfs(dir, &st); err != unix.EINTR {
			break
		}
	}
	if err != nil {
		return 0, 0, fmt.Errorf("measuring the free disk at %s: %w", dir, err)
	}
	return int64(st.Bavail) * int64(st.Bsize), int64(st.Blocks) * int64(st.Bsize), nil //nolint:unconvert // their types differ between systems
}

// takes is how many bytes a file has on disk, which for a sparse one is less
// than its size.
func takes(path string) int64 {
	var st unix.Stat_t
	if unix.Stat(path, &st) != nil {
		return 0
	}
	return int64(st.Blocks) * 512 //nolint:unconvert // their types differ between systems
}

//go:build unix

package badger

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// dropEmptyLogs removes logs without a byte. Badger makes a log before it gives
// it its size, and empties one before it removes it: a process that is killed in
// between leaves such a log, which holds nothing, and beside which Badger refuses
// to open. It happens under Badger's own lock on the directory, so no living
// process's log is touched; where one has the lock, there is nothing to mend.
func dropEmptyLogs(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return fmt.Errorf("opening the store's directory: %w", err)
	}
	defer d.Close() // and with it the lock
	switch err := unix.Flock(int(d.Fd()), unix.LOCK_EX|unix.LOCK_NB); {
	case errors.Is(err, unix.EWOULDBLOCK):
		return nil
	case err != nil:
		return fmt.Errorf("locking the store's directory: %w", err)
	}
	entries, err := d.ReadDir(-1)
	if err != nil {
		return fmt.Errorf("listing the store's directory: %w", err)
	}
	for _, entry := range entries {
		if err := dropIfEmptyLog(dir, entry); err != nil {
			return err
		}
	}
	return nil
}

func dropIfEmptyLog(dir string, entry os.DirEntry) error {
	if ext := filepath.Ext(entry.Name()); ext != ".mem" && ext != ".vlog" {
		return nil
	}
	info, err := entry.Info()
	if err != nil || !info.Mode().IsRegular() || info.Size() > 0 {
		return err
	}
	return os.Remove(filepath.Join(dir, entry.Name()))
}

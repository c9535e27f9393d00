package badger

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// syncsWAL says that we sync Badger's log. Badger's own way would sync its
// empty value log as well, at every commit.
const syncsWAL = true

// A wal follows the file to which Badger logs the memtable that it fills. Only
// the committer uses it.
type wal struct {
	dir    string
	id     int
	oldest int // the oldest log that is not known to be flushed and gone
	file   *os.File
	tuning tuning
	log    *slog.Logger
}

// followWAL starts with the newest log in dir, which is the one in use.
func followWAL(dir string, t tuning, log *slog.Logger) (*wal, error) {
	names, err := filepath.Glob(filepath.Join(escapeGlob(dir), "*.mem"))
	if err != nil {
		return nil, err
	}
	w := &wal{dir: dir, id: -1, oldest: math.MaxInt, tuning: t, log: log}
	for _, name := range names {
		if id, err := strconv.Atoi(strings.TrimSuffix(filepath.Base(name), ".mem")); err == nil {
			w.id, w.oldest = max(w.id, id), min(w.oldest, id)
		}
	}
	if w.id < 0 {
		return nil, fmt.Errorf("there is no log of a memtable: %w", fs.ErrNotExist)
	}
	return w, w.adopt(w.id)
}

func (w *wal) path(id int) string { return filepath.Join(w.dir, fmt.Sprintf("%05d.mem", id)) }

// sync makes durable what the last commit wrote.
func (w *wal) sync() error {
	for {
		if !exists(w.path(w.id + 1)) {
			break
		}
		if err := w.adopt(w.id + 1); err != nil {
			return err
		}
	}
	if !w.tuning.badgerSyncs {
		if err := fdatasync(w.file); err != nil {
			return err
		}
	}
	return w.inPlace()
}

// inPlace reports errReplaced where the log that is written is not the one that
// the directory names: what is in it, nobody will find again.
func (w *wal) inPlace() error {
	var ours, named unix.Stat_t
	if err := unix.Fstat(int(w.file.Fd()), &ours); err != nil {
		return err
	}
	if err := unix.Stat(w.path(w.id), &named); err != nil || ours.Ino != named.Ino || ours.Dev != named.Dev {
		return fmt.Errorf("%s: %w", w.dir, errReplaced)
	}
	return nil
}

// unflushed is how many bytes of memtables are not in tables yet, at most.
func (w *wal) unflushed(memTableBytes int64, _ int) int64 {
	for w.oldest < w.id && !exists(w.path(w.oldest)) {
		w.oldest++
	}
	return int64(w.id-w.oldest+1) * memTableBytes
}

func exists(path string) bool {
	var st unix.Stat_t
	return unix.Stat(path, &st) == nil
}

func fdatasync(f *os.File) error {
	for {
		if err := unix.Fdatasync(int(f.Fd())); !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}

// adopt makes the log of that number the one that is synced. Its name has to be
// durable too, and Badger does not see to that.
func (w *wal) adopt(id int) error {
	file, err := os.OpenFile(w.path(id), os.O_RDWR, 0)
	if err != nil {
		return err
	}
	if err := errors.Join(w.close(), syncDir(w.dir)); err != nil {
		return errors.Join(err, file.Close())
	}
	w.id, w.file = id, file
	if w.tuning.noAdvice {
		return nil
	}
	if err := adviseRandom(file.Name()); err != nil {
		w.log.Debug("the kernel takes no advice on the write-ahead log; small commits may write more", "error", err)
	}
	return nil
}

func (w *wal) close() error {
	if w.file == nil {
		return nil
	}
	file := w.file
	w.file = nil
	return file.Close()
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// adviseRandom keeps the kernel from backing the log with pages of 2 MiB, of
// which each sync would write all.
func adviseRandom(path string) error {
	abs, err := filepath.Abs(path)
	if err != nil {
		return err
	}
	if abs, err = filepath.EvalSymlinks(abs); err != nil {
		return err
	}
	maps, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		return err
	}
	found := false
	for scan := bufio.NewScanner(bytes.NewReader(maps)); scan.Scan(); {
		if !strings.HasSuffix(scan.Text(), " "+abs) {
			continue
		}
		from, to, err := addressRange(scan.Text())
		if err != nil {
			return err
		}
		if _, _, errno := unix.Syscall(unix.SYS_MADVISE, from, to-from, unix.MADV_RANDOM); errno != 0 {
			return fmt.Errorf("madvise: %w", errno)
		}
		found = true
	}
	if !found {
		return fmt.Errorf("%s is not mapped", abs)
	}
	return nil
}

func addressRange(line string) (from, to uintptr, err error) {
	span, _, _ := strings.Cut(line, " ")
	low, high, _ := strings.Cut(span, "-")
	a, err := strconv.ParseUint(low, 16, 64)
	if err != nil {
		return 0, 0, err
	}
	b, err := strconv.ParseUint(high, 16, 64)
	return uintptr(a), uintptr(b), err
}

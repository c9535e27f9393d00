package badger

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"

	"github.com/dgraph-io/badger/v4"
	"github.com/dgraph-io/badger/v4/options"
	"github.com/dgraph-io/badger/v4/table"
	"github.com/dgraph-io/ristretto/v2/z"

	"counterfoil/keystore"
)

// Badger reads a log up to the first entry whose checksum is wrong, and cuts the
// rest off without a word. That is right for the end of a commit that a power
// cut tore, which nobody was told of. It is wrong where whole commits follow:
// those were acknowledged, and without them calls would be sent again.

// checkLogs returns keystore.ErrCorrupt where a log in dir is damaged before
// commits that were acknowledged. The directory must not be in use.
func checkLogs(dir string) error {
	logs, err := filepath.Glob(filepath.Join(escapeGlob(dir), "*.mem"))
	if err != nil {
		return err
	}
	slices.Sort(logs)
	for i, path := range logs {
		b, err := readLog(path)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return fmt.Errorf("reading a log of the store: %w", err)
		}
		if at, damaged := damage(b, i == len(logs)-1); damaged {
			return fmt.Errorf("%s is damaged at byte %d, and what was acknowledged after it would be lost: %w: restore a backup, or look into what the disk did", path, at, keystore.ErrCorrupt)
		}
	}
	return nil
}

func escapeGlob(dir string) string {
	return strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`).Replace(dir)
}

// checkManifest returns keystore.ErrCorrupt where the list of tables in dir has
// lost some. Badger would remove those that it does not name, and open a store
// that knows nothing of what was sent. After a crash there may be tables that are
// not listed, but then the logs that hold the same are still there.
func checkManifest(dir string) error {
	tables, err := filepath.Glob(filepath.Join(escapeGlob(dir), "*.sst"))
	if err != nil || len(tables) == 0 {
		return err
	}
	logs, err := filepath.Glob(filepath.Join(escapeGlob(dir), "*.mem"))
	if err != nil {
		return err
	}
	f, err := os.Open(filepath.Join(dir, badger.ManifestFilename))
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%s holds tables and no %s that lists them: %w: restore a backup", dir, badger.ManifestFilename, keystore.ErrCorrupt)
	}
	if err != nil {
		return err
	}
	defer f.Close()
	listed, _, err := badger.ReplayManifestFile(f, 0, badger.DefaultOptions(dir))
	if err != nil || len(logs) > 0 {
		return nil // what is wrong with it Badger says itself
	}
	for _, path := range tables {
		id, err := strconv.ParseUint(strings.TrimSuffix(filepath.Base(path), ".sst"), 10, 64)
		if _, isListed := listed.Tables[id]; err == nil && !isListed {
			return fmt.Errorf("%s does not list %s, whose calls would be lost: %w: restore a backup", f.Name(), filepath.Base(path), keystore.ErrCorrupt)
		}
	}
	return nil
}

// checkTables returns keystore.ErrCorrupt where a table in dir is damaged. Badger
// takes whatever lies in a block with a wrong checksum for not there, without a
// word, and ends a list at it: a call that was sent would be sent again.
func checkTables(dir string) error {
	f, err := os.Open(filepath.Join(dir, badger.ManifestFilename))
	if err != nil {
		return nil // what is wrong with it checkManifest says
	}
	defer f.Close()
	listed, _, err := badger.ReplayManifestFile(f, 0, badger.DefaultOptions(dir))
	if err != nil {
		return nil // as does Badger
	}
	ids, errs := make(chan uint64), make(chan error)
	workers := runtime.GOMAXPROCS(0)
	for range workers {
		go func() {
			var err error
			for id := range ids {
				err = errors.Join(err, checkTable(table.NewFilename(id, dir), listed.Tables[id].Compression))
			}
			errs <- err
		}()
	}
	for id := range listed.Tables {
		ids <- id
	}
	close(ids)
	for range workers {
		err = errors.Join(err, <-errs)
	}
	return err
}

// checkTable reads every block of a table. Badger panics at some damage.
func checkTable(path string, compression options.CompressionType) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = damagedTable(path, errors.New("its index or a block cannot be read"))
		}
	}()
	f, err := z.OpenMmapFile(path, os.O_RDONLY, 0)
	if err != nil {
		return nil // that it is missing Badger says
	}
	if err := z.Madvise(f.Data, true); err != nil { // all of it will be read, in order
		return errors.Join(err, f.Close(-1))
	}
	t, err := table.OpenTable(f, table.Options{ReadOnly: true, ChkMode: options.OnTableRead, Compression: compression, BlockSize: 4 << 10})
	if err != nil {
		return damagedTable(path, err)
	}
	return t.Close(-1)
}

func damagedTable(path string, err error) error {
	return fmt.Errorf("%s is damaged, and what lies in it would be taken for not there: %w: %w: restore a backup, or look into what the disk did", path, keystore.ErrCorrupt, err)
}

const (
	// logHeadBytes stand before a log's first entry.
	logHeadBytes = 20
	// logChunk is more than an entry has at most (a body's piece), so that no
	// entry hides behind so many zero bytes.
	logChunk = 1 << 20
	// endsCommit is set in the last entry of a transaction.
	endsCommit = 1 << 7
	// endHeadBytes stand before the key of such an entry.
	endHeadBytes = 5
	keyBytesMax  = 1 << 16
)

// endKey begins the key of the last entry of a transaction.
var endKey = []byte("!badger!txn")

// readLog reads what was written of a log, which has its full size from the
// start.
func readLog(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	chunk, written := make([]byte, logChunk), int64(0)
	for isZero := false; !isZero; {
		n, err := io.ReadFull(f, chunk)
		if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
			return nil, err
		}
		written += int64(n)
		isZero = len(bytes.TrimLeft(chunk[:n], "\x00")) == 0 // at the end too
	}
	b := make([]byte, written)
	if _, err := f.ReadAt(b, 0); err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	return b, nil
}

// damage returns where the log's readable entries end, and whether commits that
// were acknowledged lie behind that. In the newest log the last commit may be
// torn: a whole one behind the damage may be that one's own end, but two cannot,
// since a commit begins once the one before is synced.
func damage(log []byte, isNewest bool) (at int, damaged bool) {
	at = min(logHeadBytes, len(log))
	for {
		size, _ := entryAt(log[at:])
		if size == 0 {
			break
		}
		at += size
	}
	rest := bytes.TrimRight(log[at:], "\x00")
	if len(rest) == 0 || !isNewest {
		return at, len(rest) > 0
	}
	rest = log[at:]
	ends := 0
	for from := 0; ends < 2; {
		i := bytes.Index(rest[from:], endKey)
		if i < 0 {
			return at, false
		}
		from += i
		if from >= endHeadBytes {
			if size, isEnd := entryAt(rest[from-endHeadBytes:]); size > 0 && isEnd {
				ends++
			}
		}
		from += len(endKey)
	}
	return at, true
}

// entryAt returns the size of the entry that b begins with, 0 if it is none, and
// whether a transaction ends with it.
func entryAt(b []byte) (size int, ends bool) {
	at := 2
	var lengths [3]uint64 // of key and value, and when it expires
	for i := range lengths {
		if at >= len(b) {
			return 0, false
		}
		n, width := binary.Uvarint(b[at:])
		if width <= 0 {
			return 0, false
		}
		lengths[i], at = n, at+width
	}
	key, value := lengths[0], lengths[1]
	if key == 0 || key > keyBytesMax || value > uint64(len(b)) {
		return 0, false
	}
	end := at + int(key) + int(value)
	if end+crc32.Size > len(b) || binary.BigEndian.Uint32(b[end:]) != crc32.Checksum(b[:end], crc32.MakeTable(crc32.Castagnoli)) {
		return 0, false
	}
	return end + crc32.Size, b[0]&endsCommit != 0
}

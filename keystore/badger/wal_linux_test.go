package badger

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"counterfoil/keystore"
)

func TestFailedCommitFailsTheBatchAndTheStoreComesBack(t *testing.T) {
	failures := make(chan error, 1)
	s := openTest(t, Config{Observe: Observer{CommitFailed: func(err error) { failures <- err }}})
	kept, lost := key("r", "kept"), key("r", "lost")
	begin(t, s, kept, "intent", keystore.Send)
	release := hold(t, s)
	broken, err := s.submit(context.Background(), func(*view) (*step, error) {
		s.engine.breakSync()
		return nil, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	together(t, s, release, []outcome{{name: "lost", want: keystore.ErrUnavailable}}, func(string) error {
		_, err := s.Begin(context.Background(), request(s, lost), nil)
		return err
	})
	<-broken.done
	if err := <-failures; err == nil {
		t.Error("the observer heard of no failure")
	}
	until(t, func() bool {
		_, err := s.Apply(context.Background(), kept, applied(1), []byte("receipt"))
		return err == nil
	})
	rec := begin(t, s, kept, "", keystore.Replay)
	if got := readBody(t, s, rec.Receipt.Body); got != "receipt" {
		t.Errorf("receipt %q", got)
	}
	// Whether the failed operation is on record is not known, but store and
	// totals must agree on it.
	sum, err := s.Run(context.Background(), "default", "r")
	if err != nil {
		t.Fatal(err)
	}
	_, err = s.Call(context.Background(), lost)
	if found := err == nil; found != (sum.Total() == 2) {
		t.Errorf("the lost call: %v, and %d calls", err, sum.Total())
	}
}

// breakSync makes the engine's next sync fail, as a disk that is gone would.
func (e *engine) breakSync() { e.wal.file.Close() }

// TestTornTail cuts and garbles the log at every place of its last commit: what
// was acknowledged before stays, and the store opens by itself.
func TestTornTail(t *testing.T) {
	dir := t.TempDir()
	s := mustOpen(t, Config{Dir: dir, tuning: tuning{memTableBytes: 8 << 20}})
	defer s.Close()
	kept, torn := key("r", "kept"), key("r", "torn")
	begin(t, s, kept, "intent", keystore.Send)
	apply(t, s, kept, applied(1), "receipt")
	before := image(t, dir)
	begin(t, s, torn, "intent", keystore.Send)
	after := image(t, dir)
	log := s.engine.logName()
	from, to := len(before[log]), len(after[log])
	if to <= from {
		t.Fatalf("the last commit took nothing: %d to %d", from, to)
	}
	t.Logf("the last commit takes %d to %d of %s", from, to, log)
	stride := max(1, (to-from)/40)
	for at := from; at < to; at += stride {
		cut, garbled := clone(after), clone(after)
		cut[log] = after[log][:at]
		garbled[log][at] ^= 0xff
		checkTorn(t, fmt.Sprintf("cut at %d", at), cut, kept, torn)
		checkTorn(t, fmt.Sprintf("garbled at %d", at), garbled, kept, torn)
	}
}

func checkTorn(t *testing.T, how string, files map[string][]byte, kept, torn keystore.Key) {
	t.Helper()
	dir := t.TempDir()
	for name, content := range files {
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	s := mustOpen(t, Config{Dir: dir, tuning: tuning{memTableBytes: 8 << 20}})
	defer s.Close()
	rec := begin(t, s, kept, "", keystore.Replay)
	if got := readBody(t, s, rec.Receipt.Body); got != "receipt" {
		t.Errorf("%s: receipt %q", how, got)
	}
	if _, err := s.Call(context.Background(), torn); !errors.Is(err, keystore.ErrNotFound) {
		t.Errorf("%s: half a commit is on record: %v", how, err)
	}
	begin(t, s, torn, "intent", keystore.Send)
	recount(t, s)
}

// image reads the files of a directory in use, without the zeros at their ends.
func image(t *testing.T, dir string) map[string][]byte {
	t.Helper()
	files := map[string][]byte{}
	names, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		f, err := os.Open(name)
		if err != nil {
			t.Fatal(err)
		}
		content, err := io.ReadAll(f)
		if err := errors.Join(err, f.Close()); err != nil {
			t.Fatal(err)
		}
		if !strings.HasSuffix(name, "DISCARD") {
			content = slices.Clone(trimZeros(content))
		}
		files[filepath.Base(name)] = content
	}
	delete(files, "LOCK")
	return files
}

func trimZeros(b []byte) []byte {
	for len(b) > 0 && b[len(b)-1] == 0 {
		b = b[:len(b)-1]
	}
	return b
}

func clone(files map[string][]byte) map[string][]byte {
	c := map[string][]byte{}
	for name, content := range files {
		c[name] = slices.Clone(content)
	}
	return c
}

// logName is the file that takes the next commit.
func (e *engine) logName() string { return filepath.Base(e.wal.file.Name()) }

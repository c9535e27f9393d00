package badger

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"counterfoil/classify"
	"counterfoil/keystore"
)

func openTest(t testing.TB, c Config) *Store {
	t.Helper()
	s := mustOpen(t, c)
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Errorf("closing: %v", err)
		}
	})
	return s
}

// mustOpen opens a store that the test closes itself.
func mustOpen(t testing.TB, c Config) *Store {
	t.Helper()
	if c.Dir == "" {
		c.Dir = t.TempDir()
	}
	s, err := Open(context.Background(), c)
	if err != nil {
		t.Fatalf("opening: %v", err)
	}
	return s
}

func key(run, call string) keystore.Key {
	return keystore.Key{Namespace: "default", Run: run, Turn: "1", Call: call}
}

func request(s *Store, k keystore.Key) *keystore.Request {
	q := &keystore.Request{PauseOnUnknown: true}
	q.Beginning = keystore.Beginning{
		Key: k, Class: classify.Effect, Fingerprint: classify.Fingerprint{1}, Epoch: s.facts.Epoch,
		Intent: keystore.Intent{
			Upstream: "tickets", Origin: "http://127.0.0.1:9090", Method: "POST", Target: "/effects", SentKey: string(k.ProviderKey()),
			Header: classify.Header{{Name: "Content-Type", Value: "application/json"}},
		},
		Credential: "c",
	}
	return q
}

func begin(t testing.TB, s *Store, k keystore.Key, body string, want keystore.Action) *keystore.Record {
	t.Helper()
	adm, err := s.Begin(context.Background(), request(s, k), []byte(body))
	if err != nil {
		t.Fatalf("begin %s: %v", k, err)
	}
	if adm.Verdict.Action != want {
		t.Fatalf("begin %s: got %s, want %s", k, adm.Verdict.Action, want)
	}
	return adm.Record
}

func applied(attempt uint32) keystore.Event {
	return keystore.Event{
		Kind: keystore.SawApplied, Attempt: attempt, Status: 201, Evidence: classify.Answered, Outcome: classify.Applied,
		Receipt: &keystore.Receipt{Status: 201, Header: classify.Header{{Name: "X-Test", Value: "yes"}}},
	}
}

func apply(t testing.TB, s *Store, k keystore.Key, e keystore.Event, body string) *keystore.Record {
	t.Helper()
	rec, err := s.Apply(context.Background(), k, e, []byte(body))
	if err != nil {
		t.Fatalf("apply %s to %s: %v", e.Kind, k, err)
	}
	return rec
}

func readBody(t testing.TB, s *Store, b keystore.Body) string {
	t.Helper()
	var got strings.Builder
	err := s.ReadBody(context.Background(), b, func(piece []byte) error {
		got.Write(piece)
		return nil
	})
	if err != nil {
		t.Fatalf("reading body %d: %v", b.Ref, err)
	}
	return got.String()
}

func TestCallFromBeginToReplayAndAcrossReopening(t *testing.T) {
	dir := t.TempDir()
	s := mustOpen(t, Config{Dir: dir})
	small, large := key("r", "small"), key("r", "large")
	long := strings.Repeat("answer ", 100_000)
	for k, body := range map[keystore.Key]string{small: "tiny", large: long} {
		begin(t, s, k, "intent of "+k.Call, keystore.Send)
		begin(t, s, k, "intent of "+k.Call, keystore.Wait)
		apply(t, s, k, applied(1), body)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = openTest(t, Config{Dir: dir})
	if s.Facts().Epoch != 2 || s.Facts().Doubtful != 0 {
		t.Errorf("after reopening: %+v", s.Facts())
	}
	for k, body := range map[keystore.Key]string{small: "tiny", large: long} {
		rec := begin(t, s, k, "", keystore.Replay)
		if got := readBody(t, s, rec.Receipt.Body); got != body {
			t.Errorf("%s: receipt of %d bytes, want %d", k, len(got), len(body))
		}
		if got := readBody(t, s, rec.Intent.Body); got != "intent of "+k.Call {
			t.Errorf("%s: intent %q", k, got)
		}
	}
	sum, err := s.Run(context.Background(), "default", "r")
	if err != nil || sum.Calls[keystore.Succeeded] != 2 || sum.Total() != 2 {
		t.Errorf("run: %+v, %v", sum, err)
	}
}

func TestManyCallersAtOnce(t *testing.T) {
	s := openTest(t, Config{})
	const callers, each = 64, 20
	errs := make(chan error, callers)
	for c := range callers {
		go func() {
			errs <- func() error {
				for i := range each {
					k := key(fmt.Sprintf("r%d", c%8), fmt.Sprintf("%d-%d", c, i))
					if _, err := s.Begin(context.Background(), request(s, k), []byte("x")); err != nil {
						return err
					}
					if _, err := s.Apply(context.Background(), k, applied(1), []byte("y")); err != nil {
						return err
					}
				}
				return nil
			}()
		}()
	}
	for range callers {
		if err := <-errs; err != nil {
			t.Fatal(err)
		}
	}
	list, err := s.Runs(context.Background(), "default", keystore.Page{})
	if err != nil || len(list.Items) != 8 {
		t.Fatalf("runs: %d, %v", len(list.Items), err)
	}
	for _, sum := range list.Items {
		if sum.Calls[keystore.Succeeded] != callers/8*each {
			t.Errorf("run %s: %v", sum.Name, sum.Calls)
		}
	}
}

func TestPendingOfADeadEpochIsInDoubt(t *testing.T) {
	dir := t.TempDir()
	s := mustOpen(t, Config{Dir: dir})
	k := key("r", "c")
	begin(t, s, k, "intent", keystore.Send)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = openTest(t, Config{Dir: dir})
	if got := s.Facts().Doubtful; got != 1 {
		t.Errorf("doubtful: %d, want 1", got)
	}
	rec, err := s.Call(context.Background(), k)
	if err != nil || rec.State != keystore.InDoubt {
		t.Fatalf("%v, %v", rec, err)
	}
	rec = begin(t, s, k, "", keystore.Stop)
	if rec.State != keystore.Unknown {
		t.Errorf("state %s, want unknown", rec.State)
	}
	list, err := s.Unsettled(context.Background(), keystore.Unknown, keystore.Page{})
	if err != nil || len(list.Items) != 1 {
		t.Errorf("unknown: %d, %v", len(list.Items), err)
	}
	if st := s.Stats(); st.Unknown != 1 || st.OldestUnknown != rec.UpdatedAt || st.InDoubt != 0 || st.Pending != 0 {
		t.Errorf("stats: %+v, want one unknown since %d", st, rec.UpdatedAt)
	}
}

func TestLockedDirectory(t *testing.T) {
	dir := t.TempDir()
	openTest(t, Config{Dir: dir})
	var log bytes.Buffer
	_, err := Open(context.Background(), Config{Dir: dir, LockWait: 200 * time.Millisecond, Logger: slog.New(slog.NewTextHandler(&log, nil))})
	if !errors.Is(err, keystore.ErrLocked) || !strings.Contains(err.Error(), dir) {
		t.Errorf("got %v", err)
	}
	if n := strings.Count(log.String(), "waiting for the other sidecar"); n != 1 || !strings.Contains(log.String(), dir) {
		t.Errorf("said %d times that it waits: %s", n, &log)
	}
}

// A directory in which something else lives is left as it is.
func TestDirectoryOfAnother(t *testing.T) {
	for name, refused := range map[string]bool{
		"README.md": true, "src/main.go": true, "000001.sst.txt": true, "MANIFESTO": true,
		".git/config": false, "lost+found/x": false, "LOCK": false,
	} {
		dir := t.TempDir()
		path := filepath.Join(dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, []byte("mine"), 0o600)); err != nil {
			t.Fatal(err)
		}
		s, err := Open(context.Background(), Config{Dir: dir})
		if refused != (err != nil) {
			t.Errorf("%s: %v", name, err)
		}
		if err == nil {
			if err := s.Close(); err != nil {
				t.Error(err)
			}
			openTest(t, Config{Dir: dir})
			continue
		}
		top, _, _ := strings.Cut(name, "/")
		if !strings.Contains(err.Error(), dir) || !strings.Contains(err.Error(), top) || !strings.Contains(err.Error(), "no journal") {
			t.Errorf("%s: %v", name, err)
		}
		if entries, err := os.ReadDir(dir); err != nil || len(entries) != 1 {
			t.Errorf("%s: left %v, %v", name, entries, err)
		}
	}
	// What joins a journal later is no business of ours.
	dir := t.TempDir()
	if err := mustOpen(t, Config{Dir: dir}).Close(); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "README.md"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	openTest(t, Config{Dir: dir})
}

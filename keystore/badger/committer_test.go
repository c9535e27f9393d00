package badger

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"counterfoil/keystore"
)

// hold stops the committer inside an operation until release is called, so that
// what is submitted meanwhile lands in one batch behind it.
func hold(t *testing.T, s *Store) (release func()) {
	t.Helper()
	entered, leave := make(chan struct{}), make(chan struct{})
	_, err := s.submit(context.Background(), func(*view) (*step, error) {
		close(entered)
		<-leave
		return nil, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	<-entered
	return sync.OnceFunc(func() { close(leave) })
}

type outcome struct {
	name string
	want error
	got  chan error
}

// together has everything run in the batch that release lets go.
func together(t *testing.T, s *Store, release func(), wants []outcome, do func(name string) error) {
	t.Helper()
	for i := range wants {
		wants[i].got = make(chan error, 1)
		queued := len(s.queue)
		go func() { wants[i].got <- do(wants[i].name) }()
		until(t, func() bool { return len(s.queue) > queued })
	}
	release()
	for _, w := range wants {
		if err := <-w.got; !errors.Is(err, w.want) || w.want == nil && err != nil {
			t.Errorf("%s: got %v, want %v", w.name, err, w.want)
		}
	}
}

// until polls a condition that nothing signals.
func until(t testing.TB, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); !holds(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the condition did not come to hold within 30 s")
		}
	}
}

func TestAFailingOperationSparesItsNeighbours(t *testing.T) {
	var batches []int
	s := openTest(t, Config{Observe: Observer{BatchCommitted: func(ops, _ int, _ time.Duration) { batches = append(batches, ops) }}})
	begin(t, s, key("r", "corrupt"), "", keystore.Send)
	garble(t, s, key("r", "corrupt"))
	batches = nil
	tooLarge := string(noise(1, 3<<20))
	together(t, s, hold(t, s), []outcome{
		{name: "first"},
		{name: "missing", want: keystore.ErrNotFound},
		{name: "corrupt", want: keystore.ErrCorrupt},
		{name: "too large", want: keystore.ErrTooLarge},
		{name: "last"},
	}, func(name string) error {
		k := key("r", name)
		switch name {
		case "missing", "corrupt":
			_, err := s.Apply(context.Background(), k, applied(1), nil)
			return err
		case "too large":
			q := request(s, k)
			q.Intent.Target = tooLarge
			_, err := s.Begin(context.Background(), q, nil)
			return err
		}
		_, err := s.Begin(context.Background(), request(s, k), nil)
		return err
	})
	if len(batches) != 1 || batches[0] != 2 {
		t.Errorf("batches of %v operations, want one of 2", batches)
	}
	for _, call := range []string{"first", "last"} {
		if rec, err := s.Call(context.Background(), key("r", call)); err != nil || rec.State != keystore.Pending {
			t.Errorf("%s: %v, %v", call, rec, err)
		}
	}
	for _, call := range []string{"missing", "too large"} {
		if _, err := s.Call(context.Background(), key("r", call)); !errors.Is(err, keystore.ErrNotFound) {
			t.Errorf("%s: %v", call, err)
		}
	}
	sum, err := s.Run(context.Background(), "default", "r")
	if err != nil || sum.Calls[keystore.Pending] != 3 {
		t.Errorf("totals: %v, %v; want 3 pending, the corrupt one included", sum.Calls, err)
	}
}

// garble overwrites a call's record with bytes that are none.
func garble(t *testing.T, s *Store, k keystore.Key) {
	t.Helper()
	err := s.do(context.Background(), func(v *view) (*step, error) {
		st := v.step()
		c, err := st.open(k)
		if err != nil {
			return nil, err
		}
		st.run = nil
		st.set(recordKey(c.seq), []byte("\x01garbage"))
		delete(v.calls, callID{st.runNumber, hashCall(k.Turn, k.Call)})
		return st, nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestCorruptRecordIsNeverSent(t *testing.T) {
	s := openTest(t, Config{})
	k := key("r", "c")
	begin(t, s, k, "", keystore.Send)
	apply(t, s, k, applied(1), "receipt")
	garble(t, s, k)
	if _, err := s.Begin(context.Background(), request(s, k), nil); !errors.Is(err, keystore.ErrCorrupt) {
		t.Errorf("begin: %v", err)
	}
	if _, err := s.Call(context.Background(), k); !errors.Is(err, keystore.ErrCorrupt) {
		t.Errorf("call: %v", err)
	}
}

func TestOperationsOfABatchSeeEarlierOnes(t *testing.T) {
	s := openTest(t, Config{})
	release := hold(t, s)
	var mu sync.Mutex
	actions := map[keystore.Action]int{}
	wants := make([]outcome, 5)
	for i := range wants {
		wants[i].name = fmt.Sprint(i)
	}
	together(t, s, release, wants, func(string) error {
		adm, err := s.Begin(context.Background(), request(s, key("r", "one")), nil)
		mu.Lock()
		defer mu.Unlock()
		actions[adm.Verdict.Action]++
		return err
	})
	if actions[keystore.Send] != 1 || actions[keystore.Wait] != 4 {
		t.Errorf("five begins of one call in one batch: %v", actions)
	}
}

func TestBigBatchIsSplitBetweenOperations(t *testing.T) {
	var mu sync.Mutex
	var sizes []int
	s := openTest(t, Config{Observe: Observer{BatchCommitted: func(_, bytes int, _ time.Duration) {
		mu.Lock()
		defer mu.Unlock()
		sizes = append(sizes, bytes)
	}}})
	body := strings.Repeat("x", 900<<10)
	wants := make([]outcome, 10)
	for i := range wants {
		wants[i].name = fmt.Sprint(i)
	}
	together(t, s, hold(t, s), wants, func(name string) error {
		_, err := s.Begin(context.Background(), request(s, key("r", name)), []byte(body))
		return err
	})
	mu.Lock()
	defer mu.Unlock()
	if len(sizes) < 5 {
		t.Errorf("10 operations of 900 KiB went in %d batches", len(sizes))
	}
	for _, n := range sizes {
		if n > s.batchBytes {
			t.Errorf("a batch of %d bytes, at most %d fit", n, s.batchBytes)
		}
	}
	for _, w := range wants {
		rec, err := s.Call(context.Background(), key("r", w.name))
		if err != nil {
			t.Fatal(err)
		}
		if readBody(t, s, rec.Intent.Body) != body {
			t.Errorf("the body of %s is not what was given", w.name)
		}
	}
}

func TestManySmallOperationsStayWithinTheCount(t *testing.T) {
	s := openTest(t, Config{tuning: tuning{memTableBytes: 8 << 20}})
	steps := make([]func(v *view) (*step, error), 40)
	for i := range steps {
		steps[i] = func(v *view) (*step, error) {
			st := v.step()
			for range s.batchChanges / 3 {
				st.set(stagedKey(s.nextNumber()), nil)
			}
			return st, nil
		}
	}
	for i, err := range s.doAll(context.Background(), steps) {
		if err != nil {
			t.Fatalf("operation %d: %v", i, err)
		}
	}
}

func TestWaitingIsBoundedByTheContext(t *testing.T) {
	s := openTest(t, Config{})
	release := hold(t, s)
	defer release()
	ctx, cancel := context.WithCancel(context.Background())
	got := make(chan error, 1)
	go func() {
		_, err := s.Begin(ctx, request(s, key("r", "late")), nil)
		got <- err
	}()
	until(t, func() bool { return len(s.queue) == 1 })
	cancel()
	if err := <-got; !errors.Is(err, keystore.ErrUnavailable) || !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	release()
	begin(t, s, key("r", "next"), "", keystore.Send)
	if _, err := s.Call(context.Background(), key("r", "late")); !errors.Is(err, keystore.ErrNotFound) {
		t.Errorf("the call that was given up: %v", err)
	}
}

func TestNewerLayoutIsRefused(t *testing.T) {
	dir := t.TempDir()
	s := mustOpen(t, Config{Dir: dir})
	err := s.do(context.Background(), func(v *view) (*step, error) {
		st := v.step()
		st.set(formatKey, binary.BigEndian.AppendUint16(nil, layout+1))
		return st, nil
	})
	if err := errors.Join(err, s.Close()); err != nil {
		t.Fatal(err)
	}
	_, err = Open(context.Background(), Config{Dir: dir})
	if !errors.Is(err, keystore.ErrNewerFormat) || !strings.Contains(err.Error(), dir) {
		t.Errorf("got %v", err)
	}
}

func TestTimeOnRecordNeverGoesBack(t *testing.T) {
	now := time.Unix(2000, 0)
	s := openTest(t, Config{Now: func() time.Time { return now }})
	k := key("r", "c")
	first := begin(t, s, k, "", keystore.Send)
	now = time.Unix(1000, 0)
	if rec := apply(t, s, k, applied(1), ""); rec.UpdatedAt < first.UpdatedAt {
		t.Errorf("from %d to %d", first.UpdatedAt, rec.UpdatedAt)
	}
}

func TestAReceiptThatTheEventHasNoUseForIsNotKept(t *testing.T) {
	s := openTest(t, Config{})
	k := key("r", "c")
	begin(t, s, k, "", keystore.Send)
	e := applied(1)
	e.Kind = keystore.SawAmbiguous
	if rec := apply(t, s, k, e, strings.Repeat("x", InlineBytesMax+1)); rec.Receipt != nil || rec.State != keystore.InDoubt {
		t.Errorf("got %+v", rec)
	}
	if got := piecesKept(t, s); got != 0 {
		t.Errorf("%d pieces of a body that nothing names", got)
	}
}

func TestListsPassOverWhatCannotBeRead(t *testing.T) {
	s := openTest(t, Config{})
	for _, call := range []string{"a", "b", "c"} {
		begin(t, s, key("r", call), "", keystore.Send)
	}
	garble(t, s, key("r", "b"))
	for name, list := range map[string]func() (keystore.List[*keystore.Record], error){
		"calls": func() (keystore.List[*keystore.Record], error) {
			return s.Calls(t.Context(), "default", "r", keystore.Page{})
		},
		"pending": func() (keystore.List[*keystore.Record], error) {
			return s.Unsettled(t.Context(), keystore.Pending, keystore.Page{})
		},
	} {
		got, err := list()
		if err != nil || len(got.Items) != 2 || got.Items[0].Key.Call != "a" || got.Items[1].Key.Call != "c" {
			t.Errorf("%s: %v, %v", name, got.Items, err)
		}
	}
}

func TestACorruptPendingCallDoesNotKeepTheStoreShut(t *testing.T) {
	dir := t.TempDir()
	s := mustOpen(t, Config{Dir: dir})
	for _, call := range []string{"a", "b"} {
		begin(t, s, key("r", call), "", keystore.Send)
	}
	garble(t, s, key("r", "a"))
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = openTest(t, Config{Dir: dir})
	if got := s.Facts().Doubtful; got != 1 {
		t.Errorf("doubtful: %d, want 1", got)
	}
	if _, err := s.Begin(t.Context(), request(s, key("r", "a")), nil); !errors.Is(err, keystore.ErrCorrupt) {
		t.Errorf("the call that cannot be read: %v", err)
	}
}

package storetest

import (
	"context"
	"fmt"
	"slices"
	"time"

	"counterfoil/classify"
	"counterfoil/keystore"
)

func testReplayAfterReopen(b *trial) {
	b.succeed(key("succeeded"))
	b.beginning(b.request(key("rejected")), keystore.Send)
	b.apply(key("rejected"), answered(keystore.SawRejected, 1), []byte("no"))
	b.doubt(b.lookup(key("looked up")))
	b.apply(key("looked up"), keystore.Event{Kind: keystore.LookupFound, Receipt: receipt(200)}, []byte("found"))
	b.doubt(b.keyed(key("resent")))
	b.beginning(b.keyed(key("resent")), keystore.Resend)
	b.apply(key("resent"), answered(keystore.SawApplied, 2), []byte("resent"))
	b.lose(key("resolved"))
	b.apply(key("resolved"), operator(keystore.OperatorApplied), []byte("resolved"))
	b.lose(key("late"))
	b.apply(key("late"), answered(keystore.LateApplied, 1), nil)
	want := b.seen
	sources := map[keystore.Source]bool{}
	for _, end := range []func(){b.crash, b.reopen} {
		end()
		for k, r := range want {
			sources[r.Receipt.Source] = true
			if got := b.beginning(b.request(k), keystore.Replay); !same(got, r) {
				b.Fatalf("%s after reopening:\ngot  %+v\nwant %+v", k, got, r)
			}
		}
	}
	if len(sources) != 5 {
		b.Fatalf("receipts from %d sources, want all 5", len(sources))
	}
	if got := string(b.bytes(b.call(key("looked up")).Receipt.Body)); got != "found" {
		b.Fatalf("the receipt's body: %q", got)
	}
}

// pages reads a whole list in pages of the given length.
func pages[T any](b *trial, limit int, page func(keystore.Page) (keystore.List[T], error)) []T {
	b.Helper()
	var all []T
	p := keystore.Page{Limit: limit}
	for range 1000 {
		l, err := page(p)
		if err != nil {
			b.Fatalf("page after %q: %v", p.After, err)
		}
		if l.Next == "" {
			return append(all, l.Items...)
		}
		if len(l.Items) != limit {
			b.Fatalf("a page of %d that is not the last, want %d", len(l.Items), limit)
		}
		all, p.After = append(all, l.Items...), l.Next
	}
	b.Fatal("a list without an end")
	return nil
}

func testLists(b *trial) {
	ctx := context.Background()
	// Names that sort otherwise than they were made, and hold what a store may
	// separate its keys by.
	var runs []string
	for i := range 12 {
		run := fmt.Sprintf("%c/\x00:%d\xc3\xa9", 'z'-i, i)
		runs = append(runs, run)
		for call := range 5 {
			b.succeed(keyIn(run, fmt.Sprintf("%c", 'e'-call)))
			b.clock.Advance(time.Millisecond)
		}
	}
	b.succeed(keystore.Key{Namespace: "other", Run: "hidden", Turn: "1", Call: "a"})
	b.succeed(keyIn(runs[3], "late"))
	for _, end := range []func(){func() {}, b.crash} {
		end()
		for _, limit := range []int{1, 3, 4, 12, 13, 1000} {
			got := pages(b, limit, func(p keystore.Page) (keystore.List[keystore.RunSummary], error) {
				return b.store.Runs(ctx, "default", p)
			})
			names := make([]string, len(got))
			for i := range got {
				names[i] = got[i].Name
			}
			if !slices.Equal(names, runs) {
				b.Fatalf("runs in pages of %d:\ngot  %q\nwant %q", limit, names, runs)
			}
		}
		for i, run := range runs {
			want := []string{"e", "d", "c", "b", "a"}
			if i == 3 {
				want = append(want, "late")
			}
			for _, limit := range []int{1, 2, 5, 6, 100} {
				got := pages(b, limit, func(p keystore.Page) (keystore.List[*keystore.Record], error) {
					return b.store.Calls(ctx, "default", run, p)
				})
				if calls := callsOf(got); !slices.Equal(calls, want) {
					b.Fatalf("calls of %q in pages of %d: got %q, want %q", run, limit, calls, want)
				}
			}
		}
	}
	b.pagesGrow()
}

// pagesGrow: a cursor stays where it is while the list grows behind it, and a
// page without a limit has 100 items.
func (b *trial) pagesGrow() {
	ctx := context.Background()
	for i := range 101 {
		b.beginning(b.request(keyIn("long", fmt.Sprint(i))), keystore.Send)
	}
	first, err := b.store.Calls(ctx, "default", "long", keystore.Page{})
	if err != nil || len(first.Items) != 100 || first.Next == "" {
		b.Fatalf("a page without a limit: %d items, cursor %q, %v", len(first.Items), first.Next, err)
	}
	b.beginning(b.request(keyIn("long", "more")), keystore.Send)
	b.apply(keyIn("long", "0"), answered(keystore.SawApplied, 1), nil)
	rest, err := b.store.Calls(ctx, "default", "long", keystore.Page{After: first.Next})
	if err != nil || !slices.Equal(callsOf(rest.Items), []string{"100", "more"}) || rest.Next != "" {
		b.Fatalf("the page after it: %q, cursor %q, %v", callsOf(rest.Items), rest.Next, err)
	}
}

func callsOf(records []*keystore.Record) []string {
	calls := make([]string, len(records))
	for i, r := range records {
		calls[i] = r.Key.Call
	}
	return calls
}

func (b *trial) unsettled(state keystore.State) []string {
	b.Helper()
	return callsOf(pages(b, 2, func(p keystore.Page) (keystore.List[*keystore.Record], error) {
		return b.store.Unsettled(context.Background(), state, p)
	}))
}

func testUnsettled(b *trial) {
	states := map[keystore.State]func(keystore.Key){
		keystore.Pending: func(k keystore.Key) { b.beginning(b.request(k), keystore.Send) },
		keystore.InDoubt: func(k keystore.Key) { b.doubt(b.request(k)) },
		keystore.Unknown: func(k keystore.Key) { b.lose(k) },
		keystore.Held:    func(k keystore.Key) { b.hold(k) },
	}
	want := []string{"5", "4", "3", "2", "1"}
	since := map[keystore.State]keystore.Instant{}
	for state, reach := range states {
		since[state] = b.clock.Instant()
		for i, call := range want {
			k := keyIn(fmt.Sprintf("%s %d", state, 5-i), call)
			if i == 2 {
				k.Namespace = "other"
			}
			reach(k)
			b.clock.Advance(time.Second)
		}
	}
	for state := range states {
		if got := b.unsettled(state); !slices.Equal(got, want) {
			b.Fatalf("%s: got %q, want %q", state, got, want)
		}
	}
	b.apply(keyIn("in_doubt 5", "5"), keystore.Event{Kind: keystore.LookupFailed, Reason: "time-out"}, nil)
	if got := b.unsettled(keystore.InDoubt); !slices.Equal(got, want) {
		b.Fatalf("in doubt, after news of the oldest: got %q, want %q", got, want)
	}
	stats := b.store.Stats()
	if stats.Pending != 5 || stats.InDoubt != 5 || stats.Unknown != 5 || stats.Held != 5 || stats.OldestUnknown != since[keystore.Unknown] {
		b.Fatalf("stats: %+v, the oldest unknown since %d", stats, since[keystore.Unknown])
	}
	oldest := keyIn("unknown 5", "5")
	b.apply(oldest, operator(keystore.OperatorNotApplied), nil)
	b.apply(keyIn("in_doubt 4", "4"), answered(keystore.LateApplied, 1), nil)
	b.apply(keyIn("held 1", "1"), keystore.Event{Kind: keystore.WasDenied}, nil)
	b.crash()
	for state, left := range map[keystore.State][]string{
		keystore.Pending: {}, keystore.Unknown: {"4", "3", "2", "1"}, keystore.Held: {"5", "4", "3", "2"},
	} {
		if got := b.unsettled(state); !slices.Equal(got, left) {
			b.Fatalf("%s after a crash: got %q, want %q", state, got, left)
		}
	}
	if got := b.unsettled(keystore.InDoubt); len(got) != 9 || !slices.Equal(got[:4], []string{"5", "3", "2", "1"}) {
		b.Fatalf("in doubt after a crash: got %q", got)
	}
	stats = b.store.Stats()
	if stats.Pending != 0 || stats.InDoubt != 9 || stats.Unknown != 4 || stats.Held != 4 || stats.OldestUnknown != since[keystore.Unknown].Add(time.Second) {
		b.Fatalf("stats after a crash: %+v", stats)
	}
}

func (b *trial) run(name string) keystore.RunSummary {
	b.Helper()
	s, err := b.store.Run(context.Background(), "default", name)
	if err != nil {
		b.Fatalf("run %s: %v", name, err)
	}
	return s
}

func testRunSummaries(b *trial) {
	made := b.clock.Instant()
	b.succeed(key("a"))
	b.clock.Advance(time.Hour)
	b.succeed(key("b"))
	b.lose(key("c"))
	b.hold(key("d"))
	b.openCall("e")
	b.beginning(b.request(key("f")), keystore.Send)
	b.beginning(b.request(key("f")), keystore.Wait)
	for _, end := range []func(){func() {}, b.crash} {
		end()
		s := b.run("r")
		want := map[keystore.State]int{keystore.Succeeded: 2, keystore.Unknown: 1, keystore.Held: 1, keystore.Open: 1}
		want[b.call(key("f")).State]++
		for state, n := range s.Calls {
			if n != want[keystore.State(state)] {
				b.Errorf("%s: got %d, want %d", keystore.State(state), n, want[keystore.State(state)])
			}
		}
		if s.Namespace != "default" || s.Name != "r" || s.CreatedAt != made || s.Total() != 6 || s.EndedAt != 0 {
			b.Fatalf("the run: %+v", s)
		}
	}
}

func testNamespaces(b *trial) {
	k, other := key("a"), key("a")
	other.Namespace = "other"
	b.succeed(k)
	_, err := b.store.Call(context.Background(), other)
	b.wants(err, keystore.ErrNotFound)
	q := b.request(other)
	q.Fingerprint = classify.Fingerprint{7}
	b.beginning(q, keystore.Send)
	b.lose(keystore.Key{Namespace: "other", Run: "r", Turn: "1", Call: "lost"})
	paused := b.request(key("b"))
	paused.PauseOnUnknown = true
	b.beginning(paused, keystore.Send)
	if s := b.run("r"); s.Total() != 2 {
		b.Fatalf("the run of one namespace has %d calls, want 2", s.Total())
	}
}

const day = 24 * time.Hour

// sweep sweeps until nothing is left to do.
func (b *trial) sweep() {
	b.Helper()
	for range 10_000 {
		more, err := b.store.Sweep(context.Background(), keystore.Retention{})
		if err != nil {
			b.Fatalf("sweeping: %v", err)
		}
		if !more {
			return
		}
	}
	b.Fatal("sweeping has no end")
}

func testRetention(b *trial) {
	large := noise(1<<20, 6)
	b.beginning(b.request(key("large")), keystore.Send)
	b.apply(key("large"), answered(keystore.SawApplied, 1), large)
	body := b.call(key("large")).Receipt.Body
	b.succeed(key("small"))
	b.openCall("open")
	b.lose(key("given up"))
	b.apply(key("given up"), operator(keystore.OperatorAbandoned), nil)
	b.clock.Advance(89 * day)
	b.succeed(keyIn("younger", "a"))
	b.sweep()
	b.holds(body, large)
	b.beginning(b.request(key("small")), keystore.Replay)

	b.clock.Advance(2 * day)
	b.sweep()
	ctx := context.Background()
	for _, end := range []func(){func() {}, b.crash} {
		end()
		for _, call := range []string{"large", "small", "open", "given up"} {
			r := b.inState(key(call), keystore.Expired)
			if r.Receipt != nil || r.Fingerprint != b.request(key(call)).Fingerprint || r.AttemptsMade == 0 {
				b.Fatalf("the tombstone of %s: %+v", call, r)
			}
			b.stopping(b.request(key(call)), keystore.ReceiptExpired)
		}
		b.wants(b.store.ReadBody(ctx, body, func([]byte) error { return nil }), keystore.ErrNotFound)
		b.beginning(b.request(keyIn("younger", "a")), keystore.Replay)
		runs, err := b.store.Runs(ctx, "default", keystore.Page{})
		if err != nil || len(runs.Items) != 1 || runs.Items[0].Name != "younger" {
			b.Fatalf("runs after sweeping: %+v, %v", runs, err)
		}
	}
	b.clock.Advance(401 * day)
	b.sweep()
	_, err := b.store.Call(ctx, key("large"))
	b.wants(err, keystore.ErrNotFound)
	b.inState(keyIn("younger", "a"), keystore.Expired)
}

func testNeverCollected(b *trial) {
	for run, reach := range map[string]func(keystore.Key){
		"pending":  func(k keystore.Key) { b.beginning(b.request(k), keystore.Send) },
		"in doubt": func(k keystore.Key) { b.doubt(b.request(k)) },
		"unknown":  func(k keystore.Key) { b.lose(k) },
		"held":     func(k keystore.Key) { b.hold(k) },
	} {
		reach(keyIn(run, "unsettled"))
		b.succeed(keyIn(run, "succeeded"))
	}
	before := map[keystore.Key]*keystore.Record{}
	for k := range b.seen {
		before[k] = b.call(k)
	}
	b.clock.Advance(10 * 365 * day)
	b.sweep()
	for k, want := range before {
		if got := b.call(k); !same(got, want) {
			b.Fatalf("%s after sweeping:\ngot  %+v\nwant %+v", k, got, want)
		}
		if want.Receipt != nil && string(b.bytes(want.Receipt.Body)) != "receipt of succeeded" {
			b.Fatalf("%s: its body is gone", k)
		}
	}
	b.apply(keyIn("unknown", "unsettled"), operator(keystore.OperatorAbandoned), nil)
	b.sweep()
	b.inState(keyIn("unknown", "succeeded"), keystore.Succeeded)
	b.clock.Advance(91 * day)
	b.sweep()
	b.inState(keyIn("unknown", "succeeded"), keystore.Expired)
}

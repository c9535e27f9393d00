package storetest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"sync"

	"counterfoil/keystore"
)

func testAcknowledged(b *trial) {
	b.mix(8, 30)
	b.crash()
	b.agrees()
}

// testMixedLoad lets many callers loose on few runs, then holds everything that
// was acknowledged against what is there, open and reopened.
func testMixedLoad(b *trial) {
	b.mix(32, 30)
	b.agrees()
	b.reopen()
	b.agrees()
}

// mix runs several callers at once, each with calls of its own in shared runs,
// and notes what the store said last about each call.
func (b *trial) mix(callers, steps int) {
	b.Helper()
	errs := make([]error, callers)
	seen := make([]map[keystore.Key]*keystore.Record, callers)
	var group sync.WaitGroup
	for i := range callers {
		c := &caller{store: b.store, trial: b, random: rand.New(rand.NewPCG(1, uint64(i))), number: i, seen: map[keystore.Key]*keystore.Record{}}
		seen[i] = c.seen
		group.Go(func() { errs[i] = c.work(steps) })
	}
	group.Wait()
	if err := errors.Join(errs...); err != nil {
		b.Fatalf("under load: %v", err)
	}
	for _, s := range seen {
		maps.Copy(b.seen, s)
	}
}

// agrees wants on record what was acknowledged, and totals that follow from it.
func (b *trial) agrees() {
	b.Helper()
	totals := map[string]*[stateCount]int{}
	for k, want := range b.seen {
		got := b.call(k)
		if want.State == keystore.Pending && got.State == keystore.InDoubt {
			want, _ = keystore.Next(want, keystore.Event{Kind: keystore.EpochDied}, got.UpdatedAt)
		}
		if !same(got, want) {
			b.Fatalf("%s:\ngot  %+v\nwant %+v", k, got, want)
		}
		if totals[k.Run] == nil {
			totals[k.Run] = &[stateCount]int{}
		}
		totals[k.Run][got.State]++
	}
	for run, want := range totals {
		if got := b.run(run); got.Calls != *want {
			b.Fatalf("run %s: got totals %v, want %v", run, got.Calls, *want)
		}
	}
}

// A caller makes calls of its own, one after the other.
type caller struct {
	store  keystore.Store
	trial  *trial
	random *rand.Rand
	number int
	seen   map[keystore.Key]*keystore.Record
}

func (c *caller) work(steps int) error {
	for n := range steps {
		k := keyIn(fmt.Sprintf("mixed %d", c.random.IntN(4)), fmt.Sprintf("%d-%d", c.number, n))
		if err := c.live(k); err != nil {
			return fmt.Errorf("caller %d: %w", c.number, err)
		}
	}
	return nil
}

// live leads one call through some of its life.
func (c *caller) live(k keystore.Key) error {
	a, err := c.store.Begin(context.Background(), c.trial.keyed(k), noise(c.random.IntN(100<<10), 7))
	if err != nil {
		return err
	}
	if a.Verdict.Action != keystore.Send {
		return fmt.Errorf("%s: got %s, want send", k, a.Verdict.Action)
	}
	c.seen[k] = a.Record
	switch c.random.IntN(5) {
	case 0:
		return nil
	case 1:
		return c.apply(k, answered(keystore.SawRejected, 1))
	case 2:
		return errors.Join(c.apply(k, answered(keystore.SawAmbiguous, 1)), c.apply(k, keystore.Event{Kind: keystore.GaveUp}))
	case 3:
		return errors.Join(c.apply(k, answered(keystore.SawAmbiguous, 1)), c.resend(k))
	}
	return c.apply(k, answered(keystore.SawApplied, 1))
}

func (c *caller) apply(k keystore.Key, e keystore.Event) error {
	r, err := c.store.Apply(context.Background(), k, e, noise(c.random.IntN(40<<10), 8))
	if err == nil {
		c.seen[k] = r
	}
	return err
}

func (c *caller) resend(k keystore.Key) error {
	a, err := c.store.Begin(context.Background(), c.trial.keyed(k), nil)
	if err != nil {
		return err
	}
	if a.Verdict.Action != keystore.Resend {
		return fmt.Errorf("%s: got %s, want resend", k, a.Verdict.Action)
	}
	c.seen[k] = a.Record
	return c.apply(k, answered(keystore.SawApplied, 2))
}

// testC85: calls that have nothing in common, and calls of one run, never see
// each other's conflicts; no intent is lost, and no total is off.
func testC85(b *trial) {
	b.atOnce(500, func(i int) keystore.Key { return keyIn(fmt.Sprintf("own %d", i), "a") })
	b.atOnce(100, func(i int) keystore.Key { return keyIn("shared", fmt.Sprint(i)) })
	if s := b.run("shared"); s.Total() != 100 || s.Calls[keystore.Succeeded] != 100 {
		b.Fatalf("the shared run's totals: %v", s.Calls)
	}
	b.crash()
	if s := b.run("shared"); s.Calls[keystore.Succeeded] != 100 {
		b.Fatalf("the shared run's totals after a crash: %v", s.Calls)
	}
	for i := range 500 {
		b.inState(keyIn(fmt.Sprintf("own %d", i), "a"), keystore.Succeeded)
	}
}

// atOnce makes n calls together, from begin to receipt.
func (b *trial) atOnce(n int, key func(i int) keystore.Key) {
	b.Helper()
	requests := make([]*keystore.Request, n)
	for i := range n {
		requests[i] = b.request(key(i))
	}
	for i, a := range b.beginAtOnce(n, func(i int) *keystore.Request { return requests[i] }) {
		if a.Verdict.Action != keystore.Send {
			b.Fatalf("%s: got %s, want send", requests[i].Key, a.Verdict.Action)
		}
	}
	errs := make([]error, n)
	var group sync.WaitGroup
	for i := range n {
		group.Go(func() {
			_, errs[i] = b.store.Apply(context.Background(), requests[i].Key, answered(keystore.SawApplied, 1), nil)
		})
	}
	group.Wait()
	if err := errors.Join(errs...); err != nil {
		b.Fatalf("apply: %v", err)
	}
}

// testClose: a close under load loses nothing that was acknowledged, and what
// comes later is refused as unavailable.
func testClose(b *trial) {
	var mu sync.Mutex
	var begun []keystore.Key
	var group sync.WaitGroup
	started := make(chan struct{}, 16)
	failures := make([]error, 16)
	for i := range 16 {
		group.Go(func() {
			for n := 0; ; n++ {
				q := b.request(keyIn("closing", fmt.Sprintf("%d-%d", i, n)))
				_, err := b.store.Begin(context.Background(), q, nil)
				if err != nil {
					failures[i] = err
					return
				}
				mu.Lock()
				begun = append(begun, q.Key)
				mu.Unlock()
				if n == 0 {
					started <- struct{}{}
				}
			}
		})
	}
	for range 16 {
		<-started
	}
	if err := b.store.Close(); err != nil {
		b.Fatalf("closing: %v", err)
	}
	group.Wait()
	for _, err := range failures {
		b.wants(err, keystore.ErrUnavailable)
	}
	b.refusesAll()
	b.open()
	for _, k := range begun {
		b.inState(k, keystore.InDoubt)
	}
}

func (b *trial) refusesAll() {
	b.Helper()
	ctx := context.Background()
	_, err := b.store.Begin(ctx, b.request(key("a")), nil)
	b.wants(err, keystore.ErrUnavailable)
	_, err = b.store.Apply(ctx, key("a"), answered(keystore.SawApplied, 1), nil)
	b.wants(err, keystore.ErrUnavailable)
	_, err = b.store.Call(ctx, key("a"))
	b.wants(err, keystore.ErrUnavailable)
	_, err = b.store.Run(ctx, "default", "r")
	b.wants(err, keystore.ErrUnavailable)
	_, err = b.store.Runs(ctx, "default", keystore.Page{})
	b.wants(err, keystore.ErrUnavailable)
	_, err = b.store.Calls(ctx, "default", "r", keystore.Page{})
	b.wants(err, keystore.ErrUnavailable)
	_, err = b.store.Unsettled(ctx, keystore.Unknown, keystore.Page{})
	b.wants(err, keystore.ErrUnavailable)
	_, err = b.store.Sweep(ctx, keystore.Retention{})
	b.wants(err, keystore.ErrUnavailable)
	b.wants(b.store.ReadBody(ctx, keystore.Body{Bytes: 1, Ref: 1}, func([]byte) error { return nil }), keystore.ErrUnavailable)
	if s, err := b.store.StageBody(ctx); err == nil {
		err = s.Write(ctx, []byte("x"))
		b.wants(err, keystore.ErrUnavailable)
	}
}

package storetest

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"

	"counterfoil/keystore"
)

// Call returns the record of a call.
func (s *Memory) Call(ctx context.Context, k keystore.Key) (*keystore.Record, error) {
	var r *keystore.Record
	err := s.do(ctx, Read, func() (err error) {
		r, err = s.record(k)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("reading: %w", err)
	}
	return r, nil
}

// Run returns a run and its totals.
func (s *Memory) Run(ctx context.Context, namespace, run string) (keystore.RunSummary, error) {
	var summary keystore.RunSummary
	err := s.do(ctx, Read, func() error {
		e := s.live.runs[runName{namespace, run}]
		if e == nil {
			return fmt.Errorf("run %s: %w", run, keystore.ErrNotFound)
		}
		summary = e.summary()
		return nil
	})
	return summary, err
}

func (r *runEntry) summary() keystore.RunSummary {
	return keystore.RunSummary{Run: *r.run.Clone(), Calls: r.counts}
}

// A place is where something stands in a list.
type place[T any] struct {
	order uint64
	item  T
}

// Runs lists the runs of a namespace in order of creation.
func (s *Memory) Runs(ctx context.Context, namespace string, p keystore.Page) (keystore.List[keystore.RunSummary], error) {
	return list(ctx, s, p, func() []place[keystore.RunSummary] {
		var all []place[keystore.RunSummary]
		for name, e := range s.live.runs {
			if name.namespace == namespace {
				all = append(all, place[keystore.RunSummary]{e.created, e.summary()})
			}
		}
		return all
	}, func(r keystore.RunSummary) (keystore.RunSummary, error) { return r, nil })
}

// Calls lists the records of a run's calls in order of their first begin.
func (s *Memory) Calls(ctx context.Context, namespace, run string, p keystore.Page) (keystore.List[*keystore.Record], error) {
	return list(ctx, s, p, func() []place[entry] {
		var all []place[entry]
		if r := s.live.runs[runName{namespace, run}]; r != nil {
			for _, k := range r.calls {
				all = append(all, place[entry]{s.live.calls[k].created, s.live.calls[k]})
			}
		}
		return all
	}, s.decode)
}

// Unsettled lists the calls in a state, in the order in which they came to it.
func (s *Memory) Unsettled(ctx context.Context, state keystore.State, p keystore.Page) (keystore.List[*keystore.Record], error) {
	return list(ctx, s, p, func() []place[entry] {
		var all []place[entry]
		for _, e := range s.inState(state) {
			all = append(all, place[entry]{e.entered, e})
		}
		return all
	}, s.decode)
}

// inState returns the calls in a state, in the order in which they came to it.
func (s *Memory) inState(state keystore.State) []entry {
	var in []entry
	for _, e := range s.live.calls {
		if e.state == state {
			in = append(in, e)
		}
	}
	slices.SortFunc(in, func(a, b entry) int { return cmp.Compare(a.entered, b.entered) })
	return in
}

// list reads one page of what all returns. A cursor is the place of the last
// item given.
func list[S, T any](ctx context.Context, s *Memory, p keystore.Page, all func() []place[S], read func(S) (T, error)) (keystore.List[T], error) {
	var l keystore.List[T]
	after, err := cursor(p.After)
	if err != nil {
		return l, err
	}
	err = s.do(ctx, Read, func() error {
		rest := slices.DeleteFunc(all(), func(at place[S]) bool { return at.order <= after })
		slices.SortFunc(rest, func(a, b place[S]) int { return cmp.Compare(a.order, b.order) })
		n := min(limit(p), len(rest))
		for _, at := range rest[:n] {
			item, err := read(at.item)
			if err != nil {
				return err
			}
			l.Items = append(l.Items, item)
		}
		if n < len(rest) {
			l.Next = strconv.FormatUint(rest[n-1].order, 36)
		}
		return nil
	})
	return l, err
}

func cursor(after string) (uint64, error) {
	if after == "" {
		return 0, nil
	}
	order, err := strconv.ParseUint(after, 36, 64)
	if err != nil {
		return 0, fmt.Errorf("cursor %q is none that a list gave: %w", after, keystore.ErrNotFound)
	}
	return order, nil
}

func limit(p keystore.Page) int {
	if p.Limit <= 0 {
		return 100
	}
	return min(p.Limit, 1000)
}

// Stats returns a snapshot for metrics.
func (s *Memory) Stats() keystore.Stats {
	s.mu.Lock()
	defer s.mu.Unlock()
	st := keystore.Stats{Full: s.disk.isFull()}
	for _, e := range s.live.calls {
		switch e.state { //nolint:exhaustive // Stats counts no others
		case keystore.Pending:
			st.Pending++
		case keystore.InDoubt:
			st.InDoubt++
		case keystore.Held:
			st.Held++
		case keystore.Unknown:
			st.Unknown++
			if st.OldestUnknown == 0 || e.since < st.OldestUnknown {
				st.OldestUnknown = e.since
			}
		}
	}
	return st
}

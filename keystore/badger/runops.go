package badger

import (
	"context"
	"errors"
	"fmt"

	"counterfoil/keystore"
)

// PutRun implements [keystore.Store].
func (s *Store) PutRun(ctx context.Context, q *keystore.RunSpec) (sum keystore.RunSummary, isNew bool, err error) {
	if err = errors.Join(q.Validate(), keystore.ValidatePart(q.Namespace)); err == nil {
		err = s.do(ctx, func(v *view) (st *step, err error) {
			st, sum, isNew, err = v.putRun(q)
			return st, err
		})
	}
	if err != nil {
		return keystore.RunSummary{}, false, fmt.Errorf("putting run %q: %w", q.Run, err)
	}
	sum.Run = *sum.Run.Clone()
	return sum, isNew, nil
}

func (v *view) putRun(q *keystore.RunSpec) (st *step, sum keystore.RunSummary, isNew bool, err error) {
	st = v.step()
	if err := st.openRun(q.Namespace, q.Run); err != nil {
		return nil, sum, false, err
	}
	isNew = !st.isOnRecord()
	next, changed, err := st.present().Put(q, st.now)
	switch {
	case err != nil:
		return nil, sum, false, err
	case !changed && !isNew:
		return nil, st.run.summary(), false, nil
	case v.s.space.room() != forAll:
		return nil, sum, false, keystore.ErrFull
	}
	st.beginRun(q.Namespace, q.Run)
	st.runFollows(next.Clone())
	return st, st.run.summary(), isNew, nil
}

// present is the step's run, or what stays of one that is not on record.
func (st *step) present() *keystore.Run {
	if st.run == nil {
		return &keystore.Run{}
	}
	return &st.run.Run
}

func (st *step) isOnRecord() bool { return st.run != nil && st.run.Place != 0 }

// runOnRecord returns a run, or ErrNotFound.
func (s *Store) runOnRecord(r reader, namespace, name string) (*run, error) {
	if known, ok := s.shown.of(runName{namespace, name}); ok {
		return known.run.onRecord()
	}
	n, found, err := r.runNumber(namespace, name)
	if err != nil {
		return nil, err
	}
	if !found {
		return nil, keystore.ErrNotFound
	}
	in, err := r.existingRun(n)
	if err != nil {
		return nil, err
	}
	return in.onRecord()
}

func (r *run) onRecord() (*run, error) {
	if r.Place == 0 {
		return nil, keystore.ErrNotFound
	}
	return r, nil
}

// extraBytes is what the run's entry takes beyond runBytes.
func (r *run) extraBytes() int {
	n := len(r.Run.FlowVersion) + len(r.Run.Lease.Owner)
	for name, value := range r.Run.Labels {
		n += len(name) + len(value) + 8
	}
	for upstream := range r.Run.Budget.Upstreams {
		n += len(upstream) + 8
	}
	for upstream := range r.Run.Begun {
		n += len(upstream) + 8
	}
	return n
}

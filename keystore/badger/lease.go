package badger

import (
	"context"
	"errors"
	"fmt"
	"time"

	"counterfoil/keystore"
)

// watch is what leases are judged by: what has passed since the store was opened.
// Each life of the store is an era of its own.
func (s *Store) watch() keystore.Watch {
	return keystore.Watch{Now: keystore.Instant(s.config.Watch()), Began: s.opened, Era: uint64(s.facts.Epoch), Epoch: s.facts.Epoch}
}

// AcquireLease implements [keystore.Store].
func (s *Store) AcquireLease(ctx context.Context, q *keystore.LeaseRequest) (g keystore.Grant, err error) {
	if err = errors.Join(q.Validate(), keystore.ValidatePart(q.Namespace)); err == nil {
		err = s.do(ctx, func(v *view) (st *step, err error) {
			st, g, err = v.acquireLease(q)
			return st, err
		})
	}
	return granted(g, "acquiring", q.Run, err)
}

func granted(g keystore.Grant, what, run string, err error) (keystore.Grant, error) {
	if err != nil {
		return keystore.Grant{}, fmt.Errorf("%s the lease of run %q: %w", what, run, err)
	}
	return g, nil
}

func (v *view) acquireLease(q *keystore.LeaseRequest) (*step, keystore.Grant, error) {
	st := v.step()
	if err := st.openRun(q.Namespace, q.Run); err != nil {
		return nil, keystore.Grant{}, err
	}
	run, w := *st.present(), v.s.watch()
	lease, err := run.Lease.Acquire(q, w, run.Lease.Epoch < w.Epoch)
	if err != nil {
		return nil, keystore.Grant{}, err
	}
	if v.s.space.room() != forAll {
		return nil, keystore.Grant{}, keystore.ErrFull
	}
	run.Lease = lease
	st.beginRun(q.Namespace, q.Run)
	st.runFollows(&run)
	return st, lease.Grant(w, st.now), nil
}

// RenewLease implements [keystore.Store].
func (s *Store) RenewLease(ctx context.Context, namespace, run string, f keystore.Fence, ttl time.Duration) (g keystore.Grant, err error) {
	if ttl != 0 {
		err = keystore.ValidateTTL(ttl)
	}
	if err == nil {
		g, err = s.moveLease(ctx, namespace, run, func(l keystore.Lease, w keystore.Watch) (keystore.Lease, error) { return l.Renew(f, ttl, w) })
	}
	return granted(g, "renewing", run, err)
}

// ReleaseLease implements [keystore.Store].
func (s *Store) ReleaseLease(ctx context.Context, namespace, run string, f keystore.Fence) error {
	g, err := s.moveLease(ctx, namespace, run, func(l keystore.Lease, _ keystore.Watch) (keystore.Lease, error) { return l.Release(f) })
	_, err = granted(g, "releasing", run, err)
	return err
}

// moveLease changes the lease of a run that is on record.
func (s *Store) moveLease(ctx context.Context, namespace, name string, move func(keystore.Lease, keystore.Watch) (keystore.Lease, error)) (g keystore.Grant, err error) {
	err = s.do(ctx, func(v *view) (*step, error) {
		st := v.step()
		if err := st.openRun(namespace, name); err != nil {
			return nil, err
		}
		if !st.isOnRecord() {
			return nil, keystore.ErrNotFound
		}
		run, w := st.run.Run, v.s.watch()
		lease, err := move(run.Lease, w)
		if err != nil {
			return nil, err
		}
		g = lease.Grant(w, st.now)
		if lease == run.Lease {
			return nil, nil
		}
		run.Lease = lease
		st.beginRun(namespace, name)
		st.runFollows(&run)
		return st, nil
	})
	return g, err
}

// Lease implements [keystore.Store].
func (s *Store) Lease(_ context.Context, namespace, name string) (g keystore.Grant, err error) {
	err = s.read(func(r reader) error {
		in, err := s.runOnRecord(r, namespace, name)
		if err != nil {
			return err
		}
		g = in.Run.Lease.Grant(s.watch(), s.clock.now())
		return nil
	})
	return granted(g, "reading", name, err)
}

package storetest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"counterfoil/keystore"
)

// watch is what leases are judged by.
func (s *Memory) watch() keystore.Watch {
	return keystore.Watch{Now: keystore.Instant(s.elapsed()), Began: s.began, Era: uint64(s.facts.Epoch), Epoch: s.facts.Epoch}
}

// PutRun makes a run, or changes what is said of it.
func (s *Memory) PutRun(ctx context.Context, q *keystore.RunSpec) (sum keystore.RunSummary, isNew bool, err error) {
	if err := errors.Join(q.Validate(), keystore.ValidatePart(q.Namespace)); err != nil {
		return sum, false, fmt.Errorf("putting run %q: %w", q.Run, err)
	}
	name := runName{q.Namespace, q.Run}
	err = s.do(ctx, PutRun, func() error {
		isNew = s.live.runs[name] == nil
		next, changed, err := s.runOf(name).Put(q, s.instant())
		switch {
		case err != nil:
			return err
		case (changed || isNew) && s.disk.isFull():
			return keystore.ErrFull
		case changed || isNew:
			s.follow(name, next.Clone())
		}
		sum = s.live.runs[name].summary()
		return nil
	})
	if err != nil {
		return keystore.RunSummary{}, false, fmt.Errorf("putting run %q: %w", q.Run, err)
	}
	return sum, isNew, nil
}

// runOf returns a run, or what stays of one that is not on record.
func (s *Memory) runOf(name runName) *keystore.Run {
	if e := s.live.runs[name]; e != nil {
		return &e.run
	}
	return &keystore.Run{Namespace: name.namespace, Name: name.name, Lease: s.live.fallow[name].lease}
}

// follow puts a run on record as next says, but for what the store itself keeps of
// it.
func (s *Memory) follow(name runName, next *keystore.Run) {
	now := s.instant()
	s.change(func(m *image) { m.follow(name, next, now) })
}

func (m *image) follow(name runName, next *keystore.Run, now keystore.Instant) {
	e := m.open(name, now)
	kept := e.run
	e.run = *next
	e.run.Namespace, e.run.Name = name.namespace, name.name
	e.run.CreatedAt, e.run.TouchedAt, e.run.EndedAt = kept.CreatedAt, kept.TouchedAt, kept.EndedAt
}

// open returns a run, and makes it if it is not there.
func (m *image) open(name runName, now keystore.Instant) *runEntry {
	e := m.runs[name]
	if e == nil {
		m.order++
		e = &runEntry{
			run:     keystore.Run{Namespace: name.namespace, Name: name.name, CreatedAt: now, Lease: m.fallow[name].lease},
			created: m.order, plans: map[string][]byte{}, positions: map[positionName][]byte{},
		}
		m.runs[name] = e
		delete(m.fallow, name)
	}
	e.run.TouchedAt = now
	return e
}

// clone copies what is changed in place.
func (r *runEntry) clone() *runEntry {
	c := *r
	c.calls, c.plans, c.positions = slices.Clone(r.calls), maps.Clone(r.plans), maps.Clone(r.positions)
	return &c
}

// AcquireLease gives out a run's lease.
func (s *Memory) AcquireLease(ctx context.Context, q *keystore.LeaseRequest) (g keystore.Grant, err error) {
	if err := errors.Join(q.Validate(), keystore.ValidatePart(q.Namespace)); err != nil {
		return g, fmt.Errorf("acquiring the lease of run %q: %w", q.Run, err)
	}
	name := runName{q.Namespace, q.Run}
	err = s.do(ctx, AcquireLease, func() error {
		run, w := *s.runOf(name), s.watch()
		lease, err := run.Lease.Acquire(q, w, run.Lease.Epoch != w.Epoch)
		if err != nil {
			return err
		}
		if s.disk.isFull() {
			return keystore.ErrFull
		}
		run.Lease = lease
		s.follow(name, &run)
		g = lease.Grant(w, s.instant())
		return nil
	})
	if err != nil {
		return keystore.Grant{}, fmt.Errorf("acquiring the lease of run %q: %w", q.Run, err)
	}
	return g, nil
}

// RenewLease prolongs a lease.
func (s *Memory) RenewLease(ctx context.Context, namespace, run string, f keystore.Fence, ttl time.Duration) (keystore.Grant, error) {
	if ttl != 0 {
		if err := keystore.ValidateTTL(ttl); err != nil {
			return keystore.Grant{}, fmt.Errorf("renewing the lease of run %q: %w", run, err)
		}
	}
	g, err := s.moveLease(ctx, RenewLease, runName{namespace, run}, func(l keystore.Lease, w keystore.Watch) (keystore.Lease, error) {
		return l.Renew(f, ttl, w)
	})
	if err != nil {
		return keystore.Grant{}, fmt.Errorf("renewing the lease of run %q: %w", run, err)
	}
	return g, nil
}

// ReleaseLease gives a lease back.
func (s *Memory) ReleaseLease(ctx context.Context, namespace, run string, f keystore.Fence) error {
	_, err := s.moveLease(ctx, ReleaseLease, runName{namespace, run}, func(l keystore.Lease, _ keystore.Watch) (keystore.Lease, error) {
		return l.Release(f)
	})
	if err != nil {
		return fmt.Errorf("releasing the lease of run %q: %w", run, err)
	}
	return nil
}

func (s *Memory) moveLease(ctx context.Context, op Op, name runName, move func(keystore.Lease, keystore.Watch) (keystore.Lease, error)) (g keystore.Grant, err error) {
	err = s.do(ctx, op, func() error {
		e := s.live.runs[name]
		if e == nil {
			return keystore.ErrNotFound
		}
		run, w := e.run, s.watch()
		lease, err := move(run.Lease, w)
		if err != nil {
			return err
		}
		if lease != run.Lease {
			run.Lease = lease
			s.follow(name, &run)
		}
		g = lease.Grant(w, s.instant())
		return nil
	})
	return g, err
}

// Lease returns a run's newest lease.
func (s *Memory) Lease(ctx context.Context, namespace, run string) (g keystore.Grant, err error) {
	err = s.do(ctx, Read, func() error {
		e := s.live.runs[runName{namespace, run}]
		if e == nil {
			return keystore.ErrNotFound
		}
		g = e.run.Lease.Grant(s.watch(), s.instant())
		return nil
	})
	if err != nil {
		return keystore.Grant{}, fmt.Errorf("reading the lease of run %q: %w", run, err)
	}
	return g, nil
}

// PutPlan records a turn's plan and its calls.
func (s *Memory) PutPlan(ctx context.Context, p *keystore.Plan, g keystore.Guard) (isNew bool, err error) {
	if err := errors.Join(p.Validate(), keystore.ValidatePart(p.Namespace)); err != nil {
		return false, fmt.Errorf("putting the plan of turn %q: %w", p.Turn, err)
	}
	err = s.do(ctx, PutPlan, func() (err error) {
		isNew, err = s.putPlan(p, g)
		return err
	})
	if err != nil {
		return false, fmt.Errorf("putting the plan of turn %q: %w", p.Turn, err)
	}
	return isNew, nil
}

func (s *Memory) putPlan(p *keystore.Plan, g keystore.Guard) (isNew bool, err error) {
	name, now := runName{p.Namespace, p.Run}, s.instant()
	old, err := s.plan(name, p.Turn)
	if err != nil {
		return false, err
	}
	run := s.runOf(name)
	if p.FromAnswer {
		run, p = run.Decided(p, old, g.Fence)
		isNew = p != nil
	} else {
		run, isNew, err = run.PutPlan(p, old.Head(), g)
	}
	if err != nil || !isNew {
		return false, err
	}
	if s.disk.isFull() {
		return false, keystore.ErrFull
	}
	return true, s.writePlan(run, p, now)
}

// decided puts a plan on record that a model's answer holds.
func (s *Memory) decided(p *keystore.Plan, f keystore.Fence) error {
	name := runName{p.Namespace, p.Run}
	old, err := s.plan(name, p.Turn)
	if err != nil {
		return err
	}
	run, p := s.runOf(name).Decided(p, old, f)
	if p == nil {
		return nil
	}
	return s.writePlan(run, p, s.instant())
}

func (s *Memory) writePlan(run *keystore.Run, p *keystore.Plan, now keystore.Instant) error {
	name, kept := runName{p.Namespace, p.Run}, *p
	kept.CreatedAt = now
	stored, err := s.disk.codec.Encode(&kept)
	if err != nil {
		return err
	}
	s.follow(name, run)
	s.change(func(m *image) { m.runs[name].plans[p.Turn] = stored })
	return s.putPlanned(p, now)
}

func (s *Memory) putPlanned(p *keystore.Plan, now keystore.Instant) error {
	for i := range p.Calls {
		k, e := p.Planned(i)
		if _, there := s.live.calls[k]; there {
			continue
		}
		r, err := keystore.Next(nil, e, now)
		if err != nil {
			return err
		}
		if err := s.write(r, kept{}); err != nil {
			return err
		}
	}
	return nil
}

// plan returns a turn's plan, nil if it has none.
func (s *Memory) plan(name runName, turn string) (*keystore.Plan, error) {
	e := s.live.runs[name]
	if e == nil || e.plans[turn] == nil {
		return nil, nil
	}
	p := &keystore.Plan{}
	return p, s.disk.codec.Decode(e.plans[turn], p)
}

// Plan returns a turn's plan.
func (s *Memory) Plan(ctx context.Context, namespace, run, turn string) (p *keystore.Plan, err error) {
	err = s.do(ctx, Read, func() (err error) {
		if p, err = s.plan(runName{namespace, run}, turn); err == nil && p == nil {
			err = keystore.ErrNotFound
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("reading the plan of turn %q: %w", turn, err)
	}
	return p, nil
}

// Position returns how far an agent has come with a content in a turn.
func (s *Memory) Position(ctx context.Context, namespace, run, turn string, c keystore.Content) (p keystore.Position, err error) {
	err = s.do(ctx, Read, func() (err error) {
		p, err = s.position(runName{namespace, run}, turn, c)
		return err
	})
	if err != nil {
		return keystore.Position{}, fmt.Errorf("reading a position in turn %q: %w", turn, err)
	}
	return p, nil
}

func (s *Memory) position(name runName, turn string, c keystore.Content) (p keystore.Position, err error) {
	e := s.live.runs[name]
	if e == nil {
		return p, nil
	}
	stored := e.positions[positionName{turn, c}]
	if stored == nil {
		return p, nil
	}
	return p, s.disk.codec.Decode(stored, &p)
}

// putPosition puts a position on record. Its run is there.
func (s *Memory) putPosition(k keystore.Key, c keystore.Content, p *keystore.Position) error {
	stored, err := s.disk.codec.Encode(p)
	if err != nil {
		return err
	}
	s.change(func(m *image) { m.runs[nameOf(k)].positions[positionName{k.Turn, c}] = stored })
	return nil
}

// Step moves the position of a call.
func (s *Memory) Step(ctx context.Context, k keystore.Key, o *keystore.Ordinal, m keystore.Move) error {
	err := s.do(ctx, Step, func() error {
		r, err := s.record(k)
		if err != nil {
			return err
		}
		return s.step(r, o, m)
	})
	if err != nil {
		return fmt.Errorf("moving the position of %s: %w", k, err)
	}
	return nil
}

func (s *Memory) step(r *keystore.Record, o *keystore.Ordinal, m keystore.Move) error {
	name := nameOf(r.Key)
	was, err := s.position(name, r.Key.Turn, o.Content)
	if err != nil {
		return err
	}
	run, p, err := keystore.Step(s.runOf(name), was, o, keystore.IsEffect(r.Class), m)
	if err != nil {
		return err
	}
	s.follow(name, run)
	return s.putPosition(r.Key, o.Content, &p)
}

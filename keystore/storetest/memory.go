package storetest

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"sync"
	"time"

	"counterfoil/keystore"
)

// inlineMax is up to how many bytes a body lies within its record.
const inlineMax = 16 << 10

var (
	errGone   = fmt.Errorf("the store is closed: %w", keystore.ErrUnavailable)
	errNoBody = fmt.Errorf("no such body: %w", keystore.ErrNotFound)
)

// A Memory is a journal store that keeps its data in a [Disk]. Operations work
// on an unsynced image first; those that wait together are synced together, and
// each returns when what it wrote, and what it saw, is synced.
type Memory struct {
	disk *Disk
	now  func() time.Time
	// elapsed is the watch, began what it showed when the store was opened.
	elapsed  func() time.Duration
	began    keystore.Instant
	life     uint64
	facts    keystore.Facts
	inFlight sync.WaitGroup

	// syncing is held by the one that syncs a batch.
	syncing sync.Mutex

	mu     sync.Mutex
	live   image
	batch  *batch
	staged map[keystore.BodyRef]*stage
	ref    keystore.BodyRef
	gone   bool
}

var _ keystore.Store = (*Memory)(nil)

// A batch is what will be synced together. Its fields but changes belong to
// whoever holds Memory.syncing.
type batch struct {
	changes []change
	// named are the staged bodies that the batch puts on record.
	named []keystore.BodyRef
	done  bool
	err   error
}

// OpenMemory opens the store on a disk, as a new epoch: what was pending is in
// doubt from now on. now is the store's clock; it must not show the Unix epoch
// itself. Leases are judged by what has passed on it, monotonic if now is
// time.Now. Errors: keystore.ErrLocked while another Memory has the disk open, and
// those of armed faults.
func OpenMemory(d *Disk, now func() time.Time) (*Memory, error) {
	opened := now()
	return openMemory(d, now, func() time.Duration { return now().Sub(opened) })
}

func openMemory(d *Disk, now func() time.Time, elapsed func() time.Duration) (*Memory, error) {
	fault := d.strike(Open)
	if fault != nil && fault.Moment == BeforeDurable {
		return nil, fault.err(Open)
	}
	life, err := d.take()
	if err != nil {
		return nil, fmt.Errorf("opening the disk: %w", err)
	}
	s := &Memory{
		disk: d, now: now, elapsed: elapsed, began: keystore.Instant(elapsed()), life: life,
		live: d.snapshot(), batch: &batch{}, staged: map[keystore.BodyRef]*stage{},
	}
	err = s.startEpoch()
	if err == nil && fault != nil {
		err = fault.err(Open)
	}
	if err != nil {
		s.Crash()
		return nil, err
	}
	return s, nil
}

// startEpoch numbers this life and puts in doubt what an earlier one left
// pending.
func (s *Memory) startEpoch() error {
	s.change(func(m *image) { m.epoch++ })
	s.facts = keystore.Facts{Epoch: s.live.epoch, Secret: s.live.secret}
	s.ref = keystore.BodyRef(s.live.epoch) << 32
	for _, e := range s.inState(keystore.Pending) {
		r, err := s.decode(e)
		if err != nil {
			return err
		}
		if r, err = s.ownerDied(r); err != nil {
			return err
		}
		if err := s.write(r, kept{}); err != nil {
			return err
		}
		s.facts.Doubtful++
	}
	return s.sync(s.batch)
}

func (s *Memory) ownerDied(r *keystore.Record) (*keystore.Record, error) {
	return keystore.Next(r, keystore.Event{Kind: keystore.EpochDied}, s.instant())
}

// Crash ends the store's life as a loss of power would: what was not synced is
// gone, and whoever waits gets an error.
func (s *Memory) Crash() {
	s.disk.release(s.life)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.gone = true
}

// Close waits for what was taken and gives the disk up.
func (s *Memory) Close() error {
	s.mu.Lock()
	s.gone = true
	s.mu.Unlock()
	s.inFlight.Wait()
	s.disk.release(s.life)
	return nil
}

// Facts returns what does not change while the store is open.
func (s *Memory) Facts() keystore.Facts { return s.facts }

// do runs one operation: fn against the live image, then the sync of all that
// it wrote or could have seen.
func (s *Memory) do(ctx context.Context, op Op, fn func() error) error {
	if err := ctx.Err(); err != nil {
		return errors.Join(keystore.ErrUnavailable, err)
	}
	fault := s.disk.strike(op)
	if fault != nil && fault.Moment == BeforeDurable {
		return s.fail(fault, op)
	}
	err := s.run(fn)
	if fault != nil {
		return s.fail(fault, op)
	}
	return err
}

func (s *Memory) fail(f *Fault, op Op) error {
	if f.Course == Deadly {
		s.Crash()
	}
	return f.err(op)
}

func (s *Memory) run(fn func() error) error {
	s.mu.Lock()
	if s.gone {
		s.mu.Unlock()
		return errGone
	}
	s.inFlight.Add(1)
	defer s.inFlight.Done()
	written := len(s.batch.changes)
	err := fn()
	if err != nil && len(s.batch.changes) != written {
		panic("storetest: an operation wrote something and then failed")
	}
	b := s.batch
	s.mu.Unlock()
	if syncErr := s.sync(b); syncErr != nil {
		return syncErr
	}
	return err
}

// sync makes b durable, with whatever has joined it by then.
func (s *Memory) sync(b *batch) error {
	s.syncing.Lock()
	defer s.syncing.Unlock()
	if b.done {
		return b.err
	}
	s.mu.Lock()
	s.batch = &batch{}
	s.mu.Unlock()
	b.done, b.err = true, s.flush(b)
	s.mu.Lock()
	defer s.mu.Unlock()
	if b.err != nil {
		s.fallBack(b.err)
		return b.err
	}
	for _, ref := range b.named {
		delete(s.staged, ref)
	}
	return nil
}

func (s *Memory) flush(b *batch) error {
	if len(b.changes) == 0 {
		return nil
	}
	fault := s.disk.strike(Sync)
	if fault != nil && fault.Moment == BeforeDurable {
		return s.fail(fault, Sync)
	}
	err := s.disk.write(s.life, b.changes)
	if fault != nil {
		return s.fail(fault, Sync)
	}
	return err
}

// fallBack goes on from what is durable after a failed sync. What was built on
// the lost batch in the meantime fails with it.
func (s *Memory) fallBack(err error) {
	s.batch.done, s.batch.err = true, err
	s.batch = &batch{}
	s.live = s.disk.snapshot()
}

func (s *Memory) change(c change) {
	c(&s.live)
	s.batch.changes = append(s.batch.changes, c)
}

func (s *Memory) instant() keystore.Instant { return keystore.At(s.now()) }

// record returns a copy of what is on record, or ErrNotFound.
func (s *Memory) record(k keystore.Key) (*keystore.Record, error) {
	e, ok := s.live.calls[k]
	if !ok {
		return nil, fmt.Errorf("call %s: %w", k, keystore.ErrNotFound)
	}
	return s.decode(e)
}

func (s *Memory) decode(e entry) (*keystore.Record, error) {
	r := &keystore.Record{}
	if err := s.disk.codec.Decode(e.stored, r); err != nil {
		return nil, err
	}
	return r, nil
}

// A kept is a body and, where the store keeps it apart, its bytes.
type kept struct {
	keystore.Body
	apart []byte
}

// write places a record, and the body that it names for the first time.
func (s *Memory) write(r *keystore.Record, b kept) error {
	e, err := s.encode(r)
	if err != nil {
		return err
	}
	if b.apart != nil {
		s.batch.named = append(s.batch.named, b.Ref)
	}
	key, now := r.Key, r.UpdatedAt
	s.change(func(m *image) {
		m.put(key, e, now)
		if b.apart != nil {
			m.bodies[b.Ref] = b.apart
		}
	})
	return nil
}

func (s *Memory) encode(r *keystore.Record) (entry, error) {
	stored, err := s.disk.codec.Encode(r)
	if err != nil {
		return entry{}, err
	}
	e := entry{stored: stored, state: r.State}
	if r.Intent.Body.Ref != 0 {
		e.bodies = append(e.bodies, r.Intent.Body.Ref)
	}
	if r.Receipt != nil && r.Receipt.Body.Ref != 0 {
		e.bodies = append(e.bodies, r.Receipt.Body.Ref)
	}
	return e, nil
}

// Begin decides about a call and records what follows.
func (s *Memory) Begin(ctx context.Context, q *keystore.Request, body []byte) (keystore.Admission, error) {
	var admission keystore.Admission
	err := s.do(ctx, Begin, func() (err error) {
		admission, err = s.begin(q, body)
		return err
	})
	if err != nil {
		return keystore.Admission{}, fmt.Errorf("beginning %s: %w", q.Key, err)
	}
	return admission, nil
}

func (s *Memory) begin(q *keystore.Request, body []byte) (keystore.Admission, error) {
	r, err := s.record(q.Key)
	if err != nil && !errors.Is(err, keystore.ErrNotFound) {
		return keystore.Admission{}, err
	}
	var found *keystore.Record
	if s.ownerIsDead(r) {
		if found, err = s.ownerDied(r); err != nil {
			return keystore.Admission{}, err
		}
		r = found
	}
	facts, err := s.runFacts(q)
	if err != nil {
		return keystore.Admission{}, err
	}
	admitted, err := keystore.Admit(r, facts, q, s.instant())
	if err != nil {
		return keystore.Admission{}, err
	}
	if admitted.Record == nil {
		admitted.Record = found
	}
	if err := s.admit(&admitted, q, body); err != nil {
		return keystore.Admission{}, err
	}
	if admitted.Record != nil {
		r, err = s.record(q.Key)
	}
	return keystore.Admission{Verdict: admitted.Verdict, Record: r}, err
}

// admit puts on record what Begin came to.
func (s *Memory) admit(a *keystore.Admitted, q *keystore.Request, body []byte) error {
	v := a.Verdict
	if (v.Action == keystore.Send || v.Action == keystore.Resend || v.Hold) && s.disk.isFull() {
		return keystore.ErrFull
	}
	if a.Record != nil {
		if err := s.admitRecord(a.Record, v, q, body); err != nil {
			return err
		}
	}
	if a.Run != nil {
		s.follow(nameOf(q.Key), a.Run)
	}
	if a.Position != nil {
		return s.putPosition(q.Key, q.Ordinal.Content, a.Position)
	}
	return nil
}

func (s *Memory) admitRecord(next *keystore.Record, v keystore.Verdict, q *keystore.Request, body []byte) error {
	var intent kept
	if v.KeepsIntent() {
		var err error
		if intent, err = s.keep(q.Intent.Body, body); err != nil {
			return err
		}
		next.Intent.Body = intent.Body
	}
	return s.write(next, intent)
}

func (s *Memory) ownerIsDead(r *keystore.Record) bool {
	if r == nil || r.State != keystore.Pending {
		return false
	}
	a := r.Attempt(r.AttemptsMade)
	return a == nil || a.Epoch != s.facts.Epoch
}

func (s *Memory) runFacts(q *keystore.Request) (f keystore.RunFacts, err error) {
	name := nameOf(q.Key)
	f.Run = s.runOf(name)
	if e := s.live.runs[name]; e != nil {
		f.Unknown = e.counts[keystore.Unknown]
	}
	if f.Run.Plans > 0 {
		plan, err := s.plan(name, q.Key.Turn)
		if err != nil {
			return f, err
		}
		f.Plan = plan.Fact(q.Key.Call)
	}
	if q.Ordinal != nil {
		f.Position, err = s.position(name, q.Key.Turn, q.Ordinal.Content)
	}
	return f, err
}

// keep returns the body to be put on record: one that is staged already or
// missing as it is, else the given bytes.
func (s *Memory) keep(named keystore.Body, bytes []byte) (kept, error) {
	switch {
	case named.Missing:
		return kept{Body: named}, nil
	case named.Ref != 0:
		staged := s.staged[named.Ref]
		if staged == nil {
			return kept{}, errNoBody
		}
		return kept{staged.named(), staged.bytes}, nil
	case len(bytes) == 0:
		return kept{}, nil
	}
	b := keystore.Body{Bytes: int64(len(bytes)), SHA256: sha256.Sum256(bytes)}
	if len(bytes) <= inlineMax {
		b.Inline = bytes
		return kept{Body: b}, nil
	}
	s.ref++
	b.Ref = s.ref
	return kept{b, append([]byte(nil), bytes...)}, nil
}

// Apply records an event of a call.
func (s *Memory) Apply(ctx context.Context, k keystore.Key, e keystore.Event, body []byte) (*keystore.Record, error) {
	var next *keystore.Record
	err := s.do(ctx, Apply, func() (err error) {
		next, err = s.apply(k, e, body)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("applying %s to %s: %w", e.Kind, k, err)
	}
	return next, nil
}

func (s *Memory) apply(k keystore.Key, e keystore.Event, body []byte) (*keystore.Record, error) {
	r, err := s.record(k)
	if err != nil && (e.Kind != keystore.WasPlanned && e.Kind != keystore.WasHeld || !errors.Is(err, keystore.ErrNotFound)) {
		return nil, err
	}
	next, err := keystore.Next(r, e, s.instant())
	if err != nil {
		return nil, err
	}
	var receipt kept
	if next.Receipt != nil && (r == nil || next.Receipt != r.Receipt) {
		if receipt, err = s.keep(e.Receipt.Body, body); err != nil {
			return nil, err
		}
		next.Receipt.Body = receipt.Body
	}
	if err := s.write(next, receipt); err != nil {
		return nil, err
	}
	if p, fence := e.PlanOf(next); p != nil {
		if err := s.decided(p, fence); err != nil {
			return nil, err
		}
	}
	if o := e.Answered; o != nil && (next.State == keystore.Succeeded || next.State == keystore.Rejected) {
		// Knowledge comes first: a receipt is kept whatever becomes of the position.
		_ = s.step(next, o, keystore.Forth)
	}
	return s.record(k)
}

// Sweep ends what is over, one run or all old tombstones in a step.
func (s *Memory) Sweep(ctx context.Context, r keystore.Retention) (more bool, err error) {
	err = s.do(ctx, Sweep, func() (err error) {
		more, err = s.sweep(r.WithDefaults())
		return err
	})
	if err != nil {
		return false, fmt.Errorf("sweeping: %w", err)
	}
	return more, nil
}

func (s *Memory) sweep(r keystore.Retention) (bool, error) {
	now := s.instant()
	for name, run := range s.live.runs {
		if r.Over(&run.run, now) && !run.isUnsettled() && run.run.Lease.Left(s.watch()) == 0 {
			return true, s.bury(name, run, now)
		}
	}
	for k, e := range s.live.calls {
		if e.state == keystore.Expired && now >= e.since.Add(r.Tombstone) {
			s.change(func(m *image) { delete(m.calls, k) })
		}
	}
	for name, f := range s.live.fallow {
		if now >= f.since.Add(r.Tombstone) {
			s.change(func(m *image) { delete(m.fallow, name) })
		}
	}
	return s.sweepItems(now), nil
}

func (r *runEntry) isUnsettled() bool {
	return r.counts[keystore.Pending]+r.counts[keystore.InDoubt]+r.counts[keystore.Unknown]+r.counts[keystore.Held] > 0
}

func (s *Memory) bury(name runName, run *runEntry, now keystore.Instant) error {
	tombs := make(map[keystore.Key]entry, len(run.calls))
	for _, k := range run.calls {
		r, err := s.record(k)
		if err != nil {
			return err
		}
		next, err := keystore.Next(r, keystore.Event{Kind: keystore.RetentionOver}, now)
		if err != nil {
			return err
		}
		tomb, err := s.encode(next)
		if err != nil {
			return err
		}
		tomb.since = now
		tombs[k] = tomb
	}
	s.change(func(m *image) { m.bury(name, tombs, now) })
	return nil
}

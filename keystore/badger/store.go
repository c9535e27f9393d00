package badger

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"counterfoil/keystore"
)

// A Store keeps the journal in a directory of its own. Make one with [Open].
type Store struct {
	config Config
	codec  *keystore.Codec
	clock  clock
	space  space
	facts  keystore.Facts
	// opened is what the watch showed at Open.
	opened keystore.Instant
	stages stages

	// last is the newest number given out.
	last atomic.Uint64
	// lot is drawn at each opening and stands before the number in an item's
	// version: a folder that was brought back from a copy counts from where the
	// copy was, and must not give out what was given out since.
	lot uint64
	// counts is how many calls each unsettled index lists.
	counts [len(indexes)]atomic.Int64

	queue   chan *operation
	closing sync.RWMutex // held to close the queue
	closed  bool
	stopped chan struct{}

	// floors are the marks' as readers see them. They are stored before the
	// commit that lowers one, so that no reader misses what it can see.
	floors atomic.Pointer[[len(indexes)][]byte]

	// access is held for reading by whoever reads from engine, and for writing
	// to change engine and failure. Only the committer does that.
	access  sync.RWMutex
	engine  *engine
	failure error

	// shown are the runs that changed last, as they are durable.
	shown shown

	// The rest is the committer's own.
	known        *known
	marks        marks
	batchBytes   int
	batchChanges int
	lastOps      int // how many operations the batch before had
	reopenedAt   time.Time
	measuredAt   time.Time
	background   int64

	// sweeping is held by the one who sweeps; swept is where it looks next.
	sweeping   sync.Mutex
	swept      number
	sweptItems itemSweep
	// removed is how many bytes were removed since the disk was last given
	// back, changedAt when the last batch was committed.
	removed   atomic.Int64
	changedAt atomic.Int64
	idleAfter time.Duration
	// itemReads counts the keys that operations on items have read.
	itemReads atomic.Int64
}

var _ keystore.Store = (*Store)(nil)

func (s *Store) nextNumber() number { return number(s.last.Add(1)) }

// lotBits is how many bits of a version are drawn by lot; the rest hold a number.
const lotBits = 20

func (s *Store) versionOf(n number) keystore.ItemVersion {
	return keystore.ItemVersion(s.lot<<(64-lotBits) | uint64(n))
}

// read runs fn on what is durable now. fn must be quick.
func (s *Store) read(fn func(r reader) error) error {
	return s.readEngine(func(e *engine) error {
		r := reader{e.snapshot(), s.codec}
		defer r.release()
		return fn(r)
	})
}

func (s *Store) readEngine(fn func(e *engine) error) error {
	s.access.RLock()
	defer s.access.RUnlock()
	if s.engine == nil {
		if s.failure != nil {
			return fmt.Errorf("%w: %w", keystore.ErrUnavailable, s.failure)
		}
		return errClosed
	}
	return fn(s.engine)
}

// Begin implements [keystore.Store].
func (s *Store) Begin(ctx context.Context, q *keystore.Request, body []byte) (keystore.Admission, error) {
	if err := q.Key.Validate(); err != nil {
		return keystore.Admission{}, err
	}
	adm, answered, err := s.answer(q)
	if answered || err != nil {
		return adm, begins(q.Key, err)
	}
	in, err := s.receiveOrNamed(ctx, q.Intent.Body, body, 0)
	if err != nil {
		return keystore.Admission{}, begins(q.Key, err)
	}
	asked := *q
	asked.Intent = ownIntent(q.Intent)
	err = s.do(ctx, func(v *view) (st *step, err error) {
		st, adm, err = v.begin(&asked, in)
		return st, err
	})
	if err != nil || !adm.Verdict.KeepsIntent() {
		in.release(ctx)
	}
	if err != nil {
		return keystore.Admission{}, begins(q.Key, err)
	}
	adm.Record = own(adm.Record)
	return adm, nil
}

func begins(k keystore.Key, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("beginning %s: %w", k, err)
}

// answer decides from what is durable, and reports whether that is enough:
// whether nothing has to be written for it.
func (s *Store) answer(q *keystore.Request) (adm keystore.Admission, answered bool, err error) {
	err = s.read(func(r reader) error {
		in, c, err := s.find(r, q.Key)
		if err != nil || c == nil || s.ownerDied(c.record) {
			return err
		}
		facts, err := factsFor(r, in, q)
		if err != nil {
			return err
		}
		v := keystore.Decide(c.record, facts, q, s.clock.now())
		if q.Writes(c.record, facts, v) {
			return nil
		}
		adm, answered = keystore.Admission{Verdict: v, Record: c.record}, true
		return nil
	})
	return adm, answered, err
}

// find returns a run and one of its calls; either is nil if it is not there.
func (s *Store) find(r reader, k keystore.Key) (*run, *call, error) {
	known, ok := s.shown.of(runName{k.Namespace, k.Run})
	if !ok {
		return r.find(k)
	}
	c, err := r.call(known.run, known.number, k)
	return known.run, c, err
}

// ownerDied reports whether the attempt under way belongs to an earlier epoch.
func (s *Store) ownerDied(r *keystore.Record) bool {
	if r.State != keystore.Pending {
		return false
	}
	a := r.Attempt(r.AttemptsMade)
	return a == nil || a.Epoch < s.facts.Epoch
}

// begin is Begin's atomic step.
func (v *view) begin(q *keystore.Request, body incoming) (*step, keystore.Admission, error) {
	st := v.step()
	prev, err := st.open(q.Key)
	if err != nil {
		return nil, keystore.Admission{}, err
	}
	was, err := v.buryOwner(prev, st.now)
	if err != nil {
		return nil, keystore.Admission{}, err
	}
	facts, err := factsFor(v, st.run, q)
	if err != nil {
		return nil, keystore.Admission{}, err
	}
	admitted, err := keystore.Admit(was, facts, q, st.now)
	if err != nil {
		return nil, keystore.Admission{}, err
	}
	verdict := admitted.Verdict
	if (verdict.KeepsIntent() || verdict.Action == keystore.Send || verdict.Action == keystore.Resend) && v.s.space.room() != forAll {
		return nil, keystore.Admission{}, keystore.ErrFull
	}
	if admitted.Record == nil && (prev == nil || was != prev.record) {
		admitted.Record = was
	}
	adm := keystore.Admission{Verdict: verdict, Record: was}
	if admitted.Record != nil {
		adm.Record = admitted.Record
	}
	if admitted.Record == nil && admitted.Run == nil && admitted.Position == nil {
		return nil, adm, nil
	}
	return st, adm, st.admit(prev, &admitted, q, body)
}

// admit puts on record what Begin came to.
func (st *step) admit(prev *call, a *keystore.Admitted, q *keystore.Request, body incoming) error {
	if a.Verdict.KeepsIntent() {
		placed, err := st.place(body)
		if err != nil {
			return err
		}
		a.Record.Intent.Body = placed
		if prev != nil {
			st.drop(prev.record.Intent.Body)
		}
	}
	st.beginRun(q.Key.Namespace, q.Key.Run)
	if a.Record != nil {
		if err := st.record(q.Key, prev, a.Record); err != nil {
			return err
		}
	}
	st.runFollows(a.Run)
	if a.Position == nil {
		return nil
	}
	return st.setPosition(q.Key.Turn, q.Ordinal.Content, a.Position)
}

// buryOwner moves a call on whose attempt belongs to a dead epoch.
func (v *view) buryOwner(c *call, now keystore.Instant) (*keystore.Record, error) {
	switch {
	case c == nil:
		return nil, nil
	case v.s.ownerDied(c.record):
		return keystore.Next(c.record, keystore.Event{Kind: keystore.EpochDied}, now)
	}
	return c.record, nil
}

// Apply implements [keystore.Store].
func (s *Store) Apply(ctx context.Context, k keystore.Key, e keystore.Event, body []byte) (*keystore.Record, error) {
	rec, err := s.apply(ctx, k, e, body)
	if err != nil {
		return nil, fmt.Errorf("applying %s to %s: %w", e.Kind, k, err)
	}
	return own(rec), nil
}

func (s *Store) apply(ctx context.Context, k keystore.Key, e keystore.Event, body []byte) (rec *keystore.Record, err error) {
	if err := k.Validate(); err != nil {
		return nil, err
	}
	if e.Begin != nil && e.Begin.Key != k {
		return nil, fmt.Errorf("%w: the event begins %s", keystore.ErrInvalidKey, e.Begin.Key)
	}
	in, err := s.receiveFor(ctx, &e, body)
	if err != nil {
		return nil, err
	}
	e.Receipt, e.Begin = ownReceipt(e.Receipt), ownBeginning(e.Begin)
	try := func() error {
		return s.do(ctx, func(v *view) (st *step, err error) {
			st, rec, err = v.apply(k, e, in)
			return st, err
		})
	}
	err = try()
	if e.Plan != nil && errors.Is(err, keystore.ErrTooLarge) {
		if err = s.planBefore(ctx, k, &e); err == nil {
			e.Plan = nil
			err = try()
		}
	}
	if err != nil {
		in.release(ctx)
	}
	return rec, err
}

// receiveFor takes in the body of an event's receipt, or of the intent of an
// event without one.
func (s *Store) receiveFor(ctx context.Context, e *keystore.Event, body []byte) (incoming, error) {
	switch {
	case e.Receipt == nil && e.Begin == nil:
		return incoming{}, nil
	case e.Receipt == nil:
		return s.receiveOrNamed(ctx, e.Begin.Intent.Body, body, 0)
	}
	return s.receiveOrNamed(ctx, e.Receipt.Body, body, InlineBytesMax)
}

// receiveOrNamed takes b in, unless named is a body that is staged or says that
// it is missing.
func (s *Store) receiveOrNamed(ctx context.Context, named keystore.Body, b []byte, inlineMax int) (incoming, error) {
	if named.Ref != 0 || named.Missing {
		named.Inline = nil
		return incoming{body: named}, nil
	}
	return s.receive(ctx, b, inlineMax)
}

// apply is Apply's atomic step.
func (v *view) apply(k keystore.Key, e keystore.Event, body incoming) (*step, *keystore.Record, error) {
	st := v.step()
	prev, err := st.open(k)
	if err != nil {
		return nil, nil, err
	}
	var was *keystore.Record
	if prev != nil {
		was = prev.record
	}
	next, err := keystore.Next(was, e, st.now)
	if was == nil && (err != nil || e.Begin == nil) {
		return nil, nil, errors.Join(keystore.ErrNotFound, err)
	}
	if err != nil {
		return nil, nil, err
	}
	if err := st.placeFor(&e, was, next, body); err != nil {
		return nil, nil, err
	}
	if err := st.record(k, prev, next); err != nil {
		return nil, nil, err
	}
	if err := st.decided(next, &e); err != nil {
		return nil, nil, err
	}
	st.answered(next, e.Answered)
	return st, next, nil
}

// placeFor puts the body where the event put what it belongs to, and drops the
// one that it takes the place of.
func (st *step) placeFor(e *keystore.Event, was, next *keystore.Record, in incoming) error {
	var old keystore.Record
	if was != nil {
		old = *was
	}
	switch {
	case next.Receipt != nil && next.Receipt != old.Receipt:
		body, err := st.place(in)
		if err != nil {
			return err
		}
		next.Receipt.Body = body
		if old.Receipt != nil {
			st.drop(old.Receipt.Body)
		}
	case e.Kind == keystore.WasPlanned, e.Kind == keystore.WasHeld, e.Kind == keystore.Begun:
		body, err := st.place(in)
		if err != nil {
			return err
		}
		next.Intent.Body = body
		st.drop(old.Intent.Body)
	}
	return nil
}

// Call implements [keystore.Store].
func (s *Store) Call(_ context.Context, k keystore.Key) (rec *keystore.Record, err error) {
	err = s.read(func(r reader) error {
		_, c, err := s.find(r, k)
		if err != nil {
			return err
		}
		if c == nil {
			return keystore.ErrNotFound
		}
		rec = c.record
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("reading call %s: %w", k, err)
	}
	return rec, nil
}

// Facts implements [keystore.Store].
func (s *Store) Facts() keystore.Facts { return s.facts }

// Close implements [keystore.Store].
func (s *Store) Close() error {
	s.closing.Lock()
	if s.closed {
		s.closing.Unlock()
		<-s.stopped
		return nil
	}
	s.closed = true
	close(s.queue)
	s.closing.Unlock()
	<-s.stopped
	return s.closeEngine()
}

func (s *Store) closeEngine() error {
	s.access.Lock()
	defer s.access.Unlock()
	e := s.engine
	s.engine = nil
	if e == nil {
		return nil
	}
	if s.space.check(e.background()) == forNothing {
		return e.leave()
	}
	return e.closeWithin(closePatience)
}

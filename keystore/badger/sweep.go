package badger

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/dgraph-io/badger/v4"

	"counterfoil/keystore"
)

// A run goes in three moves. Each is safe to be interrupted, and the next sweep
// carries on.
//
//  1. One commit marks the run: from then on all of its calls so far count as
//     tombstones for every reader, and nothing of it is sent again.
//  2. Portion by portion, bodies go and records are rewritten as tombstones.
//  3. After Retention.Tombstone, portion by portion, the tombstones go, and the
//     run with the last of them.

const (
	// sweepRuns is how many runs one step looks at, sweepCalls and sweepChanges
	// how much it changes.
	sweepRuns    = 1024
	sweepCalls   = 512
	sweepChanges = 2048
)

// Sweep implements [keystore.Store]. One step frees some of the items that are
// over, or looks at some of the runs, and changes at most a portion of one of
// them.
func (s *Store) Sweep(ctx context.Context, r keystore.Retention) (more bool, err error) {
	s.sweeping.Lock()
	defer s.sweeping.Unlock()
	more, itemsErr := s.sweepItems(ctx)
	if more && itemsErr == nil {
		return true, nil
	}
	more, err = s.sweepRuns(ctx, r.WithDefaults())
	return more, sweeps(errors.Join(itemsErr, err))
}

func (s *Store) sweepRuns(ctx context.Context, r keystore.Retention) (more bool, err error) {
	n, found, wrapped, err := s.nextDue(r)
	if err != nil {
		return false, err
	}
	if found {
		err = s.do(ctx, func(v *view) (*step, error) { return v.sweep(n, r) })
		return err == nil, err
	}
	if wrapped {
		return false, s.reclaim()
	}
	return true, nil
}

// reclaim gives back to the file system what was removed. While there is load,
// compaction does so on its way; when there is none, nothing would.
func (s *Store) reclaim() error {
	return s.readEngine(func(e *engine) error {
		// No value is ever long enough for the value log, but what a future
		// layout puts there must not stay.
		err := e.db.RunValueLogGC(valueLogGarbage)
		if err != nil && !errors.Is(err, badger.ErrNoRewrite) && !errors.Is(err, badger.ErrRejected) {
			return fmt.Errorf("collecting the value log: %w", err)
		}
		bytes := s.removed.Load()
		size, _ := e.db.Size()
		idle := time.Since(time.Unix(0, s.changedAt.Load())) >= s.idleAfter
		if !idle || bytes < reclaimBytes || size > flattenBytesMax {
			return nil
		}
		s.removed.Add(-bytes)
		if err := e.db.Flatten(1); err != nil {
			return fmt.Errorf("compacting: %w", err)
		}
		return nil
	})
}

const (
	// valueLogGarbage is the part of a value-log file that must be garbage for
	// the file to be rewritten.
	valueLogGarbage = 0.5
	// idleAfter is how long nothing must have been written before all tables are
	// compacted, since writes may have to wait for that; reclaimBytes is how
	// much must have been removed to make it worth while, and flattenBytesMax
	// the size up to which it is quick.
	idleAfter       = 10 * time.Second
	reclaimBytes    = 4 << 20
	flattenBytesMax = 2 << 30
)

func sweeps(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("sweeping: %w", err)
}

// nextDue looks for a run that has something to be done, from where the last
// step ended. The run stays where the next step looks first, until nothing is
// left to do for it.
func (s *Store) nextDue(r keystore.Retention) (due number, found, wrapped bool, err error) {
	looked, last := 0, s.swept
	err = s.read(func(rd reader) error {
		return rd.scan([]byte{runPrefix}, runKey(s.swept), values, func(item *badger.Item) (bool, error) {
			last = lastNumber(item.Key())
			value, err := item.ValueCopy(nil)
			if err != nil {
				return false, readError(err)
			}
			in := new(run)
			if err := s.codec.Decode(value, in); err != nil {
				s.config.Logger.Error("a run cannot be read and is not swept", "number", last, "error", err)
			} else if in.due(r, s.clock.now(), s.watch()) != nothing {
				due, found = last, true
				return false, nil
			}
			looked++
			return looked < sweepRuns, nil
		})
	})
	switch {
	case err != nil:
		return 0, false, false, err
	case found:
		s.swept = due
	case looked < sweepRuns:
		s.swept, wrapped = 0, true
	default:
		s.swept = last + 1
	}
	return due, found, wrapped, nil
}

// A move is what retention has to do about a run.
type move uint8

const (
	nothing move = iota
	expire
	rewrite
	forget
)

func (r *run) due(ret keystore.Retention, now keystore.Instant, w keystore.Watch) move {
	switch {
	case r.SweptThrough < r.ExpiredThrough, r.LeftPlace != 0:
		return rewrite
	case r.Place != 0 && r.Totals.unsettled() == 0 && r.Run.Lease.Left(w) == 0 && ret.Over(&r.Run, now):
		return expire
	case r.Place == 0 && now >= max(r.ExpiredAt, r.Run.TouchedAt).Add(ret.Tombstone):
		return forget
	}
	return nothing
}

// sweep makes one run's next move, if it is still due.
func (v *view) sweep(n number, r keystore.Retention) (*step, error) {
	st := v.step()
	in, err := v.runOf(n)
	if err != nil {
		return nil, err
	}
	st.runNumber = n
	updated := *in
	st.run = &updated
	switch in.due(r, st.now, v.s.watch()) {
	case expire:
		st.remove(listKey(in.Run.Namespace, in.Place))
		updated.expire(number(v.s.last.Load()), st.now)
		return st, nil
	case rewrite:
		if updated.LeftPlace != 0 {
			return st, st.leavePlace(&updated)
		}
		return st, st.rewrite(&updated)
	case forget:
		return st, st.forget(&updated)
	case nothing:
	}
	return nil, nil
}

// expire makes tombstones of all calls up to the given number.
func (r *run) expire(through number, now keystore.Instant) {
	all := r.Totals.all()
	r.ExpiredThrough, r.ExpiredAt = through, now
	r.Totals = totals(nil).plus(keystore.Expired, all)
	r.Run = r.Run.Swept()
	r.Place, r.LeftPlace = 0, r.Place
}

// leavePlace removes a portion of the plans and positions that a run had.
func (st *step) leavePlace(in *run) error {
	left := in.LeftPlace
	in.LeftPlace = 0
	for _, prefix := range []byte{planPrefix, positionPrefix} {
		scope := numbered(prefix, left)
		err := st.v.scan(scope, scope, values, func(item *badger.Item) (bool, error) {
			if len(st.changes) >= sweepChanges {
				in.LeftPlace = left
				return false, nil
			}
			return true, st.leave(item)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// leave removes a plan with its body, or a position.
func (st *step) leave(item *badger.Item) error {
	key := item.KeyCopy(nil)
	st.remove(key)
	st.freed += item.EstimatedSize()
	if key[0] != planPrefix {
		return nil
	}
	value, err := item.ValueCopy(nil)
	if err != nil {
		return readError(err)
	}
	head := new(planHead)
	if err := st.v.codec.Decode(value, head); err != nil {
		st.v.s.config.Logger.Error("a plan whose time is over cannot be read; its body stays", "key", fmt.Sprintf("%x", key), "error", err)
		return nil
	}
	st.drop(head.Body)
	return nil
}

// rewrite makes a portion of the run's tombstones real.
func (st *step) rewrite(in *run) error {
	v, n := st.v, st.runNumber
	from := callKey(n, in.SweptThrough+1)
	in.SweptThrough = in.ExpiredThrough
	calls := 0
	return v.scan(callScope(n), from, keysOnly, func(item *badger.Item) (bool, error) {
		seq := lastNumber(item.Key())
		if seq > in.ExpiredThrough {
			return false, nil
		}
		if calls == sweepCalls || len(st.changes) >= sweepChanges || st.bytes > v.s.batchBytes/2 {
			in.SweptThrough = seq - 1
			return false, nil
		}
		calls++
		return true, st.rewriteCall(in, seq)
	})
}

func (st *step) rewriteCall(in *run, seq number) error {
	value, err := st.v.get(recordKey(seq))
	if err != nil {
		return err
	}
	st.freed += int64(len(value))
	rec := new(keystore.Record)
	if err := st.v.codec.Decode(value, rec); err != nil {
		st.v.s.config.Logger.Error("a call whose time is over cannot be read and stays", "number", seq, "error", err)
		return nil
	}
	if rec.State == keystore.Expired {
		return nil
	}
	st.drop(rec.Intent.Body)
	if rec.Receipt != nil {
		st.drop(rec.Receipt.Body)
	}
	tombstone, err := in.asOf(seq, rec)
	if err != nil {
		return err
	}
	return st.write(&call{seq, tombstone})
}

// forget removes a portion of the run's tombstones, and with the last of them the
// run.
func (st *step) forget(in *run) error {
	v, n, calls := st.v, st.runNumber, 0
	done := true
	err := v.scan(callScope(n), callScope(n), keysOnly, func(item *badger.Item) (bool, error) {
		if calls == sweepCalls {
			done = false
			return false, nil
		}
		calls++
		return true, st.forgetCall(item)
	})
	if err != nil {
		return err
	}
	in.Totals = in.Totals.plus(keystore.Expired, -min(calls, in.Totals.in(keystore.Expired)))
	if done {
		st.remove(nameKey(in.Run.Namespace, in.Run.Name))
		st.remove(runKey(n))
		st.forgotten = true
	}
	return nil
}

func (st *step) forgetCall(item *badger.Item) error {
	record := recordKey(lastNumber(item.Key()))
	value, err := st.v.get(record)
	if err != nil {
		return err
	}
	st.remove(item.KeyCopy(nil))
	st.remove(record)
	rec := new(keystore.Record)
	if err := st.v.codec.Decode(value, rec); err != nil {
		return nil //nolint:nilerr // its index entry leads nowhere, and goes with no run to lead to it
	}
	st.remove(indexKey(st.runNumber, hashCall(rec.Key.Turn, rec.Key.Call)))
	return nil
}

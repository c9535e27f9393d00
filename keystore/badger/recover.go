package badger

import (
	"context"
	"errors"
	"fmt"

	"github.com/dgraph-io/badger/v4"

	"counterfoil/keystore"
)

// recoverOps is how many calls or bodies one step of the recovery takes.
const recoverOps = 512

// recover puts in doubt what dead epochs left pending, and drops what they
// staged. It goes through indexes, so it costs what was left, not what there
// is.
func (s *Store) recover(ctx context.Context) error {
	from := s.marks.floor(indexOf(keystore.Pending))
	for {
		places, err := s.places(keystore.Pending, from, recoverOps)
		if err != nil {
			return err
		}
		if len(places) == 0 {
			return s.dropStaged(ctx)
		}
		if err := s.bury(ctx, places); err != nil {
			return fmt.Errorf("putting in doubt what was pending: %w", err)
		}
		from = after(places[len(places)-1].key)
	}
}

// bury puts calls in doubt. One that cannot be read stays where it is: nothing
// is sent on its account.
func (s *Store) bury(ctx context.Context, places []place) error {
	steps := make([]func(v *view) (*step, error), len(places))
	for i, p := range places {
		steps[i] = func(v *view) (*step, error) { return v.bury(p) }
	}
	for i, err := range s.doAll(ctx, steps) {
		switch {
		case errors.Is(err, keystore.ErrCorrupt):
			s.config.Logger.Error("a pending call cannot be read and stays pending", "error", err)
		case err != nil:
			return fmt.Errorf("call number %d: %w", places[i].seq, err)
		default:
			s.facts.Doubtful++
		}
	}
	return nil
}

// doAll has the committer run steps, in as few commits as it can, and returns
// what came of each.
func (s *Store) doAll(ctx context.Context, steps []func(v *view) (*step, error)) []error {
	ops, errs := make([]*operation, len(steps)), make([]error, len(steps))
	for i, run := range steps {
		ops[i], errs[i] = s.submit(ctx, run)
	}
	for i, op := range ops {
		if errs[i] == nil {
			errs[i] = op.wait(ctx)
		}
	}
	return errs
}

func (v *view) bury(p place) (*step, error) {
	st := v.step()
	in, err := v.runOf(p.run)
	if err != nil {
		return nil, err
	}
	st.run, st.runNumber = in, p.run
	rec, err := v.record(in, p.seq)
	if err != nil {
		return nil, err
	}
	next, err := keystore.Next(rec, keystore.Event{Kind: keystore.EpochDied}, st.now)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", keystore.ErrCorrupt, err)
	}
	return st, st.record(rec.Key, &call{p.seq, rec}, next)
}

// dropStaged removes the bodies that were staged and never named.
func (s *Store) dropStaged(ctx context.Context) error {
	for {
		keys, more, err := s.stagedPieces()
		if err != nil {
			return err
		}
		if len(keys) == 0 {
			return nil
		}
		err = s.do(ctx, func(v *view) (*step, error) {
			st := v.step()
			for _, key := range keys {
				st.remove(key)
			}
			return st, nil
		})
		if err != nil || !more {
			return err
		}
	}
}

// stagedPieces returns keys to remove: pieces first, and their marker with the
// last of them.
func (s *Store) stagedPieces() (keys [][]byte, more bool, err error) {
	err = s.read(func(r reader) error {
		return r.scan([]byte{stagedPrefix}, []byte{stagedPrefix}, keysOnly, func(item *badger.Item) (bool, error) {
			marker := item.KeyCopy(nil)
			more = true
			err := r.scan(numbered(dataPrefix, lastNumber(marker)), nil, keysOnly, func(item *badger.Item) (bool, error) {
				keys = append(keys, item.KeyCopy(nil))
				return len(keys) < recoverOps, nil
			})
			if len(keys) < recoverOps {
				keys = append(keys, marker)
			}
			return len(keys) < recoverOps, err
		})
	})
	return keys, more, err
}

// A place is where an index says that a call is.
type place struct {
	key      []byte
	run, seq number
}

// places returns the first calls in state s from a key of its index on.
func (s *Store) places(state keystore.State, from []byte, limit int) (found []place, err error) {
	err = s.read(func(r reader) (err error) {
		found, err = r.places(state, from, limit)
		return err
	})
	return found, err
}

func (r reader) places(state keystore.State, from []byte, limit int) (found []place, err error) {
	err = r.scan([]byte{unsettledPrefix(state)}, from, values, func(item *badger.Item) (bool, error) {
		key := item.KeyCopy(nil)
		run, err := numberIn(item)
		if err != nil {
			return false, err
		}
		found = append(found, place{key, run, lastNumber(key)})
		return len(found) < limit, nil
	})
	return found, err
}

// after is the key that follows key directly.
func after(key []byte) []byte { return append(append([]byte(nil), key...), 0) }

package badger

import (
	"context"
	"errors"
	"fmt"

	"counterfoil/keystore"
)

// position returns how far an agent has come with a content in a turn.
func (r reader) position(place number, turn string, c keystore.Content) (p keystore.Position, err error) {
	value, err := r.get(positionKey(place, turn, c))
	if value == nil || err != nil {
		return p, err
	}
	if err := r.codec.Decode(value, &p); err != nil {
		return p, fmt.Errorf("a position in turn %q: %w", turn, err)
	}
	return p, nil
}

// position sees what the batch has moved too.
func (v *view) position(place number, turn string, c keystore.Content) (keystore.Position, error) {
	if p, ok := v.positions[string(positionKey(place, turn, c))]; ok {
		return *p, nil
	}
	return v.reader.position(place, turn, c)
}

// A past is where a verdict finds what it needs besides the call and its run.
type past interface {
	planHead(place number, turn string) (*planHead, error)
	position(place number, turn string, c keystore.Content) (keystore.Position, error)
}

// factsFor reads nothing where the run has no plans and the request no ordinal.
func factsFor[P past](p P, in *run, q *keystore.Request) (keystore.RunFacts, error) {
	f := in.facts()
	if in == nil || in.Place == 0 {
		return f, nil
	}
	if in.Run.Plans > 0 {
		head, err := p.planHead(in.Place, q.Key.Turn)
		if err != nil {
			return f, err
		}
		f.Plan = head.fact(q.Key.Turn, q.Key.Call)
	}
	if q.Ordinal == nil {
		return f, nil
	}
	var err error
	f.Position, err = p.position(in.Place, q.Key.Turn, q.Ordinal.Content)
	return f, err
}

// setPosition puts a position on record. The step's run has been begun.
func (st *step) setPosition(turn string, c keystore.Content, p *keystore.Position) error {
	value, err := st.v.codec.Encode(p)
	if err != nil {
		return err
	}
	key := positionKey(st.run.Place, turn, c)
	st.set(key, value)
	if st.positions == nil {
		st.positions = map[string]*keystore.Position{}
	}
	st.positions[string(key)] = p
	return nil
}

// move moves the position of the step's call.
func (st *step) move(r *keystore.Record, o *keystore.Ordinal, m keystore.Move) error {
	var was keystore.Position
	if st.isOnRecord() {
		var err error
		if was, err = st.v.position(st.run.Place, r.Key.Turn, o.Content); err != nil {
			return err
		}
	}
	run, p, err := keystore.Step(st.present(), was, o, keystore.IsEffect(r.Class), m)
	if err != nil {
		return err
	}
	st.beginRun(r.Key.Namespace, r.Key.Run)
	st.runFollows(run)
	return st.setPosition(r.Key.Turn, o.Content, &p)
}

// answered moves the position on with the receipt that settles its call.
// Knowledge comes first: the receipt is kept whatever becomes of the position.
func (st *step) answered(r *keystore.Record, o *keystore.Ordinal) {
	if o == nil || r.State != keystore.Succeeded && r.State != keystore.Rejected {
		return
	}
	err := st.move(r, o, keystore.Forth)
	if _, isRefused := errors.AsType[*keystore.Refused](err); err != nil && !isRefused {
		st.v.s.config.Logger.Error("a call was settled, and its agent's position stays behind", "run", r.Key.Run, "call", r.Key.Call, "error", err)
	}
}

// Position implements [keystore.Store].
func (s *Store) Position(_ context.Context, namespace, name, turn string, c keystore.Content) (p keystore.Position, err error) {
	err = s.read(func(r reader) error {
		in, err := s.runOnRecord(r, namespace, name)
		if errors.Is(err, keystore.ErrNotFound) {
			return nil
		}
		if err != nil {
			return err
		}
		p, err = r.position(in.Place, turn, c)
		return err
	})
	if err != nil {
		return keystore.Position{}, fmt.Errorf("reading a position in turn %q: %w", turn, err)
	}
	return p, nil
}

// Step implements [keystore.Store].
func (s *Store) Step(ctx context.Context, k keystore.Key, o *keystore.Ordinal, m keystore.Move) error {
	err := s.do(ctx, func(v *view) (*step, error) {
		st := v.step()
		c, err := st.open(k)
		if err != nil {
			return nil, err
		}
		if c == nil {
			return nil, keystore.ErrNotFound
		}
		return st, st.move(c.record, o, m)
	})
	if err != nil {
		return fmt.Errorf("moving the position of %s: %w", k, err)
	}
	return nil
}

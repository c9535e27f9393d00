package badger

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"

	"counterfoil/keystore"
)

// A planHead is what lies under a turn's key: where its plan is, and what of it
// every begin in the turn has to know.
type planHead struct {
	// Body is the encoded plan.
	Body   keystore.Body     `cbor:"1,keyasint"`
	Digest [sha256.Size]byte `cbor:"2,keyasint"`
	// Calls holds the hashes of the calls that the plan names, one after the
	// other.
	Calls []byte `cbor:"3,keyasint,omitempty"`
	// Advisory says that the plan refuses nothing, FromAnswer that it was read out
	// of a model's answer.
	Advisory   bool `cbor:"4,keyasint,omitempty"`
	FromAnswer bool `cbor:"5,keyasint,omitempty"`
	// whole is the plan itself, for operations of the batch that puts it.
	whole *keystore.Plan
}

// fact says what the plan, nil if there is none, says about a call.
func (h *planHead) fact(turn, call string) keystore.PlanFact {
	switch {
	case h == nil:
		return keystore.NoPlan
	case h.names(turn, call):
		return keystore.InPlan
	case h.Advisory:
		return keystore.NoPlan
	}
	return keystore.OutOfPlan
}

func (h *planHead) names(turn, call string) bool {
	hash := hashCall(turn, call)
	for rest := h.Calls; len(rest) >= len(hash); rest = rest[len(hash):] {
		if bytes.Equal(rest[:len(hash)], hash[:]) {
			return true
		}
	}
	return false
}

// of is what of the plan of that turn decides about another one.
func (h *planHead) of(turn string) *keystore.PlanHead {
	if h == nil {
		return nil
	}
	return &keystore.PlanHead{
		Digest: h.Digest, FromAnswer: h.FromAnswer, Calls: len(h.Calls) / len(callHash{}),
		Names: func(call string) bool { return h.names(turn, call) },
	}
}

// planHead returns the head of a turn's plan, nil if it has none.
func (r reader) planHead(place number, turn string) (*planHead, error) {
	value, err := r.get(planKey(place, turn))
	if value == nil || err != nil {
		return nil, err
	}
	head := new(planHead)
	if err := r.codec.Decode(value, head); err != nil {
		return nil, fmt.Errorf("the plan of turn %q: %w", turn, err)
	}
	return head, nil
}

// planHead sees the plans of the batch too.
func (v *view) planHead(place number, turn string) (*planHead, error) {
	if head, ok := v.heads[string(planKey(place, turn))]; ok {
		return head, nil
	}
	return v.reader.planHead(place, turn)
}

// PutPlan implements [keystore.Store].
func (s *Store) PutPlan(ctx context.Context, p *keystore.Plan, g keystore.Guard) (isNew bool, err error) {
	if err = errors.Join(p.Validate(), keystore.ValidatePart(p.Namespace)); err == nil {
		isNew, err = s.putPlan(ctx, p, g)
	}
	if err != nil {
		return false, fmt.Errorf("putting the plan of turn %q: %w", p.Turn, err)
	}
	return isNew, nil
}

func (s *Store) putPlan(ctx context.Context, p *keystore.Plan, g keystore.Guard) (isNew bool, err error) {
	if p.FromAnswer {
		err = s.do(ctx, func(v *view) (*step, error) {
			st := v.step()
			isNew, err = st.decide(p, g.Fence)
			switch {
			case err != nil || !isNew:
				return nil, err
			case s.space.room() != forAll:
				return nil, keystore.ErrFull
			}
			return st, nil
		})
		return isNew, err
	}
	if isNew, err = s.isNewPlan(p, g); err != nil || !isNew {
		return false, err
	}
	in, err := s.receivePlan(ctx, p)
	if err != nil {
		return false, err
	}
	err = s.do(ctx, func(v *view) (st *step, err error) {
		st, err = v.putPlan(p, g, in)
		isNew = st != nil
		return st, err
	})
	if err != nil || !isNew {
		in.release(ctx)
	}
	return isNew, err
}

// isNewPlan decides from what is durable, so that a plan that is there already is
// not written again.
func (s *Store) isNewPlan(p *keystore.Plan, g keystore.Guard) (isNew bool, err error) {
	err = s.read(func(r reader) error {
		in, err := s.runOnRecord(r, p.Namespace, p.Run)
		if errors.Is(err, keystore.ErrNotFound) {
			isNew = true
			return nil
		}
		if err != nil {
			return err
		}
		head, err := r.planHead(in.Place, p.Turn)
		if err != nil {
			return err
		}
		_, isNew, err = in.Run.PutPlan(p, head.of(p.Turn), g)
		return err
	})
	return isNew, err
}

// receivePlan takes a plan in. Its calls need room in the operation that names it,
// so what is long is staged to the last byte.
func (s *Store) receivePlan(ctx context.Context, p *keystore.Plan) (incoming, error) {
	kept := *p
	kept.CreatedAt = s.clock.now()
	b, err := s.codec.Encode(&kept)
	if err != nil {
		return incoming{}, err
	}
	if len(b) <= pieceBytes {
		return s.receive(ctx, b, InlineBytesMax)
	}
	g := s.newStage()
	if err := errors.Join(g.Write(ctx, b), g.flush(ctx)); err != nil {
		g.Discard(ctx)
		return incoming{}, err
	}
	return incoming{body: g.Body(), stage: g}, nil
}

// putPlan is PutPlan's atomic step; nil if the turn has that plan.
func (v *view) putPlan(p *keystore.Plan, g keystore.Guard, in incoming) (*step, error) {
	st := v.step()
	if err := st.openRun(p.Namespace, p.Run); err != nil {
		return nil, err
	}
	var old *planHead
	if st.isOnRecord() {
		var err error
		if old, err = v.planHead(st.run.Place, p.Turn); err != nil {
			return nil, err
		}
	}
	next, isNew, err := st.present().PutPlan(p, old.of(p.Turn), g)
	if err != nil || !isNew {
		return nil, err
	}
	if v.s.space.room() != forAll {
		return nil, keystore.ErrFull
	}
	st.beginRun(p.Namespace, p.Run)
	st.runFollows(next)
	if err := st.writePlan(p, old, in); err != nil {
		return nil, err
	}
	return st, st.plan(p)
}

// decided puts the plan of a model's answer on record, with the receipt of that
// answer. Knowledge comes first: the receipt is kept, though what the turn has
// cannot be read.
func (st *step) decided(r *keystore.Record, e *keystore.Event) error {
	p, fence := e.PlanOf(r)
	if p == nil {
		return nil
	}
	_, err := st.decide(p, fence)
	if errors.Is(err, keystore.ErrCorrupt) {
		st.v.s.config.Logger.Error("a model's answer was kept, and its plan was not", "run", p.Run, "turn", p.Turn, "error", err)
		return nil
	}
	return err
}

// planBefore puts the plan of a model's answer on record before the answer, where
// one step cannot hold both; without arguments, where it is too large by itself.
func (s *Store) planBefore(ctx context.Context, k keystore.Key, e *keystore.Event) error {
	r, err := s.Call(ctx, k)
	if err != nil || r.State != keystore.Pending || r.AttemptsMade != e.Attempt {
		return err
	}
	p, fence := e.PlanOf(r)
	if p == nil {
		return nil
	}
	_, err = s.putPlan(ctx, p, keystore.Guard{Fence: fence})
	if errors.Is(err, keystore.ErrTooLarge) {
		p = p.Outline()
		_ = p.SetDigest() // without arguments nothing is in its way
		_, err = s.putPlan(ctx, p, keystore.Guard{Fence: fence})
	}
	if errors.Is(err, keystore.ErrFull) {
		return nil // a receipt is kept, and its plan follows when it is asked for
	}
	return err
}

// decide joins the plan of a model's answer to what its turn has. Nothing is
// changed where isNew is false, or the error is ErrCorrupt.
func (st *step) decide(p *keystore.Plan, f keystore.Fence) (isNew bool, err error) {
	if !st.begun {
		if err := st.openRun(p.Namespace, p.Run); err != nil {
			return false, err
		}
	}
	var head *planHead
	var old *keystore.Plan
	if st.isOnRecord() {
		if head, err = st.v.planHead(st.run.Place, p.Turn); err != nil {
			return false, err
		}
	}
	if head != nil {
		if old = head.whole; old == nil {
			if old, err = st.v.plan(st.run, p.Turn); err != nil {
				return false, err
			}
		}
	}
	next, p := st.present().Decided(p, old, f)
	if p == nil {
		return false, nil
	}
	kept := *p
	kept.CreatedAt = st.now
	b, err := st.v.codec.Encode(&kept)
	if err != nil {
		return false, err
	}
	in := incoming{body: keystore.Body{Bytes: int64(len(b)), SHA256: sha256.Sum256(b)}, bytes: b}
	if len(b) <= InlineBytesMax {
		in.body.Inline, in.bytes = b, nil
	}
	st.beginRun(p.Namespace, p.Run)
	st.runFollows(next)
	if err := st.writePlan(&kept, head, in); err != nil {
		return false, err
	}
	return true, st.plan(&kept)
}

// writePlan puts a plan in the place of the one that old tells of, if there is one.
func (st *step) writePlan(p *keystore.Plan, old *planHead, in incoming) error {
	head := &planHead{Digest: p.Digest, Advisory: p.Advisory, FromAnswer: p.FromAnswer, whole: p}
	for i := range p.Calls {
		hash := hashCall(p.Turn, p.Calls[i].ID)
		head.Calls = append(head.Calls, hash[:]...)
	}
	var err error
	if head.Body, err = st.place(in); err != nil {
		return err
	}
	if old != nil {
		st.drop(old.Body)
	}
	value, err := st.v.codec.Encode(head)
	if err != nil {
		return err
	}
	key := planKey(st.run.Place, p.Turn)
	st.set(key, value)
	st.heads = map[string]*planHead{string(key): head}
	return nil
}

// plan puts the calls of a plan on record, but for those that are.
func (st *step) plan(p *keystore.Plan) error {
	for i := range p.Calls {
		k, e := p.Planned(i)
		there, err := st.v.hasCall(st.runNumber, k)
		if err != nil {
			return err
		}
		if there {
			continue
		}
		rec, err := keystore.Next(nil, e, st.now)
		if err != nil {
			return err
		}
		if err := st.record(k, nil, rec); err != nil {
			return err
		}
	}
	return nil
}

// hasCall reports whether a call is on record, be it one that cannot be read.
func (v *view) hasCall(run number, k keystore.Key) (bool, error) {
	hash := hashCall(k.Turn, k.Call)
	if _, ok := v.calls[callID{run, hash}]; ok {
		return true, nil
	}
	value, err := v.get(indexKey(run, hash))
	return value != nil, err
}

// Plan implements [keystore.Store].
func (s *Store) Plan(_ context.Context, namespace, name, turn string) (p *keystore.Plan, err error) {
	err = s.read(func(r reader) error {
		in, err := s.runOnRecord(r, namespace, name)
		if err != nil {
			return err
		}
		p, err = r.plan(in, turn)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("reading the plan of turn %q: %w", turn, err)
	}
	return p, nil
}

func (r reader) plan(in *run, turn string) (*keystore.Plan, error) {
	head, err := r.planHead(in.Place, turn)
	if err != nil {
		return nil, err
	}
	if head == nil {
		return nil, keystore.ErrNotFound
	}
	stored, err := r.wholeBody(head.Body)
	if err != nil {
		return nil, err
	}
	p := new(keystore.Plan)
	if err := r.codec.Decode(stored, p); err != nil {
		return nil, err
	}
	if p.Turn != turn || p.Run != in.Run.Name {
		return nil, fmt.Errorf("its place holds the plan of turn %q: %w", p.Turn, keystore.ErrCorrupt)
	}
	return p, nil
}

// wholeBody reads a body that is not long.
func (r reader) wholeBody(b keystore.Body) ([]byte, error) {
	if b.Bytes < 0 || b.Bytes > BodyBytesMax {
		return nil, fmt.Errorf("body %d: it has %d bytes: %w", b.Ref, b.Bytes, keystore.ErrCorrupt)
	}
	all := append(make([]byte, 0, b.Bytes), b.Inline...)
	if b.Ref != 0 {
		for i := range pieces(b.Bytes) {
			piece, err := r.get(pieceKey(number(b.Ref), i))
			if err != nil {
				return nil, err
			}
			all = append(all, piece...)
		}
	}
	if int64(len(all)) != b.Bytes || sha256.Sum256(all) != b.SHA256 {
		return nil, fmt.Errorf("body %d: its bytes are not those that were kept: %w", b.Ref, keystore.ErrCorrupt)
	}
	return all, nil
}

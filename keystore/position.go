package keystore

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
)

// An agent that names no calls is known by what it repeats: its calls are told
// apart by their content and by how many equal ones there were in the same turn
// of the same incarnation. A [Position] counts them.

// Bounds on a position.
const (
	// AheadMax is how many equal calls may have been answered while an earlier
	// one has not.
	AheadMax = 256
	// TiesMax is how many keys of SDKs are remembered for one content.
	TiesMax = 16
	// ContentChars is how many hexadecimal characters of a fingerprint tell
	// contents apart inside a turn.
	ContentChars = 12
)

// ErrTooManyAhead says that more than AheadMax equal calls are under way at once.
var ErrTooManyAhead = errors.New("too many equal calls are under way at once")

// A Content is the first ContentChars characters of a fingerprint.
type Content string

// OrdinalCall is the call id of the n-th equal call, counted from 0.
func OrdinalCall(c Content, slot uint32) string {
	return "auto-" + string(c) + "-" + strconv.FormatUint(uint64(slot), 10)
}

// An Ordinal is whose call a request without a call id is: the slot-th with
// that content in its turn, in the agent's incarnation.
type Ordinal struct {
	Content     Content
	Slot        uint32
	Incarnation uint64
	// Tie is a digest of the key that the client's SDK invented, which ties
	// that SDK's own retries together; empty if there was none.
	Tie Digest
}

// A Position is how far an agent has come with equal calls of one turn.
type Position struct {
	// Incarnation is the newest that made such a call. Slots below Known were
	// taken by earlier ones: to take them is to repeat.
	Incarnation uint64 `cbor:"1,keyasint"`
	Known       uint32 `cbor:"2,keyasint,omitempty"`
	// Taken is how many slots the incarnation has taken: 0 to Taken-1.
	Taken uint32 `cbor:"3,keyasint,omitempty"`
	// Through says that all slots below it were answered, and the answer's end
	// reached the client; Ahead lists the ones beyond.
	Through uint32   `cbor:"4,keyasint,omitempty"`
	Ahead   []uint32 `cbor:"5,keyasint,omitempty"`
	// Ties are the newest keys of SDKs and the slots that they took.
	Ties []Tie `cbor:"6,keyasint,omitempty"`
}

// A Tie is a key that an SDK invented, and the slot of its call.
type Tie struct {
	Key  Digest `cbor:"1,keyasint"`
	Slot uint32 `cbor:"2,keyasint"`
}

// In returns the position as an incarnation finds it. The error is a *Refused
// for Fenced: a newer incarnation has begun.
func (p Position) In(incarnation uint64) (Position, error) {
	switch {
	case incarnation < p.Incarnation:
		return p, &Refused{Reason: Fenced, Fence: Fence(p.Incarnation)}
	case incarnation > p.Incarnation:
		return Position{Incarnation: incarnation, Known: max(p.Known, p.Taken)}, nil
	}
	p.Ahead, p.Ties = slices.Clone(p.Ahead), slices.Clone(p.Ties)
	return p, nil
}

// Answered reports whether the answer to a slot has reached the client.
func (p Position) Answered(slot uint32) bool {
	return slot < p.Through || slices.Contains(p.Ahead, slot)
}

// SlotOf returns the slot that a key of an SDK took, and false if none did.
func (p Position) SlotOf(tie Digest) (uint32, bool) {
	for _, t := range p.Ties {
		if tie != "" && t.Key == tie {
			return t.Slot, true
		}
	}
	return 0, false
}

// take returns the position once the slot is taken, and which slots it took: from
// the first that was free up to this one. Equal calls in parallel come in any
// order, and whoever has a slot knows of those below it.
func (p Position) take(o *Ordinal) (next Position, took slots, err error) {
	if next, err = p.In(o.Incarnation); err != nil {
		return p, slots{}, err
	}
	if o.Slot >= next.Through && o.Slot-next.Through > AheadMax {
		return p, slots{}, fmt.Errorf("slot %d: %w", o.Slot, ErrTooManyAhead)
	}
	took = slots{from: next.Taken, to: max(next.Taken, o.Slot+1)}
	next.Taken = took.to
	if _, tied := next.SlotOf(o.Tie); o.Tie != "" && !tied {
		next.Ties = append(next.Ties, Tie{o.Tie, o.Slot})
		next.Ties = next.Ties[max(0, len(next.Ties)-TiesMax):]
	}
	return next, took, nil
}

// slots are those from one on up to another, which is not among them.
type slots struct{ from, to uint32 }

// below counts those that are below n.
func (s slots) below(n uint32) uint32 { return min(max(n, s.from), s.to) - s.from }

// answered returns the position once the slot's answer has reached its client.
func (p Position) answered(slot uint32) Position {
	if p.Answered(slot) {
		return p
	}
	p.Ahead = append(slices.Clone(p.Ahead), slot)
	slices.Sort(p.Ahead)
	for len(p.Ahead) > 0 && p.Ahead[0] == p.Through {
		p.Through++
		p.Ahead = p.Ahead[1:]
	}
	return p
}

// unanswered takes that back: the client did not get the answer after all.
func (p Position) unanswered(slot uint32) Position {
	if !p.Answered(slot) {
		return p
	}
	ahead := slices.DeleteFunc(slices.Clone(p.Ahead), func(s uint32) bool { return s == slot })
	if slot < p.Through {
		for s := p.Through; s > slot+1; s-- {
			ahead = append(ahead, s-1)
		}
		p.Through = slot
		slices.Sort(ahead)
	}
	p.Ahead = ahead
	return p
}

// Repeats is how far the newest incarnation of an agent without call ids has
// come.
type Repeats struct {
	Incarnation uint64 `cbor:"1,keyasint,omitempty"`
	// Effects counts the effects on record, Earlier those that were there when
	// the incarnation began, Repeated those of them that it has repeated.
	Effects  uint32 `cbor:"2,keyasint,omitempty"`
	Earlier  uint32 `cbor:"3,keyasint,omitempty"`
	Repeated uint32 `cbor:"4,keyasint,omitempty"`
	// DivergedAt is when an incarnation last sent a new effect while others
	// were not repeated yet.
	DivergedAt Instant `cbor:"5,keyasint,omitempty"`
	// Diverged says that this incarnation has.
	Diverged bool `cbor:"6,keyasint,omitempty"`
}

// in returns the repeats as an incarnation finds it.
func (p Repeats) in(incarnation uint64) Repeats {
	if incarnation > p.Incarnation {
		p.Incarnation, p.Earlier, p.Repeated, p.Diverged = incarnation, p.Effects, 0, false
	}
	return p
}

// diverges reports whether a new effect of that incarnation comes before all
// effects of earlier ones have been repeated.
func (p Repeats) diverges(incarnation uint64) bool {
	now := p.in(incarnation)
	return now.Repeated < now.Earlier
}

// A Move says which way a position moves.
type Move uint8

const (
	// Forth: the answer is about to end.
	Forth Move = iota + 1
	// Back: its end did not reach the client.
	Back
)

// Step moves a position, and the run's repeats with it, for a call of the given
// class. It takes the slot if that was not done. The error is a *Refused for
// Fenced, or wraps ErrTooManyAhead.
func Step(run *Run, p Position, o *Ordinal, isEffect bool, m Move) (*Run, Position, error) {
	next, repeats, err := takeSlot(run.Repeats, p, o, isEffect)
	if err != nil {
		return nil, p, err
	}
	switch m {
	case Forth:
		next = next.answered(o.Slot)
	case Back:
		next = next.unanswered(o.Slot)
	}
	r := *run
	r.Repeats = repeats
	return &r, next, nil
}

// takeSlot takes a slot, and counts what it took if that is an effect's.
func takeSlot(repeats Repeats, p Position, o *Ordinal, isEffect bool) (Position, Repeats, error) {
	if o.Incarnation < repeats.Incarnation {
		return p, repeats, &Refused{Reason: Fenced, Fence: Fence(repeats.Incarnation)}
	}
	next, took, err := p.take(o)
	if err != nil {
		return p, repeats, err
	}
	repeats = repeats.in(o.Incarnation)
	if isEffect {
		repeated := took.below(next.Known)
		repeats.Repeated += repeated
		repeats.Effects += took.to - took.from - repeated
	}
	return next, repeats, nil
}

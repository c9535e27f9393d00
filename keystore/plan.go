package keystore

import (
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"counterfoil/classify"
)

// Bounds on a plan.
const (
	// PlanBytesMax is how long its decision and arguments may be together.
	PlanBytesMax = 1 << 20
	// PlanCallsMax is how many calls it may name.
	PlanCallsMax = 1024
	// ToolBytesMax is how long the name of a tool may be.
	ToolBytesMax = 256
)

// A Plan is what a model decided in one turn, recorded before any of its tools
// runs.
type Plan struct {
	Namespace string `cbor:"1,keyasint"`
	Run       string `cbor:"2,keyasint"`
	Turn      string `cbor:"3,keyasint"`
	// Decision and Args are JSON as it was sent.
	Decision []byte        `cbor:"4,keyasint,omitempty"`
	Calls    []PlannedCall `cbor:"5,keyasint,omitempty"`
	// Digest is SHA-256 over the canonical JSON of decision and calls: equal
	// plans have equal digests, whatever the order of their members.
	Digest    [sha256.Size]byte `cbor:"6,keyasint"`
	CreatedAt Instant           `cbor:"7,keyasint"`
	// FromAnswer says that the sidecar has read the plan out of a model's answer;
	// Advisory, that it refuses nothing.
	FromAnswer bool `cbor:"8,keyasint,omitempty"`
	Advisory   bool `cbor:"9,keyasint,omitempty"`
}

// SetDigest takes the digest: SHA-256 over what the plan says, where what is left
// out counts as null. The error is for clients.
func (p *Plan) SetDigest() (err error) {
	canonical := []byte{'['}
	add := func(where string, text []byte) {
		if len(text) == 0 {
			text = []byte("null")
		}
		var ok bool
		if canonical, ok = classify.AppendCanonicalJSON(canonical, text); !ok && err == nil {
			err = fmt.Errorf("%s: it is not JSON that can be compared: too deep, or a character is cut in half", where)
		}
	}
	add("decision", p.Decision)
	for i := range p.Calls {
		c := &p.Calls[i]
		for _, name := range []string{c.ID, c.Tool} {
			text, marshalErr := json.Marshal(name)
			err = errors.Join(err, marshalErr)
			add("calls", text)
		}
		add(fmt.Sprintf("calls[%d].args", i), c.Args)
	}
	p.Digest = sha256.Sum256(canonical)
	return err
}

// A PlannedCall is one call that a plan names.
type PlannedCall struct {
	ID   string `cbor:"1,keyasint"`
	Tool string `cbor:"2,keyasint,omitempty"`
	Args []byte `cbor:"3,keyasint,omitempty"`
}

// Names reports whether the plan names a call.
func (p *Plan) Names(call string) bool {
	for i := range p.Calls {
		if p.Calls[i].ID == call {
			return true
		}
	}
	return false
}

// Outline is the plan without its decision and arguments: the calls that it
// names. Nil has none.
func (p *Plan) Outline() *Plan {
	if p == nil {
		return nil
	}
	o := *p
	o.Decision, o.Calls = nil, slices.Clone(p.Calls)
	for i := range o.Calls {
		o.Calls[i].Args = nil
	}
	return &o
}

// Validate reports what is over its limits. The error's text is for clients.
func (p *Plan) Validate() error {
	if err := errors.Join(partError("run", p.Run), partError("turn", p.Turn)); err != nil {
		return err
	}
	if len(p.Calls) > PlanCallsMax {
		return fmt.Errorf("calls: there are %d, a plan has at most %d", len(p.Calls), PlanCallsMax)
	}
	bytes := len(p.Decision)
	seen := make(map[string]bool, len(p.Calls))
	for i := range p.Calls {
		c := &p.Calls[i]
		bytes += len(c.Args)
		if err := partError(fmt.Sprintf("calls[%d].id", i), c.ID); err != nil {
			return err
		}
		if seen[c.ID] {
			return fmt.Errorf("calls[%d].id: %q is there twice", i, c.ID)
		}
		if len(c.Tool) > ToolBytesMax {
			return fmt.Errorf("calls[%d].tool: it has %d bytes, at most %d are kept", i, len(c.Tool), ToolBytesMax)
		}
		seen[c.ID] = true
	}
	if bytes > PlanBytesMax {
		return fmt.Errorf("decision and arguments have %d bytes, at most %d are kept", bytes, PlanBytesMax)
	}
	return nil
}

func partError(name, part string) error {
	if err := ValidatePart(part); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return nil
}

// A PlanFact is what the plan of a call's turn says about the call.
type PlanFact uint8

const (
	// NoPlan: the turn has none.
	NoPlan PlanFact = iota
	// InPlan: it names the call.
	InPlan
	// OutOfPlan: it does not.
	OutOfPlan
)

// Fact says what the plan, nil if there is none, says about a call.
func (p *Plan) Fact(call string) PlanFact {
	switch {
	case p == nil:
		return NoPlan
	case p.Names(call):
		return InPlan
	case p.Advisory:
		return NoPlan
	}
	return OutOfPlan
}

// A PlanHead is what of a turn's plan decides whether another may take its place.
type PlanHead struct {
	Digest     [sha256.Size]byte
	FromAnswer bool
	// Calls is how many calls the plan names, Names whether one of them is that.
	Calls int
	Names func(call string) bool
}

// Head is that of the plan; nil of none.
func (p *Plan) Head() *PlanHead {
	if p == nil {
		return nil
	}
	return &PlanHead{Digest: p.Digest, FromAnswer: p.FromAnswer, Calls: len(p.Calls), Names: p.Names}
}

// isCoveredBy reports whether a plan may take the place of h: an agent's word on
// what its model decided, where it leaves out nothing of that.
func (h *PlanHead) isCoveredBy(p *Plan) bool {
	if !h.FromAnswer || p.FromAnswer {
		return false
	}
	named := 0
	for i := range p.Calls {
		if h.Names(p.Calls[i].ID) {
			named++
		}
	}
	return named == h.Calls
}

// PutPlan returns the run with p as one more of its plans. r is nil where the run
// is not on record, old the turn's plan, nil if it has none. isNew is false where
// that plan is equal, and nothing changes. An agent's plan takes the place of one
// that was read out of a model's answer, if it names all of its calls. The error is
// a *Refused for what [Run.Check] refuses, or for PlanConflict.
func (r *Run) PutPlan(p *Plan, old *PlanHead, g Guard) (next *Run, isNew bool, err error) {
	switch err := r.Check(g); {
	case err != nil:
		return nil, false, err
	case old != nil && old.Digest == p.Digest:
		return r, false, nil
	case old != nil && old.isCoveredBy(p):
		return r, true, nil
	case old != nil:
		return nil, false, &Refused{Reason: PlanConflict}
	}
	c := Run{Namespace: p.Namespace, Name: p.Run}
	if r != nil {
		c = *r
	}
	if c.FlowVersion == "" {
		c.FlowVersion = g.FlowVersion
	}
	c.Plans++
	return &c, true, nil
}

// Planned returns the key of the i-th call, and the event that puts it on record
// as planned. What will be sent is not known yet: its record has neither a class
// nor a fingerprint until it is begun.
func (p *Plan) Planned(i int) (Key, Event) {
	k := Key{Namespace: p.Namespace, Run: p.Run, Turn: p.Turn, Call: p.Calls[i].ID}
	return k, Event{Kind: WasPlanned, Tool: p.Calls[i].Tool, Begin: &Beginning{Key: k}}
}

// Decided returns the run and the turn's plan as a model's answer leaves them,
// whose calls p names; nil twice where nothing changes. r is nil where the run is
// not on record, old the turn's plan, nil if it has none. An agent's own plan
// stays as it is; the calls of several answers add up. Who has lost the run's
// lease plans nothing: whoever has it asks the model again, or is answered as it
// was.
func (r *Run) Decided(p, old *Plan, f Fence) (*Run, *Plan) {
	next := Run{Namespace: p.Namespace, Name: p.Run}
	if r != nil {
		next = *r
	}
	switch {
	case next.Lease.Admits(f, false) != 0:
		return nil, nil
	case old == nil:
		next.Plans++
		return &next, p
	case !old.FromAnswer:
		return nil, nil
	}
	if joined := old.joinedBy(p); joined != nil {
		return &next, joined
	}
	return nil, nil
}

// joinedBy is the plan with the calls of another answer of its turn behind its
// own; nil where that changes nothing. What does not fit any more is not named,
// and then the plan refuses nothing.
func (p *Plan) joinedBy(more *Plan) *Plan {
	joined, bytes := *p, len(p.Decision)
	joined.Calls = slices.Clip(p.Calls)
	joined.Advisory = p.Advisory || more.Advisory
	named := make(map[string]bool, len(p.Calls))
	for i := range p.Calls {
		named[p.Calls[i].ID] = true
		bytes += len(p.Calls[i].Args)
	}
	for _, c := range more.Calls {
		switch {
		case named[c.ID]:
			continue
		case len(joined.Calls) == PlanCallsMax:
			joined.Advisory = true
			continue
		case bytes+len(c.Args) > PlanBytesMax:
			c.Args = nil
		}
		bytes += len(c.Args)
		joined.Calls = append(joined.Calls, c)
	}
	if len(joined.Calls) == len(p.Calls) && joined.Advisory == p.Advisory {
		return nil
	}
	_ = joined.SetDigest() // both had one
	return &joined
}

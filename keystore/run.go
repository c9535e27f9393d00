package keystore

import (
	"fmt"
	"maps"
	"time"
	"unicode/utf8"
)

// Bounds on what is kept with a run.
const (
	// LabelsMax is how many labels a run may have; a label's name has 1 to
	// LabelNameBytesMax bytes, its value up to LabelValueBytesMax.
	LabelsMax          = 16
	LabelNameBytesMax  = 64
	LabelValueBytesMax = 256
	// BudgetUpstreamsMax is for how many upstreams a budget may name a limit.
	BudgetUpstreamsMax = 32
	// LeaseTTLMin and LeaseTTLMax bound a lease.
	LeaseTTLMin = time.Second
	LeaseTTLMax = 24 * time.Hour
)

// A Run is what is on record about one run. What follows from its calls (its
// state, its totals) is derived, never stored.
type Run struct {
	Namespace string  `cbor:"1,keyasint"`
	Name      string  `cbor:"2,keyasint"`
	CreatedAt Instant `cbor:"3,keyasint"`
	// TouchedAt is when something of the run last changed, exact to the
	// store's retention step.
	TouchedAt Instant `cbor:"4,keyasint"`
	// EndedAt is when the run's result was stored.
	EndedAt Instant `cbor:"5,keyasint,omitempty"`

	// FlowVersion is the first that was named, and pinned for good; empty if none
	// was. 1 to 256 bytes.
	FlowVersion string            `cbor:"6,keyasint,omitempty"`
	Labels      map[string]string `cbor:"7,keyasint,omitempty"`
	Budget      Budget            `cbor:"8,keyasint,omitzero"`
	// Begun counts the effects begun, by upstream: calls, not attempts.
	Begun map[string]uint32 `cbor:"9,keyasint,omitempty"`
	// Lease is the newest; its fence is 0 if the run has never had one.
	Lease Lease `cbor:"10,keyasint,omitzero"`
	// Plans counts the turns that have a plan.
	Plans uint32 `cbor:"11,keyasint,omitempty"`
	// Repeats is how far the newest incarnation has come with repeating what
	// earlier ones did.
	Repeats Repeats `cbor:"12,keyasint,omitzero"`
}

// A Budget bounds how many effects a run may begin; nil and absent are no
// bound.
type Budget struct {
	Effects   *uint32           `cbor:"1,keyasint,omitempty"`
	Upstreams map[string]uint32 `cbor:"2,keyasint,omitempty"`
}

// EffectsBegun is the sum of Begun.
func (r *Run) EffectsBegun() uint32 {
	var sum uint32
	for _, n := range r.Begun {
		sum += n
	}
	return sum
}

// exhausted reports whether one more effect at that upstream would be over the
// budget.
func (r *Run) exhausted(upstream string) bool {
	if limit := r.Budget.Effects; limit != nil && r.EffectsBegun() >= *limit {
		return true
	}
	limit, isBound := r.Budget.Upstreams[upstream]
	return isBound && r.Begun[upstream] >= limit
}

// A RunState is where a run stands. It follows from its calls and its result.
type RunState uint8

const (
	// ActiveRun: it can go on.
	ActiveRun RunState = iota + 1
	// PausedRun: one of its calls is unknown.
	PausedRun
)

var runStateNames = [...]string{ActiveRun: "active", PausedRun: "paused"}

func (s RunState) String() string {
	if s > 0 && int(s) < len(runStateNames) {
		return runStateNames[s]
	}
	return "invalid"
}

// ParseRunState returns the state of that name, or false.
func ParseRunState(name string) (RunState, bool) {
	for s := ActiveRun; int(s) < len(runStateNames); s++ {
		if runStateNames[s] == name {
			return s, true
		}
	}
	return 0, false
}

// State is the run's state.
func (s *RunSummary) State() RunState {
	if s.Calls[Unknown] > 0 {
		return PausedRun
	}
	return ActiveRun
}

// A RunSpec is what a client says about a run, to be made if it is not there.
type RunSpec struct {
	Namespace, Run string
	// FlowVersion is pinned if none is; empty says nothing.
	FlowVersion string
	// Budget and Labels take the place of what is on record; nil says nothing.
	Budget *Budget
	Labels map[string]string
}

// Validate reports what is over its limits. The error's text is for clients.
func (q *RunSpec) Validate() error {
	if err := ValidatePart(q.Run); err != nil {
		return fmt.Errorf("run: %w", err)
	}
	if q.FlowVersion != "" {
		if err := ValidatePart(q.FlowVersion); err != nil {
			return fmt.Errorf("flow_version: %w", err)
		}
	}
	if len(q.Labels) > LabelsMax {
		return fmt.Errorf("labels: there are %d, at most %d are kept", len(q.Labels), LabelsMax)
	}
	for name, value := range q.Labels {
		if name == "" || len(name) > LabelNameBytesMax || len(value) > LabelValueBytesMax || !utf8.ValidString(name+value) {
			return fmt.Errorf("labels: a name is 1 to %d bytes of UTF-8, a value at most %d", LabelNameBytesMax, LabelValueBytesMax)
		}
	}
	if q.Budget == nil {
		return nil
	}
	return q.Budget.validate()
}

func (b *Budget) validate() error {
	if len(b.Upstreams) > BudgetUpstreamsMax {
		return fmt.Errorf("budget: it names %d upstreams, at most %d are kept", len(b.Upstreams), BudgetUpstreamsMax)
	}
	for upstream := range b.Upstreams {
		if err := ValidatePart(upstream); err != nil {
			return fmt.Errorf("budget: an upstream's name: %w", err)
		}
	}
	return nil
}

// Put returns what is on record once q is; r is nil where the run is not on
// record. The error is a *Refused for FlowVersionMismatch. changed is false
// where q says nothing new.
func (r *Run) Put(q *RunSpec, now Instant) (next *Run, changed bool, err error) {
	if r == nil {
		r = &Run{Namespace: q.Namespace, Name: q.Run, CreatedAt: now}
		changed = true
	}
	c := *r
	switch {
	case q.FlowVersion == "" || q.FlowVersion == c.FlowVersion:
	case c.FlowVersion != "":
		return nil, false, &Refused{Reason: FlowVersionMismatch, FlowVersion: c.FlowVersion}
	default:
		c.FlowVersion, changed = q.FlowVersion, true
	}
	if q.Budget != nil && !c.Budget.equal(q.Budget) {
		c.Budget, changed = *q.Budget, true
	}
	if q.Labels != nil && !maps.Equal(c.Labels, q.Labels) {
		c.Labels, changed = q.Labels, true
	}
	if changed {
		c.TouchedAt = now
	}
	return &c, changed, nil
}

func (b *Budget) equal(o *Budget) bool {
	sameEffects := b.Effects == nil && o.Effects == nil || b.Effects != nil && o.Effects != nil && *b.Effects == *o.Effects
	return sameEffects && maps.Equal(b.Upstreams, o.Upstreams)
}

// A Lease is a run's claim by one holder. Its fence is never given out again.
type Lease struct {
	Fence Fence  `cbor:"1,keyasint,omitempty"`
	Owner string `cbor:"2,keyasint,omitempty"`
	// TTL is for how long it was given, from At on.
	TTL time.Duration `cbor:"3,keyasint,omitempty"`
	// At is when it was given or last renewed, and Era the span of the store's
	// watch in which that was: instants of different eras cannot be compared.
	At  Instant `cbor:"4,keyasint,omitempty"`
	Era uint64  `cbor:"5,keyasint,omitempty"`
	// Epoch is the life of the sidecar that gave it or last renewed it.
	Epoch Epoch `cbor:"6,keyasint,omitempty"`
	// Released says that its holder gave it back.
	Released bool `cbor:"7,keyasint,omitempty"`
}

// A Watch is the clock that leases are judged by. It does not follow the wall
// clock when that is set: within an era it only counts what has passed. Where an
// era begins, nobody can tell how long the one before is over, so its leases
// count as given anew.
type Watch struct {
	// Now is the time on this watch, Began what it showed when the era began.
	Now, Began Instant
	Era        uint64
	// Epoch is the asking sidecar's life.
	Epoch Epoch
}

// left is how much of the lease is left; 0 or less if it is over.
func (l *Lease) left(w Watch) time.Duration {
	if l.Fence == 0 || l.Released {
		return 0
	}
	from := l.At
	if l.Era != w.Era {
		from = w.Began
	}
	return time.Duration(from.Add(l.TTL) - w.Now)
}

// Left is how much of the lease is left, 0 if it is over or was never given.
func (l *Lease) Left(w Watch) time.Duration { return max(0, l.left(w)) }

// A LeaseRequest asks for a run's lease.
type LeaseRequest struct {
	Namespace, Run string
	// Owner is a name for people, 1 to 256 bytes. It proves nothing: a process
	// that was frozen has its successor's name.
	Owner string
	TTL   time.Duration
	// From says from whom the lease may be taken.
	From Predecessor
}

// A Predecessor says whose lease a request may end.
type Predecessor uint8

const (
	// FromNobody: only a lease that is over.
	FromNobody Predecessor = iota
	// FromOwnEarlierLife: also one that the same owner held through a sidecar
	// whose epoch is dead. Only for an owner that dies with its sidecar.
	FromOwnEarlierLife
)

// A Grant is a lease as its holder sees it.
type Grant struct {
	Fence Fence
	Owner string
	// Left is how much of it is left; the holder has to renew before.
	Left time.Duration
	TTL  time.Duration
	// ExpiresAt is Left from now on the store's wall clock, for people; 0 if the
	// lease is over.
	ExpiresAt Instant
}

// Grant is the lease as its holder sees it. now is the store's wall clock.
func (l *Lease) Grant(w Watch, now Instant) Grant {
	g := Grant{Fence: l.Fence, Owner: l.Owner, Left: l.Left(w), TTL: l.TTL}
	if g.Left > 0 {
		g.ExpiresAt = now.Add(g.Left)
	}
	return g
}

// Validate reports what is over its limits. The error's text is for clients.
func (q *LeaseRequest) Validate() error {
	if err := ValidatePart(q.Run); err != nil {
		return fmt.Errorf("run: %w", err)
	}
	if err := ValidatePart(q.Owner); err != nil {
		return fmt.Errorf("owner: %w", err)
	}
	return ValidateTTL(q.TTL)
}

// ValidateTTL reports whether a lease may be given for that long.
func ValidateTTL(ttl time.Duration) error {
	if ttl < LeaseTTLMin || ttl > LeaseTTLMax {
		return fmt.Errorf("ttl_seconds: a lease is given for %d to %d seconds", int(LeaseTTLMin.Seconds()), int(LeaseTTLMax.Seconds()))
	}
	return nil
}

// Acquire returns the lease that q gets, with the next fence. isDead says that
// the epoch that gave the present lease is dead, as far as the store knows. The
// error is a *Refused for LeaseHeld.
func (l *Lease) Acquire(q *LeaseRequest, w Watch, isDead bool) (Lease, error) {
	left := l.left(w)
	if inherits := q.From == FromOwnEarlierLife && isDead && l.Owner == q.Owner; left > 0 && !inherits {
		return *l, &Refused{Reason: LeaseHeld, Fence: l.Fence, Owner: l.Owner, After: left}
	}
	return Lease{Fence: l.Fence + 1, Owner: q.Owner, TTL: q.TTL, At: w.Now, Era: w.Era, Epoch: w.Epoch}, nil
}

// Renew returns the lease with ttl to go; 0 is as long as it was given for. The
// error is a *Refused for Fenced once the lease is lost: superseded, released,
// or over, though nobody has taken it yet.
func (l *Lease) Renew(fence Fence, ttl time.Duration, w Watch) (Lease, error) {
	if fence != l.Fence || l.left(w) <= 0 {
		return *l, &Refused{Reason: Fenced, Fence: l.Fence}
	}
	next := *l
	if ttl != 0 {
		next.TTL = ttl
	}
	next.At, next.Era, next.Epoch = w.Now, w.Era, w.Epoch
	return next, nil
}

// Release returns the lease given back. Releasing once more changes nothing. The
// error is a *Refused for Fenced.
func (l *Lease) Release(fence Fence) (Lease, error) {
	if fence == 0 || fence != l.Fence {
		return *l, &Refused{Reason: Fenced, Fence: l.Fence}
	}
	next := *l
	next.Released = true
	return next, nil
}

// Admits checks a fence against the newest: 0, or a *Refused's reason. A lease
// that is over, but that nobody has taken, still admits: its fence is the
// newest. required says that who names none is refused.
func (l *Lease) Admits(fence Fence, required bool) Reason {
	switch {
	case l.Fence == 0 && fence == 0:
		return 0
	case fence == 0 && required:
		return FenceRequired
	case fence == 0:
		return 0
	case fence != l.Fence, l.Released:
		return Fenced
	}
	return 0
}

// A Refused is the error of an operation that was refused for what is on
// record. Nothing has changed.
type Refused struct {
	Reason Reason
	// Fence is the newest, with Fenced, FenceRequired and LeaseHeld.
	Fence Fence
	// Owner and After are the holder and when to ask again, with LeaseHeld.
	Owner string
	After time.Duration
	// FlowVersion is the pinned one, with FlowVersionMismatch.
	FlowVersion string
	// Operation is the number of the operation, from 0, with ETagMismatch and
	// ItemExists; Version the item's present one, 0 if there is none.
	Operation int
	Version   ItemVersion
	// Call is the one without a receipt, with ReceiptRequired.
	Call Key
}

func (e *Refused) Error() string { return "refused: " + e.Reason.String() }

// A Guard is what a write that belongs to a run is checked against. The zero
// Guard names no run.
type Guard struct {
	Run         string
	Fence       Fence
	FlowVersion string
}

// Check checks a guard against its run, which is nil where it is not on record.
// The error is a *Refused.
func (r *Run) Check(g Guard) error {
	if r == nil {
		r = &Run{}
	}
	if reason := r.Lease.Admits(g.Fence, true); reason != 0 {
		return &Refused{Reason: reason, Fence: r.Lease.Fence}
	}
	if g.FlowVersion != "" && r.FlowVersion != "" && g.FlowVersion != r.FlowVersion {
		return &Refused{Reason: FlowVersionMismatch, FlowVersion: r.FlowVersion}
	}
	return nil
}

// begun counts an effect.
func (r *Run) begun(upstream string) {
	r.Begun = maps.Clone(r.Begun)
	if r.Begun == nil {
		r.Begun = map[string]uint32{}
	}
	r.Begun[upstream]++
}

// Clone returns a copy of r that shares no memory with it.
func (r *Run) Clone() *Run {
	c := *r
	c.Labels, c.Begun = maps.Clone(r.Labels), maps.Clone(r.Begun)
	c.Budget.Upstreams = maps.Clone(r.Budget.Upstreams)
	if r.Budget.Effects != nil {
		effects := *r.Budget.Effects
		c.Budget.Effects = &effects
	}
	return &c
}

// Swept returns what stays of a run while its tombstones do: its name and its
// newest lease, given back, so that its fence goes on growing if its name is used
// again.
func (r *Run) Swept() Run {
	s := Run{Namespace: r.Namespace, Name: r.Name, TouchedAt: r.TouchedAt, Lease: r.Lease}
	s.Lease.Released = s.Lease.Fence != 0
	return s
}

package journal

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"sync"
	"time"

	"counterfoil/internal/crashpoint"
	"counterfoil/keystore"
)

// AtOnceMax is how long an answer may be that leaves in one write. The position
// of a shorter one moves on in the commit of its receipt, that of a longer one
// by Ending, before its last piece.
const AtOnceMax = 16 << 10

// repeatsPatience is how long the first new effect of an incarnation waits for
// the repetition of earlier ones, before it counts as diverged; repeatsPoll how
// often it looks.
const (
	repeatsPatience = time.Second
	repeatsPoll     = 25 * time.Millisecond
)

// Counted is what a request without a call id says about whose call it is.
type Counted struct {
	// Incarnation is the life of the agent that it names.
	Incarnation uint64
	// Tie is what the client's SDK sends with each of its own tries of one call;
	// empty if it sends nothing of the kind.
	Tie string
	// Retry says that the client's SDK calls the request a retry.
	Retry bool
}

// An Arrival says whether the end of an answer reached its client, as far as can
// be told: what was written may still not have been read.
type Arrival uint8

const (
	// NotArrived: a write failed, or the client had gone before the last one.
	NotArrived Arrival = iota
	// Arrived: all of it was written while the client was there.
	Arrived
)

// lanes are the calls without ids that are under way, by content. Nothing of a
// lane outlives the requests in it, but what is owed to the store.
type lanes struct {
	mu sync.Mutex
	of map[laneName]*lane
}

type laneName struct {
	namespace, run, turn string
	content              keystore.Content
	incarnation          uint64
}

// A lane is what is under way for equal calls of one turn and incarnation. The
// store alone knows how far they have come; what is here says who is there.
type lane struct {
	name laneName
	refs int

	mu    sync.Mutex
	slots map[uint32]*slot
}

// A slot is one of the equal calls, while somebody is on it.
type slot struct {
	seats []*seat
	// moving is held while the store moves the position for this slot.
	moving sync.Mutex
	// ending counts the answers whose end is on its way; none is closed when
	// there is none any more.
	ending int
	none   chan struct{}
	// moved says that the store may have the slot as answered, arrived that a
	// client has the whole answer, owed that the store is to take it back.
	moved, arrived, owed bool
}

// A seat is one request's place on a slot.
type seat struct {
	lane    *lane
	slot    *slot
	ordinal keystore.Ordinal
	alive   func() bool
	// key is the call's, whose position moves.
	key keystore.Key
	// moved says that the store may have the slot as answered on this request's
	// account, durable that it has.
	moved, durable bool
}

func (ls *lanes) join(n laneName) *lane {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	if ls.of == nil {
		ls.of = make(map[laneName]*lane)
	}
	l := ls.of[n]
	if l == nil {
		l = &lane{name: n, slots: map[uint32]*slot{}}
		ls.of[n] = l
	}
	l.refs++
	return l
}

func (ls *lanes) leave(l *lane) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	if l.refs--; l.refs == 0 {
		delete(ls.of, l.name)
	}
}

// count finds out which of the equal calls the request is, and names it so.
func (w *work) count(ctx context.Context) *Refusal {
	c := w.call
	content := keystore.Content(w.fingerprint.String()[:keystore.ContentChars])
	l := w.lanes.join(laneName{c.Key.Namespace, c.Key.Run, c.Key.Turn, content, c.Ordinal.Incarnation})
	o := keystore.Ordinal{Content: content, Incarnation: c.Ordinal.Incarnation}
	if c.Ordinal.Tie != "" {
		o.Tie = keystore.Digest(w.mac([]byte(c.Ordinal.Tie)))
	}
	s := &seat{lane: l, ordinal: o, alive: c.isAlive}
	if err := w.sit(ctx, s, c.Ordinal.Retry); err != nil {
		w.lanes.leave(l)
		return w.notCounted(ctx, err)
	}
	c.Key.Call = keystore.OrdinalCall(content, s.ordinal.Slot)
	s.key = c.Key
	w.gate.stay()
	w.seat = s
	return nil
}

// notCounted refuses a request that found no slot.
func (w *work) notCounted(ctx context.Context, err error) *Refusal {
	var refused *keystore.Refused
	switch {
	case errors.As(err, &refused):
		return w.fenced(ctx)
	case errors.Is(err, keystore.ErrTooManyAhead):
		return &Refusal{
			Problem: InProgress, RetryAfter: time.Second, EffectPossible: true,
			Detail: "This turn has too many equal calls under way at once, and the first of them has no answer yet. Nothing was sent. " +
				"Send it again later, or give each call an id of its own.",
		}
	case ctx.Err() != nil:
		return w.cutOff().Refusal
	}
	return w.storeTrouble(err).Refusal
}

// sit waits for the ends of answers whose clients have gone, and takes a slot.
func (w *work) sit(ctx context.Context, s *seat, isRetry bool) error {
	for {
		pending, err := w.trySit(ctx, s, isRetry)
		if pending == nil {
			return err
		}
		select {
		case <-pending:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// trySit takes a slot, unless it has to be known first whether an answer reaches
// its client: then it returns what is closed once it is. The position is read
// while nobody can leave the lane: who has left is in it.
func (w *work) trySit(ctx context.Context, s *seat, isRetry bool) (pending <-chan struct{}, err error) {
	l := s.lane
	l.mu.Lock()
	defer l.mu.Unlock()
	n := &l.name
	p, err := w.store.Position(ctx, n.namespace, n.run, n.turn, n.content)
	if err == nil {
		p, err = p.In(n.incarnation)
	}
	if err != nil {
		return nil, err
	}
	number, pending, err := l.choose(&p, s, isRetry)
	if err != nil || pending != nil {
		return pending, err
	}
	s.ordinal.Slot = number
	if s.slot = l.slots[number]; s.slot == nil {
		s.slot = &slot{}
		l.slots[number] = s.slot
	}
	s.slot.seats = append(s.slot.seats, s)
	return nil, nil
}

// choose says which slot a request is on: the one that its tie names; else the
// lowest that has no answer and nobody waiting for it; else, where an SDK says
// that it tries again, the newest; else, where its client has gone by now, one
// that a client waits for, since that may be its own repeat, which has overtaken
// it; else a new one.
func (l *lane) choose(p *keystore.Position, who *seat, isRetry bool) (number uint32, pending <-chan struct{}, err error) {
	tie := who.ordinal.Tie
	if number, tied := l.tied(p, tie); tied {
		return number, nil, nil
	}
	taken := p.Taken
	for number := range l.slots {
		taken = max(taken, number+1)
	}
	for _, number := range l.candidates(p, taken) {
		s := l.slots[number]
		switch {
		case s != nil && s.isTaken(), (s == nil || !s.owed && s.ending == 0) && p.Answered(number):
		case s != nil && s.ending > 0:
			return 0, s.none, nil
		default:
			return number, nil, nil
		}
	}
	awaited, isAwaited := l.awaited()
	switch {
	case isRetry && tie == "" && taken > 0:
		return taken - 1, nil, nil
	case isAwaited && !who.alive():
		return awaited, nil, nil
	case taken-min(taken, p.Through) > keystore.AheadMax:
		return 0, nil, keystore.ErrTooManyAhead
	}
	return taken, nil, nil
}

// awaited returns the newest slot that a client waits for.
func (l *lane) awaited() (newest uint32, found bool) {
	for number, s := range l.slots {
		if s.isTaken() && (!found || number > newest) {
			newest, found = number, true
		}
	}
	return newest, found
}

// tied returns the slot of a tie. An SDK that ties its tries together and whose
// tie is not known has not been here before.
func (l *lane) tied(p *keystore.Position, tie keystore.Digest) (uint32, bool) {
	if tie == "" {
		return 0, false
	}
	for number, s := range l.slots {
		if slices.ContainsFunc(s.seats, func(other *seat) bool { return other.ordinal.Tie == tie }) {
			return number, true
		}
	}
	return p.SlotOf(tie)
}

// candidates are the slots that may have no answer, from the lowest on.
func (l *lane) candidates(p *keystore.Position, taken uint32) []uint32 {
	var list []uint32
	for number := range l.slots {
		if number < p.Through {
			list = append(list, number)
		}
	}
	slices.Sort(list)
	for number := p.Through; number < taken; number++ {
		list = append(list, number)
	}
	return list
}

// isTaken reports whether a client waits for the slot's answer, or has it on its
// way.
func (s *slot) isTaken() bool {
	return slices.ContainsFunc(s.seats, func(one *seat) bool { return one.alive() })
}

// forth moves the position on, by do, before an answer ends.
func (s *seat) forth(do func() error) error {
	s.slot.moving.Lock()
	defer s.slot.moving.Unlock()
	s.lane.mu.Lock()
	if !s.moved {
		if s.slot.ending++; s.slot.ending == 1 {
			s.slot.none = make(chan struct{})
		}
	}
	s.moved, s.slot.moved = true, true
	s.lane.mu.Unlock()
	err := do()
	if err == nil {
		s.lane.mu.Lock()
		s.durable, s.slot.owed = true, false
		s.lane.mu.Unlock()
	}
	return err
}

// rise gives the seat up, and reports whether the store is now to take back that
// the slot was answered.
func (s *seat) rise(a Arrival) (owed bool) {
	s.lane.mu.Lock()
	defer s.lane.mu.Unlock()
	slot := s.slot
	slot.seats = slices.DeleteFunc(slot.seats, func(one *seat) bool { return one == s })
	if s.moved {
		slot.arrived = slot.arrived || s.durable && a == Arrived
		if slot.ending--; slot.ending == 0 {
			slot.owed = slot.moved && !slot.arrived
			close(slot.none)
		}
	}
	s.forget()
	return slot.owed && slot.ending == 0
}

// forget drops a slot that nobody is on. It needs the lane's mu.
func (s *seat) forget() {
	if len(s.slot.seats) == 0 && !s.slot.owed && s.lane.slots[s.ordinal.Slot] == s.slot {
		delete(s.lane.slots, s.ordinal.Slot)
	}
}

// counts reports whether the agent that has the whole of this reply has come
// further: only what is on record for good does that.
func (r *Reply) counts() bool {
	return r.Refusal == nil && !r.Broken && r.Record != nil &&
		(r.Record.State == keystore.Succeeded || r.Record.State == keystore.Rejected)
}

// Counts reports whether the answer moves the position of an agent without call
// ids, so that Ending has to come before its end, and Ended after it.
func (r *Reply) Counts() bool { return r.seat != nil && r.counts() }

// Ending is to be called when the head and all but the last piece of a reply are
// out, or nothing of one that leaves in one write: it makes the agent's position
// durable. If it refuses, the answer must not end: a refusal can take its place
// if nothing of it is out, else its connection is to be broken off. It does
// nothing where nothing is counted, where the receipt's commit has done it, and
// where the client has gone.
func (j *Journal) Ending(ctx context.Context, r *Reply) *Refusal {
	s := r.seat
	if s == nil || !r.counts() || s.durable || !s.alive() {
		return nil
	}
	crashpoint.Reach(crashpoint.StepBefore)
	err := s.forth(func() error { return j.store.Step(context.WithoutCancel(ctx), s.key, &s.ordinal, keystore.Forth) })
	var refused *keystore.Refused
	switch {
	case errors.As(err, &refused):
		return j.fenced(ctx, s.key, 0, s.ordinal.Incarnation)
	case err != nil:
		j.observe.trouble("moving the position of a call", s.key, err)
		return &Refusal{
			Problem: JournalUnavailable, RetryAfter: time.Second, EffectPossible: true,
			Detail: "The answer is on record, and the journal cannot put on record now that the agent gets it. Send the same request again; nothing is sent twice.",
		}
	}
	crashpoint.Reach(crashpoint.StepAfter)
	return nil
}

// Ended is to be called once for every reply of Do, after its last byte was
// written or was not. The reply must not be used any more.
func (j *Journal) Ended(r *Reply, a Arrival) {
	s := r.seat
	if s == nil {
		return
	}
	if r.seat = nil; !r.counts() {
		a = NotArrived
	}
	defer j.gate.leave()
	defer j.lanes.leave(s.lane)
	if s.rise(a) && !j.takeBack(s) {
		j.takeBackLater(s)
	}
}

// takeBack puts on record that the slot was not answered after all, unless it
// has been since. It reports whether the store has taken it.
func (j *Journal) takeBack(s *seat) bool {
	s.slot.moving.Lock()
	defer s.slot.moving.Unlock()
	s.lane.mu.Lock()
	owed := s.slot.owed && s.slot.ending == 0
	s.lane.mu.Unlock()
	if !owed {
		return true
	}
	err := j.store.Step(context.Background(), s.key, &s.ordinal, keystore.Back)
	var refused *keystore.Refused // a newer incarnation counts anew
	if err != nil && !errors.As(err, &refused) && !errors.Is(err, keystore.ErrNotFound) {
		j.observe.trouble("taking back the position of a call", s.key, err)
		return false
	}
	s.lane.mu.Lock()
	defer s.lane.mu.Unlock()
	s.slot.owed, s.slot.moved = false, false
	s.forget()
	return true
}

// takeBackLater repeats it until the store takes it. Until then the lane stays,
// and knows better than the store.
func (j *Journal) takeBackLater(s *seat) {
	l := j.lanes.join(s.lane.name)
	j.later(func() bool { return j.takeBack(s) }, func() { j.lanes.leave(l) })
}

// awaitRepeats lets calls that this one came before catch up: an agent that sends
// several in parallel sends them in any order.
func (w *work) awaitRepeats(ctx context.Context) *Reply {
	if w.repeatWaits++; time.Duration(w.repeatWaits)*repeatsPoll > min(repeatsPatience, w.call.Wait) {
		w.ask.AwaitRepeats = false
		return nil
	}
	_ = sleep(ctx, repeatsPoll) // its end is noticed in the next step
	return nil
}

// fenced refuses an agent, or a holder of a lease, that may not act for the run
// any more: f is the fence that it names, and incarnation the life, 0 if it names
// none.
func (j *Journal) fenced(ctx context.Context, k keystore.Key, f keystore.Fence, incarnation uint64) *Refusal {
	r := &Refusal{Problem: Fenced, Detail: "A newer holder has this run."}
	if sum, err := j.store.Run(ctx, k.Namespace, k.Run); err == nil {
		r.explainFence(&sum.Run, f, incarnation)
	}
	r.Detail += " Nothing was sent. Stop this one."
	if f != 0 {
		r.Detail += " To take part again, take the lease anew."
	}
	return r
}

func (r *Refusal) explainFence(run *keystore.Run, f keystore.Fence, incarnation uint64) {
	newest := run.Lease.Fence
	switch {
	case f != 0 && f == newest && run.Lease.Released:
		r.Fence, r.Detail = newest, "The lease with this fence was given back."
	case f > newest:
		r.Fence, r.Detail = newest, "This fence was never given out for this run."
	case f == 0 && incarnation < run.Repeats.Incarnation:
		r.Fence = keystore.Fence(run.Repeats.Incarnation)
		r.Detail = "A newer life of this agent has begun: number " + strconv.FormatUint(run.Repeats.Incarnation, 10) + "."
	default:
		r.Fence, r.Owner = newest, run.Lease.Owner
		r.Detail += " The newest fence is " + strconv.FormatUint(uint64(newest), 10) + "."
	}
}

func (w *work) fenced(ctx context.Context) *Refusal {
	var incarnation uint64
	if w.call.Ordinal != nil {
		incarnation = w.call.Ordinal.Incarnation
	}
	return w.Journal.fenced(ctx, w.call.Key, w.call.Fence, incarnation)
}

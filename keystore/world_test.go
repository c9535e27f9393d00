package keystore

import (
	"testing"
	"time"

	"counterfoil/classify"

	"pgregory.net/rapid"
)

// A provider keeps a ledger of true effects. What it promises, it keeps; all
// that it does not promise goes wrong as often as the schedule likes.
type provider struct {
	class     classify.Class
	retention time.Duration
	errors    ErrorReplay
	// isConditional says that a request names the version it expects, which is gone
	// with the effect.
	isConditional bool
	lookup        Absence

	// effects are those of our one call, by account.
	effects []effect
	// firstSeen is when each account's provider first saw the key; hasFailed says
	// that what it keeps under the key is an error.
	firstSeen map[Digest]Instant
	hasFailed map[Digest]bool
}

// A fate is what becomes of a request that reaches its provider.
type fate uint8

const (
	// carriedOut: it has its effect, or was recognised as one that has.
	carriedOut fate = iota + 1
	// failsAgain: the error is given that was kept.
	failsAgain
	// refusedByVersion: the version that it names is gone.
	refusedByVersion
)

type effect struct {
	account Digest
	at      Instant
	// shownAt is when a lookup begins to show it.
	shownAt Instant
}

// quiesce and attemptMax bound how long after it was cut off, and after it was
// sent, a request may still be carried out.
const (
	quiesce    = 30 * time.Second
	attemptMax = 4 * time.Minute
)

// carryOut is the moment at which a request that reached the provider has its
// effect, or is recognised.
func (p *provider) carryOut(account Digest, now Instant, lag time.Duration) fate {
	seen, known := p.firstSeen[account]
	switch {
	case p.isConditional:
		if len(p.effects) > 0 {
			return refusedByVersion
		}
	case p.class == classify.Keyed:
		if known && now < seen.Add(p.retention) {
			if p.hasFailed[account] {
				return failsAgain
			}
			return carriedOut
		}
	case p.class == classify.Idempotent:
		// A repeat within the time in which nobody else undid the first one
		// changes nothing.
		if known && now < seen.Add(IdempotentResendMax+attemptMax+quiesce) {
			return carriedOut
		}
	}
	if !known {
		p.firstSeen[account] = now
	}
	p.effects = append(p.effects, effect{account, now, now.Add(lag)})
	return carriedOut
}

// fail is the moment at which a request fails, perhaps after it has had its
// effect.
func (p *provider) fail(account Digest, now Instant, lag time.Duration, hasEffect bool) {
	seen, known := p.firstSeen[account]
	if p.class == classify.Keyed && known && now < seen.Add(p.retention) {
		return // what was kept is not replaced
	}
	switch {
	case p.class == classify.Keyed && p.errors == ErrorsRunAnew:
		return // it was undone
	case p.class == classify.Keyed && p.errors == ErrorsAreKept:
		p.firstSeen[account], p.hasFailed[account] = now, true
	case p.class == classify.Keyed:
	case hasEffect:
		p.carryOut(account, now, lag)
		return
	}
	if hasEffect {
		p.effects = append(p.effects, effect{account, now, now.Add(lag)})
	}
}

func (p *provider) shows(account Digest, now Instant) bool {
	for _, e := range p.effects {
		if e.account == account && e.shownAt <= now {
			return true
		}
	}
	return false
}

// A flight is one request on its way.
type flight struct {
	attempt uint32
	account Digest
	sentAt  Instant
	// cutAt is when its connection broke; 0 while the sidecar still listens.
	cutAt Instant
	// done says that the provider carried it out, refused it, or never will.
	done bool
	fate fate
	// refused says that nothing happened, and that trying again is right.
	refused bool
	// mute says that no answer can reach the sidecar: the process that sent it
	// is dead.
	mute bool
}

func (f *flight) mayArrive(now Instant) bool {
	return !f.done && now <= f.sentAt.Add(attemptMax) && (f.cutAt == 0 || now < f.cutAt.Add(quiesce))
}

// A question is a lookup whose answer is on its way.
type question struct {
	begin *Beginning
	asked Instant
	found bool
}

// A world is one call, its journal, and its provider, under a random schedule
// of crashes, lost answers, late answers, lookups, persons and time.
type world struct {
	provider  provider
	now       Instant
	r         *Record
	epoch     Epoch
	flights   []*flight
	questions []question
	// misled says that a person said "not applied" about an effect that exists
	// or was still to come.
	misled bool
}

func newWorld(t *rapid.T) *world {
	w := &world{now: t0, epoch: 1, provider: provider{firstSeen: map[Digest]Instant{}, hasFailed: map[Digest]bool{}}}
	w.provider.class = rapid.SampledFrom([]classify.Class{classify.Keyed, classify.Idempotent, classify.Effect}).Draw(t, "class")
	if w.provider.class == classify.Keyed {
		w.provider.retention = rapid.SampledFrom([]time.Duration{time.Hour, 24 * time.Hour}).Draw(t, "retention")
		w.provider.errors = rapid.SampledFrom([]ErrorReplay{ErrorsRunAnew, ErrorsAreKept, ErrorsAreForgotten}).Draw(t, "errors")
	} else if rapid.IntRange(0, 2).Draw(t, "conditional") == 0 {
		w.provider.class, w.provider.isConditional, w.provider.retention = classify.Effect, true, 24*time.Hour
	}
	w.provider.lookup = Absence{
		Quiesce: quiesce, Lag: rapid.SampledFrom([]time.Duration{0, time.Second, 10 * time.Minute}).Draw(t, "lag"),
		Believable: rapid.Bool().Draw(t, "believable"), MissesNeeded: rapid.Uint32Range(0, 2).Draw(t, "misses needed"), Spacing: time.Second,
	}
	return w
}

func (w *world) request(t *rapid.T) *Request {
	q := &Request{Beginning: *beginning(), Lookup: w.provider.lookup}
	q.Class, q.Epoch = w.provider.class, w.epoch
	q.Terms = Terms{Retention: w.provider.retention, Errors: w.provider.errors, Conditional: w.provider.isConditional}
	q.Credential = rapid.SampledFrom([]Digest{"a", "a", "a", "b"}).Draw(t, "account")
	q.Means = rapid.SampledFrom([][]Means{{ByResend, ByLookup}, {ByLookup, ByResend}, {ByLookup}, {ByResend}, {ByLookup, ByResendIfAbsent}, nil}).Draw(t, "means")
	q.OnlyRecover = rapid.IntRange(0, 5).Draw(t, "only recover") == 0
	q.LookupSpent = rapid.IntRange(0, 9).Draw(t, "lookup spent") == 0
	return q
}

// ask is an agent's or the recovery's request: what the verdict says is done.
func (w *world) ask(t *rapid.T) {
	q := w.request(t)
	a, err := Admit(w.r, RunFacts{}, q, w.now)
	next, v := a.Record, a.Verdict
	if err != nil {
		t.Fatalf("admit: %v", err)
	}
	if next != nil {
		w.r = next
	}
	switch v.Action {
	case Send, Resend:
		w.flights = append(w.flights, &flight{attempt: w.r.AttemptsMade, account: q.Credential, sentAt: w.now})
	case Ask:
		begin := q.Beginning
		w.questions = append(w.questions, question{&begin, w.now, w.provider.shows(q.Credential, w.now)})
	}
}

func (w *world) apply(t *rapid.T, e Event) {
	next, err := Next(w.r, e, w.now)
	if err != nil {
		t.Fatalf("%s in %s: %v", e.Kind, w.r.State, err)
	}
	w.r = next
}

// drawFlight returns one of the flights that fit, nil if none does.
func (w *world) drawFlight(t *rapid.T, fits func(*flight) bool) *flight {
	var fitting []*flight
	for _, f := range w.flights {
		if fits(f) {
			fitting = append(fitting, f)
		}
	}
	if len(fitting) == 0 {
		return nil
	}
	return rapid.SampledFrom(fitting).Draw(t, "flight")
}

// arrive carries a request out at the provider; most often it is the newest.
func (w *world) arrive(t *rapid.T) {
	if f := w.drawFlight(t, func(f *flight) bool { return f.mayArrive(w.now) }); f != nil {
		lag := rapid.SampledFrom([]time.Duration{0, time.Second, time.Hour}).Draw(t, "shown after")
		if w.provider.lookup.Believable {
			lag = min(lag, w.provider.lookup.Lag)
		}
		f.done, f.fate = true, w.provider.carryOut(f.account, w.now, lag)
	}
}

// fail lets the provider answer the attempt under way with an error that leaves
// open what happened.
func (w *world) fail(t *rapid.T) {
	f := w.drawFlight(t, func(f *flight) bool { return w.underWay(f) && f.mayArrive(w.now) })
	if f == nil {
		return
	}
	hasEffect := rapid.Bool().Draw(t, "with its effect")
	for _, other := range w.flights {
		// A provider that forgets errors cannot know a copy that overtakes its first:
		// that is beyond what it promises.
		hasEffect = hasEffect && (other == f || !other.mayArrive(w.now) || w.provider.errors != ErrorsAreForgotten)
	}
	w.provider.fail(f.account, w.now, 0, hasEffect)
	f.done, f.cutAt, f.mute = true, w.now, true
	w.apply(t, Event{Kind: SawAmbiguous, Attempt: f.attempt, Evidence: classify.Answered, Status: 500})
}

// refuse lets the provider say that nothing happened, and that trying again is
// right.
func (w *world) refuse(t *rapid.T) {
	if f := w.drawFlight(t, func(f *flight) bool { return f.mayArrive(w.now) }); f != nil {
		f.done, f.refused = true, true
	}
}

func (w *world) underWay(f *flight) bool {
	return w.r != nil && w.r.State == Pending && f.attempt == w.r.AttemptsMade && f.cutAt == 0
}

// answer brings the answer to the attempt under way back.
func (w *world) answer(t *rapid.T) {
	f := w.drawFlight(t, func(f *flight) bool { return w.underWay(f) && f.done })
	if f == nil {
		return
	}
	f.cutAt, f.mute = w.now, true
	e := Event{Kind: SawNotApplied, Attempt: f.attempt, Evidence: classify.Answered}
	switch f.fate {
	case carriedOut:
		e.Kind, e.Receipt = SawApplied, &Receipt{Status: 201}
	case failsAgain:
		e.Kind = SawAmbiguous
	case refusedByVersion:
		e.Kind, e.Receipt = SawRejected, &Receipt{Status: 412}
		if !RejectionCounts(w.r) {
			e.Kind, e.Receipt = SawAmbiguous, nil
		}
	}
	w.apply(t, e)
}

// unsent finds out that no byte of the attempt under way left.
func (w *world) unsent(t *rapid.T) {
	if f := w.drawFlight(t, func(f *flight) bool { return w.underWay(f) && !f.done }); f != nil {
		f.done, f.cutAt, f.mute = true, w.now, true
		w.apply(t, Event{Kind: SawUnsent, Attempt: f.attempt, Evidence: classify.Unsent})
	}
}

// cut breaks the connection of the attempt under way, answered or not.
func (w *world) cut(t *rapid.T) {
	if f := w.drawFlight(t, w.underWay); f != nil {
		f.cutAt = w.now
		w.apply(t, Event{Kind: SawAmbiguous, Attempt: f.attempt, Evidence: classify.Lost})
	}
}

// late brings an answer to a connection that was given up.
func (w *world) late(t *rapid.T) {
	f := w.drawFlight(t, func(f *flight) bool { return f.fate == carriedOut && f.cutAt != 0 && !f.mute })
	if f == nil {
		return
	}
	f.mute = true
	if e := (Event{Kind: LateApplied, Attempt: f.attempt, Evidence: classify.Answered, Receipt: &Receipt{Status: 201}}); len(rules[w.r.State][e.Kind]) > 0 {
		w.apply(t, e)
	}
}

// crash ends the sidecar's process, and begins another after some time.
func (w *world) crash(t *rapid.T) {
	for _, f := range w.flights {
		f.mute = true
		if f.cutAt == 0 {
			f.cutAt = w.now
		}
	}
	w.questions = nil
	w.now = w.now.Add(rapid.SampledFrom([]time.Duration{0, time.Second, time.Hour}).Draw(t, "down for"))
	w.epoch++
	if w.r != nil && w.r.State == Pending {
		w.apply(t, Event{Kind: EpochDied})
	}
}

// hear brings the answer to a lookup back, in any order and however late.
func (w *world) hear(t *rapid.T) {
	if len(w.questions) == 0 {
		return
	}
	i := rapid.IntRange(0, len(w.questions)-1).Draw(t, "question")
	q := w.questions[i]
	w.questions = append(w.questions[:i:i], w.questions[i+1:]...)
	e := Event{Kind: LookupAbsent, Begin: q.begin, Absence: w.provider.lookup}
	e.Absence.AskedAt = q.asked
	if q.found {
		e = Event{Kind: LookupFound, Receipt: &Receipt{Status: 200}}
	}
	if rapid.IntRange(0, 4).Draw(t, "lookup fails") == 0 {
		e = Event{Kind: LookupFailed}
	}
	if len(rules[w.r.State][e.Kind]) > 0 {
		w.apply(t, e)
	}
}

// decide is a person's decision about an unknown call.
func (w *world) decide(t *rapid.T) {
	if w.r == nil || w.r.State != Unknown {
		return
	}
	e := Event{Kind: rapid.SampledFrom([]EventKind{OperatorApplied, OperatorNotApplied, OperatorAbandoned, OperatorRecheck, OperatorRecheck}).Draw(t, "decision")}
	switch e.Kind {
	case OperatorApplied:
		e.Receipt = &Receipt{Status: 200}
	case OperatorNotApplied:
		coming := w.drawFlight(t, func(f *flight) bool { return f.mayArrive(w.now) })
		w.misled = w.misled || coming != nil || len(w.provider.effects) > 0
	}
	w.apply(t, e)
}

func (w *world) pass(t *rapid.T) {
	w.now = w.now.Add(rapid.SampledFrom([]time.Duration{
		time.Second, 29 * time.Second, 31 * time.Second, 3 * time.Minute, 9 * time.Minute, 40 * time.Minute, 23 * time.Hour,
	}).Draw(t, "time passes"))
}

// check: at most one effect, whatever happened; and what is on record agrees
// with the ledger.
func (w *world) check(t *rapid.T) {
	if n := len(w.provider.effects); n > 1 && !w.misled {
		t.Fatalf("%d effects: %+v; on record: %+v", n, w.provider.effects, w.r)
	}
	if w.r != nil && w.r.State == Succeeded && len(w.provider.effects) == 0 && w.r.Receipt.Source != FromOperator {
		t.Fatalf("succeeded by %s without an effect", w.r.Receipt.Source)
	}
	if w.r != nil && w.r.State == Open && len(w.provider.effects) > 0 && !w.misled {
		t.Fatalf("open, though the effect exists: %+v", w.r)
	}
}

// TestAtMostOneEffect: whatever the schedule, and whatever the provider
// promises, there is at most one effect, unless a person was wrong.
func TestAtMostOneEffect(t *testing.T) {
	for range 200 {
		rapid.Check(t, func(t *rapid.T) {
			w := newWorld(t)
			t.Repeat(map[string]func(*rapid.T){
				"": w.check, "ask": w.ask, "ask again": w.ask, "arrive": w.arrive, "fail": w.fail, "refuse": w.refuse, "answer": w.answer, "unsent": w.unsent,
				"cut": w.cut, "late": w.late, "crash": w.crash, "hear": w.hear, "hear again": w.hear, "decide": w.decide, "pass": w.pass,
			})
		})
	}
}

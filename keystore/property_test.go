package keystore

import (
	"bytes"
	"errors"
	"strings"
	"testing"
	"time"

	"counterfoil/classify"

	"pgregory.net/rapid"
)

// A walk leads one call through any sequence of events and holds each step
// against a second, naive account of what may be known.
type walk struct {
	now Instant
	r   *Record

	// doubtful says that an attempt may have had an effect, since doubtSince;
	// firstSent is when the oldest attempt not proven unsent began.
	doubtful   bool
	doubtSince Instant
	firstSent  Instant
	sent       []Instant
	unsent     int
	// asked are the lookups since then that found nothing and counted.
	asked []Instant
	// account, origin, class and retention are those of the newest attempt
	// that a fresh intent began.
	account   Digest
	origin    string
	scope     Digest
	class     classify.Class
	retention time.Duration
	// conditional and errors are what its terms say besides; isResend says that the
	// newest attempt is a copy.
	conditional bool
	errors      ErrorReplay
	isResend    bool
	// spent says that no further copy may be sent, stuck that nothing may be tried.
	spent, stuck bool
}

var reasons = []string{"", "refused", strings.Repeat("é", ReasonBytesMax), "\xff"}

var (
	anyWait    = rapid.SampledFrom([]time.Duration{0, 1, time.Second, 30 * time.Second, 5 * time.Minute, time.Hour, 23 * time.Hour})
	anyClass   = rapid.SampledFrom([]classify.Class{classify.Read, classify.Decision, classify.Keyed, classify.Idempotent, classify.Effect})
	anyDigest  = rapid.SampledFrom([]Digest{"", "a", "b"})
	anyOrigin  = rapid.SampledFrom([]string{"http://one", "http://one", "http://two"})
	anyStretch = rapid.SampledFrom([]time.Duration{0, time.Minute, 30 * time.Minute, 24 * time.Hour})
	anyPrint   = rapid.SampledFrom([]classify.Fingerprint{{1}, {1}, {1}, {2}})
)

func drawBeginning(t *rapid.T) *Beginning {
	b := beginning()
	b.Class, b.Fingerprint = anyClass.Draw(t, "class"), anyPrint.Draw(t, "fingerprint")
	b.Credential, b.Principal = anyDigest.Draw(t, "credential"), anyDigest.Draw(t, "principal")
	b.Intent.Origin, b.Intent.Target = anyOrigin.Draw(t, "origin"), rapid.SampledFrom([]string{"/x", "/y"}).Draw(t, "target")
	b.Terms.Retention = anyStretch.Draw(t, "retention")
	b.Terms.Conditional = rapid.IntRange(0, 4).Draw(t, "conditional") == 0
	b.Terms.Errors = rapid.SampledFrom([]ErrorReplay{ErrorsRunAnew, ErrorsAreKept, ErrorsAreForgotten}).Draw(t, "errors")
	b.Intent.Scope = rapid.SampledFrom([]Digest{"", "", "s"}).Draw(t, "scope")
	b.Fence = Fence(rapid.Uint64Range(0, 5).Draw(t, "fence"))
	b.Epoch = Epoch(rapid.Uint64Range(0, 5).Draw(t, "epoch"))
	return b
}

func drawAbsence(t *rapid.T, now Instant) Absence {
	return Absence{
		AskedAt: now.Add(-anyWait.Draw(t, "asked ago")).Add(rapid.SampledFrom([]time.Duration{0, 0, 0, time.Hour}).Draw(t, "ahead")),
		Quiesce: anyWait.Draw(t, "quiesce"), Lag: anyWait.Draw(t, "lag"), Spacing: anyWait.Draw(t, "spacing"),
		MissesNeeded: rapid.Uint32Range(0, 3).Draw(t, "misses"), Believable: rapid.Bool().Draw(t, "believable"),
	}
}

func drawRequest(t *rapid.T, now Instant) *Request {
	return &Request{
		Beginning: *drawBeginning(t), Lookup: drawAbsence(t, now),
		Means:       rapid.SliceOfN(rapid.SampledFrom([]Means{ByResend, ByLookup, ByResendIfAbsent}), 0, 3).Draw(t, "means"),
		LookupSpent: rapid.Bool().Draw(t, "lookup spent"), PauseOnUnknown: rapid.Bool().Draw(t, "pause"),
		OnlyRecover: rapid.IntRange(0, 3).Draw(t, "only recover") == 0,
	}
}

func (w *walk) drawEvent(t *rapid.T) Event {
	e := Event{
		Kind:   EventKind(rapid.Uint8Range(0, uint8(numEvents)).Draw(t, "kind")),
		Status: rapid.IntRange(0, 599).Draw(t, "status"), Reason: rapid.SampledFrom(reasons).Draw(t, "reason"),
		Outcome: classify.Outcome(rapid.Uint8Range(0, 4).Draw(t, "outcome")),
		Absence: drawAbsence(t, w.now), Actor: "ann", Note: "note",
	}
	if w.r != nil {
		e.Attempt = uint32(max(0, int(w.r.AttemptsMade)-rapid.SampledFrom([]int{0, 0, 0, 1, -1}).Draw(t, "attempts back")))
	}
	e.Evidence = classify.Answered
	if e.Kind == SawUnsent {
		e.Evidence = classify.Unsent
	}
	if e.Kind == SawAmbiguous && rapid.Bool().Draw(t, "lost") {
		e.Evidence = classify.Lost
	}
	e.InFlight, e.Stuck = rapid.IntRange(0, 3).Draw(t, "in flight") == 0, rapid.IntRange(0, 7).Draw(t, "stuck") == 0
	if rapid.IntRange(0, 3).Draw(t, "receipt") > 0 {
		e.Receipt = &Receipt{Status: 200 + int(e.Kind), Body: Body{Bytes: 1, Inline: []byte{byte(e.Kind)}}}
	}
	if rapid.IntRange(0, 7).Draw(t, "begin") > 0 {
		e.Begin = drawBeginning(t)
	}
	return e
}

// step applies an event and checks what came of it.
func (w *walk) step(t *rapid.T, e Event) {
	before := encodeAny(t, w.r)
	next, err := Next(w.r, e, w.now)
	if !bytes.Equal(before, encodeAny(t, w.r)) {
		t.Fatalf("%s changed its input", e.Kind)
	}
	if err != nil {
		if next != nil || !errors.Is(err, ErrNoTransition) && !errors.Is(err, ErrGuard) && !errors.Is(err, ErrStaleAttempt) {
			t.Fatalf("%s: %v, beside a record: %t", e.Kind, err, next != nil)
		}
		return
	}
	w.accept(t, e, next)
}

func (w *walk) accept(t *rapid.T, e Event, next *Record) {
	w.checkInvariants(t, next)
	w.checkAttempt(t, e, next)
	w.keepAccount(t, e, next)
	w.r = next
}

// checkInvariants holds one step against the invariants of Record.
func (w *walk) checkInvariants(t *rapid.T, next *Record) {
	if err := next.Validate(); err != nil {
		t.Fatalf("after this step: %v", err)
	}
	prev := w.r
	if prev == nil {
		return
	}
	if prev.State == Succeeded || prev.State == Rejected {
		if next.State != Expired && (next.State != prev.State || !equal(t, prev.Receipt, next.Receipt)) {
			t.Fatalf("invariant 1: %s became %s, or its receipt changed", prev.State, next.State)
		}
	}
	if next.Version != prev.Version+1 || next.AttemptsMade < prev.AttemptsMade || next.AttemptsMade > prev.AttemptsMade+1 || next.Fence < prev.Fence {
		t.Fatalf("invariant 2: version %d to %d, attempts %d to %d, fence %d to %d",
			prev.Version, next.Version, prev.AttemptsMade, next.AttemptsMade, prev.Fence, next.Fence)
	}
	frozen := next.Fingerprint == prev.Fingerprint && next.Class == prev.Class && next.Terms == prev.Terms && equal(t, next.Intent, prev.Intent)
	if w.doubtful && next.DoubtSince != 0 && !frozen {
		t.Fatalf("invariant 4: what was sent changed while in doubt: %+v to %+v", prev, next)
	}
	if len(next.Attempts) > AttemptsKept || len(next.History) > HistoryKept || next.Key != prev.Key {
		t.Fatalf("%d attempts, %d changes, key %s", len(next.Attempts), len(next.History), next.Key)
	}
}

// checkAttempt: a doubt reaches another attempt, or the state from which the
// next begin sends, only for a reason that makes it safe.
func (w *walk) checkAttempt(t *rapid.T, e Event, next *Record) {
	attempted := w.r != nil && next.AttemptsMade > w.r.AttemptsMade
	if attempted && w.doubtful && (e.Kind != ResendBegun || !w.mayRepeat(e.Begin)) {
		t.Fatalf("%s made another attempt while in doubt; class %s, first sent %s ago, retention %s", e.Kind, w.class, time.Duration(w.now-w.firstSent), w.retention)
	}
	if next.State != Open && next.State != Planned && next.State != Held || !w.doubtful {
		return
	}
	if e.Kind == OperatorNotApplied || e.Kind == LookupAbsent && w.mayBelieve(e) {
		return
	}
	t.Fatalf("%s took a call in doubt to %s: %+v, asked %v", e.Kind, next.State, e.Absence, w.asked)
}

func (w *walk) mayRepeat(b *Beginning) bool {
	if digestOf(b) != w.account || b.Intent.Origin != w.origin || b.Intent.Scope != w.scope || w.spent || w.stuck {
		return false
	}
	age := time.Duration(w.now - w.firstSent)
	remembered := age < w.retention && age+5*time.Minute < max(w.retention, w.retention/2+5*time.Minute)
	if w.conditional {
		return remembered
	}
	switch w.class {
	case classify.Read, classify.Decision:
		return true
	case classify.Idempotent:
		return age < 10*time.Minute
	case classify.Keyed:
		return remembered
	}
	return false
}

func digestOf(b *Beginning) Digest {
	if b.Principal != "" {
		return "principal " + b.Principal
	}
	return "credential " + b.Credential
}

func (w *walk) counts(e Event) bool {
	a := e.Absence
	spaced := len(w.asked) == 0 || a.AskedAt-w.asked[len(w.asked)-1] >= Instant(a.Spacing)
	convergesNowhere := w.spent && w.errors == ErrorsAreKept && !w.conditional
	return a.Believable && !w.stuck && !convergesNowhere && e.Begin != nil && digestOf(e.Begin) == w.account && e.Begin.Intent.Origin == w.origin && e.Begin.Intent.Scope == w.scope && spaced &&
		a.AskedAt <= w.now && a.AskedAt-w.doubtSince >= Instant(a.Quiesce+a.Lag)
}

func (w *walk) mayBelieve(e Event) bool {
	return w.counts(e) && len(w.asked)+1 >= max(1, int(e.Absence.MissesNeeded))
}

// keepAccount keeps the naive account.
func (w *walk) keepAccount(t *rapid.T, e Event, next *Record) {
	switch e.Kind {
	case Begun:
		w.account, w.origin, w.class, w.retention = digestOf(e.Begin), e.Begin.Intent.Origin, e.Begin.Class, e.Begin.Terms.Retention
		w.scope, w.conditional, w.errors, w.isResend = e.Begin.Intent.Scope, e.Begin.Terms.Conditional, e.Begin.Terms.Errors, false
		if w.r.IsApproved(w.now) && w.r.Class == e.Begin.Class && w.r.Intent.Origin == e.Begin.Intent.Origin {
			w.scope = w.r.Intent.Scope // what was approved is what is sent
		}
		w.sent = append(w.sent, w.now)
	case ResendBegun:
		w.account, w.isResend = digestOf(e.Begin), true
		w.sent = append(w.sent, w.now)
	case SawUnsent:
		w.unsent++
		if w.unsent == len(w.sent) {
			w.sent, w.unsent = nil, 0
		}
		w.endInDoubt()
	case SawNotApplied:
		w.endInDoubt()
	case SawAmbiguous:
		w.doubtful, w.stuck = true, w.stuck || e.Stuck
		if e.Evidence == classify.Answered && !e.InFlight {
			w.spent = w.spent || w.class == classify.Keyed && w.errors == ErrorsAreForgotten || w.isResend && (w.conditional || w.errors == ErrorsAreKept)
		}
		w.endInDoubt()
	case EpochDied:
		w.doubtful = true
		w.endInDoubt()
	case LookupFailed:
		w.stuck = w.stuck || e.Stuck
	case OperatorRecheck:
		w.asked, w.spent, w.stuck = nil, w.spent && w.errors == ErrorsAreForgotten, false
	case LookupAbsent:
		if w.counts(e) {
			w.asked = append(w.asked, e.Absence.AskedAt)
		}
	}
	if len(w.sent) > 0 {
		w.firstSent = w.sent[0]
	}
	if next.State == Open || next.State.Final() {
		w.doubtful, w.asked, w.spent, w.stuck = false, nil, false, false
	}
	if next.ResendSpent != w.spent || (next.Stuck != "") != w.stuck {
		t.Fatalf("%s: spent %t and stuck %q on record; %t and %t in truth", e.Kind, next.ResendSpent, next.Stuck, w.spent, w.stuck)
	}
	if doubt := next.DoubtSince != 0; doubt != w.doubtful || doubt && next.DoubtSince != w.doubtSince {
		t.Fatalf("%s: in doubt since %d on record; %t since %d in truth", e.Kind, next.DoubtSince, w.doubtful, w.doubtSince)
	}
}

// endInDoubt: an attempt that ended while in doubt begins the waits anew.
func (w *walk) endInDoubt() {
	if w.doubtful {
		w.doubtSince, w.asked = w.now, nil
	}
}

// ask holds Decide against Next.
func (w *walk) ask(t *rapid.T, q *Request, run RunFacts) {
	record, request := encodeAny(t, w.r), encodeAny(t, *q)
	v := Decide(w.r, run, q, w.now)
	a, err := Admit(w.r, run, q, w.now)
	next, admitted := a.Record, a.Verdict
	if err != nil || admitted != v {
		t.Fatalf("Decide says %+v, Admit %+v, %v", v, admitted, err)
	}
	if !bytes.Equal(record, encodeAny(t, w.r)) || !bytes.Equal(request, encodeAny(t, *q)) {
		t.Fatal("Decide or Admit changed its input")
	}
	if v.Action.String() == "invalid" || (v.Action == Stop) != (v.Reason != 0 && v.Reason != OtherAccount) || v.Reason == OtherAccount && v.Action != Wait || v.GiveUp && v.Action != Stop {
		t.Fatalf("verdict %+v makes no sense", v)
	}
	if sends := v.Action == Send || v.Action == Resend; sends != (next != nil && next.State == Pending) || (next != nil) != (sends || v.GiveUp || v.Hold) {
		t.Fatalf("verdict %+v, and on record: %+v", v, next)
	}
	if q.OnlyRecover && v.Action == Send {
		t.Fatalf("who has no request to send is told to send: %+v", v)
	}
	if w.stuck && (v.Action == Send || v.Action == Resend || v.Action == Ask) {
		t.Fatalf("a call that nobody can judge: verdict %+v", v)
	}
	if v.Action == Replay && w.r.Receipt == nil || v.Action == Send && w.doubtful || v.Action == Ask && w.r.State != InDoubt {
		t.Fatalf("verdict %+v in state %s, in doubt: %t", v, w.r.State, w.doubtful)
	}
	if next == nil {
		return
	}
	kind := map[Action]EventKind{Send: Begun, Resend: ResendBegun, Stop: GaveUp}[v.Action]
	w.accept(t, Event{Kind: kind, Begin: &q.Beginning}, next)
}

func encodeAny(t *rapid.T, v any) []byte {
	c, err := oneCodec()
	if err != nil {
		t.Fatal(err)
	}
	b, err := c.Encode(v)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func equal(t *rapid.T, x, y any) bool { return bytes.Equal(encodeAny(t, x), encodeAny(t, y)) }

// TestAnySequence: for any sequence of events and requests the invariants hold,
// and no doubt reaches another attempt without a reason that makes it safe.
func TestAnySequence(t *testing.T) {
	for range 12 {
		rapid.Check(t, anySequence)
	}
}

func anySequence(t *rapid.T) {
	w := &walk{now: t0}
	fits := func(t *rapid.T) { w.step(t, w.fitting(t)) }
	t.Repeat(map[string]func(*rapid.T){
		"event":           func(t *rapid.T) { w.step(t, w.drawEvent(t)) },
		"event that fits": fits, "another that fits": fits, "a third that fits": fits,
		"ask": func(t *rapid.T) {
			w.ask(t, drawRequest(t, w.now), RunFacts{Unknown: rapid.IntRange(0, 1).Draw(t, "unknown")})
		},
		"ask in doubt": func(t *rapid.T) {
			q := drawRequest(t, w.now)
			w.fit(&q.Beginning)
			w.ask(t, q, RunFacts{})
		},
		"time": func(t *rapid.T) { w.now = w.now.Add(anyWait.Draw(t, "time passes")) },
	})
}

// fitting draws an event that means something in the call's state, mostly one
// after which the walk goes on, and mostly from whoever made the call.
func (w *walk) fitting(t *rapid.T) Event {
	e := w.drawEvent(t)
	var kinds []EventKind
	state := None
	if w.r != nil {
		state = w.r.State
		e.Attempt = w.r.AttemptsMade
	}
	for kind := range numEvents {
		if len(rules[state][kind]) > 0 && (goesOn(state, kind) || rapid.IntRange(0, 5).Draw(t, "may end") == 0) {
			kinds = append(kinds, kind)
		}
	}
	if len(kinds) > 0 {
		e.Kind = rapid.SampledFrom(kinds).Draw(t, "fitting kind")
	}
	if e.Kind == SawUnsent {
		e.Evidence = classify.Unsent
	} else if e.Evidence == classify.Unsent {
		e.Evidence = classify.Lost
	}
	if e.Begin == nil {
		e.Begin = beginning()
	}
	if rapid.IntRange(0, 3).Draw(t, "stranger") > 0 {
		w.fit(e.Begin)
	}
	return e
}

// goesOn reports whether neither the event ends the call nor a person has to
// act after it.
func goesOn(state State, kind EventKind) bool {
	for _, r := range rules[state][kind] {
		if r.to.Final() || r.to == Held || r.to == Unknown {
			return false
		}
	}
	return true
}

// fit makes of b the beginning of whoever made the call.
func (w *walk) fit(b *Beginning) {
	if r := w.r; r != nil {
		b.Fingerprint, b.Credential, b.Principal, b.Intent.Origin, b.Intent.Scope = r.Fingerprint, r.Credential, r.Principal, r.Intent.Origin, r.Intent.Scope
	}
}

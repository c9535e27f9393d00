package keystore

import (
	"bytes"
	"errors"
	"fmt"
	"testing"
	"time"

	"counterfoil/classify"
)

// life is design section 4 once more, by hand: what rules is held against. Of
// several lines for one state and event the first whose guard holds counts.
var life = []struct {
	from  State
	event EventKind
	needs guard
	to    State
}{
	{None, WasPlanned, always, Planned},
	{None, WasHeld, always, Held},
	{None, Begun, always, Pending},
	{Planned, WasHeld, always, Held},
	{Planned, Begun, always, Pending},
	{Planned, RetentionOver, always, Expired},
	{Held, WasApproved, always, Planned},
	{Held, WasDenied, always, Abandoned},
	{Pending, SawUnsent, noDoubt, Open},
	{Pending, SawUnsent, always, InDoubt},
	{Pending, SawNotApplied, noDoubt, Open},
	{Pending, SawNotApplied, always, InDoubt},
	{Pending, SawApplied, hasReceipt, Succeeded},
	{Pending, SawRejected, rejectionCounts, Rejected},
	{Pending, SawAmbiguous, always, InDoubt},
	{Pending, EpochDied, always, InDoubt},
	{Pending, LateApplied, hasReceipt, Succeeded},
	{Open, WasHeld, always, Held},
	{Open, Begun, always, Pending},
	{Open, LookupFound, hasReceipt, Succeeded},
	{Open, LateApplied, hasReceipt, Succeeded},
	{Open, RetentionOver, always, Expired},
	{InDoubt, LookupFound, hasReceipt, Succeeded},
	{InDoubt, LookupAbsent, absenceBelievable, Open},
	{InDoubt, LookupAbsent, always, InDoubt},
	{InDoubt, LookupFailed, always, InDoubt},
	{InDoubt, ResendBegun, repeatIsSafe, Pending},
	{InDoubt, GaveUp, always, Unknown},
	{InDoubt, LateApplied, hasReceipt, Succeeded},
	{Unknown, OperatorApplied, hasReceipt, Succeeded},
	{Unknown, OperatorNotApplied, always, Open},
	{Unknown, OperatorAbandoned, always, Abandoned},
	{Unknown, OperatorRecheck, always, InDoubt},
	{Unknown, LookupFound, hasReceipt, Succeeded},
	{Unknown, LateApplied, hasReceipt, Succeeded},
	{Succeeded, RetentionOver, always, Expired},
	{Rejected, RetentionOver, always, Expired},
	{Abandoned, RetentionOver, always, Expired},
}

const t0 = Instant(1767323045e9)

// conditions says which guards hold.
type conditions [numGuards]bool

func everyCondition() []conditions {
	var all []conditions
	for bits := range 1 << (numGuards - 1) {
		c := conditions{always: true}
		for g := always + 1; g < numGuards; g++ {
			c[g] = bits>>(g-1)&1 == 1
		}
		// The samples are keyed where a repeat is safe, and plain effects where
		// not, so whether a rejection counts follows from the rest.
		if c[rejectionCounts] == (c[hasReceipt] && (c[noDoubt] || c[repeatIsSafe])) {
			all = append(all, c)
		}
	}
	return all
}

func beginning() *Beginning {
	k := Key{"default", "run", "turn", "call"}
	return &Beginning{
		Key: k, Class: classify.Keyed, Fingerprint: classify.Fingerprint{1}, Terms: Terms{Retention: 24 * time.Hour},
		Intent: Intent{Upstream: "tickets", Origin: "http://127.0.0.1:9090", Method: "POST", Target: "/tickets", SentKey: string(k.ProviderKey())},
		Epoch:  3, Credential: "credential",
	}
}

// sample returns a record in a state, an hour after its first attempt, and an
// event, such that exactly the given guards hold.
func sample(state State, kind EventKind, c conditions) (*Record, Event) {
	b := beginning()
	r := &Record{
		Key: b.Key, State: state, Class: b.Class, Fingerprint: b.Fingerprint, Intent: b.Intent, Terms: b.Terms, Credential: b.Credential,
		Attempts:     []Attempt{{Number: 1, Epoch: 2, BegunAt: t0, EndedAt: t0, Evidence: classify.Lost}, {Number: 2, Epoch: 3, BegunAt: t0}},
		AttemptsMade: 2, FirstSentAt: t0, Version: 4, CreatedAt: t0, UpdatedAt: t0,
		History: []Change{{Event: WasPlanned, To: Planned, At: t0}},
	}
	e := Event{Kind: kind, Attempt: 2, Begin: b, Reason: "because", Absence: Absence{AskedAt: t0.Add(time.Minute), Quiesce: 30 * time.Second, Believable: true}}
	if state == Succeeded || state == Rejected {
		r.Receipt = &Receipt{Status: 200}
	}
	if !c[noDoubt] {
		r.DoubtSince = t0
	}
	if c[hasReceipt] {
		e.Receipt = &Receipt{Status: 201}
	}
	if !c[absenceBelievable] {
		e.Absence.Believable = false
	}
	if !c[repeatIsSafe] {
		r.Class = classify.Effect
	}
	return r, e
}

// TestEveryTransition goes through every state, event and combination of
// guards.
func TestEveryTransition(t *testing.T) {
	now := t0.Add(time.Hour)
	for state := None; state <= numStates; state++ {
		for kind := noEvent; kind <= numEvents; kind++ {
			for _, c := range everyCondition() {
				r, e := sample(state, kind, c)
				checkTransition(t, r, e, c, now)
			}
		}
	}
}

func checkTransition(t *testing.T, r *Record, e Event, c conditions, now Instant) {
	t.Helper()
	for g := range numGuards {
		if guards[g].holds(r, &e, now) != c[g] {
			t.Fatalf("the sample for %s of %s does not set guard %q to %t", e.Kind, r.State, guards[g].short, c[g])
		}
	}
	to, wantErr := expected(r.State, e.Kind, c)
	before := stored(t, r)
	got, err := Next(r, e, now)
	if !bytes.Equal(before, stored(t, r)) {
		t.Fatalf("%s of %s changed its input", e.Kind, r.State)
	}
	if !errors.Is(err, wantErr) {
		t.Fatalf("%s of %s with %v: got error %v, want %v", e.Kind, r.State, c, err, wantErr)
	}
	if wantErr != nil {
		if got != nil {
			t.Fatalf("%s of %s with %v: a record beside the error", e.Kind, r.State, c)
		}
		return
	}
	if got.State != to || got.Version != r.Version+1 || got.UpdatedAt != now || got.CreatedAt != r.CreatedAt {
		t.Fatalf("%s of %s with %v: got %s, version %d, want %s, version %d", e.Kind, r.State, c, got.State, got.Version, to, r.Version+1)
	}
	// The samples break invariant 3 where a guard has to be tried both ways.
	sound := r.DoubtSince != 0 || r.State != InDoubt && r.State != Unknown
	if err := got.Validate(); err != nil && sound {
		t.Fatalf("%s of %s with %v: %v", e.Kind, r.State, c, err)
	}
}

func expected(from State, kind EventKind, c conditions) (State, error) {
	err := ErrNoTransition
	for _, l := range life {
		if l.from != from || l.event != kind {
			continue
		}
		if c[l.needs] {
			return l.to, nil
		}
		err = ErrGuard
	}
	return None, err
}

func stored(t testing.TB, v any) []byte {
	t.Helper()
	b, err := codec(t).Encode(v)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestGuards(t *testing.T) {
	c := conditions{always: true, absenceBelievable: true, repeatIsSafe: true}
	const hour = time.Hour
	absent, resend := LookupAbsent, ResendBegun
	for _, tc := range []struct {
		name  string
		kind  EventKind
		after time.Duration
		with  func(r *Record, e *Event)
		holds bool
	}{
		{"absent", absent, hour, func(*Record, *Event) {}, true},
		{"absent, asked at the last moment", absent, hour, func(_ *Record, e *Event) { e.Absence.AskedAt = t0.Add(30 * time.Second) }, true},
		{"absent, asked a moment too early", absent, hour, func(_ *Record, e *Event) { e.Absence.AskedAt = t0.Add(30*time.Second) - 1 }, false},
		{"absent, asked within the lag", absent, hour, func(_ *Record, e *Event) { e.Absence.Lag = 31 * time.Second }, false},
		{"absent, asked in the future", absent, hour, func(_ *Record, e *Event) { e.Absence.AskedAt = t0.Add(hour) + 1 }, false},
		{"absent, and one miss is not enough", absent, hour, func(_ *Record, e *Event) { e.Absence.MissesNeeded = 2 }, false},
		{"absent for the second time", absent, hour, func(r *Record, e *Event) { r.Misses, r.LastMissAt, e.Absence.MissesNeeded = 1, t0, 2 }, true},
		{"absent for the second time, too soon", absent, hour, func(r *Record, e *Event) {
			r.Misses, r.LastMissAt, e.Absence.MissesNeeded, e.Absence.Spacing = 1, t0, 2, time.Minute+1
		}, false},
		{"absent on another account", absent, hour, func(_ *Record, e *Event) { e.Begin.Credential = "another" }, false},
		{"absent on an unnamed account", absent, hour, func(_ *Record, e *Event) { e.Begin = nil }, false},
		{"absent at another target", absent, hour, func(_ *Record, e *Event) { e.Begin.Intent.Origin = "https://elsewhere" }, false},
		{"absent, with a quiesce time beyond all time", absent, hour, func(_ *Record, e *Event) { e.Absence.Quiesce = 1<<63 - 1 }, false},
		{"absent, with waits whose sum overflows", absent, hour, func(_ *Record, e *Event) { e.Absence.Quiesce, e.Absence.Lag = 1<<62, 1<<62 }, false},

		{"keyed", resend, hour, func(*Record, *Event) {}, true},
		{"keyed, the margin not yet reached", resend, 24*hour - 72*time.Minute - 1, func(*Record, *Event) {}, true},
		{"keyed, within the margin", resend, 24*hour - 72*time.Minute, func(*Record, *Event) {}, false},
		{"keyed without a retention", resend, 0, func(r *Record, _ *Event) { r.Terms.Retention = 0 }, false},
		{"keyed, a retention that only the asker promises", resend, hour, func(r *Record, e *Event) { r.Terms.Retention, e.Begin.Terms.Retention = 0, 48*hour }, false},
		{"keyed, a negative retention", resend, 0, func(r *Record, _ *Event) { r.Terms.Retention = -1 }, false},
		{"keyed for ever", resend, 100 * 24 * hour, func(r *Record, _ *Event) { r.Terms.Retention = 1<<63 - 1 }, true},
		{"keyed, with another credential", resend, hour, func(_ *Record, e *Event) { e.Begin.Credential = "another" }, false},
		{"keyed, one principal, another credential", resend, hour, func(r *Record, e *Event) {
			r.Principal, e.Begin.Principal, e.Begin.Credential = "p", "p", "another"
		}, true},
		{"keyed, another principal, one credential", resend, hour, func(r *Record, e *Event) { r.Principal, e.Begin.Principal = "p", "q" }, false},
		{"keyed, a principal where there was none", resend, hour, func(_ *Record, e *Event) { e.Begin.Principal = "p" }, false},
		{"keyed, at another target", resend, hour, func(_ *Record, e *Event) { e.Begin.Intent.Origin = "https://elsewhere" }, false},
		{"keyed, no beginning", resend, hour, func(_ *Record, e *Event) { e.Begin = nil }, false},
		{"idempotent, young", resend, 10*time.Minute - 1, func(r *Record, _ *Event) { r.Class = classify.Idempotent }, true},
		{"idempotent, old", resend, 10 * time.Minute, func(r *Record, _ *Event) { r.Class = classify.Idempotent }, false},
		{"read", resend, 1000 * hour, func(r *Record, _ *Event) { r.Class = classify.Read }, true},
		{"decision", resend, 1000 * hour, func(r *Record, _ *Event) { r.Class = classify.Decision }, true},
		{"effect", resend, 0, func(r *Record, _ *Event) { r.Class = classify.Effect }, false},
		{"effect that is keyed by now", resend, 0, func(r *Record, e *Event) { r.Class, e.Begin.Class = classify.Effect, classify.Keyed }, false},
		{"no class", resend, 0, func(r *Record, _ *Event) { r.Class = 0 }, false},
		{"in another scope", resend, hour, func(_ *Record, e *Event) { e.Begin.Intent.Scope = "another" }, false},
		{"keyed, and resending is spent", resend, hour, func(r *Record, _ *Event) { r.ResendSpent = true }, false},
		{"keyed, and nothing can be judged", resend, hour, func(r *Record, _ *Event) { r.Stuck = "a program failed" }, false},
		{"read, and resending is spent", resend, hour, func(r *Record, _ *Event) { r.Class, r.ResendSpent = classify.Read, true }, false},
		{"conditional effect", resend, hour, conditional, true},
		{"conditional effect, within the margin", resend, 24*hour - 72*time.Minute, conditional, false},
		{"conditional effect, and resending is spent", resend, hour, func(r *Record, e *Event) { conditional(r, e); r.ResendSpent = true }, false},
		{"conditional effect without a retention", resend, 0, func(r *Record, e *Event) { conditional(r, e); r.Terms.Retention = 0 }, false},
		{"conditional, idempotent and old", resend, hour, func(r *Record, e *Event) { conditional(r, e); r.Class = classify.Idempotent }, true},
		{"effect that is conditional by now", resend, 0, func(r *Record, e *Event) { r.Class, e.Begin.Terms.Conditional = classify.Effect, true }, false},

		{"absent in another scope", absent, hour, func(_ *Record, e *Event) { e.Begin.Intent.Scope = "another" }, false},
		{"absent, and nothing can be judged", absent, hour, func(r *Record, _ *Event) { r.Stuck = "a program failed" }, false},
		{"absent, and a copy would meet the kept error", absent, hour, func(r *Record, _ *Event) { r.ResendSpent, r.Terms.Errors = true, ErrorsAreKept }, false},
		{"absent, and a copy would run anew", absent, hour, func(r *Record, _ *Event) { r.ResendSpent, r.Terms.Errors = true, ErrorsAreForgotten }, true},
		{"absent, and a copy would be refused for its version", absent, hour, func(r *Record, _ *Event) {
			r.ResendSpent, r.Terms.Errors, r.Terms.Conditional = true, ErrorsAreKept, true
		}, true},
	} {
		r, e := sample(InDoubt, tc.kind, c)
		tc.with(r, &e)
		got, err := Next(r, e, t0.Add(tc.after))
		if held := err == nil && got.State != InDoubt; held != tc.holds {
			t.Errorf("%s: it went on: %t, want %t (%v)", tc.name, held, tc.holds, err)
		}
	}
}

func conditional(r *Record, _ *Event) { r.Class, r.Terms.Conditional = classify.Effect, true }

func TestRetentionMargin(t *testing.T) {
	for retention, want := range map[time.Duration]time.Duration{
		time.Minute: 30 * time.Second, 10 * time.Minute: 5 * time.Minute, time.Hour: 5 * time.Minute, 24 * time.Hour: 72 * time.Minute,
	} {
		if got := RetentionMargin(retention); got != want {
			t.Errorf("%s: got %s, want %s", retention, got, want)
		}
	}
}

// TestMissesInAnotherOrder: the answer to an earlier lookup, come late, does not
// shorten the time between two that count.
func TestMissesInAnotherOrder(t *testing.T) {
	r, e := sample(InDoubt, LookupAbsent, conditions{always: true, absenceBelievable: true})
	e.Absence.MissesNeeded, e.Absence.Spacing = 2, 10*time.Minute
	now := t0.Add(time.Hour)
	for _, asked := range []time.Duration{20 * time.Minute, 15 * time.Minute, 26 * time.Minute} {
		e.Absence.AskedAt = t0.Add(asked)
		next, err := Next(r, e, now)
		if err != nil || next.State != InDoubt {
			t.Fatalf("a miss asked after %s: %v, %v", asked, next, err)
		}
		r = next
	}
	if r.Misses != 1 || r.LastMissAt != t0.Add(26*time.Minute) {
		t.Fatalf("%d misses, the last asked after %s", r.Misses, time.Duration(r.LastMissAt-t0))
	}
}

func TestStaleAttempts(t *testing.T) {
	c := conditions{always: true, noDoubt: true, hasReceipt: true}
	for _, tc := range []struct {
		kind    EventKind
		attempt uint32
		stale   bool
	}{
		{SawApplied, 0, true}, {SawApplied, 1, true}, {SawApplied, 2, false}, {SawApplied, 3, true},
		{SawUnsent, 1, true}, {SawNotApplied, 1, true}, {SawRejected, 3, true}, {SawAmbiguous, 0, true},
		{LateApplied, 0, true}, {LateApplied, 1, false}, {LateApplied, 2, false}, {LateApplied, 3, true},
	} {
		r, e := sample(Pending, tc.kind, c)
		e.Attempt = tc.attempt
		if _, err := Next(r, e, t0); errors.Is(err, ErrStaleAttempt) != tc.stale {
			t.Errorf("%s of attempt %d: %v", tc.kind, tc.attempt, err)
		}
	}
}

func TestBeginningsAreChecked(t *testing.T) {
	for _, kind := range []EventKind{WasPlanned, WasHeld, Begun} {
		if _, err := Next(nil, Event{Kind: kind}, t0); !errors.Is(err, ErrGuard) {
			t.Errorf("%s without a beginning: %v", kind, err)
		}
	}
	r, e := sample(Open, Begun, conditions{always: true, noDoubt: true})
	e.Begin.Key.Call = "another"
	if _, err := Next(r, e, t0); !errors.Is(err, ErrGuard) {
		t.Errorf("begun with another call's key: %v", err)
	}
}

// TestListsAreBounded: a record keeps the first and the newest of what grows.
func TestListsAreBounded(t *testing.T) {
	r, err := Next(nil, Event{Kind: Begun, Begin: beginning()}, t0)
	for n := uint32(1); err == nil && n <= 200; n++ {
		if r, err = Next(r, Event{Kind: SawAmbiguous, Attempt: n, Evidence: classify.Lost, Reason: string(bytes.Repeat([]byte("é"), 5000))}, t0); err != nil {
			break
		}
		for range 2 {
			if r, err = Next(r, Event{Kind: LookupFailed, Actor: "é" + string(bytes.Repeat([]byte("é"), 5000)), Note: string(bytes.Repeat([]byte("€"), 5000))}, t0); err != nil {
				t.Fatal(err)
			}
		}
		r, err = Next(r, Event{Kind: ResendBegun, Begin: beginning()}, t0)
	}
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Attempts) != AttemptsKept || len(r.History) != HistoryKept || r.AttemptsMade != 201 {
		t.Fatalf("%d attempts of %d, %d changes", len(r.Attempts), r.AttemptsMade, len(r.History))
	}
	if r.Attempts[0].Number != 1 || r.Attempts[AttemptsKept-1].Number != 201 || r.Attempt(100) != nil || r.Attempt(201) == nil {
		t.Fatalf("kept are attempts %d to %d", r.Attempts[0].Number, r.Attempts[AttemptsKept-1].Number)
	}
	a, h := r.Attempts[0], r.History[0]
	if len(a.Reason) != ReasonBytesMax || len(h.Actor) != ReasonBytesMax || len(h.Note) != NoteBytesMax-1 {
		t.Fatalf("reason %d, actor %d, note %d bytes", len(a.Reason), len(h.Actor), len(h.Note))
	}
	if size := len(stored(t, r)); size > 256<<10 {
		t.Fatalf("the record takes %d bytes", size)
	}
	if r, err = Next(r, Event{Kind: LateApplied, Attempt: 100, Receipt: &Receipt{Status: 200}}, t0); err != nil || r.Receipt.Attempt != 100 {
		t.Fatalf("a late answer to an attempt that is not listed: %v", err)
	}
}

// TestUnsentFreesTheClock: a retention counts from the first attempt that may
// have reached the provider.
func TestUnsentFreesTheClock(t *testing.T) {
	begin := Event{Kind: Begun, Begin: beginning()}
	r := follow(t, nil, t0, begin, Event{Kind: SawUnsent, Attempt: 1, Evidence: classify.Unsent})
	if r.FirstSentAt != 0 {
		t.Fatalf("after an unsent attempt: first sent at %d", r.FirstSentAt)
	}
	r = follow(t, r, t0.Add(time.Hour), begin, Event{Kind: SawNotApplied, Attempt: 2, Evidence: classify.Answered}, begin,
		Event{Kind: SawUnsent, Attempt: 3, Evidence: classify.Unsent})
	if r.FirstSentAt != t0.Add(time.Hour) {
		t.Fatalf("after one that was answered: first sent at %d", r.FirstSentAt)
	}
}

func follow(t *testing.T, r *Record, now Instant, events ...Event) *Record {
	t.Helper()
	for _, e := range events {
		next, err := Next(r, e, now)
		if err != nil {
			t.Fatal(err)
		}
		r = next
	}
	return r
}

func TestSources(t *testing.T) {
	begin, lost := Event{Kind: Begun, Begin: beginning()}, Event{Kind: SawAmbiguous, Attempt: 1, Evidence: classify.Lost}
	receipt := &Receipt{Status: 201, Source: 99, SettledAt: 7}
	for want, events := range map[Source][]Event{
		FromAnswer:     {begin, {Kind: SawApplied, Attempt: 1, Receipt: receipt}},
		FromLookup:     {begin, lost, {Kind: LookupFound, Receipt: receipt}},
		FromResend:     {begin, lost, {Kind: ResendBegun, Begin: beginning()}, {Kind: SawApplied, Attempt: 2, Receipt: receipt}},
		FromOperator:   {begin, lost, {Kind: GaveUp}, {Kind: OperatorApplied, Receipt: receipt}},
		FromLateAnswer: {begin, lost, {Kind: LateApplied, Attempt: 1, Receipt: receipt}},
	} {
		if r := follow(t, nil, t0, events...); r.Receipt.Source != want || r.Receipt.SettledAt != t0 || r.DoubtSince != 0 {
			t.Errorf("got a receipt from %s at %d, want %s", r.Receipt.Source, r.Receipt.SettledAt, want)
		}
	}
	if receipt.Source != 99 || receipt.SettledAt != 7 {
		t.Error("Next changed the event's receipt")
	}
}

func TestTombstone(t *testing.T) {
	r := follow(t, nil, t0, Event{Kind: Begun, Begin: beginning()}, Event{Kind: SawApplied, Attempt: 1, Receipt: &Receipt{Status: 201}})
	tomb := follow(t, r, t0.Add(time.Hour), Event{Kind: RetentionOver})
	want := &Record{
		Key: r.Key, State: Expired, Class: r.Class, Fingerprint: r.Fingerprint, AttemptsMade: 1, Version: 3, CreatedAt: t0, UpdatedAt: t0.Add(time.Hour),
		History: []Change{{Event: RetentionOver, From: Succeeded, To: Expired, At: t0.Add(time.Hour)}},
	}
	if !bytes.Equal(stored(t, tomb), stored(t, want)) {
		t.Fatalf("got  %+v\nwant %+v", tomb, want)
	}
	for kind := noEvent; kind <= numEvents; kind++ {
		if _, err := Next(tomb, Event{Kind: kind, Attempt: 1, Begin: beginning(), Receipt: &Receipt{}}, t0); !errors.Is(err, ErrNoTransition) {
			t.Errorf("%s of a tombstone: %v", kind, err)
		}
	}
}

func ExampleNext() {
	k := Key{Namespace: "default", Run: "ticket-77", Turn: "1", Call: "create"}
	b := &Beginning{Key: k, Class: classify.Effect}
	r, _ := Next(nil, Event{Kind: Begun, Begin: b}, t0)
	r, _ = Next(r, Event{Kind: EpochDied}, t0.Add(time.Second))
	_, err := Next(r, Event{Kind: ResendBegun, Begin: b}, t0.Add(time.Minute))
	fmt.Println(r.State, errors.Is(err, ErrGuard))
	// Output: in_doubt true
}

// TestDoubtBeginsAnew: another attempt that ends in doubt begins the waits, and
// the count of lookups, anew.
func TestDoubtBeginsAnew(t *testing.T) {
	miss := func(asked Instant) Event {
		return Event{Kind: LookupAbsent, Begin: beginning(), Absence: Absence{AskedAt: asked, Quiesce: 30 * time.Second, MissesNeeded: 2, Believable: true}}
	}
	later := t0.Add(time.Hour)
	r := follow(t, nil, t0, Event{Kind: Begun, Begin: beginning()}, Event{Kind: SawAmbiguous, Attempt: 1, Evidence: classify.Lost})
	r = follow(t, r, later, miss(later))
	r = follow(t, r, later, Event{Kind: ResendBegun, Begin: beginning()}, Event{Kind: SawNotApplied, Attempt: 2, Evidence: classify.Answered})
	if r.State != InDoubt || r.DoubtSince != later || r.Misses != 0 || r.LastMissAt != 0 {
		t.Fatalf("after the second attempt: %s since %s, %d misses", r.State, time.Duration(r.DoubtSince-t0), r.Misses)
	}
	if r = follow(t, r, later.Add(time.Hour), miss(later.Add(time.Minute))); r.State != InDoubt {
		t.Fatalf("one miss after the second attempt: %s", r.State)
	}
	if r = follow(t, r, later.Add(time.Hour), miss(later.Add(time.Minute))); r.State != Open || r.DoubtSince != 0 {
		t.Fatalf("two misses after the second attempt: %s", r.State)
	}
}

// TestAClockThatWasSetBackMakesNoRepeatSafe: a call that was first sent in the
// future may be of any age, past its provider's retention too.
func TestAClockThatWasSetBackMakesNoRepeatSafe(t *testing.T) {
	for _, class := range []classify.Class{classify.Keyed, classify.Idempotent} {
		b := beginning()
		b.Class = class
		r := follow(t, nil, t0, Event{Kind: Begun, Begin: b}, Event{Kind: EpochDied})
		for by, want := range map[time.Duration]bool{0: true, -ClockSlack: true, -time.Minute: false, -72 * time.Hour: false} {
			if got := RepeatIsSafe(r, t0.Add(by)); got != want {
				t.Errorf("%s, clock moved by %s: %t", class, by, got)
			}
		}
	}
}

package keystore

import (
	"errors"
	"testing"
	"time"

	"counterfoil/classify"
)

// doubtful is a keyed call in doubt after one attempt, under those terms.
func doubtful(t *testing.T, terms Terms, class classify.Class) *Record {
	t.Helper()
	b := &Beginning{Key: Key{Namespace: "n", Run: "r", Turn: "t", Call: "c"}, Class: class, Fingerprint: classify.Fingerprint{1}, Terms: terms, Epoch: 1}
	b.Intent.Origin, b.Intent.Scope, b.Credential = "https://p", "scope", "cred"
	r, err := Next(nil, Event{Kind: Begun, Begin: b}, t0)
	if err != nil {
		t.Fatal(err)
	}
	return next(t, r, Event{Kind: SawAmbiguous, Attempt: 1, Evidence: classify.Lost, Outcome: classify.Ambiguous}, t0)
}

func next(t *testing.T, r *Record, e Event, now Instant) *Record {
	t.Helper()
	n, err := Next(r, e, now)
	if err != nil {
		t.Fatalf("%s of %s: %v", e.Kind, r.State, err)
	}
	return n
}

// asking is who made the call, asking again.
func asking(r *Record, means ...Means) *Request {
	q := &Request{Means: means, Lookup: Absence{Believable: true}}
	q.Key, q.Class, q.Fingerprint, q.Intent, q.Terms, q.Credential, q.Epoch = r.Key, r.Class, r.Fingerprint, r.Intent, r.Terms, r.Credential, 1
	return q
}

// answeredAgain resends and has the provider answer what proves nothing.
func answeredAgain(t *testing.T, r *Record, inFlight bool) *Record {
	t.Helper()
	q := asking(r, ByResend)
	r = next(t, r, Event{Kind: ResendBegun, Begin: &q.Beginning}, t0)
	return next(t, r, Event{Kind: SawAmbiguous, Attempt: r.AttemptsMade, Evidence: classify.Answered, Outcome: classify.Ambiguous, Status: 500, InFlight: inFlight}, t0)
}

// What a provider does with errors under a key decides when resending ends.
func TestWhenResendingEnds(t *testing.T) {
	later := t0.Add(time.Hour)
	for _, tc := range []struct {
		name     string
		errors   ErrorReplay
		inFlight bool
		spent    bool
	}{
		{"errors run anew", ErrorsRunAnew, false, false},
		{"errors are kept", ErrorsAreKept, false, true},
		{"errors are kept, and another copy is at work", ErrorsAreKept, true, false},
		{"errors are forgotten", ErrorsAreForgotten, false, true},
	} {
		r := doubtful(t, Terms{Retention: 24 * time.Hour, Errors: tc.errors}, classify.Keyed)
		if got := Decide(r, RunFacts{}, asking(r, ByResend), later); got.Action != Resend {
			t.Errorf("%s: after a lost answer: %+v", tc.name, got)
		}
		r = answeredAgain(t, r, tc.inFlight)
		if r.ResendSpent != tc.spent {
			t.Errorf("%s: spent is %t", tc.name, r.ResendSpent)
		}
		got := Decide(r, RunFacts{}, asking(r, ByResend, ByLookup), later)
		if want := map[bool]Action{true: Ask, false: Resend}[tc.spent]; got.Action != want {
			t.Errorf("%s: then %+v, want %s", tc.name, got, want)
		}
		q := asking(r, ByResend)
		if _, err := Next(r, Event{Kind: ResendBegun, Begin: &q.Beginning}, later); errors.Is(err, ErrGuard) != tc.spent {
			t.Errorf("%s: another resend: %v", tc.name, err)
		}
	}
	// A first answer already spends where errors are forgotten, and nowhere else.
	for replay, spent := range map[ErrorReplay]bool{ErrorsRunAnew: false, ErrorsAreKept: false, ErrorsAreForgotten: true} {
		b := asking(doubtful(t, Terms{Retention: time.Hour, Errors: replay}, classify.Keyed)).Beginning
		r := next(t, nil, Event{Kind: Begun, Begin: &b}, t0)
		r = next(t, r, Event{Kind: SawAmbiguous, Attempt: 1, Evidence: classify.Answered, Outcome: classify.Ambiguous, Status: 500}, t0)
		if r.ResendSpent != spent {
			t.Errorf("%d: after the first answer spent is %t", replay, r.ResendSpent)
		}
	}
}

// A key whose errors are kept leads nowhere once one was kept: what a lookup does
// not find then is not sent, but unknown.
func TestKeptErrorsConvergeNowhere(t *testing.T) {
	r := answeredAgain(t, doubtful(t, Terms{Retention: 24 * time.Hour, Errors: ErrorsAreKept}, classify.Keyed), false)
	q := asking(r, ByResend, ByLookup)
	r = next(t, r, Event{Kind: LookupAbsent, Begin: &q.Beginning, Absence: Absence{AskedAt: t0.Add(time.Hour), Believable: true}}, t0.Add(time.Hour))
	if r.State != InDoubt {
		t.Fatalf("a miss led to %s", r.State)
	}
	if got := Decide(r, RunFacts{}, q, t0.Add(2*time.Hour)); got.Action != Stop || !got.GiveUp {
		t.Errorf("then %+v", got)
	}
}

// What cannot be judged is for a person, also after a restart, until one asks to
// look again.
func TestStuck(t *testing.T) {
	for _, e := range []Event{
		{Kind: LookupFailed, Reason: "the program failed", Stuck: true},
		{Kind: SawAmbiguous, Attempt: 2, Evidence: classify.Answered, Outcome: classify.Ambiguous, Reason: "the program failed", Stuck: true},
	} {
		r := doubtful(t, Terms{Retention: 24 * time.Hour}, classify.Keyed)
		if e.Kind == SawAmbiguous {
			q := asking(r)
			r = next(t, r, Event{Kind: ResendBegun, Begin: &q.Beginning}, t0)
		}
		r = next(t, r, e, t0)
		q := asking(r, ByResend, ByLookup)
		a, err := Admit(r, RunFacts{}, q, t0.Add(time.Minute))
		if err != nil || !a.Verdict.GiveUp || a.Record.State != Unknown || a.Record.History[len(a.Record.History)-1].Note != "the program failed" {
			t.Fatalf("%s: %+v, %v", e.Kind, a, err)
		}
		if _, err := Next(r, Event{Kind: ResendBegun, Begin: &q.Beginning}, t0); !errors.Is(err, ErrGuard) {
			t.Errorf("%s: a resend is allowed: %v", e.Kind, err)
		}
		again := next(t, a.Record, Event{Kind: OperatorRecheck, Actor: "ada"}, t0)
		if got := Decide(again, RunFacts{}, q, t0.Add(time.Minute)); got.Action != Resend {
			t.Errorf("%s: after a recheck: %+v", e.Kind, got)
		}
	}
}

// Nobody sends again, or believes an absence, on another account than the first:
// what says so besides the credential counts too.
func TestScopeCounts(t *testing.T) {
	r := doubtful(t, Terms{Retention: 24 * time.Hour}, classify.Keyed)
	q := asking(r, ByResend, ByLookup)
	q.Intent.Scope = "another"
	if got := Decide(r, RunFacts{}, q, t0.Add(time.Minute)); got.Action == Resend || got.Action == Send {
		t.Errorf("in another scope: %+v", got)
	}
	if _, err := Next(r, Event{Kind: ResendBegun, Begin: &q.Beginning}, t0); !errors.Is(err, ErrGuard) {
		t.Errorf("a resend in another scope: %v", err)
	}
	r.Class = classify.Effect
	n := next(t, r, Event{Kind: LookupAbsent, Begin: &q.Beginning, Absence: Absence{AskedAt: t0.Add(time.Hour), Believable: true}}, t0.Add(time.Hour))
	if n.State != InDoubt {
		t.Errorf("an absence in another scope led to %s", n.State)
	}
}

// A request that names the version it expects may be sent again while a copy is
// refused, and not after it was answered.
func TestConditional(t *testing.T) {
	r := doubtful(t, Terms{Retention: 24 * time.Hour, Conditional: true}, classify.Effect)
	if got := Decide(r, RunFacts{}, asking(r, ByResend), t0.Add(time.Hour)); got.Action != Resend {
		t.Errorf("got %+v", got)
	}
	if got := Decide(r, RunFacts{}, asking(r, ByResend), t0.Add(24*time.Hour)); got.Action != Stop {
		t.Errorf("too late: %+v", got)
	}
	r = answeredAgain(t, r, false)
	if got := Decide(r, RunFacts{}, asking(r, ByResend), t0.Add(time.Hour)); got.Action != Stop {
		t.Errorf("after an answer: %+v", got)
	}
}

// Where a second copy is refused it is sent once a lookup has found nothing, be
// that believable or not.
func TestResendIfAbsent(t *testing.T) {
	r := doubtful(t, Terms{Retention: 24 * time.Hour, Errors: ErrorsAreKept}, classify.Keyed)
	q := asking(r, ByLookup, ByResendIfAbsent)
	q.Lookup.Believable = false
	if got := Decide(r, RunFacts{}, q, t0.Add(time.Second)); got.Action != Ask {
		t.Fatalf("first %+v", got)
	}
	missed := next(t, r, Event{Kind: LookupAbsent, Begin: &q.Beginning, Absence: Absence{AskedAt: t0.Add(time.Second)}}, t0.Add(time.Second))
	if got := Decide(missed, RunFacts{}, q, t0.Add(2*time.Second)); got.Action != Resend {
		t.Errorf("after a miss: %+v", got)
	}
	q.LookupSpent = true
	if got := Decide(r, RunFacts{}, q, t0.Add(time.Second)); got.Action != Stop {
		t.Errorf("without a lookup's answer: %+v", got)
	}
}

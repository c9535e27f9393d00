package keystore

import (
	"strings"
	"testing"
	"time"

	"counterfoil/classify"
)

func request(means ...Means) *Request {
	return &Request{Beginning: *beginning(), Means: means, Lookup: Absence{Quiesce: 30 * time.Second, Lag: 30 * time.Second, Spacing: time.Minute, Believable: true}}
}

func inState(s State) *Record {
	r, _ := sample(s, noEvent, conditions{})
	r.Class = classify.Keyed
	return r
}

func TestVerdicts(t *testing.T) {
	denied := inState(Abandoned)
	denied.Denied = true
	for _, tc := range []struct {
		name   string
		r      *Record
		with   func(*Request)
		run    RunFacts
		action Action
		reason Reason
	}{
		{name: "nothing on record", action: Send},
		{name: "planned", r: inState(Planned), action: Send},
		{name: "open", r: inState(Open), action: Send},
		{name: "held", r: inState(Held), action: Stop, reason: ApprovalRequired},
		{name: "pending", r: inState(Pending), action: Wait},
		{name: "in doubt, keyed", r: inState(InDoubt), action: Resend},
		{name: "succeeded", r: inState(Succeeded), action: Replay},
		{name: "rejected", r: inState(Rejected), action: Replay},
		{name: "unknown", r: inState(Unknown), action: Stop, reason: UnknownOutcome},
		{name: "abandoned", r: inState(Abandoned), action: Stop, reason: CallAbandoned},
		{name: "denied", r: denied, action: Stop, reason: CallDenied},
		{name: "expired", r: inState(Expired), action: Stop, reason: ReceiptExpired},
		{name: "a state that is none", r: inState(numStates), action: Stop, reason: ReceiptExpired},

		{name: "paused run", run: RunFacts{Unknown: 1}, with: pausing, action: Stop, reason: RunPaused},
		{name: "paused run, policy call", run: RunFacts{Unknown: 1}, action: Send},
		{name: "paused run, open", r: inState(Open), run: RunFacts{Unknown: 1}, with: pausing, action: Stop, reason: RunPaused},
		{name: "paused run, a read", run: RunFacts{Unknown: 1}, with: func(q *Request) { pausing(q); q.Class = classify.Read }, action: Send},
		{name: "paused run, a decision", run: RunFacts{Unknown: 1}, with: func(q *Request) { pausing(q); q.Class = classify.Decision }, action: Send},
		{name: "paused run, a replay", r: inState(Succeeded), run: RunFacts{Unknown: 1}, with: pausing, action: Replay},
		{name: "paused run, in doubt", r: inState(InDoubt), run: RunFacts{Unknown: 1}, with: pausing, action: Resend},

		{name: "only recovering, nothing on record", with: recovering, action: Wait},
		{name: "only recovering, open", r: inState(Open), with: recovering, action: Wait},
		{name: "only recovering, in doubt", r: inState(InDoubt), with: recovering, action: Resend},

		{name: "another request, pending", r: inState(Pending), with: otherRequest, action: Stop, reason: KeyReused},
		{name: "another request, in doubt", r: inState(InDoubt), with: otherRequest, action: Stop, reason: KeyReused},
		{name: "another request, succeeded", r: inState(Succeeded), with: otherRequest, action: Stop, reason: KeyReused},
		{name: "another request, open", r: inState(Open), with: otherRequest, action: Stop, reason: KeyReused},
		{name: "another request, unknown", r: inState(Unknown), with: otherRequest, action: Stop, reason: KeyReused},
		{name: "another request, held", r: inState(Held), with: otherRequest, action: Stop, reason: KeyReused},
		{name: "another request, expired", r: inState(Expired), with: otherRequest, action: Stop, reason: KeyReused},
		{name: "another request, paused run", r: inState(Open), run: RunFacts{Unknown: 1}, with: func(q *Request) { pausing(q); otherRequest(q) }, action: Stop, reason: KeyReused},
		{name: "another principal", r: bound(Succeeded), with: otherRequest, action: Stop, reason: PrincipalMismatch},
		{name: "another principal, pending", r: bound(Pending), action: Stop, reason: PrincipalMismatch},
		{name: "another principal, open", r: bound(Open), action: Send},
		{name: "another principal, open, another request", r: bound(Open), with: otherRequest, action: Stop, reason: KeyReused},
		{name: "the same principal", r: bound(Succeeded), with: func(q *Request) { q.Principal = "p" }, action: Replay},
		{name: "a principal where none was", r: inState(Succeeded), with: func(q *Request) { q.Principal = "p" }, action: Replay},
	} {
		q := request(ByResend)
		if tc.with != nil {
			tc.with(q)
		}
		got := Decide(tc.r, tc.run, q, t0.Add(time.Hour))
		if got.Action != tc.action || got.Reason != tc.reason || got.GiveUp {
			t.Errorf("%s: got %s (%s), give up %t; want %s (%s)", tc.name, got.Action, got.Reason, got.GiveUp, tc.action, tc.reason)
		}
	}
}

func recovering(q *Request)   { q.OnlyRecover = true }
func pausing(q *Request)      { q.PauseOnUnknown = true }
func otherRequest(q *Request) { q.Fingerprint = classify.Fingerprint{2} }

func bound(s State) *Record {
	r := inState(s)
	r.Principal = "p"
	return r
}

func TestRecoveryVerdicts(t *testing.T) {
	const hour = time.Hour
	believable := t0.Add(time.Minute)
	effect := func(r *Record) { r.Class = classify.Effect }
	stop := Verdict{Action: Stop, Reason: UnknownOutcome, GiveUp: true}
	for _, tc := range []struct {
		name  string
		means []Means
		after time.Duration
		r     func(*Record)
		q     func(*Request)
		want  Verdict
	}{
		{name: "no means", want: stop},
		{name: "resend", means: []Means{ByResend}, want: Verdict{Action: Resend}},
		{name: "resend after one that settled nothing", means: []Means{ByResend}, r: resentAt(t0), want: Verdict{Action: Wait, After: t0.Add(ResendRestMin)}},
		{name: "resend after three", means: []Means{ByResend}, r: resentAt(t0, t0, t0), want: Verdict{Action: Wait, After: t0.Add(16 * ResendRestMin)}},
		{name: "resend after many", means: []Means{ByResend}, r: resentAt(t0, t0, t0, t0, t0, t0), want: Verdict{Action: Wait, After: t0.Add(ResendRestMax)}},
		{name: "resend after its rest", means: []Means{ByResend}, after: ResendRestMin, r: resentAt(t0), want: Verdict{Action: Resend}},
		{name: "resend that rests, and a lookup", means: []Means{ByResend, ByLookup}, r: resentAt(t0), want: Verdict{Action: Ask, After: t0}},
		{name: "resend that rests, and a lookup later", means: []Means{ByLookup, ByResend}, r: both(resentAt(t0), func(r *Record) { r.LastMissAt = t0 }), want: Verdict{Action: Wait, After: t0.Add(ResendRestMin)}},
		{name: "resend, too late", means: []Means{ByResend}, after: 24 * hour, want: stop},
		{name: "resend, too late, then lookup", means: []Means{ByResend, ByLookup}, after: 24 * hour, want: Verdict{Action: Ask, After: t0.Add(24 * hour)}},
		{name: "resend of an effect", means: []Means{ByResend}, r: effect, want: stop},
		{name: "lookup before resend", means: []Means{ByLookup, ByResend}, want: Verdict{Action: Ask, After: t0}},
		{name: "lookup that cannot tell, then resend", means: []Means{ByLookup, ByResend}, q: func(q *Request) { q.LookupSpent = true }, want: Verdict{Action: Resend}},
		{name: "lookup at once", means: []Means{ByLookup}, r: effect, want: Verdict{Action: Ask, After: t0}},
		{name: "lookup after an early miss", means: []Means{ByLookup}, after: time.Second, r: missedAt(t0.Add(time.Second), 0), want: Verdict{Action: Ask, After: believable}},
		{name: "lookup after a miss that counted", means: []Means{ByLookup}, after: 61 * time.Second, r: missedAt(believable, 1), want: Verdict{Action: Ask, After: believable.Add(time.Minute)}},
		{name: "lookup long after", means: []Means{ByLookup}, after: hour, r: missedAt(believable, 1), want: Verdict{Action: Ask, After: t0.Add(hour)}},
		{name: "lookup that proves nothing", means: []Means{ByLookup}, after: hour, r: missedAt(believable, 0), q: func(q *Request) { q.Lookup.Believable = false }, want: stop},
		{name: "lookup on another account", means: []Means{ByLookup}, after: hour, r: missedAt(believable, 0), q: func(q *Request) { q.Credential = "another" }, want: stop},
		{name: "only recovering, nothing left", means: []Means{ByLookup}, after: hour, r: missedAt(believable, 0), q: func(q *Request) { q.OnlyRecover, q.Lookup.Believable = true, false }, want: stop},
		{name: "only recovering, on another account", means: []Means{ByLookup}, after: hour, r: missedAt(believable, 0), q: func(q *Request) { q.OnlyRecover, q.Credential = true, "another" }, want: Verdict{Action: Wait, Reason: OtherAccount, After: t0.Add(hour)}},
		{name: "resend on another account, soon", means: []Means{ByResend}, q: func(q *Request) { q.Credential = "another" }, want: Verdict{Action: Wait, Reason: OtherAccount, After: t0.Add(OtherAccountPatience)}},
		{name: "resend on another account, later", means: []Means{ByResend}, after: OtherAccountPatience, q: func(q *Request) { q.Credential = "another" }, want: stop},
		{name: "only recovering, no means", q: func(q *Request) { q.OnlyRecover, q.Credential = true, "another" }, want: stop},
		{name: "lookup that fails, for a while", means: []Means{ByLookup}, after: LookupPatience - 1, r: failing(LookupFailuresMax), want: Verdict{Action: Ask, After: t0.Add(LookupPatience - 1)}},
		{name: "lookup that fails seldom", means: []Means{ByLookup}, after: hour, r: failing(LookupFailuresMax - 1), want: Verdict{Action: Ask, After: t0.Add(hour)}},
		{name: "lookup that fails for good", means: []Means{ByLookup}, after: LookupPatience, r: failing(LookupFailuresMax), want: stop},
	} {
		r, q := inState(InDoubt), request(tc.means...)
		if tc.r != nil {
			tc.r(r)
		}
		if tc.q != nil {
			tc.q(q)
		}
		if got := Decide(r, RunFacts{}, q, t0.Add(tc.after)); got != tc.want {
			t.Errorf("%s: got %+v, want %+v", tc.name, got, tc.want)
		}
	}
}

func resentAt(ends ...Instant) func(*Record) {
	return func(r *Record) {
		for _, end := range ends {
			r.AttemptsMade++
			r.Attempts = append(r.Attempts, Attempt{Number: r.AttemptsMade, EndedAt: end, Resend: true})
		}
	}
}

func both(a, b func(*Record)) func(*Record) {
	return func(r *Record) { a(r); b(r) }
}

func missedAt(at Instant, misses uint32) func(*Record) {
	return func(r *Record) { r.Class, r.LastMissAt, r.Misses = classify.Effect, at, misses }
}

func failing(times uint32) func(*Record) {
	return func(r *Record) { r.Class, r.LookupFailures, r.FailingSince = classify.Effect, times, t0 }
}

// TestWhyItGaveUp: the history says what kept recovery from going on.
func TestWhyItGaveUp(t *testing.T) {
	for _, tc := range []struct {
		q    *Request
		with func(*Record, *Request)
		want string
	}{
		{request(), func(*Record, *Request) {}, "nothing says how to ask"},
		{request(), func(_ *Record, q *Request) { q.NoMeans = "no operation matches" }, "no operation matches"},
		{request(ByLookup), func(r *Record, q *Request) { r.LastMissAt, q.Lookup = t0.Add(time.Hour), Absence{} }, "declares no consistency"},
		{request(ByResend), func(r *Record, _ *Request) { r.Class = classify.Idempotent }, "too long ago"},
		{request(ByLookup), func(_ *Record, q *Request) { q.LookupSpent = true }, "the lookup cannot tell"},
		{request(ByLookup), func(_ *Record, q *Request) { q.LookupSpent, q.LookupReason = true, "it answered 403" }, "it answered 403"},
		{request(ByResend), func(_ *Record, q *Request) { q.Credential = "another" }, "account"},
		{request(ByResend), func(*Record, *Request) {}, "forgotten the key"},
		{request(ByResend), func(r *Record, _ *Request) { r.Class = classify.Effect }, "nothing is left"},
	} {
		r := inState(InDoubt)
		r.DoubtSince = t0
		tc.with(r, tc.q)
		a, err := Admit(r, RunFacts{}, tc.q, t0.Add(48*time.Hour))
		next, v := a.Record, a.Verdict
		if err != nil || !v.GiveUp || next.State != Unknown || !strings.Contains(next.History[len(next.History)-1].Note, tc.want) {
			t.Errorf("%q: %+v, %v; history %+v", tc.want, v, err, next)
		}
	}
}

func TestNamesOfVerdicts(t *testing.T) {
	seen := map[string]bool{"invalid": true}
	for _, name := range append(actionNames[Send:], reasonNames[KeyReused:]...) {
		if name == "" || seen[name] {
			t.Errorf("name %q is empty or used twice", name)
		}
		seen[name] = true
	}
}

func TestRetention(t *testing.T) {
	const day = 24 * time.Hour
	r := Retention{}.WithDefaults()
	if r != (Retention{30 * day, 90 * day, 400 * day}) {
		t.Fatalf("defaults: %+v", r)
	}
	if kept := (Retention{AfterEnd: 1, AfterChange: 2, Tombstone: 3}); kept.WithDefaults() != kept {
		t.Errorf("what was set is not kept: %+v", kept.WithDefaults())
	}
	ended, touched := t0.Add(day), t0.Add(2*day)
	for _, tc := range []struct {
		run  Run
		now  Instant
		over bool
	}{
		{Run{TouchedAt: t0}, t0.Add(90*day - 1), false}, {Run{TouchedAt: t0}, t0.Add(90 * day), true},
		{Run{TouchedAt: t0, EndedAt: ended}, ended.Add(30*day - 1), false}, {Run{TouchedAt: t0, EndedAt: ended}, ended.Add(30 * day), true},
		{Run{TouchedAt: touched, EndedAt: ended}, ended.Add(30 * day), false}, {Run{TouchedAt: touched, EndedAt: ended}, touched.Add(30 * day), true},
	} {
		if got := r.Over(&tc.run, tc.now); got != tc.over {
			t.Errorf("%+v after %s: over %t, want %t", tc.run, time.Duration(tc.now-t0), got, tc.over)
		}
	}
}

func TestInstants(t *testing.T) {
	moment := time.Date(2026, 1, 2, 3, 4, 5, 6, time.FixedZone("", 3600))
	if got := At(moment).Time(); !got.Equal(moment) || got.Location() != time.UTC {
		t.Errorf("got %s, want %s in UTC", got, moment)
	}
	if At(time.Time{}) != 0 || !Instant(0).Time().IsZero() {
		t.Error("the zero time is not never")
	}
	const last, first = Instant(1<<63 - 1), Instant(-1 << 63)
	for _, tc := range []struct {
		i    Instant
		d    time.Duration
		want Instant
	}{{5, 3, 8}, {5, -8, -3}, {last - 1, 1, last}, {last, 1, last}, {t0, 1<<63 - 1, last}, {first, -1, first}, {-t0, -1 << 63, first}} {
		if got := tc.i.Add(tc.d); got != tc.want {
			t.Errorf("%d + %d: got %d, want %d", tc.i, tc.d, got, tc.want)
		}
	}
}

package storetest

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"counterfoil/classify"
	"counterfoil/keystore"
)

// A Place is where the data of one store lies.
type Place struct {
	// Open opens the store on the place's data, with c.Now as its clock and
	// c.Elapsed as its watch. The suite ends one life of a store before it begins
	// the next.
	Open func(c *Clock) (keystore.Store, error)
	// Crash ends a store's life as a loss of power would: what was not synced
	// is gone, and the place can be opened again. Nil where that cannot be
	// done; the suite then closes the store in its place.
	Crash func(s keystore.Store)
	// SetFull says whether the reserve of free space is reached.
	SetFull func(full bool)
}

// An Opener makes a new and empty place. What it needs for that it cleans up
// with t.Cleanup.
type Opener func(t *testing.T) Place

// Run tests that the stores of open keep the contract of keystore.Store.
func Run(t *testing.T, open Opener) {
	t.Helper()
	for _, c := range slices.Concat(cases, runCases, itemCases) {
		t.Run(c.name, func(t *testing.T) {
			b := &trial{T: t, place: open(t), clock: NewClock(), seen: map[keystore.Key]*keystore.Record{}}
			b.open()
			t.Cleanup(func() { b.store.Close() })
			c.test(b)
		})
	}
}

type testCase struct {
	name string
	test func(*trial)
}

var cases = []testCase{
	{"begin sends once and replays", testBeginReplays},
	{"every transition", testTransitions},
	{"an event that means nothing changes nothing", testRefusedEvents},
	{"which intent counts", testIntents},
	{"an attempt is settled once", testSettledOnce},
	{"C38 one key, a hundred begins at once", testC38},
	{"C39 a mismatch wins over in progress", testC39},
	{"the principal wins over the mismatch", testPrincipal},
	{"an epoch's end puts what was pending in doubt", testEpochs},
	{"begin meets an attempt whose owner died", testDeadOwner},
	{"recovery gives up within begin", testGiveUp},
	{"an unknown call pauses its run", testPause},
	{"bodies of every size", testBodies},
	{"staged bodies", testStaged},
	{"a large receipt", testLargeReceipt},
	{"a body is checked against its digest", testDigest},
	{"replays are equal after reopening", testReplayAfterReopen},
	{"the store keeps no memory of its callers", testOwnership},
	{"lists, pages and cursors", testLists},
	{"unsettled calls", testUnsettled},
	{"runs and their totals", testRunSummaries},
	{"namespaces are apart", testNamespaces},
	{"retention and tombstones", testRetention},
	{"what is never collected", testNeverCollected},
	{"what is not on record", testNotFound},
	{"what was acknowledged is there after a crash", testAcknowledged},
	{"mixed load", testMixedLoad},
	{"C85 unrelated keys and one run under load", testC85},
	{"close", testClose},
}

// A trial is one store under test, with what it needs around it.
type trial struct {
	*testing.T
	place Place
	clock *Clock
	store keystore.Store
	// seen is what the store last returned about each call.
	seen map[keystore.Key]*keystore.Record
}

func (b *trial) open() {
	b.Helper()
	store, err := b.place.Open(b.clock)
	if err != nil {
		b.Fatalf("opening: %v", err)
	}
	b.store = store
}

func (b *trial) reopen() {
	b.Helper()
	if err := b.store.Close(); err != nil {
		b.Fatalf("closing: %v", err)
	}
	b.open()
}

func (b *trial) crash() {
	b.Helper()
	if b.place.Crash == nil {
		b.reopen()
		return
	}
	b.place.Crash(b.store)
	b.open()
}

// key names a call of run "r"; keyIn one of another run.
func key(call string) keystore.Key { return keyIn("r", call) }

func keyIn(run, call string) keystore.Key {
	return keystore.Key{Namespace: "default", Run: run, Turn: "1", Call: call}
}

// request asks for an effect that nothing is known about.
func (b *trial) request(k keystore.Key) *keystore.Request {
	return &keystore.Request{Beginning: keystore.Beginning{
		Key: k, Class: classify.Effect, Fingerprint: classify.Fingerprint{1},
		Intent: keystore.Intent{
			Upstream: "tickets", Origin: "http://127.0.0.1:9090", Method: "POST", Target: "/tickets?x=1",
			Header:  classify.Header{{Name: "Content-Type", Value: "application/json"}},
			SentKey: string(k.ProviderKey()), Operation: "create",
		},
		Epoch: b.store.Facts().Epoch, Credential: "credential",
	}}
}

// keyed asks for an effect that the provider deduplicates.
func (b *trial) keyed(k keystore.Key) *keystore.Request {
	q := b.request(k)
	q.Class, q.Terms.Retention, q.Means = classify.Keyed, 24*time.Hour, []keystore.Means{keystore.ByResend}
	return q
}

// lookup asks for an effect that can be looked up.
func (b *trial) lookup(k keystore.Key) *keystore.Request {
	q := b.request(k)
	q.Means = []keystore.Means{keystore.ByLookup}
	q.Lookup = keystore.Absence{Quiesce: 30 * time.Second, Believable: true}
	return q
}

func (b *trial) begin(q *keystore.Request, body []byte) keystore.Admission {
	b.Helper()
	a, err := b.store.Begin(context.Background(), q, body)
	if err != nil {
		b.Fatalf("begin of %s: %v", q.Key, err)
	}
	b.seen[q.Key] = a.Record
	return a
}

// beginning begins q and wants the given action.
func (b *trial) beginning(q *keystore.Request, want keystore.Action) *keystore.Record {
	b.Helper()
	a := b.begin(q, []byte("intent of "+q.Key.Call))
	if a.Verdict.Action != want {
		b.Fatalf("begin of %s: got %s (%s), want %s", q.Key, a.Verdict.Action, a.Verdict.Reason, want)
	}
	return a.Record
}

// stopping begins q and wants it stopped for the given reason.
func (b *trial) stopping(q *keystore.Request, want keystore.Reason) *keystore.Record {
	b.Helper()
	a := b.begin(q, nil)
	if a.Verdict.Action != keystore.Stop || a.Verdict.Reason != want {
		b.Fatalf("begin of %s: got %s (%s), want stop (%s)", q.Key, a.Verdict.Action, a.Verdict.Reason, want)
	}
	return a.Record
}

func (b *trial) apply(k keystore.Key, e keystore.Event, body []byte) *keystore.Record {
	b.Helper()
	r, err := b.store.Apply(context.Background(), k, e, body)
	if err != nil {
		b.Fatalf("%s of %s: %v", e.Kind, k, err)
	}
	b.seen[k] = r
	return r
}

func (b *trial) call(k keystore.Key) *keystore.Record {
	b.Helper()
	r, err := b.store.Call(context.Background(), k)
	if err != nil {
		b.Fatalf("call %s: %v", k, err)
	}
	return r
}

func (b *trial) inState(k keystore.Key, want keystore.State) *keystore.Record {
	b.Helper()
	r := b.call(k)
	if r.State != want {
		b.Fatalf("call %s: got state %s, want %s", k, r.State, want)
	}
	return r
}

// oneCodec is made once: making one costs far more than using it.
var oneCodec = sync.OnceValues(keystore.NewCodec)

// same reports whether two records say the same. Both are compared as they
// would be stored, so that an empty list equals none.
func same(x, y *keystore.Record) bool {
	codec, err := oneCodec()
	if err != nil {
		return false
	}
	left, leftErr := codec.Encode(x)
	right, rightErr := codec.Encode(y)
	return leftErr == nil && rightErr == nil && bytes.Equal(left, right)
}

func (b *trial) bytes(body keystore.Body) []byte {
	b.Helper()
	var got []byte
	err := b.store.ReadBody(context.Background(), body, func(piece []byte) error {
		if len(piece) > 1<<20 {
			b.Errorf("a piece of %d bytes, at most 1 MiB are promised", len(piece))
		}
		got = append(got, piece...)
		return nil
	})
	if err != nil {
		b.Fatalf("reading a body of %d bytes: %v", body.Bytes, err)
	}
	return got
}

func (b *trial) wants(err, want error) {
	b.Helper()
	if !errors.Is(err, want) {
		b.Fatalf("got error %v, want one that is %v", err, want)
	}
}

// Events of the first attempt, and of lookups and persons.

func answered(kind keystore.EventKind, attempt uint32) keystore.Event {
	e := keystore.Event{Kind: kind, Attempt: attempt, Status: 201, Evidence: classify.Answered}
	switch kind { //nolint:exhaustive // answers alone have such facts
	case keystore.SawUnsent:
		e.Status, e.Evidence, e.Reason = 0, classify.Unsent, "connection refused"
	case keystore.SawNotApplied:
		e.Status, e.Outcome = 429, classify.NotApplied
	case keystore.SawApplied, keystore.LateApplied:
		e.Outcome, e.Receipt = classify.Applied, receipt(201)
	case keystore.SawRejected:
		e.Status, e.Outcome, e.Receipt = 422, classify.Rejected, receipt(422)
	case keystore.SawAmbiguous:
		e.Status, e.Evidence, e.Outcome, e.Reason = 0, classify.Lost, classify.Ambiguous, "the connection was cut"
	}
	return e
}

func receipt(status int) *keystore.Receipt {
	return &keystore.Receipt{Status: status, Header: classify.Header{
		{Name: "Content-Type", Value: "application/json"}, {Name: "X-Twice", Value: "a"}, {Name: "X-Twice", Value: "b"},
	}}
}

// succeed brings a call from begin to a receipt.
func (b *trial) succeed(k keystore.Key) {
	b.Helper()
	r := b.beginning(b.request(k), keystore.Send)
	b.apply(k, answered(keystore.SawApplied, r.AttemptsMade), []byte("receipt of "+k.Call))
}

// doubt brings a call from begin into doubt.
func (b *trial) doubt(q *keystore.Request) {
	b.Helper()
	r := b.beginning(q, keystore.Send)
	b.apply(q.Key, answered(keystore.SawAmbiguous, r.AttemptsMade), nil)
}

// lose brings a call from begin to unknown.
func (b *trial) lose(k keystore.Key) {
	b.Helper()
	b.doubt(b.request(k))
	b.apply(k, keystore.Event{Kind: keystore.GaveUp, Reason: "nothing is left to try"}, nil)
}

// hold puts a call on record that waits for approval.
func (b *trial) hold(k keystore.Key) {
	b.Helper()
	r := b.beginning(b.request(k), keystore.Send)
	b.apply(k, answered(keystore.SawUnsent, r.AttemptsMade), nil)
	b.apply(k, keystore.Event{Kind: keystore.WasHeld, Begin: &b.request(k).Beginning}, nil)
}

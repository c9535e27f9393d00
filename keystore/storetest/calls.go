package storetest

import (
	"bytes"
	"context"
	"errors"
	"sync"
	"time"

	"counterfoil/classify"
	"counterfoil/keystore"
)

func testBeginReplays(b *trial) {
	k := key("a")
	q := b.request(k)
	r := b.beginning(q, keystore.Send)
	if r.State != keystore.Pending || r.AttemptsMade != 1 || len(r.Attempts) != 1 || r.Key != k {
		b.Fatalf("after begin: %+v", r)
	}
	if a := r.Attempts[0]; a.Number != 1 || a.Epoch != b.store.Facts().Epoch || a.BegunAt != b.clock.Instant() {
		b.Fatalf("the attempt: %+v, at %d", a, b.clock.Instant())
	}
	if got := b.bytes(r.Intent.Body); string(got) != "intent of a" {
		b.Fatalf("the intent's body: %q", got)
	}
	b.beginning(q, keystore.Wait)
	b.clock.Advance(time.Second)
	settled := b.apply(k, answered(keystore.SawApplied, 1), []byte("receipt"))
	if settled.State != keystore.Succeeded || settled.Receipt.SettledAt != b.clock.Instant() || settled.Receipt.Source != keystore.FromAnswer {
		b.Fatalf("after the answer: %+v, receipt %+v", settled, settled.Receipt)
	}
	replay := b.beginning(q, keystore.Replay)
	if !same(replay, settled) || !same(b.call(k), settled) {
		b.Fatalf("got %+v\nwant %+v", replay, settled)
	}
	if got := b.bytes(replay.Receipt.Body); string(got) != "receipt" {
		b.Fatalf("the receipt's body: %q", got)
	}
}

// A route brings a fresh call to a state; the events lead on from there.
type route struct {
	name string
	to   func(b *trial, k keystore.Key)
	ends []ending
}

type ending struct {
	event keystore.Event
	want  keystore.State
}

func operator(kind keystore.EventKind) keystore.Event {
	e := keystore.Event{Kind: kind, Actor: "ann", Note: "seen in the dashboard"}
	if kind == keystore.OperatorApplied {
		e.Receipt = receipt(200)
	}
	return e
}

func (b *trial) absent(k keystore.Key) keystore.Event {
	return keystore.Event{Kind: keystore.LookupAbsent, Begin: &b.keyed(k).Beginning, Absence: keystore.Absence{
		AskedAt: b.clock.Instant(), Quiesce: 30 * time.Second, Believable: true,
	}}
}

func routes(b *trial) []route {
	pending := func(b *trial, k keystore.Key) { b.beginning(b.request(k), keystore.Send) }
	open := func(b *trial, k keystore.Key) {
		pending(b, k)
		b.apply(k, answered(keystore.SawNotApplied, 1), nil)
	}
	doubt := func(b *trial, k keystore.Key) {
		b.doubt(b.keyed(k))
		b.clock.Advance(time.Minute)
	}
	absent := func(b *trial, k keystore.Key) {
		doubt(b, k)
		b.apply(k, b.absent(k), nil)
	}
	held := func(b *trial, k keystore.Key) { b.hold(k) }
	planned := func(b *trial, k keystore.Key) {
		b.hold(k)
		b.apply(k, keystore.Event{Kind: keystore.WasApproved, Actor: "ann"}, nil)
	}
	resent := func(b *trial, k keystore.Key) {
		doubt(b, k)
		b.beginning(b.keyed(k), keystore.Resend)
	}
	unknown := func(b *trial, k keystore.Key) { b.lose(k) }
	early := keystore.Event{Kind: keystore.LookupAbsent, Absence: keystore.Absence{Quiesce: time.Hour, Believable: true, AskedAt: b.clock.Instant()}}
	hold := keystore.Event{Kind: keystore.WasHeld, Begin: &b.request(key("x")).Beginning}
	return []route{
		{"pending", pending, []ending{
			{answered(keystore.SawUnsent, 1), keystore.Open}, {answered(keystore.SawNotApplied, 1), keystore.Open},
			{answered(keystore.SawApplied, 1), keystore.Succeeded}, {answered(keystore.SawRejected, 1), keystore.Rejected},
			{answered(keystore.SawAmbiguous, 1), keystore.InDoubt}, {keystore.Event{Kind: keystore.EpochDied}, keystore.InDoubt},
			{answered(keystore.LateApplied, 1), keystore.Succeeded},
		}},
		{"open", open, []ending{{hold, keystore.Held}, {answered(keystore.LateApplied, 1), keystore.Succeeded}}},
		{"absent", absent, []ending{{hold, keystore.Held}}},
		{"held", held, []ending{
			{keystore.Event{Kind: keystore.WasApproved, Actor: "ann"}, keystore.Planned},
			{keystore.Event{Kind: keystore.WasDenied, Actor: "ann"}, keystore.Abandoned},
		}},
		{"planned", planned, []ending{{hold, keystore.Held}}},
		{"in doubt", doubt, []ending{
			{keystore.Event{Kind: keystore.LookupFound, Receipt: receipt(200)}, keystore.Succeeded}, {early, keystore.InDoubt},
			{keystore.Event{Kind: keystore.LookupFailed, Reason: "time-out"}, keystore.InDoubt},
			{keystore.Event{Kind: keystore.GaveUp}, keystore.Unknown}, {answered(keystore.LateApplied, 1), keystore.Succeeded},
		}},
		{"sent again", resent, []ending{
			{answered(keystore.SawUnsent, 2), keystore.InDoubt}, {answered(keystore.SawNotApplied, 2), keystore.InDoubt},
			{answered(keystore.SawApplied, 2), keystore.Succeeded}, {answered(keystore.SawRejected, 2), keystore.Rejected},
			{answered(keystore.SawAmbiguous, 2), keystore.InDoubt}, {answered(keystore.LateApplied, 1), keystore.Succeeded},
		}},
		{"unknown", unknown, []ending{
			{operator(keystore.OperatorApplied), keystore.Succeeded}, {operator(keystore.OperatorNotApplied), keystore.Open},
			{operator(keystore.OperatorAbandoned), keystore.Abandoned}, {operator(keystore.OperatorRecheck), keystore.InDoubt},
			{answered(keystore.LateApplied, 1), keystore.Succeeded},
		}},
	}
}

// testTransitions holds what a store keeps after each event against what Next
// says of the record before it.
func testTransitions(b *trial) {
	for _, route := range routes(b) {
		for _, end := range route.ends {
			k := keyIn(route.name, end.event.Kind.String())
			route.to(b, k)
			b.clock.Advance(time.Second)
			before := b.call(k)
			event := end.event
			if event.Begin != nil {
				begin := *event.Begin
				begin.Key = k
				event.Begin = &begin
			}
			want, err := keystore.Next(before, event, b.clock.Instant())
			if err != nil {
				b.Fatalf("%s of %s: the test's own event is refused: %v", event.Kind, k, err)
			}
			got := b.apply(k, event, nil)
			if got.State != end.want || !same(got, want) {
				b.Fatalf("%s of %s:\ngot  %+v\nwant %+v in state %s", event.Kind, k, got, want, end.want)
			}
			if stored := b.call(k); !same(stored, got) {
				b.Fatalf("%s of %s:\nstored %+v\nwant   %+v", event.Kind, k, stored, got)
			}
		}
	}
}

func testRefusedEvents(b *trial) {
	k := key("a")
	b.beginning(b.request(k), keystore.Send)
	before := b.call(k)
	for _, refused := range []struct {
		event keystore.Event
		want  error
	}{
		{keystore.Event{Kind: keystore.LookupFound, Receipt: receipt(200)}, keystore.ErrNoTransition},
		{answered(keystore.SawApplied, 2), keystore.ErrStaleAttempt},
		{keystore.Event{Kind: keystore.SawApplied, Attempt: 1}, keystore.ErrGuard},
		{keystore.Event{Kind: keystore.Begun, Begin: &b.request(k).Beginning}, keystore.ErrNoTransition},
		{keystore.Event{}, keystore.ErrNoTransition},
	} {
		_, err := b.store.Apply(context.Background(), k, refused.event, nil)
		b.wants(err, refused.want)
		if after := b.call(k); !same(after, before) {
			b.Fatalf("%s changed the record: %+v", refused.event.Kind, after)
		}
	}
}

// testIntents: a begin that sends nothing keeps no body, a resend keeps the
// intent that was sent, and a fresh attempt after nothing had happened puts its
// own in the place of the old.
func testIntents(b *trial) {
	k := key("a")
	for _, step := range []struct {
		body string
		want keystore.Action
		kept string
		then keystore.Event
	}{
		{"first", keystore.Send, "first", keystore.Event{}},
		{"while pending", keystore.Wait, "first", answered(keystore.SawNotApplied, 1)},
		{"second", keystore.Send, "second", answered(keystore.SawAmbiguous, 2)},
		{"resend", keystore.Resend, "second", answered(keystore.SawApplied, 3)},
		{"replay", keystore.Replay, "second", keystore.Event{}},
	} {
		q := b.keyed(k)
		q.Intent.Target = "/" + step.body
		a := b.begin(q, []byte(step.body))
		if a.Verdict.Action != step.want || a.Record.Intent.Target != "/"+step.kept {
			b.Fatalf("%s: got %s with target %s, want %s with /%s", step.body, a.Verdict.Action, a.Record.Intent.Target, step.want, step.kept)
		}
		b.holds(b.call(k).Intent.Body, []byte(step.kept))
		if step.then.Kind != 0 {
			b.apply(k, step.then, nil)
		}
	}
	b.crash()
	b.holds(b.call(k).Intent.Body, []byte("second"))
}

// testSettledOnce: of many answers to one attempt exactly one becomes the
// receipt, and it stays.
func testSettledOnce(b *trial) {
	k := key("a")
	b.beginning(b.request(k), keystore.Send)
	errs := make([]error, 50)
	records := make([]*keystore.Record, len(errs))
	var group sync.WaitGroup
	for i := range errs {
		group.Go(func() {
			records[i], errs[i] = b.store.Apply(context.Background(), k, answered(keystore.SawApplied, 1), noise(40<<10+i, byte(i)))
		})
	}
	group.Wait()
	winner := -1
	for i, err := range errs {
		if err != nil {
			b.wants(err, keystore.ErrNoTransition)
			continue
		}
		if winner >= 0 {
			b.Fatalf("answers %d and %d both became the receipt", winner, i)
		}
		winner = i
	}
	if winner < 0 {
		b.Fatal("no answer became the receipt")
	}
	b.crash()
	r := b.call(k)
	if !same(r, records[winner]) {
		b.Fatalf("got  %+v\nwant %+v", r, records[winner])
	}
	b.holds(r.Receipt.Body, noise(40<<10+winner, byte(winner)))
}

// testC38: one hundred equal requests at once, of which exactly one is sent, and
// the same with two different requests.
func testC38(b *trial) {
	for round := range 10 {
		k := keyIn("c38", string(rune('a'+round)))
		admissions := b.beginAtOnce(100, func(int) *keystore.Request { return b.request(k) })
		count := map[keystore.Action]int{}
		for _, a := range admissions {
			count[a.Verdict.Action]++
		}
		if count[keystore.Send] != 1 || count[keystore.Wait] != 99 {
			b.Fatalf("round %d: got %v, want 1 send and 99 wait", round, count)
		}
		if r := b.inState(k, keystore.Pending); r.AttemptsMade != 1 {
			b.Fatalf("round %d: %d attempts", round, r.AttemptsMade)
		}
		b.apply(k, answered(keystore.SawApplied, 1), []byte("one"))
		for _, a := range b.beginAtOnce(100, func(int) *keystore.Request { return b.request(k) }) {
			if a.Verdict.Action != keystore.Replay || !same(a.Record, b.call(k)) {
				b.Fatalf("round %d: after the receipt: %+v", round, a)
			}
		}
	}
	k := key("two requests")
	sent, reused := 0, 0
	for _, a := range b.beginAtOnce(100, func(i int) *keystore.Request {
		q := b.request(k)
		q.Fingerprint[1] = byte(i % 2)
		return q
	}) {
		if a.Verdict.Action == keystore.Send {
			sent++
		}
		if a.Verdict.Reason == keystore.KeyReused {
			reused++
		}
	}
	if sent != 1 || reused != 50 {
		b.Fatalf("two requests under one key: %d sent, %d refused as reused; want 1 and 50", sent, reused)
	}
}

// beginAtOnce lets n begins loose together and returns what each came to.
func (b *trial) beginAtOnce(n int, request func(i int) *keystore.Request) []keystore.Admission {
	b.Helper()
	admissions, errs := make([]keystore.Admission, n), make([]error, n)
	var group sync.WaitGroup
	start := make(chan struct{})
	for i := range n {
		q := request(i)
		group.Go(func() {
			<-start
			admissions[i], errs[i] = b.store.Begin(context.Background(), q, []byte("body"))
		})
	}
	close(start)
	group.Wait()
	if err := errors.Join(errs...); err != nil {
		b.Fatalf("begin: %v", err)
	}
	return admissions
}

// testC39: under a busy key, another request is told so at once, and an equal
// one to wait; and so it is in every other state.
func testC39(b *trial) {
	k := key("a")
	other := b.request(k)
	other.Fingerprint = classify.Fingerprint{2}
	b.beginning(b.request(k), keystore.Send)
	b.stopping(other, keystore.KeyReused)
	b.beginning(b.request(k), keystore.Wait)
	b.apply(k, answered(keystore.SawApplied, 1), nil)
	b.stopping(other, keystore.KeyReused)
	b.beginning(b.request(k), keystore.Replay)

	for _, reach := range []func(keystore.Key){
		func(k keystore.Key) { b.hold(k) }, func(k keystore.Key) { b.doubt(b.request(k)) }, func(k keystore.Key) { b.lose(k) },
	} {
		k := keyIn("states", string(rune('a'+len(b.seen))))
		reach(k)
		other.Key = k
		before := b.call(k)
		b.stopping(other, keystore.KeyReused)
		if !same(b.call(k), before) {
			b.Fatalf("a refused begin changed the record of %s", k)
		}
	}
}

func (b *trial) openCall(call string) {
	k := key(call)
	b.beginning(b.request(k), keystore.Send)
	b.apply(k, answered(keystore.SawNotApplied, 1), nil)
}

func testPrincipal(b *trial) {
	k := key("a")
	mine := b.request(k)
	mine.Principal = "mine"
	theirs := b.request(k)
	theirs.Principal, theirs.Fingerprint = "theirs", classify.Fingerprint{2}
	b.beginning(mine, keystore.Send)
	b.stopping(theirs, keystore.PrincipalMismatch)
	b.apply(k, answered(keystore.SawApplied, 1), nil)
	b.stopping(theirs, keystore.PrincipalMismatch)
	theirs.Fingerprint = mine.Fingerprint
	b.stopping(theirs, keystore.PrincipalMismatch)
	b.beginning(mine, keystore.Replay)
}

func testEpochs(b *trial) {
	first := b.store.Facts()
	if first.Epoch == 0 || first.Secret == ([32]byte{}) || first.Doubtful != 0 {
		b.Fatalf("facts of a new store: epoch %d, %d doubtful", first.Epoch, first.Doubtful)
	}
	for _, call := range []string{"a", "b", "c"} {
		b.beginning(b.lookup(key(call)), keystore.Send)
	}
	b.succeed(key("d"))
	b.clock.Advance(time.Hour)
	b.crash()
	second := b.store.Facts()
	if second.Epoch <= first.Epoch || second.Secret != first.Secret || second.Doubtful != 3 {
		b.Fatalf("after a crash: epoch %d after %d, equal secret %t, %d doubtful; want 3", second.Epoch, first.Epoch, second.Secret == first.Secret, second.Doubtful)
	}
	for _, call := range []string{"a", "b", "c"} {
		r := b.inState(key(call), keystore.InDoubt)
		if a := r.Attempts[0]; r.DoubtSince != b.clock.Instant() || a.Evidence != classify.Lost || a.Epoch != first.Epoch {
			b.Fatalf("%s: doubt since %d, now %d, attempt %+v", r.Key, r.DoubtSince, b.clock.Instant(), a)
		}
	}
	b.inState(key("d"), keystore.Succeeded)
	b.reopen()
	if third := b.store.Facts(); third.Epoch <= second.Epoch || third.Doubtful != 0 {
		b.Fatalf("after closing: epoch %d after %d, %d doubtful; want 0", third.Epoch, second.Epoch, third.Doubtful)
	}
}

// testDeadOwner: taking over a call whose owner died never means that nothing
// was sent.
func testDeadOwner(b *trial) {
	b.beginning(b.lookup(key("ask")), keystore.Send)
	b.beginning(b.keyed(key("resend")), keystore.Send)
	b.beginning(b.request(key("give up")), keystore.Send)
	b.crash()
	if r := b.beginning(b.lookup(key("ask")), keystore.Ask); r.State != keystore.InDoubt {
		b.Fatalf("ask: %+v", r)
	}
	r := b.beginning(b.keyed(key("resend")), keystore.Resend)
	if r.State != keystore.Pending || r.AttemptsMade != 2 || !r.Attempts[1].Resend || r.Attempts[0].Evidence != classify.Lost {
		b.Fatalf("resend: %+v", r)
	}
	if got := b.bytes(r.Intent.Body); string(got) != "intent of resend" {
		b.Fatalf("the intent to be sent again: %q", got)
	}
	if r := b.stopping(b.request(key("give up")), keystore.UnknownOutcome); r.State != keystore.Unknown {
		b.Fatalf("give up: %+v", r)
	}
	_, err := b.store.Apply(context.Background(), key("ask"), answered(keystore.SawApplied, 1), nil)
	b.wants(err, keystore.ErrNoTransition)
	b.apply(key("ask"), answered(keystore.LateApplied, 1), []byte("late"))
}

func testGiveUp(b *trial) {
	k := key("a")
	b.doubt(b.request(k))
	r := b.stopping(b.request(k), keystore.UnknownOutcome)
	if r.State != keystore.Unknown || len(r.History) != 1 || r.History[0].Note == "" {
		b.Fatalf("after giving up: %+v", r)
	}
	again := b.stopping(b.request(k), keystore.UnknownOutcome)
	if again.Version != r.Version || !same(b.call(k), r) {
		b.Fatalf("a second begin changed the record: %+v", again)
	}
}

func testPause(b *trial) {
	pausing := func(k keystore.Key) *keystore.Request {
		q := b.request(k)
		q.PauseOnUnknown = true
		return q
	}
	b.lose(key("lost"))
	b.succeed(key("done"))
	b.stopping(pausing(key("new")), keystore.RunPaused)
	_, err := b.store.Call(context.Background(), key("new"))
	b.wants(err, keystore.ErrNotFound)
	b.beginning(pausing(key("done")), keystore.Replay)
	b.beginning(pausing(keyIn("another", "new")), keystore.Send)
	b.beginning(b.request(key("policy is call")), keystore.Send)
	read := pausing(key("read"))
	read.Class = classify.Read
	b.beginning(read, keystore.Send)

	b.crash()
	b.stopping(pausing(key("new")), keystore.RunPaused)
	b.apply(key("lost"), operator(keystore.OperatorAbandoned), nil)
	b.beginning(pausing(key("new")), keystore.Send)
}

// testOwnership: neither what a caller passed in nor what it got back is the
// store's own memory.
func testOwnership(b *trial) {
	k := key("a")
	q, body := b.request(k), []byte("intent")
	b.begin(q, body)
	e, answer := answered(keystore.SawApplied, 1), []byte("receipt")
	want := b.apply(k, e, answer)
	kept := b.call(k)
	q.Intent.Header[0].Value, e.Receipt.Header[0].Value = "changed", "changed"
	clear(body)
	clear(answer)
	for _, own := range []*keystore.Record{want, b.call(k), b.begin(b.request(k), nil).Record} {
		own.Intent.Header[0].Name, own.Receipt.Header[0].Name, own.Attempts[0].Status = "changed", "changed", 0
		own.Receipt.Status, own.Key.Call = 0, "changed"
		clear(own.Receipt.Body.Inline)
		clear(own.Intent.Body.Inline)
	}
	got := b.call(k)
	if !same(got, kept) {
		b.Fatalf("got  %+v\nwant %+v", got, kept)
	}
	if !bytes.Equal(b.bytes(got.Intent.Body), []byte("intent")) || !bytes.Equal(b.bytes(got.Receipt.Body), []byte("receipt")) {
		b.Fatal("the bodies changed with the callers' memory")
	}
}

func testNotFound(b *trial) {
	ctx := context.Background()
	_, err := b.store.Call(ctx, key("a"))
	b.wants(err, keystore.ErrNotFound)
	_, err = b.store.Apply(ctx, key("a"), answered(keystore.SawApplied, 1), nil)
	b.wants(err, keystore.ErrNotFound)
	_, err = b.store.Run(ctx, "default", "r")
	b.wants(err, keystore.ErrNotFound)
	none, err := b.store.Calls(ctx, "default", "r", keystore.Page{})
	if err != nil || len(none.Items) != 0 || none.Next != "" {
		b.Fatalf("calls of no run: %+v, %v", none, err)
	}
	missing := keystore.Body{Bytes: 5, SHA256: [32]byte{1}, Missing: true}
	b.wants(b.store.ReadBody(ctx, missing, func([]byte) error { return nil }), keystore.ErrNotFound)
}

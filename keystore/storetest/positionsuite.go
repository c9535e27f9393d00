package storetest

import (
	"context"
	"fmt"
	"slices"

	"counterfoil/classify"
	"counterfoil/keystore"
)

const content = keystore.Content("0123456789ab")

// ordinal names a slot in an incarnation, in turn "1" of run "r".
func ordinal(slot uint32, incarnation uint64) *keystore.Ordinal {
	return &keystore.Ordinal{Content: content, Slot: slot, Incarnation: incarnation}
}

func slotKey(o *keystore.Ordinal) keystore.Key { return key(keystore.OrdinalCall(o.Content, o.Slot)) }

// counted asks for the effect of a slot.
func (b *trial) counted(o *keystore.Ordinal) *keystore.Request {
	q := b.request(slotKey(o))
	q.Ordinal = o
	return q
}

func (b *trial) position(turn string) keystore.Position {
	b.Helper()
	p, err := b.store.Position(context.Background(), "default", "r", turn, content)
	if err != nil {
		b.Fatalf("the position in turn %s: %v", turn, err)
	}
	return p
}

func (b *trial) step(o *keystore.Ordinal, m keystore.Move) {
	b.Helper()
	if err := b.store.Step(context.Background(), slotKey(o), o, m); err != nil {
		b.Fatalf("moving %+v: %v", o, err)
	}
}

// succeedAt begins and settles the call of a slot. Its position stays.
func (b *trial) succeedAt(o *keystore.Ordinal, attempt uint32) {
	b.Helper()
	b.beginning(b.counted(o), keystore.Send)
	b.apply(slotKey(o), answered(keystore.SawApplied, attempt), nil)
}

func (b *trial) hasPosition(want keystore.Position) {
	b.Helper()
	got := b.position("1")
	if got.Incarnation != want.Incarnation || got.Known != want.Known || got.Taken != want.Taken || got.Through != want.Through ||
		!slices.Equal(got.Ahead, want.Ahead) || !slices.Equal(got.Ties, want.Ties) {
		b.Fatalf("the position: got %+v, want %+v", got, want)
	}
}

func testSlots(b *trial) {
	tied := ordinal(0, 1)
	tied.Tie = "tie"
	b.beginning(b.counted(tied), keystore.Send)
	b.beginning(b.counted(tied), keystore.Wait)
	b.beginning(b.counted(ordinal(1, 1)), keystore.Send)
	for _, end := range []func(){func() {}, b.crash} {
		end()
		b.hasPosition(keystore.Position{Incarnation: 1, Taken: 2, Ties: []keystore.Tie{{Key: "tie", Slot: 0}}})
		if r := b.run("r").Repeats; r.Incarnation != 1 || r.Effects != 2 || r.Earlier != 0 {
			b.Fatalf("the repeats: %+v", r)
		}
	}
	if p := b.position("2"); p.Incarnation != 0 {
		b.Fatalf("the position in another turn: %+v", p)
	}
	read := b.counted(&keystore.Ordinal{Content: "ba9876543210", Incarnation: 1})
	read.Class = classify.Read
	b.beginning(read, keystore.Send)
	b.hasPosition(keystore.Position{Incarnation: 1, Taken: 2, Ties: []keystore.Tie{{Key: "tie", Slot: 0}}})
	if r := b.run("r").Repeats; r.Effects != 2 {
		b.Fatalf("the repeats count a read: %+v", r)
	}
	_, err := b.store.Begin(context.Background(), b.counted(ordinal(keystore.AheadMax+1, 1)), nil)
	b.wants(err, keystore.ErrTooManyAhead)
}

func testAnswered(b *trial) {
	for i, end := range []struct {
		kind keystore.EventKind
		then keystore.Position
	}{
		{keystore.SawApplied, keystore.Position{Incarnation: 1, Taken: 1, Through: 1}},
		{keystore.SawAmbiguous, keystore.Position{Incarnation: 1, Taken: 2, Through: 1}},
		{keystore.SawRejected, keystore.Position{Incarnation: 1, Taken: 3, Through: 1, Ahead: []uint32{2}}},
		{keystore.SawNotApplied, keystore.Position{Incarnation: 1, Taken: 4, Through: 1, Ahead: []uint32{2}}},
	} {
		o := ordinal(uint32(i), 1)
		b.beginning(b.counted(o), keystore.Send)
		e := answered(end.kind, 1)
		e.Answered = o
		b.apply(slotKey(o), e, nil)
		b.hasPosition(end.then)
		b.crash()
		b.hasPosition(end.then)
	}
	late := answered(keystore.LateApplied, 1)
	late.Answered = ordinal(1, 1)
	b.apply(slotKey(late.Answered), late, nil)
	b.hasPosition(keystore.Position{Incarnation: 1, Taken: 4, Through: 3})
}

func testAnsweredStale(b *trial) {
	old := ordinal(0, 1)
	b.beginning(b.counted(old), keystore.Send)
	b.beginning(b.counted(ordinal(0, 2)), keystore.Wait)
	b.beginning(b.counted(&keystore.Ordinal{Content: "ba9876543210", Incarnation: 2}), keystore.Send)
	e := answered(keystore.SawApplied, 1)
	e.Answered = old
	if r := b.apply(slotKey(old), e, []byte("known")); r.State != keystore.Succeeded {
		b.Fatalf("a replaced incarnation's receipt: %+v", r)
	}
	b.hasPosition(keystore.Position{Incarnation: 2, Known: 1, Taken: 1})
	far := b.counted(&keystore.Ordinal{Content: "abababababab", Incarnation: 2})
	b.beginning(far, keystore.Send)
	e = answered(keystore.SawApplied, 1)
	e.Answered = &keystore.Ordinal{Content: "abababababab", Slot: 1 << 20, Incarnation: 2}
	b.apply(far.Key, e, nil)
	b.crash()
	b.inState(far.Key, keystore.Succeeded)
	b.beginning(b.counted(ordinal(0, 2)), keystore.Replay)
}

func testFinalTakesSlot(b *trial) {
	b.beginning(b.counted(ordinal(0, 1)), keystore.Send)
	b.apply(slotKey(ordinal(0, 1)), answered(keystore.SawAmbiguous, 1), nil)
	b.apply(slotKey(ordinal(0, 1)), keystore.Event{Kind: keystore.GaveUp}, nil)
	before := b.apply(slotKey(ordinal(0, 1)), operator(keystore.OperatorAbandoned), nil)
	b.stopping(b.counted(ordinal(0, 2)), keystore.CallAbandoned)
	for _, end := range []func(){func() {}, b.crash} {
		end()
		b.hasPosition(keystore.Position{Incarnation: 2, Known: 1, Taken: 1})
		if !same(b.call(before.Key), before) {
			b.Fatal("the record changed")
		}
		if r := b.run("r").Repeats; r.Incarnation != 2 || r.Repeated != 1 || r.Earlier != 1 {
			b.Fatalf("the repeats: %+v", r)
		}
	}
	b.beginning(b.counted(ordinal(1, 2)), keystore.Send)
}

func testStep(b *trial) {
	for slot := range uint32(3) {
		b.succeedAt(ordinal(slot, 1), 1)
	}
	b.step(ordinal(1, 1), keystore.Forth)
	b.hasPosition(keystore.Position{Incarnation: 1, Taken: 3, Ahead: []uint32{1}})
	b.step(ordinal(0, 1), keystore.Forth)
	b.step(ordinal(0, 1), keystore.Forth)
	b.hasPosition(keystore.Position{Incarnation: 1, Taken: 3, Through: 2})
	b.step(ordinal(0, 1), keystore.Back)
	b.crash()
	b.hasPosition(keystore.Position{Incarnation: 1, Taken: 3, Ahead: []uint32{1}})
	b.step(ordinal(0, 2), keystore.Forth) // a replay takes its slot when it ends
	b.hasPosition(keystore.Position{Incarnation: 2, Known: 3, Taken: 1, Through: 1})
	if r := b.run("r").Repeats; r != (keystore.Repeats{Incarnation: 2, Effects: 3, Earlier: 3, Repeated: 1}) {
		b.Fatalf("the repeats: %+v", r)
	}
}

func testStaleIncarnation(b *trial) {
	ctx := context.Background()
	b.succeedAt(ordinal(0, 1), 1)
	b.step(ordinal(0, 2), keystore.Forth)
	b.stopping(b.counted(ordinal(0, 1)), keystore.Fenced)
	b.stopping(b.counted(ordinal(1, 1)), keystore.Fenced)
	for _, m := range []keystore.Move{keystore.Forth, keystore.Back} {
		b.refused(b.store.Step(ctx, slotKey(ordinal(0, 1)), ordinal(0, 1), m), keystore.Fenced)
	}
	b.hasPosition(keystore.Position{Incarnation: 2, Known: 1, Taken: 1, Through: 1})
	b.crash()
	b.stopping(b.counted(ordinal(0, 1)), keystore.Fenced)
}

func testDivergence(b *trial) {
	for slot := range uint32(2) {
		b.succeedAt(ordinal(slot, 1), 1)
	}
	b.step(ordinal(0, 2), keystore.Forth)
	other := func(hold bool, call uint32) *keystore.Request {
		q := b.counted(&keystore.Ordinal{Content: "ba9876543210", Slot: call, Incarnation: 2})
		q.HoldDiverged = hold
		return q
	}
	a := b.begin(other(true, 0), []byte("a new effect"))
	if !a.Verdict.Diverges || !a.Verdict.Hold || a.Verdict.Reason != keystore.Diverged || a.Record.State != keystore.Held || a.Record.HeldFor != keystore.Diverged {
		b.Fatalf("a new effect before all were repeated: %+v, %+v", a.Verdict, a.Record)
	}
	b.crash()
	b.holds(b.call(a.Record.Key).Intent.Body, []byte("a new effect"))
	if got := b.unsettled(keystore.Held); len(got) != 1 {
		b.Fatalf("held: %q", got)
	}
	if at := b.run("r").Repeats.DivergedAt; at != b.clock.Instant() {
		b.Fatalf("diverged at %d", at)
	}
	b.stopping(other(true, 0), keystore.Diverged)
	b.apply(a.Record.Key, keystore.Event{Kind: keystore.WasApproved, Actor: "ann"}, nil)
	if a = b.begin(other(true, 0), []byte("a new effect")); a.Verdict.Action != keystore.Send {
		b.Fatalf("once approved: %+v", a.Verdict)
	}
	if a = b.begin(other(false, 1), nil); a.Verdict.Action != keystore.Send || !a.Verdict.Diverges {
		b.Fatalf("where it is not held: %+v", a.Verdict)
	}
	b.beginning(b.counted(ordinal(1, 2)), keystore.Replay)
	b.step(ordinal(1, 2), keystore.Forth)
	if a = b.begin(other(true, 2), nil); a.Verdict.Action != keystore.Send || a.Verdict.Diverges {
		b.Fatalf("once all were repeated: %+v", a.Verdict)
	}
}

func testHeldByBegin(b *trial) {
	for i, size := range []int{10, 100 << 10} {
		k := key(fmt.Sprint("call ", i))
		q := b.request(k)
		q.Approval = classify.ApprovalRequired
		body := noise(size, byte(i))
		a := b.begin(q, body)
		if a.Verdict.Action != keystore.Stop || a.Verdict.Reason != keystore.ApprovalRequired || a.Record.State != keystore.Held {
			b.Fatalf("a call that needs approval: %+v, %+v", a.Verdict, a.Record)
		}
		b.crash()
		r := b.inState(k, keystore.Held)
		if r.HeldFor != keystore.ApprovalRequired || r.AttemptsMade != 0 || r.Intent.Target != q.Intent.Target || r.Fingerprint != q.Fingerprint {
			b.Fatalf("the held call: %+v", r)
		}
		b.holds(r.Intent.Body, body)
		if sum := b.run("r"); sum.Calls[keystore.Held] != 1 || sum.EffectsBegun() != uint32(i) {
			b.Fatalf("the run: %+v", sum)
		}
		if got := b.unsettled(keystore.Held); !slices.Equal(got, []string{k.Call}) || b.store.Stats().Held != 1 {
			b.Fatalf("held: %q, %+v", got, b.store.Stats())
		}
		if again := b.stopping(q, keystore.ApprovalRequired); !same(again, r) {
			b.Fatalf("asked again: %+v", again)
		}
		b.apply(k, keystore.Event{Kind: keystore.WasApproved, Actor: "ann"}, nil)
		q.Intent.Body = keystore.Body{}
		if a := b.begin(q, body); a.Verdict.Action != keystore.Send || a.Record.Approval == nil {
			b.Fatalf("once approved: %+v, %+v", a.Verdict, a.Record)
		}
		b.holds(b.call(k).Intent.Body, body)
		b.apply(k, answered(keystore.SawApplied, 1), nil)
	}
	denied := b.request(key("denied"))
	denied.Approval = classify.ApprovalRequired
	b.stopping(denied, keystore.ApprovalRequired)
	b.apply(denied.Key, keystore.Event{Kind: keystore.WasDenied, Actor: "ann"}, nil)
	b.crash()
	b.stopping(denied, keystore.CallDenied)
}

package journal

import (
	"context"
	"fmt"
	"io"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"counterfoil/classify"
	"counterfoil/keystore"
	"counterfoil/keystore/storetest"
)

// A client is one connection of an agent that has no call ids.
type client struct{ gone atomic.Bool }

func (c *client) alive() bool { return !c.gone.Load() }

// counted is a request of that agent for the call with that content.
func counted(incarnation uint64, c *client, content string) *Call {
	x := call("")
	x.Request.Body = []byte(content)
	x.Ordinal, x.Alive = &Counted{Incarnation: incarnation}, c.alive
	return x
}

// tell does with a reply what a proxy does: the agent gets it, if it is there.
func (b *bench) tell(r *Reply, c *client) *Reply {
	if refusal := b.journal.Ending(context.Background(), r); refusal != nil {
		b.journal.Ended(r, NotArrived)
		return &Reply{Outcome: Refused, Refusal: refusal}
	}
	arrival := Arrived
	if !c.alive() {
		arrival = NotArrived
	}
	b.journal.Ended(r, arrival)
	return r
}

// ask is one request whose client stays for the answer. It returns the call's id
// too.
func (b *bench) ask(incarnation uint64, content string) (*Reply, string) {
	c := &client{}
	x := counted(incarnation, c, content)
	return b.tell(b.do(x), c), x.Key.Call
}

// idle checks that nothing is kept of calls that are over.
func (b *bench) idle() {
	b.t.Helper()
	if n := b.lanes(); n != 0 {
		b.t.Errorf("%d lanes are left of calls that are over", n)
	}
}

func (b *bench) lanes() int {
	b.journal.lanes.mu.Lock()
	defer b.journal.lanes.mu.Unlock()
	return len(b.journal.lanes.of)
}

const refund = `{"refund":1}`

// numbered has an effect with each request, and each answer is another.
func numbered(p *provider, r *classify.Request) *classify.Response {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ledger[r.Header.Value("Idempotency-Key")]++
	n := 0
	for _, count := range p.ledger {
		n += count
	}
	return respond(201, fmt.Sprintf(`{"id":%d}`, n))
}

func wantCall(t *testing.T, id string, slot int) {
	t.Helper()
	if !strings.HasPrefix(id, "auto-") || len(id) != len("auto-0123456789ab-0") || !strings.HasSuffix(id, fmt.Sprintf("-%d", slot)) {
		t.Errorf("the call is %q, want auto-<12 hex>-%d", id, slot)
	}
}

func TestOrdinal_ARestartedAgentMeetsItsReceipts(t *testing.T) {
	b := newBench(t, newProvider(numbered), "")
	for incarnation := range uint64(3) {
		want := Executed
		if incarnation > 0 {
			want = Replayed
			b.crash()
		}
		for i, content := range []string{refund, `{"mail":1}`, refund} {
			r, _ := b.ask(incarnation, content)
			wantReply(t, r, want, 201, fmt.Sprintf(`{"id":%d}`, i+1))
			if r.Diverged {
				t.Error("a repetition counts as diverged")
			}
		}
	}
	b.want(3, 3)
	b.idle()
}

func TestOrdinal_TwoRefundsInOneIncarnationAreTwo(t *testing.T) {
	b := newBench(t, newProvider(numbered), "")
	for i := range 3 {
		r, id := b.ask(1, refund)
		wantReply(t, r, Executed, 201, fmt.Sprintf(`{"id":%d}`, i+1))
		wantCall(t, id, i)
	}
	b.want(3, 3)
}

func TestOrdinal_EqualCallsOfTwoTurnsAreTwo(t *testing.T) {
	b := newBench(t, newProvider(numbered), "")
	for turn := range 2 {
		c := &client{}
		x := counted(1, c, refund)
		x.Key.Turn = fmt.Sprint(turn)
		wantReply(t, b.tell(b.do(x), c), Executed, 201, fmt.Sprintf(`{"id":%d}`, turn+1))
		wantCall(t, x.Key.Call, 0)
	}
}

func TestOrdinal_ANewIncarnationCountsFromZero(t *testing.T) {
	b := newBench(t, newProvider(numbered), "")
	b.ask(1, refund)
	b.ask(1, refund)
	_, id := b.ask(2, refund)
	wantCall(t, id, 0)
	b.ask(2, refund)
	r, id := b.ask(2, refund)
	wantCall(t, id, 2)
	wantReply(t, r, Executed, 201, `{"id":3}`)
}

func TestOrdinal_AStaleIncarnationIsFenced(t *testing.T) {
	for _, content := range []string{refund, "another"} {
		b := newBench(t, newProvider(numbered), "")
		b.ask(1, refund)
		b.ask(7, refund)
		r, _ := b.ask(1, content)
		wantProblem(t, r, Fenced)
		if !strings.Contains(r.Refusal.Detail, "number 7") {
			t.Errorf("detail = %q", r.Refusal.Detail)
		}
		b.want(1, 1)
		b.idle()
	}
}

// A step is a provider's that waits for leave to answer.
type step struct{ arrived, leave chan struct{} }

func newStep() *step { return &step{make(chan struct{}, 512), make(chan struct{})} }

func (s *step) held(p *provider, r *classify.Request) *classify.Response {
	s.arrived <- struct{}{}
	<-s.leave
	return numbered(p, r)
}

// away asks from another goroutine, and tells the agent.
func (b *bench) away(x *Call, c *client) <-chan *Reply {
	ch := make(chan *Reply, 1)
	go func() { ch <- b.tell(b.do(x), c) }()
	return ch
}

func TestOrdinal_TwoEqualRequestsInParallelAreTwoCalls(t *testing.T) {
	s := newStep()
	b := newBench(t, newProvider(s.held), "")
	one, two := &client{}, &client{}
	first, second := counted(1, one, refund), counted(1, two, refund)
	a := b.away(first, one)
	<-s.arrived
	c := b.away(second, two)
	<-s.arrived
	close(s.leave)
	if x, y := <-a, <-c; x.Outcome != Executed || y.Outcome != Executed || string(x.Bytes) == string(y.Bytes) {
		t.Errorf("%s %s, %s %s", x.Outcome, x.Bytes, y.Outcome, y.Bytes)
	}
	wantCall(t, first.Key.Call, 0)
	wantCall(t, second.Key.Call, 1)
	b.want(2, 2)
	// In any order they come again, they are the same two.
	for i := range 2 {
		r, id := b.ask(2, refund)
		wantCall(t, id, i)
		if r.Outcome != Replayed {
			t.Errorf("repeated: %s", r.Outcome)
		}
	}
	b.want(2, 2)
	b.idle()
}

func TestOrdinal_ParallelRepeatsMayEndInAnyOrder(t *testing.T) {
	b := newBench(t, newProvider(numbered), "")
	b.ask(1, refund)
	b.ask(1, refund)
	one, two := &client{}, &client{}
	a, c := b.do(counted(2, one, refund)), b.do(counted(2, two, refund))
	wantReply(t, b.tell(c, two), Replayed, 201, `{"id":2}`)
	wantReply(t, b.tell(a, one), Replayed, 201, `{"id":1}`)
	r, id := b.ask(2, refund)
	wantCall(t, id, 2)
	if r.Diverged {
		t.Error("all was repeated, and it counts as diverged")
	}
	b.want(3, 3)
}

func TestOrdinal_ATimeOutWhileInFlightThenARepeatIsARetry(t *testing.T) {
	s := newStep()
	b := newBench(t, newProvider(s.held), "")
	impatient, next := &client{}, &client{}
	first, second := counted(1, impatient, refund), counted(1, next, refund)
	a := b.away(first, impatient)
	<-s.arrived
	impatient.gone.Store(true)
	c := b.away(second, next)
	eventuallyShared(t, b, first)
	close(s.leave)
	<-a
	r := <-c
	if r.Refusal != nil || string(r.Bytes) != `{"id":1}` || second.Key.Call != first.Key.Call {
		t.Errorf("%s %s %q", r.Outcome, second.Key.Call, r.Bytes)
	}
	b.want(1, 1)
	r, id := b.ask(1, refund)
	wantReply(t, r, Executed, 201, `{"id":2}`)
	wantCall(t, id, 1)
	b.idle()
}

// eventuallyShared waits until a second request is on the slot of the first.
func eventuallyShared(t *testing.T, b *bench, first *Call) {
	t.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(10 * time.Second); ; <-tick.C {
		b.journal.flights.mu.Lock()
		f := b.journal.flights.of[first.Key]
		shared := f != nil && f.refs > 1
		b.journal.flights.mu.Unlock()
		if shared {
			return
		}
		if time.Now().After(end) {
			t.Fatal("the second request does not share the first one's call")
		}
	}
}

func TestOrdinal_ABrokenConnectionThenARepeatIsARetry(t *testing.T) {
	for name, incarnation := range map[string]uint64{"executed": 1, "replayed": 2} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, newProvider(numbered), "")
			if incarnation == 2 {
				b.ask(1, refund)
			}
			c := &client{}
			r := b.do(counted(incarnation, c, refund))
			if refusal := b.journal.Ending(context.Background(), r); refusal != nil {
				t.Fatal(refusal.Detail)
			}
			b.journal.Ended(r, NotArrived) // the last write failed
			again, id := b.ask(incarnation, refund)
			wantReply(t, again, Replayed, 201, `{"id":1}`)
			wantCall(t, id, 0)
			b.want(1, 1)
			_, id = b.ask(incarnation, refund)
			wantCall(t, id, 1)
			b.idle()
		})
	}
}

func TestOrdinal_AnSDKsTieHoldsItsTriesTogether(t *testing.T) {
	tied := func(incarnation uint64, c *client, tie string) *Call {
		x := counted(incarnation, c, refund)
		x.Ordinal.Tie = tie
		return x
	}
	s := newStep()
	b := newBench(t, newProvider(s.held), "")
	// In parallel, both clients there: one call.
	one, two := &client{}, &client{}
	first := tied(1, one, "stainless-node-retry-A")
	a := b.away(first, one)
	<-s.arrived
	c := b.away(tied(1, two, "stainless-node-retry-A"), two)
	eventuallyShared(t, b, first)
	close(s.leave)
	if x, y := <-a, <-c; string(x.Bytes) != `{"id":1}` || string(y.Bytes) != `{"id":1}` {
		t.Errorf("%s, %s", x.Bytes, y.Bytes)
	}
	b.want(1, 1)
	// After the answer, and after the sidecar's end: still one.
	b.crash()
	again := &client{}
	wantReply(t, b.tell(b.do(tied(1, again, "stainless-node-retry-A")), again), Replayed, 201, `{"id":1}`)
	// Another key is another call, in the same process of the SDK.
	other := &client{}
	wantReply(t, b.tell(b.do(tied(1, other, "stainless-node-retry-B")), other), Executed, 201, `{"id":2}`)
	// A new process of the SDK makes up other keys for the same calls.
	for i, tie := range []string{"stainless-node-retry-C", "stainless-node-retry-D"} {
		c := &client{}
		wantReply(t, b.tell(b.do(tied(2, c, tie)), c), Replayed, 201, fmt.Sprintf(`{"id":%d}`, i+1))
	}
	b.want(2, 2)
	b.idle()
}

func TestOrdinal_AnSDKsRetryHeaderMeansTheNewest(t *testing.T) {
	b := newBench(t, newProvider(numbered), "")
	b.ask(1, refund)
	b.ask(1, refund)
	c := &client{}
	retry := counted(1, c, refund)
	retry.Ordinal.Retry = true
	wantReply(t, b.tell(b.do(retry), c), Replayed, 201, `{"id":2}`)
	// Where nothing was ever asked for, a retry is the first to arrive.
	fresh := &client{}
	x := counted(1, fresh, "another")
	x.Ordinal.Retry = true
	wantReply(t, b.tell(b.do(x), fresh), Executed, 201, `{"id":3}`)
	// A tie knows better than the header: this one has not been here.
	tied := &client{}
	y := counted(1, tied, refund)
	y.Ordinal.Retry, y.Ordinal.Tie = true, "invocation-1"
	wantReply(t, b.tell(b.do(y), tied), Executed, 201, `{"id":4}`)
}

func TestOrdinal_ARefusalOfOursThenARepeatIsARetry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, newProvider(unsent, unsent, unsent, numbered), "")
		r, first := b.ask(1, refund)
		wantProblem(t, r, UpstreamUnreachable)
		r, again := b.ask(1, refund)
		wantReply(t, r, Executed, 201, `{"id":1}`)
		if first != again {
			t.Errorf("%s became %s", first, again)
		}
		b.want(4, 1)
	})
}

func TestOrdinal_AnUnknownCallStaysWhatTheAgentAsksFor(t *testing.T) {
	b := newBench(t, newProvider(loses(true)), "")
	for range 3 {
		r, id := b.ask(1, refund)
		wantProblem(t, r, UnknownOutcome)
		wantCall(t, id, 0)
	}
	b.want(1, 1)
}

func TestOrdinal_A429ThenARepeatThenARestart(t *testing.T) {
	b := newBench(t, newProvider(answers(429, "slow down"), answers(401, "who"), numbered), "")
	for _, want := range []int{429, 401, 201} {
		r, id := b.ask(1, refund)
		if r.Outcome != Executed || r.Status != want {
			t.Fatalf("%s %d, want %d", r.Outcome, r.Status, want)
		}
		wantCall(t, id, 0)
	}
	b.crash()
	r, _ := b.ask(2, refund)
	wantReply(t, r, Replayed, 201, `{"id":1}`)
	b.want(3, 1)
}

func TestOrdinal_A429ThenARestartThenTheEffect(t *testing.T) {
	b := newBench(t, newProvider(answers(429, ""), numbered), "")
	b.ask(1, refund)
	r, id := b.ask(2, refund)
	wantReply(t, r, Executed, 201, `{"id":1}`)
	wantCall(t, id, 0)
	if r.Diverged {
		t.Error("the repetition of a call that was never made counts as diverged")
	}
	r, _ = b.ask(3, refund)
	wantReply(t, r, Replayed, 201, `{"id":1}`)
	b.want(2, 1)
}

func TestOrdinal_ARejectionIsAnAnswer(t *testing.T) {
	b := newBench(t, newProvider(answers(400, "no"), numbered), "")
	b.ask(1, refund)
	r, id := b.ask(1, refund)
	wantReply(t, r, Executed, 201, `{"id":1}`)
	wantCall(t, id, 1)
	r, _ = b.ask(2, refund)
	wantReply(t, r, Replayed, 400, "no")
}

// A listener is the agent's end of an answer that streams.
type listener struct {
	client
	head  *Reply
	body  strings.Builder
	after int // bytes taken before the connection breaks; 0 is all
}

func (s *listener) Head(r *Reply) { s.head = r }

func (s *listener) Write(piece []byte) error {
	if s.after > 0 && s.body.Len() >= s.after {
		s.gone.Store(true)
		return io.ErrClosedPipe
	}
	s.body.Write(piece)
	return nil
}

// inPieces answers in pieces, without a length.
func inPieces(pieces ...string) script {
	return func(p *provider, r *classify.Request) *classify.Response {
		p.commit(r)
		readers := make([]io.Reader, len(pieces))
		for i, piece := range pieces {
			readers[i] = strings.NewReader(piece)
		}
		return &classify.Response{
			Evidence: classify.Answered, Status: 200, Length: -1, Body: io.NopCloser(io.MultiReader(readers...)),
			Header: classify.Header{{Name: "Content-Type", Value: "text/event-stream"}},
		}
	}
}

func TestOrdinal_ModelAnswersAreReplayedToARestartedAgent(t *testing.T) {
	b := newBench(t, newProvider(inPieces("data: a\n\n", "data: b\n\n"), answers(200, "whole")), `
- name: chat
  when: {method: [POST]}
  class: decision
`)
	s := &listener{}
	r := b.journal.Do(context.Background(), counted(1, &s.client, "prompt"), s)
	if !r.Streamed || r.Broken || s.body.String() != "data: a\n\ndata: b\n\n" {
		t.Fatalf("streamed %q: %+v", s.body.String(), r)
	}
	b.tell(r, &s.client)
	again, _ := b.ask(1, "prompt")
	wantReply(t, again, Executed, 200, "whole")
	b.crash()
	repeat, _ := b.ask(2, "prompt")
	wantReply(t, repeat, Replayed, 200, "data: a\n\ndata: b\n\n")
	repeat, _ = b.ask(2, "prompt")
	wantReply(t, repeat, Replayed, 200, "whole")
	// A model's answers are no effects: they can be new at any time.
	if repeat, _ = b.ask(3, "another prompt"); repeat.Diverged {
		t.Error("a model's answer counts as diverged")
	}
}

func TestOrdinal_AStreamThatItsClientLeftIsNotAnswered(t *testing.T) {
	b := newBench(t, newProvider(inPieces("a", "b", "c")), "")
	s := &listener{after: 1}
	b.tell(b.journal.Do(context.Background(), counted(1, &s.client, refund), s), &s.client)
	r, id := b.ask(1, refund)
	wantReply(t, r, Replayed, 200, "abc")
	wantCall(t, id, 0)
	b.want(1, 1)
}

func TestOrdinal_DivergenceIsSaidAndObserved(t *testing.T) {
	b := newBench(t, newProvider(numbered), "")
	var seen []keystore.Key
	b.journal.observe.Diverged = func(k keystore.Key, _ string) { seen = append(seen, k) }
	b.ask(1, "a")
	b.ask(1, "b")
	r, _ := b.ask(2, "a")
	if r.Diverged {
		t.Error("a repetition counts as diverged")
	}
	r, id := b.ask(2, "c")
	wantReply(t, r, Executed, 201, `{"id":3}`)
	if !r.Diverged || len(seen) != 1 || seen[0].Call != id {
		t.Errorf("diverged: %v, observed: %v", r.Diverged, seen)
	}
	b.ask(2, "b")
	if r, _ = b.ask(2, "d"); r.Diverged || len(seen) != 1 {
		t.Error("all effects are repeated, and a new one counts as diverged")
	}
	b.want(4, 4)
}

// Calls in parallel come in any order, and the earlier life may have ended before
// it had sent all of them.
func TestOrdinal_AnotherOrderInParallelIsNoDivergence(t *testing.T) {
	b := newBench(t, newProvider(numbered), "")
	b.upstream.HoldDiverged = true
	b.ask(1, "a")
	waits := make(chan struct{})
	var once sync.Once
	b.journal.store = &asked{Store: b.journal.store, begun: func() { once.Do(func() { close(waits) }) }}
	ended := make(chan *Reply)
	go func() {
		r, _ := b.ask(2, "b")
		ended <- r
	}()
	<-waits
	r, _ := b.ask(2, "a")
	wantReply(t, r, Replayed, 201, `{"id":1}`)
	if r = <-ended; r.Diverged {
		t.Error("another order counts as diverged")
	}
	wantReply(t, r, Executed, 201, `{"id":2}`)
}

// asked tells when Begin has said something.
type asked struct {
	keystore.Store
	begun func()
}

func (a *asked) Begin(ctx context.Context, q *keystore.Request, body []byte) (keystore.Admission, error) {
	adm, err := a.Store.Begin(ctx, q, body)
	a.begun()
	return adm, err
}

func TestOrdinal_DivergenceIsHeldWhereSoConfigured(t *testing.T) {
	b := newBench(t, newProvider(numbered), "")
	b.upstream.HoldDiverged = true
	b.ask(1, "a")
	for range 2 {
		r, id := b.ask(2, "c")
		wantProblem(t, r, Diverged)
		wantCall(t, id, 0)
		if r.Outcome != Held || !r.Diverged || r.Refusal.EffectPossible {
			t.Errorf("%+v %+v", r, r.Refusal)
		}
	}
	b.want(1, 1)
	// What is repeated goes on, and so does what comes after.
	r, _ := b.ask(2, "a")
	wantReply(t, r, Replayed, 201, `{"id":1}`)
	r, _ = b.ask(2, "d")
	wantReply(t, r, Executed, 201, `{"id":2}`)
}

// The position is durable before its answer ends, whatever the store does then.
func TestOrdinal_ThePositionIsDurableBeforeTheAnswerEnds(t *testing.T) {
	long := strings.Repeat("x", AtOnceMax+1)
	for name, c := range map[string]struct {
		incarnation uint64
		answer      string
	}{
		"executed": {1, "{}"}, "executed, long": {1, long}, "replayed": {2, "{}"},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, newProvider(commits(201, c.answer)), "")
			if c.incarnation == 2 {
				b.ask(1, refund)
			}
			one := &client{}
			r := b.do(counted(c.incarnation, one, refund))
			if refusal := b.journal.Ending(context.Background(), r); refusal != nil {
				t.Fatal(refusal.Detail)
			}
			b.crash() // the last byte may have left
			x := &client{}
			next := counted(c.incarnation, x, refund)
			b.tell(b.do(next), x)
			wantCall(t, next.Key.Call, 1)
			b.want(2, 2)
		})
	}
}

// A crash before that makes the next request a retry.
func TestOrdinal_BeforeThatARepeatIsARetry(t *testing.T) {
	for name, c := range map[string]struct {
		incarnation uint64
		answer      string
	}{
		"executed, long": {1, strings.Repeat("x", AtOnceMax+1)}, "replayed": {2, "{}"},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, newProvider(commits(201, c.answer)), "")
			if c.incarnation == 2 {
				b.ask(1, refund)
			}
			b.do(counted(c.incarnation, &client{}, refund))
			b.crash()
			r, id := b.ask(c.incarnation, refund)
			if r.Outcome != Replayed {
				t.Errorf("%s %d", r.Outcome, r.Status)
			}
			wantCall(t, id, 0)
			b.want(1, 1)
		})
	}
}

// An answer whose position cannot be made durable does not end; then the agent
// repeats, and that is the same call, whether the store had taken it or not.
func TestOrdinal_AStoreThatFailsEndsNoAnswer(t *testing.T) {
	for _, moment := range []storetest.Moment{storetest.BeforeDurable, storetest.AfterDurable} {
		for _, op := range []storetest.Op{storetest.Apply, storetest.Step} {
			t.Run(fmt.Sprint(op, moment), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					b := newBench(t, newProvider(commits(201, "{}")), "")
					incarnation := uint64(1)
					if op == storetest.Step {
						b.ask(1, refund)
						incarnation = 2
					}
					armed := b.disk.Fail(storetest.Fault{Op: op, Moment: moment})
					r, first := b.ask(incarnation, refund)
					wantProblem(t, r, JournalUnavailable)
					if armed.Struck() != 1 {
						t.Fatal("the fault did not strike")
					}
					r, again := b.ask(incarnation, refund)
					if r.Refusal != nil || first != again {
						t.Fatalf("%+v: %s became %s", r.Refusal, first, again)
					}
					b.want(1, 1)
					_, next := b.ask(incarnation, refund)
					wantCall(t, next, 1)
					time.Sleep(time.Minute) // what was owed is paid
					b.idle()
				})
			})
		}
	}
}

// What cannot be taken back at once is known here until it is.
func TestOrdinal_WhatIsOwedToTheStoreIsRemembered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, newProvider(numbered), "")
		c := &client{}
		r := b.do(counted(1, c, refund))
		b.disk.Fail(storetest.Fault{Op: storetest.Step, Course: storetest.Once})
		b.journal.Ended(r, NotArrived)
		if b.lanes() != 1 {
			t.Error("what is owed was forgotten")
		}
		again, id := b.ask(1, refund)
		wantReply(t, again, Replayed, 201, `{"id":1}`)
		wantCall(t, id, 0)
		time.Sleep(time.Minute)
		b.idle()
		_, id = b.ask(1, refund)
		wantCall(t, id, 1)
	})
}

func TestOrdinal_TooManyAtOnceAreRefused(t *testing.T) {
	s := newStep()
	b := newBench(t, newProvider(s.held), "")
	var busy sync.WaitGroup
	for range keystore.AheadMax + 1 {
		busy.Go(func() {
			c := &client{}
			b.tell(b.do(counted(1, c, refund)), c)
		})
		<-s.arrived
	}
	r, _ := b.ask(1, refund)
	wantProblem(t, r, InProgress)
	if r.Refusal.RetryAfter == 0 {
		t.Error("no Retry-After")
	}
	close(s.leave)
	busy.Wait()
	b.want(keystore.AheadMax+1, keystore.AheadMax+1)
	b.idle()
}

// A request of which nobody can say yet whether the earlier one's answer reached
// its client waits for that.
func TestOrdinal_ARepeatWaitsForTheEndOfAnAnswerOnItsWay(t *testing.T) {
	for arrival, slot := range map[Arrival]int{NotArrived: 0, Arrived: 1} {
		synctest.Test(t, func(t *testing.T) {
			b := newBench(t, newProvider(numbered), "")
			one, two := &client{}, &client{}
			r := b.do(counted(1, one, refund))
			one.gone.Store(true) // right after the last look
			next := counted(1, two, refund)
			told := b.away(next, two)
			synctest.Wait()
			select {
			case r := <-told:
				t.Fatalf("it did not wait: %s", r.Outcome)
			default:
			}
			b.journal.Ended(r, arrival)
			<-told
			wantCall(t, next.Key.Call, slot)
			b.want(slot+1, slot+1)
			b.idle()
		})
	}
}

func TestOrdinal_ACallInFlightOutlivesItsAgent(t *testing.T) {
	s := newStep()
	b := newBench(t, newProvider(s.held), "")
	old, young := &client{}, &client{}
	first, second := counted(1, old, refund), counted(2, young, refund)
	a := b.away(first, old)
	<-s.arrived
	old.gone.Store(true)
	c := b.away(second, young)
	eventuallyShared(t, b, first)
	close(s.leave)
	<-a
	if r := <-c; r.Refusal != nil || string(r.Bytes) != `{"id":1}` {
		t.Errorf("%+v", r)
	}
	_, id := b.ask(2, refund)
	wantCall(t, id, 1)
	b.want(2, 2)
}

func TestOrdinal_TheFenceAndTheFlowVersionGoOnRecord(t *testing.T) {
	b := newBench(t, newProvider(numbered), "")
	g, err := b.store.AcquireLease(context.Background(), &keystore.LeaseRequest{Namespace: "default", Run: "r", Owner: "w", TTL: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	x := call("c")
	x.Fence, x.FlowVersion = g.Fence, "v1"
	b.do(x)
	r, err := b.store.Call(context.Background(), x.Key)
	if err != nil || r.Fence != g.Fence {
		t.Errorf("%v, %v", r, err)
	}
	x.Fence++
	wantProblem(t, b.do(x), Fenced)
	run, err := b.store.Run(context.Background(), "default", "r")
	if err != nil || run.FlowVersion != "v1" {
		t.Errorf("%v, %v", run, err)
	}
}

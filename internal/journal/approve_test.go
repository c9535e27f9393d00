package journal

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"counterfoil/classify"
	"counterfoil/keystore"
)

// newHeldBench is a bench whose charges need an approval.
func newHeldBench(t *testing.T, p *provider) *bench {
	t.Helper()
	b := newBench(t, p, "")
	match, err := classify.CompileMatch([]string{"POST"}, "/charges")
	if err != nil {
		t.Fatal(err)
	}
	b.upstream.Rules = classify.Rules{{Match: match, Approval: classify.ApprovalRequired}}
	return b
}

func (b *bench) approve(id string, ttl time.Duration) *keystore.Record {
	b.t.Helper()
	r, err := b.journal.Approve(context.Background(), &Ruling{Key: call(id).Key, Actor: "ada", Note: "as agreed", TTL: ttl})
	if err != nil {
		b.t.Fatal(err)
	}
	return r
}

func TestHeldUntilApproved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newHeldBench(t, newProvider(commits(201, "{}")))
		for range 2 {
			reply := b.do(call("c"))
			wantProblem(t, reply, ApprovalRequired)
			if reply.Outcome != Held || reply.Refusal.EffectPossible {
				t.Errorf("%+v, %+v", reply, reply.Refusal)
			}
		}
		b.want(0, 0)
		// A person has to see what it is, after a crash too.
		b.crash()
		r, err := b.store.Call(t.Context(), call("c").Key)
		if err != nil || r.State != keystore.Held || r.Intent.Method != "POST" || r.Intent.Target != "/charges" || r.Intent.Header.Has("Authorization") {
			t.Fatalf("%+v, %v", r, err)
		}
		var body []byte
		if err := b.store.ReadBody(t.Context(), r.Intent.Body, func(piece []byte) error { body = append(body, piece...); return nil }); err != nil || string(body) != `{"amount":100}` {
			t.Errorf("body %q, %v", body, err)
		}
		if more, err := b.store.Sweep(t.Context(), keystore.Retention{AfterEnd: 1, AfterChange: 1}); more || err != nil {
			t.Errorf("a held call was collected: %v", err)
		}
		for range 2 { // once more changes nothing
			if r := b.approve("c", 0); r.State != keystore.Planned || r.Approval == nil || r.Approval.Actor != "ada" || len(r.History) != 2 {
				t.Errorf("%+v", r)
			}
		}
		b.wantStep(b.report(), "c", keystore.Planned, keystore.Send)
		wantReply(t, b.do(call("c")), Executed, 201, "{}")
		wantReply(t, b.do(call("c")), Replayed, 201, "{}")
		b.want(1, 1)
		if r, err := b.journal.Approve(t.Context(), &Ruling{Key: call("c").Key, Actor: "ada"}); !errors.Is(err, ErrNotHeld) || r.State != keystore.Succeeded {
			t.Errorf("%+v, %v", r, err)
		}
		// It was for that call alone.
		wantProblem(t, b.do(call("d")), ApprovalRequired)
		if _, err := b.journal.Deny(t.Context(), &Ruling{Key: call("e").Key, Actor: "ada"}); !errors.Is(err, keystore.ErrNotFound) {
			t.Errorf("a call that is not there: %v", err)
		}
	})
}

func TestAnApprovalIsForExactlyThisRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newHeldBench(t, newProvider(commits(201, "{}")))
		wantProblem(t, b.do(call("c")), ApprovalRequired)
		other := call("c")
		other.Request.Body = []byte(`{"amount":1000000}`)
		other.HeldWait = time.Minute
		wantProblem(t, b.do(other), KeyReused)
		b.approve("c", 0)
		wantProblem(t, b.do(other), KeyReused)
		b.want(0, 0)
		wantReply(t, b.do(call("c")), Executed, 201, "{}")
		if got := string(b.provider.seen[0].Body); got != `{"amount":100}` {
			t.Errorf("sent %s", got)
		}
	})
}

func TestAnApprovalExpires(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newHeldBench(t, newProvider(answers(429, "{}"), commits(201, "{}")))
		wantProblem(t, b.do(call("c")), ApprovalRequired)
		b.approve("c", 30*time.Second)
		time.Sleep(29 * time.Second)
		b.wantStep(b.report(), "c", keystore.Planned, keystore.Send)
		time.Sleep(2 * time.Second)
		r := b.report()
		if s := b.wantStep(r, "c", keystore.Planned, keystore.Stop); s.Problem != ApprovalRequired {
			t.Errorf("problem %s", s.Problem)
		}
		b.wantVerdict(r, StopFirst)
		wantProblem(t, b.do(call("c")), ApprovalRequired)
		b.want(0, 0)
		b.approve("c", 30*time.Second)
		b.approve("c", time.Hour) // once more changes nothing
		time.Sleep(31 * time.Second)
		// Its agent has not come back: an answer as if it stood would be untrue.
		if r, err := b.journal.Approve(t.Context(), &Ruling{Key: call("c").Key, Actor: "ada"}); !errors.Is(err, ErrNotHeld) || r == nil {
			t.Errorf("an approval that is over was given again: %+v, %v", r, err)
		}
		wantProblem(t, b.do(call("c")), ApprovalRequired)
		b.approve("c", 30*time.Second)
		if reply := b.do(call("c")); reply.Status != 429 {
			t.Errorf("%+v", reply)
		}
		wantReply(t, b.do(call("c")), Executed, 201, "{}")
		b.want(2, 1)
	})
}

func TestWaitingForAPerson(t *testing.T) {
	for _, tt := range []struct {
		name    string
		decide  func(b *bench, r *Ruling) error
		outcome Outcome
		problem Problem
		effects int
	}{
		{"approved", func(b *bench, r *Ruling) error { _, err := b.journal.Approve(context.Background(), r); return err }, Executed, "", 1},
		{"denied", func(b *bench, r *Ruling) error { _, err := b.journal.Deny(context.Background(), r); return err }, Refused, Denied, 0},
		{"nobody", func(*bench, *Ruling) error { return nil }, Held, ApprovalRequired, 0},
		{"draining", func(b *bench, _ *Ruling) error { go func() { _ = b.journal.Drain(context.Background()) }(); return nil }, Held, ApprovalRequired, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newHeldBench(t, newProvider(commits(201, "{}")))
				c := call("c")
				c.HeldWait = 5 * time.Minute
				done := make(chan *Reply)
				began := time.Now()
				go func() { done <- b.do(c) }()
				time.Sleep(90*time.Second + time.Millisecond)
				if err := tt.decide(b, &Ruling{Key: c.Key, Actor: "ada"}); err != nil {
					t.Fatal(err)
				}
				reply := <-done
				if reply.Outcome != tt.outcome || problem(reply) != tt.problem {
					t.Errorf("%s %s, want %s %s", reply.Outcome, problem(reply), tt.outcome, tt.problem)
				}
				want := 90*time.Second + time.Millisecond
				if tt.name == "nobody" {
					want = c.HeldWait
				}
				if took := time.Since(began); took != want {
					t.Errorf("answered after %s, want %s", took, want)
				}
				b.want(tt.effects, tt.effects)
			})
		})
	}
}

// Who has gone does not wait: neither is its body kept in memory, nor is its call
// sent, once a person agrees, for an agent that may do something else by then.
func TestNobodyWaitsForAClientThatHasGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newHeldBench(t, newProvider(commits(201, "{}")))
		there, c := &client{}, call("c")
		c.HeldWait, c.Alive = WaitMax, there.alive
		done := make(chan *Reply)
		go func() { done <- b.do(c) }()
		time.Sleep(time.Minute)
		gone := time.Now()
		there.gone.Store(true)
		wantProblem(t, <-done, ApprovalRequired)
		if took := time.Since(gone); took > waitPoll {
			t.Errorf("answered %s after the client had gone", took)
		}

		there.gone.Store(false)
		go func() { done <- b.do(c) }()
		synctest.Wait()
		there.gone.Store(true)
		b.approve("c", 0)
		wantProblem(t, <-done, ApprovalRequired)
		b.want(0, 0)
		wantReply(t, b.do(call("c")), Executed, 201, "{}")
		b.want(1, 1)
	})
}

// A call that was denied says so for good, and was never sent.
func TestDeniedIsFinal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newHeldBench(t, newProvider(commits(201, "{}")))
		wantProblem(t, b.do(call("c")), ApprovalRequired)
		for range 2 {
			if r, err := b.journal.Deny(t.Context(), &Ruling{Key: call("c").Key, Actor: "ada", Note: "no"}); err != nil || r.State != keystore.Abandoned || !r.Denied {
				t.Fatalf("%+v, %v", r, err)
			}
		}
		b.crash()
		wantProblem(t, b.do(call("c")), Denied)
		r := b.report()
		b.wantVerdict(r, Resume)
		b.wantStep(r, "c", keystore.Abandoned, keystore.Stop)
		if _, err := b.journal.Approve(t.Context(), &Ruling{Key: call("c").Key, Actor: "ada"}); !errors.Is(err, ErrNotHeld) {
			t.Errorf("approving a denied call: %v", err)
		}
		b.want(0, 0)
	})
}

package journal

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"counterfoil/classify"
	"counterfoil/keystore"
)

func (b *bench) acquire(owner string, ttl time.Duration) keystore.Fence {
	b.t.Helper()
	g, err := b.store.AcquireLease(context.Background(), &keystore.LeaseRequest{Namespace: "default", Run: "r", Owner: owner, TTL: ttl})
	if err != nil {
		b.t.Fatal(err)
	}
	return g.Fence
}

func (b *bench) left() time.Duration {
	b.t.Helper()
	g, err := b.store.Lease(context.Background(), "default", "r")
	if err != nil {
		b.t.Fatal(err)
	}
	return g.Left
}

// A lease is renewed for as long as a client is there whose call is under way,
// and never after.
func TestC109_LeaseIsRenewedWhileACallIsUnderWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, newProvider(commits(201, "{}")), "")
		f := b.acquire("w1", 3*time.Second)
		var gone [2]atomic.Bool
		first := b.journal.KeepLease("default", "r", f, func() bool { return !gone[0].Load() })
		second := b.journal.KeepLease("default", "r", f, func() bool { return !gone[1].Load() })
		defer second()
		time.Sleep(time.Minute)
		first()
		first()
		time.Sleep(time.Minute)
		if left := b.left(); left < 1900*time.Millisecond {
			t.Errorf("%s are left of the lease", left)
		}
		gone[1].Store(true)
		time.Sleep(3 * time.Second)
		if left := b.left(); left != 0 {
			t.Errorf("%s are left of the lease of a client that is gone", left)
		}
		gone[1].Store(false) // too late: a lease that is over is not renewed
		time.Sleep(10 * time.Second)
		if left := b.left(); left != 0 {
			t.Errorf("a lease came back: %s are left", left)
		}
		if f := b.acquire("w2", 3*time.Second); f != 2 {
			t.Errorf("fence %d", f)
		}
		time.Sleep(3 * time.Second)
		if left := b.left(); left != 0 {
			t.Errorf("the lease of another was renewed: %s are left", left)
		}
	})
}

// Nothing is renewed where there is no lease, or it is another's; and what is
// renewed ends with the journal.
func TestALeaseThatIsNotOnesOwnIsLeftAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, newProvider(commits(201, "{}")), "")
		there := func() bool { return true }
		defer b.journal.KeepLease("default", "r", 7, there)()
		f := b.acquire("w1", 3*time.Second)
		defer b.journal.KeepLease("default", "r", f+1, there)()
		defer b.journal.KeepLease("default", "r", 0, there)()
		time.Sleep(2 * time.Second)
		if left := b.left(); left != time.Second {
			t.Errorf("%s are left", left)
		}
		defer b.journal.KeepLease("default", "r", f, there)()
		b.crash() // its Close waits for all of them
	})
}

// A holder whose lease went to another while its call was under way is told so;
// the receipt is kept, for the new one.
func TestAReceiptIsKeptWhoeverSentIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		b := newBench(t, newProvider(func(p *provider, r *classify.Request) *classify.Response {
			<-release
			return commits(201, `{"id":1}`)(p, r)
		}), "")
		stale := call("c")
		stale.Fence = b.acquire("w1", time.Second)
		done := make(chan *Reply)
		go func() { done <- b.do(stale) }()
		time.Sleep(2 * time.Second)
		fresh := call("c")
		fresh.Fence = b.acquire("w1", time.Minute)
		close(release)
		reply := <-done
		wantProblem(t, reply, Fenced)
		if r := reply.Refusal; !r.EffectPossible || r.UpstreamStatus != 201 || r.Fence != 2 || r.Owner != "w1" {
			t.Errorf("%+v", r)
		}
		b.want(1, 1)
		wantProblem(t, b.do(stale), Fenced) // a replay too
		wantReply(t, b.do(fresh), Replayed, 201, `{"id":1}`)
		nobody := call("d")
		reply = b.do(nobody)
		wantProblem(t, reply, FenceRequired)
		if reply.Refusal.Fence != 2 {
			t.Errorf("%+v", reply.Refusal)
		}
		if err := b.store.ReleaseLease(t.Context(), "default", "r", 2); err != nil {
			t.Fatal(err)
		}
		wantProblem(t, b.do(fresh), Fenced)
		b.wantStep(b.report(), "c", keystore.Succeeded, keystore.Replay) // for whoever takes it next
		b.want(1, 1)
	})
}

// The flow version that is pinned is told to who runs another.
func TestFlowVersionIsPinnedByTheFirstCall(t *testing.T) {
	b := newBench(t, newProvider(commits(201, "{}")), "")
	v1, v2 := call("c"), call("d")
	v1.FlowVersion, v2.FlowVersion = "v1", "v2"
	wantReply(t, b.do(v1), Executed, 201, "{}")
	reply := b.do(v2)
	wantProblem(t, reply, FlowVersionMismatch)
	if reply.Refusal.FlowVersion != "v1" {
		t.Errorf("%+v", reply.Refusal)
	}
	if r := b.report(); r.FlowVersion != "v1" {
		t.Errorf("%+v", r)
	}
	var refused *keystore.Refused
	if _, _, err := b.store.PutRun(t.Context(), &keystore.RunSpec{Namespace: "default", Run: "r", FlowVersion: "v3"}); !errors.As(err, &refused) {
		t.Errorf("got %v", err)
	}
	b.want(1, 1)
}

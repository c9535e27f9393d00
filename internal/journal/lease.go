package journal

import (
	"context"
	"errors"
	"sync"
	"time"

	"counterfoil/keystore"
)

const (
	// leaseGlance is when a fenced call is first asked whether its lease needs
	// to be renewed: most calls are over by then, and no lease is shorter than
	// ten times that.
	leaseGlance = 100 * time.Millisecond
	// renewPause bounds the rest between two tries where the store does not
	// answer.
	renewPause = time.Second
)

// keepers are the leases that fenced calls in flight hold on to.
type keepers struct {
	mu   sync.Mutex
	of   map[leaseName]*keeping
	shut bool
	busy sync.WaitGroup
}

type leaseName struct {
	namespace, run string
	fence          keystore.Fence
}

// A keeping is one lease, and the callers whose calls are under way.
type keeping struct {
	callers map[*caller]bool
	end     context.CancelFunc
}

type caller struct{ alive func() bool }

// KeepLease renews a run's lease, each time a third of it has passed, until
// release is called, for as long as alive says that who sent the call that is
// under way is still there to be answered; alive must not wait. A lease that is
// lost, or was never given, is left alone. Release may be called more than once.
func (j *Journal) KeepLease(namespace, run string, f keystore.Fence, alive func() bool) (release func()) {
	if f == 0 {
		return func() {} // most calls: they must not meet in a lock
	}
	ks, name := &j.keepers, leaseName{namespace, run, f}
	ks.mu.Lock()
	defer ks.mu.Unlock()
	if ks.shut {
		return func() {}
	}
	k := ks.of[name]
	if k == nil {
		ctx, cancel := context.WithCancel(context.Background())
		k = &keeping{callers: map[*caller]bool{}, end: cancel}
		if ks.of == nil {
			ks.of = map[leaseName]*keeping{}
		}
		ks.of[name] = k
		ks.busy.Go(func() { j.renew(ctx, name, k) })
	}
	c := &caller{alive}
	k.callers[c] = true
	return func() { ks.leave(name, k, c) }
}

func (ks *keepers) leave(name leaseName, k *keeping, c *caller) {
	ks.mu.Lock()
	defer ks.mu.Unlock()
	delete(k.callers, c)
	if len(k.callers) == 0 && ks.of[name] == k {
		k.end()
		delete(ks.of, name)
	}
}

// isWanted reports whether any of the callers is still there.
func (ks *keepers) isWanted(k *keeping) bool {
	ks.mu.Lock()
	defer ks.mu.Unlock()
	for c := range k.callers {
		if c.alive() {
			return true
		}
	}
	return false
}

// close gives all leases up, and returns once none is renewed any more.
func (ks *keepers) close() {
	ks.mu.Lock()
	ks.shut = true
	for _, k := range ks.of {
		k.end()
	}
	ks.mu.Unlock()
	ks.busy.Wait()
}

// renew prolongs a lease until ctx ends or it is lost.
func (j *Journal) renew(ctx context.Context, name leaseName, k *keeping) {
	for pause := leaseGlance; sleep(ctx, pause) == nil; {
		grant, err := j.renewIfDue(ctx, name, k)
		var refused *keystore.Refused
		switch {
		case errors.As(err, &refused), errors.Is(err, keystore.ErrNotFound), ctx.Err() != nil:
			return
		case err != nil:
			j.observe.trouble("renewing a lease", keystore.Key{Namespace: name.namespace, Run: name.run}, err)
			pause = renewPause
		case grant.Fence != name.fence || grant.Left <= 0:
			return
		default:
			pause = max(untilDue(&grant), min(grant.TTL/10, renewPause), leaseGlance)
		}
	}
}

func (j *Journal) renewIfDue(ctx context.Context, name leaseName, k *keeping) (keystore.Grant, error) {
	grant, err := j.store.Lease(ctx, name.namespace, name.run)
	if err != nil || grant.Fence != name.fence || grant.Left <= 0 || untilDue(&grant) > 0 || !j.keepers.isWanted(k) {
		return grant, err
	}
	return j.store.RenewLease(ctx, name.namespace, name.run, name.fence, 0)
}

// untilDue is how long until a third of the lease has passed.
func untilDue(g *keystore.Grant) time.Duration { return g.Left - g.TTL*2/3 }

// superseded tells a worker whose lease went to another while its call was under
// way to stop. What came of the call is on record, for the new holder.
func (w *work) superseded(ctx context.Context, r *Reply) *Reply {
	if w.call.Fence == 0 || r.Refusal != nil || r.Broken || !w.attempted && !w.waited && !w.doubted {
		return r
	}
	grant, err := w.store.Lease(context.WithoutCancel(ctx), w.ask.Key.Namespace, w.ask.Key.Run)
	if err != nil || grant.Fence <= w.call.Fence {
		return r // what is known is the truth all the same
	}
	if r.Streamed {
		r.Broken = true // its head is out: only its end can be withheld
		return r
	}
	reply := w.refuse(r.Record, &Refusal{
		Problem: Fenced, UpstreamStatus: r.Status, Fence: grant.Fence, Owner: grant.Owner,
		EffectPossible: r.Record == nil || r.Record.State.EffectPossible(),
		Detail: "The run's lease went to another while this call was under way. What came of the call is on record, " +
			"and the new holder of the run gets it by the same key. Stop: do nothing more for this run.",
	})
	reply.SentKey = r.SentKey
	return reply
}

package journal

import (
	"context"
	"sync"
	"time"

	"counterfoil/classify"
	"counterfoil/keystore"
)

const (
	// scanPause is how long recovery rests between two rounds.
	scanPause = 5 * time.Second
	// scanRestMax bounds how long a call rests that cannot be settled now.
	scanRestMax = 10 * time.Minute
	// scanWorkers bounds how many calls are recovered at once.
	scanWorkers = 4
	// scanPage is how many calls in doubt one page of a round holds.
	scanPage = 200
)

// Scan goes once over the calls in doubt and gives up those of which nothing
// can ever be learned, so that they are known to be unknown before the sidecar
// calls itself ready.
func (j *Journal) Scan(ctx context.Context) error {
	return j.eachInDoubt(ctx, func(r *keystore.Record) {
		w := j.workFor(ctx, r)
		if len(w.ask.Means) == 0 {
			j.observe.settled(w, w.step(ctx))
		}
	})
}

// Recover asks after calls in doubt whose upstream has a credential of its own,
// round by round, until ctx ends. The others wait for their agent, whose
// credentials it takes.
func (j *Journal) Recover(ctx context.Context) {
	for ctx.Err() == nil {
		if err := j.round(ctx); err != nil && ctx.Err() == nil {
			j.observe.trouble("listing calls in doubt", keystore.Key{}, err)
		}
		if sleep(ctx, scanPause) != nil {
			return
		}
	}
}

func (j *Journal) round(ctx context.Context) error {
	var busy sync.WaitGroup
	defer busy.Wait()
	slots := make(chan struct{}, scanWorkers)
	return j.eachInDoubt(ctx, func(r *keystore.Record) {
		if u := j.upstreams[r.Intent.Upstream]; u == nil || u.Auth.Name == "" || j.restsAfterFailure(r) {
			return // before its body is read for nothing
		}
		w := j.workFor(ctx, r)
		if !w.eager(r) || !j.gate.enter() {
			return
		}
		slots <- struct{}{}
		busy.Go(func() {
			defer func() { <-slots; j.gate.leave() }()
			w.flight = j.flights.join(r.Key)
			defer j.flights.leave(r.Key, w.flight)
			var reply *Reply
			for reply == nil {
				reply = w.step(ctx)
			}
			j.observe.settled(w, reply)
		})
	})
}

// restsAfterFailure reports whether it is too early to go on with a call whose
// lookups fail, or whose copies settle nothing: each rest is twice as long as the
// one before.
func (j *Journal) restsAfterFailure(r *keystore.Record) bool {
	failed := max(int(r.LookupFailures), resendsInARow(r))
	if failed == 0 {
		return false
	}
	rest := min(scanPause<<min(failed, 10), scanRestMax)
	return j.now().Sub(r.UpdatedAt.Time()) < rest
}

// resendsInARow counts the newest attempts that were copies.
func resendsInARow(r *keystore.Record) int {
	n := 0
	for n < len(r.Attempts) && r.Attempts[len(r.Attempts)-1-n].Resend {
		n++
	}
	return n
}

// eager reports whether the call, whose upstream has a credential of its own, can
// be recovered without its agent.
func (w *work) eager(r *keystore.Record) bool {
	return len(w.ask.Means) > 0 && !w.upstream.Secrets.HasSecrets(r.Intent.Target) && !w.upstream.Secrets.HoldsSecret(&w.out)
}

func (j *Journal) eachInDoubt(ctx context.Context, do func(*keystore.Record)) error {
	page := keystore.Page{Limit: scanPage}
	for {
		list, err := j.store.Unsettled(ctx, keystore.InDoubt, page)
		if err != nil {
			return err
		}
		for _, r := range list.Items {
			do(r)
		}
		if page.After = list.Next; page.After == "" || ctx.Err() != nil {
			return ctx.Err()
		}
	}
}

// workFor makes of a record the request that its agent would make, without the
// agent's credentials. The body of one in doubt is read, since what can be asked
// depends on it.
func (j *Journal) workFor(ctx context.Context, r *keystore.Record) *work {
	in := &r.Intent
	c := &Call{Key: r.Key, Request: classify.Request{Upstream: in.Upstream, Method: in.Method, Target: in.Target, Header: in.Header}}
	if r.State == keystore.InDoubt {
		c.Request.Body = j.recordedBody(ctx, r)
	}
	w := &work{Journal: j, call: c, upstream: j.upstreams[in.Upstream], flight: newFlight()}
	if w.upstream == nil {
		w.upstream = &Upstream{Name: in.Upstream, Secrets: &classify.Secrets{}}
	}
	w.rd = w.upstream.Adapter.Recall(&c.Request, in.Operation)
	w.out = c.Request
	w.out.Header = w.upstream.withAuth(in.Header)
	w.ask = keystore.Request{
		Beginning: keystore.Beginning{
			Key: r.Key, Class: r.Class, Fingerprint: r.Fingerprint, Intent: *in, Terms: r.Terms, Epoch: j.epoch,
			Credential: j.credential(w.upstream, &w.out), Principal: r.Principal,
		},
		Means: w.means(&c.Request, r.Class), Lookup: w.upstream.absence(w.rd.Operation), OnlyRecover: true,
	}
	if len(w.ask.Means) == 0 {
		w.ask.NoMeans = w.noMeans(r.Class)
	}
	w.ask.Intent.Origin = w.upstream.Origin
	return w
}

// recordedBody is the body of an intent; none where it cannot be read, so that
// nothing is concluded from it.
func (j *Journal) recordedBody(ctx context.Context, r *keystore.Record) []byte {
	b := r.Intent.Body
	if b.Bytes == 0 || b.Missing {
		return nil
	}
	whole := make([]byte, 0, b.Bytes)
	err := j.store.ReadBody(ctx, b, func(piece []byte) error { whole = append(whole, piece...); return nil })
	if err != nil {
		j.observe.trouble("reading an intent's body", r.Key, err)
		return nil
	}
	return whole
}

// raced says what to do after an event was refused: another one may have moved
// the call on, then the store is to be asked again.
func (w *work) raced(err error) *Reply {
	if err != nil && isSettled(err) {
		return nil
	}
	return w.storeTrouble(err)
}

package journal

import (
	"context"
	"errors"
	"fmt"
	"time"

	"counterfoil/keystore"
)

// A Ruling is what a person decided about a held call.
type Ruling struct {
	Key keystore.Key
	// Actor is who decided, up to keystore.ReasonBytesMax bytes; Note says why,
	// up to keystore.NoteBytesMax.
	Actor, Note string
	// TTL is how long an approval stands if no attempt begins; 0 is for ever.
	TTL time.Duration
}

// ErrNotHeld says that the call does not wait for a person.
var ErrNotHeld = errors.New("the call is not held")

// Approve lets a held call be sent: exactly the request on record, once. Who
// waits for it goes on at once. Approving again, as long as nothing has come of
// it and the approval is not over, changes nothing. Errors: ErrNotHeld with the
// record, those of [keystore.Store].
func (j *Journal) Approve(ctx context.Context, r *Ruling) (*keystore.Record, error) {
	e := keystore.Event{Kind: keystore.WasApproved, Actor: r.Actor, Note: r.Note}
	if r.TTL > 0 {
		e.Until = keystore.At(j.now().Add(r.TTL))
	}
	return j.rule(ctx, r.Key, e)
}

// Deny refuses a held call for good. Errors as with Approve.
func (j *Journal) Deny(ctx context.Context, r *Ruling) (*keystore.Record, error) {
	return j.rule(ctx, r.Key, keystore.Event{Kind: keystore.WasDenied, Actor: r.Actor, Note: r.Note})
}

func (j *Journal) rule(ctx context.Context, k keystore.Key, e keystore.Event) (*keystore.Record, error) {
	f := j.flights.join(k)
	defer j.flights.leave(k, f)
	record, err := j.store.Apply(context.WithoutCancel(ctx), k, e, nil)
	switch {
	case errors.Is(err, keystore.ErrNoTransition):
		return j.ruledAlready(ctx, k, e.Kind)
	case err != nil:
		return nil, fmt.Errorf("ruling on %s: %w", k, err)
	}
	f.changed(nil, "")
	return record, nil
}

// ruledAlready returns the record if the same ruling stands on it. An approval
// that is over does not: who gives it again must not believe that it does.
func (j *Journal) ruledAlready(ctx context.Context, k keystore.Key, ruling keystore.EventKind) (*keystore.Record, error) {
	record, err := j.store.Call(ctx, k)
	if err != nil {
		return nil, fmt.Errorf("ruling on %s: %w", k, err)
	}
	n := len(record.History)
	same := n > 0 && record.History[n-1].Event == ruling && record.History[n-1].To == record.State
	if same && (ruling != keystore.WasApproved || record.IsApproved(keystore.At(j.now()))) {
		return record, nil
	}
	return record, ErrNotHeld
}

// awaitsApproval waits for a person's decision about a held call, and reports
// whether the store is to be asked again. When the process ends, no new calls
// are taken, or the client has gone, nobody waits any longer: a decision can take
// long, and what is then sent is for an agent that is there to go on with it.
func (w *work) awaitsApproval(ctx context.Context, reason keystore.Reason, t *turn) bool {
	if w.call.HeldWait <= 0 || reason != keystore.ApprovalRequired && reason != keystore.Diverged {
		return false
	}
	if w.heldUntil.IsZero() {
		w.heldUntil = w.now().Add(w.call.HeldWait)
	}
	left := w.heldUntil.Sub(w.now())
	if left <= 0 || !w.call.isAlive() {
		return false
	}
	poll := time.NewTimer(min(left, waitPoll))
	defer poll.Stop()
	select {
	case <-t.over:
	case <-poll.C:
	case <-w.gate.closing():
		return false
	case <-ctx.Done():
		return false
	}
	return w.call.isAlive()
}

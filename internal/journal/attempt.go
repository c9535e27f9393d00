package journal

import (
	"context"
	"errors"
	"time"

	"counterfoil/classify"
	"counterfoil/internal/crashpoint"
	"counterfoil/keystore"
)

// lateMax bounds how many receipts may wait in memory for a store that does not
// take them.
const lateMax = 1024

// attempt sends what the store has admitted, judges what came of it, and puts
// that on record. It returns nil where the call is in doubt and recovery goes
// on.
func (w *work) attempt(ctx context.Context, admitted *keystore.Admission) *Reply {
	r := admitted.Record
	w.attempted = true
	w.made++
	out, err := w.outgoing(ctx, admitted)
	if err != nil {
		return w.finish(ctx, r, answer{evidence: classify.Unsent, outcome: classify.NotApplied, reason: err.Error()})
	}
	crashpoint.Reach(crashpoint.SendBefore)
	resp := w.send(ctx, w.upstream, out)
	crashpoint.Reach(crashpoint.SendAfter)
	return w.finish(ctx, r, w.receive(ctx, r, resp))
}

// outgoing is what goes on the wire: the request at hand, or for a resend, and
// where a person approved it, the recorded one with the credentials of the request
// at hand.
func (w *work) outgoing(ctx context.Context, admitted *keystore.Admission) (*classify.Request, error) {
	switch v := &admitted.Verdict; {
	case v.Action == keystore.Resend:
		w.resends++
	case !v.AsApproved:
		return &w.out, nil
	}
	in := &admitted.Record.Intent
	target, err := w.upstream.Secrets.RestoreTarget(in.Target, w.out.Target)
	if err != nil {
		return nil, errors.New("the secret values of the query cannot be taken from this request")
	}
	out := &classify.Request{Upstream: in.Upstream, Method: in.Method, Target: target, Header: w.withCredentials(in.Header)}
	if in.Body.Bytes > 0 {
		out.Body = make([]byte, 0, in.Body.Bytes)
		err = w.store.ReadBody(ctx, in.Body, func(piece []byte) error { out.Body = append(out.Body, piece...); return nil })
		if err != nil {
			w.observe.trouble("reading an intent's body", w.ask.Key, err)
			return nil, errors.New("the recorded body cannot be read")
		}
	}
	out.Body, err = w.upstream.Secrets.RestoreBody(out, &w.out)
	return out, err
}

// withCredentials adds the credentials of the request at hand to recorded
// headers.
func (w *work) withCredentials(recorded classify.Header) classify.Header {
	h := append(classify.Header(nil), recorded...)
	for _, f := range w.out.Header {
		if w.upstream.Secrets.IsCredential(f.Name) || f == w.upstream.Auth {
			h = append(h, f)
		}
	}
	return h
}

// send puts r on the wire once. What is proven unsent is tried again: no byte
// has left, so that is no second sending.
func (j *Journal) send(ctx context.Context, u *Upstream, r *classify.Request) *classify.Response {
	for try := 1; ; try++ {
		resp := u.Sender.Send(ctx, r)
		if resp.Evidence != classify.Unsent || try == SendTries || j.backOff(ctx, try) != nil {
			return resp
		}
	}
}

// backOff waits before try n+1: nothing before the first, then 25 ms, 50 ms,
// 100 ms …, less up to half by chance. It returns an error if ctx ends first.
func (j *Journal) backOff(ctx context.Context, n int) error {
	if n <= 0 {
		return ctx.Err()
	}
	d := 25 * time.Millisecond << min(n-1, 6)
	return sleep(ctx, d-time.Duration(j.jitter()*float64(d)/2))
}

func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// sawEvent names the event of each outcome.
var sawEvent = map[classify.Outcome]keystore.EventKind{
	classify.Applied:    keystore.SawApplied,
	classify.Rejected:   keystore.SawRejected,
	classify.NotApplied: keystore.SawNotApplied,
	classify.Ambiguous:  keystore.SawAmbiguous,
}

// finish puts on record what the attempt came to, and only then answers.
func (w *work) finish(ctx context.Context, r *keystore.Record, a answer) *Reply {
	w.lastEvidence, w.lastOutcome = a.evidence, a.outcome
	event := keystore.Event{
		Kind: sawEvent[a.outcome], Attempt: r.AttemptsMade, Status: a.status, Reason: a.reason,
		Evidence: a.evidence, Outcome: a.outcome, InFlight: a.judgement.InFlight, Stuck: a.judgement.Stuck && a.outcome == classify.Ambiguous,
	}
	w.alarm("answer", a.judgement.Alarm)
	if a.evidence == classify.Unsent {
		event.Kind = keystore.SawUnsent
	}
	if a.outcome == classify.Applied || a.outcome == classify.Rejected {
		event.Receipt = &keystore.Receipt{
			Status: a.status, Header: a.header, Body: a.staged, CloseDelimited: a.closeDelimited, Usage: usageOf(a.judgement.Decision),
		}
	}
	if a.outcome == classify.Applied {
		event.Plan = w.planOf(a.judgement.Decision)
	}
	crashpoint.Reach(crashpoint.FinishBefore)
	settled, err := w.settleCounted(ctx, event, &a)
	if err != nil {
		reply := w.storeTrouble(err)
		reply.Streamed, reply.Broken = a.streamed, a.streamed
		w.flight.changed(nil, "")
		return reply
	}
	crashpoint.Reach(crashpoint.FinishAfter)
	w.decided = settled.State == keystore.Succeeded
	if event.Plan != nil && w.decided {
		w.comparePlan(ctx, event.Plan)
	}
	reply := w.answered(settled, a)
	if reply != nil && settled.State == keystore.Open {
		w.flight.changed(reply.coalesced(w.sentKey(settled)), w.ask.Credential)
	} else {
		w.flight.changed(nil, "")
	}
	return reply
}

// answered is what the agent gets for an attempt that is on record; nil where
// recovery goes on.
func (w *work) answered(r *keystore.Record, a answer) *Reply {
	outcome := w.sentOutcome()
	if r.State == keystore.InDoubt {
		w.upstreamStatus, w.doubted = a.status, true
		if a.streamed {
			isOver := a.judgement.Awaits != ""
			if isOver {
				w.awaited.put(w.upstream.Name, a.judgement.Awaits, w.ask.Key, r.AttemptsMade)
			}
			return &Reply{Outcome: outcome, Record: r, Streamed: true, Broken: !isOver, Rest: a.rest}
		}
		return nil
	}
	if a.evidence == classify.Unsent {
		return w.refuse(r, &Refusal{
			Problem:    UpstreamUnreachable,
			Detail:     "Not one byte of the request was sent (" + a.reason + "), so it is safe to send the same key again.",
			RetryAfter: time.Second,
		})
	}
	reply := &Reply{Outcome: outcome, Record: r, Status: a.status, Header: a.header, Bytes: a.bytes, Streamed: a.streamed, Rest: a.rest}
	if r.Receipt != nil {
		reply.Body = r.Receipt.Body
	}
	if a.bytes == nil && !a.streamed && reply.Body.Missing && reply.Body.Bytes > 0 {
		return w.bodyNotKept(r)
	}
	return reply
}

// sentOutcome is how the answer to an attempt of this request came about.
func (w *work) sentOutcome() Outcome {
	if w.doubted {
		return Recovered
	}
	return Executed
}

// settleCounted applies an event, and with it moves the position of an agent
// without call ids, where the answer's end is all that is left to be written: a
// crash between two commits would be one more moment at which a repeat is taken
// for a second call.
func (w *work) settleCounted(ctx context.Context, e keystore.Event, a *answer) (r *keystore.Record, err error) {
	if w.seat == nil || e.Receipt == nil || !w.endsAtOnce(a) || !w.seat.alive() {
		return w.settle(ctx, e, a.bytes)
	}
	e.Answered = &w.seat.ordinal
	_ = w.seat.forth(func() error {
		r, err = w.settle(ctx, e, a.bytes)
		return err
	})
	return r, err
}

// endsAtOnce reports whether what is left of an answer leaves in one write.
func (w *work) endsAtOnce(a *answer) bool {
	if a.streamed {
		return !a.gone
	}
	mayBeDecoded := w.doubted && a.header.Has("Content-Encoding")
	return a.bytes != nil && len(a.bytes) <= AtOnceMax && !mayBeDecoded
}

// settle applies an event. Where the body cannot be kept, the knowledge is kept
// without it. Where the store does not take it, it goes on trying, since what is
// known must not be lost while the process lives. Whatever the reason, until the
// store has taken it the attempt stays owned: an attempt that nobody owns counts
// as never sent.
func (w *work) settle(ctx context.Context, e keystore.Event, body []byte) (*keystore.Record, error) {
	ctx = context.WithoutCancel(ctx)
	r, err := w.store.Apply(ctx, w.ask.Key, e, body)
	if e.Receipt != nil && (errors.Is(err, keystore.ErrTooLarge) || errors.Is(err, keystore.ErrNotFound)) {
		// ErrNotFound: what was staged of the body is gone.
		if e.Receipt.Body.Ref != 0 {
			e.Receipt.Body.Ref, e.Receipt.Body.Missing = 0, true
		} else {
			e.Receipt.Body = missingBody(body)
		}
		body = nil
		r, err = w.store.Apply(ctx, w.ask.Key, e, nil)
	}
	if !isSettled(err) {
		w.settleLater(ctx, e, body)
		return nil, err
	}
	w.flight.settled()
	return r, err
}

// isSettled reports whether the store has put an event on record, or says that
// the call has moved on without it.
func isSettled(err error) bool {
	return err == nil || errors.Is(err, keystore.ErrNoTransition) || errors.Is(err, keystore.ErrGuard) || errors.Is(err, keystore.ErrStaleAttempt)
}

// settleLater repeats an Apply until the store takes it. The agent gets no
// answer by then.
func (w *work) settleLater(ctx context.Context, e keystore.Event, body []byte) {
	e.Answered = nil
	f := w.flights.join(w.ask.Key)
	w.later(func() bool {
		_, err := w.store.Apply(ctx, w.ask.Key, e, body)
		if isSettled(err) {
			f.settled()
			f.changed(nil, "")
		}
		return isSettled(err)
	}, func() { w.flights.leave(w.ask.Key, f) })
}

// later repeats try until it says that it is done: in the background, or where
// too many do so already, here. Then, or when the journal is closed, it calls
// over.
func (j *Journal) later(try func() bool, over func()) {
	repeat := func() {
		defer over()
		for pause := 50 * time.Millisecond; ; pause = min(2*pause, 5*time.Second) {
			select {
			case <-time.After(pause):
			case <-j.closed:
				return
			}
			if try() {
				return
			}
		}
	}
	select {
	case j.late <- struct{}{}:
		j.gate.stay()
		go func() {
			defer j.gate.leave()
			defer func() { <-j.late }()
			repeat()
		}()
	default:
		repeat()
	}
}

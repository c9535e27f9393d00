package journal

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"counterfoil/classify"
	"counterfoil/internal/crashpoint"
	"counterfoil/keystore"
	"counterfoil/providers"
)

const (
	// lookupTimeout bounds one lookup, its own retries included.
	lookupTimeout = 20 * time.Second
	// lookupBodyMax bounds a lookup's answer.
	lookupBodyMax = 8 << 20
	// waitPoll is how often a waiting request asks the store by itself, for an
	// owner in another process.
	waitPoll = time.Second
)

// timeLeft is how long this request may still wait. Waiting begins when first
// asked.
func (w *work) timeLeft() time.Duration {
	if w.deadline.IsZero() {
		w.deadline = w.now().Add(w.call.Wait)
	}
	return w.deadline.Sub(w.now())
}

// replay answers from the receipt.
func (w *work) replay(r *keystore.Record) *Reply {
	outcome := Replayed
	switch {
	case w.doubted:
		outcome = Recovered
	case w.waited:
		outcome = Coalesced
	}
	return w.fromReceipt(r, outcome)
}

func (w *work) fromReceipt(r *keystore.Record, outcome Outcome) *Reply {
	if r.Receipt.Body.Missing && r.Receipt.Body.Bytes > 0 {
		return w.bodyNotKept(r)
	}
	header := r.Receipt.Header
	if r.Credential != w.ask.Credential {
		header = header.Without(isSetCookie)
	}
	reply := &Reply{Outcome: outcome, Record: r, Status: r.Receipt.Status, Header: header, Body: r.Receipt.Body}
	if r.Receipt.Body.Ref == 0 {
		reply.Bytes = r.Receipt.Body.Inline
	}
	return reply
}

// reworded makes of an answer on record the one that this request expects. The
// answer to the attempt of this very request is as it came.
func (w *work) reworded(ctx context.Context, r *Reply) *Reply {
	if r.Refusal != nil || r.Streamed || r.Outcome == Executed || !w.rd.IsReworded() {
		return r
	}
	body, err := w.bodyOf(ctx, r)
	switch {
	case err != nil:
		return w.storeTrouble(err)
	case body == nil && r.Body.Bytes > 0:
		return w.bodyNotKept(r.Record)
	}
	a, err := w.rd.Reply(providers.Answer{Status: r.Status, Header: r.Header, Body: body})
	if err != nil {
		return w.refuse(r.Record, &Refusal{
			Problem: BodyNotKept, EffectPossible: true, UpstreamStatus: r.Status,
			Detail: "The call was made and answered, but its answer cannot be given again: " + err.Error() + ". Do not send it again.",
		})
	}
	made := *r
	made.Status, made.Header, made.Bytes, made.Body = a.Status, a.Header, a.Body, keystore.Body{Bytes: int64(len(a.Body))}
	return &made
}

func isSetCookie(name string) bool {
	return len(name) == len("Set-Cookie") && (classify.Header{{Name: name}}).Has("Set-Cookie")
}

func (w *work) bodyNotKept(r *keystore.Record) *Reply {
	return w.refuse(r, &Refusal{
		Problem:        BodyNotKept,
		Detail:         "The call was made and answered, but its answer was too large to keep. Its status, length and SHA-256 are in the call's record. Do not send it again.",
		UpstreamStatus: r.Receipt.Status, EffectPossible: true,
	})
}

// stop refuses, as the store's verdict says.
func (w *work) stop(ctx context.Context, r *keystore.Record, reason keystore.Reason) *Reply {
	refusal := &Refusal{Problem: problemOf[reason], EffectPossible: r != nil && r.State.EffectPossible(), UpstreamStatus: w.upstreamStatus}
	reply := w.refuse(r, refusal)
	switch reason { //nolint:exhaustive // the others are refusals of other operations
	case keystore.KeyReused:
		refusal.Detail = "This key belongs to another request: " + w.difference(r) + " differs. Use a new call id for a new request; send a repeat exactly as before."
	case keystore.PrincipalMismatch:
		refusal.Detail = "This call was made with another credential. Use the same one, or a call id of your own."
		reply.Record = nil
	case keystore.UnknownOutcome:
		reply.Outcome = OutcomeUnknown
		refusal.EffectPossible = true
		refusal.Detail = "Nobody can tell whether this call had its effect, so it is not sent again. A person has to look and decide: " + resolveCommand(w.ask.Key) + " with one of --applied, --not-applied, --abandon and --recheck."
		if refusal.UpstreamStatus == 0 {
			refusal.UpstreamStatus = lastStatus(r)
		}
	case keystore.RunPaused:
		refusal.Detail = "Another call of this run is unknown, so the run's effects are paused. Resolve that call first: sidecar unknown lists it."
	case keystore.ApprovalRequired:
		reply.Outcome = Held
		refusal.Detail = "A person has to approve this call first, and nothing was sent. Send the same request again once that is done, or with Prefer: wait=N to wait for it up to N seconds."
	case keystore.Diverged:
		reply.Outcome = Held
		refusal.Detail = "This effect is new, and effects that this run had before have not been repeated yet: the agent does not follow its earlier steps. Nothing was sent. A person has to look and approve the call, or stop the agent."
	case keystore.CallDenied:
		refusal.Detail = "A person refused this call. Nothing was sent, and nothing will be under this key."
	case keystore.CallAbandoned:
		refusal.Detail = "A person gave this call up, and that is final: it is not sent again under this key, and its effect may exist. Go on without its answer, or ask who decided what to do instead."
	case keystore.ReceiptExpired:
		refusal.Detail = "This call was made long ago, and its receipt is no longer kept. It is not sent again."
	case keystore.NotInPlan:
		refusal.Detail = "This turn has a plan, and it names no such call, so nothing was sent. Use the id that the plan gives the call, or another turn."
	case keystore.BudgetExhausted:
		refusal.Detail = "The run has begun as many effects as its budget allows, so nothing was sent. Whoever set the budget can set a larger one: PUT /-/v1/runs/{run}."
	case keystore.Fenced:
		said := w.fenced(ctx)
		refusal.Detail, refusal.Fence, refusal.Owner = said.Detail, said.Fence, said.Owner
	case keystore.FenceRequired:
		refusal.Detail = "This run has a lease, and effects need its fence as Counterfoil-Fence, so nothing was sent. Take the lease first: POST /-/v1/runs/{run}/lease."
		run := w.runNow(ctx)
		refusal.Fence, refusal.Owner = run.Lease.Fence, run.Lease.Owner
	case keystore.FlowVersionMismatch:
		refusal.Detail = "The run is pinned to another version of its flow, so nothing was sent. Run that version, or begin a new run."
		refusal.FlowVersion = w.runNow(ctx).FlowVersion
	}
	return reply
}

// runNow is what is on record of the call's run; nothing where that cannot be
// read: a refusal is right without it.
func (w *work) runNow(ctx context.Context) keystore.RunSummary {
	run, err := w.store.Run(ctx, w.ask.Key.Namespace, w.ask.Key.Run)
	if err != nil {
		return keystore.RunSummary{}
	}
	return run
}

// resolveCommand is what a person types to decide about a call, as a shell takes
// it. Which namespace the sidecar takes by default is not known here.
func resolveCommand(k keystore.Key) string {
	key := k.String()
	if strings.HasPrefix(key, "-") && !strings.HasPrefix(key, "-:") {
		key = "%2D" + key[1:] // not a flag
	}
	command := "sidecar resolve " + shellWord(strings.ReplaceAll(key, ":=", ":%3D"))
	if k.Namespace != "default" {
		command += " --namespace=" + shellWord(k.Namespace)
	}
	return command
}

// shellWord quotes what a shell would read as more than a word: names are the
// agents' to choose.
func shellWord(s string) string {
	isPlain := func(r rune) bool {
		return r >= '0' && r <= '9' || r|0x20 >= 'a' && r|0x20 <= 'z' || strings.ContainsRune("-_.:%@+", r)
	}
	if strings.TrimFunc(s, isPlain) == "" {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}

func lastStatus(r *keystore.Record) int {
	if r == nil || len(r.Attempts) == 0 {
		return 0
	}
	return r.Attempts[len(r.Attempts)-1].Status
}

// difference names what differs from the recorded request, never its content.
func (w *work) difference(r *keystore.Record) string {
	switch {
	case r.Intent.Method == "":
		return "something"
	case r.Intent.Upstream != w.ask.Intent.Upstream:
		return "the upstream"
	case r.Intent.Method != w.ask.Intent.Method:
		return "the method"
	case r.Intent.Target != w.ask.Intent.Target:
		return "the target"
	}
	return "the body"
}

// wait lets another go on with the call, until something changes or time is up.
func (w *work) wait(ctx context.Context, r *keystore.Record, v keystore.Verdict, t *turn) *Reply {
	pause := waitPoll
	if v.After != 0 {
		pause = max(0, v.After.Time().Sub(w.now()))
	}
	left := w.timeLeft()
	if left <= 0 || v.After != 0 && pause > left {
		reply := w.inProgress(r, pause)
		if v.Reason == keystore.OtherAccount {
			reply.Refusal.Detail = "It is not known yet what came of this call, and only a request with the credential that it was made with can find out. " +
				"Send the same key with that one. If all credentials here speak for one account, the upstream's configuration can say so: bind: shared."
		}
		return reply
	}
	w.waited = w.waited || r.State == keystore.Pending
	timer := time.NewTimer(min(left, pause))
	defer timer.Stop()
	select {
	case <-t.over:
		if t.reply != nil && t.credential == w.ask.Credential {
			return t.reply.share()
		}
	case <-timer.C:
	case <-ctx.Done():
		return w.inProgress(r, pause)
	}
	return nil
}

// coalesced is the reply as those get it who waited for it; nil if they cannot.
func (r *Reply) coalesced(sentKey string) *Reply {
	if r.Streamed {
		return nil
	}
	c := *r
	c.SentKey = sentKey
	c.Header = slices.Clone(r.Header)
	if c.Refusal == nil {
		c.Outcome = Coalesced
	}
	return &c
}

// share returns a copy of a reply that others have too.
func (r *Reply) share() *Reply {
	c := *r
	c.Header = slices.Clone(r.Header)
	return &c
}

func (w *work) inProgress(r *keystore.Record, after time.Duration) *Reply {
	detail := "An equal call is in flight. Send the same key again later to get its answer."
	if r.State == keystore.InDoubt {
		detail = "The provider is being asked what came of this call. Send the same key again later."
	}
	return w.refuse(r, &Refusal{
		Problem: InProgress, Detail: detail, RetryAfter: max(after, time.Second),
		EffectPossible: true, UpstreamStatus: w.upstreamStatus,
	})
}

// askProvider looks the effect up, when it is time, and puts what it found on
// record. Of several equal requests in this process one asks.
func (w *work) askProvider(ctx context.Context, r *keystore.Record, after keystore.Instant, t *turn) *Reply {
	w.doubted = true
	select {
	case w.flight.asking <- struct{}{}:
		defer func() { <-w.flight.asking }()
	default:
		return w.wait(ctx, r, keystore.Verdict{}, t)
	}
	if pause := after.Time().Sub(w.now()); pause > 0 {
		if pause > w.timeLeft() {
			return w.inProgress(r, pause)
		}
		if sleep(ctx, pause) != nil {
			return w.inProgress(r, pause)
		}
	}
	w.lookups++
	crashpoint.Reach(crashpoint.LookupBefore)
	asked := keystore.At(w.now())
	f := w.find(ctx, r)
	crashpoint.Reach(crashpoint.LookupAfter)
	return w.found(ctx, asked, f)
}

// found puts a finding on record. nil means that the store is to be asked
// again.
func (w *work) found(ctx context.Context, asked keystore.Instant, f providers.Finding) *Reply {
	e := keystore.Event{Kind: keystore.LookupFailed, Reason: f.Reason, Stuck: f.Stuck}
	var body []byte
	switch {
	case f.Discovery == providers.Found:
		e = keystore.Event{Kind: keystore.LookupFound, Receipt: &keystore.Receipt{Status: f.Answer.Status, Header: classify.EndToEnd(f.Answer.Header)}}
		body = f.Answer.Body
		if f.Hits > 1 {
			e.Reason = fmt.Sprintf("the provider shows %d effects of this call, where there should be one", f.Hits)
			w.alarm("duplicate", e.Reason)
		}
	case f.Discovery == providers.Absent:
		e = keystore.Event{Kind: keystore.LookupAbsent, Reason: f.Reason, Absence: w.ask.Lookup, Begin: &w.ask.Beginning}
		e.Absence.AskedAt = asked
	case f.Stuck:
	case f.Lasting:
		w.ask.LookupSpent, w.ask.LookupReason = true, f.Reason
		return nil
	}
	settled, err := w.store.Apply(context.WithoutCancel(ctx), w.ask.Key, e, body)
	defer w.flight.changed(nil, "")
	switch {
	case err != nil:
		return w.raced(err)
	case settled.State == keystore.Succeeded:
		return w.fromReceipt(settled, Recovered)
	case e.Kind == keystore.LookupFailed && !f.Stuck:
		pause := time.Second << min(w.lookups-1, 5)
		if pause > w.timeLeft() || sleep(ctx, pause) != nil {
			return w.inProgress(settled, pause)
		}
	}
	return nil
}

// find asks the provider whether the effect exists, page by page, with the
// credentials of the request at hand.
func (w *work) find(ctx context.Context, r *keystore.Record) providers.Finding {
	ctx, cancel := context.WithTimeout(ctx, lookupTimeout)
	defer cancel()
	original := w.original(ctx, r)
	search := w.upstream.Adapter.Recall(original, r.Intent.Operation).Search(w.query(r, original))
	for {
		ask, more := search.Next()
		if !more {
			return search.Finding()
		}
		ask.Upstream = w.upstream.Name
		ask.Header = w.upstream.withAuth(ask.Header)
		resp := w.upstream.Finder.Send(ctx, ask)
		if resp.Evidence != classify.Answered {
			return inconclusive("the lookup got no answer: " + resp.Reason)
		}
		body, err := io.ReadAll(io.LimitReader(resp.Body, lookupBodyMax+1))
		resp.Body.Close()
		switch {
		case err != nil:
			return inconclusive("the lookup's answer broke off")
		case len(body) > lookupBodyMax:
			f := inconclusive("the lookup's answer is too large")
			f.Lasting = true
			return f
		}
		search.Take(ctx, providers.Answer{Status: resp.Status, Header: resp.Header, Body: body})
		if f := search.Finding(); f.Discovery == providers.Inconclusive && !f.Stuck && resp.Status != 200 {
			f.Lasting = !mayPass(resp.Status)
			return f
		}
	}
}

// original is the request on record, as it was sent, with the headers and the
// secrets of the request at hand.
func (w *work) original(ctx context.Context, r *keystore.Record) *classify.Request {
	in := &r.Intent
	o := &classify.Request{Upstream: in.Upstream, Method: in.Method, Target: in.Target, Header: w.out.Header, Body: w.recordedBody(ctx, r)}
	if target, err := w.upstream.Secrets.RestoreTarget(in.Target, w.out.Target); err == nil {
		o.Target = target
	}
	if body, err := w.upstream.Secrets.RestoreBody(o, &w.out); err == nil {
		o.Body = body
	}
	return o
}

func inconclusive(reason string) providers.Finding {
	return providers.Finding{Discovery: providers.Inconclusive, Reason: reason}
}

// mayPass reports whether an inconclusive answer of that status may be another
// one next time: a token is renewed, a limit or a fault is over.
func mayPass(status int) bool {
	return status == 401 || status == 408 || status == 425 || status == 429 || status >= 500
}

package journal

import (
	"context"
	"errors"
	"fmt"

	"counterfoil/classify"
	"counterfoil/keystore"
	"counterfoil/providers"
)

// A PlanReading says what becomes of the tool calls in a model's answer.
type PlanReading uint8

const (
	// EnforcePlans: they are the turn's plan.
	EnforcePlans PlanReading = iota
	// RecordPlans: they are shown, and nothing is refused.
	RecordPlans
	// IgnorePlans: nothing is read.
	IgnorePlans
)

// errOtherPlan says that a turn has another plan already.
var errOtherPlan = errors.New("the turn has a plan of its agent's own already, and the model's answer names other calls: name a turn for each decision")

// planOf is what an answer's tool calls are as the plan of their turn: nil where
// there is none. Only a turn that was named has one.
func (w *work) planOf(d *providers.Decision) *keystore.Plan {
	k := w.ask.Key
	if d == nil || len(d.Calls) == 0 || !w.readsPlans() {
		return nil
	}
	p := &keystore.Plan{
		Namespace: k.Namespace, Run: k.Run, Turn: k.Turn,
		FromAnswer: true, Advisory: w.upstream.Plans == RecordPlans,
	}
	seen := make(map[string]bool, len(d.Calls))
	for _, c := range d.Calls {
		if seen[c.ID] {
			continue // several choices may name one call
		}
		seen[c.ID] = true
		p.Calls = append(p.Calls, keystore.PlannedCall{ID: c.ID, Tool: c.Tool, Args: c.Args})
	}
	if err := errors.Join(p.Validate(), p.SetDigest()); err != nil {
		w.observe.trouble("a model's answer is no plan", k, err)
		return nil
	}
	return p
}

// readsPlans reports whether an answer to this request makes a plan.
func (w *work) readsPlans() bool {
	k := w.ask.Key
	return w.ask.Class == classify.Decision && w.upstream.Plans != IgnorePlans && k.Turn != keystore.NoPart && k.Run != keystore.NoPart
}

// planned makes sure that the plan of a model's answer is on record before the
// answer is given again: one that was found by a lookup, that was kept before
// plans were read, or whose worker had lost its lease.
func (w *work) planned(ctx context.Context, r *Reply) *Reply {
	if r.Refusal != nil || r.Streamed || r.Record == nil || r.Record.State != keystore.Succeeded || !w.readsPlans() || w.decided {
		return r
	}
	body, err := w.bodyOf(ctx, r)
	if err != nil {
		return w.storeTrouble(err)
	}
	p := w.planOf(w.decisionIn(ctx, r, body))
	if p == nil {
		return r
	}
	if _, err := w.store.PutPlan(context.WithoutCancel(ctx), p, keystore.Guard{Run: p.Run, Fence: w.call.Fence}); err != nil {
		return w.storeTrouble(fmt.Errorf("recording a model's plan: %w", err))
	}
	w.comparePlan(ctx, p)
	return r
}

// bodyOf is the body of a reply, nil where it is longer than is read at once.
func (w *work) bodyOf(ctx context.Context, r *Reply) ([]byte, error) {
	if r.Bytes != nil || r.Body.Bytes == 0 || r.Body.Bytes > lookupBodyMax {
		return r.Bytes, nil
	}
	body := make([]byte, 0, r.Body.Bytes)
	err := w.store.ReadBody(ctx, r.Body, func(piece []byte) error { body = append(body, piece...); return nil })
	return body, err
}

// decisionIn reads a whole answer on record once more.
func (w *work) decisionIn(ctx context.Context, r *Reply, body []byte) *providers.Decision {
	if len(body) == 0 {
		return nil
	}
	watcher := w.rd.Watch(w.query(r.Record, &w.out), providers.Head{Status: r.Status, Header: r.Header, Length: int64(len(body))}, false)
	if watcher == nil {
		return nil
	}
	watcher.Write(body)
	ctx, cancel := context.WithTimeout(ctx, watchTimeout)
	defer cancel()
	return watcher.End(ctx).Decision
}

// comparePlan says so where the turn has another plan than the model's answer.
func (w *work) comparePlan(ctx context.Context, p *keystore.Plan) {
	on, err := w.store.Plan(ctx, p.Namespace, p.Run, p.Turn)
	if err != nil || on.FromAnswer {
		return
	}
	for i := range p.Calls {
		if !on.Names(p.Calls[i].ID) {
			w.observe.trouble("a model's plan", w.ask.Key, errOtherPlan)
			return
		}
	}
}

// usageOf is what a model's answer says it has cost.
func usageOf(d *providers.Decision) *keystore.Usage {
	if d == nil || d.Usage == (providers.Usage{}) {
		return nil
	}
	return &keystore.Usage{Input: d.Usage.Input, Output: d.Usage.Output, CachedInput: d.Usage.CachedInput, Reasoning: d.Usage.Reasoning}
}

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
var errOtherPlan = errors.New("the turn has a plan already, and the model's answer names other calls: name a turn for each decision")

// recordPlan puts the tool calls of a model's answer on record as the turn's
// plan, before the answer's end is passed on: a restarted agent must not find
// the one without the other. Only a turn that was named has one.
func (w *work) recordPlan(ctx context.Context, d *providers.Decision) error {
	k := w.ask.Key
	if d == nil || len(d.Calls) == 0 || w.ask.Class != classify.Decision || w.upstream.Plans == IgnorePlans || k.Turn == keystore.NoPart || k.Run == keystore.NoPart {
		return nil
	}
	p := &keystore.Plan{
		Namespace: k.Namespace, Run: k.Run, Turn: k.Turn,
		FromAnswer: true, Advisory: w.upstream.Plans == RecordPlans,
	}
	for _, c := range d.Calls {
		p.Calls = append(p.Calls, keystore.PlannedCall{ID: c.ID, Tool: c.Tool, Args: c.Args})
	}
	if err := errors.Join(p.Validate(), p.SetDigest()); err != nil {
		w.observe.trouble("a model's answer is no plan", k, err)
		return nil
	}
	_, err := w.store.PutPlan(context.WithoutCancel(ctx), p, keystore.Guard{Run: k.Run, Fence: w.call.Fence, FlowVersion: w.call.FlowVersion})
	var refused *keystore.Refused
	switch {
	case errors.As(err, &refused) && refused.Reason == keystore.PlanConflict:
		w.observe.trouble("recording a model's plan", k, errOtherPlan)
		return nil
	case errors.As(err, &refused):
		w.observe.trouble("recording a model's plan", k, err)
		return nil // whoever has the run now makes plans of its own
	case err != nil:
		return fmt.Errorf("recording a model's plan: %w", err)
	}
	return nil
}

// usageOf is what a model's answer says it has cost.
func usageOf(d *providers.Decision) *keystore.Usage {
	if d == nil || d.Usage == (providers.Usage{}) {
		return nil
	}
	return &keystore.Usage{Input: d.Usage.Input, Output: d.Usage.Output, CachedInput: d.Usage.CachedInput, Reasoning: d.Usage.Reasoning}
}

package proxy

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"

	"counterfoil/internal/journal"
	"counterfoil/internal/view"
	"counterfoil/keystore"
)

// putPlan records what a model decided in a turn, before any of its tools runs.
func (x *exchange) putPlan(ctx context.Context, k keystore.Key, query url.Values) error {
	if err := errors.Join(checkQuery(query), isRun(k.Run)); err != nil {
		return err
	}
	guard := x.guardOf(k.Run)
	plan, err := x.readPlan(ctx, k)
	if err != nil {
		return err
	}
	if err := plan.Validate(); err != nil {
		return invalid("%s.", err)
	}
	if err := plan.SetDigest(); err != nil {
		return invalid("%s.", err)
	}
	isNew, err := x.records.PutPlan(ctx, plan, guard)
	if err != nil {
		return err
	}
	if plan, err = x.records.Plan(ctx, k.Namespace, k.Run, k.Turn); err != nil {
		return err
	}
	return x.jsonAs(createdOr200(isNew), view.PlanOf(plan))
}

// guardOf says on whose behalf a write to that run is made. The fence of the run
// that is served is not another run's.
func (x *exchange) guardOf(run string) keystore.Guard {
	g := keystore.Guard{Run: run, FlowVersion: x.claim.flowVersion}
	if run == x.claim.run || x.header.Has("Counterfoil-Fence") {
		g.Fence = x.claim.fence
	}
	return g
}

// readPlan reads a plan. Its JSON is kept as it was sent.
func (x *exchange) readPlan(ctx context.Context, k keystore.Key) (*keystore.Plan, error) {
	p := &keystore.Plan{Namespace: k.Namespace, Run: k.Run, Turn: k.Turn}
	hasCalls, total := false, 0
	kept := func(raw []byte) []byte {
		total += len(raw)
		return slices.Clone(raw) // the body's memory is given back
	}
	release, err := x.readObject(ctx, func(name string) memberReader {
		switch name {
		case "decision":
			return func(raw []byte) error { p.Decision = kept(raw); return nil }
		case "calls":
			return func(raw []byte) (err error) {
				hasCalls = true
				p.Calls, err = readPlannedCalls(raw, kept)
				return err
			}
		}
		return nil
	})
	defer release()
	switch {
	case err != nil:
		return nil, err
	case !hasCalls:
		return nil, invalid(`Name the calls that the model decided on, as in {"calls":[{"id":"call_1","tool":"refund","args":{}}]}; [] is a plan to call nothing.`)
	case total > keystore.PlanBytesMax:
		return nil, &refusalError{&journal.Refusal{Problem: journal.InputTooLarge, Detail: "The decision and the arguments of a plan have at most 1 MiB together. Nothing was changed."}}
	}
	return p, nil
}

func readPlannedCalls(raw []byte, kept func([]byte) []byte) ([]keystore.PlannedCall, error) {
	if raw[0] != '[' {
		return nil, wrongKind(raw, "an array")
	}
	calls := []keystore.PlannedCall{}
	for element := range elements(raw) {
		if len(calls) == keystore.PlanCallsMax {
			return nil, fmt.Errorf("a plan has at most %d calls", keystore.PlanCallsMax)
		}
		var c keystore.PlannedCall
		where := fmt.Sprintf("call %d", len(calls)+1)
		err := readMembers(where, element, func(name string) memberReader {
			switch name {
			case "id":
				return func(raw []byte) (err error) { c.ID, err = readName(raw); return err }
			case "tool":
				return func(raw []byte) (err error) { c.Tool, err = readText(raw); return err }
			case "args":
				return func(raw []byte) error { c.Args = kept(raw); return nil }
			}
			return nil
		})
		switch {
		case err != nil:
			return nil, err
		case c.ID == "":
			return nil, fmt.Errorf("%s: it has no id", where)
		}
		calls = append(calls, c)
	}
	return calls, nil
}

// showPlan answers with the plan of a turn.
func (x *exchange) showPlan(ctx context.Context, k keystore.Key, query url.Values) error {
	if err := checkQuery(query); err != nil {
		return err
	}
	plan, err := x.records.Plan(ctx, k.Namespace, k.Run, k.Turn)
	if err != nil {
		return err
	}
	return x.json(view.PlanOf(plan))
}

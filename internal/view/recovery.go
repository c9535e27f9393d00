package view

import (
	"time"

	"counterfoil/internal/journal"
)

// A Recovery is what a restarted agent needs to know about a run.
type Recovery struct {
	Run string `json:"run"`
	// Verdict is resume, wait or stop, for the whole run.
	Verdict     string  `json:"verdict"`
	FlowVersion string  `json:"flow_version,omitempty"`
	Calls       []*Step `json:"calls"`
	// Next is the cursor of the next page, absent on the last.
	Next string `json:"next,omitempty"`
}

// A Step is what a repeat of a call would meet.
type Step struct {
	Turn  string `json:"turn"`
	Call  string `json:"call"`
	Tool  string `json:"tool,omitempty"`
	State string `json:"state"`
	// Action is send, replay, ask, resend, wait or stop.
	Action string `json:"action"`
	Reason string `json:"reason"`
	// Problem is what a repeat is refused with, with stop.
	Problem string `json:"problem,omitempty"`
	// NotBefore says, with wait, when to repeat, where that is known.
	NotBefore time.Time `json:"not_before,omitzero"`
}

// RecoveryOf shows a report.
func RecoveryOf(r *journal.Report) *Recovery {
	v := &Recovery{Run: r.Run, Verdict: string(r.Verdict), FlowVersion: r.FlowVersion, Calls: make([]*Step, len(r.Calls)), Next: r.Next}
	for i := range r.Calls {
		s := &r.Calls[i]
		v.Calls[i] = &Step{
			Turn: s.Key.Turn, Call: s.Key.Call, Tool: s.Tool, State: s.State.String(), Action: s.Action.String(),
			Reason: s.Reason, Problem: string(s.Problem), NotBefore: s.NotBefore.Time(),
		}
	}
	return v
}

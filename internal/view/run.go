package view

import (
	"encoding/json"
	"time"

	"counterfoil/keystore"
)

// A Budget bounds how many effects a run may begin; what is absent is not
// bounded.
type Budget struct {
	Effects   *uint32           `json:"effects,omitempty"`
	Upstreams map[string]uint32 `json:"upstreams,omitempty"`
}

// Begun counts effects begun: calls, not attempts.
type Begun struct {
	Effects   uint32            `json:"effects"`
	Upstreams map[string]uint32 `json:"upstreams,omitempty"`
}

// A Lease is a run's newest claim by one holder.
type Lease struct {
	// Held says that it is neither over nor given back. ExpiresAt is set then.
	Held      bool      `json:"held"`
	Fence     uint64    `json:"fence"`
	Owner     string    `json:"owner,omitempty"`
	ExpiresAt time.Time `json:"expires_at,omitzero"`
}

// LeaseOf shows a lease.
func LeaseOf(g *keystore.Grant) *Lease {
	v := &Lease{Held: g.Left > 0, Fence: uint64(g.Fence), Owner: g.Owner}
	if v.Held {
		v.ExpiresAt = g.ExpiresAt.Time()
	}
	return v
}

// A Grant is a lease as its holder gets it.
type Grant struct {
	Fence     uint64    `json:"fence"`
	Owner     string    `json:"owner"`
	ExpiresAt time.Time `json:"expires_at"`
}

// GrantOf shows a grant.
func GrantOf(g *keystore.Grant) *Grant {
	return &Grant{Fence: uint64(g.Fence), Owner: g.Owner, ExpiresAt: g.ExpiresAt.Time()}
}

// A Plan is what a model decided in one turn.
type Plan struct {
	Run  string `json:"run"`
	Turn string `json:"turn"`
	// Source is answer where the plan was read out of a model's answer; absent of
	// one that was put. Advisory says that it refuses nothing.
	Source    string          `json:"source,omitempty"`
	Advisory  bool            `json:"advisory,omitempty"`
	Decision  json.RawMessage `json:"decision,omitempty"`
	Calls     []PlannedCall   `json:"calls"`
	CreatedAt time.Time       `json:"created_at"`
}

// A PlannedCall is one call that a plan names.
type PlannedCall struct {
	ID   string          `json:"id"`
	Tool string          `json:"tool,omitempty"`
	Args json.RawMessage `json:"args,omitempty"`
}

// PlanOf shows a plan.
func PlanOf(p *keystore.Plan) *Plan {
	v := &Plan{Run: p.Run, Turn: p.Turn, Advisory: p.Advisory, Decision: p.Decision, Calls: make([]PlannedCall, len(p.Calls)), CreatedAt: p.CreatedAt.Time()}
	if p.FromAnswer {
		v.Source = "answer"
	}
	for i := range p.Calls {
		c := &p.Calls[i]
		v.Calls[i] = PlannedCall{ID: c.ID, Tool: c.Tool, Args: c.Args}
	}
	return v
}

// A Replay is how far the newest incarnation of an agent without call ids has
// come with repeating the effects of earlier ones.
type Replay struct {
	Incarnation uint64 `json:"incarnation"`
	Earlier     uint32 `json:"earlier"`
	Repeated    uint32 `json:"repeated"`
	// DivergedAt is when an incarnation last sent a new effect before it had
	// repeated the others; absent if none did.
	DivergedAt time.Time `json:"diverged_at,omitzero"`
}

// stateOf is the run's state. What bears no run's name is no run, and nothing
// pauses it.
func stateOf(s *keystore.RunSummary) keystore.RunState {
	if s.Name == keystore.NoPart {
		return keystore.ActiveRun
	}
	return s.State()
}

// showTerms shows what was said about a run, and what it has used of it.
func (v *Run) showTerms(s *keystore.RunSummary) {
	v.FlowVersion, v.Labels = s.FlowVersion, s.Labels
	if b := s.Budget; b.Effects != nil || len(b.Upstreams) > 0 {
		v.Budget = &Budget{Effects: b.Effects, Upstreams: b.Upstreams}
	}
	v.Begun = Begun{Effects: s.EffectsBegun(), Upstreams: s.Begun}
	if p := s.Repeats; p.Incarnation > 0 {
		v.Replay = &Replay{Incarnation: p.Incarnation, Earlier: p.Earlier, Repeated: p.Repeated, DivergedAt: p.DivergedAt.Time()}
	}
}

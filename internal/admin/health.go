package admin

import (
	"context"
	"net/http"

	"counterfoil/keystore"
)

// Readiness is the answer of /ready: 200 if Ready, else 503 with the reasons.
type Readiness struct {
	Ready   bool     `json:"ready"`
	Reasons []string `json:"reasons"`
	// Notes are what keeps nothing from being served, but should be looked into.
	Notes []string `json:"notes,omitempty"`
}

// DrainingReason is the reason of a sidecar that is about to end.
const DrainingReason = "draining: this sidecar is shutting down"

// live answers as long as the process serves.
func (s *Server) live(w http.ResponseWriter, _ *http.Request) {
	writeJSON(w, http.StatusOK, "application/json", map[string]bool{"live": true})
}

func (s *Server) ready(w http.ResponseWriter, r *http.Request) {
	answer := Readiness{Reasons: s.unready(r.Context()), Notes: s.metrics.notes()}
	answer.Ready = len(answer.Reasons) == 0
	status := http.StatusOK
	if !answer.Ready {
		status = http.StatusServiceUnavailable
	}
	writeJSON(w, status, "application/json", answer)
}

// unready says why no calls should be sent here now.
func (s *Server) unready(ctx context.Context) []string {
	reasons := []string{}
	switch Phase(s.phase.Load()) {
	case Starting:
		reasons = append(reasons, "starting: the calls in doubt have not been gone over yet")
	case Draining:
		reasons = append(reasons, DrainingReason)
	case Serving:
	}
	if s.store.Stats().Full {
		reasons = append(reasons, "the journal's disk is full up to its reserve: free disk space")
	}
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	if _, err := s.store.Runs(ctx, s.namespace, keystore.Page{Limit: 1}); err != nil {
		reasons = append(reasons, "the journal cannot be read")
	}
	if s.metrics.refusing() {
		reasons = append(reasons, "the journal did not take what it was given a moment ago")
	}
	return reasons
}

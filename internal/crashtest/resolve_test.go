package crashtest

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
)

// TestUnknownIsResolved: a crash leaves a call unknown, which pauses its run. A
// person says what came of it, and the run goes on; neither is lost with the
// next sidecar.
func TestUnknownIsResolved(t *testing.T) {
	for _, decision := range []string{"applied", "not_applied", "abandon"} {
		t.Run(decision, func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			b.configure(fmt.Sprintf("upstreams:\n  none: {url: http://%s/none}\n", b.provider.addr))
			admin := freeAddress(t)
			b.env = []string{"COUNTERFOIL_ADMIN_LISTEN=" + admin}
			lost, next := things("none", "plain"), things("none", "plain")
			next.id = "2"
			s := b.released()
			answered, release := s.held(lost)
			s.kill()
			release()
			await(t, "the agent's end", answered)

			s = b.released()
			checkVerdict(t, b.provider, lost, s.send(lost), verdict{"unknown", 1, 1})
			if r := s.send(next); r.status != http.StatusLocked || r.problem() != "run-paused" {
				t.Errorf("another effect of the run: %s", r)
			}
			s.kill()
			s = b.released()
			if r := s.send(next); r.problem() != "run-paused" {
				t.Errorf("another effect of the run, after a restart: %s", r)
			}
			s.resolve(admin, lost, decision)
			s.kill()
			s = b.released()
			checkResolved(t, b.provider, lost, decision, s.send(lost))
			checkVerdict(t, b.provider, next, s.send(next), verdict{"executed", 1, 1})
		})
	}
}

// resolve is what an operator does.
func (s *sidecar) resolve(admin string, c call, decision string) {
	s.Helper()
	question := map[string]any{"run": c.run, "turn": c.turn, "call": c.id, "decision": decision, "note": "looked it up", "actor": "ops"}
	if decision == "applied" {
		question["receipt"] = map[string]any{"status": 201, "headers": map[string][]string{"Content-Type": {"application/json"}}, "body": `{"id":"seen"}`}
	}
	body, err := json.Marshal(question)
	if err != nil {
		s.Fatal(err)
	}
	req, err := http.NewRequestWithContext(s.Context(), http.MethodPost, "http://"+admin+"/api/v1/calls/resolve", strings.NewReader(string(body)))
	if err != nil {
		s.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	if r := do(s.client, req); r.err != nil || r.status != http.StatusOK {
		s.Fatalf("resolving: %s", r)
	}
}

func checkResolved(t *testing.T, p *provider, c call, decision string, r reply) {
	t.Helper()
	switch decision {
	case "applied":
		if r.status != http.StatusCreated || r.outcome() != "replayed" || r.body != `{"id":"seen"}` {
			t.Errorf("not the receipt that the operator gave: %s", r)
		}
	case "not_applied":
		// The operator was wrong on purpose: a second sending is what was asked for.
		if e := p.effectOf(c.String()); r.outcome() != "executed" || e.hits != 2 {
			t.Errorf("%d requests, and %s", e.hits, r)
		}
	case "abandon":
		if e := p.effectOf(c.String()); r.status != http.StatusGone || r.problem() != "call-abandoned" || e.hits != 1 {
			t.Errorf("%d requests, and %s", e.hits, r)
		}
	}
}

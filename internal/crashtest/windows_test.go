package crashtest

import (
	"net/http"
	"testing"

	"counterfoil/internal/crashpoint"
)

// A window is one of the five of design section 1: where the sidecar dies, and
// what the report of the next one says to do.
type window struct {
	name  string
	point crashpoint.Point
	kind  string
	cut   cut
	// verdict is the run's; state and action are the call's.
	verdict, state, action string
	then                   verdict
}

var windows = []window{
	{"before the call was sent", crashpoint.BeginBefore, "none", notCut, "resume", "planned", "send", verdict{"executed", 1, 1}},
	{"before the call was sent, but intended", crashpoint.SendBefore, "lookup", notCut, "resume", "in_doubt", "ask", verdict{"executed", 1, 1}},
	{"after sending, no answer", crashpoint.SendAfter, "lookup", afterEffect, "resume", "in_doubt", "ask", verdict{"recovered", 1, 1}},
	{"after the effect, before the receipt was stored", crashpoint.FinishBefore, "keyed", notCut, "resume", "in_doubt", "resend", verdict{"recovered", 1, 2}},
	{"after the receipt was stored", crashpoint.FinishAfter, "none", notCut, "resume", "succeeded", "replay", verdict{"replayed", 1, 1}},
	{"no reliable way to ask", crashpoint.SendAfter, "none", notCut, "stop", "unknown", "stop", verdict{"unknown", 1, 1}},
}

// A recovery is what the agent API says of a run after a crash.
type recovery struct {
	Verdict string
	Calls   []struct{ Turn, Call, Tool, State, Action, Reason string }
}

// TestFiveWindows: after kill -9 in each window the report says what to do, and
// that is what happens.
func TestFiveWindows(t *testing.T) {
	for _, w := range windows {
		t.Run(w.name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			b.provider.befalls(first(mishap{cut: w.cut}))
			c := things(w.kind, "plain")
			doomed := b.crashing(string(w.point), 1)
			if r := doomed.ofStores(http.MethodPut, "/-/v1/runs/"+c.run+"/turns/"+c.turn, `{"decision":"do it","calls":[{"id":"`+c.id+`","tool":"make"}]}`); r.status != http.StatusCreated {
				t.Fatalf("recording a plan: %s", r)
			}
			if r := doomed.send(c); r.err == nil {
				t.Fatalf("the agent of a sidecar that died was told: %s", r)
			}
			doomed.crashed()
			heir := b.released()
			var report recovery
			heir.get("/-/v1/runs/"+c.run+"/recovery", &report)
			if report.Verdict != w.verdict || len(report.Calls) != 1 {
				t.Fatalf("%+v", report)
			}
			if said := report.Calls[0]; said.Turn != c.turn || said.Call != c.id || said.Tool != "make" || said.State != w.state || said.Action != w.action || said.Reason == "" {
				t.Errorf("%+v", said)
			}
			checkVerdict(t, b.provider, c, heir.ask(c), w.then)
		})
	}
}

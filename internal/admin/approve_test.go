package admin

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"counterfoil/classify"
	"counterfoil/internal/view"
	"counterfoil/keystore"
)

// hold puts a call on record as held, with a body.
func (b *bench) hold(k keystore.Key, body string) {
	b.t.Helper()
	a, err := b.store.Begin(b.t.Context(), &keystore.Request{Beginning: b.beginning(k), Approval: classify.ApprovalRequired}, []byte(body))
	if err != nil || a.Record == nil || a.Record.State != keystore.Held {
		b.t.Fatalf("%+v, %v", a, err)
	}
}

// rule sends a ruling about a call of the bench's run.
func (b *bench) rule(what, call, more string) answer {
	b.t.Helper()
	return b.do(http.MethodPost, "/api/v1/calls/"+what, fmt.Sprintf(`{"run":"ticket-77","turn":"3","call":%q,"actor":"ada"%s}`, call, more))
}

func TestHeldCallsAreShownWithWhatTheyWouldSend(t *testing.T) {
	b := newBench(t, nil)
	if a := b.get("/api/v1/held"); a.status != 200 || strings.TrimSpace(a.body) != `{"items":[]}` {
		t.Errorf("%d %s", a.status, a.body)
	}
	b.hold(key("text"), `{"amount":100}`)
	since := b.clock.Now()
	b.clock.Advance(time.Minute)
	b.hold(key("bytes"), "\xff\x00")
	b.hold(key("long"), strings.Repeat("é", 40<<10))
	l := decode[view.List[*view.Held]](t, b.get("/api/v1/held"))
	if len(l.Items) != 3 || l.Next != "" {
		t.Fatalf("%+v", l)
	}
	h := l.Items[0]
	if h.Namespace != "default" || h.Run != "ticket-77" || h.Turn != "3" || h.Call != "text" || h.HeldFor != "approval" || !h.Since.Equal(since) ||
		h.Upstream != "tickets" || h.Method != "POST" || h.Target != "/effects?token=~abc" || h.Key == "" || len(h.Fingerprint) != 64 ||
		h.Body != `{"amount":100}` || h.BodyBytes != 14 || h.BodyCut {
		t.Errorf("%+v", h)
	}
	if h := l.Items[1]; h.Body != "" || h.BodyBase64 != "/wA=" {
		t.Errorf("%+v", h)
	}
	if h := l.Items[2]; !h.BodyCut || h.BodyBytes != 80<<10 || len(h.Body) != view.HeldBodyMax || strings.Trim(h.Body, "é") != "" {
		t.Errorf("%d bytes of %d are shown", len(h.Body), h.BodyBytes)
	}
	if a := b.get("/api/v1/held?limit=1"); len(decode[view.List[*view.Held]](t, a).Items) != 1 || decode[view.List[*view.Held]](t, a).Next == "" {
		t.Errorf("%s", a.body)
	}
	metrics := b.get("/metrics").body
	for _, want := range []string{"counterfoil_calls_held 3", "counterfoil_calls_held_oldest_age_seconds 60"} {
		if !strings.Contains(metrics, want) {
			t.Errorf("no %q in the metrics", want)
		}
	}
}

func TestRulingsMoveTheCall(t *testing.T) {
	b := newBench(t, nil)
	b.hold(key("yes"), "{}")
	b.hold(key("no"), "{}")
	for range 2 { // once more changes nothing
		c := decode[view.Call](t, b.rule("approve", "yes", `,"note":"as agreed","ttl_seconds":60`))
		if c.State != "planned" || len(c.History) != 2 || c.History[1].Actor != "ada" || c.History[1].Note != "as agreed" || c.History[1].Event != "was_approved" {
			t.Fatalf("%+v", c)
		}
		if c := decode[view.Call](t, b.rule("deny", "no", "")); c.State != "abandoned" || len(c.History) != 2 {
			t.Fatalf("%+v", c)
		}
	}
	r, err := b.store.Call(t.Context(), key("yes"))
	if err != nil || r.Approval == nil || r.Approval.ExpiresAt != b.clock.Instant().Add(time.Minute) {
		t.Errorf("%+v, %v", r, err)
	}
	wantProblem(t, b.rule("deny", "yes", ""), NotHeld, "state planned")
	wantProblem(t, b.rule("approve", "no", ""), NotHeld, "state abandoned")
	wantProblem(t, b.rule("approve", "none", ""), NotFound, "")
	if log := b.log.String(); !strings.Contains(log, "approved") || !strings.Contains(log, `"actor":"ada"`) {
		t.Errorf("log: %s", log)
	}
	for _, path := range []string{"/api/v1/held", "/api/v1/unknown"} {
		if l := decode[view.List[*view.Call]](t, b.get(path)); len(l.Items) != 0 {
			t.Errorf("%s: %+v", path, l.Items)
		}
	}
}

func TestMistakesInARulingAreNamed(t *testing.T) {
	b := newBench(t, nil)
	b.hold(key("c"), "{}")
	for _, tt := range []struct{ what, more, says string }{
		{"approve", `,"ttl_seconds":0`, "ttl_seconds"},
		{"approve", `,"ttl_seconds":-5`, "ttl_seconds"},
		{"approve", `,"ttl_seconds":99999999999`, "ttl_seconds"},
		{"approve", `,"ttl_seconds":"1h"`, "ttl_seconds"},
		{"deny", `,"ttl_seconds":5`, "for good"},
		{"approve", `,"decision":"yes"`, "decision"},
		{"approve", `,"actor":" "`, "actor"},
		{"deny", `,"actor":"` + strings.Repeat("x", keystore.ReasonBytesMax+1) + `"`, "actor"},
		{"deny", `,"note":"` + strings.Repeat("x", keystore.NoteBytesMax+1) + `"`, "note"},
	} {
		wantProblem(t, b.rule(tt.what, "c", tt.more), InvalidRequest, tt.says)
	}
	wantProblem(t, b.rule("approve", "", ""), InvalidKey, "")
	wantProblem(t, b.do(http.MethodPost, "/api/v1/calls/deny", `{}`, "Content-Type", "text/plain"), UnsupportedMediaType, "")
	wantProblem(t, b.do(http.MethodGet, "/api/v1/calls/approve", ""), MethodNotAllowed, "")
	if r, err := b.store.Call(t.Context(), key("c")); err != nil || r.State != keystore.Held {
		t.Errorf("%+v, %v", r, err)
	}
}

func TestRunsAreFilteredAndReportedOn(t *testing.T) {
	b := newBench(t, nil)
	b.succeed(key("done"))
	b.lose(key("lost"))
	budget := uint32(3)
	if _, _, err := b.store.PutRun(t.Context(), &keystore.RunSpec{
		Namespace: "default", Run: "other", FlowVersion: "v1", Labels: map[string]string{"team": "billing"}, Budget: &keystore.Budget{Effects: &budget},
	}); err != nil {
		t.Fatal(err)
	}
	if _, err := b.store.AcquireLease(t.Context(), &keystore.LeaseRequest{Namespace: "default", Run: "other", Owner: "w1", TTL: time.Minute}); err != nil {
		t.Fatal(err)
	}
	b.clock.Advance(time.Hour)
	for query, want := range map[string]string{"state=paused": "ticket-77", "label=team:billing": "other", "state=active&older_than=59m": "other"} {
		l := decode[view.List[*view.Run]](t, b.get("/api/v1/runs?"+query))
		if len(l.Items) != 1 || l.Items[0].Run != want {
			t.Errorf("%s: %+v", query, l.Items)
		}
	}
	if l := decode[view.List[*view.Run]](t, b.get("/api/v1/runs?newer_than=59m")); len(l.Items) != 0 {
		t.Errorf("%+v", l.Items)
	}
	wantProblem(t, b.get("/api/v1/runs?state=dead"), InvalidRequest, "active, paused")
	wantProblem(t, b.get("/api/v1/runs?older_than=long"), InvalidRequest, "24h")
	r := decode[view.Run](t, b.get("/api/v1/runs/other"))
	if r.Lease == nil || r.Lease.Held || r.Lease.Fence != 1 || r.FlowVersion != "v1" || *r.Budget.Effects != 3 || r.Namespace != "default" {
		t.Errorf("%+v", r)
	}
	rec := decode[view.Recovery](t, b.get("/api/v1/runs/ticket-77/recovery"))
	if rec.Verdict != "stop" || len(rec.Calls) != 2 || rec.Calls[1].Action != "stop" || rec.Calls[1].Problem != "unknown-outcome" {
		t.Errorf("%+v", rec)
	}
	wantProblem(t, b.get("/api/v1/runs/none/recovery"), NotFound, "")
}

// Who sends large requests does not choose how much memory a page of them takes.
func TestAPageOfLargeHeldCallsIsShort(t *testing.T) {
	b := newBench(t, nil)
	const calls = 150
	for i := range calls {
		b.hold(key(fmt.Sprint("c", i)), strings.Repeat("x", view.HeldBodyMax))
	}
	seen, after := 0, ""
	for {
		a := b.get("/api/v1/held?limit=1000" + after)
		if len(a.body) > heldBytesMax+2*heldStep*view.HeldBodyMax {
			t.Fatalf("one page has %d bytes", len(a.body))
		}
		l := decode[view.List[*view.Held]](t, a)
		for _, h := range l.Items {
			if h.Call != fmt.Sprint("c", seen) || len(h.Body) != view.HeldBodyMax {
				t.Fatalf("call %d is %s, with %d bytes", seen, h.Call, len(h.Body))
			}
			seen++
		}
		if l.Next == "" {
			break
		}
		after = "&after=" + l.Next
	}
	if seen != calls {
		t.Errorf("%d calls, want %d", seen, calls)
	}
}

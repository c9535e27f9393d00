package admin

import (
	"fmt"
	"net/url"
	"strings"
	"testing"
	"time"

	"counterfoil/internal/view"
	"counterfoil/keystore"
	"counterfoil/keystore/storetest"
)

func TestRunsAndTheirCalls(t *testing.T) {
	b := newBench(t, nil)
	b.succeed(key("create_ticket"))
	b.lose(key("send_email"))
	other := key("x")
	other.Run = "odd/run: 100%"
	b.begin(other)
	elsewhere := key("y")
	elsewhere.Namespace = "team-b"
	b.begin(elsewhere)

	runs := decode[view.List[*view.Run]](t, b.get("/api/v1/runs"))
	if len(runs.Items) != 2 || runs.Items[0].Run != "ticket-77" || runs.Items[1].Run != other.Run {
		t.Fatalf("runs %+v", runs)
	}
	if got := fmt.Sprint(runs.Items[0].Totals); got != "map[succeeded:1 unknown:1]" {
		t.Errorf("totals %s", got)
	}
	if got := decode[view.List[*view.Run]](t, b.get("/api/v1/runs?namespace=team-b")); len(got.Items) != 1 || got.Items[0].Namespace != "team-b" {
		t.Errorf("runs of team-b: %+v", got)
	}
	run := decode[view.Run](t, b.get(RunPath("ticket-77")))
	if run.State != "paused" || run.Calls == nil || len(run.Calls.Items) != 2 || run.Calls.Items[1].State != "unknown" {
		t.Errorf("run %+v", run)
	}
	if run := decode[view.Run](t, b.get(RunPath(other.Run))); run.Run != other.Run || len(run.Calls.Items) != 1 {
		t.Errorf("run with an odd name: %+v", run)
	}
	wantProblem(t, b.get("/api/v1/runs/never"), NotFound, "")
	wantProblem(t, b.get("/api/v1/runs/ticket-77?namespace=team-c"), NotFound, "")
	wantProblem(t, b.get("/api/v1/runs/"+strings.Repeat("r", 257)), InvalidKey, "256")
	wantProblem(t, b.get("/api/v1/runs/%FF"), InvalidKey, "UTF-8")
}

func TestListsArePaged(t *testing.T) {
	b := newBench(t, nil)
	for i := range 5 {
		b.lose(key(fmt.Sprintf("c%d", i)))
		b.clock.Advance(time.Minute)
	}
	for _, path := range []string{"/api/v1/unknown?limit=2", "/api/v1/runs/ticket-77?limit=2"} {
		var seen []string
		next := ""
		for range 4 {
			a := b.get(path + "&after=" + url.QueryEscape(next))
			page := decode[view.List[*view.Call]](t, a)
			if strings.Contains(path, "runs") {
				page = *decode[view.Run](t, a).Calls
			}
			for _, c := range page.Items {
				seen = append(seen, c.Call)
			}
			if next = page.Next; next == "" {
				break
			}
		}
		if got := strings.Join(seen, " "); got != "c0 c1 c2 c3 c4" {
			t.Errorf("%s: %s", path, got)
		}
	}
	for query, says := range map[string]string{
		"limit=0": "1 to 1000", "limit=1001": "1 to 1000", "limit=ten": "1 to 1000", "limit=": "1 to 1000",
		"after=nonsense!": "cursor", "colour=red": `"colour"`, "namespace=x": `"namespace"`, "a=%zz": "percent-encode",
		"limit=1&limit=2": "limit twice",
	} {
		wantProblem(t, b.get("/api/v1/unknown?"+query), InvalidRequest, says)
	}
	wantProblem(t, b.get("/api/v1/runs?namespace="), InvalidKey, "")
	empty := b.get("/api/v1/runs?namespace=nobody")
	if strings.TrimSpace(empty.body) != `{"items":[]}` {
		t.Errorf("an empty list is %s", empty.body)
	}
}

func TestUnknownQueueTellsWhatADecisionNeeds(t *testing.T) {
	b := newBench(t, nil)
	elsewhere := key("refund")
	elsewhere.Namespace = "team-b"
	b.lose(elsewhere)
	since := b.clock.Now()
	b.clock.Advance(time.Hour)
	b.lose(key("send_email"))
	b.succeed(key("create_ticket"))

	queue := decode[view.List[*view.Call]](t, b.get("/api/v1/unknown"))
	if len(queue.Items) != 2 || queue.Items[0].Call != "refund" || queue.Items[1].Call != "send_email" {
		t.Fatalf("queue %+v", queue)
	}
	c := queue.Items[0]
	if c.Namespace != "team-b" || c.Run != "ticket-77" || c.Turn != "3" || c.Key != string(elsewhere.ProviderKey()) ||
		c.Class != "effect" || c.Upstream != "tickets" || c.Method != "POST" || c.Target != "/effects?token=~abc" {
		t.Errorf("identity and intent: %+v", c)
	}
	if !c.Since.Equal(since) || c.Reason != "this upstream has no lookup" {
		t.Errorf("since %s because %q", c.Since, c.Reason)
	}
	if len(c.Attempts) != 1 || c.Attempts[0].Evidence != "lost" || c.Attempts[0].Reason != "the connection was reset" {
		t.Errorf("attempts %+v", c.Attempts)
	}
}

func TestRecordShowsNoCredentialAndNoBody(t *testing.T) {
	b := newBench(t, nil)
	b.succeed(key("a"))
	a := b.get(CallPath(key("a")))
	c := decode[view.Call](t, a)
	if c.Receipt == nil || c.Receipt.Status != 201 || c.Receipt.Source != "answer" || c.Receipt.BodyBytes != 11 || len(c.Receipt.BodySHA256) != 64 {
		t.Errorf("receipt %+v", c.Receipt)
	}
	if got := c.Receipt.Headers["Content-Type"]; len(got) != 1 || got[0] != "application/json" {
		t.Errorf("headers %v", c.Receipt.Headers)
	}
	for _, secret := range []string{"hunter2", "the body", `"t1"`} {
		if strings.Contains(a.body, secret) {
			t.Errorf("%q is shown: %s", secret, a.body)
		}
	}
	if a.header.Get("Cache-Control") != "no-store" || a.header.Get("X-Content-Type-Options") != "nosniff" {
		t.Errorf("headers %v", a.header)
	}
	wantProblem(t, b.get(CallPath(key("never"))), NotFound, "")
	dots := keystore.Key{Namespace: "default", Run: "..", Turn: ".", Call: "a/b?c#d%2F"}
	b.begin(dots)
	if c := decode[view.Call](t, b.get(CallPath(dots))); c.Call != dots.Call || c.State != "pending" {
		t.Errorf("a call named of dots and slashes: %+v", c)
	}
}

func TestStoreTroubleHasAName(t *testing.T) {
	b := newBench(t, nil)
	b.succeed(key("a"))
	for _, row := range []struct {
		err  error
		want Problem
	}{
		{keystore.ErrUnavailable, JournalUnavailable},
		{keystore.ErrCorrupt, RecordUnreadable},
		{keystore.ErrNewerFormat, RecordUnreadable},
	} {
		b.disk.Fail(storetest.Fault{Op: storetest.Read, Err: row.err})
		a := b.get(CallPath(key("a")))
		wantProblem(t, a, row.want, "")
		if strings.Contains(a.body, "test's fault") {
			t.Errorf("what the store said gets out: %s", a.body)
		}
		if !strings.Contains(b.log.String(), row.err.Error()) {
			t.Errorf("the log does not say %q", row.err)
		}
	}
}

// The instance of a refusal leads here: /?namespace=N&call=RUN:TURN:CALL.
func TestLinkOfARefusalLeadsToTheCall(t *testing.T) {
	b := newBench(t, nil)
	k := keystore.Key{Namespace: "team b", Run: "odd/run: 100%", Turn: "3", Call: "a&b"}
	b.lose(k)
	a := b.get("/?" + url.Values{"namespace": {k.Namespace}, "call": {k.String()}}.Encode())
	if c := decode[view.Call](t, a); a.status != 200 || c.Call != k.Call || c.Namespace != k.Namespace || c.State != "unknown" {
		t.Errorf("%d %s", a.status, a.body)
	}
	wantProblem(t, b.get("/?call=r:t"), InvalidKey, "run:turn:call")
	wantProblem(t, b.get("/?call=r:t:c"), NotFound, "")
	if a := b.get("/"); a.status != 200 || !strings.Contains(a.body, "/api/v1/unknown") {
		t.Errorf("%d %s", a.status, a.body)
	}
}

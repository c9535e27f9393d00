package proxy

import (
	"encoding/json"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"counterfoil/internal/journal"
	"counterfoil/internal/view"
	"counterfoil/keystore"
)

// api asks the agent API.
func (st *stack) api(method, path, body string, fields ...string) *got {
	st.t.Helper()
	return ask(st.t, st.addr, request(method, "/-/v1"+path, body, fields...))
}

// said decodes an answer of that status, and refuses members that nobody knows.
func said[T any](t *testing.T, g *got, status int) T {
	t.Helper()
	var v T
	if g.status != status || g.value("Content-Type") != "application/json" {
		t.Fatalf("%d %q %s, want %d", g.status, g.fields, g.body, status)
	}
	dec := json.NewDecoder(strings.NewReader(g.body))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&v); err != nil {
		t.Fatalf("%s: %v", g.body, err)
	}
	return v
}

func TestRunIsMadeAndChanged(t *testing.T) {
	st := start(t, setup{provider: provide(t, created)})
	r := said[view.Run](t, st.api("PUT", "/runs/r", `{"flow_version":"v1","budget":{"effects":10,"upstreams":{"Tickets":2}},"labels":{"team":"billing"}}`), 201)
	if r.Run != "r" || r.State != "active" || r.FlowVersion != "v1" || *r.Budget.Effects != 10 || r.Budget.Upstreams["tickets"] != 2 || r.Labels["team"] != "billing" || r.Lease != nil {
		t.Fatalf("%+v", r)
	}
	said[view.Run](t, st.api("PUT", "/runs/r", ""), 200)
	st.post("r", "1", "1", "/tickets/x", "{}")
	r = said[view.Run](t, st.api("PUT", "/runs/r", `{"flow_version":"v1","budget":{"effects":0},"labels":{}}`), 200)
	if r.Begun.Effects != 1 || r.Begun.Upstreams["tickets"] != 1 || *r.Budget.Effects != 0 || len(r.Budget.Upstreams) != 0 || len(r.Labels) != 0 {
		t.Fatalf("%+v", r)
	}
	d := st.api("PUT", "/runs/r", `{"flow_version":"v2","labels":{"a":"b"}}`).isProblem(t, journal.FlowVersionMismatch)
	if d.FlowVersion != "v1" {
		t.Errorf("%+v", d)
	}
	r = read[view.Run](t, st.get("/-/v1/runs/r"))
	if r.FlowVersion != "v1" || len(r.Labels) != 0 || r.Totals["succeeded"] != 1 || len(r.Calls.Items) != 1 {
		t.Errorf("%+v", r)
	}
	// A budget counts effects begun: the next one is over it, a repeat is none.
	st.post("r", "1", "2", "/tickets/x", "{}").isProblem(t, journal.BudgetExhausted)
	if g := st.post("r", "1", "1", "/tickets/x", "{}"); g.outcome() != "replayed" {
		t.Errorf("%+v", g)
	}
	if n := len(st.setup.provider.hits()); n != 1 {
		t.Errorf("%d requests reached the provider", n)
	}
}

func TestRunsAreListed(t *testing.T) {
	p := provide(t, func(w net.Conn, h *heard) {
		if h.target() == "/die" {
			_ = w.Close()
			return
		}
		created(w, h)
	})
	st := start(t, setup{provider: p})
	for i := range 30 {
		st.api("PUT", fmt.Sprintf("/runs/r%02d", i), fmt.Sprintf(`{"labels":{"third":"%d","all":"y"}}`, i%3))
	}
	st.post("r07", "1", "1", "/tickets/die", "{}")
	st.api("POST", "/runs/r10/lease", `{"owner":"w1","ttl_seconds":30}`)
	names := func(query string) (all []string) {
		t.Helper()
		for after := ""; ; {
			l := read[view.List[*view.Run]](t, st.get("/-/v1/runs?"+query+after))
			for _, r := range l.Items {
				all = append(all, r.Run)
			}
			if l.Next == "" {
				return all
			}
			after = "&after=" + l.Next
		}
	}
	for _, tt := range []struct {
		query string
		want  int
		first string
	}{
		{"limit=7", 30, "r00"}, {"limit=1000", 30, "r00"}, {"state=paused", 1, "r07"}, {"state=active&limit=3", 29, "r00"},
		{"label=third:1&limit=2", 10, "r01"}, {"label=third:1&label=all:y&state=paused", 1, "r07"}, {"label=third:9", 0, ""}, {"label=none:", 0, ""},
		{"label=third:2&label=third:1", 0, ""}, {"label=third:1&label=third:1", 10, "r01"},
		{"older_than=1h", 0, ""}, {"newer_than=1h&limit=4", 30, "r00"}, {"older_than=0s&newer_than=1h", 30, "r00"},
	} {
		if got := names(tt.query); len(got) != tt.want || tt.want > 0 && got[0] != tt.first {
			t.Errorf("%s: %q, want %d from %s on", tt.query, got, tt.want, tt.first)
		}
	}
	for _, query := range []string{"state=done", "label=x", "label=:y", "older_than=1", "older_than=-1h", "newer_than=soon", "limit=0", "limit=1001", "nosuch=1", "limit=1&limit=2", "after=%21%21"} {
		st.get("/-/v1/runs?"+query).isProblem(t, journal.InvalidRequest)
	}
	for _, r := range read[view.List[*view.Run]](t, st.get("/-/v1/runs?limit=30")).Items {
		if held := r.Lease != nil && r.Lease.Held; held != (r.Run == "r10") {
			t.Errorf("%s: lease %+v", r.Run, r.Lease)
		}
	}
}

func TestLeases(t *testing.T) {
	st := start(t, setup{provider: provide(t, created)})
	st.api("GET", "/runs/r/lease", "").isProblem(t, NotFound)
	before := time.Now()
	g := said[view.Grant](t, st.api("POST", "/runs/r/lease", `{"owner":"w1","ttl_seconds":30}`), 200)
	if g.Fence != 1 || g.Owner != "w1" || g.ExpiresAt.Before(before.Add(29*time.Second)) || g.ExpiresAt.After(time.Now().Add(31*time.Second)) {
		t.Fatalf("%+v", g)
	}
	refused := st.api("POST", "/runs/r/lease", `{"owner":"w1","ttl_seconds":30}`)
	if d := refused.isProblem(t, journal.LeaseHeld); d.Fence != 1 || d.Owner != "w1" || !d.SafeToRetry {
		t.Errorf("%+v", d)
	}
	if after := refused.value("Retry-After"); after != "30" && after != "29" {
		t.Errorf("Retry-After: %q", after)
	}
	g = said[view.Grant](t, st.api("PUT", "/runs/r/lease", `{"fence":1,"ttl_seconds":60}`), 200)
	if g.ExpiresAt.Before(before.Add(59 * time.Second)) {
		t.Errorf("%+v", g)
	}
	if l := read[view.Lease](t, st.get("/-/v1/runs/r/lease")); !l.Held || l.Fence != 1 || l.Owner != "w1" || !l.ExpiresAt.Equal(g.ExpiresAt) && l.ExpiresAt.Before(before) {
		t.Errorf("%+v", l)
	}
	if d := st.api("PUT", "/runs/r/lease", `{"fence":2}`).isProblem(t, journal.Fenced); d.Fence != 1 {
		t.Errorf("%+v", d)
	}
	for range 2 { // giving it back again changes nothing
		if g := st.api("DELETE", "/runs/r/lease?fence=1", ""); g.status != 204 || g.body != "" {
			t.Errorf("%d %s", g.status, g.body)
		}
	}
	st.api("PUT", "/runs/r/lease", `{"fence":1}`).isProblem(t, journal.Fenced)
	if l := read[view.Lease](t, st.get("/-/v1/runs/r/lease")); l.Held || l.Fence != 1 || !l.ExpiresAt.IsZero() {
		t.Errorf("%+v", l)
	}
	if g := said[view.Grant](t, st.api("POST", "/runs/r/lease", `{"owner":"w2","ttl_seconds":1}`), 200); g.Fence != 2 {
		t.Errorf("%+v", g)
	}
	if d := st.api("DELETE", "/runs/r/lease?fence=1", "").isProblem(t, journal.Fenced); d.Fence != 2 {
		t.Errorf("%+v", d)
	}
	st.api("PUT", "/runs/none/lease", `{"fence":1}`).isProblem(t, NotFound)
}

func TestPlans(t *testing.T) {
	st := start(t, setup{provider: provide(t, created)})
	const plan = `{"decision":{"a":1.0,"b":[true,null]},"calls":[{"id":"c1","tool":"refund","args":{"x":9007199254740993,"y":"z"}},{"id":"c2"}]}`
	p := said[view.Plan](t, st.api("PUT", "/runs/r/turns/1", plan), 201)
	if p.Run != "r" || p.Turn != "1" || len(p.Calls) != 2 || string(p.Calls[0].Args) != `{"x":9007199254740993,"y":"z"}` || p.CreatedAt.IsZero() {
		t.Fatalf("%+v", p)
	}
	same := `{"calls" : [ {"args":{"y":"\u007a", "x":9007199254740993.0},"tool":"refund","id":"c1"}, {"id":"c2","args":null} ],"decision":{"b":[true,null],"a":1}}`
	if again := said[view.Plan](t, st.api("PUT", "/runs/r/turns/1", same), 200); !again.CreatedAt.Equal(p.CreatedAt) || string(again.Decision) != string(p.Decision) {
		t.Errorf("%+v", again)
	}
	for _, other := range []string{
		strings.Replace(plan, "9007199254740993", "9007199254740992", 1), strings.Replace(plan, "refund", "Refund", 1),
		strings.Replace(plan, `,{"id":"c2"}`, "", 1), strings.Replace(plan, `"a":1.0`, `"a":"1.0"`, 1),
	} {
		st.api("PUT", "/runs/r/turns/1", other).isProblem(t, journal.PlanConflict)
	}
	if got := read[view.Plan](t, st.get("/-/v1/runs/r/turns/1")); string(got.Decision) != `{"a":1.0,"b":[true,null]}` || got.Calls[1].ID != "c2" {
		t.Errorf("%+v", got)
	}
	st.get("/-/v1/runs/r/turns/2").isProblem(t, NotFound)
	// Of 1 MiB only decision and arguments count.
	large := func(n int) string {
		return `{"calls":[{"id":"c1","tool":"refund"}],"decision":"` + strings.Repeat("x", n-2) + `"}`
	}
	said[view.Plan](t, st.api("PUT", "/runs/large/turns/1", large(keystore.PlanBytesMax)), 201)
	st.api("PUT", "/runs/large/turns/2", large(keystore.PlanBytesMax+1)).isProblem(t, journal.InputTooLarge)
	st.post("r", "1", "c3", "/tickets/x", "{}").isProblem(t, journal.NotInPlan)
	if g := st.post("r", "1", "c1", "/tickets/x", "{}"); g.outcome() != "executed" {
		t.Errorf("%+v", g)
	}
	rec := read[view.Recovery](t, st.get("/-/v1/runs/r/recovery"))
	if rec.Run != "r" || rec.Verdict != "resume" || len(rec.Calls) != 2 || rec.Next != "" {
		t.Fatalf("%+v", rec)
	}
	if c := rec.Calls[0]; c.Turn != "1" || c.Call != "c1" || c.Tool != "refund" || c.State != "succeeded" || c.Action != "replay" || c.Reason == "" {
		t.Errorf("%+v", c)
	}
	if c := rec.Calls[1]; c.Call != "c2" || c.State != "planned" || c.Action != "send" {
		t.Errorf("%+v", c)
	}
	st.get("/-/v1/runs/none/recovery").isProblem(t, NotFound)
	// With a lease, a plan needs its fence.
	st.api("POST", "/runs/r/lease", `{"owner":"w1","ttl_seconds":30}`)
	if d := st.api("PUT", "/runs/r/turns/2", plan).isProblem(t, journal.FenceRequired); d.Fence != 1 {
		t.Errorf("%+v", d)
	}
	if d := st.api("PUT", "/runs/r/turns/2", plan, "Counterfoil-Fence: 9").isProblem(t, journal.Fenced); d.Fence != 1 {
		t.Errorf("%+v", d)
	}
	said[view.Plan](t, st.api("PUT", "/runs/r/turns/2", plan, "Counterfoil-Fence: 1", "Counterfoil-Flow-Version: v1"), 201)
	if d := st.api("PUT", "/runs/r/turns/3", plan, "Counterfoil-Fence: 1", "Counterfoil-Flow-Version: v2").isProblem(t, journal.FlowVersionMismatch); d.FlowVersion != "v1" {
		t.Errorf("%+v", d)
	}
}

// A refusal of the agent API is about what its path names, whatever call the
// request's header speaks of.
func TestAPIRefusalsSayWhatTheyAreAbout(t *testing.T) {
	st := start(t, setup{provider: provide(t, created), proxy: func(c *Config) { c.Run = "served" }})
	st.api("POST", "/runs/r/lease", `{"owner":"w1","ttl_seconds":30}`)
	named := []string{"Counterfoil-Run: other", "Counterfoil-Turn: 9", "Counterfoil-Call: c"}
	for _, tt := range []struct {
		method, path, body string
		problem            journal.Problem
		want               keystore.Key
	}{
		{"POST", "/runs/r/lease", `{"owner":"w1","ttl_seconds":30}`, journal.LeaseHeld, keystore.Key{Run: "r"}},
		{"PUT", "/runs/r/turns/1", `{"calls":[]}`, journal.FenceRequired, keystore.Key{Run: "r", Turn: "1"}},
		{"GET", "/runs/r/turns/1/calls/2", "", NotFound, keystore.Key{Run: "r", Turn: "1", Call: "2"}},
		{"GET", "/nowhere", "", NotFound, keystore.Key{}},
	} {
		for _, header := range [][]string{nil, named} {
			d := st.api(tt.method, tt.path, tt.body, header...).isProblem(t, tt.problem)
			if d.Run != tt.want.Run || d.Turn != tt.want.Turn || d.Call != tt.want.Call || (d.Instance != "") != (tt.want.Call != "") {
				t.Errorf("%s %s with %q: it is about %q, %q, %q (%s)", tt.method, tt.path, header, d.Run, d.Turn, d.Call, d.Instance)
			}
		}
	}
}

// Bad input is a 4xx that says what to do, and nothing is changed.
func TestBadInputOfRuns(t *testing.T) {
	st := start(t, setup{provider: provide(t, created)})
	long := strings.Repeat("x", 257)
	for _, tt := range []struct{ method, path, body, says string }{
		{"PUT", "/runs/r", `[]`, "not an object"},
		{"PUT", "/runs/r", `{`, "JSON"},
		{"PUT", "/runs/r", `{} {}`, ""},
		{"PUT", "/runs/r", "{\"labels\":{\"a\":\"\xff\"}}", "UTF-8"},
		{"PUT", "/runs/r", `{"flow":"v1"}`, "flow"},
		{"PUT", "/runs/r", `{"flow_version":1}`, "flow_version"},
		{"PUT", "/runs/r", `{"flow_version":""}`, "flow_version"},
		{"PUT", "/runs/r", `{"flow_version":"` + long + `"}`, "256"},
		{"PUT", "/runs/r", `{"flow_version":"a","flow_version":"b"}`, "twice"},
		{"PUT", "/runs/r", `{"budget":{"effects":-1}}`, "-1"},
		{"PUT", "/runs/r", `{"budget":{"effects":4294967296}}`, "4294967295"},
		{"PUT", "/runs/r", `{"budget":{"effects":1.5}}`, "1.5"},
		{"PUT", "/runs/r", `{"budget":{"upstreams":{"nosuch":1}}}`, "tickets"},
		{"PUT", "/runs/r", `{"budget":{"money":1}}`, "money"},
		{"PUT", "/runs/r", `{"labels":{"a":1}}`, "string"},
		{"PUT", "/runs/r", `{"labels":{"` + long + `":"x"}}`, "64"},
		{"PUT", "/runs/r", `{"labels":{"a":"` + long + `"}}`, "256"},
		{"PUT", "/runs/r", `{"labels":{` + strings.Repeat(`"%d":"",`, 16) + `"z":""}}`, "16"},
		{"PUT", "/runs/r?x=1", `{}`, "no parameter"},
		{"GET", "/runs/r/turns/1/calls/c?x=1", ``, "no parameter"},
		{"GET", "/runs/r/turns/1/calls/c/receipt?x=1", ``, "no parameter"},
		{"PUT", "/runs/-", `{}`, "no run"},
		{"POST", "/runs/-/lease", `{"owner":"w","ttl_seconds":1}`, "no run"},
		{"POST", "/runs/r/lease", ``, "owner"},
		{"POST", "/runs/r/lease", `{"owner":"w"}`, "ttl_seconds"},
		{"POST", "/runs/r/lease", `{"owner":"","ttl_seconds":1}`, "owner"},
		{"POST", "/runs/r/lease", `{"owner":"` + long + `","ttl_seconds":1}`, "256"},
		{"POST", "/runs/r/lease", `{"owner":"w","ttl_seconds":0}`, "86400"},
		{"POST", "/runs/r/lease", `{"owner":"w","ttl_seconds":-1}`, "-1"},
		{"POST", "/runs/r/lease", `{"owner":"w","ttl_seconds":86401}`, "86400"},
		{"POST", "/runs/r/lease", `{"owner":"w","ttl_seconds":99999999999999999999}`, "whole number"},
		{"POST", "/runs/r/lease", `{"owner":"w","ttl_seconds":"1"}`, "number"},
		{"POST", "/runs/r/lease", `{"owner":"w","ttl_seconds":1,"force":true}`, "force"},
		{"PUT", "/runs/r/lease", `{}`, "fence"},
		{"PUT", "/runs/r/lease", `{"fence":0}`, "1"},
		{"PUT", "/runs/r/lease", `{"fence":"1"}`, "number"},
		{"DELETE", "/runs/r/lease", ``, "fence"},
		{"DELETE", "/runs/r/lease?fence=x", ``, "fence"},
		{"DELETE", "/runs/r/lease?fence=-1", ``, "fence"},
		{"PUT", "/runs/r/turns/1", ``, "calls"},
		{"PUT", "/runs/r/turns/1", `{"decision":1}`, "calls"},
		{"PUT", "/runs/r/turns/1", `{"calls":{}}`, "array"},
		{"PUT", "/runs/r/turns/1", `{"calls":[1]}`, "object"},
		{"PUT", "/runs/r/turns/1", `{"calls":[{}]}`, "id"},
		{"PUT", "/runs/r/turns/1", `{"calls":[{"id":"a"},{"id":"a"}]}`, "twice"},
		{"PUT", "/runs/r/turns/1", `{"calls":[{"id":"` + long + `"}]}`, "256"},
		{"PUT", "/runs/r/turns/1", `{"calls":[{"id":"a","tool":"` + long + `"}]}`, "256"},
		{"PUT", "/runs/r/turns/1", `{"calls":[{"id":"a","arguments":{}}]}`, "arguments"},
		{"PUT", "/runs/r/turns/1", `{"calls":[` + strings.Repeat(`{"id":"a"},`, 1024) + `{"id":"b"}]}`, "1024"},
		{"PUT", "/runs/r/turns/1", `{"calls":[],"decision":` + strings.Repeat("[", 600) + strings.Repeat("]", 600) + `}`, "512"},
	} {
		body := tt.body
		for i := 0; strings.Contains(body, "%d"); i++ {
			body = strings.Replace(body, "%d", fmt.Sprint(i), 1)
		}
		g := st.api(tt.method, tt.path, body)
		d := g.isProblem(t, journal.InvalidRequest)
		if !strings.Contains(d.Detail, tt.says) || !strings.HasSuffix(d.Detail, "Nothing was changed.") {
			t.Errorf("%s %s %.60s: %s", tt.method, tt.path, body, d.Detail)
		}
	}
	st.api("PUT", "/runs/r/turns/1", `{"calls":[],"decision":"`+strings.Repeat("x", 1<<20)+`"}`).isProblem(t, journal.InputTooLarge)
	broken := ask(t, st.addr, "PUT /-/v1/runs/r HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\nno chunk\r\n")
	if d := broken.isProblem(t, journal.InvalidRequest); d.Detail != "The body is not well-formed. Nothing was changed." {
		t.Errorf("%+v", d)
	}
	for _, fence := range []string{"0", "-1", "x", "1.0", ""} {
		if g := st.api("PUT", "/runs/r/turns/1", `{"calls":[]}`, "Counterfoil-Fence: "+fence); g.status != 400 {
			t.Errorf("fence %q: %d %s", fence, g.status, g.body)
		}
	}
	st.get("/-/v1/runs/r").isProblem(t, NotFound)
	if l := read[view.List[*view.Run]](t, st.get("/-/v1/runs")); len(l.Items) != 0 {
		t.Errorf("%+v", l)
	}
}

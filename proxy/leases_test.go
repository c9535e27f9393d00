package proxy

import (
	"context"
	"fmt"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"counterfoil/classify"
	"counterfoil/internal/journal"
	"counterfoil/internal/view"
	"counterfoil/keystore"
	"counterfoil/keystore/badger"
)

// A gate is a provider that has its effect at once and answers when it is told.
type gate struct {
	*provider
	arrived chan string
	open    chan struct{}
}

func newGate(t *testing.T) *gate {
	t.Helper()
	g := &gate{arrived: make(chan string, 64), open: make(chan struct{})}
	g.provider = provide(t, func(w net.Conn, h *heard) {
		g.arrived <- h.target()
		<-g.open
		say(w, 201, fmt.Sprintf(`{"for":%q}`, h.target()), "Content-Type: application/json")
	})
	return g
}

// lease takes a run's lease.
func (st *stack) lease(run, owner string, seconds int) uint64 {
	st.t.Helper()
	g := st.api("POST", "/runs/"+run+"/lease", fmt.Sprintf(`{"owner":%q,"ttl_seconds":%d}`, owner, seconds))
	if g.status != 200 {
		st.t.Fatalf("%d %s", g.status, g.body)
	}
	return said[view.Grant](st.t.(*testing.T), g, 200).Fence
}

func fence(n uint64) string { return fmt.Sprintf("Counterfoil-Fence: %d", n) }

// C04: a platform starts the run again while the first worker is busy. The second
// one waits, or is told to; both read the same bytes.
func TestC04ReclaimedWhileBusy(t *testing.T) {
	p := newGate(t)
	st := start(t, setup{provider: p.provider})
	answers := make(chan *got, 2)
	send := func() { answers <- st.post("R1", "4", "1", "/tickets/x", "{}") }
	go send()
	<-p.arrived
	d := st.post("R1", "4", "1", "/tickets/x", "{}", "Prefer: wait=0")
	if d.isProblem(t, journal.InProgress); d.value("Retry-After") == "" {
		t.Errorf("%q", d.fields)
	}
	go send()
	close(p.open)
	first, second := <-answers, <-answers
	if first.status != 201 || first.body != second.body || len(p.hits()) != 1 {
		t.Errorf("%d %s, %d %s, %d requests", first.status, first.body, second.status, second.body, len(p.hits()))
	}
}

// C07: a workflow node that tries five times although the first try has worked.
func TestC07RetryOnSuccess(t *testing.T) {
	p := provide(t, created)
	st := start(t, setup{provider: p})
	outcomes := map[string]int{}
	for range 5 {
		g := st.post("R1", "2", "1", "/tickets/x", "{}")
		outcomes[g.outcome()]++
		if g.status != 201 || g.body != `{"id":"e-1"}` {
			t.Errorf("%d %s", g.status, g.body)
		}
	}
	if outcomes["executed"] != 1 || outcomes["replayed"] != 4 || len(p.hits()) != 1 {
		t.Errorf("%v, %d requests", outcomes, len(p.hits()))
	}
}

// C109: the lease is renewed while a call is under way and its client there, and
// no longer; the next owner finds the call, not a free one.
func TestC109LeaseOutlivedByWork(t *testing.T) {
	p := newGate(t)
	st := start(t, setup{provider: p.provider})
	one := st.lease("R1", "one", 1)
	owner := dial(t, st.addr)
	owner.say(request("POST", "/tickets/x", "{}", "Counterfoil-Run: R1", "Counterfoil-Turn: 1", "Counterfoil-Call: 1", fence(one)))
	<-p.arrived
	began := read[view.Lease](t, st.get("/-/v1/runs/R1/lease")).ExpiresAt
	for _, ahead := range []time.Duration{time.Second, 2 * time.Second} {
		eventually(t, "a renewal", deadline, func() bool {
			return read[view.Lease](t, st.get("/-/v1/runs/R1/lease")).ExpiresAt.Sub(began) > ahead
		})
		st.api("POST", "/runs/R1/lease", `{"owner":"two","ttl_seconds":30}`).isProblem(t, journal.LeaseHeld)
	}
	owner.Close()
	left := time.Now()
	var two *got
	eventually(t, "the lease of an owner that is gone to end", deadline, func() bool {
		two = st.api("POST", "/runs/R1/lease", `{"owner":"two","ttl_seconds":30}`)
		return two.status == 200
	})
	if took := time.Since(left); took > 3*time.Second {
		t.Errorf("it took %s after a lease of 1s", took)
	}
	if g := said[view.Grant](t, two, 200); g.Fence != one+1 {
		t.Errorf("%+v", g)
	}
	rec := read[view.Recovery](t, st.get("/-/v1/runs/R1/recovery"))
	if rec.Verdict != "wait" || len(rec.Calls) != 1 || rec.Calls[0].State != "pending" || rec.Calls[0].Action != "wait" {
		t.Errorf("%+v", rec)
	}
	st.post("R1", "1", "1", "/tickets/x", "{}", "Prefer: wait=0", fence(one+1)).isProblem(t, journal.InProgress)
	close(p.open)
	// The late answer is a receipt all the same.
	if g := st.post("R1", "1", "1", "/tickets/x", "{}", fence(one+1)); g.status != 201 || g.body != `{"for":"/x"}` || len(p.hits()) != 1 {
		t.Errorf("%d %s, %d requests", g.status, g.body, len(p.hits()))
	}
}

// Who may act for a run is checked before anything is sent, for replays too.
func TestFencesOverHTTP(t *testing.T) {
	p := provide(t, created)
	st := start(t, setup{provider: p})
	st.post("r", "1", "before", "/tickets/x", "{}")
	one := st.lease("r", "w", 30)
	if d := st.post("r", "1", "1", "/tickets/x", "{}").isProblem(t, journal.FenceRequired); d.Status != 428 || d.Fence != one || d.Owner != "w" {
		t.Errorf("%+v", d)
	}
	if g := st.post("r", "1", "1", "/tickets/x", "{}", fence(one), "Counterfoil-Flow-Version: v1"); g.status != 201 {
		t.Errorf("%d %s", g.status, g.body)
	}
	if d := st.post("r", "1", "2", "/tickets/x", "{}", fence(one), "Counterfoil-Flow-Version: v2").isProblem(t, journal.FlowVersionMismatch); d.Status != 409 || d.FlowVersion != "v1" {
		t.Errorf("%+v", d)
	}
	if g := ask(t, st.addr, request("POST", fmt.Sprintf("/@r:1:3;f=%d/tickets/x", one), "{}")); g.status != 201 {
		t.Errorf("%d %s", g.status, g.body)
	}
	st.api("DELETE", fmt.Sprintf("/runs/r/lease?fence=%d", one), "")
	two := st.lease("r", "w", 30)
	for _, call := range []string{"1", "before", "4"} { // a replay, one of before there was a lease, a new one
		if d := st.post("r", "1", call, "/tickets/x", "{}", fence(one)).isProblem(t, journal.Fenced); d.Status != 412 || d.Fence != two || d.Owner != "w" {
			t.Errorf("%s: %+v", call, d)
		}
	}
	if g := st.post("r", "1", "1", "/tickets/x", "{}", fence(two)); g.outcome() != "replayed" {
		t.Errorf("%d %s", g.status, g.body)
	}
	if g := st.get("/tickets/x", "Counterfoil-Run: r"); g.outcome() != "passthrough" {
		t.Errorf("a read: %d %s", g.status, g.body)
	}
	if n := len(p.hits()); n != 4 {
		t.Errorf("%d requests reached the provider", n)
	}
}

// A stale holder whose call was under way is told so; what came of it is kept.
func TestAReceiptIsKeptForTheNewHolder(t *testing.T) {
	p := newGate(t)
	st := start(t, setup{provider: p.provider})
	one := st.lease("r", "w", 30)
	stale := make(chan *got, 1)
	go func() { stale <- st.post("r", "1", "1", "/tickets/x", "{}", fence(one)) }()
	<-p.arrived
	st.api("DELETE", fmt.Sprintf("/runs/r/lease?fence=%d", one), "")
	two := st.lease("r", "w", 30)
	close(p.open)
	g := <-stale
	if d := g.isProblem(t, journal.Fenced); d.Fence != two || d.UpstreamStatus != 201 || d.SafeNewKey || g.value("Counterfoil-Attempt") != "1" {
		t.Errorf("%+v %q", d, g.fields)
	}
	if g := st.post("r", "1", "1", "/tickets/x", "{}", fence(two)); g.outcome() != "replayed" || g.body != `{"for":"/x"}` || len(p.hits()) != 1 {
		t.Errorf("%+v", g)
	}
}

// C113, as far as one replica goes: whatever the wall clock is set to, forward or
// back, a lease is neither lost while it runs nor kept when it is over. Two
// replicas that share a database belong to the PostgreSQL store.
func TestC113LeasesByAClockThatIsSet(t *testing.T) {
	var wall, watch atomic.Int64
	wall.Store(time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC).UnixNano())
	store, err := badger.Open(context.Background(), badger.Config{
		Dir: t.TempDir(), Now: func() time.Time { return time.Unix(0, wall.Load()) }, Watch: func() time.Duration { return time.Duration(watch.Load()) },
	})
	if err != nil {
		t.Fatal(err)
	}
	s := &shop{t: t, store: store}
	s.serve(nil)
	pass := func(d time.Duration) { wall.Add(int64(d)); watch.Add(int64(d)) }
	api := func(method, path, body string) *got { return ask(t, s.addr, request(method, "/-/v1/runs/"+path, body)) }
	for run, jump := range []time.Duration{3 * time.Hour, -3 * time.Hour, 50 * time.Hour, -time.Second, 24 * 365 * time.Hour} {
		path := fmt.Sprintf("r%d/lease", run)
		g := said[view.Grant](t, api("POST", path, `{"owner":"a","ttl_seconds":10}`), 200)
		for range 5 { // renewals go on, and the clock is set between them
			pass(5 * time.Second)
			wall.Add(int64(jump))
			refused := api("POST", path, `{"owner":"b","ttl_seconds":10}`)
			if refused.isProblem(t, journal.LeaseHeld); refused.value("Retry-After") != "5" {
				t.Errorf("a jump by %s: Retry-After %q", jump, refused.value("Retry-After"))
			}
			renewed := said[view.Grant](t, api("PUT", path, fmt.Sprintf(`{"fence":%d}`, g.Fence)), 200)
			if at := time.Unix(0, wall.Load()).Add(10 * time.Second); jump > 0 && !renewed.ExpiresAt.Equal(at) {
				t.Errorf("a jump by %s: expires at %s, want %s by the store's clock", jump, renewed.ExpiresAt, at)
			}
		}
		pass(10*time.Second - 1)
		wall.Add(int64(jump))
		api("POST", path, `{"owner":"b","ttl_seconds":10}`).isProblem(t, journal.LeaseHeld)
		pass(1)
		wall.Add(int64(-jump))
		if g := said[view.Grant](t, api("POST", path, `{"owner":"b","ttl_seconds":10}`), 200); g.Fence != 2 {
			t.Errorf("a jump by %s: %+v", jump, g)
		}
		api("PUT", path, fmt.Sprintf(`{"fence":%d}`, g.Fence)).isProblem(t, journal.Fenced)
	}
}

// A held call over HTTP: refused, waited for, approved and denied.
func TestApprovalsOverHTTP(t *testing.T) {
	p := provide(t, created)
	match, err := classify.CompileMatch([]string{"POST"}, "/refunds")
	if err != nil {
		t.Fatal(err)
	}
	st := start(t, setup{provider: p, proxy: func(c *Config) { c.AdminURL = "http://127.0.0.1:8101" }, upstream: func(u *journal.Upstream) {
		u.Rules = classify.Rules{{Match: match, Approval: classify.ApprovalRequired}}
	}})
	ruling := func(call string) *journal.Ruling {
		return &journal.Ruling{Key: keystore.Key{Namespace: "default", Run: "r", Turn: "1", Call: call}, Actor: "ada"}
	}
	g := st.post("r", "1", "1", "/tickets/refunds", "{}")
	if d := g.isProblem(t, journal.ApprovalRequired); d.Status != 423 || g.outcome() != "held" || g.value("x-should-retry") != "false" || d.Instance != "http://127.0.0.1:8101/?namespace=default&call=r%3A1%3A1" {
		t.Errorf("%+v %q", d, g.fields)
	}
	st.post("r", "1", "1", "/tickets/refunds", "{}", "Prefer: wait=0").isProblem(t, journal.ApprovalRequired)
	waits := func(call string) <-chan *got {
		answer := make(chan *got, 1)
		go func() { answer <- st.post("r", "1", call, "/tickets/refunds", "{}", "Prefer: wait=30") }()
		eventually(t, "the call to be held", deadline, func() bool {
			r, err := st.store.Call(context.Background(), ruling(call).Key)
			return err == nil && r.State == keystore.Held
		})
		return answer
	}
	approved := waits("1")
	if _, err := st.journal.Approve(context.Background(), ruling("1")); err != nil {
		t.Fatal(err)
	}
	if g := <-approved; g.status != 201 || g.outcome() != "executed" {
		t.Errorf("%d %s", g.status, g.body)
	}
	denied := waits("2")
	if _, err := st.journal.Deny(context.Background(), ruling("2")); err != nil {
		t.Fatal(err)
	}
	if d := (<-denied).isProblem(t, journal.Denied); d.Status != 403 || d.SafeToRetry {
		t.Errorf("%+v", d)
	}
	if g := st.post("r", "1", "1", "/tickets/refunds", "{}"); g.outcome() != "replayed" {
		t.Errorf("%+v", g)
	}
	if n := len(p.hits()); n != 1 {
		t.Errorf("%d requests reached the provider", n)
	}
}

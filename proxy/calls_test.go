package proxy

import (
	"encoding/base64"
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"counterfoil/classify"
	"counterfoil/internal/journal"
)

// C05: what changes from one try to the next says nothing about the call.
func TestC05RetryWithOtherFields(t *testing.T) {
	p := provide(t, created)
	st := start(t, setup{provider: p})
	first := st.post("R1", "1", "1", "/tickets/x", `{"a":1}`, "Attempt: 1", "traceparent: 00-aa", "X-Request-Id: q1", "User-Agent: sdk/1", "x-stainless-retry-count: 0")
	second := st.post("R1", "1", "1", "/tickets/x", `{"a":1}`, "Attempt: 2", "traceparent: 00-bb", "X-Request-Id: q2", "User-Agent: sdk/1.1", "x-stainless-retry-count: 1")
	same(t, "second", first, second)
	hits := p.hits()
	if len(hits) != 1 || hits[0].value("X-Request-Id") != "q1" || hits[0].value("User-Agent") != "sdk/1" {
		t.Errorf("%d requests reached the provider", len(hits))
	}
}

// counting answers each request with its number.
func counting() func(net.Conn, *heard) {
	var mu sync.Mutex
	n := 0
	return func(w net.Conn, _ *heard) {
		mu.Lock()
		n++
		body := fmt.Sprintf(`{"attempt":%d}`, n)
		mu.Unlock()
		say(w, 200, body, "Content-Type: application/json")
	}
}

// C08: equal arguments alone cause no replay.
func TestC08EqualArguments(t *testing.T) {
	p := provide(t, counting())
	st := start(t, setup{provider: p})
	for i, row := range []struct{ turn, want string }{{"1", `{"attempt":1}`}, {"2", `{"attempt":2}`}, {"1", `{"attempt":1}`}} {
		if g := st.post("R1", row.turn, "1", "/tickets/status", `{}`); g.body != row.want {
			t.Errorf("answer %d is %s", i+1, g.body)
		}
	}
	if n := len(p.hits()); n != 2 {
		t.Errorf("%d requests, want 2", n)
	}
}

// C13: each of many parallel calls gets its own answer, over a restart too.
func TestC13ParallelCalls(t *testing.T) {
	const calls = 50
	p := provide(t, func(w net.Conn, h *heard) { say(w, 200, h.body) })
	st := start(t, setup{provider: p})
	round := func() {
		t.Helper()
		var all sync.WaitGroup
		for i := range calls {
			all.Go(func() {
				raw := request("POST", "/tickets/x", fmt.Sprintf(`{"id":%d}`, i), "Counterfoil-Run: R1", "Counterfoil-Turn: 1", fmt.Sprintf("Counterfoil-Call: %d", i))
				if i%10 == 3 && len(p.hits()) < calls {
					c, err := net.Dial("tcp", st.addr)
					if err == nil {
						_, _ = c.Write([]byte(raw))
						_ = c.Close() // leaves early
					}
					return
				}
				if g := ask(t, st.addr, raw); g.body != fmt.Sprintf(`{"id":%d}`, i) {
					t.Errorf("call %d got %s (%d)", i, g.body, g.status)
				}
			})
		}
		all.Wait()
	}
	round()
	eventually(t, "all calls are made", deadline, func() bool { return len(p.hits()) == calls })
	st = st.restart()
	round()
	if n := len(p.hits()); n != calls {
		t.Errorf("%d requests, want %d", n, calls)
	}
}

// C35: a 401 passes and is not kept; another token of the same subject gets the
// stored answer; another subject not a byte of it.
func TestC35TokenExpires(t *testing.T) {
	p := provide(t, func(w net.Conn, h *heard) {
		if strings.Contains(h.value("Authorization"), token35("old", "me")) {
			say(w, 401, "expired", "WWW-Authenticate: Bearer error=\"invalid_token\"")
			return
		}
		created(w, h)
	})
	st := start(t, setup{provider: p, upstream: func(u *journal.Upstream) { u.Bind = journal.BindSubject }})
	send := func(token string) *got {
		return st.post("R1", "1", "1", "/tickets/x", "{}", "Authorization: Bearer "+token)
	}
	if g := send(token35("old", "me")); g.status != 401 || g.value("WWW-Authenticate") == "" || g.outcome() != "executed" {
		t.Errorf("T1: %d %q", g.status, g.fields)
	}
	t2, t3 := send(token35("new", "me")), send(token35("newer", "me"))
	if t2.status != 201 || t3.outcome() != "replayed" {
		t.Errorf("T2: %d, T3: %s", t2.status, t3.outcome())
	}
	same(t, "T3", t2, t3)
	u1 := send(token35("new", "you"))
	u1.isProblem(t, journal.PrincipalMismatch)
	if strings.Contains(u1.body, "e-1") || len(p.hits()) != 2 {
		t.Errorf("U1 got %s, %d requests", u1.body, len(p.hits()))
	}
	receipt := st.get("/-/v1/runs/R1/turns/1/calls/1/receipt")
	receipt.isProblem(t, journal.PrincipalMismatch)
	if record := st.get("/-/v1/runs/R1/turns/1/calls/1"); strings.Contains(record.body, "e-1") || strings.Contains(record.body, "Bearer") {
		t.Errorf("the record shows %s", record.body)
	}
}

// token35 is an unsigned JWT.
func token35(id, subject string) string {
	part := func(s string) string { return base64.RawURLEncoding.EncodeToString([]byte(s)) }
	return part(`{"alg":"none"}`) + "." + part(`{"iss":"i","sub":"`+subject+`","jti":"`+id+`"}`) + ".x"
}

// C36: no status but a final one is pinned to the key.
func TestC36NothingButFinalIsKept(t *testing.T) {
	for name, script := range map[string]struct {
		first    string
		fields   []string
		outcomes classify.Outcomes
		hits     int
	}{
		"429":                            {"429", []string{"Retry-After: 1"}, classify.Outcomes{}, 2},
		"400":                            {"400", nil, classify.Outcomes{}, 1},
		"503, declared as not processed": {"503", nil, classify.Outcomes{503: classify.NotApplied}, 2},
	} {
		t.Run(name, func(t *testing.T) {
			var mu sync.Mutex
			n := 0
			p := provide(t, func(w net.Conn, h *heard) {
				mu.Lock()
				n++
				isFirst := n == 1
				mu.Unlock()
				if isFirst {
					var status int
					_, _ = fmt.Sscan(script.first, &status)
					say(w, status, "first", script.fields...)
					return
				}
				created(w, h)
			})
			st := start(t, setup{provider: p, upstream: func(u *journal.Upstream) { u.Outcomes = script.outcomes }})
			first, second, third := st.post("r", "1", "1", "/tickets/x", "{}"), st.post("r", "1", "1", "/tickets/x", "{}"), st.post("r", "1", "1", "/tickets/x", "{}")
			if fmt.Sprint(first.status) != script.first || first.body != "first" || len(first.values("Retry-After")) != len(script.fields) {
				t.Errorf("first: %+v", first)
			}
			same(t, "third", second, third)
			if (second.status == 201) != (script.hits == 2) || len(p.hits()) != script.hits {
				t.Errorf("second: %d, %d requests", second.status, len(p.hits()))
			}
		})
	}
}

// C37: a key is bound to method and target.
func TestC37KeyReused(t *testing.T) {
	p := provide(t, created)
	st := start(t, setup{provider: p})
	fields := []string{"Counterfoil-Run: R1", "Counterfoil-Turn: 1", "Counterfoil-Call: 1"}
	if g := ask(t, st.addr, request("POST", "/tickets/payments", "{}", fields...)); g.status != 201 {
		t.Fatal(g.status)
	}
	for want, raw := range map[string]string{
		"the target":   request("POST", "/tickets/refunds", "{}", fields...),
		"the method":   request("PATCH", "/tickets/payments", "{}", fields...),
		"the body":     request("POST", "/tickets/payments", `{"a":"secret-value"}`, fields...),
		"the upstream": request("POST", "/other/payments", "{}", fields...),
	} {
		d := ask(t, st.addr, raw).isProblem(t, journal.KeyReused)
		if !strings.Contains(d.Detail, want) || strings.Contains(d.Detail, "secret-value") || d.SafeNewKey {
			t.Errorf("%s: %+v", want, d)
		}
	}
	if g := ask(t, st.addr, request("OPTIONS", "/tickets/payments", "")); g.status != 201 || g.outcome() != "passthrough" {
		t.Errorf("OPTIONS: %d %s", g.status, g.outcome())
	}
	if n := len(p.hits()); n != 2 || st.records("R1") != 1 {
		t.Errorf("%d requests", n)
	}
	// At the same moment one wins.
	statuses := make(chan int, 2)
	for _, target := range []string{"/tickets/payments", "/tickets/refunds"} {
		go func() {
			statuses <- ask(t, st.addr, request("POST", target, "{}", "Counterfoil-Run: R2", "Counterfoil-Turn: 1", "Counterfoil-Call: 1")).status
		}()
	}
	if sum := <-statuses + <-statuses; sum != 201+422 {
		t.Errorf("statuses add up to %d", sum)
	}
}

// C38: of a hundred equal requests at once, one is sent.
func TestC38OneOfAHundred(t *testing.T) {
	p := provide(t, func(w net.Conn, h *heard) {
		time.AfterFunc(20*time.Millisecond, func() { created(w, h) })
	})
	st := start(t, setup{provider: p})
	for round := range 5 {
		before := len(p.hits())
		release := make(chan struct{})
		var all sync.WaitGroup
		var mu sync.Mutex
		outcomes := map[string]int{}
		for range 100 {
			c := dial(t, st.addr)
			all.Go(func() {
				<-release
				c.say(request("POST", "/tickets/x", "{}", "Counterfoil-Run: R1", "Counterfoil-Turn: 1", fmt.Sprintf("Counterfoil-Call: %d", round)))
				g, err := c.hear("POST")
				if err != nil || g.status != 201 || g.body != `{"id":"e-1"}` {
					t.Errorf("%+v, %v", g, err)
					return
				}
				mu.Lock()
				outcomes[g.outcome()]++
				mu.Unlock()
			})
		}
		close(release)
		all.Wait()
		if n := len(p.hits()) - before; n != 1 || outcomes["executed"] != 1 {
			t.Errorf("round %d: %d requests, %v", round, n, outcomes)
		}
	}
}

// C39: another body under a busy key is told at once that the key is not its
// own; the same body that it is in progress.
func TestC39MismatchWins(t *testing.T) {
	arrived, answer := make(chan struct{}), make(chan struct{})
	p := provide(t, func(w net.Conn, h *heard) {
		close(arrived)
		<-answer
		created(w, h)
	})
	st := start(t, setup{provider: p})
	done := make(chan *got)
	go func() { done <- st.post("R1", "1", "1", "/tickets/x", `"A"`) }()
	<-arrived
	began := time.Now()
	st.post("R1", "1", "1", "/tickets/x", `"B"`).isProblem(t, journal.KeyReused)
	if took := time.Since(began); took > 100*time.Millisecond {
		t.Errorf("the mismatch took %v", took)
	}
	busy := st.post("R1", "1", "1", "/tickets/x", `"A"`, "Prefer: wait=0")
	d := busy.isProblem(t, journal.InProgress)
	if !d.SafeToRetry || d.SafeNewKey || busy.value("Retry-After") == "" || busy.value("x-should-retry") != "" {
		t.Errorf("%+v %q", d, busy.fields)
	}
	waiting := make(chan *got)
	go func() {
		waiting <- st.post("R1", "1", "1", "/tickets/x", `"A"`, `Prefer: return=minimal, WAIT="20"; x=y`)
	}()
	close(answer)
	first, coalesced := <-done, <-waiting
	same(t, "the one that waited", first, coalesced)
	st.post("R1", "1", "1", "/tickets/x", `"B"`).isProblem(t, journal.KeyReused)
	if n := len(p.hits()); n != 1 {
		t.Errorf("%d requests", n)
	}
}

// C40, on the wire: done, in progress and unknown are told apart by status and
// type.
func TestC40ThreeStates(t *testing.T) {
	hang := make(chan struct{})
	p := provide(t, func(w net.Conn, h *heard) {
		switch h.target() {
		case "/hang":
			<-hang
			fallthrough
		case "/die":
			_ = w.Close()
		default:
			created(w, h)
		}
	})
	defer close(hang)
	st := start(t, setup{provider: p})
	st.post("r", "1", "done", "/tickets/x", "{}")
	if g := st.post("r", "1", "done", "/tickets/x", "{}"); g.status != 201 || g.outcome() != "replayed" {
		t.Errorf("done: %d", g.status)
	}
	c := dial(t, st.addr)
	c.say(request("POST", "/tickets/hang", "{}", "Counterfoil-Run: r", "Counterfoil-Turn: 1", "Counterfoil-Call: busy"))
	eventually(t, "the busy call is sent", deadline, func() bool { return len(p.hits()) == 2 })
	st.post("r", "1", "busy", "/tickets/hang", "{}", "Prefer: wait=0").isProblem(t, journal.InProgress)
	d := st.post("r2", "1", "gone", "/tickets/die", "{}").isProblem(t, journal.UnknownOutcome)
	if d.Run != "r2" || d.Turn != "1" || d.Call != "gone" || len(d.Key) != 24 || !strings.Contains(d.Instance, "/-/v1/runs/r2/") {
		t.Errorf("%+v", d)
	}
}

// C46: the query counts, and reaches the provider as it is. A re-order of
// different names is another request too: the bytes differ.
func TestC46Query(t *testing.T) {
	p := provide(t, created)
	st := start(t, setup{provider: p})
	for i, row := range []struct {
		first, second string
		same          bool
	}{
		{"?dry_run=true", "?dry_run=false", false},
		{"?a=1&b=2", "?b=2&a=1", false},
		{"?id=1&id=2", "?id=2&id=1", false},
		{"?q=a+b", "?q=a%20b", false},
		{"?x", "?x=", false},
		{"?a=1", "?a=1", true},
	} {
		call := fmt.Sprint(i)
		st.post("r", "1", call, "/tickets/x"+row.first, "{}")
		hits := p.hits()
		if got := hits[len(hits)-1].target(); got != "/x"+row.first {
			t.Errorf("the provider got %s", got)
		}
		g := st.post("r", "1", call, "/tickets/x"+row.second, "{}")
		if isSame := g.outcome() == "replayed"; isSame != row.same || !isSame && g.status != 422 {
			t.Errorf("%s then %s: %d %s", row.first, row.second, g.status, g.outcome())
		}
	}
}

// C47, C49: bodies are compared as what they mean, and sent as what they are.
func TestC47C49Bodies(t *testing.T) {
	p := provide(t, created)
	st := start(t, setup{provider: p})
	const js, text = "Content-Type: application/json", "Content-Type: text/plain"
	for i, row := range []struct {
		name, media, first, second string
		same                       bool
	}{
		{"order and space", js, `{"a":1,"b":{"x":1,"y":[1,2]}}`, ` { "b":{"y":[1,2], "x":1}, "a":1 } `, true},
		{"array order", js, `{"y":[1,2]}`, `{"y":[2,1]}`, false},
		{"not by guess", text, `{"a":1,"b":2}`, `{"b":2,"a":1}`, false},
		{"escapes", js, `{"a":"caf\u00e9"}`, `{"a":"café"}`, true},
		{"normal forms", js, "{\"a\":\"\u00e9\"}", "{\"a\":\"e\u0301\"}", false},
		{"a lone surrogate", js, `{"a":"\ud800"}`, `{"a":"\ud800"}`, true},
		{"a BOM", js, "\ufeff{\"a\":1}", "\ufeff{\"a\":1}", true},
		{"a BOM or none", js, "\ufeff{\"a\":1}", `{"a":1}`, false},
	} {
		call := fmt.Sprint(i)
		if g := st.post("r", "1", call, "/tickets/x", row.first, row.media); g.status != 201 {
			t.Fatalf("%s: %d", row.name, g.status)
		}
		hits := p.hits()
		if got := hits[len(hits)-1].body; got != row.first {
			t.Errorf("%s: the provider got %q", row.name, got)
		}
		g := st.post("r", "1", call, "/tickets/x", row.second, row.media)
		if isSame := g.outcome() == "replayed"; isSame != row.same || !isSame && g.status != 422 {
			t.Errorf("%s: %d %s", row.name, g.status, g.outcome())
		}
	}
}

// C50: a multipart body is compared without its boundary.
func TestC50Multipart(t *testing.T) {
	p := provide(t, created)
	st := start(t, setup{provider: p})
	send := func(boundary, filename, media, content string) *got {
		body := "--" + boundary + "\r\nContent-Disposition: form-data; name=\"f\"; filename=\"" + filename + "\"\r\nContent-Type: " + media +
			"\r\n\r\n" + content + "\r\n--" + boundary + "\r\nContent-Disposition: form-data; name=\"a\"\r\n\r\n1\r\n--" + boundary + "--\r\n"
		return st.post("r", "1", "1", "/tickets/x", body, "Content-Type: multipart/form-data; boundary="+boundary)
	}
	first := send("b1", "n", "text/plain", "content with --b2 inside")
	same(t, "another boundary", first, send("b3", "n", "text/plain", "content with --b2 inside"))
	for name, g := range map[string]*got{
		"content": send("b1", "n", "text/plain", "other"), "filename": send("b1", "m", "text/plain", "content with --b2 inside"),
		"type": send("b1", "n", "text/html", "content with --b2 inside"),
	} {
		if g.status != 422 {
			t.Errorf("another %s: %d", name, g.status)
		}
	}
	if n := len(p.hits()); n != 1 {
		t.Errorf("%d requests", n)
	}
}

// Proven unsent: safe to try again, and nothing is on record as an attempt with
// an effect.
func TestUnreachable(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	dead := ln.Addr().String()
	_ = ln.Close()
	st := start(t, setup{provider: &provider{t: t, addr: dead}})
	began := time.Now()
	d := st.post("r", "1", "1", "/tickets/x", "{}").isProblem(t, journal.UpstreamUnreachable)
	if !d.SafeToRetry || !d.SafeNewKey {
		t.Errorf("%+v", d)
	}
	d = st.get("/tickets/x").isProblem(t, journal.UpstreamUnreachable)
	if !d.SafeToRetry || time.Since(began) > time.Second {
		t.Errorf("%+v after %v", d, time.Since(began))
	}
}

// A read that the upstream does not answer may be asked again.
func TestReadUnanswered(t *testing.T) {
	p := provide(t, func(w net.Conn, _ *heard) { _ = w.Close() })
	st := start(t, setup{provider: p})
	d := st.get("/tickets/x").isProblem(t, UpstreamFailed)
	if !d.SafeToRetry || !d.SafeNewKey {
		t.Errorf("%+v", d)
	}
}

// A recorded read is answered from its receipt (design 3.5).
func TestRecordedReads(t *testing.T) {
	p := provide(t, counting())
	st := start(t, setup{provider: p})
	fields := []string{"Counterfoil-Record: true", "Counterfoil-Run: r", "Counterfoil-Call: c"}
	first, second := st.get("/tickets/x", fields...), st.get("/tickets/x", fields...)
	if first.outcome() != "executed" || second.outcome() != "replayed" || second.body != first.body || len(p.hits()) != 1 {
		t.Errorf("%s, %s", first.outcome(), second.outcome())
	}
	st.get("/tickets/x", "Counterfoil-Record: true").isProblem(t, MissingKey)
	st2 := start(t, setup{provider: p, upstream: func(u *journal.Upstream) { u.RecordReads = true }})
	st2.get("/tickets/x").isProblem(t, MissingKey)
	if g := st2.get("/tickets/x", fields[1:]...); g.outcome() != "executed" {
		t.Errorf("record_reads: %s", g.outcome())
	}
}

// The store takes nothing: nothing is sent. It does not take the receipt: no
// answer is told.
func TestStoreRefuses(t *testing.T) {
	p := provide(t, created)
	st := start(t, setup{provider: p})
	st.disk.SetFull(true)
	g := st.post("r", "1", "1", "/tickets/x", "{}")
	d := g.isProblem(t, journal.JournalUnavailable)
	if !d.SafeToRetry || !d.SafeNewKey || len(p.hits()) != 0 || g.value("Retry-After") == "" {
		t.Errorf("%+v, %d requests", d, len(p.hits()))
	}
	if g := st.get("/tickets/x"); g.status != 201 {
		t.Errorf("a read meanwhile: %d", g.status)
	}
	st.disk.SetFull(false)
	if g := st.post("r", "1", "1", "/tickets/x", "{}"); g.status != 201 || g.outcome() != "executed" {
		t.Errorf("after it: %d", g.status)
	}
}

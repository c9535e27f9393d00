package proxy

import (
	"fmt"
	"net"
	"strings"
	"testing"

	"counterfoil/classify"
	"counterfoil/internal/journal"
)

// An effect is sent once, with the provider key, and replayed from its receipt,
// over a restart too (C52).
func TestC52ReplayKeepsStatusAndFields(t *testing.T) {
	body := "{\"id\": \"e-1\"}\n"
	p := provide(t, func(w net.Conn, _ *heard) {
		say(w, 201, body, "content-type: application/json", "Location: https://elsewhere.example/e-1", `ETag: "v1"`,
			"Link: <a>; rel=next", "Link: <b>; rel=prev", "Content-Language: cy")
	})
	st := start(t, setup{provider: p})
	first := st.post("r1", "1", "1", "/tickets/refunds?x=1", `{"a":1}`, "X-Mine: yes")
	if first.status != 201 || first.body != body || first.outcome() != "executed" {
		t.Fatalf("first answer: %d %q %q", first.status, first.fields, first.body)
	}
	second := st.post("r1", "1", "1", "/tickets/refunds?x=1", `{"a":1}`)
	same(t, "second", first, second)
	if second.outcome() != "replayed" || second.value("Idempotent-Replayed") != "true" {
		t.Errorf("second is %s, Idempotent-Replayed %q", second.outcome(), second.value("Idempotent-Replayed"))
	}
	third := st.restart().post("r1", "1", "1", "/tickets/refunds?x=1", `{"a":1}`)
	same(t, "after a restart", first, third)
	hits := p.hits()
	if len(hits) != 1 {
		t.Fatalf("%d requests reached the provider, want 1", len(hits))
	}
	h := hits[0]
	if h.line != "POST /refunds?x=1 HTTP/1.1" || h.value("X-Mine") != "yes" || h.value("Host") != p.addr {
		t.Errorf("the provider got %q %q", h.line, h.fields)
	}
	if key := h.value("Idempotency-Key"); len(key) != 24 || key != first.value("Counterfoil-Key") {
		t.Errorf("the provider got key %q, the client was told %q", key, first.value("Counterfoil-Key"))
	}
	for _, f := range h.fields {
		if strings.HasPrefix(strings.ToLower(f), "counterfoil") {
			t.Errorf("%q left for the provider", f)
		}
	}
}

// An empty answer stays empty (C52, last part).
func TestC52NoContent(t *testing.T) {
	p := provide(t, func(w net.Conn, _ *heard) {
		_, _ = fmt.Fprint(w, "HTTP/1.1 204 No Content\r\nX-A: 1\r\n\r\n")
	})
	st := start(t, setup{provider: p})
	first := st.post("r1", "1", "1", "/tickets/x", "{}")
	second := st.post("r1", "1", "1", "/tickets/x", "{}")
	for i, g := range []*got{first, second} {
		if g.status != 204 || g.value("Content-Length") != "" || g.value("Transfer-Encoding") != "" || g.value("X-A") != "1" {
			t.Errorf("answer %d: %d %q", i+1, g.status, g.fields)
		}
	}
}

// A read passes, without a key and without a record.
func TestReadPasses(t *testing.T) {
	p := provide(t, func(w net.Conn, h *heard) { say(w, 200, "hello "+h.target(), "Date: yesterday", "Server: p") })
	st := start(t, setup{provider: p})
	g := st.get("/tickets/a//b?q=%20", "Accept: */*")
	if g.status != 200 || g.body != "hello /a//b?q=%20" || g.outcome() != "passthrough" || g.value("Date") != "yesterday" || g.value("Server") != "p" {
		t.Fatalf("got %d %q %q", g.status, g.fields, g.body)
	}
}

// A call that was journaled is answered from the journal, although the
// configuration calls it a read by now.
func TestEffectThatBecameARead(t *testing.T) {
	p := provide(t, func(w net.Conn, _ *heard) { say(w, 201, "{}") })
	st := start(t, setup{provider: p})
	first := st.post("r", "1", "1", "/tickets/search", "{}")
	match, err := classify.CompileMatch([]string{"POST"}, "/search")
	if err != nil {
		t.Fatal(err)
	}
	st.setup.upstream = func(u *journal.Upstream) { u.Rules = classify.Rules{{Match: match, Class: classify.Read}} }
	st = st.restart()
	again := st.post("r", "1", "1", "/tickets/search", "{}")
	same(t, "the repeat", first, again)
	if again.outcome() != "replayed" {
		t.Errorf("the repeat is %s", again.outcome())
	}
	if other := st.post("r", "1", "2", "/tickets/search", "{}"); other.outcome() != "passthrough" {
		t.Errorf("another call is %s", other.outcome())
	}
	if n := len(p.hits()); n != 2 {
		t.Errorf("%d requests reached the provider, want 2", n)
	}
}

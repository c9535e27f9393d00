package proxy

import (
	"context"
	"strings"
	"testing"

	"counterfoil/classify"
	"counterfoil/internal/journal"
	"counterfoil/keystore"
)

func headerOf(pairs ...string) classify.Header {
	var h classify.Header
	for i := 0; i < len(pairs); i += 2 {
		h = append(h, classify.Field{Name: pairs[i], Value: pairs[i+1]})
	}
	return h
}

// noRecords is a journal with nothing in it.
type noRecords struct{ Records }

func (noRecords) Call(context.Context, keystore.Key) (*keystore.Record, error) {
	return nil, keystore.ErrNotFound
}

// Design 3.2: the first source that names a part wins, part by part.
func TestIdentity(t *testing.T) {
	const r, tu, c = "Counterfoil-Run", "Counterfoil-Turn", "Counterfoil-Call"
	for _, row := range []struct {
		name   string
		path   identity
		header classify.Header
		run    string // COUNTERFOIL_RUN
		want   string // namespace left out
		own    string // passed on bare, in this spelling
	}{
		{"headers", identity{}, headerOf(r, "a", tu, "b", c, "c"), "", "a:b:c", ""},
		{"turn is -", identity{}, headerOf(r, "a", c, "c"), "", "a:-:c", ""},
		{"case does not count", identity{}, headerOf("counterfoil-run", "a", "COUNTERFOIL-CALL", "c"), "", "a:-:c", ""},
		{"the path first", identity{run: "p"}, headerOf(r, "a", tu, "b", c, "c"), "", "p:b:c", ""},
		{"percent-encoded", identity{}, headerOf(r, "caf%C3%A9", c, "%3A"), "", "caf%C3%A9:-:%3A", ""},
		{"baggage", identity{}, headerOf("baggage", "x=1, counterfoil.run=a ; p=q,counterfoil.turn=b,counterfoil.call=c%20d"), "", "a:b:c%20d", ""},
		{"headers before baggage", identity{}, headerOf("Baggage", "counterfoil.run=z,counterfoil.call=y", r, "a"), "", "a:-:y", ""},
		{"baggage on two lines", identity{}, headerOf("baggage", "counterfoil.run=a", "baggage", "counterfoil.call=c"), "", "a:-:c", ""},
		{"equal twice", identity{}, headerOf(r, "a", r, "a", c, "c"), "", "a:-:c", ""},
		{"own key", identity{}, headerOf("Idempotency-Key", "k1"), "", "-:-:k1", "k1"},
		{"own key, quoted", identity{}, headerOf("Idempotency-Key", `"k1"`), "", "-:-:k1", `"k1"`},
		{"own key, escapes", identity{}, headerOf("Idempotency-Key", `"a\"b\\c" ;p=1`), "", `-:-:a"b\c`, `"a\"b\\c" ;p=1`},
		{"own key under a run", identity{}, headerOf("Idempotency-Key", "k1", r, "a"), "", "a:-:k1", ""},
		{"own key under a run of the path", identity{run: "p"}, headerOf("Idempotency-Key", "k1"), "", "p:-:k1", ""},
		{"own key beside a call", identity{}, headerOf("Idempotency-Key", "k1", r, "a", c, "c"), "", "a:-:c", ""},
		{"own key in a sidecar of one run", identity{}, headerOf("Idempotency-Key", "k1"), "job", "job:-:k1", "k1"},
		{"a sidecar of one run", identity{}, headerOf(c, "c"), "job", "job:-:c", ""},
		{"another run all the same", identity{}, headerOf(r, "a", c, "c"), "job", "a:-:c", ""},
		{"a key made up by an SDK", identity{}, headerOf("Idempotency-Key", "stripe-node-retry-8d2f"), "", ":-:", ""},
		{"a key made up by another", identity{}, headerOf("Idempotency-Key", "stainless-python-retry-8d2f"), "", ":-:", ""},
		{"nothing", identity{}, nil, "", ":-:", ""},
		{"a call without a run", identity{}, headerOf(c, "c"), "", ":-:c", ""},
	} {
		got, err := identify(row.path, identity{}, row.header, row.run)
		if err != nil {
			t.Errorf("%s: %v", row.name, err)
			continue
		}
		k := keystore.Key{Run: got.run, Turn: got.turn, Call: got.call}
		if k.String() != row.want || got.ownKeyRaw != row.own {
			t.Errorf("%s: %s, own %q; want %s, %q", row.name, k, got.ownKeyRaw, row.want, row.own)
		}
	}
}

func TestIdentityRefused(t *testing.T) {
	long := strings.Repeat("a", 257)
	for _, h := range []classify.Header{
		headerOf("Counterfoil-Run", ""),
		headerOf("Counterfoil-Run", long),
		headerOf("Counterfoil-Call", "%ff"),
		headerOf("Counterfoil-Call", "\xff"),
		headerOf("Counterfoil-Call", "%4"),
		headerOf("Counterfoil-Call", "a", "counterfoil-call", "b"),
		headerOf("Counterfoil-Incarnation", "x"),
		headerOf("Counterfoil-Incarnation", "1", "Counterfoil-Incarnation", "2"),
		headerOf("baggage", "counterfoil.run=a,counterfoil.run=b"),
		headerOf("baggage", "counterfoil.run="),
		headerOf("baggage", "counterfoil.run"),
		headerOf("Idempotency-Key", ""),
		headerOf("Idempotency-Key", long),
		headerOf("Idempotency-Key", `"`),
		headerOf("Idempotency-Key", `"a`),
		headerOf("Idempotency-Key", `"a"b`),
		headerOf("Idempotency-Key", `"a\x"`),
		headerOf("Idempotency-Key", `""`),
		headerOf("Idempotency-Key", "a", "idempotency-key", "b"),
	} {
		if c, err := identify(identity{}, identity{}, h, ""); err == nil {
			t.Errorf("%q gave %+v", h, c)
		}
	}
	// Over the wire it is a problem, and nothing is sent.
	p := provide(t, created)
	st := start(t, setup{provider: p})
	g := st.post("r", "t", "%zz", "/tickets/x", "{}")
	g.isProblem(t, InvalidKey)
	if g.outcome() != "refused" || len(p.hits()) != 0 {
		t.Errorf("outcome %s, %d requests sent", g.outcome(), len(p.hits()))
	}
}

// An effect that nobody could recognise again is not sent, and the answer shows
// every way to name it.
func TestMissingKey(t *testing.T) {
	p := provide(t, created)
	st := start(t, setup{provider: p})
	for _, fields := range [][]string{nil, {"Counterfoil-Run: r"}, {"Counterfoil-Call: c"}, {"Idempotency-Key: stripe-node-retry-1"}} {
		d := ask(t, st.addr, request("POST", "/tickets/x", "{}", fields...)).isProblem(t, MissingKey)
		for _, way := range []string{"Counterfoil-Call", "/@run:turn:call/", "baggage", "Idempotency-Key"} {
			if !strings.Contains(d.Detail, way) {
				t.Errorf("detail does not show %s: %s", way, d.Detail)
			}
		}
	}
	if n := len(p.hits()); n != 0 {
		t.Errorf("%d requests reached the provider", n)
	}
}

// C56: bare and quoted are one key, and the provider sees the first spelling.
func TestC56QuotedKey(t *testing.T) {
	p := provide(t, created)
	st := start(t, setup{provider: p})
	first := ask(t, st.addr, request("POST", "/tickets/x", "{}", `Idempotency-Key: "k1"`))
	second := ask(t, st.addr, request("POST", "/tickets/x", "{}", `Idempotency-Key: k1`))
	same(t, "bare", first, second)
	hits := p.hits()
	if len(hits) != 1 || hits[0].value("Idempotency-Key") != `"k1"` || len(hits[0].values("Idempotency-Key")) != 1 {
		t.Fatalf("the provider got %d requests, %q", len(hits), hits[0].fields)
	}
	if second.outcome() != "replayed" || first.value("Counterfoil-Key") != "k1" {
		t.Errorf("%s, key %q", second.outcome(), first.value("Counterfoil-Key"))
	}
}

// A key that an SDK made up is replaced, and does not tell calls apart.
func TestInventedKeyReplaced(t *testing.T) {
	p := provide(t, created)
	st := start(t, setup{provider: p})
	st.post("r", "t", "c", "/tickets/x", "{}", "Idempotency-Key: stripe-node-retry-1")
	g := st.post("r", "t", "c", "/tickets/x", "{}", "Idempotency-Key: stripe-node-retry-2")
	hits := p.hits()
	if len(hits) != 1 || g.outcome() != "replayed" {
		t.Fatalf("%d requests, %s", len(hits), g.outcome())
	}
	if keys := hits[0].values("Idempotency-Key"); len(keys) != 1 || keys[0] != g.value("Counterfoil-Key") {
		t.Errorf("the provider got keys %q", keys)
	}
}

// What speaks to Counterfoil stays here; the rest of baggage goes on.
func TestOwnFieldsStay(t *testing.T) {
	p := provide(t, created)
	st := start(t, setup{provider: p})
	ask(t, st.addr, request("POST", "/tickets/x", "{}", "baggage: a=1 ,counterfoil.run=r,counterfoil.call=c, b=2;p", "baggage: counterfoil.turn=t",
		"COUNTERFOIL-Anything: 1", "Counterfoil-Token: s3cret", "Counterfoilish: 1"))
	h := p.hits()[0]
	if got := h.values("baggage"); len(got) != 1 || got[0] != "a=1 , b=2;p" {
		t.Errorf("baggage is %q", got)
	}
	if h.value("Counterfoilish") != "1" {
		t.Error("another's field is gone")
	}
	for _, f := range h.fields {
		if strings.HasPrefix(strings.ToLower(f), "counterfoil-") || strings.Contains(f, "counterfoil.") {
			t.Errorf("%q left", f)
		}
	}
}

func FuzzIdentity(f *testing.F) {
	f.Add("Counterfoil-Run", "a", "counterfoil.run=b,x=y")
	f.Add("Idempotency-Key", `"a\"b"`, "counterfoil.call=%20")
	f.Fuzz(func(t *testing.T, name, value, baggage string) {
		h := headerOf(name, value, "baggage", baggage, "Counterfoil-Call", "c")
		c, err := identify(identity{}, identity{}, h, "")
		if err != nil {
			return
		}
		for _, part := range []string{c.run, c.turn, c.call} {
			if part != "" && keystore.ValidatePart(part) != nil {
				t.Errorf("part %q is not valid", part)
			}
		}
		for _, field := range withoutOwn(h) {
			if isOwn(field.Name) {
				t.Errorf("%s stays", field.Name)
			}
			if id, err := baggageIdentity(classify.Header{field}); err == nil && id != (identity{}) {
				t.Errorf("%q still names %+v", field.Value, id)
			}
		}
	})
}

// The pure path: where a request goes and whose it is. The goal is under 2 µs.
func BenchmarkRoute(b *testing.B) {
	s, err := New(Config{Journal: &journal.Journal{}, Records: noRecords{}, Upstreams: []Upstream{{Name: "tickets", URL: "http://h/b"}}})
	if err != nil {
		b.Fatal(err)
	}
	block := "Host: 127.0.0.1:8100\r\nUser-Agent: sdk/1\r\nContent-Type: application/json\r\nAuthorization: Bearer abc\r\n" +
		"Counterfoil-Run: run-1\r\nCounterfoil-Turn: 4\r\nCounterfoil-Call: call_abc\r\nContent-Length: 100\r\n\r\n"
	b.ReportAllocs()
	for b.Loop() {
		head, err := parseHead(block)
		if err != nil {
			b.Fatal(err)
		}
		if _, err = framing(head); err != nil {
			b.Fatal(err)
		}
		x := &exchange{Server: s, conn: &conn{}, header: head}
		x.route, _ = x.findRoute("/tickets/v1/refunds?x=1")
		if x.claim, err = identify(x.route.identity, identity{}, head, ""); err != nil {
			b.Fatal(err)
		}
	}
}

// One name has one spelling: percent-encoded UTF-8 (docs/protocol.md).
func TestRawBytesAreNoIdentity(t *testing.T) {
	p := provide(t, created)
	st := start(t, setup{provider: p})
	for _, raw := range []string{
		request("POST", "/tickets/x", "{}", "Counterfoil-Run: ü", "Counterfoil-Call: c"),
		request("POST", "/tickets/x", "{}", "Counterfoil-Run: r", "Counterfoil-Turn: \xfc", "Counterfoil-Call: c"),
		request("POST", "/tickets/x", "{}", "baggage: counterfoil.run=ü,counterfoil.call=c"),
		request("POST", "/@ü:1:c/tickets/x", "{}"),
	} {
		if d := ask(t, st.addr, raw).isProblem(t, InvalidKey); !strings.Contains(d.Detail, "percent-encode") {
			t.Errorf("%q: %s", raw, d.Detail)
		}
	}
	if len(p.hits()) != 0 {
		t.Error("something was sent")
	}
	if g := st.post("%C3%BC", "1", "c", "/tickets/x", "{}"); g.outcome() != "executed" {
		t.Errorf("%d %s", g.status, g.body)
	}
}

package proxy

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"

	"counterfoil/classify"
	"counterfoil/internal/journal"
)

// Design 3.1: no web page rebinds its way to a provider.
func TestHostAndOrigin(t *testing.T) {
	p := provide(t, created)
	st := start(t, setup{provider: p, proxy: func(c *Config) { c.AllowedHosts = []string{"Sidecar.internal", "agents.example:8100"} }})
	for host, allowed := range map[string]bool{
		"localhost": true, "localhost:8100": true, "LOCALHOST.": true, "127.0.0.1": true, "127.9.9.9:1": true, "[::1]": true, "[::1]:8100": true,
		"tickets.localhost:8100": true, "a.b.localhost": true, "sidecar.internal": true, "sidecar.INTERNAL:9": true, "agents.example": true,
		"evil.example": false, "localhost.evil.example": false, "127.0.0.1.evil.example": false, "10.0.0.1": false, "evillocalhost": false,
		"[::2]:8100": false, "[::ffff:127.0.0.1]": true, "sidecar.internal.evil": false, "0.0.0.0": false, "2130706433": false, "localhost@evil": false,
	} {
		raw := strings.Replace(request("GET", "/other/x", ""), "Host: localhost", "Host: "+host, 1)
		g := ask(t, st.addr, raw)
		if (g.status == 201) != allowed {
			t.Errorf("Host %s: %d", host, g.status)
		}
		if !allowed {
			g.isProblem(t, HostNotAllowed)
		}
	}
	before := len(p.hits())
	for origin, allowed := range map[string]bool{
		"http://localhost:3000": true, "http://127.0.0.1": true, "https://sidecar.internal": true,
		"http://evil.example": false, "null": false, "": false, "localhost": false, "http://localhost.evil.example": false,
	} {
		g := ask(t, st.addr, request("GET", "/tickets/x", "", "Origin: "+origin))
		if (g.status == 201) != allowed {
			t.Errorf("Origin %q: %d", origin, g.status)
		}
		for _, f := range g.fields {
			if strings.HasPrefix(strings.ToLower(f), "access-control-") {
				t.Errorf("Origin %q: %s", origin, f)
			}
		}
	}
	ask(t, st.addr, request("GET", "/tickets/x", "", "Origin: http://localhost", "Origin: http://evil.example")).isProblem(t, HostNotAllowed)
	if n := len(p.hits()) - before; n != 3 {
		t.Errorf("%d requests reached the provider, want 3", n)
	}
}

// A page shows an image from here, or links here: its browser sends no Origin.
func TestOtherSitesWithoutOrigin(t *testing.T) {
	p := provide(t, created)
	st := start(t, setup{provider: p})
	for fields, allowed := range map[string]bool{
		"Sec-Fetch-Site: cross-site": false, "Sec-Fetch-Site: Cross-Site": false, "Sec-Fetch-Site: same-origin": true, "Sec-Fetch-Site: none": true,
		"Sec-Fetch-Site: cross-site\r\nOrigin: http://localhost:3000": true, "Sec-Fetch-Site: cross-site\r\nOrigin: http://evil.example": false,
	} {
		g := ask(t, st.addr, request("GET", "/tickets/x", "", strings.Split(fields, "\r\n")...))
		if (g.status == 201) != allowed {
			t.Errorf("%q: %d", fields, g.status)
		}
		if !allowed {
			g.isProblem(t, HostNotAllowed)
		}
	}
}

// The address that a connection came to is allowed; another one is not.
func TestBindAddress(t *testing.T) {
	g := newGuard(nil)
	for host, want := range map[string]bool{"192.0.2.7:8100": true, "192.0.2.7": true, "192.0.2.8": false, "[2001:db8::1]": false} {
		if got := g.admits(classify.Header{{Name: "Host", Value: host}}, tcpAddr("192.0.2.7:8100")); got != want {
			t.Errorf("Host %s: %v", host, got)
		}
	}
}

// C44: the token says whose calls these are, and namespaces never meet.
func TestC44Namespaces(t *testing.T) {
	p := provide(t, created)
	st := start(t, setup{provider: p, proxy: func(c *Config) { c.Tokens = map[string]string{"tx": "x", "ty": "y"} }})
	x, y := "Counterfoil-Token: tx", "Counterfoil-Token: ty"
	gx, gy := st.post("run-1", "1", "1", "/tickets/x", "{}", x), st.post("run-1", "1", "1", "/tickets/x", "{}", y)
	if gx.outcome() != "executed" || gy.outcome() != "executed" || gx.value("Counterfoil-Key") == gy.value("Counterfoil-Key") {
		t.Errorf("%s %s, %s %s", gx.outcome(), gx.value("Counterfoil-Key"), gy.outcome(), gy.value("Counterfoil-Key"))
	}
	if g := st.post("run-1", "1", "1", "/tickets/x", "{}", x, "Counterfoil-Namespace: y"); g.outcome() != "replayed" || g.value("Counterfoil-Key") != gx.value("Counterfoil-Key") {
		t.Errorf("again: %s", g.outcome())
	}
	st.post("run-2", "1", "1", "/tickets/x", "{}", x)
	if g := st.get("/-/v1/runs/run-2", y); g.status != 404 {
		t.Errorf("y sees x's run: %d", g.status)
	}
	if g := st.get("/-/v1/runs/run-1", y); g.status != 200 || strings.Contains(g.body, gx.value("Counterfoil-Key")) {
		t.Errorf("y's own run: %d %s", g.status, g.body)
	}
	for _, fields := range [][]string{nil, {"Counterfoil-Token: "}, {"Counterfoil-Token: tz"}, {"Counterfoil-Token: t"}, {"Authorization: Bearer tx"}, {x, y}} {
		before := len(p.hits())
		st.post("r", "1", "1", "/tickets/x", "{}", fields...).isProblem(t, Unauthorized)
		st.get("/tickets/x", fields...).isProblem(t, Unauthorized)
		st.get("/-/v1/runs/run-1", fields...).isProblem(t, Unauthorized)
		if len(p.hits()) != before {
			t.Errorf("%q: something was sent", fields)
		}
	}
	own := request("POST", "/tickets/x", "{}", "Idempotency-Key: order-1", "Connection: close")
	for _, token := range []string{x, y} {
		ask(t, st.addr, strings.Replace(own, "\r\n", "\r\n"+token+"\r\n", 1))
	}
	hits := p.hits()
	if a, b := hits[len(hits)-2].value("Idempotency-Key"), hits[len(hits)-1].value("Idempotency-Key"); a == b || a == "" || b == "" {
		t.Errorf("for the same key of both tenants the provider got %q and %q", a, b)
	}
	for _, h := range p.hits() {
		for _, f := range h.fields {
			if strings.Contains(f, "tx") && strings.HasPrefix(f, "Counterfoil") {
				t.Errorf("%q left", f)
			}
		}
	}
}

// What is refused is logged by name, without a credential, a query or a body.
func TestRefusalsAreLogged(t *testing.T) {
	var log bytes.Buffer
	p := provide(t, created)
	st := start(t, setup{provider: p, proxy: func(c *Config) {
		c.Logger = slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))
		c.Tokens = map[string]string{"s3cret": "x"}
	}})
	ask(t, st.addr, request("POST", "/tickets/x?q=s3cret", `"s3cret"`, "Counterfoil-Token: s3cret", "Authorization: s3cret", "Cookie: s3cret"))
	ask(t, st.addr, request("POST", "/tickets/x?q=s3cret", `"s3cret"`, "Counterfoil-Token: s3cret-but-wrong", "Authorization: s3cret"))
	ask(t, st.addr, "POST /tickets/x?q=s3cret HTTP/1.1\r\nHost: localhost\r\nAuthorization: s3cret\nX: s3cret\r\n\r\n")
	st.stop() // no more is written
	text := log.String()
	for _, name := range []journal.Problem{MissingKey, Unauthorized, journal.InvalidRequest} {
		if !strings.Contains(text, "problem="+string(name)) {
			t.Errorf("%s is not logged: %s", name, text)
		}
	}
	if strings.Contains(text, "s3cret") {
		t.Errorf("a secret is logged: %s", text)
	}
}

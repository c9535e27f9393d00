package proxy

import (
	"fmt"
	"net"
	"strings"
	"testing"

	"counterfoil/internal/journal"
)

// Links of the provider to itself lead through here, in the client's own form.
func TestRelocate(t *testing.T) {
	o := &origin{name: "tickets", host: "https://api.example.com", base: "/v1"}
	for _, row := range []struct{ link, location, want string }{
		{"/tickets", "https://api.example.com/v1/e/1?x=1#f", "/tickets/e/1?x=1#f"},
		{"/tickets", "HTTPS://API.example.com:443/v1/e", "/tickets/e"},
		{"/tickets", "https://api.example.com/v1", "/tickets"},
		{"/tickets", "https://api.example.com/v1?x", "/tickets?x"},
		{"", "https://api.example.com/v1", "/"},
		{"/tickets", "/v1/", "/tickets/"},
		{"/tickets", "//api.example.com/v1/e", "/tickets/e"},
		{"/tickets", "/v1/e", "/tickets/e"},
		{"/@r:t/tickets", "/v1/e", "/@r:t/tickets/e"},
		{"", "https://api.example.com/v1/e", "/e"},
		{"", "/v1/e%2F", "/e%2F"},
		{"/tickets", "/v10/e", "/v10/e"},
		{"/tickets", "/v2/e", "/v2/e"},
		{"/tickets", "http://api.example.com/v1/e", "http://api.example.com/v1/e"},
		{"/tickets", "https://api.example.com:8443/v1/e", "https://api.example.com:8443/v1/e"},
		{"/tickets", "https://api.example.com@evil.example/v1/e", "https://api.example.com@evil.example/v1/e"},
		{"/tickets", "https://elsewhere.example/v1/e", "https://elsewhere.example/v1/e"},
		{"", "https://api.example.com/v1//evil.example/e", "https://api.example.com/v1//evil.example/e"},
		{"/tickets", "https://api.example.com/v1//evil.example/e", "/tickets//evil.example/e"},
		{"/tickets", "e/1", "e/1"},
		{"/tickets", "?x=1", "?x=1"},
		{"/tickets", "", ""},
		{"/tickets", "mailto:a@b", "mailto:a@b"},
	} {
		r := route{upstream: o, link: row.link}
		if got := r.relocate(row.location); got != row.want {
			t.Errorf("%q with %q became %q, want %q", row.location, row.link, got, row.want)
		}
	}
}

// C57: no redirect is followed, the first answer and its replay say the same,
// and the way to the new address needs a call of its own.
func TestC57Redirects(t *testing.T) {
	elsewhere := provide(t, created)
	var p *provider
	p = provide(t, func(w net.Conn, h *heard) {
		var status int
		_, _ = fmt.Sscanf(h.target(), "/v1/%d", &status)
		if strings.HasSuffix(h.target(), "away") {
			say(w, status, "", "Location: http://"+elsewhere.addr+"/new")
			return
		}
		say(w, status, "", "Location: http://"+p.addr+"/v1/new?a=b")
	})
	st := start(t, setup{provider: p, base: "/v1"})
	for _, status := range []int{301, 302, 303, 307, 308} {
		call := fmt.Sprint(status)
		secrets := []string{"Authorization: Bearer s3cret", "X-Api-Key: s3cret"}
		away := st.post("r", "away", call, "/tickets/"+call+"/away", `"s3cret"`, secrets...)
		if away.status != status || away.value("Location") != "http://"+elsewhere.addr+"/new" {
			t.Errorf("%d away: %d %q", status, away.status, away.value("Location"))
		}
		home := st.post("r", "home", call, "/tickets/"+call+"/home", `"s3cret"`, secrets...)
		if home.status != status || home.value("Location") != "/tickets/new?a=b" {
			t.Errorf("%d home: %d %q", status, home.status, home.value("Location"))
		}
		if status < 304 {
			same(t, "replay", home, st.post("r", "home", call, "/tickets/"+call+"/home", `"s3cret"`, secrets...))
		}
		st.post("r", "home", call, home.value("Location"), `"s3cret"`).isProblem(t, journal.KeyReused)
	}
	if n := len(elsewhere.hits()); n != 0 {
		t.Errorf("%d requests went elsewhere", n)
	}
	own := ask(t, st.own, request("POST", "/303/home", "{}", "Counterfoil-Run: own", "Counterfoil-Call: c"))
	if own.value("Location") != "/new?a=b" {
		t.Errorf("own listener: %q", own.value("Location"))
	}
	inPath := ask(t, st.addr, request("POST", "/@r9:t9:c9/tickets/303/home", "{}"))
	if inPath.value("Location") != "/@r9:t9/tickets/new?a=b" {
		t.Errorf("identity in the path: %q", inPath.value("Location"))
	}
}

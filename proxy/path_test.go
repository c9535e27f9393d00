package proxy

import (
	"net/url"
	"strings"
	"testing"

	"counterfoil/internal/journal"
)

// C67: the provider gets the client's path bytes, or nothing.
func TestC67Path(t *testing.T) {
	p := provide(t, created)
	st := start(t, setup{provider: p, base: "/base"})
	for _, target := range []string{
		"/a%2Fb", "/a//b", "//evil.example/x", "/a/../b", "/safe/%2e%2e/danger", "/a;p=1", "/%E2%82%AC", "/a%2fb/x", `/a\b`,
		"/a/./b", "/a/", "/a%20b?q=%zz&r=..%2f..", "/.../x", "/a..b/..c", "/%2525", "/€", "/a/b/../..", "/a?b?c", "/-/x", "/@me/x",
	} {
		before := len(p.hits())
		g := st.get("/tickets" + target)
		hits := p.hits()
		if g.status != 201 || len(hits) != before+1 {
			t.Errorf("%s: answer %d %s, %d requests", target, g.status, g.body, len(hits)-before)
			continue
		}
		if got := hits[before].target(); got != "/base"+target {
			t.Errorf("%s: the provider got %s", target, got)
		}
	}
	before := len(p.hits())
	for _, target := range []string{
		"/a%00b", "/a%zz", "/a%2", "/%", "/../x", "/..", "/a/../../x", "/%2e%2e/x", "/.%2E/x", "/%2E./x", "/a/..%2f..%2fx", "/..%2fx",
		"/..%5cx", `/..\x`, `/a\..\..\x`, "/a%2f/../../../x", "/a%2fb/../../..", "/a%2fb/../../x", "/a//../../x", "/..;x=1/y", "/a/..;/..;/y", "/a#b", "/a?b#c",
	} {
		g := st.get("/tickets" + target)
		d := g.isProblem(t, InvalidPath)
		if d.SafeToRetry || !d.SafeNewKey {
			t.Errorf("%s: %+v", target, d)
		}
	}
	for _, target := range []string{"http://other/tickets/x", "https://localhost/tickets/x", "http://localhost@other/tickets/x", "http://localhost.evil/x"} {
		st.get(target).isProblem(t, InvalidPath)
	}
	for _, raw := range []string{
		"OPTIONS * HTTP/1.1\r\nHost: localhost\r\n\r\n",
		"GET tickets/x HTTP/1.1\r\nHost: localhost\r\n\r\n",
		"GET /tickets/a\x01b HTTP/1.1\r\nHost: localhost\r\n\r\n",
		"GET /tickets/a b HTTP/1.1\r\nHost: localhost\r\n\r\n",
	} {
		if g := ask(t, st.addr, raw); g.status != 400 {
			t.Errorf("%q: %d", raw, g.status)
		}
	}
	for _, raw := range []string{"CONNECT other:443 HTTP/1.1\r\nHost: localhost\r\n\r\n", "TRACE /tickets/x HTTP/1.1\r\nHost: localhost\r\n\r\n"} {
		g := ask(t, st.addr, raw)
		g.isProblem(t, MethodNotAllowed)
		if g.value("Allow") == "" {
			t.Errorf("%q: no Allow", raw)
		}
	}
	if n := len(p.hits()) - before; n != 0 {
		t.Errorf("%d refused requests reached the provider", n)
	}
}

// The absolute form is taken for the very host that Host names (RFC 9112
// section 3.2.2).
func TestAbsoluteForm(t *testing.T) {
	p := provide(t, created)
	st := start(t, setup{provider: p})
	if g := st.get("http://localhost/tickets/a?b=c"); g.status != 201 || p.hits()[0].target() != "/a?b=c" {
		t.Errorf("answer %d", g.status)
	}
}

// Every form of a path names the same target and identity (design 3.1).
func TestPathForms(t *testing.T) {
	p := provide(t, created)
	st := start(t, setup{provider: p, base: "/v1"})
	named := []string{"Counterfoil-Run: r", "Counterfoil-Turn: t", "Counterfoil-Call: c"}
	var key string
	for i, form := range []struct {
		addr, host, target string
		fields             []string
	}{
		{st.addr, "localhost", "/tickets/x", named},
		{st.addr, "localhost", "/@r/tickets/x", named[1:]},
		{st.addr, "localhost", "/@r:t/tickets/x", named[2:]},
		{st.addr, "localhost", "/@r:t:c/tickets/x", nil},
		{st.addr, "localhost", "/@r:t:c;i=2/tickets/x", nil},
		{st.addr, "tickets.localhost", "/x", named},
		{st.addr, "TICKETS.localhost:8100", "/@r:t:c/x", nil},
		{st.own, "localhost", "/x", named},
		{st.own, "127.0.0.1", "/@r:t:c/x", nil},
		{st.own, "other.localhost", "/@r:t:c/x", nil},
	} {
		raw := strings.Replace(request("POST", form.target, "{}", form.fields...), "Host: localhost", "Host: "+form.host, 1)
		g := ask(t, form.addr, raw)
		if g.status != 201 {
			t.Fatalf("%+v: %d %s", form, g.status, g.body)
		}
		if i == 0 {
			key = g.value("Counterfoil-Key")
		} else if g.outcome() != "replayed" || g.value("Counterfoil-Key") != key {
			t.Errorf("%+v: %s under %s", form, g.outcome(), g.value("Counterfoil-Key"))
		}
	}
	if hits := p.hits(); len(hits) != 1 || hits[0].target() != "/v1/x" {
		t.Errorf("%d requests reached the provider", len(hits))
	}
	for i, row := range []struct{ addr, target, want string }{
		{st.addr, "/tickets", "/v1"},
		{st.addr, "/tickets?q=1", "/v1?q=1"},
		{st.addr, "/tickets/", "/v1/"},
		{st.addr, "/tickets/?q=1", "/v1/?q=1"},
		{st.addr, "/@r/tickets", "/v1"},
		{st.own, "/", "/v1/"},
		{st.own, "/@r", "/v1"},
		{st.own, "/@r?q=1", "/v1?q=1"},
	} {
		if g := ask(t, row.addr, request("GET", row.target, "")); g.status != 201 || p.hits()[1+i].target() != row.want {
			t.Errorf("%s: %d, the provider got %s", row.target, g.status, p.hits()[1+i].target())
		}
	}
	st.get("/nobody/x").isProblem(t, journal.UnknownUpstream)
	st.get("/").isProblem(t, journal.UnknownUpstream)
	st.get("/@r:t:c").isProblem(t, journal.UnknownUpstream)
	st.get("/@r:t:c/").isProblem(t, journal.UnknownUpstream)
}

// A name that is none is said with where it was read, and with those there are.
func TestUnknownUpstreamIsExplained(t *testing.T) {
	st := start(t, setup{provider: provide(t, created)})
	for _, row := range []struct {
		host, target string
		want         []string
	}{
		{"localhost", "/nobody/x", []string{`The path begins with "nobody"`, "Configured: other, tickets. Write /other/…"}},
		{"localhost", "/", []string{"The path names no upstream."}},
		{"nope.localhost:8100", "/v1/charges", []string{`The host names "nope"`, `The path begins with "v1"`}},
		{"localhost", "/" + strings.Repeat("a", 100) + "/x", []string{strings.Repeat("a", 64) + `"…`}},
	} {
		raw := strings.Replace(request("GET", row.target, ""), "Host: localhost", "Host: "+row.host, 1)
		d := ask(t, st.addr, raw).isProblem(t, journal.UnknownUpstream)
		for _, want := range row.want {
			if !strings.Contains(d.Detail, want) {
				t.Errorf("%s at %s: %q is not in %q", row.target, row.host, want, d.Detail)
			}
		}
	}
	if got := listed(nil); got != "" {
		t.Error(got)
	}
	if got := listed(strings.Split(strings.Repeat("a,", 11)+"a", ",")); !strings.Contains(got, "and 2 more") {
		t.Error(got)
	}
}

func TestPathIdentityRefused(t *testing.T) {
	st := start(t, setup{provider: provide(t, created)})
	for _, segment := range []string{"@", "@:t", "@r:", "@r:t:", "@r:t:c:d", "@%zz", "@%ff", "@" + strings.Repeat("a", 257), "@r;x=1", "@r;i=", "@r;i=-1", "@r;i=1;i=2", "@r;i=9999999999", "@r;"} {
		st.get("/"+segment+"/tickets/x").isProblem(t, InvalidKey)
	}
	if g := st.get("/@r%3Aa%2Fb:t:%C3%A9/tickets/x"); g.status != 201 {
		t.Errorf("encoded parts: %d", g.status)
	}
}

// A path that is let through never leads above its base, whichever way of
// reading dot segments the provider has.
func FuzzPath(f *testing.F) {
	for _, s := range []string{"/a/../b", "/%2e%2e/x", "/a%2f..%2f..", `/a\..`, "/..;x/", "//..", "/a%2fb/../..", "/a?b", "/%00"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, target string) {
		if !strings.HasPrefix(target, "/") || checkTarget(target) != nil {
			return
		}
		path, _, _ := strings.Cut(target, "?")
		for _, decode := range []func(string) string{
			func(s string) string { return s },
			func(s string) string { return strings.NewReplacer("%2e", ".", "%2E", ".").Replace(s) },
			func(s string) string { d, _ := url.PathUnescape(s); return d },
			func(s string) string { d, _ := url.PathUnescape(s); return strings.ReplaceAll(d, `\`, "/") },
		} {
			depth := 0
			for segment := range strings.SplitSeq(strings.TrimPrefix(decode(path), "/"), "/") {
				switch segment {
				case "..":
					depth--
				case ".":
				default:
					depth++
				}
				if depth < 0 {
					t.Fatalf("%q climbs", target)
				}
			}
		}
	})
}

// FuzzTarget: whatever the request line holds, finding the route does not
// panic, and what is passed on is a suffix of what came.
func FuzzTarget(f *testing.F) {
	s, err := New(Config{Journal: &journal.Journal{}, Records: noRecords{}, Upstreams: []Upstream{{Name: "tickets", URL: "http://h/b"}}})
	if err != nil {
		f.Fatal(err)
	}
	for _, target := range []string{"/tickets/x", "/@r:t:c;i=1/tickets/x?y", "http://localhost/tickets", "/-/v1", "*", "//", "/@"} {
		f.Add(target, "localhost")
	}
	f.Fuzz(func(t *testing.T, target, host string) {
		x := &exchange{Server: s, conn: &conn{}, header: headerOf("Host", host)}
		r, refusal := x.findRoute(target)
		if refusal != nil || r.upstream == nil {
			return
		}
		if !strings.HasSuffix(target, r.target) && !strings.HasSuffix("/"+target, r.target) && r.target != "/" && !strings.HasSuffix(target, r.target[1:]) {
			t.Errorf("%q became %q", target, r.target)
		}
	})
}

package admin

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"counterfoil/internal/journal"
	"counterfoil/keystore/storetest"
)

func TestHostAndOriginAreChecked(t *testing.T) {
	b := newBench(t, func(c *Config) { c.AllowedHosts = []string{"Admin.Example:8101"} })
	port := b.base[strings.LastIndex(b.base, ":"):]
	for _, row := range []struct {
		host, origin string
		want         int
	}{
		{host: "127.0.0.1" + port, want: 200},
		{host: "127.9.9.9", want: 200},
		{host: "[::1]" + port, want: 200},
		{host: "localhost" + port, want: 200},
		{host: "LOCALHOST.", want: 200},
		{host: "counterfoil.localhost" + port, want: 200},
		{host: "admin.example", want: 200},
		{host: "ADMIN.example:1", want: 200},
		{host: "evil.example" + port, want: 403},
		{host: "localhost.evil.example", want: 403},
		{host: "notlocalhost", want: 403},
		{host: "127.0.0.1.evil.example", want: 403},
		{host: "192.0.2.1", want: 403},
		{host: "0.0.0.0" + port, want: 403},
		{host: "localhost", origin: b.base, want: 200},
		{host: "localhost", origin: "http://localhost:3000", want: 200},
		{host: "localhost", origin: "https://evil.example", want: 403},
		{host: "localhost", origin: "http://localhost@evil.example", want: 403},
		{host: "localhost", origin: "null", want: 403},
	} {
		header := []string{"Host", row.host}
		if row.origin != "" {
			header = append(header, "Origin", row.origin)
		}
		for _, path := range []string{"/api/v1/runs", "/metrics", "/nothing"} {
			a := b.get(path, header...)
			refused := a.status == http.StatusForbidden
			if refused != (row.want == 403) {
				t.Errorf("%s with Host %q Origin %q: %d %s", path, row.host, row.origin, a.status, a.body)
			}
			if refused {
				wantProblem(t, a, HostNotAllowed, "COUNTERFOIL_ALLOWED_HOSTS")
			}
			if a.header.Get("Access-Control-Allow-Origin") != "" {
				t.Errorf("%s allows another origin", path)
			}
		}
		if a := b.get("/live", header...); a.status != 200 {
			t.Errorf("/live with Host %q: %d", row.host, a.status)
		}
	}
}

func TestTokenLocksAllButHealth(t *testing.T) {
	b := newBench(t, func(c *Config) { c.Token = "s3cret" })
	b.server.Enter(Serving)
	for _, path := range []string{"/live", "/ready"} {
		if a := b.get(path); a.status != 200 {
			t.Errorf("%s: %d %s", path, a.status, a.body)
		}
	}
	for _, path := range []string{"/metrics", "/api/v1/runs", "/api/v1/unknown", "/api/v1/runs/r", "/api/v1/calls/r/t/c", "/"} {
		for _, authorization := range []string{"", "s3cret", "Bearer", "Bearer ", "Bearer s3cre", "Bearer s3crets", "Basic s3cret"} {
			a := b.get(path, "Authorization", authorization)
			wantProblem(t, a, Unauthorized, "COUNTERFOIL_ADMIN_TOKEN")
			if got := a.header.Get("WWW-Authenticate"); !strings.HasPrefix(got, "Bearer") {
				t.Errorf("%s: WWW-Authenticate %q", path, got)
			}
		}
		if a := b.get(path, "Authorization", "bearer s3cret"); a.status == http.StatusUnauthorized {
			t.Errorf("%s with the token: %d %s", path, a.status, a.body)
		}
	}
	wantProblem(t, b.resolve("a", "abandon", ""), Unauthorized, "")
	if strings.Contains(b.log.String(), "s3cret") {
		t.Error("the token is in the log")
	}
}

func TestBeyondLoopbackATokenIsNeeded(t *testing.T) {
	for _, row := range []struct {
		listen, token string
		ok            bool
	}{
		{"127.0.0.1:8101", "", true},
		{"[::1]:8101", "", true},
		{"localhost:8101", "", true},
		{":8101", "", false},
		{"0.0.0.0:8101", "", false},
		{"[::]:8101", "", false},
		{"10.1.2.3:8101", "", false},
		{"sidecar.example:8101", "", false},
		{"8101", "x", false},
		{"0.0.0.0:8101", "x", true},
	} {
		store, err := storetest.OpenMemory(storetest.NewDisk(), storetest.NewClock().Now)
		if err != nil {
			t.Fatal(err)
		}
		calls, err := journal.New(journal.Config{Store: store})
		if err != nil {
			t.Fatal(err)
		}
		_, err = New(Config{Listen: row.listen, Token: row.token, Store: store, Calls: calls, Metrics: NewMetrics("", time.Now)})
		if (err == nil) != row.ok {
			t.Errorf("%q with token %q: %v", row.listen, row.token, err)
		}
		if err != nil && !strings.Contains(err.Error(), row.listen) {
			t.Errorf("%q: the error does not name it: %v", row.listen, err)
		}
	}
}

func TestPostWantsJSON(t *testing.T) {
	b := newBench(t, nil)
	b.lose(key("a"))
	body := `{"run":"ticket-77","turn":"3","call":"a","decision":"abandon","actor":"ada"}`
	for _, mediaType := range []string{"text/plain", "application/x-www-form-urlencoded", "", "application/json; charset=latin1", "application/json2"} {
		wantProblem(t, b.do("POST", "/api/v1/calls/resolve", body, "Content-Type", mediaType), UnsupportedMediaType, "")
	}
	if a := b.do("POST", "/api/v1/calls/resolve", body, "Content-Type", "application/json; charset=UTF-8"); a.status != 200 {
		t.Errorf("%d %s", a.status, a.body)
	}
}

func TestMethodsAndPaths(t *testing.T) {
	b := newBench(t, nil)
	a := b.get("/api/v1/calls/resolve")
	wantProblem(t, a, MethodNotAllowed, "Allow")
	if got := a.header.Get("Allow"); got != "POST" {
		t.Errorf("Allow %q", got)
	}
	wantProblem(t, b.do("POST", "/api/v1/runs", "{}"), MethodNotAllowed, "")
	wantProblem(t, b.do("OPTIONS", "/api/v1/runs", ""), MethodNotAllowed, "")
	wantProblem(t, b.get("/api/v2/runs"), NotFound, "/api/v1")
	if a := b.do("HEAD", "/api/v1/runs", ""); a.status != 200 || a.body != "" {
		t.Errorf("HEAD: %d %q", a.status, a.body)
	}
}

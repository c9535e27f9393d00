package config

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"counterfoil/classify"
)

const exampleFile = `
listen: 0.0.0.0:9100
namespace: from-file
retention: {after_end: 7d}
tokens: "${env:TOKEN}=team-a"
allowed_hosts: [Gateway.internal, "[fd00::1]"]
upstreams:
  tickets:
    url: http://127.0.0.1:9090/base
    listen: 8111
    auth: {header: Authorization, value: "Bearer ${file:/run/key} $${x}"}
    bind: subject
    redact: {query: [ticket_secret], headers: [X-Tenant-Key]}
    fingerprint: {ignore: [sent_at, /meta/trace]}
    outcomes: {500: rejected}
    pause_on_unknown: call
    record_reads: true
    timeouts: {first_byte: 90s, attempt: 10m}
    max_conns: 7
    ca: /etc/ca.pem
    rules:
      - {when: {method: [POST], path: "/search/**"}, class: read}
      - {when: {method: [POST], path: "/refunds"}, approval: required}
    on_divergence: hold
    operations:
      - name: create
  mail: {url: http://127.0.0.1:9091}
`

func loadExample(t *testing.T, more map[string]string) *Config {
	t.Helper()
	environ := map[string]string{"COUNTERFOIL_CONFIG": "c.yaml", "HOME": "/home/me", "TOKEN": "hunter2-hunter2-hunter2"}
	maps.Copy(environ, more)
	c, err := Load(environ, files(map[string]string{"c.yaml": exampleFile, "/run/key": "hunter3\n"}))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestTheWholeFile(t *testing.T) {
	c := loadExample(t, nil)
	u := c.Upstreams.find("tickets")
	if got := string(u.Auth.Value); got != "Bearer hunter3 ${x}" {
		t.Errorf("auth: got %q", got)
	}
	if u.Listen != "0.0.0.0:8111" {
		t.Errorf("own listener: got %q, want a port at the host of listen", u.Listen)
	}
	want := Timeouts{Connect: 5 * time.Second, FirstByte: 90 * time.Second, Idle: 5 * time.Minute, Attempt: 10 * time.Minute}
	if u.Timeouts != want {
		t.Errorf("time-outs: got %v, want %v", u.Timeouts, want)
	}
	if c.Retention != (Retention{7 * day, 90 * day, 400 * day}) {
		t.Errorf("retention: got %v", c.Retention)
	}
	if got := fmt.Sprint(c.AllowedHosts); got != "[gateway.internal fd00::1]" {
		t.Errorf("hosts: got %s", got)
	}
	if len(c.Tokens) != 1 || string(c.Tokens[0].Token) != "hunter2-hunter2-hunter2" || c.Tokens[0].Namespace != "team-a" {
		t.Errorf("tokens: got %d of them", len(c.Tokens))
	}
	if u.Bind != BindSubject || u.PauseOnUnknown != PauseCall || !u.RecordReads || u.MaxConns != 7 || u.CA != "/etc/ca.pem" {
		t.Errorf("got %+v", u)
	}
}

func TestWhatIsCompiled(t *testing.T) {
	c := loadExample(t, nil)
	u := c.Upstreams.find("tickets")
	search := &classify.Request{Method: "POST", Target: "/search/all"}
	if got := u.Compiled.Rules.Class(search, 0); got != classify.Read {
		t.Errorf("class of a search: got %v, want read", got)
	}
	refund := &classify.Request{Method: "POST", Target: "/refunds"}
	if got := u.Compiled.Rules.Approval(refund); got != classify.ApprovalRequired || u.Compiled.Rules.Approval(search) != classify.NoApproval {
		t.Errorf("approval of a refund: got %v, want required", got)
	}
	if mail := c.Upstreams.find("mail"); u.OnDivergence != HoldDivergence || mail.OnDivergence != ReportDivergence {
		t.Errorf("on_divergence: got %q and %q, want hold and report", u.OnDivergence, mail.OnDivergence)
	}
	if got := u.Compiled.Outcomes[500]; got != classify.Rejected {
		t.Errorf("outcome of 500: got %v, want rejected", got)
	}
	for _, h := range []string{"Authorization", "X-Tenant-Key"} {
		if !u.Compiled.Secrets.IsCredential(h) {
			t.Errorf("%s is no credential, want it to be one", h)
		}
	}
	if u.Operations.Node == nil || u.Operations.Source != "c.yaml" || u.Operations.Path != "upstreams.tickets.operations" {
		t.Errorf("operations: got %+v", u.Operations)
	}
	if mail := c.Upstreams.find("mail"); mail.Operations.Node != nil || mail.Compiled.Secrets == nil {
		t.Errorf("mail: got %+v", mail)
	}
}

// The header that bears the sidecar's own credential is a credential, whatever
// its name.
func TestAuthHeaderIsASecret(t *testing.T) {
	c, err := Load(map[string]string{"COUNTERFOIL_CONFIG": "c.yaml"}, files(map[string]string{
		"c.yaml": `upstreams: {a: {url: "http://h", auth: {header: X-Provider-Pass, value: hunter2}}}`,
	}))
	if err != nil {
		t.Fatal(err)
	}
	if !c.Upstreams[0].Compiled.Secrets.IsCredential("x-provider-pass") {
		t.Error("X-Provider-Pass would be kept in clear")
	}
}

func TestVariableWins(t *testing.T) {
	c := loadExample(t, map[string]string{
		"COUNTERFOIL_LISTEN":    "127.0.0.1:9200",
		"COUNTERFOIL_NAMESPACE": "",
		"COUNTERFOIL_RETENTION": "tombstone=500d,after_change=30d12h",
		"COUNTERFOIL_UPSTREAMS": "tickets=http://127.0.0.1:7070,new=http://127.0.0.1:7071@8112",
	})
	if c.Listen != "127.0.0.1:9200" || c.Namespace != "from-file" {
		t.Errorf("got listen %s, namespace %s", c.Listen, c.Namespace)
	}
	if c.Retention != (Retention{7 * day, 30*day + 12*time.Hour, 500 * day}) {
		t.Errorf("retention: got %v", c.Retention)
	}
	tickets := c.Upstreams.find("tickets")
	if tickets.URL != "http://127.0.0.1:7070" || tickets.MaxConns != 7 || tickets.Listen != "127.0.0.1:8111" {
		t.Errorf("tickets: got %+v", tickets)
	}
	if fresh := c.Upstreams.find("new"); fresh.Listen != "127.0.0.1:8112" || fresh.MaxConns != 512 {
		t.Errorf("new: got %+v", fresh)
	}
}

func TestDataDirectory(t *testing.T) {
	for _, tt := range []struct {
		environ map[string]string
		want    string
	}{
		{map[string]string{"HOME": "/h"}, "/h/.local/state/counterfoil"},
		{map[string]string{"HOME": "/h", "XDG_STATE_HOME": "/s"}, "/s/counterfoil"},
		{map[string]string{"HOME": "/h", "XDG_STATE_HOME": "relative"}, "/h/.local/state/counterfoil"},
		{map[string]string{"HOME": "/h", "COUNTERFOIL_DATA": "d"}, "d"},
		{map[string]string{}, ""},
	} {
		c, err := Load(tt.environ, nil)
		if err != nil {
			t.Fatal(err)
		}
		if c.Data != tt.want {
			t.Errorf("%v: got %q, want %q", tt.environ, c.Data, tt.want)
		}
	}
}

// Whoever mends a configuration sees all of its mistakes at once, in one order.
func TestServeNamesEverythingAtOnce(t *testing.T) {
	check := func(u *Upstream) []*Complaint {
		o := u.Operations
		if o.Node == nil {
			return nil
		}
		return []*Complaint{{Source: o.Source, Line: o.Node.Line, Path: o.Path, Text: "wrong"}}
	}
	for _, tt := range []struct {
		file string
		want []string
	}{
		{"listen: 127.0.0.1\n", []string{"COUNTERFOIL_DATA: not set", "COUNTERFOIL_UPSTREAMS: no upstream", "c.yaml:1: listen"}},
		{"upstreams: [a]\n", []string{"COUNTERFOIL_DATA: not set", "c.yaml:1: upstreams: must be"}},
		{"upstreams: {\n", []string{"COUNTERFOIL_DATA: not set", "c.yaml:1: no valid YAML"}},
		{
			"upstreams:\n  a:\n    operations: []\n    max_conns: 0\n    url: http://127.0.0.1:1\n",
			[]string{"COUNTERFOIL_DATA: not set", "c.yaml:3: upstreams.a.operations: wrong", "c.yaml:4: upstreams.a.max_conns"},
		},
	} {
		c, err := LoadServe(map[string]string{"COUNTERFOIL_CONFIG": "c.yaml"}, files(map[string]string{"c.yaml": tt.file}), check)
		if c != nil || err == nil {
			t.Errorf("%q: got no mistakes", tt.file)
			continue
		}
		lines := strings.Split(err.Error(), "\n")
		sort := slices.Sorted(slices.Values(lines))
		ok := len(lines) == len(tt.want)
		for i := range tt.want {
			ok = ok && strings.HasPrefix(sort[i], tt.want[i])
		}
		if !ok {
			t.Errorf("%q: got\n%s\nwant %q", tt.file, err, tt.want)
		}
	}
}

// Nothing of the process's own environment may get in.
func TestOwnEnvironmentIsNotRead(t *testing.T) {
	t.Setenv("COUNTERFOIL_LISTEN", "127.0.0.1:1")
	t.Setenv("HTTPS_PROXY", "http://proxy:1")
	for _, environ := range []map[string]string{nil, {}} {
		c, err := Load(environ, nil)
		if err != nil {
			t.Fatal(err)
		}
		if c.Listen != "127.0.0.1:8100" || c.Proxy.HTTPS != "" {
			t.Errorf("got %s and proxy %q", c.Listen, string(c.Proxy.HTTPS))
		}
	}
}

func TestProxies(t *testing.T) {
	c, err := Load(map[string]string{"https_proxy": "http://low:1", "HTTP_PROXY": "up:2", "http_proxy": "http://low:2", "no_proxy": "a,b"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if string(c.Proxy.HTTPS) != "http://low:1" || string(c.Proxy.HTTP) != "up:2" || c.Proxy.No != "a,b" {
		t.Errorf("got %q, %q, %q", string(c.Proxy.HTTPS), string(c.Proxy.HTTP), c.Proxy.No)
	}
}

// A Kubernetes service of this name must not keep its own pods from starting,
// and COUNTERFOIL_URL belongs to agents.
func TestForeignVariables(t *testing.T) {
	for name, value := range map[string]string{
		"COUNTERFOIL_SERVICE_HOST":              "10.0.0.1",
		"COUNTERFOIL_SERVICE_PORT_DATA":         "8100",
		"COUNTERFOIL_PORT":                      "tcp://10.0.0.1:8100",
		"COUNTERFOIL_PORT_8100_TCP_ADDR":        "10.0.0.1",
		"COUNTERFOIL_ADMIN_PORT":                "tcp://10.0.0.1:8101",
		"COUNTERFOIL_ADMIN_PORT_8101_TCP_PROTO": "tcp",
		"COUNTERFOIL_URL":                       "http://127.0.0.1:8100",
	} {
		if _, err := Load(map[string]string{name: value}, nil); err != nil {
			t.Errorf("%s=%s: %v", name, value, err)
		}
	}
	if _, err := Load(map[string]string{"COUNTERFOIL_ADMIN_PORT": "8101"}, nil); err == nil {
		t.Error("COUNTERFOIL_ADMIN_PORT=8101 is ignored, want a complaint")
	}
}

func TestWarnings(t *testing.T) {
	c, err := Load(map[string]string{
		"COUNTERFOIL_LISTEN": ":8100", "COUNTERFOIL_ADMIN_TOKEN": "hunter2",
	}, nil)
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		"COUNTERFOIL_ADMIN_TOKEN: a token of 7 characters can be guessed: use at least 16, as from openssl rand -hex 32",
		"COUNTERFOIL_LISTEN: :8100 can be reached from outside without a token: set COUNTERFOIL_TOKENS, or listen on loopback",
	}
	if fmt.Sprint(c.Warnings) != fmt.Sprint(want) {
		t.Errorf("got %q, want %q", c.Warnings, want)
	}
}

func TestSecretsDoNotPrint(t *testing.T) {
	c := loadExample(t, map[string]string{"COUNTERFOIL_ADMIN_TOKEN": "hunter4-hunter4-hunter4", "HTTPS_PROXY": "http://u:hunter5@p:1"})
	u := c.Upstreams.find("tickets")
	var log bytes.Buffer
	slog.New(slog.NewTextHandler(&log, nil)).Info("loaded", "config", c, "auth", u.Auth, "token", c.AdminToken)
	asJSON, err := json.Marshal([]any{c.Tokens, c.AdminToken, c.Proxy, u.Auth})
	if err != nil {
		t.Fatal(err)
	}
	all := fmt.Sprintf("%v %+v %s %q %x %#v %#v", *c, *c, c, c.AdminToken, u.Auth, c.AdminToken, *u) + string(asJSON) + log.String()
	if i := strings.Index(all, "hunter"); i >= 0 || strings.Contains(all, fmt.Sprintf("%x", "hunter")) {
		t.Errorf("a secret is printed: …%.60s", all[max(i-40, 0):])
	}
}

func TestBoundsOfTheFile(t *testing.T) {
	load := func(text string) error {
		_, err := Load(map[string]string{"COUNTERFOIL_CONFIG": "c.yaml"}, files(map[string]string{"c.yaml": text}))
		return err
	}
	if err := load("# " + strings.Repeat("x", fileBytesMax)); err == nil || !strings.Contains(err.Error(), "at most 1048576") {
		t.Errorf("a long file: got %v", err)
	}
	var many strings.Builder
	many.WriteString("upstreams:\n")
	for i := range upstreamsMax + 1 {
		fmt.Fprintf(&many, "  u%d: {url: http://h}\n", i)
	}
	if err := load(many.String()); err == nil || !strings.Contains(err.Error(), "too many upstreams") {
		t.Errorf("many upstreams: got %v", err)
	}
	if err := load(strings.Repeat("x: 1\n", 5000)); err == nil || strings.Count(err.Error(), "\n") >= complaintsMax {
		t.Errorf("many mistakes: got %d lines", strings.Count(fmt.Sprint(err), "\n"))
	}
	if err := load("# nothing\n"); err != nil {
		t.Errorf("an empty file: %v", err)
	}
}

func TestClashes(t *testing.T) {
	for _, tt := range []struct {
		a, b Address
		want bool
	}{
		{"127.0.0.1:1", "127.0.0.1:1", true},
		{"127.0.0.1:1", "127.0.0.1:2", false},
		{"127.0.0.1:0", "127.0.0.1:0", false},
		{"0.0.0.0:1", "127.0.0.1:1", true},
		{"0.0.0.0:1", "[::1]:1", false},
		{":1", "[::1]:1", true},
		{"[::]:1", "127.0.0.1:1", true},
		{"127.0.0.1:1", "127.0.0.2:1", false},
		{"0.0.0.0:1", ":1", true},
	} {
		if got := tt.a.clashes(tt.b); got != tt.want || tt.b.clashes(tt.a) != tt.want {
			t.Errorf("%s and %s: got %v, want %v", tt.a, tt.b, got, tt.want)
		}
	}
}

func TestDurations(t *testing.T) {
	for text, want := range map[string]time.Duration{
		"0": 0, "30s": 30 * time.Second, "30d": 30 * day, "1d12h": 36 * time.Hour, "1.5h": 90 * time.Minute, "36500d": durationMax,
	} {
		if got, err := parseDuration(text); err != nil || got != want {
			t.Errorf("%s: got %v, %v, want %v", text, got, err, want)
		}
	}
	for _, text := range []string{"", "d", "1", "-1s", "-1d", "1d-1h", "36501d", "99999d", "36500d1s", "1h1d", "2562047h48m", "abc"} {
		if got, err := parseDuration(text); err == nil {
			t.Errorf("%q: got %v, want an error", text, got)
		}
	}
}

func TestSizes(t *testing.T) {
	for text, want := range map[string]Size{"256MiB": 256 << 20, "1048576": 1 << 20, "1TiB": 1 << 40, "2GiB": 2 << 30, "1024KiB": 1 << 20} {
		var got Size
		if err := got.UnmarshalText([]byte(text)); err != nil || got != want {
			t.Errorf("%s: got %d, %v, want %d", text, got, err, want)
		}
	}
	for _, text := range []string{"", "1", "1048575", "9999999999999TiB", "2TiB", "1.5GiB", "-1MiB", "1MB", "MiB"} {
		var got Size
		if err := got.UnmarshalText([]byte(text)); err == nil {
			t.Errorf("%q: got %d, want an error", text, got)
		}
	}
}

// Whatever the file and the environment say, Load returns a config or
// complaints, and repeats no secret.
func FuzzLoad(f *testing.F) {
	f.Add("", exampleFile)
	f.Add("a=http://h@81,b=https://u:p@h", "upstreams: {a: {url: [x], rules: [{when: {}}]}}")
	f.Add("a=http://h", "x: &a [*a, *a]")
	f.Add("=,=@1", "? {a: b}\n: c\n<<: {run: 1}")
	f.Add("", "upstreams: !!set {a, b}\nretention: 1d\nreserve: 0x10")
	f.Fuzz(func(t *testing.T, upstreams, file string) {
		environ := map[string]string{"COUNTERFOIL_CONFIG": "c.yaml", "COUNTERFOIL_UPSTREAMS": upstreams, "SECRET": "qqhunterqq"}
		c, err := Load(environ, files(map[string]string{"c.yaml": file}))
		if (c == nil) == (err == nil) {
			t.Fatalf("got config %v and error %v", c, err)
		}
		if err != nil && strings.Contains(err.Error(), "qqhunterqq") && !strings.Contains(file+upstreams, "qqhunterqq") {
			t.Fatalf("a complaint repeats a secret: %v", err)
		}
		if err != nil && strings.Count(err.Error(), "\n") >= 2*complaintsMax {
			t.Fatalf("complaints without bound")
		}
	})
}

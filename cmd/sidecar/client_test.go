package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"counterfoil/classify"
	"counterfoil/internal/admin"
	"counterfoil/internal/journal"
	"counterfoil/keystore"
	"counterfoil/keystore/storetest"
)

var rewriteTables = flag.Bool("rewrite-tables", false, "write the golden tables of the client's commands anew")

// An operator sits before a real admin listener and types commands.
type operator struct {
	t     *testing.T
	vars  map[string]string
	stdin string
	clock *storetest.Clock
	disk  *storetest.Disk
	store *storetest.Memory
	http  *http.Client
	// zone is where the operator reads times.
	zone *time.Location
}

func newOperator(t *testing.T, token string) *operator {
	t.Helper()
	t.Cleanup(func() { goleak.VerifyNone(t) })
	o := &operator{t: t, clock: storetest.NewClock(), disk: storetest.NewDisk(), zone: time.FixedZone("CET", 3600)}
	var err error
	if o.store, err = storetest.OpenMemory(o.disk, o.clock.Now); err != nil {
		t.Fatal(err)
	}
	secrets, err := classify.NewSecrets(nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	calls, err := journal.New(journal.Config{Store: o.store, Now: o.clock.Now, Upstreams: []*journal.Upstream{
		{Name: "tickets", Origin: "http://127.0.0.1:9090", Sender: nobody{}, Finder: nobody{}, Secrets: secrets, PauseOnUnknown: true},
	}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(calls.Close)
	server, err := admin.New(admin.Config{Listen: "127.0.0.1:0", Token: token, Store: o.store, Calls: calls, Metrics: admin.NewMetrics("test", o.clock.Now)})
	if err != nil {
		t.Fatal(err)
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- server.Serve(ln) }()
	transport := &http.Transport{}
	o.http = &http.Client{Transport: transport}
	o.vars = map[string]string{"COUNTERFOIL_ADMIN_LISTEN": ln.Addr().String(), "USER": "ada", "COUNTERFOIL_ADMIN_TOKEN": token}
	t.Cleanup(func() {
		transport.CloseIdleConnections()
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		if err := errors.Join(server.Shutdown(ctx), <-served); err != nil {
			t.Error(err)
		}
		_ = o.store.Close()
	})
	return o
}

// nobody is a provider that no request reaches.
type nobody struct{}

func (nobody) Send(context.Context, *classify.Request) *classify.Response {
	return &classify.Response{Evidence: classify.Unsent, Reason: "connection refused"}
}

// types runs a command and returns what it printed, its exit code and its error.
func (o *operator) types(args ...string) (out string, code int, err error) {
	o.t.Helper()
	var stdout, stderr bytes.Buffer
	root := newRoot(clientEnv{
		variables: o.vars, readFile: os.ReadFile, stdin: strings.NewReader(o.stdin),
		stdout: &stdout, stderr: &stderr, http: o.http, now: func() time.Time { return o.clock.Now().In(o.zone) },
	})
	root.SetArgs(args)
	if err = root.ExecuteContext(o.t.Context()); err != nil {
		code = exitCode(err)
	}
	if stderr.Len() > 0 {
		o.t.Errorf("%q wrote to standard error by itself: %s", args, &stderr)
	}
	return stdout.String(), code, err
}

// prints runs a command that must work.
func (o *operator) prints(args ...string) string {
	o.t.Helper()
	out, _, err := o.types(args...)
	if err != nil {
		o.t.Fatalf("%q: %v", args, err)
	}
	return out
}

// fails runs a command that must fail with a code and a one-line text.
func (o *operator) fails(code int, says string, args ...string) {
	o.t.Helper()
	out, got, err := o.types(args...)
	if err == nil || got != code || !strings.Contains(err.Error(), says) || strings.Contains(err.Error(), "\n") || out != "" {
		o.t.Errorf("%q: code %d, error %v, output %q; want code %d, %q", args, got, err, out, code, says)
	}
}

func (o *operator) begin(k keystore.Key, target string) {
	o.t.Helper()
	_, err := o.store.Begin(o.t.Context(), &keystore.Request{Beginning: keystore.Beginning{
		Key: k, Class: classify.Effect, Fingerprint: classify.Fingerprint{1}, Epoch: o.store.Facts().Epoch,
		Intent: keystore.Intent{
			Upstream: "tickets", Origin: "http://127.0.0.1:9090", Method: "POST", Target: target, SentKey: string(k.ProviderKey()),
		},
	}}, nil)
	if err != nil {
		o.t.Fatal(err)
	}
	o.clock.Advance(1500 * time.Millisecond)
}

func (o *operator) apply(k keystore.Key, e keystore.Event, body string) {
	o.t.Helper()
	if _, err := o.store.Apply(o.t.Context(), k, e, []byte(body)); err != nil {
		o.t.Fatal(err)
	}
}

func (o *operator) lose(k keystore.Key, target, reason string) {
	o.t.Helper()
	o.begin(k, target)
	o.apply(k, keystore.Event{Kind: keystore.SawAmbiguous, Attempt: 1, Evidence: classify.Lost, Outcome: classify.Ambiguous, Reason: reason}, "")
	o.apply(k, keystore.Event{Kind: keystore.GaveUp, Reason: "no operation of upstream tickets matches this POST"}, "")
}

func (o *operator) succeed(k keystore.Key) {
	o.t.Helper()
	o.begin(k, "/effects")
	o.apply(k, keystore.Event{
		Kind: keystore.SawApplied, Attempt: 1, Status: 201, Evidence: classify.Answered, Outcome: classify.Applied,
		Receipt: &keystore.Receipt{Status: 201, Header: classify.Header{{Name: "Content-Type", Value: "application/json"}}},
	}, `{"id":"t1"}`)
}

func callKey(run, turn, call string) keystore.Key {
	return keystore.Key{Namespace: "default", Run: run, Turn: turn, Call: call}
}

// fillBilling makes a run with all that one can have.
func (o *operator) fillBilling() {
	o.t.Helper()
	ctx, effects := o.t.Context(), uint32(10)
	_, _, err := o.store.PutRun(ctx, &keystore.RunSpec{
		Namespace: "default", Run: "billing-9", FlowVersion: "v3", Labels: map[string]string{"team": "billing", "env": "prod"},
		Budget: &keystore.Budget{Effects: &effects, Upstreams: map[string]uint32{"tickets": 2}},
	})
	if err != nil {
		o.t.Fatal(err)
	}
	if _, err := o.store.PutPlan(ctx, &keystore.Plan{
		Namespace: "default", Run: "billing-9", Turn: "1", Calls: []keystore.PlannedCall{{ID: "refund", Tool: "refund"}, {ID: "mail", Tool: "send_mail"}},
	}, keystore.Guard{Run: "billing-9"}); err != nil {
		o.t.Fatal(err)
	}
	k := callKey("billing-9", "1", "refund")
	if _, err := o.store.Begin(ctx, &keystore.Request{Approval: classify.ApprovalRequired, Beginning: keystore.Beginning{
		Key: k, Class: classify.Effect, Fingerprint: classify.Fingerprint{1}, Epoch: o.store.Facts().Epoch,
		Intent: keystore.Intent{Upstream: "tickets", Origin: "http://127.0.0.1:9090", Method: "POST", Target: "/refunds", SentKey: string(k.ProviderKey())},
	}}, []byte("{\"amount\": 100,\n \"to\": \"\u202eada\"}")); err != nil {
		o.t.Fatal(err)
	}
	if _, err := o.store.AcquireLease(ctx, &keystore.LeaseRequest{Namespace: "default", Run: "billing-9", Owner: "worker-1", TTL: time.Hour}); err != nil {
		o.t.Fatal(err)
	}
	o.clock.Advance(time.Minute)
}

// fill is a journal as an operator may find it.
func (o *operator) fill() {
	o.succeed(callKey("ticket-77", "1", "create_ticket"))
	o.lose(callKey("ticket-77", "2", "send_email"), "/mails?"+strings.Repeat("to=everyone&", 8), "the connection was reset")
	o.clock.Advance(26 * time.Hour)
	o.lose(callKey("night shift/Zürich", "-", "charge"), "/charges", "\x1b[2J\x1b[31mthe screen is mine\u202e")
	o.clock.Advance(5 * time.Minute)
	o.begin(callKey("ticket-78", "1", "create_ticket"), "/effects")
	o.fillBilling()
}

// How long an attempt took is not told where only its death is on record: that
// is found out at the next start, whenever that is.
func TestAnAttemptOfADeadProcessTookNobodyKnowsHowLong(t *testing.T) {
	o := newOperator(t, "")
	k := callKey("r", "1", "c")
	o.begin(k, "/effects")
	o.clock.Advance(3 * time.Hour)
	o.apply(k, keystore.Event{Kind: keystore.EpochDied}, "")
	text := o.prints("show", "r:1:c")
	if strings.Contains(text, "3h0m1.5s") || !strings.Contains(text, "?     lost") {
		t.Errorf("got\n%s", text)
	}
}

func TestTables(t *testing.T) {
	o := newOperator(t, "")
	empty := []struct{ args, want string }{
		{"runs", "No runs in the sidecar's own namespace; --namespace names another.\n"}, {"unknown", "No unknown calls.\n"}, {"held", "No held calls.\n"},
	}
	for _, row := range empty {
		if got := o.prints(row.args); got != row.want {
			t.Errorf("%s of an empty journal: %q", row.args, got)
		}
	}
	o.fill()
	var all strings.Builder
	for _, args := range [][]string{
		{"runs"},
		{"runs", "--limit", "1"},
		{"runs", "--state", "paused", "--older-than", "1h"},
		{"runs", "--label", "team=billing", "--label", "env=prod"},
		{"unknown"},
		{"unknown", "--limit", "1"},
		{"show", "ticket-77"},
		{"show", "ticket-77", "--limit", "1"},
		{"show", "ticket-77", "--turn", "1", "--call", "create_ticket"},
		{"show", "night%20shift%2FZ%C3%BCrich:-:charge"},
		{"show", "night%20shift%2FZ%C3%BCrich", "--call", "charge"},
		{"show", "ticket-78:1:create_ticket"},
		{"show", "billing-9"},
		{"recovery", "billing-9"},
		{"recovery", "ticket-77", "--limit", "1"},
		{"held"},
		{"approve", "billing-9:1:refund", "--ttl", "30m", "--note", "as agreed"},
		{"recovery", "billing-9"},
		{"resolve", "ticket-77:2:send_email", "--not-applied", "--note", "not in the outbox\n"},
	} {
		all.WriteString("$ sidecar " + printable(strings.Join(args, " ")) + "\n" + o.prints(args...) + "\n")
	}
	text := all.String()
	if strings.ContainsAny(text, "\x1b\u202e") {
		t.Error("a record steers the terminal")
	}
	path := filepath.Join("testdata", "client.golden")
	if *rewriteTables {
		if err := errors.Join(os.MkdirAll("testdata", 0o755), os.WriteFile(path, []byte(text), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if text != string(want) {
		t.Errorf("%s differs; run go test ./cmd/sidecar -run TestTables -rewrite-tables and read the difference\n%s", path, text)
	}
}

func TestRulingsOnTheCommandLine(t *testing.T) {
	o := newOperator(t, "")
	o.fillBilling()
	o.fails(2, "--ttl", "approve", "billing-9:1:refund", "--ttl", "0s")
	o.fails(2, "--ttl", "approve", "billing-9:1:refund", "--ttl", "1500ms")
	o.fails(2, "unknown flag", "deny", "billing-9:1:refund", "--ttl", "1h")
	o.fails(2, "RUN:TURN:CALL", "deny")
	o.fails(2, "--label", "runs", "--label", "team")
	o.fails(1, "active, paused", "runs", "--state", "gone")
	o.fails(1, "state planned", "approve", "billing-9:1:mail")
	o.fails(1, "Nothing is on record", "recovery", "none")
	if out := o.prints("deny", "billing-9:1:refund", "--note", "no", "--json"); !strings.Contains(out, `"state":"abandoned"`) || !strings.Contains(out, `"actor":"ada"`) {
		t.Errorf("%s", out)
	}
	o.fails(1, "state abandoned", "approve", "billing-9:1:refund")
	if out := o.prints("held"); out != "No held calls.\n" {
		t.Errorf("%s", out)
	}
	if out := o.prints("recovery", "billing-9", "--json"); !strings.Contains(out, `"verdict":"resume"`) {
		t.Errorf("%s", out)
	}
}

// A call of another namespace is decided about with what unknown prints.
func TestOtherNamespaces(t *testing.T) {
	o := newOperator(t, "")
	k := callKey("r", "1", "c")
	k.Namespace = "team-a"
	o.lose(k, "/", "")
	if out := o.prints("runs", "--namespace", "team-b"); out != "No runs in namespace team-b.\n" {
		t.Errorf("runs: %s", out)
	}
	if out := o.prints("runs", "--namespace", "team-a"); !strings.Contains(out, "team-a") {
		t.Errorf("runs: %s", out)
	}
	lines := strings.Split(o.prints("unknown"), "\n")
	row, footer := strings.Fields(lines[1]), lines[len(lines)-2]
	_, command, found := strings.Cut(footer, "sidecar ")
	if !found {
		t.Fatalf("the last line names no command: %s", footer)
	}
	command, _, _ = strings.Cut(command, " | ")
	o.prints(strings.Fields(strings.NewReplacer("CALL", row[0], "NAMESPACE", row[1]).Replace(command))...)
	if r, err := o.store.Call(t.Context(), k); err != nil || r.State != keystore.Succeeded {
		t.Errorf("%+v, %v", r, err)
	}
}

func TestJSONIsTheAPIsOwn(t *testing.T) {
	o := newOperator(t, "s3cret")
	o.fill()
	for path, args := range map[string][]string{
		"/api/v1/runs?limit=2":                               {"runs", "--json", "--limit", "2"},
		"/api/v1/unknown?limit=100":                          {"unknown", "--json"},
		"/api/v1/runs/ticket-77?limit=100":                   {"show", "ticket-77", "--json"},
		"/api/v1/calls/ticket-77/1/create_ticket":            {"show", "ticket-77:1:create_ticket", "--json"},
		"/api/v1/runs?limit=100&namespace=team-b":            {"runs", "--json", "--namespace", "team-b"},
		"/api/v1/calls/night%20shift%2FZ%C3%BCrich/-/charge": {"show", "night%20shift%2FZ%C3%BCrich:-:charge", "--json"},
	} {
		r, err := http.NewRequestWithContext(t.Context(), "GET", "http://"+o.vars["COUNTERFOIL_ADMIN_LISTEN"]+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Authorization", "Bearer s3cret")
		resp, err := o.http.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		var want bytes.Buffer
		_, err = want.ReadFrom(resp.Body)
		resp.Body.Close()
		if err != nil || resp.StatusCode != 200 {
			t.Fatalf("%s: %d %v", path, resp.StatusCode, err)
		}
		if got := o.prints(args...); got != want.String() || !json.Valid([]byte(got)) {
			t.Errorf("%q: %s, want %s", args, got, &want)
		}
	}
}

func TestResolveSaysWhatTheFlagsSay(t *testing.T) {
	o := newOperator(t, "")
	dir := t.TempDir()
	text, binary := filepath.Join(dir, "receipt.json"), filepath.Join(dir, "receipt.bin")
	if err := errors.Join(os.WriteFile(text, []byte("{\"id\":\"é<>\"}\n"), 0o600), os.WriteFile(binary, []byte{0xff, 0, 0xfe}, 0o600)); err != nil {
		t.Fatal(err)
	}
	o.stdin = "from standard input"
	for i, row := range []struct {
		flags        []string
		state        keystore.State
		status       int
		header, body string
		actor        string
	}{
		{[]string{"--not-applied"}, keystore.Open, 0, "", "", "ada"},
		{[]string{"--abandon", "--actor", "grace"}, keystore.Abandoned, 0, "", "", "grace"},
		{[]string{"--recheck"}, keystore.InDoubt, 0, "", "", "ada"},
		{[]string{"--applied"}, keystore.Succeeded, 200, "", "", "ada"},
		{[]string{"--applied", "--status", "201", "--content-type", "application/json", "--body-file", text}, keystore.Succeeded, 201, "application/json", "{\"id\":\"é<>\"}\n", "ada"},
		{[]string{"--applied", "--body-file", binary}, keystore.Succeeded, 200, "", "\xff\x00\xfe", "ada"},
		{[]string{"--applied", "--body-file", "-"}, keystore.Succeeded, 200, "", "from standard input", "ada"},
	} {
		k := callKey("r", "t", string(rune('a'+i)))
		o.lose(k, "/", "")
		o.prints(append([]string{"resolve", k.String(), "--note", "why"}, row.flags...)...)
		r, err := o.store.Call(t.Context(), k)
		if err != nil {
			t.Fatal(err)
		}
		last := r.History[len(r.History)-1]
		if r.State != row.state || last.Actor != row.actor || last.Note != "why" {
			t.Errorf("%q: state %s, history %+v", row.flags, r.State, last)
		}
		if row.status == 0 {
			continue
		}
		var body []byte
		err = o.store.ReadBody(t.Context(), r.Receipt.Body, func(piece []byte) error { body = append(body, piece...); return nil })
		if err != nil || r.Receipt.Status != row.status || r.Receipt.Header.Value("Content-Type") != row.header || string(body) != row.body {
			t.Errorf("%q: receipt %d %v %q, %v", row.flags, r.Receipt.Status, r.Receipt.Header, body, err)
		}
	}
}

// What the tables print as a key, the commands take: of a call without a run,
// and of a run whose name begins like a flag.
func TestKeysThatLookLikeFlags(t *testing.T) {
	o := newOperator(t, "")
	for i, run := range []string{"-", "-prod", "--json"} {
		turn := []string{"=3", "-", "="}[i]
		for j, flags := range [][]string{{"--abandon", "--note", "-:-:x"}, {"--note=-:-:x", "--abandon"}} {
			k := callKey(run, turn, fmt.Sprintf("abc%d%d", i, j))
			o.lose(k, "/", "")
			printed := strings.Fields(strings.Split(o.prints("unknown"), "\n")[1])[0]
			for _, args := range [][]string{
				{"show", printed}, {"show", printed, "--namespace", "default"}, {"show", "--namespace", "default", printed}, {"show", "--", printed},
				append(append([]string{"resolve"}, flags...), printed), append([]string{"resolve", printed}, flags...),
			} {
				if out := o.prints(args...); !strings.Contains(out, printed) {
					t.Errorf("%q: %s", args, out)
				}
			}
			r, err := o.store.Call(t.Context(), k)
			if err != nil || r.State != keystore.Abandoned || r.History[len(r.History)-1].Note != "-:-:x" {
				t.Errorf("%s: %+v, %v", printed, r, err)
			}
		}
		name := strings.Fields(strings.Split(o.prints("runs"), "\n")[1+i])[0]
		if out := o.prints("show", name); !strings.Contains(out, "abc"+fmt.Sprint(i)) {
			t.Errorf("show %s: %s", name, out)
		}
	}
	o.fails(2, "takes RUN:TURN:CALL", "resolve", "-:-:abc", "-:-:def", "--abandon")
	o.fails(2, "no argument", "runs", "x")
	if out := o.prints("show", "--help"); strings.Contains(out, keyFlag) {
		t.Errorf("the help speaks of a flag that is none: %s", out)
	}
}

func TestMistakesAreNamed(t *testing.T) {
	o := newOperator(t, "")
	o.fill()
	large := filepath.Join(t.TempDir(), "large")
	if err := os.WriteFile(large, make([]byte, admin.ReceiptBytesMax+1), 0o600); err != nil {
		t.Fatal(err)
	}
	call := "ticket-77:2:send_email"
	o.fails(2, "no argument", "runs", "x")
	o.fails(2, "takes RUN", "show")
	o.fails(2, "takes RUN", "show", "a", "b")
	o.fails(2, "takes RUN:TURN:CALL", "resolve")
	o.fails(2, "run:turn:call", "resolve", "ticket-77", "--abandon")
	o.fails(2, "two-digit", "show", "100%")
	o.fails(2, "empty", "show", "")
	o.fails(2, "--call", "show", "ticket-77", "--turn", "1")
	o.fails(2, "once", "show", call, "--call", "x")
	o.fails(2, "1 to 1000", "runs", "--limit", "0")
	o.fails(2, "1 to 1000", "unknown", "--limit", "1001")
	o.fails(2, "limit", "unknown", "--limit", "many")
	o.fails(2, "unknown flag", "runs", "--colour")
	o.fails(2, "unknown flag", "runs", "--token", "x")
	o.fails(2, "one of --applied", "resolve", call)
	o.fails(2, "one of --applied", "resolve", call, "--applied", "--abandon")
	o.fails(2, "--applied only", "resolve", call, "--abandon", "--status", "201")
	o.fails(2, "--applied only", "resolve", call, "--recheck", "--body-file", "x")
	o.fails(2, "200 to 599", "resolve", call, "--applied", "--status", "42")
	o.fails(2, "no such file", "resolve", call, "--applied", "--body-file", filepath.Join(t.TempDir(), "none"))
	o.fails(2, "more than 1 MiB", "resolve", call, "--applied", "--body-file", large)
	o.fails(2, "no address", "runs", "--admin", "ftp://127.0.0.1")
	o.fails(2, "no address", "runs", "--admin", "http://")
	o.fails(2, "alone", "runs", "--admin", "http://user:pass@127.0.0.1:1")
	o.fails(1, "Nothing is on record", "show", "never")
	o.fails(1, "Nothing is on record", "show", "never:1:x")
	o.fails(1, "Nothing is on record", "show", "ticket-77", "--namespace", "team-b")
	o.fails(1, "cursor", "unknown", "--after", "nonsense!")
	o.fails(1, "state succeeded", "resolve", "ticket-77:1:create_ticket", "--abandon")
	o.fails(1, "at most 4096", "resolve", call, "--abandon", "--note", strings.Repeat("n", 5000))
	o.disk.Fail(storetest.Fault{Op: storetest.Read})
	o.fails(1, "does not answer now", "runs")
	delete(o.vars, "USER")
	o.fails(2, "--actor", "resolve", call, "--abandon")
}

// C108: the second, opposite decision is refused, at the command line too.
func TestC108OppositeDecisionIsRefused(t *testing.T) {
	o := newOperator(t, "")
	k := callKey("r", "t", "c")
	o.lose(k, "/", "")
	o.clock.Advance(400 * 24 * time.Hour)
	first := o.prints("resolve", "r:t:c", "--applied")
	if again := o.prints("resolve", "r:t:c", "--applied"); again != first {
		t.Errorf("the same again:\n%s\nwant\n%s", again, first)
	}
	o.fails(1, "state succeeded", "resolve", "r:t:c", "--not-applied")
}

func TestTokenComesFromTheEnvironmentOnly(t *testing.T) {
	o := newOperator(t, "s3cret")
	o.prints("runs")
	o.vars["COUNTERFOIL_ADMIN_TOKEN"] = "wrong"
	o.fails(1, "has another admin token: set COUNTERFOIL_ADMIN_TOKEN", "runs")
	delete(o.vars, "COUNTERFOIL_ADMIN_TOKEN")
	o.fails(1, "wants its admin token: set COUNTERFOIL_ADMIN_TOKEN", "unknown")
	o.fails(1, "wants its admin token: set COUNTERFOIL_ADMIN_TOKEN", "resolve", "r:1:c", "--abandon")
}

func TestHealth(t *testing.T) {
	o := newOperator(t, "s3cret")
	delete(o.vars, "COUNTERFOIL_ADMIN_TOKEN")
	o.fails(1, "starting: the calls in doubt", "health") // nobody has said that it serves
	ready := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Write([]byte(`{"ready":true,"reasons":[]}`))
	}))
	t.Cleanup(ready.Close)
	if out := o.prints("health", "--admin", ready.URL); out != "" {
		t.Errorf("a sidecar that is ready: %q", out)
	}
	stranger := httptest.NewServer(http.NotFoundHandler())
	o.fails(1, "not the admin listener", "health", "--admin", stranger.URL)
	stranger.Close()
	o.fails(1, "sidecar serve", "health", "--admin", stranger.URL)
	o.fails(2, "no address", "health", "--admin", "ftp://x")
}

func TestWordsThatAreNoCommand(t *testing.T) {
	o := newOperator(t, "")
	o.fails(2, `"nosuch" is no command. The commands are adapters, approve, check, `, "nosuch")
	o.fails(2, "did you mean resolve? The commands", "reslove") //nolint:misspell // meant
	o.fails(2, "unknown, version; see sidecar --help", "nosuch")
	if out := o.prints("--version"); out != "counterfoil "+versionText()+"\n" || out != o.prints("version") {
		t.Errorf("--version: %q", out)
	}
}

func TestNobodyOrAStrangerAnswers(t *testing.T) {
	o := newOperator(t, "s3cret")
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ln.Close()
	o.fails(1, "sidecar serve", "runs", "--admin", ln.Addr().String())

	var seen []string
	var answer http.HandlerFunc
	stranger := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		seen = append(seen, r.Header.Get("Authorization"))
		answer(w, r)
	}))
	t.Cleanup(stranger.Close)
	for name, h := range map[string]http.HandlerFunc{
		"text": func(w http.ResponseWriter, _ *http.Request) { w.Write([]byte("hello")) },
		"not json": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			w.Write([]byte("["))
		},
		"error": func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "no", 500) },
		"redirect": func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "http://"+o.vars["COUNTERFOIL_ADMIN_LISTEN"]+r.URL.Path, http.StatusTemporaryRedirect)
		},
	} {
		answer = h
		before := len(seen)
		o.fails(1, "not the admin listener", "runs", "--admin", stranger.URL)
		if len(seen) != before+1 {
			t.Errorf("%s: asked %d times", name, len(seen)-before)
		}
	}
	answer = func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/problem+json")
		w.WriteHeader(500)
		w.Write([]byte(`{"detail":"\u001b[2J"}`))
	}
	o.fails(1, `\x1b[2J`, "runs", "--admin", stranger.URL)
}

func TestAddresses(t *testing.T) {
	for given, want := range map[string]string{
		"":                      "http://127.0.0.1:8101",
		"127.0.0.1:9":           "http://127.0.0.1:9",
		"8102":                  "http://127.0.0.1:8102",
		":8102":                 "http://127.0.0.1:8102",
		"0.0.0.0:8102":          "http://127.0.0.1:8102",
		"[::]:8102":             "http://127.0.0.1:8102",
		"[::1]:8102":            "http://[::1]:8102",
		"sidecar.example:8102":  "http://sidecar.example:8102",
		"https://a.example/p/":  "https://a.example/p",
		"http://127.0.0.1:8101": "http://127.0.0.1:8101",
	} {
		env := clientEnv{variables: map[string]string{"COUNTERFOIL_ADMIN_LISTEN": given}}
		if got := env.adminURL(); got != want {
			t.Errorf("%q: %s, want %s", given, got, want)
		}
	}
}

func TestPrintable(t *testing.T) {
	for given, want := range map[string]string{
		"plain Zürich 日本": "plain Zürich 日本", "a\x1b[31m": `a\x1b[31m`, "a\nb\tc\r": `a\x0ab\x09c\x0d`,
		"\u009b2J": `\u009b2J`, "\u202egnp": `\u202egnp`, "\xff\xfe": `\xff\xfe`, "\u200b": `\u200b`, "": "",
	} {
		if got := printable(given); got != want {
			t.Errorf("%q: %q, want %q", given, got, want)
		}
	}
}

package admin

import (
	"cmp"
	"flag"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"counterfoil/classify"
	"counterfoil/internal/journal"
	"counterfoil/keystore"
)

var rewrite = flag.Bool("rewrite", false, "write golden files anew")

func line(change func(*journal.Line)) journal.Line {
	l := journal.Line{
		Key: key("a"), Upstream: "tickets", Method: "POST", Class: classify.Effect, Outcome: journal.Executed, State: keystore.Succeeded,
		Attempts: 1, Made: 1, Sent: true, Evidence: classify.Answered, Judged: classify.Applied, Status: 201, Took: 3 * time.Millisecond,
	}
	change(&l)
	return l
}

var (
	executed = line(func(*journal.Line) {})
	replayed = line(func(l *journal.Line) {
		l.Outcome, l.Sent, l.Made, l.Evidence, l.Judged = journal.Replayed, false, 0, 0, 0
	})
	recovered = line(func(l *journal.Line) {
		l.Outcome, l.Attempts, l.Made, l.Resends, l.Lookups = journal.Recovered, 3, 3, 2, 4
	})
	doubtful = line(func(l *journal.Line) {
		l.Outcome, l.Problem, l.State = journal.Refused, journal.UnknownOutcome, keystore.Unknown
		l.Evidence, l.Judged, l.Status = classify.Lost, classify.Ambiguous, 0
	})
	unreachable = line(func(l *journal.Line) {
		l.Outcome, l.Problem, l.State = journal.Refused, journal.UpstreamUnreachable, keystore.Open
		l.Evidence, l.Judged, l.Status = classify.Unsent, classify.NotApplied, 0
	})
	unavailable = line(func(l *journal.Line) {
		*l = journal.Line{Key: l.Key, Upstream: l.Upstream, Method: l.Method, Class: l.Class,
			Outcome: journal.Refused, Problem: journal.JournalUnavailable, Took: l.Took}
	})
)

// exercised is a bench whose every metric has a value.
func exercised(t *testing.T) *bench {
	t.Helper()
	b := newBench(t, nil)
	o := Observe(b.server.metrics, slog.New(slog.DiscardHandler))
	for _, l := range []journal.Line{executed, executed, replayed, recovered, doubtful, unreachable, unavailable} {
		o.Done(l)
	}
	b.server.metrics.RequestDone(Request{Upstream: "tickets", Class: classify.Read, Outcome: journal.Passthrough, Took: time.Millisecond})
	b.server.metrics.RequestDone(Request{Outcome: journal.Refused, Problem: "missing-key"})
	b.server.metrics.CommitObserved(5, 3000, 2*time.Millisecond)
	o.Trouble("the store refused an operation", key("a"), keystore.ErrUnavailable)
	o.Diverged(key("a"), "tickets")
	return b
}

func TestMetricsCount(t *testing.T) {
	b := exercised(t)
	b.begin(key("pending"))
	b.lose(key("older"))
	b.clock.Advance(90 * time.Second)
	b.lose(key("newer"))
	b.disk.SetFull(true)
	text := b.get("/metrics").body
	for _, want := range []string{
		`counterfoil_executions_total{class="effect",outcome="applied",upstream="tickets"} 3`,
		`counterfoil_executions_total{class="effect",outcome="ambiguous",upstream="tickets"} 1`,
		`counterfoil_executions_total{class="effect",outcome="unsent",upstream="tickets"} 1`,
		`counterfoil_requests_total{class="effect",outcome="executed",problem="",upstream="tickets"} 2`,
		`counterfoil_requests_total{class="effect",outcome="replayed",problem="",upstream="tickets"} 1`,
		`counterfoil_requests_total{class="effect",outcome="refused",problem="unknown-outcome",upstream="tickets"} 1`,
		`counterfoil_requests_total{class="read",outcome="passthrough",problem="",upstream="tickets"} 1`,
		`counterfoil_requests_total{class="",outcome="refused",problem="missing-key",upstream=""} 1`,
		`counterfoil_attempts_total{upstream="tickets"} 7`,
		`counterfoil_resends_total{upstream="tickets"} 2`,
		`counterfoil_lookups_total{upstream="tickets"} 4`,
		`counterfoil_request_duration_seconds_count{class="effect"} 7`,
		`counterfoil_commit_duration_seconds_sum 0.002`,
		`counterfoil_commit_operations_bucket{le="8"} 1`,
		`counterfoil_commit_bytes_sum 3000`,
		`counterfoil_troubles_total 1`,
		`counterfoil_diverged_total{upstream="tickets"} 1`,
		`counterfoil_calls_pending 1`,
		`counterfoil_calls_in_doubt 0`,
		`counterfoil_calls_held 0`,
		`counterfoil_calls_unknown 2`,
		`counterfoil_calls_unknown_oldest_age_seconds 90`,
		`counterfoil_store_full 1`,
		`version="v0.0.0-test"`,
		`go_goroutines`,
		`process_open_fds`,
	} {
		if !strings.Contains(text, want) {
			t.Errorf("not shown: %s", want)
		}
	}
	b.resolve("older", "abandon", "")
	b.resolve("newer", "abandon", "")
	text = b.get("/metrics").body
	if !strings.Contains(text, "counterfoil_calls_unknown 0") || !strings.Contains(text, "counterfoil_calls_unknown_oldest_age_seconds 0") {
		t.Error("decided calls still count as unknown")
	}
}

// Names, types and help texts are a promise to dashboards, and the table for
// operators is printed from them.
func TestMetricsAreAsDocumented(t *testing.T) {
	families, err := exercised(t).server.metrics.registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var golden, table strings.Builder
	table.WriteString("| metric | type | labels | meaning |\n| --- | --- | --- | --- |\n")
	for _, f := range families {
		if !strings.HasPrefix(f.GetName(), "counterfoil_") {
			continue
		}
		var labels []string
		for _, l := range f.GetMetric()[0].GetLabel() {
			labels = append(labels, "`"+l.GetName()+"`")
		}
		kind := strings.ToLower(f.GetType().String())
		fmt.Fprintf(&golden, "%s\n  type %s\n  help %s\n", f.GetName(), kind, f.GetHelp())
		fmt.Fprintf(&table, "| `%s` | %s | %s | %s |\n", f.GetName(), kind, strings.Join(labels, ", "), f.GetHelp())
	}
	compare(t, "testdata/metrics.golden", func([]byte) (string, error) { return golden.String(), nil })
	comparePart(t, "metrics", table.String())
}

func TestProblemsAreAsDocumented(t *testing.T) {
	var table strings.Builder
	table.WriteString("| status | name | title |\n| --- | --- | --- |\n")
	names := slices.SortedFunc(maps.Keys(problems), func(a, b Problem) int {
		return cmp.Or(cmp.Compare(problems[a].status, problems[b].status), cmp.Compare(a, b))
	})
	for _, name := range names {
		form := problems[name]
		if form.status < 400 || form.title == "" {
			t.Errorf("%s: %+v", name, form)
		}
		fmt.Fprintf(&table, "| %d | `%s` | %s |\n", form.status, name, form.title)
	}
	comparePart(t, "problems", table.String())
}

// comparePart holds a printed part of the operators' page against what it
// should be.
func comparePart(t *testing.T, name, want string) {
	t.Helper()
	compare(t, "../../docs/operations.md", func(page []byte) (string, error) {
		mark := "<!-- " + name + ": printed by internal/admin -->\n"
		before, rest, ok := strings.Cut(string(page), mark)
		_, after, ended := strings.Cut(rest, "<!-- end -->")
		if !ok || !ended {
			return "", fmt.Errorf("the marks around the %s are not there", name)
		}
		return before + mark + want + "<!-- end -->" + after, nil
	})
}

// compare holds a file against what it should be, or with -rewrite makes it so.
func compare(t *testing.T, path string, generate func(now []byte) (string, error)) {
	t.Helper()
	now, err := os.ReadFile(path)
	if err != nil && !*rewrite {
		t.Fatal(err)
	}
	want, err := generate(now)
	if err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	if want == string(now) {
		return
	}
	if *rewrite {
		if err := os.WriteFile(path, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	a, b := strings.Split(string(now), "\n"), strings.Split(want, "\n")
	for i := range max(len(a), len(b)) {
		if i >= len(a) || i >= len(b) || a[i] != b[i] {
			t.Fatalf("%s differs from line %d on; run go test ./internal/admin -rewrite\nhas:  %q\nwant: %q",
				path, i+1, a[min(i, len(a)-1)], b[min(i, len(b)-1)])
		}
	}
}

func TestLineTellsWhatBecameOfACall(t *testing.T) {
	for name, row := range map[string]struct {
		line  journal.Line
		level string
		want  []string
		not   []string
	}{
		"executed": {executed, "INFO", []string{`"run":"ticket-77"`, `"turn":"3"`, `"call":"a"`, `"attempts":1`, `"upstream":"tickets"`,
			`"method":"POST"`, `"class":"effect"`, `"outcome":"executed"`, `"state":"succeeded"`, `"evidence":"answered"`, `"judged":"applied"`,
			`"status":201`, `"took":3000000`}, []string{"problem", "resends", "invalid"}},
		"replayed":    {replayed, "INFO", []string{`"outcome":"replayed"`}, []string{"evidence", "judged", "invalid"}},
		"recovered":   {recovered, "INFO", []string{`"lookups":4`, `"resends":2`}, []string{"invalid"}},
		"doubtful":    {doubtful, "WARN", []string{`"problem":"unknown-outcome"`, `"evidence":"lost"`}, []string{`"status"`, "invalid"}},
		"unreachable": {unreachable, "INFO", []string{`"evidence":"unsent"`}, []string{"invalid"}},
		"unavailable": {unavailable, "ERROR", []string{`"problem":"journal-unavailable"`}, []string{"state", "evidence", "invalid"}},
	} {
		log := &lockedBuffer{}
		Lines(slog.New(slog.NewJSONHandler(log, nil)))(row.line)
		text := log.String()
		for _, want := range append(row.want, `"level":"`+row.level+`"`, `"msg":"call"`) {
			if !strings.Contains(text, want) {
				t.Errorf("%s: no %s in %s", name, want, text)
			}
		}
		if slices.ContainsFunc(row.not, func(not string) bool { return strings.Contains(text, not) }) {
			t.Errorf("%s: one of %q in %s", name, row.not, text)
		}
		if strings.Count(text, "\n") != 1 {
			t.Errorf("%s: not one line: %s", name, text)
		}
	}
}

func TestTroubleIsLogged(t *testing.T) {
	log := &lockedBuffer{}
	o := Observe(NewMetrics("", time.Now), slog.New(slog.NewJSONHandler(log, nil)))
	o.Trouble("listing calls in doubt", keystore.Key{}, keystore.ErrUnavailable)
	o.Trouble("reading an intent's body", key("a"), keystore.ErrCorrupt)
	lines := strings.Split(strings.TrimSpace(log.String()), "\n")
	if len(lines) != 2 || strings.Contains(lines[0], `"run"`) || !strings.Contains(lines[1], `"run":"ticket-77"`) ||
		!strings.Contains(lines[0], keystore.ErrUnavailable.Error()) || !strings.Contains(lines[1], `"level":"ERROR"`) {
		t.Errorf("%q", lines)
	}
}

func TestCallsThatNobodyAsksForAreLogged(t *testing.T) {
	log := &lockedBuffer{}
	o := Observe(NewMetrics("", time.Now), slog.New(slog.NewJSONHandler(log, nil)))
	o.Settled(journal.Settlement{Key: key("a"), Upstream: "tickets", To: keystore.Unknown, Why: "it has no operations"})
	o.Settled(journal.Settlement{Key: key("b"), Upstream: "tickets", To: keystore.Succeeded, Lookups: 2})
	lines := strings.Split(strings.TrimSpace(log.String()), "\n")
	for i, want := range [][]string{
		{`"level":"WARN"`, `"call":"a"`, `"state":"unknown"`, `"because":"it has no operations"`},
		{`"level":"INFO"`, `"call":"b"`, `"state":"succeeded"`, `"lookups":2`},
	} {
		for _, w := range want {
			if len(lines) != 2 || !strings.Contains(lines[i], w) {
				t.Errorf("%s is not in line %d of %q", w, i, lines)
			}
		}
	}
}

func TestDivergenceIsLogged(t *testing.T) {
	log := &lockedBuffer{}
	Observe(NewMetrics("", time.Now), slog.New(slog.NewJSONHandler(log, nil))).Diverged(key("auto-0123456789ab-0"), "tickets")
	line := log.String()
	for _, want := range []string{`"level":"WARN"`, `"call":"auto-0123456789ab-0"`, `"upstream":"tickets"`} {
		if !strings.Contains(line, want) {
			t.Errorf("%s is not in %q", want, line)
		}
	}
}

func BenchmarkObserve(b *testing.B) {
	o := Observe(NewMetrics("", time.Now), slog.New(slog.NewJSONHandler(discard{}, &slog.HandlerOptions{Level: slog.LevelWarn})))
	b.ReportAllocs()
	for b.Loop() {
		o.Done(executed)
	}
}

type discard struct{}

func (discard) Write(p []byte) (int, error) { return len(p), nil }

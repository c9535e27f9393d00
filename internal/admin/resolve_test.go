package admin

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"counterfoil/classify"
	"counterfoil/internal/view"
	"counterfoil/keystore"
	"counterfoil/keystore/badger"
	"counterfoil/keystore/storetest"
)

// receiptOf reads back what a replay would be answered with.
func (b *bench) receiptOf(k keystore.Key) (status int, header classify.Header, body string) {
	b.t.Helper()
	r, err := b.store.Call(b.t.Context(), k)
	if err != nil {
		b.t.Fatal(err)
	}
	var read strings.Builder
	err = b.store.ReadBody(b.t.Context(), r.Receipt.Body, func(piece []byte) error { read.Write(piece); return nil })
	if err != nil {
		b.t.Fatal(err)
	}
	return r.Receipt.Status, r.Receipt.Header, read.String()
}

func TestDecisionsMoveTheCall(t *testing.T) {
	for decision, want := range map[string]string{
		"applied": "succeeded", "not_applied": "open", "abandon": "abandoned", "recheck": "in_doubt",
	} {
		b := newBench(t, nil)
		b.lose(key("a"))
		b.clock.Advance(time.Minute)
		a := b.resolve("a", decision, `,"note":"asked the help desk"`)
		c := decode[view.Call](t, a)
		if a.status != 200 || c.State != want {
			t.Errorf("%s: %d, state %s, want %s", decision, a.status, c.State, want)
		}
		last := c.History[len(c.History)-1]
		if last.From != "unknown" || last.To != want || last.Actor != "ada" || last.Note != "asked the help desk" || !last.At.Equal(b.clock.Now()) {
			t.Errorf("%s: history %+v", decision, last)
		}
		if c.Since != (time.Time{}) || c.Reason != "" {
			t.Errorf("%s: still since %s", decision, c.Since)
		}
		if log := b.log.String(); !strings.Contains(log, `"decision":"`+decision+`"`) || !strings.Contains(log, `"actor":"ada"`) || strings.Contains(log, "help desk") {
			t.Errorf("%s: log %s", decision, log)
		}
	}
}

// C108, the part about calls: a decision works however old the call is, once,
// and is logged; a second opposite one is refused.
func TestC108DecisionIsTakenOnce(t *testing.T) {
	for decision, state := range map[string]string{"applied": "succeeded", "not_applied": "open", "abandon": "abandoned", "recheck": "in_doubt"} {
		b := newBench(t, nil)
		b.lose(key("a"))
		b.clock.Advance(2000 * 24 * time.Hour)
		first := b.resolve("a", decision, "")
		if first.status != 200 {
			t.Fatalf("%s after years: %d %s", decision, first.status, first.body)
		}
		again := b.resolve("a", decision, `,"note":"and again"`)
		if again.status != 200 || again.body != first.body {
			t.Errorf("%s again: %d %s\nwant %s", decision, again.status, again.body, first.body)
		}
		for opposite := range decided {
			if string(opposite) == decision {
				continue
			}
			d := wantProblem(t, b.resolve("a", string(opposite), ""), NotUnknown, state)
			if d.State != state || d.Run != "ticket-77" || d.Turn != "3" || d.Call != "a" || d.Key != string(key("a").ProviderKey()) {
				t.Errorf("%s after %s: %+v", opposite, decision, d)
			}
		}
		if got := decode[view.Call](t, b.get(CallPath(key("a")))); got.State != state || len(got.History) != 2 {
			t.Errorf("after %s and others: state %s, history %+v", decision, got.State, got.History)
		}
		if n := strings.Count(b.log.String(), "an operator decided"); n != 1 {
			t.Errorf("%s: %d log lines", decision, n)
		}
	}
}

func TestRepeatAfterTheCallMovedOnIsRefused(t *testing.T) {
	b := newBench(t, nil)
	b.lose(key("a"))
	b.resolve("a", "not_applied", "")
	b.begin(key("a"))
	wantProblem(t, b.resolve("a", "not_applied", ""), NotUnknown, "pending")
}

func TestDecisionWantsAnUnknownCall(t *testing.T) {
	b := newBench(t, nil)
	b.succeed(key("done"))
	b.begin(key("under way"))
	wantProblem(t, b.resolve("done", "applied", ""), NotUnknown, "succeeded")
	wantProblem(t, b.resolve("under way", "not_applied", ""), NotUnknown, "pending")
	wantProblem(t, b.resolve("never", "abandon", ""), NotFound, "namespace")
	b.lose(key("a"))
	wantProblem(t, b.resolve("a", "abandon", `,"namespace":"team-b"`), NotFound, "")
	if a := b.resolve("a", "abandon", `,"namespace":"default"`); a.status != 200 {
		t.Errorf("%d %s", a.status, a.body)
	}
}

func TestGivenReceiptIsWhatAReplayGets(t *testing.T) {
	b := newBench(t, nil)
	large := strings.Repeat("é", ReceiptBytesMax/2)
	quoted, err := json.Marshal(large)
	if err != nil {
		t.Fatal(err)
	}
	for name, row := range map[string]struct {
		receipt, body, header string
		status                int
	}{
		"none":    {`null`, "", "[]", 200},
		"empty":   {`{}`, "", "[]", 200},
		"status":  {`{"status":204}`, "", "[]", 204},
		"text":    {`{"status":201,"headers":{"X-B":["1","2"],"Content-Type":"application/json"},"body":"{\"id\":7}"}`, `{"id":7}`, "[{Content-Type application/json} {X-B 1} {X-B 2}]", 201},
		"bytes":   {`{"body_base64":"` + base64.StdEncoding.EncodeToString([]byte("\xff\x00")) + `"}`, "\xff\x00", "[]", 200},
		"framing": {`{"headers":{"Content-Length":"999","Connection":"X-Hop","X-Hop":"1","Transfer-Encoding":"chunked","ETag":"\"1\""}}`, "", `[{ETag "1"}]`, 200},
		"largest": {`{"body":` + string(quoted) + `}`, large, "[]", 200},
	} {
		b.lose(key(name))
		for range 2 {
			a := b.resolve(name, "applied", `,"receipt":`+row.receipt)
			if a.status != 200 {
				t.Fatalf("%s: %d %s", name, a.status, a.body)
			}
			if c := decode[view.Call](t, a); c.Receipt.Source != "operator" || c.Receipt.Status != row.status {
				t.Errorf("%s: receipt %+v", name, c.Receipt)
			}
		}
		status, header, body := b.receiptOf(key(name))
		if status != row.status || fmt.Sprint(header) != row.header || body != row.body {
			t.Errorf("%s: kept %d %v %.40q, want %d %s %.40q", name, status, header, body, row.status, row.header, row.body)
		}
		wantProblem(t, b.resolve(name, "applied", `,"receipt":{"status":200,"body":"another"}`), NotUnknown, "succeeded")
	}
}

func TestMistakesInADecisionAreNamed(t *testing.T) {
	b := newBench(t, nil)
	b.lose(key("a"))
	whole := func(more string) string {
		return `{"run":"ticket-77","turn":"3","call":"a","decision":"applied","actor":"ada"` + more + `}`
	}
	for body, says := range map[string]string{
		"":                                      "not the JSON",
		"[]":                                    "not the JSON",
		`{"run":`:                               "not the JSON",
		whole("") + "{}":                        "more than one",
		whole(`,"decison":"applied"`):           `"decison"`, //nolint:misspell // meant
		whole(`,"receipt":{"state":200}`):       `"state"`,
		whole(`,"receipt":{"headers":{"a":1}}`): "list of strings",
		whole(`,"receipt":{"headers":{"a b":"1"}}`):                                                         `"a b"`,
		whole(`,"receipt":{"headers":{"":"1"}}`):                                                            `""`,
		whole(`,"receipt":{"headers":{"a":"1\r\nSet-Cookie: x"}}`):                                          `"a"`,
		whole(`,"receipt":{"status":100}`):                                                                  "200 to 599",
		whole(`,"receipt":{"status":600}`):                                                                  "200 to 599",
		whole(`,"receipt":{"status":"201"}`):                                                                "not the JSON",
		whole(`,"receipt":{"status":204,"body":"x"}`):                                                       "no body",
		whole(`,"receipt":{"body":"x","body_base64":"eA=="}`):                                               "not both",
		whole(`,"receipt":{"body_base64":"%%"}`):                                                            "base64",
		whole(`,"note":"` + strings.Repeat("n", 4097) + `"`):                                                "4096",
		`{"run":"ticket-77","turn":"3","call":"a","decision":"applied"}`:                                    "actor",
		`{"run":"r","turn":"3","call":"a","decision":"done","actor":"a"}`:                                   `"done"`,
		`{"run":"r","turn":"3","call":"a","actor":"a"}`:                                                     "applied, not_applied, abandon or recheck",
		`{"run":"r","turn":"3","call":"a","decision":"abandon","actor":" "}`:                                "actor",
		`{"run":"r","turn":"3","call":"a","decision":"abandon","actor":"` + strings.Repeat("a", 513) + `"}`: "512",
		`{"run":"r","turn":"3","call":"a","decision":"abandon","actor":"a","receipt":{}}`:                   "only with",
		whole(`,"receipt":{"body":"` + "\xff" + `"}`):                                                       "body_base64",
	} {
		wantProblem(t, b.do("POST", "/api/v1/calls/resolve", body), InvalidRequest, says)
	}
	wantProblem(t, b.do("POST", "/api/v1/calls/resolve", `{"turn":"3","call":"a","decision":"abandon","actor":"a"}`), InvalidKey, "run")
	wantProblem(t, b.do("POST", "/api/v1/calls/resolve", `{"run":"r","turn":"3","call":"`+strings.Repeat("c", 257)+`","decision":"abandon","actor":"a"}`), InvalidKey, "256")
	for _, body := range []string{
		whole(`,"receipt":{"body":"` + strings.Repeat("x", ReceiptBytesMax+1) + `"}`),
		whole(`,"receipt":{"body":"` + strings.Repeat("x", orderBytesMax) + `"}`),
		whole(`,"receipt":{"headers":{"a":"` + strings.Repeat("x", headerBytesMax) + `"}}`),
		whole(`,"receipt":{"headers":{"a":["` + strings.Repeat(`x","`, receiptHeadersMax) + `x"]}}`),
	} {
		wantProblem(t, b.do("POST", "/api/v1/calls/resolve", body), InputTooLarge, "at most")
	}
	if c := decode[view.Call](t, b.get(CallPath(key("a")))); c.State != "unknown" || len(c.History) != 1 {
		t.Errorf("a mistake moved the call to %s: %+v", c.State, c.History)
	}
}

// A decision whose answer was lost on its way through the store is asked again,
// and is there once.
func TestDecisionSurvivesALostAcknowledgement(t *testing.T) {
	b := newBench(t, nil)
	b.lose(key("a"))
	b.disk.Fail(storetest.Fault{Op: storetest.Apply, Moment: storetest.AfterDurable})
	wantProblem(t, b.resolve("a", "applied", `,"receipt":{"body":"x"}`), JournalUnavailable, "again")
	if a := b.resolve("a", "applied", `,"receipt":{"body":"x"}`); a.status != 200 || decode[view.Call](t, a).State != "succeeded" {
		t.Errorf("%d %s", a.status, a.body)
	}
	b.lose(key("b"))
	b.disk.Fail(storetest.Fault{Op: storetest.Apply})
	wantProblem(t, b.resolve("b", "abandon", ""), JournalUnavailable, "again")
	if c := decode[view.Call](t, b.get(CallPath(key("b")))); c.State != "unknown" {
		t.Errorf("state %s", c.State)
	}
}

// The whole way on the store that is shipped: lost, seen, decided, and still so
// in the next life.
func TestDecisionOnBadger(t *testing.T) {
	dir, k := t.TempDir(), key("a")
	inLife := func(name string, do func(b *bench)) {
		t.Run(name, func(t *testing.T) {
			b := &bench{t: t, clock: storetest.NewClock(), log: &lockedBuffer{}}
			store, err := badger.Open(t.Context(), badger.Config{Dir: dir, ReserveBytes: -1})
			if err != nil {
				t.Fatal(err)
			}
			b.open(store, nil)
			do(b)
		})
	}
	inLife("first", func(b *bench) {
		b.lose(k)
		queue := decode[view.List[*view.Call]](t, b.get("/api/v1/unknown"))
		if len(queue.Items) != 1 || queue.Items[0].Reason == "" || queue.Items[0].Since.IsZero() {
			t.Errorf("queue %+v", queue)
		}
		if a := b.resolve("a", "applied", `,"receipt":{"status":201,"body":"{}"}`); a.status != 200 {
			t.Errorf("%d %s", a.status, a.body)
		}
	})
	inLife("second", func(b *bench) {
		if status, _, body := b.receiptOf(k); status != 201 || body != "{}" {
			t.Errorf("kept %d %q", status, body)
		}
		if a := b.resolve("a", "applied", `,"receipt":{"status":201,"body":"{}"}`); a.status != 200 {
			t.Errorf("again: %d %s", a.status, a.body)
		}
		wantProblem(t, b.resolve("a", "not_applied", ""), NotUnknown, "succeeded")
		if queue := decode[view.List[*view.Call]](t, b.get("/api/v1/unknown")); len(queue.Items) != 0 {
			t.Errorf("queue %+v", queue)
		}
	})
}

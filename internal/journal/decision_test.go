package journal

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"counterfoil/classify"
	"counterfoil/keystore"
	"counterfoil/keystore/storetest"
	"counterfoil/providers"
	"counterfoil/providers/llm"
)

// chat is a model's answer that calls those tools.
func chat(calls ...string) script {
	list := make([]string, len(calls))
	for i, id := range calls {
		list[i] = fmt.Sprintf(`{"id":%q,"type":"function","function":{"name":"refund","arguments":"{\"n\":1}"}}`, id)
	}
	return answers(200, fmt.Sprintf(`{"object":"chat.completion","choices":[{"index":0,"finish_reason":"tool_calls","message":{"role":"assistant","tool_calls":[%s]}}],"usage":{"prompt_tokens":20,"completion_tokens":9}}`,
		strings.Join(list, ",")), classify.Field{Name: "Content-Type", Value: "application/json"})
}

func newModelBench(t *testing.T, steps ...script) *bench {
	t.Helper()
	b := newBench(t, newProvider(steps...), "")
	b.upstream.Adapter = (&providers.Adapter{Dialects: []string{"llm"}}).For(providers.Dialects{"llm": llm.New}, providers.Settings{})
	return b
}

func question(id, turn string) *Call {
	c := call(id)
	c.Key.Turn = turn
	c.Request.Target = "/v1/chat/completions"
	c.Request.Body = fmt.Appendf(nil, `{"model":"m","messages":[{"role":"user","content":%q}]}`, id)
	return c
}

// plans are the calls that the plan of a turn names; nil where it has none.
func (b *bench) plans(turn string) (names []string) {
	b.t.Helper()
	p, err := b.store.Plan(context.Background(), "default", "r", turn)
	if err != nil {
		return nil
	}
	for i := range p.Calls {
		names = append(names, p.Calls[i].ID)
	}
	return names
}

func (b *bench) wantPlan(turn string, want ...string) {
	b.t.Helper()
	if got := b.plans(turn); !slices.Equal(got, want) {
		b.t.Errorf("the plan of turn %s names %q, want %q", turn, got, want)
	}
}

// A model's answer leaves its turn's plan and its cost on record; effects of the
// turn have to be among what it has decided.
func TestAModelsAnswerIsThePlan(t *testing.T) {
	b := newModelBench(t, chat("call_a"), chat("call_b", "call_a"), chat("other"))
	if r := b.do(question("ask", "1")); r.Outcome != Executed || *r.Record.Receipt.Usage != (keystore.Usage{Input: 20, Output: 9}) {
		t.Fatalf("got %+v", r)
	}
	b.wantPlan("1", "call_a")
	b.do(question("ask again", "1"))
	b.wantPlan("1", "call_a", "call_b")
	b.do(question("elsewhere", keystore.NoPart))
	b.wantPlan(keystore.NoPart)
	b.crash()
	b.wantPlan("1", "call_a", "call_b")
	wantProblem(t, b.do(call("call_c")), NotInPlan)
	if r := b.do(call("call_b")); r.Refusal != nil {
		t.Errorf("a call of the plan: %+v", r.Refusal)
	}
}

func TestPlansAreReadAsConfigured(t *testing.T) {
	for reading, want := range map[PlanReading]Problem{EnforcePlans: NotInPlan, RecordPlans: "", IgnorePlans: ""} {
		b := newModelBench(t, chat("call_a"))
		b.upstream.Plans = reading
		b.do(question("ask", "1"))
		if has := b.plans("1") != nil; has != (reading != IgnorePlans) {
			t.Errorf("%d: a plan: %t", reading, has)
		}
		if got := problem(b.do(call("call_c"))); got != want {
			t.Errorf("%d: got %q, want %q", reading, got, want)
		}
	}
}

// What an agent says of its turn itself stands, and nothing is refused for it.
func TestAnAgentsOwnPlanStands(t *testing.T) {
	b := newModelBench(t, chat("call_a"))
	p := &keystore.Plan{Namespace: "default", Run: "r", Turn: "1", Calls: []keystore.PlannedCall{{ID: "mine"}}}
	if err := p.SetDigest(); err != nil {
		t.Fatal(err)
	}
	if _, err := b.store.PutPlan(context.Background(), p, keystore.Guard{}); err != nil {
		t.Fatal(err)
	}
	var told []string
	b.journal.observe.Trouble = func(what string, _ keystore.Key, _ error) { told = append(told, what) }
	if r := b.do(question("ask", "1")); r.Outcome != Executed {
		t.Fatalf("got %+v", r)
	}
	b.wantPlan("1", "mine")
	if len(told) != 1 {
		t.Errorf("told %q", told)
	}
}

// An answer that was kept before plans were read gets its plan before it is given
// again; where that cannot be, the answer waits.
func TestAReplayBringsTheMissingPlan(t *testing.T) {
	b := newModelBench(t, chat("call_a"))
	b.upstream.Plans = IgnorePlans
	b.do(question("ask", "1"))
	b.upstream.Plans = EnforcePlans
	b.wantPlan("1")
	b.disk.Fail(storetest.Fault{Op: storetest.PutPlan})
	wantProblem(t, b.do(question("ask", "1")), JournalUnavailable)
	if r := b.do(question("ask", "1")); r.Outcome != Replayed {
		t.Fatalf("got %+v", r)
	}
	b.wantPlan("1", "call_a")
	b.want(1, 0)
}

// A store that fails costs neither the receipt nor the plan, and the model is not
// asked again.
func TestAPlanNeverCostsTheReceipt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newModelBench(t, chat("call_a"))
		b.disk.Fail(storetest.Fault{Op: storetest.Apply})
		wantProblem(t, b.do(question("ask", "1")), JournalUnavailable)
		if r := b.do(question("ask", "1")); r.Refusal != nil || r.Status != 200 {
			t.Fatalf("got %+v", r)
		}
		b.wantPlan("1", "call_a")
		b.want(1, 0)
	})
}

const listed = `
- name: create
  when: {method: [POST]}
  class: effect
  marker: {place: json, name: /cf}
  quiesce: 0s
  lookup:
    request: "GET /effects"
    match: '[.items[] | select(.cf == $marker)]'
    response: {status: 201, body: "."}
    paging: {next: .next, param: after, max_pages: 3}
    consistency: {kind: strong}
`

// A lookup goes on page by page, in bounds; two effects are success and an alarm;
// what cannot be judged is a person's, and nothing is sent.
func TestLookupsPageByPage(t *testing.T) {
	marker := string(call("c").Key.ProviderKey())
	hit := fmt.Sprintf(`{"id":1,"cf":%q}`, marker)
	for _, tc := range []struct {
		name   string
		pages  []string
		asked  int
		state  keystore.State
		alarms int
	}{
		{"on the second", []string{`{"items":[],"next":"b"}`, `{"items":[` + hit + `]}`}, 2, keystore.Succeeded, 0},
		{"twice", []string{`{"items":[` + hit + `,` + hit + `]}`}, 1, keystore.Succeeded, 1},
		{"beyond the last page that is asked for", []string{`{"items":[],"next":"b"}`, `{"items":[],"next":"c"}`, `{"items":[],"next":"d"}`}, 3, keystore.Unknown, 0},
		{"a program that fails", []string{`{"items":7}`}, 1, keystore.Unknown, 0},
	} {
		synctest.Test(t, func(t *testing.T) {
			p := newProvider(loses(true))
			p.lookup = func(p *provider, _ *classify.Request) *classify.Response {
				return respond(200, tc.pages[min(p.asked, len(tc.pages))-1])
			}
			b := newBench(t, p, listed)
			alarms := 0
			b.journal.observe.Alarm = func(Alarm) { alarms++ }
			b.do(call("c"))
			if b.state("c") != tc.state || p.asked != tc.asked || alarms != tc.alarms {
				t.Errorf("%s: %s after %d questions and %d alarms", tc.name, b.state("c"), p.asked, alarms)
			}
			b.crash()
			b.do(call("c"))
			b.want(1, 1)
		})
	}
}

// A canary that is refused, by status or in a 200, turns lookups off; one that
// shows nothing leaves them on.
func TestCanary(t *testing.T) {
	const operations = listed + `
- name: me
  when: {method: [GET], path: /me}
  class: read
  errors: [{status: [200], json: ".ok == false", outcome: not_applied}]
`
	for _, tc := range []struct {
		answer           script
		refused, unclear bool
	}{
		{answers(200, `{}`), false, false},
		{answers(200, `{"ok":false}`), true, false},
		{answers(401, `{}`), true, false},
		{answers(302, ``), true, false},
		{answers(503, ``), false, true},
		{answers(429, ``), false, true},
		{loses(false), false, true},
	} {
		p := newProvider(loses(true))
		p.lookup = tc.answer
		b := newBench(t, p, operations)
		b.upstream.Canary, b.upstream.Auth = "GET /me", classify.Field{Name: "Authorization", Value: "Bearer OWN"}
		got := b.journal.CheckLookups(context.Background())
		if len(got) != 1 || (got[0].Refused != "") != tc.refused || (got[0].Unclear != "") != tc.unclear {
			t.Fatalf("got %+v, want %+v", got, tc)
		}
		if !tc.refused {
			continue
		}
		wantProblem(t, b.do(call("c")), UnknownOutcome)
		r, err := b.store.Call(context.Background(), call("c").Key)
		if err != nil || !strings.Contains(r.History[len(r.History)-1].Note, "lookups of upstream p are off") || p.asked != 1 {
			t.Errorf("asked %d times: %+v, %v", p.asked, r, err)
		}
	}
}

package journal

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	"go.yaml.in/yaml/v3"

	"counterfoil/classify"
	"counterfoil/keystore"
	"counterfoil/keystore/storetest"
	"counterfoil/providers"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A script says what the provider does with one request: whether the effect
// comes about, and what comes back.
type script func(p *provider, r *classify.Request) *classify.Response

// A provider keeps a ledger of its effects by key, and follows a script request
// by request; the last step goes on for ever.
type provider struct {
	mu     sync.Mutex
	steps  []script
	hits   int
	ledger map[string]int
	seen   []classify.Request
	lookup script
	asked  int
}

func newProvider(steps ...script) *provider {
	return &provider{steps: steps, ledger: map[string]int{}}
}

func (p *provider) Send(_ context.Context, r *classify.Request) *classify.Response {
	p.mu.Lock()
	step := p.steps[min(p.hits, len(p.steps)-1)]
	p.hits++
	p.seen = append(p.seen, *r)
	p.mu.Unlock()
	return step(p, r)
}

// A finder answers the lookups of a provider.
type finder struct{ *provider }

func (f finder) Send(_ context.Context, r *classify.Request) *classify.Response {
	f.mu.Lock()
	f.asked++
	f.mu.Unlock()
	return f.lookup(f.provider, r)
}

func (p *provider) commit(r *classify.Request) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ledger[r.Header.Value("Idempotency-Key")]++
}

func (p *provider) effects() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := 0
	for _, count := range p.ledger {
		n += count
	}
	return n
}

func (p *provider) hitCount() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.hits
}

func respond(status int, body string, header ...classify.Field) *classify.Response {
	return &classify.Response{
		Evidence: classify.Answered, Status: status, Header: header, Length: int64(len(body)),
		Body: io.NopCloser(strings.NewReader(body)),
	}
}

func answers(status int, body string, header ...classify.Field) script {
	return func(*provider, *classify.Request) *classify.Response { return respond(status, body, header...) }
}

func commits(status int, body string, header ...classify.Field) script {
	return func(p *provider, r *classify.Request) *classify.Response {
		p.commit(r)
		return respond(status, body, header...)
	}
}

// commitsOnce deduplicates by key, as a keyed provider does.
func commitsOnce(status int, body string) script {
	return func(p *provider, r *classify.Request) *classify.Response {
		if p.effects() == 0 {
			p.commit(r)
		}
		return respond(status, body)
	}
}

func loses(commit bool) script {
	return func(p *provider, r *classify.Request) *classify.Response {
		if commit {
			p.commit(r)
		}
		return &classify.Response{Evidence: classify.Lost, Reason: "the connection was reset"}
	}
}

func unsent(*provider, *classify.Request) *classify.Response {
	return &classify.Response{Evidence: classify.Unsent, Reason: "connection refused"}
}

// A bench is a journal over a store that can crash.
type bench struct {
	t        *testing.T
	disk     *storetest.Disk
	store    *storetest.Memory
	journal  *Journal
	upstream *Upstream
	provider *provider
	lines    []Line
	settled  []Settlement
	mu       sync.Mutex
	// now is the clock of store and journal.
	now func() time.Time
}

func newBench(t *testing.T, p *provider, operations string) *bench {
	t.Helper()
	return newBenchAt(t, p, operations, time.Now)
}

func newBenchAt(t *testing.T, p *provider, operations string, now func() time.Time) *bench {
	t.Helper()
	secrets, err := classify.NewSecrets(nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	b := &bench{t: t, now: now, disk: storetest.NewDisk(), provider: p, upstream: &Upstream{
		Name: "p", Origin: "http://p.test", Sender: p, Finder: finder{p}, Secrets: secrets, PauseOnUnknown: true,
	}}
	if operations != "" {
		var doc yaml.Node
		if err := yaml.Unmarshal([]byte(operations), &doc); err != nil {
			t.Fatal(err)
		}
		if b.upstream.Adapter, err = providers.Parse(providers.Position{Source: "test"}, doc.Content[0]); err != nil {
			t.Fatal(err)
		}
	}
	b.open()
	t.Cleanup(func() { b.close() })
	return b
}

func (b *bench) open() {
	b.t.Helper()
	store, err := storetest.OpenMemory(b.disk, b.now)
	if err != nil {
		b.t.Fatal(err)
	}
	b.store = store
	if b.journal, err = New(Config{Store: store, Now: b.now, Upstreams: []*Upstream{b.upstream}, Observer: Observer{Done: func(l Line) {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.lines = append(b.lines, l)
	}, Settled: func(s Settlement) {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.settled = append(b.settled, s)
	}}}); err != nil {
		b.t.Fatal(err)
	}
}

func (b *bench) close() {
	b.journal.Close()
	_ = b.store.Close() // it may have crashed
}

// crash loses what was not synced, and starts a new life.
func (b *bench) crash() {
	b.store.Crash()
	b.journal.Close()
	b.open()
}

func call(id string) *Call {
	return &Call{
		Key: keystore.Key{Namespace: "default", Run: "r", Turn: "1", Call: id},
		Request: classify.Request{
			Upstream: "p", Method: "POST", Target: "/charges",
			Header: classify.Header{{Name: "Content-Type", Value: "application/json"}, {Name: "Authorization", Value: "Bearer T1"}},
			Body:   []byte(`{"amount":100}`),
		},
		Wait: time.Minute,
	}
}

func (b *bench) do(c *Call) *Reply { return b.journal.Do(context.Background(), c, nil) }

func (b *bench) state(id string) keystore.State {
	b.t.Helper()
	r, err := b.store.Call(context.Background(), call(id).Key)
	if errors.Is(err, keystore.ErrNotFound) {
		return keystore.None
	}
	if err != nil {
		b.t.Fatal(err)
	}
	return r.State
}

func problem(r *Reply) Problem {
	if r.Refusal == nil {
		return ""
	}
	return r.Refusal.Problem
}

func wantReply(t *testing.T, r *Reply, outcome Outcome, status int, body string) {
	t.Helper()
	if r.Refusal != nil {
		t.Fatalf("refused as %s (%s), want %s", r.Refusal.Problem, r.Refusal.Detail, outcome)
	}
	if r.Outcome != outcome || r.Status != status || string(r.Bytes) != body {
		t.Fatalf("got %s %d %q, want %s %d %q", r.Outcome, r.Status, r.Bytes, outcome, status, body)
	}
}

func wantProblem(t *testing.T, r *Reply, want Problem) {
	t.Helper()
	if got := problem(r); got != want {
		t.Fatalf("got %s %q, want problem %s", r.Outcome, got, want)
	}
}

func (b *bench) want(hits, effects int) {
	b.t.Helper()
	if got := b.provider.hitCount(); got != hits {
		b.t.Errorf("hits = %d, want %d", got, hits)
	}
	if got := b.provider.effects(); got != effects {
		b.t.Errorf("effects = %d, want %d", got, effects)
	}
}

const lookupOperation = `
- name: create
  when: {method: [POST]}
  class: effect
  lookup:
    request: "GET /effects/{key}"
    found: ".id != null"
    response: {status: 201, body: "."}
    not_found: {status: [404]}
    consistency: {kind: strong}
`

const keyedOperation = `
- name: create
  when: {method: [POST]}
  class: keyed
  guarantee: {retention: 24h}
`

func TestExecutedThenReplayed(t *testing.T) {
	b := newBench(t, newProvider(commits(201, `{"id":1}`, classify.Field{Name: "X-A", Value: "1"})), "")
	wantReply(t, b.do(call("c")), Executed, 201, `{"id":1}`)
	second := b.do(call("c"))
	wantReply(t, second, Replayed, 201, `{"id":1}`)
	if second.Header.Value("X-A") != "1" {
		t.Errorf("replayed header = %v", second.Header)
	}
	b.crash()
	wantReply(t, b.do(call("c")), Replayed, 201, `{"id":1}`)
	b.want(1, 1)
}

func TestC02_LostAnswerIsLookedUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newProvider(loses(true))
		p.lookup = answers(200, `{"id":"e-1"}`)
		b := newBench(t, p, lookupOperation)
		wantReply(t, b.do(call("c")), Recovered, 201, `{"id":"e-1"}`)
		wantReply(t, b.do(call("c")), Replayed, 201, `{"id":"e-1"}`)
		b.want(1, 1)
	})
}

func TestC02_WithoutLookupItStaysUnknown(t *testing.T) {
	b := newBench(t, newProvider(loses(true)), "")
	for range 4 {
		reply := b.do(call("c"))
		wantProblem(t, reply, UnknownOutcome)
		if reply.Outcome != OutcomeUnknown || !reply.Refusal.EffectPossible {
			t.Errorf("reply = %+v", reply)
		}
	}
	b.want(1, 1)
}

// What is unknown says which piece of configuration would have helped.
func TestUnknownSaysWhatIsMissing(t *testing.T) {
	const never = "- name: create\n  when: {method: [POST], path: /v1/charges}\n  class: effect\n"
	for _, tc := range []struct {
		operations string
		change     func(*Call)
		want       string
	}{
		{"", nil, "upstream p has no operations"},
		{never, nil, "no operation of upstream p matches this POST"},
		{"- name: create\n  class: effect\n", nil, "operation create declares no lookup"},
		{"- {name: pay, class: keyed, guarantee: {retention: 1h}, recover: []}", nil, "operation pay says that nothing is to be tried"},
		{lookupOperation, func(c *Call) { c.Request.Target = "/charges/;a" }, "more than one way"},
		{lookupOperation, func(c *Call) {
			c.Request.Header = c.Request.Header.Set("X-HTTP-Method-Override", "PATCH")
		}, "a header asks for another method"},
	} {
		b := newBench(t, newProvider(loses(true)), tc.operations)
		c := call("c")
		if tc.change != nil {
			tc.change(c)
		}
		wantProblem(t, b.do(c), UnknownOutcome)
		r, err := b.store.Call(context.Background(), c.Key)
		if err != nil {
			t.Fatal(err)
		}
		if got := r.History[len(r.History)-1].Note; !strings.Contains(got, tc.want) {
			t.Errorf("got %q, want %q", got, tc.want)
		}
	}
}

func TestC15_FivehundredsAreUnknownNotFailed(t *testing.T) {
	for _, status := range []int{500, 502, 504} {
		b := newBench(t, newProvider(commits(status, "oops")), "")
		for range 4 {
			reply := b.do(call("c"))
			wantProblem(t, reply, UnknownOutcome)
			if reply.Refusal.UpstreamStatus != status {
				t.Errorf("upstream status = %d, want %d", reply.Refusal.UpstreamStatus, status)
			}
		}
		b.want(1, 1)
	}
}

func TestUnknownPausesTheRunsEffectsOnly(t *testing.T) {
	b := newBench(t, newProvider(commits(201, "{}"), loses(true), commits(201, "{}")), "")
	wantReply(t, b.do(call("a")), Executed, 201, "{}")
	wantProblem(t, b.do(call("b")), UnknownOutcome)
	wantProblem(t, b.do(call("c")), RunPaused)
	wantReply(t, b.do(call("a")), Replayed, 201, "{}")
	other := call("c")
	other.Key.Run = "r2"
	wantReply(t, b.do(other), Executed, 201, "{}")
	b.want(3, 3)
}

func TestKeyedIsResentWithTheSameKeyAndBytes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newProvider(loses(true), commitsOnce(201, `{"id":1}`))
		b := newBench(t, p, keyedOperation)
		c := call("c")
		c.Request.Body = []byte(`{"amount": 100}`)
		wantReply(t, b.do(c), Recovered, 201, `{"id":1}`)
		b.want(2, 1)
		if !bytes.Equal(p.seen[0].Body, p.seen[1].Body) {
			t.Errorf("second sending differs: %q, %q", p.seen[0].Body, p.seen[1].Body)
		}
		for _, name := range []string{"Idempotency-Key", "Authorization", "Content-Type"} {
			if p.seen[0].Header.Value(name) != p.seen[1].Header.Value(name) {
				t.Errorf("%s differs between the sendings", name)
			}
		}
	})
}

func TestKeyedAfterACrashSendsTheRecordedBytes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newProvider(loses(true), commitsOnce(201, `{"id":1}`))
		b := newBench(t, p, keyedOperation)
		b.disk.Fail(storetest.Fault{Op: storetest.Apply, Course: storetest.Deadly})
		wantProblem(t, b.do(call("c")), JournalUnavailable)
		b.crash()
		again := call("c")
		again.Request.Body = []byte(`{ "amount": 1e2 }`)
		wantReply(t, b.do(again), Recovered, 201, `{"id":1}`)
		b.want(2, 1)
		if got := string(p.seen[1].Body); got != `{"amount":100}` {
			t.Errorf("resent %q, want the recorded bytes", got)
		}
	})
}

func TestKeyedIsNotResentPastItsRetentionOrForAnother(t *testing.T) {
	t.Run("retention", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			b := newBench(t, newProvider(loses(true)), keyedOperation)
			b.disk.Fail(storetest.Fault{Op: storetest.Apply, Course: storetest.Deadly})
			b.do(call("c"))
			time.Sleep(23 * time.Hour)
			b.crash()
			wantProblem(t, b.do(call("c")), UnknownOutcome)
			b.want(1, 1)
		})
	})
	t.Run("credential", func(t *testing.T) {
		b := newBench(t, newProvider(loses(true)), keyedOperation)
		b.disk.Fail(storetest.Fault{Op: storetest.Apply, Course: storetest.Deadly})
		b.do(call("c"))
		b.crash()
		other := call("c")
		other.Request.Header = other.Request.Header.Set("Authorization", "Bearer another account")
		stranger := b.do(other)
		wantProblem(t, stranger, InProgress)
		if !strings.Contains(stranger.Refusal.Detail, "credential") {
			t.Errorf("detail = %q", stranger.Refusal.Detail)
		}
		b.want(1, 1)
	})
	t.Run("credential, for long", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			b := newBench(t, newProvider(loses(true)), keyedOperation)
			b.disk.Fail(storetest.Fault{Op: storetest.Apply, Course: storetest.Deadly})
			b.do(call("c"))
			b.crash()
			time.Sleep(keystore.OtherAccountPatience)
			other := call("c")
			other.Request.Header = other.Request.Header.Set("Authorization", "Bearer another account")
			wantProblem(t, b.do(other), UnknownOutcome)
			b.want(1, 1)
		})
	})
	t.Run("a stranger does not end the recovery", func(t *testing.T) {
		p := newProvider(loses(true), commitsOnce(201, "{}"))
		b := newBench(t, p, keyedOperation)
		b.disk.Fail(storetest.Fault{Op: storetest.Apply, Course: storetest.Deadly})
		b.do(call("c"))
		b.crash()
		stranger := call("c")
		stranger.Request.Header = stranger.Request.Header.Set("Authorization", "Bearer stranger")
		wantProblem(t, b.do(stranger), InProgress)
		wantReply(t, b.do(call("c")), Recovered, 201, "{}")
		b.want(2, 1)
	})
}

func TestResendThatIsNotAppliedLeavesTheDoubt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newProvider(loses(true), answers(429, ""), unsent, unsent, unsent, commitsOnce(201, "{}"))
		b := newBench(t, p, keyedOperation)
		wantReply(t, b.do(call("c")), Recovered, 201, "{}")
		b.want(6, 1)
	})
}

func TestARejectionOfARepeatCountsOnlyWhereItSpeaksOfTheFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, newProvider(loses(true), answers(400, "closed already")), "")
		c := call("put")
		c.Request.Method, c.Wait = "PUT", 2*time.Second
		wantProblem(t, b.do(c), InProgress)
		if got := b.state("put"); got != keystore.InDoubt {
			t.Errorf("state = %s", got)
		}
		time.Sleep(keystore.IdempotentResendMax)
		wantProblem(t, b.do(c), UnknownOutcome)
	})
	b := newBench(t, newProvider(loses(false), answers(400, "bad")), keyedOperation)
	wantReply(t, b.do(call("post")), Recovered, 400, "bad")
}

func TestBindSharedLetsARefreshedTokenRecover(t *testing.T) {
	b := newBench(t, newProvider(loses(true), commitsOnce(201, "{}")), keyedOperation)
	b.upstream.Bind = BindShared
	b.disk.Fail(storetest.Fault{Op: storetest.Apply, Course: storetest.Deadly})
	b.do(call("c"))
	b.crash()
	refreshed := call("c")
	refreshed.Request.Header = refreshed.Request.Header.Set("Authorization", "Bearer T2")
	wantReply(t, b.do(refreshed), Recovered, 201, "{}")
	b.want(2, 1)
}

func TestAbsenceIsBelievedOnlyAfterQuiesce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newProvider(loses(false), commits(201, `{"id":1}`))
		p.lookup = answers(404, "{}")
		b := newBench(t, p, lookupOperation)
		began := time.Now()
		wantReply(t, b.do(call("c")), Executed, 201, `{"id":1}`)
		if took := time.Since(began); took < 30*time.Second {
			t.Errorf("sent again after %s, before the quiesce time was over", took)
		}
		b.want(2, 1)
	})
}

func TestAProviderIsTakenToBeAsSlowAsItsTimeOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newProvider(loses(false), commits(201, "{}"))
		p.lookup = answers(404, "")
		b := newBench(t, p, lookupOperation)
		b.upstream.FirstByte = 2 * time.Minute
		c := call("c")
		c.Wait = time.Minute
		wantProblem(t, b.do(c), InProgress)
		b.want(1, 0)
		time.Sleep(time.Minute)
		wantReply(t, b.do(c), Executed, 201, "{}")
		b.want(2, 1)
	})
}

func TestAbsenceThatNeedsLongerThanTheRequestWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newProvider(loses(true))
		p.lookup = answers(404, "{}")
		b := newBench(t, p, lookupOperation)
		c := call("c")
		c.Wait = 5 * time.Second
		reply := b.do(c)
		wantProblem(t, reply, InProgress)
		if after := reply.Refusal.RetryAfter; after < 29*time.Second || after > 31*time.Second {
			t.Errorf("Retry-After = %s", after)
		}
		if got := b.state("c"); got != keystore.InDoubt {
			t.Errorf("state = %s", got)
		}
		p.lookup = answers(200, `{"id":"late"}`)
		time.Sleep(31 * time.Second)
		wantReply(t, b.do(call("c")), Recovered, 201, `{"id":"late"}`)
		b.want(1, 1)
	})
}

func TestLookupThatIsForbiddenEndsInUnknown(t *testing.T) {
	p := newProvider(loses(true))
	p.lookup = answers(403, "{}")
	b := newBench(t, p, lookupOperation)
	wantProblem(t, b.do(call("c")), UnknownOutcome)
	b.want(1, 1)
}

func TestLookupThatFailsInPassingLeavesTheCallInDoubt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newProvider(loses(true))
		p.lookup = answers(503, "")
		b := newBench(t, p, lookupOperation)
		c := call("c")
		c.Wait = 3 * time.Second
		wantProblem(t, b.do(c), InProgress)
		p.lookup = answers(200, `{"id":1}`)
		wantReply(t, b.do(call("c")), Recovered, 201, `{"id":1}`)
		b.want(1, 1)
	})
}

func TestUnsentIsTriedAgainAndThenOpen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, newProvider(unsent, unsent, unsent, commits(201, "{}")), "")
		wantProblem(t, b.do(call("c")), UpstreamUnreachable)
		if got := b.state("c"); got != keystore.Open {
			t.Errorf("state = %s", got)
		}
		wantReply(t, b.do(call("c")), Executed, 201, "{}")
		b.want(4, 1)
	})
}

func TestC36_TransientFailureIsNotPinned(t *testing.T) {
	for _, tc := range []struct {
		name   string
		first  script
		status int
	}{
		{"429", answers(429, "slow down", classify.Field{Name: "Retry-After", Value: "1"}), 429},
		{"401", answers(401, "who?"), 401},
	} {
		t.Run(tc.name, func(t *testing.T) {
			b := newBench(t, newProvider(tc.first, commits(200, "{}")), "")
			if got := b.do(call("c")); got.Status != tc.status {
				t.Fatalf("status = %d", got.Status)
			}
			wantReply(t, b.do(call("c")), Executed, 200, "{}")
			wantReply(t, b.do(call("c")), Replayed, 200, "{}")
			b.want(2, 1)
		})
	}
	b := newBench(t, newProvider(answers(400, "bad")), "")
	wantReply(t, b.do(call("c")), Executed, 400, "bad")
	wantReply(t, b.do(call("c")), Replayed, 400, "bad")
	b.want(1, 0)
}

func TestC12_NoRetriesOfOurOwnOnAnAnswer(t *testing.T) {
	steps := make([]script, 0, 15)
	for range 14 {
		steps = append(steps, answers(503, ""))
	}
	b := newBench(t, newProvider(append(steps, commits(200, "{}"))...), "")
	b.upstream.Outcomes = classify.Outcomes{503: classify.NotApplied}
	for n := range 14 {
		if got := b.do(call("c")); got.Status != 503 || got.Attempts() != uint32(n+1) {
			t.Fatalf("send %d: status %d, attempts %d", n+1, got.Status, got.Attempts())
		}
	}
	wantReply(t, b.do(call("c")), Executed, 200, "{}")
	b.want(15, 1)
}

func TestKeyReusedNamesWhatDiffers(t *testing.T) {
	b := newBench(t, newProvider(commits(201, "{}")), "")
	b.do(call("c"))
	for _, tc := range []struct {
		differs string
		change  func(*Call)
	}{
		{"method", func(c *Call) { c.Request.Method = "PATCH" }},
		{"target", func(c *Call) { c.Request.Target = "/refunds" }},
		{"body", func(c *Call) { c.Request.Body = []byte(`{"amount":101}`) }},
	} {
		c := call("c")
		tc.change(c)
		reply := b.do(c)
		wantProblem(t, reply, KeyReused)
		if !strings.Contains(reply.Refusal.Detail, tc.differs) || strings.Contains(reply.Refusal.Detail, "101") {
			t.Errorf("detail = %q", reply.Refusal.Detail)
		}
	}
	b.want(1, 1)
}

func TestC39_MismatchWinsOverInProgress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		b := newBench(t, newProvider(func(p *provider, r *classify.Request) *classify.Response {
			p.commit(r)
			<-release
			return respond(201, "{}")
		}), "")
		first := make(chan *Reply)
		go func() { first <- b.do(call("c")) }()
		synctest.Wait()
		other := call("c")
		other.Request.Body = []byte(`{"amount":7}`)
		wantProblem(t, b.do(other), KeyReused)
		impatient := call("c")
		impatient.Wait = 0
		wantProblem(t, b.do(impatient), InProgress)
		close(release)
		wantReply(t, <-first, Executed, 201, "{}")
		wantProblem(t, b.do(other), KeyReused)
		b.want(1, 1)
	})
}

func TestC38_ManyAtOnceAreOneAttempt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, newProvider(func(p *provider, r *classify.Request) *classify.Response {
			p.commit(r)
			time.Sleep(300 * time.Millisecond)
			return respond(201, "{}")
		}), "")
		outcomes := make(chan Outcome, 100)
		for range 100 {
			go func() {
				reply := b.do(call("c"))
				if reply.Refusal != nil || string(reply.Bytes) != "{}" {
					t.Errorf("refused as %s, body %q", problem(reply), reply.Bytes)
				}
				outcomes <- reply.Outcome
			}()
		}
		count := map[Outcome]int{}
		for range 100 {
			count[<-outcomes]++
		}
		if count[Executed] != 1 || count[Coalesced] != 99 {
			t.Errorf("outcomes = %v", count)
		}
		b.want(1, 1)
	})
}

func TestAnAnswerThatIsNotKeptIsSharedByThoseWhoWaited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, newProvider(func(*provider, *classify.Request) *classify.Response {
			time.Sleep(1500 * time.Millisecond)
			return respond(429, "slow down")
		}), "")
		replies := make(chan *Reply, 10)
		for range 10 {
			go func() { replies <- b.do(call("c")) }()
		}
		for range 10 {
			if r := <-replies; r.Status != 429 {
				t.Errorf("status = %d", r.Status)
			}
		}
		b.want(1, 0)
	})
}

func TestC35_CredentialIsNoIdentityButMayBind(t *testing.T) {
	b := newBench(t, newProvider(
		answers(401, "", classify.Field{Name: "WWW-Authenticate", Value: "Bearer"}),
		commits(200, "secret answer", classify.Field{Name: "Set-Cookie", Value: "s=1"}),
	), "")
	b.upstream.Bind = BindSubject
	with := func(token string) *Call {
		c := call("c")
		c.Request.Header = c.Request.Header.Set("Authorization", "Bearer "+token)
		return c
	}
	const (
		t1 = "e30.eyJpc3MiOiJpIiwic3ViIjoiYSIsIm4iOjF9.x"
		t2 = "e30.eyJpc3MiOiJpIiwic3ViIjoiYSIsIm4iOjJ9.x"
		t3 = "e30.eyJpc3MiOiJpIiwic3ViIjoiYSIsIm4iOjN9.x"
		u1 = "e30.eyJpc3MiOiJpIiwic3ViIjoiYiJ9.x"
	)
	if r := b.do(with(t1)); r.Status != 401 || r.Header.Value("WWW-Authenticate") != "Bearer" {
		t.Fatalf("first reply = %d %v", r.Status, r.Header)
	}
	wantReply(t, b.do(with(t2)), Executed, 200, "secret answer")
	third := b.do(with(t3))
	wantReply(t, third, Replayed, 200, "secret answer")
	if third.Header.Has("Set-Cookie") {
		t.Error("Set-Cookie was replayed to another credential")
	}
	stranger := b.do(with(u1))
	wantProblem(t, stranger, PrincipalMismatch)
	if stranger.Record != nil || stranger.Bytes != nil {
		t.Error("a stranger was told of the record")
	}
	b.want(2, 1)
	if dump := fmt.Sprintf("%+v", b.disk.Record(call("c").Key)); strings.Contains(dump, t2) || strings.Contains(dump, "eyJ") {
		t.Error("a token is on record")
	}
}

func TestNothingIsSentWithoutADurableIntent(t *testing.T) {
	for _, moment := range []storetest.Moment{storetest.BeforeDurable, storetest.AfterDurable} {
		b := newBench(t, newProvider(commits(201, "{}")), "")
		b.disk.Fail(storetest.Fault{Op: storetest.Begin, Moment: moment})
		reply := b.do(call("c"))
		wantProblem(t, reply, JournalUnavailable)
		if reply.Refusal.EffectPossible {
			t.Error("the refusal says that an effect may exist")
		}
		b.want(0, 0)
		wantReply(t, b.do(call("c")), Executed, 201, "{}")
		b.want(1, 1)
	}
}

func TestAReceiptThatTheStoreRefusesIsKeptUntilItTakesIt(t *testing.T) {
	for _, moment := range []storetest.Moment{storetest.BeforeDurable, storetest.AfterDurable} {
		synctest.Test(t, func(t *testing.T) {
			b := newBench(t, newProvider(commits(201, `{"id":1}`)), "")
			b.disk.Fail(storetest.Fault{Op: storetest.Apply, Moment: moment})
			wantProblem(t, b.do(call("c")), JournalUnavailable)
			reply := b.do(call("c"))
			if reply.Refusal != nil || string(reply.Bytes) != `{"id":1}` {
				t.Errorf("refused as %s, body %q", problem(reply), reply.Bytes)
			}
			b.want(1, 1)
		})
	}
}

// A faulty store fails one Apply in another way than being unavailable: a
// block that could not be read just then.
type faulty struct {
	keystore.Store
	mu   sync.Mutex
	fail error
}

func (f *faulty) Apply(ctx context.Context, k keystore.Key, e keystore.Event, body []byte) (*keystore.Record, error) {
	f.mu.Lock()
	err := f.fail
	f.fail = nil
	f.mu.Unlock()
	if err != nil {
		return nil, err
	}
	return f.Store.Apply(ctx, k, e, body)
}

func TestAReceiptThatCouldNotBeWrittenIsNoSignThatNothingWasSent(t *testing.T) {
	for _, err := range []error{keystore.ErrCorrupt, keystore.ErrFull, errors.New("unheard of")} {
		synctest.Test(t, func(t *testing.T) {
			b := newBench(t, newProvider(commits(201, `{"id":1}`)), "")
			b.journal.store = &faulty{Store: b.store, fail: err}
			reply := b.do(call("c"))
			wantProblem(t, reply, JournalUnavailable)
			if !reply.Refusal.EffectPossible || strings.Contains(reply.Refusal.Detail, "nothing was sent.") {
				t.Errorf("the refusal says that there is no effect: %+v", *reply.Refusal)
			}
			wantReply(t, b.do(call("c")), Coalesced, 201, `{"id":1}`)
			b.want(1, 1)
		})
	}
}

func TestAStagedBodyThatIsGoneLeavesTheReceipt(t *testing.T) {
	for _, err := range []error{keystore.ErrNotFound, keystore.ErrTooLarge} {
		b := newBench(t, newProvider(commits(201, strings.Repeat("x", WholeMax+1))), "")
		b.journal.store = &faulty{Store: b.store, fail: err}
		b.do(call("c"))
		wantProblem(t, b.do(call("c")), BodyNotKept)
		b.want(1, 1)
	}
}

func TestEveryStoreFaultInTurn(t *testing.T) {
	for _, course := range []storetest.Course{storetest.Once, storetest.Deadly} {
		for _, moment := range []storetest.Moment{storetest.BeforeDurable, storetest.AfterDurable} {
			for nth := 1; ; nth++ {
				struck := false
				synctest.Test(t, func(t *testing.T) {
					p := newProvider(loses(true))
					p.lookup = answers(200, `{"id":1}`)
					b := newBench(t, p, lookupOperation)
					armed := b.disk.Fail(storetest.Fault{Nth: nth, Moment: moment, Course: course})
					for range 5 {
						reply := b.do(call("c"))
						if reply.Refusal == nil {
							break
						}
						if course == storetest.Deadly && armed.Struck() > 0 {
							b.crash()
						}
						time.Sleep(time.Second)
					}
					b.disk.Heal()
					if got := b.state("c"); got != keystore.Succeeded {
						t.Errorf("course %d, moment %d, fault %d: state %s", course, moment, nth, got)
					}
					if n := b.provider.effects(); n > 1 {
						t.Errorf("course %d, moment %d, fault %d: %d effects", course, moment, nth, n)
					}
					struck = armed.Struck() > 0
				})
				if !struck {
					break
				}
			}
		}
	}
}

// A recorder is an agent's end of a stream.
type recorder struct {
	head  *Reply
	bytes bytes.Buffer
	fail  bool
}

func (r *recorder) Head(h *Reply) { r.head = h }
func (r *recorder) Write(p []byte) error {
	if r.fail {
		return errors.New("gone")
	}
	r.bytes.Write(p)
	return nil
}

// pieces is a body that comes piece by piece and ends as told.
type pieces struct {
	list []string
	end  error
}

func (p *pieces) Read(b []byte) (int, error) {
	if len(p.list) == 0 {
		return 0, p.end
	}
	n := copy(b, p.list[0])
	p.list = p.list[1:]
	return n, nil
}
func (p *pieces) Close() error { return nil }

func streams(end error, list ...string) script {
	return func(p *provider, r *classify.Request) *classify.Response {
		p.commit(r)
		return &classify.Response{Evidence: classify.Answered, Status: 200, Length: -1, Body: &pieces{list: list, end: end}}
	}
}

func TestC42_StreamIsPassedOnAndKept(t *testing.T) {
	b := newBench(t, newProvider(streams(io.EOF, "data: 1\n\n", "data: 2\n\n")), "")
	agent := &recorder{}
	reply := b.journal.Do(context.Background(), call("c"), agent)
	if !reply.Streamed || reply.Broken || agent.bytes.String() != "data: 1\n\ndata: 2\n\n" || agent.head.Outcome != Executed {
		t.Fatalf("reply %+v, got %q", reply, agent.bytes.String())
	}
	wantReply(t, b.do(call("c")), Replayed, 200, "data: 1\n\ndata: 2\n\n")
	b.want(1, 1)
}

func TestC64_CutStreamIsNoReceipt(t *testing.T) {
	b := newBench(t, newProvider(streams(io.ErrUnexpectedEOF, "data: 1\n\n")), "")
	agent := &recorder{}
	reply := b.journal.Do(context.Background(), call("c"), agent)
	if !reply.Streamed || !reply.Broken {
		t.Fatalf("reply %+v", reply)
	}
	wantProblem(t, b.do(call("c")), UnknownOutcome)
	b.want(1, 1)
}

func TestC74_AgentThatLeavesDoesNotCancel(t *testing.T) {
	b := newBench(t, newProvider(streams(io.EOF, "one ", "two")), "")
	b.journal.Do(context.Background(), call("c"), &recorder{fail: true})
	wantReply(t, b.do(call("c")), Replayed, 200, "one two")
	b.want(1, 1)
}

func TestC41_LargeAnswers(t *testing.T) {
	for _, size := range []int{WholeMax - 1, WholeMax, WholeMax + 1, 5 << 20} {
		body := strings.Repeat("x", size)
		b := newBench(t, newProvider(commits(201, body)), "")
		read := func(r *Reply) string {
			if r.Bytes != nil || r.Body.Bytes == 0 {
				return string(r.Bytes)
			}
			var got bytes.Buffer
			if err := b.journal.ReadBody(context.Background(), r.Body, func(p []byte) error { got.Write(p); return nil }); err != nil {
				t.Fatal(err)
			}
			return got.String()
		}
		agent := &recorder{}
		first := b.journal.Do(context.Background(), call("c"), agent)
		got := agent.bytes.String()
		if !first.Streamed {
			got = read(first)
		}
		if got != body {
			t.Errorf("size %d: first answer has %d bytes", size, len(got))
		}
		b.crash()
		if got := read(b.do(call("c"))); got != body {
			t.Errorf("size %d: replay has %d bytes", size, len(got))
		}
		b.want(1, 1)
	}
}

func TestC41_AnAnswerTooLargeToKeepIsSucceededWithoutItsBody(t *testing.T) {
	b := newBench(t, newProvider(func(p *provider, r *classify.Request) *classify.Response {
		p.commit(r)
		return &classify.Response{Evidence: classify.Answered, Status: 201, Length: -1, Body: io.NopCloser(io.LimitReader(zeros{}, KeptMax+1))}
	}), "")
	agent := &counter{}
	if r := b.journal.Do(context.Background(), call("c"), agent); r.Broken || agent.n != KeptMax+1 {
		t.Fatalf("broken %v, %d bytes", r.Broken, agent.n)
	}
	reply := b.do(call("c"))
	wantProblem(t, reply, BodyNotKept)
	if reply.Refusal.UpstreamStatus != 201 || reply.Record.Receipt.Body.Bytes != KeptMax+1 {
		t.Errorf("reply = %+v", reply.Record.Receipt)
	}
	b.want(1, 1)
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }

type counter struct{ n int }

func (*counter) Head(*Reply)            {}
func (c *counter) Write(p []byte) error { c.n += len(p); return nil }

func TestC70_ABodylessAnswerMayDeclareALength(t *testing.T) {
	b := newBench(t, newProvider(func(*provider, *classify.Request) *classify.Response {
		return &classify.Response{Evidence: classify.Answered, Status: 200, Length: 9757, Body: io.NopCloser(strings.NewReader(""))}
	}), "")
	c := call("c")
	c.Request.Method, c.Request.Body = "HEAD", nil
	wantReply(t, b.do(c), Executed, 200, "")
	wantReply(t, b.do(c), Replayed, 200, "")
}

func TestAnAnswerShorterOrLongerThanItsLengthIsLost(t *testing.T) {
	for _, body := range []string{"12", "12345"} {
		b := newBench(t, newProvider(func(p *provider, r *classify.Request) *classify.Response {
			p.commit(r)
			return &classify.Response{Evidence: classify.Answered, Status: 200, Length: 4, Body: io.NopCloser(strings.NewReader(body))}
		}), "")
		wantProblem(t, b.do(call("c")), UnknownOutcome)
		b.want(1, 1)
	}
}

func TestDrainRefusesNewCallsAndKeepsReceipts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, newProvider(func(p *provider, r *classify.Request) *classify.Response {
			p.commit(r)
			time.Sleep(5 * time.Second)
			return respond(201, "{}")
		}), "")
		first := make(chan *Reply)
		go func() { first <- b.do(call("a")) }()
		synctest.Wait()
		drained := make(chan error)
		go func() { drained <- b.journal.Drain(context.Background()) }()
		synctest.Wait()
		wantProblem(t, b.do(call("b")), Draining)
		wantReply(t, <-first, Executed, 201, "{}")
		if err := <-drained; err != nil {
			t.Error(err)
		}
		b.want(1, 1)
	})
}

func TestScanGivesUpWhatNobodyCanLearn(t *testing.T) {
	b := newBench(t, newProvider(loses(true)), "")
	b.disk.Fail(storetest.Fault{Op: storetest.Apply, Course: storetest.Deadly})
	b.do(call("c"))
	b.crash()
	if got := b.state("c"); got != keystore.InDoubt {
		t.Fatalf("state = %s", got)
	}
	if err := b.journal.Scan(context.Background()); err != nil {
		t.Fatal(err)
	}
	if got := b.state("c"); got != keystore.Unknown {
		t.Errorf("state = %s", got)
	}
	if len(b.settled) != 1 || b.settled[0].Key != call("c").Key || b.settled[0].To != keystore.Unknown || !strings.Contains(b.settled[0].Why, "has no operations") {
		t.Errorf("told of %+v", b.settled)
	}
}

func TestRecoveryWithoutItsAgentLooksUpButNeverSendsFresh(t *testing.T) {
	for _, tc := range []struct {
		name       string
		credential string
		lookup     script
		want       keystore.State
	}{
		{"found", "", answers(200, `{"id":1}`), keystore.Succeeded},
		{"absent", "", answers(404, ""), keystore.Open},
		{"absent on another account", "Bearer T1", answers(404, ""), keystore.InDoubt},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := newProvider(loses(true))
				p.lookup = tc.lookup
				b := newBench(t, p, lookupOperation)
				b.upstream.Auth = classify.Field{Name: "X-Key", Value: "own"}
				b.disk.Fail(storetest.Fault{Op: storetest.Apply, Course: storetest.Deadly})
				c := call("c")
				c.Request.Header = classify.Header{}
				if tc.credential != "" {
					c.Request.Header = classify.Header{{Name: "Authorization", Value: tc.credential}}
				}
				b.do(c)
				b.crash()
				ctx, cancel := context.WithCancel(context.Background())
				done := make(chan struct{})
				go func() { b.journal.Recover(ctx); close(done) }()
				time.Sleep(2 * time.Minute)
				synctest.Wait()
				cancel()
				<-done
				if got := b.state("c"); got != tc.want {
					t.Errorf("state = %s, want %s", got, tc.want)
				}
				told := 1
				if tc.want == keystore.InDoubt {
					told = 0 // nothing has changed
				}
				if len(b.settled) != told || told == 1 && (b.settled[0].To != tc.want || b.settled[0].Lookups == 0) {
					t.Errorf("told of %+v", b.settled)
				}
				b.want(1, 1)
			})
		})
	}
}

func TestOwnKeyGoesOnAsItCame(t *testing.T) {
	p := newProvider(commits(201, "{}"))
	b := newBench(t, p, "")
	c := call("c")
	c.OwnKey, c.OwnKeyRaw = "k1", `"k1"`
	reply := b.do(c)
	if got := p.seen[0].Header.Values("Idempotency-Key"); len(got) != 1 || got[0] != `"k1"` || reply.SentKey != "k1" {
		t.Errorf("sent %v, key %q", got, reply.SentKey)
	}
}

func TestSecretsOfTheQueryAreNotKept(t *testing.T) {
	p := newProvider(commits(201, "{}"))
	b := newBench(t, p, "")
	c := call("c")
	c.Request.Target = "/charges?access_token=hush&x=1"
	b.do(c)
	if p.seen[0].Target != c.Request.Target {
		t.Errorf("sent %q", p.seen[0].Target)
	}
	if got := b.disk.Record(c.Key).Intent.Target; strings.Contains(got, "hush") {
		t.Errorf("kept %q", got)
	}
	c.Request.Target = "/charges?access_token=fresh&x=1"
	wantReply(t, b.do(c), Replayed, 201, "{}")
}

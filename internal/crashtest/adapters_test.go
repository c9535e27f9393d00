package crashtest

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"

	"counterfoil/classify"
	"counterfoil/internal/crashpoint"
	"counterfoil/internal/fake"
	"counterfoil/providers"
	"counterfoil/providers/adapters"

	"github.com/itchyny/gojq"
)

// caseHeader tells a provider's requests apart: the sidecar passes it on, and
// it asks for lost effects with it too.
const caseHeader = "X-Case"

// A stand is one provider of the conformance run, and its part of what the
// agent sends.
type stand struct {
	*fake.Server
	spec fake.Spec
	// name is the upstream's.
	name string
}

// serveStand serves a spec under the name of an upstream. The script befalls the
// first request of each case.
func serveStand(t *testing.T, spec fake.Spec, name string, befalls fake.Move) *stand {
	t.Helper()
	var seen sync.Map
	server, err := fake.Serve(spec, func(r *http.Request, _ int) fake.Move {
		if _, again := seen.LoadOrStore(r.Header.Get(caseHeader), true); again {
			return fake.Answer
		}
		return befalls
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Close)
	for _, c := range spec.Cases {
		if c.Setup != nil {
			c.Setup(server.Ledger)
		}
	}
	return &stand{server, spec, name}
}

// A trace is what a provider has seen of one case.
type trace struct {
	// writes is how many requests for the effect came, reads how many others.
	writes, reads, effects int
	// answer is what the provider meant to answer first.
	answer string
}

func (s *stand) trace(i int) trace {
	var tr trace
	all, _ := s.Requests()
	for _, r := range all {
		if r.Header.Get(caseHeader) != fmt.Sprint(i) {
			continue
		}
		tr.effects += r.Effects
		if tr.writes > 0 && (r.IsRead || !strings.HasPrefix(r.Target, s.spec.Cases[i].Target)) {
			tr.reads++
			continue
		}
		if tr.writes++; tr.writes == 1 {
			tr.answer = r.Answer
		}
	}
	return tr
}

// awaitWrites waits until so many requests have had their effect.
func (s *stand) awaitWrites(t *testing.T, n int) {
	t.Helper()
	for {
		all, more := s.Requests()
		if len(all) >= n {
			return
		}
		await(t, fmt.Sprintf("%d of %d requests at %s", n-len(all), n, s.name), more)
	}
}

// catalogue is every built-in adapter.
func catalogue(t *testing.T) *adapters.Catalogue {
	t.Helper()
	c, err := adapters.Load()
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// bound is an adapter with the dialects that it reads content by; nil if there
// is none of the name.
func bound(t *testing.T, all *adapters.Catalogue, name string) *providers.Adapter {
	t.Helper()
	a, known := all.Named(name), dialects()
	if a == nil {
		return nil
	}
	for _, d := range a.Dialects {
		if known[d] == nil {
			t.Fatalf("%s: its dialect %s is not among those of this test", name, d)
		}
	}
	return a.For(known, providers.Settings{})
}

// operationOf is what the adapter says of a case. It fails the test unless that
// is what the case says.
func operationOf(t *testing.T, a *providers.Adapter, c fake.Case) *providers.Operation {
	t.Helper()
	rd, refusal := a.Read(requestOf(c, a.Name))
	if refusal != nil || rd.Operation == nil {
		t.Fatalf("%s: %s %s is no operation of the adapter (%+v)", c.Operation, c.Method, c.Target, refusal)
	}
	if rd.Operation.Name != c.Operation {
		t.Fatalf("%s: %s %s is the adapter's operation %s", c.Operation, c.Method, c.Target, rd.Operation.Name)
	}
	return rd.Operation
}

func requestOf(c fake.Case, upstream string) *classify.Request {
	r := &classify.Request{Upstream: upstream, Method: c.Method, Target: c.Target, Body: []byte(c.Body)}
	for _, name := range slices.Sorted(maps.Keys(c.Header)) {
		for _, v := range c.Header[name] {
			r.Header = append(r.Header, classify.Field{Name: name, Value: v})
		}
	}
	return r
}

// mayRepeat says that a call of the class has no effect that must not be had
// twice.
func mayRepeat(c classify.Class) bool { return c == classify.Decision || c == classify.Read }

// TestAdapterCases holds adapters and cases against each other: every adapter
// has a provider, and every operation that changes something a case.
func TestAdapterCases(t *testing.T) {
	all := catalogue(t)
	cases := map[string]map[string]bool{}
	for _, spec := range fake.Specs() {
		a := bound(t, all, spec.Adapter)
		if a == nil {
			t.Errorf("there is a provider for the adapter %s, and no such adapter", spec.Adapter)
			continue
		}
		cases[spec.Adapter] = map[string]bool{}
		for _, c := range spec.Cases {
			cases[spec.Adapter][operationOf(t, a, c).Name] = true
		}
	}
	for _, a := range all.All {
		for _, op := range a.Operations {
			if op.Class != classify.Read && !cases[a.Name][op.Name] {
				t.Errorf("%s: no case in internal/fake has its operation %s", a.Name, op.Name)
			}
		}
	}
}

// A death ends one sidecar of the kill test: where it dies, and what has to be
// known by then.
type death struct {
	point crashpoint.Point
	// isLast: it dies when the last call has got there, not the first.
	isLast bool
}

// Every provider keeps its answers back until all calls have had their effect,
// so that the first to come by a point finds no receipt on record.
var deaths = []death{
	{crashpoint.SendAfter, false},
	{crashpoint.FinishBefore, false},
	{crashpoint.FinishAfter, true},
}

// TestAdapterKills ends a real sidecar, by kill -9, at each moment after the
// effect, with every case of a provider in flight at once. Asked again, the
// next sidecar gives what the provider has where the adapter can find out, and
// unknown where it cannot; nothing happens twice.
func TestAdapterKills(t *testing.T) {
	all := catalogue(t)
	for _, spec := range fake.Specs() {
		t.Run(spec.Adapter, func(t *testing.T) {
			t.Parallel()
			k := &killing{bench: newBench(t), spec: spec, adapter: bound(t, all, spec.Adapter)}
			k.serve()
			for i, l := range deaths {
				k.die(l, k.stands[i])
			}
			heir := k.released()
			for i, l := range deaths {
				for n := range spec.Cases {
					k.check(heir, l, k.stands[i], n)
				}
			}
		})
	}
}

type killing struct {
	*bench
	spec    fake.Spec
	adapter *providers.Adapter
	// stands are the providers, one for each death.
	stands []*stand
}

func (k *killing) serve() {
	text := "upstreams:\n"
	for _, l := range deaths {
		s := serveStand(k.T, k.spec, strings.ReplaceAll(string(l.point), ".", "-"), fake.CommitThenHang)
		k.stands = append(k.stands, s)
		text += fmt.Sprintf("  %s: {url: %q, adapter: %s, pause_on_unknown: call}\n", s.name, s.URL, k.spec.Adapter)
	}
	k.configure(text)
}

// sendCase asks for case n of a stand. Every case is a run of its own.
func (s *sidecar) sendCase(st *stand, n int) reply {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	c := st.spec.Cases[n]
	req, err := http.NewRequestWithContext(ctx, c.Method, fmt.Sprintf("%s/@%s-%d:1:1/%s%s", s.base, st.name, n, st.name, c.Target), strings.NewReader(c.Body))
	if err != nil {
		return reply{err: err}
	}
	if c.Header != nil {
		req.Header = c.Header.Clone()
	}
	req.Header.Set(caseHeader, fmt.Sprint(n))
	return do(s.client, req)
}

func (k *killing) die(l death, st *stand) {
	k.Helper()
	nth := 1
	if l.isLast {
		nth = len(k.spec.Cases)
	}
	doomed := k.crashing(string(l.point), nth)
	var agents sync.WaitGroup
	for n := range k.spec.Cases {
		agents.Go(func() {
			if r := doomed.sendCase(st, n); r.err == nil && !l.isLast {
				k.Errorf("%s: the agent of a sidecar that died at %s was told: %s", k.spec.Cases[n].Operation, l.point, r)
			}
		})
	}
	st.awaitWrites(k.T, len(k.spec.Cases))
	st.Release()
	doomed.crashed()
	agents.Wait()
}

// check asks the heir for a case.
func (k *killing) check(heir *sidecar, l death, st *stand, n int) {
	k.Helper()
	c := k.spec.Cases[n]
	op := operationOf(k.T, k.adapter, c)
	r := heir.sendCase(st, n)
	tr := st.trace(n)
	at := fmt.Sprintf("%s, killed at %s", c.Operation, l.point)
	if tr.effects != 1 && !mayRepeat(op.Class) {
		k.Errorf("%s: %d effects of %d requests", at, tr.effects, tr.writes)
	}
	switch outcome := r.outcome(); {
	case l.point == crashpoint.FinishAfter && (outcome != "replayed" || r.body != tr.answer):
		k.Errorf("%s: the receipt was on record, and the answer is %s, not %s", at, r, tr.answer)
	case l.point == crashpoint.FinishAfter:
	case canBeAsked(op, c) && outcome != "recovered":
		k.Errorf("%s: the provider can be asked, and the answer is %s", at, r)
	case outcome == "recovered" && mayRepeat(op.Class):
	case outcome == "recovered":
		sameObject(k.T, at, c, tr.answer, r.body)
	case r.problem() != "unknown-outcome" && r.problem() != "in-progress":
		k.Errorf("%s: neither recovered nor unknown: %s", at, r)
	}
}

// canBeAsked says that a lookup has to find the effect of a case. A path that
// two readers may take for different ones is granted nothing.
func canBeAsked(op *providers.Operation, c fake.Case) bool {
	path, _, _ := strings.Cut(c.Target, "?")
	return op.Lookup != nil && !classify.IsAmbiguous(path)
}

// sameObject checks that a recovered answer shows what the first one did.
func sameObject(t *testing.T, at string, c fake.Case, first, recovered string) {
	t.Helper()
	want, err := shown(c, first)
	if err != nil {
		t.Errorf("%s: of the first answer %s: %v", at, first, err)
		return
	}
	if got, err := shown(c, recovered); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%s: recovered %s for %s: %v, not %v (%v)", at, recovered, first, got, want, err)
	}
}

// shown is what a case compares of an answer.
func shown(c fake.Case, body string) (any, error) {
	var v any
	if body != "" {
		if err := json.Unmarshal([]byte(body), &v); err != nil {
			return body, nil //nolint:nilerr // what is no JSON is compared as text
		}
	}
	if c.Recovered == "" {
		return v, nil
	}
	query, err := gojq.Parse(c.Recovered)
	if err != nil {
		return nil, fmt.Errorf("what %s compares: %w", c.Operation, err)
	}
	got, _ := query.Run(v).Next()
	if err, failed := got.(error); failed {
		return nil, err
	}
	return got, nil
}

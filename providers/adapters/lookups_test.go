package adapters

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"counterfoil/classify"
	"counterfoil/internal/fake"
	"counterfoil/providers"
	"counterfoil/providers/graphql"
	"counterfoil/providers/llm"

	"github.com/itchyny/gojq"
)

// marker is a call's provider key.
const marker = "0123456789abcdefghijklmn"

// TestLookups makes each case's request as the sidecar would, and looks it up
// before and after: what the lookup gives is what the provider answered.
func TestLookups(t *testing.T) {
	all, err := Load()
	if err != nil {
		t.Fatal(err)
	}
	for _, spec := range fake.Specs() {
		for i, c := range spec.Cases {
			t.Run(fmt.Sprintf("%s/%s-%d", spec.Adapter, c.Operation, i), func(t *testing.T) {
				lookUp(t, bound(t, all, spec.Adapter), spec, c)
			})
		}
	}
}

// bound is an adapter with the dialects that it reads content by.
func bound(t *testing.T, all *Catalogue, name string) *providers.Adapter {
	t.Helper()
	a, known := all.Named(name), providers.Dialects{"graphql": graphql.New, "llm": llm.New}
	if a == nil {
		t.Fatalf("there is no adapter %s", name)
	}
	for _, d := range a.Dialects {
		if known[d] == nil {
			t.Fatalf("%s: its dialect %s is not among those of this test", name, d)
		}
	}
	return a.For(known, providers.Settings{})
}

func lookUp(t *testing.T, a *providers.Adapter, spec fake.Spec, c fake.Case) {
	t.Helper()
	s, err := fake.Serve(spec, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if c.Setup != nil {
		c.Setup(s.Ledger)
	}
	r := requestOf(c)
	rd, refusal := a.Read(r)
	if refusal != nil || rd.Operation == nil || rd.Operation.Name != c.Operation {
		t.Fatalf("read as %+v, %+v", rd.Operation, refusal)
	}
	stamped, stamps, err := rd.Stamp(r, providers.Stamps{Key: marker, Marker: marker})
	if err != nil {
		t.Fatal(err)
	}
	q := providers.Query{Key: stamps.Key, Marker: marker, Run: "r", Turn: "1", Call: "c", SentAt: time.Now(), Original: &stamped}
	if rd, refusal = a.Read(&stamped); refusal != nil || rd.Operation == nil || rd.Operation.Name != c.Operation {
		t.Fatalf("stamped, it is read as %+v, %+v", rd.Operation, refusal)
	}
	if rd.Operation.Lookup != nil {
		if f := search(t, s, rd, q); f.Discovery != providers.Absent {
			t.Errorf("before it was made, the lookup says %+v", f)
		}
	}
	first := send(t, s, &stamped)
	if first.Status/100 != 2 || s.Ledger.Effects() != 1 {
		t.Fatalf("answered %d %s with %d effects: %s", first.Status, first.Body, s.Ledger.Effects(), stamped.Body)
	}
	if rd.Operation.Lookup == nil {
		return
	}
	f := search(t, s, rd, q)
	if f.Discovery != providers.Found {
		t.Fatalf("once it was made, the lookup says %+v", f)
	}
	if got, want := shown(t, c, f.Answer.Body), shown(t, c, first.Body); !reflect.DeepEqual(got, want) {
		t.Errorf("the lookup gives %v, and the answer was %v", got, want)
	}
	if f.Answer.Status != first.Status && c.Recovered == "" {
		t.Errorf("the lookup gives status %d, and the answer was %d", f.Answer.Status, first.Status)
	}
}

func requestOf(c fake.Case) *classify.Request {
	r := &classify.Request{Upstream: "p", Method: c.Method, Target: c.Target, Body: []byte(c.Body)}
	for _, name := range slices.Sorted(maps.Keys(c.Header)) {
		r.Header = r.Header.Set(name, c.Header.Get(name))
	}
	return r
}

func search(t *testing.T, s *fake.Server, rd *providers.Reading, q providers.Query) providers.Finding {
	t.Helper()
	search := rd.Search(q)
	for r, more := search.Next(); more; r, more = search.Next() {
		a := send(t, s, r)
		search.Take(context.Background(), a)
		if f := search.Finding(); f.Discovery == providers.Inconclusive {
			t.Logf("%s %s: %d %s", r.Method, r.Target, a.Status, a.Body)
		}
	}
	return search.Finding()
}

func send(t *testing.T, s *fake.Server, r *classify.Request) providers.Answer {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), r.Method, s.URL+r.Target, bytes.NewReader(r.Body))
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range r.Header {
		req.Header.Add(f.Name, f.Value)
	}
	transport := &http.Transport{DisableKeepAlives: true}
	resp, err := transport.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	a := providers.Answer{Status: resp.StatusCode, Body: body}
	for name := range resp.Header {
		a.Header = append(a.Header, classify.Field{Name: name, Value: strings.Join(resp.Header[name], ", ")})
	}
	return a
}

// shown is what a case compares of an answer.
func shown(t *testing.T, c fake.Case, body []byte) any {
	t.Helper()
	var v any
	if len(body) > 0 && json.Unmarshal(body, &v) != nil {
		return string(body)
	}
	if c.Recovered == "" {
		return v
	}
	query, err := gojq.Parse(c.Recovered)
	if err != nil {
		t.Fatal(err)
	}
	got, _ := query.Run(v).Next()
	return got
}

package adapters

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"counterfoil/classify"
	"counterfoil/internal/fake"
	"counterfoil/providers"
	"counterfoil/providers/graphql"
)

// document is a POST of a document.
func document(target, text, variables string) *classify.Request {
	quoted, err := json.Marshal(text)
	if err != nil {
		panic(err) // a string is JSON
	}
	return &classify.Request{
		Method: "POST", Target: target, Body: fmt.Appendf(nil, `{"query":%s,"variables":%s}`, quoted, variables),
		Header: classify.Header{{Name: "Content-Type", Value: "application/json"}},
	}
}

// TestDocuments reads documents at the hosts of their providers.
func TestDocuments(t *testing.T) {
	all, err := Load()
	if err != nil {
		t.Fatal(err)
	}
	rest := &classify.Request{Method: "POST", Target: "/repos/o/r/issues", Body: []byte(`{"title":"t"}`), Header: classify.Header{{Name: "Content-Type", Value: "application/json"}}}
	refund := `mutation { refundCreate(input: {}) { refund { id } } }`
	for _, tt := range []struct {
		what, host string
		r          *classify.Request
		operation  string
		class      classify.Class
	}{
		{"GitHub's query", "api.github.com", document("/graphql", `{ viewer { login } }`, "{}"), "query", classify.Read},
		{"GitHub's mutation", "api.github.com", document("/graphql", `mutation { addComment(input: {}) { subject { id } } }`, "{}"), "addComment", classify.Effect},
		{"another of GitHub's", "api.github.com", document("/graphql", `mutation { closeIssue(input: {}) { clientMutationId } }`, "{}"), "other", classify.Effect},
		{"GitHub's two in one", "api.github.com", document("/graphql", `query { a } mutation { b }`, "{}"), "other", classify.Effect},
		{"GitHub's REST", "api.github.com", rest, "issues.create", classify.Effect},
		{"Linear's query", "api.linear.app", document("/graphql", `{ viewer { id } }`, "{}"), "", classify.Read},
		{"Linear's mutation", "api.linear.app", document("/graphql", `mutation { issueCreate(input: {}) { success } }`, "{}"), "issueCreate", classify.Keyed},
		{"two of Linear's", "api.linear.app", document("/graphql", `mutation { issueCreate(input: {}) { success } commentCreate(input: {}) { success } }`, "{}"), "other", classify.Effect},
		{"Shopify's refund", "x.myshopify.com", document("/admin/api/2026-04/graphql.json", refund, "{}"), "idempotent", classify.Keyed},
		{"Shopify's refund of old", "x.myshopify.com", document("/admin/api/2026-01/graphql.json", refund, "{}"), "other", classify.Effect},
		{"Shopify's refund to come", "x.myshopify.com", document("/admin/api/unstable/graphql.json", refund, "{}"), "other", classify.Effect},
		{"Shopify's query", "x.myshopify.com", document("/admin/api/2026-04/graphql.json", `{ shop { name } }`, "{}"), "", classify.Read},
		{"monday's query", "api.monday.com", document("/v2", `{ me { id } }`, "{}"), "", classify.Read},
		{"monday's mutation", "api.monday.com", document("/v2", `mutation { create_item(item_name: "a") { id } }`, "{}"), "mutation", classify.Effect},
	} {
		a := all.ForHost(tt.host).For(providers.Dialects{"graphql": graphql.New}, providers.Settings{})
		rd, refusal := a.Read(tt.r)
		name := ""
		if rd.Operation != nil {
			name = rd.Operation.Name
		}
		if refusal != nil || name != tt.operation || rd.Class() != tt.class {
			t.Errorf("%s: operation %q of class %s, want %q of class %s", tt.what, name, rd.Class(), tt.operation, tt.class)
		}
	}
}

// TestGraphQLAnswers judges answers by what the adapters know of their
// providers.
func TestGraphQLAnswers(t *testing.T) {
	all, err := Load()
	if err != nil {
		t.Fatal(err)
	}
	linear := document("/graphql", `mutation { issueCreate(input: {}) { success issue { id } } }`, "{}")
	gh := document("/graphql", `mutation { addComment(input: {}) { subject { id } } }`, "{}")
	shopify := document("/admin/api/2026-04/graphql.json", `mutation { refundCreate(input: {}) { refund { id } userErrors { code } } }`, "{}")
	linearError := func(kind string) string {
		return `{"data":null,"errors":[{"message":"m","extensions":{"type":"` + kind + `"}}]}`
	}
	shopifyError := func(errors string) string {
		return `{"data":{"refundCreate":{"refund":null,"userErrors":[` + errors + `]}}}`
	}
	const first, again = false, true
	for _, tt := range []struct {
		adapter  string
		r        *classify.Request
		status   int
		body     string
		isResend bool
		want     classify.Outcome
		inFlight bool
	}{
		{"linear", linear, 200, `{"data":{"issueCreate":{"success":true,"issue":{"id":"1"}}}}`, first, classify.Applied, false},
		{"linear", linear, 400, `{"errors":[{"extensions":{"code":"RATELIMITED"}}]}`, first, classify.NotApplied, false},
		{"linear", linear, 200, linearError("invalid input"), first, classify.Rejected, false},
		{"linear", linear, 200, linearError("invalid input"), again, classify.Ambiguous, false},
		{"linear", linear, 400, linearError("invalid input"), again, classify.Ambiguous, false},
		{"linear", linear, 400, `no JSON`, again, classify.Ambiguous, false},
		{"linear", linear, 200, linearError("forbidden"), first, classify.NotApplied, false},
		{"linear", linear, 200, linearError("lock timeout"), first, classify.Ambiguous, false},
		{"linear", linear, 400, linearError("internal error"), first, classify.Ambiguous, false},
		{"linear", linear, 200, linearError("something new"), first, classify.Ambiguous, false},
		{"linear", linear, 200, `{"data":{"issueCreate":{"success":true,"issue":null}},"errors":[{"extensions":{"type":"invalid input"}}]}`, first, classify.Ambiguous, false},
		{"github-graphql", gh, 200, `{"data":{"addComment":null},"errors":[{"type":"NOT_FOUND"}]}`, first, classify.Rejected, false},
		{"github-graphql", gh, 200, `{"data":{"addComment":null},"errors":[{"type":"FORBIDDEN"}]}`, first, classify.NotApplied, false},
		{"github-graphql", gh, 200, `{"errors":[{"type":"RATE_LIMITED"}]}`, first, classify.NotApplied, false},
		{"github-graphql", gh, 200, `{"data":null,"errors":[{"message":"Something went wrong"}]}`, first, classify.Ambiguous, false},
		{"shopify", shopify, 200, shopifyError(`{"code":"INVALID","message":"m"}`), first, classify.Rejected, false},
		{"shopify", shopify, 200, shopifyError(`{"field":null}`), first, classify.Ambiguous, false},
		{"shopify", shopify, 200, shopifyError(`{"code":"IDEMPOTENCY_CONCURRENT_REQUEST"}`), again, classify.Ambiguous, true},
		{"shopify", shopify, 200, shopifyError(`{"message":"The request is currently in progress, please try again"}`), again, classify.Ambiguous, true},
		{"shopify", shopify, 200, shopifyError(`{"code":"IDEMPOTENCY_KEY_PARAMETER_MISMATCH"}`), again, classify.Ambiguous, false},
		{"shopify", shopify, 200, `{"errors":[{"extensions":{"code":"THROTTLED"}}]}`, first, classify.NotApplied, false},
	} {
		rd, _ := bound(t, all, tt.adapter).Read(tt.r)
		w := rd.Watch(providers.Query{Original: tt.r}, providers.Head{Status: tt.status, Length: int64(len(tt.body))}, tt.isResend)
		if w == nil {
			t.Errorf("%s: %d %s is not looked at", tt.adapter, tt.status, tt.body)
			continue
		}
		w.Write([]byte(tt.body))
		if j := w.End(context.Background()); j.Outcome != tt.want || j.InFlight != tt.inFlight {
			t.Errorf("%s: %d %s, a copy %t: %+v, want %s", tt.adapter, tt.status, tt.body, tt.isResend, j, tt.want)
		}
	}
}

// TestSeveralRootFields makes two issues by one document: each has an id of its
// own, and the lookup wants both.
func TestSeveralRootFields(t *testing.T) {
	all, err := Load()
	if err != nil {
		t.Fatal(err)
	}
	s, err := fake.Serve(fake.Linear(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	a := bound(t, all, "linear")
	r := document("/graphql", `mutation { a: issueCreate(input: {title: "a"}) { issue { id title } } b: issueCreate(input: {title: "b"}) { success } }`, "{}")
	r.Header = r.Header.Set("Authorization", "lin_api_1")
	rd, _ := a.Read(r)
	stamped, stamps, err := rd.Stamp(r, providers.Stamps{Key: marker, Marker: marker})
	if err != nil {
		t.Fatal(err)
	}
	q := providers.Query{Key: stamps.Key, Marker: marker, SentAt: time.Now(), Original: &stamped}
	if f := search(t, s, rd, q); f.Discovery != providers.Absent {
		t.Errorf("before: %+v", f)
	}
	first := send(t, s, &stamped)
	if s.Ledger.Effects() != 2 {
		t.Fatalf("%d effects: %s", s.Ledger.Effects(), first.Body)
	}
	f := search(t, s, rd, q)
	if f.Discovery != providers.Found || fmt.Sprint(shown(t, fake.Case{}, f.Answer.Body)) != fmt.Sprint(shown(t, fake.Case{}, first.Body)) {
		t.Errorf("found %s %s, and the answer was %s", f.Discovery, f.Answer.Body, first.Body)
	}
}

package providers

import (
	"fmt"
	"strings"
	"testing"

	"counterfoil/classify"
)

// The prefix is a shortcut only: it never turns away what the pattern takes.
func TestThePrefixTurnsNothingAwayThatMatches(t *testing.T) {
	paths := []string{"/", "/a", "/a/", "/a/b", "/a/b/c", "/ab", "/ab/c", "/b/a", "/a/b/c/d"}
	for _, pattern := range []string{"/", "/a", "/**", "/a/**", "/a*", "/a*/c", "/*/b", "/a/**/c", "/**/a", "/a/b/**"} {
		m, err := classify.CompileMatch(nil, pattern)
		if err != nil {
			t.Fatal(err)
		}
		a := mustParse(t, "[{name: a, class: effect, when: {path: '"+pattern+"'}}]")
		for _, path := range paths {
			got := a.Match(&classify.Request{Method: "POST", Target: path}) != nil
			if want := m.Matches("POST", path); got != want {
				t.Errorf("%s on %s: got %v, want %v", pattern, path, got, want)
			}
		}
	}
}

func TestNoStrategyWhereTheOperationMayNotBeWhatItSeems(t *testing.T) {
	create := &tickets(t).Operations[0]
	for target, want := range map[string]int{
		"/tickets/1?a=/../b": 1, "/tickets/%2e%2e/refunds": 0, "/tickets/..%2Frefunds": 0, "/tickets/;/refunds": 0,
	} {
		r := &classify.Request{Method: "POST", Target: target}
		if got := (&Reading{Operation: create}).Strategies(r, classify.Effect); len(got) != want {
			t.Errorf("%s: got %v", target, got)
		}
	}
	overridden := &classify.Request{Method: "POST", Target: "/tickets", Header: classify.Header{{Name: "X-HTTP-Method-Override", Value: "PATCH"}}}
	if got := (&Reading{Operation: create}).Strategies(overridden, classify.Effect); got != nil {
		t.Errorf("with another method asked for: got %v", got)
	}
	charge := &tickets(t).Operations[1]
	r := &classify.Request{Method: "POST", Target: "/charges"}
	if got := (&Reading{Operation: charge}).Strategies(r, classify.Effect); got != nil {
		t.Errorf("an effect is resent as if it were keyed: %v", got)
	}
	if got := (&Reading{Operation: charge}).Strategies(r, classify.Keyed); len(got) != 1 {
		t.Errorf("got %v", got)
	}
}

func TestTheFirstOperationThatMatchesCounts(t *testing.T) {
	a := tickets(t)
	tests := []struct{ method, target, want string }{
		{"POST", "/tickets?x=/charges", "create"},
		{"POST", "/tickets/7/notes", "create"},
		{"PUT", "/tickets/7", "rest"},
		{"POST", "/charges", "charge"},
		{"POST", "/charges?a=b", "charge"},
		{"PUT", "/mail/7/send", "mail"},
		{"post", "/charges", "rest"},
		{"POST", "/search", "search"},
	}
	for _, tt := range tests {
		op := a.Match(&classify.Request{Method: tt.method, Target: tt.target})
		if op == nil || op.Name != tt.want {
			t.Errorf("%s %s: got %v, want %s", tt.method, tt.target, op, tt.want)
		}
	}
	only := mustParse(t, `[{name: a, class: effect, when: {method: [POST]}}]`)
	if op := only.Match(&classify.Request{Method: "PATCH", Target: "/"}); op != nil {
		t.Errorf("got %s for a method that is not named", op.Name)
	}
	mixed := mustParse(t, `[{name: a, class: effect, when: {method: [POST], path: /a}}, {name: any, class: effect, when: {path: /a}},
		{name: b, class: effect, when: {method: [PUT, POST]}}]`)
	for target, want := range map[string]string{"POST /a": "a", "PUT /a": "any", "GET /a": "any", "PUT /b": "b", "POST /b": "b", "GET /b": ""} {
		method, path, _ := strings.Cut(target, " ")
		got := ""
		if op := mixed.Match(&classify.Request{Method: method, Target: path}); op != nil {
			got = op.Name
		}
		if got != want {
			t.Errorf("%s: got %q, want %q", target, got, want)
		}
	}
	if op := new(Adapter).Match(&classify.Request{Method: "POST", Target: "/"}); op != nil {
		t.Errorf("an empty adapter matched %s", op.Name)
	}
}

// hundredOperations share a method and the beginning of their paths.
func hundredOperations(t testing.TB) *Adapter {
	t.Helper()
	var b strings.Builder
	for i := range 100 {
		fmt.Fprintf(&b, "- {name: op%d, class: effect, when: {method: [POST], path: '/v1/thing%d/*/act'}}\n", i, i)
	}
	return mustParse(t, b.String())
}

func TestMatchAllocatesNothing(t *testing.T) {
	a := hundredOperations(t)
	r := &classify.Request{Method: "POST", Target: "/v1/thing99/7/act?a=b"}
	if n := testing.AllocsPerRun(100, func() { a.Match(r) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func BenchmarkMatchLastOf100(b *testing.B) {
	a := hundredOperations(b)
	r := &classify.Request{Method: "POST", Target: "/v1/thing99/7/act?a=b"}
	b.ReportAllocs()
	for b.Loop() {
		if a.Match(r) == nil {
			b.Fatal("no match")
		}
	}
}

func BenchmarkMatchNoneOf100(b *testing.B) {
	a := hundredOperations(b)
	r := &classify.Request{Method: "POST", Target: "/v1/things/7/act?a=b"}
	b.ReportAllocs()
	for b.Loop() {
		if a.Match(r) != nil {
			b.Fatal("match")
		}
	}
}

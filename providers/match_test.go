package providers

import (
	"fmt"
	"strings"
	"testing"

	"counterfoil/classify"
)

func TestGlob(t *testing.T) {
	tests := []struct {
		pattern, path string
		want          bool
	}{
		{"/tickets", "/tickets", true},
		{"/tickets", "/tickets/", false},
		{"/tickets", "/ticketsx", false},
		{"/tickets/**", "/tickets", true},
		{"/tickets/**", "/tickets/", true},
		{"/tickets/**", "/tickets/1/notes", true},
		{"/tickets/**", "/ticketsx/1", false},
		{"/tickets/*", "/tickets/1", true},
		{"/tickets/*", "/tickets/1/notes", false},
		{"/tickets/*", "/tickets", false},
		{"/tickets/*/notes", "/tickets/1/notes", true},
		{"/tickets/*/notes", "/tickets/1/2/notes", false},
		{"/**/notes", "/a/b/notes", true},
		{"/**/notes", "/notes", true},
		{"/**/notes", "/notes/x/notes", true},
		{"/**/notes", "/notes/x", false},
		{"/**", "/", true},
		{"/", "/", true},
		{"/", "/a", false},
		{"/a/**/b/**/c", "/a/b/x/b/y/c", true},
		{"/a/**/b/**/c", "/a/c/b", false},
		{"/v*/x", "/v1/x", true},
		{"/v*/x", "/w1/x", false},
		{"/a*b*c", "/a-b-b-c", true},
		{"/a*b*c", "/a-c-b", false},
		{"/tickets/*", "/tickets/a%2Fb", true},
		{"/Tickets", "/tickets", false},
		{"/**", "", false},
		{"/**", "x", false},
	}
	for _, tt := range tests {
		g, err := compileGlob(tt.pattern)
		if err != nil {
			t.Fatal(tt.pattern, err)
		}
		if got := g.matches(tt.path); got != tt.want {
			t.Errorf("%s on %q: got %v, want %v", tt.pattern, tt.path, got, tt.want)
		}
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

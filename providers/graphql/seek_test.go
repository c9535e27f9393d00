package graphql

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"counterfoil/classify"
	"counterfoil/providers"
)

// byID reads an issue by its id, as Linear has it.
var byID = &providers.Lookup{GraphQL: &providers.GraphQLLookup{
	Field: "issue", Arguments: []providers.Beside{{Name: "id", Value: "$id"}}, Object: "issue",
	Payload: []providers.Beside{{Name: "success", Value: "true"}, {Name: "__typename", Value: "IssuePayload"}, {Name: "echo", Value: "$input.note"}},
}}

// inList finds a comment by its marker, as GitHub has it.
var inList = &providers.Lookup{GraphQL: &providers.GraphQLLookup{
	Field: "node", Arguments: []providers.Beside{{Name: "id", Value: "$input.of"}},
	Within: "... on Issue { comments(last: 9) { nodes { … } } }", Hits: "comments.nodes", Marked: "body", Object: "edge.node",
}}

func sought(t *testing.T, l *providers.Lookup, r *classify.Request, answer string) (question string, f providers.Finding) {
	t.Helper()
	m := read(t, r)
	ids, _ := m.Value(r, &providers.Placement{Place: "argument", Name: "input.id"})
	q := &providers.Query{ID: ids, Marker: "mark", Original: r}
	asked, err := m.Seek(l, q)
	if err != nil {
		return err.Error(), m.Sought(context.Background(), l, q, providers.Answer{Status: 200, Body: []byte(answer)})
	}
	var body struct {
		Query     string
		Variables json.RawMessage
	}
	if err := json.Unmarshal(asked.Body, &body); err != nil {
		t.Fatal(err)
	}
	if c, _ := New(providers.Settings{IsKnownHost: true}).Read(asked); c == nil || c.Kind() != "query" {
		t.Fatalf("it asks by what is no query: %s", asked.Body)
	}
	return body.Query + " " + string(body.Variables), m.Sought(context.Background(), l, q, providers.Answer{Status: 200, Body: []byte(answer)})
}

func TestSeek(t *testing.T) {
	for _, tt := range []struct {
		what        string
		l           *providers.Lookup
		r           *classify.Request
		want        string
		answer, got string
	}{
		{
			"fragments, aliases and variables", byID,
			posted(`mutation M($i: In!, $n: Int = 3, $x: Int) { made: issueCreate(input: $i) { ...P echo } }
				fragment P on IssuePayload { __typename ok: success it: issue { ...I c(first: $n) { d } } } # end
				fragment I on Issue { id }`, `,"variables":{"i":{"id":"a","note":"n"},"n":5,"x":1}`),
			`query CounterfoilLookup($n: Int = 3) { counterfoil_0_it: issue(id: "a") { ...I c(first: $n) { d } } }` + "\nfragment I on Issue { id } " + `{"n":5}`,
			`{"data":{"counterfoil_0_it":{"id":"a","c":{"d":1}}}}`,
			`{"data":{"made":{"__typename":"IssuePayload","ok":true,"it":{"id":"a","c":{"d":1}},"echo":"n"}}}`,
		},
		{
			"an object that is asked for twice", byID,
			posted(`mutation { issueCreate(input: {id: "a"}) { issue { id } again: issue { t } issue { u } } }`, ""),
			`query CounterfoilLookup { counterfoil_0_issue: issue(id: "a") { id } counterfoil_0_again: issue(id: "a") { t } counterfoil_0_issue: issue(id: "a") { u } } {}`,
			`{"data":{"counterfoil_0_issue":{"id":"a","u":2},"counterfoil_0_again":{"t":1}}}`,
			`{"data":{"issueCreate":{"issue":{"id":"a","u":2},"again":{"t":1}}}}`,
		},
		{
			"no object", byID,
			posted(`mutation { issueCreate(input: {id: "a\"b"}) { success } }`, ""),
			`query CounterfoilLookup { counterfoil_0: issue(id: "a\"b") { __typename } } {}`,
			`{"data":{"counterfoil_0":{"__typename":"Issue"}}}`,
			`{"data":{"issueCreate":{"success":true}}}`,
		},
		{
			"several", byID,
			posted(`mutation { a: issueCreate(input: {id: "1"}) { issue { id } } b: issueCreate(input: {id: "2"}) { success } }`, ""),
			`query CounterfoilLookup { counterfoil_0_issue: issue(id: "1") { id } counterfoil_1: issue(id: "2") { __typename } } {}`,
			`{"data":{"counterfoil_0_issue":{"id":"1"},"counterfoil_1":{"__typename":"Issue"}}}`,
			`{"data":{"a":{"issue":{"id":"1"}},"b":{"success":true}}}`,
		},
		{
			"in a list", inList,
			posted(`mutation { add(input: {of: "I_1"}) { edge { node { id body } } } }`, ""),
			`query CounterfoilLookup { counterfoil_0_edge_node: node(id: "I_1") { ... on Issue { comments(last: 9) { nodes { counterfoil_mark: body  id body } } } } } {}`,
			`{"data":{"counterfoil_0_edge_node":{"comments":{"nodes":[{"counterfoil_mark":"x","id":1,"body":"x"},{"counterfoil_mark":"y mark","id":2,"body":"y mark"}]}}}}`,
			`{"data":{"add":{"edge":{"node":{"body":"y mark","id":2}}}}}`,
		},
	} {
		question, f := sought(t, tt.l, tt.r, tt.answer)
		if question != tt.want {
			t.Errorf("%s: asks\n%s, want\n%s", tt.what, question, tt.want)
		}
		if f.Discovery != providers.Found || string(f.Answer.Body) != tt.got {
			t.Errorf("%s: %s %s\n got %s\nwant %s", tt.what, f.Discovery, f.Reason, f.Answer.Body, tt.got)
		}
	}
}

func TestSoughtInVain(t *testing.T) {
	one := posted(`mutation { issueCreate(input: {id: "a"}) { issue { id } } }`, "")
	two := posted(`mutation { a: issueCreate(input: {id: "1"}) { success } b: issueCreate(input: {id: "2"}) { success } }`, "")
	for _, tt := range []struct {
		what, answer string
		r            *classify.Request
		want         providers.Discovery
		lasts        bool
	}{
		{"null", `{"data":{"counterfoil_0_issue":null}}`, one, providers.Absent, false},
		{"errors", `{"data":{"counterfoil_0_issue":null},"errors":[{}]}`, one, providers.Inconclusive, false},
		{"nothing", `{"data":{}}`, one, providers.Inconclusive, true},
		{"no JSON", `<html>`, one, providers.Inconclusive, false},
		{"none of two", `{"data":{"counterfoil_0":null,"counterfoil_1":null}}`, two, providers.Absent, false},
		{"one of two", `{"data":{"counterfoil_0":{"id":"1"},"counterfoil_1":null}}`, two, providers.Inconclusive, true},
	} {
		_, f := sought(t, byID, tt.r, tt.answer)
		if f.Discovery != tt.want || f.Lasting != tt.lasts || f.Reason == "" {
			t.Errorf("%s: %+v, want %s", tt.what, f, tt.want)
		}
	}
}

// What cannot be asked, or not be made again, is not guessed.
func TestSeekRefuses(t *testing.T) {
	for what, r := range map[string]*classify.Request{
		"a field of which nothing is known": posted(`mutation { issueCreate(input: {id: "a"}) { issue { id } serial } }`, ""),
		"a condition":                       posted(`mutation($x: Boolean!) { issueCreate(input: {id: "a"}) { issue @include(if: $x) { id } } }`, `,"variables":{"x":true}`),
		"a conditional fragment":            posted(`mutation($x: Boolean!) { issueCreate(input: {id: "a"}) { ... @include(if: $x) { success } } }`, `,"variables":{"x":true}`),
		"no id":                             posted(`mutation { issueCreate(input: {}) { issue { id } } }`, ""),
		"two of one name":                   posted(`mutation { issueCreate(input: {id: "1"}) { success } issueCreate(input: {id: "2"}) { issue { id } } }`, ""),
	} {
		if question, _ := sought(t, byID, r, `{}`); strings.HasPrefix(question, "query") {
			t.Errorf("%s: asks %s", what, question)
		}
	}
}

// BenchmarkRead reads what Linear's SDK sends, again and again as agents do.
func BenchmarkRead(b *testing.B) {
	doc := "mutation createIssue($input: IssueCreateInput!) {\n  issueCreate(input: $input) {\n    ...IssuePayload\n  }\n}\n    fragment IssuePayload on IssuePayload {\n  __typename\n  lastSyncId\n  issue {\n    id\n  }\n  success\n}"
	var issue strings.Builder
	for i := range 120 {
		fmt.Fprintf(&issue, "  someFieldOfAnIssue%d\n", i)
	}
	long := "query issue($id: String!) {\n  issue(id: $id) {\n    ...Issue\n  }\n}\nfragment Issue on Issue {\n" + issue.String() + "}"
	for _, bb := range []struct {
		name string
		r    *classify.Request
	}{
		{"mutation", posted(doc, `,"variables":{"input":{"teamId":"t","title":"Printer on fire"}}`)},
		{"query of 3 KiB", posted(long, `,"variables":{"id":"ENG-1"}`)},
	} {
		b.Run(bb.name+" again", func(b *testing.B) {
			d := New(providers.Settings{})
			for b.Loop() {
				d.Read(bb.r)
			}
		})
		b.Run(bb.name+" new", func(b *testing.B) {
			for b.Loop() {
				New(providers.Settings{}).Read(bb.r)
			}
		})
	}
}

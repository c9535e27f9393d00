package graphql

import (
	"testing"

	"counterfoil/classify"
	"counterfoil/providers"
)

const id = "11111111-2222-4333-8444-555555555555"

func read(t *testing.T, r *classify.Request) *mutation {
	t.Helper()
	c, _ := New(providers.Settings{}).Read(r)
	m, ok := c.(*mutation)
	if !ok {
		t.Fatalf("%s is no mutation", r.Body)
	}
	return m
}

func TestPlace(t *testing.T) {
	inID := &providers.Placement{Place: "argument", Name: "input.id"}
	directive := &providers.Placement{Place: "directive", Name: "idempotent", At: "key"}
	appended := &providers.Placement{Place: "argument", Name: "input.body", Append: "\n<!-- cf:{marker} -->"}
	for _, tt := range []struct {
		what       string
		p          *providers.Placement
		body, want string
		value      string
	}{
		{"in a variable's object", inID,
			`{ "query":"mutation($i: I!) { a(input: $i) { b } }", "variables": { "i": { "title" : 1.0 } } }`,
			`{ "query":"mutation($i: I!) { a(input: $i) { b } }", "variables": { "i": {"id":"` + id + `", "title" : 1.0 } } }`, id},
		{"in an empty object", inID,
			`{"query":"mutation($i: I!) { a(input: $i) { b } }","variables":{"i":{}}}`,
			`{"query":"mutation($i: I!) { a(input: $i) { b } }","variables":{"i":{"id":"` + id + `"}}}`, id},
		{"in place of null", inID,
			`{"query":"mutation($i: I!) { a(input: $i) { b } }","variables":{"i":{"id":null}}}`,
			`{"query":"mutation($i: I!) { a(input: $i) { b } }","variables":{"i":{"id":"` + id + `"}}}`, id},
		{"one of the client's", inID,
			`{"query":"mutation($i: I!) { a(input: $i) { b } }","variables":{"i":{"id":"mine"}}}`,
			`{"query":"mutation($i: I!) { a(input: $i) { b } }","variables":{"i":{"id":"mine"}}}`, "mine"},
		{"in the document", inID,
			`{"query":"mutation {\n\t\u0061(x: \"\\u00e4ä\", input: {t: 1}) { b } }"}`,
			`{"query":"mutation {\n\t\u0061(x: \"\\u00e4ä\", input: {id: \"` + id + `\", t: 1}) { b } }"}`, id},
		{"in place of a literal null", inID,
			`{"query":"mutation { a(input: {id: null}) { b } }"}`,
			`{"query":"mutation { a(input: {id: \"` + id + `\"}) { b } }"}`, id},
		{"in a variable of its own", inID,
			`{"query":"mutation($x: ID) { a(input: {id: $x}) { b } }"}`,
			`{"query":"mutation($x: ID) { a(input: {id: $x}) { b } }","variables":{"x":"` + id + `"}}`, id},
		{"an argument of its own", &providers.Placement{Place: "argument", Name: "id"},
			`{"query":"mutation { c: a { b } }"}`,
			`{"query":"mutation { c: a(id: \"` + id + `\") { b } }"}`, id},
		{"among arguments", &providers.Placement{Place: "argument", Name: "id"},
			`{"query":"mutation { a(x: 1) { b } }"}`,
			`{"query":"mutation { a(id: \"` + id + `\", x: 1) { b } }"}`, id},
		{"a directive", directive,
			`{"query":"mutation { a(x: {y: \")\"}) { b } }"}`,
			`{"query":"mutation { a(x: {y: \")\"}) @idempotent(key: \"` + id + `\") { b } }"}`, id},
		{"a directive that is there", directive,
			`{"query":"mutation { a @idempotent(key: \"k\") { b } }"}`,
			`{"query":"mutation { a @idempotent(key: \"` + id + `\") { b } }"}`, id},
		{"a directive with a variable", directive,
			`{"query":"mutation($k: String!) { a @idempotent(key: $k) { b } }","variables":{"k":"theirs"}}`,
			`{"query":"mutation($k: String!) { a @idempotent(key: $k) { b } }","variables":{"k":"` + id + `"}}`, id},
		{"behind a text", appended,
			`{"query":"mutation($i: I!) { a(input: $i) { b } }","variables":{"i":{"body":"text"}}}`,
			`{"query":"mutation($i: I!) { a(input: $i) { b } }","variables":{"i":{"body":"text\n\u003c!-- cf:` + id + ` --\u003e"}}}`, "text\n<!-- cf:" + id + " -->"},
		{"behind a block", appended,
			`{"query":"mutation { a(input: {body: \"\"\"\n  text\"\"\"}) { b } }"}`,
			`{"query":"mutation { a(input: {body: \"text\\n\\u003c!-- cf:` + id + ` --\\u003e\"}) { b } }"}`, "text\n<!-- cf:" + id + " -->"},
	} {
		r := asked("/graphql", "application/json", tt.body)
		m := read(t, r)
		out, err := m.Place(r, tt.p, id)
		if err != nil || string(out.Body) != tt.want {
			t.Errorf("%s: %v\n got %s\nwant %s", tt.what, err, out.Body, tt.want)
			continue
		}
		if string(r.Body) != tt.body {
			t.Errorf("%s: the request itself was changed", tt.what)
		}
		if got, there := m.Value(&out, tt.p); !there || got != tt.value {
			t.Errorf("%s: reads back as %q", tt.what, got)
		}
		if again, err := m.Place(&out, tt.p, id); err != nil || string(again.Body) != tt.want {
			t.Errorf("%s: placed again it is %s, %v", tt.what, again.Body, err)
		}
	}
}

// Several root fields get values of their own, the same ones each time.
func TestPlaceInSeveral(t *testing.T) {
	p := &providers.Placement{Place: "argument", Name: "input.id"}
	r := posted(`mutation { a: c(input: {t: 1}) { x } b: c(input: {t: 1}) { x } }`, "")
	m := read(t, r)
	if v, there := m.Value(r, p); there {
		t.Errorf("%q was there before", v)
	}
	out, err := m.Place(r, p, id)
	if err != nil {
		t.Fatal(err)
	}
	if got, _ := m.Value(&out, p); got != id+","+nth(id, 1) || !uuidText.MatchString(nth(id, 1)) {
		t.Errorf("they are %s", got)
	}
}

func TestPlaceNowhere(t *testing.T) {
	p := &providers.Placement{Place: "argument", Name: "input.id"}
	for what, r := range map[string]*classify.Request{
		"no argument":                   posted(`mutation { a { b } }`, ""),
		"a list":                        posted(`mutation { a(input: [{t: 1}]) { b } }`, ""),
		"a variable without a value":    posted(`mutation($i: I = {t: 1}) { a(input: $i) { b } }`, ""),
		"a variable that is a list":     posted(`mutation($i: I) { a(input: $i) { b } }`, `,"variables":{"i":[]}`),
		"a variable that is null":       posted(`mutation($i: I) { a(input: $i) { b } }`, `,"variables":{"i":null}`),
		"an id that is no text":         posted(`mutation { a(input: {id: [1]}) { b } }`, ""),
		"a variable there twice":        posted(`mutation($i: I) { a(input: $i) { b } }`, `,"variables":{"i":{"id":"1","id":"2"}}`),
		"a variable beside no envelope": asked("/graphql", "application/graphql", `mutation($i: I) { a(input: $i) { b } }`),
	} {
		if out, err := read(t, r).Place(r, p, id); err == nil {
			t.Errorf("%s: became %s", what, out.Body)
		}
	}
}

func TestPrint(t *testing.T) {
	printed := func(r *classify.Request) string {
		c, _ := New(providers.Settings{}).Read(r)
		return classify.Print(c.(providers.Printer).Print(r), &classify.PrintOptions{}).String()
	}
	base := posted(`mutation M($a: A) { b(c: $a, d: "x  y") { e f } }`, `,"variables":{"a":{"g":1,"h":2}}`)
	for what, r := range map[string]*classify.Request{
		"white space, commas and a comment": posted("mutation M ( $a:A ){\n b ( c:$a d:\"x  y\" ) # no\n{ e, f, } }", `,"variables":{"a":{"g":1,"h":2}}`),
		"what says nothing":                 posted(`mutation M($a: A) { b(c: $a, d: "x  y") { e f } }`, `,"extensions":{},"operationName":"M","variables":{"a":{"h":2.0,"g":1}}`),
		"null":                              posted(`mutation M($a: A) { b(c: $a, d: "x  y") { e f } }`, `,"operationName":null,"variables":{"a":{"h":2,"g":1}}`),
	} {
		if printed(r) != printed(base) {
			t.Errorf("%s counts", what)
		}
	}
	for what, r := range map[string]*classify.Request{
		"a text":     posted(`mutation M($a: A) { b(c: $a, d: "x y") { e f } }`, `,"variables":{"a":{"g":1,"h":2}}`),
		"a field":    posted(`mutation M($a: A) { b(c: $a, d: "x  y") { e } }`, `,"variables":{"a":{"g":1,"h":2}}`),
		"a variable": posted(`mutation M($a: A) { b(c: $a, d: "x  y") { e f } }`, `,"variables":{"a":{"g":1,"h":3}}`),
		"extensions": posted(`mutation M($a: A) { b(c: $a, d: "x  y") { e f } }`, `,"extensions":{"x":1},"variables":{"a":{"g":1,"h":2}}`),
	} {
		if printed(r) == printed(base) {
			t.Errorf("%s does not count", what)
		}
	}
}

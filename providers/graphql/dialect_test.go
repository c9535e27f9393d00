package graphql

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"counterfoil/classify"
	"counterfoil/providers"
)

func asked(target, media, body string) *classify.Request {
	return &classify.Request{Method: "POST", Target: target, Header: classify.Header{{Name: "Content-Type", Value: media}}, Body: []byte(body)}
}

// posted is a JSON body of a document and what follows it.
func posted(doc, more string) *classify.Request {
	text, err := json.Marshal(doc)
	if err != nil {
		panic(err) // a string is JSON
	}
	return asked("/graphql", "application/json", `{"query":`+string(text)+more+`}`)
}

func TestRead(t *testing.T) {
	const two = `query a { x } mutation b { y }`
	for _, tt := range []struct {
		what string
		r    *classify.Request
		kind string
		want string
	}{
		{"a query", posted(`{ issue(id: "mutation") { id } }`, ""), "query", "issue"},
		{"a mutation", posted(`mutation M { issueCreate(input: {title: "t"}) { success } }`, ""), "mutation", "issueCreate"},
		{"a subscription", posted(`subscription { issueCreated { id } }`, ""), "subscription", "issueCreated"},
		{"an alias", posted(`mutation { query: issueCreate { success } }`, ""), "mutation", "issueCreate"},
		{"fragments", posted(`mutation { ...F ... on Mutation { b } } fragment F on Mutation { a }`, ""), "mutation", "a b"},
		{"what may be left out", posted(`mutation($x: Boolean!) { a @skip(if: $x) b @include(if: false) }`, ""), "mutation", "a b"},
		{"the first of two", posted(two, `,"operationName":"a"`), "query", "x"},
		{"the second of two", posted(two, `,"operationName":"b"`), "mutation", "y"},
		{"a document alone", asked("/graphql", "application/graphql", `mutation { a }`), "mutation", "a"},
		{"the word mutation in a comment", posted("# mutation { a }\n{ b }", ""), "query", "b"},
		{"a word that is spelt out", asked("/graphql", "application/json", `{"qu\u0065ry":"mut\u0061tion { a }"}`), "mutation", "a"},
		{"the path of Shopify", asked("/admin/api/2026-04/graphql.json", "application/json", `{"query":"{ shop { id } }"}`), "query", "shop"},

		{"none of two is named", posted(two, ""), "", ""},
		{"a name that is not there", posted(two, `,"operationName":"c"`), "", ""},
		{"a name of another only one", posted(`query a { x }`, `,"operationName":"b"`), "", ""},
		{"a name that is no text", posted(`query a { x }`, `,"operationName":["a"]`), "", ""},
		{"two operations of one name", posted(`query a { x } mutation a { y }`, `,"operationName":"a"`), "", ""},
		{"two documents", posted(`{ x }`, `,"query":"mutation { y }"`), "", ""},
		{"two spellings", posted(`{ x }`, `,"QUERY":"mutation { y }"`), "", ""},
		{"another in the target", asked("/graphql?query=mutation%7By%7D", "application/json", `{"query":"{ x }"}`), "", ""},
		{"no document", posted(`{ x `, ""), "", ""},
		{"an empty one", posted(``, ""), "", ""},
		{"a fragment that holds itself", posted(`{ ...F } fragment F on Query { ...F }`, ""), "", ""},
		{"a fragment that is not there", posted(`{ ...F }`, ""), "", ""},
		{"several in one body", asked("/graphql", "application/json", `[{"query":"{ x }"}]`), "", ""},
		{"one on record", asked("/graphql", "application/json", `{"extensions":{"persistedQuery":{"sha256Hash":"00"}}}`), "", ""},
		{"an upload", asked("/graphql", "multipart/form-data; boundary=x", `--x--`), "", ""},
		{"a schema", posted(`type A { b: C }`, ""), "", ""},
	} {
		c, refusal := New(providers.Settings{}).Read(tt.r)
		if c == nil || refusal != nil {
			t.Errorf("%s: not read (%v)", tt.what, refusal)
			continue
		}
		class := classify.Effect
		if tt.kind == "query" || tt.kind == "subscription" {
			class = classify.Read
		}
		if c.Kind() != tt.kind || strings.Join(c.Names(), " ") != tt.want || c.Class() != class {
			t.Errorf("%s: a %s %q of %q, want a %s %q of %q", tt.what, c.Class(), c.Kind(), c.Names(), class, tt.kind, tt.want)
		}
	}
}

func TestReadElsewhere(t *testing.T) {
	search := asked("/search", "application/json", `{"query":"shoes { red }"}`)
	doc := asked("/v2", "application/json", `{"query":"mutation { a }"}`)
	for _, tt := range []struct {
		what string
		s    providers.Settings
		r    *classify.Request
		read bool
	}{
		{"a search of an unknown API", providers.Settings{}, search, false},
		{"a document at an unknown path", providers.Settings{}, doc, false},
		{"a document at a path of a known API", providers.Settings{IsKnownHost: true}, doc, true},
		{"REST of a known API", providers.Settings{IsKnownHost: true}, asked("/orders.json", "application/json", `{"order":{}}`), false},
		{"a PUT", providers.Settings{}, &classify.Request{Method: "PUT", Target: "/graphql"}, false},
	} {
		if c, _ := New(tt.s).Read(tt.r); (c != nil) != tt.read {
			t.Errorf("%s: read %t", tt.what, c != nil)
		}
	}
}

func TestReadTarget(t *testing.T) {
	for target, want := range map[string]classify.Class{
		"/graphql?query=%7Bx%7D":                            classify.Read,
		"/graphql?query=mutation%7Bx%7D":                    classify.Effect,
		"/graphql?query=%7Bx%7D&query=mutation%7Bx%7D":      classify.Effect,
		"/graphql?query=query+a%7Bx%7D+mutation+b%7Bx%7D":   classify.Effect,
		"/graphql?query=query+a%7Bx%7D&operationName=other": classify.Effect,
	} {
		c, _ := New(providers.Settings{}).Read(&classify.Request{Method: "GET", Target: target})
		if c == nil || c.Class() != want {
			t.Errorf("%s: %+v, want %s", target, c, want)
		}
	}
}

// TestBounds reads what is far too long, deep or broad.
func TestBounds(t *testing.T) {
	deep := strings.Repeat("{a", 2000) + strings.Repeat("}", 2000)
	for what, r := range map[string]*classify.Request{
		"deep":       posted(deep, ""),
		"long":       posted("{"+strings.Repeat("abcdefgh ", 200_000)+"}", ""),
		"many":       posted("{"+strings.Repeat("a ", 60_000)+"}", ""),
		"deep JSON":  asked("/graphql", "application/json", `{"variables":`+strings.Repeat("[", 100_000)+`,"query":"{a}"}`),
		"branching":  posted("{...a}"+branching(), ""),
		"cut string": asked("/graphql", "application/json", `{"query":"{a}`),
	} {
		if c, _ := New(providers.Settings{}).Read(r); c == nil || c.Class() != classify.Effect {
			t.Errorf("%s: %+v", what, c)
		}
	}
}

// branching doubles with each fragment.
func branching() string {
	var b strings.Builder
	for i := range 25 {
		b.WriteString(" fragment " + string(rune('a'+i)) + " on Q {..." + string(rune('b'+i)) + " ..." + string(rune('b'+i)) + "}")
	}
	return b.String() + " fragment z on Q { x }"
}

// TestLibrary remembers no more than it may.
func TestLibrary(t *testing.T) {
	d := New(providers.Settings{}).(*dialect)
	for i := range 3 * kept {
		d.Read(posted("{ a"+strings.Repeat("b", i)+" }", ""))
	}
	if len(d.library.docs) != kept || len(d.library.order) != kept {
		t.Errorf("%d documents, %d in order", len(d.library.docs), len(d.library.order))
	}
	for spelt, doc := range d.library.docs {
		if text, ok := unquoted([]byte(spelt)); !ok || text != doc.text || !slices.Contains(d.library.order, spelt) {
			t.Fatalf("%s is %q", spelt, doc.text)
		}
	}
}

func FuzzRead(f *testing.F) {
	f.Add([]byte(`{"query":"mutation($i: I!) { a(input: $i, x: \"\"\"b\"\"\") @c(d: [1]) { ...F } } fragment F on P { id }","variables":{"i":{}}}`))
	f.Add([]byte(`{"query":"mutation { \u00e4 }"}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		r := &classify.Request{Method: "POST", Target: "/graphql", Body: body}
		c, _ := New(providers.Settings{}).Read(r)
		m, ok := c.(*mutation)
		if !ok {
			return
		}
		m.Print(r)
		p := &providers.Placement{Place: "argument", Name: "input.id"}
		out, err := m.Place(r, p, "0123456789abcdefghijklmn")
		if err != nil {
			return
		}
		if again, _ := New(providers.Settings{}).Read(&out); again == nil || again.Kind() != "mutation" {
			t.Errorf("%q became %q", body, out.Body)
		}
		if v, there := m.Value(&out, p); !there {
			t.Errorf("%q became %q, which has %q there", body, out.Body, v)
		}
	})
}

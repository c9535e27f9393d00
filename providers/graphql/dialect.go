package graphql

import (
	"bytes"
	"encoding/json"
	"strings"

	"counterfoil/classify"
	"counterfoil/providers"

	"github.com/vektah/gqlparser/v2/ast"
	"github.com/vektah/gqlparser/v2/formatter"
	"github.com/vektah/gqlparser/v2/parser"
)

const (
	// requestBytesMax bounds a body that is read; a longer one is not understood.
	requestBytesMax = 1 << 20
	// tokensMax bounds a document.
	tokensMax = 20_000
)

// New returns the dialect for one upstream. Where the adapter knows the provider's
// host, every POST with a document is read; elsewhere only one whose path ends in
// graphql or graphql.json.
func New(s providers.Settings) providers.Dialect { return &dialect{anyPath: s.IsKnownHost} }

type dialect struct{ anyPath bool }

// Read returns nil for what is no GraphQL or cannot be understood: several
// operations of which none is named, a persisted query, a batch.
func (d *dialect) Read(r *classify.Request) (providers.Content, *providers.Refusal) {
	if r.Method != "POST" || len(r.Body) == 0 || len(r.Body) > requestBytesMax || r.Header.Has("Content-Encoding") {
		return nil, nil
	}
	if !d.anyPath && !isEndpoint(r.Path()) {
		return nil, nil
	}
	c, err := read(r.Body)
	if err != nil {
		return nil, nil
	}
	return c, nil
}

func isEndpoint(path string) bool {
	last := path[strings.LastIndexByte(path, '/')+1:]
	return last == "graphql" || last == "graphql.json"
}

// content is one request. The document was parsed, and is not changed.
type content struct {
	doc       *ast.QueryDocument
	operation *ast.OperationDefinition
	// named is the operationName as it was sent.
	named string
	// roots are the root fields with fragments expanded.
	roots []*ast.Field
	names []string
}

type unreadable string

func (e unreadable) Error() string { return string(e) }

func read(body []byte) (*content, error) {
	text, there, err := member(body, "query")
	if err != nil || !there || text == "" {
		return nil, unreadable("no query in it")
	}
	doc, err := parse(text)
	if err != nil {
		return nil, unreadable("the document cannot be parsed")
	}
	c := &content{doc: doc}
	if c.named, _, err = member(body, "operationName"); err != nil {
		return nil, err
	}
	if c.operation = doc.Operations.ForName(c.named); c.operation == nil || c.named == "" && len(doc.Operations) != 1 {
		return nil, unreadable("it does not say which operation is meant")
	}
	if c.roots = c.fields(c.operation.SelectionSet, 0); len(c.roots) == 0 {
		return nil, unreadable("the operation has no field")
	}
	for _, f := range c.roots {
		c.names = append(c.names, f.Name)
	}
	return c, nil
}

// parse reads a document. What the parser makes of odd text is an error.
func parse(text string) (doc *ast.QueryDocument, err error) {
	defer func() {
		if recover() != nil {
			err = unreadable("the parser gave up")
		}
	}()
	return parser.ParseQueryWithTokenLimit(&ast.Source{Input: text}, tokensMax)
}

// member returns a text member of the body's object; null counts as not there.
func member(body []byte, name string) (text string, there bool, err error) {
	at, err := classify.Locate(body, []string{name})
	if err != nil || !at.Found {
		return "", false, err
	}
	raw := bytes.TrimSpace(body[at.Start:at.End])
	if string(raw) == "null" {
		return "", false, nil
	}
	if err := json.Unmarshal(raw, &text); err != nil {
		return "", false, unreadable(name + " is no text")
	}
	return text, true, nil
}

// depthMax bounds fragments inside fragments, which may lead in a circle.
const depthMax = 20

// fields are the fields of a selection, those of fragments among them.
func (c *content) fields(set ast.SelectionSet, depth int) []*ast.Field {
	if depth > depthMax {
		return nil
	}
	var list []*ast.Field
	for _, s := range set {
		switch s := s.(type) {
		case *ast.Field:
			list = append(list, s)
		case *ast.InlineFragment:
			list = append(list, c.fields(s.SelectionSet, depth+1)...)
		case *ast.FragmentSpread:
			if f := c.doc.Fragments.ForName(s.Name); f != nil {
				list = append(list, c.fields(f.SelectionSet, depth+1)...)
			}
		}
	}
	return list
}

// Kind is query, mutation or subscription.
func (c *content) Kind() string { return string(c.operation.Operation) }

// Names are the root fields, as often as they stand there.
func (c *content) Names() []string { return c.names }

// Class takes a document at its word: queries read.
func (c *content) Class() classify.Class {
	if c.operation.Operation == ast.Mutation {
		return classify.Effect
	}
	return classify.Read
}

// Changes lets no operation call a mutation a read.
func (c *content) Changes() bool { return c.operation.Operation == ast.Mutation }

// Print takes white space, comments and the order of members out of account: two
// documents that say the same are the same.
func (c *content) Print(r *classify.Request) *classify.Request {
	now, err := read(r.Body)
	if err != nil {
		return r
	}
	quoted, err := json.Marshal(now.text())
	if err != nil {
		return r
	}
	at, err := classify.Locate(r.Body, []string{"query"})
	if err != nil || !at.Found {
		return r
	}
	printed := *r
	printed.Body = bytes.Join([][]byte{r.Body[:at.Start], quoted, r.Body[at.End:]}, nil)
	return &printed
}

// text is the document in one form.
func (c *content) text() string { return format(c.doc) }

func format(doc *ast.QueryDocument) string {
	var b strings.Builder
	formatter.NewFormatter(&b, formatter.WithIndent(" ")).FormatQueryDocument(doc)
	return b.String()
}

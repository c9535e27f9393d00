package graphql

import (
	"errors"
	"mime"
	"net/url"
	"strings"

	"counterfoil/classify"
	"counterfoil/providers"

	"github.com/vektah/gqlparser/v2/ast"
)

// A dialect reads the requests of one upstream.
type dialect struct {
	// anywhere says that the adapter is of a certain provider, so that a document
	// counts at any path of it.
	anywhere bool
	library  library
}

// New returns a dialect that recognises requests by their path, whose last
// segment is graphql or graphql.json, or, where the adapter is of a certain
// provider, by a JSON body whose query is text.
func New(s providers.Settings) providers.Dialect { return &dialect{anywhere: s.IsKnownHost} }

// Read implements [providers.Dialect]. What is meant as GraphQL and cannot be
// told for certain is an effect of which nothing is known: several documents in
// one body, a document that the provider has on record, several operations none
// of which is named.
func (d *dialect) Read(r *classify.Request) (providers.Content, *providers.Refusal) {
	isOurs := isEndpoint(r.Path())
	if !isOurs && !d.anywhere {
		return nil, nil
	}
	switch r.Method {
	case "POST":
	case "GET":
		return d.readTarget(r, isOurs)
	default:
		return nil, nil
	}
	q, err := d.open(r)
	switch {
	case err == nil:
		return q.content(), nil
	case isOurs || q != nil:
		return &content{class: classify.Effect}, nil
	}
	return nil, nil
}

// isEndpoint reports whether GraphQL is usually served at path.
func isEndpoint(path string) bool {
	path = strings.TrimSuffix(path, "/")
	last := path[strings.LastIndexByte(path, '/')+1:]
	return last == "graphql" || last == "graphql.json"
}

// readTarget reads a document in the query of a GET, which only reads unless a
// server lets it do more.
func (d *dialect) readTarget(r *classify.Request, isOurs bool) (providers.Content, *providers.Refusal) {
	_, query, _ := strings.Cut(r.Target, "?")
	if !isOurs || !strings.Contains(query, "query=") {
		return nil, nil
	}
	unknown := &content{class: classify.Effect}
	values, err := url.ParseQuery(query)
	if err != nil || len(values["query"]) != 1 || len(values["operationName"]) > 1 {
		return unknown, nil
	}
	doc, err := parse(values.Get("query"))
	if err != nil {
		return unknown, nil
	}
	op, err := doc.chosen(values.Get("operationName"))
	if err != nil {
		return unknown, nil
	}
	return contentOf(op), nil
}

// A question is a request as it was taken apart.
type question struct {
	d   *dialect
	env *envelope
	doc *document
	op  *operation
}

// open takes a request apart. With an error it returns a question all the same
// where the body has a document.
func (d *dialect) open(r *classify.Request) (*question, error) {
	if r.Header.Has("Content-Encoding") {
		return nil, errNotJSON
	}
	q := &question{d: d}
	var err error
	switch mediaType(r.Header) {
	case "application/graphql":
		q.env = &envelope{body: r.Body, isText: true}
		q.doc, err = d.library.document(r.Body, func() (string, bool) { return string(r.Body), true })
	case "multipart/form-data", "application/x-www-form-urlencoded":
		return nil, errNotJSON
	default:
		if q.env, err = readEnvelope(r.Body); err != nil {
			return whole(q, err)
		}
		if !q.env.isGiven(q.env.query) || r.Body[q.env.query.Start] != '"' {
			return nil, errNoDocument
		}
		spelt := q.env.raw(q.env.query)
		q.doc, err = d.library.document(spelt, func() (string, bool) { return unquoted(spelt) })
	}
	if err != nil {
		return q, err
	}
	if hasParameters(r.Target) {
		return q, errRepeated
	}
	name, err := q.env.name()
	if err != nil {
		return q, err
	}
	q.op, err = q.doc.chosen(name)
	return q, err
}

// whole is what open returns for a body that is no object: it has a document
// where it is JSON with a member in two spellings.
func whole(q *question, err error) (*question, error) {
	if errors.Is(err, errRepeated) {
		return q, err
	}
	return nil, err
}

// hasParameters reports whether the target's query bears what the body does:
// servers differ on which of the two counts.
func hasParameters(target string) bool {
	_, query, _ := strings.Cut(target, "?")
	if query == "" {
		return false
	}
	values, err := url.ParseQuery(query)
	return err != nil || values.Has("query") || values.Has("operationName") || values.Has("variables") || values.Has("extensions")
}

func mediaType(h classify.Header) string {
	media, _, err := mime.ParseMediaType(h.Value("Content-Type"))
	if err != nil {
		return ""
	}
	return media
}

// Content is what is known of a request: with an empty kind, that it may have an
// effect.
type content struct {
	kind  string
	names []string
	class classify.Class
}

// Kind is query, mutation or subscription; empty where that cannot be told.
func (c *content) Kind() string { return c.kind }

// Names are the root fields, one for each time that they are asked for.
func (c *content) Names() []string { return c.names }

// Class is what the operation does.
func (c *content) Class() classify.Class { return c.class }

// Changes implements [providers.Changer]: all but what is known to read.
func (c *content) Changes() bool { return c.class == classify.Effect }

// Passes implements [providers.Passer]: a subscription's answers never end.
func (c *content) Passes() bool { return c.kind == string(ast.Subscription) }

func contentOf(op *operation) *content {
	c := &content{kind: string(op.tree.Operation), class: classify.Read}
	if op.tree.Operation == ast.Mutation {
		c.class = classify.Effect
	}
	for _, f := range op.roots {
		c.names = append(c.names, f.Name)
	}
	return c
}

// A query is one that reads. A mutation can be marked, judged and looked for.
type (
	query struct {
		*content
		d *dialect
	}
	mutation struct {
		query
		op *operation
	}
)

func (q *question) content() providers.Content {
	c := contentOf(q.op)
	switch q.op.tree.Operation {
	case ast.Mutation:
		return &mutation{query{c, q.d}, q.op}
	case ast.Query:
		return &query{c, q.d}
	case ast.Subscription:
	}
	return c
}

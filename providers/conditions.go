package providers

import (
	"context"
	"slices"
	"strings"

	"counterfoil/classify"
)

// conditions are what an operation asks of a request besides method and path.
type conditions struct {
	header, query, form []named
	json                *program
	// names are root fields or tools, kind is the sort of content.
	names []string
	kind  string
}

func (c *conditions) areNone() bool {
	return c.header == nil && c.query == nil && c.form == nil && c.json == nil && c.names == nil && c.kind == ""
}

// facts are what conditions look at in one request, each read once and only if
// somebody asks.
type facts struct {
	r       *classify.Request
	content Content
	scope   *scope
	// failed says that a program could not say whether its operation matches.
	failed error
}

// holds reports whether every condition is met.
func (c *conditions) holds(f *facts) bool {
	for i := range c.header {
		n := &c.header[i]
		if !f.r.Header.Has(n.name) || !n.value.matches(f.r.Header.Value(n.name)) {
			return false
		}
	}
	if !inPairs(c.query, f.scope.query) || !inPairs(c.form, f.scope.form) {
		return false
	}
	if c.kind != "" && (f.content == nil || f.content.Kind() != c.kind) {
		return false
	}
	if c.names != nil && !c.namesHold(f.content) {
		return false
	}
	return c.json == nil || f.says(c.json)
}

func inPairs(list []named, pairs func() map[string]any) bool {
	for i := range list {
		value, there := pairs()[list[i].name]
		text, _ := value.(string)
		if !there || !list[i].value.matches(text) {
			return false
		}
	}
	return true
}

// namesHold wants the one name that the content has, be it there more than once:
// of several different effects what is known about one says nothing. A dialect
// that names one more than once tells the effects apart.
func (c *conditions) namesHold(content Content) bool {
	if content == nil || len(content.Names()) == 0 {
		return false
	}
	first := content.Names()[0]
	for _, name := range content.Names() {
		if name != first {
			return false
		}
	}
	return slices.Contains(c.names, first)
}

// says asks a program about the body. A body that is no JSON meets no condition.
func (f *facts) says(p *program) bool {
	doc := f.scope.document()
	if doc == nil {
		return false
	}
	v, err := p.run(context.Background(), doc, f.scope.values(p))
	if err != nil {
		f.failed = err
		return false
	}
	return v == true
}

func (l *loader) conditions(c *conditions, f map[string]place) {
	c.header, c.query, c.form = l.globs(f["header"], "header"), l.globs(f["query"], "parameter"), l.globs(f["form"], "field")
	for i, n := range c.header {
		if !isToken(n.name) {
			l.complain(f["header"], "entry %d: %q is no header name", i+1, n.name)
		}
	}
	if f["json"].given() {
		c.json = l.program(f["json"], `a jq program over the body that is true where the operation is meant`)
	}
	c.names = append(l.texts(f["graphql"], "name a root field, as in issueCreate"), l.texts(f["tool"], "name a tool")...)
	l.needsDialect(f["graphql"], "graphql")
	l.needsDialect(f["tool"], "mcp")
	if f["graphql"].given() && f["tool"].given() {
		l.complain(f["tool"], "a request is GraphQL or MCP; keep graphql or tool")
	}
	if f["type"].given() {
		c.kind, _ = l.text(f["type"])
		if !slices.Contains([]string{"query", "mutation", "subscription"}, c.kind) && !strings.Contains(c.kind, "/") {
			l.complain(f["type"], "%q is no type; write query, mutation or subscription", c.kind)
		}
		if !strings.Contains(c.kind, "/") {
			l.needsDialect(f["type"], "graphql")
		}
	}
}

package providers

import (
	"maps"
	"slices"
	"strings"

	"counterfoil/classify"

	"go.yaml.in/yaml/v3"
)

// An Adapter is what is known about one provider. It is immutable, and safe
// for concurrent use.
type Adapter struct {
	// Name is the adapter's own name, "" for operations that stand in a
	// configuration.
	Name string
	// Operations are tried in this order; the first that matches counts.
	Operations []Operation

	// byMethod holds, in order, what may match a method that some operation
	// names; anyMethod what may match all others.
	byMethod  map[string][]candidate
	anyMethod []candidate
}

// A candidate is as much of an operation as matching needs, kept close
// together since all of them are walked.
type candidate struct {
	// prefix is what every path that matches begins with: it turns most away
	// before their segments are looked at.
	prefix string
	op     *Operation
}

// Parse reads an adapter from node and checks all of it. Node is a mapping with
// operations and perhaps a name, as in a file of its own, or the list of
// operations alone, as in a configuration. At says where node stands: its
// Source and Path begin every complaint (a list without a Path is called
// operations), its Line is not used. The error joins one *Complaint for each
// mistake, in the order of the lines.
func Parse(at Position, node *yaml.Node) (*Adapter, error) {
	l := &loader{source: at.Source}
	a := &Adapter{}
	if node != nil && node.Kind == yaml.DocumentNode && len(node.Content) == 1 {
		node = node.Content[0]
	}
	if node == nil || node.Kind == 0 {
		l.complain(place{path: at.Path}, "empty; write operations, as docs/adapters.md shows")
		return nil, l.err()
	}
	p := place{node: node, path: at.Path, line: node.Line}
	if p.value().Kind == yaml.SequenceNode {
		if p.path == "" {
			p.path = "operations"
		}
		a.Operations = l.operations(p)
	} else {
		l.file(a, p)
	}
	if err := l.err(); err != nil {
		return nil, err
	}
	a.index()
	return a, nil
}

func (a *Adapter) index() {
	a.byMethod = make(map[string][]candidate)
	for i := range a.Operations {
		for _, m := range a.Operations[i].Methods {
			a.byMethod[m] = nil
		}
	}
	for i := range a.Operations {
		op := &a.Operations[i]
		c := candidate{prefix: literalPrefix(op.Path), op: op}
		methods := op.Methods
		if len(methods) == 0 {
			a.anyMethod = append(a.anyMethod, c)
			methods = slices.Collect(maps.Keys(a.byMethod))
		}
		for _, m := range methods {
			a.byMethod[m] = append(a.byMethod[m], c)
		}
	}
}

func (l *loader) file(a *Adapter, p place) {
	f, ok := l.mapping(p, "name", "operations")
	if !ok {
		return
	}
	if f["name"].given() {
		a.Name, _ = l.required(f["name"], "give the adapter the name by which a configuration chooses it")
	}
	if !f["operations"].given() {
		l.complain(f["operations"], "missing; list what the provider can do")
		return
	}
	a.Operations = l.operations(f["operations"])
}

func literalPrefix(pattern string) string {
	prefix, _, wild := strings.Cut(pattern, "*")
	if !wild {
		return pattern
	}
	// /a/** takes /a as well, so the last slash is not certain.
	return prefix[:strings.LastIndexByte(prefix, '/')]
}

// Match returns the first operation that r is, or nil if it is none. It
// allocates nothing, and takes less than a microsecond for a hundred
// operations.
func (a *Adapter) Match(r *classify.Request) *Operation {
	candidates, named := a.byMethod[r.Method]
	if !named {
		candidates = a.anyMethod
	}
	path := r.Path()
	for i := range candidates {
		c := &candidates[i]
		if strings.HasPrefix(path, c.prefix) && c.op.path.Matches(r.Method, path) {
			return c.op
		}
	}
	return nil
}

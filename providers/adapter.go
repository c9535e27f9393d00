package providers

import (
	"maps"
	"regexp"
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
	// Hosts are the provider's, exact or with *. in front.
	Hosts []string
	// Dialects name the Go that reads content.
	Dialects []string
	// ScopeHeaders have to be the same on a resend and a lookup.
	ScopeHeaders []string
	// Redact names credentials in requests.
	Redact classify.Redaction
	// LookupCanary is a read that shows whether lookups are permitted, as in
	// GET /v1/balance; empty if none is known.
	LookupCanary string
	// Operations are tried in this order; the first that matches counts.
	Operations []Operation

	errors []errorRow
	// isOfHost says that paths begin at the provider's host, not at the
	// upstream's URL. base is what the URL has of them, host its host, bound the
	// dialects; all are set by For.
	isOfHost bool
	base     string
	host     string
	bound    []Dialect
	// next is tried after it.
	next *Adapter

	// byMethod holds, in order, what may match a method that some operation
	// names; anyMethod what may match all others.
	byMethod  map[string][]candidate
	anyMethod []candidate
}

// DialectNames are all that there are.
var DialectNames = []string{"graphql", "mcp", "llm"}

// For returns the adapter as one upstream uses it. Nil stays nil.
func (a *Adapter) For(d Dialects, s Settings) *Adapter {
	if a == nil {
		return nil
	}
	made := *a
	made.next = a.next.For(d, s)
	if a.isOfHost {
		made.base = s.BasePath
	}
	made.host = s.Host
	made.bound = nil
	s.IsKnownHost = len(a.Hosts) > 0 || len(a.Operations) > 0
	for _, name := range a.Dialects {
		if dialect, ok := d[name]; ok {
			made.bound = append(made.bound, dialect(s))
		}
	}
	return &made
}

// Join returns both: what first says nothing about, second may. Either may be
// nil.
func Join(first, second *Adapter) *Adapter {
	if first == nil {
		return second
	}
	made := *first
	made.next = Join(first.next, second)
	return &made
}

// Canary is the first of the adapter's LookupCanary that lies below the upstream's
// URL, relative to it; empty if none does.
func (a *Adapter) Canary() string {
	for part := a; part != nil; part = part.next {
		target, isGet := strings.CutPrefix(part.LookupCanary, "GET ")
		if !isGet {
			continue
		}
		if target, err := withoutBase(target, part.base); err == nil {
			return "GET " + target
		}
	}
	return ""
}

// Each calls f with every part of a joined adapter.
func (a *Adapter) Each(f func(*Adapter)) {
	for part := a; part != nil; part = part.next {
		f(part)
	}
}

// ServesHost reports whether the adapter is for that host.
func (a *Adapter) ServesHost(host string) bool {
	for _, h := range a.Hosts {
		if suffix, ok := strings.CutPrefix(h, "*"); ok && strings.HasSuffix(host, suffix) || h == host {
			return true
		}
	}
	return false
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
		l.searchesRead(a)
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

var (
	adapterName = regexp.MustCompile(`^[a-z0-9][a-z0-9-]{0,62}$`)
	hostName    = regexp.MustCompile(`^(\*\.)?[a-z0-9-]+(\.[a-z0-9-]+)*$`)
)

func (l *loader) file(a *Adapter, p place) {
	f, ok := l.mapping(p, "name", "hosts", "dialects", "scope_headers", "redact", "lookup_canary", "errors", "operations")
	if !ok {
		return
	}
	a.isOfHost = true
	if f["name"].given() {
		a.Name, _ = l.required(f["name"], "give the adapter the name by which a configuration chooses it")
		if a.Name != "" && !adapterName.MatchString(a.Name) {
			l.complain(f["name"], "%q is no name; use a-z, 0-9 and -", a.Name)
		}
	}
	a.Hosts = l.texts(f["hosts"], "name a host, as in api.example.com or *.example.com")
	for _, h := range a.Hosts {
		if !hostName.MatchString(h) {
			l.complain(f["hosts"], "%q is no host; write it in lower case without scheme and port, as in api.example.com or *.example.com", h)
		}
	}
	a.Dialects = l.texts(f["dialects"], "one of "+strings.Join(DialectNames, ", "))
	for _, d := range a.Dialects {
		if !slices.Contains(DialectNames, d) {
			l.complain(f["dialects"], "%q is no dialect; there are %s", d, strings.Join(DialectNames, ", "))
		}
	}
	l.isFile, l.dialects = true, a.Dialects
	a.ScopeHeaders = l.texts(f["scope_headers"], "name a header")
	l.redaction(a, f["redact"])
	l.canary(a, f["lookup_canary"])
	a.errors = l.errorRows(f["errors"])
	if !f["operations"].given() {
		l.complain(f["operations"], "missing; list what the provider can do")
		return
	}
	a.Operations = l.operations(f["operations"])
	l.searchesRead(a)
}

func (l *loader) redaction(a *Adapter, p place) {
	if !p.given() {
		return
	}
	f, ok := l.mapping(p, "query", "headers", "body", "path")
	if !ok {
		return
	}
	a.Redact = classify.Redaction{
		Query: l.texts(f["query"], "name a parameter"), Headers: l.texts(f["headers"], "name a header"),
		Body: l.texts(f["body"], "name a form field or a JSON pointer"), Path: l.texts(f["path"], "write a pattern with {} in it"),
	}
	secrets, err := classify.NewSecrets(nil, nil)
	if err == nil {
		_, err = secrets.With(a.Redact)
	}
	if err != nil {
		l.complain(p, "%s", strings.ReplaceAll(err.Error(), "\n", "; "))
	}
}

func (l *loader) canary(a *Adapter, p place) {
	if !p.given() {
		return
	}
	text, ok := l.required(p, `a read without placeholders, as in "GET /v1/balance"`)
	if target, isGet := strings.CutPrefix(text, "GET /"); ok && (!isGet || strings.ContainsAny(target, "{}") || checkLiteral("/"+target) != nil) {
		l.complain(p, `%q is no read that can be sent as it is; write it as in "GET /v1/balance"`, text)
	}
	a.LookupCanary = text
}

// searchesRead complains of lookups by POST that no operation calls reads: a
// POST that changes something would be sent as a question. It asks what has been
// read, so that nothing else may be wrong with it.
func (l *loader) searchesRead(a *Adapter) {
	if len(l.complaints) > 0 {
		return // what is wrong cannot be matched
	}
	a.index()
	for i := range a.Operations {
		k := a.Operations[i].Lookup
		if k == nil || k.request.method != "POST" {
			continue
		}
		path, err := k.request.target(func(p part) (string, error) {
			if p.name == "base" {
				return "", nil
			}
			return "x", nil
		})
		if err != nil {
			continue
		}
		op := a.find(&facts{r: &classify.Request{Method: "POST", Target: path}})
		if op == nil || op.Class != classify.Read {
			l.complain(place{path: k.At.Path + ".request", line: k.At.Line}, "is a POST, and no operation of this adapter says that it only reads; declare one of class read for it")
		}
	}
}

func literalPrefix(pattern string) string {
	prefix, _, wild := strings.Cut(pattern, "*")
	if !wild {
		return pattern
	}
	// /a/** takes /a as well, so the last slash is not certain.
	return prefix[:strings.LastIndexByte(prefix, '/')]
}

package providers

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
)

// A place is a YAML node and the path that led to it. A field that was not
// given has no node, but still the place where it would stand.
type place struct {
	node *yaml.Node
	path string
	line int
	// name is the field's own, in a mapping of any names.
	name string
}

func (p place) given() bool { return p.node != nil }

// value is the node behind any alias.
func (p place) value() *yaml.Node {
	if p.node.Kind == yaml.AliasNode {
		return p.node.Alias
	}
	return p.node
}

// A loader reads one source and gathers everything that is wrong with it.
type loader struct {
	source     string
	complaints []error
	// isFile says that a whole adapter is read, dialects which it names.
	isFile   bool
	dialects []string
}

// needsDialect complains of what means nothing in an adapter without that dialect.
// The operations of a configuration may stand before one that has it.
func (l *loader) needsDialect(p place, name string) {
	if l.isFile && p.given() && !slices.Contains(l.dialects, name) {
		l.complain(p, "means something in dialect %s only; name it in the adapter's dialects: [%s]", name, name)
	}
}

func (l *loader) at(p place) Position {
	return Position{Source: l.source, Line: p.line, Path: p.path}
}

func (l *loader) complain(p place, format string, args ...any) {
	l.complaints = append(l.complaints, &Complaint{At: l.at(p), Text: fmt.Sprintf(format, args...)})
}

// err returns all complaints in the order of their lines, joined.
func (l *loader) err() error {
	slices.SortStableFunc(l.complaints, func(a, b error) int {
		return a.(*Complaint).At.Line - b.(*Complaint).At.Line //nolint:errorlint,forcetypeassert // complain alone appends
	})
	return errors.Join(l.complaints...)
}

// mapping returns the fields of p by name: each known one is in the result,
// given or not. It complains of unknown and repeated fields.
func (l *loader) mapping(p place, known ...string) (map[string]place, bool) {
	node := p.value()
	if node.Kind != yaml.MappingNode {
		l.complain(p, "must be a mapping with %s, not %s", strings.Join(known, ", "), kindOf(node))
		return nil, false
	}
	fields := make(map[string]place, len(known))
	for _, name := range known {
		fields[name] = place{path: join(p.path, name), line: p.line}
	}
	for i := 0; i+1 < len(node.Content); i += 2 {
		l.field(p, known, fields, node.Content[i], node.Content[i+1])
	}
	return fields, true
}

func (l *loader) field(p place, known []string, fields map[string]place, key, value *yaml.Node) {
	f := place{node: value, path: join(p.path, key.Value), line: key.Line}
	switch {
	case key.Kind != yaml.ScalarNode:
		f.path = p.path
		l.complain(f, "the name of a field must be plain text, one of %s", strings.Join(known, ", "))
	case slices.Contains(known, key.Value) && fields[key.Value].given():
		l.complain(f, "given twice; keep one of them")
	case slices.Contains(known, key.Value):
		fields[key.Value] = f
	default:
		l.complain(f, "unknown field; understood here: %s", strings.Join(known, ", "))
	}
}

// pairs returns the fields of p, whose names may be any.
func (l *loader) pairs(p place) []place {
	node := p.value()
	if node.Kind != yaml.MappingNode {
		l.complain(p, "must be a mapping of names to values, not %s", kindOf(node))
		return nil
	}
	var list []place
	for i := 0; i+1 < len(node.Content); i += 2 {
		key := node.Content[i]
		f := place{node: node.Content[i+1], path: join(p.path, key.Value), line: key.Line, name: key.Value}
		switch {
		case key.Kind != yaml.ScalarNode || key.Value == "":
			f.path = p.path
			l.complain(f, "the name of a field must be plain text")
		case slices.ContainsFunc(list, func(other place) bool { return other.name == f.name }):
			l.complain(f, "given twice; keep one of them")
		default:
			list = append(list, f)
		}
	}
	return list
}

// texts returns the strings of a list.
func (l *loader) texts(p place, purpose string) []string {
	if !p.given() {
		return nil
	}
	var list []string
	for _, item := range l.list(p) {
		if s, ok := l.required(item, purpose); ok {
			list = append(list, s)
		}
	}
	return list
}

// truth returns the truth value at p, false if it is not given.
func (l *loader) truth(p place) bool {
	if !p.given() {
		return false
	}
	node := p.value()
	if node.Kind != yaml.ScalarNode || node.ShortTag() != "!!bool" || node.Value != "true" && node.Value != "false" {
		l.complain(p, "must be true or false, not %s", kindOf(node))
		return false
	}
	return node.Value == "true"
}

// list returns the elements of p, which must be a sequence.
func (l *loader) list(p place) []place {
	node := p.value()
	if node.Kind != yaml.SequenceNode {
		l.complain(p, "must be a list, not %s", kindOf(node))
		return nil
	}
	items := make([]place, len(node.Content))
	for i, n := range node.Content {
		items[i] = place{node: n, path: p.path + "[" + strconv.Itoa(i) + "]", line: n.Line}
	}
	return items
}

// text returns the string at p, "" if it is not given.
func (l *loader) text(p place) (string, bool) {
	if !p.given() {
		return "", false
	}
	node := p.value()
	if node.Kind != yaml.ScalarNode || node.ShortTag() != "!!str" {
		l.complain(p, "must be text, not %s; put it in quotes if text is meant", kindOf(node))
		return "", false
	}
	return node.Value, true
}

// required returns the non-empty string at p, or complains with what it is for.
func (l *loader) required(p place, purpose string) (string, bool) {
	if !p.given() || p.value().ShortTag() == "!!null" {
		l.complain(p, "missing; %s", purpose)
		return "", false
	}
	s, ok := l.text(p)
	if ok && s == "" {
		l.complain(p, "empty; %s", purpose)
		return "", false
	}
	return s, ok
}

// duration returns the Go duration at p, absent if it is not given or wrong.
// A bare 0 needs no unit.
func (l *loader) duration(p place, absent, least, most time.Duration) time.Duration {
	if !p.given() {
		return absent
	}
	node := p.value()
	if node.Kind != yaml.ScalarNode || node.ShortTag() == "!!null" {
		l.complain(p, "must be a duration as in 30s, 5m or 24h, not %s", kindOf(node))
		return absent
	}
	d, err := time.ParseDuration(node.Value)
	if err != nil {
		l.complain(p, "%q is no duration; write a number and a unit, as in 30s, 5m or 24h", node.Value)
		return absent
	}
	if d < least || d > most {
		l.complain(p, "%s is out of range; from %s to %s is possible", d, least, most)
		return absent
	}
	return d
}

// integer returns the whole number at p, absent if it is not given or wrong.
func (l *loader) integer(p place, absent, least, most int) int {
	if !p.given() {
		return absent
	}
	node := p.value()
	n, err := strconv.Atoi(node.Value)
	if node.Kind != yaml.ScalarNode || node.ShortTag() != "!!int" || err != nil {
		l.complain(p, "must be a whole number from %d to %d, not %s", least, most, kindOf(node))
		return absent
	}
	if n < least || n > most {
		l.complain(p, "%d is out of range; from %d to %d is possible", n, least, most)
		return absent
	}
	return n
}

func join(path, name string) string {
	if path == "" {
		return name
	}
	return path + "." + name
}

func kindOf(n *yaml.Node) string {
	switch n.Kind { //nolint:exhaustive // no value is of the others
	case yaml.MappingNode:
		return "a mapping"
	case yaml.SequenceNode:
		return "a list"
	case yaml.ScalarNode:
		return scalarKinds[n.ShortTag()]
	}
	return "nothing"
}

var scalarKinds = map[string]string{
	"!!str": "text", "!!int": "a whole number", "!!float": "a number", "!!bool": "true or false",
	"!!null": "nothing", "!!timestamp": "a date", "!!binary": "binary data", "!!merge": "a merge sign",
}

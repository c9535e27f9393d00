package config

import (
	"bytes"
	"encoding"
	"errors"
	"io"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// Bounds of the file.
const (
	fileBytesMax  = 1 << 20
	upstreamsMax  = 1024
	entriesMax    = 1024
	secretFileMax = 64 << 10
	nameShownMax  = 128
)

// file reads the file of that path, if there is one.
func (l *loader) file(path string) {
	if path == "" {
		return
	}
	here := place{source: path}
	data, err := l.readFile(path)
	switch {
	case err != nil:
		l.complain(place{source: "COUNTERFOIL_CONFIG"}, "%s", err)
		return
	case len(data) > fileBytesMax:
		l.complain(here, "has %d bytes; at most %d are read", len(data), fileBytesMax)
		return
	}
	root, ok := l.document(here, data)
	if !ok || !l.isPlain(root) {
		return
	}
	l.cfg.File = path
	l.read(reflect.ValueOf(l.cfg).Elem(), root, place{source: path, line: root.Line})
}

// document parses the one YAML document in data. An empty file has none.
func (l *loader) document(here place, data []byte) (*yaml.Node, bool) {
	var doc, second yaml.Node
	d := yaml.NewDecoder(bytes.NewReader(data))
	err := d.Decode(&doc)
	if errors.Is(err, io.EOF) {
		return nil, false
	}
	if err == nil && !errors.Is(d.Decode(&second), io.EOF) {
		here.line = second.Line
		l.complain(here, "holds a second document, or text that is no YAML, behind its first: keep one")
		return nil, false
	}
	if err != nil {
		l.syntax(here, err)
		return nil, false
	}
	if len(doc.Content) != 1 || isNull(doc.Content[0]) {
		return nil, false
	}
	return doc.Content[0], true
}

var syntaxLine = regexp.MustCompile(`^yaml: line (\d+): `)

// syntax complains of what is no YAML. The parser's text may quote the file,
// where it speaks of anchors, so that is not repeated.
func (l *loader) syntax(here place, err error) {
	text := err.Error()
	if m := syntaxLine.FindStringSubmatch(text); m != nil {
		here.line, _ = strconv.Atoi(m[1])
		text = text[len(m[0]):]
	}
	text = strings.TrimPrefix(text, "yaml: ")
	if strings.Contains(text, "anchor") || strings.Contains(text, "tag") || strings.ContainsAny(text, "\"`\n") {
		text = "an anchor, alias or tag that is not understood; put text that begins with & * or ! in quotes"
	}
	l.complain(here, "no valid YAML: %s", text)
}

// isPlain refuses aliases, with which a small file can grow without bound.
func (l *loader) isPlain(n *yaml.Node) bool {
	if n.Kind == yaml.AliasNode || n.Anchor != "" {
		l.complain(place{source: l.environ["COUNTERFOIL_CONFIG"], line: n.Line}, "anchors and aliases are not supported: write the value out; put text that begins with & or * in quotes")
		return false
	}
	for _, child := range n.Content {
		if !l.isPlain(child) {
			return false
		}
	}
	return true
}

// read sets v from n, and remembers where.
func (l *loader) read(v reflect.Value, n *yaml.Node, p place) {
	if p.path != "" {
		l.places[p.path] = p
	}
	if isNull(n) && v.Type() != reflect.TypeFor[Later]() {
		l.complain(p, "empty: give it a value, or leave it out")
		return
	}
	switch target := v.Addr().Interface().(type) {
	case *Later:
		l.complain(p, "not supported yet: leave it out")
	case *Operations:
		*target = Operations{Node: n, Source: p.source, Path: p.path}
	case *Upstreams:
		l.readUpstreams(n, p)
	case *Secret, *Tokens:
		l.readSecret(v, n, p)
	case *map[int]string:
		*target = l.readOutcomes(n, p)
	case *Hosts:
		l.readHosts(target, n, p)
	default:
		l.readKind(v, n, p)
	}
}

// readKind reads what needs nothing but its kind.
func (l *loader) readKind(v reflect.Value, n *yaml.Node, p place) {
	_, isText := reflect.TypeAssert[encoding.TextUnmarshaler](v.Addr())
	switch {
	case v.Kind() == reflect.Struct && (!isText || n.Kind == yaml.MappingNode):
		l.readStruct(v, n, p)
	case v.Kind() == reflect.Slice:
		l.readList(v, n, p)
	default:
		if text, ok := l.scalar(n, p); ok {
			l.complainOf(p, setText(v, text))
		}
	}
}

// scalar returns n as it is written. Numbers and the like are taken as text.
func (l *loader) scalar(n *yaml.Node, p place) (string, bool) {
	if n.Kind != yaml.ScalarNode {
		l.complain(p, "must be a single value, not %s", kindOf(n))
		return "", false
	}
	if !slices.Contains([]string{"!!str", "!!int", "!!float", "!!bool", "!!timestamp"}, n.ShortTag()) {
		l.complain(p, "must be plain text without a tag")
		return "", false
	}
	return n.Value, true
}

// An entry is one field of a mapping.
type entry struct {
	name  string
	at    place
	value *yaml.Node
}

// entries returns the fields of a mapping. It complains of those that are given
// twice.
// Where n is none, example shows what is wanted.
func (l *loader) entries(n *yaml.Node, p place, example string) []entry {
	if n.Kind != yaml.MappingNode {
		l.complain(p, "must be a mapping, not %s: write it like %s", kindOf(n), example)
		return nil
	}
	var all []entry
	seen := map[string]bool{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		name := n.Content[i]
		at := place{source: p.source, line: name.Line, path: join(p.path, name.Value)}
		switch {
		case name.Kind != yaml.ScalarNode:
			at.path = p.path
			l.complain(at, "the name of a field must be plain text, not %s", kindOf(name))
		case seen[name.Value]:
			l.complain(at, "given twice: keep one")
		default:
			seen[name.Value] = true
			all = append(all, entry{name.Value, at, n.Content[i+1]})
		}
	}
	return all
}

func (l *loader) readStruct(v reflect.Value, n *yaml.Node, p place) {
	fields := map[string]reflect.Value{}
	var names []string
	for i := range v.NumField() {
		if name := v.Type().Field(i).Tag.Get("yaml"); name != "" {
			fields[name] = v.Field(i)
			if v.Field(i).Type() != reflect.TypeFor[Later]() {
				names = append(names, name+": …")
			}
		}
	}
	for _, e := range l.entries(n, p, "{"+strings.Join(names[:min(len(names), 3)], ", ")+"}") {
		if f, known := fields[e.name]; known {
			l.read(f, e.value, e.at)
			continue
		}
		if len(l.complaints) >= complaintsMax {
			return // a suggestion takes time
		}
		if v.Type() == reflect.TypeFor[Config]() && isField(reflect.TypeFor[Upstream](), e.name) {
			l.complain(e.at, "unknown field here: it belongs to an upstream, as upstreams.<name>.%s", e.name)
			continue
		}
		l.complain(e.at, "unknown field%s", suggestion(e.name, slices.Collect(maps.Keys(fields))))
	}
}

// isField reports whether t has a field of that name in the file.
func isField(t reflect.Type, name string) bool {
	for f := range t.Fields() {
		if f.Tag.Get("yaml") == name {
			return true
		}
	}
	return false
}

func (l *loader) readList(v reflect.Value, n *yaml.Node, p place) {
	if n.Kind != yaml.SequenceNode {
		l.complain(p, "must be a list, not %s: begin each entry with a dash, or write [a, b]", kindOf(n))
		return
	}
	if len(n.Content) > entriesMax {
		l.complain(p, "has %d entries; at most %d are allowed", len(n.Content), entriesMax)
		return
	}
	list := reflect.MakeSlice(v.Type(), len(n.Content), len(n.Content))
	for i, item := range n.Content {
		l.read(list.Index(i), item, place{source: p.source, line: item.Line, path: p.path + "[" + strconv.Itoa(i) + "]"})
	}
	v.Set(list)
}

func (l *loader) readUpstreams(n *yaml.Node, p place) {
	for _, e := range l.entries(n, p, "upstreams: {tickets: {url: http://127.0.0.1:9090}}") {
		if len(l.cfg.Upstreams) == upstreamsMax {
			l.complain(e.at, "too many upstreams; at most %d are allowed", upstreamsMax)
			return
		}
		if err := checkUpstreamName(e.name); err != nil {
			l.complainOf(e.at, err)
			continue
		}
		u := &Upstream{Name: e.name}
		l.defaults(reflect.ValueOf(u).Elem())
		l.cfg.Upstreams = append(l.cfg.Upstreams, u)
		l.read(reflect.ValueOf(u).Elem(), e.value, e.at)
	}
}

func (l *loader) readOutcomes(n *yaml.Node, p place) map[int]string {
	outcomes := map[int]string{}
	for _, e := range l.entries(n, p, "{500: rejected}") {
		status, err := strconv.Atoi(e.name)
		if err != nil {
			l.complain(e.at, "must be a status, as in 500: rejected")
			continue
		}
		if name, ok := l.scalar(e.value, e.at); ok {
			outcomes[status] = name
		}
	}
	return outcomes
}

// readHosts takes a list, or text with commas.
func (l *loader) readHosts(hosts *Hosts, n *yaml.Node, p place) {
	if n.Kind != yaml.SequenceNode {
		if text, ok := l.scalar(n, p); ok {
			l.complainOf(p, hosts.UnmarshalText([]byte(text)))
		}
		return
	}
	var names []string
	l.readList(reflect.ValueOf(&names).Elem(), n, p)
	l.complainOf(p, hosts.set(names))
}

func (l *loader) readSecret(v reflect.Value, n *yaml.Node, p place) {
	text, ok := l.scalar(n, p)
	if !ok {
		return
	}
	value, err := l.expand(text)
	if err != nil {
		l.complainOf(p, err)
		return
	}
	if value == "" {
		l.complain(p, "empty: give it a value, or leave it out")
		return
	}
	l.complainOf(p, setText(v, value))
}

func isNull(n *yaml.Node) bool { return n.Kind == yaml.ScalarNode && n.ShortTag() == "!!null" }

func join(path, name string) string {
	if len(name) > nameShownMax {
		name = strings.ToValidUTF8(name[:nameShownMax], "") + "…"
	}
	if path == "" {
		return name
	}
	return path + "." + name
}

func kindOf(n *yaml.Node) string {
	switch n.Kind {
	case yaml.MappingNode:
		return "a mapping"
	case yaml.SequenceNode:
		return "a list"
	default: // documents and aliases have been refused before
		return "a single value"
	}
}

package graphql

import (
	"crypto/sha256"
	"encoding/base32"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strings"

	"counterfoil/classify"
	"counterfoil/providers"

	"github.com/vektah/gqlparser/v2/ast"
	"github.com/vektah/gqlparser/v2/lexer"
)

// Errors of placing. They name no content.
var (
	errNoArgument = errors.New("the mutation's field has no such argument to put it in")
	errNoVariable = errors.New("the variable that would hold it has no object to put it in")
	errNotText    = errors.New("what stands there is no text")
)

// Place implements [providers.Placer]. Where there are several root fields each
// gets a value of its own: the first this one, the others what is derived from
// it. A field that has one keeps it, unless text is appended or the value is a
// directive's.
func (c *mutation) Place(r *classify.Request, p *providers.Placement, value string) (classify.Request, error) {
	out := *r
	for i := range c.op.roots {
		q, err := c.d.open(&out)
		if err != nil {
			return classify.Request{}, err
		}
		if i >= len(q.op.roots) {
			return classify.Request{}, errNoDocument
		}
		spot := &spot{question: q, root: q.op.roots[i]}
		if out.Body, err = spot.put(p, nth(value, i)); err != nil {
			return classify.Request{}, err
		}
	}
	return out, nil
}

// Value implements [providers.Placer]: the values of several root fields are
// joined by commas. There is none unless each field has one.
func (c *mutation) Value(r *classify.Request, p *providers.Placement) (string, bool) {
	q, err := c.d.open(r)
	if err != nil || q.op.tree.Operation != ast.Mutation {
		return "", false
	}
	var values []string
	for _, root := range q.op.roots {
		text, ok := (&spot{question: q, root: root}).text(p)
		if !ok || text == "" {
			return "", false
		}
		values = append(values, text)
	}
	return strings.Join(values, ","), true
}

var uuidText = regexp.MustCompile(`^[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}$`)

// nth is the value of the nth root field, in the form of the first one's: a UUID
// (RFC 9562 section 5.4), or 24 characters of base32hex.
func nth(value string, n int) string {
	if n == 0 {
		return value
	}
	sum := sha256.Sum256(fmt.Appendf(nil, "%s\x00%d", value, n))
	if uuidText.MatchString(value) {
		sum[6], sum[8] = sum[6]&0x0f|0x40, sum[8]&0x3f|0x80
		return fmt.Sprintf("%x-%x-%x-%x-%x", sum[0:4], sum[4:6], sum[6:8], sum[8:10], sum[10:16])
	}
	return strings.ToLower(base32.HexEncoding.EncodeToString(sum[:15]))
}

// A spot is one root field in which something is to stand.
type spot struct {
	*question
	root *ast.Field
}

// put returns the body with the value in its place.
func (s *spot) put(p *providers.Placement, value string) ([]byte, error) {
	if p.Place == "directive" {
		return s.putDirective(p.Name, p.At, value)
	}
	path := strings.Split(p.Name, ".")
	before, there := s.argumentText(path)
	if p.Append != "" {
		added := strings.ReplaceAll(p.Append, "{marker}", value)
		if strings.HasSuffix(before, added) {
			return s.env.body, nil
		}
		value = before + added
	} else if there && before != "" {
		return s.env.body, nil
	}
	return s.putArgument(path, value)
}

// text returns what stands in the place.
func (s *spot) text(p *providers.Placement) (string, bool) {
	if p.Place != "directive" {
		return s.argumentText(strings.Split(p.Name, "."))
	}
	d := s.root.Directives.ForName(p.Name)
	if d == nil {
		return "", false
	}
	a := d.Arguments.ForName(p.At)
	if a == nil {
		return "", false
	}
	return s.valueText(a.Value, nil)
}

// argumentText returns the text that an argument's path leads to.
func (s *spot) argumentText(path []string) (string, bool) {
	a := s.root.Arguments.ForName(path[0])
	if a == nil {
		return "", false
	}
	return s.valueText(a.Value, path[1:])
}

func (s *spot) valueText(v *ast.Value, rest []string) (string, bool) {
	for {
		switch {
		case v == nil:
			return "", false
		case v.Kind == ast.Variable:
			return s.variableText(v.Raw, rest)
		case len(rest) > 0 && v.Kind == ast.ObjectValue:
			v, rest = v.Children.ForName(rest[0]), rest[1:]
		case len(rest) > 0:
			return "", false
		default:
			return v.Raw, v.Kind == ast.StringValue || v.Kind == ast.BlockValue || v.Kind == ast.IntValue
		}
	}
}

func (s *spot) variableText(name string, rest []string) (string, bool) {
	raw, there := s.variable(name, rest)
	if !there {
		def := s.op.tree.VariableDefinitions.ForName(name)
		if def == nil || def.DefaultValue == nil || def.DefaultValue.Kind == ast.Variable {
			return "", false
		}
		if _, given := s.variable(name, nil); given {
			return "", false
		}
		return s.valueText(def.DefaultValue, rest)
	}
	var v any
	d := json.NewDecoder(strings.NewReader(string(raw)))
	d.UseNumber()
	if d.Decode(&v) != nil {
		return "", false
	}
	switch v := v.(type) {
	case string:
		return v, true
	case json.Number:
		return v.String(), true
	}
	return "", false
}

// variable returns what a variable's path leads to, as it is spelt.
func (q *question) variable(name string, rest []string) ([]byte, bool) {
	if !q.env.isGiven(q.env.variables) {
		return nil, false
	}
	at, err := classify.Locate(q.env.body, append([]string{"variables", name}, rest...))
	if err != nil || !at.Found {
		return nil, false
	}
	return q.env.body[at.Start:at.End], true
}

func (s *spot) putArgument(path []string, value string) ([]byte, error) {
	a := s.root.Arguments.ForName(path[0])
	if a != nil {
		return s.putValue(a.Value, path[1:], value)
	}
	if len(path) > 1 {
		return nil, errNoArgument
	}
	name := s.nameToken()
	if s.doc.kindAt(name+1) == lexer.ParenL {
		return s.insert(s.doc.tokens[name+1].end, path[0]+": "+quoted(value)+", ")
	}
	return s.insert(s.doc.tokens[name].end, "("+path[0]+": "+quoted(value)+")")
}

// putValue sets the text that a path leads to within a value.
func (s *spot) putValue(v *ast.Value, rest []string, value string) ([]byte, error) {
	for {
		i := s.doc.index(v.Position)
		switch {
		case v.Kind == ast.Variable:
			return s.putVariable(v.Raw, rest, value)
		case len(rest) == 0 && (v.Kind == ast.StringValue || v.Kind == ast.BlockValue || v.Kind == ast.NullValue) && i < len(s.doc.tokens):
			return s.env.withDocument(s.doc.tokens[i].start, s.doc.tokens[i].end, quoted(value))
		case len(rest) == 0:
			return nil, errNotText
		case v.Kind != ast.ObjectValue || s.doc.kindAt(i) != lexer.BraceL:
			return nil, errNoArgument
		}
		child := v.Children.ForName(rest[0])
		switch {
		case child != nil:
			v, rest = child, rest[1:]
		case len(rest) > 1:
			return nil, errNoArgument
		default:
			return s.insert(s.doc.tokens[i].end, rest[0]+": "+quoted(value)+", ")
		}
	}
}

// quoted is a text as a string of GraphQL: JSON's escapes are among its own.
func quoted(text string) string {
	q, err := json.Marshal(text)
	if err != nil {
		return `""`
	}
	return string(q)
}

func (s *spot) insert(at int, text string) ([]byte, error) { return s.env.withDocument(at, at, text) }

// nameToken is the token of the root field's name, behind an alias.
func (s *spot) nameToken() int {
	i := s.doc.index(s.root.Position)
	if s.doc.kindAt(i+1) == lexer.Colon {
		return i + 2
	}
	return i
}

// headEnd is the last token of a field's name and arguments.
func (d *document) headEnd(name int) int {
	if d.kindAt(name+1) == lexer.ParenL {
		return d.closing(name + 1)
	}
	return name
}

func (s *spot) putVariable(name string, rest []string, value string) ([]byte, error) {
	e := s.env
	if e.isText {
		return nil, errNoVariable
	}
	text := []byte(quoted(value))
	path := append([]string{"variables", name}, rest...)
	if at, err := classify.Locate(e.body, path); err != nil {
		return nil, err
	} else if at.Found {
		if c := e.body[at.Start]; c != '"' && c != 'n' {
			return nil, errNotText
		}
		return splice(e.body, at.Start, at.End, text), nil
	}
	member := append(append([]byte(quoted(path[len(path)-1])), ':'), text...)
	parent, err := classify.Locate(e.body, path[:len(path)-1])
	switch {
	case err != nil:
		return nil, err
	case parent.Found && e.body[parent.Start] == '{':
		if s := (&scanner{src: e.body, at: parent.Start + 1}); !s.take('}') {
			member = append(member, ',')
		}
		return splice(e.body, parent.Start+1, parent.Start+1, member), nil
	case len(rest) > 0 || parent.Found && e.body[parent.Start] != 'n':
		return nil, errNoVariable
	case parent.Found:
		return splice(e.body, parent.Start, parent.End, append(append([]byte{'{'}, member...), '}')), nil
	}
	return splice(e.body, e.query.End, e.query.End, append(append([]byte(`,"variables":{`), member...), '}')), nil
}

// putDirective sets a directive of the root field, which is put behind the
// field's arguments if it is not there.
func (s *spot) putDirective(name, at, value string) ([]byte, error) {
	argument := at + ": " + quoted(value)
	d := s.root.Directives.ForName(name)
	if d == nil {
		end := s.doc.headEnd(s.nameToken())
		if end < 0 {
			return nil, errNoDocument
		}
		return s.insert(s.doc.tokens[end].end, " @"+name+"("+argument+")")
	}
	if a := d.Arguments.ForName(at); a != nil {
		return s.putValue(a.Value, nil, value)
	}
	i := s.doc.index(d.Position)
	if s.doc.kindAt(i) == lexer.At {
		i++
	}
	if s.doc.kindAt(i+1) == lexer.ParenL {
		return s.insert(s.doc.tokens[i+1].end, argument+", ")
	}
	return s.insert(s.doc.tokens[i].end, "("+argument+")")
}

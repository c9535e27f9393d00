package graphql

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"counterfoil/classify"
	"counterfoil/providers"

	"github.com/vektah/gqlparser/v2/ast"
	"github.com/vektah/gqlparser/v2/lexer"
)

// here stands in GraphQLLookup.Within for what the mutation selected of its
// object.
const here = "…"

// markAlias is the alias under which the field is asked for that bears the mark.
const markAlias = "counterfoil_mark"

// A plan is how one root field of a mutation is asked for, and what its payload
// is made of.
type plan struct {
	spot   *spot
	id     string
	lookup *providers.GraphQLLookup
	// alias begins every alias of the question.
	alias string
	// payload are the members of the payload in their order; asked are those that
	// the question asks for.
	payload []member
	asked   []member
}

// A member is one field of a payload, at a path of response keys: a value that is
// known, or the object.
type member struct {
	path  []string
	value json.RawMessage
	field *ast.Field
}

func (m *member) key() string { return strings.Join(m.path, "_") }

// plans takes the recorded request apart.
func (c *mutation) plans(l *providers.Lookup, q *providers.Query) ([]*plan, error) {
	if q.Original == nil {
		return nil, errNoDocument
	}
	asked, err := c.d.open(q.Original)
	if err != nil {
		return nil, err
	}
	roots := asked.op.roots
	ids := strings.Split(q.ID, ",")
	if len(roots) > 1 && (len(ids) != len(roots) || l.GraphQL.Within != "" || sharesKeys(roots)) {
		return nil, errors.New("the mutation has several root fields, which cannot be told apart in a lookup")
	}
	var list []*plan
	for i, root := range roots {
		p := &plan{spot: &spot{question: asked, root: root}, lookup: l.GraphQL, alias: fmt.Sprintf("counterfoil_%d", i), id: q.ID}
		if len(roots) > 1 {
			p.id = ids[i]
		}
		if err := p.read(strings.Split(l.GraphQL.Object, "."), root.SelectionSet, nil, nil, q); err != nil {
			return nil, err
		}
		list = append(list, p)
	}
	return list, nil
}

func sharesKeys(roots []*ast.Field) bool {
	keys := map[string]bool{}
	for _, r := range roots {
		if keys[r.Alias] {
			return true
		}
		keys[r.Alias] = true
	}
	return false
}

// read goes through a level of the payload. Object leads from here to the object
// that the lookup returns, names are the fields above, and path their response
// keys.
func (p *plan) read(object []string, set ast.SelectionSet, names, path []string, q *providers.Query) error {
	if len(object) == 1 && object[0] == "" {
		p.asked = append(p.asked, member{field: p.spot.root})
		p.payload = p.asked
		return nil
	}
	fields, err := p.spot.doc.flatten(set)
	if err != nil {
		return err
	}
	for _, s := range fields {
		f := s.field
		m := member{path: append(slices.Clone(path), f.Alias), field: f}
		switch {
		case f.Name == object[0] && (s.conditional || len(f.Directives) > 0 || len(f.Arguments) > 0):
			return errors.New("the mutation asks for its object under a condition or with arguments, which a lookup cannot do")
		case f.Name == object[0] && len(object) == 1:
			p.asked = append(p.asked, m)
			p.payload = append(p.payload, m)
		case f.Name == object[0]:
			p.payload = append(p.payload, member{path: m.path})
			if err := p.read(object[1:], f.SelectionSet, append(slices.Clone(names), f.Name), m.path, q); err != nil {
				return err
			}
		default:
			if m.value, err = p.known(strings.Join(append(slices.Clone(names), f.Name), "."), q); err != nil || s.conditional || len(f.Directives) > 0 {
				return errors.New("the mutation asks for a field of its payload that no lookup can fill in again")
			}
			p.payload = append(p.payload, m)
		}
	}
	return nil
}

// known returns the value of a field of the payload that is always the same, or
// that the request says.
func (p *plan) known(name string, q *providers.Query) (json.RawMessage, error) {
	i := slices.IndexFunc(p.lookup.Payload, func(b providers.Beside) bool { return b.Name == name })
	if i < 0 {
		return nil, errNoArgument
	}
	text := p.lookup.Payload[i].Value
	if strings.HasPrefix(text, "$") {
		value, there := p.resolve(text, q)
		if !there {
			return json.RawMessage("null"), nil
		}
		return json.RawMessage(quoted(value)), nil
	}
	if json.Valid([]byte(text)) {
		return json.RawMessage(text), nil
	}
	return json.RawMessage(quoted(text)), nil
}

// resolve returns what a variable of the adapter stands for: $id, $key, $marker,
// or an argument of the mutation, as in $input.subjectId.
func (p *plan) resolve(variable string, q *providers.Query) (string, bool) {
	switch variable {
	case "$id":
		return p.id, p.id != ""
	case "$key":
		return q.Key, q.Key != ""
	case "$marker":
		return q.Marker, q.Marker != ""
	}
	return p.spot.argumentText(strings.Split(variable[1:], "."))
}

// Seek implements [providers.Seeker]: one query asks for all that the mutation's
// root fields made, by the mutation's own selections. Only the body and its
// media type are set.
func (c *mutation) Seek(l *providers.Lookup, q *providers.Query) (*classify.Request, error) {
	plans, err := c.plans(l, q)
	if err != nil {
		return nil, err
	}
	var fields strings.Builder
	for _, p := range plans {
		if err := p.ask(&fields, q); err != nil {
			return nil, err
		}
	}
	asked := plans[0].spot.question
	u := &usage{doc: asked.doc}
	for _, p := range plans {
		for _, m := range p.asked {
			u.selections(m.field.SelectionSet)
		}
	}
	declared, values := u.variables(asked)
	texts := []string{"query CounterfoilLookup" + declared + " {" + fields.String() + " }"}
	for _, name := range u.fragments {
		texts = append(texts, asked.doc.fragmentText(name))
	}
	body := []byte(`{"query":` + quoted(strings.Join(texts, "\n")) + `,"operationName":"CounterfoilLookup","variables":` + values + `}`)
	return &classify.Request{Method: "POST", Header: classify.Header{{Name: "Content-Type", Value: "application/json"}}, Body: body}, nil
}

// ask writes the fields of the question.
func (p *plan) ask(b *strings.Builder, q *providers.Query) error {
	var arguments []string
	for _, a := range p.lookup.Arguments {
		value := a.Value
		if strings.HasPrefix(value, "$") {
			resolved, there := p.resolve(value, q)
			if !there || resolved == "" {
				return errors.New("the request does not hold what the lookup asks by")
			}
			value = resolved
		}
		arguments = append(arguments, a.Name+": "+quoted(value))
	}
	head := p.lookup.Field + "(" + strings.Join(arguments, ", ") + ")"
	if len(p.asked) == 0 {
		fmt.Fprintf(b, " %s: %s %s", p.alias, head, p.within("{ __typename }"))
		return nil
	}
	for i := range p.asked {
		m := &p.asked[i]
		selection, ok := p.spot.doc.selectionText(m.field)
		if !ok {
			return errors.New("the mutation asks for nothing of its object")
		}
		fmt.Fprintf(b, " %s_%s: %s %s", p.alias, m.key(), head, p.within(selection))
	}
	return nil
}

// within puts a selection where the object is found.
func (p *plan) within(selection string) string {
	if p.lookup.Within == "" {
		return selection
	}
	inner := "{ " + markAlias + ": " + p.lookup.Marked + " " + selection[1:]
	return "{ " + strings.ReplaceAll(p.lookup.Within, "{ "+here+" }", inner) + " }"
}

// selectionText is a field's selection set as it is written.
func (d *document) selectionText(f *ast.Field) (string, bool) {
	if len(f.SelectionSet) == 0 {
		return "", false
	}
	name := d.index(f.Position)
	if d.kindAt(name+1) == lexer.Colon {
		name += 2
	}
	return d.block(d.headEnd(name) + 1)
}

// block returns the selection set that begins at the ith token, or behind the
// directives there.
func (d *document) block(i int) (string, bool) {
	for d.kindAt(i) == lexer.At {
		i = d.headEnd(i+1) + 1
	}
	if d.kindAt(i) != lexer.BraceL {
		return "", false
	}
	text := d.slice(i, d.closing(i))
	return text, text != ""
}

// fragmentText is a fragment as it is written.
func (d *document) fragmentText(name string) string {
	f := d.fragment(name)
	i := d.index(f.Position)
	for i < len(d.tokens) && d.kindAt(i) != lexer.BraceL {
		if d.kindAt(i) == lexer.ParenL {
			i = d.closing(i)
		}
		i++
	}
	return "fragment " + name + " on " + f.TypeCondition + " " + d.slice(i, d.closing(i))
}

// A usage is which variables and fragments a selection needs.
type usage struct {
	doc       *document
	names     []string
	fragments []string
}

func (u *usage) selections(set ast.SelectionSet) {
	for _, s := range set {
		switch s := s.(type) {
		case *ast.Field:
			u.arguments(s.Arguments)
			u.directives(s.Directives)
			u.selections(s.SelectionSet)
		case *ast.InlineFragment:
			u.directives(s.Directives)
			u.selections(s.SelectionSet)
		case *ast.FragmentSpread:
			u.directives(s.Directives)
			if f := u.doc.fragment(s.Name); f != nil && !slices.Contains(u.fragments, s.Name) {
				u.fragments = append(u.fragments, s.Name)
				u.selections(f.SelectionSet)
			}
		}
	}
}

func (u *usage) directives(list ast.DirectiveList) {
	for _, d := range list {
		u.arguments(d.Arguments)
	}
}

func (u *usage) arguments(list ast.ArgumentList) {
	for _, a := range list {
		u.value(a.Value)
	}
}

func (u *usage) value(v *ast.Value) {
	if v == nil {
		return
	}
	if v.Kind == ast.Variable && !slices.Contains(u.names, v.Raw) {
		u.names = append(u.names, v.Raw)
	}
	for _, child := range v.Children {
		u.value(child.Value)
	}
}

// variables returns the declarations of what is used, and the values as JSON.
func (u *usage) variables(q *question) (declared, values string) {
	var declarations, members []string
	for _, name := range u.names {
		def := q.op.tree.VariableDefinitions.ForName(name)
		if def == nil {
			continue // the server will say so
		}
		text := "$" + name + ": " + def.Type.String()
		if def.DefaultValue != nil {
			text += " = " + def.DefaultValue.String()
		}
		declarations = append(declarations, text)
		if raw, there := q.variable(name, nil); there {
			members = append(members, quoted(name)+":"+string(raw))
		}
	}
	if len(declarations) > 0 {
		declared = "(" + strings.Join(declarations, ", ") + ")"
	}
	return declared, "{" + strings.Join(members, ",") + "}"
}

// Sought implements [providers.Seeker]. The answer is a success without content
// coding.
func (c *mutation) Sought(_ context.Context, l *providers.Lookup, q *providers.Query, a providers.Answer) providers.Finding {
	plans, err := c.plans(l, q)
	var said answer
	switch {
	case err != nil:
		return undecided(err.Error(), true)
	case json.Unmarshal(a.Body, &said) != nil:
		return undecided("the lookup's answer is not GraphQL's", false)
	case len(said.Errors) > 0:
		return undecided("the lookup's answer has errors", false)
	}
	found, hits := 0, 1
	var data []string
	for _, p := range plans {
		payload, n, err := p.answered(said.Data, q)
		if err != nil {
			return undecided(err.Error(), true)
		}
		if n > 0 {
			found, hits = found+1, max(hits, n)
			data = append(data, quoted(p.spot.root.Alias)+":"+payload)
		}
	}
	switch {
	case found == 0:
		return providers.Finding{Discovery: providers.Absent, Reason: "the lookup's answer does not show the effect"}
	case found < len(plans):
		return undecided("some of the mutation's effects exist, and others do not", true)
	}
	body := `{"data":{` + strings.Join(data, ",") + "}}"
	return providers.Finding{Discovery: providers.Found, Hits: hits, Answer: providers.Answer{Status: 200, Body: []byte(body)}}
}

func undecided(reason string, lasts bool) providers.Finding {
	return providers.Finding{Discovery: providers.Inconclusive, Reason: reason, Lasting: lasts}
}

var errPartial = errors.New("the lookup's answer shows the effect in part")

// answered returns a root field's payload as the provider would have given it,
// and how many objects fit it.
func (p *plan) answered(data map[string]json.RawMessage, q *providers.Query) (payload string, hits int, err error) {
	objects := map[string]json.RawMessage{}
	keys := []string{p.alias}
	if len(p.asked) > 0 {
		keys = nil
		for i := range p.asked {
			keys = append(keys, p.alias+"_"+p.asked[i].key())
		}
	}
	for i, key := range keys {
		raw, there := data[key]
		if !there {
			return "", 0, errors.New("the lookup's answer does not say what was asked")
		}
		object, n, err := p.pick(raw, q)
		if err != nil {
			return "", 0, err
		}
		if i > 0 && (n > 0) != (hits > 0) {
			return "", 0, errPartial
		}
		hits = n
		if n > 0 && len(p.asked) > 0 {
			objects[p.asked[i].key()] = object
		}
	}
	if hits == 0 {
		return "", 0, nil
	}
	t := &tree{}
	for i := range p.payload {
		m := &p.payload[i]
		value := m.value
		if value == nil {
			value = objects[m.key()]
		}
		t.set(m.path, value)
	}
	return t.String(), hits, nil
}

// pick returns the object of a lookup's field, 0 if there is none.
func (p *plan) pick(raw json.RawMessage, q *providers.Query) (json.RawMessage, int, error) {
	if string(raw) == "null" {
		return nil, 0, nil
	}
	if p.lookup.Within == "" {
		return raw, 1, nil
	}
	for name := range strings.SplitSeq(p.lookup.Hits, ".") {
		var object map[string]json.RawMessage
		if json.Unmarshal(raw, &object) != nil || object[name] == nil {
			return nil, 0, errors.New("the lookup's answer does not hold the list that was asked for")
		}
		raw = object[name]
	}
	var list []map[string]json.RawMessage
	if json.Unmarshal(raw, &list) != nil {
		return nil, 0, errors.New("the lookup's answer does not hold the list that was asked for")
	}
	var hit map[string]json.RawMessage
	n := 0
	for _, object := range list {
		var text string
		if json.Unmarshal(object[markAlias], &text) == nil && strings.Contains(text, q.Marker) {
			if n++; n == 1 {
				hit = object
			}
		}
	}
	if n == 0 {
		return nil, 0, nil
	}
	delete(hit, markAlias)
	made, err := json.Marshal(hit)
	return made, n, err
}

// A tree is a JSON object that is made member by member.
type tree struct {
	names    []string
	value    json.RawMessage
	children []*tree
}

// set puts a value at a path, which nil leaves an object. An empty path is the
// tree itself.
func (t *tree) set(path []string, value json.RawMessage) {
	for _, name := range path {
		i := slices.Index(t.names, name)
		if i < 0 {
			i = len(t.names)
			t.names, t.children = append(t.names, name), append(t.children, &tree{})
		}
		t = t.children[i]
	}
	if value != nil {
		t.value = value
	}
}

func (t *tree) String() string {
	if t.value != nil {
		return string(t.value)
	}
	var b bytes.Buffer
	b.WriteByte('{')
	for i, name := range t.names {
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteString(quoted(name) + ":" + t.children[i].String())
	}
	b.WriteByte('}')
	return b.String()
}

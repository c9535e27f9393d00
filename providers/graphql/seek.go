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
)

var (
	errNoSelection = errors.New("the mutation does not select the object that it makes, so its answer cannot be made again")
	errNoConstant  = errors.New("the mutation selects a field of its payload of which the adapter does not say what it holds")
)

// made is what stands for the object in the lookup's answer.
const made = "made"

// Seek returns the query that reads what the mutation made, with the selection
// that the mutation had: its answer can then be made as the client expects it.
func (c *content) Seek(l *providers.Lookup, q *providers.Query) (*classify.Request, error) {
	now, err := read(q.Original.Body)
	if err != nil {
		return nil, errUnread
	}
	if len(now.roots) != 1 {
		return nil, errSeveral
	}
	set, err := now.objectSelection(l.GraphQL)
	if err != nil {
		return nil, err
	}
	field := &ast.Field{Alias: made, Name: l.GraphQL.Field, SelectionSet: set}
	for _, a := range l.GraphQL.Arguments {
		value, err := argumentValue(a.Value, q)
		if err != nil {
			return nil, err
		}
		field.Arguments = append(field.Arguments, &ast.Argument{Name: a.Name, Value: value})
	}
	op := &ast.OperationDefinition{Operation: ast.Query, Name: "CounterfoilLookup", SelectionSet: ast.SelectionSet{field}}
	doc := &ast.QueryDocument{Operations: ast.OperationList{op}}
	names := now.reach(doc, set, nil)
	for _, v := range now.operation.VariableDefinitions {
		if slices.Contains(names, v.Variable) {
			op.VariableDefinitions = append(op.VariableDefinitions, v)
		}
	}
	return lookupRequest(q.Original, format(doc), names)
}

func lookupRequest(original *classify.Request, query string, variables []string) (*classify.Request, error) {
	body := map[string]any{"query": query, "operationName": "CounterfoilLookup"}
	kept := map[string]json.RawMessage{}
	for _, name := range variables {
		if at, err := classify.Locate(original.Body, []string{"variables", name}); err == nil && at.Found {
			kept[name] = original.Body[at.Start:at.End]
		}
	}
	if len(kept) > 0 {
		body["variables"] = kept
	}
	text, err := json.Marshal(body)
	if err != nil {
		return nil, err
	}
	r := *original
	r.Body = text
	r.Header = original.Header.Without(func(name string) bool {
		lower := strings.ToLower(name)
		return strings.HasPrefix(lower, "content-") || lower == "idempotency-key" || strings.HasPrefix(lower, "if-") || lower == "prefer"
	}).Set("Content-Type", "application/json").Set("Accept", "application/json").Set("Accept-Encoding", "identity")
	return &r, nil
}

// argumentValue is $id, $key or $marker, or a fixed text.
func argumentValue(text string, q *providers.Query) (*ast.Value, error) {
	named := map[string]string{"$id": q.ID, "$key": q.Key, "$marker": q.Marker}
	value, isNamed := named[text]
	switch {
	case !isNamed:
		return textValue(text), nil
	case value == "":
		return nil, fmt.Errorf("%s is empty, and would ask about something else", text)
	}
	return textValue(value), nil
}

// objectSelection is what the mutation selects of the object that it makes.
func (c *content) objectSelection(g *providers.GraphQLLookup) (ast.SelectionSet, error) {
	root := c.roots[0]
	if g.Object == "" {
		return root.SelectionSet, nil
	}
	var set ast.SelectionSet
	for _, f := range c.fields(root.SelectionSet, 0) {
		if f.Name == g.Object {
			set = append(set, f.SelectionSet...)
		}
	}
	if len(set) == 0 {
		return nil, errNoSelection
	}
	return set, nil
}

// reach adds the fragments that a selection needs to doc, and returns the
// variables that it uses.
func (c *content) reach(doc *ast.QueryDocument, set ast.SelectionSet, names []string) []string {
	for _, s := range set {
		switch s := s.(type) {
		case *ast.Field:
			for _, a := range s.Arguments {
				names = variablesIn(a.Value, names)
			}
			names = variablesOf(s.Directives, names)
			names = c.reach(doc, s.SelectionSet, names)
		case *ast.InlineFragment:
			names = c.reach(doc, s.SelectionSet, variablesOf(s.Directives, names))
		case *ast.FragmentSpread:
			f := c.doc.Fragments.ForName(s.Name)
			names = variablesOf(s.Directives, names)
			if f == nil || doc.Fragments.ForName(s.Name) != nil {
				continue
			}
			doc.Fragments = append(doc.Fragments, f)
			names = c.reach(doc, f.SelectionSet, names)
		}
	}
	return names
}

func variablesOf(directives ast.DirectiveList, names []string) []string {
	for _, d := range directives {
		for _, a := range d.Arguments {
			names = variablesIn(a.Value, names)
		}
	}
	return names
}

func variablesIn(v *ast.Value, names []string) []string {
	if v.Kind == ast.Variable {
		names = append(names, v.Raw)
	}
	for _, child := range v.Children {
		names = variablesIn(child.Value, names)
	}
	return names
}

// Sought makes of the lookup's answer the mutation's.
func (c *content) Sought(_ context.Context, l *providers.Lookup, q *providers.Query, a providers.Answer) providers.Finding {
	var got answer
	if json.Unmarshal(a.Body, &got) != nil {
		return providers.Finding{Discovery: providers.Inconclusive, Reason: "the lookup's answer is no GraphQL", Lasting: true}
	}
	object := bytes.TrimSpace(got.Data[made])
	switch {
	case len(object) > 0 && string(object) != "null":
	case len(got.Errors) > 0:
		return providers.Finding{Discovery: providers.Inconclusive, Reason: "the lookup was answered with errors"}
	default:
		return providers.Finding{Discovery: providers.Absent, Reason: "the lookup's answer does not show the effect"}
	}
	now, err := read(q.Original.Body)
	if err != nil {
		return providers.Finding{Discovery: providers.Inconclusive, Reason: errUnread.Error(), Lasting: true}
	}
	body, err := now.payload(l.GraphQL, object)
	if err != nil {
		return providers.Finding{Discovery: providers.Inconclusive, Reason: "the effect exists, but its response cannot be made: " + err.Error(), Lasting: true}
	}
	h := classify.Header{{Name: "Content-Type", Value: "application/json"}}
	return providers.Finding{Discovery: providers.Found, Hits: 1, Answer: providers.Answer{Status: 200, Header: h, Body: body}}
}

// payload is the mutation's answer around the object.
func (c *content) payload(g *providers.GraphQLLookup, object []byte) ([]byte, error) {
	root := c.roots[0]
	value := object
	if g.Object != "" {
		var b bytes.Buffer
		b.WriteByte('{')
		written := map[string]bool{}
		for _, f := range c.fields(root.SelectionSet, 0) {
			if written[f.Alias] {
				continue
			}
			text, err := payloadField(g, f, object)
			if err != nil {
				return nil, err
			}
			if len(written) > 0 {
				b.WriteByte(',')
			}
			written[f.Alias] = true
			fmt.Fprintf(&b, "%q:%s", f.Alias, text)
		}
		b.WriteByte('}')
		value = b.Bytes()
	}
	return fmt.Appendf(nil, `{"data":{%q:%s}}`, root.Alias, value), nil
}

// payloadField is the value of one field of the payload.
func payloadField(g *providers.GraphQLLookup, f *ast.Field, object []byte) ([]byte, error) {
	if f.Name == g.Object {
		return object, nil
	}
	for _, p := range g.Payload {
		if p.Name != f.Name {
			continue
		}
		if json.Valid([]byte(p.Value)) {
			return []byte(p.Value), nil
		}
		return json.Marshal(p.Value)
	}
	return nil, errNoConstant
}

package graphql

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"

	"counterfoil/classify"
	"counterfoil/providers"

	"github.com/vektah/gqlparser/v2/ast"
)

var (
	errSeveral  = errors.New("the document has several root fields, and a value is for one")
	errNoPlace  = errors.New("the document has no place for it")
	errUnread   = errors.New("the document cannot be read")
	errNoObject = errors.New("the argument is no input object")
)

// Place puts a value into an argument of the root field, input.id, or into an
// argument of a directive behind it. Where the argument is a variable, the value
// goes into the variables; else the document is written anew.
func (c *content) Place(r *classify.Request, p *providers.Placement, value string) (classify.Request, error) {
	now, err := read(r.Body)
	if err != nil {
		return classify.Request{}, errUnread
	}
	if len(now.roots) != 1 {
		return classify.Request{}, errSeveral
	}
	root := now.roots[0]
	if p.Place == "directive" {
		setArgument(directive(root, p.Name), p.At, value)
		return now.written(r)
	}
	first, rest, nested := strings.Cut(p.Name, ".")
	argument := root.Arguments.ForName(first)
	switch {
	case argument == nil && nested:
		return classify.Request{}, errNoPlace
	case argument == nil:
		root.Arguments = append(root.Arguments, &ast.Argument{Name: first, Value: textValue(value)})
		return now.written(r)
	case argument.Value.Kind == ast.Variable:
		return inVariables(r, argument.Value.Raw, rest, value)
	case !nested:
		argument.Value = textValue(value)
		return now.written(r)
	}
	if err := setChild(argument.Value, strings.Split(rest, "."), value); err != nil {
		return classify.Request{}, err
	}
	return now.written(r)
}

// Value returns what stands there.
func (c *content) Value(r *classify.Request, p *providers.Placement) (string, bool) {
	now, err := read(r.Body)
	if err != nil || len(now.roots) != 1 {
		return "", false
	}
	root := now.roots[0]
	if p.Place == "directive" {
		d := root.Directives.ForName(p.Name)
		if d == nil {
			return "", false
		}
		return textOf(r, d.Arguments.ForName(p.At), nil)
	}
	first, rest, nested := strings.Cut(p.Name, ".")
	var names []string
	if nested {
		names = strings.Split(rest, ".")
	}
	return textOf(r, root.Arguments.ForName(first), names)
}

func textOf(r *classify.Request, argument *ast.Argument, names []string) (string, bool) {
	if argument == nil {
		return "", false
	}
	v := argument.Value
	for i, name := range names {
		if v.Kind == ast.Variable {
			return inVariable(r, append([]string{v.Raw}, names[i:]...))
		}
		if v = v.Children.ForName(name); v == nil {
			return "", false
		}
	}
	switch v.Kind { //nolint:exhaustive // the others are no text
	case ast.Variable:
		return inVariable(r, []string{v.Raw})
	case ast.StringValue, ast.BlockValue, ast.EnumValue, ast.IntValue:
		return v.Raw, true
	}
	return "", false
}

func inVariable(r *classify.Request, names []string) (text string, there bool) {
	at, err := classify.Locate(r.Body, append([]string{"variables"}, names...))
	if err != nil || !at.Found || r.Body[at.Start] != '"' {
		return "", false
	}
	return text, json.Unmarshal(r.Body[at.Start:at.End], &text) == nil
}

func inVariables(r *classify.Request, variable, rest, value string) (classify.Request, error) {
	pointer := "/variables/" + variable
	if rest != "" {
		pointer += "/" + strings.ReplaceAll(rest, ".", "/")
	}
	return providers.KeyPlacement{Where: providers.InJSON, Name: pointer}.Place(r, value)
}

func setChild(v *ast.Value, names []string, value string) error {
	if v.Kind != ast.ObjectValue {
		return errNoObject
	}
	child := v.Children.ForName(names[0])
	switch {
	case len(names) > 1 && child == nil:
		return errNoPlace
	case len(names) > 1:
		return setChild(child, names[1:], value)
	case child == nil:
		v.Children = append(v.Children, &ast.ChildValue{Name: names[0], Value: textValue(value)})
	default:
		*child = *textValue(value)
	}
	return nil
}

func directive(f *ast.Field, name string) *ast.Directive {
	d := f.Directives.ForName(name)
	if d == nil {
		d = &ast.Directive{Name: name}
		f.Directives = append(f.Directives, d)
	}
	return d
}

func setArgument(d *ast.Directive, name, value string) {
	if a := d.Arguments.ForName(name); a != nil {
		a.Value = textValue(value)
		return
	}
	d.Arguments = append(d.Arguments, &ast.Argument{Name: name, Value: textValue(value)})
}

func textValue(text string) *ast.Value { return &ast.Value{Kind: ast.StringValue, Raw: text} }

// written returns r with the document as it is now.
func (c *content) written(r *classify.Request) (classify.Request, error) {
	quoted, err := json.Marshal(c.text())
	if err != nil {
		return classify.Request{}, err
	}
	at, err := classify.Locate(r.Body, []string{"query"})
	if err != nil || !at.Found {
		return classify.Request{}, errUnread
	}
	out := *r
	out.Body = bytes.Join([][]byte{r.Body[:at.Start], quoted, r.Body[at.End:]}, nil)
	return out, nil
}

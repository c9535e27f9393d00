package fake

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"strconv"
	"strings"
)

// A gqlField is one field that a document asks for. Fragments are in its set.
type gqlField struct {
	alias, name string
	args        map[string]any
	// directives are by name, with their arguments.
	directives map[string]map[string]any
	// on is the type that a fragment around the field asks for, "" for any.
	on  string
	set []gqlField
}

// A gqlDocument reads a GraphQL document of one operation, as far as the
// stand-ins need it: no subscriptions, no @skip and @include.
type gqlDocument struct {
	tokens    []string
	at        int
	variables map[string]any
	fragments map[string]gqlFragment
}

type gqlFragment struct {
	on  string
	set []gqlField
}

var (
	gqlToken  = regexp.MustCompile(`"""(?s:.*?)"""|"(?:\\.|[^"\\])*"|\.\.\.|[A-Za-z_][A-Za-z_0-9]*|-?[0-9][0-9.eE+-]*|[!$()\[\]{}:=@|&]`)
	gqlIgnore = regexp.MustCompile(`("""(?s:.*?)"""|"(?:\\.|[^"\\])*")|#[^\n]*`)
	errGQL    = errors.New("syntax error")
)

// readGraphQL returns what kind of operation a body asks for, and its root
// fields with the values of variables in their arguments.
func readGraphQL(body map[string]any) (kind string, roots []gqlField, err error) {
	text, _ := body["query"].(string)
	d := &gqlDocument{tokens: gqlToken.FindAllString(gqlIgnore.ReplaceAllString(text, "$1"), -1), fragments: map[string]gqlFragment{}}
	d.variables, _ = body["variables"].(map[string]any)
	defer func() {
		if recover() != nil { // it ran out of tokens
			err = errGQL
		}
	}()
	// Fragments may stand behind what uses them.
	for d.at < len(d.tokens) {
		if d.next() == "fragment" {
			name := d.take()
			d.take()
			on := d.take()
			d.fragments[name] = gqlFragment{on: on}
			d.skipSet()
			continue
		}
		d.skipDefinition()
	}
	for again := true; again; {
		again = false
		for name, f := range d.fragments {
			if f.set == nil {
				d.at = d.fragmentAt(name)
				d.fragments[name] = gqlFragment{f.on, d.set("")}
				again = true
			}
		}
	}
	d.at = 0
	for d.at < len(d.tokens) {
		if d.tokens[d.at] == "fragment" {
			d.at += 4
			d.skipSet()
			continue
		}
		kind = "query"
		if d.tokens[d.at] != "{" {
			kind = d.take()
		}
		for d.tokens[d.at] != "{" {
			if d.take() == "(" {
				d.at--
				d.declarations()
			}
		}
		return kind, d.set(""), nil
	}
	return "", nil, errGQL
}

func (d *gqlDocument) next() string {
	if d.tokens[d.at] == "fragment" {
		return d.take()
	}
	return d.tokens[d.at]
}

func (d *gqlDocument) take() string {
	t := d.tokens[d.at]
	d.at++
	return t
}

// fragmentAt is where the set of a fragment begins.
func (d *gqlDocument) fragmentAt(name string) int {
	for i := range d.tokens {
		if d.tokens[i] == "fragment" && d.tokens[i+1] == name {
			return i + 4
		}
	}
	return len(d.tokens)
}

func (d *gqlDocument) skipSet() {
	for depth := 0; ; {
		switch d.take() {
		case "{":
			depth++
		case "}":
			if depth--; depth == 0 {
				return
			}
		}
	}
}

// skipDefinition passes over an operation, whose declarations may hold braces.
func (d *gqlDocument) skipDefinition() {
	for d.tokens[d.at] != "{" {
		if d.take() == "(" {
			for depth := 1; depth > 0; {
				switch d.take() {
				case "(":
					depth++
				case ")":
					depth--
				}
			}
		}
	}
	d.skipSet()
}

// declarations gives variables their default values.
func (d *gqlDocument) declarations() {
	d.take()
	for d.tokens[d.at] != ")" {
		if d.take() != "$" {
			continue
		}
		name := d.take()
		for d.tokens[d.at] != "$" && d.tokens[d.at] != ")" {
			if d.take() != "=" {
				continue
			}
			if value := d.value(); d.variables[name] == nil {
				if d.variables == nil {
					d.variables = map[string]any{}
				}
				d.variables[name] = value
			}
		}
	}
	d.take()
}

func (d *gqlDocument) set(on string) []gqlField {
	fields := []gqlField{}
	d.take()
	for d.tokens[d.at] != "}" {
		if d.tokens[d.at] != "..." {
			fields = append(fields, d.field(on))
			continue
		}
		d.take()
		switch t := d.take(); t {
		case "on":
			within := d.take()
			fields = append(fields, d.set(within)...)
		case "{":
			d.at--
			fields = append(fields, d.set(on)...)
		default:
			f := d.fragments[t]
			if f.set == nil {
				at := d.at
				d.at = d.fragmentAt(t)
				f = gqlFragment{d.tokens[d.at-1], d.set("")}
				d.at = at
			}
			for _, inner := range f.set {
				if inner.on == "" {
					inner.on = f.on
				}
				fields = append(fields, inner)
			}
		}
	}
	d.take()
	return fields
}

func (d *gqlDocument) field(on string) gqlField {
	f := gqlField{alias: d.take(), on: on, directives: map[string]map[string]any{}}
	f.name = f.alias
	if d.tokens[d.at] == ":" {
		d.take()
		f.name = d.take()
	}
	f.args = d.arguments()
	for d.tokens[d.at] == "@" {
		d.take()
		name := d.take()
		f.directives[name] = d.arguments()
	}
	if d.tokens[d.at] == "{" {
		f.set = d.set("")
	}
	return f
}

func (d *gqlDocument) arguments() map[string]any {
	args := map[string]any{}
	if d.tokens[d.at] != "(" {
		return args
	}
	d.take()
	for d.tokens[d.at] != ")" {
		name := d.take()
		d.take()
		args[name] = d.value()
	}
	d.take()
	return args
}

func (d *gqlDocument) value() any {
	switch t := d.take(); {
	case t == "$":
		return d.variables[d.take()]
	case t == "[":
		list := []any{}
		for d.tokens[d.at] != "]" {
			list = append(list, d.value())
		}
		d.take()
		return list
	case t == "{":
		object := map[string]any{}
		for d.tokens[d.at] != "}" {
			name := d.take()
			d.take()
			object[name] = d.value()
		}
		d.take()
		return object
	case strings.HasPrefix(t, `"""`):
		return strings.Trim(t[3:len(t)-3], "\n ")
	case t[0] == '"':
		var text string
		_ = json.Unmarshal([]byte(t), &text) // JSON's escapes are all that tests use
		return text
	case t == "null":
		return nil
	case t == "true" || t == "false":
		return t == "true"
	default:
		if n, err := strconv.ParseFloat(t, 64); err == nil {
			return n
		}
		return t
	}
}

// gqlShape is what a set of fields shows of a value. Lists keep their order,
// and fields of one alias are merged.
func gqlShape(value any, set []gqlField) any {
	switch v := value.(type) {
	case []any:
		list := make([]any, len(v))
		for i := range v {
			list[i] = gqlShape(v[i], set)
		}
		return list
	case map[string]any:
		if set == nil {
			return v
		}
		shown := map[string]any{}
		for _, f := range set {
			if f.on != "" && v["__typename"] != nil && v["__typename"] != f.on {
				continue
			}
			made := gqlShape(v[f.name], f.set)
			before, isObject := shown[f.alias].(map[string]any)
			if more, ok := made.(map[string]any); ok && isObject {
				for name := range more {
					before[name] = more[name]
				}
				continue
			}
			shown[f.alias] = made
		}
		return shown
	}
	return value
}

// A gqlError is what a field came to instead of a value.
type gqlError struct {
	message    string
	extensions map[string]any
	// kind is GitHub's type beside the extensions, "" for none.
	kind string
}

// shown is the error as it stands in an answer; alias is its field's, "" where
// the whole request was refused.
func (e *gqlError) shown(alias string) map[string]any {
	shown := map[string]any{"message": e.message}
	if e.extensions != nil {
		shown["extensions"] = e.extensions
	}
	if e.kind != "" {
		shown["type"] = e.kind
	}
	if alias != "" {
		shown["path"] = []any{alias}
	}
	return shown
}

// A gqlServer answers documents by what each root field does.
type gqlServer struct {
	// fields are the root fields by name, whether of queries or mutations.
	fields map[string]func(f gqlField) (any, *gqlError)
	// nullable says that the other fields of a document with an error are shown.
	nullable bool
	// refuse says what is wrong with a request as a whole; nil for nothing.
	refuse func(r *http.Request, kind string, roots []gqlField) *gqlError
}

// ServeHTTP answers one document.
func (s *gqlServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, ok := readJSON(r)
	if !ok {
		writeJSON(w, 400, map[string]any{"errors": []any{map[string]any{"message": "body is no JSON"}}})
		return
	}
	kind, roots, err := readGraphQL(body)
	if err != nil {
		writeJSON(w, 400, gqlErrors(gqlRefusal(err.Error(), "GRAPHQL_PARSE_FAILED")))
		return
	}
	if s.refuse != nil {
		if e := s.refuse(r, kind, roots); e != nil {
			writeJSON(w, 200, gqlErrors(e))
			return
		}
	}
	answer := map[string]any{}
	data := map[string]any{}
	for _, f := range roots {
		do := s.fields[f.name]
		if do == nil {
			writeJSON(w, 400, gqlErrors(gqlRefusal("Cannot query field "+f.name, "GRAPHQL_VALIDATION_FAILED")))
			return
		}
		value, e := do(f)
		if e == nil {
			data[f.alias] = gqlShape(value, f.set)
			continue
		}
		data[f.alias] = nil
		list, _ := answer["errors"].([]any)
		answer["errors"] = append(list, e.shown(f.alias))
	}
	answer["data"] = data
	if answer["errors"] != nil && !s.nullable {
		answer["data"] = nil
	}
	writeJSON(w, 200, answer)
}

func gqlRefusal(message, code string) *gqlError {
	return &gqlError{message: message, extensions: map[string]any{"code": code}}
}

func gqlErrors(e *gqlError) map[string]any {
	return map[string]any{"errors": []any{e.shown("")}}
}

// gqlReads reports whether a request is a query.
func gqlReads(_ *http.Request, body []byte) bool {
	var object map[string]any
	if json.Unmarshal(body, &object) != nil {
		return false
	}
	kind, _, err := readGraphQL(object)
	return err == nil && kind == "query"
}

// gqlBody is a request's body.
func gqlBody(document string, variables map[string]any) string {
	text, err := json.Marshal(map[string]any{"query": document, "variables": variables})
	if err != nil {
		return fmt.Sprint(err) // it is made of JSON's types
	}
	return string(text)
}

package providers

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"counterfoil/classify"
)

// targetBytesMax bounds a lookup's target, since servers refuse longer ones.
const targetBytesMax = 8 << 10

// A Query is what a lookup may know of the call that it asks about.
type Query struct {
	// Key is the provider key exactly as the provider was sent it.
	Key string
	// Run, Turn and Call are the call's identity.
	Run, Turn, Call string
	// Original is the request whose effect is in doubt, with the headers that
	// the lookup is to be made with: those of the replaying request where there
	// is one. It may be nil for a lookup that uses no {body.…} and no $request.
	Original *classify.Request
}

// A template is the target of a lookup with placeholders in it.
type template struct {
	source string
	parts  []part
}

// A part is literal text, or a placeholder if name is set. Pointer leads into
// the request's JSON body where the name is body.
type part struct {
	literal string
	name    string
	pointer []string
}

func compileTemplate(source string) (template, error) {
	t := template{source: source}
	method, target, ok := strings.Cut(source, " ")
	switch {
	case !ok || target == "":
		return t, errors.New(`write a method and a target, as in "GET /effects/{key}"`)
	case method != "GET":
		return t, fmt.Errorf("method %q is not supported yet; a lookup is a GET", method)
	case !strings.HasPrefix(target, "/") || strings.HasPrefix(target, "//"):
		return t, errors.New(`the target begins with one "/" and is relative to the upstream's url`)
	}
	for target != "" {
		literal, rest, open := strings.Cut(target, "{")
		if err := checkLiteral(literal); err != nil {
			return t, err
		}
		if literal != "" {
			t.parts = append(t.parts, part{literal: literal})
		}
		if !open {
			break
		}
		name, rest, closed := strings.Cut(rest, "}")
		if !closed {
			return t, errors.New("a { is not closed")
		}
		p, err := placeholder(name)
		if err != nil {
			return t, err
		}
		t.parts, target = append(t.parts, p), rest
	}
	_, err := t.target(func(part) (string, error) { return "x", nil })
	return t, err
}

func placeholder(name string) (part, error) {
	field, inBody := strings.CutPrefix(name, "body.")
	switch {
	case slices.Contains([]string{"key", "run", "turn", "call"}, name):
		return part{name: name}, nil
	case !inBody || field == "":
		return part{}, fmt.Errorf("{%s} stands for nothing; there are {key}, {run}, {turn}, {call}, {body.NAME} and {body./json/pointer}", name)
	case strings.HasPrefix(field, "/"):
		if err := checkPointer(field); err != nil {
			return part{}, fmt.Errorf("{%s}: %w", name, err)
		}
		return part{name: "body", pointer: splitPointer(field)}, nil
	case strings.Contains(field, "."):
		return part{}, fmt.Errorf("{%s}: a field inside another is reached by a JSON pointer, as in {body./%s}", name, strings.ReplaceAll(field, ".", "/"))
	}
	return part{name: "body", pointer: []string{field}}, nil
}

// checkLiteral allows what a path and a query may hold (RFC 3986 section 3).
func checkLiteral(s string) error {
	for i := range len(s) {
		c := s[i]
		switch {
		case c == '%':
			if i+2 >= len(s) || !isHex(s[i+1]) || !isHex(s[i+2]) {
				return errors.New("a % must be followed by two hexadecimal digits")
			}
		case c == '}':
			return errors.New("a } without its {")
		case c == '#':
			return errors.New("a target holds no fragment; leave out # and what follows, or write %23")
		case !isAlphanumeric(c) && strings.IndexByte("-._~!$&'()*+,;=:@/?", c) < 0:
			return fmt.Errorf("%q must be percent-encoded here", c)
		}
	}
	return nil
}

func isHex(c byte) bool {
	return '0' <= c && c <= '9' || 'a' <= c && c <= 'f' || 'A' <= c && c <= 'F'
}

// expand fills the placeholders. An error names a placeholder, never a value.
func (t template) expand(q Query) (string, error) {
	return t.target(func(p part) (string, error) {
		v, err := p.value(q)
		if err == nil && v == "" {
			err = errors.New("it is empty, and would ask about something else")
		}
		if err != nil {
			return "", fmt.Errorf("%s: %w", p, err)
		}
		return v, nil
	})
}

func (t template) target(value func(part) (string, error)) (string, error) {
	var b strings.Builder
	for _, p := range t.parts {
		if p.name == "" {
			b.WriteString(p.literal)
			continue
		}
		v, err := value(p)
		if err != nil {
			return "", err
		}
		b.WriteString(escape(v))
	}
	if b.Len() > targetBytesMax {
		return "", fmt.Errorf("the target is longer than %d bytes", targetBytesMax)
	}
	return b.String(), checkSegments(b.String())
}

// checkSegments refuses dot segments, which servers resolve, so that a value
// cannot lead to another resource.
func checkSegments(target string) error {
	path, _, _ := strings.Cut(target, "?")
	for segment := range strings.SplitSeq(path, "/") {
		plain := strings.ReplaceAll(strings.ToLower(segment), "%2e", ".")
		if plain == "." || plain == ".." {
			return errors.New("a segment of the path is . or .., which leads elsewhere")
		}
	}
	return nil
}

func (p part) String() string {
	if p.name == "body" {
		return "{body." + pointerText(p.pointer) + "}"
	}
	return "{" + p.name + "}"
}

func pointerText(names []string) string {
	var b strings.Builder
	for _, n := range names {
		b.WriteString("/" + strings.ReplaceAll(strings.ReplaceAll(n, "~", "~0"), "/", "~1"))
	}
	return b.String()
}

func (p part) value(q Query) (string, error) {
	switch p.name {
	case "key":
		return q.Key, nil
	case "run":
		return q.Run, nil
	case "turn":
		return q.Turn, nil
	case "call":
		return q.Call, nil
	}
	return bodyValue(q.Original, p.pointer)
}

// bodyValue returns a string, number or truth value of the request's body as
// text; numbers keep the digits they were sent with.
func bodyValue(r *classify.Request, pointer []string) (string, error) {
	if r == nil || isCoded(r.Header) || !json.Valid(r.Body) {
		return "", errors.New("the request's body is not plain JSON")
	}
	at, err := locate(r.Body, pointer)
	if err != nil {
		return "", err
	}
	if !at.found {
		return "", errors.New("the request's body does not hold it")
	}
	raw := r.Body[at.start:at.end]
	switch raw[0] {
	case '{', '[', 'n':
		return "", errors.New("it is not a string, a number or a truth value in the request's body")
	case '"':
		var s string
		if json.Unmarshal(raw, &s) != nil {
			return "", errNotJSON
		}
		return s, nil
	}
	return strings.TrimRight(string(raw), " \t\r\n"), nil
}

// escape percent-encodes all but the unreserved characters (RFC 3986 section
// 2.3), so that a value is one value in a path and in a query alike.
func escape(s string) string {
	const hex = "0123456789ABCDEF"
	var b strings.Builder
	for i := range len(s) {
		c := s[i]
		if isAlphanumeric(c) || strings.IndexByte("-._~", c) >= 0 {
			b.WriteByte(c)
			continue
		}
		b.Write([]byte{'%', hex[c>>4], hex[c&15]})
	}
	return b.String()
}

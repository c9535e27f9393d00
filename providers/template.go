package providers

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"counterfoil/classify"
)

// targetBytesMax bounds a lookup's target, since servers refuse longer ones.
const targetBytesMax = 8 << 10

// A Query is what a lookup may know of the call that it asks about.
type Query struct {
	// Key is the provider key exactly as the provider was sent it, Marker the
	// call's provider key always.
	Key, Marker string
	// ID is what the request bears as the client's own id, for dialects.
	ID string
	// Run, Turn and Call are the call's identity.
	Run, Turn, Call string
	// SentAt is when the call was first sent.
	SentAt time.Time
	// Original is the request whose effect is in doubt, as it was recorded, with
	// the headers that the lookup is to be made with: those of the replaying
	// request where there is one. It may be nil for a lookup that uses nothing of
	// it.
	Original *classify.Request
}

// A template is the target of a lookup with placeholders in it.
type template struct {
	source string
	method string
	parts  []part
}

// A part is literal text, or a placeholder if name is set. Pointer leads into
// the request's JSON body where the name is body; program yields the value where
// the name is jq.
type part struct {
	literal string
	name    string
	pointer []string
	program *program
}

func compileTemplate(at Position, source string) (template, error) {
	t := template{source: source}
	method, target, ok := strings.Cut(source, " ")
	switch {
	case !ok || target == "":
		return t, errors.New(`write a method and a target, as in "GET /effects/{key}"`)
	case method != "GET" && method != "POST":
		return t, fmt.Errorf("method %q cannot be a lookup's: write GET, or POST for a search that is one", method)
	case !strings.HasPrefix(target, "/") && !strings.HasPrefix(target, "{base}/") || strings.HasPrefix(target, "//"):
		return t, errors.New(`the target begins with one "/", or with {base}`)
	}
	t.method = method
	for target != "" {
		literal, rest, open := strings.Cut(target, "{")
		literal, err := encodeLiteral(literal)
		if err != nil {
			return t, err
		}
		if literal != "" {
			t.parts = append(t.parts, part{literal: literal})
		}
		if !open {
			break
		}
		name, rest, closed := cutPlaceholder(rest)
		if !closed {
			return t, errors.New("a { is not closed")
		}
		p, err := placeholder(at, name)
		if err != nil {
			return t, err
		}
		t.parts, target = append(t.parts, p), rest
	}
	_, err := t.target(func(part) (string, error) { return "x", nil })
	return t, err
}

// cutPlaceholder ends at the } that closes the {, past those inside jq's own
// braces and strings.
func cutPlaceholder(text string) (name, rest string, closed bool) {
	depth, quoted := 0, false
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case quoted && c == '\\':
			i++
		case c == '"':
			quoted = !quoted
		case quoted:
		case c == '{':
			depth++
		case c == '}' && depth > 0:
			depth--
		case c == '}':
			return text[:i], text[i+1:], true
		}
	}
	return "", "", false
}

// encodeLiteral percent-encodes what is plain to people and not allowed in a
// query, as the brackets of created[gte].
func encodeLiteral(s string) (string, error) {
	s = strings.NewReplacer("[", "%5B", "]", "%5D", " ", "%20", `"`, "%22", "|", "%7C").Replace(s)
	return s, checkLiteral(s)
}

var plainNames = []string{"key", "marker", "id", "run", "turn", "call", "base"}

func placeholder(at Position, name string) (part, error) {
	field, inBody := strings.CutPrefix(name, "body.")
	switch {
	case slices.Contains(plainNames, name):
		return part{name: name}, nil
	case !inBody && strings.Contains(name, "$"):
		compiled, err := compileProgram(at, name)
		return part{name: "jq", program: compiled}, err
	case !inBody || field == "":
		return part{}, fmt.Errorf("{%s} stands for nothing; there are {%s}, {body.NAME}, {body./json/pointer} and jq such as {$path[1]}", name, strings.Join(plainNames, "}, {"))
	case strings.HasPrefix(field, "/"):
		if err := classify.CheckPointer(field); err != nil {
			return part{}, fmt.Errorf("{%s}: %w", name, err)
		}
		return part{name: "body", pointer: classify.SplitPointer(field)}, nil
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

// expand fills the placeholders. An error names a placeholder, never a value; a
// *programError says that a program failed.
func (t *template) expand(ctx context.Context, sc *scope, base string) (string, error) {
	return t.target(func(p part) (string, error) {
		v, err := p.value(ctx, sc, base)
		if err == nil && v == "" && p.name != "base" {
			err = errors.New("it is empty, and would ask about something else")
		}
		if err != nil {
			return "", fmt.Errorf("%s: %w", p, err)
		}
		return v, nil
	})
}

func (t *template) target(value func(part) (string, error)) (string, error) {
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
		if p.name == "base" {
			b.WriteString(v)
			continue
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
	switch p.name {
	case "body":
		return "{body." + pointerText(p.pointer) + "}"
	case "jq":
		return "{" + p.program.source + "}"
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

func (p part) value(ctx context.Context, sc *scope, base string) (string, error) {
	switch p.name {
	case "key":
		return sc.q.Key, nil
	case "marker":
		return sc.q.Marker, nil
	case "id":
		return sc.id, nil
	case "run":
		return sc.q.Run, nil
	case "turn":
		return sc.q.Turn, nil
	case "call":
		return sc.q.Call, nil
	case "base":
		return base, nil
	case "jq":
		v, err := sc.run(ctx, p.program, nil)
		if err != nil {
			return "", err
		}
		text, ok := textOf(v)
		if !ok {
			return "", errors.New("it is not a string, a number or a truth value")
		}
		return text, nil
	}
	return bodyValue(sc.q.Original, p.pointer)
}

// mentions reports whether a placeholder asks for one of the names, $name in jq
// included.
func (t *template) mentions(names ...string) bool {
	for i := range t.parts {
		p := &t.parts[i]
		for _, name := range names {
			if p.name == name || p.program != nil && p.program.mentions("$"+name) {
				return true
			}
		}
	}
	return false
}

// bodyValue returns a string, number or truth value of the request's body as
// text; numbers keep the digits they were sent with.
func bodyValue(r *classify.Request, pointer []string) (string, error) {
	if r == nil || isCoded(r.Header) || !json.Valid(r.Body) {
		return "", errors.New("the request's body is not plain JSON")
	}
	at, err := classify.Locate(r.Body, pointer)
	if err != nil {
		return "", err
	}
	if !at.Found {
		return "", errors.New("the request's body does not hold it")
	}
	raw := r.Body[at.Start:at.End]
	switch raw[0] {
	case '{', '[', 'n':
		return "", errors.New("it is not a string, a number or a truth value in the request's body")
	case '"':
		var s string
		if json.Unmarshal(raw, &s) != nil {
			return "", classify.ErrNotJSON
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

package providers

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"mime"
	"net/url"
	"slices"
	"strings"

	"counterfoil/classify"
)

// A Placement says where in a request a value of ours goes.
type Placement struct {
	// Place is the kind: header, query, form, json, form_json, multipart,
	// argument, directive or mime_header.
	Place string
	// Name is the header, parameter, field, JSON pointer, GraphQL argument or
	// directive; At what lies inside it.
	Name, At string
	// Create makes the objects on the way that are missing.
	Create bool
	// Append puts this text, {marker} in it replaced, behind the text that stands
	// there instead of in its place.
	Append string
}

// places lists the kinds, and whether each needs At.
var places = []struct {
	name    string
	needsAt bool
}{
	{"header", false}, {"query", false}, {"form", false}, {"json", false}, {"form_json", true}, {"multipart", false},
	{"argument", false}, {"directive", true}, {"mime_header", true},
}

func (p *Placement) inDialect() bool { return p.Place == "argument" || p.Place == "directive" }

func (p *Placement) String() string {
	s := p.Place + " " + p.Name
	if p.At != "" {
		s += " at " + p.At
	}
	if p.Append != "" {
		s += " (appended)"
	}
	return s
}

// Errors of placing. They name no content.
var (
	errOtherBody  = errors.New("the body is of another media type")
	errNoDialect  = errors.New("the request is not in the dialect that this needs")
	errNotText    = errors.New("what stands there is no text")
	errNoBoundary = errors.New("the multipart body cannot be read")
)

// place returns a copy of r with value in its place.
func (p *Placement) place(r *classify.Request, c Content, value string) (classify.Request, error) {
	if p.inDialect() {
		placer, ok := c.(Placer)
		if !ok {
			return classify.Request{}, errNoDialect
		}
		if err := changeable(r.Header); err != nil {
			return classify.Request{}, err
		}
		return placer.Place(r, p, value)
	}
	if p.Append != "" {
		added := strings.ReplaceAll(p.Append, "{marker}", value)
		before, _ := p.value(r, c)
		if strings.HasSuffix(before, added) {
			return *r, nil
		}
		value = before + added
	}
	switch p.Place {
	case "header":
		return KeyPlacement{InHeader, p.Name}.Place(r, value)
	case "query":
		return KeyPlacement{InQuery, p.Name}.Place(r, value)
	case "form":
		return KeyPlacement{InForm, p.Name}.Place(r, value)
	}
	out := *r
	var err error
	if err = changeable(r.Header); err != nil {
		return classify.Request{}, err
	}
	switch p.Place {
	case "json":
		out.Body, err = p.placeJSON(r, value)
	case "form_json":
		out.Body, err = p.placeFormJSON(r, value)
	case "multipart":
		out.Body, err = multipartWith(r, p.Name, value)
	case "mime_header":
		out.Body, err = p.placeMIME(r, value)
	default:
		err = fmt.Errorf("%q is no place", p.Place)
	}
	if err != nil {
		return classify.Request{}, err
	}
	return out, nil
}

// value returns the text that stands there.
func (p *Placement) value(r *classify.Request, c Content) (string, bool) {
	switch p.Place {
	case "argument", "directive":
		if placer, ok := c.(Placer); ok {
			return placer.Value(r, p)
		}
	case "header":
		return r.Header.Value(p.Name), r.Header.Has(p.Name)
	case "query":
		_, query, _ := strings.Cut(r.Target, "?")
		return pairValue(query, p.Name)
	case "form":
		if mediaType(r.Header) == formType && !isCoded(r.Header) {
			return pairValue(string(r.Body), p.Name)
		}
	case "json":
		if !isCoded(r.Header) && json.Valid(r.Body) {
			return textAt(r.Body, classify.SplitPointer(p.Name))
		}
	case "form_json":
		if mediaType(r.Header) != formType || isCoded(r.Header) {
			return "", false
		}
		if inner, ok := pairValue(string(r.Body), p.Name); ok && json.Valid([]byte(inner)) {
			return textAt([]byte(inner), classify.SplitPointer(p.At))
		}
	case "multipart":
		return multipartValue(r, p.Name)
	case "mime_header":
		return p.mimeValue(r)
	}
	return "", false
}

const formType = "application/x-www-form-urlencoded"

func pairValue(pairs, name string) (string, bool) {
	for pair := range strings.SplitSeq(pairs, "&") {
		if pairName(pair) != name {
			continue
		}
		_, value, _ := strings.Cut(pair, "=")
		plain, err := url.QueryUnescape(value)
		return plain, err == nil
	}
	return "", false
}

// textAt returns the string, number or truth value at a pointer as text.
func textAt(doc []byte, names []string) (string, bool) {
	at, err := classify.Locate(doc, names)
	if err != nil || !at.Found {
		return "", false
	}
	raw := doc[at.Start:at.End]
	switch raw[0] {
	case '{', '[', 'n':
		return "", false
	case '"':
		var s string
		if json.Unmarshal(raw, &s) != nil {
			return "", false
		}
		return s, true
	}
	return string(bytes.TrimRight(raw, " \t\r\n")), true
}

func (p *Placement) placeJSON(r *classify.Request, value string) ([]byte, error) {
	if !json.Valid(r.Body) {
		return nil, errOtherBody
	}
	quoted, err := json.Marshal(value)
	if err != nil {
		return nil, err
	}
	names := classify.SplitPointer(p.Name)
	if p.Append != "" {
		if at, err := classify.Locate(r.Body, names); err == nil && at.Found && r.Body[at.Start] != '"' && r.Body[at.Start] != 'n' {
			return nil, errNotText
		}
	}
	return p.set(r.Body, names, quoted)
}

func (p *Placement) set(doc []byte, names []string, value []byte) ([]byte, error) {
	if p.Create {
		var err error
		if names, value, err = created(doc, names, value); err != nil {
			return nil, err
		}
	}
	return setMember(doc, names, value)
}

// created is what has to be set, and where, so that the objects along names come to
// be that are missing or null.
func created(doc []byte, names []string, value []byte) ([]string, []byte, error) {
	for i := 1; i < len(names); i++ {
		at, err := classify.Locate(doc, names[:i])
		switch {
		case err != nil:
			return nil, nil, err
		case at.Found && doc[at.Start] == '{':
			continue
		case at.Found && doc[at.Start] != 'n':
			return nil, nil, classify.ErrNotObject
		}
		for _, name := range slices.Backward(names[i:]) {
			quoted, err := json.Marshal(name)
			if err != nil {
				return nil, nil, err
			}
			value = slices.Concat([]byte("{"), quoted, []byte(":"), value, []byte("}"))
		}
		return names[:i], value, nil
	}
	return names, value, nil
}

func (p *Placement) placeFormJSON(r *classify.Request, value string) ([]byte, error) {
	if mediaType(r.Header) != formType {
		return nil, errOtherBody
	}
	inner, there := pairValue(string(r.Body), p.Name)
	if !there || inner == "" {
		if !p.Create {
			return nil, errors.New("the field that would hold it is not in the body")
		}
		inner = "{}"
	}
	if !json.Valid([]byte(inner)) {
		return nil, errors.New("the field that would hold it is not JSON")
	}
	quoted, err := json.Marshal(value)
	if err != nil {
		return nil, err
	}
	made, err := p.set([]byte(inner), classify.SplitPointer(p.At), quoted)
	if err != nil {
		return nil, err
	}
	return []byte(pairsWith(string(r.Body), p.Name, string(made))), nil
}

// multipartParts splits a form-data body at its boundary (RFC 2046 section
// 5.1.1): the parts with their header blocks, and where the last boundary
// begins.
func multipartParts(r *classify.Request) (delimiter []byte, parts [][]byte, err error) {
	t, params, err := mime.ParseMediaType(r.Header.Value("Content-Type"))
	if err != nil || t != "multipart/form-data" || params["boundary"] == "" {
		return nil, nil, errOtherBody
	}
	delimiter = []byte("--" + params["boundary"])
	split := bytes.Split(append([]byte("\r\n"), r.Body...), append([]byte("\r\n"), delimiter...))
	if len(split) < 2 || !bytes.HasPrefix(split[len(split)-1], []byte("--")) {
		return nil, nil, errNoBoundary
	}
	return delimiter, split, nil
}

// blankLine ends a part's headers.
var blankLine = []byte("\r\n\r\n")

func partName(part []byte) (name string, content []byte) {
	head, content, ok := bytes.Cut(part, blankLine)
	if !ok {
		return "", nil
	}
	for line := range bytes.SplitSeq(head, []byte("\r\n")) {
		field, value, _ := strings.Cut(string(line), ":")
		if !strings.EqualFold(field, "Content-Disposition") {
			continue
		}
		if _, params, err := mime.ParseMediaType(value); err == nil {
			return params["name"], content
		}
	}
	return "", content
}

func multipartValue(r *classify.Request, name string) (string, bool) {
	_, parts, err := multipartParts(r)
	if err != nil || isCoded(r.Header) {
		return "", false
	}
	for _, part := range parts[1 : len(parts)-1] {
		if n, content := partName(part); n == name {
			return string(content), true
		}
	}
	return "", false
}

// multipartWith sets one part: the first that bears the name is replaced and
// the others go, or it comes last.
func multipartWith(r *classify.Request, name, value string) ([]byte, error) {
	delimiter, parts, err := multipartParts(r)
	if err != nil {
		return nil, err
	}
	if bytes.Contains([]byte(value), delimiter) || strings.ContainsAny(name, "\"\r\n") {
		return nil, errNoBoundary
	}
	made := []byte("\r\nContent-Disposition: form-data; name=\"" + name + "\"\r\n\r\n" + value)
	last := len(parts) - 1
	kept, placed := [][]byte{parts[0]}, false
	for _, part := range parts[1:last] {
		n, _ := partName(part)
		switch {
		case n != name:
			kept = append(kept, part)
		case !placed:
			head, _, _ := bytes.Cut(part, blankLine)
			kept, placed = append(kept, slices.Concat(head, blankLine, []byte(value))), true
		}
	}
	if !placed {
		kept = append(kept, made)
	}
	kept = append(kept, parts[last])
	return bytes.TrimPrefix(bytes.Join(kept, append([]byte("\r\n"), delimiter...)), []byte("\r\n")), nil
}

// mimeMessage returns the message that a JSON member holds in base64url (RFC
// 4648 section 5), as Gmail takes it.
func (p *Placement) mimeMessage(r *classify.Request) ([]byte, error) {
	if isCoded(r.Header) || !json.Valid(r.Body) {
		return nil, errOtherBody
	}
	text, ok := textAt(r.Body, classify.SplitPointer(p.Name))
	if !ok {
		return nil, errors.New("the message is not in the body")
	}
	text = strings.TrimRight(strings.NewReplacer("+", "-", "/", "_", "\r", "", "\n", "").Replace(text), "=")
	message, err := base64.RawURLEncoding.DecodeString(text)
	if err != nil {
		return nil, errors.New("the message is not base64url")
	}
	return message, nil
}

func (p *Placement) placeMIME(r *classify.Request, value string) ([]byte, error) {
	message, err := p.mimeMessage(r)
	if err != nil {
		return nil, err
	}
	if strings.ContainsAny(value, "\r\n") {
		return nil, errors.New("a header's value holds no line break")
	}
	message = withoutMIMEHeader(message, p.At)
	message = slices.Concat([]byte(p.At+": "+value+"\r\n"), message)
	quoted, err := json.Marshal(base64.RawURLEncoding.EncodeToString(message))
	if err != nil {
		return nil, err
	}
	return setMember(r.Body, classify.SplitPointer(p.Name), quoted)
}

func (p *Placement) mimeValue(r *classify.Request) (string, bool) {
	message, err := p.mimeMessage(r)
	if err != nil {
		return "", false
	}
	for line := range bytes.Lines(message) {
		if len(bytes.TrimRight(line, "\r\n")) == 0 {
			break
		}
		if name, value, ok := strings.Cut(string(line), ":"); ok && strings.EqualFold(name, p.At) {
			return strings.TrimSpace(value), true
		}
	}
	return "", false
}

// withoutMIMEHeader drops a header with its folded lines (RFC 5322 section
// 2.2.3).
func withoutMIMEHeader(message []byte, name string) []byte {
	var out []byte
	inHead, dropping := true, false
	for line := range bytes.Lines(message) {
		if inHead {
			field, _, found := strings.Cut(string(line), ":")
			isFolded := line[0] == ' ' || line[0] == '\t'
			dropping = isFolded && dropping || !isFolded && found && strings.EqualFold(field, name)
			inHead = len(bytes.TrimRight(line, "\r\n")) > 0
		}
		if !inHead || !dropping {
			out = append(out, line...)
		}
	}
	return out
}

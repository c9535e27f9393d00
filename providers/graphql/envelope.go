package graphql

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
	"unicode/utf8"

	"counterfoil/classify"
)

// jsonDepthMax bounds how deep a body may nest.
const jsonDepthMax = 500

// An envelope is a body that carries a document: JSON, or the document alone.
type envelope struct {
	body []byte
	// isText says that the body is the document.
	isText bool
	// Spans of the members, as they are written.
	query, operationName, variables, extensions classify.Span
}

// Reasons why a body cannot be told.
var (
	errNotJSON  = errors.New("the body is not one JSON object")
	errRepeated = errors.New("a member of the body is there twice, or in another spelling")
)

// readEnvelope finds the members of a JSON body. A name that stands there twice,
// or that some servers would take for another since they do not tell upper from
// lower case, is an error: which of the two counts is the receiver's choice.
func readEnvelope(body []byte) (*envelope, error) {
	e := &envelope{body: body}
	s := &scanner{src: body}
	s.space()
	err := s.members(func(name string, value classify.Span) error {
		for _, m := range []struct {
			name string
			span *classify.Span
		}{{"query", &e.query}, {"operationName", &e.operationName}, {"variables", &e.variables}, {"extensions", &e.extensions}} {
			if !strings.EqualFold(name, m.name) {
				continue
			}
			if name != m.name || m.span.Found {
				return errRepeated
			}
			*m.span = value
		}
		return nil
	})
	s.space()
	if err == nil && s.at != len(body) {
		err = errNotJSON
	}
	return e, err
}

func (e *envelope) raw(s classify.Span) []byte {
	if !s.Found {
		return nil
	}
	return e.body[s.Start:s.End]
}

// isGiven reports whether a member is there and not null.
func (e *envelope) isGiven(s classify.Span) bool { return s.Found && e.body[s.Start] != 'n' }

// name is the operation that is asked for, "" if none is named.
func (e *envelope) name() (string, error) {
	if !e.isGiven(e.operationName) {
		return "", nil
	}
	var name string
	if json.Unmarshal(e.raw(e.operationName), &name) != nil {
		return "", errors.New("operationName is no text")
	}
	return name, nil
}

// splice returns the body with what lies between start and end replaced.
func splice(body []byte, start, end int, with []byte) []byte {
	made := make([]byte, 0, len(body)+len(with))
	made = append(made, body[:start]...)
	made = append(made, with...)
	return append(made, body[end:]...)
}

// withDocument returns the body with a piece of the document replaced, start and
// end counted in the document's bytes. All else stays as it was spelt.
func (e *envelope) withDocument(start, end int, text string) ([]byte, error) {
	if e.isText {
		return splice(e.body, start, end, []byte(text)), nil
	}
	from, ok := spelt(e.body, e.query.Start+1, start)
	to, ok2 := spelt(e.body, e.query.Start+1, end)
	if !ok || !ok2 {
		return nil, errNotJSON
	}
	quoted, err := json.Marshal(text)
	if err != nil {
		return nil, err
	}
	return splice(e.body, from, to, quoted[1:len(quoted)-1]), nil
}

// spelt returns where the nth byte of a JSON string's text is spelt, the string's
// spelling beginning at from.
func spelt(src []byte, from, n int) (int, bool) {
	at := from
	for n > 0 {
		if at >= len(src) || src[at] == '"' {
			return 0, false
		}
		size, width := spelling(src[at:])
		at, n = at+size, n-width
	}
	return at, n == 0
}

// spelling returns how many bytes the next character of a JSON string takes as
// it is spelt, and in UTF-8.
func spelling(src []byte) (size, width int) {
	switch {
	case src[0] != '\\':
		return 1, 1
	case len(src) < 6 || src[1] != 'u':
		return 2, 1
	}
	n := 6
	if r := hex(src[2:6]); r < 0x80 {
		return n, 1
	} else if r < 0x800 {
		return n, 2
	} else if r >= 0xd800 && r < 0xdc00 && len(src) >= 12 && src[6] == '\\' && src[7] == 'u' {
		if low := hex(src[8:12]); low >= 0xdc00 && low < 0xe000 {
			return 12, 4
		}
	}
	return n, 3 // a lone surrogate becomes U+FFFD
}

func hex(digits []byte) (r rune) {
	for _, c := range digits {
		switch {
		case c >= '0' && c <= '9':
			c -= '0'
		case c >= 'a' && c <= 'f':
			c -= 'a' - 10
		case c >= 'A' && c <= 'F':
			c -= 'A' - 10
		}
		r = r<<4 | rune(c&0xf)
	}
	return r
}

// A scanner walks over JSON (RFC 8259) without making anything of it.
type scanner struct {
	src   []byte
	at    int
	depth int
}

func (s *scanner) space() {
	for s.at < len(s.src) && (s.src[s.at] == ' ' || s.src[s.at] == '\n' || s.src[s.at] == '\t' || s.src[s.at] == '\r') {
		s.at++
	}
}

func (s *scanner) next() byte {
	if s.at < len(s.src) {
		return s.src[s.at]
	}
	return 0
}

// take passes over c and the space around it.
func (s *scanner) take(c byte) bool {
	s.space()
	if s.next() != c {
		return false
	}
	s.at++
	s.space()
	return true
}

// members walks over an object and calls f, if there is one, with each member.
func (s *scanner) members(f func(name string, value classify.Span) error) error {
	if !s.take('{') {
		return errNotJSON
	}
	for n := 0; !s.take('}'); n++ {
		if n > 0 && !s.take(',') {
			return errNotJSON
		}
		start := s.at
		if !s.string() {
			return errNotJSON
		}
		spelt := s.src[start:s.at]
		if !s.take(':') {
			return errNotJSON
		}
		value := classify.Span{Start: s.at, Found: true}
		if !s.value() {
			return errNotJSON
		}
		value.End = s.at
		if f == nil {
			continue
		}
		name, ok := unquoted(spelt)
		if !ok {
			return errNotJSON
		}
		if err := f(name, value); err != nil {
			return err
		}
	}
	return nil
}

// unquoted is the text of a JSON string.
func unquoted(spelt []byte) (string, bool) {
	if bytes.IndexByte(spelt, '\\') < 0 && utf8.Valid(spelt) {
		return string(spelt[1 : len(spelt)-1]), true
	}
	var text string
	err := json.Unmarshal(spelt, &text)
	return text, err == nil
}

func (s *scanner) string() bool {
	if s.next() != '"' {
		return false
	}
	for i := s.at + 1; i < len(s.src); i++ {
		switch s.src[i] {
		case '\\':
			i++
		case '"':
			s.at = i + 1
			return true
		}
	}
	return false
}

func (s *scanner) value() bool {
	s.depth++
	defer func() { s.depth-- }()
	if s.depth > jsonDepthMax {
		return false
	}
	switch s.next() {
	case '{':
		return s.members(nil) == nil
	case '[':
		return s.array()
	case '"':
		return s.string()
	}
	start := s.at
	for s.at < len(s.src) && strings.IndexByte("+-.0123456789abcdefghijklmnopqrstuvwxyzE", s.src[s.at]) >= 0 {
		s.at++
	}
	return json.Valid(s.src[start:s.at])
}

func (s *scanner) array() bool {
	s.take('[')
	for n := 0; !s.take(']'); n++ {
		if n > 0 && !s.take(',') || !s.value() {
			return false
		}
	}
	return true
}

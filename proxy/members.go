package proxy

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"strconv"
	"strings"
	"unicode/utf8"
)

const (
	// depthMax is how deep arrays and objects may lie in each other in a value
	// that is kept: whoever reads it back may do so with a parser that recurses.
	depthMax = 512
	// envelopeDepth is how much deeper than its values a body may be.
	envelopeDepth = 4
)

// checkJSON reports whether a body is one JSON text (RFC 8259) in UTF-8 of
// bounded depth. The error's text is for clients. What passes is read by the
// functions below, which keep every byte of a value; encoding/json would take
// bytes that are no UTF-8, fold the case of names, and forget duplicates.
func checkJSON(body []byte) error {
	switch {
	case !utf8.Valid(body):
		return errors.New("it is not UTF-8")
	case isDeeper(body, depthMax+envelopeDepth):
		return errTooDeep
	case json.Valid(body):
		return nil
	}
	var nothing struct{}
	return errors.New(explainJSON(json.Unmarshal(body, &nothing)))
}

var errTooDeep = fmt.Errorf("arrays and objects lie more than %d deep in each other", depthMax)

// isDeeper reports whether arrays and objects lie more than so deep in each
// other.
func isDeeper(body []byte, most int) bool {
	depth := 0
	for i := 0; i < len(body); i++ {
		switch body[i] {
		case '"':
			i += stringEnd(body[i:]) - 1
		case '{', '[':
			if depth++; depth > most {
				return true
			}
		case '}', ']':
			depth--
		}
	}
	return false
}

// stringEnd is the length of the string that b begins with; all of b if it does
// not end there.
func stringEnd(b []byte) int {
	for i := 1; i < len(b); i++ {
		switch b[i] {
		case '\\':
			i++
		case '"':
			return i + 1
		}
	}
	return len(b)
}

// valueEnd is the length of the value that valid JSON begins with.
func valueEnd(b []byte) int {
	if strings.IndexByte(`"{[`, b[0]) < 0 {
		if end := bytes.IndexAny(b, ",:]} \t\r\n"); end >= 0 {
			return end
		}
		return len(b)
	}
	depth := 0
	for i := 0; i < len(b); i++ {
		switch b[i] {
		case '"':
			i += stringEnd(b[i:]) - 1
		case '{', '[':
			depth++
		case '}', ']':
			depth--
		}
		if depth == 0 {
			return i + 1
		}
	}
	return len(b)
}

func trimSpace(b []byte) []byte { return bytes.Trim(b, " \t\r\n") }

// elements goes over the values of an array, or over the names and values of an
// object in turn. raw is valid JSON without white space around it.
func elements(raw []byte) iter.Seq[[]byte] {
	return func(yield func([]byte) bool) {
		for b := trimSpace(raw[1 : len(raw)-1]); len(b) > 0; {
			end := valueEnd(b)
			if !yield(b[:end]) {
				return
			}
			if b = trimSpace(b[end:]); len(b) > 0 {
				b = trimSpace(b[1:])
			}
		}
	}
}

// A memberReader takes the value of one member, which is valid JSON. Its error
// says what is wrong with it. The slice is part of the body.
type memberReader func(raw []byte) error

// readMembers reads an object, and refuses a member that is not known, or is
// there twice. The error begins with where the object is; empty is where the
// caller says it.
func readMembers(where string, raw []byte, known func(name string) memberReader) error {
	switch {
	case raw[0] == '{':
	case where == "":
		return fmt.Errorf("it is %s, not an object", kindOf(raw))
	default:
		return fmt.Errorf("%s is %s, not an object", where, kindOf(raw))
	}
	name, isName := "", false
	seen := map[string]bool{}
	for part := range elements(raw) {
		var err error
		if isName = !isName; isName {
			name, err = readText(part)
		} else {
			err = readMember(name, part, seen[name], known(name))
			seen[name] = true
		}
		switch {
		case err == nil:
		case where == "":
			return err
		default:
			return fmt.Errorf("%s: %w", where, err)
		}
	}
	return nil
}

func readMember(name string, raw []byte, isSeen bool, read memberReader) error {
	switch {
	case read == nil:
		return fmt.Errorf("there is no member %s here", quoted(name))
	case isSeen:
		return fmt.Errorf("the member %s is there twice", quoted(name))
	}
	if err := read(raw); err != nil {
		return fmt.Errorf("%s: %w", quoted(name), err)
	}
	return nil
}

// kindOf names the kind of a JSON value.
func kindOf(raw []byte) string {
	switch raw[0] {
	case '{':
		return "an object"
	case '[':
		return "an array"
	case '"':
		return "a string"
	case 't', 'f':
		return "true or false"
	case 'n':
		return "null"
	}
	return "a number"
}

// wrongKind is the error for a value of another kind than is wanted.
func wrongKind(raw []byte, want string) error {
	if raw[0] == 'n' {
		return fmt.Errorf("it is null: leave it out, or send %s", want)
	}
	return fmt.Errorf("it is %s, not %s", kindOf(raw), want)
}

// readText reads a string. Half a surrogate pair is refused: it is no character,
// and would be taken for another one.
func readText(raw []byte) (s string, err error) {
	if raw[0] != '"' {
		return "", wrongKind(raw, "a string")
	}
	if halfSurrogate(raw) {
		return "", errors.New("an escape in it is half of a surrogate pair, which is no character")
	}
	return s, json.Unmarshal(raw, &s)
}

func halfSurrogate(raw []byte) bool {
	for i := 0; i < len(raw); i++ {
		if raw[i] != '\\' {
			continue
		}
		switch unit := surrogate(raw[i:]); {
		case unit == 0:
			i++
		case unit >= 0xdc00 || surrogate(raw[i+6:]) < 0xdc00:
			return true
		default:
			i += 11
		}
	}
	return false
}

// surrogate is the surrogate whose escape b begins with, else 0.
func surrogate(b []byte) uint64 {
	if len(b) < 6 || b[0] != '\\' || b[1] != 'u' {
		return 0
	}
	unit, err := strconv.ParseUint(string(b[2:6]), 16, 16)
	if err != nil || unit < 0xd800 || unit > 0xdfff {
		return 0
	}
	return unit
}

// readWhole reads a whole number.
func readWhole(raw []byte) (int64, error) {
	if c := raw[0]; c != '-' && (c < '0' || c > '9') {
		return 0, wrongKind(raw, "a number")
	}
	n, err := strconv.ParseInt(string(raw), 10, 64)
	if err != nil {
		return 0, fmt.Errorf("%s is no whole number within bounds", quoted(string(raw)))
	}
	return n, nil
}

// readBool reads true or false.
func readBool(raw []byte) (bool, error) {
	if raw[0] != 't' && raw[0] != 'f' {
		return false, wrongKind(raw, "true or false")
	}
	return raw[0] == 't', nil
}

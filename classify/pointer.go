package classify

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
)

// pointerDepthMax bounds how deep a pointer leads.
const pointerDepthMax = 16

// CheckPointer says whether p is a JSON pointer (RFC 6901) to a member.
func CheckPointer(p string) error {
	if !strings.HasPrefix(p, "/") {
		return errors.New(`a JSON pointer begins with "/", as in /metadata/key`)
	}
	if strings.Count(p, "/") > pointerDepthMax {
		return errors.New("a JSON pointer may go 16 levels deep")
	}
	for i := range len(p) {
		if p[i] == '~' && (i+1 == len(p) || p[i+1] != '0' && p[i+1] != '1') {
			return errors.New("in a JSON pointer ~ is written ~0, and / in a name ~1")
		}
	}
	return nil
}

// SplitPointer returns the names that a JSON pointer leads along.
func SplitPointer(p string) []string {
	names := strings.Split(p[1:], "/")
	for i, n := range names {
		names[i] = strings.ReplaceAll(strings.ReplaceAll(n, "~1", "/"), "~0", "~")
	}
	return names
}

// A Span is where a value stands in a document, if Found.
type Span struct {
	Start, End int
	Found      bool
}

// Errors of [Locate].
var (
	ErrNotJSON       = errors.New("not JSON")
	ErrNotObject     = errors.New("it would stand in something that is not a JSON object")
	ErrRepeatedNames = errors.New("the name stands twice in one object")
)

// Locate finds what the names lead to in a JSON document, through objects only.
// A name that stands twice in one object is [ErrRepeatedNames]: which of the two
// counts is the receiver's choice.
func Locate(doc []byte, names []string) (Span, error) {
	at := Span{End: len(doc), Found: true}
	at.Start = len(doc) - len(bytes.TrimLeft(doc, " \t\r\n"))
	for _, name := range names {
		m, err := memberOf(doc[at.Start:at.End], name)
		if err != nil || !m.Found {
			return Span{}, err
		}
		at.Start, at.End = at.Start+m.Start, at.Start+m.End
	}
	return at, nil
}

func memberOf(object []byte, name string) (Span, error) {
	d := json.NewDecoder(bytes.NewReader(object))
	if t, err := d.Token(); err != nil || t != json.Delim('{') {
		return Span{}, ErrNotObject
	}
	var m Span
	for d.More() {
		key, err := d.Token()
		if err != nil {
			return Span{}, ErrNotJSON
		}
		var value json.RawMessage
		if d.Decode(&value) != nil {
			return Span{}, ErrNotJSON
		}
		if key != name {
			continue
		}
		if m.Found {
			return Span{}, ErrRepeatedNames
		}
		end := int(d.InputOffset())
		m = Span{Start: end - len(value), End: end, Found: true}
	}
	return m, nil
}

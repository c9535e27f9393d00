package providers

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
)

const pointerDepthMax = 16

// checkPointer says whether p is a JSON pointer (RFC 6901) to a member.
func checkPointer(p string) error {
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

func splitPointer(p string) []string {
	names := strings.Split(p[1:], "/")
	for i, n := range names {
		names[i] = strings.ReplaceAll(strings.ReplaceAll(n, "~1", "/"), "~0", "~")
	}
	return names
}

// A span is where a value stands in a document, if it does.
type span struct {
	start, end int
	found      bool
}

// locate finds what the names lead to in a JSON document, through objects only.
func locate(doc []byte, names []string) (span, error) {
	at := span{end: len(doc), found: true}
	at.start = len(doc) - len(bytes.TrimLeft(doc, " \t\r\n"))
	for _, name := range names {
		m, err := memberOf(doc[at.start:at.end], name)
		if err != nil || !m.found {
			return span{}, err
		}
		at.start, at.end = at.start+m.start, at.start+m.end
	}
	return at, nil
}

// memberOf finds the value of one name in an object. A name that stands there
// twice is an error: which of the two counts is the receiver's choice.
func memberOf(object []byte, name string) (span, error) {
	d := json.NewDecoder(bytes.NewReader(object))
	if t, err := d.Token(); err != nil || t != json.Delim('{') {
		return span{}, errors.New("it would stand in something that is not a JSON object")
	}
	var m span
	for d.More() {
		key, err := d.Token()
		if err != nil {
			return span{}, errNotJSON
		}
		var value json.RawMessage
		if d.Decode(&value) != nil {
			return span{}, errNotJSON
		}
		if key != name {
			continue
		}
		if m.found {
			return span{}, errors.New("the name stands twice in one object")
		}
		end := int(d.InputOffset())
		m = span{start: end - len(value), end: end, found: true}
	}
	return m, nil
}

var errNotJSON = errors.New("not JSON")

package proxy

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
)

// FuzzMembers holds the reader of envelopes against encoding/json: what it takes
// is JSON of the same meaning, and every value has the bytes that were sent.
func FuzzMembers(f *testing.F) {
	for _, s := range []string{`{"value":1}`, `{"value": {"a":[1,2,"}"]} , "x":"\ud83e\uddfe"}`, `{"a":1,"a":2}`, `[]`, `{"a":"\ud800"}`, `{}`, ` { } `, "{\"\xff\":1}", `{"a":[[[]]],"b":{"c":{}},"d":-1e5}`, `{"\"":"\\"}`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		raw := trimSpace(body)
		if len(raw) == 0 || checkJSON(raw) != nil {
			return
		}
		if !json.Valid(body) {
			t.Fatalf("%q was taken for JSON", body)
		}
		mine := map[string]json.RawMessage{}
		err := readMembers("the body", raw, func(name string) memberReader {
			return func(raw []byte) error { mine[name] = raw; return nil }
		})
		theirs := map[string]json.RawMessage{}
		if json.Unmarshal(raw, &theirs) != nil || raw[0] == 'n' {
			if err == nil {
				t.Fatalf("%q was taken for an object", body)
			}
			return
		}
		if err != nil {
			if !strings.Contains(err.Error(), "twice") && !strings.Contains(err.Error(), "surrogate") {
				t.Fatalf("%q: %v", body, err)
			}
			return
		}
		if len(mine) != len(theirs) {
			t.Fatalf("%q: %q, not %q", body, mine, theirs)
		}
		for name, value := range theirs {
			if !bytes.Equal(mine[name], value) {
				t.Errorf("%q: %s is %q, not %q", body, name, mine[name], value)
			}
		}
	})
}

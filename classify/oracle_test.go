package classify

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/big"
	"slices"
	"strconv"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// naiveCanon is the meaning of a JSON text, worked out with encoding/json and
// math/big. It knows nothing of lone surrogates, which encoding/json loses, and
// is not fit for huge exponents.
func naiveCanon(text []byte) (string, error) {
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	s, err := naiveValue(d)
	if err != nil {
		return "", err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return "", errors.New("more than one value")
	}
	return s, nil
}

func naiveValue(d *json.Decoder) (string, error) {
	tok, err := d.Token()
	if err != nil {
		return "", err
	}
	switch v := tok.(type) {
	case json.Delim:
		if v == '[' {
			return naiveArray(d)
		}
		return naiveObject(d)
	case json.Number:
		r, ok := new(big.Rat).SetString(v.String())
		if !ok {
			return "", fmt.Errorf("number %s", v)
		}
		return r.RatString(), nil
	case string:
		return strconv.Quote(v), nil
	}
	return fmt.Sprint(tok), nil
}

func naiveArray(d *json.Decoder) (string, error) {
	var all []string
	for d.More() {
		s, err := naiveValue(d)
		if err != nil {
			return "", err
		}
		all = append(all, s)
	}
	_, err := d.Token()
	return "[" + strings.Join(all, ",") + "]", err
}

func naiveObject(d *json.Decoder) (string, error) {
	type member struct{ name, value string }
	var all []member
	for d.More() {
		tok, err := d.Token()
		if err != nil {
			return "", err
		}
		s, err := naiveValue(d)
		if err != nil {
			return "", err
		}
		all = append(all, member{fmt.Sprint(tok), s})
	}
	slices.SortStableFunc(all, func(a, b member) int { return strings.Compare(a.name, b.name) })
	var b strings.Builder
	for _, m := range all {
		b.WriteString(strconv.Quote(m.name) + ":" + m.value + ",")
	}
	_, err := d.Token()
	return "{" + b.String() + "}", err
}

// A jsonText draws JSON from a small world, so that two texts often mean the
// same without being the same.
type jsonText struct{ t *rapid.T }

func (j jsonText) space() string {
	return rapid.SampledFrom([]string{"", "", " ", "\n\t"}).Draw(j.t, "space")
}

func (j jsonText) value(depth int) string {
	kinds := 4
	if depth < 3 {
		kinds = 8
	}
	var s string
	switch rapid.IntRange(0, kinds).Draw(j.t, "kind") {
	case 0:
		s = rapid.SampledFrom([]string{"null", "true", "false"}).Draw(j.t, "word")
	case 1, 2:
		s = j.number()
	case 3, 4:
		s = j.string()
	case 5, 6:
		s = j.list("[", "]", func() string { return j.value(depth + 1) })
	default:
		s = j.list("{", "}", func() string { return j.string() + j.space() + ":" + j.value(depth+1) })
	}
	return j.space() + s + j.space()
}

func (j jsonText) list(open, end string, item func() string) string {
	items := make([]string, rapid.IntRange(0, 3).Draw(j.t, "length"))
	for i := range items {
		items[i] = item()
	}
	return open + j.space() + strings.Join(items, ","+j.space()) + end
}

func (j jsonText) number() string {
	return rapid.StringMatching(`-?(0|[1-2]0{0,2}|9007199254740992|9007199254740993)(\.[01]{1,3})?([eE][+-]?0?[0-3])?`).Draw(j.t, "number")
}

func (j jsonText) string() string {
	pieces := []string{"a", "b", `\u0061`, "\u00e9", `\u00e9`, `\u00E9`, "e\u0301", `\n`, `\u000a`, `\\`, `\"`, `\u0022`, `\/`, "/", `\ud83d\ude02`, "\U0001F602", `\u0000`, "\ufffd"}
	return `"` + strings.Join(rapid.SliceOfN(rapid.SampledFrom(pieces), 0, 2).Draw(j.t, "string"), "") + `"`
}

// Two JSON bodies have one fingerprint exactly where they mean the same.
func TestFingerprintAgreesWithNaive(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		j := jsonText{t}
		a, b := j.value(1), j.value(1)
		agree(t, a, b)
	})
}

// The same with values that differ in one place only, or in spelling only.
func TestFingerprintAgreesWithNaiveOnNeighbours(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		j := jsonText{t}
		members := make([]string, rapid.IntRange(1, 5).Draw(t, "members"))
		for i := range members {
			members[i] = j.string() + ":" + j.value(2)
		}
		other := rapid.Permutation(members).Draw(t, "order")
		if rapid.Bool().Draw(t, "change") {
			other = slices.Clone(other)
			other[0] = j.string() + ":" + j.number()
		}
		agree(t, "{"+strings.Join(members, ",")+"}", "{ "+strings.Join(other, " , ")+"}")
	})
}

func TestNumbersAgreeWithNaive(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		j := jsonText{t}
		agree(t, j.number(), j.number())
	})
}

func agree(t *rapid.T, a, b string) {
	t.Helper()
	wantA, err := naiveCanon([]byte(a))
	if err != nil {
		t.Fatalf("%s: %v", a, err)
	}
	wantB, err := naiveCanon([]byte(b))
	if err != nil {
		t.Fatalf("%s: %v", b, err)
	}
	got, want := Print(jsonPost(a), nil) == Print(jsonPost(b), nil), wantA == wantB
	if got != want {
		t.Fatalf("same is %v, want %v:\n%s\n%s", got, want, a, b)
	}
}

// reversed writes a JSON text anew with the members of each object backwards
// (members of one name forwards, as their order counts), spaces added, and every
// character escaped.
func reversed(d *json.Decoder) string {
	tok, err := d.Token()
	if err != nil {
		return ""
	}
	switch v := tok.(type) {
	case json.Delim:
		type member struct{ name, text string }
		var all []member
		for d.More() {
			m := member{}
			if v == '{' {
				name, _ := d.Token()
				m.name = fmt.Sprint(name)
				m.text = escaped(m.name) + " :\n"
			}
			m.text += reversed(d)
			all = append(all, m)
		}
		_, _ = d.Token()
		if v == '{' {
			slices.SortStableFunc(all, func(a, b member) int { return strings.Compare(b.name, a.name) })
		}
		texts := make([]string, len(all))
		for i, m := range all {
			texts[i] = m.text
		}
		return string(v) + " " + strings.Join(texts, " ,\t") + " " + string(rune(v+2))
	case json.Number:
		return v.String()
	case string:
		return escaped(v)
	case nil:
		return "null"
	}
	return fmt.Sprint(tok)
}

func escaped(s string) string {
	var b strings.Builder
	b.WriteByte('"')
	for _, r := range s {
		if r > 0xffff {
			fmt.Fprintf(&b, `\u%04x\u%04X`, 0xd800+(r-0x10000)>>10, 0xdc00+(r-0x10000)&0x3ff)
			continue
		}
		fmt.Fprintf(&b, `\u%04x`, r)
	}
	b.WriteByte('"')
	return b.String()
}

func FuzzFingerprint(f *testing.F) {
	for _, seed := range []string{
		`{"a":1,"b":{"x":1.0,"y":[1,2,null]},"a":"\ud83d\ude02"}`, `[1e999999999,-0,"\ud800"]`, "\ufeff{}", `{"a":`, "--b1\r\n\r\nx\r\n--b1--\r\n", "", `"`,
		strings.Repeat("[", 600), `{"z":{"y":{"x":1,"a":2},"a":3},"a":4}`,
	} {
		f.Add([]byte(seed), "application/json", "")
		f.Add([]byte(seed), "multipart/form-data; boundary=b1", "gzip")
	}
	f.Fuzz(func(t *testing.T, body []byte, contentType, coding string) {
		r := &Request{Method: "POST", Target: "/a", Body: body, Header: Header{{"Content-Type", contentType}, {"Content-Encoding", coding}}}
		kept := bytes.Clone(body)
		first := Print(r, nil)
		if first != Print(r, nil) || !bytes.Equal(kept, body) {
			t.Error("printing twice differs, or changes the body")
		}
		_, ok := appendJSON(nil, body, nil)
		if ok && !json.Valid(body) {
			t.Errorf("%q is no JSON", body)
		}
		if !ok || hasLoneSurrogate(body) {
			return
		}
		d := json.NewDecoder(bytes.NewReader(body))
		d.UseNumber()
		other := reversed(d)
		if Print(jsonPost(string(body)), nil) != Print(jsonPost(other), nil) {
			t.Errorf("differ:\n%q\n%q", body, other)
		}
	})
}

// hasLoneSurrogate may also say yes to a body that has whole pairs only.
func hasLoneSurrogate(body []byte) bool { return bytes.Contains(bytes.ToLower(body), []byte(`\ud`)) }

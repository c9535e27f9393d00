package providers

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	"counterfoil/classify"

	"pgregory.net/rapid"
)

// isInsertion reports whether after is before with something put in at one place.
func isInsertion(before, after string) bool {
	n := 0
	for n < len(before) && n < len(after) && before[n] == after[n] {
		n++
	}
	return len(after) > len(before) && strings.HasSuffix(after, before[n:])
}

// Where nothing stood, something is put in, and every other byte stays.
func TestOtherBytesStay(t *testing.T) {
	documents := rapid.SampledFrom([]string{
		`{}`, ` { } `, `{"a":1}`, `{"a" : 1.0e2, "b":[ 1,2 ]}`, `{"meta":{"x":"\u00e9"}}`, `{ "meta" : { } ,"z":"{\"cf\"}"}`, "{\n  \"name\": \"meta\"\n}",
	})
	forms := rapid.SampledFrom([]string{``, `a=1`, `a=%20+&b`, `&&a==&`, `meta[x]=1&meta%5Bx%5D=2`})
	parts := rapid.SampledFrom([]string{
		"--b--\r\n", "preamble\r\n--b\r\nContent-Disposition: form-data; name=\"a\"\r\n\r\n\r\n--b--", "--b\r\nX: y\r\n\r\n\x00\r\n--b-- trailing",
	})
	for name, tt := range map[string]struct {
		p    Placement
		make func(*rapid.T) *classify.Request
	}{
		"json":      {Placement{Place: "json", Name: "/meta/cf", Create: true}, func(t *rapid.T) *classify.Request { return postJSON("/", documents.Draw(t, "body")) }},
		"form":      {Placement{Place: "form", Name: "meta[cf]"}, func(t *rapid.T) *classify.Request { return postForm("/", forms.Draw(t, "body")) }},
		"form_json": {Placement{Place: "form_json", Name: "meta", At: "/x/cf", Create: true}, func(t *rapid.T) *classify.Request { return postForm("/", forms.Draw(t, "body")) }},
		"multipart": {Placement{Place: "multipart", Name: "cf"}, func(t *rapid.T) *classify.Request {
			r := postParts("/", "")
			r.Body = []byte(parts.Draw(t, "body"))
			return r
		}},
	} {
		t.Run(name, func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) {
				r := tt.make(t)
				before := string(r.Body)
				value := rapid.StringMatching(`[!-~ é]{1,30}`).Draw(t, "value")
				out, err := tt.p.place(r, nil, value)
				if err != nil {
					t.Fatal(err)
				}
				if string(r.Body) != before || !isInsertion(before, string(out.Body)) {
					t.Fatalf("%q became %q", before, out.Body)
				}
				if got, ok := tt.p.value(&out, nil); !ok || got != value {
					t.Fatalf("placed %q, read %q in %q", value, got, out.Body)
				}
			})
		})
	}
}

// A document says the same with a marker, but for the marker.
func TestDocumentsSayTheSame(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		doc := rapid.MapOfN(rapid.StringMatching(`[a-c"\\é]{0,3}`), rapid.Float64Range(-1e6, 1e6), 0, 5).Draw(t, "doc")
		body, err := json.Marshal(map[string]any{"meta": doc, "other": doc})
		if err != nil {
			t.Fatal(err)
		}
		p := Placement{Place: "json", Name: "/meta/a"}
		out, err := p.place(postJSON("/", string(body)), nil, "v")
		if err != nil {
			t.Fatal(err)
		}
		var got map[string]map[string]any
		if err := json.Unmarshal(out.Body, &got); err != nil || got["meta"]["a"] != "v" {
			t.Fatalf("%s: %v", out.Body, err)
		}
		want := map[string]any{}
		for name, v := range doc {
			want[name] = v
		}
		if !reflect.DeepEqual(got["other"], want) {
			t.Fatalf("%s became %s", body, out.Body)
		}
		delete(got["meta"], "a")
		delete(want, "a")
		if !reflect.DeepEqual(got["meta"], want) {
			t.Fatalf("%s became %s", body, out.Body)
		}
	})
}

// A part that is replaced keeps its headers; of several of one name the first
// stays.
func TestPartsAreReplaced(t *testing.T) {
	r := postParts("/", "--b\nContent-Disposition: form-data; name=k\nContent-Type: text/plain\n\nold\n--b\nContent-Disposition: form-data; name=\"k\"\n\nolder\n--b--\n")
	p := Placement{Place: "multipart", Name: "k"}
	out, err := p.place(r, nil, "new")
	want := "--b\r\nContent-Disposition: form-data; name=k\r\nContent-Type: text/plain\r\n\r\nnew\r\n--b--\r\n"
	if err != nil || string(out.Body) != want {
		t.Errorf("got %q, %v", out.Body, err)
	}
}

// What stands beside a stamp is written as in the adapter: text stays text.
func TestBesides(t *testing.T) {
	a := mustParse(t, `[{name: a, class: effect, key: none, marker: {place: json, name: /m, with: {/b: true, /t: "true", /n: 1.50, /s: 007}}}]`)
	r := postJSON("/", `{"s":"mine"}`)
	rd, _ := a.Read(r)
	out, _, err := rd.Stamp(r, Stamps{Key: sampleKey, Marker: sampleKey})
	var got map[string]any
	if err != nil || json.Unmarshal(out.Body, &got) != nil {
		t.Fatal(err, string(out.Body))
	}
	if want := map[string]any{"m": sampleKey, "b": true, "t": "true", "n": 1.5, "s": "mine"}; !reflect.DeepEqual(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

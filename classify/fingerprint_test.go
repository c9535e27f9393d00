package classify

import (
	"bytes"
	"compress/flate"
	"compress/gzip"
	"compress/zlib"
	"fmt"
	"io"
	"strings"
	"testing"
)

// post is a POST of body with that content type.
func post(contentType, body string) *Request {
	r := &Request{Upstream: "tickets", Method: "POST", Target: "/effects", Body: []byte(body)}
	if contentType != "" {
		r.Header = Header{{"Content-Type", contentType}}
	}
	return r
}

func jsonPost(body string) *Request { return post("application/json", body) }

func wantSame(t *testing.T, why string, a, b *Request, o *PrintOptions) {
	t.Helper()
	if Print(a, o) != Print(b, o) {
		t.Errorf("%s: differ:\n%s %q\n%s %q", why, a.Target, clip(a.Body), b.Target, clip(b.Body))
	}
}

func wantOther(t *testing.T, why string, a, b *Request, o *PrintOptions) {
	t.Helper()
	if Print(a, o) == Print(b, o) {
		t.Errorf("%s: equal:\n%s %q\n%s %q", why, a.Target, clip(a.Body), b.Target, clip(b.Body))
	}
}

func clip(b []byte) []byte { return b[:min(len(b), 200)] }

// Stored fingerprints outlive a release: this one must never change.
func TestFingerprintIsStable(t *testing.T) {
	r := post("application/json; charset=utf-8", `{"b": [1.0, "é", null, true], "a": -0}`)
	r.Target = "/effects?dry_run=false&key=s3cret"
	s, err := NewSecrets(nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	const want = "170cd18f9a1c6d7b8a73ccbb2276797a2d6aa4b5661d02d90fe75d82a564cb7b"
	if got := Print(r, &PrintOptions{SecretParams: s.Params}).String(); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestEachPartCounts(t *testing.T) {
	base := post("text/plain", "body")
	for why, change := range map[string]func(*Request){
		"method":               func(r *Request) { r.Method = "PATCH" },
		"case of the method":   func(r *Request) { r.Method = "Post" },
		"upstream":             func(r *Request) { r.Upstream = "stripe" },
		"path":                 func(r *Request) { r.Target = "/effects/" },
		"spelling of the path": func(r *Request) { r.Target = "/%65ffects" },
		"query":                func(r *Request) { r.Target = "/effects?" },
		"body":                 func(r *Request) { r.Body = []byte("bodY") },
		"no body":              func(r *Request) { r.Body = nil },
		"media type":           func(r *Request) { r.Header = Header{{"Content-Type", "text/html"}} },
		"no media type":        func(r *Request) { r.Header = nil },
		"content coding":       func(r *Request) { r.Header = r.Header.Set("Content-Encoding", "br") },
		"bytes moved between parts": func(r *Request) {
			r.Upstream, r.Target = "tickets/", "effects"
		},
	} {
		other := post("text/plain", "body")
		change(other)
		wantOther(t, why, base, other, nil)
	}
}

func TestC05_C35_HeadersDoNotCount(t *testing.T) {
	first, second := jsonPost(`{"a":1}`), jsonPost(`{"a":1}`)
	first.Header = append(first.Header, Header{
		{"Attempt", "1"}, {"traceparent", "00-aa"}, {"X-Request-Id", "q1"}, {"User-Agent", "sdk/1"}, {"x-stainless-retry-count", "0"},
		{"Authorization", "Bearer T1"},
	}...)
	second.Header = append(Header{
		{"Attempt", "2"}, {"traceparent", "00-bb"}, {"X-Request-Id", "q2"}, {"User-Agent", "sdk/1.1"}, {"x-stainless-retry-count", "1"},
		{"Authorization", "Bearer T2"},
	}, second.Header...)
	wantSame(t, "attempt, trace and credential headers", first, second, nil)
}

// The query counts by its bytes: whatever differs in it is another request.
func TestC46_QueryCountsByteForByte(t *testing.T) {
	for _, pair := range [][2]string{
		{"dry_run=true", "dry_run=false"},
		{"a=1&b=2", "b=2&a=1"},
		{"id=1&id=2", "id=2&id=1"},
		{"q=a+b", "q=a%20b"},
		{"x", "x="},
		{"a=1", "a=1&"},
		{"a=%7e", "a=%7E"},
		{"a=1#x", "a=1"},
	} {
		a, b := jsonPost("{}"), jsonPost("{}")
		a.Target, b.Target = "/transfer?"+pair[0], "/transfer?"+pair[1]
		wantOther(t, "query", a, b, nil)
		wantSame(t, "query", a, a, nil)
	}
}

func TestSecretParamsDoNotCount(t *testing.T) {
	s, err := NewSecrets([]string{"ticket_secret"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	o := &PrintOptions{SecretParams: s.Params}
	target := func(target string) *Request { return &Request{Method: "POST", Target: target} }
	wantSame(t, "refreshed token", target("/a?x=1&token=T1&y=2"), target("/a?x=1&token=T2longer&y=2"), o)
	wantSame(t, "configured", target("/a?ticket_secret=1"), target("/a?ticket_secret=2"), o)
	wantSame(t, "value ends up empty", target("/a?key="), target("/a?key=2"), o)
	wantOther(t, "without the option", target("/a?token=T1"), target("/a?token=T2"), nil)
	wantOther(t, "another parameter", target("/a?x=1&token=T"), target("/a?x=2&token=T"), o)
	wantOther(t, "name of the secret", target("/a?token=T"), target("/a?key=T"), o)
	wantOther(t, "number of secrets", target("/a?key=T"), target("/a?key=T&key=T"), o)
	wantOther(t, "place of the secret", target("/a?key=T&x=1"), target("/a?x=1&key=T"), o)
	wantOther(t, "secret in the path", target("/a/key=T"), target("/a/key=U"), o)
}

func TestC47_JSONOrderAndSpaceDoNotCount(t *testing.T) {
	base := jsonPost(`{"a":1,"b":{"x":1,"y":[1,2]}}`)
	wantSame(t, "other order and spaces", base, jsonPost("\r\n{ \"b\" :\t{\"y\": [ 1 , 2 ], \"x\":1}, \"a\":1 } \n"), nil)
	wantOther(t, "order of an array", base, jsonPost(`{"a":1,"b":{"x":1,"y":[2,1]}}`), nil)
	wantOther(t, "no JSON by guess", post("text/plain", `{"a":1,"b":2}`), post("text/plain", `{"b":2,"a":1}`), nil)
	wantOther(t, "no JSON without a type", post("", `{"a":1,"b":2}`), post("", `{"b":2,"a":1}`), nil)
	wantOther(t, "form bodies", post("application/x-www-form-urlencoded", "a=1&b=2"), post("application/x-www-form-urlencoded", "b=2&a=1"), nil)
	wantSame(t, "+json", post("application/vnd.api+json", `{"a":1,"b":2}`), post("application/vnd.api+json", `{"b":2,"a":1}`), nil)
	wantSame(t, "nested structures",
		jsonPost(`{"1":{"f":{"f":"hi","F":5},"\n":56.0},"10":{},"":"empty","a":{},"111":[{"e":"yes","E":"no"}],"A":{}}`),
		jsonPost(`{"A":{},"111":[{"E":"no","e":"yes"}],"a":{},"":"empty","10":{},"1":{"\u000a":56,"f":{"F":5,"f":"hi"}}}`), nil)
	wantOther(t, "keys that differ in case", jsonPost(`{"f":1,"F":2}`), jsonPost(`{"f":2,"F":1}`), nil)
	wantSame(t, "arrays", jsonPost(`[56,{"d":true,"10":null,"1":[]}]`), jsonPost(`[56,{"1":[],"10":null,"d":true}]`), nil)
	long := strings.Repeat("x", 2*objectBytesMax)
	wantSame(t, "long objects", jsonPost(`{"p":{"a":"`+long+`","b":1},"q":2}`), jsonPost(`{"q":2,"p":{"b":1,"a":"`+long+`"}}`), nil)
	wantOther(t, "long objects", jsonPost(`{"p":{"a":"`+long+`","b":1},"q":2}`), jsonPost(`{"q":2,"p":{"b":2,"a":"`+long+`"}}`), nil)
}

func TestJSONNumbersCompareByValue(t *testing.T) {
	for _, same := range [][]string{
		{"1", "1.0", "1e0", "10e-1", "0.1E+1", "1.000", "100e-2", "0.0001e4", "1e00", "1e-0"},
		{"0", "-0", "0.0", "-0.00e5", "0e999999999999999999999999", "0E-7"},
		{"100", "1e2", "1.00e2", "10e1", "1E+2", "1e+0002"},
		{"9007199254740992", "9007199254740992.0", "9.007199254740992e15"},
		{"-1.5", "-15e-1", "-0.15e1"},
		{"1e999999999", "10e999999998", "0.1e1000000000"},
		{"1e-999999999", "0.1e-999999998"},
		{"123456789012345678901234567890.123", "123456789012345678901234567890123e-3"},
	} {
		for _, n := range same[1:] {
			wantSame(t, "number", jsonPost(`{"n":`+same[0]+`}`), jsonPost(`{"n":`+n+`}`), nil)
		}
	}
	for _, other := range [][2]string{
		{"9007199254740993", "9007199254740992"}, {"1", "-1"}, {"1", "10"}, {"1", `"1"`}, {"0", "null"}, {"0", "false"}, {"1", "true"},
		{"0.1", "0.10000000000000001"}, {"1e999999999", "1e999999998"}, {"1e-5", "1e5"}, {"1e99999999999999999999", "1e99999999999999999998"},
		{"12", "1,2"}, {"1e1", "1e-1"}, {"105", "15"},
		// Past 18 digits an exponent counts by its spelling.
		{"1e999999999999999999", "0.1e1000000000000000000"},
	} {
		wantOther(t, "number", jsonPost(`[`+other[0]+`]`), jsonPost(`[`+other[1]+`]`), nil)
	}
}

func TestJSONDuplicateNamesKeepTheirOrder(t *testing.T) {
	wantOther(t, "duplicates swapped", jsonPost(`{"a":1,"a":2}`), jsonPost(`{"a":2,"a":1}`), nil)
	wantOther(t, "duplicate dropped", jsonPost(`{"a":1,"a":2}`), jsonPost(`{"a":2}`), nil)
	wantOther(t, "duplicate repeated", jsonPost(`{"a":1,"a":1}`), jsonPost(`{"a":1}`), nil)
	wantOther(t, "escaped duplicate", jsonPost(`{"a":1,"\u0061":2}`), jsonPost(`{"\u0061":2,"a":1}`), nil)
	wantSame(t, "others around them", jsonPost(`{"b":0,"a":1,"c":0,"a":2}`), jsonPost(`{"a":1,"a":2,"c":0,"b":0}`), nil)
}

func TestC49_Unicode(t *testing.T) {
	const composed, decomposed = "caf\u00e9", "cafe\u0301"
	wantSame(t, "escape and literal", jsonPost(`{"t":"caf\u00e9"}`), jsonPost(`{"t":"`+composed+`"}`), nil)
	wantSame(t, "escape and literal in a name", jsonPost(`{"caf\u00E9":1}`), jsonPost(`{"`+composed+`":1}`), nil)
	wantSame(t, "pair and literal", jsonPost(`{"t":"\ud83d\ude02"}`), jsonPost(`{"t":"`+"\U0001F602"+`"}`), nil)
	wantSame(t, "short and long escapes", jsonPost(`["\b\f\n\r\t\/\\\""]`), jsonPost(`["\u0008\u000c\u000a\u000d\u0009/\u005c\u0022"]`), nil)
	wantOther(t, "composed and decomposed", jsonPost(`{"t":"`+composed+`"}`), jsonPost(`{"t":"`+decomposed+`"}`), nil)
	wantOther(t, "composed and decomposed names", jsonPost(`{"`+composed+`":1}`), jsonPost(`{"`+decomposed+`":1}`), nil)

	// Lone surrogates are kept apart from everything else, each other included.
	strange := []string{`"\ud800"`, `"\udc00"`, `"\ud801"`, `"\udc00\ud800"`, `"\udc00\udc00"`, `"\udc00\udc01"`, `"\ud800\ud800"`, `"\ud800x"`, `"\ufffd"`, `"\\ud800"`, `""`, `"?"`}
	for i, a := range strange {
		for _, b := range strange[i+1:] {
			wantOther(t, "lone surrogates", jsonPost(a), jsonPost(b), nil)
		}
	}
	wantSame(t, "case of a lone surrogate", jsonPost(`"\uD800"`), jsonPost(`"\ud800"`), nil)
	wantSame(t, "lone surrogate in other order", jsonPost(`{"\ud800":1,"a":2}`), jsonPost(`{"a":2,"\uD800":1}`), nil)

	// A byte order mark makes the body other than JSON: it counts by bytes.
	wantOther(t, "byte order mark", jsonPost("\ufeff{}"), jsonPost("{}"), nil)
	wantOther(t, "byte order mark", jsonPost("\ufeff{\"a\":1,\"b\":2}"), jsonPost("\ufeff{\"b\":2,\"a\":1}"), nil)

	// UTF-16 units and code points sort differently; for equality neither counts.
	wantSame(t, "order of names",
		jsonPost("{\"\u20ac\":1,\"\\r\":2,\"\ufb33\":3,\"1\":4,\"\U0001F602\":5,\"\u0080\":6,\"\u00f6\":7}"),
		jsonPost(`{"\ud83d\ude02":5,"\ufb33":3,"\u20AC":1,"\u00F6":7,"\u0080":6,"1":4,"\u000d":2}`), nil)
}

func TestWhatIsNoStrictJSONCountsByBytes(t *testing.T) {
	deep := strings.Repeat("[", jsonDepthMax+1) + strings.Repeat("]", jsonDepthMax+1)
	for _, body := range []string{
		``, ` `, `{`, `[`, `{"a"}`, `{"a":}`, `{"a":1,}`, `{,}`, `[1,]`, `[,1]`, `[1 2]`, `{"a":1 "b":2}`, `{a:1}`, `{'a':1}`, `"`, `"\`, `"\x"`, `"\u12"`,
		`"\u12g4"`, "\"\t\"", "\"\xff\"", "\"\xed\xa0\x80\"", `01`, `1.`, `.5`, `+1`, `-`, `1e`, `1e+`, `0x1`, `NaN`, `Infinity`, `tru`, `nul`, `True`,
		`1 2`, `{} {}`, `[]]`, `// x`, "[1]\x00", "\x00", `{"a":1}}`, deep,
	} {
		wantSame(t, "itself", jsonPost(body), jsonPost(body), nil)
		if out, ok := appendJSON(nil, []byte(body), nil); ok {
			t.Errorf("%.40q is taken for JSON: %q", body, out)
		}
		wantOther(t, "with a space", jsonPost(body), jsonPost(body+" "), nil)
	}
	fine := strings.Repeat("[", jsonDepthMax) + "1" + strings.Repeat("]", jsonDepthMax)
	wantSame(t, "deepest allowed", jsonPost(fine), jsonPost(fine+" "), nil)
}

func TestMediaType(t *testing.T) {
	base := jsonPost(`{"a":1,"b":2}`)
	for _, same := range []string{
		"Application/JSON", "application/json; charset=utf-8", `application/json;charset="UTF-8"`, " application/json ", "application/json ; charset=utf-8",
	} {
		wantSame(t, same, base, post(same, `{"b":2,"a":1}`), nil)
	}
	for _, other := range []string{
		"application/json; profile=x", "application/vnd.api+json", "text/json", "application/json; charset=utf-16", "application/json, text/plain",
		"application/json; charset", "application/json;a=1;a=2",
	} {
		wantOther(t, other, base, post(other, `{"a":1,"b":2}`), nil)
	}
	wantSame(t, "parameters in another order", post("application/json; a=1; b=2", "{}"), post(`application/json;B="2";A=1`, "{} "), nil)
	wantOther(t, "value of a parameter", post("text/plain; a=1", "x"), post("text/plain; a=2", "x"), nil)
	wantSame(t, "charset of text", post("text/plain", "x"), post("text/plain; charset=UTF-8", "x"), nil)
	wantOther(t, "charset of text", post("text/plain", "x"), post("text/plain; charset=latin1", "x"), nil)
	wantOther(t, "JSON in another charset", post("application/json; charset=latin1", `["\u00e9"]`), post("application/json; charset=latin1", "[\"\u00e9\"]"), nil)

	twice := jsonPost(`{"a":1,"b":2}`)
	twice.Header = append(twice.Header, Field{"content-type", "application/json"})
	reordered := jsonPost(`{"b":2,"a":1}`)
	reordered.Header = twice.Header
	wantOther(t, "two content types", twice, reordered, nil)
	wantOther(t, "two content types", base, twice, nil)
}

func multipart(boundary string, parts ...string) *Request {
	var b strings.Builder
	for _, p := range parts {
		b.WriteString("--" + boundary + "\r\n" + p + "\r\n")
	}
	b.WriteString("--" + boundary + "--\r\n")
	return post(`multipart/form-data; boundary="`+boundary+`"`, b.String())
}

func filePart(name, contentType, content string) string {
	return "Content-Disposition: form-data; name=\"f\"; filename=\"" + name + "\"\r\nContent-Type: " + contentType + "\r\n\r\n" + content
}

func TestC50_MultipartBoundaryDoesNotCount(t *testing.T) {
	file := strings.Repeat("0123456789abcde\n", 1<<17) // 2 MiB
	field := "Content-Disposition: form-data; name=\"a\"\r\n\r\n1"
	base := multipart("b1", field, filePart("x.txt", "text/plain", file))
	wantSame(t, "boundary", base, multipart("----formdata-0123456789", field, filePart("x.txt", "text/plain", file)), nil)
	wantOther(t, "a byte of the file", base, multipart("b2", field, filePart("x.txt", "text/plain", file[:len(file)-1]+"!")), nil)
	wantOther(t, "filename", base, multipart("b2", field, filePart("y.txt", "text/plain", file)), nil)
	wantOther(t, "type of a part", base, multipart("b2", field, filePart("x.txt", "text/html", file)), nil)
	wantOther(t, "order of parts", base, multipart("b2", filePart("x.txt", "text/plain", file), field), nil)
	wantOther(t, "a part less", base, multipart("b2", field), nil)
	wantOther(t, "parts glued together", multipart("b1", field, field), multipart("b1", field+field), nil)
	wantSame(t, "other multiparts", post("multipart/related; boundary=b1", string(multipart("b1", field).Body)),
		post("multipart/related; boundary=b2", string(multipart("b2", field).Body)), nil)
	wantOther(t, "kind of multipart", post("multipart/related; boundary=b1", string(multipart("b1", field).Body)), multipart("b1", field), nil)
	wantOther(t, "other parameters count",
		post("multipart/related; type=a; boundary=b1", string(multipart("b1", field).Body)),
		post("multipart/related; type=b; boundary=b1", string(multipart("b1", field).Body)), nil)
}

func TestC50_BoundaryInsideContentFoolsNobody(t *testing.T) {
	// In the middle of a line a boundary is content.
	inner := filePart("x", "text/plain", "one --b1 two --b1-- three --b2--")
	wantSame(t, "in mid-line", multipart("b1", inner), multipart("b2", inner), nil)
	wantOther(t, "in mid-line", multipart("b1", inner), multipart("b1", inner+" "), nil)
	// The other request's boundary on a line of its own is content for one and
	// a delimiter for the other.
	foreign := filePart("x", "text/plain", "a\r\n--b2\r\n\r\nb")
	wantOther(t, "another's delimiter", multipart("b1", foreign), multipart("b2", foreign), nil)
	wantSame(t, "another's delimiter", multipart("b1", foreign), multipart("b3", foreign), nil)
	// What begins like a delimiter, and is none, counts by bytes.
	for _, line := range []string{"\r\n--b1x", "\n--b1\n", "\n--b1\r\n\r\n", "\r--b1\r\n\r\n", "\n--b1--\r\n", "\r--b1\r", "\r\n--b1--x", "\r\n--b1 x"} {
		a, b := filePart("x", "text/plain", "a"+line+"b"), filePart("x", "text/plain", "a"+strings.ReplaceAll(line, "b1", "b2")+"b")
		wantOther(t, fmt.Sprintf("%q", line), multipart("b1", a), multipart("b2", b), nil)
		if _, ok := appendMultipart(nil, multipart("b1", a).Body, "b1"); ok {
			t.Errorf("%q in content is passed over", line)
		}
	}
}

func TestC50_MalformedMultipartCountsByBytes(t *testing.T) {
	for _, body := range []string{
		"", "x", "--b1", "--b1\r\n", "--b1\r\nA: b\r\n\r\nx", "--b1\r\nA: b\r\n\r\nx\r\n", "--b1\r\nno empty line\r\n--b1--\r\n", "--b1\n\nx\n--b1--\n",
		"--b1\r\n--b1--\r\n", "--b1\r\n\r\nx\r\n--b1--\r\n\r\n--b1\r\n\r\ny\r\n--b1--", "--b1\r\n\r\nx\r\n--b1--junk",
	} {
		if out, ok := appendMultipart(nil, []byte(body), "b1"); ok {
			t.Errorf("%q is taken apart: %q", body, out)
		}
		other := strings.ReplaceAll(body, "b1", "b2")
		wantOther(t, "malformed", post("multipart/form-data; boundary=b1", body), post("multipart/form-data; boundary=b2", other), nil)
		wantSame(t, "malformed", post("multipart/form-data; boundary=b1", body), post("multipart/form-data; boundary=b1", body), nil)
	}
	for _, boundary := range []string{"b ", "b\"", "b*", strings.Repeat("b", 71), ""} {
		if _, ok := appendMultipart(nil, []byte("--"+boundary+"\r\n\r\nx\r\n--"+boundary+"--"), boundary); ok {
			t.Errorf("boundary %q is accepted", boundary)
		}
	}
	for _, body := range []string{"--b1--", "--b1--\r\n", "pre\r\n--b1 \t\r\n\r\nx\r\n--b1--\r\nepilogue", "--b1\r\n\r\n\r\n--b1--", "\r\n--b1\r\nA: b\r\n\r\n\r\n--b1--"} {
		a, b := post("multipart/form-data; boundary=b1", body), post("multipart/form-data; boundary=b2", strings.ReplaceAll(body, "b1", "b2"))
		wantSame(t, "well formed", a, b, nil)
		wantOther(t, "preamble", a, post("multipart/form-data; boundary=b1", "p\r\n"+body), nil)
	}
}

func coded(coding string, body []byte) *Request {
	r := jsonPost(string(body))
	r.Header = append(r.Header, Field{"Content-Encoding", coding})
	return r
}

func compressed(t *testing.T, w func(io.Writer) io.WriteCloser, body string) []byte {
	t.Helper()
	var b bytes.Buffer
	z := w(&b)
	if _, err := z.Write([]byte(body)); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func gzipAt(level int) func(io.Writer) io.WriteCloser {
	return func(w io.Writer) io.WriteCloser { z, _ := gzip.NewWriterLevel(w, level); return z }
}

func zlibWriter(w io.Writer) io.WriteCloser { return zlib.NewWriter(w) }

func flateWriter(w io.Writer) io.WriteCloser { z, _ := flate.NewWriter(w, 5); return z }

func TestCompressedBodyCountsDecoded(t *testing.T) {
	const body, reordered = `{"a":1,"b":"xxxxxxxxxxxxxxxxxxxxxxxx"}`, `{"b":"xxxxxxxxxxxxxxxxxxxxxxxx","a":1.0}`
	fast, best, zlibbed := compressed(t, gzipAt(1), body), compressed(t, gzipAt(0), reordered), compressed(t, zlibWriter, body)
	wantSame(t, "level and order", coded("gzip", fast), coded("GZIP", best), nil)
	wantSame(t, "x-gzip", coded("gzip", fast), coded("x-gzip", fast), nil)
	wantSame(t, "deflate", coded("gzip", fast), coded("deflate", zlibbed), nil)
	wantSame(t, "not compressed", coded("gzip", fast), jsonPost(body), nil)
	wantSame(t, "identity", coded("identity", []byte(body)), jsonPost(reordered), nil)
	wantOther(t, "content", coded("gzip", fast), coded("gzip", compressed(t, gzipAt(1), `{"a":2}`)), nil)

	// What cannot be decoded for certain counts by bytes, with the coding's name.
	raw := compressed(t, flateWriter, body)
	for name, r := range map[string]*Request{
		"truncated":       coded("gzip", fast[:len(fast)-3]),
		"bytes behind":    coded("gzip", append(bytes.Clone(fast), 'x')),
		"behind zlib":     coded("deflate", append(bytes.Clone(zlibbed), 'x')),
		"no zlib":         coded("deflate", raw),
		"no gzip":         coded("gzip", []byte(body)),
		"unknown":         coded("br", []byte(body)),
		"two codings":     coded("gzip, gzip", fast),
		"spelling":        coded("zstd", fast),
		"empty gzip body": coded("gzip", nil),
	} {
		wantSame(t, name, r, r, nil)
		wantOther(t, name+" against the content", r, jsonPost(body), nil)
		wantOther(t, name+" against its bytes", r, jsonPost(string(r.Body)), nil)
	}
	wantOther(t, "name of the coding", coded("br", fast), coded("zstd", fast), nil)
}

// A gzip body may be several streams in a row (RFC 1952 section 2.2).
func TestCompressedBodyIsBounded(t *testing.T) {
	mebibyte := compressed(t, gzipAt(1), strings.Repeat("x", 1<<20))
	fits := bytes.Repeat(mebibyte, decodedBytesMax>>20)
	long := append(bytes.Clone(fits), compressed(t, gzipAt(1), "x")...)
	for name, row := range map[string]struct {
		body []byte
		want string
	}{"at the limit": {fits, ""}, "past it": {long, "gzip"}} {
		decoded, coding := decodeBody(Header{{"Content-Encoding", "gzip"}}, row.body)
		if coding != row.want {
			t.Errorf("%s: got coding %q, want %q", name, coding, row.want)
		}
		if coding == "" && len(decoded) != decodedBytesMax {
			t.Errorf("%s: decoded to %d bytes", name, len(decoded))
		}
	}
}

func fields(t testing.TB, names ...string) *PrintOptions {
	t.Helper()
	f, err := ParseFields(names)
	if err != nil {
		t.Fatal(err)
	}
	return &PrintOptions{IgnoreFields: f}
}

func TestIgnoredFields(t *testing.T) {
	for _, row := range []struct {
		ignore  string
		a, b    string
		areSame bool
	}{
		{"sent_at", `{"sent_at":1,"a":1}`, `{"a":1,"sent_at":{"x":[2]}}`, true},
		{"sent_at", `{"sent_at":1,"a":1}`, `{"a":1}`, true},
		{"sent_at", `{"sent_at":1,"sent_at":2}`, `{}`, true},
		{"sent_at", `{"sent\u005fat":1}`, `{}`, true},
		{"sent_at", `{"sent_at":1,"a":1}`, `{"sent_at":1,"a":2}`, false},
		{"sent_at", `{"x":{"sent_at":1}}`, `{"x":{"sent_at":2}}`, false},
		{"sent_at", `[{"sent_at":1}]`, `[{"sent_at":2}]`, false},
		{"sent_at", `{"sent_at":01}`, `{"sent_at":02}`, false}, // no JSON
		{"/meta/trace", `{"meta":{"trace":1,"x":1}}`, `{"meta":{"x":1,"trace":2}}`, true},
		{"/meta/trace", `{"meta":{"trace":1,"x":1}}`, `{"meta":{"trace":1,"x":2}}`, false},
		{"/meta/trace", `{"meta":{"trace":1}}`, `{}`, false},
		{"/meta/trace", `{"trace":1}`, `{"trace":2}`, false},
		{"/meta/trace", `{"meta":[1]}`, `{"meta":[2]}`, false},
		{"/items/1/ts", `{"items":[{"ts":1},{"ts":2}]}`, `{"items":[{"ts":1},{"ts":3}]}`, true},
		{"/items/1/ts", `{"items":[{"ts":1},{"ts":2}]}`, `{"items":[{"ts":3},{"ts":2}]}`, false},
		{"/items/0", `{"items":[1,2]}`, `{"items":[3,2]}`, true},
		{"/items/0", `{"items":[1,2]}`, `{"items":[1,3]}`, false},
		{"/items/01", `{"items":[1,2]}`, `{"items":[1,3]}`, false},
		{"/a~1b", `{"a/b":1}`, `{"a/b":2}`, true},
		{"/a~0b", `{"a~b":1}`, `{"a~b":2}`, true},
		{"/~01", `{"~1":1}`, `{"~1":2}`, true},
		{"/", `{"":1}`, `{"":2}`, true},
		{"a.b", `{"a.b":1}`, `{"a.b":2}`, true},
		{"caf\u00e9", `{"caf\u00e9":1}`, `{}`, true},
	} {
		o := fields(t, "unrelated", row.ignore)
		if got := Print(jsonPost(row.a), o) == Print(jsonPost(row.b), o); got != row.areSame {
			t.Errorf("ignoring %q: %s and %s: same %v, want %v", row.ignore, row.a, row.b, got, row.areSame)
		}
	}
}

func TestParseFieldsSaysWhatToDo(t *testing.T) {
	for name, hint := range map[string]string{"": "name a member", "/a~2": "write ~ as ~0", "/~": "write ~ as ~0", "/~~01": "write ~ as ~0"} {
		if _, err := ParseFields([]string{name}); err == nil || !strings.Contains(err.Error(), hint) {
			t.Errorf("%q: got %v, want a text with %q", name, err, hint)
		}
	}
}

// Sorting must not copy a deep document once for every level.
func TestDeepDocumentTakesLinearTime(t *testing.T) {
	body := strings.Repeat(`{"b":`, jsonDepthMax-1) + `"` + strings.Repeat("x", 4<<20) + `"` + strings.Repeat(`,"a":1}`, jsonDepthMax-1)
	sc := jsonScanner{src: []byte(body)}
	if !sc.value(0, nil) {
		t.Fatal("the body is no JSON")
	}
	if len(sc.out) > objectBytesMax+64 {
		t.Errorf("the canonical form has %d bytes", len(sc.out))
	}
}

func BenchmarkPrint(b *testing.B) {
	oneKiB := `{"customer":"cus_9s6XKzkNRiz8i3","amount":2000,"currency":"usd","metadata":{"run":"r-1","order_id":"6735","z":1,"a":2},"items":[` +
		strings.TrimSuffix(strings.Repeat(`{"sku":"sku_12345","quantity":3,"price":19.990},`, 17), ",") + `],"description":"one \u00e9 two"}`
	secrets, err := NewSecrets(nil, nil)
	if err != nil {
		b.Fatal(err)
	}
	plain := &PrintOptions{SecretParams: secrets.Params}
	ignoring := fields(b, "sent_at", "/metadata/run")
	ignoring.SecretParams = secrets.Params
	big := strings.Repeat(oneKiB+",", 1024)
	for _, row := range []struct {
		name    string
		request *Request
		options *PrintOptions
	}{
		{"json 1KiB", jsonPost(oneKiB), plain},
		{"json 1KiB, charset", post("application/json; charset=utf-8", oneKiB), plain},
		{"json 1KiB, ignoring", jsonPost(oneKiB), ignoring},
		{"text 1KiB", post("text/plain", oneKiB), plain},
		{"json 1MiB", jsonPost("[" + big[:len(big)-1] + "]"), plain},
		{"multipart 1MiB", multipart("b1", filePart("x", "text/plain", big)), plain},
	} {
		b.Run(row.name, func(b *testing.B) {
			row.request.Target = "/v1/charges?expand=customer&key=k"
			b.SetBytes(int64(len(row.request.Body)))
			b.ReportAllocs()
			for b.Loop() {
				Print(row.request, row.options)
			}
		})
	}
}

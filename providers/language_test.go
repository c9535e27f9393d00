package providers

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"counterfoil/classify"

	"pgregory.net/rapid"
)

const sampleKey = "0123456789abcdefghijklmn"

func postJSON(target, body string) *classify.Request {
	return &classify.Request{Method: "POST", Target: target, Header: classify.Header{{Name: "Content-Type", Value: "application/json"}}, Body: []byte(body)}
}

func postForm(target, body string) *classify.Request {
	return &classify.Request{Method: "POST", Target: target, Header: classify.Header{{Name: "Content-Type", Value: formType}}, Body: []byte(body)}
}

func postParts(target, body string) *classify.Request {
	return &classify.Request{Method: "POST", Target: target, Header: classify.Header{{Name: "Content-Type", Value: "multipart/form-data; boundary=b"}},
		Body: []byte(strings.ReplaceAll(body, "\n", "\r\n"))}
}

func TestConditions(t *testing.T) {
	a := mustParse(t, `
- {name: describe, class: read, when: {method: [POST], header: {X-Amz-Target: "*.Describe*"}}}
- {name: dry, class: read, when: {method: [POST], query: {dryRun: All}}}
- {name: list, class: read, when: {method: [POST], form: {Action: "List*"}}}
- {name: refund, class: effect, when: {method: [POST], json: '.type == "refund"'}}
- {name: rest, class: effect, when: {method: [POST]}}
`)
	described := postJSON("/", `{}`)
	described.Header = append(described.Header, classify.Field{Name: "x-amz-target", Value: "Db.DescribeTable"})
	for _, tt := range []struct {
		r    *classify.Request
		want string
	}{
		{described, "describe"},
		{postJSON("/a?x=1&dryRun=All", `{}`), "dry"},
		{postJSON("/a?dryRun=Some", `{}`), "rest"},
		{postForm("/", "Version=1&Action=ListUsers"), "list"},
		{postForm("/", "Action=DeleteUser&Action=ListUsers"), "rest"},
		{postJSON("/", `{"type":"refund"}`), "refund"},
		{postJSON("/", `{"type":1}`), "rest"},
		{postJSON("/", `no json`), "rest"},
	} {
		rd, _ := a.Read(tt.r)
		if rd.Operation == nil || rd.Operation.Name != tt.want {
			t.Errorf("%s %s: got %+v, want %s", tt.r.Target, tt.r.Body, rd.Operation, tt.want)
		}
	}
}

// A condition whose program fails leaves open which operation it is: the request
// is the strictest that it can be, and nothing is tried for it.
func TestAConditionThatFails(t *testing.T) {
	a := mustParse(t, `[{name: a, class: read, when: {json: '.a + 1 == 2'}}, {name: b, class: read}]`)
	r := postJSON("/", `{"a":"x"}`)
	rd, _ := a.Read(r)
	if rd.Class() != classify.Effect || rd.Operation != nil || rd.Strategies(r, classify.Effect) != nil || !strings.Contains(rd.WhyNone(r, classify.Effect), "failed on this answer") {
		t.Errorf("got class %s, %q", rd.Class(), rd.WhyNone(r, classify.Effect))
	}
}

func TestStamps(t *testing.T) {
	type row struct {
		name, operation string
		r               *classify.Request
		want            string
	}
	const raw = "U3ViamVjdDogaGkNCg0KYm9keQ" // "Subject: hi\r\n\r\nbody"
	for _, tt := range []row{
		{"json, made", `marker: {place: json, name: /metadata/cf, create: true}`, postJSON("/", `{"a": 1}`), `{"metadata":{"cf":"` + sampleKey + `"},"a": 1}`},
		{"json, joined", `marker: {place: json, name: /metadata/cf, create: true}`, postJSON("/", `{"metadata":{"x":1}}`), `{"metadata":{"cf":"` + sampleKey + `","x":1}}`},
		{"json, null", `marker: {place: json, name: /metadata/cf, create: true}`, postJSON("/", `{"metadata":null}`), `{"metadata":{"cf":"` + sampleKey + `"}}`},
		{"appended", `marker: {place: json, name: /body, append: " <!-- {marker} -->"}`, postJSON("/", `{"body":"x"}`), `{"body":"x \u003c!-- ` + sampleKey + ` --\u003e"}`},
		{"form", `marker: {place: form, name: "metadata[cf]"}`, postForm("/", `a=1`), `a=1&metadata%5Bcf%5D=` + sampleKey},
		{"json in a form", `marker: {place: form_json, name: metadata, at: /event_payload/cf, create: true, with: {/event_type: counterfoil}}`, postForm("/", `text=x`),
			`text=x&metadata=%7B%22event_type%22%3A%22counterfoil%22%2C%22event_payload%22%3A%7B%22cf%22%3A%22` + sampleKey + `%22%7D%7D`},
		{"the first that fits", `marker: [{place: form, name: cf, only: [form]}, {place: json, name: /cf, only: [json]}]`, postJSON("/", `{}`), `{"cf":"` + sampleKey + `"}`},
		{"part", `marker: {place: multipart, name: "v:cf"}`, postParts("/", "--b\nContent-Disposition: form-data; name=\"to\"\n\nada\n--b--\n"),
			"--b\r\nContent-Disposition: form-data; name=\"to\"\r\n\r\nada\r\n--b\r\nContent-Disposition: form-data; name=\"v:cf\"\r\n\r\n" + sampleKey + "\r\n--b--\r\n"},
		{"mail header", `marker: {place: mime_header, name: /raw, at: X-Id}`, postJSON("/", `{"raw":"`+raw+`"}`), `{"raw":"WC1JZDogMDEyMzQ1Njc4OWFiY2RlZmdoaWprbG1uDQpTdWJqZWN0OiBoaQ0KDQpib2R5"}`},
		{"nowhere", `marker: {place: json, name: /metadata/cf}`, postForm("/", `a=1`), `a=1`},
		{"id, given", `client_id: {place: json, name: /id, format: uuid}`, postJSON("/", `{"id":"mine"}`), `{"id":"mine"}`},
		{"id, made", `client_id: {place: json, name: /id, format: "cf-{marker}"}`, postJSON("/", `{}`), `{"id":"cf-` + sampleKey + `"}`},
		{"key, and what it needs", `key: {place: json, name: /nonce}, with: {/enforce: true}`, postJSON("/", `{"nonce":"sdk"}`), `{"enforce":true,"nonce":"` + sampleKey + `"}`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			key := "key: none, "
			if strings.HasPrefix(tt.operation, "key:") {
				key = ""
			}
			a := mustParse(t, `[{name: a, class: effect, `+key+tt.operation+`}]`)
			rd, _ := a.Read(tt.r)
			out, _, err := rd.Stamp(tt.r, Stamps{Key: sampleKey, Marker: sampleKey})
			if err != nil || string(out.Body) != tt.want {
				t.Errorf("got %s, %v\nwant %s", out.Body, err, tt.want)
			}
		})
	}
}

func TestSignedRequestsBearNothing(t *testing.T) {
	a := mustParse(t, `[{name: a, class: effect, signed: true}]`)
	r := postJSON("/", `{}`)
	rd, _ := a.Read(r)
	out, _, err := rd.Stamp(r, Stamps{Key: sampleKey, Marker: sampleKey})
	if err != nil || len(out.Header) != len(r.Header) || string(out.Body) != `{}` || rd.Strategies(r, classify.Effect) != nil {
		t.Errorf("got %v %s, %v", out.Header, out.Body, err)
	}
}

// A key of the client's own is kept where it has the form that the provider takes.
func TestOwnKeys(t *testing.T) {
	const uuid = "3f0c1d2e-0000-4000-8000-000000000000"
	for _, tt := range []struct{ stamp, own, want string }{
		{"{place: header, name: K}", "order 7", "order 7"},
		{"{place: header, name: K, max: 24}", "much too long by any measure", sampleKey},
		{"{place: header, name: K, format: uuid}", "order 7", UUID(sampleKey)},
		{"{place: header, name: K, format: uuid}", uuid, uuid},
	} {
		a := mustParse(t, `[{name: a, class: effect, key: `+tt.stamp+`}]`)
		r := postJSON("/", `{}`)
		rd, _ := a.Read(r)
		out, placed, err := rd.Stamp(r, Stamps{Key: tt.own, Marker: sampleKey})
		if err != nil || placed.Key != tt.want || out.Header.Value("K") != tt.want {
			t.Errorf("%s with %q: got %q in %v, %v; want %q", tt.stamp, tt.own, placed.Key, out.Header, err, tt.want)
		}
	}
}

func TestUUID(t *testing.T) {
	for key, want := range map[string]string{
		"000000000000000000000000": "00000000-0000-4000-8000-000000000000",
		"vvvvvvvvvvvvvvvvvvvvvvvv": "ffffffff-ffff-4fff-bfff-fffffffffffc",
	} {
		if got := UUID(key); got != want {
			t.Errorf("UUID(%s) = %s, want %s", key, got, want)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		keys := rapid.SliceOfNDistinct(rapid.StringMatching(`[0-9a-v]{24}`), 2, 2, rapid.ID[string]).Draw(t, "keys")
		if one, other := UUID(keys[0]), UUID(keys[1]); one == other || !uuidText.MatchString(one) || one[14] != '4' {
			t.Fatalf("%s and %s", one, other)
		}
	})
}

// What is placed can be read back, and does not count in the fingerprint where
// it is a key.
func TestPlacedIsReadBack(t *testing.T) {
	type kind struct {
		stamp string
		r     *classify.Request
	}
	kinds := []kind{
		{"{place: header, name: K}", postJSON("/x?a=1", `{"a":1}`)},
		{"{place: query, name: k}", postJSON("/x?a=1", `{"a":1}`)},
		{"{place: json, name: /m/k, create: true}", postJSON("/x", `{"z":[1, 2] , "m": {"x":"é"}}`)},
		{"{place: form, name: k}", postForm("/x", "a=%20+&b")},
		{"{place: multipart, name: k}", postParts("/x", "--b\nContent-Disposition: form-data; name=\"a\"\n\n1\n--b--")},
	}
	adapters := map[string]*Adapter{}
	for _, k := range kinds {
		adapters[k.stamp] = mustParse(t, `[{name: a, class: effect, key: `+k.stamp+`}]`)
	}
	rapid.Check(t, func(t *rapid.T) {
		k := rapid.SampledFrom(kinds).Draw(t, "kind")
		key := rapid.StringMatching(`[ -~]{1,40}`).Draw(t, "key")
		rd, _ := adapters[k.stamp].Read(k.r)
		out, placed, err := rd.Stamp(k.r, Stamps{Key: key, Marker: sampleKey})
		if err != nil {
			t.Fatal(err)
		}
		if got, ok := rd.Operation.Key.value(&out, nil); !ok || strings.TrimSpace(got) != strings.TrimSpace(placed.Key) {
			t.Fatalf("placed %q, read %q, %t", placed.Key, got, ok)
		}
		other, _, err := rd.Stamp(k.r, Stamps{Key: key + "x", Marker: sampleKey})
		if err != nil || classify.Print(rd.Print(&out), nil) != classify.Print(rd.Print(&other), nil) {
			t.Fatalf("another key makes another fingerprint (%v)", err)
		}
	})
}

func searchOf(t testing.TB, a *Adapter, r *classify.Request) *Search {
	t.Helper()
	rd, _ := a.Read(r)
	out, placed, err := rd.Stamp(r, Stamps{Key: sampleKey, Marker: sampleKey})
	if err != nil {
		t.Fatal(err)
	}
	return rd.Search(Query{Key: placed.Key, Marker: sampleKey, Run: "r", Turn: "t", Call: "c", SentAt: time.Unix(1000, 0), Original: &out})
}

// answers runs a search over canned answers and returns what was asked.
func answers(s *Search, bodies ...string) (asked []string) {
	for {
		r, more := s.Next()
		if !more {
			return asked
		}
		asked = append(asked, strings.TrimSpace(r.Method+" "+r.Target+" "+string(r.Body)))
		body := `{}`
		if len(asked) <= len(bodies) {
			body = bodies[len(asked)-1]
		}
		s.Take(context.Background(), Answer{Status: 200, Body: []byte(body)})
	}
}

func TestSearchPages(t *testing.T) {
	a := mustParse(t, `
- name: make
  when: {method: [POST], path: /things}
  class: effect
  marker: {place: json, name: /metadata/cf, create: true}
  lookup:
    request: "GET /things?since={$t0 - 10}&limit=2"
    match: '[.data[] | select(.metadata.cf == $marker)]'
    response: {status: 201, body: '{id: .id}'}
    paging: {next: .next, param: after, max_pages: 3}
    consistency: {kind: strong}
`)
	r := postJSON("/things", `{"a":1}`)
	hit := `{"data":[{"id":1},{"id":2,"metadata":{"cf":"` + sampleKey + `"}}]}`
	s := searchOf(t, a, r)
	asked := answers(s, `{"data":[{"id":9}],"next":"p2"}`, hit)
	if want := []string{"GET /things?since=990&limit=2", "GET /things?since=990&limit=2&after=p2"}; fmt.Sprint(asked) != fmt.Sprint(want) {
		t.Errorf("asked %q, want %q", asked, want)
	}
	if f := s.Finding(); f.Discovery != Found || f.Hits != 1 || f.Answer.Status != 201 || string(f.Answer.Body) != `{"id":2}` {
		t.Errorf("got %+v %s", f, f.Answer.Body)
	}
	for name, tt := range map[string]struct {
		bodies []string
		asked  int
		want   Discovery
		last   bool
	}{
		"the last page":               {[]string{`{"data":[],"next":null}`}, 1, Absent, false},
		"too many pages":              {[]string{`{"data":[],"next":"a"}`, `{"data":[],"next":"b"}`, `{"data":[],"next":"c"}`}, 3, Inconclusive, true},
		"a page that leads to itself": {[]string{`{"data":[],"next":"a"}`, `{"data":[],"next":"a"}`}, 2, Inconclusive, true},
		"a cursor that is none":       {[]string{`{"data":[],"next":{"x":1}}`}, 1, Inconclusive, true},
		"an answer that is none":      {[]string{`{"data":7}`}, 1, Inconclusive, true},
	} {
		s := searchOf(t, a, r)
		asked := answers(s, tt.bodies...)
		if f := s.Finding(); len(asked) != tt.asked || f.Discovery != tt.want || f.Lasting != tt.last {
			t.Errorf("%s: asked %q, got %s (lasting %t): %s", name, asked, f.Discovery, f.Lasting, f.Reason)
		}
	}
	s = searchOf(t, a, r)
	answers(s, strings.Replace(hit, `{"id":1}`, `{"id":1,"metadata":{"cf":"`+sampleKey+`"}}`, 1))
	if f := s.Finding(); f.Discovery != Found || f.Hits != 2 || string(f.Answer.Body) != `{"id":1}` {
		t.Errorf("two hits: got %+v %s", f, f.Answer.Body)
	}
}

func TestSearchByPostAndLink(t *testing.T) {
	a := mustParse(t, `
- {name: search, class: read, when: {method: [POST], path: /search}}
- name: make
  when: {method: [POST], path: "/**/things"}
  class: effect
  marker: {place: json, name: /label}
  lookup: {request: "POST /search", body: '{q: $marker, at: $t0}', match: .hits}
- name: note
  when: {method: [POST], path: "/**/notes"}
  class: effect
  marker: {place: json, name: /label}
  lookup: {request: "GET {base}/notes?page=1", match: '[.[] | select(.label == $marker)]', paging: {link: true, max_pages: 2}}
`)
	s := searchOf(t, a, postJSON("/org/1/things", `{}`))
	if asked := answers(s, `{"hits":[]}`); len(asked) != 1 || asked[0] != `POST /search {"at":1000,"q":"`+sampleKey+`"}` {
		t.Errorf("asked %q", asked)
	}
	s = searchOf(t, a, postJSON("/org/1/notes", `{}`))
	first, _ := s.Next()
	s.Take(context.Background(), Answer{Status: 200, Header: classify.Header{{Name: "Link", Value: `<https://h/org/1/notes?page=2>; rel="next", <https://h/x>; rel="last"`}}, Body: []byte(`[]`)})
	second, more := s.Next()
	if first.Target != "/org/1/notes?page=1" || !more || second.Target != "/org/1/notes?page=2" {
		t.Errorf("asked %s, then %+v", first.Target, second)
	}
}

// Paths of a file begin at the provider's host; the upstream's base path is put in
// front, and taken off again.
func TestBasePath(t *testing.T) {
	text := "name: x\noperations:\n  - {name: make, class: effect, when: {method: [POST], path: /v1/make}, lookup: {request: 'GET /v1/made/{key}', found: '.id != null'}}\n"
	a := mustParse(t, text).For(nil, Settings{BasePath: "/v1"})
	s := searchOf(t, a, postJSON("/make", `{}`))
	if r, _ := s.Next(); r == nil || r.Target != "/made/"+sampleKey {
		t.Errorf("asked %+v", r)
	}
	other := mustParse(t, strings.Replace(text, "GET /v1/made", "GET /v2/made", 1)).For(nil, Settings{BasePath: "/v1"})
	s = searchOf(t, other, postJSON("/make", `{}`))
	if r, more := s.Next(); more || s.Finding().Discovery != Inconclusive {
		t.Errorf("asked %+v outside the upstream's url", r)
	}
}

// A canary is asked below the upstream's URL only.
func TestCanaryBelowTheURL(t *testing.T) {
	for _, tt := range []struct{ base, want string }{{"", "GET /v1/me?x=1"}, {"/v1", "GET /me?x=1"}, {"/v", ""}, {"/v2", ""}} {
		a := mustParse(t, "name: x\nlookup_canary: GET /v1/me?x=1\noperations: []\n").For(nil, Settings{BasePath: tt.base})
		if got := a.Canary(); got != tt.want {
			t.Errorf("below %q: %q, want %q", tt.base, got, tt.want)
		}
	}
	if got := (*Adapter)(nil).Canary(); got != "" {
		t.Errorf("of no adapter: %q", got)
	}
}

func TestWhatAnswersMean(t *testing.T) {
	a := mustParse(t, `
name: x
errors:
  - {status: [429], outcome: not_applied}
operations:
  - name: make
    class: keyed
    guarantee: {retention: 1h, success_on_resend: [409]}
    errors:
      - {status: [409], json: '.code == "in_use"', outcome: in_flight, alarm: look}
      - {status: ["5xx"], header: {x-not: "pro*"}, outcome: rejected}
      - {status: [200], json: '.ok == false', outcome: rejected}
`)
	r := postJSON("/", `{}`)
	rd, _ := a.Read(r)
	for _, tt := range []struct {
		name   string
		status int
		header classify.Header
		body   string
		resend bool
		want   Judgement
		watch  bool
	}{
		{"says nothing", 201, nil, `{}`, false, Judgement{}, false},
		{"by status of the adapter", 429, nil, ``, false, Judgement{Outcome: classify.NotApplied}, true},
		{"by content", 409, nil, `{"code":"in_use"}`, false, Judgement{Outcome: classify.Ambiguous, InFlight: true, Alarm: "look"}, true},
		{"by other content", 409, nil, `{"code":"gone"}`, false, Judgement{}, true},
		{"no JSON", 409, nil, `oh`, false, Judgement{}, true},
		{"by header", 503, classify.Header{{Name: "X-Not", Value: "processed"}}, ``, false, Judgement{Outcome: classify.Rejected}, true},
		{"an error in a 200", 200, nil, `{"ok":false}`, false, Judgement{Outcome: classify.Rejected}, true},
		{"success of a resend", 409, nil, `{"code":"in_use"}`, true, Judgement{Outcome: classify.Applied}, true},
		{"too long", 200, nil, `{"a":"` + strings.Repeat("x", judgedBytesMax) + `"}`, false, Judgement{Outcome: classify.Ambiguous, Stuck: true}, true},
	} {
		w := rd.Watch(Query{Original: r}, Head{Status: tt.status, Header: tt.header, Length: -1}, tt.resend)
		if (w != nil) != tt.watch {
			t.Errorf("%s: watched %t", tt.name, w != nil)
			continue
		}
		if w == nil {
			continue
		}
		w.Write([]byte(tt.body))
		got := w.End(t.Context())
		got.Reason = ""
		if got != tt.want {
			t.Errorf("%s: got %+v, want %+v", tt.name, got, tt.want)
		}
	}
}

// A program that fails on an answer, loops, or yields two values makes the call
// unknown: nothing follows from it.
func TestProgramsThatFailOnAnAnswer(t *testing.T) {
	for _, program := range []string{`.a + 1`, `range(3) > 1`, `[limit(1e9; repeat(1))] | length > 0`, `empty`} {
		a := mustParse(t, `[{name: a, class: effect, errors: [{status: [200], json: '`+program+`', outcome: rejected}], lookup: {request: "GET /x/{key}", found: '`+program+`'}}]`)
		r := postJSON("/", `{}`)
		rd, _ := a.Read(r)
		w := rd.Watch(Query{Original: r}, Head{Status: 200}, false)
		w.Write([]byte(`{"a":"x"}`))
		if j := w.End(t.Context()); j.Outcome != classify.Ambiguous || !j.Stuck || j.Reason == "" {
			t.Errorf("%s: judged %+v", program, j)
		}
		s := searchOf(t, a, r)
		answers(s, `{"a":"x"}`)
		if f := s.Finding(); f.Discovery != Inconclusive || !f.Stuck || strings.Contains(f.Reason, `"x"`) {
			t.Errorf("%s: found %+v", program, f)
		}
	}
}

func TestStrategiesNeedWhatTheyGoBy(t *testing.T) {
	a := mustParse(t, `
- {name: search, class: read, when: {method: [POST], path: /search}}
- name: marked
  when: {path: /marked}
  class: effect
  marker: {place: json, name: /metadata/cf, create: true}
  lookup: {request: "GET /x", match: '[.[] | select(.cf == $marker)]'}
- name: named
  when: {path: /named}
  class: keyed
  key: none
  client_id: {place: json, name: /id}
  guarantee: {retention: 1h}
  lookup: {request: "GET /x/{id}", found: '.id == $id', not_found: {status: [404]}}
  recover: [read_by_id, resend_if_absent]
- name: versioned
  when: {path: /versioned}
  class: effect
  precondition: {json: /sha}
  recover: [cas_resend]
`)
	for _, tt := range []struct {
		r     *classify.Request
		class classify.Class
		want  string
	}{
		{postJSON("/marked", `{}`), classify.Effect, "[lookup]"},
		{postForm("/marked", `a=1`), classify.Effect, "[]"},
		{postJSON("/named", `{}`), classify.Keyed, "[read_by_id resend_if_absent]"},
		{postForm("/named", `a=1`), classify.Keyed, "[]"},
		{postJSON("/versioned", `{"sha":"abc"}`), classify.Effect, "[cas_resend]"},
		{postJSON("/versioned", `{}`), classify.Effect, "[]"},
	} {
		rd, _ := a.Read(tt.r)
		got := rd.Strategies(tt.r, tt.class)
		if fmt.Sprint(got) != tt.want { //nolint:staticcheck // a list of strategies, not of bytes
			t.Errorf("%s %s: got %v, want %s", tt.r.Target, tt.r.Body, got, tt.want)
		}
		if (len(got) == 0) != (rd.WhyNone(tt.r, tt.class) != "") {
			t.Errorf("%s %s: %v, and %q", tt.r.Target, tt.r.Body, got, rd.WhyNone(tt.r, tt.class))
		}
	}
}

// An answer that cannot be read could say anything; one that is no JSON says
// nothing to a program.
func TestAnswersThatCannotBeRead(t *testing.T) {
	a := mustParse(t, `[{name: a, class: effect, errors: [{status: [200], json: '.ok == false', outcome: rejected}]}]`)
	r := postJSON("/", `{}`)
	rd, _ := a.Read(r)
	for _, tt := range []struct {
		name, coding, body string
		stuck              bool
	}{
		{"text", "", "ok", false},
		{"nothing", "gzip", "", false},
		{"brotli", "br", "\x0b\x02\x80", true},
		{"broken gzip", "gzip", "ok", true},
		{"nested too deep", "", strings.Repeat("[", 2000) + strings.Repeat("]", 2000), true},
	} {
		h := classify.Header{{Name: "Content-Type", Value: "application/json"}}
		if tt.coding != "" {
			h = h.Set("Content-Encoding", tt.coding)
		}
		w := rd.Watch(Query{Original: r}, Head{Status: 200, Header: h, Length: -1}, false)
		w.Write([]byte(tt.body))
		if j := w.End(t.Context()); j.Stuck != tt.stuck || (j.Outcome == classify.Ambiguous) != tt.stuck {
			t.Errorf("%s: got %+v", tt.name, j)
		}
	}
}

func TestPreconditions(t *testing.T) {
	for _, tt := range []struct {
		precondition, header, value, body string
		want                              bool
	}{
		{"{header: If-Match}", "If-Match", `"v1"`, `{}`, true},
		{"{header: If-Match}", "If-Match", `*`, `{}`, false},
		{"{header: If-None-Match}", "If-None-Match", `*`, `{}`, true},
		{"{header: If-Match}", "If-None-Match", `*`, `{}`, false},
		{"{json: /sha}", "", "", `{"sha":"abc"}`, true},
		{"{json: /sha}", "", "", `{"sha":""}`, false},
		{"{json: /sha}", "", "", `{"sha":null}`, false},
		{"{json: /sha}", "", "", `{"sha":`, false},
		{"{json: /version}", "", "", `{"version":7}`, true},
		{"{json: /sha, absent: true}", "", "", `{}`, true},
	} {
		a := mustParse(t, `[{name: a, class: effect, precondition: `+tt.precondition+`, recover: [cas_resend]}]`)
		r := postJSON("/", tt.body)
		if tt.header != "" {
			r.Header = r.Header.Set(tt.header, tt.value)
		}
		rd, _ := a.Read(r)
		if got := rd.Operation.Conditional(r); got != tt.want || (rd.Strategies(r, classify.Effect) != nil) != tt.want {
			t.Errorf("%s of %s %q %s: got %t, %v", tt.precondition, tt.header, tt.value, tt.body, got, rd.Strategies(r, classify.Effect))
		}
	}
}

// The id that the provider is to keep things under is hard to guess, whatever key
// the client chose.
func TestIDsAreOurs(t *testing.T) {
	a := mustParse(t, `[{name: a, class: keyed, key: none, client_id: {place: json, name: /id}, guarantee: {retention: 1h}}]`)
	r := postJSON("/", `{}`)
	rd, _ := a.Read(r)
	out, placed, err := rd.Stamp(r, Stamps{Key: "order 7", Marker: sampleKey})
	if err != nil || string(out.Body) != `{"id":"`+sampleKey+`"}` || placed.Key != sampleKey {
		t.Errorf("got %s, key %q, %v", out.Body, placed.Key, err)
	}
}

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

const markedNotes = `
- name: note
  class: effect
  key: none
  marker: {place: json, name: /text, append: " (cf:{marker})"}
  lookup:
    request: "GET /notes"
    match: '[.[] | select(.text // "" | contains("(cf:" + $marker + ")"))]'
    consistency: {kind: strong}
`

// What was sent without a marker, before an adapter asked for one or since its body
// could not be changed, is not shown to be absent by a lookup that goes by it.
// What is found is found all the same.
func TestAnUnmarkedRequestIsNotAbsent(t *testing.T) {
	a := mustParse(t, markedNotes)
	marked := postJSON("/", `{"text":"hi (cf:`+sampleKey+`)"}`)
	other := postJSON("/", `{"text":"hi (cf:`+strings.Repeat("v", 24)+`)"}`)
	for _, tt := range []struct {
		name   string
		r      *classify.Request
		answer string
		want   Discovery
		last   bool
	}{
		{"marked", marked, `[]`, Absent, false},
		{"unmarked", postJSON("/", `{"text":"hi"}`), `[]`, Inconclusive, true},
		{"without its body", postJSON("/", ``), `[]`, Inconclusive, true},
		{"with another's", other, `[]`, Inconclusive, true},
		{"unmarked and there", postJSON("/", `{}`), `[{"text":"(cf:` + sampleKey + `)"}]`, Found, false},
	} {
		rd, _ := a.Read(tt.r)
		s := rd.Search(Query{Marker: sampleKey, Original: tt.r})
		answers(s, tt.answer)
		if f := s.Finding(); f.Discovery != tt.want || f.Lasting != tt.last {
			t.Errorf("%s: got %s (lasting %t): %s", tt.name, f.Discovery, f.Lasting, f.Reason)
		}
	}
}

// A body that a header vouches for stays as it is, so that nothing can be looked
// for by a marker, though text stands where one would be appended.
func TestWhatCannotBeMarkedIsNotLookedFor(t *testing.T) {
	a := mustParse(t, markedNotes)
	for _, name := range []string{"Digest", "Signature", "Content-Encoding"} {
		r := postJSON("/", `{"text":"hi"}`)
		r.Header = r.Header.Set(name, "x")
		rd, _ := a.Read(r)
		out, _, err := rd.Stamp(r, Stamps{Key: sampleKey, Marker: sampleKey})
		if err != nil || string(out.Body) != string(r.Body) {
			t.Errorf("%s: got %s, %v", name, out.Body, err)
		}
		if got := rd.Strategies(&out, classify.Effect); got != nil || !strings.Contains(rd.WhyNone(&out, classify.Effect), "marker") {
			t.Errorf("%s: got %v, %q", name, got, rd.WhyNone(&out, classify.Effect))
		}
	}
}

// What the request on record does not name cannot be looked for, whatever the
// request at hand would bear.
func TestAnIDThatWasNotSent(t *testing.T) {
	a := mustParse(t, `
- name: make
  class: effect
  client_id: {place: json, name: /id}
  lookup: {request: "GET /things", found: 'any(.[]; .id == $id)', consistency: {kind: strong}}
`)
	r := postJSON("/", `{}`)
	rd, _ := a.Read(r)
	s := rd.Search(Query{Marker: sampleKey, Original: r})
	if asked, more := s.Next(); more || s.Finding().Discovery != Inconclusive || !s.Finding().Lasting {
		t.Errorf("asked %+v, got %+v", asked, s.Finding())
	}
}

func TestNextLink(t *testing.T) {
	for _, tt := range []struct {
		name, field, want string
		failed            bool
	}{
		{"none", ``, "", false},
		{"another relation", `<https://h/x?page=9>; rel="last"`, "", false},
		{"absolute", `<https://h/x?page=2>; rel="next"`, "/x?page=2", false},
		{"by a token, in any case", `<https://H/x?page=2>; REL=Next`, "/x?page=2", false},
		{"relative to what was asked", `<?page=2>; rel=next`, "/v1/list?page=2", false},
		{"a path", `</other?page=2>; rel="next"`, "/other?page=2", false},
		{"one relation of several", `<https://h/x>; title="a, b; rel=prev"; rel="last next"`, "/x", false},
		{"commas within", `<https://h/x?labels=a,b&page=2>; rel="next", <https://h/x?labels=a,b>; rel="prev"`, "/x?labels=a,b&page=2", false},
		{"not the first", `<https://h/x>; rel="prev", <https://h/y>; rel="next"`, "/y", false},
		{"the provider's other host", `<https://api.example.com:443/y>; rel="next"`, "/y", false},
		{"another host", `<https://evil.example/x>; rel="next"`, "", true},
		{"another host, the short way", `<//evil.example/x>; rel="next"`, "", true},
		{"a user", `<https://u:p@h/x>; rel="next"`, "", true},
		{"no web address", `<mailto:a@h>; rel="next"`, "", true},
		{"dot segments", `<https://h/a/%2e%2e/b>; rel="next"`, "", true},
		{"unclosed", `<https://h/x; rel="next"`, "", true},
		{"no link", `https://h/x; rel="next"`, "", true},
		{"unclosed quotes", `<https://h/x>; rel="next`, "", true},
	} {
		a := mustParse(t, "name: x\nhosts: ['*.example.com']\noperations: [{name: a, class: effect}]").For(nil, Settings{Host: "h"})
		rd, _ := a.Read(postJSON("/", `{}`))
		got, err := nextLink(classify.Header{{Name: "Link", Value: tt.field}}, "/v1/list?a=b", rd.isHere)
		if got != tt.want || (err != nil) != tt.failed {
			t.Errorf("%s: got %q, %v", tt.name, got, err)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		field := rapid.StringMatching(`[<>;,="\\a-z/:? ]{0,40}`).Draw(t, "field")
		_, _ = nextLink(classify.Header{{Name: "Link", Value: field}}, "/", func(string) bool { return true }) // it ends
	})
}

// However a provider pages, a search ends, and never after more pages than it may
// ask for. What lies behind a page that nobody can leave is not absent.
func TestSearchesEnd(t *testing.T) {
	a := mustParse(t, `[{name: a, class: effect, lookup: {request: "GET /x?k={key}", match: .hits, paging: {next: .next, param: after, max_pages: 20}}}]`)
	r := postJSON("/", `{}`)
	rapid.Check(t, func(t *rapid.T) {
		rd, _ := a.Read(r)
		s := rd.Search(Query{Key: sampleKey, Marker: sampleKey, Original: r})
		pages := 0
		for _, more := s.Next(); more; _, more = s.Next() {
			if pages++; pages > 20 {
				t.Fatal("asked for too many pages")
			}
			body := rapid.SampledFrom([]string{`{"hits":[],"next":"%d"}`, `{"hits":[],"next":%d}`, `{"hits":[],"next":"same"}`, `{"hits":[],"next":[%d]}`, `{"hits":%d}`, `[`}).Draw(t, "body")
			if strings.Contains(body, "%d") {
				body = fmt.Sprintf(body, pages)
			}
			s.Take(context.Background(), Answer{Status: 200, Body: []byte(body)})
		}
		if f := s.Finding(); f.Discovery != Inconclusive || !f.Lasting {
			t.Fatalf("after %d pages: %+v", pages, f)
		}
	})
}

// Several hits on the page with the first one are counted, and the first is the
// answer.
func TestHitsAreCounted(t *testing.T) {
	a := mustParse(t, `[{name: a, class: effect, lookup: {request: "GET /x?k={key}", match: .hits, response: {status: 204, body: '', headers: {X-From: lookup}}}}]`)
	r := postJSON("/", `{}`)
	s := searchOf(t, a, r)
	answers(s, `{"hits":[{"n":1},{"n":2},{"n":3}]}`)
	f := s.Finding()
	if f.Discovery != Found || f.Hits != 3 || f.Answer.Status != 204 || len(f.Answer.Body) != 0 || f.Answer.Header.Value("X-From") != "lookup" {
		t.Errorf("got %+v", f)
	}
}

// A key in the path of a file may be written with its slashes encoded: where the
// adapter of a provider takes both ways for the same operation, it may be
// believed. Dots never are, nor are the operations of a configuration.
func TestEncodedSlashes(t *testing.T) {
	const file = "name: x\noperations:\n  - {name: put, when: {method: [PUT], path: '/repos/*/contents/**'}, class: effect, precondition: {json: /sha}, recover: [cas_resend]}\n"
	list := strings.TrimPrefix(file, "name: x\noperations:\n")
	for _, tt := range []struct {
		text, target, want string
	}{
		{file, "/repos/r/contents/docs%2Fa.md", "[cas_resend]"},
		{file, "/repos/r/contents/docs%2fa.md?ref=x%2Fy", "[cas_resend]"},
		{file, "/repos/r/contents/docs%2F..%2Fa.md", "[]"},
		{file, "/repos/r/contents/%2e%2e%2Fa.md", "[]"},
		{file, "/repos/o%2Fr/contents/a.md", "[]"},
		{list, "/repos/r/contents/docs%2Fa.md", "[]"},
	} {
		a := mustParse(t, tt.text)
		r := postJSON(tt.target, `{"sha":"abc"}`)
		r.Method = "PUT"
		rd, _ := a.Read(r)
		if got := fmt.Sprint(rd.Strategies(r, classify.Effect)); rd.Operation == nil || got != tt.want { //nolint:staticcheck // a list of strategies, not of bytes
			t.Errorf("%s: got %s, want %s", tt.target, got, tt.want)
		}
	}
}

// $t0 and the like in targets and bodies, for all that a request can hold.
func TestTemplatesKnowTheRequest(t *testing.T) {
	for _, tt := range []struct{ text, want string }{
		{"/x/{key}/{marker}/{run}/{turn}/{call}", "/x/" + sampleKey + "/" + sampleKey + "/r/t/c"},
		{"/x/{body.n}/{body./o/p}?k={key}", "/x/1.50/yes?k=" + sampleKey},
		{"/x/{$path[1]}?k={$path[0]}", "/x/b%20c?k=a"},
		{"/x?since={$t0 - 60 | floor | todate}&k={key}", "/x?since=1970-01-01T00%3A15%3A40Z&k=" + sampleKey},
		{"/x?q={$query.q}&k={$uuid}", "/x?q=1%2B1&k=" + UUID(sampleKey)},
		{"/x?t={$headers[\"x-tenant\"]}&k={key}", "/x?t=t1&k=" + sampleKey},
		{"/x?secret={$headers.authorization // \"none\"}&k={key}", "/x?secret=none&k=" + sampleKey},
		{"/{if $request.o then \"o\" else \"p\" end}?k={key}", "/o?k=" + sampleKey},
		{"/x?p={$page}&k={key}", "/x?p=1&k=" + sampleKey},
	} {
		a := mustParse(t, `[{name: a, class: effect, marker: {place: header, name: X-M}, lookup: {request: '`+"GET "+tt.text+`', found: "true"}}]`)
		r := postJSON("/a/b%20c?q=1%2B1&q=2", `{"n":1.50,"o":{"p":"yes"}}`)
		r.Header = r.Header.Set("X-Tenant", "t1").Set("Authorization", "Bearer s")
		rd, _ := a.Read(r)
		s := rd.Search(Query{Key: sampleKey, Marker: sampleKey, Run: "r", Turn: "t", Call: "c", SentAt: time.Unix(1000, 5e8), Original: r})
		got, more := s.Next()
		if !more || got.Target != tt.want {
			t.Errorf("%s: got %+v %s", tt.text, got, s.Finding().Reason)
		}
	}
}

// The request on record may be read otherwise than the one at hand, of which an
// operation is known.
func TestNothingToAskBy(t *testing.T) {
	for _, rd := range []*Reading{{}, {Operation: &Operation{Name: "a"}}} {
		s := rd.Search(Query{})
		if r, more := s.Next(); more || s.Finding().Discovery != Inconclusive || !s.Finding().Lasting || s.Finding().Reason == "" {
			t.Errorf("asked %+v, found %+v", r, s.Finding())
		}
	}
}

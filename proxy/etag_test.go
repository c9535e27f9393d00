package proxy

import (
	"fmt"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"counterfoil/internal/journal"
)

// C115: the tag of any GET works in If-Match; lists and * work; a weak tag is
// 412 with a text that says so; a bare one 400; a create race has one winner.
func TestC115EntityTags(t *testing.T) {
	onBoth(t, func(s *shop) {
		t := s.t
		s.want(201, "PUT", "s", "")
		old := s.etag("s/items/k", `{"value":0}`)
		tag := s.etag("s/items/k", `{"value":"`+strings.Repeat("compressible ", 1000)+`"}`)
		if !regexp.MustCompile(`^"[A-Za-z0-9_-]+"$`).MatchString(tag) {
			t.Errorf("tag %s", tag)
		}
		for _, field := range []string{"Accept-Encoding: gzip", "Accept-Encoding: br, gzip;q=0.5", "Accept-Encoding: identity;q=0, *"} {
			plain, coded := s.want(200, "GET", "s/items/k", ""), s.want(200, "GET", "s/items/k", "", field)
			if coded.value("ETag") != tag || plain.value("ETag") != tag || coded.body != plain.body {
				t.Errorf("%s: %q, not %q", field, coded.fields, plain.fields)
			}
			tag = s.want(200, "PUT", "s/items/k", `{"value":"`+strings.Repeat("compressible ", 1000)+`"}`, field, "If-Match: "+coded.value("ETag")).item(t).ETag
		}
		strip := strings.Trim(tag, `"`)
		for _, match := range []string{"W/" + tag, old + ", W/" + tag, `W/"other"`} {
			if d := s.do("PUT", "s/items/k", `{"value":1}`, "If-Match: "+match).isProblem(t, journal.ETagMismatch); !strings.Contains(d.Detail, "weak") || d.ETag != tag {
				t.Errorf("%s: %+v", match, d)
			}
		}
		for _, match := range []string{`"` + strip + `-gzip"`, `"` + strip + `;br"`, `"v0"`, `""`, `"v0", "v1"`, old} {
			if d := s.do("PUT", "s/items/k", `{"value":1}`, "If-Match: "+match).isProblem(t, journal.ETagMismatch); strings.Contains(d.Detail, "weak") || d.ETag != tag {
				t.Errorf("%s: %+v", match, d)
			}
		}
		for _, match := range []string{strip, "'" + strip + "'", tag + tag, tag + " x", `"` + strip, strip + `"`, "w/" + tag, "W/ " + tag, "*, " + tag, "", ",", "W/*", "**"} {
			s.do("PUT", "s/items/k", `{"value":1}`, "If-Match: "+match).isProblem(t, journal.InvalidRequest)
			s.do("DELETE", "s/items/k", "", "If-Match: "+match).isProblem(t, journal.InvalidRequest)
			s.do("GET", "s/items/k", "", "If-None-Match: "+match).isProblem(t, journal.InvalidRequest)
		}
		for _, match := range []string{"%s", `"v0", %s`, `%s,"v0"`, `, "a,b" ,, %s ,`, "*", "  %s  ", `W/"v0", %s`} {
			if strings.Contains(match, "%s") {
				match = fmt.Sprintf(match, tag)
			}
			tag = s.want(200, "PUT", "s/items/k", `{"value":1}`, "If-Match: "+match).item(t).ETag
		}
		tag = s.want(200, "PUT", "s/items/k", `{"value":1}`, `If-Match: "v0"`, "If-Match: "+tag).item(t).ETag
		for match, status := range map[string]int{"W/" + tag: 304, tag: 304, `"v0", W/` + tag: 304, "*": 304, old: 200, `"` + strip + `-gzip"`: 200} {
			g := s.want(status, "GET", "s/items/k", "", "If-None-Match: "+match)
			if g.value("ETag") != tag || status == 304 && g.body != "" {
				t.Errorf("%s: %+v", match, g)
			}
			if h := s.want(status, "HEAD", "s/items/k", "", "If-None-Match: "+match); h.value("ETag") != tag {
				t.Errorf("%s: %+v", match, h)
			}
		}
		s.do("GET", "s/items/none", "", "If-None-Match: *").isProblem(t, NotFound)
		s.want(200, "GET", "s/items/k", "", "If-Match: "+tag)
		s.do("GET", "s/items/k", "", "If-Match: "+old).isProblem(t, journal.ETagMismatch)
		s.do("PUT", "s/items/k", `{"value":1}`, "If-None-Match: "+old).isProblem(t, journal.InvalidRequest)
		s.do("PUT", "s/items/k", `{"value":1}`, "If-None-Match: *", "If-Match: "+tag).isProblem(t, journal.InvalidRequest)
		s.do("DELETE", "s/items/k", "", "If-None-Match: *").isProblem(t, journal.InvalidRequest)

		for round := range 50 {
			var status [4]int
			s.atOnce(len(status), func(i int, c *client) {
				status[i] = c.ask(request("PUT", fmt.Sprintf("%ss/items/race-%d", stores, round), fmt.Sprintf(`{"value":%d}`, i), "If-None-Match: *")).status
			})
			counts := map[int]int{}
			for _, code := range status {
				counts[code]++
			}
			if counts[201] != 1 || counts[412] != len(status)-1 {
				t.Fatalf("round %d of the race to create: %v", round, status)
			}
		}
	})
}

// A body has room for millions of tags: nothing is kept of those that name no
// version.
func TestTagsThatNameNothingTakeNoMemory(t *testing.T) {
	list := strings.Repeat(`"",W/"x","v0",`, 1000)
	var err error
	if n := testing.AllocsPerRun(1, func() { _, err = parseETags(list) }); err != nil || n > 0 {
		t.Errorf("%v allocations, %v", n, err)
	}
}

// atOnce runs n clients that begin together.
func (s *shop) atOnce(n int, do func(i int, c *client)) {
	var ready, wait sync.WaitGroup
	ready.Add(n)
	for i := range n {
		c := dial(s.t, s.addr)
		wait.Go(func() {
			defer c.Close()
			ready.Done()
			ready.Wait()
			do(i, c)
		})
	}
	wait.Wait()
}

// ask sends a request on a connection that stays.
func (c *client) ask(raw string) *got {
	c.t.Helper()
	c.say(raw)
	g, err := c.hear(strings.Fields(raw)[0])
	if err != nil {
		c.t.Errorf("answer to %.60q: %v", raw, err)
		return &got{}
	}
	return g
}

// C116: of two who save what both have read one wins, round after round; tags
// never come again; the tag of a PUT is that of the next GET. Without If-Match a
// write is written, as design 3.7 has it.
func TestC116LostUpdate(t *testing.T) {
	const rounds = 1000
	onBoth(t, func(s *shop) {
		t := s.t
		s.want(201, "PUT", "s", "")
		tag := s.etag("s/items/k", `{"value":0}`)
		seen := map[string]bool{tag: true}
		x, y := dial(t, s.addr), dial(t, s.addr)
		for _, c := range []*client{x, y} {
			_ = c.SetDeadline(time.Now().Add(3 * deadline))
		}
		for round := range rounds {
			var wait sync.WaitGroup
			var answers [2]*got
			for i, c := range []*client{x, y} {
				wait.Go(func() {
					answers[i] = c.ask(request("PUT", stores+"s/items/k", fmt.Sprintf(`{"value":%d}`, round%2), "If-Match: "+tag))
				})
			}
			wait.Wait()
			won, lost := answers[0], answers[1]
			if won.status != 200 {
				won, lost = lost, won
			}
			next := won.value("ETag")
			if won.status != 200 || lost.status != 412 || lost.value("ETag") != next || seen[next] {
				t.Fatalf("round %d: %d %d, tags %s and %s", round, won.status, lost.status, next, lost.value("ETag"))
			}
			if g := x.ask(request("GET", stores+"s/items/k", "")); g.value("ETag") != next {
				t.Fatalf("round %d: PUT says %s, GET %s", round, next, g.value("ETag"))
			}
			tag, seen[next] = next, true
		}
		if free := s.want(200, "PUT", "s/items/k", `{"value":1}`).item(t); seen[free.ETag] {
			t.Errorf("tag %s came again", free.ETag)
		}
		s.want(204, "DELETE", "s/items/k", "")
		if anew := s.want(201, "PUT", "s/items/k", `{"value":1}`).item(t); seen[anew.ETag] {
			t.Errorf("tag %s came again", anew.ETag)
		}
		s.do("PUT", "s/items/k", `{"value":1}`, "If-Match: "+tag).isProblem(t, journal.ETagMismatch)
	})
}

// FuzzETags holds the reader of entity tags against the grammar of RFC 9110
// section 8.8.3.
func FuzzETags(f *testing.F) {
	for _, s := range []string{`"a"`, `W/"a", "b"`, "*", ` , "a,b",,"" `, `"a" "b"`, `a`, `"a`, "w/\"a\"", "\"\x80\"", "\"a b\"", "\t*\t", `"AAAAAAAAAAE"`} {
		f.Add(s)
	}
	element := `(?:[ \t]*(?:(?:W/)?"[\x21\x23-\x7e\x80-\xff]*")?[ \t]*)`
	grammar := regexp.MustCompile(`^(?s:[ \t]*\*[ \t]*|` + element + `(?:,` + element + `)*)$`)
	f.Fuzz(func(t *testing.T, s string) {
		l, err := parseETags(s)
		latin := make([]rune, len(s)) // the grammar is of bytes
		for i := range len(s) {
			latin[i] = rune(s[i])
		}
		want := grammar.MatchString(string(latin)) && strings.Trim(s, " \t,") != ""
		if (err == nil) != want {
			t.Fatalf("%q: %v, the grammar says %v", s, err, want)
		}
		if err != nil {
			return
		}
		if !l.isGiven || l.isAny != (strings.Trim(s, " \t") == "*") || l.hasWeak && !strings.Contains(s, "W/") {
			t.Errorf("%q: %+v", s, l)
		}
		c := l.condition()
		if !l.isAny && c.Versions == nil || c.Present != l.isAny {
			t.Errorf("%q asks for nothing: %+v", s, c)
		}
		for _, v := range c.Versions {
			if !strings.Contains(s, v.ETag()) || !l.matchesWeakly(v) {
				t.Errorf("%q names no %s", s, v.ETag())
			}
		}
	})
}

package classify

import (
	"regexp"
	"strings"
	"testing"
)

func mustMatch(t testing.TB, methods []string, path string) Match {
	t.Helper()
	m, err := CompileMatch(methods, path)
	if err != nil {
		t.Fatalf("CompileMatch(%q, %q): %v", methods, path, err)
	}
	return m
}

func TestMatchPath(t *testing.T) {
	for _, row := range []struct{ pattern, matches, not string }{
		{"", "/ /a /a/b", ""},
		{"/", "/", "/a //"},
		{"/refunds", "/refunds", "/ /refund /refunds/ /refunds/1 /x/refunds /Refunds"},
		{"/refunds/", "/refunds/", "/refunds /refunds/1"},
		{"/search/**", "/search /search/ /search/a /search/a/b", "/ /searches /x/search"},
		{"/**", "/ /a /a/b/", ""},
		{"/users/*", "/users/1 /users/a%20b", "/users /users/ /users/1/ /users/1/x"},
		{"/users/*/posts", "/users/1/posts", "/users//posts /users/1/2/posts"},
		{"/**/merge", "/merge /a/merge /a/b/merge", "/a/merge/b /amerge"},
		{"/a/**/b/**/c", "/a/b/c /a/x/b/y/z/c /a/b/b/c/c", "/a/c /a/b /a/x/b/y"},
		{"/v*/x", "/v/x /v1/x /v12/x", "/w1/x /v1/y /v1/2/x"},
		{"/*.json", "/.json /a.json /a.json.json", "/a.jsonx /a/b.json"},
		{"/a*b*c", "/abc /axbyc /abbcc", "/ab /acb /a/b/c"},
		{"/v1/x:search", "/v1/x:search", "/v1/x:find"},
		{"/caf%C3%A9", "/caf%C3%A9", "/caf%c3%a9 /café"},
	} {
		m := mustMatch(t, nil, row.pattern)
		for path := range strings.FieldsSeq(row.matches) {
			if !m.Matches("POST", path) {
				t.Errorf("%q does not match %q", row.pattern, path)
			}
		}
		for _, path := range append(strings.Fields(row.not), "x") {
			if row.pattern != "" && m.Matches("POST", path) {
				t.Errorf("%q matches %q", row.pattern, path)
			}
		}
	}
}

func TestMatchMethod(t *testing.T) {
	m := mustMatch(t, []string{"POST", "PATCH"}, "/a")
	for method, want := range map[string]bool{"POST": true, "PATCH": true, "GET": false, "post": false, "": false} {
		if got := m.Matches(method, "/a"); got != want {
			t.Errorf("%q: got %v, want %v", method, got, want)
		}
	}
	if got, want := m.String(), "POST,PATCH /a"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestCompileMatchSaysWhatToDo(t *testing.T) {
	for _, row := range []struct{ method, path, hint string }{
		{"post", "/a", "write POST"},
		{"PO ST", "/a", "no HTTP method"},
		{"POST", "a/b", `write "/a/b"`},
		{"POST", "/a?x=1", "query"},
		{"POST", "/a#x", "query or fragment"},
		{"POST", "/a**", "must stand alone"},
		{"POST", "/a/../b", "dot segments"},
		{"POST", "/a//b", "more than one way"},
		{"POST", "/%61", "more than one way"},
		{"POST", "/a%2Fb", "more than one way"},
		{"POST", "/a%zz", "more than one way"},
		{"POST", "/a;b", "more than one way"},
		{"POST", "/%c3%a9", "upper case"},
		{"POST", "/" + strings.Repeat("a", patternBytesMax), "at most 1024"},
	} {
		_, err := CompileMatch([]string{row.method}, row.path)
		if err == nil || !strings.Contains(err.Error(), row.hint) {
			t.Errorf("%s %.40q: got %v, want a text with %q", row.method, row.path, err, row.hint)
		}
	}
}

// naiveMatch is the meaning of a pattern as a regular expression.
func naiveMatch(pattern, path string) bool {
	var b strings.Builder
	for s := range strings.SplitSeq(pattern[1:], "/") {
		switch s {
		case "**":
			b.WriteString(`(/[^/]*)*`)
		case "*":
			b.WriteString(`/[^/]+`)
		default:
			b.WriteString("/" + strings.ReplaceAll(regexp.QuoteMeta(s), `\*`, `[^/]*`))
		}
	}
	return regexp.MustCompile(`(?s)^` + b.String() + `$`).MatchString(path)
}

func FuzzMatch(f *testing.F) {
	for _, seed := range [][2]string{
		{"/search/**", "/search"}, {"/a/**/b/*/c", "/a/b/b/x/c"}, {"/**/**/x*y", "/a/xyxy"}, {"/*", "/"}, {"/a/*b*", "/a/%2e"},
	} {
		f.Add(seed[0], seed[1])
	}
	f.Fuzz(func(t *testing.T, pattern, path string) {
		m, err := CompileMatch(nil, pattern)
		if err != nil || pattern == "" || len(path) > 1000 {
			return
		}
		if got, want := m.Matches("GET", path), naiveMatch(toLatin(pattern), toLatin(path)); got != want {
			t.Errorf("%q on %q: got %v, want %v", pattern, path, got, want)
		}
	})
}

// toLatin makes each byte a rune, since regular expressions read runes.
func toLatin(s string) string {
	runes := make([]rune, len(s))
	for i := range len(s) {
		runes[i] = rune(s[i])
	}
	return string(runes)
}

func TestMatchAllocatesNothing(t *testing.T) {
	m := mustMatch(t, []string{"POST"}, "/v1/**/search/*")
	if n := testing.AllocsPerRun(100, func() { m.Matches("POST", "/v1/a/b/c/search/x") }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func BenchmarkMatch(b *testing.B) {
	m := mustMatch(b, []string{"POST", "PUT"}, "/v1/**/search/*")
	b.ReportAllocs()
	for b.Loop() {
		m.Matches("POST", "/v1/projects/42/things/search/x1")
	}
}

// The longest pattern against the path that makes it go back most often.
func BenchmarkMatchWorst(b *testing.B) {
	m := mustMatch(b, nil, "/**"+strings.Repeat("/a", 500)+"/b")
	path := strings.Repeat("/a", 4000)
	for b.Loop() {
		m.Matches("POST", path)
	}
}

// What one pattern covers it matches, whatever path the other one takes.
func TestCoversIsNeverWrong(t *testing.T) {
	segments := []string{"a", "b", "*", "**", "a*", "*b", "a*b"}
	var patterns []Match
	for _, first := range segments {
		for _, second := range append(segments, "") {
			for _, third := range []string{"none", "a", "*", "**"} {
				path := "/" + first + "/" + second
				if third != "none" {
					path += "/" + third
				}
				if m, err := CompileMatch(nil, path); err == nil {
					patterns = append(patterns, m)
				}
			}
		}
	}
	var paths []string
	for _, first := range []string{"", "a", "b", "ab", "axb", "c"} {
		paths = append(paths, "/"+first)
		for _, second := range []string{"", "a", "ab", "b", "c"} {
			paths = append(paths, "/"+first+"/"+second, "/"+first+"/"+second+"/a", "/"+first+"/"+second+"/", "/"+first+"/"+second+"/c/a")
		}
	}
	covered := 0
	for i := range patterns {
		for j := range patterns {
			wide, narrow := &patterns[i], &patterns[j]
			if !wide.Covers(narrow) {
				if i == j {
					t.Errorf("%s does not cover itself", wide)
				}
				continue
			}
			covered++
			for _, path := range paths {
				if narrow.Matches("POST", path) && !wide.Matches("POST", path) {
					t.Fatalf("%s covers %s, but %s is the second's alone", wide, narrow, path)
				}
			}
		}
	}
	if covered <= len(patterns) {
		t.Errorf("%d of %d patterns are covered", covered, len(patterns))
	}
}

func TestCovers(t *testing.T) {
	for _, row := range []struct {
		methods    string
		wide       string
		narrow     string
		narrowFrom string
		want       bool
	}{
		{"", "", "/a", "POST", true},
		{"POST", "", "/a", "POST", true},
		{"GET", "", "/a", "POST", false},
		{"POST", "", "/a", "", false},
		{"", "/**", "", "", false}, // "" also takes what is no path
		{"", "/tickets/**", "/tickets", "", true},
		{"", "/tickets/**", "/tickets/*/comments", "", true},
		{"", "/**/comments", "/tickets/*/comments", "", true},
		{"", "/tickets/*", "/tickets/**", "", false},
		{"", "/v1/tickets", "/tickets", "", false},
	} {
		compile := func(method, path string) Match {
			var methods []string
			if method != "" {
				methods = []string{method}
			}
			m, err := CompileMatch(methods, path)
			if err != nil {
				t.Fatal(err)
			}
			return m
		}
		wide, narrow := compile(row.methods, row.wide), compile(row.narrowFrom, row.narrow)
		if got := wide.Covers(&narrow); got != row.want {
			t.Errorf("%s covers %s: got %v", &wide, &narrow, got)
		}
	}
}

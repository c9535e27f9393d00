package classify

import (
	"fmt"
	"slices"
	"strings"
)

// patternBytesMax bounds a path pattern, and with it the work of one match.
const patternBytesMax = 1024

// A Match says which requests a rule or an operation is about. Its zero value
// matches every request. It is made by [CompileMatch], never changes, and may
// be used by any number of goroutines.
type Match struct {
	methods  []string
	path     string
	segments []segment
}

// A segment is one part of a path pattern between two slashes.
type segment struct {
	kind segmentKind
	text string
}

type segmentKind uint8

const (
	literal    segmentKind = iota // text, byte for byte
	glob                          // text with at least one star
	anySegment                    // "*"
	anyDepth                      // "**"
)

// CompileMatch makes a Match of methods and a path pattern. No methods means
// any method; they compare with case, as RFC 9110 section 9.1 has it. An empty
// pattern means any path.
//
// A pattern is compared with the bytes of the path as the client sent them,
// relative to the upstream and without the query. It begins with "/". In it
// "*" stands for any bytes of one segment (alone in its segment, for at least
// one), and "**", alone in its segment, for any number of whole segments, none
// included: "/search/**" matches "/search", "/search/" and "/search/a/b".
// Everything else stands for itself. A pattern has at most 1024 bytes.
//
// What such a match may and may not grant to an oddly written path is said at
// [Rules].
func CompileMatch(methods []string, path string) (Match, error) {
	for _, m := range methods {
		if err := checkMethod(m); err != nil {
			return Match{}, err
		}
	}
	m := Match{methods: slices.Clone(methods), path: path}
	if path == "" {
		return m, nil
	}
	if err := checkPattern(path); err != nil {
		return Match{}, err
	}
	for text := range strings.SplitSeq(path[1:], "/") {
		s, err := compileSegment(text)
		if err != nil {
			return Match{}, fmt.Errorf("path %q: %w", path, err)
		}
		m.segments = append(m.segments, s)
	}
	return m, nil
}

func checkMethod(method string) error {
	if !isToken(method) {
		return fmt.Errorf("method %q is no HTTP method: write one like POST", method)
	}
	if upper := strings.ToUpper(method); upper != method {
		return fmt.Errorf("method %q: methods are upper case, write %s", method, upper)
	}
	return nil
}

func checkPattern(path string) error {
	switch {
	case len(path) > patternBytesMax:
		return fmt.Errorf("path pattern of %d bytes: at most %d are allowed", len(path), patternBytesMax)
	case path[0] != '/':
		return fmt.Errorf("path %q does not begin with /: write %q", path, "/"+path)
	case strings.ContainsAny(path, "?#"):
		return fmt.Errorf("path %q holds a query or fragment: only paths are compared, remove it", path)
	case IsAmbiguous(path):
		return fmt.Errorf("path %q can be read in more than one way: write it without dot segments, empty segments, backslashes, semicolons, "+
			"control characters, and percent-encodings of letters, digits, - . _ ~ / \\ ; or %%", path)
	case hasLowerHex(path):
		return fmt.Errorf("path %q: write percent-encodings in upper case (RFC 3986 section 2.1)", path)
	}
	return nil
}

func compileSegment(text string) (segment, error) {
	switch {
	case text == "**":
		return segment{kind: anyDepth}, nil
	case text == "*":
		return segment{kind: anySegment}, nil
	case strings.Contains(text, "**"):
		return segment{}, fmt.Errorf("** in %q must stand alone between slashes; use * within a segment", text)
	case strings.Contains(text, "*"):
		return segment{kind: glob, text: text}, nil
	}
	return segment{kind: literal, text: text}, nil
}

// Matches reports whether m is about a request of this method and path. The
// path is the target without its query. It allocates nothing.
func (m *Match) Matches(method, path string) bool {
	if len(m.methods) > 0 && !slices.Contains(m.methods, method) {
		return false
	}
	if m.path == "" {
		return true
	}
	if path == "" || path[0] != '/' {
		return false
	}
	return matchSegments(m.segments, path[1:])
}

// Covers reports whether every request that other is about is one that m is
// about, as far as it can tell from the patterns side by side: true is certain,
// false is not.
func (m *Match) Covers(other *Match) bool {
	for _, method := range other.methods {
		if len(m.methods) > 0 && !slices.Contains(m.methods, method) {
			return false
		}
	}
	if len(other.methods) == 0 && len(m.methods) > 0 {
		return false
	}
	if m.path == "" {
		return true
	}
	return other.path != "" && coversSegments(m.segments, other.segments)
}

// coversSegments fills, from the ends on, a table of whether one pattern's rest
// takes all that the other's rest takes.
func coversSegments(wide, narrow []segment) bool {
	below := make([]bool, len(narrow)+1)
	for w := len(wide); w >= 0; w-- {
		row := make([]bool, len(narrow)+1)
		for n := len(narrow); n >= 0; n-- {
			switch {
			case w == len(wide):
				row[n] = n == len(narrow)
			case wide[w].kind == anyDepth:
				row[n] = below[n] || n < len(narrow) && row[n+1]
			default:
				row[n] = n < len(narrow) && wide[w].covers(&narrow[n]) && below[n+1]
			}
		}
		below = row
	}
	return below[0]
}

func (s *segment) covers(other *segment) bool {
	switch other.kind {
	case literal:
		return s.matches(other.text)
	case anySegment:
		return s.kind == anySegment
	case glob:
		return s.kind == anySegment || s.kind == glob && matchGlob(s.text, other.text)
	case anyDepth:
	}
	return false
}

// String returns the match as a person would write it.
func (m *Match) String() string {
	methods, path := "any method", "any path"
	if len(m.methods) > 0 {
		methods = strings.Join(m.methods, ",")
	}
	if m.path != "" {
		path = m.path
	}
	return methods + " " + path
}

// matchSegments walks pattern and path side by side. On a mismatch the last
// "**" seen takes one segment more: an earlier one never needs to, so the work
// is bounded by the product of the two lengths.
func matchSegments(pattern []segment, path string) bool {
	at, s := 0, 0
	retryAt, retry := 0, -1
	for at <= len(path) {
		if s < len(pattern) && pattern[s].kind == anyDepth {
			s++
			retryAt, retry = at, s
			if s == len(pattern) {
				return true
			}
			continue
		}
		end := segmentEnd(path, at)
		if s < len(pattern) && pattern[s].matches(path[at:end]) {
			at, s = end+1, s+1
			continue
		}
		if retry < 0 {
			return false
		}
		retryAt = segmentEnd(path, retryAt) + 1
		at, s = retryAt, retry
	}
	for s < len(pattern) && pattern[s].kind == anyDepth {
		s++
	}
	return s == len(pattern)
}

// segmentEnd returns where the segment that begins at ends. A position one past
// the path's length means that there is no further segment.
func segmentEnd(path string, at int) int {
	if i := strings.IndexByte(path[at:], '/'); i >= 0 {
		return at + i
	}
	return len(path)
}

func (s *segment) matches(text string) bool {
	switch s.kind {
	case anySegment:
		return text != ""
	case glob:
		return matchGlob(s.text, text)
	case literal:
		return s.text == text
	case anyDepth:
		return true
	}
	return false
}

func matchGlob(pattern, text string) bool {
	p, t := 0, 0
	star, mark := -1, 0
	for t < len(text) {
		switch {
		case p < len(pattern) && pattern[p] == '*':
			star, mark = p, t
			p++
		case p < len(pattern) && pattern[p] == text[t]:
			p++
			t++
		case star >= 0:
			mark++
			p, t = star+1, mark
		default:
			return false
		}
	}
	for p < len(pattern) && pattern[p] == '*' {
		p++
	}
	return p == len(pattern)
}

// isToken reports whether s is a token of RFC 9110 section 5.6.2.
func isToken(s string) bool {
	for i := range len(s) {
		if c := s[i]; !isAlphanumeric(c) && strings.IndexByte("!#$%&'*+-.^_`|~", c) < 0 {
			return false
		}
	}
	return s != ""
}

func isAlphanumeric(c byte) bool {
	return '0' <= c && c <= '9' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z'
}

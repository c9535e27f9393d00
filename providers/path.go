package providers

import (
	"errors"
	"strings"
)

// A glob is a pattern of path segments, compared byte by byte with the path as
// it was sent: * stands for any part of one segment, ** as a whole segment for
// any number of segments, none included. The zero glob takes every path.
type glob struct {
	// prefix is what every matching path begins with: it turns most away
	// before the segments are looked at.
	prefix string
	// pattern is what follows the first "/", and given tells "/" from nothing.
	pattern string
	given   bool
}

func compileGlob(pattern string) (glob, error) {
	if !strings.HasPrefix(pattern, "/") {
		return glob{}, errors.New(`must begin with "/", as in /tickets/**`)
	}
	if i := strings.IndexAny(pattern, "?# \t\r\n"); i >= 0 {
		return glob{}, errors.New("a path holds no query, fragment or white space; leave out what follows")
	}
	if strings.ContainsAny(pattern, "{}") {
		return glob{}, errors.New("write * for one segment and ** for any number, as in /tickets/*/comments, instead of {…}")
	}
	for _, segment := range strings.Split(pattern, "/") {
		if segment != "**" && strings.Contains(segment, "**") {
			return glob{}, errors.New("** must be a whole segment, as in /a/**/b")
		}
	}
	prefix, _, wild := strings.Cut(pattern, "*")
	if wild {
		// /a/** takes /a as well, so the last slash is not certain.
		prefix = prefix[:max(strings.LastIndexByte(prefix, '/'), 0)]
	}
	return glob{prefix: prefix, pattern: pattern[1:], given: true}, nil
}

func (g glob) matches(path string) bool {
	if !g.given {
		return true
	}
	if !strings.HasPrefix(path, g.prefix) || path == "" || path[0] != '/' {
		return false
	}
	return matchSegments(g.pattern, path[1:])
}

// matchSegments walks both by segment. Only the last ** is ever taken back, so
// the work is at most segments times segments.
func matchSegments(pattern, path string) bool {
	p, s := 0, 0
	retry, taken := -1, 0
	for s <= len(path) {
		if p <= len(pattern) {
			want, afterWant := segmentAt(pattern, p)
			if want == "**" {
				p, retry, taken = afterWant, afterWant, s
				continue
			}
			if have, afterHave := segmentAt(path, s); matchSegment(want, have) {
				p, s = afterWant, afterHave
				continue
			}
		}
		if retry < 0 {
			return false
		}
		_, taken = segmentAt(path, taken)
		p, s = retry, taken
	}
	for p <= len(pattern) {
		want, after := segmentAt(pattern, p)
		if want != "**" {
			return false
		}
		p = after
	}
	return true
}

// segmentAt returns the segment that begins at i, and where the next begins:
// beyond the end of s plus one when it was the last.
func segmentAt(s string, i int) (string, int) {
	if n := strings.IndexByte(s[i:], '/'); n >= 0 {
		return s[i : i+n], i + n + 1
	}
	return s[i:], len(s) + 1
}

func matchSegment(pattern, s string) bool {
	head, rest, wild := strings.Cut(pattern, "*")
	if !wild {
		return pattern == s
	}
	if !strings.HasPrefix(s, head) {
		return false
	}
	s = s[len(head):]
	for {
		part, more, wild := strings.Cut(rest, "*")
		if !wild {
			return strings.HasSuffix(s, part)
		}
		i := strings.Index(s, part)
		if i < 0 {
			return false
		}
		s, rest = s[i+len(part):], more
	}
}

package providers

import (
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"strings"

	"counterfoil/classify"
)

// variables are what a program knows beside its input, in this order.
var variables = []string{
	"$key", "$marker", "$id", "$uuid", "$run", "$turn", "$call", "$request", "$form", "$query", "$path", "$headers", "$t0", "$page", "$next",
}

// A scope gives programs and placeholders their values. It reads each part of
// the request once, and only if somebody asks. One goroutine uses it.
type scope struct {
	q    *Query
	id   string
	base string
	page int
	next any

	isRead   [4]bool
	doc      any
	formed   map[string]any
	queried  map[string]any
	segments []any
}

func (s *scope) request() *classify.Request {
	if s.q.Original == nil {
		return &classify.Request{}
	}
	return s.q.Original
}

// isBelow says in front of what paths are seen.
func (s *scope) isBelow(base string) {
	if s.base != base {
		s.base, s.isRead[3], s.segments = base, false, nil
	}
}

// document is the request's JSON body, nil where it has none.
func (s *scope) document() any {
	if !s.isRead[0] {
		s.isRead[0] = true
		if r := s.request(); len(r.Body) > 0 && !isCoded(r.Header) && mediaType(r.Header) != formType {
			if doc, err := parseDocument(r.Body); err == nil {
				s.doc = doc
			}
		}
	}
	return s.doc
}

func (s *scope) form() map[string]any {
	if !s.isRead[1] {
		s.isRead[1] = true
		if r := s.request(); mediaType(r.Header) == formType && !isCoded(r.Header) && len(r.Body) <= documentBytesMax {
			s.formed = firstValues(string(r.Body))
		}
	}
	return s.formed
}

func (s *scope) query() map[string]any {
	if !s.isRead[2] {
		s.isRead[2] = true
		_, query, _ := strings.Cut(s.request().Target, "?")
		s.queried = firstValues(query)
	}
	return s.queried
}

func (s *scope) path() []any {
	if !s.isRead[3] {
		s.isRead[3] = true
		path := s.base + s.request().Path()
		for segment := range strings.SplitSeq(strings.TrimPrefix(path, "/"), "/") {
			plain, err := url.PathUnescape(segment)
			if err != nil {
				plain = segment
			}
			s.segments = append(s.segments, plain)
		}
	}
	return s.segments
}

func firstValues(pairs string) map[string]any {
	if pairs == "" {
		return nil
	}
	values := map[string]any{}
	for pair := range strings.SplitSeq(pairs, "&") {
		name, value, _ := strings.Cut(pair, "=")
		n, errName := url.QueryUnescape(name)
		v, errValue := url.QueryUnescape(value)
		if _, there := values[n]; !there && errName == nil && errValue == nil {
			values[n] = v
		}
	}
	return values
}

// values are the variables of one program; those that it does not mention are
// null.
func (s *scope) values(p *program) []any {
	vars := make([]any, len(variables))
	q := s.q
	for i, name := range variables {
		if !p.mentions(name) {
			continue
		}
		switch name {
		case "$key":
			vars[i] = q.Key
		case "$marker":
			vars[i] = q.Marker
		case "$id":
			vars[i] = s.id
		case "$uuid":
			vars[i] = UUID(q.Marker)
		case "$run":
			vars[i] = q.Run
		case "$turn":
			vars[i] = q.Turn
		case "$call":
			vars[i] = q.Call
		case "$request":
			vars[i] = s.document()
		case "$form":
			vars[i] = orEmpty(s.form())
		case "$query":
			vars[i] = orEmpty(s.query())
		case "$path":
			vars[i] = s.path()
		case "$headers":
			vars[i] = s.headers()
		case "$t0":
			vars[i] = float64(q.SentAt.UnixMilli()) / 1000
		case "$page":
			vars[i] = max(s.page, 1)
		case "$next":
			vars[i] = s.next
		}
	}
	return vars
}

// run runs a program with its values. A program that reads the request's body
// needs there to be one, unless it looks at a form too: null would be equal to
// whatever else is missing.
func (s *scope) run(ctx context.Context, p *program, input any) (any, error) {
	if p.mentions("$request") && !p.mentions("$form") && s.document() == nil {
		return nil, fmt.Errorf("the program at %s reads the request's body, which is not plain JSON", p.at)
	}
	return p.run(ctx, input, s.values(p))
}

func orEmpty(m map[string]any) map[string]any {
	if m == nil {
		return map[string]any{}
	}
	return m
}

// headers are those of the request by lower-case name, credentials left out.
func (s *scope) headers() map[string]any {
	h := map[string]any{}
	for _, f := range s.request().Header {
		name := strings.ToLower(f.Name)
		if _, there := h[name]; !there && !looksSecret(name) {
			h[name] = f.Value
		}
	}
	return h
}

func looksSecret(name string) bool {
	for _, word := range []string{"authorization", "cookie", "token", "secret", "key", "password"} {
		if strings.Contains(name, word) {
			return true
		}
	}
	return false
}

// textOf is a value as it stands in a target or a header.
func textOf(v any) (string, bool) {
	switch v := v.(type) {
	case string:
		return v, true
	case json.Number:
		return v.String(), true
	case bool, int, float64:
		text, err := json.Marshal(v)
		return string(text), err == nil
	}
	return "", false
}

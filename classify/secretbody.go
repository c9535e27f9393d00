package classify

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
)

// secretParts name the secret parts of a body: JSON pointers, and fields of a
// form.
type secretParts struct {
	pointers [][]string
	fields   []string
}

func (p *secretParts) isEmpty() bool { return len(p.pointers)+len(p.fields) == 0 }

func (p *secretParts) add(name string) error {
	if !strings.HasPrefix(name, "/") {
		if strings.TrimSpace(name) == "" {
			return errors.New("body field with an empty name: name a form field, or a JSON pointer such as /secret")
		}
		p.fields = append(p.fields, name)
		return nil
	}
	if err := CheckPointer(name); err != nil {
		return fmt.Errorf("body field %q: %w", name, err)
	}
	p.pointers = append(p.pointers, SplitPointer(name))
	return nil
}

// Errors of what is done with the secrets of a body.
var (
	// ErrHiddenBody says that a body may hold a secret that cannot be found, so
	// that it cannot be kept.
	ErrHiddenBody = errors.New("this provider takes credentials in the body, and one that is compressed, in parts or ambiguous cannot be kept without them: " +
		"send plain JSON or a plain form, each name once")
	// ErrOtherBody says that a body does not have the secrets that a redacted
	// one lost.
	ErrOtherBody = errors.New("the body lacks a secret that the recorded one has: send the call's own body again")
)

// RedactBody returns r's body with "redacted-" and the keyed hash of the value
// in the place of every secret string, and whether there was one. All other
// bytes stay. It fails with [ErrHiddenBody].
func (s *Secrets) RedactBody(r *Request, mac func(value []byte) string) (body []byte, found bool, err error) {
	spots, err := s.spots(r)
	if err != nil || len(spots) == 0 {
		return r.Body, false, err
	}
	return splice(r.Body, spots, func(sp *spot) []byte {
		return sp.write(redactedMark + mac(r.Body[sp.Start:sp.End]))
	}), true, nil
}

// RestoreBody returns the redacted body with the secrets of fresh, a request
// that repeats the call, in their places. It fails with [ErrHiddenBody] or
// [ErrOtherBody].
func (s *Secrets) RestoreBody(redacted, fresh *Request) ([]byte, error) {
	spots, err := s.spots(redacted)
	if err != nil || len(spots) == 0 {
		return redacted.Body, err
	}
	known, err := s.spots(fresh)
	if err != nil {
		return nil, err
	}
	for _, sp := range spots {
		if !slices.ContainsFunc(known, func(k spot) bool { return k.name == sp.name }) {
			return nil, ErrOtherBody
		}
	}
	return splice(redacted.Body, spots, func(sp *spot) []byte {
		i := slices.IndexFunc(known, func(k spot) bool { return k.name == sp.name })
		return fresh.Body[known[i].Start:known[i].End]
	}), nil
}

// HoldsSecret reports whether r's body holds a secret, or may.
func (s *Secrets) HoldsSecret(r *Request) bool {
	spots, err := s.spots(r)
	return err != nil || len(spots) > 0
}

// Blank returns r as its fingerprint is to be taken: without the values of the
// secrets in its body, which may be renewed between two tries. A body that
// RedactBody refuses stays as it is.
func (s *Secrets) Blank(r *Request) *Request {
	body, found, err := s.RedactBody(r, func([]byte) string { return "" })
	if err != nil || !found {
		return r
	}
	blank := *r
	blank.Body = body
	return &blank
}

// A spot is where a secret stands in a body. The value of a JSON string has its
// quotes.
type spot struct {
	Span
	name   string
	isJSON bool
}

func (sp *spot) write(value string) []byte {
	if !sp.isJSON {
		return []byte(url.QueryEscape(value))
	}
	quoted, err := json.Marshal(value)
	if err != nil {
		return []byte(`"` + redactedMark + `"`)
	}
	return quoted
}

// spots finds the secrets in the order in which they stand.
func (s *Secrets) spots(r *Request) ([]spot, error) {
	if s.body.isEmpty() || len(r.Body) == 0 {
		return nil, nil
	}
	media := mediaOf(r.Header)
	coded := r.Header.Value("Content-Encoding")
	switch {
	case coded != "" && !strings.EqualFold(coded, "identity") || media.boundary != "":
		return nil, ErrHiddenBody
	case strings.HasPrefix(media.bare, "application/x-www-form-urlencoded"):
		return s.formSpots(r.Body), nil
	case json.Valid(r.Body):
		return s.jsonSpots(r.Body)
	}
	return nil, nil
}

func (s *Secrets) jsonSpots(body []byte) ([]spot, error) {
	var list []spot
	for _, names := range s.body.pointers {
		at, err := Locate(body, names)
		switch {
		case errors.Is(err, ErrNotObject):
		case err != nil:
			return nil, ErrHiddenBody
		case at.Found && body[at.Start] == '"' && at.End-at.Start > len(`""`):
			list = append(list, spot{Span: at, name: strings.Join(names, "/"), isJSON: true})
		case at.Found && (body[at.Start] == '{' || body[at.Start] == '['):
			return nil, ErrHiddenBody
		}
	}
	slices.SortFunc(list, func(a, b spot) int { return a.Start - b.Start })
	return list, nil
}

func (s *Secrets) formSpots(body []byte) []spot {
	var list []spot
	at := 0
	for pair := range bytes.SplitSeq(body, []byte("&")) {
		name, value, _ := bytes.Cut(pair, []byte("="))
		if plain := decodeName(string(name)); len(value) > 0 && slices.Contains(s.body.fields, plain) {
			list = append(list, spot{Span: Span{Start: at + len(name) + 1, End: at + len(pair), Found: true}, name: plain})
		}
		at += len(pair) + 1
	}
	return list
}

func splice(body []byte, spots []spot, with func(*spot) []byte) []byte {
	out := make([]byte, 0, len(body)+64*len(spots))
	done := 0
	for i := range spots {
		out = append(append(out, body[done:spots[i].Start]...), with(&spots[i])...)
		done = spots[i].End
	}
	return append(out, body[done:]...)
}

package proxy

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"counterfoil/classify"
	"counterfoil/keystore"
)

// errETag says what an entity tag looks like. Its text goes to the client.
var errETag = errors.New(`it is * or a list of entity tags, each in double quotes as it came: "AAAAAAAAAAE"`)

// An etagList is what If-Match or If-None-Match says (RFC 9110 section 13.1). Of
// tags that never were an item's nothing is kept.
type etagList struct {
	isGiven bool
	// isAny is "*".
	isAny bool
	// hasWeak says that one of the tags is weak.
	hasWeak bool
	// strong are the versions whose tags are named as strong ones, weak the others.
	strong, weak []keystore.ItemVersion
}

// etagField reads a header field, all of its lines together.
func etagField(h classify.Header, name string) (etagList, error) {
	lines := h.Values(name)
	if len(lines) == 0 {
		return etagList{}, nil
	}
	l, err := parseETags(strings.Join(lines, ","))
	if err != nil {
		return l, invalid("%s: %s.", name, err)
	}
	return l, nil
}

// parseETags reads "*" or a list of entity tags. Empty elements of a list are
// passed over, as RFC 9110 section 5.6.1.2 asks; a list of nothing else is an
// error.
func parseETags(s string) (etagList, error) {
	l := etagList{isGiven: true}
	if strings.Trim(s, " \t") == "*" {
		l.isAny = true
		return l, nil
	}
	isEmpty := true
	for {
		if s = strings.TrimLeft(s, " \t,"); s == "" {
			break
		}
		isEmpty = false
		rest, isWeak := strings.CutPrefix(s, "W/")
		end := etagEnd(rest)
		if end < 0 {
			return l, errETag
		}
		l.add(rest[:end], isWeak)
		if s = strings.TrimLeft(rest[end:], " \t"); s != "" && s[0] != ',' {
			return l, errETag
		}
	}
	if isEmpty {
		return l, errETag
	}
	return l, nil
}

func (l *etagList) add(opaque string, isWeak bool) {
	l.hasWeak = l.hasWeak || isWeak
	v, known := keystore.ParseETag(opaque)
	switch {
	case known && isWeak:
		l.weak = append(l.weak, v)
	case known:
		l.strong = append(l.strong, v)
	}
}

// etagEnd is the length of the entity tag that s begins with, quotes included
// (RFC 9110 section 8.8.3); -1 if there is none.
func etagEnd(s string) int {
	if !strings.HasPrefix(s, `"`) {
		return -1
	}
	for i := 1; i < len(s); i++ {
		switch c := s[i]; {
		case c == '"':
			return i + 1
		case c <= ' ', c == 0x7f:
			return -1
		}
	}
	return -1
}

// condition is what If-Match asks of an item. Tags compare strongly there, so
// that a weak one matches nothing; nor does one that never was an item's.
func (l *etagList) condition() keystore.Condition {
	c := keystore.Condition{Present: l.isAny}
	if l.isGiven && !l.isAny {
		c.Versions = append([]keystore.ItemVersion{}, l.strong...)
	}
	return c
}

// matchesWeakly reports whether If-None-Match names that version; tags compare
// weakly there.
func (l *etagList) matchesWeakly(v keystore.ItemVersion) bool {
	return l.isAny || slices.Contains(l.strong, v) || slices.Contains(l.weak, v)
}

// A precondition is what a write asks of its item, and what a refusal has to say
// of it.
type precondition struct {
	keystore.Condition
	hasWeak bool
}

// conditions are the two lists of a write, and what they are called where they
// stood: fields of a header, or members of an operation.
type conditions struct {
	match, noneMatch     etagList
	matchIs, noneMatchIs string
}

// precondition takes the two together.
func (c *conditions) precondition() (precondition, error) {
	p := precondition{c.match.condition(), c.match.hasWeak}
	switch {
	case c.noneMatch.isGiven && !c.noneMatch.isAny:
		return p, fmt.Errorf("%s: a write takes only * there: the item must not exist yet. To replace a version name it in %s", c.noneMatchIs, c.matchIs)
	case c.noneMatch.isGiven && c.match.isGiven:
		return p, fmt.Errorf("%s and %s exclude each other: one asks for an item that is there, the other for none", c.matchIs, c.noneMatchIs)
	}
	p.Absent = c.noneMatch.isGiven
	return p, nil
}

// conditionOf reads the preconditions of a write of one item.
func conditionOf(h classify.Header) (p precondition, err error) {
	c := conditions{matchIs: "If-Match", noneMatchIs: "If-None-Match"}
	if c.match, err = etagField(h, c.matchIs); err != nil {
		return p, err
	}
	if c.noneMatch, err = etagField(h, c.noneMatchIs); err != nil {
		return p, err
	}
	if p, err = c.precondition(); err != nil {
		return p, invalid("%s", sentence(err))
	}
	return p, nil
}

package classify

import (
	"errors"
	"iter"
	"net/url"
	"strings"
)

// redactedMark begins what stands in the place of a secret value.
const redactedMark = "redacted-"

// ErrOtherTarget says that a target differs from a redacted one in more than
// its secrets, so that nothing can be restored from it.
var ErrOtherTarget = errors.New("the target differs in more than its secrets: send the call's own target again")

// Params are the secret parts of a target: query parameters by name, and parts
// of the path. The zero value is none; [NewSecrets] makes others.
type Params struct {
	names []string
	paths []secretPath
}

// RedactTarget puts "redacted-" and the keyed hash of the value in the place of
// every secret value that is not empty; mac gets the value's bytes as sent, and
// what it returns is query-escaped. All other bytes stay as they are.
func (s *Secrets) RedactTarget(target string, mac func(value []byte) string) string {
	var b strings.Builder
	done := 0
	for start, end := range s.Params.values(target) {
		if start == end {
			continue
		}
		b.WriteString(target[done:start])
		b.WriteString(redactedMark)
		b.WriteString(url.QueryEscape(mac([]byte(target[start:end]))))
		done = end
	}
	if done == 0 {
		return target
	}
	b.WriteString(target[done:])
	return b.String()
}

// RestoreTarget returns the redacted target with the secret values of fresh,
// the target of a request that repeats the call, in their places. Values may
// have been renewed in between; anything else that differs is [ErrOtherTarget].
func (s *Secrets) RestoreTarget(redacted, fresh string) (string, error) {
	empty := func(target string) string { return string(s.Params.appendTarget(nil, target)) }
	if empty(redacted) != empty(fresh) {
		return "", ErrOtherTarget
	}
	// Equal but for the secrets, which are to be fresh's: that is fresh itself.
	return fresh, nil
}

// appendTarget appends the stretches of target between its secret values as
// parts, and an end.
func (p *Params) appendTarget(buf []byte, target string) []byte {
	done := 0
	for start, end := range p.values(target) {
		buf = appendPart(append(buf, 's'), target[done:start])
		done = end
	}
	return appendPart(append(buf, 'e'), target[done:])
}

// values yields where the secret parts of the path, and then the values of
// secret parameters, begin and end. A value
// ends at the next "&"; a parameter may also begin after a ";", as some servers
// still have it, and then ends at the next of either.
func (p *Params) values(target string) iter.Seq2[int, int] {
	return func(yield func(start, end int) bool) {
		query := strings.IndexByte(target, '?')
		path := target
		if query >= 0 {
			path = target[:query]
		}
		for _, at := range p.inPath(path) {
			if !yield(at.Start, at.End) {
				return
			}
		}
		if query < 0 || len(p.names) == 0 {
			return
		}
		for at := query + 1; at < len(target); {
			end := indexFrom(target, '&', at)
			if !p.valuesOfPair(target, at, end, yield) {
				return
			}
			at = end + 1
		}
	}
}

func (p *Params) valuesOfPair(target string, at, end int, yield func(start, end int) bool) bool {
	if value, ok := p.secretValue(target, at, end); ok {
		return yield(value, end)
	}
	for at < end {
		stop := min(indexFrom(target, ';', at), end)
		if value, ok := p.secretValue(target, at, stop); ok && !yield(value, stop) {
			return false
		}
		at = stop + 1
	}
	return true
}

// secretValue returns where the value of the pair begins, if it is secret.
func (p *Params) secretValue(target string, at, end int) (int, bool) {
	eq := strings.IndexByte(target[at:end], '=')
	if eq < 0 || !p.has(target[at:at+eq]) {
		return 0, false
	}
	return at + eq + 1, true
}

// has compares names as a server would: percent-decoded, without space around
// them and without regard to case.
func (p *Params) has(name string) bool {
	if strings.ContainsAny(name, "%+ ") {
		name = strings.TrimSpace(decodeName(name))
	}
	for _, n := range p.names {
		if strings.EqualFold(n, name) {
			return true
		}
	}
	return false
}

func decodeName(name string) string {
	var b strings.Builder
	for i := 0; i < len(name); i++ {
		switch c, ok := percentByte(name, i); {
		case ok:
			b.WriteByte(c)
			i += 2
		case name[i] == '+':
			b.WriteByte(' ')
		default:
			b.WriteByte(name[i])
		}
	}
	return b.String()
}

func indexFrom(s string, c byte, at int) int {
	if i := strings.IndexByte(s[at:], c); i >= 0 {
		return at + i
	}
	return len(s)
}

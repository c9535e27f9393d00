package proxy

import (
	"errors"
	"strconv"
	"strings"
	"unicode/utf8"

	"counterfoil/keystore"
)

// Errors of a request's target. Their texts go to the client.
var (
	errNotOrigin = errors.New(`the target has to begin with "/", or to be a URL of this very host`)
	errEscape    = errors.New("the path has a % that begins no two-digit escape")
	errPathChar  = errors.New("the path holds NUL, a control character or a fragment")
	errNotASCII  = errors.New("it holds bytes that are not ASCII: percent-encode its UTF-8, as in Z%C3%BCrich")
	errClimbs    = errors.New("the path climbs out of the upstream's base path with dot segments")
)

// originForm returns a target as a path and a query. The absolute form (RFC 9112
// section 3.2.2) is taken only for the host that the request names anyway.
func originForm(target, host string) (string, error) {
	if strings.HasPrefix(target, "/") {
		return target, nil
	}
	const scheme = "http://"
	if len(target) < len(scheme) || !strings.EqualFold(target[:len(scheme)], scheme) {
		return "", errNotOrigin
	}
	rest := target[len(scheme):]
	end := strings.IndexAny(rest, "/?#")
	if end < 0 {
		end = len(rest)
	}
	if host == "" || !strings.EqualFold(rest[:end], host) {
		return "", errNotOrigin
	}
	if rest = rest[end:]; !strings.HasPrefix(rest, "/") {
		rest = "/" + rest
	}
	return rest, nil
}

// checkTarget refuses what a provider might take for a path outside its base
// path, and what no two programs read alike. The bytes are not changed.
func checkTarget(target string) error {
	path, query, _ := strings.Cut(target, "?")
	if strings.IndexByte(query, '#') >= 0 {
		return errPathChar
	}
	odd := false
	for i := range len(path) {
		switch c := path[i]; {
		case c <= ' ' || c == 0x7f || c == '#':
			return errPathChar
		case c == '%':
			if i+2 >= len(path) || !isHex(path[i+1]) || !isHex(path[i+2]) {
				return errEscape
			}
			if path[i+1] == '0' && path[i+2] == '0' {
				return errPathChar
			}
			odd = true
		case c == '.' || c == '\\':
			odd = true
		}
	}
	if odd && (climbs(path, slashOnly) || climbs(path, anySlash)) {
		return errClimbs
	}
	return nil
}

// separators says what a provider might take for the end of a segment.
type separators uint8

const (
	// slashOnly: "/" alone.
	slashOnly separators = iota
	// anySlash: also the backslash and the encodings of both.
	anySlash
)

// climbs reports whether the dot segments of path lead above its beginning.
// Empty segments do not count as a step down, and a segment ends for this
// purpose at a ";": servers differ in both.
func climbs(path string, sep separators) bool {
	depth := 0
	for path != "" {
		segment, rest := cutSegment(path, sep)
		path = rest
		name, _, _ := strings.Cut(segment, ";")
		switch dots(name) {
		case 0:
			if segment != "" {
				depth++
			}
		case 2:
			if depth--; depth < 0 {
				return true
			}
		}
	}
	return false
}

func cutSegment(path string, sep separators) (segment, rest string) {
	for i := range len(path) {
		switch {
		case path[i] == '/', sep == anySlash && path[i] == '\\':
			return path[:i], path[i+1:]
		case sep == anySlash && path[i] == '%' && isEncodedSlash(path[i:]):
			return path[:i], path[i+3:]
		}
	}
	return path, ""
}

// isEncodedSlash reports whether s begins with %2f or %5c.
func isEncodedSlash(s string) bool {
	return len(s) >= 3 && (s[1] == '2' && s[2]|0x20 == 'f' || s[1] == '5' && s[2]|0x20 == 'c')
}

// dots returns 1 or 2 for a segment of one or two dots, bare or percent-encoded,
// else 0.
func dots(segment string) int {
	n := 0
	for segment != "" {
		switch {
		case segment[0] == '.':
			segment = segment[1:]
		case len(segment) >= 3 && segment[:2] == "%2" && segment[2]|0x20 == 'e':
			segment = segment[3:]
		default:
			return 0
		}
		n++
	}
	if n > 2 {
		return 0
	}
	return n
}

func isHex(c byte) bool {
	return c >= '0' && c <= '9' || c|0x20 >= 'a' && c|0x20 <= 'f'
}

// A pathIdentity is what a path's first segment, "@run:turn:call;i=N;f=N", says.
type pathIdentity struct {
	parts identity
	// segment is its spelling without the call, for links that lead back: a
	// link is another request, so it cannot be the same call.
	segment string
}

// cutIdentity takes the identity off the front of a path, if it has one.
func cutIdentity(target string) (pathIdentity, string, error) {
	if !strings.HasPrefix(target, "/@") {
		return pathIdentity{}, target, nil
	}
	end := strings.IndexAny(target[1:], "/?") + 1
	if end == 0 {
		end = len(target)
	}
	p, err := parseIdentity(target[2:end])
	return p, target[end:], err
}

func parseIdentity(s string) (p pathIdentity, err error) {
	key, params, hasParams := strings.Cut(s, ";")
	parts := strings.Split(key, ":")
	if len(parts) > 3 {
		return p, errors.New("the path names more than run:turn:call; a : inside a name is spelt %3A")
	}
	for i, dst := range []*string{&p.parts.run, &p.parts.turn, &p.parts.call}[:len(parts)] {
		if *dst, err = decodePart([]string{"run", "turn", "call"}[i]+" in the path", parts[i]); err != nil {
			return p, err
		}
	}
	p.segment = "/@" + strings.Join(parts[:min(len(parts), 2)], ":")
	if !hasParams {
		return p, nil
	}
	p.segment += ";" + params
	return p, p.parts.parameters(params)
}

// parameters reads ;i=N and ;f=N, in either order.
func (id *identity) parameters(params string) (err error) {
	for param := range strings.SplitSeq(params, ";") {
		name, value, _ := strings.Cut(param, "=")
		switch {
		case name == "i" && id.incarnation == nil:
			id.incarnation, err = parseIncarnation(value)
		case name == "f" && id.fence == 0:
			id.fence, err = parseFence(value)
		default:
			err = errors.New("the path's identity has a parameter that is neither ;i=N nor ;f=N, or one of them twice")
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// parseFence reads a decimal number of at most eighteen digits, not 0.
func parseFence(s string) (keystore.Fence, error) {
	n, err := strconv.ParseUint(s, 10, 64)
	if err != nil || len(s) > 18 || n == 0 {
		return 0, errors.New("a fence is a positive whole number of at most eighteen digits: send the one that acquiring the run's lease gave")
	}
	return keystore.Fence(n), nil
}

// parseIncarnation reads a decimal number of at most nine digits.
func parseIncarnation(s string) (*uint32, error) {
	n, err := strconv.ParseUint(s, 10, 32)
	if err != nil || len(s) > 9 || s[0] == '+' {
		return nil, errors.New("an incarnation is a whole number of at most nine digits")
	}
	i := uint32(n)
	return &i, nil
}

// decodePart undoes percent-encoding and checks the length. Bytes that are not
// ASCII are refused: clients spell one name in UTF-8 or Latin-1, and the bytes
// do not say which. The error names where the part stood.
func decodePart(where, s string) (string, error) {
	if !isASCII(s) {
		return "", partError{where, errNotASCII}
	}
	part, err := keystore.DecodePart(s)
	if err == nil {
		err = keystore.ValidatePart(part)
	}
	if err != nil {
		return "", partError{where, err}
	}
	return part, nil
}

func isASCII(s string) bool {
	for i := range len(s) {
		if s[i] >= utf8.RuneSelf {
			return false
		}
	}
	return true
}

// A partError says which part of an identity is not valid, and why.
type partError struct {
	where string
	cause error
}

func (e partError) Error() string { return e.where + ": " + e.cause.Error() }
func (e partError) Unwrap() error { return e.cause }

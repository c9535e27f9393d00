package classify

import (
	"strings"
	"unicode/utf8"
)

// IsAmbiguous reports whether two readers might take path for different ones:
// it holds a dot segment, an empty segment (but a last one), a backslash, a
// semicolon, a number sign, white space or a control character, a malformed
// percent-encoding, or the percent-encoding of a character that needs none
// (RFC 3986 section 2.3) or that shapes the path (/ \ ; % and controls), or,
// decoded, what is no UTF-8 (a dot or slash can be spelt too long in it).
func IsAmbiguous(path string) bool {
	start := 0 // of the current segment
	ascii := true
	for i := range len(path) {
		switch c := path[i]; {
		case c == '/':
			if i > 0 && isOddSegment(path[start:i]) {
				return true
			}
			start = i + 1
		case c == '\\' || c == ';' || c == '#' || c <= ' ' || c == 0x7f:
			return true
		case c == '%':
			b, ok := percentByte(path, i)
			if !ok || isOddEncoded(b) {
				return true
			}
			ascii = ascii && b < utf8.RuneSelf
		default:
			ascii = ascii && c < utf8.RuneSelf
		}
	}
	last := path[start:]
	return last == "." || last == ".." || !ascii && !utf8.ValidString(decodePath(path, slashIsData))
}

func isOddSegment(s string) bool { return s == "" || s == "." || s == ".." }

func isOddEncoded(b byte) bool {
	return isAlphanumeric(b) || strings.IndexByte(`-._~/\;%`, b) >= 0 || b < ' ' || b == 0x7f
}

func hasLowerHex(path string) bool {
	for i := range len(path) {
		if path[i] != '%' || i+2 >= len(path) {
			continue
		}
		if path[i+1] >= 'a' || path[i+2] >= 'a' {
			return true
		}
	}
	return false
}

// readings returns what else a provider might take path for, at most eight
// paths: percent-encodings undone, with %2F and the backslash as a slash or as
// data; path parameters (after a semicolon) kept or dropped; slashes merged,
// dot segments resolved and a last slash dropped, or not. It returns nil for a
// path that nobody rewrites.
func readings(path string) []string {
	if !IsAmbiguous(path) && !strings.Contains(path, "%") && !strings.HasSuffix(path, "/") {
		return nil
	}
	var all []string
	for _, decoded := range [...]string{decodePath(path, slashIsData), decodePath(path, slashIsSlash)} {
		bare := dropParameters(decoded)
		all = append(all, decoded, resolve(decoded), bare, resolve(bare))
	}
	return all
}

// encodedSlash says what %2F and the backslash stand for.
type encodedSlash uint8

const (
	slashIsData encodedSlash = iota
	slashIsSlash
)

func decodePath(path string, slash encodedSlash) string {
	var b strings.Builder
	b.Grow(len(path))
	for i := 0; i < len(path); i++ {
		c, size := path[i], 1
		if d, ok := percentByte(path, i); ok {
			c, size = d, 3
		}
		switch isSlash := c == '\\' || c == '/' && size == 3; {
		case isSlash && slash == slashIsSlash:
			b.WriteByte('/')
		case isSlash:
			b.WriteString(path[i : i+size])
		default:
			b.WriteByte(c)
		}
		i += size - 1
	}
	return b.String()
}

func dropParameters(path string) string {
	if !strings.Contains(path, ";") {
		return path
	}
	segments := strings.Split(path, "/")
	for i, s := range segments {
		segments[i], _, _ = strings.Cut(s, ";")
	}
	return strings.Join(segments, "/")
}

// resolve merges slashes, removes dot segments (RFC 3986 section 5.2.4) and
// drops a last slash.
func resolve(path string) string {
	var kept []string
	for s := range strings.SplitSeq(path, "/") {
		switch s {
		case "", ".":
		case "..":
			kept = kept[:max(len(kept)-1, 0)]
		default:
			kept = append(kept, s)
		}
	}
	return "/" + strings.Join(kept, "/")
}

// percentByte returns the byte that the percent-encoding at i stands for.
func percentByte(s string, i int) (byte, bool) {
	if s[i] != '%' || i+2 >= len(s) {
		return 0, false
	}
	high, ok1 := hexDigit(s[i+1])
	low, ok2 := hexDigit(s[i+2])
	return high<<4 | low, ok1 && ok2
}

func hexDigit(c byte) (byte, bool) {
	switch {
	case '0' <= c && c <= '9':
		return c - '0', true
	case 'a' <= c && c <= 'f':
		return c - 'a' + 10, true
	case 'A' <= c && c <= 'F':
		return c - 'A' + 10, true
	}
	return 0, false
}

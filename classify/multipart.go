package classify

import (
	"bytes"
	"strings"
)

// boundaryBytesMax is the longest boundary that RFC 2046 section 5.1.1 allows.
const boundaryBytesMax = 70

// appendMultipart appends the preamble, each part's header block and content,
// and the epilogue, without the boundary between them. It returns false, with
// buf as it was, for a body that two readers might take apart differently:
// every line that begins with the boundary must be a delimiter as RFC 2046
// section 5.1.1 writes it, the last of them a closing one.
func appendMultipart(buf, body []byte, boundary string) ([]byte, bool) {
	if !isBoundary(boundary) {
		return buf, false
	}
	whole := len(buf)
	dash := []byte("--" + boundary)
	text, rest, end := cutDelimiter(body, dash)
	buf = appendPart(buf, text)
	for end == delimiter {
		text, rest, end = cutDelimiter(rest, dash)
		if end == malformed {
			break
		}
		header, content, ok := cutHeader(text)
		if !ok {
			return buf[:whole], false
		}
		buf = appendPart(append(buf, 'p'), header)
		buf = appendPart(buf, content)
	}
	if end == malformed || containsLine(rest, dash) {
		return buf[:whole], false
	}
	return appendPart(append(buf, 'e'), rest), true
}

// isBoundary reports whether s is a boundary of RFC 2046 section 5.1.1. What
// readers make of any other is not certain.
func isBoundary(s string) bool {
	for i := range len(s) {
		if c := s[i]; !isAlphanumeric(c) && strings.IndexByte("'()+_,-./:=? ", c) < 0 {
			return false
		}
	}
	return s != "" && len(s) <= boundaryBytesMax && s[len(s)-1] != ' '
}

// delimiterKind says what ended a stretch of a multipart body.
type delimiterKind uint8

const (
	malformed delimiterKind = iota
	delimiter
	closing
)

// cutDelimiter cuts body at the first line that begins with dash. The line
// break before a delimiter belongs to it. A delimiter right behind another has
// none of its own; the part between them lacks even its empty line.
func cutDelimiter(body, dash []byte) (text, rest []byte, kind delimiterKind) {
	if bytes.HasPrefix(body, dash) {
		rest, kind = delimiterEnd(body[len(dash):])
		return nil, rest, kind
	}
	for at := 0; ; {
		i := bytes.Index(body[at:], dash)
		if i < 0 {
			return nil, nil, malformed
		}
		i += at
		if body[i-1] != '\n' && body[i-1] != '\r' {
			at = i + 1
			continue
		}
		if i < 2 || body[i-2] != '\r' || body[i-1] != '\n' {
			return nil, nil, malformed
		}
		rest, kind = delimiterEnd(body[i+len(dash):])
		return body[:i-2], rest, kind
	}
}

// delimiterEnd reads what may follow a boundary on its line.
func delimiterEnd(s []byte) (rest []byte, kind delimiterKind) {
	if after, ok := bytes.CutPrefix(s, []byte("--")); ok {
		if len(after) > 0 && !bytes.HasPrefix(after, []byte("\r\n")) {
			return nil, malformed
		}
		return after, closing
	}
	s = bytes.TrimLeft(s, " \t")
	if after, ok := bytes.CutPrefix(s, []byte("\r\n")); ok {
		return after, delimiter
	}
	return nil, malformed
}

// cutHeader parts a body part at its empty line.
func cutHeader(part []byte) (header, content []byte, ok bool) {
	if after, ok := bytes.CutPrefix(part, []byte("\r\n")); ok {
		return nil, after, true
	}
	return bytes.Cut(part, []byte("\r\n\r\n"))
}

func containsLine(s, dash []byte) bool {
	return bytes.Contains(s, append([]byte("\n"), dash...)) || bytes.Contains(s, append([]byte("\r"), dash...))
}

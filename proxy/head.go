package proxy

import (
	"errors"
	"strconv"
	"strings"

	"counterfoil/classify"
)

// Errors of a request's head. Their texts go to the client.
var (
	errLineEnd    = errors.New("a header line does not end in CRLF")
	errFolded     = errors.New("a header value is folded over several lines")
	errFieldName  = errors.New("a header field's name is not a token")
	errFieldValue = errors.New("a header value holds a control character")
	errFraming    = errors.New("the request says in more than one way where its body ends")
)

// parseHead reads a block of header lines strictly (RFC 9112 section 5): what
// two readers could take for different things is an error. Order, spelling and
// repetition stay.
func parseHead(block string) (classify.Header, error) {
	h := make(classify.Header, 0, strings.Count(block, "\n"))
	for len(block) > 0 {
		line, rest, found := strings.Cut(block, "\r\n")
		block = rest
		switch {
		case !found || strings.IndexByte(line, '\n') >= 0:
			return nil, errLineEnd
		case line == "":
			if block != "" {
				return nil, errLineEnd
			}
			return h, nil
		case line[0] == ' ' || line[0] == '\t':
			return nil, errFolded
		}
		name, value, found := strings.Cut(line, ":")
		if !found || !isToken(name) {
			return nil, errFieldName
		}
		value = strings.Trim(value, " \t")
		if !isFieldValue(value) {
			return nil, errFieldValue
		}
		h = append(h, classify.Field{Name: name, Value: value})
	}
	return h, nil
}

// framing says how long the body of a request is, -1 where it is chunked. It
// refuses a head that leaves room for a hidden second request (RFC 9112 sections
// 6.1 and 6.3).
func framing(h classify.Header) (bodyBytes int64, err error) {
	lengths, codings := 0, 0
	for i := range h {
		switch f := &h[i]; {
		case strings.EqualFold(f.Name, "Content-Length"):
			lengths++
			if f.Value == "" || strings.Trim(f.Value, "0123456789") != "" {
				return 0, errFraming
			}
			if bodyBytes, err = strconv.ParseInt(f.Value, 10, 64); err != nil {
				return 0, errFraming
			}
		case strings.EqualFold(f.Name, "Transfer-Encoding"):
			codings, bodyBytes = codings+1, -1
			if !strings.EqualFold(f.Value, "chunked") {
				return 0, errFraming
			}
		}
	}
	if lengths+codings > 1 {
		return 0, errFraming
	}
	return bodyBytes, nil
}

func isFieldValue(s string) bool {
	for i := range len(s) {
		if c := s[i]; c < ' ' && c != '\t' || c == 0x7f {
			return false
		}
	}
	return true
}

func isToken(s string) bool {
	for i := range len(s) {
		if !tokenChars[s[i]] {
			return false
		}
	}
	return s != ""
}

// tokenChars are the characters of a token (RFC 9110 section 5.6.2).
var tokenChars = func() (t [256]bool) {
	for _, c := range "!#$%&'*+-.^_`|~0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ" {
		t[c] = true
	}
	return t
}()

// hasOption reports whether a list field (RFC 9110 section 5.6.1) of that name
// has the element, on any of its lines.
func hasOption(h classify.Header, name, option string) bool {
	for i := range h {
		if !strings.EqualFold(h[i].Name, name) {
			continue
		}
		for element := range strings.SplitSeq(h[i].Value, ",") {
			if strings.EqualFold(strings.Trim(element, " \t"), option) {
				return true
			}
		}
	}
	return false
}

// wantsUpgrade reports whether a request asks to speak something else than HTTP
// from here on. An offer of h2c is passed over, as RFC 9110 section 7.8 allows:
// some HTTP clients make it with every request.
func wantsUpgrade(h classify.Header) bool {
	if !hasOption(h, "Connection", "upgrade") {
		return false
	}
	for i := range h {
		if !strings.EqualFold(h[i].Name, "Upgrade") {
			continue
		}
		for protocol := range strings.SplitSeq(h[i].Value, ",") {
			if p := strings.Trim(protocol, " \t"); p != "" && !strings.EqualFold(p, "h2c") {
				return true
			}
		}
	}
	return false
}

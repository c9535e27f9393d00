package upstream

import (
	"errors"
	"strconv"
	"strings"
	"time"

	"counterfoil/classify"
)

// The texts below reach people and journals, so none repeats what was sent.
var (
	errNotHTTP     = errors.New("the answer is not HTTP/1.0 or HTTP/1.1")
	errStatusLine  = errors.New("the answer's status line is malformed")
	errFieldName   = errors.New("the answer's head holds a malformed field name")
	errFieldValue  = errors.New("the answer's head holds a control character in a value")
	errFold        = errors.New("the answer's head begins with a folded line")
	errLength      = errors.New("the answer's Content-Length is malformed")
	errTwoLengths  = errors.New("the answer declares two different lengths")
	errTwoFramings = errors.New("the answer has both Content-Length and Transfer-Encoding")
	errCoding      = errors.New("the answer has a transfer coding other than chunked")
	errSwitched    = errors.New("the upstream switched protocols unasked (101)")
	errTooMany1xx  = errors.New("the upstream sent too many interim (1xx) answers")
)

// A head is the parsed head of an answer.
type head struct {
	status  int
	http10  bool
	fields  classify.Header // end-to-end
	length  int64           // Content-Length, -1 if none
	chunked bool
	close   bool // the connection must not be used again
	// keep is how long the upstream keeps an idle connection, 0 if unsaid.
	keep time.Duration
}

// parseHead parses a head with its empty line, as RFC 9112 sections 4 and 5
// have it, and takes what is hop-by-hop out of the fields. A lone LF ends a
// line too, and folded values are joined, since both are harmless to who
// only reads.
func parseHead(block string) (head, error) {
	line, rest := cutLine(block)
	h, err := parseStatusLine(line)
	if err != nil {
		return head{}, err
	}
	fields, err := parseFields(rest)
	if err != nil {
		return head{}, err
	}
	if err := h.sort(fields); err != nil {
		return head{}, err
	}
	return h, nil
}

func cutLine(s string) (line, rest string) {
	line, rest, _ = strings.Cut(s, "\n")
	return strings.TrimSuffix(line, "\r"), rest
}

func parseStatusLine(line string) (head, error) {
	h := head{length: -1}
	version, line, _ := strings.Cut(line, " ")
	switch version {
	case "HTTP/1.1":
	case "HTTP/1.0":
		h.http10 = true
	default:
		return h, errNotHTTP
	}
	code, reason, _ := strings.Cut(line, " ")
	n, err := strconv.Atoi(code)
	if err != nil || len(code) != 3 || code[0] < '1' || code[0] > '9' || !validValue(reason) {
		return h, errStatusLine
	}
	h.status = n
	return h, nil
}

func parseFields(block string) (classify.Header, error) {
	fields := make(classify.Header, 0, strings.Count(block, "\n"))
	for block != "" {
		var line string
		line, block = cutLine(block)
		if line == "" {
			break
		}
		if line[0] == ' ' || line[0] == '\t' {
			if err := unfold(fields, line); err != nil {
				return nil, err
			}
			continue
		}
		f, err := parseField(line)
		if err != nil {
			return nil, err
		}
		fields = append(fields, f)
	}
	return fields, nil
}

func parseField(line string) (classify.Field, error) {
	name, value, ok := strings.Cut(line, ":")
	name = strings.TrimRight(name, " \t") // RFC 9112 section 5.1
	if !ok || !validToken(name) {
		return classify.Field{}, errFieldName
	}
	value = strings.Trim(value, " \t")
	if !validValue(value) {
		return classify.Field{}, errFieldValue
	}
	return classify.Field{Name: name, Value: value}, nil
}

// unfold joins an obsolete continuation line to the last field (RFC 9112
// section 5.2).
func unfold(fields classify.Header, line string) error {
	if len(fields) == 0 {
		return errFold
	}
	line = strings.Trim(line, " \t")
	if !validValue(line) {
		return errFieldValue
	}
	last := &fields[len(fields)-1]
	last.Value = strings.TrimRight(last.Value+" "+line, " ")
	return nil
}

// sort reads the fields that are about the connection and leaves the others
// in h.fields, in their order.
func (h *head) sort(fields classify.Header) error {
	var named []string // by Connection
	kept, keepAlive := fields[:0], false
	for _, f := range fields {
		switch hopOf(f.Name) { //nolint:exhaustive // dropped says what becomes of it
		case endToEnd:
			kept = append(kept, f)
		case connection:
			for token := range strings.SplitSeq(f.Value, ",") {
				switch token = strings.Trim(token, " \t"); {
				case strings.EqualFold(token, "close"):
					h.close = true
				case strings.EqualFold(token, "keep-alive"):
					keepAlive = true
				case token != "":
					named = append(named, token)
				}
			}
		case contentLength:
			if err := h.setLength(f.Value); err != nil {
				return err
			}
		case transferEncoding:
			if h.chunked || h.http10 || !strings.EqualFold(f.Value, "chunked") {
				return errCoding
			}
			h.chunked = true
		case keepAliveHop:
			h.keep = keepTime(f.Value)
		}
	}
	if h.chunked && h.length >= 0 {
		return errTwoFramings
	}
	h.close = h.close || h.http10 && !keepAlive
	h.fields = without(kept, named)
	return nil
}

// setLength takes one Content-Length line, which may repeat a length but not
// contradict it (RFC 9112 section 6.3).
func (h *head) setLength(value string) error {
	for part := range strings.SplitSeq(value, ",") {
		part = strings.Trim(part, " \t")
		if part == "" || len(part) > 18 || strings.Trim(part, "0123456789") != "" {
			return errLength
		}
		n, err := strconv.ParseInt(part, 10, 64)
		if err != nil {
			return errLength
		}
		if h.length >= 0 && h.length != n {
			return errTwoLengths
		}
		h.length = n
	}
	return nil
}

// keepTime reads "timeout=N" of a Keep-Alive field, less a second for the
// way, at least one nanosecond.
func keepTime(value string) time.Duration {
	for p := range strings.SplitSeq(value, ",") {
		name, n, _ := strings.Cut(strings.Trim(p, " \t"), "=")
		if seconds, err := strconv.ParseUint(n, 10, 16); err == nil && strings.EqualFold(name, "timeout") {
			return max(time.Duration(seconds)*time.Second-time.Second, 1)
		}
	}
	return 0
}

func without(fields classify.Header, named []string) classify.Header {
	for _, name := range named {
		kept := fields[:0]
		for _, f := range fields {
			if !strings.EqualFold(f.Name, name) {
				kept = append(kept, f)
			}
		}
		fields = kept
	}
	return fields
}

// A hop says what a field is to one connection.
type hop uint8

const (
	endToEnd hop = iota
	connection
	contentLength
	transferEncoding
	keepAliveHop
	dropped // hop-by-hop, without a meaning here
)

// hopOf looks at the length first, so that most names cost one comparison.
func hopOf(name string) hop {
	switch len(name) {
	case 2:
		return hopIf(name, "TE", dropped)
	case 7:
		return max(hopIf(name, "Trailer", dropped), hopIf(name, "Upgrade", dropped))
	case 10:
		return max(hopIf(name, "Connection", connection), hopIf(name, "Keep-Alive", keepAliveHop))
	case 14:
		return hopIf(name, "Content-Length", contentLength)
	case 16:
		return hopIf(name, "Proxy-Connection", dropped)
	case 17:
		return hopIf(name, "Transfer-Encoding", transferEncoding)
	case 18:
		return hopIf(name, "Proxy-Authenticate", dropped)
	}
	return endToEnd
}

func hopIf(name, wanted string, h hop) hop {
	if strings.EqualFold(name, wanted) {
		return h
	}
	return endToEnd
}

// validToken is the token of RFC 9110 section 5.6.2.
func validToken(s string) bool {
	for i := range len(s) {
		if !tokenBytes[s[i]] {
			return false
		}
	}
	return s != ""
}

// validValue is the field-value of RFC 9110 section 5.5: no control
// characters but the tab.
func validValue(s string) bool {
	for i := range len(s) {
		if c := s[i]; c < ' ' && c != '\t' || c == 0x7f {
			return false
		}
	}
	return true
}

var tokenBytes = func() (t [256]bool) {
	const tokens = "!#$%&'*+-.^_`|~0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ" //nolint:gosec // an alphabet, no token
	for i := range len(tokens) {
		t[tokens[i]] = true
	}
	return t
}()

package classify

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

const (
	// jsonDepthMax bounds recursion.
	jsonDepthMax = 512
	// exponentDigitsMax keeps exponents within int64 whatever is added to them.
	exponentDigitsMax = 18
	// objectBytesMax is the longest canonical object that is kept as it is. A
	// longer one is replaced by its hash, or sorting would copy it once for
	// each object around it.
	objectBytesMax = 4096
)

// A jsonScanner turns strict JSON (RFC 8259) into bytes that are equal exactly
// where the values are. It is not itself JSON: strings carry their length,
// numbers are digits and a power of ten, members are sorted.
type jsonScanner struct {
	src     []byte
	at      int
	out     []byte
	members []jsonMember // of all open objects
	scratch []byte
}

// A jsonMember is where a member stands in out.
type jsonMember struct {
	start, nameEnd, end int
}

// The first byte of each canonical value. Any two canonical texts differ before
// either ends.
const (
	tagString  = '"'
	tagNumber  = '0'
	tagSpelt   = '?' // a number kept as spelt
	tagObject  = '{'
	tagHash    = '#' // the hash of a long object
	tagArray   = '['
	tagEnd     = ']'
	tagNameLen = 1 + 4 // a string's tag and length
)

// AppendCanonicalJSON appends bytes that are equal for two JSON texts (RFC 8259)
// exactly where their values are: the order of members and white space do not
// count, numbers compare by their exact decimal value, and duplicate names are
// kept in order. It returns false, with buf as it was, if src is not one JSON
// text, or nests deeper than 512.
func AppendCanonicalJSON(buf, src []byte) ([]byte, bool) { return appendJSON(buf, src, nil) }

// appendJSON appends the canonical form of src. It returns false, with buf as
// it was, if src is not one strict JSON text.
func appendJSON(buf, src []byte, ignore *fieldNode) ([]byte, bool) {
	s := jsonScanner{src: src, out: buf, members: make([]jsonMember, 0, 32)}
	s.space()
	if !s.value(0, ignore) {
		return buf, false
	}
	s.space()
	if s.at != len(src) {
		return buf, false
	}
	return s.out, true
}

func (s *jsonScanner) space() {
	for s.at < len(s.src) {
		switch s.src[s.at] {
		case ' ', '\t', '\n', '\r':
			s.at++
		default:
			return
		}
	}
}

// next returns the byte at the scanner, 0 at the end.
func (s *jsonScanner) next() byte {
	if s.at < len(s.src) {
		return s.src[s.at]
	}
	return 0
}

// take passes over c, and the space after it, if it stands here.
func (s *jsonScanner) take(c byte) bool {
	if s.next() != c {
		return false
	}
	s.at++
	s.space()
	return true
}

func (s *jsonScanner) value(depth int, ignore *fieldNode) bool {
	switch s.next() {
	case '{':
		return depth < jsonDepthMax && s.object(depth, ignore)
	case '[':
		return depth < jsonDepthMax && s.array(depth, ignore)
	case '"':
		return s.string()
	case 't':
		return s.word("true")
	case 'f':
		return s.word("false")
	case 'n':
		return s.word("null")
	}
	return s.number()
}

func (s *jsonScanner) word(w string) bool {
	if !bytes.HasPrefix(s.src[s.at:], []byte(w)) {
		return false
	}
	s.at += len(w)
	s.out = append(s.out, w[0])
	return true
}

func (s *jsonScanner) array(depth int, ignore *fieldNode) bool {
	s.take('[')
	s.out = append(s.out, tagArray)
	for i := 0; !s.take1(']'); i++ {
		if i > 0 && !s.take(',') {
			return false
		}
		start, at := len(s.out), ignore.element(i)
		if !s.value(depth+1, at) {
			return false
		}
		if at.isIgnored() {
			s.out = s.out[:start]
		}
		s.space()
	}
	s.out = append(s.out, tagEnd)
	return true
}

// take1 passes over c alone.
func (s *jsonScanner) take1(c byte) bool {
	if s.next() != c {
		return false
	}
	s.at++
	return true
}

func (s *jsonScanner) object(depth int, ignore *fieldNode) bool {
	s.take('{')
	start, first := len(s.out), len(s.members)
	s.out = append(s.out, tagObject)
	for i := 0; !s.take1('}'); i++ {
		if i > 0 && !s.take(',') {
			return false
		}
		if !s.member(depth, ignore) {
			return false
		}
		s.space()
	}
	s.sort(s.members[first:])
	s.members = s.members[:first]
	s.out = append(s.out, tagEnd)
	s.shorten(start)
	return true
}

func (s *jsonScanner) member(depth int, ignore *fieldNode) bool {
	m := jsonMember{start: len(s.out)}
	if s.next() != '"' || !s.string() {
		return false
	}
	m.nameEnd = len(s.out)
	s.space()
	if !s.take(':') {
		return false
	}
	at := ignore.member(s.out[m.start+tagNameLen : m.nameEnd])
	if !s.value(depth+1, at) {
		return false
	}
	if at.isIgnored() {
		s.out = s.out[:m.start]
		return true
	}
	m.end = len(s.out)
	s.members = append(s.members, m)
	return true
}

// sort brings the members of one object, the last thing in out, into the order
// of their names. Equal names keep the order in which they were sent.
func (s *jsonScanner) sort(members []jsonMember) {
	byName := func(a, b jsonMember) int {
		return cmp.Or(bytes.Compare(s.name(a), s.name(b)), cmp.Compare(a.start, b.start))
	}
	if slices.IsSortedFunc(members, byName) {
		return
	}
	body := members[0].start
	slices.SortFunc(members, byName)
	s.scratch = slices.Grow(s.scratch[:0], len(s.out)-body)
	for _, m := range members {
		s.scratch = append(s.scratch, s.out[m.start:m.end]...)
	}
	copy(s.out[body:], s.scratch)
}

func (s *jsonScanner) name(m jsonMember) []byte { return s.out[m.start+tagNameLen : m.nameEnd] }

func (s *jsonScanner) shorten(start int) {
	if len(s.out)-start <= objectBytesMax {
		return
	}
	sum := sha256.Sum256(s.out[start:])
	s.out = append(append(s.out[:start], tagHash), sum[:]...)
}

// string appends tag, length and the text in UTF-8. A surrogate escape that has
// no partner becomes the three bytes that UTF-8 would have for it: no valid
// text holds them, so it equals nothing else.
func (s *jsonScanner) string() bool {
	start := len(s.out)
	s.out = append(s.out, tagString, 0, 0, 0, 0)
	run := s.at + 1
	for i := run; i < len(s.src); {
		switch c := s.src[i]; {
		case c == '"':
			s.out = append(s.out, s.src[run:i]...)
			s.at = i + 1
			binary.BigEndian.PutUint32(s.out[start+1:], uint32(len(s.out)-start-tagNameLen))
			return true
		case c == '\\':
			s.out = append(s.out, s.src[run:i]...)
			s.at = i
			if !s.escape() {
				return false
			}
			i, run = s.at, s.at
		case c < ' ':
			return false
		case c < utf8.RuneSelf:
			i++
		default:
			_, size := utf8.DecodeRune(s.src[i:])
			if size == 1 {
				return false
			}
			i += size
		}
	}
	return false
}

// escape appends what the escape sequence here stands for.
func (s *jsonScanner) escape() bool {
	if s.at+1 >= len(s.src) {
		return false
	}
	c := s.src[s.at+1]
	if c == 'u' {
		return s.unicode()
	}
	i := strings.IndexByte(`"\/bfnrt`, c)
	if i < 0 {
		return false
	}
	s.out = append(s.out, "\"\\/\b\f\n\r\t"[i])
	s.at += 2
	return true
}

func (s *jsonScanner) unicode() bool {
	r, ok := s.hex4(s.at)
	if !ok {
		return false
	}
	s.at += 6
	if r < 0xd800 || r > 0xdfff {
		s.out = utf8.AppendRune(s.out, r)
		return true
	}
	if low, ok := s.hex4(s.at); ok && r <= 0xdbff && low >= 0xdc00 && low <= 0xdfff {
		s.at += 6
		s.out = utf8.AppendRune(s.out, (r-0xd800)<<10|(low-0xdc00)+0x10000)
		return true
	}
	s.out = append(s.out, 0xe0|byte(r>>12), 0x80|byte(r>>6&0x3f), 0x80|byte(r&0x3f))
	return true
}

// hex4 reads the \uXXXX at i.
func (s *jsonScanner) hex4(i int) (rune, bool) {
	if i+6 > len(s.src) || s.src[i] != '\\' || s.src[i+1] != 'u' {
		return 0, false
	}
	var r rune
	for _, c := range s.src[i+2 : i+6] {
		d, ok := hexDigit(c)
		if !ok {
			return 0, false
		}
		r = r<<4 | rune(d)
	}
	return r, true
}

// number appends a number as sign, digits without zeros at either end, and the
// power of ten that the digits are to be multiplied by.
func (s *jsonScanner) number() bool {
	n, ok := s.numberParts()
	if !ok {
		return false
	}
	if n.isZero() {
		s.out = append(s.out, tagNumber, '0', tagEnd)
		return true
	}
	exponent, ok := parseExponent(n.exponent)
	if !ok {
		s.out = appendPart(append(s.out, tagSpelt), n.text)
		return true
	}
	s.out = append(s.out, tagNumber)
	if n.text[0] == '-' {
		s.out = append(s.out, '-')
	}
	start := len(s.out)
	s.out = append(append(s.out, n.whole...), n.fraction...)
	digits := bytes.TrimLeft(s.out[start:], "0")
	trimmed := bytes.TrimRight(digits, "0")
	exponent += int64(len(digits)-len(trimmed)) - int64(len(n.fraction))
	s.out = s.out[:start+copy(s.out[start:], trimmed)]
	s.out = strconv.AppendInt(append(s.out, 'e'), exponent, 10)
	s.out = append(s.out, tagEnd)
	return true
}

// A jsonNumber is a number's text, its digits before and after the point, and
// its exponent with sign.
type jsonNumber struct {
	text, whole, fraction, exponent []byte
}

func (n *jsonNumber) isZero() bool {
	return len(bytes.TrimLeft(n.whole, "0")) == 0 && len(bytes.TrimLeft(n.fraction, "0")) == 0
}

func (s *jsonScanner) numberParts() (n jsonNumber, ok bool) {
	start := s.at
	s.take1('-')
	n.whole = s.digits()
	if len(n.whole) == 0 || len(n.whole) > 1 && n.whole[0] == '0' {
		return n, false
	}
	if s.take1('.') {
		if n.fraction = s.digits(); len(n.fraction) == 0 {
			return n, false
		}
	}
	if s.take1('e') || s.take1('E') {
		at := s.at
		if !s.take1('+') {
			s.take1('-')
		}
		if len(s.digits()) == 0 {
			return n, false
		}
		n.exponent = s.src[at:s.at]
	}
	n.text = s.src[start:s.at]
	return n, true
}

func (s *jsonScanner) digits() []byte {
	start := s.at
	for s.at < len(s.src) && '0' <= s.src[s.at] && s.src[s.at] <= '9' {
		s.at++
	}
	return s.src[start:s.at]
}

func parseExponent(text []byte) (int64, bool) {
	if len(text) == 0 {
		return 0, true
	}
	digits := bytes.TrimLeft(text, "+-0")
	if len(digits) > exponentDigitsMax {
		return 0, false
	}
	var e int64
	for _, c := range digits {
		e = e*10 + int64(c-'0')
	}
	if text[0] == '-' {
		e = -e
	}
	return e, true
}

package providers

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"mime"
	"net/url"
	"slices"
	"strings"
	"unicode/utf8"

	"counterfoil/classify"

	"go.yaml.in/yaml/v3"
)

// Where says in which part of a request the provider key goes.
type Where uint8

const (
	// InHeader: a header field.
	InHeader Where = iota + 1
	// InQuery: a parameter of the target's query.
	InQuery
	// InForm: a field of an application/x-www-form-urlencoded body.
	InForm
	// InJSON: a member of an object in a JSON body.
	InJSON
)

var whereNames = [...]string{InHeader: "header", InQuery: "query", InForm: "form", InJSON: "json"}

// String returns the name in the adapter language.
func (w Where) String() string {
	if w == 0 || int(w) >= len(whereNames) {
		return "invalid"
	}
	return whereNames[w]
}

// A KeyPlacement says where a provider looks for the key. The zero value places
// none.
type KeyPlacement struct {
	Where Where
	// Name is the header, parameter or form field; for InJSON it is a JSON
	// pointer (RFC 6901) through objects.
	Name string
}

// DefaultKey is where the key goes when nothing else is known.
func DefaultKey() KeyPlacement {
	return KeyPlacement{Where: InHeader, Name: "Idempotency-Key"}
}

// Place returns a copy of r that bears key, in place of any that stood there.
// Every other byte stays as it was, and r is not changed. It fails when the key
// cannot go there: nothing may be sent then. Errors name the place and never
// the content.
func (k KeyPlacement) Place(r *classify.Request, key string) (classify.Request, error) {
	placed := *r
	var err error
	switch k.Where {
	case 0:
	case InHeader:
		placed.Header, err = headerWith(r.Header, k.Name, key)
	case InQuery:
		placed.Target = targetWith(r.Target, k.Name, key)
	case InForm:
		placed.Body, err = formWith(r, k.Name, key)
	case InJSON:
		placed.Body, err = documentWith(r, k.Name, key)
	}
	if err != nil {
		return classify.Request{}, fmt.Errorf("placing the key in %s %s: %w", k.Where, k.Name, err)
	}
	return placed, nil
}

func headerWith(h classify.Header, name, key string) (classify.Header, error) {
	for i := range len(key) {
		if key[i] < ' ' && key[i] != '\t' || key[i] == 0x7f {
			return nil, errors.New("the key holds a control character, which no header may")
		}
	}
	// Set may write into the array it is given, and that one is the caller's.
	return slices.Clone(h).Set(name, key), nil
}

func targetWith(target, name, key string) string {
	path, query, _ := strings.Cut(target, "?")
	return path + "?" + pairsWith(query, name, key)
}

// pairsWith sets one name in &-separated pairs: the first that bears it is
// replaced and the others go, or it comes last.
func pairsWith(pairs, name, value string) string {
	pair := escape(name) + "=" + escape(value)
	if pairs == "" {
		return pair
	}
	var kept []string
	placed := false
	for p := range strings.SplitSeq(pairs, "&") {
		switch {
		case pairName(p) != name:
			kept = append(kept, p)
		case !placed:
			kept, placed = append(kept, pair), true
		}
	}
	if !placed {
		kept = append(kept, pair)
	}
	return strings.Join(kept, "&")
}

func pairName(pair string) string {
	name, _, _ := strings.Cut(pair, "=")
	if plain, err := url.QueryUnescape(name); err == nil {
		return plain
	}
	return name
}

func formWith(r *classify.Request, name, key string) ([]byte, error) {
	if t := mediaType(r.Header); t != "application/x-www-form-urlencoded" {
		return nil, errors.New("the body is not application/x-www-form-urlencoded")
	}
	if err := changeable(r.Header); err != nil {
		return nil, err
	}
	return []byte(pairsWith(string(r.Body), name, key)), nil
}

func documentWith(r *classify.Request, pointer, key string) ([]byte, error) {
	if err := changeable(r.Header); err != nil {
		return nil, err
	}
	if !json.Valid(r.Body) {
		return nil, errors.New("the body is not JSON")
	}
	if !utf8.ValidString(key) {
		return nil, errors.New("the key is not UTF-8, which JSON must be")
	}
	value, err := json.Marshal(key)
	if err != nil {
		return nil, err
	}
	return setMember(r.Body, classify.SplitPointer(pointer), value)
}

// changeable says whether a body may be altered: not when it is compressed, and
// not when a header vouches for its bytes, since the receiver would refuse it.
func changeable(h classify.Header) error {
	if isCoded(h) {
		return errors.New("the body is compressed")
	}
	for _, name := range []string{"Content-MD5", "Digest", "Content-Digest", "Repr-Digest", "Signature"} {
		if h.Has(name) {
			return fmt.Errorf("the request's %s header covers the body, which may not change then", name)
		}
	}
	return nil
}

func isCoded(h classify.Header) bool {
	c := h.Value("Content-Encoding")
	return c != "" && !strings.EqualFold(c, "identity")
}

func mediaType(h classify.Header) string {
	t, _, err := mime.ParseMediaType(h.Value("Content-Type"))
	if err != nil {
		return ""
	}
	return t
}

func (l *loader) key(p place, class classify.Class) *Stamp {
	if !p.given() {
		if class == classify.Read {
			return nil
		}
		return &Stamp{Placement: Placement{Place: "header", Name: DefaultKey().Name}}
	}
	if isNone(p) {
		return nil
	}
	if class == classify.Read {
		l.complain(p, "a read bears no key; leave this out")
	}
	return l.stamp(p, "key")
}

func isNone(p place) bool {
	node := p.value()
	return node.Kind == yaml.ScalarNode && node.Value == "none"
}

// notForKeys are headers that mean something else on every request.
var notForKeys = []string{
	"authorization", "proxy-authorization", "cookie", "host", "connection", "content-length", "content-type",
	"content-encoding", "transfer-encoding", "te", "trailer", "upgrade", "expect", "range", "accept", "accept-encoding",
}

func (l *loader) keyName(p place, k KeyPlacement) {
	lower := strings.ToLower(k.Name)
	switch {
	case k.Where == InHeader && !isToken(k.Name):
		l.complain(p, "%q is no header name", k.Name)
	case k.Where == InHeader && slices.Contains(notForKeys, lower):
		l.complain(p, "the header %s has a meaning of its own; use the one in which the provider takes a key", k.Name)
	case k.Where == InHeader && strings.HasPrefix(lower, "counterfoil-"):
		l.complain(p, "headers that begin with Counterfoil- never reach a provider; use the one in which it takes a key")
	case k.Where == InJSON:
		if err := classify.CheckPointer(k.Name); err != nil {
			l.complain(p, "%v", err)
		}
	}
}

// isToken reports whether s is a token (RFC 9110 section 5.6.2).
func isToken(s string) bool {
	for i := range len(s) {
		if !isAlphanumeric(s[i]) && strings.IndexByte("!#$%&'*+-.^_`|~", s[i]) < 0 {
			return false
		}
	}
	return s != ""
}

func isAlphanumeric(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9'
}

// setMember returns doc, which is valid JSON, with value at the pointer. Every
// object on the way must be there; the last member need not.
func setMember(doc []byte, pointer []string, value []byte) ([]byte, error) {
	last := len(pointer) - 1
	parent, err := classify.Locate(doc, pointer[:last])
	if err != nil {
		return nil, err
	}
	if !parent.Found {
		return nil, errors.New("the object that would hold it is not in the body")
	}
	member, err := classify.Locate(doc[parent.Start:parent.End], pointer[last:])
	if err != nil {
		return nil, err
	}
	if member.Found {
		return slices.Concat(doc[:parent.Start+member.Start], value, doc[parent.Start+member.End:]), nil
	}
	name, err := json.Marshal(pointer[last])
	if err != nil {
		return nil, err
	}
	after := parent.Start + 1
	var comma []byte
	if !bytes.HasPrefix(bytes.TrimLeft(doc[after:], " \t\r\n"), []byte("}")) {
		comma = []byte(",")
	}
	return slices.Concat(doc[:after], name, []byte(":"), value, comma, doc[after:]), nil
}

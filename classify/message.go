package classify

import (
	"cmp"
	"io"
	"strings"
)

// A Field is one header line: its name as the peer wrote it, and its value
// without surrounding white space.
type Field struct {
	Name  string `cbor:"1,keyasint"`
	Value string `cbor:"2,keyasint"`
}

// A Header is a list of header lines in the order they came. Repeated names
// stay repeated: nothing is merged, dropped or renamed (RFC 9110 section 5.3).
type Header []Field

// Value returns the first value of the named field, "" if there is none.
// Names compare without regard to case.
func (h Header) Value(name string) string {
	for i := range h {
		if strings.EqualFold(h[i].Name, name) {
			return h[i].Value
		}
	}
	return ""
}

// Values returns every value of the named field in order.
func (h Header) Values(name string) []string {
	var vs []string
	for i := range h {
		if strings.EqualFold(h[i].Name, name) {
			vs = append(vs, h[i].Value)
		}
	}
	return vs
}

// Has reports whether the named field is present, even with an empty value.
func (h Header) Has(name string) bool {
	for i := range h {
		if strings.EqualFold(h[i].Name, name) {
			return true
		}
	}
	return false
}

// Set returns h with every field of that name replaced by one, at the place of
// the first, or at the end. The backing array of h may be reused.
func (h Header) Set(name, value string) Header {
	kept, placed := h[:0], false
	for _, f := range h {
		if !strings.EqualFold(f.Name, name) {
			kept = append(kept, f)
			continue
		}
		if !placed {
			kept, placed = append(kept, Field{name, value}), true
		}
	}
	if !placed {
		kept = append(kept, Field{name, value})
	}
	return kept
}

// Without returns a copy of h without the fields that drop accepts.
func (h Header) Without(drop func(name string) bool) Header {
	kept := make(Header, 0, len(h))
	for _, f := range h {
		if !drop(f.Name) {
			kept = append(kept, f)
		}
	}
	return kept
}

// A Request is what a client wants to reach an upstream, or what one attempt
// sends there.
type Request struct {
	// Upstream is the configured name of the target.
	Upstream string
	// Method is the HTTP method, case kept.
	Method string
	// Target is the origin-form target relative to the upstream's base URL:
	// a path that begins with "/" and, after a "?", the query. Its bytes are
	// those the client sent. An empty path is the base URL itself, without a
	// slash behind it.
	Target string
	// Header holds the end-to-end fields. Host, Content-Length and
	// Transfer-Encoding are never in it: whoever sends makes them.
	Header Header
	// Body is the whole body, transfer coding removed and content coding kept.
	Body []byte
}

// Path returns the target without its query, "/" for the base URL itself.
func (r *Request) Path() string {
	path, _, _ := strings.Cut(r.Target, "?")
	return cmp.Or(path, "/")
}

// A Response is what one attempt came to, up to the head of its answer. A
// time-out, a refused connection or a cut stream is a fact about the attempt,
// so there is no error beside it.
type Response struct {
	// Evidence is Unsent or Lost when no whole head of a final answer came,
	// and Answered when one did. An answer turns into Lost after all when Body
	// ends in anything but io.EOF.
	Evidence Evidence
	// Reason says in plain words why the evidence is Unsent or Lost. It holds
	// no header, body or query.
	Reason string

	// Status, Header and Length are the head of the answer. Length is the
	// declared length of the body in bytes, -1 where none was declared.
	Status int
	Header Header
	Length int64
	// CloseDelimited says that the body ends where the connection does, so
	// that a cut cannot be told from an end (RFC 9112 section 6.3).
	CloseDelimited bool

	// Body is the answer's body as it comes: transfer coding removed, content
	// coding kept. It returns io.EOF only after a clean end. It is nil unless
	// Evidence is Answered, and must be closed; closing it early gives up the
	// connection.
	Body io.ReadCloser
}

package classify

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
)

// A Fingerprint tells one request from another by meaning: two requests under
// one key must have the same.
type Fingerprint [sha256.Size]byte

// String returns the fingerprint in lower-case hex.
func (f Fingerprint) String() string { return hex.EncodeToString(f[:]) }

// fingerprintVersion begins what is hashed. Fingerprints are stored: whoever
// changes what any request comes to must change it, and migrate.
const fingerprintVersion = "counterfoil fingerprint 1"

// PrintOptions say what does not count. Prepare them once for each upstream;
// they are never changed and may be shared by goroutines.
type PrintOptions struct {
	// IgnoreFields are JSON fields that do not count.
	IgnoreFields Fields
	// SecretParams are query parameters whose values do not count, so that a
	// refreshed token makes no other request. Their names and places do.
	SecretParams Params
}

// Print returns the fingerprint of r: SHA-256 over length-prefixed method,
// upstream, target, media type and canonical body. Headers do not count but
// for Content-Type and Content-Encoding, which say what the body means.
//
//   - The target counts byte for byte: ?a=1&b=2 and ?b=2&a=1 are two requests,
//     and so are ?q=a+b and ?q=a%20b. Only the values of secret parameters do
//     not count.
//   - The media type counts without regard to case, its parameters in any order
//     and whether or not they are quoted; charset=utf-8 and the boundary of a
//     multipart body that could be read do not count.
//   - JSON (application/json and +json, in UTF-8): the order of members and
//     white space do not count, numbers compare by exact decimal value (an
//     exponent of more than 18 digits by spelling), an escape equals what it
//     stands for, Unicode is not normalised, members of one name keep their
//     order. A body that is not strict JSON, begins with a byte order mark,
//     holds invalid UTF-8 or nests deeper than 512 counts byte for byte.
//   - Every multipart type: the parts in order, each with its header block and
//     content, the preamble and what follows the last boundary. A body in which
//     the boundary stands where it should not counts byte for byte.
//   - A body coded as gzip, x-gzip or deflate counts as what it decodes to, up
//     to 10 MiB; longer, damaged, or coded otherwise, its bytes and the
//     coding's name count.
//   - Any other body counts byte for byte.
//
// A nil o means that everything counts. The fingerprint of a body takes time
// linear in its length (sorting aside), and memory for a copy of it.
func Print(r *Request, o *PrintOptions) Fingerprint {
	if o == nil {
		o = &PrintOptions{}
	}
	media := mediaOf(r.Header)
	body, coding := decodeBody(r.Header, r.Body)
	buf := make([]byte, 0, 256+len(r.Target)+media.canonBytes(body))
	buf = appendPart(buf, fingerprintVersion)
	buf = appendPart(buf, r.Method)
	buf = appendPart(buf, r.Upstream)
	buf = o.SecretParams.appendTarget(buf, r.Target)
	if coding == "" {
		if full, ok := appendCanonical(buf, media, body, o); ok {
			return sha256.Sum256(full)
		}
	}
	buf = appendPart(buf, media.whole)
	buf = appendPart(buf, coding)
	buf = append(buf, rawBody)
	return sumOf(buf, body)
}

// The kinds of body keep a canonical form from ever equalling raw bytes.
const (
	rawBody byte = iota
	jsonBody
	multipartBody
)

// appendCanonical appends media type and body where the body has a canonical
// form. Otherwise it returns false, and what it returns beside is of no use.
func appendCanonical(buf []byte, m media, body []byte, o *PrintOptions) ([]byte, bool) {
	switch {
	case m.isJSON:
		buf = appendPart(buf, m.whole)
		return appendJSON(append(buf, jsonBody), body, o.IgnoreFields.root)
	case m.boundary != "":
		buf = appendPart(buf, m.bare)
		return appendMultipart(append(buf, multipartBody), body, m.boundary)
	}
	return buf, false
}

// sumOf spares a large body a copy.
func sumOf(head, body []byte) Fingerprint {
	h := sha256.New()
	h.Write(head)
	h.Write(body)
	return Fingerprint(h.Sum(head[:0]))
}

// appendPart appends a part behind its length, so that no two lists of parts
// run together to the same bytes.
func appendPart[T string | []byte](buf []byte, part T) []byte {
	buf = binary.BigEndian.AppendUint32(buf, uint32(len(part)))
	return append(buf, part...)
}

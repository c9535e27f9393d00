package keystore

import (
	"crypto/sha256"
	"encoding/base32"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"
)

// PartBytesMax is how many bytes each part of a key may have. Each has at
// least one.
const PartBytesMax = 256

// NoPart stands for a turn or run that was not named.
const NoPart = "-"

// ErrInvalidKey is what [Key.Validate] and [ParseKey] wrap.
var ErrInvalidKey = errors.New("invalid key")

// A Key is the identity of a call: one tool call, decided in one turn of one
// run, in one namespace. Equal keys are the same call, for ever.
type Key struct {
	Namespace string `cbor:"1,keyasint"`
	Run       string `cbor:"2,keyasint"`
	Turn      string `cbor:"3,keyasint"`
	Call      string `cbor:"4,keyasint"`
}

// Validate reports which part of k, if any, is not 1 to 256 bytes of UTF-8.
// The error wraps [ErrInvalidKey].
func (k Key) Validate() error {
	for _, part := range [...]struct{ name, value string }{
		{"namespace", k.Namespace}, {"run", k.Run}, {"turn", k.Turn}, {"call", k.Call},
	} {
		if err := ValidatePart(part.value); err != nil {
			return fmt.Errorf("%s: %w", part.name, err)
		}
	}
	return nil
}

// ValidatePart reports whether one part of a key is 1 to 256 bytes of UTF-8.
// The error wraps [ErrInvalidKey].
func ValidatePart(part string) error {
	switch {
	case part == "":
		return fmt.Errorf("%w: it is empty", ErrInvalidKey)
	case len(part) > PartBytesMax:
		return fmt.Errorf("%w: it has %d bytes, at most %d are allowed", ErrInvalidKey, len(part), PartBytesMax)
	case !utf8.ValidString(part):
		return fmt.Errorf("%w: it is not valid UTF-8", ErrInvalidKey)
	}
	return nil
}

// String returns run:turn:call, each part percent-encoded as [EncodePart] does.
// The namespace is not part of it.
func (k Key) String() string {
	return EncodePart(k.Run) + ":" + EncodePart(k.Turn) + ":" + EncodePart(k.Call)
}

// ParseKey reads the form that [Key.String] prints, for the given namespace.
// The error wraps [ErrInvalidKey].
func ParseKey(namespace, s string) (Key, error) {
	parts := strings.Split(s, ":")
	if len(parts) != 3 {
		return Key{}, fmt.Errorf("%w: %q is not of the form run:turn:call", ErrInvalidKey, s)
	}
	k := Key{Namespace: namespace}
	for i, dst := range []*string{&k.Run, &k.Turn, &k.Call} {
		part, err := DecodePart(parts[i])
		if err != nil {
			return Key{}, err
		}
		*dst = part
	}
	return k, k.Validate()
}

const upperHex = "0123456789ABCDEF"

// EncodePart percent-encodes what may not stand bare in a printed key: the
// characters : ; , / %, white space, control characters and non-ASCII.
func EncodePart(part string) string {
	bare := true
	for i := range len(part) {
		bare = bare && isBare(part[i])
	}
	if bare {
		return part
	}
	var b strings.Builder
	for i := range len(part) {
		if c := part[i]; isBare(c) {
			b.WriteByte(c)
		} else {
			b.Write([]byte{'%', upperHex[c>>4], upperHex[c&15]})
		}
	}
	return b.String()
}

func isBare(c byte) bool {
	return c > ' ' && c < 0x7f && strings.IndexByte(":;,/%", c) < 0
}

// DecodePart undoes percent-encoding, of any byte. A percent sign that begins
// no escape is an error that wraps [ErrInvalidKey].
func DecodePart(s string) (string, error) {
	if strings.IndexByte(s, '%') < 0 {
		return s, nil
	}
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] != '%' {
			b.WriteByte(s[i])
			continue
		}
		if i+2 >= len(s) || unhex(s[i+1]) < 0 || unhex(s[i+2]) < 0 {
			return "", fmt.Errorf("%w: %q has a %% that begins no two-digit escape", ErrInvalidKey, s)
		}
		b.WriteByte(byte(unhex(s[i+1])<<4 | unhex(s[i+2])))
		i += 2
	}
	return b.String(), nil
}

func unhex(c byte) int {
	switch {
	case c >= '0' && c <= '9':
		return int(c - '0')
	case c >= 'a' && c <= 'f':
		return int(c-'a') + 10
	case c >= 'A' && c <= 'F':
		return int(c-'A') + 10
	}
	return -1
}

// A ProviderKey is the form of a key that providers see: 24 characters of
// lower-case base32hex, 120 bits. It is equal for every attempt, for ever, and
// needs neither a secret nor a store.
type ProviderKey string

var base32hex = base32.NewEncoding("0123456789abcdefghijklmnopqrstuv").WithPadding(base32.NoPadding)

// ProviderKey derives the provider key of k: the first 120 bits of SHA-256 over
// namespace, run, turn and call, each preceded by its length in bytes as a
// big-endian uint32.
func (k Key) ProviderKey() ProviderKey {
	sum := k.digest()
	return ProviderKey(base32hex.EncodeToString(sum[:15]))
}

// UUID returns the first 122 free bits of the same digest as a UUID version 4
// (RFC 9562 section 5.4), for providers that want one.
func (k Key) UUID() string {
	sum := k.digest()
	sum[6] = sum[6]&0x0f | 0x40
	sum[8] = sum[8]&0x3f | 0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", sum[0:4], sum[4:6], sum[6:8], sum[8:10], sum[10:16])
}

func (k Key) digest() [sha256.Size]byte {
	b := make([]byte, 0, 128)
	for _, part := range [...]string{k.Namespace, k.Run, k.Turn, k.Call} {
		b = binary.BigEndian.AppendUint32(b, uint32(len(part)))
		b = append(b, part...)
	}
	return sha256.Sum256(b)
}

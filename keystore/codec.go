package keystore

import (
	"bytes"
	"errors"
	"fmt"
	"sync"

	"github.com/fxamacker/cbor/v2"
)

// Format is the number of the format that this program writes. It stands in
// the first byte of every stored value; a value with a higher number is
// refused with ErrNewerFormat, lower ones are read for ever.
//
//	byte 0      the format number
//	byte 1 …    CBOR (RFC 8949): a map with small integers as keys, in core
//	            deterministic encoding
const Format = 1

// A Codec turns what is on record into bytes and back. It is safe for
// concurrent use.
type Codec struct {
	enc cbor.UserBufferEncMode
	dec cbor.DecMode
	// scratch holds buffers of *bytes.Buffer, so that a value is copied once,
	// into the slice that its caller gets.
	scratch sync.Pool
}

// NewCodec returns the codec of the current format.
func NewCodec() (*Codec, error) {
	encoding := cbor.CoreDetEncOptions()
	enc, err := encoding.UserBufferEncMode()
	if err != nil {
		return nil, fmt.Errorf("setting up the encoder: %w", err)
	}
	dec, err := cbor.DecOptions{
		DupMapKey:        cbor.DupMapKeyEnforcedAPF,
		IndefLength:      cbor.IndefLengthForbidden,
		TagsMd:           cbor.TagsForbidden,
		UTF8:             cbor.UTF8DecodeInvalid,
		MaxNestedLevels:  16,
		MaxArrayElements: 1 << 16,
		MaxMapPairs:      1 << 10,
		// What a newer program added must not be lost by writing the rest back.
		ExtraReturnErrors: cbor.ExtraDecErrorUnknownField,
	}.DecMode()
	if err != nil {
		return nil, fmt.Errorf("setting up the decoder: %w", err)
	}
	return &Codec{enc: enc, dec: dec, scratch: sync.Pool{New: func() any { return new(bytes.Buffer) }}}, nil
}

// Encode returns the stored form of v: a *Record, a *Run, or another struct of
// a store's own with integer keys.
func (c *Codec) Encode(v any) ([]byte, error) {
	b := c.scratch.Get().(*bytes.Buffer)
	defer c.scratch.Put(b)
	b.Reset()
	b.WriteByte(Format)
	if err := c.enc.MarshalToBuffer(v, b); err != nil {
		return nil, fmt.Errorf("encoding %T: %w", v, err)
	}
	return bytes.Clone(b.Bytes()), nil
}

// Decode reads what Encode wrote into v. The error wraps ErrCorrupt or
// ErrNewerFormat. It never panics, and v does not share memory with stored. If v
// has a method Validate() error, what it holds is checked with it.
func (c *Codec) Decode(stored []byte, v any) error {
	if len(stored) == 0 {
		return fmt.Errorf("decoding %T: no bytes: %w", v, ErrCorrupt)
	}
	if stored[0] > Format {
		return fmt.Errorf("decoding %T: format %d, this program knows up to %d: %w", v, stored[0], Format, ErrNewerFormat)
	}
	if stored[0] == 0 {
		return fmt.Errorf("decoding %T: format 0: %w", v, ErrCorrupt)
	}
	if err := c.dec.Unmarshal(stored[1:], v); err != nil {
		if _, ok := errors.AsType[*cbor.UnknownFieldError](err); ok {
			return fmt.Errorf("decoding %T: it has a field that this program does not know: %w", v, ErrNewerFormat)
		}
		return fmt.Errorf("decoding %T: %w", v, errors.Join(ErrCorrupt, err))
	}
	if checked, ok := v.(interface{ Validate() error }); ok {
		if err := checked.Validate(); err != nil {
			return fmt.Errorf("decoding %T: %w", v, err)
		}
	}
	return nil
}

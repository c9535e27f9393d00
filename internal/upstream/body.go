package upstream

import (
	"bytes"
	"errors"
	"io"
	"strings"
)

// errBodyClosed is what Read returns after Close.
var errBodyClosed = errors.New("read on a closed body")

// noBody is the end of an answer that has none.
type noBody struct{}

func (noBody) Read([]byte) (int, error) { return 0, io.EOF }
func (noBody) Close() error             { return nil }

// noBody ends the exchange at once.
func (cn *conn) noBody() io.ReadCloser { //nolint:unparam // no nil: a value without fields
	cn.done()
	return noBody{}
}

type framing uint8

const (
	sizedBody framing = iota
	chunkedBody
	openBody // ends with the connection
)

// A body reads an answer's body from its connection. Invariants:
//
//  1. cn is nil exactly when err is not: once the end, a cut or Close was
//     seen, the connection belongs to someone else or is gone.
//  2. err is io.EOF only after a clean end.
type body struct {
	cn      *conn
	err     error
	framing framing
	left    int64 // of the body if sized, of the present chunk if chunked
	inChunk bool  // the present chunk's closing CRLF has not been read
}

// Read is bounded by the idle time-out and the attempt's deadline.
func (b *body) Read(p []byte) (int, error) {
	if b.err != nil || len(p) == 0 {
		return 0, b.err
	}
	n, err := b.next(p)
	switch {
	case err == io.EOF:
		b.end(io.EOF).done()
	case err != nil:
		err = b.cn.cut(err)
		b.end(err).drop()
	case b.framing == sizedBody && b.left == 0:
		// Known to be the end: whoever counts bytes need not read on for the
		// connection to be free.
		b.end(io.EOF).done()
	}
	return n, err
}

// Close before the end gives up the connection. It may be called twice.
func (b *body) Close() error {
	if b.err == nil {
		b.end(errBodyClosed).drop()
	}
	return nil
}

func (b *body) end(err error) *conn {
	cn := b.cn
	b.cn, b.err = nil, err
	return cn
}

func (b *body) next(p []byte) (int, error) {
	switch b.framing { //nolint:exhaustive // an open body comes below
	case sizedBody:
		return b.some(p)
	case chunkedBody:
		return b.nextOfChunk(p)
	}
	n, err := b.cn.Read(p)
	if err == io.EOF && b.cn.tls != nil && b.cn.wire.ended.Load() {
		// Without TLS's own farewell anyone on the way may have made the end
		// (RFC 9112 section 9.8).
		err = io.ErrUnexpectedEOF
	}
	return n, err
}

// some reads up to b.left bytes. The end of the connection is no end here.
func (b *body) some(p []byte) (int, error) {
	if int64(len(p)) > b.left {
		p = p[:b.left]
	}
	n, err := b.cn.Read(p)
	b.left -= int64(n)
	return n, noEOF(err)
}

// nextOfChunk follows RFC 9112 section 7.1, with CRLF alone as line end.
func (b *body) nextOfChunk(p []byte) (int, error) {
	if b.left == 0 {
		if err := b.nextChunk(); err != nil {
			return 0, err
		}
	}
	return b.some(p)
}

const (
	chunkLineBytesMax = 1 << 10
	chunkDigitsMax    = 15
)

var (
	errChunkSize = errors.New("a chunk's size is malformed")
	errChunkEnd  = errors.New("a chunk is longer than it says")
)

// nextChunk reads up to the first byte of the next chunk's data. It returns
// io.EOF after the last chunk and the trailers.
func (b *body) nextChunk() error {
	if b.inChunk {
		line, err := b.cn.line(0)
		if errors.Is(err, errLineTooLong) || len(line) > 0 {
			return errChunkEnd
		}
		if err != nil {
			return err
		}
		b.inChunk = false
	}
	line, err := b.cn.line(chunkLineBytesMax)
	if err != nil {
		return err
	}
	if b.left, err = chunkSize(line); err != nil {
		return err
	}
	if b.left == 0 {
		return b.trailers()
	}
	b.inChunk = true
	return nil
}

// chunkSize reads the size and passes over extensions.
func chunkSize(line []byte) (int64, error) {
	digits, _, _ := bytes.Cut(line, []byte(";"))
	digits = bytes.TrimRight(digits, " \t")
	if len(digits) == 0 || len(digits) > chunkDigitsMax {
		return 0, errChunkSize
	}
	var n int64
	for _, c := range digits {
		d := strings.IndexByte("0123456789abcdef", lower(c))
		if d < 0 {
			return 0, errChunkSize
		}
		n = n<<4 | int64(d)
	}
	return n, nil
}

func lower(c byte) byte {
	if 'A' <= c && c <= 'F' {
		return c | 0x20
	}
	return c
}

// trailers passes over the trailer fields. They may not be merged into the
// header (RFC 9110 section 6.5.1), and nothing here could keep them apart.
func (b *body) trailers() error {
	for total := 0; total <= headBytesMax; {
		line, err := b.cn.line(headBytesMax / 2)
		if err != nil {
			return err
		}
		if len(line) == 0 {
			return io.EOF
		}
		total += len(line)
	}
	return errors.New("the answer's trailers are longer than 64 KiB")
}

// Read gives what is buffered, or what one read of the connection brings. A
// long p is read into directly.
func (cn *conn) Read(p []byte) (int, error) {
	if cn.in.buffered() == 0 && len(p) < inBytesFirst {
		if err := cn.in.fill(idleReader{cn}); err != nil {
			return 0, err
		}
	}
	if cn.in.buffered() > 0 {
		return cn.in.take(p), nil
	}
	n, err := idleReader{cn}.Read(p)
	if n > 0 {
		return n, nil
	}
	if err == nil {
		err = io.ErrNoProgress
	}
	return 0, err
}

// line is a line of the chunked coding. Its end is no end of a body.
func (cn *conn) line(limit int) ([]byte, error) {
	line, err := cn.in.line(idleReader{cn}, limit)
	return line, noEOF(err)
}

// An idleReader reads around the buffer that is being filled.
type idleReader struct{ cn *conn }

func (r idleReader) Read(p []byte) (int, error) {
	r.cn.armRead(r.cn.client.timeouts.Idle)
	return r.cn.nc.Read(p)
}

func noEOF(err error) error {
	if err == io.EOF {
		return io.ErrUnexpectedEOF
	}
	return err
}

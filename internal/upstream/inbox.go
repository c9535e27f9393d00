package upstream

import (
	"bytes"
	"errors"
	"io"
)

const (
	inBytesFirst = 4 << 10
	// headBytesMax bounds the head of an answer, and its trailers.
	headBytesMax = 64 << 10
)

var (
	errHeadTooLong = errors.New("the answer's head is longer than 64 KiB")
	errLineTooLong = errors.New("a chunk's size line is too long")
)

// An inbox buffers what a connection brings. It grows only for a long head
// and never past headBytesMax.
type inbox struct {
	buf  []byte
	r, w int // buf[r:w] has come and is not yet used
}

func (b *inbox) buffered() int { return b.w - b.r }

// fill reads once from src behind what is buffered. A read that brings
// nothing and no error counts as a stall, so that no loop can spin.
func (b *inbox) fill(src io.Reader) error {
	b.makeRoom()
	n, err := src.Read(b.buf[b.w:])
	b.w += n
	if n > 0 {
		return nil
	}
	if err == nil {
		return io.ErrNoProgress
	}
	return err
}

func (b *inbox) makeRoom() {
	if b.r == b.w {
		b.r, b.w = 0, 0
	}
	if b.buf == nil {
		b.buf = make([]byte, inBytesFirst)
	}
	if b.w < len(b.buf) {
		return
	}
	grown := b.buf
	if b.r == 0 {
		grown = make([]byte, 2*len(b.buf))
	}
	b.w = copy(grown, b.buf[b.r:b.w])
	b.r, b.buf = 0, grown
}

// take uses up to len(p) buffered bytes.
func (b *inbox) take(p []byte) int {
	n := copy(p, b.buf[b.r:b.w])
	b.r += n
	return n
}

func (b *inbox) shrink() {
	if len(b.buf) > inBytesFirst {
		b.buf = nil
	}
	b.r, b.w = 0, 0
}

// head returns the next head, up to and including its empty line. The slice
// is good until the next call.
func (b *inbox) head(src io.Reader) ([]byte, error) {
	seen := 0
	for {
		if end := headEnd(b.buf[b.r:b.w], seen); end > 0 {
			block := b.buf[b.r : b.r+end]
			b.r += end
			return block, nil
		}
		if !looksLikeHTTP(b.buf[b.r:b.w]) {
			return nil, errNotHTTP
		}
		seen = b.buffered()
		if seen >= headBytesMax {
			return nil, errHeadTooLong
		}
		if err := b.fill(src); err != nil {
			return nil, err
		}
	}
}

// headEnd is the length of the head in p, 0 while it is incomplete. The first
// seen bytes were looked at before.
func headEnd(p []byte, seen int) int {
	from := max(seen-3, 0)
	for {
		i := bytes.IndexByte(p[from:], '\n')
		if i < 0 {
			return 0
		}
		from += i + 1
		switch tail := p[from:]; {
		case len(tail) > 0 && tail[0] == '\n':
			return from + 1
		case len(tail) > 1 && tail[0] == '\r' && tail[1] == '\n':
			return from + 2
		}
	}
}

func looksLikeHTTP(p []byte) bool {
	const start = "HTTP/1."
	n := min(len(p), len(start))
	return string(p[:n]) == start[:n]
}

// line returns the next line without its CRLF, which it insists on, if it has
// at most limit bytes. The slice is good until the next call.
func (b *inbox) line(src io.Reader, limit int) ([]byte, error) {
	for {
		if i := bytes.IndexByte(b.buf[b.r:b.w], '\n'); i >= 0 {
			line := b.buf[b.r : b.r+i]
			b.r += i + 1
			return withoutCR(line, limit)
		}
		if b.buffered() > limit+1 {
			return nil, errLineTooLong
		}
		if err := b.fill(src); err != nil {
			return nil, err
		}
	}
}

func withoutCR(line []byte, limit int) ([]byte, error) {
	last := len(line) - 1
	if last < 0 || line[last] != '\r' {
		return nil, errors.New("a line of the chunked coding does not end in CRLF")
	}
	if last > limit {
		return nil, errLineTooLong
	}
	if bytes.IndexByte(line[:last], '\r') >= 0 {
		return nil, errors.New("a line of the chunked coding holds a bare CR")
	}
	return line[:last], nil
}

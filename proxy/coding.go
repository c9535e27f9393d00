package proxy

import (
	"bufio"
	"compress/flate"
	"compress/gzip"
	"compress/zlib"
	"context"
	"errors"
	"io"
	"strconv"
	"strings"

	"counterfoil/classify"
	"counterfoil/internal/journal"
)

// decodedBytesMax bounds what a stored body may grow to when it is decoded for a
// client; past it the answer is cut.
const decodedBytesMax = 1 << 30

// isRuledOut reports whether an answer from the journal has a content coding
// that this request does not take, and that can be undone here.
func (x *exchange) isRuledOut(r *journal.Reply) bool {
	if r.Outcome == journal.Executed || len(r.Header.Values("Content-Encoding")) != 1 {
		return false
	}
	coding := strings.ToLower(r.Header.Value("Content-Encoding"))
	return decoders[coding] != nil && !accepts(x.header, coding)
}

// decoders undo the codings of RFC 9110 section 8.4.1 that the standard library
// knows.
var decoders = map[string]func(*bufio.Reader) (io.Reader, error){
	"gzip":    gunzip,
	"x-gzip":  gunzip,
	"deflate": inflate,
}

func gunzip(r *bufio.Reader) (io.Reader, error) { return gzip.NewReader(r) }

// inflate also takes what some servers send as deflate: without zlib's wrapping.
func inflate(r *bufio.Reader) (io.Reader, error) {
	head, err := r.Peek(2)
	if err == nil && head[0]&0x0f == 8 && (uint(head[0])<<8|uint(head[1]))%31 == 0 {
		return zlib.NewReader(r)
	}
	return flate.NewReader(r), nil
}

// accepts reads Accept-Encoding (RFC 9110 section 12.5.3). Without the field
// every coding is welcome.
func accepts(h classify.Header, coding string) bool {
	if !h.Has("Accept-Encoding") {
		return true
	}
	others := false
	for _, line := range h.Values("Accept-Encoding") {
		for element := range strings.SplitSeq(line, ",") {
			name, params, _ := strings.Cut(element, ";")
			name = strings.ToLower(strings.TrimSpace(name))
			switch {
			case strings.TrimPrefix(name, "x-") == strings.TrimPrefix(coding, "x-"):
				return !isZero(params)
			case name == "*":
				others = !isZero(params)
			}
		}
	}
	return others
}

// isZero reports whether the parameters say q=0.
func isZero(params string) bool {
	name, value, _ := strings.Cut(strings.TrimSpace(params), "=")
	if !strings.EqualFold(strings.TrimSpace(name), "q") {
		return false
	}
	q, err := strconv.ParseFloat(strings.TrimSpace(value), 64)
	return err == nil && q == 0
}

// errTooLarge ends the decoding of what grows beyond all bounds.
var errTooLarge = errors.New("the decoded body is too large")

// decoded answers with the body decoded as it is read from the store. A body
// that cannot be decoded from the start goes out as it is.
func (x *exchange) decoded(ctx context.Context, a *answer, r *journal.Reply) journal.Arrival {
	stored, feed := io.Pipe()
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = feed.CloseWithError(x.replay(ctx, r, func(piece []byte) error {
			_, err := feed.Write(piece)
			return err
		}))
	}()
	defer func() { _ = stored.Close(); <-done }()
	plain, err := decoders[strings.ToLower(r.Header.Value("Content-Encoding"))](bufio.NewReader(stored))
	if err != nil {
		a.length = r.Body.Bytes
		if r.Bytes != nil {
			a.length = int64(len(r.Bytes))
		}
		return x.piecemeal(ctx, a, r)
	}
	a.header = decodedFields(a.header)
	s := &stream{exchange: x, out: x.begin(a)}
	if s.out.copyFrom(plain) != nil {
		s.out.cut()
		return journal.NotArrived
	}
	return s.end(ctx, r)
}

// replay hands the stored body to fn.
func (x *exchange) replay(ctx context.Context, r *journal.Reply, fn func([]byte) error) error {
	if r.Bytes != nil || r.Body.Bytes == 0 {
		return fn(r.Bytes)
	}
	return x.journal.ReadBody(ctx, r.Body, fn)
}

func (o *outgoing) copyFrom(r io.Reader) error {
	buffer := o.exchange.scratch.Get().(*[]byte)
	defer o.exchange.scratch.Put(buffer)
	for total := 0; ; {
		n, err := r.Read((*buffer)[:pieceBytes])
		if total += n; total > decodedBytesMax {
			return errTooLarge
		}
		if werr := o.piece((*buffer)[:n]); werr != nil {
			return werr
		}
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// decodedFields are the fields of the same answer without its content coding:
// what speaks of the very bytes goes, and a strong validator becomes weak.
func decodedFields(h classify.Header) classify.Header {
	kept := make(classify.Header, 0, len(h))
	for _, f := range h {
		switch strings.ToLower(f.Name) {
		case "content-encoding", "content-md5", "content-digest", "repr-digest", "digest", "accept-ranges":
			continue
		case "etag":
			if !strings.HasPrefix(f.Value, "W/") {
				f.Value = "W/" + f.Value
			}
		}
		kept = append(kept, f)
	}
	return kept
}

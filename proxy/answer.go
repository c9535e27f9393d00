package proxy

import (
	"strconv"
	"strings"

	"counterfoil/classify"

	"github.com/valyala/fasthttp"
)

const (
	// pieceBytes is how much of an answer is passed on at a time.
	pieceBytes = 32 << 10
	// scratchBytes holds a piece and the head or the chunk framing around it.
	scratchBytes = pieceBytes + 4<<10
)

// An answer is the head of what a client gets.
type answer struct {
	status int
	// header holds the provider's fields; own are ours and win over fields of
	// the same name.
	header, own classify.Header
	// length is the body's, -1 where it is not known.
	length int64
}

// bodyAllowed reports whether an answer of that status has a body (RFC 9110
// section 6.4.1).
func (x *exchange) bodyAllowed(status int) bool {
	return x.method != fasthttp.MethodHead && status >= 200 && status != 204 && status != 304
}

// whole answers with a body that is at hand, in one write.
func (x *exchange) whole(a *answer, body []byte) error {
	buffer := x.scratch.Get().(*[]byte)
	defer x.scratch.Put(buffer)
	head := x.appendHead((*buffer)[:0:pieceHeadMax], a)
	if !x.bodyAllowed(a.status) {
		body = nil
	}
	var err error
	if len(body) <= bodyBytesCopied {
		err = x.conn.send(append(head, body...))
	} else {
		err = x.conn.send(head, body)
	}
	x.close = x.close || err != nil
	return err
}

const (
	// bodyBytesCopied is up to where one copy is cheaper than a vector.
	bodyBytesCopied = 16 << 10
	// pieceHeadMax keeps a head apart from a piece in the same scratch buffer.
	pieceHeadMax = 4 << 10
)

// An outgoing is an answer on its way, piece by piece. After err nothing more is
// written.
type outgoing struct {
	exchange *exchange
	chunked  bool
	bodiless bool
	buffer   []byte
	err      error
}

// begin sends the head at once.
func (x *exchange) begin(a *answer) *outgoing {
	o := &outgoing{exchange: x, bodiless: !x.bodyAllowed(a.status)}
	if a.length < 0 && !o.bodiless {
		// Without chunks, only the connection's end can tell the body's.
		o.chunked, x.close = !x.http10, x.close || x.http10
	}
	o.err = x.conn.send(x.appendHead(nil, a))
	return o
}

// piece sends a piece at once. The slice is not kept.
func (o *outgoing) piece(b []byte) error {
	if o.err != nil || o.bodiless || len(b) == 0 {
		return o.err
	}
	if !o.chunked {
		o.err = o.exchange.conn.send(b)
		return o.err
	}
	o.buffer = strconv.AppendInt(o.buffer[:0], int64(len(b)), 16)
	o.buffer = append(o.buffer, "\r\n"...)
	if len(b) > bodyBytesCopied {
		o.err = o.exchange.conn.send(o.buffer, b, []byte("\r\n"))
		return o.err
	}
	o.buffer = append(append(o.buffer, b...), "\r\n"...)
	o.err = o.exchange.conn.send(o.buffer)
	return o.err
}

// end is the clean end of the body.
func (o *outgoing) end() {
	if o.err == nil && o.chunked {
		o.err = o.exchange.conn.send([]byte("0\r\n\r\n"))
	}
	if o.err != nil {
		o.cut()
	}
}

// cut ends the connection without ending the body, so that no client takes what
// it has for the whole.
func (o *outgoing) cut() { o.exchange.close = true }

// appendHead writes status line and fields: the provider's in their order and
// spelling, then ours, then framing.
func (x *exchange) appendHead(b []byte, a *answer) []byte {
	x.close = x.close || x.draining.Load()
	b = append(b, "HTTP/1.1 "...)
	b = strconv.AppendInt(b, int64(a.status), 10)
	b = append(append(append(b, ' '), fasthttp.StatusMessage(a.status)...), "\r\n"...)
	for i := range a.header {
		f := &a.header[i]
		if isOwn(f.Name) || a.own.Has(f.Name) || !isToken(f.Name) || !isFieldValue(f.Value) {
			continue
		}
		value := f.Value
		if x.route.upstream != nil && strings.EqualFold(f.Name, "Location") {
			value = x.route.relocate(value)
		}
		b = appendField(b, f.Name, value)
	}
	for i := range a.own {
		b = appendField(b, a.own[i].Name, a.own[i].Value)
	}
	return append(x.appendFraming(b, a), "\r\n"...)
}

func (x *exchange) appendFraming(b []byte, a *answer) []byte {
	switch {
	case a.status == 204 || a.status < 200:
	case a.length >= 0:
		b = appendField(b, "Content-Length", strconv.FormatInt(a.length, 10))
	case x.bodyAllowed(a.status) && !x.http10:
		b = appendField(b, "Transfer-Encoding", "chunked")
	}
	switch {
	case x.close:
		b = appendField(b, "Connection", "close")
	case x.http10:
		b = appendField(b, "Connection", "keep-alive")
	}
	return b
}

func appendField(b []byte, name, value string) []byte {
	b = append(append(b, name...), ": "...)
	return append(append(b, value...), "\r\n"...)
}

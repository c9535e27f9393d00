package upstream

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"counterfoil/classify"
)

const (
	// interimMax is how many 1xx answers may come before the final one.
	interimMax = 16
	// pieceBytes is how much of a long body goes out per write, each with a
	// deadline of its own.
	pieceBytes = 64 << 10
	// parting is how long an answer is looked for after the upstream stopped
	// taking the request.
	parting = time.Second
)

// exchange sends r over the connection and reads the head of the answer. It
// closes nothing: unless the evidence is Answered, the caller must.
func (cn *conn) exchange(ctx context.Context, deadline time.Time, r *classify.Request) *classify.Response {
	cn.begin(ctx, deadline)
	rest := cn.compose(r)
	cn.armBoth(cn.client.timeouts.FirstByte)
	_, sendErr := cn.nc.Write(cn.out)
	if sendErr != nil && !cn.left() {
		return unsent("sending: " + cn.why(sendErr))
	}
	h, sendErr, err := cn.finish(rest, sendErr)
	if err != nil && sendErr != nil {
		return lost("sending: " + cn.why(sendErr))
	}
	if err != nil {
		return lost("waiting for the answer: " + cn.why(err))
	}
	cn.reusable = sendErr == nil && !h.close
	return cn.answer(r.Method, &h)
}

func (cn *conn) begin(ctx context.Context, deadline time.Time) {
	cn.deadline = deadline
	cn.sentWas = cn.wire.sent.Load()
	cn.halted.Store(false)
	if ctx.Done() != nil {
		cn.unwatch = context.AfterFunc(ctx, cn.abort)
	}
}

// finish sends the rest of the body, if there is one, and reads the head of
// the answer, which may come before the body has gone. It returns the head,
// what kept the request from leaving whole, and what kept the head from coming.
func (cn *conn) finish(rest []byte, sendErr error) (head, error, error) {
	if sendErr != nil {
		cn.armRead(parting)
	}
	if sendErr != nil || len(rest) == 0 {
		h, err := cn.readHead()
		return h, sendErr, err
	}
	cn.armRead(time.Until(cn.deadline))
	sent := make(chan error, 1)
	go func() { sent <- cn.pour(rest) }()
	h, err := cn.readHead()
	select {
	case sendErr := <-sent:
		return h, sendErr, err
	default:
	}
	if err == nil && h.status < 300 {
		return h, <-sent, nil // the upstream may still want the rest
	}
	cn.halt()
	if sendErr := <-sent; sendErr == nil || err == nil {
		return h, sendErr, err
	}
	return h, err, err // halting is no reason of its own
}

// pour writes a long body, and from its end on lets the answer take only so
// long. Every piece has its own deadline, so a slow upload may take long but
// not stall.
func (cn *conn) pour(rest []byte) error {
	for len(rest) > 0 {
		cn.armWrite(cn.client.timeouts.Idle)
		n, err := cn.nc.Write(rest[:min(len(rest), pieceBytes)])
		if err != nil {
			cn.armRead(parting)
			return err
		}
		rest = rest[n:]
	}
	cn.armRead(cn.client.timeouts.FirstByte)
	return nil
}

// readHead reads heads up to the first that is final (RFC 9110 section 15.2).
func (cn *conn) readHead() (head, error) {
	for range interimMax + 1 {
		block, err := cn.in.head(cn.nc)
		if err != nil {
			return head{}, err
		}
		h, err := parseHead(string(block))
		switch {
		case err != nil:
			return head{}, err
		case h.status == 101:
			return head{}, errSwitched
		case h.status >= 200:
			return h, nil
		}
	}
	return head{}, errTooMany1xx
}

func lost(reason string) *classify.Response {
	return &classify.Response{Evidence: classify.Lost, Reason: reason}
}

// answer is the response for a whole head, its body framed as RFC 9112
// section 6.3 has it.
func (cn *conn) answer(method string, h *head) *classify.Response {
	resp := &classify.Response{
		Evidence: classify.Answered,
		Status:   h.status,
		Header:   h.fields,
		Length:   h.length,
	}
	if h.keep > 0 {
		cn.keep = min(h.keep, cn.client.timeouts.Keep)
	}
	switch {
	case method == "HEAD" || h.status == 304:
		resp.Body = cn.noBody()
	case h.status == 204 || h.status == 205 && !h.chunked && h.length < 0:
		// A 204 that declares a body may well send one.
		cn.reusable = cn.reusable && h.status == 204 && !h.chunked && h.length <= 0
		resp.Length = 0
		resp.Body = cn.noBody()
	case h.chunked:
		resp.Body = &body{cn: cn, framing: chunkedBody}
	case h.length == 0:
		resp.Body = cn.noBody()
	case h.length > 0:
		resp.Body = &body{cn: cn, framing: sizedBody, left: h.length}
	default:
		cn.reusable = false
		resp.CloseDelimited = true
		resp.Body = &body{cn: cn, framing: openBody}
	}
	return resp
}

// why puts an error of this exchange into words. Time-outs are told apart by
// what they were about.
func (cn *conn) why(err error) string {
	switch {
	case timedOut(err) && !time.Now().Before(cn.deadline):
		return "the attempt's time is over"
	case cn.aborted.Load():
		return "the attempt was given up"
	case timedOut(err):
		return "the upstream took too long"
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return "the upstream closed the connection"
	}
	return err.Error()
}

func timedOut(err error) bool {
	var ne net.Error
	return errors.As(err, &ne) && ne.Timeout()
}

// cut is the error of a body that did not come to its end.
func (cn *conn) cut(err error) error {
	return fmt.Errorf("the answer's body was cut: %s: %w", cn.why(err), io.ErrUnexpectedEOF)
}

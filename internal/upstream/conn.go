package upstream

import (
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/valyala/fasthttp"
)

// A wire is the socket itself. It counts what the operating system took, so
// that "no byte left" is something seen, not something guessed from an error.
type wire struct {
	net.Conn
	sent atomic.Int64
	// ended is set when the peer has closed its side of the socket.
	ended atomic.Bool
}

func newWire(nc net.Conn) *wire { return &wire{Conn: nc} }

func (w *wire) Read(p []byte) (int, error) {
	n, err := w.Conn.Read(p)
	if err == io.EOF {
		w.ended.Store(true)
	}
	return n, err
}

func (w *wire) Write(p []byte) (int, error) {
	n, err := w.Conn.Write(p)
	w.sent.Add(int64(n))
	return n, err
}

// A conn is one connection. It serves one exchange at a time.
type conn struct {
	client *Client
	wire   *wire
	raw    syscall.RawConn
	nc     net.Conn  // what requests are spoken over: wire, or TLS on top
	tls    *tls.Conn // nil without TLS
	in     inbox
	out    []byte
	head   fasthttp.RequestHeader

	// Of the present exchange.
	deadline time.Time
	sentWas  int64       // wire.sent when it began
	aborted  atomic.Bool // the context is over: all deadlines lie in the past
	halted   atomic.Bool // the rest of the request is no longer wanted
	unwatch  func() bool // nil if the context can't end

	reusable  bool // after a clean end of the present answer
	keep      time.Duration
	idleSince time.Time
}

func (c *Client) newConn(nc net.Conn) (*conn, error) {
	sc, ok := nc.(syscall.Conn)
	if !ok {
		return nil, fmt.Errorf("connecting: %T gives no access to its socket", nc)
	}
	raw, err := sc.SyscallConn()
	if err != nil {
		return nil, fmt.Errorf("connecting: %w", err)
	}
	w := newWire(nc)
	return &conn{client: c, wire: w, raw: raw, nc: w, keep: c.timeouts.Keep}, nil
}

// past is a deadline that is over.
var past = time.Unix(1, 0)

// abort makes every read and write of the exchange fail, now and later.
func (cn *conn) abort() {
	cn.aborted.Store(true)
	cn.wire.SetDeadline(past)
}

// halt makes the writing of the request fail, now and later.
func (cn *conn) halt() {
	cn.halted.Store(true)
	cn.wire.SetWriteDeadline(past)
}

// Each arm sets its deadline first and looks at the flag second, abort and
// halt the other way round: whichever comes last, the past wins.

func (cn *conn) armBoth(d time.Duration) {
	cn.wire.SetDeadline(cn.within(d))
	if cn.aborted.Load() {
		cn.wire.SetDeadline(past)
	}
}

func (cn *conn) armRead(d time.Duration) {
	cn.wire.SetReadDeadline(cn.within(d))
	if cn.aborted.Load() {
		cn.wire.SetReadDeadline(past)
	}
}

func (cn *conn) armWrite(d time.Duration) {
	cn.wire.SetWriteDeadline(cn.within(d))
	if cn.aborted.Load() || cn.halted.Load() {
		cn.wire.SetWriteDeadline(past)
	}
}

// within is d from now, and never later than the attempt may last.
func (cn *conn) within(d time.Duration) time.Time {
	t := time.Now().Add(d)
	if t.After(cn.deadline) {
		return cn.deadline
	}
	return t
}

// left reports whether a byte of the present request was handed over.
func (cn *conn) left() bool { return cn.wire.sent.Load() != cn.sentWas }

// quiet reports whether an idle connection is open and nothing has come over
// it since its last answer, TLS included.
func (cn *conn) quiet() bool {
	if cn.in.buffered() > 0 || !silent(cn.raw) {
		return false
	}
	if cn.tls == nil {
		return true
	}
	// A deadline in the past lets TLS hand out only what it already holds.
	var one [1]byte
	cn.wire.SetReadDeadline(past)
	n, err := cn.tls.Read(one[:])
	return n == 0 && timedOut(err)
}

// rest readies the connection for the pool.
func (cn *conn) rest() {
	cn.in.shrink()
	if cap(cn.out) > outBytesKept {
		cn.out, cn.head = nil, fasthttp.RequestHeader{}
	}
	cn.idleSince = time.Now()
}

// close drops the connection. TLS gets no farewell, for which it could wait.
func (cn *conn) close() {
	if cn.unwatch != nil {
		cn.unwatch()
		cn.unwatch = nil
	}
	cn.wire.Close()
}

// done ends an exchange whose answer came to a clean end.
func (cn *conn) done() {
	watching := cn.unwatch == nil || cn.unwatch()
	cn.unwatch = nil
	// Had the context ended, its watcher could still be about to abort.
	if watching && cn.reusable && cn.in.buffered() == 0 {
		cn.client.keep(cn)
		return
	}
	cn.drop()
}

// drop ends an exchange whose connection can't serve another.
func (cn *conn) drop() {
	cn.close()
	cn.client.release()
}

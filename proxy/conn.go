package proxy

import (
	"errors"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

const (
	// halfClosedGrace is how long a client that has closed its sending half is
	// taken to wait for an answer of which nothing comes.
	halfClosedGrace = 5 * time.Second
	// lingerMax bounds how long an unread request is read on after its refusal,
	// so that the client sees the answer and not a reset connection.
	lingerMax = time.Second
	// acceptPauseMin and acceptPauseMax bound the rest after a connection could
	// not be accepted.
	acceptPauseMin = 5 * time.Millisecond
	acceptPauseMax = time.Second
)

// A listener hands out connections that know where they came in.
type listener struct {
	net.Listener
	server   *Server
	upstream string
}

// Accept waits while the process is short of what a connection takes: fasthttp
// would give the listener up, and with it all that is in flight.
func (l *listener) Accept() (net.Conn, error) {
	nc, err := l.Listener.Accept()
	for pause := acceptPauseMin; isShortage(err); pause = min(2*pause, acceptPauseMax) {
		l.server.log.Warn("a connection has to wait: the process has no more file descriptors or memory for it", "error", err)
		time.Sleep(pause)
		nc, err = l.Listener.Accept()
	}
	if err != nil {
		return nil, err
	}
	boundUnsent(nc)
	c := &conn{Conn: nc, server: l.server, upstream: l.upstream}
	l.server.conns.Store(c, nil)
	return c, nil
}

// isShortage reports whether accepting failed for want of something that others
// will give back, or for what one client did.
func isShortage(err error) bool {
	for _, passing := range [...]error{syscall.EMFILE, syscall.ENFILE, syscall.ENOBUFS, syscall.ENOMEM, syscall.ECONNABORTED} {
		if errors.Is(err, passing) {
			return true
		}
	}
	return false
}

// A conn is a client's connection. fasthttp reads from it; what fasthttp writes
// goes nowhere, since its response type renames, merges and drops header fields
// that have to leave as they came. send is the way out.
type conn struct {
	net.Conn
	server *Server
	// upstream is the name whose own listener it came in at, "" for the common
	// one.
	upstream string
	// heard says that something was read since the last answer, begun that
	// anything ever was.
	heard bool
	begun atomic.Bool
	// linger says that the client may still be sending what nobody will read.
	linger bool
	// peeked holds the byte that a watch has read too far.
	peeked  [1]byte
	hasPeek bool
	writes  atomic.Uint32
	closed  sync.Once
}

func (c *conn) Read(p []byte) (int, error) {
	if c.hasPeek && len(p) > 0 {
		p[0], c.hasPeek, c.heard = c.peeked[0], false, true
		return 1, nil
	}
	n, err := c.Conn.Read(p)
	if n > 0 && !c.heard {
		c.heard = true
		c.begun.Store(true)
	}
	return n, err
}

// Write drops what fasthttp says by itself.
func (c *conn) Write(p []byte) (int, error) { return len(p), nil }

// send writes an answer, or a part of one, within the server's bound.
func (c *conn) send(pieces ...[]byte) error {
	if err := c.Conn.SetWriteDeadline(time.Now().Add(c.server.limits.WriteTimeout)); err != nil {
		return err
	}
	c.heard = false
	c.writes.Add(1)
	if len(pieces) == 1 {
		_, err := c.Conn.Write(pieces[0])
		return err
	}
	buffers := net.Buffers(pieces)
	_, err := buffers.WriteTo(c.Conn)
	return err
}

func (c *conn) Close() (err error) {
	c.closed.Do(func() {
		c.server.conns.Delete(c)
		if half, ok := c.Conn.(interface{ CloseWrite() error }); ok && c.linger && half.CloseWrite() == nil {
			_ = c.Conn.SetReadDeadline(time.Now().Add(lingerMax))
			_, _ = io.Copy(io.Discard, c.Conn)
		}
		err = c.Conn.Close()
	})
	return err
}

// watch calls gone once the client has hung up, while nobody reads from the
// connection. The caller must call stop before it reads again, and once only.
func (c *conn) watch(gone func()) (stop func()) {
	w := &watcher{conn: c, gone: gone, stopped: make(chan struct{}), done: make(chan struct{})}
	timer := time.AfterFunc(c.server.limits.watchAfter, w.run)
	return func() {
		if !timer.Stop() {
			w.stop()
		}
	}
}

// A watcher waits for the end of a client's connection.
type watcher struct {
	conn    *conn
	gone    func()
	mu      sync.Mutex
	stopped chan struct{}
	done    chan struct{}
}

func (w *watcher) stop() {
	w.mu.Lock()
	close(w.stopped)
	_ = w.conn.Conn.SetReadDeadline(time.Unix(1, 0))
	w.mu.Unlock()
	<-w.done
	_ = w.conn.Conn.SetReadDeadline(time.Time{})
}

func (w *watcher) run() {
	defer close(w.done)
	w.mu.Lock()
	select {
	case <-w.stopped:
		w.mu.Unlock()
		return
	default:
		_ = w.conn.Conn.SetReadDeadline(time.Time{})
	}
	w.mu.Unlock()
	n, err := w.conn.Conn.Read(w.conn.peeked[:])
	switch {
	case n > 0:
		w.conn.hasPeek = true
	case errors.Is(err, io.EOF):
		w.awaitSilence()
	case w.isStopped():
	default:
		w.gone()
	}
}

func (w *watcher) isStopped() bool {
	select {
	case <-w.stopped:
		return true
	default:
		return false
	}
}

// awaitSilence tells a client that has only stopped sending from one that is
// gone: to the first the answer goes on, to the second no write succeeds, and
// where there is nothing to write nobody can tell.
func (w *watcher) awaitSilence() {
	tick := time.NewTicker(halfClosedGrace)
	defer tick.Stop()
	for seen := w.conn.writes.Load(); ; {
		select {
		case <-w.stopped:
			return
		case <-tick.C:
		}
		now := w.conn.writes.Load()
		if now == seen {
			w.gone()
			return
		}
		seen = now
	}
}

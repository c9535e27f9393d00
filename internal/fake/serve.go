package fake

import (
	"bytes"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"sync"
	"time"
)

// bodyBytesMax bounds a request's body.
const bodyBytesMax = 16 << 20

// A Move is what befalls one write request. Drops and cuts reset the
// connection, as a host does that has crashed.
type Move int

const (
	// Answer is the normal course of things.
	Answer Move = -iota
	// CommitThenDrop has the effect, and answers nothing.
	CommitThenDrop
	// CommitThenHang has the effect, and keeps the answer back until
	// Server.Release.
	CommitThenHang
	// CommitThenCut has the effect, sends the first piece of the answer, and no
	// more. Pieces end where the handler flushes; of an answer in one piece
	// half is sent.
	CommitThenCut
	// DropBefore has no effect, and answers nothing.
	DropBefore
)

// CommitThen has the effect, and answers with a status instead.
func CommitThen(status int) Move { return Move(status) }

// A Script says what befalls the nth write request, from 1 on. The request's
// body can be read. Nil says Answer always.
type Script func(r *http.Request, nth int) Move

// First befalls the first write request alone.
func First(m Move) Script {
	return func(_ *http.Request, nth int) Move {
		if nth == 1 {
			return m
		}
		return Answer
	}
}

// A Request is one that has arrived.
type Request struct {
	Method, Target string
	Header         http.Header
	Body           string
	// IsRead says that it was no write request; Effects is how many it had.
	IsRead  bool
	Effects int
	// Status and Answer are what the provider meant to answer; 0 if it was
	// dropped before.
	Status int
	Answer string
}

// A Server is a provider on a port of its own.
type Server struct {
	// URL is its base, without a slash at the end.
	URL string
	// Ledger is what it has on record.
	Ledger *Ledger

	spec    Spec
	script  Script
	handler http.Handler
	server  *http.Server
	done    chan struct{}

	// turn lets one request after another reach the handler.
	turn     sync.Mutex
	mu       sync.Mutex
	writes   int
	requests []Request
	// arrived is closed and made anew whenever a request has been handled.
	arrived  chan struct{}
	released chan struct{}
	isFree   bool
}

// Serve starts a provider on loopback. Close ends it.
func Serve(spec Spec, script Script) (*Server, error) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("listening as %s: %w", spec.Adapter, err)
	}
	if script == nil {
		script = First(Answer)
	}
	s := &Server{
		URL: "http://" + ln.Addr().String(), Ledger: &Ledger{}, spec: spec, script: script,
		done: make(chan struct{}), arrived: make(chan struct{}), released: make(chan struct{}),
	}
	s.handler = spec.New(s.Ledger)
	s.server = &http.Server{Handler: s, ReadHeaderTimeout: 30 * time.Second}
	go func() {
		defer close(s.done)
		_ = s.server.Serve(ln) // it ends with Close
	}()
	return s, nil
}

// Close ends every connection and lets go what hangs.
func (s *Server) Close() {
	s.Release()
	_ = s.server.Close()
	<-s.done
}

// Release lets every answer go that hangs, now and later.
func (s *Server) Release() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.isFree {
		s.isFree = true
		close(s.released)
	}
}

// Requests returns all that have arrived so far, in the order in which they
// were handled, and a channel that is closed when there are more.
func (s *Server) Requests() ([]Request, <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]Request(nil), s.requests...), s.arrived
}

// ServeHTTP lets the script's move befall a request.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, bodyBytesMax))
	if err != nil {
		reset(w) // the client is gone, or sends without end: there was no request
		return
	}
	move, answer := s.handle(r, body)
	switch {
	case move == DropBefore || move == CommitThenDrop:
		reset(w)
	case move == CommitThenCut:
		answer.sendFirst(w)
		reset(w)
	case move > 0:
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(int(move))
		_, _ = fmt.Fprintf(w, `{"error":"status %d by the script"}`, int(move))
	default:
		if move == CommitThenHang {
			select {
			case <-s.released:
			case <-r.Context().Done():
			}
		}
		answer.send(w)
	}
}

// handle decides on one request and lets the handler have it, unless it is
// dropped before.
func (s *Server) handle(r *http.Request, body []byte) (Move, *answer) {
	s.turn.Lock()
	defer s.turn.Unlock()
	seen := Request{Method: r.Method, Target: r.RequestURI, Header: r.Header.Clone(), Body: string(body)}
	seen.IsRead = r.Method == http.MethodGet || r.Method == http.MethodHead || s.spec.Reads != nil && s.spec.Reads(r, body)
	move, a := Answer, &answer{header: http.Header{}}
	if !seen.IsRead {
		s.writes++
		r.Body = io.NopCloser(bytes.NewReader(body))
		move = s.script(r, s.writes)
	}
	if move != DropBefore {
		before := s.Ledger.Effects()
		r.Body = io.NopCloser(bytes.NewReader(body))
		s.handler.ServeHTTP(a, r)
		seen.Effects, seen.Status = s.Ledger.Effects()-before, a.status
		seen.Answer = string(bytes.Join(a.pieces, nil))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.requests = append(s.requests, seen)
	close(s.arrived)
	s.arrived = make(chan struct{})
	return move, a
}

// An answer is one that the handler has written and nobody has seen.
type answer struct {
	header http.Header
	status int
	pieces [][]byte
	isCut  bool
}

func (a *answer) Header() http.Header { return a.header }

func (a *answer) WriteHeader(status int) {
	if a.status == 0 {
		a.status = status
	}
}

func (a *answer) Write(p []byte) (int, error) {
	a.WriteHeader(http.StatusOK)
	if len(a.pieces) == 0 || a.isCut {
		a.pieces = append(a.pieces, nil)
		a.isCut = false
	}
	last := len(a.pieces) - 1
	a.pieces[last] = append(a.pieces[last], p...)
	return len(p), nil
}

// Flush ends a piece.
func (a *answer) Flush() {
	a.WriteHeader(http.StatusOK)
	a.isCut = true
}

func (a *answer) send(w http.ResponseWriter) {
	a.sendHead(w)
	for i, p := range a.pieces {
		_, _ = w.Write(p) // the client may be gone
		if i < len(a.pieces)-1 || a.isCut {
			flush(w)
		}
	}
}

func (a *answer) sendFirst(w http.ResponseWriter) {
	if len(a.pieces) == 0 {
		return
	}
	first := a.pieces[0]
	if len(a.pieces) == 1 {
		w.Header().Set("Content-Length", fmt.Sprint(len(first)))
		first = first[:len(first)/2]
	}
	a.sendHead(w)
	_, _ = w.Write(first)
	flush(w)
}

func (a *answer) sendHead(w http.ResponseWriter) {
	maps.Copy(w.Header(), a.header)
	w.WriteHeader(max(a.status, http.StatusOK))
}

func flush(w http.ResponseWriter) { _ = http.NewResponseController(w).Flush() }

// reset ends the connection at once.
func reset(w http.ResponseWriter) {
	conn, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return // not HTTP/1: the server ends the stream
	}
	if tcp, ok := conn.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0) // sends RST
	}
	_ = conn.Close()
}

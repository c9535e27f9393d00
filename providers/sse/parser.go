package sse

import "bytes"

// An Event is one event of a stream. Its slices are valid only during the call
// that hands it over.
type Event struct {
	// Name is the event's type, "" where the stream names none.
	Name string
	Data []byte
	// ID is the last id that the stream has given, which may be an earlier event's.
	ID string
}

// A Parser hands the events of a stream over as they come, in bounded memory. Its
// zero value is of no use; see [New]. It is used by one goroutine.
type Parser struct {
	each     func(Event)
	tooLong  func()
	bytesMax int

	line  []byte
	name  string
	data  []byte
	id    string
	last  string
	isCR  bool // the last byte was a CR, which a LF may belong to
	isCut bool // this event is too long
	began bool // the first line may begin with a byte order mark
}

// New returns a parser that calls each for every event, and tooLong (which may
// be nil) for one of more than bytesMax bytes, which is passed over.
func New(bytesMax int, each func(Event), tooLong func()) *Parser {
	return &Parser{each: each, tooLong: tooLong, bytesMax: bytesMax}
}

// Write takes the next bytes of the stream, split anywhere.
func (p *Parser) Write(piece []byte) {
	for len(piece) > 0 {
		if p.isCR && piece[0] == '\n' {
			piece = piece[1:]
		}
		p.isCR = false
		at := bytes.IndexAny(piece, "\r\n")
		if at < 0 {
			p.add(piece)
			return
		}
		p.add(piece[:at])
		p.isCR = piece[at] == '\r'
		piece = piece[at+1:]
		p.endLine()
	}
}

func (p *Parser) add(piece []byte) {
	switch {
	case len(piece) == 0 || p.isCut && len(p.line) > 0:
	case p.isCut || len(p.line)+len(p.data)+len(piece) > p.bytesMax:
		if !p.isCut && p.tooLong != nil {
			p.tooLong()
		}
		p.isCut = true
		p.line, p.data = append(p.line[:0], ':'), nil // a comment, which is passed over
	default:
		p.line = append(p.line, piece...)
	}
}

func (p *Parser) endLine() {
	line := p.line
	p.line = p.line[:0]
	if !p.began {
		p.began = true
		line = bytes.TrimPrefix(line, []byte("\xef\xbb\xbf"))
	}
	if len(line) == 0 {
		p.dispatch()
		return
	}
	name, value, _ := bytes.Cut(line, []byte(":"))
	value = bytes.TrimPrefix(value, []byte(" "))
	switch string(name) {
	case "event":
		p.name = string(value)
	case "data":
		p.data = append(append(p.data, value...), '\n')
	case "id":
		if bytes.IndexByte(value, 0) < 0 {
			p.id = string(value)
		}
	}
}

// dispatch ends an event. One that no empty line follows is dropped, as a client
// does.
func (p *Parser) dispatch() {
	p.last = p.id
	if len(p.data) > 0 && !p.isCut {
		p.each(Event{Name: p.name, Data: p.data[:len(p.data)-1], ID: p.id})
	}
	p.name, p.data, p.isCut = "", p.data[:0], false
}

// LastID is the id that a client names to resume the stream after the events that
// have ended by now, with data or without; "" if the stream has given none.
func (p *Parser) LastID() string { return p.last }

// AtBoundary reports whether no event has begun that is not handed over yet.
func (p *Parser) AtBoundary() bool { return len(p.line) == 0 && len(p.data) == 0 && p.name == "" }

// A Gate lets a stream through event by event, and keeps back what follows once
// isLast says that the event that tells the result has come: whoever has that
// event has the answer, be the stream at its end or not. It is used by one
// goroutine.
type Gate struct {
	parser *Parser
	isLast func() bool
	held   []byte
	passed []byte
	isShut bool
}

// NewGate returns a gate that writes what comes to the parser.
func NewGate(p *Parser, isLast func() bool) *Gate { return &Gate{parser: p, isLast: isLast} }

// Write takes the next bytes of the stream.
func (g *Gate) Write(piece []byte) {
	for len(piece) > 0 {
		end := bytes.IndexAny(piece, "\r\n") + 1
		if end == 0 {
			end = len(piece)
		}
		g.parser.Write(piece[:end])
		g.held = append(g.held, piece[:end]...)
		piece = piece[end:]
		if g.isShut = g.isShut || g.isLast(); g.isShut {
			continue
		}
		if g.parser.AtBoundary() || len(g.held) > g.parser.bytesMax {
			g.passed, g.held = append(g.passed, g.held...), g.held[:0]
		}
	}
}

// Take returns what may be passed on by now; it is valid until the next Write.
func (g *Gate) Take() []byte {
	passed := g.passed
	g.passed = g.passed[len(g.passed):]
	return passed
}

// Rest is what was kept back.
func (g *Gate) Rest() []byte { return g.held }

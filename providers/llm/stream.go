package llm

import "bytes"

// eventBytesMax bounds one event. Models' are small, but for pictures and for
// the one in which a response says all of itself again.
const eventBytesMax = 4 << 20

// A stream hands the events of a stream to a reader (WHATWG HTML, section
// 9.2.6), in memory that is bounded.
type stream struct {
	to reader
	// hasGap: an event was too long to be read.
	hasGap bool

	line  []byte
	name  string
	data  []byte
	isCR  bool // the last byte was a CR, which a LF may belong to
	isCut bool // this event is too long
}

func newStream(to reader) *stream { return &stream{to: to} }

func (s *stream) write(piece []byte) {
	for len(piece) > 0 {
		if s.isCR && piece[0] == '\n' {
			piece = piece[1:]
		}
		s.isCR = false
		at := bytes.IndexAny(piece, "\r\n")
		if at < 0 {
			s.add(piece)
			return
		}
		s.add(piece[:at])
		s.isCR = piece[at] == '\r'
		piece = piece[at+1:]
		s.endLine()
	}
}

// end drops an event that no empty line follows, as a client does.
func (s *stream) end() {}

func (s *stream) add(piece []byte) {
	switch {
	case len(piece) == 0:
	case s.isCut || len(s.line)+len(s.data)+len(piece) > eventBytesMax:
		s.isCut, s.hasGap = true, true
		s.to.account().lose("an event is too long to be read")
		s.line, s.data = append(s.line[:0], ':'), nil // a comment, which is passed over
	default:
		s.line = append(s.line, piece...)
	}
}

func (s *stream) endLine() {
	line := s.line
	s.line = s.line[:0]
	if len(line) == 0 {
		s.dispatch()
		return
	}
	name, value, _ := bytes.Cut(line, []byte(":"))
	value = bytes.TrimPrefix(value, []byte(" "))
	switch string(name) {
	case "event":
		s.name = string(value)
	case "data":
		s.data = append(append(s.data, value...), '\n')
	}
}

func (s *stream) dispatch() {
	if len(s.data) > 0 && !s.isCut {
		s.to.event(s.name, s.data[:len(s.data)-1])
	}
	s.name, s.data, s.isCut = "", s.data[:0], false
}

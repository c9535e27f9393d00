package llm

import "counterfoil/providers/sse"

// eventBytesMax bounds one event. Models' are small, but for pictures and for
// the one in which a response says all of itself again.
const eventBytesMax = 4 << 20

// A stream hands the events of a stream to a reader.
type stream struct {
	parser *sse.Parser
	// gate keeps back the event that ends the model's answer: whoever has it acts.
	gate *sse.Gate
	// hasGap: an event was too long to be read.
	hasGap bool
}

func newStream(to reader) *stream {
	s := &stream{}
	s.parser = sse.New(eventBytesMax, func(e sse.Event) { to.event(e.Name, e.Data) }, func() {
		s.hasGap = true
		to.account().lose("an event is too long to be read")
	})
	s.gate = sse.NewGate(s.parser, func() bool { a := to.account(); return a.isEnded || a.isFailed })
	return s
}

func (s *stream) write(piece []byte) { s.gate.Write(piece) }

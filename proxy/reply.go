package proxy

import (
	"context"
	"strconv"

	"counterfoil/classify"
	"counterfoil/internal/crashpoint"
	"counterfoil/internal/journal"
)

// conclude gives the client what the journal says of its call.
func (x *exchange) conclude(ctx context.Context, s *stream, r *journal.Reply) {
	crashpoint.Reach(crashpoint.ReplyBefore)
	switch {
	case r.Streamed && r.Broken:
		s.out.cut()
	case r.Streamed:
		s.end()
	case r.Refusal != nil:
		x.refuseReply(r)
	default:
		x.answerReply(ctx, r)
	}
}

// answerReply gives the client a provider's answer that is on record.
func (x *exchange) answerReply(ctx context.Context, r *journal.Reply) {
	a := x.answerOf(r)
	if x.bodyAllowed(r.Status) && x.isRuledOut(r) {
		x.decoded(ctx, &a, r)
		return
	}
	if r.Bytes != nil || r.Body.Bytes == 0 {
		if !x.tellsNoLength(r) {
			a.length = int64(len(r.Bytes))
		}
		x.whole(&a, r.Bytes)
		return
	}
	a.length = r.Body.Bytes
	out := x.begin(&a)
	if err := x.journal.ReadBody(ctx, r.Body, out.piece); err != nil {
		out.cut()
		return
	}
	out.end()
}

// tellsNoLength reports whether an answer without a body stands for one that has
// one, of a length that is not on record (RFC 9110 section 8.6).
func (x *exchange) tellsNoLength(r *journal.Reply) bool {
	return r.Status == 304 || x.method == "HEAD" && r.Record != nil && r.Record.Intent.Method == "HEAD"
}

// answerOf is the head of a provider's answer to a journaled call.
func (x *exchange) answerOf(r *journal.Reply) answer {
	a := answer{status: r.Status, header: r.Header, length: -1, own: ownFields(r)}
	if r.Outcome == journal.Replayed || r.Outcome == journal.Coalesced || r.Outcome == journal.Recovered {
		a.own = append(a.own, classify.Field{Name: "Idempotent-Replayed", Value: "true"})
	}
	return a
}

func ownFields(r *journal.Reply) classify.Header {
	h := make(classify.Header, 0, 4)
	if r.SentKey != "" {
		h = append(h, classify.Field{Name: "Counterfoil-Key", Value: r.SentKey})
	}
	if n := r.Attempts(); n > 0 {
		h = append(h, classify.Field{Name: "Counterfoil-Attempt", Value: strconv.FormatUint(uint64(n), 10)})
	}
	return append(h, classify.Field{Name: "Counterfoil-Outcome", Value: string(r.Outcome)})
}

// A stream passes a journaled answer on as it comes, all but its end.
type stream struct {
	exchange *exchange
	out      *outgoing
	// left is how much is still to come of a body of declared length; below 0
	// where none was declared.
	left int64
	// last is the last byte of a body of declared length: whoever has it has the
	// whole answer, so it waits for the receipt.
	last []byte
}

// Head is [journal.Stream].
func (s *stream) Head(r *journal.Reply) {
	a := s.exchange.answerOf(r)
	a.length, s.left = r.Length, r.Length
	s.out = s.exchange.begin(&a)
}

// Write is [journal.Stream].
func (s *stream) Write(piece []byte) error {
	s.left -= int64(len(piece))
	if n := len(piece) - 1; s.left == 0 && n >= 0 {
		s.last, piece = []byte{piece[n]}, piece[:n]
	}
	return s.out.piece(piece)
}

// end is called once the receipt is durable.
func (s *stream) end() {
	_ = s.out.piece(s.last) // the error stays in out
	s.out.end()
}

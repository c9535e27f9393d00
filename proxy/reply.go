package proxy

import (
	"context"
	"strconv"

	"counterfoil/classify"
	"counterfoil/internal/crashpoint"
	"counterfoil/internal/journal"
)

// conclude gives the client what the journal says of its call, and reports
// whether the end of it arrived, as far as can be told.
func (x *exchange) conclude(ctx context.Context, s *stream, r *journal.Reply) journal.Arrival {
	crashpoint.Reach(crashpoint.ReplyBefore)
	switch {
	case r.Streamed && r.Broken:
		s.out.cut()
		return journal.NotArrived
	case r.Streamed:
		return s.end(ctx, r)
	case r.Refusal != nil:
		x.refuseReply(r)
		return journal.NotArrived
	}
	return x.answerReply(ctx, r)
}

// answerReply gives the client a provider's answer that is on record.
func (x *exchange) answerReply(ctx context.Context, r *journal.Reply) journal.Arrival {
	a := x.answerOf(r)
	hasBody := x.bodyAllowed(r.Status)
	if hasBody && x.isRuledOut(r) {
		return x.decoded(ctx, &a, r)
	}
	isAtHand := r.Bytes != nil || r.Body.Bytes == 0
	switch {
	case !isAtHand:
		a.length = r.Body.Bytes
	case !x.tellsNoLength(r):
		a.length = int64(len(r.Bytes))
	}
	if hasBody && !(isAtHand && (len(r.Bytes) <= journal.AtOnceMax || !r.Counts())) {
		return x.piecemeal(ctx, &a, r)
	}
	isThere, refusal := x.ending(ctx, r)
	if refusal != nil {
		x.refuseReply(&journal.Reply{Outcome: journal.Refused, Refusal: refusal, Record: r.Record, SentKey: r.SentKey})
		return journal.NotArrived
	}
	return arrival(x.whole(&a, r.Bytes), isThere)
}

// piecemeal answers with a body of known length, its end apart where that counts.
func (x *exchange) piecemeal(ctx context.Context, a *answer, r *journal.Reply) journal.Arrival {
	s := &stream{exchange: x, out: x.begin(a), left: -1}
	if r.Counts() {
		s.left = a.length
	}
	if x.replay(ctx, r, s.Write) != nil {
		s.out.cut()
		return journal.NotArrived
	}
	return s.end(ctx, r)
}

// ending is called when one write is left of an answer. The client's place among
// equal calls is durable once it returns, and the last look whether there is a
// client falls right before that write.
func (x *exchange) ending(ctx context.Context, r *journal.Reply) (isThere bool, refusal *journal.Refusal) {
	if !r.Counts() {
		return true, nil
	}
	if refusal := x.journal.Ending(ctx, r); refusal != nil {
		return false, refusal
	}
	return x.conn.present(), nil
}

func arrival(err error, isThere bool) journal.Arrival {
	if err != nil || !isThere {
		return journal.NotArrived
	}
	return journal.Arrived
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
	h := make(classify.Header, 0, 5)
	if r.SentKey != "" {
		h = append(h, classify.Field{Name: "Counterfoil-Key", Value: r.SentKey})
	}
	if n := r.Attempts(); n > 0 {
		h = append(h, classify.Field{Name: "Counterfoil-Attempt", Value: strconv.FormatUint(uint64(n), 10)})
	}
	if r.Diverged {
		h = append(h, classify.Field{Name: "Counterfoil-Diverged", Value: "true"})
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

// end is called once the receipt is durable and all but the end is out.
func (s *stream) end(ctx context.Context, r *journal.Reply) journal.Arrival {
	if s.out.err != nil {
		s.out.cut()
		return journal.NotArrived
	}
	isThere, refusal := s.exchange.ending(ctx, r)
	if refusal != nil {
		s.out.cut()
		return journal.NotArrived
	}
	_ = s.out.piece(s.last) // the error stays in out
	_ = s.out.piece(r.Rest)
	s.out.end()
	return arrival(s.out.err, isThere)
}

package proxy

import (
	"context"
	"io"
	"time"

	"counterfoil/classify"
	"counterfoil/internal/journal"
)

// pass sends a read on and its answer back, as it comes.
func (x *exchange) pass(ctx context.Context, r *classify.Request) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stop := x.conn.watch(cancel)
	defer stop()
	resp := x.journal.Pass(ctx, r, x.reading)
	if resp.Evidence != classify.Answered {
		x.refuse(unanswered(resp))
		return
	}
	defer resp.Body.Close()
	if x.relay(resp) {
		x.aside(journal.Passthrough, "")
	}
}

func unanswered(resp *classify.Response) *journal.Refusal {
	if resp.Evidence == classify.Unsent {
		return &journal.Refusal{
			Problem: journal.UpstreamUnreachable, RetryAfter: time.Second,
			Detail: "Not one byte of the request was sent (" + resp.Reason + "), so it is safe to send it again.",
		}
	}
	return &journal.Refusal{
		Problem: UpstreamFailed, RetryAfter: time.Second,
		Detail: "The upstream gave no whole answer (" + resp.Reason + "). This was a read, so it is safe to send it again.",
	}
}

// relay passes an answer on. A short one of known length is read first, so that
// one write carries it and a cut one never begins; false means that it was
// refused.
func (x *exchange) relay(resp *classify.Response) bool {
	a := answer{status: resp.Status, header: resp.Header, length: resp.Length, own: classify.Header{{Name: "Counterfoil-Outcome", Value: string(journal.Passthrough)}}}
	buffer := x.scratch.Get().(*[]byte)
	defer x.scratch.Put(buffer)
	if resp.Length >= 0 && resp.Length <= pieceBytes && x.bodyAllowed(resp.Status) {
		body := (*buffer)[:resp.Length]
		if _, err := io.ReadFull(resp.Body, body); err != nil {
			resp.Reason = "the answer broke off"
			x.refuse(unanswered(&classify.Response{Evidence: classify.Lost, Reason: resp.Reason}))
			return false
		}
		_ = x.whole(&a, body) // the connection is closed then
		return true
	}
	out := x.begin(&a)
	for out.err == nil {
		n, err := resp.Body.Read((*buffer)[:pieceBytes])
		if n > 0 {
			_ = out.piece((*buffer)[:n]) // the error stays in out
		}
		if err == io.EOF {
			out.end()
			return true
		}
		if err != nil {
			break
		}
	}
	out.cut()
	return true
}

package proxy

import (
	"context"
	"errors"
	"io"
	"strconv"
	"strings"
	"time"

	"counterfoil/classify"
	"counterfoil/internal/crashpoint"
	"counterfoil/internal/journal"
	"counterfoil/keystore"
)

// forward carries a request for an upstream out.
func (x *exchange) forward(ctx context.Context) {
	body, release, refusal := x.readBody(ctx)
	defer release()
	if refusal != nil {
		x.close, x.conn.linger = true, true
		x.refuse(refusal)
		return
	}
	call := journal.Call{
		Key: x.key(), OwnKey: x.claim.ownKey, OwnKeyRaw: x.claim.ownKeyRaw,
		Wait: patience(x.header), Request: x.request(body),
	}
	class, journaled := x.journal.Class(&call.Request)
	if class == classify.Read && !journaled && !x.wantsRecord() {
		x.pass(ctx, &call.Request)
		return
	}
	if refusal := x.needIdentity(); refusal != nil {
		x.refuse(refusal)
		return
	}
	s := &stream{exchange: x}
	x.conclude(ctx, s, x.journal.Do(ctx, &call, s))
}

// request is what goes on to the journal: hop-by-hop fields and what speaks to
// Counterfoil alone removed, everything else as it came.
func (x *exchange) request(body []byte) classify.Request {
	h := withoutOwn(classify.EndToEnd(x.header))
	kept := h[:0]
	for _, f := range h {
		if !strings.EqualFold(f.Name, "Host") && !strings.EqualFold(f.Name, "Expect") {
			kept = append(kept, f)
		}
	}
	return classify.Request{Upstream: x.route.upstream.name, Method: x.method, Target: x.route.target, Header: kept, Body: body}
}

func (x *exchange) wantsRecord() bool {
	return strings.EqualFold(x.header.Value("Counterfoil-Record"), "true")
}

// needIdentity refuses a call that nobody could recognise again.
func (x *exchange) needIdentity() *journal.Refusal {
	const ways = " Name it in one of these ways: the header fields Counterfoil-Run, Counterfoil-Turn and Counterfoil-Call; " +
		"a base URL that begins with /@run:turn:call/; W3C baggage with counterfoil.run, counterfoil.turn and counterfoil.call; " +
		"or an Idempotency-Key of your own. Nothing was sent."
	switch {
	case x.claim.call == "":
		return &journal.Refusal{Problem: MissingKey, Detail: "This request may change something outside, so it needs the id of its tool call, the same at every repeat." + ways}
	case x.claim.run == "":
		return &journal.Refusal{Problem: MissingKey, Detail: "This request names a call but no run, and call ids are told apart by run only." + ways}
	}
	return nil
}

// patience is how long the client wants to wait (Prefer: wait=N, RFC 7240
// section 4.3). What cannot be read is passed over, as preferences are; so is
// respond-async.
func patience(h classify.Header) time.Duration {
	for i := range h {
		if !strings.EqualFold(h[i].Name, "Prefer") {
			continue
		}
		for preference := range strings.SplitSeq(h[i].Value, ",") {
			preference, _, _ = strings.Cut(preference, ";")
			name, value, _ := strings.Cut(preference, "=")
			if !strings.EqualFold(strings.TrimSpace(name), "wait") {
				continue
			}
			seconds, err := strconv.ParseUint(strings.Trim(strings.TrimSpace(value), `"`), 10, 31)
			if err == nil {
				return min(time.Duration(seconds)*time.Second, journal.WaitMax)
			}
		}
	}
	return journal.WaitDefault
}

func nothing() {}

// readBody reads the whole body. Large ones share a bounded memory, from which
// release gives their part back.
func (x *exchange) readBody(ctx context.Context) (body []byte, release func(), refusal *journal.Refusal) {
	if !x.hasBody() || x.body == nil {
		return nil, nothing, nil
	}
	if x.bodyBytes >= 0 && x.bodyBytes <= bodyBytesSmall {
		body = make([]byte, x.bodyBytes)
		_, err := io.ReadFull(x.body, body)
		return body, nothing, unread(err)
	}
	if x.bodyBytes == -1 {
		body, err := io.ReadAll(io.LimitReader(x.body, bodyBytesSmall+1))
		if err != nil || len(body) <= bodyBytesSmall {
			return body, nothing, unread(err)
		}
		return x.readLarge(ctx, body, BodyBytesMax+1)
	}
	return x.readLarge(ctx, nil, int(x.bodyBytes))
}

// readLarge reads on to the end, or to most bytes, whichever is nearer. A whole
// share is taken at once: those who wait for more while they hold some could
// wait for each other.
func (x *exchange) readLarge(ctx context.Context, body []byte, most int) ([]byte, func(), *journal.Refusal) {
	share := int64(min(most, BodyBytesMax))
	ctx, cancel := context.WithTimeout(ctx, x.limits.LargeWait)
	defer cancel()
	if x.large.Acquire(ctx, share) != nil {
		return nil, nothing, &journal.Refusal{
			Problem: Overloaded, RetryAfter: time.Second,
			Detail: "Other large requests take all the memory that there is for them. Nothing was sent. Send the same key again.",
		}
	}
	release := func() { x.large.Release(share) }
	whole := make([]byte, len(body), most)
	copy(whole, body)
	whole, err := fill(whole, x.body)
	switch {
	case err != nil:
		return nil, release, unread(err)
	case len(whole) > BodyBytesMax:
		return nil, release, tooLarge
	case x.bodyBytes > int64(len(whole)):
		return nil, release, unread(io.ErrUnexpectedEOF)
	}
	return whole, release, nil
}

// fill appends what comes, to the end or up to b's capacity.
func fill(b []byte, r io.Reader) ([]byte, error) {
	for len(b) < cap(b) {
		n, err := r.Read(b[len(b):cap(b)])
		b = b[:len(b)+n]
		if err == io.EOF {
			return b, nil
		}
		if err != nil {
			return b, err
		}
	}
	return b, nil
}

// unread is the refusal for a body that did not come whole.
func unread(err error) *journal.Refusal {
	switch {
	case err == nil:
		return nil
	case isTimeout(err):
		return timedOut
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return malformed("The body is shorter than the request says.")
	}
	return malformed("The body is not well-formed.")
}

// pass sends a read on and its answer back, as it comes.
func (x *exchange) pass(ctx context.Context, r *classify.Request) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stop := x.conn.watch(cancel)
	defer stop()
	resp := x.journal.Pass(ctx, r)
	if resp.Evidence != classify.Answered {
		x.refuse(unanswered(resp))
		return
	}
	defer resp.Body.Close()
	x.relay(resp)
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
// one write carries it and a cut one never begins.
func (x *exchange) relay(resp *classify.Response) {
	a := answer{status: resp.Status, header: resp.Header, length: resp.Length, own: classify.Header{{Name: "Counterfoil-Outcome", Value: string(journal.Passthrough)}}}
	buffer := x.scratch.Get().(*[]byte)
	defer x.scratch.Put(buffer)
	if resp.Length >= 0 && resp.Length <= pieceBytes && x.bodyAllowed(resp.Status) {
		body := (*buffer)[:resp.Length]
		if _, err := io.ReadFull(resp.Body, body); err != nil {
			resp.Reason = "the answer broke off"
			x.refuse(unanswered(&classify.Response{Evidence: classify.Lost, Reason: resp.Reason}))
			return
		}
		x.whole(&a, body)
		return
	}
	out := x.begin(&a)
	for out.err == nil {
		n, err := resp.Body.Read((*buffer)[:pieceBytes])
		if n > 0 {
			out.piece((*buffer)[:n])
		}
		if err == io.EOF {
			out.end()
			return
		}
		if err != nil {
			break
		}
	}
	out.cut()
}

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

// refuse answers with a problem of this package's own.
func (x *exchange) refuse(r *journal.Refusal) {
	k := x.key()
	var sentKey string
	if k.Validate() == nil {
		if sentKey = x.claim.ownKey; sentKey == "" {
			sentKey = string(k.ProviderKey())
		}
	}
	reply := &journal.Reply{Outcome: journal.Refused, Refusal: r, SentKey: sentKey}
	x.refuseReply(reply)
}

// refuseReply answers with a problem.
func (x *exchange) refuseReply(r *journal.Reply) {
	k := x.key()
	d, h := document(r.Refusal, k, r.SentKey, x.instance(r.Refusal, k))
	if r.Refusal.Problem == MethodNotAllowed {
		h = append(h, classify.Field{Name: "Allow", Value: x.allowed()})
	}
	body := d.body()
	x.whole(&answer{status: d.Status, header: h, own: ownFields(r), length: int64(len(body))}, body)
	upstream := ""
	if x.route.upstream != nil {
		upstream = x.route.upstream.name
	}
	x.log.Debug("refused", "problem", string(r.Refusal.Problem), "status", d.Status, "method", x.method,
		"upstream", upstream, "run", k.Run, "turn", k.Turn, "call", k.Call)
}

// instance is where to act on what waits for a person, else where the call's
// record is.
func (x *exchange) instance(r *journal.Refusal, k keystore.Key) string {
	if k.Validate() != nil {
		return ""
	}
	if stops(problems[row(r.Problem)].status) && x.adminURL != "" {
		return x.adminURL + "/?namespace=" + queryEscape(k.Namespace) + "&call=" + queryEscape(k.String())
	}
	return callPath(k)
}

package proxy

import (
	"cmp"
	"context"
	"errors"
	"strconv"
	"strings"
	"time"

	"counterfoil/classify"
	"counterfoil/internal/journal"
	"counterfoil/keystore"
	"counterfoil/providers"
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
	request := x.request(body)
	question, unsent := x.journal.Read(&request)
	x.reading = question.Reading
	if unsent != nil {
		x.refuseUnread(unsent)
		return
	}
	if refusal := x.identifyContent(); refusal != nil {
		x.refuse(refusal)
		return
	}
	call := journal.Call{
		Key: x.key(), Reading: x.reading, OwnKey: x.claim.ownKey, OwnKeyRaw: x.claim.ownKeyRaw,
		Fence: x.claim.fence, FlowVersion: x.claim.flowVersion, Request: request,
		Alive: x.conn.present,
	}
	var asked bool
	if call.Wait, asked = patience(x.header); asked && len(body) <= bodyBytesSmall {
		// A large one would keep its share of the memory from all others for as long
		// as a person takes.
		call.HeldWait = call.Wait
	}
	passes := x.reading.Passes()
	if passes || question.Class == classify.Read && !question.Journaled && !x.wantsRecord() && !x.wasJournaled(ctx) {
		x.pass(ctx, &call.Request)
		return
	}
	if refusal := x.needIdentity(); refusal != nil {
		x.refuse(refusal)
		return
	}
	if x.claim.call == "" {
		call.Ordinal = x.counted()
	}
	defer x.journal.KeepLease(call.Key.Namespace, call.Key.Run, call.Fence, x.conn.present)()
	s := &stream{exchange: x}
	reply := x.journal.Do(ctx, &call, s)
	x.claim.call = call.Key.Call
	x.journal.Ended(reply, x.conclude(ctx, s, reply))
}

// identifyContent takes what the request's content says about whose it is into
// account: after path and header fields, before baggage.
func (x *exchange) identifyContent() *journal.Refusal {
	said, err := x.reading.Identity()
	if err != nil {
		return &journal.Refusal{Problem: InvalidKey, Detail: sentence(err) + " Nothing was sent."}
	}
	if said == (providers.Identity{}) {
		return nil
	}
	return x.identify(identity{run: said.Run, turn: said.Turn, call: said.Call})
}

// refuseUnread answers for a request that must not be sent, as its content shows.
func (x *exchange) refuseUnread(r *providers.Refusal) {
	if r.Answer == nil {
		x.refuse(&journal.Refusal{Problem: journal.InvalidRequest, Detail: r.Reason + " Nothing was sent."})
		return
	}
	x.answerOwn(r.Answer, journal.InvalidRequest)
}

// answerOwn answers in the client's dialect, on the sidecar's own account.
func (x *exchange) answerOwn(a *providers.Answer, problem journal.Problem) {
	own := classify.Header{{Name: "Counterfoil-Outcome", Value: string(journal.Refused)}}
	_ = x.whole(&answer{status: a.Status, header: a.Header, length: int64(len(a.Body)), own: own}, a.Body) // the connection is closed then
	x.aside(journal.Refused, problem)
}

// counted says what is known of a call that its agent has no id for.
func (x *exchange) counted() *journal.Counted {
	life, _ := x.claim.life()
	tie, isRetry := sdkRetry(x.header)
	return &journal.Counted{Incarnation: life, Tie: cmp.Or(x.claim.tie, tie), Retry: isRetry}
}

// wasJournaled reports whether a call that would be passed through as a read
// was journaled as something else, before the configuration was changed: then
// what is on record answers, or is recovered. A store that cannot tell counts
// as yes. What says of itself that it only reads needs no record: a GraphQL
// client asks for what it made under the same identity.
func (x *exchange) wasJournaled(ctx context.Context) bool {
	switch x.method {
	case "GET", "HEAD", "OPTIONS":
		return false
	}
	if x.reading.SaysItReads() {
		return false
	}
	k := x.key()
	if k.Validate() != nil {
		return false
	}
	_, err := x.records.Call(ctx, k)
	return !errors.Is(err, keystore.ErrNotFound)
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
		"or an Idempotency-Key of your own. An agent that has no ids can say which of its lives this is instead, with a base URL that begins with " +
		"/@run;i=N/ or the field Counterfoil-Incarnation, N growing by 1 with each start: then equal calls are counted. Nothing was sent."
	_, isCounted := x.claim.life()
	switch {
	case x.claim.call == "" && isCounted && x.claim.run == "":
		return &journal.Refusal{Problem: MissingKey, Detail: "This request names an incarnation or a fence but no run, and calls are told apart by run." + ways}
	case x.claim.call == "" && isCounted:
		return nil
	case x.claim.call == "":
		return &journal.Refusal{Problem: MissingKey, Detail: "This request may change something outside, so it needs the id of its tool call, the same at every repeat." + ways}
	case x.claim.run == "":
		return &journal.Refusal{Problem: MissingKey, Detail: "This request names a call but no run, and call ids are told apart by run only." + ways}
	}
	return nil
}

// patience is how long the client wants to wait (Prefer: wait=N, RFC 7240
// section 4.3), and whether it said so. What cannot be read is passed over, as
// preferences are; so is respond-async.
func patience(h classify.Header) (wait time.Duration, asked bool) {
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
				return min(time.Duration(seconds)*time.Second, journal.WaitMax), true
			}
		}
	}
	return journal.WaitDefault, false
}

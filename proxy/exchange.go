package proxy

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"io"
	"net"
	"strings"
	"time"

	"counterfoil/classify"
	"counterfoil/internal/journal"
	"counterfoil/keystore"
	"counterfoil/providers"

	"github.com/valyala/fasthttp"
)

// An exchange is one request and its answer.
type exchange struct {
	*Server
	conn      *conn
	method    string
	header    classify.Header // as it came
	namespace string
	route     route
	claim     claim
	// reading is what the journal has made of the request; nil before that.
	reading *providers.Reading
	// about is what a request to the sidecar itself is about, as far as that is
	// known; its parts may be empty.
	about keystore.Key
	// body is the request's body, not yet read; bodyBytes is its declared
	// length, -1 where it is chunked.
	body      io.Reader
	bodyBytes int64
	// bodyRead says that the body was read to its end.
	bodyRead bool
	// methods are those of a path of the agent API.
	methods methods
	began   time.Time
	// close says that the connection ends with the answer.
	close bool
	// http10 says that the client cannot read chunks.
	http10 bool
}

// serve answers one request.
func (s *Server) serve(ctx context.Context, rc *fasthttp.RequestCtx) {
	x, refusal := s.open(rc)
	defer func() {
		if x.close {
			rc.SetConnectionClose()
		}
	}()
	switch {
	case refusal != nil:
		x.refuse(refusal)
	case x.route.upstream == nil:
		x.api(ctx)
	default:
		x.forward(ctx)
	}
}

// expect decides about a request that waits for leave to send its body (RFC
// 9110 section 10.1.1): what is refused anyway is refused at once.
func (s *Server) expect(rc *fasthttp.RequestCtx) int {
	x, refusal := s.open(rc)
	if refusal != nil {
		x.close = true
		x.refuse(refusal)
		return fasthttp.StatusExpectationFailed // nobody sees it: the answer is out
	}
	if x.conn.send([]byte("HTTP/1.1 100 Continue\r\n\r\n")) != nil {
		x.close = true
	}
	return fasthttp.StatusContinue
}

// misread answers for a request that fasthttp cannot read.
func (s *Server) misread(rc *fasthttp.RequestCtx, err error) {
	c := rc.Conn().(*conn) //nolint:forcetypeassert // the listener accepts no other
	if !c.heard {
		return // closed or timed out between requests
	}
	x := &exchange{Server: s, conn: c, began: time.Now(), close: true}
	c.linger = true
	var tooLong *fasthttp.ErrSmallBuffer
	switch {
	case isTimeout(err):
		x.refuse(timedOut)
	case errors.As(err, &tooLong):
		x.refuse(&journal.Refusal{Problem: HeaderTooLarge, Detail: "The head of a request is at most 64 KiB. Nothing was sent."})
	default:
		x.refuse(malformed("The request is not well-formed HTTP/1.1."))
	}
}

var timedOut = &journal.Refusal{Problem: RequestTimeout, Detail: "The request did not come to its end in time. Nothing was sent. Send it again.", RetryAfter: time.Second}

func malformed(detail string) *journal.Refusal {
	return &journal.Refusal{Problem: journal.InvalidRequest, Detail: detail + " Nothing was sent."}
}

func isTimeout(err error) bool {
	var e net.Error
	return errors.As(err, &e) && e.Timeout()
}

// open reads the head and settles where the request goes and whose it is. It
// copies what it keeps: fasthttp's buffers are used again. The exchange is never
// nil.
func (s *Server) open(rc *fasthttp.RequestCtx) (*exchange, *journal.Refusal) {
	h := &rc.Request.Header
	x := &exchange{ //nolint:forcetypeassert // the listener accepts no other
		Server: s, conn: rc.Conn().(*conn), method: string(h.Method()), namespace: s.namespace,
		body:  rc.RequestBodyStream(),
		close: h.ConnectionClose(), http10: !h.IsHTTP11(),
	}
	head, err := parseHead(string(h.RawHeaders()))
	if err == nil {
		x.bodyBytes, err = framing(head)
	}
	if proto := string(h.Protocol()); err == nil && proto != "HTTP/1.1" && proto != "HTTP/1.0" {
		err = errors.New("the protocol is neither HTTP/1.1 nor HTTP/1.0")
	}
	if err != nil {
		// Where the next request begins is anyone's guess.
		x.close, x.conn.linger, x.body = true, true, nil
		return x, malformed(sentence(err))
	}
	x.header = head
	refusal := x.admit(string(h.RequestURI()))
	if refusal != nil && x.hasBody() {
		x.close, x.conn.linger = true, true
	}
	return x, refusal
}

func (x *exchange) hasBody() bool { return x.bodyBytes > 0 || x.bodyBytes == -1 }

// admit checks, in this order: who may come in, where the request goes, whose
// it is, and that it is not too large.
func (x *exchange) admit(target string) *journal.Refusal {
	if !x.guard.admits(x.header, x.conn.LocalAddr()) {
		return &journal.Refusal{Problem: HostNotAllowed, Detail: "The Host or Origin of this request is neither loopback nor allowed. Add it to COUNTERFOIL_ALLOWED_HOSTS if it is yours."}
	}
	if refusal := x.authorize(); refusal != nil {
		return refusal
	}
	if x.method == "CONNECT" || x.method == "TRACE" {
		return &journal.Refusal{Problem: MethodNotAllowed, Detail: x.method + " is not supported: this is no open proxy, and a trace could show credentials that the sidecar adds."}
	}
	var refusal *journal.Refusal
	if x.route, refusal = x.findRoute(target); refusal != nil {
		return refusal
	}
	if wantsUpgrade(x.header) {
		return &journal.Refusal{Problem: UpgradeUnsupported, Detail: "WebSocket and other upgrades cannot be journaled and are not passed on. Connect to the provider itself."}
	}
	if refusal := x.identify(identity{}); refusal != nil {
		return refusal
	}
	if x.bodyBytes > BodyBytesMax {
		return tooLarge
	}
	return nil
}

// identify settles whose the request is. Content is what its body says.
func (x *exchange) identify(content identity) *journal.Refusal {
	var err error
	if x.claim, err = identify(x.route.identity, content, x.header, x.run); err != nil {
		detail := sentence(err)
		if errors.As(err, new(partError)) {
			detail += " Each part of an identity is 1 to 256 bytes of UTF-8, percent-encoded where it is not plain ASCII."
		}
		return &journal.Refusal{Problem: InvalidKey, Detail: detail + " Nothing was sent."}
	}
	if x.fence != nil && x.claim.fence == 0 && x.claim.run == x.run {
		x.claim.fence = x.fence()
	}
	x.claim.discount(x.header)
	if x.manyNamespaces {
		// Two tenants may have chosen the same key, and the provider would take
		// them for one: it gets a key made of the namespace too.
		x.claim.ownKey, x.claim.ownKeyRaw = "", ""
	}
	return nil
}

var tooLarge = &journal.Refusal{Problem: journal.InputTooLarge, Detail: "A request's body is at most 10 MiB. Nothing was sent."}

// authorize finds the namespace of the request's token, where tokens are
// configured. Every token is compared, in the same time. Several
// at once name nobody.
func (x *exchange) authorize() *journal.Refusal {
	if len(x.tokens) == 0 {
		return nil
	}
	presented, found := x.header.Values("Counterfoil-Token"), false
	if len(presented) == 1 {
		digest := sha256.Sum256([]byte(presented[0]))
		for i := range x.tokens {
			if subtle.ConstantTimeCompare(digest[:], x.tokens[i].digest[:]) == 1 {
				found, x.namespace = true, x.tokens[i].namespace
			}
		}
	}
	if !found {
		return &journal.Refusal{Problem: Unauthorized, Detail: "Send one of the configured tokens, once, as Counterfoil-Token."}
	}
	return nil
}

// key is the call that a request is, or is about.
func (x *exchange) key() keystore.Key {
	if x.route.upstream == nil {
		return x.about
	}
	return keystore.Key{Namespace: x.namespace, Run: x.claim.run, Turn: x.claim.turn, Call: x.claim.call}
}

// sentence makes an error's text one.
func sentence(err error) string {
	text := err.Error()
	return strings.ToUpper(text[:1]) + text[1:] + "."
}

// aside tells of an answer that the journal has no part in.
func (x *exchange) aside(outcome journal.Outcome, problem journal.Problem) {
	a := Aside{Outcome: outcome, Problem: problem, Took: time.Since(x.began)}
	if x.route.upstream != nil {
		a.Upstream = x.route.upstream.name
	}
	x.observe(a)
}

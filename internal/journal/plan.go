package journal

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"slices"
	"strings"
	"time"

	"counterfoil/classify"
	"counterfoil/keystore"
	"counterfoil/providers"
)

// keyHeader is where providers look for a key by default.
const keyHeader = "Idempotency-Key"

// work is one request for one call, on its way through the loop.
type work struct {
	*Journal
	call        *Call
	upstream    *Upstream
	op          *providers.Operation
	stream      Stream
	flight      *flight
	fingerprint classify.Fingerprint
	// seat is set where the call's id was made by counting.
	seat *seat
	// diverged says that the call came before its agent had repeated all of its
	// earlier effects.
	diverged bool

	// ask is what the store is asked; out is what would be sent, credentials
	// included.
	ask keystore.Request
	out classify.Request

	// deadline is when waiting ends; set when waiting begins.
	deadline time.Time
	// heldUntil is when waiting for a person ends; set when that begins.
	heldUntil time.Time
	// waited: another's attempt was waited for. doubted: this request met the
	// call in doubt. attempted: this request made an attempt.
	waited, doubted, attempted bool
	made                       int
	resends                    int
	lookups                    int
	repeatWaits                int
	// upstreamStatus is the provider's last ambiguous status.
	upstreamStatus int
	// lastOutcome and lastEvidence are for the canonical line.
	lastEvidence classify.Evidence
	lastOutcome  classify.Outcome
}

// workOn finds out what a request is: its operation and its fingerprint.
func (j *Journal) workOn(c *Call, s Stream) *work {
	u := j.upstreams[c.Request.Upstream]
	return &work{Journal: j, call: c, upstream: u, stream: s, op: u.match(&c.Request), fingerprint: j.print(u, &c.Request)}
}

// prepare works out what the store has to know: class, intent and the ways of
// recovery.
func (w *work) prepare() *Refusal {
	j, u, c := w.Journal, w.upstream, w.call
	class := u.Rules.Class(&c.Request, operationClass(w.op))
	sentKey := c.OwnKey
	if sentKey == "" {
		sentKey = string(c.Key.ProviderKey())
	}
	out, err := w.place(sentKey)
	if err != nil {
		return &Refusal{Problem: InvalidRequest, Detail: "The key cannot be put where the provider looks for it, so nothing was sent: " + err.Error() + "."}
	}
	w.out = out
	w.out.Header = u.withAuth(out.Header)
	w.ask = keystore.Request{
		Beginning: keystore.Beginning{
			Key:         c.Key,
			Class:       class,
			Fingerprint: w.fingerprint,
			Intent:      j.intent(u, &w.out, sentKey, w.op),
			Terms:       terms(class, w.op),
			Credential:  j.credential(u, &w.out),
			Principal:   j.principal(u, &w.out),
			Epoch:       j.epoch,
			Fence:       c.Fence,
		},
		Means:          means(&c.Request, class, w.op),
		Lookup:         w.upstream.absence(w.op),
		PauseOnUnknown: u.PauseOnUnknown && c.Key.Run != keystore.NoPart,
		Approval:       u.Rules.Approval(&c.Request),
		HoldDiverged:   u.HoldDiverged,
		FlowVersion:    c.FlowVersion,
	}
	if w.seat != nil {
		w.ask.Ordinal, w.ask.AwaitRepeats = &w.seat.ordinal, true
	}
	if len(w.ask.Means) == 0 {
		w.ask.NoMeans = w.noMeans(class)
	}
	return nil
}

// print takes a request's fingerprint. A few KiB of a compressed body can stand
// for MiB, so only so many are unpacked at a time.
func (j *Journal) print(u *Upstream, r *classify.Request) classify.Fingerprint {
	if r.Header.Has("Content-Encoding") {
		j.unpacking <- struct{}{}
		defer func() { <-j.unpacking }()
	}
	return classify.Print(r, &classify.PrintOptions{IgnoreFields: u.Ignore, SecretParams: u.Secrets.Params})
}

func (u *Upstream) match(r *classify.Request) *providers.Operation {
	if u.Adapter == nil {
		return nil
	}
	return u.Adapter.Match(r)
}

func operationClass(op *providers.Operation) classify.Class {
	if op == nil {
		return 0
	}
	return op.Class
}

// place puts the key where the provider looks for it. A key that the client
// chose itself stays spelt as it came.
func (w *work) place(sentKey string) (classify.Request, error) {
	placement := providers.DefaultKey()
	if w.op != nil && w.op.Key != (providers.KeyPlacement{}) {
		placement = w.op.Key
	}
	out, err := placement.Place(&w.call.Request, sentKey)
	if err == nil && w.call.OwnKeyRaw != "" && out.Header.Value(keyHeader) == sentKey {
		out.Header = out.Header.Set(keyHeader, w.call.OwnKeyRaw)
	}
	return out, err
}

// withAuth adds the upstream's own credential where the request bears none.
func (u *Upstream) withAuth(h classify.Header) classify.Header {
	if u.Auth.Name == "" || h.Has(u.Auth.Name) {
		return h
	}
	return append(slices.Clip(h), u.Auth)
}

// intent is what goes on record of a request: all of it but its credentials.
func (j *Journal) intent(u *Upstream, out *classify.Request, sentKey string, op *providers.Operation) keystore.Intent {
	in := keystore.Intent{
		Upstream: u.Name, Origin: u.Origin, Method: out.Method, SentKey: sentKey,
		Target: u.Secrets.RedactTarget(out.Target, j.mac),
		Header: out.Header.Without(u.Secrets.IsCredential),
	}
	if op != nil {
		in.Operation = op.Name
	}
	if u.Auth.Name != "" {
		in.Header = in.Header.Without(func(name string) bool { return strings.EqualFold(name, u.Auth.Name) })
	}
	return in
}

// terms are the promises under which the call may be repeated. Only an
// operation vouches for its provider's deduplication.
func terms(class classify.Class, op *providers.Operation) keystore.Terms {
	if class != classify.Keyed || op == nil {
		return keystore.Terms{}
	}
	return keystore.Terms{Retention: op.Retention}
}

// means lists the ways of recovery in order. A repeat that is safe by the
// call's nature needs no adapter to say so.
func means(r *classify.Request, class classify.Class, op *providers.Operation) []keystore.Means {
	var list []keystore.Means
	resend := false
	if op != nil {
		for _, s := range op.Strategies(r, class) {
			switch s {
			case providers.ByReplay:
				list, resend = append(list, keystore.ByResend), true
			case providers.ByLookup:
				list = append(list, keystore.ByLookup)
			}
		}
	}
	if byNature := class == classify.Read || class == classify.Decision || class == classify.Idempotent; byNature && !resend {
		list = append(list, keystore.ByResend)
	}
	return list
}

// noMeans says what is missing for the call to be recovered. It holds nothing of
// the request but its method, since it is logged too.
func (w *work) noMeans(class classify.Class) string {
	name := w.upstream.Name
	switch {
	case w.upstream.Sender == nil:
		return "upstream " + name + " is not configured any more"
	case w.upstream.Adapter == nil:
		return "upstream " + name + " has no operations, so nothing says how to ask its provider"
	case w.op == nil:
		return "no operation of upstream " + name + " matches this " + w.call.Request.Method +
			": a path pattern has to match the whole target up to its query, relative to the upstream's url"
	}
	return w.op.WhyNone(&w.call.Request, class)
}

// absence says what a lookup that finds nothing is worth. Where the operation
// does not say how long a request that was cut off may still be at work, we
// believe the provider as slow as we would have waited for it.
func (u *Upstream) absence(op *providers.Operation) keystore.Absence {
	if op == nil || op.Lookup == nil {
		return keystore.Absence{}
	}
	c, quiesce := op.Lookup.Consistency, op.Quiesce
	if quiesce == providers.QuiesceUnsaid {
		quiesce = max(providers.DefaultQuiesce, u.FirstByte)
	}
	return keystore.Absence{
		Quiesce: quiesce, Lag: c.Lag, Spacing: c.Spacing, MissesNeeded: uint32(c.MissesNeeded),
		Believable: c.Kind != providers.Unproven,
	}
}

// mac is the keyed hash under which secrets are compared, never kept.
func (j *Journal) mac(secret []byte) string {
	m := hmac.New(sha256.New, j.secret[:])
	m.Write(secret)
	return hex.EncodeToString(m.Sum(nil)[:12])
}

// credential hashes what out shows to prove who asks.
func (j *Journal) credential(u *Upstream, out *classify.Request) keystore.Digest {
	var b []byte
	for _, f := range out.Header {
		if u.Secrets.IsCredential(f.Name) || strings.EqualFold(f.Name, u.Auth.Name) {
			b = append(append(append(append(b, strings.ToLower(f.Name)...), 0), f.Value...), 0)
		}
	}
	if len(b) == 0 {
		return ""
	}
	return keystore.Digest(j.mac(b))
}

// principal hashes what replays are bound to, "" where they are not.
func (j *Journal) principal(u *Upstream, out *classify.Request) keystore.Digest {
	switch u.Bind {
	case BindAuthorization:
		if c := j.credential(u, out); c != "" {
			return c
		}
		return keystore.Digest(j.mac([]byte("nobody")))
	case BindSubject:
		return keystore.Digest(j.mac([]byte(subject(out.Header.Value("Authorization")))))
	case BindShared:
		return keystore.Digest(j.mac([]byte("shared")))
	case BindNothing:
	}
	return ""
}

// subject returns whom an Authorization field speaks for: issuer and subject
// of a bearer JWT (RFC 7519 section 4.1), the user of Basic credentials (RFC
// 7617), else the whole value. It verifies nothing.
func subject(authorization string) string {
	scheme, rest, _ := strings.Cut(authorization, " ")
	switch {
	case strings.EqualFold(scheme, "Basic"):
		if pair, err := base64.StdEncoding.DecodeString(strings.TrimSpace(rest)); err == nil {
			user, _, _ := strings.Cut(string(pair), ":")
			return "basic\x00" + user
		}
	case strings.EqualFold(scheme, "Bearer"):
		if iss, sub, ok := claims(strings.TrimSpace(rest)); ok {
			return "jwt\x00" + iss + "\x00" + sub
		}
	}
	return "whole\x00" + authorization
}

func claims(token string) (iss, sub string, ok bool) {
	parts := strings.Split(token, ".")
	if len(parts) != 3 {
		return "", "", false
	}
	payload, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil {
		return "", "", false
	}
	var c struct {
		Iss string `json:"iss"`
		Sub string `json:"sub"`
	}
	if json.Unmarshal(payload, &c) != nil || c.Sub == "" {
		return "", "", false
	}
	return c.Iss, c.Sub, true
}

// sentKey is what the provider was sent, as the record has it, or would be.
func (w *work) sentKey(r *keystore.Record) string {
	if r != nil && r.Intent.SentKey != "" {
		return r.Intent.SentKey
	}
	return w.ask.Intent.SentKey
}

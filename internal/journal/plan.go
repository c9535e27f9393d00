package journal

import (
	"cmp"
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
	rd          *providers.Reading
	stream      Stream
	flight      *flight
	fingerprint classify.Fingerprint
	// seat is set where the call's id was made by counting.
	seat *seat
	// diverged says that the call came before its agent had repeated all of its
	// earlier effects.
	diverged bool

	// ask is what the store is asked; out is what would be sent, credentials
	// included; kept is its body as it goes on record, without credentials.
	ask  keystore.Request
	out  classify.Request
	kept []byte

	// deadline is when waiting ends; set when waiting begins.
	deadline time.Time
	// heldUntil is when waiting for a person ends; set when that begins.
	heldUntil time.Time
	// waited: another's attempt was waited for. doubted: this request met the
	// call in doubt. attempted: this request made an attempt.
	waited, doubted, attempted bool
	// decided: the plan of the answer, if it has one, is on record.
	decided     bool
	made        int
	resends     int
	lookups     int
	repeatWaits int
	// upstreamStatus is the provider's last ambiguous status.
	upstreamStatus int
	// lastOutcome and lastEvidence are for the canonical line.
	lastEvidence classify.Evidence
	lastOutcome  classify.Outcome
}

// workOn finds out what a request is: its operation and its fingerprint.
func (j *Journal) workOn(c *Call, s Stream) *work {
	u := j.upstreams[c.Request.Upstream]
	rd := c.Reading
	if rd == nil {
		rd, _ = u.Adapter.Read(&c.Request) // who asks without reading first has nothing that is refused
	}
	return &work{Journal: j, call: c, upstream: u, stream: s, rd: rd, fingerprint: j.print(u, rd, &c.Request)}
}

// prepare works out what the store has to know: class, intent and the ways of
// recovery.
func (w *work) prepare() *Refusal {
	j, u, c := w.Journal, w.upstream, w.call
	class := u.Rules.Class(&c.Request, w.rd.Class())
	out, sentKey, err := w.stamp()
	if err != nil {
		return &Refusal{Problem: InvalidRequest, Detail: "The key cannot be put where the provider looks for it, so nothing was sent: " + err.Error() + "."}
	}
	w.out = out
	w.out.Header = narrowed(w.rd.NarrowsEncoding(), u.withAuth(out.Header))
	if w.kept, _, err = u.Secrets.RedactBody(&w.out, j.mac); err != nil {
		return &Refusal{Problem: InvalidRequest, Detail: "Nothing was sent: " + err.Error() + "."}
	}
	w.ask = keystore.Request{
		Beginning: keystore.Beginning{
			Key:         c.Key,
			Class:       class,
			Fingerprint: w.fingerprint,
			Intent:      j.intent(u, &w.out, sentKey, w.rd.Operation),
			Terms:       w.terms(&w.out, class),
			Credential:  j.credential(u, &w.out),
			Principal:   j.principal(u, &w.out),
			Epoch:       j.epoch,
			Fence:       c.Fence,
		},
		Means:          w.means(&w.out, class),
		Lookup:         w.upstream.absence(w.rd.Operation),
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
func (j *Journal) print(u *Upstream, rd *providers.Reading, r *classify.Request) classify.Fingerprint {
	r = rd.Print(u.Secrets.Blank(r))
	if r.Header.Has("Content-Encoding") {
		j.unpacking <- struct{}{}
		defer func() { <-j.unpacking }()
	}
	return classify.Print(r, &classify.PrintOptions{IgnoreFields: u.Ignore, SecretParams: u.Secrets.Params})
}

func operationName(op *providers.Operation) string {
	if op == nil {
		return ""
	}
	return op.Name
}

// stamp puts key, id and marker where the provider looks for them, and says what
// it is sent as the call's key. A key that the client chose itself stays spelt as
// it came.
func (w *work) stamp() (out classify.Request, sentKey string, err error) {
	marker := string(w.call.Key.ProviderKey())
	out, placed, err := w.rd.Stamp(&w.call.Request, providers.Stamps{Key: cmp.Or(w.call.OwnKey, marker), Marker: marker})
	if err == nil && w.call.OwnKeyRaw != "" && placed.Key == w.call.OwnKey && out.Header.Value(keyHeader) == placed.Key {
		out.Header = out.Header.Set(keyHeader, w.call.OwnKeyRaw)
	}
	return out, placed.Key, err
}

// narrowed asks for an answer without content coding where it has to be read.
func narrowed(isRead bool, h classify.Header) classify.Header {
	if !isRead || !h.Has("Accept-Encoding") {
		return h
	}
	return slices.Clone(h).Set("Accept-Encoding", "identity")
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
	in.Operation = operationName(op)
	if scope := u.Adapter.ScopeOf(out.Header); scope != "" {
		in.Scope = keystore.Digest(j.mac([]byte(scope)))
	}
	if u.Auth.Name != "" {
		in.Header = in.Header.Without(func(name string) bool { return strings.EqualFold(name, u.Auth.Name) })
	}
	return in
}

// conditionalDefault is for how long a request that names the version it expects
// is refused the second time, where its operation does not say.
const conditionalDefault = 24 * time.Hour

// errorReplays are the store's words for the adapter language's.
var errorReplays = map[providers.ErrorReplay]keystore.ErrorReplay{
	providers.Reexecutes: keystore.ErrorsRunAnew, providers.ReplaysAll: keystore.ErrorsAreKept,
	providers.ReplaysSuccesses: keystore.ErrorsAreForgotten, providers.ReplaysUnpublished: keystore.ErrorsAreForgotten,
}

// terms are the promises under which the call may be repeated. Only an
// operation vouches for its provider.
func (w *work) terms(r *classify.Request, class classify.Class) keystore.Terms {
	op := w.rd.Operation
	if op == nil || class != op.Class {
		return keystore.Terms{}
	}
	t := keystore.Terms{Errors: errorReplays[op.Errors]}
	if class == classify.Keyed {
		t.Retention = op.Retention
	}
	if slices.Contains(w.rd.Strategies(r, class), providers.ByConditionalResend) {
		t.Conditional, t.Retention = true, cmp.Or(op.Retention, conditionalDefault)
	}
	return t
}

// meansOf are the store's words for the strategies.
var meansOf = map[providers.Strategy]keystore.Means{
	providers.ByReplay: keystore.ByResend, providers.ByConditionalResend: keystore.ByResend,
	providers.ByLookup: keystore.ByLookup, providers.ByReadID: keystore.ByLookup,
	providers.ByResendIfAbsent: keystore.ByResendIfAbsent,
}

// means lists the ways of recovery in order. A repeat that is safe by the
// call's nature needs no adapter to say so.
func (w *work) means(r *classify.Request, class classify.Class) []keystore.Means {
	var list []keystore.Means
	for _, s := range w.rd.Strategies(r, class) {
		m := meansOf[s]
		if m == keystore.ByLookup && w.upstream.lookupsAreOff() {
			continue
		}
		list = append(list, m)
	}
	byNature := class == classify.Read || class == classify.Decision || class == classify.Idempotent
	if byNature && !slices.Contains(list, keystore.ByResend) && (w.rd.Operation == nil || !w.rd.Operation.Signed) {
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
	case w.rd.Undecided != "":
		return w.rd.WhyNone(&w.out, class)
	case w.rd.Operation == nil:
		return "no operation of upstream " + name + " matches this " + w.call.Request.Method +
			": a path pattern has to match the whole target up to its query, relative to the upstream's url"
	}
	if w.upstream.lookupsAreOff() {
		return "lookups of upstream " + name + " are off: " + w.upstream.lookupsOff()
	}
	return w.rd.WhyNone(&w.out, class)
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

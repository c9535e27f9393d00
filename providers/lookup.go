package providers

import (
	"slices"
	"strings"
	"time"

	"counterfoil/classify"
)

// A Freshness says how soon a lookup shows what has happened.
type Freshness uint8

const (
	// Unproven: nothing is known, so absence is never believed.
	Unproven Freshness = iota + 1
	// Lagging: what has happened shows after Consistency.Lag at the latest.
	Lagging
	// Strong: what has happened shows at once.
	Strong
)

var freshnessNames = [...]string{Unproven: "unknown", Lagging: "lag", Strong: "strong"}

// String returns the name in the adapter language.
func (f Freshness) String() string {
	if f == 0 || int(f) >= len(freshnessNames) {
		return "invalid"
	}
	return freshnessNames[f]
}

// Consistency says when a lookup that finds nothing may be believed.
type Consistency struct {
	Kind Freshness
	// Lag is above 0 for Lagging, and 0 otherwise.
	Lag time.Duration
	// MissesNeeded is how many lookups in a row must find nothing: 1 to 10.
	MissesNeeded int
	// Spacing is the least time between two of them; 0 if one is enough.
	Spacing time.Duration
}

// A Lookup asks a provider whether an effect exists.
type Lookup struct {
	// At is where the lookup was written.
	At Position
	// Consistency says what a miss is worth.
	Consistency Consistency

	request   template
	found     *program
	body      *program
	status    int
	notFound  []int
	keyHeader string
}

// String returns the request as it was written, as in GET /effects/{key}.
func (l *Lookup) String() string { return l.request.source }

// Request returns the request to send to the upstream. It bears the headers of
// q.Original that say who asks and in what scope, without those that belong to
// its body, its key or its own preconditions. It fails when a placeholder has
// no value: the lookup is inconclusive then. The error holds no value.
func (l *Lookup) Request(q Query) (*classify.Request, error) {
	target, err := l.request.expand(q)
	if err != nil {
		return nil, err
	}
	r := &classify.Request{Method: "GET", Target: target}
	if q.Original != nil {
		r.Upstream = q.Original.Upstream
		r.Header = q.Original.Header.Without(l.belongsToOriginal)
	}
	r.Header = r.Header.Set("Accept", "application/json").Set("Accept-Encoding", "identity")
	return r, nil
}

// originalOnly are headers that mean nothing, or something harmful, on another
// request. The rest is kept, since a provider's headers for account, version or
// tenant decide what a lookup can see, and they have any name.
var originalOnly = []string{
	"accept", "accept-charset", "accept-encoding", "accept-language", "connection", "digest", "expect", "idempotency-key",
	"keep-alive", "prefer", "range", "repr-digest", "signature", "signature-input", "te", "trailer", "transfer-encoding", "upgrade",
}

// methodOverrides would turn the GET into the effect itself.
var methodOverrides = []string{"x-http-method", "x-http-method-override", "x-method-override"}

func (l *Lookup) belongsToOriginal(name string) bool {
	name = strings.ToLower(name)
	return slices.Contains(originalOnly, name) || slices.Contains(methodOverrides, name) || name == l.keyHeader ||
		strings.HasPrefix(name, "content-") || strings.HasPrefix(name, "if-") || strings.HasPrefix(name, "counterfoil-")
}

func (l *loader) lookup(p place, class classify.Class, key KeyPlacement) *Lookup {
	if !p.given() {
		return nil
	}
	f, ok := l.mapping(p, "request", "found", "response", "not_found", "consistency")
	if !ok {
		return nil
	}
	if class == classify.Read || class == classify.Decision {
		l.complain(p, "a %s has no effect to look for; leave this out", class)
	}
	k := &Lookup{At: l.at(p), Consistency: l.consistency(f["consistency"])}
	if key.Where == InHeader {
		k.keyHeader = strings.ToLower(key.Name)
	}
	l.lookupRequest(k, f["request"])
	k.found = l.program(f["found"], `a jq program that says whether the answer shows the effect, as in ".id != null"`)
	k.notFound = l.absentStatuses(f["not_found"])
	l.response(k, f["response"])
	l.tellsCallsApart(k, p)
	return k
}

func (l *loader) lookupRequest(k *Lookup, p place) {
	source, ok := l.required(p, `say what to ask, as in "GET /effects/{key}"`)
	if !ok {
		return
	}
	request, err := compileTemplate(source)
	if err != nil {
		l.complain(p, "%v", err)
		return
	}
	k.request = request
}

func (l *loader) program(p place, purpose string) *program {
	source, ok := l.required(p, purpose)
	if !ok {
		return nil
	}
	compiled, err := compileProgram(l.at(p), source)
	if err != nil {
		l.complain(p, "%v", err)
	}
	return compiled
}

// tellsCallsApart complains of a lookup that would find the same for any call.
func (l *loader) tellsCallsApart(k *Lookup, p place) {
	if k.request.parts == nil || k.found == nil {
		return
	}
	for _, part := range k.request.parts {
		if part.name == "key" || part.name == "call" || part.name == "body" {
			return
		}
	}
	if k.found.mentions("$key") || k.found.mentions("$call") || k.found.mentions("$request") {
		return
	}
	l.complain(p, "finds the same for every call; put {key}, {call} or {body.…} into request, or $key, $call or $request into found")
}

// mayMeanAbsence are the statuses that a provider may give for an object that
// does not exist. Every other says that the question was not answered.
var mayMeanAbsence = []int{204, 400, 404, 410, 422}

func (l *loader) absentStatuses(p place) []int {
	if !p.given() {
		return nil
	}
	f, ok := l.mapping(p, "status")
	if !ok {
		return nil
	}
	if !f["status"].given() {
		l.complain(f["status"], "missing; list the statuses that mean absence, as in [404]")
		return nil
	}
	var statuses []int
	for _, item := range l.list(f["status"]) {
		n := l.integer(item, 0, 100, 599)
		if n == 0 {
			continue
		}
		if !slices.Contains(mayMeanAbsence, n) {
			l.complain(item, "%d never says that the effect is absent; leave it out (204, 400, 404, 410 and 422 can)", n)
			continue
		}
		statuses = append(statuses, n)
	}
	return statuses
}

func (l *loader) response(k *Lookup, p place) {
	k.status = 200
	k.body = &program{source: "."}
	if !p.given() {
		return
	}
	f, ok := l.mapping(p, "status", "body")
	if !ok {
		return
	}
	k.status = l.integer(f["status"], 200, 200, 299)
	if k.status >= 204 && k.status <= 206 {
		l.complain(f["status"], "%d cannot bear the body of a recovered answer; use the status that the provider gives at first", k.status)
	}
	if f["body"].given() {
		k.body = l.program(f["body"], `a jq program that makes the answer's body, as in "."`)
	}
}

func (l *loader) consistency(p place) Consistency {
	c := Consistency{Kind: Unproven, MissesNeeded: 1}
	if !p.given() {
		return c
	}
	f, ok := l.mapping(p, "kind", "lag", "misses_needed", "spacing")
	if !ok {
		return c
	}
	c.Kind = l.freshness(f["kind"])
	c.Lag = l.duration(f["lag"], 0, 0, waitMax)
	c.MissesNeeded = l.integer(f["misses_needed"], 1, 1, 10)
	c.Spacing = l.duration(f["spacing"], 0, 0, time.Hour)
	switch {
	case c.Kind == Lagging && !f["lag"].given():
		l.complain(f["lag"], "missing; say after what time the lookup shows everything, as in 60s")
	case c.Kind == Lagging && c.Lag == 0:
		l.complain(f["lag"], "kind lag needs a lag above 0; without any it is kind strong")
	case c.Kind != Lagging && c.Kind != 0 && c.Lag > 0:
		l.complain(f["lag"], "means something for kind lag only; make it that kind, or leave this out")
	}
	if c.MissesNeeded > 1 && c.Spacing == 0 {
		l.complain(f["spacing"], "%d misses need a time between them, as in 30s", c.MissesNeeded)
	}
	return c
}

func (l *loader) freshness(p place) Freshness {
	name, ok := l.required(p, "one of strong, lag, unknown")
	if !ok {
		return 0
	}
	i := slices.Index(freshnessNames[:], name)
	if i <= 0 {
		l.complain(p, "%q is no kind; use strong, lag or unknown", name)
		return 0
	}
	return Freshness(i)
}

package providers

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"counterfoil/classify"

	"github.com/itchyny/gojq"
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
	// Consistency says what a miss is worth; isConsistencySaid, that somebody
	// decided so.
	Consistency       Consistency
	isConsistencySaid bool
	// Permission is what a credential needs to ask, in words.
	Permission string
	// PagesMax is how many pages are asked for: 1 to 20.
	PagesMax int
	// GraphQL is set where the dialect builds the question and the answer.
	GraphQL *GraphQLLookup

	request   template
	post      *program
	fields    []Beside
	found     *program
	match     *program
	absent    *program
	partial   *program
	body      *program
	noBody    bool
	status    int
	answers   []Beside
	notFound  []int
	next      *program
	param     string
	byLink    bool
	keyHeader string
	// needsMarker and needsID say that the lookup is of no use without.
	needsMarker, needsID bool
	// byID says that it reads by the client's own id.
	byID bool
}

// A GraphQLLookup says how to ask for what a mutation made.
type GraphQLLookup struct {
	// Field is the root field of the query, Arguments its arguments by name: $id,
	// $key, $marker, an argument of the mutation as in $input.subjectId, or a
	// fixed text.
	Field     string
	Arguments []Beside
	// Within is the selection set of Field in which the object is found by a
	// marker, { … } standing for what is selected of it; empty where Field is the
	// object. Hits leads from Field to the list of objects, as in comments.nodes,
	// and Marked is the object's field that holds the marker.
	Within, Hits, Marked string
	// Object leads to the field of the mutation's payload that holds what Field
	// returns, as in commentEdge.node; empty where the payload is the object
	// itself.
	Object string
	// Payload are values of the payload's other fields by their paths: JSON, text,
	// or a variable as in Arguments.
	Payload []Beside
}

// String returns the request as it was written, as in GET /effects/{key}.
func (l *Lookup) String() string {
	if l.GraphQL != nil {
		return "GraphQL query of " + l.GraphQL.Field
	}
	return l.request.source
}

// Request returns the first request to send to the upstream. It bears the
// headers of q.Original that say who asks and in what scope, without those that
// belong to its body, its key or its own preconditions. It fails when a
// placeholder has no value: the lookup is inconclusive then. The error holds no
// value.
func (l *Lookup) Request(q Query) (*classify.Request, error) {
	return l.page(context.Background(), &scope{q: &q}, "")
}

// page returns the request for one page of the answer.
func (l *Lookup) page(ctx context.Context, sc *scope, base string) (*classify.Request, error) {
	target, err := l.request.expand(ctx, sc, base)
	if err != nil {
		return nil, err
	}
	if l.param != "" && sc.next != nil {
		text, ok := textOf(sc.next)
		if !ok {
			return nil, errors.New("the page's cursor is neither text nor a number")
		}
		target = targetWith(target, l.param, text)
	}
	r := &classify.Request{Method: l.request.method, Target: target}
	if o := sc.q.Original; o != nil {
		r.Upstream = o.Upstream
		r.Header = o.Header.Without(l.belongsToOriginal)
	}
	r.Header = r.Header.Set("Accept", "application/json").Set("Accept-Encoding", "identity")
	for _, f := range l.fields {
		r.Header = r.Header.Set(f.Name, f.Value)
	}
	if l.post == nil {
		return r, nil
	}
	v, err := sc.run(ctx, l.post, nil)
	if err != nil {
		return nil, err
	}
	budget := documentBytesMax
	if err := measure(v, depthMax, &budget); err != nil {
		return nil, fmt.Errorf("the value of %s is %w", l.post.at, err)
	}
	if r.Body, err = gojq.Marshal(v); err != nil {
		return nil, errors.New("the lookup's body cannot be written as JSON")
	}
	r.Header = r.Header.Set("Content-Type", "application/json")
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

func (l *loader) lookup(p place, class classify.Class) *Lookup {
	if !p.given() {
		return nil
	}
	f, ok := l.mapping(p, "request", "body", "headers", "found", "match", "response", "not_found", "incomplete", "paging", "consistency", "permission", "graphql")
	if !ok {
		return nil
	}
	if class == classify.Read || class == classify.Decision {
		l.complain(p, "a %s has no effect to look for; leave this out", class)
	}
	k := &Lookup{At: l.at(p), Consistency: l.consistency(f["consistency"]), PagesMax: 1}
	k.isConsistencySaid = f["consistency"].given()
	k.Permission, _ = l.text(f["permission"])
	k.notFound, k.absent = l.absence(f["not_found"])
	if f["graphql"].given() {
		l.graphQLLookup(k, f)
		return k
	}
	l.lookupRequest(k, f)
	l.findings(k, p, f)
	l.response(k, f["response"])
	l.paging(k, f["paging"])
	return k
}

func (l *loader) graphQLLookup(k *Lookup, f map[string]place) {
	for _, name := range []string{"request", "body", "headers", "found", "match", "response", "incomplete", "paging"} {
		if f[name].given() {
			l.complain(f[name], "means nothing beside graphql, which builds question and answer; leave it out")
		}
	}
	l.needsDialect(f["graphql"], "graphql")
	g, ok := l.mapping(f["graphql"], "field", "arguments", "within", "hits", "marked", "object", "payload")
	if !ok {
		return
	}
	k.GraphQL = &GraphQLLookup{Arguments: l.besides(g["arguments"]), Payload: l.besides(g["payload"])}
	k.GraphQL.Field, _ = l.required(g["field"], "name the root field that reads what the mutation made")
	k.GraphQL.Object, _ = l.text(g["object"])
	l.within(k, g)
	if len(k.GraphQL.Arguments) == 0 {
		l.complain(g["arguments"], "missing; say by what the object is read, as in {id: $id}")
	}
	for _, a := range k.GraphQL.Arguments {
		k.needsID = k.needsID || a.Value == "$id"
		k.needsMarker = k.needsMarker || a.Value == "$marker"
	}
	k.byID = k.needsID
}

// within reads how the object is found in a list.
func (l *loader) within(k *Lookup, g map[string]place) {
	k.GraphQL.Within, _ = l.text(g["within"])
	if k.GraphQL.Within == "" {
		for _, name := range []string{"hits", "marked"} {
			if g[name].given() {
				l.complain(g[name], "means something beside within only, which says where the object is found")
			}
		}
		return
	}
	k.GraphQL.Hits, _ = l.required(g["hits"], "say where the list is, as in comments.nodes")
	k.GraphQL.Marked, _ = l.required(g["marked"], "name the field of the object that holds the marker")
	if !strings.Contains(k.GraphQL.Within, "{ … }") {
		l.complain(g["within"], "has no place for what is selected of the object; write { … } there")
	}
	k.needsMarker = true
}

func (l *loader) lookupRequest(k *Lookup, f map[string]place) {
	source, ok := l.required(f["request"], `say what to ask, as in "GET /effects/{key}"`)
	if !ok {
		return
	}
	request, err := compileTemplate(l.at(f["request"]), source)
	if err != nil {
		l.complain(f["request"], "%v", err)
		return
	}
	k.request = request
	if f["body"].given() {
		k.post = l.program(f["body"], "a jq program that makes the JSON body of the search")
	}
	if (request.method == "POST") != (k.post != nil) {
		l.complain(f["body"], "a lookup by POST has a body, and one by GET has none")
	}
	k.fields = l.besides(f["headers"])
	for _, h := range k.fields {
		if !isToken(h.Name) || slices.Contains(notForKeys, strings.ToLower(h.Name)) && !strings.EqualFold(h.Name, "Accept") {
			l.complain(f["headers"], "%q is no header that a lookup can set", h.Name)
		}
	}
}

// findings reads what an answer shows: found, or match.
func (l *loader) findings(k *Lookup, p place, f map[string]place) {
	switch {
	case f["match"].given() && f["found"].given():
		l.complain(f["match"], "found looks at a whole answer, match picks hits out of a list; keep one of them")
	case f["match"].given():
		k.match = l.program(f["match"], `a jq program that picks the hits, as in "[.data[] | select(.metadata.cf == $marker)]"`)
	default:
		k.found = l.program(f["found"], `a jq program that says whether the answer shows the effect, as in ".id != null"`)
	}
	if f["incomplete"].given() {
		k.partial = l.program(f["incomplete"], "a jq program that is true where the answer does not show everything")
	}
	l.tellsCallsApart(k, p)
	k.needsMarker = k.asksFor("marker")
	k.needsID = k.asksFor("id")
	k.byID = k.request.mentions("id")
}

func (l *Lookup) asksFor(name string) bool {
	return l.request.mentions(name) || l.post != nil && l.post.mentions("$"+name) ||
		l.found != nil && l.found.mentions("$"+name) || l.match != nil && l.match.mentions("$"+name)
}

func (l *loader) paging(k *Lookup, p place) {
	if !p.given() {
		return
	}
	f, ok := l.mapping(p, "next", "param", "link", "max_pages")
	if !ok {
		return
	}
	k.PagesMax = l.integer(f["max_pages"], 3, 1, 20)
	k.byLink = l.truth(f["link"])
	if f["next"].given() {
		k.next = l.program(f["next"], "a jq program that yields the next page's cursor, or null")
	}
	k.param, _ = l.text(f["param"])
	usesNext := k.request.mentions("next", "page") || k.post != nil && (k.post.mentions("$next") || k.post.mentions("$page"))
	switch {
	case k.byLink == (k.next != nil):
		l.complain(p, "say how the next page is found: next, a jq program that yields its cursor, or link: true for the Link header; one of the two")
	case k.byLink && f["param"].given():
		l.complain(f["param"], "means something beside next only; a link is followed as it is")
	case k.next != nil && k.param == "" && !usesNext:
		l.complain(f["param"], "missing; name the query parameter that takes the cursor, or use $next or $page in request or body")
	}
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
	if k.request.parts == nil || k.found == nil && k.match == nil {
		return
	}
	if k.request.mentions("body") {
		return
	}
	if slices.ContainsFunc([]string{"key", "marker", "id", "uuid", "call", "request", "form", "query", "path"}, k.asksFor) {
		return
	}
	l.complain(p, "finds the same for every call; put {key}, {marker}, {id}, {call} or {body.…} into request, or a variable of the same name into found or match")
}

// mayMeanAbsence are the statuses that a provider may give for an object that
// does not exist. Every other says that the question was not answered.
var mayMeanAbsence = []int{204, 400, 404, 410, 422}

func (l *loader) absence(p place) (statuses []int, when *program) {
	if !p.given() {
		return nil, nil
	}
	f, ok := l.mapping(p, "status", "when")
	if !ok {
		return nil, nil
	}
	if f["when"].given() {
		when = l.program(f["when"], "a jq program over an answer that is true where it says that there is no such thing")
	} else if !f["status"].given() {
		l.complain(f["status"], "missing; list the statuses that mean absence, as in [404]")
		return nil, nil
	}
	if !f["status"].given() {
		return nil, when
	}
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
	return statuses, when
}

func (l *loader) response(k *Lookup, p place) {
	k.status = 200
	k.body = &program{source: "."}
	if !p.given() {
		return
	}
	f, ok := l.mapping(p, "status", "body", "headers")
	if !ok {
		return
	}
	k.status = l.integer(f["status"], 200, 200, 299)
	k.answers = l.besides(f["headers"])
	if source, isText := l.text(f["body"]); f["body"].given() && isText && source == "" {
		k.noBody = true
		return
	}
	if k.status >= 204 && k.status <= 206 {
		l.complain(f["status"], "%d cannot bear the body of a recovered answer; use the status that the provider gives at first, and body: '' where it has none", k.status)
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

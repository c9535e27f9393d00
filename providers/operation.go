package providers

import (
	"encoding/json"
	"regexp"
	"slices"
	"strings"
	"time"

	"counterfoil/classify"
)

// A Strategy is one way to settle a call in doubt.
type Strategy uint8

const (
	// ByReplay sends the same bytes again under the same provider key, inside
	// the provider's retention.
	ByReplay Strategy = iota + 1
	// ByLookup asks the provider whether the effect exists.
	ByLookup
	// ByReadID is ByLookup for one that reads by the id that the caller chose.
	ByReadID
	// ByResendIfAbsent sends the same bytes again once a lookup has found
	// nothing, inside the provider's retention: it refuses a second copy.
	ByResendIfAbsent
	// ByConditionalResend sends the same bytes again: the version that they name
	// is gone once they have had their effect.
	ByConditionalResend
)

var strategyNames = [...]string{
	ByReplay: "replay_key", ByLookup: "lookup", ByReadID: "read_by_id", ByResendIfAbsent: "resend_if_absent", ByConditionalResend: "cas_resend",
}

// An ErrorReplay says what a second copy of a request is answered by a provider
// that honours keys, if the first was answered with an error.
type ErrorReplay uint8

const (
	// Reexecutes: what failed runs anew, and has its effect once. It is what
	// holds where nothing is said.
	Reexecutes ErrorReplay = iota
	// ReplaysAll: what the first was answered, errors too, or that it is a copy.
	ReplaysAll
	// ReplaysSuccesses: an error is forgotten, and the copy runs anew, whatever
	// the first one did.
	ReplaysSuccesses
	// ReplaysUnpublished: nobody says; it counts as ReplaysSuccesses.
	ReplaysUnpublished
)

var errorReplayNames = [...]string{Reexecutes: "reexecute", ReplaysAll: "all", ReplaysSuccesses: "2xx", ReplaysUnpublished: "unpublished"}

func (e ErrorReplay) String() string {
	if int(e) >= len(errorReplayNames) {
		return "invalid"
	}
	return errorReplayNames[e]
}

// String returns the strategy's name in the adapter language.
func (s Strategy) String() string {
	if s == 0 || int(s) >= len(strategyNames) {
		return "invalid"
	}
	return strategyNames[s]
}

const (
	// DefaultQuiesce is how long at least an attempt that was cut off may still
	// run at a provider of which nothing better is known.
	DefaultQuiesce = 30 * time.Second
	// QuiesceUnsaid stands where an operation does not say.
	QuiesceUnsaid time.Duration = -1

	waitMax      = 24 * time.Hour
	retentionMax = 10 * 365 * 24 * time.Hour
)

// An Operation is one thing that a provider can do, and what is to be known to
// do it at most once.
type Operation struct {
	// At is where the operation was written.
	At Position
	// Name is unique in its adapter.
	Name string
	// Methods are the methods that match, any if empty.
	Methods []string
	// Path is the pattern that a path must match, as classify.CompileMatch
	// has it; "" if any does.
	Path string

	Class classify.Class
	// Key is where the provider key goes; nil for none, as for a read.
	Key *Stamp
	// ClientID is where an id goes that the caller chooses, unless the request has
	// one; nil for none.
	ClientID *Stamp
	// Markers are where a marker goes: the first that fits the request.
	Markers []Stamp
	// Signed says that the request's signature covers all of it, so that nothing
	// is stamped and nothing is sent again.
	Signed bool
	// Retention is how long the provider honours a key, or a condition, counted
	// from the first sending. It is above 0 for class keyed.
	Retention time.Duration
	// Errors says what a copy of a failed request is answered.
	Errors ErrorReplay
	// SuccessOnResend are statuses that mean success when a resend is answered
	// so.
	SuccessOnResend []int
	// Quiesce is how long after the end of an attempt its bytes may still take
	// effect; QuiesceUnsaid if the adapter does not say.
	Quiesce time.Duration
	// Lookup is nil where the provider cannot be asked.
	Lookup *Lookup
	// Recover holds what to try for a call in doubt, in this order, as it was
	// declared. Ask Strategies what holds for a certain call.
	Recover []Strategy
	// Notes says in a line what is not safe.
	Notes string

	path         classify.Match
	when         conditions
	precondition *precondition
	errors       []errorRow
}

// A precondition is where a request names the version that it expects.
type precondition struct {
	header string
	names  []string
	// orAbsent says that a request without one only creates.
	orAbsent bool
}

// Conditional reports whether r bears a condition that its own success makes
// false, so that a second copy is refused.
func (o *Operation) Conditional(r *classify.Request) bool {
	p := o.precondition
	if p == nil {
		return false
	}
	there := false
	switch {
	case p.header != "":
		// If-Match: * names no version: it holds as long as anything is there (RFC
		// 9110 section 13.1.1).
		v := strings.TrimSpace(r.Header.Value(p.header))
		there = v != "" && (v != "*" || !strings.EqualFold(p.header, "If-Match"))
	case !isCoded(r.Header) && json.Valid(r.Body):
		v, isText := textAt(r.Body, p.names)
		there = isText && v != ""
	}
	return there || p.orAbsent
}

// prefix is what a leading /** of the path stands for in path.
func (o *Operation) prefix(path string) string {
	rest, ok := strings.CutPrefix(o.Path, "/**")
	if !ok || rest == "" {
		return ""
	}
	segments := strings.Split(path[1:], "/")
	for n := range segments {
		tail, err := classify.CompileMatch(nil, rest)
		if err == nil && tail.Matches("", "/"+strings.Join(segments[n:], "/")) {
			if n == 0 {
				return ""
			}
			return "/" + strings.Join(segments[:n], "/")
		}
	}
	return ""
}

// Strategies returns what to try for the call that r made and that is of that
// class. When all are spent, the call is unknown. There are none where class is
// not the operation's own, where the path can be read in more than one way, or
// where a header asks for another method: the provider may then have done
// something else, of which the operation's guarantee and lookup know nothing.
func (rd *Reading) Strategies(r *classify.Request, class classify.Class) []Strategy {
	o := rd.Operation
	if o == nil || rd.Undecided != "" || rd.withholds(r, class) != "" {
		return nil
	}
	var list []Strategy
	for _, s := range o.Recover {
		if rd.lacks(s, r) == "" {
			list = append(list, s)
		}
	}
	return list
}

// lacks says what the request does not have that a strategy needs, "" if
// nothing.
func (rd *Reading) lacks(s Strategy, r *classify.Request) string {
	o := rd.Operation
	switch s {
	case ByLookup, ByReadID:
		switch {
		case o.Lookup.needsMarker && rd.markerFor(r) == nil && !rd.isMarked(r):
			return "the lookup goes by a marker, and this request has no place for one"
		case o.Lookup.needsID && rd.id(r) == "" && !rd.takesID(r):
			return "the lookup goes by an id of the caller's, and this request has no place for one"
		}
	case ByConditionalResend:
		if !o.Conditional(r) {
			return "the request names no version that it expects, so that a copy would not be refused"
		}
	case ByReplay, ByResendIfAbsent:
		if o.Key == nil && o.ClientID != nil && rd.id(r) == "" && !rd.takesID(r) {
			return "a copy is refused by its id alone, and this request has no place for one"
		}
	}
	return ""
}

// isMarked reports whether a recorded request bears a marker already.
func (rd *Reading) isMarked(r *classify.Request) bool {
	return slices.ContainsFunc(rd.Operation.Markers, func(m Stamp) bool { return m.isOn(r, rd.Content) })
}

// bears reports whether a recorded request bears that marker.
func (rd *Reading) bears(r *classify.Request, marker string) bool {
	return slices.ContainsFunc(rd.Operation.Markers, func(m Stamp) bool {
		text, there := m.value(r, rd.Content)
		want := m.render("", marker)
		if m.Append != "" {
			return there && strings.Contains(text, strings.ReplaceAll(m.Append, "{marker}", want))
		}
		return there && text == want
	})
}

func (rd *Reading) takesID(r *classify.Request) bool {
	if rd.Operation.ClientID == nil {
		return false
	}
	_, err := rd.Operation.ClientID.put(r, rd.Content, rd.Operation.ClientID.render("", sampleMarker))
	return err == nil
}

// WhyNone says in plain words why Strategies returns none, "" where it returns
// some.
func (rd *Reading) WhyNone(r *classify.Request, class classify.Class) string {
	o := rd.Operation
	if rd.Undecided != "" {
		return "it is not known which operation this is: " + rd.Undecided
	}
	why := rd.withholds(r, class)
	switch {
	case why != "":
		return "operation " + o.Name + " matches, but may not be believed here: " + why
	case len(rd.Strategies(r, class)) > 0:
		return ""
	case len(o.Recover) > 0:
		return "operation " + o.Name + ": " + rd.lacks(o.Recover[0], r)
	case o.Signed:
		return "requests of operation " + o.Name + " are signed, so nothing can be put in and nothing sent again"
	case o.Class == classify.Keyed:
		return "operation " + o.Name + " says that nothing is to be tried (recover: [])"
	}
	return "operation " + o.Name + " declares no lookup, and its class " + o.Class.String() + " promises no deduplication"
}

// withholds says why nothing of the operation holds for that call, "" where all
// does.
func (rd *Reading) withholds(r *classify.Request, class classify.Class) string {
	switch {
	case class != rd.Operation.Class:
		return "the call is of class " + class.String() + ", which a rule or its method says"
	case classify.IsAmbiguous(r.Path()) && !rd.isAnyhow(r):
		return "the path can be read in more than one way"
	case slices.ContainsFunc(methodOverrides, r.Header.Has):
		return "a header asks for another method"
	}
	return ""
}

// isAnyhow reports whether a path with encoded slashes is of the same operation,
// however the provider takes them: some clients write the path of a file so.
// Whoever writes operations of his own may have meant one reading only.
func (rd *Reading) isAnyhow(r *classify.Request) bool {
	path := r.Path()
	plain := strings.NewReplacer("%2F", "/", "%2f", "/").Replace(path)
	if rd.part == nil || !rd.part.isOfHost || classify.IsAmbiguous(plain) {
		return false
	}
	other := *r
	other.Target = plain + strings.TrimPrefix(r.Target, path)
	again, _ := rd.whole.Read(&other) // a refusal leaves no operation
	return again.Operation == rd.Operation
}

func (l *loader) operations(p place) []Operation {
	items := l.list(p)
	ops := make([]Operation, len(items))
	names := make(map[string]Position, len(items))
	for i, item := range items {
		f, ok := l.mapping(item, "name", "when", "class", "signed", "key", "client_id", "marker", "with", "precondition", "guarantee", "lookup",
			"errors", "quiesce", "recover", "notes")
		if !ok {
			continue
		}
		ops[i] = l.operation(item, f)
		l.uniqueName(names, f["name"], ops[i])
	}
	return ops
}

func (l *loader) operation(p place, f map[string]place) Operation {
	op := Operation{At: l.at(p), Quiesce: l.duration(f["quiesce"], QuiesceUnsaid, 0, waitMax), Signed: l.truth(f["signed"])}
	op.Name = l.operationName(f["name"])
	l.when(&op, f["when"])
	op.Class = l.class(f["class"])
	l.stampsOf(&op, f)
	op.precondition = l.precondition(f["precondition"])
	l.guarantee(&op, f["guarantee"])
	op.Lookup = l.lookup(f["lookup"], op.Class)
	if op.Lookup != nil && op.Key != nil && op.Key.Place == "header" {
		op.Lookup.keyHeader = strings.ToLower(op.Key.Name)
	}
	l.lookupHasWhatItNeeds(&op, f["lookup"])
	op.errors = l.errorRows(f["errors"])
	op.Notes, _ = l.text(f["notes"])
	if strings.ContainsAny(op.Notes, "\r\n") {
		l.complain(f["notes"], "stands in a table; write it in one line")
	}
	op.Recover = l.recovery(&op, f)
	return op
}

// stampsOf reads what of ours the operation's requests bear.
func (l *loader) stampsOf(op *Operation, f map[string]place) {
	op.Key = l.key(f["key"], op.Class)
	if op.Signed {
		for _, name := range []string{"key", "client_id", "marker"} {
			if f[name].given() && !isNone(f[name]) {
				l.complain(f[name], "nothing can be put into a signed request; leave this out")
			}
		}
		op.Key = nil
	}
	if f["client_id"].given() {
		op.ClientID = l.stamp(f["client_id"], "id")
	}
	op.Markers = l.stamps(f["marker"], "marker")
	if op.Class == classify.Read && (op.ClientID != nil || op.Markers != nil) {
		l.complain(f["class"], "a read bears neither id nor marker; leave them out")
	}
	l.giveBeside(op, f["with"])
}

// giveBeside hands what is to stand beside a stamp to the stamp: the id, else the
// markers, else the key.
func (l *loader) giveBeside(op *Operation, p place) {
	with := l.besides(p)
	switch {
	case len(with) == 0:
	case op.ClientID != nil:
		op.ClientID.With = append(op.ClientID.With, with...)
	case op.Markers != nil:
		for i := range op.Markers {
			op.Markers[i].With = append(op.Markers[i].With, with...)
		}
	case op.Key != nil && op.Key.Place != "header":
		op.Key.With = append(op.Key.With, with...)
	default:
		l.complain(p, "stands beside an id, a marker or a key in the body, and there is none")
	}
}

func (l *loader) precondition(p place) *precondition {
	if !p.given() {
		return nil
	}
	f, ok := l.mapping(p, "header", "json", "absent")
	if !ok {
		return nil
	}
	c := &precondition{orAbsent: l.truth(f["absent"])}
	c.header, _ = l.text(f["header"])
	pointer, isJSON := l.text(f["json"])
	if isJSON && f["json"].given() {
		if err := classify.CheckPointer(pointer); err != nil {
			l.complain(f["json"], "%v", err)
			return nil
		}
		c.names = classify.SplitPointer(pointer)
	}
	if (c.header == "") == (c.names == nil) {
		l.complain(p, "say where the request names the version that it expects: header, or json with a pointer; one of the two")
	}
	return c
}

func (l *loader) lookupHasWhatItNeeds(op *Operation, p place) {
	k := op.Lookup
	switch {
	case k == nil:
	case k.needsMarker && op.Markers == nil:
		l.complain(p, "asks by a marker, and the operation puts none into its requests; declare marker")
	case k.needsID && op.ClientID == nil:
		l.complain(p, "asks by the caller's id, and the operation declares none; declare client_id")
	case k.mentionsKey() && op.Key == nil && op.ClientID == nil:
		l.complain(p, "asks by a key, and the operation sends none; declare key")
	}
}

func (l *Lookup) mentionsKey() bool { return l.asksFor("key") }

func (l *loader) operationName(p place) string {
	name, ok := l.required(p, "name the operation, as in create")
	if ok && !nameForm.MatchString(name) {
		l.complain(p, "may hold letters, digits and . _ - / only, 64 at most")
	}
	return name
}

var nameForm = regexp.MustCompile(`^[A-Za-z0-9._/-]{1,64}$`)

func (l *loader) uniqueName(seen map[string]Position, p place, op Operation) {
	if op.Name == "" {
		return
	}
	if first, ok := seen[op.Name]; ok {
		l.complain(p, "%q is the name of %s already; choose another", op.Name, first.Path)
		return
	}
	seen[op.Name] = op.At
}

func (l *loader) when(op *Operation, p place) {
	if !p.given() {
		return
	}
	f, ok := l.mapping(p, "method", "path", "header", "query", "form", "json", "graphql", "type", "tool")
	if !ok {
		return
	}
	l.conditions(&op.when, f)
	if f["method"].given() {
		op.Methods = l.methods(f["method"])
	}
	if !f["path"].given() {
		return
	}
	pattern, ok := l.required(f["path"], "write a pattern as in /tickets/**, or leave it out to match every path")
	if !ok {
		return
	}
	if strings.ContainsAny(pattern, "{}") {
		l.complain(f["path"], "write * for one segment and ** for any number, as in /tickets/*/comments, instead of {…}")
		return
	}
	var err error
	if op.path, err = classify.CompileMatch(nil, pattern); err != nil {
		l.complain(f["path"], "%v", err)
	}
	op.Path = pattern
}

func (l *loader) methods(p place) []string {
	items := l.list(p)
	if items != nil && len(items) == 0 {
		l.complain(p, "empty, so that nothing would match; leave it out to match every method")
	}
	var methods []string
	for _, item := range items {
		m, ok := l.required(item, "name a method, as in POST")
		if !ok {
			continue
		}
		if _, err := classify.CompileMatch([]string{m}, ""); err != nil {
			l.complain(item, "%v", err)
		}
		methods = append(methods, m)
	}
	return methods
}

func (l *loader) class(p place) classify.Class {
	name, ok := l.required(p, "one of read, decision, keyed, idempotent, effect")
	if !ok {
		return 0
	}
	c, ok := classify.ParseClass(name)
	if !ok {
		l.complain(p, "%q is no class; use read, decision, keyed, idempotent or effect", name)
	}
	return c
}

func (l *loader) guarantee(op *Operation, p place) {
	if !p.given() {
		if op.Class == classify.Keyed {
			l.complain(p, "missing; class keyed needs the time for which the provider honours a key, as in guarantee: {retention: 24h}")
		}
		return
	}
	f, ok := l.mapping(p, "retention", "error_replay", "success_on_resend")
	if !ok {
		return
	}
	conditional := op.precondition != nil
	if op.Class != classify.Keyed && op.Class != 0 && !conditional {
		l.complain(p, "means something for class keyed only; make it that class, or leave this out")
		return
	}
	l.errorReplay(op, f)
	if !f["retention"].given() {
		if !conditional {
			l.complain(f["retention"], "missing; say for how long the provider honours a key, as in 24h")
		}
		return
	}
	op.Retention = l.duration(f["retention"], 0, time.Second, retentionMax)
}

func (l *loader) errorReplay(op *Operation, f map[string]place) {
	if f["error_replay"].given() {
		name, _ := l.text(f["error_replay"])
		i := slices.Index(errorReplayNames[:], name)
		if i < 0 {
			l.complain(f["error_replay"], "%q is none of %s", name, strings.Join(errorReplayNames[:], ", "))
		}
		op.Errors = ErrorReplay(max(i, 0))
	}
	if !f["success_on_resend"].given() {
		return
	}
	for _, item := range l.list(f["success_on_resend"]) {
		if n := l.integer(item, 0, 200, 499); n != 0 {
			op.SuccessOnResend = append(op.SuccessOnResend, n)
		}
	}
}

// recovery returns the strategies that are given or, where none are, those that
// follow from what the operation declares.
func (l *loader) recovery(op *Operation, f map[string]place) []Strategy {
	p, hasLookup := f["recover"], f["lookup"].given()
	if !p.given() {
		return derivedRecovery(op, hasLookup)
	}
	var chosen []Strategy
	asks := false
	for _, item := range l.list(p) {
		name, ok := l.required(item, "one of "+strings.Join(strategyNames[1:], ", "))
		if !ok {
			continue
		}
		s := l.strategy(item, name, op, hasLookup)
		asks = asks || s == ByLookup || s == ByReadID
		switch {
		case s == 0:
		case slices.Contains(chosen, s):
			l.complain(item, "%s is listed twice; keep the first", name)
		default:
			chosen = append(chosen, s)
		}
	}
	if hasLookup && !asks {
		l.complain(p, "never asks the lookup that is declared; add lookup, or leave recover out")
	}
	return chosen
}

func derivedRecovery(op *Operation, hasLookup bool) []Strategy {
	var s []Strategy
	if op.Class == classify.Keyed && op.ClientID == nil {
		s = append(s, ByReplay)
	}
	if hasLookup {
		s = append(s, ByLookup)
	}
	if op.Class == classify.Keyed && op.ClientID != nil && hasLookup {
		s = append(s, ByResendIfAbsent)
	}
	return s
}

func (l *loader) strategy(p place, name string, op *Operation, hasLookup bool) Strategy {
	i := slices.Index(strategyNames[:], name)
	s := Strategy(max(i, 0))
	keyed := op.Class == classify.Keyed || op.Class == 0
	switch {
	case i <= 0:
		l.complain(p, "%q is no strategy; use %s (when all are spent, the call is unknown)", name, strings.Join(strategyNames[1:], ", "))
	case op.Signed && s != ByLookup:
		l.complain(p, "a signed request cannot be sent again; leave this out")
	case s == ByReplay && !keyed:
		l.complain(p, "replay_key needs class keyed, since only a provider that honours keys may be sent one again")
	case (s == ByLookup || s == ByReadID) && !hasLookup:
		l.complain(p, "no lookup is declared; declare one, or leave this out")
	case s == ByReadID && op.Lookup != nil && !op.Lookup.byID:
		l.complain(p, "read_by_id needs a lookup whose request holds {id}, the id that client_id puts there")
	case s == ByResendIfAbsent && (!keyed || op.ClientID == nil || !hasLookup):
		l.complain(p, "resend_if_absent needs class keyed, a client_id and a lookup: only an id that is the provider's own refuses a second copy")
	case s == ByConditionalResend && op.precondition == nil:
		l.complain(p, "cas_resend needs a precondition: only a request that names the version it expects is refused the second time")
	default:
		return s
	}
	return 0
}

package providers

import (
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
)

var strategyNames = [...]string{ByReplay: "replay_key", ByLookup: "lookup"}

// laterStrategies are part of the language and not built yet.
var laterStrategies = []string{"read_by_id", "resend_if_absent", "cas_resend"}

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
	// Key is where the provider key goes; zero for a read, which bears none.
	Key KeyPlacement
	// Retention is how long the provider honours a key, counted from the first
	// sending. It is above 0 for class keyed, and 0 otherwise.
	Retention time.Duration
	// Quiesce is how long after the end of an attempt its bytes may still take
	// effect; QuiesceUnsaid if the adapter does not say.
	Quiesce time.Duration
	// Lookup is nil where the provider cannot be asked.
	Lookup *Lookup
	// Recover holds what to try for a call in doubt, in this order, as it was
	// declared. Ask Strategies what holds for a certain call.
	Recover []Strategy

	path classify.Match
}

// Strategies returns what to try for the call that r made and that is of that
// class. When all are spent, the call is unknown. There are none where class is
// not the operation's own, where the path can be read in more than one way, or
// where a header asks for another method: the provider may then have done
// something else, of which the operation's guarantee and lookup know nothing.
func (o *Operation) Strategies(r *classify.Request, class classify.Class) []Strategy {
	if o.withholds(r, class) != "" {
		return nil
	}
	return o.Recover
}

// WhyNone says in plain words why Strategies returns none, "" where it returns
// some.
func (o *Operation) WhyNone(r *classify.Request, class classify.Class) string {
	why := o.withholds(r, class)
	switch {
	case why != "":
		return "operation " + o.Name + " matches, but may not be believed here: " + why
	case len(o.Recover) > 0:
		return ""
	case o.Class == classify.Keyed:
		return "operation " + o.Name + " says that nothing is to be tried (recover: [])"
	}
	return "operation " + o.Name + " declares no lookup, and its class " + o.Class.String() + " promises no deduplication"
}

// withholds says why nothing of the operation holds for that call, "" where all
// does.
func (o *Operation) withholds(r *classify.Request, class classify.Class) string {
	switch {
	case class != o.Class:
		return "the call is of class " + class.String() + ", which a rule or its method says"
	case classify.IsAmbiguous(r.Path()):
		return "the path can be read in more than one way"
	case slices.ContainsFunc(methodOverrides, r.Header.Has):
		return "a header asks for another method"
	}
	return ""
}

func (l *loader) operations(p place) []Operation {
	items := l.list(p)
	ops := make([]Operation, len(items))
	names := make(map[string]Position, len(items))
	for i, item := range items {
		f, ok := l.mapping(item, "name", "when", "class", "key", "guarantee", "lookup", "quiesce", "recover")
		if !ok {
			continue
		}
		ops[i] = l.operation(item, f)
		l.uniqueName(names, f["name"], ops[i])
	}
	return ops
}

func (l *loader) operation(p place, f map[string]place) Operation {
	op := Operation{At: l.at(p), Quiesce: l.duration(f["quiesce"], QuiesceUnsaid, 0, waitMax)}
	op.Name = l.operationName(f["name"])
	l.when(&op, f["when"])
	op.Class = l.class(f["class"])
	op.Key = l.key(f["key"], op.Class)
	op.Retention = l.guarantee(f["guarantee"], op.Class)
	op.Lookup = l.lookup(f["lookup"], op.Class, op.Key)
	op.Recover = l.recovery(f["recover"], op.Class, f["lookup"])
	return op
}

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
	f, ok := l.mapping(p, "method", "path")
	if !ok {
		return
	}
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

func (l *loader) guarantee(p place, class classify.Class) time.Duration {
	if !p.given() {
		if class == classify.Keyed {
			l.complain(p, "missing; class keyed needs the time for which the provider honours a key, as in guarantee: {retention: 24h}")
		}
		return 0
	}
	f, ok := l.mapping(p, "retention")
	if !ok {
		return 0
	}
	if class != classify.Keyed && class != 0 {
		l.complain(p, "means something for class keyed only; make it that class, or leave this out")
		return 0
	}
	if !f["retention"].given() {
		l.complain(f["retention"], "missing; say for how long the provider honours a key, as in 24h")
		return 0
	}
	return l.duration(f["retention"], 0, time.Second, retentionMax)
}

// recovery returns the strategies at p or, where none are given, those that
// follow from what the operation declares.
func (l *loader) recovery(p place, class classify.Class, lookup place) []Strategy {
	if !p.given() {
		return derivedRecovery(class, lookup.given())
	}
	var chosen []Strategy
	for _, item := range l.list(p) {
		name, ok := l.required(item, "one of replay_key, lookup")
		if !ok {
			continue
		}
		if s := l.strategy(item, name, class, lookup.given()); s == 0 {
			continue
		} else if slices.Contains(chosen, s) {
			l.complain(item, "%s is listed twice; keep the first", name)
		} else {
			chosen = append(chosen, s)
		}
	}
	if lookup.given() && !slices.Contains(chosen, ByLookup) {
		l.complain(p, "never asks the lookup that is declared; add lookup, or leave recover out")
	}
	return chosen
}

func derivedRecovery(class classify.Class, hasLookup bool) []Strategy {
	var s []Strategy
	if class == classify.Keyed {
		s = append(s, ByReplay)
	}
	if hasLookup {
		s = append(s, ByLookup)
	}
	return s
}

func (l *loader) strategy(p place, name string, class classify.Class, hasLookup bool) Strategy {
	i := slices.Index(strategyNames[:], name)
	switch {
	case slices.Contains(laterStrategies, name):
		l.complain(p, "%s is not supported yet; use replay_key or lookup", name)
	case i <= 0:
		l.complain(p, "%q is no strategy; use replay_key or lookup (when all are spent, the call is unknown)", name)
	case Strategy(i) == ByReplay && class != classify.Keyed && class != 0:
		l.complain(p, "replay_key needs class keyed, since only a provider that honours keys may be sent one again")
	case Strategy(i) == ByLookup && !hasLookup:
		l.complain(p, "no lookup is declared; declare one, or leave this out")
	default:
		return Strategy(i)
	}
	return 0
}

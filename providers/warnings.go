package providers

import (
	"slices"
	"strings"

	"github.com/itchyny/gojq"
)

// Warnings says what in an adapter is allowed and most likely not meant, each
// with its place, in the order of the lines.
func Warnings(a *Adapter) []string {
	if a == nil {
		return nil
	}
	var list []string
	warn := func(at Position, text string) { list = append(list, (&Complaint{At: at, Text: text}).Error()) }
	for i := range a.Operations {
		op := &a.Operations[i]
		if first := a.shadowing(i); first != "" {
			warn(op.At, "never matches, since "+first+" before it takes all that it would; move it up")
		}
		if op.Lookup == nil {
			continue
		}
		if !op.Lookup.isConsistencySaid {
			warn(op.Lookup.At, "without consistency (strong or lag) its absence proves nothing: what the lookup does not find becomes unknown")
		}
		if op.Lookup.found != nil && op.Lookup.found.yieldsNoTruth() {
			warn(op.Lookup.found.at, "only true and false count, and this may well yield neither; compare it with something, as in .id != null")
		}
	}
	return list
}

// shadowing names the earlier operations that together take every request of
// the i-th; "" if there are none.
func (a *Adapter) shadowing(i int) string {
	op := &a.Operations[i]
	methods := op.Methods
	if len(methods) == 0 {
		methods = []string{""} // any
	}
	var names []string
	for _, method := range methods {
		first := slices.IndexFunc(a.Operations[:i], func(earlier Operation) bool {
			takes := earlier.when.areNone() && (len(earlier.Methods) == 0 || slices.Contains(earlier.Methods, method))
			return takes && earlier.path.Covers(&op.path)
		})
		if first < 0 {
			return ""
		}
		if name := a.Operations[first].Name; !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return strings.Join(names, " and ")
}

// yieldsNoTruth reports whether the program ends in what most likely is neither
// true nor false: a bare member, a number, a text, an array or an object.
func (p *program) yieldsNoTruth() bool {
	query, err := gojq.Parse(p.source)
	return err == nil && !yieldsTruth(query)
}

// yieldsTruth is true where it cannot tell.
func yieldsTruth(q *gojq.Query) bool {
	switch q.Op { //nolint:exhaustive // the others may be true
	case 0:
		return q.Term == nil || termYieldsTruth(q.Term)
	case gojq.OpPipe:
		return yieldsTruth(q.Right)
	case gojq.OpAdd, gojq.OpSub, gojq.OpMul, gojq.OpDiv, gojq.OpMod:
		return false
	}
	return true
}

func termYieldsTruth(t *gojq.Term) bool {
	switch t.Type { //nolint:exhaustive // the others may be true
	case gojq.TermTypeIdentity, gojq.TermTypeIndex, gojq.TermTypeRecurse, gojq.TermTypeObject, gojq.TermTypeArray,
		gojq.TermTypeNumber, gojq.TermTypeString, gojq.TermTypeFormat, gojq.TermTypeNull:
		return false
	case gojq.TermTypeQuery:
		return len(t.SuffixList) > 0 || yieldsTruth(t.Query)
	}
	return true
}

package providers

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"counterfoil/classify"
)

// An Explanation says in plain words what an adapter makes of one request.
type Explanation struct {
	// Operation is the name of the one that matched, Defined where it is written;
	// both are empty where none did.
	Operation, Defined string
	Class              classify.Class
	// Key, ClientID and Marker are where they go, empty for none. An id that the
	// request has already is kept.
	Key, ClientID, Marker string
	// Recovery says, step by step, what happens to a call in doubt. It is never
	// empty.
	Recovery []string
	// Notes is what the adapter says that is not safe.
	Notes string
}

// Explain says what becomes of r, which is taken to be of that class: rules may
// have said so. Quiesce is how long the upstream waits where the operation does
// not say.
func (rd *Reading) Explain(r *classify.Request, class classify.Class, quiesce time.Duration) Explanation {
	e := Explanation{Class: class}
	switch op := rd.Operation; {
	case op != nil:
		e.Operation, e.Defined, e.Notes = op.Name, op.At.String(), op.Notes
		rd.explainStamps(&e, r)
	case class != classify.Read && !rd.Passes():
		e.Key = "header " + DefaultKey().Name
	}
	e.Recovery = rd.explainRecovery(r, class, quiesce)
	return e
}

// explainStamps says what the operation puts into the request.
func (rd *Reading) explainStamps(e *Explanation, r *classify.Request) {
	op := rd.Operation
	if op.Key != nil {
		e.Key = describeStamp(op.Key)
	}
	if op.ClientID != nil {
		e.ClientID = describeStamp(op.ClientID)
		if rd.id(r) != "" {
			e.ClientID += " (kept as the request has it)"
		}
	}
	if m := rd.markerFor(r); m != nil {
		e.Marker = describeStamp(m)
	}
}

func (rd *Reading) explainRecovery(r *classify.Request, class classify.Class, quiesce time.Duration) []string {
	switch {
	case rd.Passes():
		return []string{"passed through and not recorded"}
	case class == classify.Read:
		return []string{"passed through, and not recorded unless record_reads is true"}
	case class == classify.Decision:
		return []string{"the model is asked again: a decision changes nothing outside"}
	}
	var steps []string
	for _, s := range rd.Strategies(r, class) {
		steps = append(steps, rd.explainStrategy(s, quiesce))
	}
	if class == classify.Idempotent && (rd.Operation == nil || !rd.Operation.Signed) {
		steps = append(steps, "the same bytes are sent again for 10 minutes after the first sending: repeating is harmless")
	}
	if len(steps) == 0 && rd.Operation != nil {
		return []string{"nothing can be tried, so the call is unknown and a person decides: " + rd.WhyNone(r, class)}
	}
	if len(steps) == 0 {
		return []string{"nothing can be tried, so the call is unknown and a person decides: " + cmp.Or(rd.Undecided, "no operation matches this request")}
	}
	return append(steps, "when all of that is spent, the call is unknown and a person decides")
}

func (rd *Reading) explainStrategy(s Strategy, quiesce time.Duration) string {
	op := rd.Operation
	switch s {
	case ByReplay:
		return fmt.Sprintf("the same bytes are sent again under the same key, for %s after the first sending, less a margin%s", plain(op.Retention), explainErrors(op.Errors))
	case ByResendIfAbsent:
		return fmt.Sprintf("if the lookup finds nothing, the same bytes are sent again with the same id for %s: a second copy is refused", plain(op.Retention))
	case ByConditionalResend:
		return "the same bytes are sent again: the version that they name is gone once they have had their effect"
	case ByLookup, ByReadID:
	}
	k := op.Lookup
	text := "the provider is asked: " + k.String()
	if k.PagesMax > 1 {
		text += fmt.Sprintf(", %d pages at most", k.PagesMax)
	}
	if k.Permission != "" {
		text += " (needs " + k.Permission + ")"
	}
	return text + "; " + explainAbsence(op, cmp.Or(max(op.Quiesce, 0), quiesce))
}

func explainAbsence(op *Operation, quiesce time.Duration) string {
	c := op.Lookup.Consistency
	if op.Quiesce == 0 {
		quiesce = 0
	}
	switch c.Kind {
	case Strong, Lagging:
		text := fmt.Sprintf("what it does not find is believed absent %s after the attempt", plain(quiesce+c.Lag))
		if c.MissesNeeded > 1 {
			text += fmt.Sprintf(" and %d lookups %s apart", c.MissesNeeded, plain(c.Spacing))
		}
		return text + ", and sent"
	case Unproven:
	}
	return "what it does not find is never believed absent"
}

func explainErrors(e ErrorReplay) string {
	switch e {
	case ReplaysAll:
		return "; an error that is replayed ends that"
	case ReplaysSuccesses, ReplaysUnpublished:
		return "; not after an error was answered"
	case Reexecutes:
	}
	return ""
}

// plain writes a duration without the units that are zero.
func plain(d time.Duration) string {
	text := d.String()
	if rest, ok := strings.CutSuffix(text, "m0s"); ok {
		text = rest + "m"
	}
	if rest, ok := strings.CutSuffix(text, "h0m"); ok {
		text = rest + "h"
	}
	return text
}

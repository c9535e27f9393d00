package classify

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// An Answer is what one attempt brought back, as far as judging needs it.
type Answer struct {
	Evidence Evidence
	// Status counts only when Evidence is Answered.
	Status int
	// Adapter is what the adapter made of the answer's status and content, for
	// APIs that say errors in a 200; 0 when it says nothing.
	Adapter Outcome
}

// Doubt says whether an earlier attempt at the same call may have had its
// effect.
type Doubt uint8

const (
	// NoDoubt: every earlier attempt is known to have done nothing.
	NoDoubt Doubt = iota
	// AfterDoubt: an earlier attempt was lost or ambiguous.
	AfterDoubt
)

// Circumstances are what else decides the meaning of an answer.
type Circumstances struct {
	Method string
	Doubt  Doubt
	// Outcomes is the upstream's own meaning of statuses; nil for none.
	Outcomes Outcomes
}

// Outcomes says what an upstream means by some statuses where that differs
// from the default.
type Outcomes map[int]Outcome

// ParseOutcomes checks the statuses (200 to 599) and reads the names of the
// outcomes. The error joins every mistake.
func ParseOutcomes(names map[int]string) (Outcomes, error) {
	outcomes, errs := make(Outcomes, len(names)), []error(nil)
	for status, name := range names {
		o, ok := ParseOutcome(name)
		switch {
		case status < 200 || status > 599:
			errs = append(errs, fmt.Errorf("status %d: only final statuses, 200 to 599, have an outcome", status))
		case !ok:
			errs = append(errs, fmt.Errorf("status %d: outcome %q is none of applied, rejected, not_applied, ambiguous", status, name))
		default:
			outcomes[status] = o
		}
	}
	slices.SortFunc(errs, func(a, b error) int { return strings.Compare(a.Error(), b.Error()) })
	return outcomes, errors.Join(errs...)
}

// statusOutcomes is what a status means when nothing says otherwise. What is
// not listed is ambiguous, unless it is a 2xx.
var statusOutcomes = map[int]Outcome{
	301: Applied, 302: Applied, 303: Applied,
	307: NotApplied, 308: NotApplied,
	400: Rejected, 402: Rejected, 404: Rejected, 405: Rejected, 406: Rejected, 409: Rejected,
	410: Rejected, 411: Rejected, 412: Rejected, 413: Rejected, 414: Rejected, 415: Rejected,
	422: Rejected, 423: Rejected, 431: Rejected, 451: Rejected,
	// A mended credential may try again.
	401: NotApplied, 403: NotApplied,
	429: NotApplied,
	408: Ambiguous, 421: Ambiguous, 424: Ambiguous, 425: Ambiguous,
}

// tracesOfDoubt are the statuses that an earlier attempt's effect may itself
// have caused: what it made is in the way, what it removed is gone.
var tracesOfDoubt = [...]int{404, 409, 410, 412, 422}

// StatusOutcome is the default meaning of a status as answer to a first
// attempt. A status below 200 or above 599, and one that is not known to prove
// anything, is ambiguous.
func StatusOutcome(status int) Outcome {
	if status >= 200 && status <= 299 {
		return Applied
	}
	if o, ok := statusOutcomes[status]; ok {
		return o
	}
	return Ambiguous
}

// Judge says what an answer means. Evidence goes first: what was not sent is
// not applied, what was lost is ambiguous, whatever else is claimed. Then the
// upstream's own outcomes, then the adapter, then the default.
//
// After a doubtful attempt 404, 409, 410, 412 and 422 may be that attempt's
// own trace and are ambiguous, but 404 and 410 to a DELETE are applied. An
// upstream's outcomes and the adapter speak of one attempt and know nothing of
// the one before, so neither can make these five rejected or not applied after
// doubt: they are ambiguous then, to a DELETE too. Applied they may call them.
//
// Judge judges one answer. NotApplied after doubt says that this attempt did
// nothing; the doubt about the earlier one stays.
func Judge(a Answer, c Circumstances) Outcome {
	switch a.Evidence {
	case Unsent:
		return NotApplied
	case Answered:
		return judgeStatus(a, c)
	case Lost:
	}
	return Ambiguous
}

func judgeStatus(a Answer, c Circumstances) Outcome {
	said := c.Outcomes[a.Status]
	if said == 0 {
		said = a.Adapter
	}
	trace := c.Doubt == AfterDoubt && slices.Contains(tracesOfDoubt[:], a.Status)
	switch {
	case trace && said == 0:
		return judgeTrace(a.Status, c.Method)
	case trace && said != Applied:
		return Ambiguous
	case said != 0:
		return said
	case a.Status == 304 && (c.Method == "GET" || c.Method == "HEAD"):
		return Applied // a conditional read has its answer (RFC 9110 section 15.4.5)
	}
	return StatusOutcome(a.Status)
}

func judgeTrace(status int, method string) Outcome {
	if method == "DELETE" && (status == 404 || status == 410) {
		return Applied
	}
	return Ambiguous
}

// Package classify judges: what class a request is of, what its fingerprint
// is, what an attempt proved, and what an answer means. It is pure: it does no
// I/O, reads no clock and draws no randomness, and it names no provider. What
// is particular to one arrives as data.
//
// Start with [Rules.Class], [Print] and [Judge]; [Secrets] says what must not be
// kept in clear. Everything prepared once (rules, options, secrets) may be shared
// by any number of goroutines. The work on one request is bounded by its length.
package classify

// A Class says what a request may do to the world outside. The numbers are
// stored: they are only ever appended to.
type Class uint8

const (
	// Read changes nothing.
	Read Class = iota + 1
	// Decision is a model call: nothing changes outside, but the answer is the
	// plan, so it is always kept.
	Decision
	// Keyed is an effect that the provider deduplicates by our key.
	Keyed
	// Idempotent is an effect whose repetition is harmless by its nature.
	Idempotent
	// Effect is any other change.
	Effect
)

// Evidence is what an attempt proved. The numbers are stored: they are only
// ever appended to.
type Evidence uint8

const (
	// Unsent: not one byte of the request left.
	Unsent Evidence = iota + 1
	// Answered: a whole answer came.
	Answered
	// Lost: bytes left, and no whole answer came.
	Lost
)

// An Outcome is what an answer means. The numbers are stored: they are only
// ever appended to.
type Outcome uint8

const (
	// Applied: the effect exists, the answer is final.
	Applied Outcome = iota + 1
	// Rejected: nothing happened and nothing will later; the answer is final.
	Rejected
	// NotApplied: nothing happened, and trying again is right.
	NotApplied
	// Ambiguous: the effect may exist.
	Ambiguous
)

var (
	classNames    = [...]string{Read: "read", Decision: "decision", Keyed: "keyed", Idempotent: "idempotent", Effect: "effect"}
	evidenceNames = [...]string{Unsent: "unsent", Answered: "answered", Lost: "lost"}
	outcomeNames  = [...]string{Applied: "applied", Rejected: "rejected", NotApplied: "not_applied", Ambiguous: "ambiguous"}
)

func (c Class) String() string    { return nameOf(classNames[:], uint8(c)) }
func (e Evidence) String() string { return nameOf(evidenceNames[:], uint8(e)) }
func (o Outcome) String() string  { return nameOf(outcomeNames[:], uint8(o)) }

// ParseClass returns the class of that name, or false.
func ParseClass(name string) (Class, bool) {
	n, ok := numberOf(classNames[:], name)
	return Class(n), ok
}

// ParseOutcome returns the outcome of that name, or false.
func ParseOutcome(name string) (Outcome, bool) {
	n, ok := numberOf(outcomeNames[:], name)
	return Outcome(n), ok
}

func nameOf(names []string, n uint8) string {
	if n == 0 || int(n) >= len(names) {
		return "invalid"
	}
	return names[n]
}

func numberOf(names []string, name string) (uint8, bool) {
	for n := 1; n < len(names); n++ {
		if names[n] == name {
			return uint8(n), true
		}
	}
	return 0, false
}

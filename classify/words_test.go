package classify

import "testing"

// The numbers are stored, the names go over the wire: neither may change.
func TestWordsAreStable(t *testing.T) {
	for n, name := range []string{"invalid", "read", "decision", "keyed", "idempotent", "effect", "invalid"} {
		c := Class(n)
		if c.String() != name {
			t.Errorf("class %d: got %s, want %s", n, c, name)
		}
		if got, ok := ParseClass(name); ok != (name != "invalid") || ok && got != c {
			t.Errorf("parsing class %s: got %v, %v", name, got, ok)
		}
	}
	for n, name := range []string{"invalid", "unsent", "answered", "lost", "invalid"} {
		if got := Evidence(n).String(); got != name {
			t.Errorf("evidence %d: got %s, want %s", n, got, name)
		}
	}
	for n, name := range []string{"invalid", "applied", "rejected", "not_applied", "ambiguous", "invalid"} {
		o := Outcome(n)
		if o.String() != name {
			t.Errorf("outcome %d: got %s, want %s", n, o, name)
		}
		if got, ok := ParseOutcome(name); ok != (name != "invalid") || ok && got != o {
			t.Errorf("parsing outcome %s: got %v, %v", name, got, ok)
		}
	}
}

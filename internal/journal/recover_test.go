package journal

import (
	"strings"
	"testing"

	"counterfoil/keystore"
)

// The 423 prints a command that a person can paste, whatever agents called
// their calls.
func TestTheUnknownsCommand(t *testing.T) {
	for _, tt := range []struct {
		namespace, run, turn, call, want string
	}{
		{"default", "r", "1", "c", "r:1:c"},
		{"default", "-", "-", "abc", "-:-:abc"},
		{"default", "-", "=3", "abc", "-:%3D3:abc"},
		{"default", "-prod", "1", "c", "%2Dprod:1:c"},
		{"team-a", "r", "1", "c", "r:1:c --namespace=team-a"},
		{"default", "$(rm)", "1", "it's", `'$(rm):1:it'\''s'`},
		{"team;a", "r", "1", "c", "r:1:c --namespace='team;a'"},
	} {
		k := keystore.Key{Namespace: tt.namespace, Run: tt.run, Turn: tt.turn, Call: tt.call}
		if got := resolveCommand(k); got != "sidecar resolve "+tt.want {
			t.Errorf("%v: %s, want %s", k, got, tt.want)
		}
	}
	b := newBench(t, newProvider(loses(true)), "")
	c := call("c")
	c.Key.Namespace = "team-a"
	reply := b.do(c)
	wantProblem(t, reply, UnknownOutcome)
	for _, want := range []string{"sidecar resolve r:1:c --namespace=team-a ", "--applied", "--not-applied", "--abandon", "--recheck"} {
		if !strings.Contains(reply.Refusal.Detail, want) {
			t.Errorf("the detail lacks %q: %s", want, reply.Refusal.Detail)
		}
	}
}

package crashtest

import (
	"bytes"
	"os"
	"testing"
)

// TestReleasedBinaryHasNoSwitch: CRASH_POINT means nothing to a binary that was
// built without the tag.
func TestReleasedBinaryHasNoSwitch(t *testing.T) {
	b := newBench(t)
	s := b.start(programs.released, "begin.before:1")
	c := things("none", "plain")
	checkVerdict(t, b.provider, c, s.send(c), verdict{"executed", 1, 1})
	for program, want := range map[string]bool{programs.released: false, programs.withPoints: true} {
		text, err := os.ReadFile(program)
		if err != nil {
			t.Fatal(err)
		}
		if got := bytes.Contains(text, []byte("CRASH_POINT")); got != want {
			t.Errorf("%s names CRASH_POINT: %t, not %t", program, got, want)
		}
	}
}

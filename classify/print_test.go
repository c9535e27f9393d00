package classify

import (
	"bytes"
	"flag"
	"os"
	"strings"
	"testing"
)

var rewrite = flag.Bool("rewrite", false, "print the table of outcomes in docs/guarantees.md anew")

// The documented meaning of statuses is the one that is applied.
func TestOutcomesPage(t *testing.T) {
	const page, begin, end = "../docs/guarantees.md", "<!-- outcomes: printed by go test ./classify -rewrite -->\n", "<!-- end of outcomes -->"
	var b bytes.Buffer
	if err := WriteOutcomes(&b); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, begins := strings.Cut(string(text), begin)
	printed, after, ends := strings.Cut(rest, end)
	if !begins || !ends {
		t.Fatalf("%s has no place for the table", page)
	}
	if *rewrite {
		if err := os.WriteFile(page, []byte(before+begin+b.String()+end+after), 0o644); err != nil {
			t.Fatal(err)
		}
	} else if printed != b.String() {
		t.Errorf("%s is not what the code says; go test ./classify -rewrite prints it anew:\n%s", page, b.String())
	}
}

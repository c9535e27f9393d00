package keystore

import (
	"bytes"
	"flag"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

var rewrite = flag.Bool("rewrite", false, "print the pages under docs and the golden files anew")

const docs = "../docs"

// golden holds got against a file, or rewrites the file.
func golden(t *testing.T, path string, got []byte) {
	t.Helper()
	if *rewrite {
		if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, got, 0o666); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatalf("%v; -rewrite writes it", err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("%s is not what the code says; go test ./keystore -rewrite prints it anew:\n%s", path, firstDifference(got, want))
	}
}

func firstDifference(got, want []byte) string {
	g, w := strings.Split(string(got), "\n"), strings.Split(string(want), "\n")
	for i := range max(len(g), len(w)) {
		var gl, wl string
		if i < len(g) {
			gl = g[i]
		}
		if i < len(w) {
			wl = w[i]
		}
		if gl != wl {
			return "got  " + gl + "\nwant " + wl
		}
	}
	return ""
}

func TestStatesPage(t *testing.T) {
	var b bytes.Buffer
	if err := WriteStates(&b); err != nil {
		t.Fatal(err)
	}
	golden(t, filepath.Join(docs, "states.md"), b.Bytes())
}

// TestStateWords: the page and the comments of the constants say the same.
func TestStateWords(t *testing.T) {
	file, err := parser.ParseFile(token.NewFileSet(), "state.go", nil, parser.ParseComments)
	if err != nil {
		t.Fatal(err)
	}
	names := map[string]string{}
	ast.Inspect(file, func(n ast.Node) bool {
		if v, ok := n.(*ast.ValueSpec); ok && v.Doc != nil {
			names[v.Names[0].Name] = strings.Join(strings.Fields(v.Doc.Text()), " ")
		}
		return true
	})
	constants := [numStates]string{"None", "Planned", "Held", "Pending", "Open", "InDoubt", "Succeeded", "Rejected", "Unknown", "Abandoned", "Expired"}
	for s, name := range constants {
		if got, want := names[name], name+": "+stateWords[s]; got != want {
			t.Errorf("comment of %s:\ngot  %s\nwant %s", name, got, want)
		}
	}
}

func TestNamesAreWhole(t *testing.T) {
	for s := range numStates {
		if got, ok := ParseState(s.String()); !ok || got != s || stateWords[s] == "" {
			t.Errorf("state %d: %q parses as %d, %t; words %q", s, s, got, ok, stateWords[s])
		}
	}
	seen := map[string]bool{}
	for k := noEvent + 1; k < numEvents; k++ {
		if k.String() == "" || seen[k.String()] || effects[k] == nil {
			t.Errorf("event %d: name %q, seen before: %t, without effect: %t", k, k, seen[k.String()], effects[k] == nil)
		}
		seen[k.String()] = true
	}
	for g := always + 1; g < numGuards; g++ {
		if guards[g].short == "" || guards[g].name == "" {
			t.Errorf("guard %d has no name", g)
		}
	}
	for _, out := range []string{State(99).String(), EventKind(99).String(), noEvent.String(), Action(0).String(), Reason(99).String(), Source(0).String()} {
		if out != "invalid" {
			t.Errorf("a number without a name prints as %q", out)
		}
	}
	if _, ok := ParseState("in doubt"); ok {
		t.Error("ParseState knows a state that does not exist")
	}
}

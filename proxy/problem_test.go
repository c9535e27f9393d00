package proxy

import (
	"encoding/json"
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	source "go/token"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"counterfoil/internal/journal"
	"counterfoil/keystore"
)

var rewrite = flag.Bool("rewrite", false, "print the tables of docs/protocol.md anew")

// Every problem that the code names has one row, and every row a name.
func TestEveryProblemHasARow(t *testing.T) {
	rows := map[string]int{}
	for i := range problems {
		rows[string(problems[i].name)]++
	}
	named := map[string]bool{}
	for _, dir := range []string{".", "../internal/journal"} {
		for _, name := range declaredProblems(t, dir) {
			named[name] = true
			if rows[name] != 1 {
				t.Errorf("%s has %d rows", name, rows[name])
			}
		}
	}
	for name := range rows {
		if !named[name] {
			t.Errorf("the row %q belongs to no constant", name)
		}
	}
	if len(named) < 30 {
		t.Errorf("only %d problems were found in the source", len(named))
	}
}

// declaredProblems lists the constants of type Problem in a directory.
func declaredProblems(t *testing.T, dir string) (names []string) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		tree, err := parser.ParseFile(source.NewFileSet(), file, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(tree, func(n ast.Node) bool {
			spec, isSpec := n.(*ast.ValueSpec)
			if !isSpec || len(spec.Values) != 1 || !strings.HasSuffix(typeName(spec.Type), "Problem") {
				return true
			}
			if literal, isLiteral := spec.Values[0].(*ast.BasicLit); isLiteral {
				name, err := strconv.Unquote(literal.Value)
				if err != nil {
					t.Fatal(err)
				}
				names = append(names, name)
			}
			return true
		})
	}
	return names
}

func typeName(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.Ident:
		return e.Name
	case *ast.SelectorExpr:
		return e.Sel.Name
	}
	return ""
}

// Every row becomes a document that keeps the rules of design 3.3.
func TestDocuments(t *testing.T) {
	k := keystore.Key{Namespace: "default", Run: "r", Turn: "t", Call: "c"}
	for i := range problems {
		form := &problems[i]
		for _, effect := range []bool{false, true} {
			d, h := document(&journal.Refusal{Problem: form.name, Detail: "d.", RetryAfter: 1500 * time.Millisecond, EffectPossible: effect, UpstreamStatus: 500}, k, "key", "/i")
			if d.Type != "urn:counterfoil:problem:"+string(form.name) || d.Status != form.status || d.Title == "" || strings.HasSuffix(d.Title, ".") {
				t.Errorf("%+v", d)
			}
			if effect && d.SafeNewKey && form.anew != harmless {
				t.Errorf("%s: a new key is called safe while an effect may exist", form.name)
			}
			stop := d.Status == 423 || d.Status == 410
			if h.Has("x-should-retry") != stop || h.Has("stripe-should-retry") != stop || stop && (h.Value("x-should-retry") != "false" || d.SafeToRetry) {
				t.Errorf("%s: %v", form.name, h)
			}
			if h.Value("Retry-After") != "2" || h.Value("Content-Type") != "application/problem+json" {
				t.Errorf("%s: %v", form.name, h)
			}
			var back map[string]any
			if err := json.Unmarshal(d.body(), &back); err != nil {
				t.Fatal(err)
			}
			for _, member := range []string{"type", "title", "status", "detail", "instance", "safe_to_retry", "safe_new_key", "upstream_status", "run", "turn", "call", "key"} {
				if _, has := back[member]; !has {
					t.Errorf("%s: no %s", form.name, member)
				}
			}
		}
	}
	if d, _ := document(&journal.Refusal{Problem: "no-such"}, k, "", ""); d.Status != 503 {
		t.Errorf("a problem without a row is answered %d", d.Status)
	}
}

func FuzzDocument(f *testing.F) {
	f.Add("detail", "r", "c", int64(time.Second))
	f.Add("\x00\xff\"", "\r\n", "</script>", int64(-1))
	f.Fuzz(func(t *testing.T, detail, run, call string, after int64) {
		d, h := document(&journal.Refusal{Problem: journal.InProgress, Detail: detail, RetryAfter: time.Duration(after)}, keystore.Key{Run: run, Call: call}, call, run)
		if !json.Valid(d.body()) {
			t.Errorf("%q", d.body())
		}
		for _, field := range h {
			if !isFieldValue(field.Value) {
				t.Errorf("%+v", field)
			}
		}
	})
}

const docFile = "../docs/protocol.md"

// The table in the docs is printed from the one in the code.
func TestDocumentedProblems(t *testing.T) {
	var b strings.Builder
	b.WriteString("| status | name | title | `safe_to_retry` | `safe_new_key` |\n| --- | --- | --- | --- | --- |\n")
	for i := range problems {
		p := &problems[i]
		same := map[sameKey]string{worthwhile: "yes", pointless: "no"}[p.same]
		anew := map[newKey]string{harmless: "yes", unlessEffect: "unless an effect may exist", harmful: "no"}[p.anew]
		fmt.Fprintf(&b, "| %d | `%s` | %s | %s | %s |\n", p.status, p.name, p.title, same, anew)
	}
	golden(t, docFile, "problems", b.String())
}

// golden holds the part of a file between two marks against what was printed.
func golden(t *testing.T, file, part, printed string) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	begin, end := "<!-- "+part+": printed by go test ./proxy -rewrite -->\n", "<!-- end of "+part+" -->"
	before, rest, found := strings.Cut(string(text), begin)
	old, after, ended := strings.Cut(rest, end)
	if !found || !ended {
		t.Fatalf("%s has no part %q", file, part)
	}
	if old == printed {
		return
	}
	if !*rewrite {
		t.Fatalf("%s: part %q is not what the code says; print it with: go test ./proxy -run %s -rewrite\n%s", file, part, t.Name(), printed)
	}
	if err := os.WriteFile(file, []byte(before+begin+printed+end+after), 0o644); err != nil {
		t.Fatal(err)
	}
}

// Stripe's SDK takes any JSON without a member "error" for the object asked for.
func TestEveryProblemIsAnErrorToSDKs(t *testing.T) {
	for i := range problems {
		d, _ := document(&journal.Refusal{Problem: problems[i].name, Detail: "do this"}, keystore.Key{}, "", "")
		var got struct {
			Error struct{ Type, Code, Message string }
		}
		if err := json.Unmarshal(d.body(), &got); err != nil {
			t.Fatal(err)
		}
		if got.Error.Type != "api_error" || got.Error.Code != string(problems[i].name) || got.Error.Message != "do this" {
			t.Errorf("%s: error member %+v", problems[i].name, got.Error)
		}
	}
}

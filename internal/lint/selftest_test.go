package lint

import (
	"os"
	"slices"
	"strings"
	"testing"
)

// Each rule finds what it is for, and leaves its neighbours alone.
func TestRulesFind(t *testing.T) {
	for _, tt := range []struct {
		rule, path, text string
		want             int
	}{
		{"init", "proxy/x.go", "func init() {}\nfunc (x T) init() {}", 1},
		{"sleep", "proxy/x_test.go", "import \"time\"\nfunc f() { time.Sleep(1) }", 1},
		{"sleep", "proxy/x_test.go", "import clock \"time\"\nfunc f() { clock.Sleep(1) }", 1},
		{"sleep", "proxy/x.go", "import \"time\"\nfunc f() { time.Sleep(1) }", 0},
		{"sleep", "proxy/x_test.go", "import \"time\"\nfunc f() { synctest.Test(t, func() { time.Sleep(1) }) }\nfunc g() { time.Sleep(1) }", 1},
		{"sleep", "proxy/x_test.go", "func f() { time.Sleep(1) }", 0},
		{"skip", "proxy/x_test.go", "func f() { t.Skip(); b.SkipNow(); bufio.Skip() }", 2},
		{"globals", "proxy/x.go", "var a, b = 1, 2\nvar m = map[string]int{\"a\": 1}\nvar errX = errors.New(\"x\")\nvar _ I = T(nil)", 0},
		{"globals", "proxy/x.go", "var mu sync.Mutex\nvar n int\nvar c = http.DefaultClient\nvar p = &T{}\nvar q = load()", 5},
		{"globals", "proxy/x.go", "//go:embed x.html\nvar page string", 0},
		{"panic", "proxy/x.go", "func f() { panic(1); x.panic(2) }", 1},
		{"todo", "proxy/x.go", "// TO" + "DO: later\nvar a = 1", 1},
		{"names", "proxy/x.go", "type RunManager struct{}\ntype Managers int\ntype clientHelper int", 2},
		{"names", "proxy/util/x.go", "", 1},
		{"environment", "proxy/x.go", "import \"os\"\nvar a = os.Getenv(\"A\")", 1},
		{"environment", "cmd/sidecar/x.go", "import \"os\"\nvar a = os.Getenv(\"A\")", 0},
		{"clock", "keystore/x.go", "import \"time\"\nvar a = time.Now()", 1},
		{"clock", "keystore/badger/x.go", "import \"time\"\nvar a = time.Now()", 0},
		{"default client", "proxy/x.go", "import \"net/http\"\nvar a = http.DefaultClient", 1},
		{"exit", "proxy/x.go", "import \"os\"\nfunc f() { os.Exit(1) }", 1},
		{"print", "proxy/x.go", "import \"fmt\"\nfunc f() { fmt.Println(); fmt.Sprint() }", 1},
		{"context", "proxy/x.go", "type T struct { ctx context.Context; n int }", 1},
	} {
		i := slices.IndexFunc(rules, func(r rule) bool { return r.name == tt.rule })
		if i < 0 {
			t.Fatalf("there is no rule %q", tt.rule)
		}
		if got := rules[i].check(parse(t, tt.path, "package x\n"+tt.text)); len(got) != tt.want {
			t.Errorf("%s on %s %q: got %v, want %d", tt.rule, tt.path, tt.text, got, tt.want)
		}
	}
}

func TestEveryRuleIsTested(t *testing.T) {
	data, err := os.ReadFile("selftest_test.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range rules {
		if !strings.Contains(string(data), `{"`+r.name+`", `) {
			t.Errorf("rule %q is not in TestRulesFind", r.name)
		}
	}
}

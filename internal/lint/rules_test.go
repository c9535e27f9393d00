package lint

import (
	"go/ast"
	"go/token"
	"path"
	"slices"
	"strings"
	"testing"
)

// programs write to their own terminal and read their own environment.
var programs = []string{"cmd", "bench", "examples", "internal/demo"}

// pure are the packages that get time as a value.
var pure = []string{"classify", "keystore", "providers"}

// A rule finds what is not written here.
type rule struct {
	name  string
	say   string // what to do instead
	check func(*source) []finding
}

var rules = []rule{
	{"init", "call a function from cmd/sidecar: nothing happens before main", checkInit},
	{"sleep", "wait for a signal (a channel, testing/synctest): a sleep is too short on a slow day, too long on all others", checkSleep},
	{"skip", "make the test run everywhere, or leave it out: a test that is skipped is green", checkSkip},
	{"globals", "a package variable is an error or a table that nobody changes: hand anything else in", checkGlobals},
	{"panic", "return an error: panic is for a state that cannot be, where going on would corrupt the journal", checkPanic},
	{"todo", "do it, or file an issue", checkTodo},
	{"names", "name the thing by what it is: these words say nothing", checkNames},
	{"environment", "take it from internal/config: only programs read the environment", func(s *source) []finding {
		if s.isTest || s.in(programs...) {
			return nil
		}
		return s.uses("os.Getenv", "os.LookupEnv", "os.Environ", "os.ExpandEnv")
	}},
	{"clock", "take the time as a value: pure packages read no clock", func(s *source) []finding {
		if s.isTest || !slices.Contains(pure, s.dir) {
			return nil
		}
		return s.uses("time.Now", "time.Since", "time.Until", "time.After", "time.NewTimer", "time.NewTicker")
	}},
	{"default client", "use a client that was handed in: the default one has no time-out, and repeats requests", func(s *source) []finding {
		if s.isTest || s.in(programs...) {
			return nil
		}
		return s.uses("net/http.Get", "net/http.Post", "net/http.PostForm", "net/http.Head", "net/http.DefaultClient", "net/http.DefaultTransport")
	}},
	{"exit", "return an error: only main ends the process, or deferred work is lost", func(s *source) []finding {
		if s.in(programs...) || s.isTest {
			return nil
		}
		return s.uses("os.Exit", "log.Fatal", "log.Fatalf", "log.Fatalln", "log.Panic", "log.Panicf")
	}},
	{"print", "log through slog, or return it: only programs write to the terminal", func(s *source) []finding {
		if s.in(programs...) || s.isTest {
			return nil
		}
		return s.uses("fmt.Print", "fmt.Printf", "fmt.Println", "log.Print", "log.Printf", "log.Println")
	}},
	{"context", "pass it as the first parameter: a stored context ends at the wrong time", checkContext},
}

// An exception excuses one file from one rule.
type exception struct {
	rule, path, reason string
}

var exceptions = []exception{
	{"environment", "internal/crashpoint/on.go", "built only under the tag crashpoints: the test that starts the process names the point"},
	{"globals", "keystore/storetest/suite.go", "a codec that never changes, made once since making it costs far more than using it"},
	{"globals", "internal/crashpoint/on.go", "counts in the one process that is to die; built only under the tag crashpoints"},
	{"panic", "keystore/storetest/disk.go", "the suite's own store: an error there is a mistake in the suite, and must not look like one of a store"},
	{"panic", "keystore/storetest/memory.go", "the same"},
	{"sleep", "keystore/badger/bench_test.go", "waits, with a bound, for Badger's compaction to end, which nothing signals"},
	{"sleep", "keystore/badger/committer_test.go", "waits, with a bound, for goroutines to stand in a queue, which nothing signals"},
	{"imports", "internal/crashtest/power_linux_test.go", "cuts a file system's power by an ioctl that takes a pointer"},
	{"context", "cmd/sidecar/serve.go", "a group is the life of the process's parts, and its context is that life, as in errgroup"},
}

func isExcused(rule, path string) bool {
	return slices.ContainsFunc(exceptions, func(e exception) bool { return e.rule == rule && e.path == path })
}

func TestRules(t *testing.T) {
	all := sources(t)
	for _, r := range rules {
		t.Run(r.name, func(t *testing.T) {
			for _, s := range all {
				if isExcused(r.name, s.path) {
					continue
				}
				for _, f := range r.check(s) {
					t.Errorf("%s:%d: %s: %s", f.path, f.line, f.text, r.say)
				}
			}
		})
	}
}

// An exception lives only as long as it is needed.
func TestExceptionsAreNeeded(t *testing.T) {
	all := sources(t)
	for _, e := range exceptions {
		i := slices.IndexFunc(all, func(s *source) bool { return s.path == e.path })
		if i < 0 {
			t.Errorf("the exception of %s from %q: there is no such file: remove it", e.path, e.rule)
			continue
		}
		if !isBroken(e.rule, all[i]) {
			t.Errorf("the exception of %s from %q is not needed: remove it", e.path, e.rule)
		}
		if e.reason == "" {
			t.Errorf("the exception of %s from %q has no reason", e.path, e.rule)
		}
	}
}

// isBroken reports whether a file breaks a rule, excused or not.
func isBroken(name string, s *source) bool {
	if name == "imports" {
		return s.imports()["unsafe"] != nil
	}
	for _, r := range rules {
		if r.name == name {
			return len(r.check(s)) > 0
		}
	}
	return false
}

func checkInit(s *source) []finding {
	var found []finding
	for _, d := range s.ast.Decls {
		if f, ok := d.(*ast.FuncDecl); ok && f.Recv == nil && f.Name.Name == "init" {
			found = append(found, s.find(f, "func init"))
		}
	}
	return found
}

// checkSleep lets a sleep pass within synctest.Test, where time is made up and
// a sleep says what time it is.
func checkSleep(s *source) []finding {
	if !s.isTest {
		return nil
	}
	type span struct{ from, to int }
	var bubbles []span
	line := func(p token.Pos) int { return s.fset.Position(p).Line }
	ast.Inspect(s.ast, func(n ast.Node) bool {
		if call, ok := n.(*ast.CallExpr); ok && spelt(call.Fun) == "synctest.Test" {
			bubbles = append(bubbles, span{line(call.Pos()), line(call.End())})
		}
		return true
	})
	return slices.DeleteFunc(s.uses("time.Sleep"), func(f finding) bool {
		return slices.ContainsFunc(bubbles, func(b span) bool { return b.from <= f.line && f.line <= b.to })
	})
}

func checkSkip(s *source) []finding {
	if !s.isTest {
		return nil
	}
	var found []finding
	ast.Inspect(s.ast, func(n ast.Node) bool {
		sel, ok := n.(*ast.SelectorExpr)
		if !ok {
			return true
		}
		x, ok := sel.X.(*ast.Ident)
		if ok && slices.Contains([]string{"t", "b", "f", "tb"}, x.Name) && slices.Contains([]string{"Skip", "Skipf", "SkipNow"}, sel.Sel.Name) {
			found = append(found, s.find(n, "%s.%s", x.Name, sel.Sel.Name))
		}
		return true
	})
	return found
}

func checkPanic(s *source) []finding {
	if s.isTest {
		return nil
	}
	var found []finding
	ast.Inspect(s.ast, func(n ast.Node) bool {
		if call, ok := n.(*ast.CallExpr); ok {
			if f, ok := call.Fun.(*ast.Ident); ok && f.Name == "panic" {
				found = append(found, s.find(n, "panic"))
			}
		}
		return true
	})
	return found
}

func checkTodo(s *source) []finding {
	var found []finding
	for _, group := range s.ast.Comments {
		for _, c := range group.List {
			for _, word := range []string{"TO" + "DO", "FIX" + "ME"} {
				if strings.Contains(c.Text, word) {
					found = append(found, s.find(c, "%s", word))
				}
			}
		}
	}
	return found
}

func checkNames(s *source) []finding {
	var found []finding
	if slices.Contains([]string{"util", "utils", "common", "helpers", "base", "models", "types", "mocks"}, path.Base(s.dir)) {
		found = append(found, s.find(s.ast.Name, "package %s", path.Base(s.dir)))
	}
	for spec := range typeSpecs(s.ast) {
		for _, word := range []string{"Manager", "Service", "Helper", "Util"} {
			if strings.HasSuffix(spec.Name.Name, word) {
				found = append(found, s.find(spec, "type %s", spec.Name.Name))
			}
		}
	}
	return found
}

func typeSpecs(f *ast.File) func(func(*ast.TypeSpec) bool) {
	return func(yield func(*ast.TypeSpec) bool) {
		ast.Inspect(f, func(n ast.Node) bool {
			spec, ok := n.(*ast.TypeSpec)
			return !ok || yield(spec)
		})
	}
}

func checkContext(s *source) []finding {
	if s.isTest {
		return nil
	}
	var found []finding
	ast.Inspect(s.ast, func(n ast.Node) bool {
		st, ok := n.(*ast.StructType)
		if !ok {
			return true
		}
		for _, f := range st.Fields.List {
			if sel, ok := f.Type.(*ast.SelectorExpr); ok && sel.Sel.Name == "Context" {
				if x, ok := sel.X.(*ast.Ident); ok && x.Name == "context" {
					found = append(found, s.find(f, "a context in a struct"))
				}
			}
		}
		return true
	})
	return found
}

// checkGlobals lets pass what cannot change by its shape: errors, tables,
// patterns, templates, embedded files, and proofs that a type implements an
// interface.
func checkGlobals(s *source) []finding {
	if s.isTest {
		return nil
	}
	var found []finding
	for _, d := range s.ast.Decls {
		g, ok := d.(*ast.GenDecl)
		if !ok || g.Tok != token.VAR {
			continue
		}
		for _, spec := range g.Specs {
			v, ok := spec.(*ast.ValueSpec)
			if ok && !isConstantLike(g, v) {
				found = append(found, s.find(v, "var %s", v.Names[0].Name))
			}
		}
	}
	return found
}

func isConstantLike(g *ast.GenDecl, v *ast.ValueSpec) bool {
	if v.Names[0].Name == "_" || isEmbedded(g.Doc) || isEmbedded(v.Doc) {
		return true
	}
	for _, value := range v.Values {
		if !isTable(value) {
			return false
		}
	}
	return len(v.Values) > 0
}

func isEmbedded(doc *ast.CommentGroup) bool {
	return doc != nil && slices.ContainsFunc(doc.List, func(c *ast.Comment) bool { return strings.HasPrefix(c.Text, "//go:embed ") })
}

// makers are the functions whose results are as good as constants.
var makers = []string{
	"errors.New", "fmt.Errorf", "regexp.MustCompile", "template.Must", "strings.NewReplacer",
	"netip.MustParsePrefix", "netip.MustParseAddr", "time.Unix", "time.Date", "reflect.TypeFor", "big.NewInt",
	"base32.NewEncoding.WithPadding", "base32.HexEncoding.WithPadding", "base32.StdEncoding.WithPadding",
}

func isTable(e ast.Expr) bool {
	switch e := e.(type) {
	case *ast.CompositeLit, *ast.BasicLit, *ast.FuncLit:
		return true
	case *ast.UnaryExpr:
		// A refusal is what an error is elsewhere.
		lit, ok := e.X.(*ast.CompositeLit)
		return ok && e.Op == token.AND && spelt(lit.Type) == "journal.Refusal"
	case *ast.CallExpr:
		_, isComputed := e.Fun.(*ast.FuncLit) // a table that a loop fills
		_, isConversion := e.Fun.(*ast.ArrayType)
		return isComputed || isConversion || slices.Contains(makers, spelt(e.Fun))
	}
	return false
}

// spelt writes a chain of selectors and calls as a reader would, without
// arguments: "" for anything else.
func spelt(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.Ident:
		return e.Name
	case *ast.SelectorExpr:
		return spelt(e.X) + "." + e.Sel.Name
	case *ast.CallExpr:
		return spelt(e.Fun)
	case *ast.IndexExpr:
		return spelt(e.X)
	}
	return ""
}

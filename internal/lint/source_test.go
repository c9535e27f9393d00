package lint

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const (
	root   = "../.."
	module = "counterfoil"
)

// A source is one Go file of the module.
type source struct {
	path   string // from the root, with slashes
	dir    string
	isTest bool
	fset   *token.FileSet
	ast    *ast.File
}

// A finding is one place where a rule is broken.
type finding struct {
	path string
	line int
	text string
}

func (s *source) find(n ast.Node, format string, args ...any) finding {
	return finding{path: s.path, line: s.fset.Position(n.Pos()).Line, text: fmt.Sprintf(format, args...)}
}

// parse makes a source of text, as if it stood at name.
func parse(t *testing.T, name string, text any) *source {
	t.Helper()
	fset := token.NewFileSet()
	file := filepath.Join(root, filepath.FromSlash(name))
	parsed, err := parser.ParseFile(fset, file, text, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	return &source{path: name, dir: path.Dir(name), isTest: strings.HasSuffix(name, "_test.go"), fset: fset, ast: parsed}
}

// sources parses every Go file of the module, whatever its build tags.
func sources(t *testing.T) []*source {
	t.Helper()
	var all []*source
	err := filepath.WalkDir(root, func(file string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name := d.Name()
		if d.IsDir() && (name == "testdata" || name == "node_modules" || name == "bin" || len(name) > 1 && name[0] == '.' && name != "..") {
			return filepath.SkipDir
		}
		if d.IsDir() || !strings.HasSuffix(name, ".go") {
			return nil
		}
		rel, err := filepath.Rel(root, file)
		if err != nil {
			return err
		}
		all = append(all, parse(t, filepath.ToSlash(rel), nil))
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(all) < 20 {
		t.Fatalf("found %d Go files below %s, want the whole module", len(all), root)
	}
	return all
}

// imports lists what a file imports.
func (s *source) imports() map[string]*ast.ImportSpec {
	all := map[string]*ast.ImportSpec{}
	for _, spec := range s.ast.Imports {
		if p, err := strconv.Unquote(spec.Path.Value); err == nil {
			all[p] = spec
		}
	}
	return all
}

// calls reports what is said of each use of a package's function, as in
// time.Sleep, under whatever name the package is imported.
func (s *source) uses(names ...string) []finding {
	local := map[string]string{}
	for p, spec := range s.imports() {
		name := path.Base(p)
		if spec.Name != nil {
			name = spec.Name.Name
		}
		local[name] = p
	}
	var found []finding
	ast.Inspect(s.ast, func(n ast.Node) bool {
		sel, ok := n.(*ast.SelectorExpr)
		if !ok {
			return true
		}
		if x, ok := sel.X.(*ast.Ident); ok {
			if full := local[x.Name] + "." + sel.Sel.Name; slices.Contains(names, full) {
				found = append(found, s.find(n, "%s", full))
			}
		}
		return true
	})
	return found
}

// in reports whether the file stands in one of the directories, or below it.
func (s *source) in(dirs ...string) bool {
	for _, d := range dirs {
		if s.dir == d || strings.HasPrefix(s.dir, d+"/") {
			return true
		}
	}
	return false
}

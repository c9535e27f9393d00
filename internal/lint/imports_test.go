package lint

import (
	"maps"
	"slices"
	"strings"
	"testing"
)

// A room is a package, and what it may import beside the standard library.
type room struct {
	// own are packages of this module; everyone may import classify.
	own []string
	// foreign are modules, or parts of them.
	foreign []string
	// not are parts of the standard library that it keeps away from.
	not []string
}

// impure is what a package of pure judgement keeps away from.
var impure = []string{"database/sql", "log", "log/slog", "math/rand", "math/rand/v2", "net", "net/http", "os", "os/exec", "syscall"}

// rooms is the plan of the house.
var rooms = map[string]room{
	"classify":           {not: impure},
	"keystore":           {foreign: []string{"github.com/fxamacker/cbor/v2"}, not: impure},
	"keystore/badger":    {own: []string{"keystore"}, foreign: []string{"github.com/dgraph-io/badger/v4", "github.com/dgraph-io/ristretto/v2", "github.com/fxamacker/cbor/v2", "golang.org/x/sys"}, not: []string{"net/http"}},
	"keystore/postgres":  {own: []string{"keystore"}, foreign: []string{"github.com/jackc/pgx/v5"}, not: []string{"net/http"}},
	"keystore/storetest": {own: []string{"keystore"}, foreign: []string{"pgregory.net/rapid", "github.com/anishathalye/porcupine"}},
	"providers":          {foreign: []string{"github.com/itchyny/gojq", "go.yaml.in/yaml/v3"}, not: impure},
	"providers/adapters": {own: []string{"providers"}, foreign: []string{"go.yaml.in/yaml/v3"}, not: impure},
	"providers/sse":      {not: impure},
	"providers/graphql":  {own: []string{"providers"}, foreign: []string{"github.com/vektah/gqlparser/v2"}, not: impure},
	"providers/mcp":      {own: []string{"providers", "providers/sse"}, not: impure},
	"providers/llm":      {own: []string{"providers", "providers/sse"}, not: impure},
	// Stand-ins for providers, which tests and examples talk to.
	"internal/fake":     {},
	"internal/upstream": {foreign: []string{"github.com/valyala/fasthttp", "github.com/hashicorp/go-retryablehttp", "golang.org/x/net", "golang.org/x/sys"}},
	"internal/journal":  {own: []string{"keystore", "providers", "internal/crashpoint"}, foreign: []string{"golang.org/x/sync"}, not: []string{"net", "net/http"}},
	"internal/deliver":  {own: []string{"keystore"}, foreign: []string{"github.com/hashicorp/go-retryablehttp"}},
	"proxy":             {own: []string{"internal/view", "internal/journal", "keystore", "providers", "internal/crashpoint"}, foreign: []string{"github.com/valyala/fasthttp", "github.com/klauspost/compress", "github.com/molecule-man/go-brrr", "golang.org/x/sync", "golang.org/x/sys"}},
	"internal/view":     {own: []string{"internal/journal", "keystore"}},
	"internal/admin":    {own: []string{"internal/journal", "internal/view", "keystore"}, foreign: []string{"github.com/prometheus/client_golang", "golang.org/x/net", "golang.org/x/sync"}},
	"internal/config":   {foreign: []string{"github.com/caarlos0/env/v10", "go.yaml.in/yaml/v3"}, not: []string{"os"}},
	"internal/lint":     {},
	// Named moments at which a test ends the process.
	"internal/crashpoint": {},
	// A child process and all that it starts; nothing of ours.
	"internal/supervise": {foreign: []string{"golang.org/x/sys"}, not: []string{"net", "net/http"}},
	// What sidecar demo shows: processes and HTTP, nothing of ours.
	"internal/demo": {},
}

// open are directories of programs: they may import everything, and nothing
// imports them.
var open = []string{"cmd", "bench", "examples", "internal/sim", "internal/crashtest"}

// TestImports holds the import graph against the plan. Tests may import more
// than the code beside them: they set up what cmd/sidecar sets up.
func TestImports(t *testing.T) {
	for _, s := range sources(t) {
		for _, f := range checkImports(s) {
			t.Errorf("%s:%d: %s", f.path, f.line, f.text)
		}
	}
}

func checkImports(s *source) []finding {
	if _, planned := rooms[s.dir]; !planned && !s.isTest && !isBelow(s.dir, open) {
		return []finding{s.find(s.ast.Name, "nobody has said what %s may import: add it to rooms in internal/lint", s.dir)}
	}
	var found []finding
	all := s.imports()
	for _, p := range slices.Sorted(maps.Keys(all)) {
		if why := refusal(s, p); why != "" {
			found = append(found, s.find(all[p], "%s: %s", p, why))
		}
	}
	return found
}

// refusal says why a file may not import p, "" if it may.
func refusal(s *source, p string) string {
	own, isOwn := strings.CutPrefix(p, module+"/")
	if isOwn && isBelow(own, open) && !isBelow(s.dir, open) {
		return "a program is imported by nobody: move what both need to where it belongs"
	}
	if p == "unsafe" && !isExcused("imports", s.path) {
		return "not needed here: find another way"
	}
	if s.isTest || isBelow(s.dir, open) {
		return ""
	}
	r := rooms[s.dir]
	switch {
	case isOwn && own != "classify" && !slices.Contains(r.own, own):
		return "no arrow of the plan leads from " + s.dir + " to there: hand it in from cmd/sidecar, behind a small interface of the one who needs it"
	case isOwn:
		return ""
	case isStandard(p) && slices.Contains(r.not, p):
		return s.dir + " keeps away from it: it gets what it needs as a value"
	case !isStandard(p) && !isBelow(p, r.foreign):
		return "a library that " + s.dir + " does not use so far: add it to rooms in internal/lint, and a line on what it saves to docs/adr"
	}
	return ""
}

func isStandard(p string) bool {
	first, _, _ := strings.Cut(p, "/")
	return !strings.Contains(first, ".") && first != module
}

func isBelow(p string, parents []string) bool {
	for _, parent := range parents {
		if p == parent || strings.HasPrefix(p, parent+"/") {
			return true
		}
	}
	return false
}

// The rule itself, on files that are not there.
func TestImportsRule(t *testing.T) {
	for _, tt := range []struct {
		path, imports, want string
	}{
		{"keystore/x.go", `"counterfoil/classify"`, ""},
		{"keystore/x.go", `"counterfoil/providers"`, "no arrow"},
		{"classify/x.go", `"counterfoil/keystore"`, "no arrow"},
		{"classify/x.go", `"net/http"`, "keeps away"},
		{"classify/x.go", `"github.com/itchyny/gojq"`, "a library"},
		{"proxy/x.go", `"counterfoil/keystore/badger"`, "no arrow"},
		{"internal/journal/x.go", `"github.com/valyala/fasthttp"`, "a library"},
		{"internal/journal/x.go", `"counterfoil/cmd/sidecar"`, "imported by nobody"},
		{"internal/journal/x_test.go", `"counterfoil/keystore/badger"`, ""},
		{"internal/journal/x_test.go", `"counterfoil/bench"`, "imported by nobody"},
		{"cmd/sidecar/x.go", `"counterfoil/keystore/badger"`, ""},
		{"cmd/sidecar/x.go", `"unsafe"`, "not needed"},
		{"util/x.go", `"fmt"`, "nobody has said"},
	} {
		got := checkImports(parse(t, tt.path, "package x\nimport _ "+tt.imports))
		if tt.want == "" && len(got) > 0 || tt.want != "" && (len(got) != 1 || !strings.Contains(got[0].text, tt.want)) {
			t.Errorf("%s importing %s: got %v, want %q", tt.path, tt.imports, got, tt.want)
		}
	}
}

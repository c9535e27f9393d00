package examples_test

import (
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

const (
	mcpSDK = "github.com/modelcontextprotocol/go-sdk/conformance/"
	// mcpSDKVersion is the official Go SDK's.
	mcpSDKVersion = "v1.8.0"
	// conformanceMax bounds one run of the suite.
	conformanceMax = 100 * time.Second
)

// scenarioLine is how the suite tells what a scenario came to.
var scenarioLine = regexp.MustCompile(`(?m)^[✓✗] ([^:\n]+): (\d+ passed, \d+ failed.*)$`)

// MCP's own suite says the same of a server, and of a client, whether a sidecar
// stands between them or not.
func TestMCPConformance(t *testing.T) {
	readInputs(t)
	requireNode(t)
	bin := t.TempDir()
	sidecar := filepath.Join(bin, "sidecar")
	run(t, buildMax, "..", nil, "go", "build", "-o", sidecar, "./cmd/sidecar")
	for _, name := range []string{"everything-server", "everything-client"} {
		run(t, buildMax, "..", []string{"GOBIN=" + bin, "GOFLAGS="}, "go", "install", mcpSDK+name+"@"+mcpSDKVersion)
	}
	run(t, buildMax, "mcp-conformance", nil, "npm", "ci", "--ignore-scripts", "--prefer-offline", "--no-audit")
	s := suite{node: modernNode(t), dir: t.TempDir()}
	for _, revision := range []struct{ name, stateless string }{{"2025-11-25", "false"}, {"2026-07-28", "true"}} {
		t.Run("server "+revision.name, func(t *testing.T) {
			server := "http://" + startEverything(t, filepath.Join(bin, "everything-server"), revision.stateless)
			through := startFor(t, sidecar, "mcp", server, t.TempDir())
			direct := s.run(t, "server", "--url", server+"/", "--requirements", revision.name)
			s.compare(t, direct, s.run(t, "server", "--url", "http://"+through.own+"/@suite;i=1/", "--requirements", revision.name))
		})
		t.Run("client "+revision.name, func(t *testing.T) {
			client := filepath.Join(bin, "everything-client")
			script, err := filepath.Abs("mcp-conformance/through.sh")
			if err != nil {
				t.Fatal(err)
			}
			direct := s.run(t, "client", "--command", client, "--requirements", revision.name)
			s.compare(t, direct, s.run(t, "client", "--command", strings.Join([]string{script, sidecar, client}, " "), "--requirements", revision.name))
		})
	}
}

// startEverything starts the SDK's server and returns its address.
func startEverything(t *testing.T, program, stateless string) string {
	t.Helper()
	address := freeAddress(t)
	cmd := exec.CommandContext(t.Context(), program, "-http", address, "-stateless="+stateless)
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Wait() }) // the test's context has ended it
	awaitListener(t, address)
	return address
}

type suite struct{ node, dir string }

// run returns what the suite says of each scenario. It may fail some: what matters
// is that both runs are the same.
func (s *suite) run(t *testing.T, args ...string) map[string]string {
	t.Helper()
	program, err := filepath.Abs("mcp-conformance/node_modules/.bin/conformance")
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), s.node, append([]string{program}, args...)...)
	cmd.Dir = s.dir
	cmd.Env = append(os.Environ(), "TMPDIR="+s.dir)
	over := time.AfterFunc(conformanceMax, func() { _ = cmd.Process.Kill() })
	defer over.Stop()
	out, err := cmd.CombinedOutput()
	results := map[string]string{}
	for _, m := range scenarioLine.FindAllStringSubmatch(string(out), -1) {
		results[m[1]] = m[2]
	}
	if len(results) == 0 {
		t.Fatalf("the suite told nothing: %v\n%s", err, out)
	}
	return results
}

// compare prints both, and fails where they differ but for OAuth, which binds a
// client to its server's origin.
func (s *suite) compare(t *testing.T, direct, through map[string]string) {
	t.Helper()
	var b strings.Builder
	same := 0
	names := slices.Sorted(maps.Keys(direct))
	for _, name := range names {
		fmt.Fprintf(&b, "  %-55s %-22s %s\n", name, direct[name], through[name])
		switch {
		case direct[name] == through[name]:
			same++
		case !strings.HasPrefix(name, "auth/"):
			t.Errorf("%s: directly %s, through the sidecar %s", name, direct[name], through[name])
		}
	}
	t.Logf("%d scenarios, %d of them the same (directly, through the sidecar):\n%s", len(names), same, &b)
}

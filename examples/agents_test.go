package examples_test

import (
	"os"
	"path/filepath"
	"runtime"
	"testing"
)

// Agents made with the OpenAI Agents SDK and with LangGraph, model and tools
// through the sidecar, killed at random moments.
func TestAgents(t *testing.T) {
	sidecar := prepare(t, "agents")
	t.Log(run(t, suiteMax, "agents", nil, node22("agents"), "run.mjs", "--sidecar", sidecar))
}

// prepare installs what the folder needs, and returns a sidecar.
func prepare(t *testing.T, folder string) (sidecar string) {
	t.Helper()
	readInputs(t)
	requireNode(t)
	sidecar = filepath.Join(t.TempDir(), "sidecar")
	run(t, buildMax, "..", nil, "go", "build", "-o", sidecar, "./cmd/sidecar")
	run(t, buildMax, folder, nil, "npm", "ci", "--ignore-scripts", "--prefer-offline")
	return sidecar
}

// node22 is the Node that npm installed beside the packages, which need a later
// one than Debian 12 has; where npm has none for this system, it is the user's.
func node22(folder string) string {
	arch := map[string]string{"amd64": "x64"}[runtime.GOARCH]
	if arch == "" {
		arch = runtime.GOARCH
	}
	path, err := filepath.Abs(filepath.Join(folder, "node_modules", "node-"+runtime.GOOS+"-"+arch, "bin", "node"))
	if err != nil {
		return "node"
	}
	if _, err := os.Stat(path); err != nil {
		return "node"
	}
	return path
}

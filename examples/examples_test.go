package examples_test

import (
	"context"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

const (
	// nodeMajorMin is Debian 12's, and the oldest that Stripe's SDK supports.
	nodeMajorMin = 18
	// exampleMax bounds one example. They bound themselves, at less.
	exampleMax = 100 * time.Second
	// suiteMax is for one that runs somebody's test suite.
	suiteMax = 200 * time.Second
	// buildMax bounds each step before: a first build, a download.
	buildMax = 4 * time.Minute
	// graceMax is for an example that was told to stop to end its processes.
	graceMax = 10 * time.Second

	stripeMock = "github.com/stripe/stripe-mock@v0.203.0"
)

func TestExamples(t *testing.T) {
	readInputs(t)
	requireNode(t)
	bin := t.TempDir()
	sidecar := filepath.Join(bin, "sidecar")
	run(t, buildMax, "..", nil, "go", "build", "-o", sidecar, "./cmd/sidecar")

	t.Run("crash-recovery", func(t *testing.T) {
		t.Log(run(t, exampleMax, "crash-recovery", nil, "node", "run.mjs", sidecar))
	})
	t.Run("langgraph-js", func(t *testing.T) {
		run(t, buildMax, "langgraph-js", nil, "npm", "ci", "--ignore-scripts", "--prefer-offline")
		t.Log(run(t, suiteMax, "langgraph-js", nil, "node", "run.mjs", sidecar))
	})
	t.Run("exec", func(t *testing.T) {
		t.Log(run(t, exampleMax, "exec", nil, "node", "run.mjs", "--sidecar", sidecar))
	})
	t.Run("stripe", func(t *testing.T) {
		run(t, buildMax, "..", []string{"GOBIN=" + bin, "GOFLAGS="}, "go", "install", stripeMock)
		run(t, buildMax, "stripe", nil, "npm", "ci", "--ignore-scripts", "--prefer-offline")
		t.Log(run(t, exampleMax, "stripe", nil, "node", "run.mjs", "--sidecar", sidecar, "--stripe-mock", filepath.Join(bin, "stripe-mock")))
	})
}

// readInputs lists the repository's folders. The go command remembers what a
// test has read: without this it would take a pass for still true after a change
// to an example or to the sidecar.
func readInputs(t *testing.T) {
	t.Helper()
	err := filepath.WalkDir("..", func(_ string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() && (d.Name() == "node_modules" || d.Name() == ".git") {
			return fs.SkipDir
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

func requireNode(t *testing.T) {
	t.Helper()
	const how = "the examples need Node %d or later, with npm: make test installs them from Debian, as apt-get install nodejs npm does"
	for _, program := range []string{"node", "npm"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Fatalf("%v: "+how, err, nodeMajorMin)
		}
	}
	version := run(t, graceMax, ".", nil, "node", "--version")
	major, _, _ := strings.Cut(strings.TrimPrefix(version, "v"), ".")
	if n, err := strconv.Atoi(major); err != nil || n < nodeMajorMin {
		t.Fatalf("node is %s: "+how, strings.TrimSpace(version), nodeMajorMin)
	}
}

// run returns what a program printed, and fails the test unless it succeeds
// within limit.
func run(t *testing.T, limit time.Duration, dir string, environ []string, name string, args ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), environ...)
	// An example that is told to stop ends the processes that it started.
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = graceMax
	out, err := cmd.CombinedOutput()
	if ctx.Err() != nil {
		t.Fatalf("%s did not end within %s:\n%s", cmd, limit, out)
	}
	if err != nil {
		t.Fatalf("%s: %v\n%s", cmd, err, out)
	}
	return string(out)
}

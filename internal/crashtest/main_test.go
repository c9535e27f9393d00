package crashtest

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// patience bounds each wait for one thing.
const patience = 30 * time.Second

// sidecarsAtOnce is more than there are processors: they wait for disks.
const sidecarsAtOnce = "8"

var (
	killsFlag = flag.Int("crash.kills", 15, "how often TestStorm kills the sidecar")
	seedFlag  = flag.Uint64("crash.seed", 0, "seed of what is drawn; 0 takes one from the clock")
	rounds    = flag.Int("crash.rounds", 30, "rounds of each form of TestC03; the case asks for 200")
	rewrite   = flag.Bool("rewrite", false, "print docs/providers/README.md anew")
	raceFlag  = flag.Bool("crash.race", false, "build the sidecars with the race detector")
)

// drawn is the seed of a test. It prints how to draw the same again.
func drawn(t *testing.T) uint64 {
	t.Helper()
	seed := *seedFlag
	if seed == 0 {
		seed = uint64(time.Now().UnixNano())
	}
	t.Logf("go test ./internal/crashtest -run '%s' -crash.seed=%d", t.Name(), seed)
	return seed
}

// programs are the sidecars under test: as released, and with crash points.
var programs struct{ released, withPoints string }

func TestMain(m *testing.M) {
	if os.Getenv(workerVariable) != "" {
		_ = work(os.Stdin, os.Stdout) // it ends with its input
		return
	}
	if base := os.Getenv(agentBase); base != "" {
		os.Exit(agentMain(base))
	}
	flag.Parse()
	isDefault := true
	flag.Visit(func(f *flag.Flag) { isDefault = isDefault && f.Name != "test.parallel" })
	if isDefault {
		_ = flag.Set("test.parallel", sidecarsAtOnce) // it is a flag of package testing's
	}
	os.Exit(runAll(m))
}

func runAll(m *testing.M) int {
	dir, err := os.MkdirTemp("", "counterfoil-crash-")
	if err != nil {
		fmt.Fprintln(os.Stderr, "making a folder for the sidecars:", err)
		return 1
	}
	defer os.RemoveAll(dir)
	programs.released, programs.withPoints = filepath.Join(dir, "released"), filepath.Join(dir, "points")
	if err := build(programs.released, ""); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	if err := build(programs.withPoints, "crashpoints"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	code := m.Run()
	if err := goleak.Find(); err != nil && code == 0 {
		fmt.Fprintln(os.Stderr, "goroutines left behind:", err)
		return 1
	}
	return code
}

func build(to, tags string) error {
	args := []string{"build", "-tags", tags, "-o", to}
	if *raceFlag {
		args = append(args, "-race")
	}
	out, err := exec.Command("go", append(args, "counterfoil/cmd/sidecar")...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("building the sidecar: %w\n%s", err, out)
	}
	return nil
}

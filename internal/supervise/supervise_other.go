//go:build !unix

package supervise

import (
	"fmt"
	"os"
	"runtime"
	"syscall"
)

// A Process is a command that was started: there are none on this system.
type Process struct{ PID int }

// Start fails: this system has no signals to pass on.
func Start(Command) (*Process, error) {
	return nil, fmt.Errorf("a command cannot be supervised on %s: run sidecar serve beside it", runtime.GOOS)
}

// Keep fails as Start does.
func Keep([]string) error {
	_, err := Start(Command{})
	return err
}

// Passed is empty.
func Passed() []os.Signal { return nil }

// ChildEnded is no signal that ever comes.
const ChildEnded = syscall.Signal(0)

// ReapOrphans does nothing.
func ReapOrphans(*Process) {}

// Signal, End, Done and Wait are never reached.
func (p *Process) Signal(syscall.Signal) bool { return false }
func (p *Process) End()                       {}
func (p *Process) Done() <-chan struct{}      { return nil }
func (p *Process) Wait() (Exit, error)        { return Exit{}, nil }

package supervise

import (
	"os"
	"syscall"
	"time"
)

// A Command is what [Start] is to run.
type Command struct {
	// Args are the command and its arguments, at least one. The first is looked
	// up in this program's PATH if it has no slash.
	Args []string
	// Env is the command's whole environment, and the keeper's.
	Env []string
	// Keeper is the command line of a program that does nothing but to call [Keep].
	Keeper []string
	// Grace is how long whatever is to end may take after SIGTERM. Then it is
	// killed.
	Grace time.Duration
	// Stdin, Stdout and Stderr are the command's. Start does not close them.
	Stdin, Stdout, Stderr *os.File
}

// An Exit is how a command ended.
type Exit struct {
	// Code is its exit code, 0 to 255, if Signal is 0.
	Code int `json:"code"`
	// Signal is what killed it, 0 if it ended by itself.
	Signal syscall.Signal `json:"signal"`
	// Left is how many of its descendants could not be killed within killWait,
	// as those of another user.
	Left int `json:"left"`
}

// Status is the exit code that a shell would tell: 128 and the signal's number
// for a command that was killed.
func (e Exit) Status() int {
	if e.Signal != 0 {
		return 128 + int(e.Signal)
	}
	return e.Code
}

// A CommandError says why a command could not be started at all.
type CommandError struct{ Err error }

func (e *CommandError) Error() string { return e.Err.Error() }
func (e *CommandError) Unwrap() error { return e.Err }

// killWait is how long a killed process may take to be gone.
const killWait = 5 * time.Second

// An order goes from Start's program to the keeper, a report back. Each is one
// JSON object.
type order struct {
	// Start is the first order.
	Start *start `json:"start,omitempty"`
	// Signal goes to the command.
	Signal syscall.Signal `json:"signal,omitempty"`
	// End is to end everything: SIGTERM, grace, SIGKILL.
	End bool `json:"end,omitempty"`
}

type start struct {
	Path  string        `json:"path"`
	Args  []string      `json:"args"`
	Grace time.Duration `json:"grace"`
	Group grouping      `json:"group"`
}

// A report is the command's process id first, or why there is none; then its
// Exit.
type report struct {
	PID    int           `json:"pid,omitempty"`
	Failed syscall.Errno `json:"failed,omitempty"`
	Exit   *Exit         `json:"exit,omitempty"`
}

// A grouping says which process group the command is in.
type grouping string

const (
	// ownGroup: signals to this program's group do not reach it, but those that
	// are passed on do.
	ownGroup grouping = "own"
	// sharedGroup: this program's own, where there is a terminal. The keyboard's
	// signals reach the command as they would without this program, Ctrl-Z and
	// "fg" work, and it can read what is typed.
	sharedGroup grouping = "shared"
)

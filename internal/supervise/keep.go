//go:build unix

package supervise

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"syscall"
	"time"
)

// The keeper's ends of the two pipes, as startKeeper hands them over.
const (
	ordersFD  = 3
	reportsFD = 4
)

// Passed are the signals that a supervising program passes on to its command,
// but for those that were ignored when it was started, as nohup has it.
func Passed() []os.Signal {
	var passed []os.Signal
	for _, s := range []os.Signal{
		syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGTERM, syscall.SIGUSR1, syscall.SIGUSR2, syscall.SIGWINCH,
	} {
		if !signal.Ignored(s) {
			passed = append(passed, s)
		}
	}
	return passed
}

// ChildEnded is the signal at which to call [ReapOrphans].
const ChildEnded = syscall.SIGCHLD

// Keep is the whole life of a keeper process. It takes the pipes that Start made
// from its file descriptors 3 and 4. environ is the process's environment, and
// the command's. It has to be called from the main goroutine, and the process
// has to end when it returns.
func Keep(environ []string) error {
	// The kernel ties the command's life to the thread that started it.
	runtime.LockOSThread()
	syscall.CloseOnExec(ordersFD)
	syscall.CloseOnExec(reportsFD)
	if err := adopt(); err != nil {
		return err
	}
	// What is sent to the group is meant for the command. Ignoring it would make
	// the command ignore it too.
	meant := make(chan os.Signal, 1)
	signal.Notify(meant, Passed()...)
	children := make(chan os.Signal, 1)
	signal.Notify(children, syscall.SIGCHLD)

	decoder := json.NewDecoder(os.NewFile(ordersFD, "orders"))
	var first order
	if err := decoder.Decode(&first); err != nil || first.Start == nil {
		return errors.New("a keeper is started by sidecar exec, not by hand")
	}
	k := &keeper{start: first.Start, environ: environ, reports: json.NewEncoder(os.NewFile(reportsFD, "reports"))}
	if isRunning, err := k.begin(); !isRunning {
		return err
	}
	return k.keep(readOrders(decoder), children)
}

// readOrders returns a channel that is closed when Start's program is gone.
func readOrders(decoder *json.Decoder) <-chan order {
	orders := make(chan order)
	go func() {
		defer close(orders)
		for {
			var o order
			if decoder.Decode(&o) != nil {
				return
			}
			orders <- o
		}
	}()
	return orders
}

// A keeper is one command and its descendants, from the side of their parent.
// One goroutine signals and reaps, so that no signal goes to a process id that
// somebody else has by now.
type keeper struct {
	start   *start
	environ []string
	reports *json.Encoder
	command int // process id, 0 once it was reaped
	leader  int // what it was: the number of its group, if it has its own
	exit    Exit
	// ending and killing say how far the end has come, late when its next step
	// is due.
	ending, killing bool
	late            <-chan time.Time
	// look is when to look again for what nobody tells the end of; nil where all
	// orphans come here.
	look <-chan time.Time
}

// begin starts the command, and reports that or why it cannot be started.
func (k *keeper) begin() (isRunning bool, err error) {
	attr := deathSignal()
	attr.Setpgid = k.start.Group == ownGroup
	pid, err := syscall.ForkExec(k.start.Path, k.start.Args, &syscall.ProcAttr{ //nolint:gosec // to run what it is told is what it is for
		Env: k.environ, Files: []uintptr{0, 1, 2}, Sys: attr,
	})
	if errno, isErrno := errors.AsType[syscall.Errno](err); isErrno {
		return false, k.reports.Encode(report{Failed: errno})
	}
	if err != nil {
		return false, fmt.Errorf("starting %s: %w", k.start.Path, err)
	}
	k.command, k.leader = pid, pid
	return true, k.reports.Encode(report{PID: pid})
}

// keep returns once no descendant is left, or no more can be done, and reports
// the exit to a program that is there still.
func (k *keeper) keep(orders <-chan order, children <-chan os.Signal) error {
	for !k.reap() {
		select {
		case <-k.look:
		case o, isOpen := <-orders:
			switch {
			case !isOpen:
				orders = nil
				k.kill() // there is no sidecar to talk to, and nobody to tell
			case o.End:
				k.end()
			case k.command != 0:
				_ = syscall.Kill(k.command, o.Signal) // it is there until it is reaped
			}
		case <-children:
		case <-k.late:
			if k.killing {
				k.exit.Left = max(1, len(k.left()))
				return k.tell(orders)
			}
			k.kill()
		}
	}
	return k.tell(orders)
}

func (k *keeper) tell(orders <-chan order) error {
	if orders == nil {
		return nil
	}
	return k.reports.Encode(report{Exit: &k.exit})
}

// reap takes in the children that have ended, and reports whether nothing is
// left. When the command has ended, the rest has to.
func (k *keeper) reap() bool {
	for {
		var status syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &status, syscall.WNOHANG, nil)
		switch {
		case errors.Is(err, syscall.EINTR):
			continue
		case pid > 0 && pid == k.command:
			k.ended(status)
			continue
		case pid > 0:
			continue
		case err != nil && len(k.left()) == 0: // ECHILD
			return true
		}
		if k.command == 0 {
			k.end()
		}
		if k.killing {
			k.signalAll(syscall.SIGKILL) // what was started since
		}
		return false
	}
}

func (k *keeper) ended(status syscall.WaitStatus) {
	k.command = 0
	k.exit.Code = max(status.ExitStatus(), 0)
	if status.Signaled() {
		k.exit.Signal = status.Signal()
	}
}

func (k *keeper) end() {
	if k.ending {
		return
	}
	k.ending = true
	k.late = time.After(k.start.Grace)
	k.look = lookAgain()
	k.signalAll(syscall.SIGTERM)
	k.signalAll(syscall.SIGCONT) // one that is stopped cannot hear the other
}

func (k *keeper) kill() {
	if k.killing {
		return
	}
	k.ending, k.killing = true, true
	k.late = time.After(killWait)
	k.look = lookAgain()
	k.signalAll(syscall.SIGKILL)
}

// signalAll signals the command and all its descendants, as far as they can be
// found.
func (k *keeper) signalAll(s syscall.Signal) {
	for _, pid := range k.left() {
		_ = syscall.Kill(pid, s) // it may have ended
	}
}

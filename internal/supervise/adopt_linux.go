package supervise

import (
	"bytes"
	"fmt"
	"os"
	"os/signal"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// adopt makes this process the new parent of orphans among its descendants.
func adopt() error {
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("becoming the parent of orphans: %w", err)
	}
	return nil
}

// deathSignal has the kernel kill a child when the thread that starts it ends.
func deathSignal() *syscall.SysProcAttr { return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }

// descendants lists the processes below one, those that have ended and were not
// reaped included. Without /proc it is empty.
func descendants(of int) []int {
	parents := parentsOf()
	var found []int
	for pid := range parents {
		// A chain is longer than this only where the list changed under the reader.
		for at, steps := parents[pid], 0; at != 0 && steps < len(parents); at, steps = parents[at], steps+1 {
			if at == of {
				found = append(found, pid)
				break
			}
		}
	}
	return found
}

// parentsOf is the parent of every process, as far as it can be seen.
func parentsOf() map[int]int {
	folder, err := os.Open("/proc")
	if err != nil {
		return nil
	}
	defer folder.Close()
	names, err := folder.Readdirnames(-1)
	if err != nil {
		return nil
	}
	parents := make(map[int]int, len(names))
	for _, name := range names {
		if pid, err := strconv.Atoi(name); err == nil {
			if parent, ok := parentOf(name); ok {
				parents[pid] = parent
			}
		}
	}
	return parents
}

// parentOf reads the fourth field of /proc/PID/stat. The second is the program's
// name in parentheses, which may hold anything (proc(5)).
func parentOf(pid string) (int, bool) {
	stat, err := os.ReadFile("/proc/" + pid + "/stat") //nolint:gosec // a number
	if err != nil {
		return 0, false
	}
	fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
	if len(fields) < 2 {
		return 0, false
	}
	parent, err := strconv.Atoi(string(fields[1]))
	return parent, err == nil
}

// left lists what there is to end: without /proc, the command alone.
func (k *keeper) left() []int {
	found := descendants(os.Getpid())
	if len(found) == 0 && k.command != 0 {
		return []int{k.command}
	}
	return found
}

// lookAgain is not needed: who is the parent of all is told of each end.
func lookAgain() <-chan time.Time { return nil }

// endAll kills and reaps every descendant of this process, and returns how many
// are left after killWait.
func endAll() int {
	children := make(chan os.Signal, 1)
	signal.Notify(children, syscall.SIGCHLD)
	defer signal.Stop(children)
	k := &keeper{start: &start{}}
	k.kill()
	for !k.reap() {
		select {
		case <-children:
		case <-k.late:
			return len(k.left())
		}
	}
	return 0
}

// ReapOrphans takes in the orphans that have come to this process and ended, as
// the first process of a container gets them. It leaves the child that this
// process waits for itself.
func ReapOrphans(own *Process) {
	for pid, parent := range parentsOf() {
		if parent != os.Getpid() || own != nil && pid == own.keeper.Process.Pid {
			continue
		}
		var status syscall.WaitStatus
		_, _ = syscall.Wait4(pid, &status, syscall.WNOHANG, nil) // it may run still
	}
}

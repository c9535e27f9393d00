//go:build unix && !linux

package supervise

import (
	"syscall"
	"time"
)

// lookEvery is how often a process group is looked at that is not ours to wait
// for.
const lookEvery = 50 * time.Millisecond

// adopt does nothing: orphans go to the first process of the system here.
func adopt() error { return nil }

// deathSignal asks for nothing: this system has no such signal.
func deathSignal() *syscall.SysProcAttr { return &syscall.SysProcAttr{} }

// left is the command's group while there is one, as the negative number that
// kill takes, or the command alone where it has no group of its own.
func (k *keeper) left() []int {
	switch {
	case k.start.Group == ownGroup && k.leader != 0 && syscall.Kill(-k.leader, 0) == nil:
		return []int{-k.leader}
	case k.command != 0:
		return []int{k.command}
	}
	return nil
}

func lookAgain() <-chan time.Time { return time.Tick(lookEvery) }

// endAll can find nothing: what the keeper started is not below this process.
func endAll() int { return 0 }

// ReapOrphans does nothing: none come here.
func ReapOrphans(*Process) {}

//go:build unix

package crashtest

import (
	"context"
	"syscall"
	"testing"
	"time"
)

// TestC80_BalancerResends is the case as far as one machine goes: a balancer
// sends the same request again on another connection while the first is in
// flight, the sidecar freezes, and the balancer's other node, on the same
// folder, must not take over. Two sidecars on one database come with the
// PostgreSQL store.
func TestC80_BalancerResends(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	c := things("none", "plain")
	owner := b.released()
	answered, release := owner.held(c)
	impatient := owner.send(c, "Prefer", "wait=0")
	if impatient.problem() != "in-progress" || impatient.header.Get("Retry-After") == "" {
		t.Errorf("an equal request in flight: %s", impatient)
	}
	resent := owner.sendAway(c)

	owner.signal(syscall.SIGSTOP)
	data, admin := freeAddress(t), freeAddress(t)
	b.env = []string{"COUNTERFOIL_LISTEN=" + data, "COUNTERFOIL_ADMIN_LISTEN=" + admin}
	other := b.spawn("", programs.released, "serve", "--announce")
	other.base = "http://" + data
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	for ctx.Err() == nil { // refused at first, then waiting in its queue
		if r := other.sendWithin(ctx, c); r.err == nil {
			t.Fatalf("the other node answers beside a frozen one: %s", r)
		}
	}
	select {
	case line := <-other.first:
		t.Errorf("the other node serves beside a frozen one: %q", line)
	default:
	}
	other.kill()
	owner.signal(syscall.SIGCONT)
	release()

	first := await(t, "the first answer", answered)
	checkVerdict(t, b.provider, c, first, verdict{"executed", 1, 1})
	again := await(t, "the answer to what was sent again", resent)
	sameAnswer(t, first, again)
	b.env = nil
	checkRepeat(t, owner, c, first)
	checkVerdict(t, b.provider, c, owner.send(c), verdict{"replayed", 1, 1})
}

func (s *sidecar) signal(sig syscall.Signal) {
	s.Helper()
	if err := s.cmd.Process.Signal(sig); err != nil {
		s.Fatal(err)
	}
}

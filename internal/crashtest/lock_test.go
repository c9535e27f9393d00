package crashtest

import (
	"strings"
	"testing"
	"time"
)

// TestC89a_LockAfterKill: a folder whose sidecar was killed opens without a hand
// being lent, time and again.
func TestC89a_LockAfterKill(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	c := things("none", "plain")
	want := "executed"
	for range 5 {
		s := b.released()
		checkVerdict(t, b.provider, c, s.send(c), verdict{want, 1, 1})
		want = "replayed"
		s.kill()
	}
}

// TestC89b_SecondProcess: a second process on the folder says why it ends, with
// an exit code of its own, and serves nothing; the first goes on.
func TestC89b_SecondProcess(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	c := things("none", "plain")
	owner := b.released()
	before := owner.send(c)

	data, admin := freeAddress(t), freeAddress(t)
	b.env = []string{"COUNTERFOIL_LISTEN=" + data, "COUNTERFOIL_ADMIN_LISTEN=" + admin, "COUNTERFOIL_DRAIN=0s", "COUNTERFOIL_LOG_LEVEL=info"}
	second, line := b.launch("", append(inAnotherPidNamespace(), programs.released, "serve", "--announce")...)
	if line != "" {
		t.Fatalf("the second process announced %q", line)
	}
	if code := second.ended(); code != 3 {
		t.Errorf("exit code %d, not 3", code)
	}
	if text := second.stderr.String(); !strings.Contains(text, "in use by another process") || !strings.Contains(text, b.dir) || !strings.Contains(text, "waiting for the other sidecar") {
		t.Errorf("the message names neither reason nor folder: %s", text)
	}
	if !refused(data) || !refused(admin) {
		t.Error("the second process left something listening")
	}
	b.env = nil
	again := owner.send(c)
	if again.outcome() != "replayed" {
		t.Errorf("the first process, after the second one's end: %s", again)
	}
	sameAnswer(t, before, again)
	owner.kill()
	checkRepeat(t, b.released(), c, before)
}

// TestC89c_Overlap: the new one is started before the old one has ended. It
// waits, and accepts nothing until the folder is its own.
func TestC89c_Overlap(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	c := things("none", "plain")
	old := b.released()
	answered, release := old.held(c)
	old.terminate()

	heir := b.spawn("", programs.released, "serve", "--announce")
	old.untilDraining()
	select {
	case line := <-heir.first:
		t.Fatalf("two sidecars on one folder: the second one says %q\n%s", line, heir.stderr)
	default:
	}
	release()
	r := await(t, "the old one's answer", answered)
	checkVerdict(t, b.provider, c, r, verdict{"executed", 1, 1})
	if code := old.ended(); code != 0 {
		t.Errorf("the old one ended with %d", code)
	}
	heir.base = "http://" + await(t, "the new one to serve", heir.first)
	checkRepeat(t, heir, c, r)
}

// TestTheSameAddresses: the new one waits for the addresses of one that drains,
// and says so at once; those of one that does not, it leaves alone.
func TestTheSameAddresses(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	data, admin := freeAddress(t), freeAddress(t)
	b.env = []string{"COUNTERFOIL_LISTEN=" + data, "COUNTERFOIL_ADMIN_LISTEN=" + admin, "COUNTERFOIL_LOG_LEVEL=info"}
	c := things("none", "plain")
	old := b.released()
	answered, release := old.held(c)
	if second, line := b.launch("", programs.released, "serve", "--announce"); line != "" || second.ended() != 1 {
		t.Fatalf("beside one that serves: %q\n%s", line, second.stderr)
	}
	old.terminate()
	old.untilDraining()
	heir := b.spawn("", programs.released, "serve", "--announce")
	heir.untilSaid("waiting for the sidecar that drains")
	select {
	case line := <-heir.first:
		t.Fatalf("it did not wait: %q\n%s", line, heir.stderr)
	default:
	}
	release()
	r := await(t, "the old one's answer", answered)
	checkVerdict(t, b.provider, c, r, verdict{"executed", 1, 1})
	heir.base = "http://" + await(t, "the new one to serve", heir.first)
	checkRepeat(t, heir, c, r)
}

// untilSaid waits for a text in the log, which no channel tells of.
func (s *sidecar) untilSaid(text string) {
	s.Helper()
	for deadline := time.Now().Add(patience); !strings.Contains(s.stderr.String(), text); {
		select {
		case <-s.done:
			s.Fatalf("it ended:\n%s", s.stderr)
		case <-time.After(10 * time.Millisecond):
		}
		if time.Now().After(deadline) {
			s.Fatalf("it never said %q:\n%s", text, s.stderr)
		}
	}
}

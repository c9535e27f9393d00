//go:build unix

package supervise

import (
	"bufio"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// patience bounds each wait.
const patience = 30 * time.Second

// A stage is a supervisor and everything below it. All of them hold the
// standard output: where it ends, none of them is left.
type stage struct {
	t     *testing.T
	cmd   *exec.Cmd
	lines chan string
}

func play(t *testing.T, grace time.Duration, args ...string) *stage {
	t.Helper()
	return playIn(t, nil, grace, append([]string{os.Args[0], "command"}, args...)...)
}

func playIn(t *testing.T, change func(*exec.Cmd), grace time.Duration, args ...string) *stage {
	t.Helper()
	s := &stage{t: t, cmd: exec.Command(os.Args[0], append([]string{"supervisor", grace.String()}, args...)...), lines: make(chan string)}
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	s.cmd.Stdout, s.cmd.Stderr = write, write
	s.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // no terminal, whatever the test has
	if change != nil {
		change(s.cmd)
	}
	if err := s.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if err := write.Close(); err != nil {
		t.Fatal(err)
	}
	go scan(read, s.lines)
	t.Cleanup(func() {
		_ = s.cmd.Process.Kill()
		for range s.lines {
		}
	})
	return s
}

func scan(from io.ReadCloser, to chan<- string) {
	defer close(to)
	defer from.Close()
	for lines := bufio.NewScanner(from); lines.Scan(); {
		to <- strings.TrimRight(lines.Text(), "\r")
	}
}

// until returns what follows a word at the beginning of a line.
func (s *stage) until(word string) string {
	s.t.Helper()
	late := time.After(patience)
	for {
		select {
		case line, isOpen := <-s.lines:
			if !isOpen {
				s.t.Fatalf("everything ended before it said %q", word)
			}
			if rest, found := strings.CutPrefix(line, word); found {
				return strings.TrimSpace(rest)
			}
		case <-late:
			s.t.Fatalf("nothing said %q", word)
		}
	}
}

func (s *stage) pidAt(word string) int {
	s.t.Helper()
	pid, err := strconv.Atoi(s.until(word))
	if err != nil {
		s.t.Fatal(err)
	}
	return pid
}

// gone returns what was still said once nothing is left, and the supervisor's
// exit code.
func (s *stage) gone() (said []string, code int) {
	s.t.Helper()
	late := time.After(patience)
	for {
		select {
		case line, isOpen := <-s.lines:
			if isOpen {
				said = append(said, line)
				continue
			}
			_ = s.cmd.Wait() // its code says how it ended
			return said, s.cmd.ProcessState.ExitCode()
		case <-late:
			s.t.Fatalf("something is still there; it said %q", said)
		}
	}
}

func (s *stage) signal(pid int, sig syscall.Signal) {
	s.t.Helper()
	if err := syscall.Kill(pid, sig); err != nil {
		s.t.Fatal(err)
	}
}

func TestExitCodes(t *testing.T) {
	for _, tc := range []struct {
		args []string
		want int
	}{
		{[]string{"exit", "0"}, 0},
		{[]string{"exit", "7"}, 7},
		{[]string{"exit", "255"}, 255},
		{[]string{"signal", "9"}, 137},
		{[]string{"signal", "15"}, 143},
	} {
		said, code := play(t, longGrace, tc.args...).gone()
		if code != tc.want {
			t.Errorf("%v: exit code %d, want %d: %q", tc.args, code, tc.want, said)
		}
	}
}

func TestWhatCannotBeStarted(t *testing.T) {
	dir := t.TempDir()
	plain := dir + "/plain"
	if err := os.WriteFile(plain, []byte("#!/nowhere/interpreter\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	script := dir + "/script"
	if err := os.WriteFile(script, []byte("#!/nowhere/interpreter\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	for args, want := range map[string]string{
		"no-such-program-anywhere": "not found",
		plain:                      "permission denied",
		script:                     "no such file", // the kernel's word for the interpreter
		dir + "/none":              "no such file",
	} {
		said, code := playIn(t, nil, longGrace, args).gone()
		if code != 98 || !strings.Contains(strings.Join(said, "\n"), want) {
			t.Errorf("%s: exit code %d, said %q, want %q", args, code, said, want)
		}
	}
}

// Each signal reaches the command, once.
func TestSignalsArePassedOn(t *testing.T) {
	s := play(t, longGrace, "signals")
	s.until("ready")
	for _, sig := range []syscall.Signal{syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGUSR2, syscall.SIGWINCH} {
		s.signal(s.cmd.Process.Pid, sig)
		if got := s.until("got"); got != sig.String() {
			t.Fatalf("got %s, want %s", got, sig)
		}
	}
	s.signal(s.cmd.Process.Pid, syscall.SIGUSR1)
	if got := s.until("interrupts"); got != "1" {
		t.Errorf("SIGINT came %s times", got)
	}
	s.signal(s.cmd.Process.Pid, syscall.SIGTERM)
	if said, code := s.gone(); code != 4 {
		t.Errorf("exit code %d: %q", code, said)
	}
}

// A signal to the supervisor's process group, as from a CI system, comes once.
func TestASignalToTheGroupComesOnce(t *testing.T) {
	s := play(t, longGrace, "signals")
	s.until("ready")
	s.signal(-s.cmd.Process.Pid, syscall.SIGINT)
	s.until("got")
	s.signal(s.cmd.Process.Pid, syscall.SIGUSR1)
	if got := s.until("interrupts"); got != "1" {
		t.Errorf("SIGINT came %s times", got)
	}
	s.signal(s.cmd.Process.Pid, syscall.SIGTERM)
	s.gone()
}

// What was ignored stays ignored: nohup works.
func TestNohup(t *testing.T) {
	s := playIn(t, func(c *exec.Cmd) {
		c.Args = append([]string{"nohup"}, c.Args...)
		path, err := exec.LookPath("nohup")
		if err != nil {
			t.Fatal(err)
		}
		c.Path = path
	}, longGrace, "sh", "-c", "echo ready; kill -HUP $$; echo deaf; exit 3")
	s.until("ready")
	s.signal(s.cmd.Process.Pid, syscall.SIGHUP)
	s.until("deaf")
	if _, code := s.gone(); code != 3 {
		t.Errorf("exit code %d", code)
	}
}

// A grandchild in a session of its own, deaf to SIGTERM, goes with the command.
func TestNothingOutlivesTheCommand(t *testing.T) {
	s := play(t, shortGrace, "family", "end")
	s.until("keeper")
	stubborn := s.pidAt("stubborn")
	s.signal(s.cmd.Process.Pid, syscall.SIGUSR1)
	said, code := s.gone()
	if code != 5 || strings.Join(said, "") != "left 0" {
		t.Errorf("exit code %d: %q", code, said)
	}
	if err := syscall.Kill(stubborn, 0); err == nil {
		t.Errorf("process %d is still there", stubborn)
	}
}

func TestEndKillsAfterTheGrace(t *testing.T) {
	s := playIn(t, func(c *exec.Cmd) { c.Env = append(os.Environ(), "END_AT_USR2=1") }, shortGrace, os.Args[0], "command", "stubborn")
	s.until("stubborn")
	s.signal(s.cmd.Process.Pid, syscall.SIGUSR2)
	if said, code := s.gone(); code != 137 {
		t.Errorf("exit code %d: %q", code, said)
	}
}

// A stopped command is woken to end.
func TestEndWakesWhoIsStopped(t *testing.T) {
	s := playIn(t, func(c *exec.Cmd) { c.Env = append(os.Environ(), "END_AT_USR2=1") }, longGrace, os.Args[0], "command", "signals")
	command := s.pidAt("ready")
	s.signal(command, syscall.SIGSTOP)
	s.signal(s.cmd.Process.Pid, syscall.SIGUSR2)
	if said, code := s.gone(); code != 4 {
		t.Errorf("exit code %d: %q", code, said)
	}
}

// kill -9 of the supervisor leaves nothing.
func TestKillOfTheSupervisor(t *testing.T) {
	s := play(t, longGrace, "family", "stay")
	s.until("stubborn")
	s.signal(s.cmd.Process.Pid, syscall.SIGKILL)
	if said, _ := s.gone(); len(said) != 0 {
		t.Errorf("then it said %q", said)
	}
}

// kill -9 of the keeper leaves nothing either, and is told.
func TestKillOfTheKeeper(t *testing.T) {
	s := play(t, longGrace, "family", "stay")
	keeper := s.pidAt("keeper")
	s.until("stubborn")
	s.signal(keeper, syscall.SIGKILL)
	said, code := s.gone()
	if code != 97 || !strings.Contains(strings.Join(said, "\n"), "keeper is gone (signal: killed)") {
		t.Errorf("exit code %d: %q", code, said)
	}
}

func TestStandardInput(t *testing.T) {
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	s := playIn(t, func(c *exec.Cmd) { c.Stdin = read }, longGrace, os.Args[0], "command", "echo")
	if err := read.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(write, "hello\n"); err != nil {
		t.Fatal(err)
	}
	if got := s.until("read"); got != "hello" {
		t.Errorf("it read %q", got)
	}
	if err := write.Close(); err != nil {
		t.Fatal(err)
	}
	if _, code := s.gone(); code != 0 {
		t.Errorf("exit code %d", code)
	}
}

// Who calls the keeper by hand is told, and nothing hangs.
func TestAKeeperIsNotForHands(t *testing.T) {
	out, err := exec.Command(os.Args[0], "keeper").CombinedOutput()
	if err != nil || !strings.Contains(string(out), "not by hand") {
		t.Errorf("%v: %s", err, out)
	}
}

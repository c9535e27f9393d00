package supervise

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// terminal makes a pair of a terminal and who sits at it.
func terminal(t *testing.T) (person, tty *os.File) {
	t.Helper()
	person, err := os.OpenFile("/dev/ptmx", os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.IoctlSetPointerInt(int(person.Fd()), unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	number, err := unix.IoctlGetInt(int(person.Fd()), unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	tty, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = person.Close(); _ = tty.Close() })
	return person, tty
}

// onTerminal starts a supervisor as a shell would: at a terminal, in the
// foreground.
func onTerminal(t *testing.T, tty *os.File, args ...string) *stage {
	t.Helper()
	return playIn(t, func(c *exec.Cmd) {
		c.Stdin = tty
		c.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true, Ctty: 0}
	}, longGrace, append([]string{os.Args[0], "command"}, args...)...)
}

// Ctrl-C reaches the command, once.
func TestCtrlC(t *testing.T) {
	person, tty := terminal(t)
	s := onTerminal(t, tty, "signals")
	s.until("ready")
	if _, err := person.Write([]byte{3}); err != nil {
		t.Fatal(err)
	}
	if got := s.until("got"); got != "interrupt" {
		t.Fatalf("got %s", got)
	}
	// Passed on after all that came before it.
	s.signal(s.cmd.Process.Pid, syscall.SIGUSR1)
	if got := s.until("interrupts"); got != "1" {
		t.Errorf("SIGINT came %s times", got)
	}
	s.signal(s.cmd.Process.Pid, syscall.SIGTERM)
	if _, code := s.gone(); code != 4 {
		t.Errorf("exit code %d", code)
	}
}

// The command reads what is typed, and the end of it.
func TestTyping(t *testing.T) {
	person, tty := terminal(t)
	s := onTerminal(t, tty, "echo")
	if _, err := io.WriteString(person, "hello\n\x04"); err != nil {
		t.Fatal(err)
	}
	if got := s.until("read"); got != "hello" {
		t.Errorf("it read %q", got)
	}
	if _, code := s.gone(); code != 0 {
		t.Errorf("exit code %d", code)
	}
}

// Ctrl-Z stops the supervisor and the command together, the shell sees it, and
// its fg wakes both.
func TestCtrlZ(t *testing.T) {
	person, tty := terminal(t)
	s := playIn(t, func(c *exec.Cmd) {
		c.Path, c.Args = "/bin/sh", append([]string{"sh", "-c", `set -m; "$@"; echo "stopped $?"; fg; echo "ended $?"`, "sh"}, c.Args...)
		c.Stdin = tty
		c.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true, Ctty: 0}
	}, longGrace, os.Args[0], "command", "signals")
	pids := map[string]int{}
	for len(pids) < 2 { // in either order
		word, pid, _ := strings.Cut(s.until(""), " ")
		if word == "supervisor" || word == "ready" {
			pids[word] = number(t, pid)
		}
	}
	if _, err := person.Write([]byte{26}); err != nil {
		t.Fatal(err)
	}
	if got, want := s.until("stopped"), fmt.Sprint(128+int(syscall.SIGTSTP)); got != want {
		t.Fatalf("the shell saw %s, want %s", got, want)
	}
	s.signal(pids["supervisor"], syscall.SIGUSR2)
	s.until("got")
	ofSupervisor, err := syscall.Getpgid(pids["supervisor"])
	ofCommand, errCommand := syscall.Getpgid(pids["ready"])
	if err != nil || errCommand != nil || ofSupervisor != ofCommand {
		t.Errorf("they are in groups %d and %d (%v, %v)", ofSupervisor, ofCommand, err, errCommand)
	}
	s.signal(pids["supervisor"], syscall.SIGTERM)
	if got := s.until("ended"); got != "4" {
		t.Errorf("exit code %s", got)
	}
}

func number(t *testing.T, text string) int {
	t.Helper()
	n, err := strconv.Atoi(text)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// An orphan that comes to the supervisor, as to the first process of a container,
// does not stay a zombie.
func TestOrphansAreReaped(t *testing.T) {
	s := playIn(t, func(c *exec.Cmd) { c.Env = append(os.Environ(), "ADOPT=1") }, longGrace, os.Args[0], "command", "signals")
	s.until("orphan gone")
	s.signal(s.cmd.Process.Pid, syscall.SIGTERM)
	s.gone()
}

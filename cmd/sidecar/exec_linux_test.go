package main

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// At a terminal, an agent that ends after a Ctrl-C is not started again, even if
// its exit code does not say why it ended, as those of many programs do not.
func TestExecAtATerminal(t *testing.T) {
	person, err := os.OpenFile("/dev/ptmx", os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer person.Close()
	if err := unix.IoctlSetPointerInt(int(person.Fd()), unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	number, err := unix.IoctlGetInt(int(person.Fd()), unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	tty, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer tty.Close()
	cmd := exec.Command(program, execOf(`trap 'echo bye; exit 1' INT; read name; echo "hello $name"; read name`, "--restart", "on-failure")...)
	cmd.Env = append([]string{"PATH=" + os.Getenv("PATH")}, execSettings(t)...)
	cmd.Stdin = tty
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true, Ctty: 0}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := person.WriteString("ada\n"); err != nil {
		t.Fatal(err)
	}
	var said []string
	for lines := bufio.NewScanner(out); lines.Scan(); {
		said = append(said, lines.Text())
		if lines.Text() == "hello ada" {
			if _, err := person.Write([]byte{3}); err != nil { // Ctrl-C
				t.Fatal(err)
			}
		}
	}
	_ = cmd.Wait() // its code says how it ended
	if got := strings.Join(said, ", "); got != "hello ada, bye" || cmd.ProcessState.ExitCode() != 1 {
		t.Errorf("exit code %d: it said %q", cmd.ProcessState.ExitCode(), got)
	}
}

//go:build unix

package supervise

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// grace is what the tests' programs allow: long where ending has to be in time,
// short where it is meant to pass.
const (
	longGrace  = 30 * time.Second
	shortGrace = 50 * time.Millisecond
)

// TestMain is every program of the tests: the supervising one, the keeper, the
// command and what the command starts.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 {
		switch os.Args[1] {
		case "supervisor":
			os.Exit(supervisor(os.Args[2], os.Args[3:]))
		case "keeper":
			if err := Keep(os.Environ()); err != nil {
				fmt.Fprintln(os.Stderr, err)
			}
			os.Exit(0)
		case "command":
			os.Exit(command(os.Args[2:]))
		}
	}
	// With the race detector each program would rest for a second before it ends.
	if err := os.Setenv("GORACE", "atexit_sleep_ms=0"); err != nil {
		panic(err)
	}
	goleak.VerifyTestMain(m)
}

// supervisor starts a command, passes signals on and says how it ended.
func supervisor(grace string, args []string) int {
	passed := make(chan os.Signal, 16)
	signal.Notify(passed, Passed()...)
	d, err := time.ParseDuration(grace)
	if err != nil {
		fmt.Println(err)
		return 99
	}
	p, err := Start(Command{
		Args: args, Env: os.Environ(), Keeper: []string{os.Args[0], "keeper"}, Grace: d,
		Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr,
	})
	if isCommand := (&CommandError{}); errors.As(err, &isCommand) {
		fmt.Println("not started:", err)
		return 98
	}
	if err != nil {
		fmt.Println("error:", err)
		return 99
	}
	if os.Getenv("ADOPT") != "" {
		go tellOrphan(p)
	}
	fmt.Println("supervisor", os.Getpid())
	fmt.Println("keeper", p.keeper.Process.Pid)
	for {
		select {
		case s := <-passed:
			if s == syscall.SIGUSR2 && os.Getenv("END_AT_USR2") != "" {
				p.End()
				continue
			}
			p.Signal(s.(syscall.Signal))
		case <-p.Done():
			exit, err := p.Wait()
			if err != nil {
				fmt.Println("error:", err, "left", exit.Left)
				return 97
			}
			fmt.Println("left", exit.Left)
			return exit.Status()
		}
	}
}

// command plays a part.
func command(args []string) int {
	switch args[0] {
	case "exit":
		code, _ := strconv.Atoi(args[1])
		return code
	case "signal":
		number, _ := strconv.Atoi(args[1])
		_ = syscall.Kill(os.Getpid(), syscall.Signal(number))
		stay()
	case "signals":
		return tellSignals()
	case "echo":
		lines := bufio.NewScanner(os.Stdin)
		for lines.Scan() {
			fmt.Println("read", lines.Text())
		}
	case "stubborn":
		signal.Ignore(syscall.SIGTERM, syscall.SIGHUP)
		fmt.Println("stubborn", os.Getpid())
		stay()
	case "family":
		return family(args[1])
	}
	return 0
}

// tellSignals prints each signal that comes, how often SIGINT came at SIGUSR1,
// and ends at SIGTERM.
func tellSignals() int {
	got := make(chan os.Signal, 16)
	signal.Notify(got, syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGTERM, syscall.SIGUSR1, syscall.SIGUSR2, syscall.SIGWINCH)
	fmt.Println("ready", os.Getpid())
	interrupts := 0
	for s := range got {
		switch s {
		case syscall.SIGTERM:
			return 4
		case syscall.SIGINT:
			interrupts++
			fmt.Println("got", s)
		case syscall.SIGUSR1:
			fmt.Println("interrupts", interrupts)
		default:
			fmt.Println("got", s)
		}
	}
	return 0
}

// family starts a process in a session of its own that does not end at SIGTERM,
// and then does as it is told: "end", or "stay".
func family(then string) int {
	child := exec.Command(os.Args[0], "command", "stubborn")
	child.Stdout, child.Stderr = os.Stdout, os.Stderr
	child.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := child.Start(); err != nil {
		fmt.Println(err)
		return 99
	}
	if then == "end" {
		// Not before the other is there, and deaf.
		line := make(chan os.Signal, 1)
		signal.Notify(line, syscall.SIGUSR1)
		<-line
		return 5
	}
	stay()
	return 0
}

// stay waits for what never comes.
func stay() {
	never := make(chan os.Signal, 1)
	signal.Notify(never, syscall.SIGUSR2)
	for range never {
	}
}

// tellOrphan has an orphan come to this process, and says when it is gone.
func tellOrphan(p *Process) {
	out, err := exec.Command("sh", "-c", "sleep 600 >/dev/null 2>&1 & echo $!").Output()
	if err != nil {
		fmt.Println(err)
		return
	}
	children := make(chan os.Signal, 1)
	signal.Notify(children, syscall.SIGCHLD)
	pid, _ := strconv.Atoi(strings.TrimSpace(string(out)))
	_ = syscall.Kill(pid, syscall.SIGKILL)
	for range children {
		ReapOrphans(p)
		if syscall.Kill(pid, 0) != nil {
			fmt.Println("orphan gone")
		}
	}
}

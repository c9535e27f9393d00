//go:build unix

package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"counterfoil/internal/config"
	"counterfoil/internal/supervise"
	"counterfoil/keystore"
	"counterfoil/keystore/badger"
)

// execSettings are the variables of a sidecar exec on a journal of its own.
func execSettings(t *testing.T) []string {
	t.Helper()
	return []string{"COUNTERFOIL_DATA=" + filepath.Join(t.TempDir(), "journal"), "COUNTERFOIL_UPSTREAMS=tickets=http://127.0.0.1:1,openai=http://127.0.0.1:1"}
}

// execOf is the command line of sidecar exec for a script.
func execOf(script string, flags ...string) []string {
	return append(append([]string{"exec", "--run", "r", "--restart-delay", "1ms"}, flags...), "--", "sh", "-c", script)
}

func TestExecGivesTheAgentItsEnvironment(t *testing.T) {
	settings := append(execSettings(t), "COUNTERFOIL_ADMIN_TOKEN=0123456789abcdef", "OWN=kept")
	out, errs, code := sidecarOutput(t, settings, execOf("env", "--env", "TICKETS_URL=tickets/v2")...)
	if code != 0 {
		t.Fatalf("exit code %d: %s", code, errs)
	}
	got := map[string]string{}
	for line := range strings.Lines(out) {
		name, value, _ := strings.Cut(strings.TrimSuffix(line, "\n"), "=")
		got[name] = value
	}
	url := got["COUNTERFOIL_URL"]
	for name, want := range map[string]string{
		"COUNTERFOIL_RUN": "r", "COUNTERFOIL_FENCE": "1", "COUNTERFOIL_INCARNATION": "1", "OWN": "kept", "COUNTERFOIL_ADMIN_TOKEN": "", "COUNTERFOIL_DATA": "",
		"TICKETS_URL": url + "/@r;f=1/tickets/v2", "OPENAI_BASE_URL": url + "/@r;f=1/openai/v1",
	} {
		if got[name] != want {
			t.Errorf("%s is %q, want %q", name, got[name], want)
		}
	}
	if !strings.HasPrefix(url, "http://127.0.0.1:") || errs != "" {
		t.Errorf("the URL is %q, standard error %q", url, errs)
	}
}

func TestExecEndsAsItsAgentDoes(t *testing.T) {
	settings := execSettings(t)
	for _, tc := range []struct {
		args []string
		code int
		errs string
	}{
		{execOf("exit 7"), 7, ""},
		{execOf("kill -9 $$"), 137, ""},
		{execOf("exit 0", "--restart", "on-failure"), 0, ""},
		{execOf("kill -TERM $$", "--restart", "on-failure"), 143, ""},
		{execOf("exit 9", "--restart", "on-failure:2"), 9, "restart=2"},
		{execOf(`test $COUNTERFOIL_FENCE -gt 8`, "--restart", "on-failure"), 0, "restart=1"},
		{[]string{"exec", "--run", "r", "no-such-command"}, 127, "no-such-command"},
		{[]string{"exec", "--run", "r", "/etc/passwd"}, 126, "permission denied"},
		{[]string{"exec", "--run", "r", "true", "--nope"}, 0, ""},
	} {
		out, errs, code := sidecarOutput(t, settings, tc.args...)
		if code != tc.code || !strings.Contains(errs, tc.errs) || tc.errs == "" && errs != "" {
			t.Errorf("%q: exit code %d, want %d\n%s%s", tc.args, code, tc.code, out, errs)
		}
	}
}

// What is wrong with sidecar exec itself is 125, and says what to do.
func TestExecSaysWhatIsWrongWithIt(t *testing.T) {
	settings := execSettings(t)
	for _, tc := range []struct {
		variables, args []string
		want            string
	}{
		{nil, []string{"exec", "--", "true"}, "--run"},
		{nil, []string{"exec", "--run", "r"}, "COMMAND"},
		{nil, []string{"exec", "--run", "r", "--nope", "--", "true"}, "--nope"},
		{nil, execOf("true", "--restart", "always"), "on-failure"},
		{nil, execOf("true", "--lease-ttl", "500ms"), "--lease-ttl is a time from 1s"},
		{nil, execOf("true", "--grace", "-1s"), "--grace is a time from 0s"},
		{nil, execOf("true", "--restart-delay", "2m"), "--restart-delay is a time from 0s to 1m0s"},
		{nil, execOf("true", "--env", "X=nobody"), `no upstream "nobody"; there are tickets, openai`},
		{[]string{"OPENAI_BASE_URL=https://elsewhere.example/v1"}, execOf("true"), "--keep-env OPENAI_BASE_URL"},
		{[]string{"COUNTERFOIL_TOKENS=0123456789abcdef=team"}, execOf("true"), "COUNTERFOIL_TOKENS"},
		{[]string{"COUNTERFOIL_LISTEN=192.0.2.1:8100"}, execOf("true"), "COUNTERFOIL_LISTEN"},
		{[]string{"COUNTERFOIL_LISTN=x"}, execOf("true"), "COUNTERFOIL_LISTN"},
	} {
		out, errs, code := sidecarOutput(t, append(slices.Clip(settings), tc.variables...), tc.args...)
		if code != exitFailed || !strings.Contains(errs, tc.want) || out != "" {
			t.Errorf("%q: exit code %d, want %d and %q\n%s%s", tc.args, code, exitFailed, tc.want, out, errs)
		}
	}
}

// An execTest is a sidecar exec that goes on. All that it starts holds lines open.
type execTest struct {
	t     *testing.T
	cmd   *exec.Cmd
	lines *bufio.Scanner
}

func startExec(t *testing.T, settings, args []string) *execTest {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	r := &execTest{t: t, cmd: exec.CommandContext(ctx, program, args...)}
	r.cmd.Env = append([]string{"PATH=" + os.Getenv("PATH")}, settings...)
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = read.Close() })
	r.cmd.Stdout, r.cmd.Stderr = write, write
	if err := r.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if err := write.Close(); err != nil {
		t.Fatal(err)
	}
	r.lines = bufio.NewScanner(read)
	return r
}

// until returns the first line that holds a word.
func (r *execTest) until(word string) string {
	r.t.Helper()
	for r.lines.Scan() {
		if strings.Contains(r.lines.Text(), word) {
			return r.lines.Text()
		}
	}
	r.t.Fatalf("all has ended, and nothing said %q", word)
	return ""
}

// gone returns what was still said until nothing was left, and the exit code.
func (r *execTest) gone() (said string, code int) {
	r.t.Helper()
	var lines []string
	for r.lines.Scan() {
		lines = append(lines, r.lines.Text())
	}
	_ = r.cmd.Wait() // its code says how it ended
	return strings.Join(lines, "\n"), r.cmd.ProcessState.ExitCode()
}

func (r *execTest) signal(s syscall.Signal) {
	r.t.Helper()
	if err := r.cmd.Process.Signal(s); err != nil {
		r.t.Fatal(err)
	}
}

const (
	// untilTold is an agent that ends at SIGTERM alone.
	untilTold = `trap 'kill $!; exit 4' TERM; echo up; sleep 600 & wait`
	// withFamily starts what would outlive it. No shell is left of it, which might
	// say how a child ended.
	withFamily = `(setsid sleep 600 &) ; echo up; exec sleep 600`
)

func TestExecPassesSignalsOnAndDoesNotRestartThen(t *testing.T) {
	r := startExec(t, execSettings(t), execOf(untilTold, "--restart", "on-failure"))
	r.until("up")
	r.signal(syscall.SIGTERM)
	if said, code := r.gone(); code != 4 {
		t.Errorf("exit code %d: %s", code, said)
	}
}

// A terminal that is closed while no agent runs ends it: nobody is left to restart
// for.
func TestExecEndsAtAHangupBetweenTwoLives(t *testing.T) {
	r := startExec(t, execSettings(t), []string{"exec", "--run", "r", "--restart", "on-failure", "--restart-delay", "1m", "--", "sh", "-c", "exit 9"})
	r.until("starting it again")
	r.signal(syscall.SIGHUP)
	if said, code := r.gone(); code != 129 {
		t.Errorf("exit code %d: %s", code, said)
	}
}

// Nobody reads its log any more: that is no reason to end, and the agent's own
// writes fail as they always do.
func TestExecOutlivesTheReaderOfItsLog(t *testing.T) {
	lives := filepath.Join(t.TempDir(), "lives")
	cmd := exec.CommandContext(t.Context(), program, execOf("echo life >>"+lives+"; bash -c 'echo >&2; echo not reached >>"+lives+"'; exit 9", "--restart", "on-failure:2")...)
	cmd.Env = append(execSettings(t), "PATH="+os.Getenv("PATH"), "HOME="+t.TempDir())
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stderr = write
	if err := errors.Join(read.Close(), cmd.Start(), write.Close()); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); cmd.ProcessState.ExitCode() != 9 {
		t.Errorf("it ended with %v", err)
	}
	if got, err := os.ReadFile(lives); err != nil || string(got) != strings.Repeat("life\n", 3) {
		t.Errorf("its lives were %q, %v", got, err)
	}
}

// kill -9 of sidecar exec leaves nothing of the agent, and the next one takes
// the run at once, under the next fence.
func TestExecAfterExecWasKilled(t *testing.T) {
	settings := execSettings(t)
	r := startExec(t, settings, execOf(withFamily, "--lease-ttl", "1h"))
	r.until("up")
	r.signal(syscall.SIGKILL)
	r.gone()
	out, errs, code := sidecarOutput(t, settings, execOf("echo fence $COUNTERFOIL_FENCE", "--lease-wait", "0s")...)
	if code != 0 || out != "fence 2\n" || errs != "" {
		t.Errorf("exit code %d: %s%s", code, out, errs)
	}
}

// heldByWorker makes a journal in which another holds the run.
func heldByWorker(t *testing.T, ttl time.Duration) []string {
	t.Helper()
	settings := execSettings(t)
	store, err := badger.Open(t.Context(), badger.Config{Dir: strings.TrimPrefix(settings[0], "COUNTERFOIL_DATA="), Now: steadyClock()})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := store.AcquireLease(t.Context(), &keystore.LeaseRequest{Namespace: "default", Run: "r", Owner: "worker-7", TTL: ttl}); err != nil {
		t.Fatal(err)
	}
	if err := store.Close(); err != nil {
		t.Fatal(err)
	}
	return settings
}

func TestExecWaitsForAnotherHolder(t *testing.T) {
	settings := heldByWorker(t, time.Hour)
	_, errs, code := sidecarOutput(t, settings, execOf("true", "--lease-wait", "0s")...)
	if code != exitFailed || !strings.Contains(errs, `held by "worker-7"`) || !strings.Contains(errs, "--lease-wait") {
		t.Errorf("exit code %d: %s", code, errs)
	}
	r := startExec(t, settings, execOf("true"))
	r.until("waiting for it")
	r.signal(syscall.SIGTERM)
	if said, code := r.gone(); code != 143 {
		t.Errorf("exit code %d: %s", code, said)
	}
	out, errs, code := sidecarOutput(t, heldByWorker(t, time.Second), execOf("echo $COUNTERFOIL_FENCE")...)
	if code != 0 || out != "2\n" || !strings.Contains(errs, "waiting for it") {
		t.Errorf("exit code %d: %s%s", code, out, errs)
	}
}

// Two cannot have one journal.
func TestExecBesideAnotherSidecar(t *testing.T) {
	settings := execSettings(t)
	r := startExec(t, settings, execOf(untilTold))
	r.until("up")
	_, errs, code := sidecarOutput(t, settings, execOf("true", "--lease-wait", "0s")...)
	if code != exitFailed || !strings.Contains(errs, "COUNTERFOIL_DATA") || !strings.Contains(errs, "another process") {
		t.Errorf("exit code %d: %s", code, errs)
	}
	r.signal(syscall.SIGTERM)
	r.gone()
}

// Its sidecar ends with it: nothing listens any more, and the directory is free.
func TestExecLeavesNothing(t *testing.T) {
	settings := execSettings(t)
	r := startExec(t, settings, execOf(`echo $COUNTERFOIL_URL; `+withFamily, "--grace", "50ms"))
	address := strings.TrimPrefix(r.until("http://"), "http://")
	r.until("up")
	r.signal(syscall.SIGTERM)
	if said, code := r.gone(); code != 143 {
		t.Errorf("exit code %d: %s", code, said)
	}
	_, port, _ := strings.Cut(address, ":")
	if _, err := strconv.Atoi(port); err != nil {
		t.Fatalf("no address: %q", address)
	}
	if _, errs, code := sidecarOutput(t, append(settings, "COUNTERFOIL_LISTEN="+address), execOf("true", "--lease-wait", "0s")...); code != 0 {
		t.Errorf("exit code %d: %s", code, errs)
	}
}

// What is written to it is read by the agent.
func TestExecStandardInput(t *testing.T) {
	cmd := exec.Command(program, execOf("cat")...)
	cmd.Env = append([]string{"PATH=" + os.Getenv("PATH")}, execSettings(t)...)
	cmd.Stdin = io.MultiReader(strings.NewReader("one\n"), strings.NewReader("two\n"))
	if out, err := cmd.CombinedOutput(); err != nil || string(out) != "one\ntwo\n" {
		t.Errorf("%q, %v", out, err)
	}
}

// A supervision is an execution in this process.
type supervision struct {
	*execution
	t     *testing.T
	store *badger.Store
	said  *bufio.Scanner
	// cancel ends its context, as a sidecar's failure does.
	cancel context.CancelCauseFunc
	done   chan error
}

// supervised starts an agent that never ends, and that would be restarted.
func supervised(t *testing.T) *supervision {
	t.Helper()
	store, err := badger.Open(t.Context(), badger.Config{Dir: filepath.Join(t.TempDir(), "journal"), Now: steadyClock()})
	if err != nil {
		t.Fatal(err)
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	s := &supervision{t: t, store: store, said: bufio.NewScanner(read), cancel: cancel, done: make(chan error, 1), execution: &execution{
		flags: &execFlags{leaseTTL: time.Second, restart: restartPolicy{onFailure: true}},
		cfg:   &config.Config{Run: "r", Namespace: "default"}, log: slog.New(slog.DiscardHandler), relay: newRelay(cancel),
		env: &agentEnv{inherited: map[string]string{"PATH": os.Getenv("PATH")}}, jitter: func() float64 { return 0 },
		command: supervise.Command{Args: []string{"sh", "-c", withFamily}, Grace: time.Minute, Stdin: os.Stdin, Stdout: write, Stderr: write},
		keeper:  func() ([]string, error) { return []string{program, keeperCommand}, nil },
	}}
	t.Cleanup(func() {
		cancel(nil)
		s.relay.stop()
		_ = errors.Join(store.Close(), ln.Close(), read.Close())
	})
	go func() {
		s.done <- s.work(ctx, store, &listeners{data: []dataListener{{Listener: ln}}})
		_ = write.Close() // with that, whoever else holds it is all that is left
	}()
	if !s.said.Scan() || s.said.Text() != "up" {
		t.Fatalf("the agent did not start: %q", s.said.Text())
	}
	return s
}

// end returns how it ended, once nothing of the agent is left.
func (s *supervision) end() error {
	s.t.Helper()
	err := <-s.done
	if s.said.Scan() {
		s.t.Errorf("something said %q", s.said.Text())
	}
	return err
}

// An agent whose lease is lost is ended, and is not started again.
func TestExecEndsAnAgentThatLostItsRun(t *testing.T) {
	s := supervised(t)
	if err := s.store.ReleaseLease(t.Context(), "default", "r", s.newestFence()); err != nil {
		t.Fatal(err)
	}
	if err := s.end(); err == nil || !strings.Contains(err.Error(), "the lease of run r is lost") || s.ended != nil {
		t.Errorf("it ended with %v, %v", err, s.ended)
	}
}

// An agent whose sidecar fails is ended, and its own end is not what is told.
func TestExecEndsAnAgentWithoutItsSidecar(t *testing.T) {
	s := supervised(t)
	s.cancel(nil)
	if err := s.end(); err != nil || s.ended != nil {
		t.Errorf("it ended with %v, %v", err, s.ended)
	}
	lease, err := s.store.Lease(t.Context(), "default", "r")
	if err != nil || lease.Left != 0 {
		t.Errorf("the lease was not given back: %+v, %v", lease, err)
	}
}

// An agent that knows the sidecar's address alone sends calls without a run, a
// fence or an id: they are the served run's, in the agent's present life.
func TestExecServesAnAgentThatNamesNothing(t *testing.T) {
	var effects atomic.Int32
	provider := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusCreated)
		fmt.Fprintf(w, "ticket %d", effects.Add(1))
	}))
	defer provider.Close()
	settings := append(execSettings(t), "COUNTERFOIL_UPSTREAMS=tickets="+provider.URL, "PLAIN_AGENT=2")
	out, errs, code := sidecarOutput(t, settings, "exec", "--run", "r", "--restart", "on-failure", "--restart-delay", "0s", "--", os.Args[0])
	// Two alike in one life are two.
	want := "executed ticket 1\nexecuted ticket 2\nreplayed ticket 1\nreplayed ticket 2\n"
	if code != 0 || out != want || effects.Load() != 2 {
		t.Errorf("exit code %d, %d effects: %q, want %q\n%s", code, effects.Load(), out, want, errs)
	}
}

// A run that waits for a person is not started again: it would get no further.
func TestExecDoesNotRestartAPausedRun(t *testing.T) {
	provider := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusInternalServerError) }))
	defer provider.Close()
	settings := append(execSettings(t), "COUNTERFOIL_UPSTREAMS=tickets="+provider.URL, "PLAIN_AGENT=1")
	out, errs, code := sidecarOutput(t, settings, "exec", "--run", "r", "--restart", "on-failure", "--restart-delay", "0s", "--", os.Args[0])
	if code != 1 || strings.Count(out, "unknown ") != 1 || !strings.Contains(errs, "wait for a person") {
		t.Errorf("exit code %d: %q\n%s", code, out, errs)
	}
}

package crashtest

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// configuration declares the three kinds of provider. The pauses are short
// since this provider's lookup counts what has arrived.
const configuration = `upstreams:
  none:
    url: http://%[1]s/none
    pause_on_unknown: call
  keyed:
    url: http://%[1]s/keyed
    pause_on_unknown: call
    operations:
      - name: create
        when: {method: [POST]}
        class: keyed
        guarantee: {retention: 24h}
  lookup:
    url: http://%[1]s/lookup
    pause_on_unknown: call
    operations:
      - name: create
        when: {method: [POST]}
        class: effect
        quiesce: 0s
        lookup:
          request: "GET /effects/{key}"
          found: ".id != null"
          response: {status: 201, body: "."}
          not_found: {status: [404]}
          consistency: {kind: strong}
`

// A bench is a provider, a folder for the journal, and the sidecars that are
// started on it one after another.
type bench struct {
	*testing.T
	provider *provider
	dir      string
	client   *http.Client
	// env is added to every sidecar's environment.
	env []string
}

func newBench(t *testing.T) *bench {
	t.Helper()
	b := &bench{T: t, provider: newProvider(t), dir: t.TempDir()}
	b.configure(fmt.Sprintf(configuration, b.provider.addr))
	// A connection for each request: the client's transport repeats nothing.
	transport := &http.Transport{DisableKeepAlives: true}
	b.client = &http.Client{Transport: transport}
	t.Cleanup(transport.CloseIdleConnections)
	return b
}

func (b *bench) configure(text string) {
	b.Helper()
	if err := os.WriteFile(filepath.Join(b.dir, "counterfoil.yaml"), []byte(text), 0o600); err != nil {
		b.Fatal(err)
	}
}

// A sidecar is one running process.
type sidecar struct {
	*bench
	cmd    *exec.Cmd
	base   string
	stderr *tail
	// first gets the first line of the process's output, "" if it ended without
	// one; done is closed when it has ended.
	first chan string
	done  chan struct{}
}

// released starts the program as it is released.
func (b *bench) released() *sidecar { b.Helper(); return b.start(programs.released, "") }

// crashing starts one that ends at the nth reaching of a point.
func (b *bench) crashing(point string, nth int) *sidecar {
	b.Helper()
	return b.start(programs.withPoints, fmt.Sprintf("%s:%d", point, nth))
}

func (b *bench) start(program, crash string) *sidecar {
	b.Helper()
	s, line := b.launch(crash, program, "serve", "--announce")
	if line == "" {
		<-s.done
		b.Fatalf("the sidecar did not start (%s):\n%s", s.cmd.ProcessState, s.stderr)
	}
	s.base = "http://" + strings.TrimPrefix(line, "http://")
	return s
}

// launch starts a process and waits for its first line, or its end.
func (b *bench) launch(crash string, args ...string) (s *sidecar, line string) {
	b.Helper()
	s = b.spawn(crash, args...)
	return s, await(b.T, "a sidecar's first line", s.first)
}

// spawn starts a process and waits for nothing.
func (b *bench) spawn(crash string, args ...string) *sidecar {
	b.Helper()
	s := &sidecar{
		bench: b, cmd: exec.Command(args[0], args[1:]...), stderr: &tail{},
		first: make(chan string, 1), done: make(chan struct{}),
	}
	s.cmd.Env = append([]string{
		"PATH=" + os.Getenv("PATH"), "HOME=" + b.dir, "TMPDIR=" + b.dir,
		"COUNTERFOIL_CONFIG=" + filepath.Join(b.dir, "counterfoil.yaml"),
		"COUNTERFOIL_DATA=" + filepath.Join(b.dir, "data"),
		"COUNTERFOIL_LISTEN=127.0.0.1:0", "COUNTERFOIL_ADMIN_LISTEN=127.0.0.1:0",
		"COUNTERFOIL_RESERVE=1MiB", "COUNTERFOIL_LOG_LEVEL=warn", "GORACE=halt_on_error=1",
	}, b.env...)
	if crash != "" {
		s.cmd.Env = append(s.cmd.Env, "CRASH_POINT="+crash)
	}
	s.cmd.Stderr = s.stderr
	s.cmd.SysProcAttr = dieWithParent()
	out, err := s.cmd.StdoutPipe()
	if err != nil {
		b.Fatal(err)
	}
	if err := s.cmd.Start(); err != nil {
		b.Fatal("starting a sidecar:", err)
	}
	b.Cleanup(func() {
		s.kill()
		if b.Failed() {
			b.Logf("stderr of process %d (%s):\n%s", s.cmd.Process.Pid, s.cmd.ProcessState, s.stderr)
		}
	})
	go func() {
		defer close(s.done)
		line, _ := bufio.NewReader(out).ReadString('\n')
		s.first <- strings.TrimSpace(line)
		_ = s.cmd.Wait() // how it ended is in ProcessState
	}()
	return s
}

// kill ends the process as kill -9 does, and waits until it is gone.
func (s *sidecar) kill() {
	_ = s.cmd.Process.Kill() // it may be gone already
	<-s.done
}

// terminate asks the process to end.
func (s *sidecar) terminate() {
	s.Helper()
	if err := s.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		s.Fatal("sending SIGTERM:", err)
	}
}

// ended waits for the end of the process and returns its exit code, -1 if a
// signal ended it.
func (s *sidecar) ended() int {
	s.Helper()
	await(s.T, "the sidecar to end", s.done)
	return s.cmd.ProcessState.ExitCode()
}

// crashed checks that the process has ended by SIGKILL of its own.
func (s *sidecar) crashed() {
	s.Helper()
	await(s.T, "the sidecar to reach its crash point", s.done)
	status := s.cmd.ProcessState.Sys().(syscall.WaitStatus)
	if !status.Signaled() || status.Signal() != syscall.SIGKILL {
		s.Fatalf("the sidecar ended with %s, not by SIGKILL", s.cmd.ProcessState)
	}
}

// freeAddress finds a loopback address that is free now.
func freeAddress(t *testing.T) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	return ln.Addr().String()
}

// tailBytes is how much of a process's stderr is kept.
const tailBytes = 64 << 10

// A tail keeps the end of what is written to it.
type tail struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.b.Len() > tailBytes {
		t.b.Next(t.b.Len() / 2)
	}
	return t.b.Write(p)
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.b.String()
}

// refused reports whether nobody listens at an address.
func refused(address string) bool {
	conn, err := net.DialTimeout("tcp", address, time.Second)
	if err == nil {
		_ = conn.Close()
	}
	return errors.Is(err, syscall.ECONNREFUSED)
}

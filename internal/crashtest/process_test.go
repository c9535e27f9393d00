package crashtest

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"testing"
)

// agentBase is the variable that makes the test's own program an agent.
const agentBase = "CRASHTEST_AGENT_BASE"

// A leg is one request of an agent: the target behind its base, the body, and
// header fields as "Name: value".
type leg struct {
	Target string   `json:"target"`
	Body   string   `json:"body"`
	Fields []string `json:"fields"`
}

// agentMain is an agent: it sends the legs that its first line of input lists,
// one after another, and prints each whole answer as a line of JSON. After each it
// waits for a line. It tries a leg again until it has a whole answer that is no
// refusal for the moment.
func agentMain(base string) int {
	in := bufio.NewScanner(os.Stdin)
	in.Buffer(nil, 1<<20)
	var legs []leg
	if !in.Scan() || json.Unmarshal(in.Bytes(), &legs) != nil {
		return 2
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: patience}
	out := json.NewEncoder(os.Stdout)
	for _, l := range legs {
		if err := out.Encode(l.answer(client, base)); err != nil || !in.Scan() {
			return 1
		}
	}
	return 0
}

// An account is what an agent says of an answer.
type account struct {
	Status  int    `json:"status"`
	Outcome string `json:"outcome"`
	Body    string `json:"body"`
}

func (l leg) answer(client *http.Client, base string) account {
	for {
		req, err := http.NewRequest(http.MethodPost, base+l.Target, strings.NewReader(l.Body))
		if err != nil {
			return account{Body: err.Error()}
		}
		req.Header.Set("Content-Type", "application/json")
		for _, f := range l.Fields {
			name, value, _ := strings.Cut(f, ": ")
			req.Header.Set(name, value)
		}
		if r := do(client, req); r.err == nil && r.status < 500 && r.problem() != "in-progress" {
			return account{r.status, r.outcome(), r.body}
		}
	}
}

// An agentProcess is an agent in a process of its own.
type agentProcess struct {
	t     *testing.T
	cmd   *exec.Cmd
	stdin io.WriteCloser
	lines *bufio.Scanner
}

// agent starts one before the sidecar.
func (s *sidecar) agent(legs []leg) *agentProcess {
	s.Helper()
	self, err := os.Executable()
	if err != nil {
		s.Fatal(err)
	}
	a := &agentProcess{t: s.T, cmd: exec.Command(self)}
	a.cmd.Env = []string{agentBase + "=" + s.base, "HOME=" + s.dir}
	a.cmd.SysProcAttr = dieWithParent()
	a.cmd.Stderr = os.Stderr
	stdout, err := a.cmd.StdoutPipe()
	if err != nil {
		s.Fatal(err)
	}
	if a.stdin, err = a.cmd.StdinPipe(); err != nil {
		s.Fatal(err)
	}
	a.lines = bufio.NewScanner(stdout)
	a.lines.Buffer(nil, 8<<20)
	if err := a.cmd.Start(); err != nil {
		s.Fatal("starting an agent:", err)
	}
	s.Cleanup(a.kill)
	list, err := json.Marshal(legs)
	if err != nil {
		s.Fatal(err)
	}
	_, _ = fmt.Fprintf(a.stdin, "%s\n", list) // it may have been killed
	return a
}

// answer is the next answer that the agent has; false if it is dead.
func (a *agentProcess) answer() (got account, ok bool) {
	a.t.Helper()
	if !a.lines.Scan() {
		return got, false
	}
	if err := json.Unmarshal(a.lines.Bytes(), &got); err != nil {
		a.t.Fatalf("an agent said %q: %v", a.lines.Text(), err)
	}
	return got, true
}

// goOn lets the agent make its next request.
func (a *agentProcess) goOn() { _, _ = io.WriteString(a.stdin, "\n") }

// kill ends the process as kill -9 does, and waits until it is gone.
func (a *agentProcess) kill() {
	_ = a.cmd.Process.Kill()
	_ = a.cmd.Wait()
}

// whole lets the agent run to its end, and returns its answers.
func (a *agentProcess) whole(n int) []account {
	a.t.Helper()
	var list []account
	for range n {
		got, ok := a.answer()
		if !ok {
			a.t.Fatal("the agent died")
		}
		list = append(list, got)
		a.goOn()
	}
	a.kill()
	return list
}

package demo

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// patience bounds each step of the story.
const patience = 20 * time.Second

// run is the name of the agent's run.
const run = "ticket-77"

// A Story is what [Tell] needs.
type Story struct {
	// Program is the path of the sidecar's binary. It plays every part: as
	// "demo-provider", "demo-agent" and "serve".
	Program string
	// Out gets the story in plain words.
	Out io.Writer
}

// Tell starts a provider, a sidecar and an agent, kills the sidecar with SIGKILL
// after the effect and before the receipt, resumes the agent until it is done
// and once more, and prints the provider's ledger. It returns an error unless
// the ledger shows one ticket and one mail, and the agent was answered
// recovered, executed, replayed and replayed.
func Tell(ctx context.Context, s Story) error {
	dir, err := os.MkdirTemp("", "counterfoil-demo-")
	if err != nil {
		return fmt.Errorf("making a folder for the journal: %w", err)
	}
	defer os.RemoveAll(dir)
	ctx, cancel := context.WithTimeout(ctx, 3*patience)
	defer cancel()
	t := &telling{Story: s, dir: dir}
	defer t.endAll()
	if err := t.tell(ctx); err != nil {
		return err
	}
	t.say("\nOne ticket, one mail: at most one effect per call, through a kill -9.")
	return nil
}

type telling struct {
	Story
	dir       string
	provider  string
	data      string
	admin     string
	processes []*process
}

func (t *telling) say(format string, args ...any) { fmt.Fprintf(t.Out, format+"\n", args...) }

func (t *telling) tell(ctx context.Context) error {
	if err := t.startProvider(ctx); err != nil {
		return err
	}
	sidecar, err := t.startSidecar(ctx)
	if err != nil {
		return err
	}
	if err := t.crash(ctx, sidecar); err != nil {
		return err
	}
	if _, err := t.startSidecar(ctx); err != nil {
		return err
	}
	t.say("4. The agent is resumed. It begins again from the top.")
	if err := t.resume(ctx, "recovered", "executed"); err != nil {
		return err
	}
	t.say("5. The agent is resumed once more, as an orchestrator might.")
	if err := t.resume(ctx, "replayed", "replayed"); err != nil {
		return err
	}
	return t.audit(ctx)
}

func (t *telling) startProvider(ctx context.Context) error {
	p, line, err := t.start(ctx, "demo-provider", nil, "demo-provider")
	if err != nil {
		return err
	}
	t.provider = line
	t.say("1. A provider of tickets and mail is up at %s (process %d).\n   It does not deduplicate: two requests would be two tickets.", line, p.pid())
	return nil
}

// configuration tells the sidecar how to ask this provider.
const configuration = `upstreams:
  tickets:
    url: %s
    operations:
      - name: create
        when: {method: [POST]}
        class: effect
        lookup:
          request: "GET /effects/{key}"
          found: ".id != null"
          response: {status: 201, body: "."}
          not_found: {status: [404]}
          consistency: {kind: strong}
`

func (t *telling) startSidecar(ctx context.Context) (*process, error) {
	if t.data == "" {
		var err error
		if t.data, err = freeAddress(); err != nil {
			return nil, err
		}
		if t.admin, err = freeAddress(); err != nil {
			return nil, err
		}
		file := filepath.Join(t.dir, "counterfoil.yaml")
		if err := os.WriteFile(file, fmt.Appendf(nil, configuration, t.provider), 0o600); err != nil {
			return nil, err
		}
	}
	p, _, err := t.start(ctx, "sidecar", []string{
		"COUNTERFOIL_CONFIG=" + filepath.Join(t.dir, "counterfoil.yaml"),
		"COUNTERFOIL_DATA=" + filepath.Join(t.dir, "data"),
		"COUNTERFOIL_LISTEN=" + t.data,
		"COUNTERFOIL_ADMIN_LISTEN=" + t.admin,
		"COUNTERFOIL_LOG_LEVEL=error",
	}, "serve", "--announce")
	if err != nil {
		return nil, err
	}
	if len(t.processes) == 2 {
		t.say("2. A sidecar is up at %s (process %d), its journal in a folder of its own.", t.data, p.pid())
	} else {
		t.say("   A new sidecar is up on the same journal (process %d).", p.pid())
	}
	return p, nil
}

// crash lets the agent make its first call, and kills the sidecar once the
// provider has made the ticket but not yet answered.
func (t *telling) crash(ctx context.Context, sidecar *process) error {
	t.say("3. The agent starts: create_ticket, send_email, done.")
	agent := t.command(ctx, nil, "demo-agent", t.toolBase(), run)
	if err := agent.Start(); err != nil {
		return fmt.Errorf("starting the agent: %w", err)
	}
	if err := t.backstage(ctx, http.MethodGet, "/backstage/holding", nil); err != nil {
		return errors.Join(err, agent.Process.Kill(), agent.Wait())
	}
	t.say("   The provider has made the ticket and holds its answer back.\n   kill -9 %d: the sidecar dies after the effect, before the receipt.", sidecar.pid())
	sidecar.kill()
	if agent.Wait() == nil {
		return errors.New("the agent should have failed with its sidecar")
	}
	t.say("   The agent saw a broken connection, and ends too. Was the ticket made? It cannot know.")
	return t.backstage(ctx, http.MethodPost, "/backstage/release", nil)
}

// resume runs the agent from the top, and checks how each call was answered.
func (t *telling) resume(ctx context.Context, want ...string) error {
	agent := t.command(ctx, nil, "demo-agent", t.toolBase(), run)
	var stderr bytes.Buffer
	agent.Stderr = &stderr
	out, err := agent.Output()
	if err != nil {
		return fmt.Errorf("the resumed agent failed: %w: %s", err, strings.TrimSpace(stderr.String()))
	}
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	for i, line := range lines {
		name, rest, _ := strings.Cut(line, " ")
		outcome, body, _ := strings.Cut(rest, " ")
		if i < len(want) && outcome != want[i] {
			return fmt.Errorf("%s was answered %q, not %q", name, outcome, want[i])
		}
		if meaning := meanings[outcome]; meaning != "" {
			t.say("   %-14s %-10s %s\n   %-14s %-10s %s", name, outcome, meaning, "", "", body)
		}
	}
	if len(lines) != len(want)+1 {
		return fmt.Errorf("the agent made %d calls, not %d", len(lines)-1, len(want))
	}
	return nil
}

// meanings says the outcomes in plain words.
var meanings = map[string]string{
	"recovered": "The sidecar asked the provider by key, found the ticket, and sent nothing.",
	"executed":  "Sent now, for the first time.",
	"replayed":  "Answered from the receipt. Nothing was sent.",
}

// audit prints the provider's ledger and holds it against the plan.
func (t *telling) audit(ctx context.Context) error {
	var ledger []Effect
	if err := t.backstage(ctx, http.MethodGet, "/backstage/ledger", &ledger); err != nil {
		return err
	}
	t.say("6. The provider's ledger, every effect there has been:")
	count := map[string]int{}
	for _, e := range ledger {
		t.say("   %-9s key %s", e.ID, e.Key)
		count[e.Kind]++
	}
	if len(ledger) != 2 || count["ticket"] != 1 || count["mail"] != 1 {
		return fmt.Errorf("the ledger has %d tickets and %d mails, not one of each", count["ticket"], count["mail"])
	}
	return nil
}

func (t *telling) toolBase() string { return "http://" + t.data + "/tickets" }

func (t *telling) backstage(ctx context.Context, method, path string, v any) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, t.provider+path, nil)
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return fmt.Errorf("asking the provider: %w", err)
	}
	defer resp.Body.Close()
	if v == nil {
		return nil
	}
	return json.NewDecoder(resp.Body).Decode(v)
}

func (t *telling) command(ctx context.Context, environ []string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, t.Program, args...)
	cmd.Env = append([]string{"PATH=" + os.Getenv("PATH"), "HOME=" + t.dir, "TMPDIR=" + t.dir}, environ...)
	return cmd
}

// A process is one that was started for the story.
type process struct {
	cmd  *exec.Cmd
	done chan struct{}
}

func (p *process) pid() int { return p.cmd.Process.Pid }

// kill ends the process as kill -9 does, and waits until it is gone.
func (p *process) kill() {
	_ = p.cmd.Process.Kill() // it may be gone already
	<-p.done
}

// start runs a part and waits for the first line it prints, which says where it
// listens.
func (t *telling) start(ctx context.Context, part string, environ []string, args ...string) (*process, string, error) {
	cmd := t.command(ctx, environ, args...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, "", err
	}
	if err := cmd.Start(); err != nil {
		return nil, "", fmt.Errorf("starting the %s: %w", part, err)
	}
	p := &process{cmd: cmd, done: make(chan struct{})}
	first := make(chan string, 1)
	go func() {
		defer close(p.done)
		line, _ := bufio.NewReader(out).ReadString('\n')
		first <- strings.TrimSpace(line)
		_ = cmd.Wait() // how it ended does not matter: the story kills it
	}()
	select {
	case line := <-first:
		if line != "" {
			t.processes = append(t.processes, p)
			return p, line, nil
		}
		<-p.done
		return nil, "", fmt.Errorf("the %s did not start: %s", part, strings.TrimSpace(stderr.String()))
	case <-time.After(patience):
		p.kill()
		return nil, "", fmt.Errorf("the %s did not start within %s", part, patience)
	}
}

func (t *telling) endAll() {
	for _, p := range t.processes {
		p.kill()
	}
}

// freeAddress finds a loopback port that is free now.
func freeAddress() (string, error) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	defer ln.Close()
	return ln.Addr().String(), nil
}

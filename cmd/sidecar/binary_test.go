package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// program is the binary under test, built once.
var program string

func TestMain(m *testing.M) {
	if tickets := os.Getenv("PLAIN_AGENT"); tickets != "" {
		os.Exit(plainAgent(tickets)) // an agent of a test, not the tests
	}
	dir, err := os.MkdirTemp("", "counterfoil-cmd-")
	if err != nil {
		panic(err)
	}
	program = filepath.Join(dir, "sidecar")
	if out, err := exec.Command("go", "build", "-o", program, ".").CombinedOutput(); err != nil {
		panic(string(out))
	}
	goleak.VerifyTestMain(m, goleak.Cleanup(func(code int) {
		_ = os.RemoveAll(dir)
		os.Exit(code)
	}))
}

// sidecarOutput runs the binary to its end, with nothing but the given variables
// set.
func sidecarOutput(t *testing.T, variables []string, args ...string) (stdout, stderr string, code int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Env = append([]string{"PATH=" + os.Getenv("PATH"), "HOME=" + t.TempDir()}, variables...)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return out.String(), errs.String(), cmd.ProcessState.ExitCode()
}

func TestTheDemoTellsItsStory(t *testing.T) {
	out, errs, code := sidecarOutput(t, nil, "demo")
	if code != 0 {
		t.Fatalf("exit code %d\n%s%s", code, out, errs)
	}
	for _, want := range []string{"kill -9", "create_ticket  recovered", "send_email     executed", "create_ticket  replayed", "send_email     replayed", "One ticket, one mail"} {
		if !strings.Contains(out, want) {
			t.Errorf("the story lacks %q:\n%s", want, out)
		}
	}
}

func TestMistakesAreNamedWithTheirPlaceAndNothingStarts(t *testing.T) {
	file := filepath.Join(t.TempDir(), "counterfoil.yaml")
	text := "upstreams:\n  p:\n    url: http://127.0.0.1:1\n    timeouts: {idel: 5s}\n    operations:\n      - name: a\n        class: keyed\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		name      string
		variables []string
		args      []string
		want      []string
	}{
		{"no upstream", nil, []string{"serve"}, []string{"COUNTERFOIL_UPSTREAMS"}},
		{"a field that is none", []string{"COUNTERFOIL_CONFIG=" + file}, []string{"check"}, []string{file + ":4", "idel"}},
		{"a variable that is none", []string{"COUNTERFOIL_LISTN=x"}, nil, []string{"COUNTERFOIL_LISTN", "COUNTERFOIL_LISTEN"}},
		{"a command that is none", nil, []string{"sevre"}, []string{"sevre"}},
		{"a flag that is none", nil, []string{"serve", "--nope"}, []string{"--nope"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			out, errs, code := sidecarOutput(t, tc.variables, tc.args...)
			if code != 2 {
				t.Errorf("exit code %d, want 2", code)
			}
			for _, want := range tc.want {
				if !strings.Contains(errs, want) {
					t.Errorf("standard error lacks %q:\n%s%s", want, out, errs)
				}
			}
		})
	}
}

// All mistakes are named at once and in one layout, whichever command sees them.
func TestCheckAndServeNameTheSameMistakes(t *testing.T) {
	file := filepath.Join(t.TempDir(), "counterfoil.yaml")
	for text, want := range map[string][]string{
		"upstreams:\n  p:\n    url: http://127.0.0.1:1\n    max_conns: 0\n    operations:\n      - name: a\n        class: keyed\n": {":4: upstreams.p.max_conns", "guarantee"},
		"upstreams:\n  p:\n    url: http://127.0.0.1:1\n    ca: /nowhere/ca.pem\n":                                                  {"upstreams.p: ", "/nowhere/ca.pem"},
	} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		_, checked, checkCode := sidecarOutput(t, []string{"COUNTERFOIL_CONFIG=" + file}, "check")
		_, served, serveCode := sidecarOutput(t, []string{"COUNTERFOIL_CONFIG=" + file}, "serve")
		if checkCode != 2 || serveCode != 2 || checked != served {
			t.Errorf("check (%d):\n%sserve (%d):\n%s", checkCode, checked, serveCode, served)
		}
		for _, w := range append(want, "the configuration has mistakes") {
			if !strings.Contains(checked, w) {
				t.Errorf("it lacks %q:\n%s", w, checked)
			}
		}
	}
}

// What stands in the way of a start is named by the setting that can be changed.
func TestWhatCannotBeHadIsNamedByItsSetting(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	taken, dir := ln.Addr().String(), t.TempDir()
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	_, port, err := net.SplitHostPort(taken)
	if err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct{ set, want []string }{
		"data listener":  {[]string{"COUNTERFOIL_LISTEN=" + taken}, []string{"COUNTERFOIL_LISTEN", taken, "set another port"}},
		"admin listener": {[]string{"COUNTERFOIL_ADMIN_LISTEN=" + taken}, []string{"COUNTERFOIL_ADMIN_LISTEN", taken, "set another port"}},
		"own listener":   {[]string{"COUNTERFOIL_UPSTREAMS=p=http://127.0.0.1:1@" + port}, []string{"upstreams.p.listen", "COUNTERFOIL_UPSTREAMS", taken, "set another port"}},
		"another's host": {[]string{"COUNTERFOIL_LISTEN=192.0.2.1:8100"}, []string{"COUNTERFOIL_LISTEN", "192.0.2.1:8100", "this machine"}},
		"a file":         {[]string{"COUNTERFOIL_DATA=" + file}, []string{"COUNTERFOIL_DATA", file, "not a directory"}},
		"of another":     {[]string{"COUNTERFOIL_DATA=" + dir}, []string{"COUNTERFOIL_DATA", dir, "no journal"}},
		"below a file":   {[]string{"COUNTERFOIL_DATA=" + file + "/x"}, []string{"COUNTERFOIL_DATA", file, "not a directory"}},
	} {
		t.Run(name, func(t *testing.T) {
			variables := append([]string{
				"COUNTERFOIL_UPSTREAMS=p=http://127.0.0.1:1", "COUNTERFOIL_LISTEN=127.0.0.1:0", "COUNTERFOIL_ADMIN_LISTEN=127.0.0.1:0",
				"COUNTERFOIL_DATA=" + dir + "/data",
			}, tc.set...)
			_, errs, code := sidecarOutput(t, variables, "serve")
			if code != 1 {
				t.Errorf("exit code %d", code)
			}
			for _, want := range tc.want {
				if !strings.Contains(errs, want) {
					t.Errorf("it lacks %q: %s", want, errs)
				}
			}
		})
	}
}

func TestCheckSaysWhatWouldStart(t *testing.T) {
	out, errs, code := sidecarOutput(t, []string{"COUNTERFOIL_UPSTREAMS=tickets=http://127.0.0.1:9090"}, "check")
	if code != 0 || !strings.Contains(out, "tickets -> http://127.0.0.1:9090") {
		t.Errorf("exit code %d:\n%s%s", code, out, errs)
	}
}

// What is allowed and most likely not meant is told, and starts all the same.
func TestCheckWarnsOfOperations(t *testing.T) {
	file := filepath.Join(t.TempDir(), "counterfoil.yaml")
	text := "upstreams:\n  p:\n    url: http://127.0.0.1:1\n    operations:\n      - {name: all, class: effect}\n      - {name: none, class: effect}\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	out, errs, code := sidecarOutput(t, []string{"COUNTERFOIL_CONFIG=" + file}, "check")
	if code != 0 || !strings.Contains(out, "warning: "+file+":6: upstreams.p.operations[1]: never matches, since all ") {
		t.Errorf("exit code %d:\n%s%s", code, out, errs)
	}
}

// What the adapters' page shows is a right configuration, and warned of nowhere.
func TestTheAdaptersPageIsRight(t *testing.T) {
	page, err := os.ReadFile("../../docs/adapters.md")
	if err != nil {
		t.Fatal(err)
	}
	blocks := strings.Split(string(page), "```yaml\n")[1:]
	if len(blocks) < 3 {
		t.Fatalf("%d blocks", len(blocks))
	}
	for i, block := range blocks {
		text, _, _ := strings.Cut(block, "```")
		if i > 0 {
			text = "upstreams:\n  p:\n    url: http://127.0.0.1:1\n    " + strings.ReplaceAll(text, "\n", "\n    ")
		}
		file := filepath.Join(t.TempDir(), "counterfoil.yaml")
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		out, errs, code := sidecarOutput(t, []string{"COUNTERFOIL_CONFIG=" + file}, "check")
		if code != 0 || strings.Contains(out, "warning") {
			t.Errorf("block %d: exit code %d:\n%s%s", i, code, out, errs)
		}
	}
}

func TestVersion(t *testing.T) {
	if out, _, code := sidecarOutput(t, nil, "version"); code != 0 || !strings.HasPrefix(out, "counterfoil ") {
		t.Errorf("exit code %d: %q", code, out)
	}
}

// make build stamps what git says, so that a copy far from its clone can tell.
func TestMakeStampsTheCommit(t *testing.T) {
	out, err := exec.Command("make", "-n", "-C", "../..", "build", "VERSION=v0.0.1-7-gabc").CombinedOutput()
	if err != nil || !strings.Contains(string(out), `-X main.version=v0.0.1-7-gabc"`) {
		t.Errorf("%s, %v", out, err)
	}
}

// The line serving names every address, so that a port that was free can be
// found.
func TestServingNamesEveryListener(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, program, "serve")
	cmd.Env = []string{
		"COUNTERFOIL_DATA=" + t.TempDir(), "COUNTERFOIL_LISTEN=127.0.0.1:0", "COUNTERFOIL_ADMIN_LISTEN=127.0.0.1:0",
		"COUNTERFOIL_UPSTREAMS=tickets=http://127.0.0.1:1@0,plain=http://127.0.0.1:1",
	}
	errs, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	said := ""
	for lines := bufio.NewScanner(errs); lines.Scan(); {
		if line := lines.Text(); strings.Contains(line, "msg=serving") {
			said = line
			_ = cmd.Process.Signal(os.Interrupt) // it may have ended by itself
		}
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("the end: %v", err)
	}
	if !regexp.MustCompile(` listen=127\.0\.0\.1:[1-9]\d* own\.tickets=127\.0\.0\.1:[1-9]\d* admin=127\.0\.0\.1:[1-9]\d*$`).MatchString(said) {
		t.Errorf("it said: %s", said)
	}
}

// plainAgent makes some tickets that are alike, crashes, and does so once more.
func plainAgent(tickets string) int {
	n, err := strconv.Atoi(tickets)
	if err != nil {
		return 99
	}
	for range n {
		answer, err := http.Post(os.Getenv("COUNTERFOIL_URL")+"/tickets/v1/tickets", "application/json", strings.NewReader(`{"title":"broken"}`))
		if err != nil {
			fmt.Println(err)
			return 99
		}
		body, err := io.ReadAll(answer.Body)
		fmt.Println(answer.Header.Get("Counterfoil-Outcome"), string(body))
		if err = errors.Join(err, answer.Body.Close()); err != nil {
			return 99
		}
	}
	if os.Getenv("COUNTERFOIL_FENCE") == "1" {
		return 1
	}
	return 0
}

package config

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

var rewrite = flag.Bool("rewrite", false, "rewrite expected outputs and docs/configuration.md")

// files is a file system for a test.
func files(all map[string]string) func(string) ([]byte, error) {
	return func(path string) ([]byte, error) {
		text, ok := all[path]
		if !ok {
			return nil, &fs.PathError{Op: "open", Path: path, Err: fs.ErrNotExist}
		}
		return []byte(text), nil
	}
}

// A script is a test in a file: a comment, then "-- name --" lines each
// followed by the text of that name.
type script struct {
	comment string
	parts   map[string]string
}

func readScript(t *testing.T, path string) script {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	s, name := script{parts: map[string]string{}}, ""
	for line := range strings.Lines(string(data)) {
		if strings.HasPrefix(line, "-- ") && strings.HasSuffix(line, " --\n") {
			name = line[3 : len(line)-4]
			continue
		}
		if name == "" {
			s.comment += line
			continue
		}
		s.parts[name] += line
	}
	return s
}

func environOf(text string) map[string]string {
	environ := map[string]string{"HOME": "/home/test"}
	for line := range strings.Lines(text) {
		name, value, _ := strings.Cut(strings.TrimSuffix(line, "\n"), "=")
		environ[name] = value
	}
	return environ
}

// Each script in testdata/bad has an environment, files, and the complaints
// that these must give, all of them and no others. Words that begin with
// hunter are secrets and must not be repeated.
func TestComplaints(t *testing.T) {
	paths, err := filepath.Glob("testdata/bad/*.txt")
	if err != nil || len(paths) < 10 {
		t.Fatalf("got %d scripts (%v), want at least 10", len(paths), err)
	}
	for _, path := range paths {
		t.Run(filepath.Base(path), func(t *testing.T) {
			s := readScript(t, path)
			_, err := Load(environOf(s.parts["env"]), files(s.parts))
			if err == nil {
				t.Fatalf("%s loads, want complaints", path)
			}
			got := err.Error() + "\n"
			if strings.Contains(got, "hunter") {
				t.Errorf("a complaint repeats a secret: %s", got)
			}
			if *rewrite {
				rewriteComplaints(t, path, got)
			} else if got != s.parts["complaints"] {
				t.Errorf("got:\n%swant:\n%s", got, s.parts["complaints"])
			}
		})
	}
}

func rewriteComplaints(t *testing.T, path, got string) {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	head, _, _ := bytes.Cut(data, []byte("-- complaints --\n"))
	if err := os.WriteFile(path, fmt.Appendf(head, "-- complaints --\n%s", got), 0o644); err != nil {
		t.Fatal(err)
	}
}

func TestOneVariableIsEnough(t *testing.T) {
	c, err := LoadServe(map[string]string{
		"HOME":                  "/home/me",
		"COUNTERFOIL_UPSTREAMS": "tickets=http://127.0.0.1:9090, stripe=https://api.stripe.com/v1@8111",
	}, nil, func(*Upstream) []*Complaint { return nil })
	if err != nil {
		t.Fatal(err)
	}
	tickets, stripe := c.Upstreams.find("tickets"), c.Upstreams.find("stripe")
	if tickets.URL != "http://127.0.0.1:9090" || tickets.Listen != "" {
		t.Errorf("tickets: got %q listening on %q", tickets.URL, tickets.Listen)
	}
	if stripe.URL != "https://api.stripe.com/v1" || stripe.Listen != "127.0.0.1:8111" {
		t.Errorf("stripe: got %q listening on %q", stripe.URL, stripe.Listen)
	}
	if c.Listen != "127.0.0.1:8100" || c.AdminListen != "127.0.0.1:8101" || c.Data != "/home/me/.local/state/counterfoil" {
		t.Errorf("got listeners %s and %s, data in %s", c.Listen, c.AdminListen, c.Data)
	}
	if len(c.Warnings) != 0 {
		t.Errorf("got warnings %q", c.Warnings)
	}
}

func TestComplaintsAreTyped(t *testing.T) {
	_, err := Load(map[string]string{"COUNTERFOIL_MODE": "shadow"}, nil)
	var c *Complaint
	if !errors.As(err, &c) || c.Source != "COUNTERFOIL_MODE" {
		t.Fatalf("got %v, want a complaint at COUNTERFOIL_MODE", err)
	}
}

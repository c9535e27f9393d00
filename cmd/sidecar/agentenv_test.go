package main

import (
	"flag"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"counterfoil/internal/config"
)

var rewrite = flag.Bool("rewrite", false, "print the pages that are printed from code")

// upstreamsOf reads name=url pairs as COUNTERFOIL_UPSTREAMS has them.
func upstreamsOf(t *testing.T, text string) config.Upstreams {
	t.Helper()
	cfg, err := config.Load(map[string]string{"COUNTERFOIL_UPSTREAMS": text, "COUNTERFOIL_DATA": "/d"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	return cfg.Upstreams
}

func TestAgentEnvironment(t *testing.T) {
	const at = "http://127.0.0.1:9/@r;f=3/"
	for name, tc := range map[string]struct {
		environ   map[string]string
		upstreams string
		own, kept []string
		want      map[string]string // of the bases alone
	}{
		"by host": {
			upstreams: "llm=https://api.openai.com,claude=https://api.anthropic.com",
			want:      map[string]string{"OPENAI_BASE_URL": at + "llm/v1", "OPENAI_API_BASE": at + "llm/v1", "ANTHROPIC_BASE_URL": at + "claude"},
		},
		"by host, with the path in the upstream": {
			upstreams: "llm=https://API.openai.com/v1",
			want:      map[string]string{"OPENAI_BASE_URL": at + "llm", "OPENAI_API_BASE": at + "llm"},
		},
		"by name": {
			upstreams: "openai=http://127.0.0.1:5000,other=https://api.openai.com",
			want:      map[string]string{"OPENAI_BASE_URL": at + "openai/v1", "OPENAI_API_BASE": at + "openai/v1"},
		},
		"by host and port": {
			upstreams: "local=http://localhost:11434,tickets=http://localhost:9090",
			want:      map[string]string{"OLLAMA_HOST": at + "local"},
		},
		"what is set already is led through": {
			environ:   map[string]string{"OPENAI_BASE_URL": "https://gateway.example/ai/openai/v1/", "GITHUB_API_URL": "https://api.github.com"},
			upstreams: "gateway=https://gateway.example/ai,whole=https://gateway.example,github=https://api.github.com",
			want:      map[string]string{"OPENAI_BASE_URL": at + "gateway/openai/v1", "GITHUB_API_URL": at + "github"},
		},
		"what is set and nobody's": {
			environ:   map[string]string{"OPENAI_BASE_URL": "https://gateway.example/v1"},
			upstreams: "tickets=http://127.0.0.1:9090",
			want:      map[string]string{},
		},
		"kept": {
			environ:   map[string]string{"OPENAI_BASE_URL": "https://gateway.example/v1"},
			upstreams: "openai=https://api.openai.com",
			kept:      []string{"OPENAI_BASE_URL", "OPENAI_API_BASE"},
			want:      map[string]string{},
		},
		"of one's own": {
			environ:   map[string]string{"TICKETS_URL": "http://elsewhere", "OPENAI_BASE_URL": "https://gateway.example/v1"},
			upstreams: "tickets=http://127.0.0.1:9090,openai=https://api.openai.com",
			own:       []string{"TICKETS_URL=tickets/api/v2", "OPENAI_BASE_URL=openai/v1", "OPENAI_API_BASE=openai/"},
			want:      map[string]string{"TICKETS_URL": at + "tickets/api/v2", "OPENAI_BASE_URL": at + "openai/v1", "OPENAI_API_BASE": at + "openai/"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			env, err := newAgentEnv(agentEnvRequest{environ: tc.environ, upstreams: upstreamsOf(t, tc.upstreams), own: tc.own, kept: tc.kept})
			if err != nil {
				t.Fatal(err)
			}
			got := map[string]string{}
			for _, v := range env.at(life{url: "http://127.0.0.1:9", run: "r", fence: 3}) {
				if name, value, _ := strings.Cut(v, "="); strings.HasPrefix(value, at) {
					got[name] = value
				}
			}
			if !maps.Equal(got, tc.want) {
				t.Errorf("got %v, want %v", got, tc.want)
			}
		})
	}
}

// An agent that would go past the sidecar is not started.
func TestAgentEnvironmentMistakes(t *testing.T) {
	for want, q := range map[string]agentEnvRequest{
		"OPENAI_BASE_URL is set in the environment, to what is no upstream": {environ: map[string]string{"OPENAI_BASE_URL": "https://gateway.example/v1?key=secret"}},
		"GITHUB_API_URL is set":                   {environ: map[string]string{"GITHUB_API_URL": "https://api.github.com.evil.example"}},
		"write NAME=UPSTREAM":                     {own: []string{"TICKETS_URL"}},
		"--env TICKETS URL=github":                {own: []string{"TICKETS URL=github"}},
		`no upstream "tickets"; there are openai`: {own: []string{"TICKETS_URL=tickets"}},
		"COUNTERFOIL_":                            {own: []string{"COUNTERFOIL_URL=openai"}},
		"twice":                                   {own: []string{"A=openai", "A=github"}},
	} {
		q.upstreams = upstreamsOf(t, "openai=https://api.openai.com,github=https://api.github.com")
		_, err := newAgentEnv(q)
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "secret") {
			t.Errorf("got %v, want %q", err, want)
		}
	}
}

// The sidecar's own settings and secrets are not the agent's, everything else is.
func TestWhatAnAgentInherits(t *testing.T) {
	env, err := newAgentEnv(agentEnvRequest{
		environ: map[string]string{
			"PATH": "/bin", "EMPTY": "", "COUNTERFOIL_ADMIN_TOKEN": "secret", "COUNTERFOIL_DATA": "/d", "COUNTERFOIL_RUN": "other",
			"https_proxy": "http://proxy:1", "HTTP_PROXY": "http://proxy:1", "no_proxy": "internal",
		},
		upstreams: upstreamsOf(t, "tickets=http://127.0.0.1:9090"),
	})
	if err != nil {
		t.Fatal(err)
	}
	got := env.at(life{url: "http://127.0.0.1:9", run: "a/b:c;d?e#f%", fence: 12})
	want := []string{
		"COUNTERFOIL_FENCE=12", "COUNTERFOIL_INCARNATION=12", "COUNTERFOIL_RUN=a/b:c;d?e#f%", "COUNTERFOIL_URL=http://127.0.0.1:9", "EMPTY=",
		"HTTP_PROXY=http://proxy:1", "NO_PROXY=internal,127.0.0.1", "PATH=/bin", "https_proxy=http://proxy:1", "no_proxy=internal,127.0.0.1",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
}

func TestTheRunIsEncodedInABaseURL(t *testing.T) {
	env, err := newAgentEnv(agentEnvRequest{upstreams: upstreamsOf(t, "x=http://127.0.0.1:9090"), own: []string{"X=x"}})
	if err != nil {
		t.Fatal(err)
	}
	got := env.at(life{url: "http://127.0.0.1:9", run: "a/b:c;d?e#f%é", fence: 1})
	if want := "X=http://127.0.0.1:9/@a%2Fb%3Ac%3Bd%3Fe%23f%25%C3%A9;f=1/x"; !slices.Contains(got, want) {
		t.Errorf("got %q, want %s", got, want)
	}
}

// The table in docs/exec.md is printed from the one in Go.
func TestTheTableOfVariables(t *testing.T) {
	const path, begin, end = "../../docs/exec.md", "<!-- printed: sdk variables -->\n", "<!-- end -->"
	page, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, found := strings.Cut(string(page), begin)
	_, after, closed := strings.Cut(rest, end)
	if !found || !closed {
		t.Fatalf("%s has no place for the table", path)
	}
	var b strings.Builder
	b.WriteString("| variable | set where an upstream is at, or has the name | path | read by | seen in |\n| --- | --- | --- | --- | --- |\n")
	for _, v := range sdkVariables {
		fmt.Fprintf(&b, "| `%s` | %s; `%s` | %s | %s | %s |\n", v.name, strings.Join(v.hosts, ", "), v.upstream, v.path, v.readBy, v.source)
	}
	printed := before + begin + b.String() + end + after
	if *rewrite {
		if err := os.WriteFile(path, []byte(printed), 0o644); err != nil {
			t.Fatal(err)
		}
	} else if printed != string(page) {
		t.Errorf("%s does not say what the table says: make docs prints it anew", path)
	}
}

package main

import (
	"net/url"
	"slices"
	"strings"

	"counterfoil/internal/config"
)

// An sdkVariable is an environment variable that known clients read their base
// URL from. docs/exec.md prints the table below.
type sdkVariable struct {
	name string
	// upstream is the name that an upstream for these clients has if its host
	// does not tell.
	upstream string
	// hosts are where the clients go without the variable: a host, or host:port
	// where the port belongs to it.
	hosts []string
	// path is what the clients' default base URL has behind its host. They put
	// nothing of it in front of a path themselves.
	path string
	// readBy names clients, and source where each was seen to read it.
	readBy, source string
}

var sdkVariables = []sdkVariable{
	{
		name: "OPENAI_BASE_URL", upstream: "openai", hosts: []string{"api.openai.com"}, path: "/v1",
		readBy: "`openai` for Node and Python, LangChain.js",
		source: "openai 6.49.0 client.js; openai-python src/openai/_client.py; @langchain/openai 1.5.8 chat_models/base.js",
	},
	{
		name: "OPENAI_API_BASE", upstream: "openai", hosts: []string{"api.openai.com"}, path: "/v1",
		readBy: "LangChain.js, which prefers it",
		source: "@langchain/openai 1.5.8 chat_models/base.js",
	},
	{
		name: "ANTHROPIC_BASE_URL", upstream: "anthropic", hosts: []string{"api.anthropic.com"},
		readBy: "`@anthropic-ai/sdk`", source: "@anthropic-ai/sdk 1.14.0 client.js",
	},
	{
		name: "GOOGLE_GEMINI_BASE_URL", upstream: "gemini", hosts: []string{"generativelanguage.googleapis.com"},
		readBy: "Google Gen AI for Node and Python",
		source: "@google/genai 2.32.0 dist/node/index.cjs; python-genai google/genai/_base_url.py",
	},
	{
		name: "GROQ_BASE_URL", upstream: "groq", hosts: []string{"api.groq.com"},
		readBy: "`groq-sdk`", source: "groq-sdk 1.6.0 client.js",
	},
	{
		name: "CO_API_URL", upstream: "cohere", hosts: []string{"api.cohere.com", "api.cohere.ai"},
		readBy: "`cohere` for Python", source: "cohere-python src/cohere/client.py",
	},
	{
		name: "TOGETHER_BASE_URL", upstream: "together", hosts: []string{"api.together.ai", "api.together.xyz"}, path: "/v1",
		readBy: "`together-ai`", source: "together-ai 0.52.0 client.js",
	},
	{
		name: "CEREBRAS_BASE_URL", upstream: "cerebras", hosts: []string{"api.cerebras.ai"},
		readBy: "`@cerebras/cerebras_cloud_sdk`", source: "@cerebras/cerebras_cloud_sdk 1.91.0 index.js",
	},
	{
		name: "OLLAMA_HOST", upstream: "ollama", hosts: []string{"127.0.0.1:11434", "localhost:11434"},
		readBy: "`ollama` for Python", source: "ollama-python tests/test_client.py (test_parse_host)",
	},
	{
		name: "GITHUB_API_URL", upstream: "github", hosts: []string{"api.github.com"},
		readBy: "`@actions/github`", source: "@actions/github 9.1.1 lib/internal/utils.js",
	},
	{
		name: "RESEND_BASE_URL", upstream: "resend", hosts: []string{"api.resend.com"},
		readBy: "`resend` for Node", source: "resend 6.38.0 dist/index.cjs",
	},
	{
		name: "BROWSERBASE_BASE_URL", upstream: "browserbase", hosts: []string{"api.browserbase.com"},
		readBy: "`@browserbasehq/sdk`", source: "@browserbasehq/sdk 2.21.0 index.js",
	},
}

// target is the upstream that the clients of v mean, and the path behind it; nil
// if none is configured. A name counts for more than a host.
func (v *sdkVariable) target(upstreams config.Upstreams) (*config.Upstream, string) {
	u := find(upstreams, func(u *config.Upstream) bool { return u.Name == v.upstream })
	if u == nil {
		u = find(upstreams, v.isAt)
	}
	if u == nil || strings.HasSuffix(strings.TrimSuffix(u.URL, "/"), v.path) {
		return u, ""
	}
	return u, v.path
}

func (v *sdkVariable) isAt(u *config.Upstream) bool {
	at, err := url.Parse(u.URL)
	return err == nil && (slices.Contains(v.hosts, strings.ToLower(at.Host)) || slices.Contains(v.hosts, strings.ToLower(at.Hostname())))
}

func find(upstreams config.Upstreams, isIt func(*config.Upstream) bool) *config.Upstream {
	if i := slices.IndexFunc(upstreams, isIt); i >= 0 {
		return upstreams[i]
	}
	return nil
}

package adapters

import (
	"testing"

	"counterfoil/classify"
	"counterfoil/providers"
	"counterfoil/providers/graphql"
	"counterfoil/providers/llm"
)

// What is asked of the providers of models, as their adapters and the dialect
// together say.
func TestModels(t *testing.T) {
	all, err := Load()
	if err != nil {
		t.Fatal(err)
	}
	const (
		chat     = `{"model":"m","messages":[{"role":"user","content":"hi"}]}`
		messages = `{"model":"m","max_tokens":9,"messages":[{"role":"user","content":"hi"}]}`
	)
	for _, tt := range []struct {
		adapter, base, target, body string
		class                       classify.Class
		operation, kind             string
	}{
		{"openai", "", "/v1/chat/completions", chat, classify.Decision, "", "chat.completions"},
		{"openai", "/v1", "/responses", `{"model":"m","input":"hi"}`, classify.Decision, "", "responses"},
		{"openai", "", "/v1/responses", `{"model":"m","input":"hi","background":true}`, classify.Effect, "", "responses"},
		{"openai", "/openai", "/v1/responses", `{"model":"m","input":"hi"}`, classify.Decision, "", "responses"},
		{"openai", "", "/v1/images/generations", `{"prompt":"a cup"}`, classify.Decision, "images", ""},
		{"openai", "", "/v1/moderations", `{"input":"hi"}`, classify.Decision, "moderations", ""},
		{"openai", "/v1", "/batches", `{}`, classify.Effect, "batches.create", ""},
		{"openai", "", "/openai/fine_tuning/jobs", `{}`, classify.Effect, "fine_tuning.jobs.create", ""},
		{"openai", "", "/v1/files", ``, classify.Effect, "files.create", ""},
		{"openai", "", "/v1/responses/resp_1/cancel", `{}`, 0, "", ""},
		{"openai", "", "/v1/batches/b/cancel", `{}`, 0, "", ""},
		{"anthropic", "", "/v1/messages", messages, classify.Decision, "", "messages"},
		{"anthropic", "", "/v1/messages/count_tokens", chat, classify.Read, "", "messages.count_tokens"},
		{"anthropic", "", "/v1/messages/batches", `{"requests":[]}`, classify.Effect, "messages.batches.create", ""},
		{"gemini", "/v1beta", "/models/g:generateContent", `{"contents":[]}`, classify.Decision, "", "generateContent"},
		{"gemini", "", "/v1beta/models/g:batchGenerateContent", `{"batch":{}}`, classify.Effect, "batches.create", ""},
		{"generic", "", "/api/v1/chat/completions", chat, classify.Decision, "", "chat.completions"},
		{"generic", "", "/v1/messages", `{"to":"+49","body":"hi"}`, 0, "", ""},
	} {
		a := all.Named(tt.adapter).For(providers.Dialects{"graphql": graphql.New, "llm": llm.New}, providers.Settings{BasePath: tt.base})
		r := classify.Request{Method: "POST", Target: tt.target, Body: []byte(tt.body)}
		rd, refusal := a.Read(&r)
		if refusal != nil {
			t.Fatal(refusal.Reason)
		}
		operation, kind := "", ""
		if rd.Operation != nil {
			operation = rd.Operation.Name
		}
		if rd.Content != nil {
			kind = rd.Content.Kind()
		}
		if rd.Class() != tt.class || operation != tt.operation || kind != tt.kind {
			t.Errorf("%s: %s%s: class %s, operation %q, kind %q; want %s, %q, %q", tt.adapter, tt.base, tt.target, rd.Class(), operation, kind, tt.class, tt.operation, tt.kind)
		}
	}
}

// The hosts of models pick their adapters.
func TestModelHosts(t *testing.T) {
	all, err := Load()
	if err != nil {
		t.Fatal(err)
	}
	for host, want := range map[string]string{
		"api.openai.com": "openai", "mine.openai.azure.com": "openai", "api.anthropic.com": "anthropic", "generativelanguage.googleapis.com": "gemini",
	} {
		if a := all.Named(want); a == nil || !a.ServesHost(host) {
			t.Errorf("%s is not for %s", want, host)
		}
	}
	if a := all.Named("generic"); a == nil || len(a.Hosts) > 0 {
		t.Error("generic is for hosts of its own")
	}
}

package llm

import (
	"testing"

	"counterfoil/classify"
	"counterfoil/providers"
)

func read(t testing.TB, base, target, body string) providers.Content {
	t.Helper()
	r := classify.Request{Method: "POST", Target: target, Body: []byte(body)}
	c, refusal := New(providers.Settings{BasePath: base}).Read(&r)
	if refusal != nil {
		t.Fatalf("refused: %s", refusal.Reason)
	}
	return c
}

const (
	turns    = `"messages":[{"role":"user","content":"hi"}]`
	chatBody = `{"model":"m",` + turns + `}`
)

// What a request is, by path and body together.
func TestRead(t *testing.T) {
	for _, tt := range []struct {
		base, target, body, kind string
		class                    classify.Class
	}{
		{"", "/v1/chat/completions", chatBody, "chat.completions", classify.Decision},
		{"/v1", "/chat/completions?x=1", chatBody, "chat.completions", classify.Decision},
		{"/openai/v1/chat", "/completions", chatBody, "chat.completions", classify.Decision},
		{"", "/openai/deployments/d/chat/completions?api-version=1", `{` + turns + `}`, "chat.completions", classify.Decision},
		{"", "/v1/completions", `{"model":"m","prompt":"x"}`, "completions", classify.Decision},
		{"", "/v1/responses", `{"model":"m","input":"hi"}`, "responses", classify.Decision},
		{"", "/v1/responses", `{"model":"m","input":"hi","background":false,"tools":[{"type":"function"},{"type":"web_search_preview_2025_03_11"}]}`, "responses", classify.Decision},
		{"", "/v1/responses", `{"model":"m","input":"hi","background": true}`, "responses", classify.Effect},
		{"", "/v1/responses", `{"model":"m","input":"hi","conversation":"conv_1"}`, "responses", classify.Effect},
		{"", "/v1/responses", `{"prompt":{"id":"p"}}`, "responses", classify.Effect},
		{"", "/v1/responses", `{"model":"m","input":[],"tools":[{"type":"mcp"}]}`, "responses", classify.Effect},
		{"", "/v1/responses", `{"model":"m","input":[],"tools":[{"type":"namespace","tools":[{"type":"mcp"}]}]}`, "responses", classify.Effect},
		{"", "/v1/responses", `{"model":"m","input":[],"tools":[{"type":"shell","environment":{"type":"container_auto"}}]}`, "responses", classify.Effect},
		{"", "/v1/responses", `{"model":"m","input":[],"tools":[{"type":"shell","environment":{"type":"local"}}]}`, "responses", classify.Decision},
		{"", "/v1/responses", `{"model":"m","input":[],"tools":[{"type":"of_tomorrow"}]}`, "responses", classify.Effect},
		{"", "/v1/responses", `{"model":"m","input":[],"tools":{"type":"function"}}`, "responses", classify.Effect},
		{"", "/v1/responses/input_tokens", `{"model":"m","input":"hi"}`, "responses.input_tokens", classify.Read},
		{"", "/v1/embeddings", `{"model":"m","input":["hi"]}`, "embeddings", classify.Decision},
		{"", "/v1/moderations", `{"model":"m","input":"hi"}`, "moderations", classify.Decision},
		{"", "/v1/messages", `{"model":"m","max_tokens":9,` + turns + `}`, "messages", classify.Decision},
		{"", "/v1/messages", `{"model":"m","max_tokens":9,` + turns + `,"mcp_servers":[ ],"tools":[{"name":"f"},{"type":"bash_20250124"}]}`, "messages", classify.Decision},
		{"", "/v1/messages", `{"model":"m","max_tokens":9,` + turns + `,"mcp_servers":[{"url":"x"}]}`, "messages", classify.Effect},
		{"", "/v1/messages", `{"model":"m","max_tokens":9,` + turns + `,"tools":[{"type":"mcp_toolset"}]}`, "messages", classify.Effect},
		{"", "/v1/messages/count_tokens", chatBody, "messages.count_tokens", classify.Read},
		{"", "/v1beta/models/g:generateContent", `{"contents":[]}`, "generateContent", classify.Decision},
		{"", "/v1beta/models/g:streamGenerateContent?alt=sse", `{"contents":[],"tools":[{"function_declarations":[]},{"googleSearch":{}}]}`, "generateContent", classify.Decision},
		{"", "/v1beta/models/g:generateContent", `{"contents":[],"tools":[{"mcpServers":[{}]}]}`, "generateContent", classify.Effect},
		{"", "/v1beta/models/g:countTokens", `{"contents":[]}`, "countTokens", classify.Read},
		{"", "/v1beta/models/g:embedContent", `{"content":{}}`, "embedContent", classify.Decision},

		// Another API's.
		{"", "/v1/messages", `{"to":"+4912345","body":"hi"}`, "", 0},
		{"", "/v1/messages", `{"messages":[{"to":"+49","text":"hi"}],"model":"m","max_tokens":1}`, "", 0},
		{"", "/v1/threads/t/messages", `{"role":"user","content":"hi"}`, "", 0},
		{"", "/forms/7/responses", `{"answers":[]}`, "", 0},
		{"", "/v1/responses/resp_1/cancel", `{}`, "", 0},
		{"", "/v1/messages/batches", `{"requests":[]}`, "", 0},
		{"", "/v1/moderations", `{"input":"approve the post"}`, "", 0},
		{"", "/v1/chat", chatBody, "", 0},
		{"", "/v1/chat/completions", `{"Model":"m","Messages":[{"role":"user"}]}`, "", 0},
		{"", "/v1/chat/completions", `[` + chatBody + `]`, "", 0},
		{"", "/v1/chat/completions", `{"model":"m","messages":[`, "", 0},
		{"", "/v1/chat/completions", ``, "", 0},
	} {
		c := read(t, tt.base, tt.target, tt.body)
		if tt.kind == "" {
			if c != nil {
				t.Errorf("%s %s: taken for %s", tt.target, tt.body, c.Kind())
			}
			continue
		}
		if c == nil || c.Kind() != tt.kind || c.Class() != tt.class || len(c.Names()) > 0 {
			t.Errorf("%s%s %s: got %v, want %s %s", tt.base, tt.target, tt.body, c, tt.kind, tt.class)
		}
	}
}

// A request that is no POST, or whose body cannot be seen, is none.
func TestReadOthers(t *testing.T) {
	d := New(providers.Settings{})
	for _, r := range []classify.Request{
		{Method: "GET", Target: "/v1/chat/completions", Body: []byte(chatBody)},
		{Method: "POST", Target: "/v1/chat/completions", Body: []byte(chatBody), Header: classify.Header{}.Set("Content-Encoding", "gzip")},
	} {
		if c, _ := d.Read(&r); c != nil {
			t.Errorf("%s was taken for %s", r.Method, c.Kind())
		}
	}
}

func BenchmarkRead(b *testing.B) {
	d := New(providers.Settings{})
	body := []byte(`{"model":"gpt-5","stream":true,"tools":[{"type":"function","function":{"name":"refund","parameters":{"type":"object"}}}],` + turns + `}`)
	for _, target := range []string{"/v1/chat/completions", "/v1/tickets"} {
		b.Run(target[4:], func(b *testing.B) {
			r := classify.Request{Method: "POST", Target: target, Body: body}
			for b.Loop() {
				_, _ = d.Read(&r)
			}
		})
	}
}

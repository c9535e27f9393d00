package fake_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"counterfoil/classify"
	"counterfoil/internal/fake"
	"counterfoil/providers"
	"counterfoil/providers/llm"
)

// questions are one for each API, whole and streamed.
var questions = []struct{ target, body string }{
	{"/v1/chat/completions", `{"model":"m","messages":[{"role":"user","content":"hi"}]}`},
	{"/v1/chat/completions", `{"model":"m","messages":[{"role":"user","content":"hi"}],"stream":true}`},
	{"/v1/responses", `{"model":"m","input":"hi"}`},
	{"/v1/responses", `{"model":"m","input":[{"role":"user","content":[{"type":"input_text","text":"hi"}]}],"stream":true}`},
	{"/v1/messages", `{"model":"m","max_tokens":9,"messages":[{"role":"user","content":"hi"}]}`},
	{"/v1/messages", `{"model":"m","max_tokens":9,"messages":[{"role":"user","content":[{"type":"text","text":"hi"}]}],"stream":true}`},
	{"/v1beta/models/m:generateContent", `{"contents":[{"role":"user","parts":[{"text":"hi"}]}]}`},
	{"/v1beta/models/m:streamGenerateContent?alt=sse", `{"contents":[{"role":"user","parts":[{"text":"hi"}]}]}`},
}

// What the stand-in says is read as what it was told to say, and what it spoils
// is never taken for an answer.
func TestModelIsReadAsItSpeaks(t *testing.T) {
	for _, fault := range []fake.Fault{0, fake.Cut, fake.Short, fake.Overloaded, fake.Unavailable} {
		model := &fake.Model{Decide: func(q fake.Question) fake.Said {
			if q.Task != "hi" {
				t.Errorf("%s: the task is %q", q.API, q.Task)
			}
			return fake.Said{Text: "Let me see.", Fault: fault, Uses: []fake.Use{{Tool: "refund", Args: map[string]any{"order": 7}}, {Tool: "mail", Args: map[string]any{}}}}
		}}
		server := httptest.NewServer(model)
		for _, q := range questions {
			checkAnswer(t, server.URL, q.target, q.body, fault)
		}
		server.Close()
	}
}

func checkAnswer(t *testing.T, url, target, body string, fault fake.Fault) {
	t.Helper()
	name := target + " " + body
	answer, err := http.Post(url+target, "application/json", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = answer.Body.Close() }()
	text, err := io.ReadAll(answer.Body)
	isStream := strings.Contains(name, `"stream":true`) || strings.Contains(name, "alt=sse")
	switch {
	case fault == fake.Unavailable:
		if answer.StatusCode != 500 {
			t.Errorf("%s: status %d", name, answer.StatusCode)
		}
		return
	case fault == fake.Cut:
		if err == nil {
			t.Errorf("%s: was not cut", name)
		}
		return
	case err != nil:
		t.Fatalf("%s: %v", name, err)
	}
	j := judgement(t, target, body, answer.Header.Get("Content-Type"), text)
	want := map[fake.Fault]classify.Outcome{fake.Short: classify.Ambiguous, fake.Overloaded: classify.NotApplied}[fault]
	if !isStream {
		want = 0
	}
	if j.Outcome != want {
		t.Errorf("%s, fault %d: judged %s (%s), want %s", name, fault, j.Outcome, j.Reason, want)
	}
	if want != 0 {
		return
	}
	if d := j.Decision; d == nil || len(d.Calls) != 2 || d.Calls[0].Tool != "refund" || string(d.Calls[0].Args) != `{"order":7}` ||
		string(d.Calls[1].Args) != `{}` || d.Calls[0].ID == d.Calls[1].ID || d.Usage.Input != 20 || d.Usage.Output != 9 || d.Usage.CachedInput != 4 {
		t.Errorf("%s: read as %+v", name, j.Decision)
	}
}

func judgement(t *testing.T, target, body, media string, text []byte) providers.Judgement {
	t.Helper()
	content, _ := llm.New(providers.Settings{}).Read(&classify.Request{Method: "POST", Target: target, Body: []byte(body)})
	if content == nil {
		t.Fatalf("%s: not recognised", target)
	}
	w := content.(providers.Watchable).Watch(providers.Head{Status: 200, Header: classify.Header{}.Set("Content-Type", media)})
	w.Write(text)
	return w.End(t.Context())
}

func TestModelRefuses(t *testing.T) {
	server := httptest.NewServer(&fake.Model{Decide: func(fake.Question) fake.Said { return fake.Said{} }})
	defer server.Close()
	for target, want := range map[string]int{"/v1/nothing": 404, "/v1/chat/completions": 400} {
		answer, err := http.Post(server.URL+target, "application/json", strings.NewReader("no JSON"))
		if err != nil {
			t.Fatal(err)
		}
		_ = answer.Body.Close()
		if answer.StatusCode != want {
			t.Errorf("%s: status %d, want %d", target, answer.StatusCode, want)
		}
	}
}

package fake

import (
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
)

// OpenAI keeps jobs, files and the like, and is paid for pictures and sounds.
func OpenAI() Spec {
	kinds := map[string]string{
		"/v1/fine_tuning/jobs": "fine_tuning.job", "/v1/batches": "batch", "/v1/files": "file", "/v1/videos": "video",
		"/v1/conversations": "conversation", "/v1/vector_stores": "vector_store",
		// Not kept, but billed, which is all the effect that they have.
		"/v1/images/generations": "bill", "/v1/audio/speech": "bill", "/v1/audio/transcriptions": "bill", "/v1/audio/translations": "bill", "/v1/moderations": "bill",
	}
	return Spec{
		Adapter: "openai",
		New:     func(l *Ledger) http.Handler { return &keeper{l, kinds} },
		Cases: []Case{
			askCase("images", "/v1/images/generations", `{"model":"gpt-image","prompt":"a cup"}`),
			askCase("audio.speech", "/v1/audio/speech", `{"model":"tts","input":"hi","voice":"alloy"}`),
			askCase("audio.transcriptions", "/v1/audio/transcriptions", `{}`),
			askCase("audio.translations", "/v1/audio/translations", `{}`),
			askCase("moderations", "/v1/moderations", `{"input":"hi"}`),
			jsonCase("fine_tuning.jobs.create", "/v1/fine_tuning/jobs", `{"model":"gpt-test","training_file":"file-1"}`),
			jsonCase("batches.create", "/v1/batches", `{"input_file_id":"file-1","endpoint":"/v1/responses","completion_window":"24h","metadata":{"team":"support"}}`),
			{Operation: "files.create", Method: http.MethodPost, Target: "/v1/files",
				Header: http.Header{"Content-Type": {"multipart/form-data; boundary=b"}},
				Body:   "--b\r\nContent-Disposition: form-data; name=\"purpose\"\r\n\r\nbatch\r\n--b\r\nContent-Disposition: form-data; name=\"file\"; filename=\"a.jsonl\"\r\n\r\n{}\r\n--b--\r\n"},
			jsonCase("videos.create", "/v1/videos", `{"model":"sora","prompt":"a cup"}`),
			jsonCase("conversations.create", "/v1/conversations", `{}`),
			jsonCase("vector_stores.create", "/v1/vector_stores", `{"name":"manuals"}`),
		},
	}
}

// Anthropic keeps batches and files.
func Anthropic() Spec {
	return Spec{
		Adapter: "anthropic",
		New: func(l *Ledger) http.Handler {
			return &keeper{l, map[string]string{"/v1/messages/batches": "message_batch", "/v1/messages/batches/b1/cancel": "message_batch", "/v1/files": "file"}}
		},
		Cases: []Case{
			jsonCase("messages.batches.create", "/v1/messages/batches", `{"requests":[{"custom_id":"a","params":{"model":"m","max_tokens":9,"messages":[{"role":"user","content":"hi"}]}}]}`),
			jsonCase("messages.batches.cancel", "/v1/messages/batches/b1/cancel", `{}`),
			jsonCase("files.create", "/v1/files", `{}`),
		},
	}
}

// Gemini keeps batches and caches.
func Gemini() Spec {
	return Spec{
		Adapter: "gemini",
		New: func(l *Ledger) http.Handler {
			return &keeper{l, map[string]string{"/v1beta/models/m:batchGenerateContent": "batch", "/v1beta/cachedContents": "cachedContent"}}
		},
		Cases: []Case{
			jsonCase("batches.create", "/v1beta/models/m:batchGenerateContent", `{"batch":{"displayName":"nightly"}}`),
			jsonCase("cachedContents.create", "/v1beta/cachedContents", `{"model":"models/m","contents":[]}`),
		},
	}
}

func jsonCase(operation, target, body string) Case {
	return Case{Operation: operation, Method: http.MethodPost, Target: target, Header: http.Header{"Content-Type": {"application/json"}}, Body: body}
}

// askCase is a question: asked again, it is answered anew.
func askCase(operation, target, body string) Case {
	c := jsonCase(operation, target, body)
	c.Recovered = ".object"
	return c
}

// A keeper makes an object of a kind by each POST to a path, and lists them by
// GET, the newest first, page by page.
type keeper struct {
	ledger *Ledger
	// kinds are what is kept, by path.
	kinds map[string]string
}

// ServeHTTP implements http.Handler.
func (k *keeper) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	kind, isKept := k.kinds[r.URL.Path]
	switch {
	case !isKept:
		writeJSON(w, http.StatusNotFound, map[string]any{"error": map[string]any{"message": "there is no such thing here"}})
	case r.Method == http.MethodGet:
		writeJSON(w, http.StatusOK, k.page(kind, r.URL.Query()))
	default:
		writeJSON(w, http.StatusOK, k.make(kind, r))
	}
}

func (k *keeper) make(kind string, r *http.Request) map[string]any {
	made := map[string]any{"object": kind, "created_at": float64(k.ledger.Now().Unix()), "status": "queued"}
	if body, isJSON := readJSON(r); isJSON {
		made["metadata"] = body["metadata"]
	}
	return k.ledger.Add(kind, made)
}

// page filters by metadata, and goes on after an object.
func (k *keeper) page(kind string, query url.Values) map[string]any {
	all := k.ledger.Visible(kind)
	slices.Reverse(all)
	all = slices.DeleteFunc(all, func(o map[string]any) bool { return !hasMetadata(o, query) })
	if after := query.Get("after"); after != "" {
		at := slices.IndexFunc(all, func(o map[string]any) bool { return o["id"] == after })
		all = all[at+1:]
	}
	limit, err := strconv.Atoi(query.Get("limit"))
	if err != nil || limit < 1 || limit > 100 {
		limit = 20
	}
	hasMore := len(all) > limit
	return map[string]any{"object": "list", "data": all[:min(limit, len(all))], "has_more": hasMore}
}

func hasMetadata(o map[string]any, query url.Values) bool {
	metadata, _ := o["metadata"].(map[string]any)
	for name, values := range query {
		key, isFilter := strings.CutPrefix(name, "metadata[")
		if isFilter && metadata[strings.TrimSuffix(key, "]")] != values[0] {
			return false
		}
	}
	return true
}

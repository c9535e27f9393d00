package fake

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"reflect"
	"strings"
	"time"
)

// rest stands in for APIs of objects under paths, where no more of them matters:
// a POST makes an object under its path, PUT and PATCH set fields, DELETE removes,
// GET lists or shows.
type rest struct {
	ledger *Ledger
	// sets reports whether a request sets a state, so that a second copy changes
	// nothing. Nil says PUT, PATCH and DELETE alone do.
	sets func(r *http.Request, in map[string]any) bool
	// made shapes what a POST makes; nil leaves it as it was sent.
	made func(r *http.Request, in map[string]any, id int) map[string]any
	// answer gives status and body for what was made; nil gives 201 and the
	// object.
	answer func(r *http.Request, object map[string]any) (int, any)
	// routes answer by themselves; they come first.
	routes *http.ServeMux
}

func (p *rest) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if p.routes != nil {
		if _, pattern := p.routes.Handler(r); pattern != "" {
			p.routes.ServeHTTP(w, r)
			return
		}
	}
	in := readAny(r)
	switch {
	case r.Method == http.MethodGet:
		writeJSON(w, 200, map[string]any{"items": p.ledger.Visible(r.URL.Path)})
	case r.Method == http.MethodDelete || p.sets != nil && p.sets(r, in) || p.sets == nil && r.Method != http.MethodPost:
		p.set(w, r, in)
	default:
		p.make(w, r, in)
	}
}

func (p *rest) make(w http.ResponseWriter, r *http.Request, in map[string]any) {
	id := p.ledger.Next()
	object := maps.Clone(in)
	if p.made != nil {
		object = p.made(r, in, id)
	}
	if object["id"] == nil {
		object["id"] = fmt.Sprint(id)
	}
	object = p.ledger.Add(r.URL.Path, object)
	if p.answer != nil {
		status, body := p.answer(r, object)
		writeOrNot(w, status, body)
		return
	}
	writeJSON(w, 201, object)
}

// set is one effect where what is there differs from what was sent.
func (p *rest) set(w http.ResponseWriter, r *http.Request, in map[string]any) {
	const kind = "states"
	state := map[string]any{"id": r.URL.Path, "method": r.Method, "fields": in}
	now := p.ledger.Get(kind, r.URL.Path)
	switch {
	case now == nil:
		p.ledger.Add(kind, state)
	case !reflect.DeepEqual(now, state):
		p.ledger.Change(kind, r.URL.Path, func(object map[string]any) { object["fields"], object["method"] = in, r.Method })
	}
	if r.Method == http.MethodDelete {
		w.WriteHeader(http.StatusNoContent)
		return
	}
	writeJSON(w, 200, map[string]any{"id": r.URL.Path, "fields": in})
}

func writeOrNot(w http.ResponseWriter, status int, body any) {
	if body == nil {
		w.WriteHeader(status)
		return
	}
	writeJSON(w, status, body)
}

// readAny returns the fields of a JSON, form or form-data body.
func readAny(r *http.Request) map[string]any {
	in := map[string]any{}
	switch media := r.Header.Get("Content-Type"); {
	case strings.HasPrefix(media, "application/x-www-form-urlencoded"):
		form, _ := readForm(r)
		for name := range form {
			in[name] = form.Get(name)
		}
	case strings.HasPrefix(media, "multipart/form-data"):
		if r.ParseMultipartForm(bodyBytesMax) == nil {
			for name, values := range r.MultipartForm.Value {
				in[name] = values[0]
			}
		}
	default:
		text, _ := io.ReadAll(r.Body) // what is cut is no JSON
		_ = json.Unmarshal(text, &in)
	}
	return in
}

// A memory is what a provider keeps of the keys that it was sent.
type memory struct {
	ledger *Ledger
	// key is what a request bears as one; "" is none.
	key func(r *http.Request, in map[string]any) string
	// keeps is for how long it knows a key of that path; nil is for ever.
	keeps func(path string) time.Duration
	// again is the status of what a copy is answered; 0 the first one's.
	again int
	// conflict answers a key that was used for another request; nil gives the
	// first one's answer.
	conflict func(w http.ResponseWriter)

	first map[string]remembered
}

// A remembered request was answered at a time.
type remembered struct {
	in     map[string]any
	answer *answer
	at     time.Time
}

// keyed answers a key's second request at one path with the first one's answer.
// A request without one is answered anew, and so is one whose key is forgotten.
func keyed(m memory, next func(w http.ResponseWriter, r *http.Request, in map[string]any)) http.HandlerFunc {
	m.first = map[string]remembered{}
	return func(w http.ResponseWriter, r *http.Request) {
		in := readAny(r)
		k := m.key(r, in)
		if k == "" {
			next(w, r, in)
			return
		}
		k = r.Method + " " + r.URL.Path + " " + k
		if known, ok := m.recall(k, r.URL.Path); ok {
			m.repeat(w, known, in)
			return
		}
		a := &answer{header: http.Header{}}
		next(a, r, maps.Clone(in))
		m.first[k] = remembered{in, a, m.ledger.Now()}
		a.send(w)
	}
}

func (m *memory) recall(k, path string) (remembered, bool) {
	known, ok := m.first[k]
	return known, ok && (m.keeps == nil || m.ledger.Now().Sub(known.at) < m.keeps(path))
}

func (m *memory) repeat(w http.ResponseWriter, known remembered, in map[string]any) {
	a := *known.answer
	switch {
	case m.conflict != nil && !reflect.DeepEqual(known.in, in):
		m.conflict(w)
		return
	case m.again != 0:
		a.status = m.again
	}
	a.send(w)
}

// hours is one time for all paths.
func hours(n int) func(string) time.Duration {
	return func(string) time.Duration { return time.Duration(n) * time.Hour }
}

// header is the key that stands in a header field.
func header(name string) func(*http.Request, map[string]any) string {
	return func(r *http.Request, _ map[string]any) string { return r.Header.Get(name) }
}

// field is the key that stands in the body.
func field(name string) func(*http.Request, map[string]any) string {
	return func(_ *http.Request, in map[string]any) string { return fmt.Sprint(orNone(in[name])) }
}

func orNone(v any) any {
	if v == nil {
		return ""
	}
	return v
}

// asJSON is the head of most requests.
func asJSON() http.Header {
	return http.Header{"Authorization": {"Bearer token"}, "Content-Type": {"application/json"}}
}

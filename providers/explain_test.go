package providers

import (
	"strings"
	"testing"
	"time"

	"counterfoil/classify"
)

// An explanation says where things go and what follows a crash, in words.
func TestExplain(t *testing.T) {
	a := mustParse(t, `
- {name: list, class: read, when: {method: [GET]}}
- name: charge
  when: {path: /charges}
  class: keyed
  key: {place: header, name: Request-Id, format: uuid}
  client_id: {place: json, name: /id}
  marker: {place: json, name: /metadata/cf, create: true}
  guarantee: {retention: 24h, error_replay: all}
  lookup: {request: "GET /charges", match: '[.[] | select(.cf == $marker)]', paging: {link: true, max_pages: 2}, consistency: {kind: lag, lag: 60s, misses_needed: 2, spacing: 30s}, permission: charges:read}
  quiesce: 2m
  recover: [replay_key, lookup, resend_if_absent]
  notes: nothing else is safe
- {name: signed, when: {path: /signed}, class: effect, signed: true}
- {name: label, when: {path: /label}, class: idempotent}
- {name: bare, class: effect}
`)
	for _, tt := range []struct {
		name string
		r    *classify.Request
		want []string // parts of what is said
	}{
		{"read", &classify.Request{Method: "GET", Target: "/x"}, []string{"list", "passed through"}},
		{"keyed", postJSON("/charges", `{}`), []string{
			"header Request-Id, uuid", "json /id", "json /metadata/cf", "under the same key, for 24h", "an error that is replayed ends that",
			"GET /charges, 2 pages at most (needs charges:read)", "believed absent 3m after the attempt and 2 lookups 30s apart", "a second copy is refused", "a person decides", "nothing else is safe",
		}},
		{"with an id of its own", postJSON("/charges", `{"id":"mine"}`), []string{"json /id (kept as the request has it)"}},
		{"signed", postJSON("/signed", `{}`), []string{"signed, so nothing can be put in and nothing sent again"}},
		{"idempotent", postJSON("/label", `{}`), []string{"repeating is harmless"}},
		{"nothing", postJSON("/x", `{}`), []string{"header Idempotency-Key", "declares no lookup"}},
		{"read in two ways", postJSON("/charges/%2e%2e", `{}`), []string{"more than one way"}},
	} {
		rd, _ := a.Read(tt.r)
		e := rd.Explain(tt.r, rd.Class(), 30*time.Second)
		said := strings.Join(append([]string{e.Operation, e.Defined, e.Key, e.ClientID, e.Marker, e.Notes}, e.Recovery...), "\n")
		for _, want := range tt.want {
			if !strings.Contains(said, want) {
				t.Errorf("%s: no %q in\n%s", tt.name, want, said)
			}
		}
		if len(e.Recovery) == 0 || e.Class == 0 || !strings.HasPrefix(e.Defined, "test.yaml:") {
			t.Errorf("%s: got %+v", tt.name, e)
		}
	}
}

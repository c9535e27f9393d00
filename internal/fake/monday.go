package fake

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"time"
)

// mondayRemembers is how long a key is remembered, if there is room.
const mondayRemembers = 30 * time.Minute

// monday is https://developer.monday.com/api-reference: answers to mutations are
// cached by their Idempotency-Key.
type monday struct {
	ledger *Ledger
	server *gqlServer
	cached map[string]mondayAnswer
}

type mondayAnswer struct {
	text []byte
	at   time.Time
}

func newMonday(l *Ledger) http.Handler {
	m := &monday{ledger: l, cached: map[string]mondayAnswer{}}
	m.server = &gqlServer{nullable: true, fields: map[string]func(gqlField) (any, *gqlError){
		"create_item": func(f gqlField) (any, *gqlError) {
			return l.Add("item", map[string]any{"id": fmt.Sprint(1000 + l.Next()), "name": f.args["item_name"]}), nil
		},
		"me": func(gqlField) (any, *gqlError) { return map[string]any{"id": "1"}, nil },
	}}
	m.server.refuse = func(r *http.Request, _ string, _ []gqlField) *gqlError {
		if r.URL.Path != "/v2" || r.Header.Get("Authorization") == "" {
			return gqlRefusal("Not Authenticated", "USER_UNAUTHORIZED")
		}
		return nil
	}
	return m
}

// ServeHTTP answers a mutation whose key it remembers as the first time.
func (m *monday) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	key := r.Header.Get("Idempotency-Key")
	if known, there := m.cached[key]; there && m.ledger.Now().Sub(known.at) < mondayRemembers {
		w.Header().Set("Idempotency-Replayed", "true")
		writeJSON(w, 200, json.RawMessage(known.text))
		return
	}
	a := &answer{header: http.Header{}}
	r.Body = io.NopCloser(bytes.NewReader(body))
	m.server.ServeHTTP(a, r)
	text := bytes.Join(a.pieces, nil)
	if key != "" && !gqlReads(r, body) {
		m.cached[key] = mondayAnswer{text, m.ledger.Now()}
	}
	writeJSON(w, a.status, json.RawMessage(text))
}

// Monday is monday.com's API.
func Monday() Spec {
	header := http.Header{"Authorization": {"token"}, "Content-Type": {"application/json"}, "Api-Version": {"2026-07"}}
	return Spec{Adapter: "monday", New: newMonday, Reads: gqlReads, Cases: []Case{{
		Operation: "mutation", Method: "POST", Target: "/v2", Header: header, Deduplicates: true,
		Body: gqlBody(`mutation { create_item(board_id: 1, item_name: "a") { id name } }`, nil),
	}}}
}

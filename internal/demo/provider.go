package demo

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"sync"
)

// bodyMax bounds what the provider reads of a request.
const bodyMax = 64 << 10

// An Effect is one line of the provider's ledger.
type Effect struct {
	ID   string          `json:"id"`
	Kind string          `json:"kind"`
	Key  string          `json:"key"`
	Data json.RawMessage `json:"data"`
}

// A Provider makes tickets and sends mail, or rather keeps a ledger as if it
// did. It does not deduplicate: two requests are two effects, whatever their
// key. It can be asked for an effect by key, and it can hold an answer back
// after the effect, which is where crashes hurt.
type Provider struct {
	mu     sync.Mutex
	ledger []Effect

	// holding is closed when an effect has been made whose answer is held back;
	// release lets the answer go.
	hold    bool
	holding chan struct{}
	release chan struct{}
}

// NewProvider returns a provider that holds back the answer to its first
// effect.
func NewProvider() *Provider {
	return &Provider{hold: true, holding: make(chan struct{}), release: make(chan struct{})}
}

// Handler serves the provider's API, and what the story needs to look behind
// the scenes under /backstage.
func (p *Provider) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /tickets", p.effect("ticket"))
	mux.HandleFunc("POST /mails", p.effect("mail"))
	mux.HandleFunc("GET /effects/{key}", p.find)
	mux.HandleFunc("GET /backstage/ledger", func(w http.ResponseWriter, _ *http.Request) { answer(w, http.StatusOK, p.Ledger()) })
	mux.HandleFunc("GET /backstage/holding", func(_ http.ResponseWriter, r *http.Request) {
		select {
		case <-p.holding:
		case <-r.Context().Done():
		}
	})
	mux.HandleFunc("POST /backstage/release", func(http.ResponseWriter, *http.Request) { close(p.release) })
	return mux
}

// Ledger returns every effect there has been.
func (p *Provider) Ledger() []Effect {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]Effect{}, p.ledger...)
}

func (p *Provider) effect(kind string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		data, err := io.ReadAll(http.MaxBytesReader(w, r.Body, bodyMax))
		if err != nil || !json.Valid(data) {
			answer(w, http.StatusBadRequest, map[string]string{"error": "the body must be JSON of at most 64 KiB"})
			return
		}
		e, held := p.commit(kind, r.Header.Get("Idempotency-Key"), data)
		if held {
			close(p.holding)
			<-p.release
		}
		answer(w, http.StatusCreated, e)
	}
}

// commit makes the effect, and says whether its answer is to be held back.
func (p *Provider) commit(kind, key string, data []byte) (e Effect, held bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	e = Effect{ID: fmt.Sprintf("%s-%d", kind, len(p.ledger)+1), Kind: kind, Key: key, Data: data}
	p.ledger = append(p.ledger, e)
	held, p.hold = p.hold, false
	return e, held
}

func (p *Provider) find(w http.ResponseWriter, r *http.Request) {
	for _, e := range p.Ledger() {
		if e.Key == r.PathValue("key") {
			answer(w, http.StatusOK, e)
			return
		}
	}
	answer(w, http.StatusNotFound, map[string]string{"error": "no effect under that key"})
}

func answer(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v) //nolint:errchkjson // the client may have gone, which is its affair
}

package upstream

import (
	"io"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"

	"counterfoil/classify"
)

// lookups starts a provider that answers lookups with the given statuses in
// turn, the last one for ever, and returns its finder.
func lookups(t *testing.T, statuses ...int) (*Finder, *atomic.Int64) {
	t.Helper()
	var asked atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n := int(asked.Add(1))
		if r.Header.Get("X-Who") != "me" || r.RequestURI != "/base/effects/a%2Fb?x=1" {
			t.Errorf("asked for %q with %v", r.RequestURI, r.Header)
		}
		w.Header().Set("Location", "/elsewhere")
		w.WriteHeader(statuses[min(n, len(statuses))-1])
		_, _ = io.WriteString(w, "{}")
	}))
	f, err := NewFinder(Config{URL: server.URL + "/base"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close(); server.Close() })
	return f, &asked
}

func lookup() *classify.Request {
	return &classify.Request{Method: "GET", Target: "/effects/a%2Fb?x=1", Header: classify.Header{{Name: "X-Who", Value: "me"}}}
}

func TestFinderRepeatsWhatFailsInPassing(t *testing.T) {
	f, asked := lookups(t, 503, 200)
	resp := f.Send(t.Context(), lookup())
	if resp.Evidence != classify.Answered || resp.Status != 200 || asked.Load() != 2 {
		t.Fatalf("%s %d after %d lookups", resp.Evidence, resp.Status, asked.Load())
	}
	body, err := io.ReadAll(resp.Body)
	if err != nil || string(body) != "{}" {
		t.Errorf("body %q, %v", body, err)
	}
	if err := resp.Body.Close(); err != nil {
		t.Error(err)
	}
}

func TestFinderHandsOutTheLastAnswer(t *testing.T) {
	f, asked := lookups(t, 500)
	resp := f.Send(t.Context(), lookup())
	if resp.Evidence != classify.Answered || resp.Status != 500 || asked.Load() != findTries {
		t.Fatalf("%s %d after %d lookups", resp.Evidence, resp.Status, asked.Load())
	}
	if err := resp.Body.Close(); err != nil {
		t.Error(err)
	}
}

func TestFinderFollowsNoRedirect(t *testing.T) {
	f, asked := lookups(t, 302)
	resp := f.Send(t.Context(), lookup())
	if resp.Status != 302 || asked.Load() != 1 {
		t.Fatalf("status %d after %d lookups", resp.Status, asked.Load())
	}
	if err := resp.Body.Close(); err != nil {
		t.Error(err)
	}
}

func TestFinderOfNobody(t *testing.T) {
	f, err := NewFinder(Config{URL: "http://127.0.0.1:1"})
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if resp := f.Send(t.Context(), lookup()); resp.Evidence != classify.Lost || resp.Body != nil {
		t.Errorf("%+v", resp)
	}
}

// A search by POST is sent with its body, each time anew.
func TestFinderSendsBodies(t *testing.T) {
	var asked atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if body, err := io.ReadAll(r.Body); err != nil || r.Method != "POST" || string(body) != `{"q":1}` {
			t.Errorf("asked by %s with %q, %v", r.Method, body, err)
		}
		if asked.Add(1) == 1 {
			w.WriteHeader(503)
		}
	}))
	defer server.Close()
	f, err := NewFinder(Config{URL: server.URL})
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	resp := f.Send(t.Context(), &classify.Request{Method: "POST", Target: "/search", Body: []byte(`{"q":1}`)})
	if resp.Status != 200 || asked.Load() != 2 {
		t.Errorf("%d after %d lookups", resp.Status, asked.Load())
	}
	if err := resp.Body.Close(); err != nil {
		t.Error(err)
	}
}

package fake

import (
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"
)

// TestCases sends every case of every provider twice: the first has one
// effect, the second only where the provider does not deduplicate.
func TestCases(t *testing.T) {
	for _, spec := range Specs() {
		t.Run(spec.Adapter, func(t *testing.T) {
			s, err := Serve(spec, nil)
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			transport := &http.Transport{}
			defer transport.CloseIdleConnections()
			client := &http.Client{Transport: transport, Timeout: 30 * time.Second}
			for i, c := range spec.Cases {
				if c.Setup != nil {
					c.Setup(s.Ledger)
				}
				key := strings.Repeat("k", i+1)
				if status, effects := once(t, client, s, c, key); status/100 != 2 || effects != 1 {
					t.Errorf("%s: answered %d with %d effects", c.Operation, status, effects)
				}
				status, effects := once(t, client, s, c, key)
				if isNone := effects == 0; isNone != c.Deduplicates {
					t.Errorf("%s: a second copy was answered %d with %d effects, and Deduplicates is %t", c.Operation, status, effects, c.Deduplicates)
				}
			}
		})
	}
}

func once(t *testing.T, client *http.Client, s *Server, c Case, key string) (status, effects int) {
	t.Helper()
	req, err := http.NewRequest(c.Method, s.URL+c.Target, strings.NewReader(c.Body))
	if err != nil {
		t.Fatal(err)
	}
	if c.Header != nil {
		req.Header = c.Header.Clone()
	}
	req.Header.Set("Idempotency-Key", key)
	resp, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	_, _ = io.Copy(io.Discard, resp.Body)
	seen, _ := s.Requests()
	return resp.StatusCode, seen[len(seen)-1].Effects
}

func TestSpecsAreSorted(t *testing.T) {
	if !slices.IsSortedFunc(Specs(), func(a, b Spec) int { return strings.Compare(a.Adapter, b.Adapter) }) {
		t.Error("specs.go is not in the order of the adapters' names")
	}
}

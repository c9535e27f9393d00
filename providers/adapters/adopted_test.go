package adapters

import (
	"net/http"
	"testing"
	"time"

	"counterfoil/internal/fake"
	"counterfoil/providers"
)

// TestAdoptedIds has an object on record that somebody else made under the id
// that the caller chose: it is no trace of the call.
func TestAdoptedIds(t *testing.T) {
	header := http.Header{"Content-Type": {"application/json"}}
	for _, c := range []struct {
		spec         fake.Spec
		target, body string
		kind         string
		other        map[string]any
	}{
		{fake.GoogleCalendar(), "/calendar/v3/calendars/primary/events", `{"id":"chosen1","summary":"Review"}`, "events", map[string]any{"id": "chosen1", "summary": "Lunch"}},
		{fake.GoogleDrive(), "/drive/v3/files", `{"id":"chosen1","name":"a.txt"}`, "files", map[string]any{"id": "chosen1", "name": "b.txt"}},
		{fake.Asana(), "/api/1.0/tasks", `{"data":{"name":"x","external":{"gid":"chosen1"}}}`, "tasks", map[string]any{"gid": "9", "name": "y", "created_at": "2020-01-01T00:00:00.000Z", "external": map[string]any{"gid": "chosen1"}}},
		{fake.Kubernetes(), "/api/v1/namespaces/default/configmaps", `{"metadata":{"name":"chosen1"}}`, "/api/v1/namespaces/default/configmaps", map[string]any{"id": "chosen1", "metadata": map[string]any{"name": "chosen1"}}},
	} {
		t.Run(c.spec.Adapter, func(t *testing.T) {
			all, err := Load()
			if err != nil {
				t.Fatal(err)
			}
			for _, isTaken := range []bool{true, false} {
				if f := findAdopted(t, bound(t, all, c.spec.Adapter), c.spec, fake.Case{Method: "POST", Target: c.target, Header: header, Body: c.body, Setup: func(l *fake.Ledger) {
					if isTaken {
						l.Put(c.kind, c.other)
					}
				}}); (f.Discovery == providers.Found) == isTaken {
					t.Errorf("with the id taken (%t) the lookup says %+v", isTaken, f)
				}
			}
		})
	}
}

func findAdopted(t *testing.T, a *providers.Adapter, spec fake.Spec, c fake.Case) providers.Finding {
	t.Helper()
	s, err := fake.Serve(spec, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	c.Setup(s.Ledger)
	r := requestOf(c)
	rd, refusal := a.Read(r)
	if refusal != nil {
		t.Fatalf("refused: %+v", refusal)
	}
	stamped, stamps, err := rd.Stamp(r, providers.Stamps{Key: marker, Marker: marker})
	if err != nil {
		t.Fatal(err)
	}
	if rd, refusal = a.Read(&stamped); refusal != nil {
		t.Fatalf("stamped, it is refused: %+v", refusal)
	}
	send(t, s, &stamped)
	return search(t, s, rd, providers.Query{Key: stamps.Key, Marker: marker, Run: "r", Turn: "1", Call: "c", SentAt: time.Now(), Original: &stamped})
}

package admin

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"counterfoil/classify"
	"counterfoil/internal/journal"
	"counterfoil/keystore"
	"counterfoil/keystore/storetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A bench is a real listener on loopback over a store whose time stands still.
type bench struct {
	t      *testing.T
	disk   *storetest.Disk
	clock  *storetest.Clock
	store  keystore.Store
	server *Server
	log    *lockedBuffer
	base   string
	client *http.Client
}

type lockedBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

func newBench(t *testing.T, change func(*Config)) *bench {
	t.Helper()
	b := &bench{t: t, disk: storetest.NewDisk(), clock: storetest.NewClock(), log: &lockedBuffer{}}
	store, err := storetest.OpenMemory(b.disk, b.clock.Now)
	if err != nil {
		t.Fatal(err)
	}
	b.open(store, change)
	return b
}

// open puts the listener up over a store, which it closes at the end.
func (b *bench) open(store keystore.Store, change func(*Config)) {
	t := b.t
	t.Helper()
	b.store = store
	cfg := Config{
		Listen: "127.0.0.1:0", Store: b.store, Calls: b.calls(), Metrics: NewMetrics("v0.0.0-test", b.clock.Now),
		Logger: slog.New(slog.NewJSONHandler(b.log, nil)),
	}
	if change != nil {
		change(&cfg)
	}
	var err error
	if b.server, err = New(cfg); err != nil {
		t.Fatal(err)
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- b.server.Serve(ln) }()
	transport := &http.Transport{}
	b.base, b.client = "http://"+ln.Addr().String(), &http.Client{Transport: transport, Timeout: 10 * time.Second}
	t.Cleanup(func() {
		transport.CloseIdleConnections()
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		if err := b.server.Shutdown(ctx); err != nil {
			t.Error(err)
		}
		if err := <-served; err != nil {
			t.Error(err)
		}
		if err := store.Close(); err != nil {
			t.Error(err)
		}
	})
}

// calls is a journal without upstreams over the store.
func (b *bench) calls() *journal.Journal {
	b.t.Helper()
	j, err := journal.New(journal.Config{Store: b.store, Now: b.clock.Now})
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(j.Close)
	return j
}

func key(call string) keystore.Key {
	return keystore.Key{Namespace: "default", Run: "ticket-77", Turn: "3", Call: call}
}

func (b *bench) beginning(k keystore.Key) keystore.Beginning {
	return keystore.Beginning{
		Key: k, Class: classify.Effect, Fingerprint: classify.Fingerprint{1}, Epoch: b.store.Facts().Epoch,
		Intent: keystore.Intent{
			Upstream: "tickets", Origin: "http://127.0.0.1:9090", Method: "POST", Target: "/effects?token=~abc",
			SentKey: string(k.ProviderKey()),
		},
	}
}

// begin records an attempt that is under way.
func (b *bench) begin(k keystore.Key) {
	b.t.Helper()
	a, err := b.store.Begin(b.t.Context(), &keystore.Request{Beginning: b.beginning(k)}, []byte("the body"))
	if err != nil || a.Verdict.Action != keystore.Send {
		b.t.Fatalf("begin %s: %+v, %v", k, a.Verdict, err)
	}
}

func (b *bench) apply(k keystore.Key, e keystore.Event, body string) *keystore.Record {
	b.t.Helper()
	r, err := b.store.Apply(b.t.Context(), k, e, []byte(body))
	if err != nil {
		b.t.Fatalf("%s of %s: %v", e.Kind, k, err)
	}
	return r
}

// lose makes a call unknown: an attempt was lost, and nothing is left to try.
func (b *bench) lose(k keystore.Key) {
	b.t.Helper()
	b.begin(k)
	b.apply(k, keystore.Event{
		Kind: keystore.SawAmbiguous, Attempt: 1, Evidence: classify.Lost, Outcome: classify.Ambiguous, Reason: "the connection was reset",
	}, "")
	b.apply(k, keystore.Event{Kind: keystore.GaveUp, Reason: "this upstream has no lookup"}, "")
}

// succeed carries a call to its receipt.
func (b *bench) succeed(k keystore.Key) {
	b.t.Helper()
	b.begin(k)
	b.apply(k, keystore.Event{
		Kind: keystore.SawApplied, Attempt: 1, Status: 201, Evidence: classify.Answered, Outcome: classify.Applied,
		Receipt: &keystore.Receipt{Status: 201, Header: classify.Header{
			{Name: "Content-Type", Value: "application/json"}, {Name: "Set-Cookie", Value: "session=hunter2"},
		}},
	}, `{"id":"t1"}`)
}

// An answer is what came back.
type answer struct {
	status int
	header http.Header
	body   string
}

func (b *bench) do(method, path, body string, header ...string) answer {
	b.t.Helper()
	r, err := http.NewRequestWithContext(b.t.Context(), method, b.base+path, strings.NewReader(body))
	if err != nil {
		b.t.Fatal(err)
	}
	if method == http.MethodPost {
		r.Header.Set("Content-Type", "application/json")
	}
	for i := 0; i+1 < len(header); i += 2 {
		if header[i] == "Host" {
			r.Host = header[i+1]
			continue
		}
		r.Header.Set(header[i], header[i+1])
	}
	resp, err := b.client.Do(r)
	if err != nil {
		b.t.Fatal(err)
	}
	defer resp.Body.Close()
	got, err := io.ReadAll(resp.Body)
	if err != nil {
		b.t.Fatal(err)
	}
	return answer{resp.StatusCode, resp.Header, string(got)}
}

func (b *bench) get(path string, header ...string) answer {
	b.t.Helper()
	return b.do(http.MethodGet, path, "", header...)
}

// resolve sends a decision about a call of the bench's run.
func (b *bench) resolve(call, decision, more string) answer {
	b.t.Helper()
	return b.do(http.MethodPost, "/api/v1/calls/resolve",
		fmt.Sprintf(`{"run":"ticket-77","turn":"3","call":%q,"decision":%q,"actor":"ada"%s}`, call, decision, more))
}

func decode[T any](t *testing.T, a answer) T {
	t.Helper()
	var v T
	if err := json.Unmarshal([]byte(a.body), &v); err != nil {
		t.Fatalf("%d %s: %v", a.status, a.body, err)
	}
	return v
}

// wantProblem checks that an answer is that problem, in every respect that its
// table fixes.
func wantProblem(t *testing.T, a answer, p Problem, detail string) Document {
	t.Helper()
	d := decode[Document](t, a)
	form := problems[p]
	if a.status != form.status || d.Status != form.status || d.Title != form.title || d.Type != "urn:counterfoil:problem:"+string(p) {
		t.Errorf("got %d %s, want %s", a.status, a.body, p)
	}
	if got := a.header.Get("Content-Type"); got != "application/problem+json" {
		t.Errorf("Content-Type %q", got)
	}
	if !strings.Contains(d.Detail, detail) {
		t.Errorf("detail %q does not say %q", d.Detail, detail)
	}
	return d
}

package fake

import (
	"errors"
	"io"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// things is a provider that makes things and answers in two pieces.
func things() Spec {
	return Spec{Adapter: "things", New: func(l *Ledger) http.Handler {
		mux := http.NewServeMux()
		mux.HandleFunc("POST /things", func(w http.ResponseWriter, _ *http.Request) {
			l.Add("thing", map[string]any{})
			w.WriteHeader(http.StatusCreated)
			_, _ = io.WriteString(w, "one ")
			_ = http.NewResponseController(w).Flush()
			_, _ = io.WriteString(w, "two")
		})
		mux.HandleFunc("/find", func(w http.ResponseWriter, _ *http.Request) { writeJSON(w, 200, l.Visible("thing")) })
		return mux
	}, Reads: func(r *http.Request, _ []byte) bool { return r.URL.Path == "/find" }}
}

func start(t *testing.T, script Script) *Server {
	t.Helper()
	s, err := Serve(things(), script)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

func post(t *testing.T, url string) (status int, body string, err error) {
	t.Helper()
	transport := &http.Transport{DisableKeepAlives: true}
	defer transport.CloseIdleConnections()
	resp, err := (&http.Client{Transport: transport, Timeout: 30 * time.Second}).Post(url, "text/plain", strings.NewReader("x"))
	if err != nil {
		return 0, "", err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	return resp.StatusCode, string(text), err
}

func TestScripts(t *testing.T) {
	for _, tt := range []struct {
		name    string
		move    Move
		status  int
		body    string
		isReset bool
		effects int
	}{
		{"answer", Answer, 201, "one two", false, 1},
		{"drop before", DropBefore, 0, "", true, 0},
		{"commit then drop", CommitThenDrop, 0, "", true, 1},
		{"commit then cut", CommitThenCut, 201, "one ", true, 1},
		{"commit then 503", CommitThen(503), 503, `{"error":"status 503 by the script"}`, false, 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := start(t, First(tt.move))
			status, body, err := post(t, s.URL+"/things")
			if isReset := errors.Is(err, syscall.ECONNRESET); isReset != tt.isReset || status != tt.status {
				t.Errorf("the first request was answered %d, %v", status, err)
			}
			if body != tt.body && !(tt.isReset && strings.HasPrefix(tt.body, body)) {
				t.Errorf("the first answer is %q, not %q", body, tt.body)
			}
			if n := s.Ledger.Effects(); n != tt.effects {
				t.Errorf("%d effects, not %d", n, tt.effects)
			}
			if status, body, err := post(t, s.URL+"/things"); status != 201 || body != "one two" || err != nil {
				t.Errorf("the second request was answered %d %q, %v", status, body, err)
			}
		})
	}
}

// An answer that hangs comes when it is released, and holds up nobody else.
func TestHang(t *testing.T) {
	s := start(t, First(CommitThenHang))
	_, more := s.Requests()
	type reply struct {
		status int
		err    error
	}
	hung := make(chan reply, 1)
	go func() {
		status, _, err := post(t, s.URL+"/things")
		hung <- reply{status, err}
	}()
	<-more
	if status, body, err := post(t, s.URL+"/things"); status != 201 || err != nil {
		t.Errorf("beside one that hangs: %d %q, %v", status, body, err)
	}
	select {
	case r := <-hung:
		t.Fatalf("answered %d, %v before it was released", r.status, r.err)
	default:
	}
	s.Release()
	if r := <-hung; r.status != 201 || r.err != nil {
		t.Errorf("released, it was answered %d, %v", r.status, r.err)
	}
	if n := s.Ledger.Effects(); n != 2 {
		t.Errorf("%d effects of two requests", n)
	}
}

// Close lets go what hangs.
func TestCloseWhileHanging(t *testing.T) {
	s := start(t, First(CommitThenHang))
	_, more := s.Requests()
	hung := make(chan error, 1)
	go func() {
		_, _, err := post(t, s.URL+"/things")
		hung <- err
	}()
	<-more
	s.Close()
	<-hung // with an answer or without
}

// A search by POST counts for no script.
func TestReads(t *testing.T) {
	s := start(t, First(DropBefore))
	if status, body, err := post(t, s.URL+"/find"); status != 200 || body != "[]\n" || err != nil {
		t.Errorf("a search was answered %d %q, %v", status, body, err)
	}
	if _, _, err := post(t, s.URL+"/things"); err == nil {
		t.Error("the first write request was not dropped")
	}
	seen, _ := s.Requests()
	if len(seen) != 2 || !seen[0].IsRead || seen[1].IsRead || seen[1].Body != "x" || seen[1].Status != 0 {
		t.Errorf("what arrived: %+v", seen)
	}
}

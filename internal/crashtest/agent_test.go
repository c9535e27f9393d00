package crashtest

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"
)

// A call is what an agent asks for: which kind of provider, whose call, and how
// it is to be answered.
type call struct {
	kind, run, turn, id string
	// answer is plain, long (the same, beyond what is read whole), chunked or
	// sse; bytes the answer's length.
	answer string
	bytes  int
}

func (c call) String() string { return c.run + ":" + c.turn + ":" + c.id }

// things is a call of the kind most tests make.
func things(kind, answer string) call {
	c := call{kind: kind, run: "run-1", turn: "1", id: "1", answer: answer, bytes: 100 << 10}
	if answer == "long" {
		c.bytes = 3 << 20
	}
	return c
}

// A reply is what came back for one request.
type reply struct {
	status int
	header http.Header
	body   string
	// err is set if no whole answer came.
	err error
}

func (r reply) outcome() string { return r.header.Get("Counterfoil-Outcome") }

// problem is the name of a refusal of Counterfoil's own; "" if it is none.
func (r reply) problem() string {
	if r.err != nil || !strings.HasPrefix(r.header.Get("Content-Type"), "application/problem+json") {
		return ""
	}
	var p struct {
		Type string `json:"type"`
	}
	if json.Unmarshal([]byte(r.body), &p) != nil {
		return "unreadable"
	}
	name, ok := strings.CutPrefix(p.Type, "urn:counterfoil:problem:")
	if !ok {
		return ""
	}
	return name
}

func (r reply) String() string {
	if r.err != nil {
		return "no whole answer: " + r.err.Error()
	}
	body := r.body
	if len(body) > 200 {
		body = fmt.Sprintf("%s… (%d bytes)", body[:200], len(body))
	}
	return fmt.Sprintf("%d %s %s", r.status, r.outcome(), body)
}

// request is the call as it goes over the wire.
func (c call) request(ctx context.Context, base string) *http.Request {
	body, err := json.Marshal(order{Call: c.String(), Bytes: c.bytes})
	if err != nil {
		panic(err) // an order always marshals
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, base+"/"+c.kind+"/things?answer="+c.answer, strings.NewReader(string(body)))
	if err != nil {
		panic(err) // the parts are the test's own
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Counterfoil-Run", c.run)
	req.Header.Set("Counterfoil-Turn", c.turn)
	req.Header.Set("Counterfoil-Call", c.id)
	return req
}

// send asks once, with more header fields if there are any: name, value, name,
// value.
func (s *sidecar) send(c call, fields ...string) reply {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	return s.sendWithin(ctx, c, fields...)
}

// sendWithin asks once, and hangs up when ctx ends.
func (s *sidecar) sendWithin(ctx context.Context, c call, fields ...string) reply {
	req := c.request(ctx, s.base)
	for i := 0; i < len(fields); i += 2 {
		req.Header.Set(fields[i], fields[i+1])
	}
	return do(s.client, req)
}

// sendAway asks from another goroutine.
func (s *sidecar) sendAway(c call) <-chan reply {
	ch := make(chan reply, 1)
	go func() { ch <- s.send(c) }()
	return ch
}

func do(client *http.Client, req *http.Request) reply {
	resp, err := client.Do(req)
	if err != nil {
		return reply{err: err}
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	return reply{status: resp.StatusCode, header: resp.Header, body: string(body), err: err}
}

// ask sends until the answer is no longer "in progress".
func (s *sidecar) ask(c call) reply {
	s.Helper()
	deadline := time.After(patience)
	for {
		r := s.send(c)
		if r.problem() != "in-progress" {
			return r
		}
		seconds, err := strconv.Atoi(r.header.Get("Retry-After"))
		if err != nil || seconds < 1 {
			s.Fatalf("409 in-progress without a Retry-After: %v", r.header)
		}
		select {
		case <-time.After(time.Duration(seconds) * time.Second):
		case <-deadline:
			s.Fatalf("call %s is in progress for ever: %s", c, r)
		}
	}
}

// get reads from the agent's API.
func (s *sidecar) get(path string, v any) {
	s.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.base+path, nil)
	if err != nil {
		s.Fatal(err)
	}
	r := do(s.client, req)
	if r.err != nil || r.status != http.StatusOK {
		s.Fatalf("GET %s: %s", path, r)
	}
	if err := json.Unmarshal([]byte(r.body), v); err != nil {
		s.Fatalf("GET %s: %v in %s", path, err, r.body)
	}
}

// sameAnswer checks that b is a, apart from what says that it is a repeat.
func sameAnswer(t *testing.T, a, b reply) {
	t.Helper()
	if a.status != b.status || a.body != b.body {
		t.Errorf("not the same bytes:\n%s\n%s", a, b)
	}
	for _, name := range []string{"Content-Type", "Content-Length", "Counterfoil-Key"} {
		if x, y := a.header.Get(name), b.header.Get(name); x != y && (x != "" && y != "") {
			t.Errorf("%s was %q and is %q", name, x, y)
		}
	}
}

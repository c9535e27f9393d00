package crashtest

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
)

// workerVariable makes of this test's binary a worker.
const workerVariable = "COUNTERFOIL_CRASHTEST_WORKER"

// An errand is one request that a worker is told to make.
type errand struct {
	Method, URL, Body string
	Header            map[string]string
}

// A finding is what came of it.
type finding struct {
	Status int
	ETag   string
	Body   string
	Err    string
}

// work makes the requests that come in, one after the other, and says what came
// of them.
func work(in io.Reader, out io.Writer) error {
	errands, findings := json.NewDecoder(in), json.NewEncoder(out)
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	for {
		var e errand
		if err := errands.Decode(&e); err != nil {
			return err
		}
		req, err := http.NewRequest(e.Method, e.URL, strings.NewReader(e.Body))
		if err != nil {
			return err
		}
		for name, value := range e.Header {
			req.Header.Set(name, value)
		}
		r := do(client, req)
		f := finding{Status: r.status, Body: r.body, ETag: r.header.Get("ETag")}
		if r.err != nil {
			f.Err = r.err.Error()
		}
		if err := findings.Encode(f); err != nil {
			return err
		}
	}
}

// A worker is an agent in a process of its own.
type worker struct {
	*sidecar
	process  *os.Process
	errands  *json.Encoder
	findings chan finding
}

func (s *sidecar) worker() *worker {
	s.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env, cmd.Stderr, cmd.SysProcAttr = append(os.Environ(), workerVariable+"=1"), os.Stderr, dieWithParent()
	in, err := cmd.StdinPipe()
	out, outErr := cmd.StdoutPipe()
	if err := errors.Join(err, outErr, cmd.Start()); err != nil {
		s.Fatal("starting a worker:", err)
	}
	w := &worker{sidecar: s, process: cmd.Process, errands: json.NewEncoder(in), findings: make(chan finding, 16)}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for d := json.NewDecoder(out); ; {
			var f finding
			if d.Decode(&f) != nil {
				return
			}
			w.findings <- f
		}
	}()
	s.Cleanup(func() {
		_ = cmd.Process.Kill() // it may be frozen
		<-done
		_ = cmd.Wait() // it was killed
	})
	return w
}

// sends tells the worker to make a request; found waits for what came of it.
func (w *worker) sends(method, path, body string, fields ...string) {
	w.Helper()
	e := errand{Method: method, URL: w.base + path, Body: body, Header: map[string]string{}}
	for i := 0; i < len(fields); i += 2 {
		e.Header[fields[i]] = fields[i+1]
	}
	if err := w.errands.Encode(e); err != nil {
		w.Fatal("telling a worker what to do:", err)
	}
}

func (w *worker) found(want int) finding {
	w.Helper()
	f := await(w.T, "a worker's finding", w.findings)
	if f.Err != "" || f.Status != want {
		w.Errorf("got %+v, want %d", f, want)
	}
	return f
}

// calls sends an effect under a fence.
func (w *worker) calls(c call, fence string) {
	w.Helper()
	req := c.request(w.Context(), w.base)
	body, err := io.ReadAll(req.Body)
	if err != nil {
		w.Fatal(err)
	}
	w.sends(req.Method, req.URL.RequestURI(), string(body), "Content-Type", "application/json",
		"Counterfoil-Run", c.run, "Counterfoil-Turn", c.turn, "Counterfoil-Call", c.id, "Counterfoil-Fence", fence)
}

// freezes stops the process, and returns once it has stopped.
func (w *worker) freezes() {
	w.Helper()
	if err := w.process.Signal(syscall.SIGSTOP); err != nil {
		w.Fatal("stopping a worker:", err)
	}
	var status syscall.WaitStatus
	if _, err := syscall.Wait4(w.process.Pid, &status, syscall.WUNTRACED, nil); err != nil || !status.Stopped() {
		w.Fatalf("waiting for a worker to stop: %v, %v", status, err)
	}
}

func (w *worker) wakes() {
	w.Helper()
	if err := w.process.Signal(syscall.SIGCONT); err != nil {
		w.Fatal("waking a worker:", err)
	}
}

// TestC110_FrozenOwner: a worker is frozen while its call is under way, and wakes
// when another process of the same name has the run. Whether a client that says
// nothing is frozen or waits nobody can tell, so its lease ends after its call is
// answered, and not before as in the case's text: C109 is about the same moment.
func TestC110_FrozenOwner(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	hold := make(chan struct{})
	release := onceClose(t, hold)
	one := things("none", "plain")
	b.provider.befalls(func(c string, nth int) mishap {
		if c == one.String() && nth == 1 {
			return mishap{hold: hold}
		}
		return mishap{}
	})
	effects := b.provider.effects()
	s := b.released()
	const lease, item = "/-/v1/runs/run-1/lease", "/-/v1/stores/s/items/marker"
	old := s.worker()
	old.sends("POST", lease, `{"owner":"w","ttl_seconds":1}`)
	old.found(200)
	old.sends("PUT", "/-/v1/stores/s", "")
	old.found(201)
	old.sends("PUT", item, `{"value":1}`, "Counterfoil-Run", "run-1", "Counterfoil-Fence", "1")
	etag := old.found(201).ETag
	old.calls(one, "1")
	await(t, "the effect of the first call", effects)
	old.freezes()
	release()

	heir := s.worker()
	for taken := false; !taken; {
		heir.sends("POST", lease, `{"owner":"w","ttl_seconds":30}`)
		f := await(t, "an answer about the lease", heir.findings)
		if taken = f.Status == 200; !taken && f.Status != 409 {
			t.Fatalf("%+v", f)
		}
	}
	other := things("none", "plain")
	other.turn = "2"
	heir.calls(other, "2")
	heir.found(201)
	heir.calls(one, "2")
	kept := heir.found(201)
	heir.sends("PUT", item, `{"value":2}`, "Counterfoil-Run", "run-1", "Counterfoil-Fence", "2", "If-Match", etag)
	heir.found(200)

	old.wakes()
	if f := old.found(201); f.Body != kept.Body {
		t.Errorf("the frozen worker's own answer is %q, and the heir got %q", f.Body, kept.Body)
	}
	old.sends("PUT", lease, `{"fence":1}`)
	old.found(412)
	second := things("none", "plain")
	second.id = "2"
	old.calls(second, "1")
	if f := old.found(412); !strings.Contains(f.Body, "urn:counterfoil:problem:fenced") {
		t.Errorf("%+v", f)
	}
	old.sends("PUT", item, `{"value":3}`, "Counterfoil-Run", "run-1", "Counterfoil-Fence", "1", "If-Match", etag)
	old.found(412)
	for c, hits := range map[string]int{one.String(): 1, other.String(): 1, second.String(): 0} {
		if e := b.provider.effectOf(c); e.hits != hits || e.count != hits {
			t.Errorf("%s: %d effects of %d requests, want %d", c, e.count, e.hits, hits)
		}
	}
	if f := fmt.Sprint(s.ofStores("GET", item, "")); !strings.Contains(f, `"value":2`) {
		t.Errorf("the item is %s", f)
	}
}

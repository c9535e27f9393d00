package main

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/valyala/fasthttp"
)

// A target is one thing to drive: where, how, and what to expect.
type target struct {
	name    string
	address string
	path    string
	method  string
	// call, if not nil, names the call of each request; rest goes behind the
	// path of each.
	call func(r *rand.Rand) string
	rest func(r *rand.Rand) string
	// outcome is the Counterfoil-Outcome that every answer must bear, "" for
	// none.
	outcome string
	body    []byte
	// plain and calls are the cells that its ratios are to: nginx, and what the
	// sidecar makes of calls.
	plain, calls string
}

// A result is what one cell came to.
type result struct {
	perSecond float64
	median    time.Duration
	p99       time.Duration
}

func (r result) mean(o result) result {
	return result{(r.perSecond + o.perSecond) / 2, (r.median + o.median) / 2, (r.p99 + o.p99) / 2}
}

// drive sends requests over so many connections for the given time. Any answer
// that is not as it should be ends the benchmark: a fast wrong answer is worth
// nothing.
func drive(t *target, connections int, d time.Duration) (result, error) {
	client := &fasthttp.HostClient{
		Addr: t.address, MaxConns: connections, ReadTimeout: 30 * time.Second, WriteTimeout: 30 * time.Second,
		MaxIdemponentCallAttempts: 1, NoDefaultUserAgentHeader: true,
	}
	defer client.CloseIdleConnections()
	var (
		wait      sync.WaitGroup
		failed    atomic.Value
		latencies = make([][]time.Duration, connections)
		began     = time.Now()
		deadline  = began.Add(d)
	)
	for i := range connections {
		wait.Go(func() {
			worker := worker{t: t, client: client, random: rand.New(rand.NewPCG(uint64(began.UnixNano()), uint64(i)))}
			for time.Now().Before(deadline) && failed.Load() == nil {
				took, err := worker.once()
				if err != nil {
					failed.Store(err)
					return
				}
				latencies[i] = append(latencies[i], took)
			}
		})
	}
	wait.Wait()
	took := time.Since(began)
	if err, ok := failed.Load().(error); ok {
		return result{}, fmt.Errorf("%s over %d connections: %w", t.name, connections, err)
	}
	all := slices.Concat(latencies...)
	if len(all) == 0 {
		return result{}, errors.New("nothing was answered")
	}
	slices.Sort(all)
	return result{float64(len(all)) / took.Seconds(), all[len(all)/2], all[len(all)*99/100]}, nil
}

// A worker is one connection's side of the load.
type worker struct {
	t      *target
	client *fasthttp.HostClient
	random *rand.Rand
}

func (w *worker) once() (time.Duration, error) {
	req, resp := fasthttp.AcquireRequest(), fasthttp.AcquireResponse()
	defer fasthttp.ReleaseRequest(req)
	defer fasthttp.ReleaseResponse(resp)
	req.Header.SetMethod(w.t.method)
	path := w.t.path
	if w.t.rest != nil {
		path += w.t.rest(w.random)
	}
	req.SetRequestURI("http://" + w.t.address + path)
	if w.t.body != nil {
		req.Header.SetContentType("application/octet-stream")
		req.SetBodyRaw(w.t.body)
	}
	if w.t.call != nil {
		req.Header.Set("Counterfoil-Run", "bench")
		req.Header.Set("Counterfoil-Call", w.t.call(w.random))
	}
	began := time.Now()
	if err := w.client.Do(req, resp); err != nil {
		return 0, err
	}
	took := time.Since(began)
	if resp.StatusCode() != fasthttp.StatusOK {
		return 0, fmt.Errorf("status %d: %.200s", resp.StatusCode(), resp.Body())
	}
	if got := string(resp.Header.Peek("Counterfoil-Outcome")); got != w.t.outcome {
		return 0, fmt.Errorf("outcome %q, not %q", got, w.t.outcome)
	}
	return took, nil
}

// names gives every fresh call a name of its own, and remembers how many there
// are for the replays.
type names struct{ made atomic.Int64 }

func (n *names) fresh(*rand.Rand) string {
	return "call-" + strconv.FormatInt(n.made.Add(1), 10)
}

// known is a call that was surely answered: none of the newest.
func (n *names) known(r *rand.Rand) string {
	return "call-" + strconv.FormatInt(1+r.Int64N(max(1, n.made.Load()-10_000)), 10)
}

package upstream

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"counterfoil/classify"
)

// Answers arrive around the time-out, so that connections are given up at
// every moment while others use the same pool. Nobody may ever see bytes of
// another's answer. Run it with -race.
func TestC63_NobodyGetsAnothersAnswer(t *testing.T) {
	const (
		workers = 100
		calls   = 20
		timeout = 50 * time.Millisecond
	)
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	p := provide(t, func(pe *peer) {
		delays := rand.New(rand.NewPCG(seed, uint64(pe.n)))
		for {
			h, ok := pe.hear()
			if !ok {
				return
			}
			nonce := h.body
			if h.values("X-Nonce")[0] != nonce || h.line != "POST /"+nonce+" HTTP/1.1" {
				t.Errorf("a request of several: %q %q %q", h.line, h.lines, h.body)
			}
			<-time.After(delay(delays, timeout))
			pe.say("HTTP/1.1 200 OK\r\nX-Nonce: " + nonce + "\r\nTransfer-Encoding: chunked\r\n\r\n")
			pe.say(fmt.Sprintf("%x\r\n%s\r\n0\r\n\r\n", len(nonce), nonce))
		}
	})
	c := newClient(t, Config{URL: "http://" + p.addr, Timeouts: Timeouts{FirstByte: timeout}})
	var mu sync.Mutex
	count := map[classify.Evidence]int{}
	var wg sync.WaitGroup
	for w := range workers {
		wg.Go(func() {
			for n := range calls {
				evidence := sendNonce(t, c, fmt.Sprintf("%d-%d-%s", w, n, strings.Repeat("n", n)))
				mu.Lock()
				count[evidence]++
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	t.Logf("%v", count)
	if count[classify.Answered] == 0 || count[classify.Lost] == 0 {
		t.Errorf("%v: the time-out must hit some and spare some", count)
	}
	if len(c.slots) != 0 {
		t.Errorf("%d slots taken", len(c.slots))
	}
}

// delay is none for one answer in three, too long for another, and around the
// time-out for the third.
func delay(r *rand.Rand, timeout time.Duration) time.Duration {
	switch r.IntN(3) {
	case 0:
		return 0
	case 1:
		return 2 * timeout
	}
	return timeout*6/10 + time.Duration(r.Int64N(int64(timeout*8/10)))
}

func sendNonce(t *testing.T, c *Client, nonce string) classify.Evidence {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	r := request("POST", "/"+nonce, nonce)
	r.Header = classify.Header{{Name: "X-Nonce", Value: nonce}}
	resp := c.Send(ctx, r)
	// What the sender does with its buffers afterwards is its own affair.
	clear(r.Body)
	if resp.Evidence != classify.Answered {
		return resp.Evidence
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return classify.Lost
	}
	if string(body) != nonce || resp.Header.Value("X-Nonce") != nonce {
		t.Errorf("sent %q, got %q and %q", nonce, resp.Header.Value("X-Nonce"), body)
	}
	return classify.Answered
}

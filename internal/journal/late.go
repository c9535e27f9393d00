package journal

import (
	"context"
	"sync"

	"counterfoil/classify"
	"counterfoil/keystore"
	"counterfoil/providers"
)

// awaitedMax bounds how many calls are waited for whose answer the client is to
// come back for. Beyond it a call is looked after as any other in doubt.
const awaitedMax = 4096

// awaited are calls whose server ended its answer before the result, and has the
// client come back for it: the result is kept when it passes.
type awaited struct {
	mu  sync.Mutex
	all map[string]awaitedCall
}

type awaitedCall struct {
	key     keystore.Key
	attempt uint32
}

func (a *awaited) put(upstream, token string, k keystore.Key, attempt uint32) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.all == nil {
		a.all = map[string]awaitedCall{}
	}
	if len(a.all) < awaitedMax {
		a.all[upstream+"\x00"+token] = awaitedCall{k, attempt}
	}
}

func (a *awaited) take(upstream, token string) (awaitedCall, bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	c, ok := a.all[upstream+"\x00"+token]
	delete(a.all, upstream+"\x00"+token)
	return c, ok
}

// lateAnswer puts an answer on record that came on a stream which the client has
// resumed, before it is passed on.
func (j *Journal) lateAnswer(upstream string, l providers.Late) {
	c, ok := j.awaited.take(upstream, l.Token)
	if !ok {
		return
	}
	header := classify.Header{{Name: "Content-Type", Value: "application/json"}}
	_, err := j.store.Apply(context.Background(), c.key, keystore.Event{
		Kind: keystore.LateApplied, Attempt: c.attempt, Status: 200, Evidence: classify.Answered, Outcome: classify.Applied,
		Reason:  "the answer came on a stream that the client resumed",
		Receipt: &keystore.Receipt{Status: 200, Header: header},
	}, l.Body)
	if !isSettled(err) {
		j.observe.trouble("keeping an answer that came late", c.key, err)
	}
}

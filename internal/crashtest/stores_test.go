package crashtest

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"testing"
)

const (
	// storeWriters write batches at once, each to storeItems items of its own.
	storeWriters = 8
	storeItems   = 5
	// storeKills is how often the sidecar is killed under them.
	storeKills = 6
)

// A storeWriter replaces its items by batches: all of them say which batch wrote
// them, and one more item is named after it.
type storeWriter struct {
	name string
	// acked is the number of the last batch that was answered, etag the tag that
	// the answer gave the first item; sent is that of the last one sent.
	acked, sent int
	etag        string
}

// TestBatchesAreWholeAfterKill: after kill -9 a batch that was answered is there
// whole, and one that was not is there whole or not at all.
func TestBatchesAreWholeAfterKill(t *testing.T) {
	seed := drawn(t)
	random := rand.New(rand.NewPCG(seed, 0))
	b := newBench(t)
	writers := make([]*storeWriter, storeWriters)
	for i := range writers {
		writers[i] = &storeWriter{name: fmt.Sprintf("w%d", i)}
	}
	batches, unanswered := 0, 0
	for kill := range storeKills + 1 {
		s := b.released()
		if r := s.ofStores("PUT", "/-/v1/stores/s", ""); r.status != 200 && (r.status != 201 || kill > 0) {
			t.Fatalf("making the store: %s", r)
		}
		for _, w := range writers {
			unanswered += w.check(s)
			batches += w.acked
		}
		if kill == storeKills {
			break
		}
		s.writeUntilKilled(writers, 1+random.IntN(100))
	}
	t.Logf("%d kills; %d batches were made that nobody was told of", storeKills, unanswered)
	if batches == 0 {
		t.Error("no batch was ever made")
	}
}

// writeUntilKilled has the writers write until so many batches are answered, and
// kills the sidecar then, while the others are on their way.
func (s *sidecar) writeUntilKilled(writers []*storeWriter, answers int) {
	s.Helper()
	answered := make(chan struct{}, storeWriters)
	dead := make(chan struct{})
	var wait sync.WaitGroup
	for _, w := range writers {
		wait.Go(func() {
			for w.write(s) {
				select {
				case answered <- struct{}{}:
				case <-dead:
				}
			}
		})
	}
	for range answers {
		await(s.T, "a batch to be answered", answered)
	}
	s.kill()
	close(dead)
	wait.Wait()
}

// write sends the next batch, and reports whether it was answered.
func (w *storeWriter) write(s *sidecar) bool {
	w.sent = w.acked + 1
	condition := `"if_none_match":"*"`
	if w.etag != "" {
		condition = fmt.Sprintf(`"if_match":%q`, w.etag)
	}
	operations := []string{fmt.Sprintf(`{"op":"delete","key":"%s-made-%d"}`, w.name, w.acked), fmt.Sprintf(`{"op":"put","key":"%s-made-%d","value":%d,"if_none_match":"*"}`, w.name, w.sent, w.sent)}
	for i := range storeItems {
		operations = append(operations, fmt.Sprintf(`{"op":"put","key":"%s-%d","value":%d,%s}`, w.name, i, w.sent, condition))
		condition = `"tags":{}`
	}
	r := s.ofStores("POST", "/-/v1/stores/s/batch", `{"operations":[`+strings.Join(operations, ",")+`]}`)
	if r.err != nil {
		return false
	}
	var results struct {
		Results []struct {
			ETag string `json:"etag"`
		} `json:"results"`
	}
	if r.status != http.StatusOK || json.Unmarshal([]byte(r.body), &results) != nil || len(results.Results) != len(operations) {
		s.Errorf("batch %d of %s: %s", w.sent, w.name, r)
		return false
	}
	w.acked, w.etag = w.sent, results.Results[2].ETag
	return true
}

// check reads what is there of a writer, and returns 1 if a batch was made whose
// answer never came.
func (w *storeWriter) check(s *sidecar) int {
	s.Helper()
	var list struct {
		Items []struct {
			Key   string `json:"key"`
			ETag  string `json:"etag"`
			Value int    `json:"value"`
		} `json:"items"`
		Next string `json:"next"`
	}
	s.get("/-/v1/stores/s/items?prefix="+w.name+"-", &list)
	if w.sent == 0 {
		if len(list.Items) != 0 {
			s.Fatalf("%s has written nothing, and there is %+v", w.name, list)
		}
		return 0
	}
	if len(list.Items) == 0 && w.acked == 0 {
		w.sent = 0
		return 0
	}
	if len(list.Items) != storeItems+1 || list.Next != "" {
		s.Fatalf("%s: batch %d of %d was answered, and there is %+v", w.name, w.acked, w.sent, list)
	}
	made, tags := list.Items[0].Value, map[string]string{}
	for _, i := range list.Items {
		if i.Value != made {
			s.Fatalf("%s: half a batch is there: %+v", w.name, list)
		}
		tags[i.Key] = i.ETag
	}
	first, named := tags[w.name+"-0"], tags[fmt.Sprintf("%s-made-%d", w.name, made)]
	if named == "" || made != w.acked && made != w.sent || made == w.acked && first != w.etag {
		s.Fatalf("%s: batch %d of %d was answered with the tag %s, and there is %+v", w.name, w.acked, w.sent, w.etag, list)
	}
	untold := made - w.acked
	w.acked, w.sent, w.etag = made, made, first
	return untold
}

// ofStores asks the agent API for something of stores.
func (s *sidecar) ofStores(method, path, body string) reply {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, s.base+path, strings.NewReader(body))
	if err != nil {
		return reply{err: err}
	}
	return do(s.client, req)
}

package journal

import (
	"context"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"counterfoil/classify"
	"counterfoil/providers"
)

// canaryTimeout bounds the looks at whether lookups are permitted, all together.
const canaryTimeout = 10 * time.Second

// A Permission is what was learnt at start about lookups at one upstream.
type Permission struct {
	Upstream string
	// Refused says why lookups are off; empty where they are not.
	Refused string
	// Unclear says why nothing was learnt, so that lookups stay on.
	Unclear string
}

func (u *Upstream) lookupsAreOff() bool { return u.refused.Load() != nil }

// lookupsOff says why lookups are off, "" where they are not.
func (u *Upstream) lookupsOff() string {
	if why := u.refused.Load(); why != nil {
		return *why
	}
	return ""
}

// CheckLookups sends each upstream's canary with the upstream's own credential.
// Where it is not permitted, lookups are off for this life: what cannot be asked
// must be known before a crash, not in one. Call it once, before the first call.
func (j *Journal) CheckLookups(ctx context.Context) []Permission {
	ctx, cancel := context.WithTimeout(ctx, canaryTimeout)
	defer cancel()
	var mu sync.Mutex
	var list []Permission
	var busy sync.WaitGroup
	for _, u := range j.upstreams {
		if u.Canary == "" || u.Auth.Name == "" {
			continue
		}
		busy.Go(func() {
			p := u.tryCanary(ctx)
			mu.Lock()
			defer mu.Unlock()
			if p.Refused != "" {
				u.refused.Store(&p.Refused)
			}
			list = append(list, p)
		})
	}
	busy.Wait()
	return list
}

func (u *Upstream) tryCanary(ctx context.Context) Permission {
	p := Permission{Upstream: u.Name}
	method, target, _ := strings.Cut(u.Canary, " ")
	r := &classify.Request{Upstream: u.Name, Method: method, Target: target, Header: classify.Header{{Name: "Accept", Value: "application/json"}}}
	r.Header = u.withAuth(r.Header)
	resp := u.Finder.Send(ctx, r)
	if resp.Evidence != classify.Answered {
		p.Unclear = "the provider could not be reached"
		return p
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, lookupBodyMax))
	if err != nil {
		p.Unclear = "the answer broke off"
		return p
	}
	said := u.saysOf(ctx, r, resp, body)
	switch {
	case resp.Status >= 500 || resp.Status == 429 || resp.Status == 408:
		p.Unclear = fmt.Sprintf("it was answered %d", resp.Status)
	case resp.Status > 299:
		p.Refused = fmt.Sprintf("the canary %s was answered %d", u.Canary, resp.Status)
	case said == classify.Rejected || said == classify.NotApplied:
		p.Refused = fmt.Sprintf("the canary %s was answered %d, and what the answer says is no", u.Canary, resp.Status)
	case said == classify.Ambiguous:
		p.Unclear = "its answer cannot be judged"
	}
	return p
}

// saysOf judges a whole answer by its content, where the adapter says how: some
// providers refuse in a 200. 0 is an answer of which only the status counts.
func (u *Upstream) saysOf(ctx context.Context, r *classify.Request, resp *classify.Response, body []byte) classify.Outcome {
	rd, refusal := u.Adapter.Read(r)
	if refusal != nil {
		return 0
	}
	watcher := rd.Watch(providers.Query{Original: r}, providers.Head{Status: resp.Status, Header: resp.Header, Length: int64(len(body))}, false)
	if watcher == nil {
		return 0
	}
	watcher.Write(body)
	return watcher.End(ctx).Outcome
}

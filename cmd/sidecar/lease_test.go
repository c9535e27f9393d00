package main

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"counterfoil/keystore"
)

// oneRun is a store of one run's lease: the rules are the real ones.
type oneRun struct {
	keystore.RunStore
	mu     sync.Mutex
	lease  keystore.Lease
	epoch  keystore.Epoch
	began  time.Time
	broken error // what renewing fails with
	asked  int
}

func (s *oneRun) watch() keystore.Watch {
	return keystore.Watch{Now: keystore.Instant(time.Since(s.began) + 1), Era: 1, Epoch: s.epoch}
}

func (s *oneRun) AcquireLease(_ context.Context, q *keystore.LeaseRequest) (keystore.Grant, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked++
	next, err := s.lease.Acquire(q, s.watch(), s.lease.Epoch < s.epoch)
	s.lease = next
	return keystore.Grant{Fence: next.Fence}, err
}

func (s *oneRun) RenewLease(_ context.Context, _, _ string, f keystore.Fence, ttl time.Duration) (keystore.Grant, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked++
	if s.broken != nil {
		return keystore.Grant{}, s.broken
	}
	next, err := s.lease.Renew(f, ttl, s.watch())
	s.lease = next
	return keystore.Grant{Fence: f}, err
}

func (s *oneRun) ReleaseLease(_ context.Context, _, _ string, f keystore.Fence) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	next, err := s.lease.Release(f)
	s.lease = next
	return err
}

func (s *oneRun) set(change func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change()
}

// claimOn is a claim of 30 s that waits for a minute, and what it logs.
func claimOn(s *oneRun) (*lease, *bytes.Buffer) {
	s.began, s.epoch = time.Now(), max(s.epoch, 1)
	log := &bytes.Buffer{}
	return &lease{store: s, namespace: "default", run: "r", ttl: 30 * time.Second, wait: time.Minute, log: slog.New(slog.NewTextHandler(log, nil))}, log
}

// take has another take the run.
func take(t *testing.T, s *oneRun, owner string, ttl time.Duration) keystore.Fence {
	t.Helper()
	g, err := s.AcquireLease(t.Context(), &keystore.LeaseRequest{Run: "r", Owner: owner, TTL: ttl})
	if err != nil {
		t.Fatal(err)
	}
	return g.Fence
}

func TestALeaseOfAnEarlierExecIsTakenAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &oneRun{}
		claim, log := claimOn(s)
		first, err := claim.acquire(t.Context())
		if err != nil || first != 1 {
			t.Fatal(first, err)
		}
		s.set(func() { s.epoch = 2 }) // killed, and started again
		began := time.Now()
		second, err := claim.acquire(t.Context())
		if err != nil || second != 2 || time.Since(began) != 0 || log.Len() != 0 {
			t.Errorf("fence %d after %s, %v: %s", second, time.Since(began), err, log)
		}
	})
}

func TestALivingHolderIsWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &oneRun{}
		claim, log := claimOn(s)
		take(t, s, "worker-7", 40*time.Second)
		began := time.Now()
		fence, err := claim.acquire(t.Context())
		if err != nil || fence != 2 || time.Since(began) != 40*time.Second {
			t.Errorf("fence %d after %s, %v", fence, time.Since(began), err)
		}
		if n := strings.Count(log.String(), "waiting for it"); n != 1 || !strings.Contains(log.String(), "worker-7") {
			t.Errorf("told %d times: %s", n, log)
		}
	})
}

// One that gives the run back is followed within a second.
func TestAReleaseEndsTheWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &oneRun{}
		claim, _ := claimOn(s)
		held := take(t, s, "worker-7", time.Hour)
		time.AfterFunc(9500*time.Millisecond, func() { _ = s.ReleaseLease(t.Context(), "", "", held) })
		began := time.Now()
		if _, err := claim.acquire(t.Context()); err != nil || time.Since(began) != 10*time.Second {
			t.Errorf("after %s: %v", time.Since(began), err)
		}
	})
}

func TestTheWaitForAHolderIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &oneRun{}
		claim, _ := claimOn(s)
		take(t, s, "worker-7", time.Hour)
		began := time.Now()
		_, err := claim.acquire(t.Context())
		if err == nil || !strings.Contains(err.Error(), `held by "worker-7" for 59m0s more`) || time.Since(began) != time.Minute {
			t.Errorf("after %s: %v", time.Since(began), err)
		}
	})
}

func TestASignalEndsTheWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &oneRun{}
		claim, _ := claimOn(s)
		take(t, s, "worker-7", time.Hour)
		ctx, cancel := context.WithCancelCause(t.Context())
		time.AfterFunc(5*time.Second, func() { cancel(askedToEnd{}) })
		_, err := claim.acquire(ctx)
		if _, is := errors.AsType[askedToEnd](err); !is {
			t.Error(err)
		}
	})
}

// held holds a lease for some time and returns what came of it.
func held(t *testing.T, s *oneRun, forTime time.Duration, change func()) (after time.Duration, err error) {
	t.Helper()
	claim, _ := claimOn(s)
	fence, err := claim.acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), forTime)
	defer cancel()
	began := time.Now()
	time.AfterFunc(45*time.Second, func() { s.set(change) })
	err = claim.hold(ctx, fence)
	return time.Since(began), err
}

func TestALeaseIsRenewedAtAThird(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &oneRun{}
		if _, err := held(t, s, 10*time.Minute+5*time.Second, func() {}); err != nil {
			t.Fatal(err)
		}
		if s.asked != 1+60 { // acquired, and every 10 s
			t.Errorf("the store was asked %d times", s.asked)
		}
	})
}

func TestALostLeaseIsNoticedAtTheNextRenewal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &oneRun{}
		after, err := held(t, s, time.Hour, func() { s.lease.Fence = 9 })
		if err == nil || !strings.Contains(err.Error(), "under fence 9; this was 1") || after > time.Minute {
			t.Errorf("after %s: %v", after, err)
		}
		s = &oneRun{}
		after, err = held(t, s, time.Hour, func() { s.lease.Released = true })
		if err == nil || !strings.Contains(err.Error(), "--lease-ttl") || after > time.Minute {
			t.Errorf("after %s: %v", after, err)
		}
	})
}

// A store that fails for a while costs nothing; one that fails for as long as
// the lease lasts does, and not a moment longer.
func TestAStoreThatFailsWhileRenewing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &oneRun{}
		if after, err := held(t, s, 5*time.Minute, func() {
			s.broken = keystore.ErrUnavailable
			time.AfterFunc(20*time.Second, func() { s.set(func() { s.broken = nil }) })
		}); err != nil {
			t.Errorf("after %s: %v", after, err)
		}
		s = &oneRun{}
		after, err := held(t, s, time.Hour, func() { s.broken = keystore.ErrUnavailable })
		if !errors.Is(err, keystore.ErrUnavailable) || after != 70*time.Second {
			// The renewal at 40 s was the last.
			t.Errorf("after %s: %v", after, err)
		}
	})
}

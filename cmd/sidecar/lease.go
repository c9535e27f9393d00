package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"counterfoil/keystore"
)

const (
	// leaseOwner names every sidecar exec alike: it holds a lease only while it
	// holds the store, so one that an earlier life left behind is its own.
	leaseOwner = "sidecar exec"
	// leasePoll is how often a lease that another holds is asked for again, since
	// it may be given back before it is over.
	leasePoll = time.Second
	// renewalsPerTTL is how often a lease is renewed while it lasts, and
	// triesPerRenewal how often one renewal is tried before the next is due.
	renewalsPerTTL  = 3
	triesPerRenewal = 4
	// releaseMax bounds giving a lease back. It is over by itself, too.
	releaseMax = 5 * time.Second
)

// A lease is the claim to one run.
type lease struct {
	store     keystore.RunStore
	namespace string
	run       string
	ttl       time.Duration
	// wait bounds the wait for another holder.
	wait time.Duration
	log  *slog.Logger
}

// acquire takes the run, and waits for a holder that lives. The fence is higher
// than any before.
func (l *lease) acquire(ctx context.Context) (keystore.Fence, error) {
	bound := time.Now().Add(l.wait)
	for told := false; ; told = true {
		grant, err := l.store.AcquireLease(ctx, &keystore.LeaseRequest{
			Namespace: l.namespace, Run: l.run, Owner: leaseOwner, TTL: l.ttl, From: keystore.FromOwnEarlierLife,
		})
		held, isRefused := errors.AsType[*keystore.Refused](err)
		switch {
		case err == nil:
			return grant.Fence, nil
		case !isRefused || held.Reason != keystore.LeaseHeld:
			return 0, fmt.Errorf("taking the lease of run %s: %w", l.run, err)
		case !time.Now().Before(bound):
			return 0, fmt.Errorf("the run %s is held by %q for %s more: end that one, release its lease, or wait longer with --lease-wait", l.run, held.Owner, held.After.Round(time.Second))
		case !told:
			l.log.Warn("another holds the run: waiting for it", "run", l.run, "holder", held.Owner, "over_in", held.After, "at_most", l.wait)
		}
		select {
		case <-ctx.Done():
			return 0, fmt.Errorf("waiting for the run %s, held by %q: %w", l.run, held.Owner, context.Cause(ctx))
		case <-time.After(min(leasePoll, held.After, time.Until(bound))):
		}
	}
}

// hold renews the lease until ctx ends, and returns nil then. An error says that
// it is lost, or must be taken to be: who held it has to stop.
func (l *lease) hold(ctx context.Context, fence keystore.Fence) error {
	over := time.Now().Add(l.ttl)
	next := l.ttl / renewalsPerTTL
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(min(next, time.Until(over))):
		}
		began := time.Now()
		err := l.renew(ctx, fence, over)
		refused, isRefused := errors.AsType[*keystore.Refused](err)
		switch {
		case ctx.Err() != nil:
			return nil //nolint:nilerr // the agent has ended meanwhile
		case err == nil:
			over, next = began.Add(l.ttl), l.ttl/renewalsPerTTL
		case isRefused && refused.Fence > fence:
			return fmt.Errorf("the lease of run %s is lost: another has taken the run, under fence %d; this was %d", l.run, refused.Fence, fence)
		case isRefused:
			return fmt.Errorf("the lease of run %s is lost: it was released, or not renewed for %s; a machine that was suspended longer needs a longer --lease-ttl", l.run, l.ttl)
		case !time.Now().Before(over):
			return fmt.Errorf("the lease of run %s is lost: it could not be renewed in time: %w", l.run, err)
		default:
			l.log.Warn("the run's lease could not be renewed: trying again", "run", l.run, "over_in", time.Until(over), "error", err)
			next = l.ttl / (renewalsPerTTL * triesPerRenewal)
		}
	}
}

// renew gives up at the moment at which the lease may be over.
func (l *lease) renew(ctx context.Context, fence keystore.Fence, over time.Time) error {
	ctx, cancel := context.WithDeadline(ctx, over)
	defer cancel()
	_, err := l.store.RenewLease(ctx, l.namespace, l.run, fence, l.ttl)
	return err
}

// release gives the lease back, so that the next holder need not wait.
func (l *lease) release(fence keystore.Fence) {
	ctx, cancel := context.WithTimeout(context.Background(), releaseMax)
	defer cancel()
	err := l.store.ReleaseLease(ctx, l.namespace, l.run, fence)
	if refused, is := errors.AsType[*keystore.Refused](err); err != nil && (!is || refused.Reason != keystore.Fenced) {
		l.log.Warn("the run's lease was not given back: it ends by itself", "run", l.run, "within", l.ttl, "error", err)
	}
}

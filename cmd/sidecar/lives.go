package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os/signal"
	"slices"
	"syscall"
	"time"

	"counterfoil/internal/config"
	"counterfoil/internal/supervise"
	"counterfoil/keystore"
)

// work starts the agent, life after life, until one is the last. Each has a
// lease of its own: its fence counts the lives.
func (x *execution) work(ctx context.Context, store keystore.Store, l *listeners) error {
	claim := &lease{
		store: store, namespace: x.cfg.Namespace, run: x.cfg.Run, ttl: x.flags.leaseTTL, wait: x.flags.leaseWait, log: x.log,
	}
	failures := failures{policy: x.flags.restart, first: x.flags.restartDelay}
	for {
		began := time.Now()
		end, asked, err := x.live(ctx, claim, urlOf(l.data[0]))
		if err != nil {
			return err
		}
		_, told := errors.AsType[askedToEnd](context.Cause(ctx))
		if end == nil || ctx.Err() != nil && !told {
			return nil // there was no agent any more, or it was ended since something else has
		}
		delay, again := failures.next(*end, time.Since(began), x.jitter())
		if asked || told || !again || x.waitsForPerson(ctx, store) {
			status := agentEnd(end.Status())
			x.ended = &status
			signal.Reset(endings...) // who asks once more gets the end at once
			if n := store.Stats().Unknown; n > 0 {
				x.log.Warn("calls wait for a person: start sidecar serve on the same directory, and run sidecar unknown", "unknown", n, "data", x.cfg.Data)
			}
			return nil
		}
		x.log.Warn("the agent failed: starting it again", "run", x.cfg.Run, "exit_code", end.Status(), "restart", failures.restarts, "after", delay)
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(delay):
		}
	}
}

// waitsForPerson reports whether the run is paused: another life of the agent
// would be refused its effects until somebody has decided.
func (x *execution) waitsForPerson(ctx context.Context, store keystore.Store) bool {
	pauses := false
	for _, u := range x.cfg.Upstreams {
		pauses = pauses || u.PauseOnUnknown == config.PauseRun
	}
	sum, err := store.Run(ctx, x.cfg.Namespace, x.cfg.Run)
	return pauses && err == nil && sum.Calls[keystore.Unknown] > 0
}

// live is one life of the agent, from its lease to the end of all that it
// started. Its end is nil where it was not started any more.
func (x *execution) live(ctx context.Context, claim *lease, url string) (end *supervise.Exit, asked bool, err error) {
	fence, err := claim.acquire(ctx)
	if err != nil {
		return nil, false, err
	}
	defer claim.release(fence)
	x.fence.Store(uint64(fence))
	command := x.command
	if command.Keeper, err = x.keeper(); err != nil {
		return nil, false, err
	}
	command.Env = x.env.at(life{url: url, run: x.cfg.Run, fence: fence})
	agent, err := x.relay.start(ctx, command)
	switch {
	case err != nil:
		return nil, false, fmt.Errorf("starting the agent: %w", err)
	case agent == nil:
		return nil, false, nil
	}
	x.log.Info("the agent runs", "run", x.cfg.Run, "fence", uint64(fence), "pid", agent.PID, "url", url)
	lost := hold(ctx, claim, fence, agent)
	ended, err := agent.Wait()
	asked = x.relay.end()
	if ended.Left > 0 {
		x.log.Warn("processes that the agent started could not be ended", "count", ended.Left)
	}
	return &ended, asked, errors.Join(err, <-lost)
}

// hold keeps the lease as long as the agent runs, and ends the agent when the
// lease is lost, or ctx ends. The channel tells why, or nil, once the agent is
// gone.
func hold(ctx context.Context, claim *lease, fence keystore.Fence, agent *supervise.Process) <-chan error {
	held, release := context.WithCancel(ctx)
	lost := make(chan error, 1)
	go func() {
		err := claim.hold(held, fence)
		agent.End() // it has ended already unless something is wrong
		lost <- err
	}()
	go func() {
		<-agent.Done()
		release()
	}()
	return lost
}

// failures counts the crashes of an agent.
type failures struct {
	policy   restartPolicy
	first    time.Duration
	restarts int
	// inRow are those without a life of at least restartDelayMax between them.
	inRow int
}

// next says whether an agent that has ended is to be started again, and after
// how long: first, twice that, and so on up to restartDelayMax, less up to half
// of it as jitter (0 to 1) says.
func (f *failures) next(end supervise.Exit, lived time.Duration, jitter float64) (delay time.Duration, again bool) {
	if !f.policy.onFailure || end.Status() == 0 || wasAsked(end) || f.policy.max > 0 && f.restarts >= f.policy.max {
		return 0, false
	}
	if lived >= restartDelayMax {
		f.inRow = 0
	}
	full := math.Min(float64(f.first)*math.Pow(2, float64(f.inRow)), float64(restartDelayMax))
	f.restarts++
	f.inRow++
	return time.Duration(full * (1 - jitter/2)), true
}

// wasAsked reports whether an agent ended as one does that was asked to, by
// whomever: killed by such a signal, or with the exit code that says so.
func wasAsked(end supervise.Exit) bool {
	asks := []syscall.Signal{syscall.SIGHUP, syscall.SIGINT, syscall.SIGTERM}
	return slices.Contains(asks, syscall.Signal(end.Status()-128))
}

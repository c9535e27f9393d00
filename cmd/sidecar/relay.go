package main

import (
	"context"
	"os"
	"os/signal"
	"slices"
	"sync"
	"syscall"
	"time"

	"counterfoil/internal/supervise"
)

// endings are the signals that ask a program to end.
var endings = []os.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGQUIT}

// askedToEnd says that sidecar exec was asked to end while no agent ran.
type askedToEnd struct{ signal syscall.Signal }

func (e askedToEnd) Error() string { return "asked to end by " + e.signal.String() }

// A relay passes signals on to the agent while one runs. Where none does, one
// that asks to end ends sidecar exec; a terminal that is gone asks so too, though
// to an agent its signal may mean something else.
type relay struct {
	signals chan os.Signal
	done    chan struct{}
	cancel  context.CancelCauseFunc

	mu    sync.Mutex
	agent *supervise.Process
	asked bool
	// typed is when a key last asked the agent to end, which it need not do.
	typed time.Time
}

// typedMeans is how soon after a Ctrl-C an agent's end is taken to come of it.
const typedMeans = 10 * time.Second

// newRelay takes over the signals of this process until stop.
func newRelay(cancel context.CancelCauseFunc) *relay {
	r := &relay{signals: make(chan os.Signal, 16), done: make(chan struct{}), cancel: cancel}
	signal.Notify(r.signals, append(supervise.Passed(), supervise.ChildEnded)...)
	go r.pass()
	return r
}

func (r *relay) stop() {
	signal.Stop(r.signals)
	close(r.signals)
	<-r.done
}

func (r *relay) pass() {
	defer close(r.done)
	for s := range r.signals {
		if number, ok := s.(syscall.Signal); ok {
			r.take(number)
		}
	}
}

func (r *relay) take(s syscall.Signal) {
	r.mu.Lock()
	defer r.mu.Unlock()
	asks := slices.Contains(endings, os.Signal(s))
	switch {
	case s == supervise.ChildEnded:
		supervise.ReapOrphans(r.agent)
	case r.agent == nil && (asks || s == syscall.SIGHUP):
		r.cancel(askedToEnd{s})
	case r.agent == nil:
	case r.agent.Signal(s):
		r.typed = time.Now()
	case asks:
		r.asked = true
	}
}

// start starts an agent, unless ctx has ended: nil then.
func (r *relay) start(ctx context.Context, c supervise.Command) (*supervise.Process, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if ctx.Err() != nil {
		return nil, nil
	}
	var err error
	r.agent, err = supervise.Start(c)
	return r.agent, err
}

// end takes note that the agent has ended, and reports whether it was asked to.
func (r *relay) end() (asked bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.agent = nil
	return r.asked || time.Since(r.typed) < typedMeans
}

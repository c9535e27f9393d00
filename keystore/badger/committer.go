package badger

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync/atomic"
	"time"

	"counterfoil/keystore"
)

// An operation is one atomic step on its way to the committer.
type operation struct {
	// run works out what follows from what is on record. It runs in the
	// committer, and must neither wait nor keep v.
	run   func(v *view) (*step, error)
	state atomic.Uint32
	err   error
	done  chan struct{}
}

// The states of an operation. One that was taken is waited for, so that the
// committer never reads what a caller has got back.
const (
	queued uint32 = iota
	taken
	givenUp
)

var errClosed = fmt.Errorf("%w: it is closed", keystore.ErrUnavailable)

// do has the committer run an operation, and returns once what it changed is
// durable. ctx bounds the wait in the queue: a commit that has begun is waited
// for.
func (s *Store) do(ctx context.Context, run func(v *view) (*step, error)) error {
	op, err := s.submit(ctx, run)
	if err != nil {
		return err
	}
	return op.wait(ctx)
}

// submit queues an operation. Every one has to be waited for.
func (s *Store) submit(ctx context.Context, run func(v *view) (*step, error)) (*operation, error) {
	op := &operation{run: run, done: make(chan struct{})}
	return op, s.enqueue(ctx, op)
}

func (op *operation) wait(ctx context.Context) error {
	select {
	case <-op.done:
		return op.err
	case <-ctx.Done():
	}
	if op.state.CompareAndSwap(queued, givenUp) {
		return tooLate(ctx)
	}
	<-op.done
	return op.err
}

func tooLate(ctx context.Context) error {
	return fmt.Errorf("%w: it is too busy: %w", keystore.ErrUnavailable, context.Cause(ctx))
}

func (s *Store) enqueue(ctx context.Context, op *operation) error {
	s.closing.RLock()
	defer s.closing.RUnlock()
	if s.closed {
		return errClosed
	}
	select {
	case s.queue <- op:
		return nil
	default:
	}
	select {
	case s.queue <- op:
		return nil
	case <-ctx.Done():
		return tooLate(ctx)
	}
}

// commitLoop is the only writer. It ends when the queue is closed and empty.
func (s *Store) commitLoop() {
	defer close(s.stopped)
	for op := range s.queue {
		b := &batch{s: s, began: time.Now()}
		b.open()
		b.take(op)
		s.gather()
		b.takeWaiting()
		b.commit()
		b.view.release()
	}
}

// gather lets those who were just answered come back before the batch is
// closed. Without it the first of them takes a sync for itself, and all others
// wait for that. It waits for nobody: it only lets run what can run, and a lone
// caller loses nothing by it.
func (s *Store) gather() {
	if s.lastOps < 2 {
		return
	}
	for range gatherYields {
		before := len(s.queue)
		runtime.Gosched()
		if now := len(s.queue); now == before || now+1 >= s.lastOps {
			return
		}
	}
}

// gatherYields bounds how often one batch lets others run: each time the
// scheduler runs some sixty of them before it comes back.
const gatherYields = 2 * batchOps / 60

// A batch is what one transaction will hold.
type batch struct {
	s        *Store
	view     *view
	began    time.Time
	ops      []*operation
	changing int // operations among ops that change something
	changes  []change
	bytes    int
}

func (b *batch) open() {
	b.s.reopenIfFailed()
	b.s.watchSpace()
	b.view = b.s.newView()
	if b.view == nil {
		return
	}
	if err := b.view.raise(); err != nil {
		b.s.config.Logger.Error("raising the floors of the indexes", "error", err)
	}
}

func (b *batch) takeWaiting() {
	for len(b.ops) < batchOps {
		select {
		case op, open := <-b.s.queue:
			if !open {
				return
			}
			b.take(op)
		default:
			return
		}
	}
}

// take runs one operation and adds what it changes to the batch. If there is no
// room for it, what was taken so far is committed first.
func (b *batch) take(op *operation) {
	if !op.state.CompareAndSwap(queued, taken) {
		return
	}
	st, err := b.run(op)
	if err != nil || st == nil {
		op.err = err
		b.ops = append(b.ops, op)
		return
	}
	if b.bytes+st.bytes > b.s.batchBytes || len(b.changes)+len(st.changes)+len(b.view.dirty)+2 > b.s.batchChanges {
		b.commit()
		b.view.release()
		*b = batch{s: b.s, began: time.Now()}
		b.open()
		if st, err = b.run(op); err != nil {
			op.err = err
			b.ops = append(b.ops, op)
			return
		}
	}
	b.view.keep(st)
	b.ops = append(b.ops, op)
	b.changing++
	b.changes = append(b.changes, st.changes...)
	b.bytes += st.bytes
}

// run works an operation out and refuses what can never or cannot now be
// written.
func (b *batch) run(op *operation) (*step, error) {
	if b.view == nil {
		return nil, b.s.unavailable()
	}
	st, err := op.run(b.view)
	if st != nil && st.run != nil {
		st.bytes += st.run.extraBytes()
	}
	switch {
	case err != nil || st == nil:
		return nil, err
	case st.bytes > b.s.batchBytes || len(st.changes) > b.s.batchChanges/2:
		return nil, fmt.Errorf("an operation of %d bytes: %w", st.bytes, keystore.ErrTooLarge)
	case b.s.space.room() == forNothing:
		return nil, fmt.Errorf("%w: the disk is full; free some of it", keystore.ErrUnavailable)
	}
	return st, nil
}

// commit writes the batch and answers everyone in it.
func (b *batch) commit() {
	err := b.write()
	if err != nil {
		b.s.fail(err)
	}
	for _, op := range b.ops {
		if err != nil {
			op.err = fmt.Errorf("%w: %w", keystore.ErrUnavailable, err)
		}
		close(op.done)
	}
	b.s.lastOps = len(b.ops)
	if b.view != nil {
		b.s.known.trim(b.view.touched)
	}
}

func (b *batch) write() error {
	if b.changing == 0 {
		return nil
	}
	changes, err := b.view.finish(b.changes)
	if err != nil {
		return err
	}
	if err := b.s.engine.commit(changes); err != nil {
		return err
	}
	b.view.settle()
	if observe := b.s.config.Observe.BatchCommitted; observe != nil {
		observe(b.changing, b.bytes, time.Since(b.began))
	}
	return nil
}

// fail gives the engine up after a commit that failed: memory may now hold what
// the disk does not. The next batch opens it again.
func (s *Store) fail(err error) {
	s.config.Logger.Error("a commit failed; the store is opened again", "error", err)
	s.known.forget()
	s.shown.forget()
	s.access.Lock()
	e := s.engine
	s.engine, s.failure = nil, err
	s.access.Unlock()
	if closeErr := e.closeWithin(closePatience); closeErr != nil {
		s.config.Logger.Error("closing the store after a failed commit", "error", closeErr)
	}
	if observe := s.config.Observe.CommitFailed; observe != nil {
		observe(err)
	}
}

func (s *Store) unavailable() error {
	s.access.RLock()
	defer s.access.RUnlock()
	if s.failure == nil {
		return errClosed
	}
	return fmt.Errorf("%w: %w", keystore.ErrUnavailable, s.failure)
}

// reopenIfFailed brings a store back whose commit failed, at most once per
// reopenPause. What lies where the store lay is not opened: it knows nothing of
// what was sent.
func (s *Store) reopenIfFailed() {
	if s.engine != nil || errors.Is(s.failure, errReplaced) || time.Since(s.reopenedAt) < reopenPause {
		return
	}
	s.reopenedAt = time.Now()
	e, err := openEngine(context.Background(), s.config)
	if err != nil {
		s.config.Logger.Error("opening the store again", "error", err)
		return
	}
	if err := s.load(e); err != nil {
		s.config.Logger.Error("reading the store again", "error", errors.Join(err, e.close()))
		return
	}
	s.access.Lock()
	s.engine, s.failure = e, nil
	s.access.Unlock()
}

const reopenPause = time.Second

// backgroundEvery is how often what Badger may write by itself is estimated.
const backgroundEvery = 50 * time.Millisecond

// watchSpace measures the free disk.
func (s *Store) watchSpace() {
	if s.engine == nil {
		return
	}
	if time.Since(s.measuredAt) > backgroundEvery {
		s.measuredAt, s.background = time.Now(), s.engine.background()
	}
	s.space.check(s.background)
}

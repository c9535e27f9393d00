package journal

import (
	"sync"

	"counterfoil/keystore"
)

// flights lets equal calls in one process find each other. It is a comfort: the
// store alone decides who sends.
type flights struct {
	mu sync.Mutex
	of map[keystore.Key]*flight
}

// A flight is all that is under way for one key in this process.
type flight struct {
	refs int

	mu      sync.Mutex
	current *turn
	// beginning counts those that are asking the store to begin; owned says that
	// one of them has the attempt under way.
	beginning int
	owned     bool
	// asking is held by the one that recovers the call.
	asking chan struct{}
}

// A turn ends when something about the call has changed on record.
type turn struct {
	over chan struct{}
	// reply, if not nil, is an answer that is not kept; read it only once over
	// is closed.
	reply      *Reply
	credential keystore.Digest
}

func (fs *flights) join(k keystore.Key) *flight {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	if fs.of == nil {
		fs.of = make(map[keystore.Key]*flight)
	}
	f := fs.of[k]
	if f == nil {
		f = newFlight()
		fs.of[k] = f
	}
	f.refs++
	return f
}

func newFlight() *flight {
	return &flight{current: &turn{over: make(chan struct{})}, asking: make(chan struct{}, 1)}
}

func (fs *flights) leave(k keystore.Key, f *flight) {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	if f.refs--; f.refs == 0 {
		delete(fs.of, k)
	}
}

// turn returns the turn that is on. Taken before the store is asked, it misses
// no change that comes after the store's answer.
func (f *flight) turn() *turn {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.current
}

// changed ends the turn. reply, which may be nil, is what others who wait get
// if they came with the same credential.
func (f *flight) changed(reply *Reply, credential keystore.Digest) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.current.reply, f.current.credential = reply, credential
	close(f.current.over)
	f.current = &turn{over: make(chan struct{})}
}

// startBegin and endBegin stand around each Begin. endBegin takes the attempt
// under way if the store has admitted one, and reports whether a pending one
// that the store shows is an orphan: on record, but owned by nobody in this
// process. Its Begin was never acknowledged, so nothing was sent for it.
func (f *flight) startBegin() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.beginning++
}

func (f *flight) endBegin(admitted *keystore.Admission, epoch keystore.Epoch) (orphan bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.beginning--
	if admitted == nil {
		return false
	}
	switch admitted.Verdict.Action {
	case keystore.Send, keystore.Resend:
		f.owned = true
	case keystore.Wait:
		r := admitted.Record
		if r == nil || r.State != keystore.Pending || len(r.Attempts) == 0 {
			return false
		}
		return !f.owned && f.beginning == 0 && r.Attempts[len(r.Attempts)-1].Epoch == epoch
	case keystore.Replay, keystore.Ask, keystore.Stop:
	}
	return false
}

// settled gives the attempt up: what came of it is on record.
func (f *flight) settled() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.owned = false
}

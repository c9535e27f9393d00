package badger

import "sync"

// shown holds runs as they are durable, for readers: every begin and every
// replay needs its run first, and agents stay with theirs. Only the committer
// puts runs in, before it answers those who changed them.
type shown struct {
	mu   sync.RWMutex
	runs map[runName]shownRun
}

// A shownRun never changes.
type shownRun struct {
	number number
	run    *run
}

func (s *shown) of(name runName) (shownRun, bool) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	r, ok := s.runs[name]
	return r, ok
}

// put shows the runs that a batch has changed, and hides those that are gone.
func (s *shown) put(changed map[number]*run, gone []runName) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.runs == nil {
		s.runs = map[runName]shownRun{}
	}
	for n, in := range changed {
		s.runs[runName{in.Run.Namespace, in.Run.Name}] = shownRun{n, in}
	}
	for _, name := range gone {
		delete(s.runs, name)
	}
	shrink(s.runs, runsKept)
}

func (s *shown) forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.runs = nil
}

package proxy

import (
	"sync"
	"time"

	"counterfoil/internal/journal"
)

// hushFor is how long a problem that was warned of is not warned of again.
const hushFor = time.Minute

// A hush keeps an agent that is refused again and again from filling the log. It
// holds one entry for each problem there is.
type hush struct {
	mu   sync.Mutex
	told map[journal.Problem]toldOf
}

// toldOf is when a problem was last warned of, and how often it was raised since.
type toldOf struct {
	at   time.Time
	more int
}

// speak reports whether a problem is to be warned of now, and how often it was
// raised without a warning since the last one.
func (h *hush) speak(p journal.Problem, now time.Time) (more int, ok bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	last, told := h.told[p]
	if told && now.Sub(last.at) < hushFor {
		last.more++
		h.told[p] = last
		return 0, false
	}
	if h.told == nil {
		h.told = map[journal.Problem]toldOf{}
	}
	h.told[p] = toldOf{at: now}
	return last.more, true
}

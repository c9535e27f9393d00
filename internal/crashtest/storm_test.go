package crashtest

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"hash/fnv"
	"maps"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"text/tabwriter"
	"time"

	"counterfoil/internal/crashpoint"
)

const (
	// stormAgents is how many agents call at once.
	stormAgents = 12
	// stormEvents bounds how many answers and effects go by between two kills.
	stormEvents = 80
	// sharedBy is about how many agents send each of the calls that they share.
	sharedBy = 4
)

// TestStorm kills the sidecar at random moments while agents call, and then asks
// for every call once more. It prints its seed, which repeats calls, mishaps and
// the choice of moments; not how threads take turns.
func TestStorm(t *testing.T) {
	seed := drawn(t)
	t.Logf("-crash.kills=%d", *killsFlag)
	b := newBench(t)
	transport := &http.Transport{MaxIdleConnsPerHost: stormAgents}
	b.client = &http.Client{Transport: transport}
	t.Cleanup(transport.CloseIdleConnections)
	st := &storm{
		bench: b, seed: seed, events: make(chan struct{}, 1<<16), stop: make(chan struct{}),
		changed: make(chan struct{}), lives: map[call]*life{}, outcomes: map[string]map[string]int{},
	}
	b.provider.befalls(st.weather)
	b.provider.watch = func(string) { st.pulse() }

	st.enter(b.released())
	var agents sync.WaitGroup
	for n := range stormAgents {
		agents.Go(func() { st.agent(n) })
	}
	for range *killsFlag {
		st.kill()
	}
	close(st.stop)
	agents.Wait()
	st.audit()
	st.report()
}

// A storm is what agents, killer and auditor share.
type storm struct {
	*bench
	seed   uint64
	events chan struct{}
	stop   chan struct{}

	mu       sync.Mutex
	current  *sidecar
	changed  chan struct{} // closed when current changes
	killer   *rand.Rand
	lives    map[call]*life
	shared   int
	outcomes map[string]map[string]int // by kind and outcome
	restarts []time.Duration
	ownPoint int
}

// A life is what agents were told about one call. A call of which nothing was
// told is perhaps made.
type life struct {
	// answer is the digest of the first whole answer of the provider's, "" until
	// an agent has one.
	answer string
	// unknown says that an agent was told that nobody can tell.
	unknown bool
}

// pulse says that something happened.
func (st *storm) pulse() {
	select {
	case st.events <- struct{}{}:
	default:
	}
}

// weather decides what befalls a request, by seed, call and number alone.
func (st *storm) weather(name string, nth int) mishap {
	h := fnv.New64a()
	_, _ = fmt.Fprintf(h, "%d %s %d", st.seed, name, nth) // a hash takes everything
	switch n := rand.New(rand.NewPCG(h.Sum64(), 1)).IntN(100); {
	case nth > 3 || n >= 12:
		return mishap{}
	case n < 4:
		return mishap{cut: afterEffect}
	case n < 7:
		return mishap{cut: beforeEffect}
	case n < 10:
		return mishap{cut: midAnswer}
	default:
		return mishap{status: http.StatusInternalServerError}
	}
}

// agent makes calls until the storm is over: new ones, its own again, and some
// that others make too.
func (st *storm) agent(n int) {
	r := rand.New(rand.NewPCG(st.seed, uint64(n)))
	var mine []call
	for made := 0; !st.isOver(); made++ {
		switch dice := r.IntN(10); {
		case dice < 2 && len(mine) > 0:
			st.perform(mine[r.IntN(len(mine))])
		case dice < 4:
			st.perform(st.common())
		default:
			c := invent(r, fmt.Sprintf("agent-%d", n), fmt.Sprint(made))
			mine = append(mine, c)
			st.perform(c)
		}
	}
}

// invent makes up a call.
func invent(r *rand.Rand, run, id string) call {
	c := call{kind: [...]string{"none", "keyed", "lookup"}[r.IntN(3)], run: run, turn: fmt.Sprint(r.IntN(3)), id: id}
	switch dice := r.IntN(40); {
	case dice == 0:
		c.answer, c.bytes = "long", 1<<20+r.IntN(1<<20)
	case dice < 16:
		c.answer, c.bytes = "chunked", r.IntN(100<<10)
	case dice < 20:
		c.answer, c.bytes = "sse", r.IntN(100<<10)
	default:
		c.answer, c.bytes = "plain", r.IntN(4<<10)
	}
	return c
}

// common is a call that several agents make at about the same time.
func (st *storm) common() call {
	st.mu.Lock()
	defer st.mu.Unlock()
	st.shared++
	n := st.shared / sharedBy
	return invent(rand.New(rand.NewPCG(st.seed, uint64(1000+n))), "shared", fmt.Sprint(n))
}

func (st *storm) isOver() bool {
	select {
	case <-st.stop:
		return true
	default:
		return false
	}
}

// perform sends a call until it is final or unknown, through as many sidecars
// as that takes.
func (st *storm) perform(c call) {
	st.begins(c)
	for !st.isOver() {
		s := st.sidecar()
		if s == nil {
			return
		}
		r := s.send(c)
		if r.err != nil {
			continue
		}
		st.pulse()
		if st.note(c, r) {
			return
		}
	}
}

// begins makes the call one that will be audited, whether or not anybody ever
// gets an answer to it.
func (st *storm) begins(c call) {
	st.mu.Lock()
	defer st.mu.Unlock()
	if st.lives[c] == nil {
		st.lives[c] = &life{}
	}
}

// sidecar returns the one that serves, waiting for it if there is none; nil when
// the storm is over.
func (st *storm) sidecar() *sidecar {
	for {
		st.mu.Lock()
		s, changed := st.current, st.changed
		st.mu.Unlock()
		dead := s == nil
		if !dead {
			select {
			case <-s.done:
				dead = true
			default:
			}
		}
		if !dead {
			return s
		}
		select {
		case <-changed:
		case <-st.stop:
			return nil
		}
	}
}

// note holds a reply against what was said before, and reports whether it
// settles the call.
func (st *storm) note(c call, r reply) bool {
	st.mu.Lock()
	defer st.mu.Unlock()
	l := st.lives[c]
	st.count(c, r)
	switch r.problem() {
	case "":
		if l.unknown {
			st.Errorf("%s: first unknown, then answered, although nobody had decided: %s", c, r)
		}
		if l.answer != "" && l.answer != digest(r) {
			st.Errorf("%s: two different answers, the second one %s", c, r)
		}
		l.answer = digest(r)
		return true
	case "unknown-outcome":
		if l.answer != "" {
			st.Errorf("%s: first answered, then unknown", c)
		}
		l.unknown = true
		return true
	case "in-progress":
		return false
	default:
		st.Errorf("%s: %s", c, r)
		return true
	}
}

func (st *storm) count(c call, r reply) {
	if st.outcomes[c.kind] == nil {
		st.outcomes[c.kind] = map[string]int{}
	}
	st.outcomes[c.kind][r.outcome()]++
}

func digest(r reply) string {
	sum := sha256.Sum256([]byte(r.body))
	return fmt.Sprintf("%d %d %s", r.status, len(r.body), hex.EncodeToString(sum[:]))
}

// enter lets agents use a sidecar.
func (st *storm) enter(s *sidecar) {
	st.mu.Lock()
	defer st.mu.Unlock()
	st.current = s
	close(st.changed)
	st.changed = make(chan struct{})
}

// kill waits for a number of events and a moment, kills the sidecar, and starts
// the next, which in one life of three is to die at a point of its own.
func (st *storm) kill() {
	st.Helper()
	if st.killer == nil {
		st.killer = rand.New(rand.NewPCG(st.seed, 1<<32))
	}
	st.waitForEvents(1 + st.killer.IntN(stormEvents))
	moment := time.NewTimer(time.Duration(st.killer.IntN(3000)) * time.Microsecond)
	<-moment.C
	st.current.kill()
	point, nth, own := crashpoint.Points[st.killer.IntN(len(crashpoint.Points))], 1+st.killer.IntN(20), st.killer.IntN(3) == 0
	began := time.Now()
	var next *sidecar
	if own {
		next = st.doomed(point, nth)
	}
	if next == nil {
		began, next = time.Now(), st.bench.released()
	}
	st.restarts = append(st.restarts, time.Since(began))
	st.enter(next)
}

// doomed starts a sidecar that is to die at a point, and returns nil if it has
// done so while it went over the calls in doubt, before it served.
func (st *storm) doomed(point crashpoint.Point, nth int) *sidecar {
	st.Helper()
	s, line := st.launch(fmt.Sprintf("%s:%d", point, nth), programs.withPoints, "serve", "--announce")
	if line == "" {
		s.crashed()
		st.ownPoint++
		return nil
	}
	s.base = "http://" + line
	return s
}

// waitForEvents returns after n events, or when the sidecar has died by itself.
func (st *storm) waitForEvents(n int) {
	st.Helper()
	deadline := time.After(2 * patience)
	for range n {
		select {
		case <-st.events:
		case <-st.current.done:
			st.ownPoint++
			return
		case <-deadline:
			st.Fatalf("nothing has happened for %s", 2*patience)
		}
	}
}

// audit asks for every call once more, in fair weather.
func (st *storm) audit() {
	st.current.kill()
	st.provider.befalls(func(string, int) mishap { return mishap{} })
	s := st.bench.released()
	queue := make(chan call)
	var clerks sync.WaitGroup
	for range stormAgents {
		clerks.Go(func() {
			for c := range queue {
				st.auditOne(c, s.sendUntilSettled(c))
			}
		})
	}
	for _, c := range slices.SortedFunc(maps.Keys(st.lives), func(a, b call) int { return strings.Compare(a.String(), b.String()) }) {
		queue <- c
	}
	close(queue)
	clerks.Wait()
	for run := range st.runs() {
		var shown struct{ Totals map[string]int }
		s.get("/-/v1/runs/"+run, &shown)
		for state, n := range shown.Totals {
			if state != "succeeded" && state != "unknown" && n > 0 {
				st.Errorf("%s: %d calls are %s in the end", run, n, state)
			}
		}
	}
}

// sendUntilSettled asks again while the answer is to come back later: a resend
// that settled nothing is given a rest.
func (s *sidecar) sendUntilSettled(c call) reply {
	deadline := time.Now().Add(2 * patience)
	for {
		r := s.send(c)
		if r.problem() != "in-progress" || time.Now().After(deadline) {
			return r
		}
	}
}

func (st *storm) runs() map[string]bool {
	runs := map[string]bool{}
	for c := range st.lives {
		runs[c.run] = true
	}
	return runs
}

// auditOne holds what is said of a call in the end against what was said before
// and against the ledger.
func (st *storm) auditOne(c call, r reply) {
	st.mu.Lock()
	l := *st.lives[c]
	st.mu.Unlock()
	e := st.provider.effectOf(c.String())
	if e.count > 1 || len(e.keys) > 1 || c.kind == "none" && e.hits > 1 {
		st.Errorf("%s (%s): %d effects of %d requests under %d keys", c, c.kind, e.count, e.hits, len(e.keys))
	}
	switch {
	case r.problem() == "unknown-outcome":
		if l.answer != "" {
			st.Errorf("%s: an answer that an agent had is lost: %s", c, r)
		}
		if c.kind != "none" {
			st.Errorf("%s: unknown, although this provider can be asked or deduplicates", c)
		}
	case r.err != nil || r.problem() != "" || r.status != http.StatusCreated:
		st.Errorf("%s: neither final nor unknown: %s", c, r)
	case e.count != 1 || r.body != e.object:
		st.Errorf("%s: not what the ledger has, %d effects: %s", c, e.count, r)
	case l.unknown:
		st.Errorf("%s: was unknown and is answered, although nobody has decided: %s", c, r)
	case l.answer != "" && (l.answer != digest(r) || r.outcome() != "replayed"):
		st.Errorf("%s: not the answer that an agent had: %s", c, r)
	}
	st.note(c, r)
}

// report prints what the storm came to.
func (st *storm) report() {
	var out strings.Builder
	w := tabwriter.NewWriter(&out, 0, 0, 2, ' ', tabwriter.AlignRight)
	words := []string{"executed", "recovered", "replayed", "coalesced", "unknown", "refused"}
	_, _ = fmt.Fprintf(w, "provider\tcalls\tno effect\tone effect\tmore\t%s\t\n", strings.Join(words, "\t"))
	for _, kind := range []string{"none", "keyed", "lookup"} {
		var calls, effects [3]int
		for c := range st.lives {
			if c.kind == kind {
				calls[0]++
				effects[min(st.provider.effectOf(c.String()).count, 2)]++
			}
		}
		_, _ = fmt.Fprintf(w, "%s\t%d\t%d\t%d\t%d\t", kind, calls[0], effects[0], effects[1], effects[2])
		for _, word := range words {
			_, _ = fmt.Fprintf(w, "%d\t", st.outcomes[kind][word])
		}
		_, _ = fmt.Fprintln(w)
	}
	_ = w.Flush()
	slices.Sort(st.restarts)
	line := fmt.Sprintf("seed %d: %d kills, %d of them at a crash point", st.seed, len(st.restarts), st.ownPoint)
	if n := len(st.restarts); n > 0 {
		line += fmt.Sprintf("; from start to serving: median %s, longest %s", st.restarts[n/2].Round(time.Millisecond), st.restarts[n-1].Round(time.Millisecond))
	}
	st.Logf("%s\n%s", line, out.String())
}

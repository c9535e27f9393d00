package journal

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"counterfoil/classify"
	"counterfoil/keystore/storetest"

	"pgregory.net/rapid"
)

// A mishap is what befalls one try of a call.
type mishap uint8

const (
	noMishap mishap = iota
	// gone: the client gives up while the call is in flight.
	gone
	// broken: the answer's last write fails.
	broken
	// limited: the provider answers 429.
	limited
	// unreachable: not a byte leaves.
	unreachable
	// storeFails: a commit fails, or its acknowledgement is lost.
	storeFails
	storeForgets

	numMishaps
)

// A wish is one call of the model agent: what it asks for, and whether its
// provider refuses it for good.
type wish struct {
	content int
	refused bool
}

// An agent is a program without call ids: groups of calls, one group after
// another, the calls of a group in parallel. It starts from the beginning
// whenever it dies, tries a call again until it has a whole answer, and counts
// what it has wished for.
type agent struct {
	t           *rapid.T
	b           *bench
	groups      [][]wish
	incarnation uint64
	// answers are what each group got, sorted, when it was first whole.
	answers map[int][]string
	// mishaps are left to happen.
	mishaps int
	// rest lets time pass.
	rest func(time.Duration)
	// befall is what befalls the request that is sent next, and who sent it.
	befall mishap
	asking *client
	byKey  map[string]string
}

func content(n int) string { return fmt.Sprintf(`{"content":%d}`, n) }

// send is the provider. It knows a key again: a sidecar that dies before it has a
// receipt can go on, and two keys for one call would be two effects.
func (a *agent) send(p *provider, r *classify.Request) *classify.Response {
	switch a.befall {
	case unreachable:
		return unsent(p, r)
	case limited:
		return respond(429, "slow down")
	case gone:
		a.asking.gone.Store(true)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	key := r.Header.Value("Idempotency-Key")
	body, known := a.byKey[key]
	if !known {
		body = fmt.Sprintf(`{"id":%d}`, len(a.byKey))
		a.byKey[key] = body
	}
	if r.Target == "/refused" {
		return respond(400, body)
	}
	if !known {
		p.ledger[string(r.Body)]++
	}
	return respond(201, body)
}

// draw says what befalls the next try.
func (a *agent) draw() mishap {
	if a.mishaps == 0 {
		return noMishap
	}
	m := noMishap
	if rapid.Bool().Draw(a.t, "befalls") {
		m = mishap(rapid.IntRange(1, int(numMishaps)-1).Draw(a.t, "mishap"))
	}
	if m != noMishap {
		a.mishaps--
	}
	return m
}

// A try is a request under way.
type try struct {
	client *client
	reply  *Reply
	befall mishap
}

func (a *agent) begin(w wish) *try {
	c := &client{}
	x := counted(a.incarnation, c, content(w.content))
	if w.refused {
		x.Request.Target = "/refused"
	}
	t := &try{client: c, befall: a.draw()}
	a.befall, a.asking = t.befall, c
	switch t.befall {
	case storeFails, storeForgets:
		moment := storetest.BeforeDurable
		if t.befall == storeForgets {
			moment = storetest.AfterDurable
		}
		op := rapid.SampledFrom([]storetest.Op{storetest.Begin, storetest.Apply, storetest.Step}).Draw(a.t, "operation")
		a.b.disk.Fail(storetest.Fault{Op: op, Moment: moment})
	}
	t.reply = a.b.do(x)
	return t
}

// end gives the client its answer, and returns it if it is whole and final.
func (a *agent) end(t *try) (answer string, isWhole bool) {
	if t.befall == broken {
		if a.b.journal.Ending(context.Background(), t.reply) == nil {
			a.b.journal.Ended(t.reply, NotArrived)
			return "", false
		}
	}
	r := a.b.tell(t.reply, t.client)
	isWhole = t.client.alive() && r.Refusal == nil && (r.Status == 201 || r.Status == 400)
	return string(r.Bytes), isWhole
}

// act carries a group out.
func (a *agent) act(group int) {
	missing := slices.Clone(a.groups[group])
	var answers []string
	for range 50 {
		tries := make([]*try, len(missing))
		for i, w := range missing {
			tries[i] = a.begin(w)
		}
		var still []wish
		for _, i := range rapid.Permutation(indices(len(tries))).Draw(a.t, "order of ends") {
			if answer, isWhole := a.end(tries[i]); isWhole {
				answers = append(answers, answer)
			} else {
				still = append(still, missing[i])
			}
		}
		if missing = still; len(missing) == 0 {
			slices.Sort(answers)
			a.check(group, answers)
			return
		}
		a.rest(2 * time.Second) // as SDKs do
	}
	a.t.Fatalf("group %d never gets its answers: %v", group, missing)
}

func indices(n int) []int {
	list := make([]int, n)
	for i := range list {
		list[i] = i
	}
	return list
}

func (a *agent) check(group int, answers []string) {
	if before := a.answers[group]; before == nil {
		a.answers[group] = answers
	} else if !slices.Equal(before, answers) {
		a.t.Errorf("incarnation %d: group %d (%v) got %v, and before %v", a.incarnation, group, a.groups[group], answers, before)
	}
}

// live carries out the program up to a group where it dies, or to its end.
func (a *agent) live(groups int) {
	a.incarnation++
	for group := range groups {
		a.act(group)
		if rapid.IntRange(0, 9).Draw(a.t, "sidecar dies") == 0 {
			a.b.crash()
		}
	}
}

// die begins a group and leaves it.
func (a *agent) die(group int) {
	for _, w := range a.groups[group] {
		t := a.begin(w)
		if rapid.Bool().Draw(a.t, "answer comes") {
			a.end(t)
		} else {
			t.client.gone.Store(true)
			a.b.tell(t.reply, t.client)
		}
	}
	if rapid.Bool().Draw(a.t, "sidecar dies too") {
		a.b.crash()
	}
}

// An agent without call ids that repeats its steps gets what it wished for, each
// wish once, whatever breaks: the provider's ledger is what the agent counts, and
// every incarnation sees the same answers.
func TestOrdinal_TheLedgerIsWhatTheAgentCounts(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		var stopped any
		synctest.Test(t, func(t *testing.T) {
			defer func() { stopped = recover() }() // rapid wants its own goroutine
			checkLedger(t, rt, func(d time.Duration) { time.Sleep(d) })
		})
		if stopped != nil {
			panic(stopped)
		}
	})
}

func checkLedger(t *testing.T, rt *rapid.T, rest func(time.Duration)) {
	t.Helper()
	aWish := rapid.Custom(func(t *rapid.T) wish {
		return wish{rapid.IntRange(0, 2).Draw(t, "content"), rapid.IntRange(0, 4).Draw(t, "refused") == 0}
	})
	a := &agent{t: rt, answers: map[int][]string{}, byKey: map[string]string{}, mishaps: 20, rest: rest}
	a.groups = rapid.SliceOfN(rapid.SliceOfN(aWish, 1, 3), 1, 5).Draw(rt, "groups")
	a.b = newBench(t, newProvider(a.send), keyedOperation)
	for range rapid.IntRange(0, 3).Draw(rt, "deaths") {
		where := rapid.IntRange(0, len(a.groups)-1).Draw(rt, "dies at")
		a.live(where)
		a.die(where)
	}
	a.mishaps = 0
	a.live(len(a.groups))
	a.rest(time.Minute)
	a.b.idle()
	want := map[string]int{}
	for _, w := range slices.Concat(a.groups...) {
		if !w.refused {
			want[content(w.content)]++
		}
	}
	if !maps.Equal(a.b.provider.ledger, want) {
		rt.Errorf("the ledger has %v, the agent counts %v: %v", a.b.provider.ledger, want, a.groups)
	}
}

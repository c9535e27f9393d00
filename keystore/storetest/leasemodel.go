package storetest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"counterfoil/classify"
	"counterfoil/keystore"
)

// A LeaseInput is what is asked of the lease of one run, or what happens to it.
type LeaseInput struct {
	// Kind is acquire, renew, release, read, begin (an effect under Fence), over (the
	// TTL has passed), or open (the store was opened, as Epoch).
	Kind  string
	Owner string         `json:",omitempty"`
	Fence keystore.Fence `json:",omitempty"`
	// Inherit says that an acquire may end the owner's lease of a dead epoch.
	Inherit bool           `json:",omitempty"`
	Epoch   keystore.Epoch `json:",omitempty"`
}

// A LeaseOutput is what came of it.
type LeaseOutput struct {
	// Lost says that there was no answer: it may have happened, or not.
	Lost bool `json:",omitempty"`
	// Refused names the reason of a refusal.
	Refused string         `json:",omitempty"`
	Fence   keystore.Fence `json:",omitempty"`
	Held    bool           `json:",omitempty"`
}

// A LeaseNote is the start of an operation, with its input, or its end. Notes are
// in the order in which they were made.
type LeaseNote struct {
	ID, Client int
	In         *LeaseInput  `json:",omitempty"`
	Out        *LeaseOutput `json:",omitempty"`
}

// A leaseState is what the model of a lease knows.
type leaseState struct {
	fence keystore.Fence
	owner string
	epoch keystore.Epoch
	// held, and neither: over.
	held, released bool
}

// leaseModel is one run's lease. An operation without an answer may have happened
// at any time from its start on, or not at all.
func leaseModel() porcupine.Model {
	return (&porcupine.NondeterministicModel{
		Init: func() []any { return []any{leaseState{}} },
		Step: func(state, input, output any) []any {
			s, in, out := state.(leaseState), input.(LeaseInput), output.(LeaseOutput)
			next, want := s.after(in)
			if out.Lost {
				return []any{s, next}
			}
			if out != want {
				return nil
			}
			return []any{next}
		},
		DescribeOperation: func(in, out any) string { return fmt.Sprintf("%+v: %+v", in, out) },
		DescribeState:     func(s any) string { return fmt.Sprintf("%+v", s) },
	}).ToModel()
}

// after says what an operation must come to.
func (s leaseState) after(in LeaseInput) (leaseState, LeaseOutput) {
	refused := func(r keystore.Reason) (leaseState, LeaseOutput) {
		return s, LeaseOutput{Refused: r.String(), Fence: s.fence}
	}
	switch in.Kind {
	case "acquire":
		if s.held && !(in.Inherit && s.owner == in.Owner && s.epoch < in.Epoch) {
			return refused(keystore.LeaseHeld)
		}
		next := leaseState{fence: s.fence + 1, owner: in.Owner, epoch: in.Epoch, held: true}
		return next, LeaseOutput{Fence: next.fence, Held: true}
	case "renew":
		if in.Fence != s.fence || !s.held {
			return refused(keystore.Fenced)
		}
		s.epoch = in.Epoch
		return s, LeaseOutput{Fence: s.fence, Held: true}
	case "release":
		if in.Fence == 0 || in.Fence != s.fence {
			return refused(keystore.Fenced)
		}
		s.held, s.released = false, true
		return s, LeaseOutput{}
	case "begin":
		switch {
		case s.fence == 0 && in.Fence == 0:
		case in.Fence == 0:
			return s, LeaseOutput{Refused: keystore.FenceRequired.String()}
		case in.Fence != s.fence || s.released:
			return s, LeaseOutput{Refused: keystore.Fenced.String()}
		}
		return s, LeaseOutput{}
	case "over":
		s.held = false
		return s, LeaseOutput{}
	case "open":
		s.held = s.fence != 0 && !s.released // nobody can tell how much of it is left
		return s, LeaseOutput{}
	}
	return s, LeaseOutput{Fence: s.fence, Held: s.held}
}

// leasePatience bounds the check of one history.
const leasePatience = 30 * time.Second

// CheckLeases fails t if no order of the operations explains what came of them. It
// leaves the history and a picture of it behind.
func CheckLeases(t *testing.T, notes []LeaseNote) {
	t.Helper()
	model := leaseModel()
	result, info := porcupine.CheckEventsVerbose(model, leaseEvents(notes), leasePatience)
	if result == porcupine.Ok {
		return
	}
	dir, dirErr := os.MkdirTemp("", "counterfoil-leases-") //nolint:usetesting // it is looked at after the test
	picture := filepath.Join(dir, "leases.html")
	if err := errors.Join(dirErr, porcupine.VisualizePath(model, info, picture)); err != nil {
		t.Errorf("drawing the history: %v", err)
	}
	for _, n := range notes {
		t.Logf("%d client %d: %+v %+v", n.ID, n.Client, n.In, n.Out)
	}
	t.Fatalf("the history is not linearizable (%s); a picture of it is in %s", result, picture)
}

// leaseEvents closes what has no answer at the end.
func leaseEvents(notes []LeaseNote) []porcupine.Event {
	var events []porcupine.Event
	open := map[int]int{}
	for _, n := range notes {
		if n.In != nil {
			open[n.ID] = n.Client
			events = append(events, porcupine.Event{ClientId: n.Client, Kind: porcupine.CallEvent, Value: *n.In, Id: n.ID})
			continue
		}
		if n.Out.Lost {
			continue
		}
		delete(open, n.ID)
		events = append(events, porcupine.Event{ClientId: n.Client, Kind: porcupine.ReturnEvent, Value: *n.Out, Id: n.ID})
	}
	for id, client := range open {
		events = append(events, porcupine.Event{ClientId: client, Kind: porcupine.ReturnEvent, Value: LeaseOutput{Lost: true}, Id: id})
	}
	return events
}

// A LeaseLog numbers operations and passes notes on, one at a time and before the
// operation goes on.
type LeaseLog struct {
	mu     sync.Mutex
	nextID int
	say    func(LeaseNote)
}

// NewLeaseLog returns a log whose operations are numbered from first on.
func NewLeaseLog(first int, say func(LeaseNote)) *LeaseLog { return &LeaseLog{nextID: first, say: say} }

func (l *LeaseLog) start(client int, in LeaseInput) (id int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	id = l.nextID
	l.nextID++
	l.say(LeaseNote{ID: id, Client: client, In: &in})
	return id
}

func (l *LeaseLog) end(client, id int, out LeaseOutput) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.say(LeaseNote{ID: id, Client: client, Out: &out})
}

// Happened notes what nobody else did anything beside.
func (l *LeaseLog) Happened(in LeaseInput) { l.end(0, l.start(0, in), LeaseOutput{}) }

// A LeaseClient asks for what there is to ask of the lease of one run.
type LeaseClient struct {
	Store  keystore.Store
	Log    *LeaseLog
	Random *rand.Rand
	Run    string
	// Number tells clients apart; it is not 0.
	Number int
	// Life makes the names of calls differ from those of earlier clients.
	Life string
	// Fence is the newest that it knows.
	Fence keystore.Fence
	calls int
}

// Act makes one operation, and reports whether there was an answer.
func (c *LeaseClient) Act() bool {
	in := c.input()
	in.Epoch = c.Store.Facts().Epoch
	id := c.Log.start(c.Number, in)
	out := c.do(in)
	c.Log.end(c.Number, id, out)
	c.Fence = max(c.Fence, out.Fence)
	return !out.Lost
}

func (c *LeaseClient) input() LeaseInput {
	in := LeaseInput{Owner: fmt.Sprint("w", c.Number%3), Fence: c.Fence}
	if c.Random.IntN(4) == 0 && in.Fence > 0 {
		in.Fence--
	}
	switch c.Random.IntN(9) {
	case 0, 1:
		return LeaseInput{Kind: "acquire", Owner: in.Owner, Inherit: c.Random.IntN(2) == 0}
	case 2:
		return LeaseInput{Kind: "renew", Fence: in.Fence}
	case 3, 4:
		return LeaseInput{Kind: "release", Fence: in.Fence}
	case 5:
		return LeaseInput{Kind: "read"}
	}
	return LeaseInput{Kind: "begin", Fence: in.Fence}
}

func (c *LeaseClient) do(in LeaseInput) LeaseOutput {
	ctx := context.Background()
	var g keystore.Grant
	var err error
	switch in.Kind {
	case "acquire":
		q := &keystore.LeaseRequest{Namespace: "default", Run: c.Run, Owner: in.Owner, TTL: keystore.LeaseTTLMax}
		if in.Inherit {
			q.From = keystore.FromOwnEarlierLife
		}
		g, err = c.Store.AcquireLease(ctx, q)
	case "renew":
		g, err = c.Store.RenewLease(ctx, "default", c.Run, in.Fence, 0)
	case "release":
		err = c.Store.ReleaseLease(ctx, "default", c.Run, in.Fence)
	case "begin":
		return c.begin(in)
	default:
		g, err = c.Store.Lease(ctx, "default", c.Run)
	}
	return leaseOutput(in, g, err)
}

func leaseOutput(in LeaseInput, g keystore.Grant, err error) LeaseOutput {
	refused, isRefused := errors.AsType[*keystore.Refused](err)
	switch {
	case isRefused:
		return LeaseOutput{Refused: refused.Reason.String(), Fence: refused.Fence}
	case errors.Is(err, keystore.ErrNotFound) && (in.Kind == "renew" || in.Kind == "release"):
		return LeaseOutput{Refused: keystore.Fenced.String()} // no run: no lease
	case errors.Is(err, keystore.ErrNotFound):
		return LeaseOutput{}
	case err != nil:
		return LeaseOutput{Lost: true}
	}
	return LeaseOutput{Fence: g.Fence, Held: g.Left > 0}
}

func (c *LeaseClient) begin(in LeaseInput) LeaseOutput {
	c.calls++
	a, err := c.Store.Begin(context.Background(), &keystore.Request{Beginning: keystore.Beginning{
		Key:   keystore.Key{Namespace: "default", Run: c.Run, Turn: c.Life, Call: fmt.Sprintf("%d-%d", c.Number, c.calls)},
		Class: classify.Effect, Fingerprint: classify.Fingerprint{1}, Epoch: in.Epoch, Fence: in.Fence,
	}}, nil)
	switch {
	case err != nil:
		return LeaseOutput{Lost: true}
	case a.Verdict.Action == keystore.Stop:
		return LeaseOutput{Refused: a.Verdict.Reason.String()}
	}
	return LeaseOutput{}
}

// leaseLives is how many lives of a store one history has, leaseRounds in how many
// rounds of it leases run out in between.
const (
	leaseLives  = 3
	leaseRounds = 3
	leaseActs   = 8
)

// testLeasesLinearizable runs clients against one lease through expiries and
// crashes.
func testLeasesLinearizable(b *trial) {
	for seed := range uint64(4) {
		b.Logf("seed %d", seed)
		CheckLeases(b.T, b.leaseHistory(seed, func() {}))
	}
}

// leaseHistory makes a history of a run's lease; before is called before each life
// of the store.
func (b *trial) leaseHistory(seed uint64, before func()) []LeaseNote {
	var notes []LeaseNote
	log := NewLeaseLog(0, func(n LeaseNote) { notes = append(notes, n) })
	clients := make([]*LeaseClient, 5)
	for i := range clients {
		clients[i] = &LeaseClient{Log: log, Random: rand.New(rand.NewPCG(seed, uint64(i))), Run: fmt.Sprint("leased ", seed), Number: i + 1}
	}
	for life := range leaseLives {
		before()
		for round := range leaseRounds {
			b.actTogether(clients, fmt.Sprintf("%d-%d", seed, life))
			if round < leaseRounds-1 || life == 0 {
				b.clock.Advance(keystore.LeaseTTLMax)
				log.Happened(LeaseInput{Kind: "over"})
			}
		}
		b.crash()
		log.Happened(LeaseInput{Kind: "open"})
	}
	return notes
}

func (b *trial) actTogether(clients []*LeaseClient, life string) {
	var group sync.WaitGroup
	for _, c := range clients {
		c.Store, c.Life = b.store, life
		group.Go(func() {
			for range leaseActs {
				if !c.Act() {
					return
				}
			}
		})
	}
	group.Wait()
}

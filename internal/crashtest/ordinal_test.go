package crashtest

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"testing"
	"time"

	"counterfoil/internal/crashpoint"
)

// body is the order of a call, as it goes to the provider.
func (c call) body() string {
	b, err := json.Marshal(order{Call: c.String(), Bytes: c.bytes})
	if err != nil {
		panic(err) // an order always marshals
	}
	return string(b)
}

// withID is the leg of a call that has an id.
func (c call) withID() leg {
	return leg{Target: "/" + c.kind + "/things?answer=" + c.answer, Body: c.body(), Fields: []string{
		"Counterfoil-Run: " + c.run, "Counterfoil-Turn: " + c.turn, "Counterfoil-Call: " + c.id,
	}}
}

// ordinal is the leg of a call of which its agent says nothing but which of its
// lives this is.
func (c call) ordinal(incarnation int) leg {
	return leg{Target: fmt.Sprintf("/@%s;i=%d/%s/things?answer=%s", c.run, incarnation, c.kind, c.answer), Body: c.body()}
}

// TestC03_KilledInMidTurn: the agent is killed after the answer to the second of
// three calls, and repeats the turn from the first; in every second round the
// sidecar is killed too.
func TestC03_KilledInMidTurn(t *testing.T) {
	for form, legOf := range map[string]func(c call, incarnation int) leg{
		"with ids": func(c call, _ int) leg { return c.withID() },
		"ordinal":  call.ordinal,
	} {
		t.Run(form, func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			s := b.released()
			for round := range *rounds {
				turn := make([]call, 3)
				for i := range turn {
					turn[i] = call{kind: "none", run: fmt.Sprint("round-", round), turn: "1", id: fmt.Sprint(i + 1), answer: "plain", bytes: 500}
				}
				legs := func(incarnation int) (list []leg) {
					for _, c := range turn {
						list = append(list, legOf(c, incarnation))
					}
					return list
				}
				a := s.agent(legs(1))
				var before []account
				for i := range 2 {
					got, ok := a.answer()
					if !ok {
						t.Fatal("the agent died")
					}
					if before = append(before, got); i == 0 {
						a.goOn()
					}
				}
				a.kill()
				if round%2 == 1 {
					s.kill()
					s = b.released()
				}
				after := s.agent(legs(2)).whole(3)
				for i, want := range []string{"replayed", "replayed", "executed"} {
					e := b.provider.effectOf(turn[i].String())
					if e.count != 1 || e.hits != 1 || after[i].Outcome != want || after[i].Status != http.StatusCreated || after[i].Body != e.object {
						t.Errorf("round %d, call %d: %d effects of %d requests, %d %s", round, i+1, e.count, e.hits, after[i].Status, after[i].Outcome)
					}
					if i < 2 && (before[i].Body != after[i].Body || before[i].Outcome != "executed") {
						t.Errorf("round %d, call %d: %+v and then %+v", round, i+1, before[i], after[i])
					}
				}
				if t.Failed() {
					return
				}
			}
		})
	}
}

// TestOrdinal_KilledAtRandomMoments: an agent without call ids, in a process of
// its own, is killed at random moments and begins again as the next incarnation;
// from time to time the sidecar is killed with it. Two of its calls are equal to
// two others. Every call has its effect once.
func TestOrdinal_KilledAtRandomMoments(t *testing.T) {
	for _, kind := range []string{"keyed", "lookup"} {
		for _, answer := range []string{"plain", "chunked"} {
			t.Run(kind+"/"+answer, func(t *testing.T) {
				t.Parallel()
				seed := drawn(t)
				random := rand.New(rand.NewPCG(seed, 1))
				b := newBench(t)
				// An agent's program: a, b, a, c, b, d.
				names := []string{"a", "b", "a", "c", "b", "d"}
				counts := map[string]int{"a": 2, "b": 2, "c": 1, "d": 1}
				legs := func(incarnation int) (list []leg) {
					for _, name := range names {
						list = append(list, call{kind: kind, run: "run-1", turn: "-", id: name, answer: answer, bytes: 20 << 10}.ordinal(incarnation))
					}
					return list
				}
				s := b.released()
				seen := make([]string, len(names))
				for incarnation := 1; incarnation <= *killsFlag; incarnation++ {
					a := s.agent(legs(incarnation))
					whole := random.IntN(len(names))
					for i := range whole {
						got, ok := a.answer()
						if !ok {
							t.Fatal("the agent died")
						}
						keep(t, seen, i, got)
						a.goOn()
					}
					pause(time.Duration(random.Int64N(int64(15 * time.Millisecond))))
					a.kill()
					if random.IntN(4) == 0 {
						s.kill()
						s = b.released()
					}
				}
				for i, got := range s.agent(legs(*killsFlag + 1)).whole(len(names)) {
					keep(t, seen, i, got)
				}
				for name, want := range counts {
					if e := b.provider.effectOf("run-1:-:" + name); e.count != want {
						t.Errorf("%s: %d effects of %d requests, want %d", name, e.count, e.hits, want)
					}
				}
				if seen[0] == seen[2] || seen[1] == seen[4] {
					t.Error("equal calls share an answer")
				}
			})
		}
	}
}

// pause lets a random moment come: there is nothing to wait for.
func pause(d time.Duration) { <-time.After(d) }

// keep checks that an answer is the one that was seen before.
func keep(t *testing.T, seen []string, i int, got account) {
	t.Helper()
	if got.Status != http.StatusCreated || seen[i] != "" && seen[i] != got.Body {
		t.Errorf("call %d: %d %s, another answer than before", i, got.Status, got.Outcome)
	}
	seen[i] = got.Body
}

// post sends a leg.
func (s *sidecar) post(l leg, fields ...string) reply {
	s.Helper()
	req, err := http.NewRequest(http.MethodPost, s.base+l.Target, strings.NewReader(l.Body))
	if err != nil {
		s.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	for i := 0; i < len(fields); i += 2 {
		req.Header.Set(fields[i], fields[i+1])
	}
	return do(s.client, req)
}

// An ordinalScene is a crash of the sidecar, before an agent without call ids that
// lives on and sends the same request again.
type ordinalScene struct {
	point crashpoint.Point
	// incarnation 2 repeats a call of an earlier one.
	incarnation int
	answer      string
	// counted is how the repeat is taken where nothing ties it to the first:
	// whether the answer's end was taken to be out.
	counted bool
}

var ordinalScenes = []ordinalScene{
	{crashpoint.BeginAfter, 1, "plain", false},
	{crashpoint.SendAfter, 1, "plain", false},
	{crashpoint.FinishBefore, 1, "plain", false},
	// The answer is short or has streamed: its receipt and the position are one
	// commit.
	{crashpoint.FinishAfter, 1, "short", true},
	{crashpoint.ReplyBefore, 1, "short", true},
	{crashpoint.FinishAfter, 1, "chunked", true},
	{crashpoint.ReplyBefore, 1, "long", true},
	// It is longer than one write.
	{crashpoint.FinishAfter, 1, "plain", false},
	{crashpoint.StepBefore, 1, "plain", false},
	{crashpoint.StepAfter, 1, "plain", true},
	// It comes from the journal.
	{crashpoint.ReplyBefore, 2, "short", false},
	{crashpoint.StepBefore, 2, "short", false},
	{crashpoint.StepAfter, 2, "short", true},
	{crashpoint.StepBefore, 2, "long", false},
	{crashpoint.StepAfter, 2, "long", true},
}

// TestOrdinal_SidecarKilledWithTheAgentAlive: what ties an SDK's tries together
// makes the repeat the same call, wherever the crash fell. Without that it is the
// same call up to the commit that says that the agent gets the answer, and a second
// one from there on: docs/guarantees.md says so.
func TestOrdinal_SidecarKilledWithTheAgentAlive(t *testing.T) {
	for _, s := range ordinalScenes {
		for tie, fields := range map[string][2][]string{
			"no tie":       {},
			"invented key": {{"Idempotency-Key", "stainless-node-retry-1"}, {"Idempotency-Key", "stainless-node-retry-1"}},
			"retry count":  {{"X-Stainless-Retry-Count", "0"}, {"X-Stainless-Retry-Count", "1"}},
		} {
			t.Run(fmt.Sprintf("%s/%d/%s/%s", s.point, s.incarnation, s.answer, tie), func(t *testing.T) {
				t.Parallel()
				s.play(t, fields, s.counted && tie == "no tie")
			})
		}
	}
}

func (s ordinalScene) play(t *testing.T, fields [2][]string, isSecond bool) {
	t.Helper()
	b := newBench(t)
	c := things("keyed", s.answer)
	if s.answer == "short" {
		c.answer, c.bytes = "plain", 500
	}
	if s.incarnation == 2 {
		r := b.released()
		if got := r.post(c.ordinal(1)); got.outcome() != "executed" {
			t.Fatal(got)
		}
		r.kill()
	}
	doomed := b.crashing(string(s.point), 1)
	if r := doomed.post(c.ordinal(s.incarnation), fields[0]...); r.err == nil {
		t.Fatalf("the agent of a sidecar that died at %s was told: %s", s.point, r)
	}
	doomed.crashed()
	heir := b.released()
	r := heir.post(c.ordinal(s.incarnation), fields[1]...)
	want, outcome := 1, "a repeat"
	if isSecond {
		want, outcome = 2, "executed"
	}
	isRepeat := r.outcome() == "replayed" || r.outcome() == "recovered"
	if e := b.provider.effectOf(c.String()); e.count != want || r.err != nil || isRepeat == isSecond {
		t.Errorf("%d effects of %d requests, want %d and %s: %s", e.count, e.hits, want, outcome, r)
	}
}

// TestOrdinal_KilledAfterTheAnswerWasRead: the sidecar dies when the agent has its
// answer. An equal call of the same incarnation is a second call, and one of the
// next incarnation is not.
func TestOrdinal_KilledAfterTheAnswerWasRead(t *testing.T) {
	for _, answer := range []string{"short", "plain", "chunked", "long"} {
		t.Run(answer, func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			c := things("none", answer)
			if answer == "short" {
				c.answer, c.bytes = "plain", 500
			}
			s := b.released()
			first := s.post(c.ordinal(1))
			s.kill()
			s = b.released()
			second := s.post(c.ordinal(1))
			if first.outcome() != "executed" || second.outcome() != "executed" || first.body == second.body {
				t.Errorf("%s, then %s", first, second)
			}
			s.kill()
			s = b.released()
			for i, want := range []reply{first, second} {
				got := s.post(c.ordinal(2))
				if got.outcome() != "replayed" {
					t.Errorf("repeat %d: %s", i, got)
				}
				sameAnswer(t, want, got)
			}
			if e := b.provider.effectOf(c.String()); e.count != 2 || e.hits != 2 {
				t.Errorf("%d effects of %d requests", e.count, e.hits)
			}
		})
	}
}

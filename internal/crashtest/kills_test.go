package crashtest

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"
)

// afterKill is how a call is answered whose effect had happened, and whose
// answer had not arrived, when its sidecar was killed.
var afterKill = effectMade

// held starts a call whose answer the provider keeps back after the effect, and
// returns when the effect is there.
func (s *sidecar) held(c call) (answered <-chan reply, release func()) {
	s.Helper()
	hold := make(chan struct{})
	s.provider.befalls(first(mishap{hold: hold}))
	effects := s.provider.effects()
	answered = s.sendAway(c)
	await(s.T, "the effect", effects)
	s.provider.befalls(first(mishap{}))
	return answered, onceClose(s.T, hold)
}

// onceClose closes ch when called, and at the end of the test at the latest.
func onceClose(t *testing.T, ch chan struct{}) func() {
	t.Helper()
	closed := false
	f := func() {
		if !closed {
			closed = true
			close(ch)
		}
	}
	t.Cleanup(f)
	return f
}

// TestC40_ThreeStatesThreeCodes: after a crash, a call that was in flight is
// unknown and not "in progress" for ever; finished, in flight and unknown are
// told apart by machine.
func TestC40_ThreeStatesThreeCodes(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	finished, lost, flying := things("none", "plain"), things("none", "plain"), things("none", "plain")
	finished.id, lost.id, flying.id = "finished", "lost", "flying"

	s := b.released()
	before := s.send(finished)
	answered, release := s.held(lost)
	s.kill()
	release()
	if r := await(t, "the agent's end", answered); r.err == nil {
		t.Fatalf("a killed sidecar answered %s", r)
	}

	began := time.Now()
	s = b.released()
	for range 5 {
		checkVerdict(t, b.provider, lost, s.send(lost), verdict{"unknown", 1, 1})
	}
	if took := time.Since(began); took > 5*time.Second {
		t.Errorf("it took %s from the restart to know that the call is unknown", took)
	}
	again := s.send(finished)
	if again.outcome() != "replayed" || again.problem() != "" {
		t.Errorf("the finished call: %s", again)
	}
	sameAnswer(t, before, again)
	answered, release = s.held(flying)
	r := s.send(flying, "Prefer", "wait=0")
	if r.status != http.StatusConflict || r.problem() != "in-progress" || r.header.Get("Retry-After") == "" {
		t.Errorf("the call in flight: %s %v", r, r.header)
	}
	release()
	checkVerdict(t, b.provider, flying, await(t, "the answer", answered), verdict{"executed", 1, 1})
}

// TestKillWhileTheProviderHoldsItsAnswer is the story of the demo, for each kind
// of provider.
func TestKillWhileTheProviderHoldsItsAnswer(t *testing.T) {
	for kind, want := range afterKill {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			s := b.released()
			answered, release := s.held(things(kind, "plain"))
			s.kill()
			release()
			if r := await(t, "the agent's end", answered); r.err == nil {
				t.Fatalf("a killed sidecar answered %s", r)
			}
			s = b.released()
			r := s.ask(things(kind, "plain"))
			checkVerdict(t, b.provider, things(kind, "plain"), r, want)
			checkRepeat(t, s, things(kind, "plain"), r)
		})
	}
}

// TestKillWhileStreaming: the agent has the first piece; it must not take what
// it has for the whole.
func TestKillWhileStreaming(t *testing.T) {
	for kind, want := range afterKill {
		for _, answer := range []string{"chunked", "sse", "long"} {
			t.Run(kind+"/"+answer, func(t *testing.T) {
				t.Parallel()
				b := newBench(t)
				hold := make(chan struct{})
				release := onceClose(t, hold)
				b.provider.befalls(first(mishap{holdMid: hold}))
				c := things(kind, answer)
				s := b.released()
				ctx, cancel := context.WithTimeout(t.Context(), patience)
				defer cancel()
				resp, err := b.client.Do(c.request(ctx, s.base))
				if err != nil {
					t.Fatal(err)
				}
				defer resp.Body.Close()
				if _, err := io.ReadFull(resp.Body, make([]byte, pieceBytes)); err != nil {
					t.Fatal("the first piece was not passed on:", err)
				}
				s.kill()
				release()
				if _, err := io.ReadAll(resp.Body); err == nil {
					t.Error("a stream that was killed ended cleanly")
				}

				s = b.released()
				r := s.ask(c)
				checkVerdict(t, b.provider, c, r, want)
				checkRepeat(t, s, c, r)
			})
		}
	}
}

// TestProviderDiesWhileStreaming: the sidecar lives. The agent's connection is
// broken off too, and the call is in doubt until recovery has settled it.
func TestProviderDiesWhileStreaming(t *testing.T) {
	for kind, want := range afterKill {
		for _, answer := range []string{"chunked", "sse", "long"} {
			t.Run(kind+"/"+answer, func(t *testing.T) {
				t.Parallel()
				b := newBench(t)
				b.provider.befalls(first(mishap{cut: midAnswer}))
				c := things(kind, answer)
				s := b.released()
				if r := s.send(c); r.err == nil {
					t.Errorf("half an answer was passed off as a whole one: %s", r)
				}
				r := s.ask(c)
				checkVerdict(t, b.provider, c, r, want)
				s.kill()
				checkRepeat(t, b.released(), c, r)
			})
		}
	}
}

// TestKillAfterTheAgentHasGone: nobody waits for the answer any more; the call is
// looked after none the less.
func TestKillAfterTheAgentHasGone(t *testing.T) {
	for kind, want := range afterKill {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			hold := make(chan struct{})
			release := onceClose(t, hold)
			b.provider.befalls(first(mishap{hold: hold}))
			effects := b.provider.effects()
			s, c := b.released(), things(kind, "plain")
			ctx, hangUp := context.WithCancel(t.Context())
			gone := make(chan reply, 1)
			go func() { gone <- s.sendWithin(ctx, c) }()
			await(t, "the effect", effects)
			hangUp()
			await(t, "the agent to go", gone)
			s.kill()
			release()

			s = b.released()
			r := s.ask(c)
			checkVerdict(t, b.provider, c, r, want)
			checkRepeat(t, s, c, r)
		})
	}
}

// TestDrainKeepsReceipts: on SIGTERM what is in flight gets its receipt and its
// answer, what is new gets 503 and is not sent, and the exit is clean.
func TestDrainKeepsReceipts(t *testing.T) {
	for _, answer := range []string{"plain", "chunked"} {
		t.Run(answer, func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			s, c := b.released(), things("none", answer)
			answered, release := s.held(c)
			s.terminate()
			refused := s.untilDraining()
			release()
			r := await(t, "the answer of the call in flight", answered)
			checkVerdict(t, b.provider, c, r, verdict{"executed", 1, 1})
			if code := s.ended(); code != 0 {
				t.Errorf("exit code %d after a clean drain:\n%s", code, s.stderr)
			}

			s = b.released()
			checkRepeat(t, s, c, r)
			if e := b.provider.effectOf(refused.String()); e.hits != 0 {
				t.Errorf("the call refused while draining was sent %d times", e.hits)
			}
			checkVerdict(t, b.provider, refused, s.send(refused), verdict{"executed", 1, 1})
		})
	}
}

// untilDraining sends new calls until one is refused, and returns that one.
func (s *sidecar) untilDraining() call {
	s.Helper()
	deadline := time.Now().Add(patience)
	for n := 0; time.Now().Before(deadline); n++ {
		c := things("none", "plain")
		c.run, c.id = "run-late", fmt.Sprint(n)
		r := s.send(c)
		switch {
		case r.problem() == "draining" && r.status == http.StatusServiceUnavailable && r.header.Get("Retry-After") != "":
			return c
		case r.outcome() != "executed":
			s.Fatalf("while draining: %s", r)
		}
	}
	s.Fatal("the sidecar never began to drain")
	return call{}
}

// TestDrainIsBounded: a provider that never answers does not hold up the end.
func TestDrainIsBounded(t *testing.T) {
	for kind, want := range afterKill {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			b.env = []string{"COUNTERFOIL_DRAIN=300ms"}
			s, c := b.released(), things(kind, "plain")
			answered, release := s.held(c)
			began := time.Now()
			s.terminate()
			if code := s.ended(); code != 0 {
				t.Errorf("exit code %d:\n%s", code, s.stderr)
			}
			if took := time.Since(began); took > 5*time.Second {
				t.Errorf("the end took %s, with 300 ms to drain", took)
			}
			if text := s.stderr.String(); strings.Contains(text, "level=ERROR") || !strings.Contains(text, "cut off") {
				t.Errorf("our own end is logged as a fault, or not what it cut off:\n%s", text)
			}
			release()
			if r := await(t, "the agent's end", answered); r.err != nil || r.status != http.StatusServiceUnavailable || r.problem() != "draining" {
				t.Errorf("a call that was cut off was answered %s, %v", r, r.err)
			}
			s = b.released()
			r := s.ask(c)
			checkVerdict(t, b.provider, c, r, want)
			checkRepeat(t, s, c, r)
		})
	}
}

// TestTheSecondSignalEndsAtOnce: who asks twice does not wait for the drain.
func TestTheSecondSignalEndsAtOnce(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.env = []string{"COUNTERFOIL_DRAIN=1h"}
	s, c := b.released(), things("lookup", "plain")
	answered, release := s.held(c)
	s.terminate()
	s.untilDraining()
	s.terminate()
	if code := s.ended(); code != -1 {
		t.Errorf("exit code %d: not ended by the signal", code)
	}
	release()
	await(t, "the agent's end", answered)
	b.env = nil
	s = b.released()
	r := s.ask(c)
	checkVerdict(t, b.provider, c, r, afterKill["lookup"])
	checkRepeat(t, s, c, r)
}

// TestNothingIsLeftListening: a sidecar that has ended, however it did, gives its
// addresses back at once.
func TestNothingIsLeftListening(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	data, admin := freeAddress(t), freeAddress(t)
	b.env = []string{"COUNTERFOIL_LISTEN=" + data, "COUNTERFOIL_ADMIN_LISTEN=" + admin}
	c := things("none", "plain")
	ends := []func(s *sidecar){
		func(s *sidecar) { s.kill() },
		func(s *sidecar) {
			s.terminate()
			s.ended()
		},
	}
	for i, end := range ends {
		s := b.released()
		if s.base != "http://"+data {
			t.Fatalf("announced %s, not %s", s.base, data)
		}
		want := "executed"
		if i > 0 {
			want = "replayed"
		}
		checkVerdict(t, b.provider, c, s.send(c), verdict{want, 1, 1})
		end(s)
		if !refused(data) || !refused(admin) {
			t.Error("somebody still listens")
		}
	}
}

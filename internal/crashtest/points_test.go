package crashtest

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"testing"

	"counterfoil/internal/crashpoint"
)

// A scene is one crash, and what the next request with the same key has to get.
type scene struct {
	point crashpoint.Point
	nth   int
	// cut befalls the first request at the provider, so that the sidecar gets
	// as far as recovery before it dies.
	cut cut
	// lookupBroken is how many requests for a lookup fail first.
	lookupBroken int
	// want is by kind of provider. A kind that is not in it does not reach the
	// point.
	want map[string]verdict
}

// A verdict is how the call is answered after the restart, and what the
// provider has seen of it in the end.
type verdict struct {
	outcome       string
	effects, hits int
}

// What docs/guarantees.md promises, for a first attempt that met no mishap.
var (
	// Nothing is on record: the call is sent.
	nothingKnown = map[string]verdict{
		"none": {"executed", 1, 1}, "keyed": {"executed", 1, 1}, "lookup": {"executed", 1, 1},
	}
	// The intent is on record, no byte has left, and nobody can prove it.
	intentKnown = map[string]verdict{
		"none": {"unknown", 0, 0}, "keyed": {"recovered", 1, 1}, "lookup": {"executed", 1, 1},
	}
	// The effect exists, the receipt is not on record.
	effectMade = map[string]verdict{
		"none": {"unknown", 1, 1}, "keyed": {"recovered", 1, 2}, "lookup": {"recovered", 1, 1},
	}
	// The receipt is on record.
	receiptKept = map[string]verdict{
		"none": {"replayed", 1, 1}, "keyed": {"replayed", 1, 1}, "lookup": {"replayed", 1, 1},
	}
)

// triesOfOne is how many requests one lookup makes of a provider that fails.
const triesOfOne = 3

// scenes go through every point at its first reaching, and at later ones
// wherever recovery gets there.
var scenes = []scene{
	{point: crashpoint.BeginBefore, nth: 1, want: nothingKnown},
	{point: crashpoint.BeginAfter, nth: 1, want: intentKnown},
	{point: crashpoint.SendBefore, nth: 1, want: intentKnown},
	{point: crashpoint.SendAfter, nth: 1, want: effectMade},
	{point: crashpoint.AnswerPiece, nth: 1, want: effectMade},
	{point: crashpoint.AnswerPiece, nth: 2, want: effectMade},
	{point: crashpoint.FinishBefore, nth: 1, want: effectMade},
	{point: crashpoint.FinishAfter, nth: 1, want: receiptKept},
	{point: crashpoint.ReplyBefore, nth: 1, want: receiptKept},

	// The answer to the first attempt is lost. The sidecar dies before that is
	// on record, and after.
	{point: crashpoint.SendAfter, nth: 1, cut: afterEffect, want: effectMade},
	{point: crashpoint.FinishBefore, nth: 1, cut: afterEffect, want: effectMade},
	{point: crashpoint.FinishAfter, nth: 1, cut: afterEffect, want: effectMade},
	// It dies where recovery begins.
	{point: crashpoint.BeginBefore, nth: 2, cut: afterEffect, want: effectMade},
	{point: crashpoint.LookupBefore, nth: 1, cut: afterEffect, want: map[string]verdict{"lookup": {"recovered", 1, 1}}},
	{point: crashpoint.LookupAfter, nth: 1, cut: afterEffect, want: map[string]verdict{"lookup": {"recovered", 1, 1}}},
	{point: crashpoint.LookupBefore, nth: 2, cut: afterEffect, lookupBroken: triesOfOne, want: map[string]verdict{"lookup": {"recovered", 1, 1}}},
	{point: crashpoint.LookupAfter, nth: 2, cut: afterEffect, lookupBroken: triesOfOne, want: map[string]verdict{"lookup": {"recovered", 1, 1}}},
	{point: crashpoint.ReplyBefore, nth: 1, cut: afterEffect, want: map[string]verdict{
		"none": {"unknown", 1, 1}, "keyed": {"replayed", 1, 2}, "lookup": {"replayed", 1, 1},
	}},
	// It dies in the repeat to a provider that deduplicates.
	{point: crashpoint.BeginAfter, nth: 2, cut: afterEffect, want: map[string]verdict{"keyed": {"recovered", 1, 2}}},
	{point: crashpoint.SendBefore, nth: 2, cut: afterEffect, want: map[string]verdict{"keyed": {"recovered", 1, 2}}},
	{point: crashpoint.SendAfter, nth: 2, cut: afterEffect, want: map[string]verdict{"keyed": {"recovered", 1, 3}}},
	{point: crashpoint.AnswerPiece, nth: 1, cut: afterEffect, want: map[string]verdict{"keyed": {"recovered", 1, 3}}},
	{point: crashpoint.FinishBefore, nth: 2, cut: afterEffect, want: map[string]verdict{"keyed": {"recovered", 1, 3}}},
	{point: crashpoint.FinishAfter, nth: 2, cut: afterEffect, want: map[string]verdict{"keyed": {"replayed", 1, 2}}},
	// It dies in the second sending, after a lookup has shown that the first
	// had no effect; and in the repeat of a request that had none.
	{point: crashpoint.BeginAfter, nth: 2, cut: beforeEffect, want: map[string]verdict{"lookup": {"executed", 1, 2}, "keyed": {"recovered", 1, 2}}},
	{point: crashpoint.SendAfter, nth: 2, cut: beforeEffect, want: map[string]verdict{"lookup": {"recovered", 1, 2}, "keyed": {"recovered", 1, 3}}},
	{point: crashpoint.FinishAfter, nth: 2, cut: beforeEffect, want: map[string]verdict{"lookup": {"replayed", 1, 2}, "keyed": {"replayed", 1, 2}}},
}

// answers lists how the provider may answer: with a length, in chunks, or with
// a length so long that the answer is passed on as it comes.
func (s scene) answers() []string {
	switch s.point {
	case crashpoint.AnswerPiece, crashpoint.FinishBefore, crashpoint.FinishAfter, crashpoint.ReplyBefore:
		return []string{"plain", "chunked", "long"}
	}
	return []string{"plain", "chunked"}
}

func (s scene) name(kind, answer string) string {
	name := fmt.Sprintf("%s-%d", s.point, s.nth)
	switch s.cut {
	case afterEffect:
		name += "-answer-lost"
	case beforeEffect:
		name += "-request-lost"
	}
	return name + "/" + kind + "/" + answer
}

// TestC17_CrashMatrix ends the sidecar at every point, before every kind of
// provider, with an answer of known length and a streamed one.
func TestC17_CrashMatrix(t *testing.T) {
	for _, s := range scenes {
		for kind, want := range s.want {
			for _, answer := range s.answers() {
				t.Run(s.name(kind, answer), func(t *testing.T) {
					t.Parallel()
					s.play(t, things(kind, answer), want)
				})
			}
		}
	}
}

func (s scene) play(t *testing.T, c call, want verdict) {
	t.Helper()
	b := newBench(t)
	b.provider.befalls(first(mishap{cut: s.cut}))
	b.provider.lookupBroken = s.lookupBroken
	doomed := b.crashing(string(s.point), s.nth)
	if r := doomed.send(c); r.err == nil {
		t.Fatalf("the agent of a sidecar that died at %s was told: %s", s.point, r)
	}
	doomed.crashed()

	heir := b.released()
	answer := heir.ask(c)
	checkVerdict(t, b.provider, c, answer, want)
	checkRepeat(t, heir, c, answer)
	if e := b.provider.effectOf(c.String()); e.count != want.effects || e.hits != want.hits {
		t.Errorf("after the repeat: %d effects of %d requests, not %d of %d", e.count, e.hits, want.effects, want.hits)
	}
}

func checkVerdict(t *testing.T, p *provider, c call, r reply, want verdict) {
	t.Helper()
	e := p.effectOf(c.String())
	if r.outcome() != want.outcome {
		t.Errorf("the outcome is %q, not %q: %s", r.outcome(), want.outcome, r)
	}
	if e.count != want.effects || e.hits != want.hits {
		t.Errorf("%d effects of %d requests, not %d of %d", e.count, e.hits, want.effects, want.hits)
	}
	if len(e.keys) > 1 {
		t.Errorf("the provider was sent %d keys for one call", len(e.keys))
	}
	if slices.ContainsFunc(e.requests, func(raw string) bool { return raw != e.requests[0] }) {
		t.Errorf("the repeats are not the same bytes: %q", e.requests)
	}
	if want.outcome == "unknown" {
		if r.status != 423 || r.problem() != "unknown-outcome" || r.header.Get("X-Should-Retry") != "false" {
			t.Errorf("not a 423 unknown-outcome that stops a retry: %s %v", r, r.header)
		}
		return
	}
	if r.err != nil || r.status != 201 || r.body != e.object {
		t.Errorf("not what the ledger has: %s", r)
	}
	if repeat := want.outcome != "executed"; (r.header.Get("Idempotent-Replayed") == "true") != repeat {
		t.Errorf("Idempotent-Replayed is %q for outcome %s", r.header.Get("Idempotent-Replayed"), want.outcome)
	}
}

// checkRepeat sends the same key once more: it gets the same bytes, or is
// unknown still.
func checkRepeat(t *testing.T, s *sidecar, c call, before reply) {
	t.Helper()
	again := s.ask(c)
	if before.outcome() == "unknown" {
		if again.problem() != "unknown-outcome" {
			t.Errorf("an unknown call was then answered %s", again)
		}
		return
	}
	if again.outcome() != "replayed" {
		t.Errorf("the repeat is %q, not replayed: %s", again.outcome(), again)
	}
	sameAnswer(t, before, again)
}

// TestC17_EveryPointHasAScene keeps the matrix whole.
func TestC17_EveryPointHasAScene(t *testing.T) {
	for _, p := range crashpoint.Points {
		if p == crashpoint.StepBefore || p == crashpoint.StepAfter {
			continue // reached by agents without call ids alone: see ordinalScenes
		}
		kinds := map[string]bool{}
		for _, s := range scenes {
			for kind := range s.want {
				kinds[kind] = kinds[kind] || s.point == p
			}
		}
		isLookup := p == crashpoint.LookupBefore || p == crashpoint.LookupAfter
		if !kinds["lookup"] || !isLookup && (!kinds["none"] || !kinds["keyed"]) {
			t.Errorf("%s: a kind of provider has no scene: %v", p, kinds)
		}
	}
}

// TestPointsAreDocumented holds docs/guarantees.md against the points there
// are.
func TestPointsAreDocumented(t *testing.T) {
	text, err := os.ReadFile("../../docs/guarantees.md")
	if err != nil {
		t.Fatal(err)
	}
	var got []crashpoint.Point
	for _, m := range regexp.MustCompile("(?m)^\\| `([a-z]+\\.[a-z]+)` \\|").FindAllSubmatch(text, -1) {
		got = append(got, crashpoint.Point(m[1]))
	}
	if !slices.Equal(got, crashpoint.Points[:]) {
		t.Errorf("docs/guarantees.md lists %q, and there are %q", got, crashpoint.Points)
	}
}

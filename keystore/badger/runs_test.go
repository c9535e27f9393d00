package badger

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"counterfoil/keystore"
)

func planOf(turn string, decision []byte, calls ...string) *keystore.Plan {
	p := &keystore.Plan{Namespace: "default", Run: "r", Turn: turn, Decision: decision, Digest: [32]byte{byte(len(calls))}}
	for i, call := range calls {
		p.Calls = append(p.Calls, keystore.PlannedCall{ID: call})
		p.Digest[1+i] = call[0]
	}
	return p
}

// TestPlansAndPositionsGoInPortions: those of a run that is over go to the last
// key and piece, through interruptions, and spare those of the run that has its
// name by then.
func TestPlansAndPositionsGoInPortions(t *testing.T) {
	h, dir := newHand(), t.TempDir()
	s := mustOpen(t, Config{Dir: dir, Now: h.now})
	defer func() { s.Close() }()
	const turns = sweepChanges + 100
	var group sync.WaitGroup
	for worker := range 64 {
		group.Go(func() {
			for i := worker; i < turns; i += 64 {
				var decision []byte
				if i%500 == 0 {
					decision = noise(uint64(i), 2*pieceBytes)
				}
				if _, err := s.PutPlan(context.Background(), planOf(fmt.Sprint(i), decision), keystore.Guard{}); err != nil {
					t.Error(err)
				}
				q := request(s, key("r", fmt.Sprint("auto ", i)))
				q.Key.Turn, q.Ordinal = "free", &keystore.Ordinal{Content: keystore.Content(fmt.Sprint(i)), Incarnation: 1}
				if _, err := s.Begin(context.Background(), q, nil); err != nil {
					t.Error(err)
				}
				if _, err := s.Apply(context.Background(), q.Key, applied(1), nil); err != nil {
					t.Error(err)
				}
			}
		})
	}
	group.Wait()
	if plans, positions := keysUnder(t, s, planPrefix), keysUnder(t, s, positionPrefix); plans != turns || positions != turns {
		t.Fatalf("%d plans and %d positions, want %d", plans, positions, turns)
	}
	h.advance(91 * 24 * time.Hour)
	for step, more := 0, true; more; step++ {
		var err error
		if more, err = s.Sweep(context.Background(), keystore.Retention{}); err != nil {
			t.Fatal(err)
		}
		if step == 0 { // the name is used again while all of the old is still there
			if isNew, err := s.PutPlan(context.Background(), planOf("0", noise(9, 2*pieceBytes), "new"), keystore.Guard{}); err != nil || !isNew {
				t.Fatalf("the same turn of the run that has the name now: %t, %v", isNew, err)
			}
		}
		if step%2 == 1 {
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			s = mustOpen(t, Config{Dir: dir, Now: h.now})
		}
	}
	if plans, positions, pieces := keysUnder(t, s, planPrefix), keysUnder(t, s, positionPrefix), piecesKept(t, s); plans != 1 || positions != 0 || pieces != 3 {
		t.Errorf("%d plans, %d positions and %d pieces are left, want the one plan of 3 pieces", plans, positions, pieces)
	}
	if p, err := s.Plan(context.Background(), "default", "r", "0"); err != nil || !p.Names("new") {
		t.Errorf("the plan of the run that has the name now: %+v, %v", p, err)
	}
	recount(t, s)
}

func TestPlansAndPositionsOfABatchAreSeen(t *testing.T) {
	s := openTest(t, Config{})
	decision := noise(1, 100)
	var refused []string
	var mu sync.Mutex
	together(t, s, hold(t, s), []outcome{{name: "a"}, {name: "b"}, {name: "a"}}, func(name string) error {
		_, err := s.PutPlan(context.Background(), planOf("1", decision, name), keystore.Guard{})
		if r, ok := errors.AsType[*keystore.Refused](err); ok && r.Reason == keystore.PlanConflict {
			mu.Lock()
			defer mu.Unlock()
			refused = append(refused, name)
			return nil
		}
		return err
	})
	if len(refused) != 1 || refused[0] != "b" {
		t.Errorf("refused were %q, want b", refused)
	}
	together(t, s, hold(t, s), []outcome{{name: "0"}, {name: "1"}, {name: "2"}}, func(name string) error {
		q := request(s, key("counted", name))
		q.Ordinal = &keystore.Ordinal{Content: "0123456789ab", Slot: uint32(name[0] - '0'), Incarnation: 1}
		_, err := s.Begin(context.Background(), q, nil)
		return err
	})
	p, err := s.Position(context.Background(), "default", "counted", "1", "0123456789ab")
	if err != nil || p.Taken != 3 {
		t.Errorf("three slots in one batch: %+v, %v", p, err)
	}
}

// TestAPlanThatLosesLeavesNothing: what was written ahead for a plan goes when the
// plan is refused.
func TestAPlanThatLosesLeavesNothing(t *testing.T) {
	s := openTest(t, Config{})
	errs := make([]error, 8)
	var group sync.WaitGroup
	for i := range errs {
		group.Go(func() {
			_, errs[i] = s.PutPlan(context.Background(), planOf("1", noise(uint64(i), 900<<10), string(rune('a'+i))), keystore.Guard{})
		})
	}
	group.Wait()
	won := 0
	for _, err := range errs {
		if err == nil {
			won++
		}
	}
	if got, want := piecesKept(t, s), int(pieces(901<<10)); won != 1 || got != want {
		t.Errorf("%d plans have won, %d pieces are kept; want 1 and %d", won, got, want)
	}
	if got := keysUnder(t, s, stagedPrefix); got != 0 {
		t.Errorf("%d markers of staged bodies are left", got)
	}
}

// TestACorruptPositionKeepsNoReceiptBack: knowledge comes first.
func TestACorruptPositionKeepsNoReceiptBack(t *testing.T) {
	s := openTest(t, Config{})
	q := request(s, key("r", "a"))
	q.Ordinal = &keystore.Ordinal{Content: "0123456789ab", Incarnation: 1}
	if _, err := s.Begin(context.Background(), q, nil); err != nil {
		t.Fatal(err)
	}
	err := s.do(context.Background(), func(v *view) (*step, error) {
		st := v.step()
		err := st.openRun("default", "r")
		st.set(positionKey(st.run.Place, "1", q.Ordinal.Content), []byte{1, 0xff})
		return st, err
	})
	if err != nil {
		t.Fatal(err)
	}
	e := applied(1)
	e.Answered = q.Ordinal
	apply(t, s, q.Key, e, "receipt")
	begin(t, s, key("r", "b"), "", keystore.Send)
	if err := s.Step(context.Background(), q.Key, q.Ordinal, keystore.Forth); !errors.Is(err, keystore.ErrCorrupt) {
		t.Errorf("a step from a corrupt position: %v", err)
	}
}

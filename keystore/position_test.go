package keystore

import (
	"errors"
	"testing"

	"pgregory.net/rapid"
)

// TestPositions holds a position against a naive account: which slots each
// incarnation took, and whose answers reached the client.
func TestPositions(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var p Position
		run := &Run{}
		incarnation := uint64(1)
		everTaken, taken := uint32(0), uint32(0)
		answered := map[uint32]bool{}
		move := func(t *rapid.T, m Move) {
			slot := rapid.Uint32Range(0, taken+2).Draw(t, "slot")
			o := &Ordinal{Content: "0123456789ab", Slot: slot, Incarnation: incarnation}
			nextRun, next, err := Step(run, p, o, true, m)
			if err != nil {
				t.Fatalf("slot %d of %d: %v", slot, taken, err)
			}
			run, p = nextRun, next
			taken = max(taken, slot+1)
			answered[slot] = m == Forth
		}
		forth := func(t *rapid.T) { move(t, Forth) }
		t.Repeat(map[string]func(*rapid.T){
			"forth": forth, "forth too": forth,
			"back": func(t *rapid.T) { move(t, Back) },
			"restart": func(*rapid.T) {
				incarnation++
				everTaken, taken = max(everTaken, taken), 0
				clear(answered)
			},
			"an earlier incarnation": func(t *rapid.T) {
				o := &Ordinal{Incarnation: incarnation - 1}
				if _, _, err := Step(run, p, o, true, Forth); p.Incarnation == incarnation && refused(err) != Fenced {
					t.Fatalf("got %v", err)
				}
			},
			"": func(t *rapid.T) {
				here, err := p.In(incarnation)
				if err != nil {
					t.Fatal(err)
				}
				if here.Taken != taken || here.Known != everTaken {
					t.Fatalf("taken %d, known %d; want %d, %d", here.Taken, here.Known, taken, everTaken)
				}
				for slot := range taken + 2 {
					if here.Answered(slot) != answered[slot] {
						t.Fatalf("slot %d: answered %t, want %t", slot, here.Answered(slot), answered[slot])
					}
				}
				in := run.Repeats.in(incarnation)
				if want := max(everTaken, taken); in.Effects != want || in.Earlier != everTaken || in.Repeated != min(taken, everTaken) {
					t.Fatalf("repeats %+v; want %d effects, %d earlier, %d repeated", in, want, everTaken, min(taken, everTaken))
				}
			},
		})
	})
}

func TestPositionsAreBounded(t *testing.T) {
	p := Position{Incarnation: 1}
	run := &Run{}
	var err error
	for slot := range uint32(AheadMax + 1) {
		if run, p, err = Step(run, p, &Ordinal{Slot: slot, Incarnation: 1}, true, Move(0)); err != nil {
			t.Fatalf("slot %d: %v", slot, err)
		}
	}
	if _, _, err := Step(run, p, &Ordinal{Slot: AheadMax + 1, Incarnation: 1}, true, Forth); !errors.Is(err, ErrTooManyAhead) {
		t.Errorf("got %v", err)
	}
	if _, q, err := Step(run, Position{}, &Ordinal{Slot: 1, Incarnation: 1}, true, Forth); err != nil || q.Taken != 2 || q.Answered(0) || !q.Answered(1) {
		t.Errorf("a slot that overtakes another: %+v, %v", q, err)
	}
	for range 3 * TiesMax {
		tie := Digest(OrdinalCall("x", uint32(len(p.Ties))))
		if _, p, err = Step(run, p, &Ordinal{Incarnation: 1, Tie: tie}, true, Forth); err != nil || len(p.Ties) > TiesMax {
			t.Fatalf("%d ties, %v", len(p.Ties), err)
		}
	}
}

func TestTiesNameTheirSlot(t *testing.T) {
	run, p, err := Step(&Run{}, Position{}, &Ordinal{Incarnation: 1, Tie: "one"}, true, Forth)
	if err != nil {
		t.Fatal(err)
	}
	_, p, err = Step(run, p, &Ordinal{Incarnation: 1, Slot: 1, Tie: "two"}, true, Forth)
	if err != nil {
		t.Fatal(err)
	}
	for tie, want := range map[Digest]uint32{"one": 0, "two": 1} {
		if slot, ok := p.SlotOf(tie); !ok || slot != want {
			t.Errorf("%s: slot %d, %t; want %d", tie, slot, ok, want)
		}
	}
	if _, ok := p.SlotOf(""); ok {
		t.Error("no tie names a slot")
	}
	if next, _ := p.In(2); len(next.Ties) != 0 {
		t.Error("a tie outlives its incarnation")
	}
}

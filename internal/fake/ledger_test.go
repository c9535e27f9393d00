package fake

import (
	"testing"
	"time"
)

func TestLedgerCountsEffects(t *testing.T) {
	l := &Ledger{}
	l.Put("room", map[string]any{"id": 7.0})
	made := l.Add("thing", map[string]any{"tags": []any{"a"}})
	made["tags"].([]any)[0] = "changed by whoever holds the copy"
	if got := l.Get("thing", made["id"]); got == nil || got["tags"].([]any)[0] != "a" {
		t.Errorf("on record is %v", got)
	}
	set := func(name string) func(map[string]any) {
		return func(object map[string]any) { object["name"] = name }
	}
	for i, step := range []struct {
		do      func()
		effects int
	}{
		{func() {}, 1},
		{func() { l.Change("thing", made["id"], set("x")) }, 2},
		{func() { l.Change("thing", made["id"], set("x")) }, 2},
		{func() { l.Change("thing", "none", set("x")) }, 2},
		{func() { l.Change("room", "7", set("x")) }, 3},
		{func() { l.Remove("thing", made["id"]) }, 4},
		{func() { l.Remove("thing", made["id"]) }, 4},
	} {
		if step.do(); l.Effects() != step.effects {
			t.Errorf("after step %d there are %d effects, not %d", i, l.Effects(), step.effects)
		}
	}
	if n := len(l.List("thing")); n != 0 {
		t.Errorf("%d things after the removal", n)
	}
}

func TestLedgerLag(t *testing.T) {
	now := time.Date(2026, 12, 1, 0, 0, 0, 0, time.UTC)
	l := &Ledger{Lag: true, Clock: func() time.Time { return now }}
	l.Put("thing", map[string]any{"id": "old"})
	l.Add("thing", map[string]any{"id": "new"})
	if n := len(l.Visible("thing")); n != 1 {
		t.Errorf("%d things show while lists lag, not the old one alone", n)
	}
	if len(l.List("thing")) != 2 || l.Get("thing", "new") == nil {
		t.Error("a read by id does not show what is there")
	}
	l.Reveal()
	if n := len(l.Visible("thing")); n != 2 {
		t.Errorf("%d things show when they are revealed", n)
	}
	l.Add("thing", map[string]any{"id": "newer"})
	if n := len(l.Visible("thing")); n != 2 || !l.Now().Equal(now) {
		t.Errorf("%d things show after one more", n)
	}
}

package keystore

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"
)

func TestConditions(t *testing.T) {
	item := &Item{Key: "k", Version: 7}
	for _, tc := range []struct {
		name    string
		c       Condition
		present *Item
		want    Reason
	}{
		{"none, absent", Condition{}, nil, 0},
		{"none, present", Condition{}, item, 0},
		{"create, absent", Condition{Absent: true}, nil, 0},
		{"create, present", Condition{Absent: true}, item, ItemExists},
		{"any, absent", Condition{Present: true}, nil, ETagMismatch},
		{"any, present", Condition{Present: true}, item, 0},
		{"version, absent", Condition{Versions: []ItemVersion{7}}, nil, ETagMismatch},
		{"version, present", Condition{Versions: []ItemVersion{7}}, item, 0},
		{"one of two", Condition{Versions: []ItemVersion{6, 7}}, item, 0},
		{"another version", Condition{Versions: []ItemVersion{6}}, item, ETagMismatch},
		{"none can match", Condition{Versions: []ItemVersion{}}, item, ETagMismatch},
		{"version 0, absent", Condition{Versions: []ItemVersion{0}}, nil, ETagMismatch},
	} {
		err := tc.c.Check(tc.present, 3)
		if refused(err) != tc.want {
			t.Errorf("%s: %v, want %s", tc.name, err, tc.want)
		}
		if r, ok := errors.AsType[*Refused](err); ok && (r.Operation != 3 || tc.present != nil && r.Version != 7 || tc.present == nil && r.Version != 0) {
			t.Errorf("%s: %+v", tc.name, r)
		}
	}
}

func TestETagsAreStrongAndDiffer(t *testing.T) {
	seen := map[string]bool{}
	for _, v := range []ItemVersion{1, 2, 255, 256, 1 << 40} {
		tag := v.ETag()
		if len(tag) < 3 || tag[0] != '"' || tag[len(tag)-1] != '"' || seen[tag] {
			t.Errorf("version %d: %s", v, tag)
		}
		seen[tag] = true
	}
	if ItemVersion(0).ETag() != "" {
		t.Error("version 0 has a tag")
	}
}

func TestBatchLimits(t *testing.T) {
	tags := map[string]string{}
	for i := range TagsMax + 1 {
		tags[fmt.Sprint(i)] = ""
	}
	put := func(w ItemWrite) Batch { w.Kind = PutItem; return Batch{Writes: []ItemWrite{w}} }
	for name, b := range map[string]Batch{
		"nothing":                {},
		"too much":               {Writes: make([]ItemWrite, WritesMax+1)},
		"neither put nor delete": {Writes: []ItemWrite{{Key: "k"}}},
		"no key":                 put(ItemWrite{}),
		"long key":               put(ItemWrite{Key: strings.Repeat("é", NameCharsMax+1)}),
		"key, not UTF-8":         put(ItemWrite{Key: "\xff"}),
		"large value":            put(ItemWrite{Key: "k", Value: make([]byte, ValueBytesMax+1)}),
		"many tags":              put(ItemWrite{Key: "k", Tags: tags}),
		"tag with colon":         put(ItemWrite{Key: "k", Tags: map[string]string{"a:b": ""}}),
		"long tag":               put(ItemWrite{Key: "k", Tags: map[string]string{"a": strings.Repeat("x", TagValueBytesMax+1)}}),
		"negative TTL":           put(ItemWrite{Key: "k", TTL: -1}),
		"a TTL too short":        put(ItemWrite{Key: "k", TTL: time.Millisecond}),
		"a huge TTL":             put(ItemWrite{Key: "k", TTL: ItemTTLMax + 1}),
		"one key twice":          {Writes: []ItemWrite{{Kind: PutItem, Key: "k"}, {Kind: PutItem, Key: "k"}}},
		"many receipts":          {Writes: []ItemWrite{{Kind: PutItem, Key: "k"}}, Requires: make([]Key, RequiresMax+1)},
	} {
		err := b.Validate()
		if err == nil {
			t.Errorf("%s: it is taken", name)
		}
		if name == "large value" && !errors.Is(err, ErrTooLarge) {
			t.Errorf("%s: %v", name, err)
		}
	}
	ok := put(ItemWrite{Key: strings.Repeat("é", NameCharsMax), Value: make([]byte, ValueBytesMax), TTL: ItemTTLMax})
	if err := ok.Validate(); err != nil {
		t.Error(err)
	}
}

func TestPlanLimits(t *testing.T) {
	for name, p := range map[string]Plan{
		"no run":     {Turn: "1"},
		"no turn":    {Run: "r"},
		"no id":      {Run: "r", Turn: "1", Calls: []PlannedCall{{}}},
		"twice":      {Run: "r", Turn: "1", Calls: []PlannedCall{{ID: "a"}, {ID: "a"}}},
		"long tool":  {Run: "r", Turn: "1", Calls: []PlannedCall{{ID: "a", Tool: strings.Repeat("x", ToolBytesMax+1)}}},
		"many calls": {Run: "r", Turn: "1", Calls: make([]PlannedCall, PlanCallsMax+1)},
	} {
		if p.Validate() == nil {
			t.Errorf("%s: it is taken", name)
		}
	}
	p := &Plan{Run: "r", Turn: "1", Calls: []PlannedCall{{ID: "a", Tool: "charge"}}}
	if err := p.Validate(); err != nil {
		t.Error(err)
	}
	if p.Fact("a") != InPlan || p.Fact("b") != OutOfPlan || (*Plan)(nil).Fact("a") != NoPlan {
		t.Error("the plan says something else than it holds")
	}
}

func TestItemStoreTimes(t *testing.T) {
	const at = Instant(1_000_000_000_000)
	for _, tc := range []struct {
		ttl, since time.Duration
		isOver     bool
		rewritten  bool
	}{
		{0, time.Hour, false, true},
		{0, writtenStep, false, true},
		{0, writtenStep - 1, false, false},
		{time.Minute, 0, false, false},
		{time.Minute, 1, false, true},
		{time.Minute, time.Minute - 1, false, true},
		{time.Minute, time.Minute, true, true},
		{time.Minute, -1, false, false},
	} {
		s := ItemStore{TTL: tc.ttl, WrittenAt: at}
		now := at.Add(tc.since)
		next, changed := s.Written(now)
		if s.IsOver(now) != tc.isOver || changed != tc.rewritten || changed != (next.WrittenAt == now && now != at) {
			t.Errorf("TTL %s, %s later: over %t, rewritten %t as %+v", tc.ttl, tc.since, s.IsOver(now), changed, next)
		}
	}
}

func TestOwners(t *testing.T) {
	for _, tc := range []struct {
		isolation  Isolation
		user, want string
		err        error
	}{
		{Shared, "", "", nil}, {Shared, "ann", "", nil}, {PerUser, "ann", "ann", nil}, {PerUser, "", "", ErrInvalidKey},
	} {
		s := ItemStore{Isolation: tc.isolation}
		if got, err := s.Owner(Space{User: tc.user}); got != tc.want || !errors.Is(err, tc.err) {
			t.Errorf("isolation %d, user %q: got %q, %v; want %q, %v", tc.isolation, tc.user, got, err, tc.want, tc.err)
		}
	}
}

func TestOnlyAReceiptIsOne(t *testing.T) {
	k := Key{Namespace: "n", Run: "r", Turn: "1", Call: "c"}
	for s := None; s <= Expired; s++ {
		err := RequireReceipt(k, &Record{State: s})
		if has := s == Succeeded || s == Rejected; has != (err == nil) {
			t.Errorf("%s: %v", s, err)
		}
	}
	if r, ok := errors.AsType[*Refused](RequireReceipt(k, nil)); !ok || r.Reason != ReceiptRequired || r.Call != k {
		t.Errorf("not on record: %+v", r)
	}
}

func FuzzItemCursor(f *testing.F) {
	f.Add((&ItemQuery{}).Cursor(7), "", "a", "b", uint64(7))
	f.Add("!", "a", "", "", uint64(0))
	f.Fuzz(func(t *testing.T, cursor, prefix, tag, value string, place uint64) {
		q := ItemQuery{Prefix: prefix, Tags: map[string]string{tag: value}, After: cursor}
		if got, err := q.AfterPlace(); err != nil && !errors.Is(err, ErrCursor) || err == nil && cursor != "" && q.Cursor(got) != cursor {
			t.Errorf("cursor %q leads to %d, %v", cursor, got, err)
		}
		q.After = q.Cursor(place)
		if got, err := q.AfterPlace(); got != place || err != nil {
			t.Errorf("place %d came back as %d, %v", place, got, err)
		}
		other := q
		other.Tags = map[string]string{tag: value + "x"}
		if _, err := other.AfterPlace(); !errors.Is(err, ErrCursor) {
			t.Errorf("another listing takes it: %v", err)
		}
	})
}

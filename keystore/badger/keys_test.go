package badger

import (
	"bytes"
	"errors"
	"reflect"
	"strings"
	"testing"

	"counterfoil/keystore"
)

func FuzzKeys(f *testing.F) {
	f.Add("default", "run", "default", "run2", uint64(1), uint64(2))
	f.Add("a", "b\x00c", "a\x00b", "c", uint64(0), ^uint64(0))
	f.Add("ns", "", "", "ns", uint64(256), uint64(255))
	f.Fuzz(func(t *testing.T, ns1, run1, ns2, run2 string, a, b uint64) {
		if len(ns1) > keystore.PartBytesMax || len(ns2) > keystore.PartBytesMax {
			return
		}
		same := ns1 == ns2 && run1 == run2
		if bytes.Equal(nameKey(ns1, run1), nameKey(ns2, run2)) != same {
			t.Errorf("names %q %q and %q %q", ns1, run1, ns2, run2)
		}
		if ns1 != ns2 && bytes.HasPrefix(listKey(ns2, number(a)), listScope(ns1)) {
			t.Errorf("the list of %q holds a run of %q", ns1, ns2)
		}
		if (hashCall(ns1, run1) == hashCall(ns2, run2)) != same {
			t.Errorf("calls %q %q and %q %q", ns1, run1, ns2, run2)
		}
		if got := lastNumber(callKey(number(a), number(b))); got != number(b) {
			t.Errorf("sequence number %d came back as %d", b, got)
		}
		if order := bytes.Compare(callKey(1, number(a)), callKey(1, number(b))); order != compare(a, b) {
			t.Errorf("keys of %d and %d sort as %d", a, b, order)
		}
		at := keystore.Instant(a >> 1)
		if key := unsettledAt(doubtPrefix, at, number(b)); unsettledSince(key) != at || lastNumber(key) != number(b) {
			t.Errorf("instant %d, number %d came back as %d, %d", at, b, unsettledSince(key), lastNumber(key))
		}
		mine, yours := part{number(a), ns1}, part{number(b), ns2}
		if bytes.Equal(mine.scope(), yours.scope()) != (mine == yours) || bytes.Equal(mine.nameKey(run1), yours.nameKey(run2)) != (mine == yours && run1 == run2) {
			t.Errorf("items of %v and %v, %q and %q", mine, yours, run1, run2)
		}
		if order := bytes.Compare(mine.itemKey(number(a)), mine.itemKey(number(b))); order != compare(a, b) {
			t.Errorf("places %d and %d sort as %d", a, b, order)
		}
		if key := overKey(at, mine.itemKey(number(b))); unsettledSince(key) != at || lastNumber(key) != number(b) || len(key) == itemStoreEndBytes {
			t.Errorf("the end %d of item %d came back as %d, %d", at, b, unsettledSince(key), lastNumber(key))
		}
		back, err := decodeNumber(encodeNumber(number(a)))
		if err != nil || back != number(a) {
			t.Errorf("number %d came back as %d, %v", a, back, err)
		}
		if _, err := decodeNumber([]byte(ns1)); len(ns1) != numberBytes && !errors.Is(err, keystore.ErrCorrupt) {
			t.Errorf("%d bytes were taken for a number", len(ns1))
		}
	})
}

func FuzzCursor(f *testing.F) {
	l, err := newListing([]byte{unknownPrefix}, keystore.Page{})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(l.cursor(unsettledAt(unknownPrefix, 1, 2)))
	f.Add("")
	f.Add("!")
	f.Fuzz(func(t *testing.T, after string) {
		got, err := newListing([]byte{unknownPrefix}, keystore.Page{After: after})
		if err == nil && !bytes.HasPrefix(got.start, l.prefix) {
			t.Errorf("cursor %q leads out of its list, to %x", after, got.start)
		}
		if _, err := newListing([]byte{heldPrefix}, keystore.Page{After: after}); after != "" && err == nil && got.start != nil && len(got.start) > 1 {
			t.Errorf("cursor %q is taken by two lists", after)
		}
	})
}

func compare(a, b uint64) int {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	}
	return 0
}

// TestOwnSharesNothing: a copy for a caller shares no slice, no map and no pointer
// with the committer's record or run, whatever fields those will get.
func TestOwnSharesNothing(t *testing.T) {
	var r keystore.Record
	fill1(reflect.ValueOf(&r).Elem())
	c := own(&r)
	if !reflect.DeepEqual(&r, c) {
		t.Fatalf("got  %+v\nwant %+v", c, r)
	}
	sharesNothing(t, "Record", reflect.ValueOf(r), reflect.ValueOf(*c))
	var in keystore.Run
	fill1(reflect.ValueOf(&in).Elem())
	out := in.Clone()
	if !reflect.DeepEqual(&in, out) {
		t.Fatalf("got  %+v\nwant %+v", out, in)
	}
	sharesNothing(t, "Run", reflect.ValueOf(in), reflect.ValueOf(*out))
}

// fill1 puts one of everything into v.
func fill1(v reflect.Value) {
	switch v.Kind() {
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill1(v.Elem())
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		fill1(v.Index(0))
	case reflect.Map:
		v.Set(reflect.MakeMap(v.Type()))
		v.SetMapIndex(reflect.Zero(v.Type().Key()), reflect.Zero(v.Type().Elem()))
	case reflect.Struct:
		for _, field := range v.Fields() {
			fill1(field)
		}
	case reflect.String:
		v.SetString("x")
	case reflect.Bool:
		v.SetBool(true)
	}
}

func sharesNothing(t *testing.T, path string, a, b reflect.Value) {
	t.Helper()
	switch a.Kind() {
	case reflect.Pointer, reflect.Slice, reflect.Map:
		if a.Pointer() == b.Pointer() {
			t.Errorf("%s is shared", path)
			return
		}
	}
	switch a.Kind() {
	case reflect.Pointer:
		sharesNothing(t, path, a.Elem(), b.Elem())
	case reflect.Slice:
		sharesNothing(t, path+"[0]", a.Index(0), b.Index(0))
	case reflect.Struct:
		for i := range a.NumField() {
			sharesNothing(t, path+"."+a.Type().Field(i).Name, a.Field(i), b.Field(i))
		}
	}
}

// TestEveryUnsettledStateIsIndexed keeps the tables of states in step.
func TestEveryUnsettledStateIsIndexed(t *testing.T) {
	for s := keystore.None; s <= keystore.Expired; s++ {
		indexed := indexOf(s) >= 0
		if indexed != (unsettledPrefix(s) != 0) {
			t.Errorf("%s: indexed %v, prefix %q", s, indexed, unsettledPrefix(s))
		}
		if indexed && indexOfPrefix(unsettledPrefix(s)) != indexOf(s) {
			t.Errorf("%s: its prefix leads to another index", s)
		}
		if counted := totals(nil).plus(s, 1).unsettled() == 1; counted != indexed {
			t.Errorf("%s: keeps a run from being swept %v, is indexed %v", s, counted, indexed)
		}
	}
}

func TestConfigMistakesAreNamed(t *testing.T) {
	for _, c := range []struct {
		config Config
		want   string
	}{
		{Config{}, "Config.Dir"},
		{Config{Dir: t.TempDir(), LockWait: -1}, "LockWait"},
	} {
		if _, err := Open(t.Context(), c.config); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: got %v, want a word of %s", c.config, err, c.want)
		}
	}
}

func TestPageLimits(t *testing.T) {
	for limit, ok := range map[int]bool{-1: false, 0: true, 1: true, limitMax: true, limitMax + 1: false} {
		_, err := newListing([]byte{heldPrefix}, keystore.Page{Limit: limit})
		if (err == nil) != ok {
			t.Errorf("a page of %d: %v", limit, err)
		}
	}
}

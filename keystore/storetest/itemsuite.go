package storetest

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"counterfoil/keystore"
)

var itemCases = []testCase{
	{"an item store is made once", testItemStores},
	{"an item from create to delete", testItemLife},
	{"C115 what a condition asks for", testC115Conditions},
	{"C115 create race", testC115CreateRace},
	{"C116 lost update", testC116},
	{"C116 no version comes twice", testC116NoABA},
	{"values of every size", testValues},
	{"the largest batch", testLargestBatch},
	{"a batch is made whole or not at all", testBatchAtomic},
	{"batches that cross are made one after the other", testBatchesCross},
	{"an item's time", testItemTTL},
	{"an item store's time slides", testItemStoreTTL},
	{"an item store that is over and made anew is empty", testItemStoreAnew},
	{"users are apart", testUsers},
	{"item stores of namespaces are apart", testItemNamespaces},
	{"lists of items", testItemLists},
	{"cursors of items", testItemCursors},
	{"a page of items is bounded", testItemPageBounds},
	{"listing while others write", testItemsListedOnce},
	{"a write that names a run", testGuard},
	{"a write under a lease", testFencedWrites},
	{"leases that change hands under writers", testLeasesUnderWriters},
	{"a write that requires receipts", testRequires},
	{"items keep no memory of their callers", testItemOwnership},
	{"items that were acknowledged are there after a crash", testItemsAcknowledged},
	{"what cannot be an item", testItemLimits},
	{"items of a closed store", testItemsClosed},
}

// notes is the item store that most tests use.
var notes = keystore.Space{Namespace: "default", Store: "notes/of the day"}

func (b *trial) putStore(s keystore.ItemStore) (is keystore.ItemStore, isNew bool) {
	b.Helper()
	is, isNew, err := b.store.PutItemStore(context.Background(), &s)
	if err != nil {
		b.Fatalf("putting store %q: %v", s.Name, err)
	}
	return is, isNew
}

// withNotes makes notes.
func (b *trial) withNotes() {
	b.Helper()
	b.putStore(keystore.ItemStore{Namespace: notes.Namespace, Name: notes.Store})
}

func put(key, value string) keystore.ItemWrite {
	return keystore.ItemWrite{Kind: keystore.PutItem, Key: key, Value: []byte(value)}
}

func del(key string) keystore.ItemWrite {
	return keystore.ItemWrite{Kind: keystore.DeleteItem, Key: key}
}

func only(w keystore.ItemWrite, c keystore.Condition) keystore.ItemWrite {
	w.If = c
	return w
}

func having(v ...keystore.ItemVersion) keystore.Condition { return keystore.Condition{Versions: v} }

// tryWrite makes one batch of writes.
func (b *trial) tryWrite(s keystore.Space, w ...keystore.ItemWrite) ([]keystore.Written, error) {
	return b.store.WriteItems(context.Background(), &keystore.Batch{Space: s, Writes: w})
}

func (b *trial) write(s keystore.Space, w ...keystore.ItemWrite) []keystore.Written {
	b.Helper()
	written, err := b.tryWrite(s, w...)
	if err != nil {
		b.Fatalf("writing %q …: %v", w[0].Key, err)
	}
	if len(written) != len(w) {
		b.Fatalf("%d writes were answered by %d", len(w), len(written))
	}
	return written
}

// refusing makes a batch and wants it refused.
func (b *trial) refusing(want keystore.Reason, s keystore.Space, w ...keystore.ItemWrite) *keystore.Refused {
	b.Helper()
	_, err := b.tryWrite(s, w...)
	return b.refused(err, want)
}

func (b *trial) item(s keystore.Space, key string) *keystore.Item {
	b.Helper()
	i, err := b.store.Item(context.Background(), s, key)
	if err != nil {
		b.Fatalf("reading %q: %v", key, err)
	}
	return i
}

func (b *trial) noItem(s keystore.Space, key string) {
	b.Helper()
	_, err := b.store.Item(context.Background(), s, key)
	b.wants(err, keystore.ErrNotFound)
}

func (b *trial) items(q keystore.ItemQuery) keystore.List[*keystore.Item] {
	b.Helper()
	l, err := b.store.Items(context.Background(), &q)
	if err != nil {
		b.Fatalf("listing: %v", err)
	}
	return l
}

// allItems reads every page.
func (b *trial) allItems(q keystore.ItemQuery) (all []*keystore.Item) {
	b.Helper()
	for pages := 0; ; pages++ {
		l := b.items(q)
		all = append(all, l.Items...)
		if q.After = l.Next; q.After == "" {
			return all
		}
		if pages > 10_000 {
			b.Fatal("the list has no end")
		}
	}
}

func keysOf(items []*keystore.Item) string {
	keys := make([]string, len(items))
	for i, item := range items {
		keys[i] = item.Key
	}
	return strings.Join(keys, " ")
}

func (b *trial) lists(q keystore.ItemQuery, want string) {
	b.Helper()
	if got := keysOf(b.allItems(q)); got != want {
		b.Fatalf("%+v lists %q, want %q", q, got, want)
	}
}

func testItemStores(b *trial) {
	ctx := context.Background()
	_, err := b.store.ItemStore(ctx, "default", "s")
	b.wants(err, keystore.ErrNotFound)
	_, err = b.tryWrite(keystore.Space{Namespace: "default", Store: "s"}, put("k", "1"))
	b.wants(err, keystore.ErrNotFound)
	_, err = b.store.Items(ctx, &keystore.ItemQuery{Space: keystore.Space{Namespace: "default", Store: "s"}})
	b.wants(err, keystore.ErrNotFound)

	asked := keystore.ItemStore{Namespace: "default", Name: "s", TTL: time.Hour, Isolation: keystore.PerUser, CreatedAt: 1, WrittenAt: 2}
	want := asked
	want.CreatedAt, want.WrittenAt = b.clock.Instant(), b.clock.Instant()
	if is, isNew := b.putStore(asked); !isNew || is != want {
		b.Fatalf("made %+v, new %t; want %+v", is, isNew, want)
	}
	b.clock.Advance(time.Minute)
	if is, isNew := b.putStore(keystore.ItemStore{Namespace: "default", Name: "s"}); isNew || is != want {
		b.Fatalf("put again: %+v, new %t; want %+v as it was", is, isNew, want)
	}
	b.crash()
	if is, err := b.store.ItemStore(ctx, "default", "s"); err != nil || is != want {
		b.Fatalf("after a crash: %+v, %v; want %+v", is, err, want)
	}

	news := make([]bool, 50)
	var group sync.WaitGroup
	for i := range news {
		group.Go(func() {
			_, news[i], _ = b.store.PutItemStore(ctx, &keystore.ItemStore{Namespace: "default", Name: "race"})
		})
	}
	group.Wait()
	if made := len(slices.DeleteFunc(news, func(isNew bool) bool { return !isNew })); made != 1 {
		b.Fatalf("of 50 puts at once %d made the store, want 1", made)
	}
}

func testItemLife(b *trial) {
	b.withNotes()
	b.noItem(notes, "k")
	made := b.clock.Instant()
	w := put("k", `{"n":1}`)
	w.Tags = map[string]string{"kind": "note", "empty": ""}
	first := b.write(notes, w)[0]
	if first.Was || first.Item.Value != nil || first.Item.Version == 0 || first.Item.CreatedAt != made || first.Item.UpdatedAt != made {
		b.Fatalf("created: %+v", first.Item)
	}
	got := b.item(notes, "k")
	if string(got.Value) != `{"n":1}` || !maps.Equal(got.Tags, w.Tags) || got.Version != first.Item.Version || got.CreatedAt != made {
		b.Fatalf("read: %+v, want %+v", got, first.Item)
	}

	b.clock.Advance(time.Second)
	second := b.write(notes, put("k", `{"n":2}`))[0]
	if !second.Was || second.Item.CreatedAt != made || second.Item.UpdatedAt != b.clock.Instant() || second.Item.Version == first.Item.Version || second.Item.Tags != nil {
		b.Fatalf("replaced: %+v, was %t", second.Item, second.Was)
	}
	b.crash()
	if got := b.item(notes, "k"); string(got.Value) != `{"n":2}` || got.Version != second.Item.Version || len(got.Tags) != 0 {
		b.Fatalf("after a crash: %+v, want %+v", got, second.Item)
	}
	if gone := b.write(notes, del("k"))[0]; !gone.Was || gone.Item != nil {
		b.Fatalf("deleted: %+v", gone)
	}
	b.noItem(notes, "k")
	if gone := b.write(notes, del("k"))[0]; gone.Was {
		b.Fatal("what is not there was deleted")
	}
	b.crash()
	b.noItem(notes, "k")
}

func testC115Conditions(b *trial) {
	b.withNotes()
	absent, present := keystore.Condition{Absent: true}, keystore.Condition{Present: true}
	none := keystore.Condition{Versions: []keystore.ItemVersion{}}
	for _, w := range []keystore.ItemWrite{put("k", "1"), del("k")} {
		for _, c := range []keystore.Condition{present, none, having(1)} {
			if r := b.refusing(keystore.ETagMismatch, notes, only(w, c)); r.Version != 0 || r.Operation != 0 {
				b.Fatalf("nothing is there: %+v", r)
			}
		}
	}
	v1 := b.write(notes, only(put("k", "1"), absent))[0].Item.Version
	if r := b.refusing(keystore.ItemExists, notes, only(put("k", "2"), absent)); r.Version != v1 {
		b.Fatalf("it exists: %+v, want version %d", r, v1)
	}
	for _, c := range []keystore.Condition{none, having(v1 + 1), having(v1-1, 0)} {
		if r := b.refusing(keystore.ETagMismatch, notes, only(put("k", "2"), c)); r.Version != v1 {
			b.Fatalf("another version: %+v, want version %d", r, v1)
		}
	}
	v2 := b.write(notes, only(put("k", "2"), having(v1+5, v1)))[0].Item.Version
	b.refusing(keystore.ETagMismatch, notes, only(del("k"), having(v1)))
	v3 := b.write(notes, only(put("k", "3"), present))[0].Item.Version
	if got := b.item(notes, "k"); got.Version != v3 || string(got.Value) != "3" || v2 == v3 || v1 == v2 {
		b.Fatalf("read %+v, want version %d after %d and %d", got, v3, v2, v1)
	}
	b.write(notes, only(del("k"), having(v3)))
	b.noItem(notes, "k")
	b.write(notes, only(put("k", "4"), absent))
}

func testC115CreateRace(b *trial) {
	b.withNotes()
	errs := make([]error, 100)
	values := make([]string, len(errs))
	var group sync.WaitGroup
	for i := range errs {
		values[i] = fmt.Sprint(i)
		group.Go(func() {
			_, errs[i] = b.tryWrite(notes, only(put("k", values[i]), keystore.Condition{Absent: true}))
		})
	}
	group.Wait()
	version := b.item(notes, "k").Version
	won := -1
	for i, err := range errs {
		switch {
		case err == nil && won >= 0:
			b.Fatalf("%d and %d have both created the item", won, i)
		case err == nil:
			won = i
		default:
			if r := b.refused(err, keystore.ItemExists); r.Version != version {
				b.Fatalf("the refusal tells of version %d, there is %d", r.Version, version)
			}
		}
	}
	if won < 0 || string(b.item(notes, "k").Value) != values[won] {
		b.Fatalf("%d has won, the item holds %s", won, b.item(notes, "k").Value)
	}
}

func testC116(b *trial) {
	b.withNotes()
	version := b.write(notes, put("k", `"0"`))[0].Item.Version
	seen := map[keystore.ItemVersion]bool{version: true}
	for round := range 1000 {
		var written [2][]keystore.Written
		var errs [2]error
		var group sync.WaitGroup
		start := make(chan struct{})
		for i := range 2 {
			group.Go(func() {
				<-start
				written[i], errs[i] = b.tryWrite(notes, only(put("k", fmt.Sprintf(`"%d"`, i)), having(version)))
			})
		}
		close(start)
		group.Wait()
		won := 0
		if errs[0] != nil {
			won = 1
		}
		if errs[won] != nil || errs[1-won] == nil {
			b.Fatalf("round %d: %v and %v, want exactly one to win", round, errs[0], errs[1])
		}
		version = written[won][0].Item.Version
		if seen[version] {
			b.Fatalf("round %d: version %d comes again", round, version)
		}
		seen[version] = true
		if r := b.refused(errs[1-won], keystore.ETagMismatch); r.Version != version {
			b.Fatalf("round %d: the loser is told of version %d, there is %d", round, r.Version, version)
		}
		if got := b.item(notes, "k"); got.Version != version || string(got.Value) != fmt.Sprintf(`"%d"`, won) {
			b.Fatalf("round %d: read %+v, want version %d of %d", round, got, version, won)
		}
	}
}

// testC116NoABA: whatever became of an item, a version is never given again, so
// what was read before it can never match what is there after.
func testC116NoABA(b *trial) {
	b.withNotes()
	seen := map[keystore.ItemVersion]string{}
	write := func(how string) {
		b.Helper()
		i := b.write(notes, put("k", `"equal"`))[0].Item
		if before, ok := seen[i.Version]; ok || b.item(notes, "k").Version != i.Version {
			b.Fatalf("%s: version %d, which was that %s", how, i.Version, before)
		}
		seen[i.Version] = how
	}
	for range 3 {
		write("created")
		write("replaced by what it was")
		b.reopen()
		write("replaced after reopening")
		b.crash()
		write("replaced after a crash")
		b.write(notes, del("k"))
		write("created again")
		b.write(notes, del("k"))
		b.crash()
		write("created again after a crash")
		b.write(notes, del("k"))
		b.reopen()
	}
	for v := range seen {
		b.refusing(keystore.ETagMismatch, notes, only(put("k", "1"), having(v)))
	}
}

func testValues(b *trial) {
	b.withNotes()
	sizes := []int{0, 1, 4 << 10, 4<<10 + 1, 256 << 10, 256<<10 + 1, 600 << 10, keystore.ValueBytesMax}
	for i, n := range sizes {
		b.write(notes, put(fmt.Sprint(n), string(noise(n, byte(i)))))
	}
	_, err := b.tryWrite(notes, put("too large", strings.Repeat("x", keystore.ValueBytesMax+1)))
	b.wants(err, keystore.ErrTooLarge)
	check := func() {
		b.Helper()
		for i, n := range sizes {
			if got := b.item(notes, fmt.Sprint(n)); !bytes.Equal(got.Value, noise(n, byte(i))) {
				b.Fatalf("a value of %d bytes came back as another of %d", n, len(got.Value))
			}
		}
	}
	check()
	b.crash()
	check()
	for i, item := range b.allItems(keystore.ItemQuery{Space: notes}) {
		if item.Key != fmt.Sprint(sizes[i]) || !bytes.Equal(item.Value, noise(sizes[i], byte(i))) {
			b.Fatalf("listed: %q of %d bytes", item.Key, len(item.Value))
		}
	}
	for _, item := range b.allItems(keystore.ItemQuery{Space: notes, Fetch: keystore.KeysOnly}) {
		if item.Value != nil || item.Version == 0 {
			b.Fatalf("listed by keys only: %+v", item)
		}
	}
	// One value takes another's place, of any size.
	for i := range sizes {
		b.write(notes, put("k", string(noise(sizes[len(sizes)-1-i], 9))))
		if got := b.item(notes, "k"); !bytes.Equal(got.Value, noise(sizes[len(sizes)-1-i], 9)) {
			b.Fatalf("a value of %d bytes came back as another", sizes[len(sizes)-1-i])
		}
	}
}

// largestBatch has as many writes as a batch may have, each with all tags that
// an item may have, and about ten MiB of values.
func largestBatch() []keystore.ItemWrite {
	writes := make([]keystore.ItemWrite, keystore.WritesMax)
	for i := range writes {
		n := 100 << 10
		if i%4 == 0 {
			n = 4 << 10
		}
		writes[i] = put(fmt.Sprintf("%03d%s", i, strings.Repeat("ü", keystore.NameCharsMax-3)), string(noise(n, byte(i))))
		writes[i].Tags = map[string]string{}
		for t := range keystore.TagsMax {
			key := fmt.Sprintf("%02d", t) + strings.Repeat("t", keystore.TagKeyBytesMax-2)
			writes[i].Tags[key] = strings.Repeat("v", keystore.TagValueBytesMax)
		}
		writes[i].TTL = keystore.ItemTTLMax
	}
	writes[50].Value = noise(keystore.ValueBytesMax, 50)
	writes[99].Value = noise(keystore.ValueBytesMax, 99)
	return writes
}

func testLargestBatch(b *trial) {
	b.withNotes()
	writes := largestBatch()
	for range 2 {
		b.write(notes, writes...)
	}
	b.crash()
	for i := range writes {
		if got := b.item(notes, writes[i].Key); !bytes.Equal(got.Value, writes[i].Value) || !maps.Equal(got.Tags, writes[i].Tags) {
			b.Fatalf("item %d is not what was written", i)
		}
	}
	writes[99].If.Absent = true
	if r := b.refusing(keystore.ItemExists, notes, writes...); r.Operation != 99 {
		b.Fatalf("refused for operation %d, want 99", r.Operation)
	}
}

func testBatchAtomic(b *trial) {
	b.withNotes()
	v := b.write(notes, put("a", "1"), put("b", "1"))[1].Item.Version
	before := b.allItems(keystore.ItemQuery{Space: notes})
	for n, failing := range []keystore.ItemWrite{
		only(put("b", "2"), having(v+100)), only(del("b"), having(v+100)), only(put("b", "2"), keystore.Condition{Absent: true}),
		only(put("new", "2"), keystore.Condition{Present: true}),
	} {
		_, err := b.tryWrite(notes, put("a", "2"), del("x"), failing, put("y", "2"))
		refused, ok := errors.AsType[*keystore.Refused](err)
		if !ok || refused.Operation != 2 {
			b.Fatalf("batch %d: got %v, want it refused for operation 2", n, err)
		}
		if after := b.allItems(keystore.ItemQuery{Space: notes}); !sameItems(before, after) {
			b.Fatalf("batch %d: a refused batch left %q, before it was %q", n, keysOf(after), keysOf(before))
		}
	}
	written := b.write(notes, only(put("a", "2"), keystore.Condition{Present: true}), only(del("b"), having(v)), put("c", "2"), del("z"))
	if !written[0].Was || !written[1].Was || written[1].Item != nil || written[2].Was || written[3].Was {
		b.Fatalf("came to %+v", written)
	}
	b.crash()
	b.lists(keystore.ItemQuery{Space: notes}, "a c")
}

// sameItems reports whether two lists show the same versions.
func sameItems(x, y []*keystore.Item) bool {
	return slices.EqualFunc(x, y, func(a, b *keystore.Item) bool {
		return a.Key == b.Key && a.Version == b.Version && bytes.Equal(a.Value, b.Value) && a.UpdatedAt == b.UpdatedAt
	})
}

// testBatchesCross: of batches at the same instant that each move one unit from
// one item to another under conditions, none is lost and none counted twice.
func testBatchesCross(b *trial) {
	b.withNotes()
	b.write(notes, put("left", "1000"), put("right", "0"))
	var group sync.WaitGroup
	errs := make([]error, 16)
	for i := range errs {
		group.Go(func() {
			for n := 0; n < 10; {
				moved, err := b.move()
				if err != nil {
					errs[i] = err
					return
				}
				n += moved
			}
		})
	}
	group.Wait()
	if err := errors.Join(errs...); err != nil {
		b.Fatal(err)
	}
	left, right := b.item(notes, "left"), b.item(notes, "right")
	if string(left.Value) != "840" || string(right.Value) != "160" {
		b.Fatalf("left %s, right %s; want 840 and 160", left.Value, right.Value)
	}
}

// move moves one unit, or none if the items have changed meanwhile.
func (b *trial) move() (moved int, err error) {
	left, err := b.store.Item(context.Background(), notes, "left")
	if err != nil {
		return 0, err
	}
	right, err := b.store.Item(context.Background(), notes, "right")
	if err != nil {
		return 0, err
	}
	have, err := strconv.Atoi(string(left.Value))
	if err != nil {
		return 0, err
	}
	has, err := strconv.Atoi(string(right.Value))
	if err != nil {
		return 0, err
	}
	_, err = b.tryWrite(notes,
		only(put("left", fmt.Sprint(have-1)), having(left.Version)), only(put("right", fmt.Sprint(has+1)), having(right.Version)))
	if refused, ok := errors.AsType[*keystore.Refused](err); ok && refused.Reason == keystore.ETagMismatch {
		return 0, nil
	}
	return 1, err
}

func lasting(w keystore.ItemWrite, ttl time.Duration) keystore.ItemWrite {
	w.TTL = ttl
	return w
}

func testItemTTL(b *trial) {
	b.withNotes()
	b.write(notes, lasting(put("short", "1"), time.Minute), put("long", "1"), lasting(put("prolonged", "1"), time.Minute), lasting(put("kept", "1"), time.Minute))
	if got := b.item(notes, "short"); got.ExpiresAt != b.clock.Instant().Add(time.Minute) {
		b.Fatalf("expires at %d, now is %d", got.ExpiresAt, b.clock.Instant())
	}
	v := b.item(notes, "short").Version
	b.clock.Advance(time.Minute - 1)
	b.item(notes, "short")
	b.write(notes, lasting(put("prolonged", "2"), time.Hour), put("kept", "2"))
	b.clock.Advance(1)

	over := func() {
		b.Helper()
		b.noItem(notes, "short")
		b.lists(keystore.ItemQuery{Space: notes}, "long prolonged kept")
		b.lists(keystore.ItemQuery{Space: notes, Order: keystore.Descending, Limit: 1}, "kept prolonged long")
	}
	over()
	b.refusing(keystore.ETagMismatch, notes, only(put("short", "2"), having(v)))
	b.refusing(keystore.ETagMismatch, notes, only(del("short"), keystore.Condition{Present: true}))
	if b.write(notes, del("short"))[0].Was {
		b.Fatal("what is over was there to be deleted")
	}
	b.write(notes, lasting(put("short", "1"), time.Second))
	b.clock.Advance(time.Second)
	over()
	b.sweep()
	over()
	b.crash()
	over()

	again := b.write(notes, only(lasting(put("short", "3"), time.Minute), keystore.Condition{Absent: true}))[0]
	if again.Was || again.Item.CreatedAt != b.clock.Instant() {
		b.Fatalf("made again: %+v", again)
	}
	b.lists(keystore.ItemQuery{Space: notes}, "long prolonged kept short")
	b.sweep()
	b.item(notes, "short")
	b.clock.Advance(time.Hour)
	b.sweep()
	b.lists(keystore.ItemQuery{Space: notes}, "long kept")
}

func testItemStoreTTL(b *trial) {
	s := keystore.ItemStore{Namespace: notes.Namespace, Name: notes.Store, TTL: 10 * time.Second}
	b.putStore(s)
	expires := func(want keystore.Instant) {
		b.Helper()
		is, err := b.store.ItemStore(context.Background(), notes.Namespace, notes.Store)
		if err != nil || is.ExpiresAt() != want {
			b.Fatalf("expires at %d, %v; want %d", is.ExpiresAt(), err, want)
		}
	}
	for _, write := range []keystore.ItemWrite{put("k", "1"), put("other", "1"), put("k", "2"), del("not there"), del("other")} {
		b.clock.Advance(9*time.Second + 999*time.Millisecond)
		b.write(notes, write)
		expires(b.clock.Instant().Add(s.TTL))
	}
	b.clock.Advance(time.Millisecond) // however soon after the last
	b.write(notes, put("k", "3"))
	b.crash()
	until := b.clock.Instant().Add(s.TTL)
	expires(until)
	b.clock.Advance(s.TTL - 1)
	b.item(notes, "k") // reading, listing and asking for it prolong nothing
	b.lists(keystore.ItemQuery{Space: notes}, "k")
	b.refusing(keystore.ItemExists, notes, only(put("k", "3"), keystore.Condition{Absent: true}))
	b.putStore(s)
	expires(until)
	b.clock.Advance(1)
	over := func() {
		b.Helper()
		ctx := context.Background()
		_, err := b.store.ItemStore(ctx, notes.Namespace, notes.Store)
		b.wants(err, keystore.ErrNotFound)
		b.noItem(notes, "k")
		_, err = b.store.Items(ctx, &keystore.ItemQuery{Space: notes})
		b.wants(err, keystore.ErrNotFound)
		_, err = b.tryWrite(notes, put("k", "4"))
		b.wants(err, keystore.ErrNotFound)
	}
	over()
	b.sweep()
	over()
	b.crash()
	over()
}

func testItemStoreAnew(b *trial) {
	s := keystore.ItemStore{Namespace: notes.Namespace, Name: notes.Store, TTL: time.Minute}
	for round := range 4 {
		if _, isNew := b.putStore(s); !isNew {
			b.Fatalf("round %d: the store that is over is still there", round)
		}
		b.lists(keystore.ItemQuery{Space: notes}, "")
		b.noItem(notes, "0")
		for n := range 700 / 100 {
			writes := make([]keystore.ItemWrite, 100)
			for i := range writes {
				writes[i] = put(fmt.Sprint(n*100+i), string(noise(8<<10, byte(i))))
				if i%2 == 0 {
					writes[i].TTL = time.Hour
				}
			}
			b.write(notes, writes...)
		}
		if round%2 == 0 {
			b.clock.Advance(time.Minute)
			continue
		}
		// It is swept, but not to the end, when it is made anew.
		b.clock.Advance(time.Minute)
		if _, err := b.store.Sweep(context.Background(), keystore.Retention{}); err != nil {
			b.Fatal(err)
		}
	}
	b.putStore(s)
	b.write(notes, put("new", "1"))
	b.sweep()
	b.lists(keystore.ItemQuery{Space: notes}, "new")
	b.crash()
	b.sweep()
	b.lists(keystore.ItemQuery{Space: notes}, "new")
}

func testUsers(b *trial) {
	users := []string{"a", "ab", "A", "a\x00", "\x00a", "ü", "a:b", "a/b", strings.Repeat("u", 4096)}
	s := keystore.Space{Namespace: "default", Store: "mine"}
	b.putStore(keystore.ItemStore{Namespace: s.Namespace, Name: s.Store, Isolation: keystore.PerUser})
	for _, user := range users {
		mine := s
		mine.User = user
		b.write(mine, only(put("k", fmt.Sprintf("%q", user)), keystore.Condition{Absent: true}))
		b.write(mine, only(put("bc", "1"), keystore.Condition{Absent: true}))
	}
	for _, user := range users {
		mine := s
		mine.User = user
		if got := b.item(mine, "k"); string(got.Value) != fmt.Sprintf("%q", user) {
			b.Fatalf("user %q reads %s", user, got.Value)
		}
		b.lists(keystore.ItemQuery{Space: mine}, "k bc")
		b.lists(keystore.ItemQuery{Space: mine, Order: keystore.Descending, Limit: 1}, "bc k")
		b.noItem(mine, "c")
	}
	first, second := s, s
	first.User, second.User = users[0], users[1]
	b.refusing(keystore.ETagMismatch, second, only(del("k"), having(b.item(first, "k").Version)))
	b.write(first, del("k"))
	b.noItem(first, "k")
	b.item(second, "k")

	_, err := b.tryWrite(s, put("k", "1"))
	b.wants(err, keystore.ErrInvalidKey)
	_, err = b.store.Item(context.Background(), s, "k")
	b.wants(err, keystore.ErrInvalidKey)
	_, err = b.store.Items(context.Background(), &keystore.ItemQuery{Space: s})
	b.wants(err, keystore.ErrInvalidKey)

	b.withNotes()
	shared := notes
	shared.User = "a"
	b.write(shared, put("k", "1"))
	shared.User = "b"
	b.item(shared, "k")
	b.item(notes, "k")
	b.lists(keystore.ItemQuery{Space: shared}, "k")
}

func testItemNamespaces(b *trial) {
	spaces := []keystore.Space{{Namespace: "a", Store: "bc"}, {Namespace: "ab", Store: "c"}, {Namespace: "a", Store: "b"}, {Namespace: "a", Store: "b/c"}}
	for i, s := range spaces {
		b.putStore(keystore.ItemStore{Namespace: s.Namespace, Name: s.Store})
		b.lists(keystore.ItemQuery{Space: s}, "")
		b.write(s, only(put("k", fmt.Sprint(i)), keystore.Condition{Absent: true}))
	}
	for i, s := range spaces {
		if got := b.item(s, "k"); string(got.Value) != fmt.Sprint(i) {
			b.Fatalf("%+v holds %s, want %d", s, got.Value, i)
		}
	}
	_, err := b.store.ItemStore(context.Background(), "b", "c")
	b.wants(err, keystore.ErrNotFound)
}

func tagged(w keystore.ItemWrite, tags ...string) keystore.ItemWrite {
	w.Tags = map[string]string{}
	for _, t := range tags {
		k, v, _ := strings.Cut(t, ":")
		w.Tags[k] = v
	}
	return w
}

func testItemLists(b *trial) {
	b.withNotes()
	b.lists(keystore.ItemQuery{Space: notes}, "")
	b.write(notes, tagged(put("z/1", "1"), "kind:x", "n:1"))
	b.write(notes, tagged(put("a/1", "1"), "kind:y", "n:1"), tagged(put("z/2", "1"), "kind:x", "n:2"))
	b.write(notes, put("a/2", "1"), tagged(put("z/3", "1"), "kind:x", "n:1"))
	check := func(all, reversed string) {
		b.Helper()
		for limit := range 6 {
			b.lists(keystore.ItemQuery{Space: notes, Limit: limit}, all)
			b.lists(keystore.ItemQuery{Space: notes, Limit: limit, Order: keystore.Descending}, reversed)
		}
	}
	check("z/1 a/1 z/2 a/2 z/3", "z/3 a/2 z/2 a/1 z/1")
	q := keystore.ItemQuery{Space: notes, Prefix: "z/", Limit: 1}
	b.lists(q, "z/1 z/2 z/3")
	q.Tags = map[string]string{"n": "1"}
	b.lists(q, "z/1 z/3")
	q.Order, q.Prefix = keystore.Descending, ""
	b.lists(q, "z/3 a/1 z/1")
	q.Tags["kind"] = "x"
	b.lists(q, "z/3 z/1")
	q.Tags["kind"] = ""
	b.lists(q, "")
	b.lists(keystore.ItemQuery{Space: notes, Prefix: "none"}, "")

	b.write(notes, tagged(put("z/1", "2"), "kind:z"))
	check("z/1 a/1 z/2 a/2 z/3", "z/3 a/2 z/2 a/1 z/1")
	b.lists(keystore.ItemQuery{Space: notes, Tags: map[string]string{"kind": "z"}}, "z/1")
	b.write(notes, del("a/1"), del("z/2"))
	b.write(notes, put("a/1", "2"))
	b.crash()
	check("z/1 a/2 z/3 a/1", "a/1 z/3 a/2 z/1")
	if full := b.items(keystore.ItemQuery{Space: notes, Limit: 4}); len(full.Items) != 4 || full.Next != "" {
		b.Fatalf("the last page, which is full, has %d items and next %q", len(full.Items), full.Next)
	}
}

func testItemCursors(b *trial) {
	for _, name := range []string{"one", "two"} {
		for _, isolation := range []keystore.Isolation{keystore.Shared, keystore.PerUser} {
			s := keystore.Space{Namespace: "default", Store: fmt.Sprint(name, isolation), User: "ann"}
			b.putStore(keystore.ItemStore{Namespace: s.Namespace, Name: s.Store, Isolation: isolation})
			b.write(s, tagged(put("k1", "1"), "t:1", "u:1"), tagged(put("k2", "1"), "t:1", "u:1"), tagged(put("k3", "1"), "t:1", "u:1"))
		}
	}
	listings := []keystore.ItemQuery{}
	for _, s := range []keystore.Space{{Namespace: "default", Store: "one0"}, {Namespace: "default", Store: "two0"}, {Namespace: "default", Store: "one1", User: "ann"}, {Namespace: "default", Store: "one1", User: "bob"}} {
		for _, q := range []keystore.ItemQuery{{}, {Order: keystore.Descending}, {Prefix: "k"}, {Tags: map[string]string{"t": "1"}}, {Tags: map[string]string{"t": "2"}}, {Tags: map[string]string{"u": "1"}}, {Tags: map[string]string{"t": "1", "u": "1"}}} {
			q.Space, q.Limit = s, 1
			listings = append(listings, q)
		}
	}
	for i, from := range listings {
		cursor := b.items(from).Next
		if cursor == "" && from.Space.User != "bob" && from.Tags["t"] != "2" {
			b.Fatalf("%+v gives no cursor", from)
		}
		for j, to := range listings {
			if to.After = cursor; cursor == "" {
				continue
			}
			_, err := b.store.Items(context.Background(), &to)
			if i == j && err != nil {
				b.Fatalf("%+v does not take its own cursor: %v", from, err)
			}
			if i != j {
				b.wants(err, keystore.ErrCursor)
			}
		}
	}
	for _, garbage := range []string{"!", "AAAA", strings.Repeat("A", 22), strings.Repeat("A", 4096)} {
		_, err := b.store.Items(context.Background(), &keystore.ItemQuery{Space: listings[0].Space, After: garbage})
		b.wants(err, keystore.ErrCursor)
	}
	q := listings[0]
	q.After, q.Fetch, q.Limit = b.items(q).Next, keystore.KeysOnly, 5
	if rest := b.items(q); keysOf(rest.Items) != "k2 k3" || rest.Next != "" {
		b.Fatalf("a cursor goes on to %q with another limit, next %q", keysOf(rest.Items), rest.Next)
	}
	for _, limit := range []int{-1, keystore.ItemsMax + 1} {
		if _, err := b.store.Items(context.Background(), &keystore.ItemQuery{Space: listings[0].Space, Limit: limit}); err == nil {
			b.Fatalf("a limit of %d is taken", limit)
		}
	}
}

// fill makes n items, the last of them with a tag of its own.
func (b *trial) fill(s keystore.Space, n int) {
	b.Helper()
	for from := 0; from < n; from += keystore.WritesMax {
		var writes []keystore.ItemWrite
		for i := from; i < min(n, from+keystore.WritesMax); i++ {
			w := put(fmt.Sprintf("%06d", i), "1")
			if i == n-1 {
				w = tagged(w, "last:yes")
			}
			writes = append(writes, w)
		}
		b.write(s, writes...)
	}
}

func testItemPageBounds(b *trial) {
	b.withNotes()
	const n = 2*keystore.LookedAtMax + 500
	b.fill(notes, n)
	q := keystore.ItemQuery{Space: notes, Tags: map[string]string{"last": "yes"}}
	for page, want := range []int{0, 0, 1} {
		l := b.items(q)
		if len(l.Items) != want || (l.Next == "") != (want == 1) {
			b.Fatalf("page %d: %d items, next %q; want %d", page, len(l.Items), l.Next, want)
		}
		q.After = l.Next
	}
	if l := b.items(keystore.ItemQuery{Space: notes}); len(l.Items) != keystore.ItemsDefault {
		b.Fatalf("a page without a limit has %d items", len(l.Items))
	}
	if all := b.allItems(keystore.ItemQuery{Space: notes, Limit: keystore.ItemsMax}); len(all) != n {
		b.Fatalf("%d of %d items are listed", len(all), n)
	}

	large := keystore.Space{Namespace: "default", Store: "large"}
	b.putStore(keystore.ItemStore{Namespace: large.Namespace, Name: large.Store})
	value := string(noise(keystore.ValueBytesMax, 1))
	for i := range 12 {
		b.write(large, put(fmt.Sprint(i), value))
	}
	if l := b.items(keystore.ItemQuery{Space: large, Limit: 20}); len(l.Items) != keystore.PageBytesMax/keystore.ValueBytesMax || l.Next == "" {
		b.Fatalf("a page has %d values of 1 MiB, next %q", len(l.Items), l.Next)
	}
	if l := b.items(keystore.ItemQuery{Space: large, Limit: 20, Fetch: keystore.KeysOnly}); len(l.Items) != 12 || l.Next != "" {
		b.Fatalf("a page of keys has %d items, next %q", len(l.Items), l.Next)
	}
	b.lists(keystore.ItemQuery{Space: large, Order: keystore.Descending}, "11 10 9 8 7 6 5 4 3 2 1 0")
}

// testItemsListedOnce: what is there all along is listed exactly once, in order,
// while other items come, go and change around it.
func testItemsListedOnce(b *trial) {
	const seed = 17
	b.withNotes()
	var steady []string
	for i := range 300 {
		key := fmt.Sprintf("steady %03d", i)
		steady = append(steady, key)
		b.write(notes, put(key, "0"), put(fmt.Sprintf("fleeting %d", i), "0"))
	}
	ctx, stop := context.WithCancel(context.Background())
	errs := make([]error, 4)
	var group sync.WaitGroup
	for w := range errs {
		random := rand.New(rand.NewPCG(seed, uint64(w)))
		group.Go(func() {
			for ctx.Err() == nil && errs[w] == nil {
				_, errs[w] = b.tryWrite(notes, b.disturbance(random)...)
			}
		})
	}
	for pass := range 12 {
		q := keystore.ItemQuery{Space: notes, Order: keystore.Order(pass % 2), Limit: 1 + pass*7}
		var got []string
		for _, i := range b.allItems(q) {
			if strings.HasPrefix(i.Key, "steady") {
				got = append(got, i.Key)
			}
		}
		want := slices.Clone(steady)
		if q.Order == keystore.Descending {
			slices.Reverse(want)
		}
		if !slices.Equal(got, want) {
			stop()
			group.Wait()
			b.Fatalf("pass %d (seed %d): listed %d of %d items that were there all along, or not in order", pass, seed, len(got), len(want))
		}
	}
	stop()
	group.Wait()
	if err := errors.Join(errs...); err != nil {
		b.Fatal(err)
	}
}

// disturbance replaces some items, and makes and deletes others.
func (b *trial) disturbance(random *rand.Rand) []keystore.ItemWrite {
	writes := []keystore.ItemWrite{put(fmt.Sprintf("steady %03d", random.IntN(300)), string(noise(random.IntN(8<<10), 1)))}
	fleeting := fmt.Sprintf("fleeting %d", random.IntN(300))
	if random.IntN(2) == 0 {
		return append(writes, del(fleeting))
	}
	return append(writes, put(fleeting, "1"))
}

func (b *trial) tryGuarded(g keystore.Guard, requires []keystore.Key, w ...keystore.ItemWrite) error {
	_, err := b.store.WriteItems(context.Background(), &keystore.Batch{Space: notes, Writes: w, Guard: g, Requires: requires})
	return err
}

func testGuard(b *trial) {
	b.withNotes()
	if err := b.tryGuarded(keystore.Guard{Run: "not there"}, nil, put("k", "1")); err != nil {
		b.Fatalf("naming a run that is not on record: %v", err)
	}
	b.refused(b.tryGuarded(keystore.Guard{Run: "not there", Fence: 1}, nil, put("k", "2")), keystore.Fenced)
	_, err := b.store.Run(context.Background(), "default", "not there")
	b.wants(err, keystore.ErrNotFound)
	if got := b.item(notes, "k"); string(got.Value) != "1" {
		b.Fatalf("a fenced write was made: %s", got.Value)
	}
	// The guard is the first to be asked, then the receipts, then the conditions.
	failing := only(put("k", "2"), keystore.Condition{Absent: true})
	requires := []keystore.Key{key("missing")}
	b.refused(b.tryGuarded(keystore.Guard{Run: "r", Fence: 1}, requires, failing), keystore.Fenced)
	b.refused(b.tryGuarded(keystore.Guard{Run: "r"}, requires, failing), keystore.ReceiptRequired)
	b.refused(b.tryGuarded(keystore.Guard{Run: "r"}, nil, failing), keystore.ItemExists)
}

func testFencedWrites(b *trial) {
	ctx := context.Background()
	b.withNotes()
	first := b.acquire("r", "first").Fence
	if r := b.refused(b.tryGuarded(keystore.Guard{Run: "r"}, nil, put("k", "0")), keystore.FenceRequired); r.Fence != first {
		b.Fatalf("refused: %+v, the newest fence is %d", r, first)
	}
	if err := b.tryGuarded(keystore.Guard{Run: "r", Fence: first}, nil, put("k", "1")); err != nil {
		b.Fatal(err)
	}
	if err := b.tryGuarded(keystore.Guard{}, nil, put("free", "1")); err != nil {
		b.Fatalf("a write that names no run: %v", err)
	}
	b.clock.Advance(2 * time.Minute)
	if err := b.tryGuarded(keystore.Guard{Run: "r", Fence: first}, nil, put("k", "2")); err != nil {
		b.Fatalf("the lease is over, and nobody has taken it: %v", err)
	}
	second := b.acquire("r", "second").Fence
	b.refused(b.tryGuarded(keystore.Guard{Run: "r", Fence: first}, nil, put("k", "3")), keystore.Fenced)
	b.crash()
	b.refused(b.tryGuarded(keystore.Guard{Run: "r", Fence: first}, nil, put("k", "3")), keystore.Fenced)
	if err := b.tryGuarded(keystore.Guard{Run: "r", Fence: second}, nil, put("k", "4")); err != nil {
		b.Fatal(err)
	}
	if err := b.store.ReleaseLease(ctx, "default", "r", second); err != nil {
		b.Fatal(err)
	}
	b.refused(b.tryGuarded(keystore.Guard{Run: "r", Fence: second}, nil, put("k", "5")), keystore.Fenced)
	if got := b.item(notes, "k"); string(got.Value) != "4" {
		b.Fatalf("the item holds %s, want 4", got.Value)
	}

	if _, _, err := b.store.PutRun(ctx, &keystore.RunSpec{Namespace: "default", Run: "pinned", FlowVersion: "v1"}); err != nil {
		b.Fatal(err)
	}
	r := b.refused(b.tryGuarded(keystore.Guard{Run: "pinned", FlowVersion: "v2"}, nil, put("k", "6")), keystore.FlowVersionMismatch)
	if r.FlowVersion != "v1" {
		b.Fatalf("refused: %+v, want v1 to be named", r)
	}
	if err := b.tryGuarded(keystore.Guard{Run: "pinned", FlowVersion: "v1"}, nil, put("k", "6")); err != nil {
		b.Fatal(err)
	}
	b.sweptRunStaysFenced(second)
}

// sweptRunStaysFenced: a holder of long ago is fenced off although nothing else
// is left of its run.
func (b *trial) sweptRunStaysFenced(old keystore.Fence) {
	b.Helper()
	b.clock.Advance(100 * 24 * time.Hour)
	b.sweep()
	_, err := b.store.Run(context.Background(), "default", "r")
	b.wants(err, keystore.ErrNotFound)
	b.refused(b.tryGuarded(keystore.Guard{Run: "r", Fence: old}, nil, put("k", "7")), keystore.Fenced)
}

// testLeasesUnderWriters: while a lease goes from hand to hand, no write of an
// earlier holder comes after one of a later holder, and none after its release.
func testLeasesUnderWriters(b *trial) {
	b.withNotes()
	type write struct {
		version keystore.ItemVersion
		fence   keystore.Fence
	}
	const holders, turns = 6, 15
	writes, errs := make([][]write, holders), make([]error, holders)
	var group sync.WaitGroup
	for h := range holders {
		group.Go(func() {
			for done := 0; done < turns && errs[h] == nil; {
				g, err := b.store.AcquireLease(context.Background(), &keystore.LeaseRequest{Namespace: "default", Run: "r", Owner: fmt.Sprint(h), TTL: time.Minute})
				if refused, ok := errors.AsType[*keystore.Refused](err); ok && refused.Reason == keystore.LeaseHeld {
					runtime.Gosched()
					continue
				}
				if err != nil {
					errs[h] = err
					return
				}
				done++
				fenced := make(chan error, 1)
				go func() { // a write under way while the lease is given back
					written, err := b.store.WriteItems(context.Background(), &keystore.Batch{
						Space: notes, Writes: []keystore.ItemWrite{put("k", fmt.Sprint(g.Fence))}, Guard: keystore.Guard{Run: "r", Fence: g.Fence},
					})
					if err == nil {
						writes[h] = append(writes[h], write{written[0].Item.Version, g.Fence})
					}
					if refused, ok := errors.AsType[*keystore.Refused](err); ok && refused.Reason == keystore.Fenced {
						err = nil
					}
					fenced <- err
				}()
				errs[h] = errors.Join(b.store.ReleaseLease(context.Background(), "default", "r", g.Fence), <-fenced)
				if err := b.tryGuarded(keystore.Guard{Run: "r", Fence: g.Fence}, nil, put("k", "late")); err == nil {
					errs[h] = fmt.Errorf("a write under fence %d was made after its release", g.Fence)
				}
			}
		})
	}
	group.Wait()
	if err := errors.Join(errs...); err != nil {
		b.Fatal(err)
	}
	all := slices.Concat(writes...)
	slices.SortFunc(all, func(x, y write) int { return cmp.Compare(x.version, y.version) })
	if !slices.IsSortedFunc(all, func(x, y write) int { return cmp.Compare(x.fence, y.fence) }) {
		b.Fatalf("writes in the order in which they were made, with their fences: %v", all)
	}
}

func testRequires(b *trial) {
	b.withNotes()
	b.succeed(key("done"))
	b.beginning(b.request(key("rejected")), keystore.Send)
	b.apply(key("rejected"), answered(keystore.SawRejected, 1), nil)
	b.openCall("open")
	b.beginning(b.request(key("pending")), keystore.Send)
	b.doubt(b.request(key("doubt")))
	b.lose(key("unknown"))
	b.hold(keyIn("held", "held"))
	for _, k := range []keystore.Key{key("open"), key("pending"), key("doubt"), key("unknown"), keyIn("held", "held"), key("never"), keyIn("no run", "x")} {
		err := b.tryGuarded(keystore.Guard{}, []keystore.Key{key("done"), k, key("rejected")}, put("marker", "1"))
		if r := b.refused(err, keystore.ReceiptRequired); r.Call != k {
			b.Fatalf("refused for %s, want %s", r.Call, k)
		}
		b.noItem(notes, "marker")
	}
	other := key("done")
	other.Namespace = "another"
	b.refused(b.tryGuarded(keystore.Guard{}, []keystore.Key{other}, put("marker", "1")), keystore.ReceiptRequired)
	if err := b.tryGuarded(keystore.Guard{}, []keystore.Key{key("done"), key("rejected")}, put("marker", "1")); err != nil {
		b.Fatal(err)
	}
	b.crash()
	b.item(notes, "marker")
	if err := b.tryGuarded(keystore.Guard{}, []keystore.Key{key("done")}, put("marker", "2")); err != nil {
		b.Fatalf("after a crash: %v", err)
	}
	b.markersFollow()
}

// markersFollow lets markers race with the receipts they stand for: no marker is
// ever seen before its receipt.
func (b *trial) markersFollow() {
	b.Helper()
	const n = 50
	var group sync.WaitGroup
	errs := make([]error, 2*n)
	for i := range n {
		k := keyIn("race", fmt.Sprint(i))
		b.beginning(b.request(k), keystore.Send)
		group.Go(func() {
			_, errs[i] = b.store.Apply(context.Background(), k, answered(keystore.SawApplied, 1), nil)
		})
		group.Go(func() {
			for {
				err := b.tryGuarded(keystore.Guard{}, []keystore.Key{k}, put(k.Call, "1"))
				if refused, ok := errors.AsType[*keystore.Refused](err); ok && refused.Reason == keystore.ReceiptRequired {
					continue
				}
				if r, readErr := b.store.Call(context.Background(), k); err == nil && (readErr != nil || r.Receipt == nil) {
					err = fmt.Errorf("the marker of %s is there before its receipt", k)
				}
				errs[n+i] = err
				return
			}
		})
	}
	group.Wait()
	if err := errors.Join(errs...); err != nil {
		b.Fatal(err)
	}
}

func testItemOwnership(b *trial) {
	b.withNotes()
	for _, n := range []int{100, 100 << 10} {
		value := noise(n, 1)
		w := tagged(put("k", ""), "t:1")
		w.Value = bytes.Clone(value)
		written := b.write(notes, w)
		clear(w.Value)
		w.Tags["t"], written[0].Item.Tags["t"], written[0].Item.Key = "changed", "changed too", "changed"
		got := b.item(notes, "k")
		if !bytes.Equal(got.Value, value) || got.Tags["t"] != "1" {
			b.Fatal("the item changed with the writer's memory")
		}
		clear(got.Value)
		got.Tags["t"] = "changed"
		listed := b.items(keystore.ItemQuery{Space: notes}).Items[0]
		clear(listed.Value)
		if got := b.item(notes, "k"); !bytes.Equal(got.Value, value) || got.Tags["t"] != "1" {
			b.Fatal("the item changed with a reader's memory")
		}
	}
}

// testItemsAcknowledged lets several writers loose on keys of their own, ends the
// store under them, and wants back the last that each was told.
func testItemsAcknowledged(b *trial) {
	b.withNotes()
	const writers, seed = 8, 23
	last := make([]map[string]keystore.Written, writers)
	errs := make([]error, writers)
	for life := range 3 {
		var group sync.WaitGroup
		for w := range writers {
			random := rand.New(rand.NewPCG(seed, uint64(life*writers+w)))
			if last[w] == nil {
				last[w] = map[string]keystore.Written{}
			}
			group.Go(func() {
				for range 25 {
					x, y := fmt.Sprintf("%d-%d", w, random.IntN(4)), fmt.Sprintf("%d-%d", w, 4+random.IntN(4))
					writes := []keystore.ItemWrite{put(x, string(noise(random.IntN(300<<10), 3))), del(y)}
					written, err := b.tryWrite(notes, writes...)
					if err != nil {
						errs[w] = err
						return
					}
					last[w][x], last[w][y] = written[0], written[1]
				}
			})
		}
		group.Wait()
		if err := errors.Join(errs...); err != nil {
			b.Fatal(err)
		}
		b.crash()
		for w := range writers {
			for key, want := range last[w] {
				if want.Item == nil {
					b.noItem(notes, key)
				} else if got := b.item(notes, key); got.Version != want.Item.Version {
					b.Fatalf("seed %d: %s has version %d, acknowledged was %d", seed, key, got.Version, want.Item.Version)
				}
			}
		}
	}
}

func testItemLimits(b *trial) {
	ctx := context.Background()
	b.withNotes()
	for name, w := range map[string][]keystore.ItemWrite{
		"no writes": {}, "a key twice": {put("k", "1"), del("k")}, "no key": {put("", "1")}, "a TTL below a second": {lasting(put("k", "1"), 1)},
		"no kind": {{Key: "k"}}, "a colon in a tag": {{Kind: keystore.PutItem, Key: "k", Tags: map[string]string{"a:b": "c"}}},
		"a long key": {put(strings.Repeat("x", keystore.NameCharsMax+1), "1")},
	} {
		if _, err := b.tryWrite(notes, w...); err == nil || errors.Is(err, keystore.ErrUnavailable) {
			b.Errorf("%s: got %v, want it refused", name, err)
		}
	}
	b.lists(keystore.ItemQuery{Space: notes}, "")
	for name, s := range map[string]keystore.ItemStore{
		"no name": {Namespace: "default"}, "no namespace": {Name: "x"}, "a long TTL": {Namespace: "default", Name: "x", TTL: keystore.ItemTTLMax + 1},
	} {
		if _, _, err := b.store.PutItemStore(ctx, &s); err == nil || errors.Is(err, keystore.ErrUnavailable) {
			b.Errorf("%s: got %v, want it refused", name, err)
		}
	}
	b.putStore(keystore.ItemStore{Namespace: "default", Name: strings.Repeat("ü", keystore.NameCharsMax)})
}

func testItemsClosed(b *trial) {
	ctx := context.Background()
	b.withNotes()
	b.write(notes, put("k", "1"))
	b.store.Close()
	_, _, err := b.store.PutItemStore(ctx, &keystore.ItemStore{Namespace: "default", Name: "new"})
	b.wants(err, keystore.ErrUnavailable)
	_, err = b.store.ItemStore(ctx, notes.Namespace, notes.Store)
	b.wants(err, keystore.ErrUnavailable)
	_, err = b.tryWrite(notes, put("k", "2"))
	b.wants(err, keystore.ErrUnavailable)
	_, err = b.tryWrite(notes, put("k", string(noise(1<<20, 1))), put("l", string(noise(1<<20, 1))))
	b.wants(err, keystore.ErrUnavailable)
	_, err = b.store.Item(ctx, notes, "k")
	b.wants(err, keystore.ErrUnavailable)
	_, err = b.store.Items(ctx, &keystore.ItemQuery{Space: notes})
	b.wants(err, keystore.ErrUnavailable)
}

package storetest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"counterfoil/keystore"
)

// An itemImage is the item stores of an image. Its entries are never changed in
// place.
type itemImage struct {
	stores map[itemStoreName]itemStoreEntry
	items  map[itemName]itemEntry
}

type itemStoreName struct{ namespace, name string }

// An itemStoreEntry is an item store on record. Its number tells it from one of
// the same name that was there before.
type itemStoreEntry struct {
	store  keystore.ItemStore
	number uint64
}

type itemName struct {
	store     uint64
	user, key string
}

// An itemEntry is an item on record. Its place orders items by their creation.
type itemEntry struct {
	stored []byte
	place  uint64
}

func newItemImage() itemImage {
	return itemImage{map[itemStoreName]itemStoreEntry{}, map[itemName]itemEntry{}}
}

func (m itemImage) clone() itemImage { return itemImage{maps.Clone(m.stores), maps.Clone(m.items)} }

// nextNumber is one that no epoch has given out before.
func (s *Memory) nextNumber() uint64 {
	s.ref++
	return uint64(s.ref)
}

// PutItemStore makes an item store if it is not there.
func (s *Memory) PutItemStore(ctx context.Context, q *keystore.ItemStore) (is keystore.ItemStore, isNew bool, err error) {
	if err := validItemStore(q); err != nil {
		return is, false, err
	}
	err = s.do(ctx, WriteItems, func() (err error) {
		is, isNew, err = s.putItemStore(q)
		return err
	})
	if err != nil {
		return keystore.ItemStore{}, false, fmt.Errorf("putting store %q: %w", q.Name, err)
	}
	return is, isNew, nil
}

func validItemStore(q *keystore.ItemStore) error {
	return errors.Join(keystore.ValidatePart(q.Namespace), keystore.ValidateName(q.Name), keystore.ValidateItemTTL(q.TTL))
}

func (s *Memory) putItemStore(q *keystore.ItemStore) (keystore.ItemStore, bool, error) {
	e, err := s.itemStore(q.Namespace, q.Name)
	switch {
	case err == nil:
		return e.store, false, nil
	case !errors.Is(err, keystore.ErrNotFound):
		return keystore.ItemStore{}, false, err
	case s.disk.isFull():
		return keystore.ItemStore{}, false, keystore.ErrFull
	}
	now := s.instant()
	made := itemStoreEntry{keystore.ItemStore{
		Namespace: q.Namespace, Name: q.Name, TTL: q.TTL, Isolation: q.Isolation, CreatedAt: now, WrittenAt: now,
	}, s.nextNumber()}
	s.change(func(m *image) { m.items.stores[itemStoreName{q.Namespace, q.Name}] = made })
	return made.store, true, nil
}

// itemStore returns the item store of that name, or ErrNotFound.
func (s *Memory) itemStore(namespace, name string) (itemStoreEntry, error) {
	e, ok := s.live.items.stores[itemStoreName{namespace, name}]
	if !ok || e.store.IsOver(s.instant()) {
		return e, keystore.ErrNotFound
	}
	return e, nil
}

// ItemStore returns an item store.
func (s *Memory) ItemStore(ctx context.Context, namespace, name string) (is keystore.ItemStore, err error) {
	err = s.do(ctx, Read, func() error {
		e, err := s.itemStore(namespace, name)
		is = e.store
		return err
	})
	if err != nil {
		return keystore.ItemStore{}, fmt.Errorf("reading store %q: %w", name, err)
	}
	return is, nil
}

// space returns the item store of a space, and whose items are meant.
func (s *Memory) space(sp keystore.Space) (e itemStoreEntry, user string, err error) {
	if e, err = s.itemStore(sp.Namespace, sp.Store); err != nil {
		return e, "", err
	}
	user, err = e.store.Owner(sp)
	return e, user, err
}

// item returns what is there under a name, nil if nothing is.
func (s *Memory) item(name itemName) (*keystore.Item, uint64, error) {
	e, ok := s.live.items.items[name]
	if !ok {
		return nil, 0, nil
	}
	i, err := s.decodeItem(e)
	if err != nil || i.IsOver(s.instant()) {
		return nil, 0, err
	}
	return i, e.place, nil
}

func (s *Memory) decodeItem(e itemEntry) (*keystore.Item, error) {
	i := &keystore.Item{}
	if err := s.disk.codec.Decode(e.stored, i); err != nil {
		return nil, err
	}
	return i, nil
}

// WriteItems makes all writes of a batch or none.
func (s *Memory) WriteItems(ctx context.Context, b *keystore.Batch) (written []keystore.Written, err error) {
	if err := b.Validate(); err != nil {
		return nil, err
	}
	err = s.do(ctx, WriteItems, func() (err error) {
		written, err = s.writeItems(b)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("writing to store %q: %w", b.Space.Store, err)
	}
	return written, nil
}

func (s *Memory) writeItems(b *keystore.Batch) ([]keystore.Written, error) {
	e, user, err := s.space(b.Space)
	if err != nil {
		return nil, err
	}
	if err := s.admits(b); err != nil {
		return nil, err
	}
	written := make([]keystore.Written, len(b.Writes))
	changes := make([]change, len(b.Writes))
	for i := range b.Writes {
		if written[i], changes[i], err = s.writeItem(&b.Writes[i], i, itemName{e.number, user, b.Writes[i].Key}); err != nil {
			return nil, err
		}
	}
	if s.disk.isFull() {
		return nil, keystore.ErrFull
	}
	for _, c := range changes {
		s.change(c)
	}
	if next, changed := e.store.Written(s.instant()); changed {
		e.store = next
		s.change(func(m *image) { m.items.stores[itemStoreName{next.Namespace, next.Name}] = e })
	}
	return written, nil
}

// admits checks the batch's guard, and the receipts that it requires.
func (s *Memory) admits(b *keystore.Batch) error {
	if b.Guard.Run != "" {
		run := s.runOf(runName{b.Space.Namespace, b.Guard.Run})
		if err := run.Check(b.Guard); err != nil {
			return err
		}
	}
	for _, k := range b.Requires {
		r, err := s.record(k)
		if err != nil && !errors.Is(err, keystore.ErrNotFound) {
			return err
		}
		if err := keystore.RequireReceipt(k, r); err != nil {
			return err
		}
	}
	return nil
}

// writeItem works out one write: what comes of it, and how the image changes.
func (s *Memory) writeItem(w *keystore.ItemWrite, operation int, name itemName) (keystore.Written, change, error) {
	present, place, err := s.item(name)
	if err != nil {
		return keystore.Written{}, nil, err
	}
	if err := w.If.Check(present, operation); err != nil {
		return keystore.Written{}, nil, err
	}
	if w.Kind == keystore.DeleteItem {
		return keystore.Written{Was: present != nil}, func(m *image) { delete(m.items.items, name) }, nil
	}
	version := s.nextNumber()
	if present == nil {
		place = version
	}
	made := w.Put(present, keystore.ItemVersion(version), s.instant())
	full := *made
	full.Value = w.Value
	stored, err := s.disk.codec.Encode(&full)
	if err != nil {
		return keystore.Written{}, nil, err
	}
	e := itemEntry{stored, place}
	return keystore.Written{Item: made, Was: present != nil}, func(m *image) { m.items.items[name] = e }, nil
}

// Item returns an item.
func (s *Memory) Item(ctx context.Context, sp keystore.Space, key string) (i *keystore.Item, err error) {
	err = s.do(ctx, Read, func() error {
		e, user, err := s.space(sp)
		if err != nil {
			return err
		}
		if i, _, err = s.item(itemName{e.number, user, key}); err == nil && i == nil {
			err = keystore.ErrNotFound
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("reading item %q of store %q: %w", key, sp.Store, err)
	}
	return i, nil
}

// Items lists a part of an item store in order of creation.
func (s *Memory) Items(ctx context.Context, q *keystore.ItemQuery) (l keystore.List[*keystore.Item], err error) {
	limit, err := q.PageLimit()
	if err != nil {
		return l, err
	}
	err = s.do(ctx, Read, func() error {
		e, user, err := s.space(q.Space)
		if err != nil {
			return err
		}
		asked := *q
		asked.Space.User = user
		after, err := asked.AfterPlace()
		if err != nil {
			return err
		}
		l = s.pageOf(&asked, limit, s.itemsAfter(e.number, &asked, after))
		return nil
	})
	if err != nil {
		return keystore.List[*keystore.Item]{}, fmt.Errorf("listing store %q: %w", q.Space.Store, err)
	}
	return l, nil
}

// itemsAfter returns what of a user's part comes after a place, in order.
func (s *Memory) itemsAfter(store uint64, q *keystore.ItemQuery, after uint64) []itemEntry {
	direction := 1
	if q.Order == keystore.Descending {
		direction = -1
	}
	var all []itemEntry
	for name, e := range s.live.items.items {
		isBehind := after == 0 || cmp.Compare(e.place, after) == direction
		if name.store == store && name.user == q.Space.User && isBehind {
			all = append(all, e)
		}
	}
	slices.SortFunc(all, func(a, b itemEntry) int { return direction * cmp.Compare(a.place, b.place) })
	return all
}

// pageOf picks a page out of what comes next.
func (s *Memory) pageOf(q *keystore.ItemQuery, limit int, next []itemEntry) (l keystore.List[*keystore.Item]) {
	bytes := 0
	for n, e := range next {
		if len(l.Items) == limit || n == keystore.LookedAtMax || bytes >= keystore.PageBytesMax {
			l.Next = q.Cursor(next[n-1].place)
			return l
		}
		i, err := s.decodeItem(e)
		if err != nil || i.IsOver(s.instant()) || !q.Matches(i) {
			continue
		}
		if q.Fetch == keystore.KeysOnly {
			i.Value = nil
		}
		bytes += len(i.Value)
		l.Items = append(l.Items, i)
	}
	return l
}

// itemsSwept is how many items one step of Sweep frees.
const itemsSwept = 512

// sweepItems frees some of what is over, and reports whether there was any.
func (s *Memory) sweepItems(now keystore.Instant) (more bool) {
	alive := map[uint64]bool{}
	for name, e := range s.live.items.stores {
		if alive[e.number] = !e.store.IsOver(now); !alive[e.number] {
			s.change(func(m *image) { delete(m.items.stores, name) })
			more = true
		}
	}
	freed := 0
	for name, e := range s.live.items.items {
		i, err := s.decodeItem(e)
		if isOver := !alive[name.store] || err == nil && i.IsOver(now); !isOver {
			continue
		}
		if freed++; freed > itemsSwept {
			return true
		}
		s.change(func(m *image) { delete(m.items.items, name) })
	}
	return more || freed > 0
}

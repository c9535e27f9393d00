package badger

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/dgraph-io/badger/v4"

	"counterfoil/keystore"
)

// An itemStore is what is kept under an item store's number.
type itemStore struct {
	Store keystore.ItemStore `cbor:"1,keyasint"`
	// Gone says that its time is up for good, whatever the clock does: its name
	// does not lead to it, nobody writes to it, and its items are removed.
	Gone bool `cbor:"2,keyasint,omitempty"`
}

// An item is what is kept at an item's place.
type item struct {
	// Item is without its value.
	Item  keystore.Item `cbor:"1,keyasint"`
	User  string        `cbor:"2,keyasint,omitempty"`
	Value keystore.Body `cbor:"3,keyasint"`
}

// A part is one user's part of an item store, or all of one that is shared.
type part struct {
	store number
	user  string
}

// A userHash stands for a user within an item store; it is zero for nobody.
type userHash [16]byte

func hashUser(user string) (h userHash) {
	if user != "" {
		sum := sha256.Sum256([]byte(user))
		copy(h[:], sum[:])
	}
	return h
}

// scope is the prefix of the part's items.
func (p part) scope() []byte {
	hash := hashUser(p.user)
	return append(numbered(itemPrefix, p.store), hash[:]...)
}

// nameKey is where the place of the item with that key is.
func (p part) nameKey(key string) []byte {
	hash := hashCall(p.user, key)
	return append(numbered(itemKeyPrefix, p.store), hash[:]...)
}

func (p part) itemKey(place number) []byte {
	return binary.BigEndian.AppendUint64(p.scope(), uint64(place))
}

func itemStoreNameKey(namespace, name string) []byte {
	return append(scoped(itemStoreNamePrefix, namespace, len(name)), name...)
}

func itemStoreKey(n number) []byte { return numbered(itemStorePrefix, n) }

// overKey is where the time at which the item or item store of that key is over
// is noted.
func overKey(at keystore.Instant, key []byte) []byte {
	b := make([]byte, 0, 1+numberBytes+len(key))
	b = binary.BigEndian.AppendUint64(append(b, itemEndPrefix), uint64(at))
	return append(b, key[1:]...)
}

const itemStoreEndBytes = 1 + 2*numberBytes

// An itemReader reads items and item stores: what is durable and, in a batch,
// what its earlier operations have changed.
type itemReader struct {
	reader
	s    *Store
	laid map[string][]byte
	now  keystore.Instant
}

func (s *Store) itemReader(r reader) itemReader {
	return itemReader{reader: r, s: s, now: s.clock.now()}
}

func (r itemReader) get(key []byte) ([]byte, error) {
	r.s.itemReads.Add(1)
	if value, ok := r.laid[string(key)]; ok {
		return value, nil
	}
	return r.reader.get(key)
}

// named returns the item store to which a name leads, nil if there is none. Its
// time may be up.
func (r itemReader) named(namespace, name string) (number, *itemStore, error) {
	value, err := r.get(itemStoreNameKey(namespace, name))
	if value == nil || err != nil {
		return 0, nil, err
	}
	n, err := decodeNumber(value)
	if err != nil {
		return 0, nil, fmt.Errorf("its name: %w", err)
	}
	is, err := r.numbered(n)
	if err == nil && is == nil {
		err = fmt.Errorf("its name leads to number %d, which is not there: %w", n, keystore.ErrCorrupt)
	}
	return n, is, err
}

// numbered returns the item store of that number, nil if there is none.
func (r itemReader) numbered(n number) (*itemStore, error) {
	value, err := r.get(itemStoreKey(n))
	if value == nil || err != nil {
		return nil, err
	}
	is := new(itemStore)
	if err := r.codec.Decode(value, is); err != nil {
		return nil, fmt.Errorf("number %d: %w", n, err)
	}
	return is, nil
}

func (is *itemStore) isThere(now keystore.Instant) bool {
	return is != nil && !is.Gone && !is.Store.IsOver(now)
}

// open returns the item store of a space and the part that is meant.
func (r itemReader) open(sp keystore.Space) (*itemStore, part, error) {
	n, is, err := r.named(sp.Namespace, sp.Store)
	switch {
	case err != nil:
		return nil, part{}, err
	case !is.isThere(r.now):
		return nil, part{}, keystore.ErrNotFound
	}
	user, err := is.Store.Owner(sp)
	return is, part{n, user}, err
}

// A placed item is one with its place, and how many bytes it takes there.
type placed struct {
	*item
	place number
	bytes int64
}

// at returns the item of that key, nil if there is none. Its time may be up.
func (r itemReader) at(p part, key string) (*placed, error) {
	value, err := r.get(p.nameKey(key))
	if value == nil || err != nil {
		return nil, err
	}
	place, err := decodeNumber(value)
	if err != nil {
		return nil, fmt.Errorf("its place: %w", err)
	}
	value, err = r.get(p.itemKey(place))
	switch {
	case err != nil:
		return nil, err
	case value == nil:
		return nil, fmt.Errorf("its place %d is empty: %w", place, keystore.ErrCorrupt)
	}
	i, err := r.decodeItem(p, value)
	switch {
	case err != nil:
		return nil, err
	case i.Item.Key != key:
		return nil, fmt.Errorf("its place %d holds item %q: %w", place, i.Item.Key, keystore.ErrCorrupt)
	}
	return &placed{i, place, int64(len(value))}, nil
}

func (r itemReader) decodeItem(p part, stored []byte) (*item, error) {
	i := new(item)
	if err := r.codec.Decode(stored, i); err != nil {
		return nil, err
	}
	if i.User != p.user {
		return nil, fmt.Errorf("it is of another user: %w", keystore.ErrCorrupt)
	}
	return i, nil
}

// present is the item for those who ask: nil if there is none, or its time is
// up.
func (p *placed) present(now keystore.Instant) *keystore.Item {
	if p == nil || p.Item.IsOver(now) {
		return nil
	}
	return &p.Item
}

// whole returns an item with its value.
func (r itemReader) whole(i *item) (*keystore.Item, error) {
	whole := i.Item
	if i.Value.Bytes == 0 {
		return &whole, nil
	}
	if i.Value.Bytes < 0 || i.Value.Bytes > keystore.ValueBytesMax {
		return nil, fmt.Errorf("a value of %d bytes: %w", i.Value.Bytes, keystore.ErrCorrupt)
	}
	whole.Value = make([]byte, 0, i.Value.Bytes)
	check := checker{sum: sha256.New(), fn: func(piece []byte) error {
		whole.Value = append(whole.Value, piece...)
		return nil
	}}
	if err := r.eachPiece(i.Value, check.pass); err != nil {
		return nil, err
	}
	return &whole, check.end(i.Value)
}

func (r itemReader) eachPiece(b keystore.Body, fn func(piece []byte) error) error {
	if b.Ref == 0 {
		return fn(b.Inline)
	}
	for n := range pieces(b.Bytes) {
		piece, err := r.get(pieceKey(number(b.Ref), n))
		if err == nil && piece == nil {
			err = fmt.Errorf("piece %d of body %d is missing: %w", n, b.Ref, keystore.ErrCorrupt)
		}
		if err == nil {
			err = fn(piece)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// ItemStore implements [keystore.ItemStores].
func (s *Store) ItemStore(_ context.Context, namespace, name string) (is keystore.ItemStore, err error) {
	err = s.read(func(rd reader) error {
		r := s.itemReader(rd)
		_, found, err := r.named(namespace, name)
		switch {
		case err != nil:
			return err
		case !found.isThere(r.now):
			return keystore.ErrNotFound
		}
		is = found.Store
		return nil
	})
	if err != nil {
		return is, fmt.Errorf("reading store %q: %w", name, err)
	}
	return is, nil
}

// Item implements [keystore.ItemStores].
func (s *Store) Item(_ context.Context, sp keystore.Space, key string) (i *keystore.Item, err error) {
	err = s.read(func(rd reader) error {
		r := s.itemReader(rd)
		_, p, err := r.open(sp)
		if err != nil {
			return err
		}
		found, err := r.at(p, key)
		switch {
		case err != nil:
			return err
		case found.present(r.now) == nil:
			return keystore.ErrNotFound
		}
		i, err = r.whole(found.item)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("reading item %q of store %q: %w", key, sp.Store, err)
	}
	return i, nil
}

// Items implements [keystore.ItemStores].
func (s *Store) Items(_ context.Context, q *keystore.ItemQuery) (list keystore.List[*keystore.Item], err error) {
	limit, err := q.PageLimit()
	if err != nil {
		return list, err
	}
	err = s.read(func(rd reader) error {
		r := s.itemReader(rd)
		_, p, err := r.open(q.Space)
		if err != nil {
			return err
		}
		asked := *q
		asked.Space.User = p.user
		after, err := asked.AfterPlace()
		if err != nil {
			return err
		}
		page := itemPage{itemReader: r, part: p, query: &asked, limit: limit}
		err = r.walk(p, q.Order, number(after), page.take)
		list = page.list
		return err
	})
	if err != nil {
		return keystore.List[*keystore.Item]{}, fmt.Errorf("listing store %q: %w", q.Space.Store, err)
	}
	return list, nil
}

// walk hands the items of a part to fn in order, from behind the place after on,
// or from the first if after is 0, until fn says that it has enough.
func (r itemReader) walk(p part, order keystore.Order, after number, fn func(place number, stored []byte) (more bool, err error)) error {
	o := badger.DefaultIteratorOptions
	o.Prefix = p.scope()
	o.PrefetchValues = false // values lie beside their keys
	o.Reverse = order == keystore.Descending
	it := r.NewIterator(o)
	defer it.Close()
	for it.Seek(p.seekKey(order, after)); it.Valid(); it.Next() {
		r.s.itemReads.Add(1)
		stored, err := it.Item().ValueCopy(nil)
		if err != nil {
			return readError(err)
		}
		if more, err := fn(lastNumber(it.Item().Key()), stored); err != nil || !more {
			return err
		}
	}
	return nil
}

func (p part) seekKey(order keystore.Order, after number) []byte {
	switch {
	case order == keystore.Ascending:
		return p.itemKey(after + 1)
	case after == 0:
		return p.itemKey(^number(0))
	}
	return p.itemKey(after - 1)
}

// An itemPage is a page that is being filled.
type itemPage struct {
	itemReader
	part   part
	query  *keystore.ItemQuery
	limit  int
	list   keystore.List[*keystore.Item]
	looked int
	bytes  int
	last   number
}

// take looks at one item. What cannot be read is left out and logged: it must
// not hide the rest.
func (p *itemPage) take(place number, stored []byte) (more bool, err error) {
	if len(p.list.Items) == p.limit || p.looked == keystore.LookedAtMax || p.bytes >= keystore.PageBytesMax {
		p.list.Next = p.query.Cursor(uint64(p.last))
		return false, nil
	}
	p.looked++
	p.last = place
	i, err := p.decodeItem(p.part, stored)
	if err == nil && !i.Item.IsOver(p.now) && p.query.Matches(&i.Item) {
		err = p.add(i)
	}
	if errors.Is(err, keystore.ErrCorrupt) {
		p.s.config.Logger.Error("an item cannot be read and is left out of a list", "store", p.query.Space.Store, "place", place, "error", err)
		err = nil
	}
	return err == nil, err
}

func (p *itemPage) add(i *item) error {
	wanted := &i.Item
	if p.query.Fetch == keystore.Values {
		var err error
		if wanted, err = p.whole(i); err != nil {
			return err
		}
	}
	p.bytes += len(wanted.Value)
	p.list.Items = append(p.list.Items, wanted)
	return nil
}

// itemOf reads store and place out of an item's key.
func itemOf(key []byte) (store, place number) {
	return number(binary.BigEndian.Uint64(key[1:])), lastNumber(key)
}

package badger

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/dgraph-io/badger/v4"

	"counterfoil/keystore"
)

// Items and item stores whose time is up are there for nobody; what follows frees
// their space. An index says when to look. A write that lets a store live on does
// not move the store's entry: whoever finds it due moves it.
//
// A store goes in three moves, each safe to be interrupted: it is marked as gone
// and loses its name; its items go, portion by portion; and it goes itself.

// An itemSweep is where a sweep looks next.
type itemSweep struct {
	// from is a key of the index; nil is the first.
	from []byte
	// item is a key among the items of the store that from names.
	item []byte
}

// A due is what a sweep has found: items that are over, or one store that may
// be, with the items that are left of it if it is known to be gone.
type due struct {
	ends  [][]byte
	store []byte
	gone  bool
	items [][]byte
}

// sweepItems takes one step, and reports whether another one may be needed.
func (s *Store) sweepItems(ctx context.Context) (more bool, err error) {
	d, err := s.dueItems()
	switch {
	case err != nil:
		return false, err
	case d.store != nil:
		return true, s.sweepItemStore(ctx, d)
	case len(d.ends) > 0:
		return true, s.sweepEnds(ctx, d.ends)
	}
	more = s.sweptItems.from != nil
	s.sweptItems = itemSweep{}
	return more, nil
}

// dueItems looks for what is over, from where the last step ended.
func (s *Store) dueItems() (d due, err error) {
	now := s.clock.now()
	err = s.read(func(rd reader) error {
		err := rd.scan([]byte{itemEndPrefix}, s.sweptItems.from, keysOnly, func(it *badger.Item) (bool, error) {
			key := it.KeyCopy(nil)
			switch {
			case keystore.Instant(binary.BigEndian.Uint64(key[1:])) > now:
				return false, nil
			case len(key) != itemStoreEndBytes:
				d.ends = append(d.ends, key)
			case len(d.ends) == 0:
				d.store = key
			}
			return d.store == nil && len(d.ends) < sweepCalls && len(key) != itemStoreEndBytes, nil
		})
		if err != nil || d.store == nil {
			return err
		}
		return s.itemsLeft(rd, &d)
	})
	return d, err
}

// itemsLeft looks whether a store is known to be gone, and what is left of it.
func (s *Store) itemsLeft(rd reader, d *due) error {
	n := lastNumber(d.store)
	is, err := s.itemReader(rd).numbered(n)
	if errors.Is(err, keystore.ErrCorrupt) {
		return nil
	}
	if err != nil || is == nil || !is.Gone {
		return err
	}
	d.gone = true
	return rd.scan(numbered(itemPrefix, n), s.sweptItems.item, keysOnly, func(it *badger.Item) (bool, error) {
		d.items = append(d.items, it.KeyCopy(nil))
		return len(d.items) < sweepCalls, nil
	})
}

// sweepEnds removes items that are over.
func (s *Store) sweepEnds(ctx context.Context, ends [][]byte) error {
	done := 0
	err := s.do(ctx, func(v *view) (*step, error) {
		st := v.step()
		for done = 0; done < len(ends) && st.hasRoom(); done++ {
			if err := st.endItem(ends[done]); err != nil {
				return nil, err
			}
		}
		return st, nil
	})
	if err == nil {
		s.sweptItems = itemSweep{from: after(ends[done-1])}
	}
	return err
}

// hasRoom reports whether a step of the sweep may take on more.
func (st *step) hasRoom() bool {
	return len(st.changes) < sweepChanges && st.bytes <= st.v.s.batchBytes/2
}

// endItem removes the item that an entry of the index names, if it is over.
func (st *step) endItem(end []byte) error {
	st.remove(end)
	key := append([]byte{itemPrefix}, end[1+numberBytes:]...)
	i, p, err := st.itemAt(key)
	if i == nil || err != nil || !i.Item.IsOver(st.now) || !bytes.Equal(overKey(i.Item.ExpiresAt, key), end) {
		return err
	}
	st.takeItem(p, i)
	return nil
}

// itemAt returns the item at a key, nil if there is none that can be read.
func (st *step) itemAt(key []byte) (*placed, part, error) {
	r := st.v.itemReader(st)
	stored, err := r.get(key)
	if stored == nil || err != nil {
		return nil, part{}, err
	}
	i := new(item)
	if err := r.codec.Decode(stored, i); err != nil {
		st.v.s.config.Logger.Error("an item whose time is over cannot be read", "key", fmt.Sprintf("%x", key), "error", err)
		return nil, part{}, nil
	}
	store, place := itemOf(key)
	return &placed{i, place, int64(len(stored))}, part{store, i.User}, nil
}

// sweepItemStore makes a store's next move.
func (s *Store) sweepItemStore(ctx context.Context, d due) error {
	next := itemSweep{from: d.store}
	err := s.do(ctx, func(v *view) (*step, error) {
		st := v.step()
		if !d.gone {
			return st, st.endItemStore(d.store)
		}
		for n := 0; n < len(d.items) && st.hasRoom(); n++ {
			if err := st.removeItem(d.items[n]); err != nil {
				return nil, err
			}
			next.item = after(d.items[n])
		}
		if len(d.items) == 0 && s.sweptItems.item == nil {
			st.takeUp(itemStoreKey(lastNumber(d.store)))
			st.remove(d.store)
		}
		return st, nil
	})
	if err == nil {
		s.sweptItems = next
	}
	return err
}

// endItemStore marks the store that an entry of the index names as gone, if it is
// over, or notes when to look again.
func (st *step) endItemStore(end []byte) error {
	n := lastNumber(end)
	r := st.v.itemReader(st)
	is, err := r.numbered(n)
	switch {
	case errors.Is(err, keystore.ErrCorrupt), err == nil && is == nil:
		st.v.s.config.Logger.Error("an item store whose time may be over cannot be read", "number", n, "error", err)
		st.remove(end)
		return nil
	case err != nil:
		return err
	case is.Gone:
		return nil
	case !is.Store.IsOver(st.now):
		st.remove(end)
		st.set(overKey(is.Store.ExpiresAt(), itemStoreKey(n)), nil)
		return nil
	}
	name := itemStoreNameKey(is.Store.Namespace, is.Store.Name)
	if value, err := r.get(name); err != nil || bytes.Equal(value, encodeNumber(n)) {
		st.takeUp(name)
	}
	return st.layItemStore(n, &itemStore{is.Store, true})
}

// removeItem removes an item of a store that is gone.
func (st *step) removeItem(key []byte) error {
	i, p, err := st.itemAt(key)
	if err != nil {
		return err
	}
	st.takeItem(p, i)
	st.remove(key)
	return nil
}

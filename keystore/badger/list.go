package badger

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"log/slog"

	"github.com/dgraph-io/badger/v4"

	"counterfoil/keystore"
)

// Bounds of a page.
const (
	limitDefault = 100
	limitMax     = 1000
)

var errCursor = fmt.Errorf("the cursor is not of this list, begin again without one: %w", keystore.ErrNotFound)

// A listing is one list, told apart from others by the prefix of its keys. A
// cursor is the last key's rest, behind a digest of the prefix.
type listing struct {
	prefix []byte
	limit  int
	start  []byte
}

const cursorTagBytes = 8

func newListing(prefix []byte, p keystore.Page) (listing, error) {
	l := listing{prefix: prefix, limit: p.Limit, start: prefix}
	switch {
	case p.Limit == 0:
		l.limit = limitDefault
	case p.Limit < 0 || p.Limit > limitMax:
		return l, fmt.Errorf("a page of %d items: ask for 1 to %d", p.Limit, limitMax)
	}
	if p.After == "" {
		return l, nil
	}
	raw, err := base64.RawURLEncoding.DecodeString(p.After)
	if err != nil || len(raw) <= cursorTagBytes || len(raw) > 64 || !bytes.Equal(raw[:cursorTagBytes], l.tag()) {
		return l, errCursor
	}
	l.start = after(append(append([]byte(nil), prefix...), raw[cursorTagBytes:]...))
	return l, nil
}

func (l listing) tag() []byte {
	sum := sha256.Sum256(l.prefix)
	return sum[:cursorTagBytes]
}

func (l listing) cursor(key []byte) string {
	return base64.RawURLEncoding.EncodeToString(append(l.tag(), key[len(l.prefix):]...))
}

// page fills a page from the keys of a listing. What cannot be read is left out
// and logged: it must not hide the rest.
func page[T any](r reader, log *slog.Logger, l listing, f fetch, from []byte, read func(item *badger.Item) (*T, error)) (keystore.List[T], error) {
	var list keystore.List[T]
	var last []byte
	start := l.start
	if bytes.Compare(from, start) > 0 {
		start = from
	}
	err := r.scan(l.prefix, start, f, func(item *badger.Item) (bool, error) {
		if len(list.Items) == l.limit {
			list.Next = l.cursor(last)
			return false, nil
		}
		last = item.KeyCopy(last)
		made, err := read(item)
		switch {
		case errors.Is(err, keystore.ErrCorrupt):
			log.Error("an item of a list cannot be read and is left out", "key", fmt.Sprintf("%x", last), "error", err)
		case err != nil:
			return false, err
		default:
			list.Items = append(list.Items, *made)
		}
		return true, nil
	})
	return list, err
}

// Run implements [keystore.Store].
func (s *Store) Run(_ context.Context, namespace, name string) (sum keystore.RunSummary, err error) {
	err = s.read(func(r reader) error {
		n, found, err := r.runNumber(namespace, name)
		if err != nil {
			return err
		}
		if !found {
			return keystore.ErrNotFound
		}
		in, err := r.existingRun(n)
		if err != nil {
			return err
		}
		if in.Place == 0 {
			return keystore.ErrNotFound
		}
		sum = in.summary()
		return nil
	})
	if err != nil {
		return sum, fmt.Errorf("reading run %q: %w", name, err)
	}
	return sum, nil
}

// Runs implements [keystore.Store].
func (s *Store) Runs(_ context.Context, namespace string, p keystore.Page) (list keystore.List[keystore.RunSummary], err error) {
	l, err := newListing(listScope(namespace), p)
	if err != nil {
		return list, fmt.Errorf("listing runs: %w", err)
	}
	err = s.read(func(r reader) (err error) {
		list, err = page(r, s.config.Logger, l, values, nil, func(item *badger.Item) (*keystore.RunSummary, error) {
			in, err := r.runAt(item)
			if err != nil {
				return nil, err
			}
			sum := in.summary()
			return &sum, nil
		})
		return err
	})
	return list, listed("runs", err)
}

func listed(what string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("listing %s: %w", what, err)
}

// Calls implements [keystore.Store].
func (s *Store) Calls(_ context.Context, namespace, name string, p keystore.Page) (list keystore.List[*keystore.Record], err error) {
	err = s.read(func(r reader) error {
		n, found, err := r.runNumber(namespace, name)
		if err != nil {
			return err
		}
		if !found {
			return nil
		}
		l, err := newListing(callScope(n), p)
		if err != nil {
			return err
		}
		in, err := r.existingRun(n)
		if err != nil {
			return err
		}
		list, err = page(r, s.config.Logger, l, keysOnly, callKey(n, in.ExpiredThrough+1), func(item *badger.Item) (**keystore.Record, error) {
			rec, err := r.record(in, lastNumber(item.Key()))
			return &rec, err
		})
		return err
	})
	return list, listed("calls", err)
}

// runAt returns the run that an item of an index names.
func (r reader) runAt(item *badger.Item) (*run, error) {
	n, err := numberIn(item)
	if err != nil {
		return nil, err
	}
	return r.existingRun(n)
}

// numberIn reads an item that holds a number.
func numberIn(item *badger.Item) (number, error) {
	value, err := item.ValueCopy(nil)
	if err != nil {
		return 0, readError(err)
	}
	return decodeNumber(value)
}

// Unsettled implements [keystore.Store].
func (s *Store) Unsettled(_ context.Context, state keystore.State, p keystore.Page) (list keystore.List[*keystore.Record], err error) {
	prefix := unsettledPrefix(state)
	if prefix == 0 {
		return list, fmt.Errorf("calls in state %s are not listed: ask for pending, in_doubt, unknown or held", state)
	}
	l, err := newListing([]byte{prefix}, p)
	if err != nil {
		return list, listed("calls", err)
	}
	err = s.read(func(r reader) (err error) {
		list, err = page(r, s.config.Logger, l, values, s.floor(indexOf(state)), func(item *badger.Item) (**keystore.Record, error) {
			n, err := numberIn(item)
			if err != nil {
				return nil, err
			}
			in, err := r.existingRun(n)
			if err != nil {
				return nil, err
			}
			rec, err := r.record(in, lastNumber(item.Key()))
			return &rec, err
		})
		return err
	})
	return list, listed("calls", err)
}

// Stats implements [keystore.Store].
func (s *Store) Stats() keystore.Stats {
	stats := keystore.Stats{
		Pending: int(s.counts[0].Load()), InDoubt: int(s.counts[1].Load()),
		Unknown: int(s.counts[2].Load()), Held: int(s.counts[3].Load()),
		Full: s.space.room() != forAll,
	}
	unknown := indexOf(keystore.Unknown)
	_ = s.read(func(r reader) error { // what cannot be read has no age
		lsm, vlog := r.e.db.Size()
		stats.DiskBytes = lsm + vlog
		if stats.Unknown == 0 {
			return nil
		}
		return r.scan([]byte{unknownPrefix}, s.floor(unknown), keysOnly, func(item *badger.Item) (bool, error) {
			stats.OldestUnknown = unsettledSince(item.Key())
			return false, nil
		})
	})
	return stats
}

// floor is a key below which an index is empty.
func (s *Store) floor(i int) []byte { return s.floors.Load()[i] }

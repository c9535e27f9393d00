package badger

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"counterfoil/keystore"
)

// PutItemStore implements [keystore.ItemStores].
func (s *Store) PutItemStore(ctx context.Context, q *keystore.ItemStore) (is keystore.ItemStore, isNew bool, err error) {
	err = errors.Join(keystore.ValidatePart(q.Namespace), keystore.ValidateName(q.Name), keystore.ValidateItemTTL(q.TTL))
	if err != nil {
		return is, false, err
	}
	is, err = s.ItemStore(ctx, q.Namespace, q.Name)
	if !errors.Is(err, keystore.ErrNotFound) {
		return is, false, err
	}
	asked := *q
	err = s.do(ctx, func(v *view) (st *step, err error) {
		st, is, isNew, err = v.putItemStore(&asked)
		return st, err
	})
	if err != nil {
		return keystore.ItemStore{}, false, fmt.Errorf("putting store %q: %w", q.Name, err)
	}
	return is, isNew, nil
}

// putItemStore is PutItemStore's atomic step.
func (v *view) putItemStore(q *keystore.ItemStore) (st *step, is keystore.ItemStore, isNew bool, err error) {
	st = v.step()
	r := v.itemReader(st)
	old, was, err := r.named(q.Namespace, q.Name)
	switch {
	case err != nil:
		return nil, is, false, err
	case was.isThere(st.now):
		return nil, was.Store, false, nil
	case v.s.space.room() != forAll:
		return nil, is, false, keystore.ErrFull
	}
	if was != nil {
		if err := st.layItemStore(old, &itemStore{was.Store, true}); err != nil {
			return nil, is, false, err
		}
	}
	is = keystore.ItemStore{
		Namespace: q.Namespace, Name: q.Name, TTL: q.TTL, Isolation: q.Isolation, CreatedAt: st.now, WrittenAt: st.now,
	}
	n := v.s.nextNumber()
	st.lay(itemStoreNameKey(q.Namespace, q.Name), encodeNumber(n))
	if at := is.ExpiresAt(); at != 0 {
		st.set(overKey(at, itemStoreKey(n)), nil)
	}
	return st, is, true, st.layItemStore(n, &itemStore{Store: is})
}

// lay sets a key so that later operations of the batch see it, takeUp removes
// one.
func (st *step) lay(key, value []byte) {
	st.set(key, value)
	st.shows(key, value)
}

func (st *step) takeUp(key []byte) {
	st.remove(key)
	st.shows(key, nil)
}

func (st *step) shows(key, value []byte) {
	if st.laid == nil {
		st.laid = map[string][]byte{}
	}
	st.laid[string(key)] = value
}

func (v *view) itemReader(st *step) itemReader {
	return itemReader{reader: v.reader, s: v.s, laid: v.laid, now: st.now}
}

func (st *step) layItemStore(n number, is *itemStore) error {
	value, err := st.v.codec.Encode(is)
	if err != nil {
		return err
	}
	st.lay(itemStoreKey(n), value)
	return nil
}

// WriteItems implements [keystore.ItemStores].
func (s *Store) WriteItems(ctx context.Context, b *keystore.Batch) (written []keystore.Written, err error) {
	if err := b.Validate(); err != nil {
		return nil, err
	}
	values, err := s.receiveValues(ctx, b.Writes)
	if err == nil {
		err = s.do(ctx, func(v *view) (st *step, err error) {
			st, written, err = v.writeItems(b, values)
			return st, err
		})
	}
	if err != nil {
		releaseAll(ctx, values)
		return nil, fmt.Errorf("writing to store %q: %w", b.Space.Store, err)
	}
	return written, nil
}

// receiveValues takes the values of a batch in. Those for which one operation has
// no room are staged.
func (s *Store) receiveValues(ctx context.Context, writes []keystore.ItemWrite) ([]incoming, error) {
	values, errs := make([]incoming, len(writes)), make([]error, len(writes))
	var group sync.WaitGroup
	room := min(stageBytes, s.batchBytes/2)
	for i := range writes {
		value := writes[i].Value
		if writes[i].Kind != keystore.PutItem {
			continue
		}
		if len(value) > InlineBytesMax {
			room -= len(value)
		}
		if room < 0 && len(value) > InlineBytesMax {
			room += len(value)
			group.Go(func() { values[i], errs[i] = s.stageValue(ctx, value) })
			continue
		}
		values[i], errs[i] = s.receive(ctx, value, InlineBytesMax)
	}
	group.Wait()
	return values, errors.Join(errs...)
}

// stageValue makes all of a value durable before the operation that names it.
func (s *Store) stageValue(ctx context.Context, value []byte) (incoming, error) {
	g := s.newStage()
	err := g.Write(ctx, value)
	if err == nil {
		err = g.flush(ctx)
	}
	if err != nil {
		g.Discard(ctx)
		return incoming{}, err
	}
	return incoming{body: g.Body(), stage: g}, nil
}

func releaseAll(ctx context.Context, values []incoming) {
	var group sync.WaitGroup
	for i := range values {
		if values[i].stage != nil {
			group.Go(func() { values[i].release(ctx) })
		}
	}
	group.Wait()
}

// writeItems is WriteItems's atomic step.
func (v *view) writeItems(b *keystore.Batch, values []incoming) (*step, []keystore.Written, error) {
	st := v.step()
	r := v.itemReader(st)
	is, p, err := r.open(b.Space)
	if err != nil {
		return nil, nil, err
	}
	if err := v.admits(b); err != nil {
		return nil, nil, err
	}
	written := make([]keystore.Written, len(b.Writes))
	for i := range b.Writes {
		if written[i], err = st.writeItem(r, p, &b.Writes[i], i, values[i]); err != nil {
			return nil, nil, err
		}
	}
	if v.s.space.room() != forAll {
		return nil, nil, keystore.ErrFull
	}
	if next, changed := is.Store.Written(st.now); changed {
		err = st.layItemStore(p.store, &itemStore{Store: next})
	}
	return st, written, err
}

// admits checks a batch's guard, and the receipts that it requires.
func (v *view) admits(b *keystore.Batch) error {
	if b.Guard.Run != "" {
		st := v.step()
		if err := st.openRun(b.Space.Namespace, b.Guard.Run); err != nil {
			return err
		}
		if err := st.present().Check(b.Guard); err != nil {
			return err
		}
	}
	for _, k := range b.Requires {
		rec, err := v.recordOf(k)
		if err != nil {
			return err
		}
		if err := keystore.RequireReceipt(k, rec); err != nil {
			return err
		}
	}
	return nil
}

// recordOf returns the record of a call, nil if there is none.
func (v *view) recordOf(k keystore.Key) (*keystore.Record, error) {
	c, err := v.step().open(k)
	if c == nil || err != nil {
		return nil, err
	}
	return c.record, nil
}

// writeItem adds one write to the step.
func (st *step) writeItem(r itemReader, p part, w *keystore.ItemWrite, operation int, value incoming) (keystore.Written, error) {
	found, err := r.at(p, w.Key)
	if err != nil {
		return keystore.Written{}, fmt.Errorf("item %q: %w", w.Key, err)
	}
	present := found.present(st.now)
	written := keystore.Written{Was: present != nil}
	switch err := w.If.Check(present, operation); {
	case err != nil:
		return written, err
	case w.Kind == keystore.DeleteItem:
		st.takeItem(p, found)
		return written, nil
	}
	version := st.v.s.nextNumber()
	written.Item = w.Put(present, st.v.s.versionOf(version), st.now)
	made := &item{Item: *written.Item, User: p.user}
	if made.Value, err = st.place(value); err != nil {
		return written, err
	}
	if present != nil {
		st.clearItem(p, found)
		return written, st.layItem(p, found.place, made)
	}
	st.takeItem(p, found)
	st.lay(p.nameKey(w.Key), encodeNumber(version))
	return written, st.layItem(p, version, made)
}

func (st *step) layItem(p part, place number, i *item) error {
	stored, err := st.v.codec.Encode(i)
	if err != nil {
		return err
	}
	key := p.itemKey(place)
	st.lay(key, stored)
	if at := i.Item.ExpiresAt; at != 0 {
		st.set(overKey(at, key), nil)
	}
	return nil
}

// clearItem removes what belongs to one version of an item.
func (st *step) clearItem(p part, i *placed) {
	st.freed += i.bytes
	st.drop(i.Value)
	if at := i.Item.ExpiresAt; at != 0 {
		st.remove(overKey(at, p.itemKey(i.place)))
	}
}

// takeItem removes an item, if there is one.
func (st *step) takeItem(p part, i *placed) {
	if i == nil {
		return
	}
	st.clearItem(p, i)
	st.takeUp(p.nameKey(i.Item.Key))
	st.takeUp(p.itemKey(i.place))
}

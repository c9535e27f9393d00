package badger

import (
	"bytes"

	"github.com/dgraph-io/badger/v4"
)

// marks says from where on to look, so that a start need not walk over what was
// deleted long ago.
type marks struct {
	// Reserved is the highest number that may be in use.
	Reserved number `cbor:"1,keyasint"`
	// Floors holds for each unsettled index a key below which it is empty.
	Floors [len(indexes)][]byte `cbor:"2,keyasint"`

	// leftSince counts the entries that left each index since its floor was
	// raised.
	leftSince [len(indexes)]int
}

const (
	// reserveNumbers are set aside at once: a crash wastes as many.
	reserveNumbers = 1 << 16
	// raiseAfter is how many entries leave an index before its floor is raised.
	raiseAfter = 1024
)

// lower keeps the floors below a key that comes to be, and reports whether one
// had to move.
func (m *marks) lower(key []byte) bool {
	i := indexOfPrefix(key[0])
	if bytes.Compare(key, m.Floors[i]) >= 0 {
		return false
	}
	m.Floors[i] = key
	return true
}

func indexOfPrefix(prefix byte) int {
	for i, state := range indexes {
		if unsettledPrefix(state) == prefix {
			return i
		}
	}
	return -1
}

// floor is where a walk of the index starts.
func (m *marks) floor(i int) []byte {
	if f := m.Floors[i]; f != nil {
		return f
	}
	return []byte{unsettledPrefix(indexes[i])}
}

// raise moves the floors of the indexes that many entries have left. It is done
// before the batch's first operation, when the snapshot shows all there is.
func (v *view) raise() error {
	for i := range indexes {
		if v.marks.leftSince[i] < raiseAfter {
			continue
		}
		prefix := unsettledPrefix(indexes[i])
		floor := unsettledAt(prefix, v.s.clock.now(), number(v.s.last.Load()))
		err := v.scan([]byte{prefix}, v.marks.floor(i), keysOnly, func(item *badger.Item) (bool, error) {
			floor = item.KeyCopy(nil)
			return false, nil
		})
		if err != nil {
			return err
		}
		v.marks.Floors[i], v.marks.leftSince[i], v.marked = floor, 0, true
	}
	return nil
}

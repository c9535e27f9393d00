package badger

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"

	"counterfoil/keystore"
)

// The first byte of every key says what it is. Numbers in keys are big-endian,
// so that keys sort as the numbers do.
//
//	m format|epoch|secret|marks    facts about the whole store
//	n len2 namespace run           a run's number
//	l len2 namespace place8        the runs of a namespace, in order of creation
//	r run8                         a run and its totals
//	i run8 hash16                  a call's sequence number, by turn and call
//	b seq8                         a call's record
//	b body8 piece4                 a piece of a body
//	c run8 seq8                    the calls of a run, in order
//	s body8                        a staged body that no operation has named
//	t place8 hash16                the plan of a turn, of the run at that place
//	o place8 hash16                a position, by turn and content
//	p|d|u|h instant8 seq8          calls pending, in doubt, unknown, held: their run
//	g len2 namespace name          an item store's number
//	e store8                       an item store
//	k store8 hash16                an item's place, by user and key
//	j store8 user16 place8         an item: each user's part of a store, in order of creation
//	x instant8 store8              when an item store has to be looked at: it may be over
//	x instant8 store8 user16 place8    when an item is over
//
// A run has another place each time that its name is used anew, so the plans and
// positions of a run that was swept are none of the next one's.
//
// Run, sequence and body numbers, those of item stores, and the places and
// versions of items come from one counter that only grows: what is written now
// lies beside what was written just before. Records and bodies, which are nearly
// all of the bytes, share the first of the growing prefixes: a new table begins
// with the newest of them, so that the older ones lie before it and are not
// written again when it is merged into the level below.
const (
	namePrefix   = 'n'
	listPrefix   = 'l'
	runPrefix    = 'r'
	indexPrefix  = 'i'
	dataPrefix   = 'b'
	callPrefix   = 'c'
	stagedPrefix = 's'

	planPrefix     = 't'
	positionPrefix = 'o'

	itemStoreNamePrefix = 'g'
	itemStorePrefix     = 'e'
	itemKeyPrefix       = 'k'
	itemPrefix          = 'j'
	itemEndPrefix       = 'x'

	pendingPrefix = 'p'
	doubtPrefix   = 'd'
	unknownPrefix = 'u'
	heldPrefix    = 'h'
)

var (
	formatKey = []byte("mformat")
	epochKey  = []byte("mepoch")
	secretKey = []byte("msecret")
	marksKey  = []byte("mmarks")
)

// A number is a run's, a call's or a body's place in the one sequence.
type number uint64

const numberBytes = 8

// A callHash stands for turn and call inside a run.
type callHash [16]byte

func hashCall(turn, call string) callHash {
	b := make([]byte, 0, 128)
	b = binary.BigEndian.AppendUint32(b, uint32(len(turn)))
	b = append(b, turn...)
	b = append(b, call...)
	sum := sha256.Sum256(b)
	return callHash(sum[:16])
}

func nameKey(namespace, run string) []byte {
	return append(scoped(namePrefix, namespace, len(run)), run...)
}

func listKey(namespace string, place number) []byte {
	return binary.BigEndian.AppendUint64(scoped(listPrefix, namespace, numberBytes), uint64(place))
}

func listScope(namespace string) []byte { return scoped(listPrefix, namespace, 0) }

func scoped(prefix byte, namespace string, room int) []byte {
	b := make([]byte, 0, 3+len(namespace)+room)
	b = append(b, prefix)
	b = binary.BigEndian.AppendUint16(b, uint16(len(namespace)))
	return append(b, namespace...)
}

func runKey(run number) []byte { return numbered(runPrefix, run) }

func indexKey(run number, hash callHash) []byte {
	return append(numbered(indexPrefix, run), hash[:]...)
}

func callKey(run, seq number) []byte {
	return binary.BigEndian.AppendUint64(numbered(callPrefix, run), uint64(seq))
}

func callScope(run number) []byte { return numbered(callPrefix, run) }

func planKey(place number, turn string) []byte {
	hash := hashCall(turn, "")
	return append(numbered(planPrefix, place), hash[:]...)
}

func positionKey(place number, turn string, c keystore.Content) []byte {
	hash := hashCall(turn, string(c))
	return append(numbered(positionPrefix, place), hash[:]...)
}

func recordKey(seq number) []byte { return numbered(dataPrefix, seq) }

func pieceKey(body number, piece uint32) []byte {
	return binary.BigEndian.AppendUint32(numbered(dataPrefix, body), piece)
}

func stagedKey(body number) []byte { return numbered(stagedPrefix, body) }

func numbered(prefix byte, n number) []byte {
	b := make([]byte, 0, 1+numberBytes+len(callHash{}))
	return binary.BigEndian.AppendUint64(append(b, prefix), uint64(n))
}

func encodeNumber(n number) []byte { return binary.BigEndian.AppendUint64(nil, uint64(n)) }

func decodeNumber(b []byte) (number, error) {
	if len(b) != numberBytes {
		return 0, fmt.Errorf("a number of %d bytes: %w", len(b), keystore.ErrCorrupt)
	}
	return number(binary.BigEndian.Uint64(b)), nil
}

// lastNumber reads the number that ends a key.
func lastNumber(key []byte) number {
	return number(binary.BigEndian.Uint64(key[len(key)-numberBytes:]))
}

// unsettledPrefix is the index that lists the calls in state s; 0 if none does.
func unsettledPrefix(s keystore.State) byte {
	switch s { //nolint:exhaustive // the other states are settled
	case keystore.Pending:
		return pendingPrefix
	case keystore.InDoubt:
		return doubtPrefix
	case keystore.Unknown:
		return unknownPrefix
	case keystore.Held:
		return heldPrefix
	}
	return 0
}

// unsettledKey is the place of r in the index of its state, nil if it has none.
// It depends only on what does not change while r stays in that state.
func unsettledKey(r *keystore.Record, seq number) []byte {
	prefix := unsettledPrefix(r.State)
	if prefix == 0 {
		return nil
	}
	return unsettledAt(prefix, since(r), seq)
}

func unsettledAt(prefix byte, at keystore.Instant, seq number) []byte {
	b := make([]byte, 0, 1+2*numberBytes)
	b = binary.BigEndian.AppendUint64(append(b, prefix), uint64(at))
	return binary.BigEndian.AppendUint64(b, uint64(seq))
}

// since is when r came into its unsettled state.
func since(r *keystore.Record) keystore.Instant {
	switch r.State { //nolint:exhaustive // in the others it was the last change
	case keystore.Pending:
		if a := r.Attempt(r.AttemptsMade); a != nil {
			return a.BegunAt
		}
	case keystore.InDoubt:
		return r.DoubtSince
	}
	return r.UpdatedAt
}

// unsettledSince reads the instant out of a key of an unsettled index.
func unsettledSince(key []byte) keystore.Instant {
	return keystore.Instant(binary.BigEndian.Uint64(key[1 : 1+numberBytes]))
}

package badger

import (
	"bytes"
	"fmt"
	"maps"
	"time"

	"counterfoil/keystore"
)

// known is what the committer remembers of what is on record, so that most
// operations read nothing. It holds what earlier operations of the batch
// changed too; so nothing is dropped from it before the batch is durable, and
// all of it is when the batch fails.
type known struct {
	names map[runName]number
	runs  map[number]*run
	// calls holds calls that are pending: they will change soon.
	calls map[callID]*call
}

type runName struct{ namespace, run string }

type callID struct {
	run  number
	hash callHash
}

// How many entries known keeps between batches.
const (
	namesKept = 8192
	runsKept  = 8192
	callsKept = 8192
)

func newKnown() *known {
	return &known{names: map[runName]number{}, runs: map[number]*run{}, calls: map[callID]*call{}}
}

func (k *known) forget() { *k = *newKnown() }

// trim drops what is not needed, given the calls that changed since the last
// time.
func (k *known) trim(changed []callID) {
	for _, id := range changed {
		if c, ok := k.calls[id]; ok && c.record.State != keystore.Pending {
			delete(k.calls, id)
		}
	}
	shrink(k.calls, callsKept)
	shrink(k.names, namesKept)
	shrink(k.runs, runsKept)
}

// shrink drops what comes first in the map's order, which is any.
func shrink[K comparable, V any](m map[K]V, limit int) {
	for k := range m {
		if len(m) <= limit {
			return
		}
		delete(m, k)
	}
}

// A view is what a batch sees: what is durable, and over it what the earlier
// operations of the batch have changed.
type view struct {
	reader
	s *Store
	*known
	dirty   map[number]*run
	counts  [len(indexes)]int
	claimed []*stage
	touched []callID
	// heads and positions are what the batch has changed, by key.
	heads     map[string]*planHead
	positions map[string]*keystore.Position
	// gone are the runs that the batch forgets.
	gone  []runName
	freed int64
	marks marks
	// marked says that marks have to be written.
	marked bool
	// laid is what the batch has written of item stores and items, by key; nil
	// stands for what it removed.
	laid map[string][]byte
}

// indexes are the lists of unsettled calls.
var indexes = [...]keystore.State{keystore.Pending, keystore.InDoubt, keystore.Unknown, keystore.Held}

func indexOf(s keystore.State) int {
	for i, state := range indexes {
		if state == s {
			return i
		}
	}
	return -1
}

// newView returns nil while there is no engine.
func (s *Store) newView() *view {
	if s.engine == nil {
		return nil
	}
	return &view{reader: reader{s.engine.snapshot(), s.codec}, s: s, known: s.known, dirty: map[number]*run{}, marks: s.marks}
}

func (v *view) release() {
	if v != nil {
		v.reader.release()
	}
}

func (v *view) runNumber(namespace, name string) (number, bool, error) {
	id := runName{namespace, name}
	if n, ok := v.names[id]; ok {
		return n, n != goneNumber, nil
	}
	n, found, err := v.reader.runNumber(namespace, name)
	if found {
		v.names[id] = n
	}
	return n, found, err
}

func (v *view) runOf(n number) (*run, error) {
	if in, ok := v.runs[n]; ok {
		return in, nil
	}
	in, err := v.existingRun(n)
	if err == nil {
		v.runs[n] = in
	}
	return in, err
}

func (v *view) call(in *run, n number, k keystore.Key) (*call, error) {
	if c, ok := v.calls[callID{n, hashCall(k.Turn, k.Call)}]; ok && c.record.Key == k {
		return c, nil
	}
	return v.reader.call(in, n, k)
}

// A step is what one operation changes. It takes effect when the view keeps it.
type step struct {
	v   *view
	now keystore.Instant

	changes []change
	bytes   int

	runNumber number
	run       *run
	isNew     bool
	// begun says that run is the step's own.
	begun   bool
	changed map[callHash]*call
	counts  [len(indexes)]int
	lowered [][]byte
	claimed []*stage
	// freed is how many bytes the step makes garbage of.
	freed int64
	// forgotten says that the run is gone.
	forgotten bool
	// heads and positions are the plans and positions that change, by key.
	heads     map[string]*planHead
	positions map[string]*keystore.Position
	// laid is what later operations of the batch have to see of changes.
	laid map[string][]byte
}

// entryBytes is what an entry takes besides key and value, in the transaction
// and in the log.
const entryBytes = 40

// runBytes is a bound on the bytes of a run's entry.
const runBytes = 2*keystore.PartBytesMax + 256

func (v *view) step() *step { return &step{v: v, now: v.s.clock.now(), bytes: runBytes} }

// A change sets a key, or removes it.
type change struct {
	key, value []byte
	removes    bool
}

func (st *step) set(key, value []byte) {
	st.changes = append(st.changes, change{key: key, value: value})
	st.bytes += len(key) + len(value) + entryBytes
}

func (st *step) remove(key []byte) {
	st.changes = append(st.changes, change{key: key, removes: true})
	st.bytes += len(key) + entryBytes
}

// open makes the run of k the step's, if there is one, and returns the call if
// there is.
func (st *step) open(k keystore.Key) (*call, error) {
	if err := st.openRun(k.Namespace, k.Run); err != nil || st.run == nil {
		return nil, err
	}
	return st.v.call(st.run, st.runNumber, k)
}

func (st *step) openRun(namespace, name string) error {
	n, found, err := st.v.runNumber(namespace, name)
	if err != nil || !found {
		return err
	}
	if st.run, err = st.v.runOf(n); err != nil {
		return err
	}
	st.runNumber = n
	return nil
}

// beginRun makes the step's run one that changes: it records it if there is none,
// and lists it if it is not listed. Once is enough.
func (st *step) beginRun(namespace, name string) {
	if st.begun {
		return
	}
	st.begun = true
	updated := run{Run: keystore.Run{Namespace: namespace, Name: name}}
	if st.run != nil {
		updated = *st.run
	} else {
		st.isNew = true
		st.runNumber = st.v.s.nextNumber()
		st.set(nameKey(namespace, name), encodeNumber(st.runNumber))
	}
	st.run = &updated
	if updated.Place == 0 {
		updated.Place = st.v.s.nextNumber()
		updated.Run.CreatedAt, updated.Run.EndedAt = st.now, 0
		st.set(listKey(namespace, updated.Place), encodeNumber(st.runNumber))
	}
	updated.Run.TouchedAt = st.now
}

// record puts next on record in the place of prev, which is nil for a new call.
func (st *step) record(k keystore.Key, prev *call, next *keystore.Record) error {
	st.beginRun(k.Namespace, k.Run)
	c := &call{record: next}
	hash := hashCall(k.Turn, k.Call)
	if prev == nil {
		c.seq = st.v.s.nextNumber()
		st.set(indexKey(st.runNumber, hash), encodeNumber(c.seq))
		st.set(callKey(st.runNumber, c.seq), nil)
	} else {
		c.seq = prev.seq
		st.run.Totals = st.run.Totals.plus(prev.record.State, -1)
	}
	st.run.Totals = st.run.Totals.plus(next.State, 1)
	if err := st.write(c); err != nil {
		return err
	}
	st.index(prev, c)
	if st.changed == nil {
		st.changed = map[callHash]*call{}
	}
	st.changed[hash] = c
	return nil
}

// runFollows puts on record what an operation means for its run. What the store
// itself keeps of it stays.
func (st *step) runFollows(next *keystore.Run) {
	if next == nil {
		return
	}
	kept := st.run.Run
	st.run.Run = *next
	st.run.Run.Namespace, st.run.Run.Name = kept.Namespace, kept.Name
	st.run.Run.CreatedAt, st.run.Run.TouchedAt, st.run.Run.EndedAt = kept.CreatedAt, kept.TouchedAt, kept.EndedAt
}

func (st *step) write(c *call) error {
	value, err := st.v.codec.Encode(c.record)
	if err != nil {
		return err
	}
	st.set(recordKey(c.seq), value)
	return nil
}

// index keeps the lists of what is unsettled.
func (st *step) index(prev, next *call) {
	var old []byte
	if prev != nil {
		old = unsettledKey(prev.record, prev.seq)
	}
	key := unsettledKey(next.record, next.seq)
	if bytes.Equal(old, key) {
		return
	}
	if old != nil {
		st.remove(old)
		st.counts[indexOf(prev.record.State)]--
	}
	if key != nil {
		st.set(key, encodeNumber(st.runNumber))
		st.counts[indexOf(next.record.State)]++
		st.lowered = append(st.lowered, key)
	}
}

// keep makes a step part of what the batch sees.
func (v *view) keep(st *step) {
	if st.run != nil {
		v.keepRun(st)
	}
	for hash, c := range st.changed {
		id := callID{st.runNumber, hash}
		v.calls[id] = c
		v.touched = append(v.touched, id)
	}
	for i, n := range st.counts {
		v.counts[i] += n
		if n < 0 {
			v.marks.leftSince[i] -= n
		}
	}
	for _, key := range st.lowered {
		v.marked = v.marks.lower(key) || v.marked
	}
	v.heads, v.positions, v.laid = with(v.heads, st.heads), with(v.positions, st.positions), with(v.laid, st.laid)
	v.claimed = append(v.claimed, st.claimed...)
	v.freed += st.freed
}

// with returns m, which may be nil, with what is in more.
func with[V any](m, more map[string]V) map[string]V {
	if m == nil {
		return more
	}
	maps.Copy(m, more)
	return m
}

func (v *view) keepRun(st *step) {
	v.runs[st.runNumber] = st.run
	v.dirty[st.runNumber] = st.run
	name := runName{st.run.Run.Namespace, st.run.Run.Name}
	if st.isNew {
		v.names[name] = st.runNumber
	}
	if st.forgotten {
		v.names[name] = goneNumber
		v.gone = append(v.gone, name)
		delete(v.runs, st.runNumber)
		delete(v.dirty, st.runNumber)
	}
}

// goneNumber stands in known.names for a run that is no longer on record, which
// the batch's snapshot may still show.
const goneNumber number = 0

// finish adds what is written once per batch: the runs that were touched, and
// the marks if they moved.
func (v *view) finish(changes []change) ([]change, error) {
	for n, in := range v.dirty {
		value, err := v.codec.Encode(in)
		if err != nil {
			return nil, fmt.Errorf("run number %d: %w", n, err)
		}
		changes = append(changes, change{key: runKey(n), value: value})
	}
	if last := number(v.s.last.Load()); last > v.marks.Reserved {
		v.marks.Reserved = last + reserveNumbers
		v.marked = true
	}
	if v.marked {
		value, err := v.codec.Encode(&v.marks)
		if err != nil {
			return nil, fmt.Errorf("the marks: %w", err)
		}
		changes = append(changes, change{key: marksKey, value: value})
		v.s.floors.Store(&v.marks.Floors)
	}
	return changes, nil
}

// settle passes on what is now durable.
func (v *view) settle() {
	v.s.marks = v.marks
	v.s.shown.put(v.dirty, v.gone)
	v.s.removed.Add(v.freed)
	v.s.changedAt.Store(time.Now().UnixNano())
	for i, n := range v.counts {
		v.s.counts[i].Add(int64(n))
	}
	for _, g := range v.claimed {
		v.s.stages.end(g.id)
	}
}

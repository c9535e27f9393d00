package badger

import (
	"fmt"

	"counterfoil/keystore"
)

// A run is what the store keeps under a run's number.
type run struct {
	Run keystore.Run `cbor:"1,keyasint"`
	// Totals counts the run's calls by state. It follows from the calls and is
	// kept in the same transaction, so that no verdict and no page has to count.
	Totals totals `cbor:"2,keyasint"`
	// ExpiredThrough is the highest sequence number whose calls are over since
	// ExpiredAt: they count as tombstones whether or not they were rewritten
	// yet. SweptThrough is how far they were.
	ExpiredThrough number           `cbor:"3,keyasint,omitempty"`
	ExpiredAt      keystore.Instant `cbor:"4,keyasint,omitempty"`
	SweptThrough   number           `cbor:"5,keyasint,omitempty"`
	// Place is where the run stands in the list of its namespace; 0 once it was
	// swept, since such a run is not listed. Its plans and positions lie under it.
	Place number `cbor:"6,keyasint,omitempty"`
	// LeftPlace is the place that it had, while plans and positions of then are
	// still there.
	LeftPlace number `cbor:"7,keyasint,omitempty"`
}

// totals is indexed by state.
type totals []int

// plus returns t with n more in state s.
func (t totals) plus(s keystore.State, n int) totals {
	c := make(totals, max(len(t), int(s)+1))
	copy(c, t)
	c[s] += n
	return c
}

func (t totals) in(s keystore.State) int {
	if int(s) < len(t) {
		return t[s]
	}
	return 0
}

// unsettled counts the calls that keep a run from being swept.
func (t totals) unsettled() int {
	return t.in(keystore.Pending) + t.in(keystore.InDoubt) + t.in(keystore.Unknown) + t.in(keystore.Held)
}

func (t totals) all() int {
	sum := 0
	for _, n := range t {
		sum += n
	}
	return sum
}

// summary leaves the tombstones out: their run is over.
func (r *run) summary() keystore.RunSummary {
	s := keystore.RunSummary{Run: r.Run}
	for state := range s.Calls {
		s.Calls[state] = r.Totals.in(keystore.State(state))
	}
	s.Calls[keystore.Expired] = 0
	return s
}

func (r *run) facts() keystore.RunFacts {
	if r == nil {
		return keystore.RunFacts{}
	}
	return keystore.RunFacts{Run: &r.Run, Unknown: r.Totals.in(keystore.Unknown)}
}

// A call is a record and its place.
type call struct {
	seq    number
	record *keystore.Record
}

// asOf returns what rec counts as, given its run: once the run is over, its
// calls are tombstones for every reader, rewritten or not.
func (r *run) asOf(seq number, rec *keystore.Record) (*keystore.Record, error) {
	if seq > r.ExpiredThrough || rec.State == keystore.Expired {
		return rec, nil
	}
	tombstone, err := keystore.Next(rec, keystore.Event{Kind: keystore.RetentionOver}, r.ExpiredAt)
	if err != nil {
		return nil, fmt.Errorf("call %s of a run that is over: %w: %w", rec.Key, keystore.ErrCorrupt, err)
	}
	return tombstone, nil
}

// A reader reads domain objects out of a snapshot.
type reader struct {
	snapshot
	codec *keystore.Codec
}

func (r reader) runNumber(namespace, name string) (n number, found bool, err error) {
	value, err := r.get(nameKey(namespace, name))
	if value == nil || err != nil {
		return 0, false, err
	}
	n, err = decodeNumber(value)
	return n, err == nil, err
}

// run returns the run of that number, nil if there is none.
func (r reader) run(n number) (*run, error) {
	value, err := r.get(runKey(n))
	if value == nil || err != nil {
		return nil, err
	}
	stored := new(run)
	if err := r.codec.Decode(value, stored); err != nil {
		return nil, fmt.Errorf("run number %d: %w", n, err)
	}
	return stored, nil
}

// call returns a call of the run n, nil if there is none.
func (r reader) call(in *run, n number, k keystore.Key) (*call, error) {
	value, err := r.get(indexKey(n, hashCall(k.Turn, k.Call)))
	if value == nil || err != nil {
		return nil, err
	}
	seq, err := decodeNumber(value)
	if err != nil {
		return nil, fmt.Errorf("call %s: %w", k, err)
	}
	rec, err := r.record(in, seq)
	if err != nil {
		return nil, fmt.Errorf("call %s: %w", k, err)
	}
	if rec.Key != k {
		return nil, fmt.Errorf("call %s: its place holds call %s: %w", k, rec.Key, keystore.ErrCorrupt)
	}
	return &call{seq, rec}, nil
}

// record returns the record at a place that an index names.
func (r reader) record(in *run, seq number) (*keystore.Record, error) {
	value, err := r.get(recordKey(seq))
	if err != nil {
		return nil, err
	}
	if value == nil {
		return nil, fmt.Errorf("the index names a record that is not there: %w", keystore.ErrCorrupt)
	}
	return r.decodeRecord(in, seq, value)
}

func (r reader) decodeRecord(in *run, seq number, value []byte) (*keystore.Record, error) {
	rec := new(keystore.Record)
	if err := r.codec.Decode(value, rec); err != nil {
		return nil, err
	}
	return in.asOf(seq, rec)
}

// find returns a run and one of its calls; either is nil if it is not there.
func (r reader) find(k keystore.Key) (*run, *call, error) {
	n, found, err := r.runNumber(k.Namespace, k.Run)
	if !found || err != nil {
		return nil, nil, err
	}
	in, err := r.existingRun(n)
	if err != nil {
		return nil, nil, err
	}
	c, err := r.call(in, n, k)
	return in, c, err
}

func (r reader) existingRun(n number) (*run, error) {
	in, err := r.run(n)
	if err == nil && in == nil {
		err = fmt.Errorf("run number %d has a name and no record: %w", n, keystore.ErrCorrupt)
	}
	return in, err
}

package storetest

import (
	"crypto/sha256"
	"maps"
	"slices"
	"sync"

	"counterfoil/keystore"
)

// A Disk is what survives the crash of a Memory: all that was synced, and
// nothing else. It also holds the faults that operations are to meet.
type Disk struct {
	codec *keystore.Codec

	mu     sync.Mutex
	synced image
	// life numbers the store that has the disk open; a store of an earlier life
	// can no longer write.
	life   uint64
	inUse  bool
	full   bool
	faults []*Armed
}

// NewDisk returns an empty disk. Its secret is the same for every disk, so that
// tests repeat.
func NewDisk() *Disk {
	codec, err := keystore.NewCodec()
	if err != nil {
		panic(err) // The options are constants: no input can bring this about.
	}
	return &Disk{codec: codec, synced: image{
		secret: sha256.Sum256([]byte("a secret for tests")),
		calls:  map[keystore.Key]entry{}, runs: map[runName]*runEntry{}, fallow: map[runName]fallow{}, bodies: map[keystore.BodyRef][]byte{},
		items: newItemImage(),
	}}
}

// Fail arms a fault.
func (d *Disk) Fail(f Fault) *Armed {
	d.mu.Lock()
	defer d.mu.Unlock()
	a := &Armed{fault: f}
	d.faults = append(d.faults, a)
	return a
}

// Heal disarms every fault.
func (d *Disk) Heal() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.faults = nil
}

// SetFull says whether the reserve of free space is reached.
func (d *Disk) SetFull(full bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.full = full
}

// Record returns what would be on record about a call if the power went now,
// nil if nothing would.
func (d *Disk) Record(k keystore.Key) *keystore.Record {
	d.mu.Lock()
	defer d.mu.Unlock()
	e, ok := d.synced.calls[k]
	if !ok {
		return nil
	}
	r := &keystore.Record{}
	if err := d.codec.Decode(e.stored, r); err != nil {
		panic(err) // Only this package writes here.
	}
	return r
}

// strike returns the first armed fault that the operation meets, or nil.
func (d *Disk) strike(op Op) *Fault {
	d.mu.Lock()
	defer d.mu.Unlock()
	var met *Fault
	for _, a := range d.faults {
		if a.strikes(op) && met == nil {
			met = &a.fault
		}
	}
	return met
}

func (d *Disk) isFull() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.full
}

// write makes changes durable, unless another life has begun.
func (d *Disk) write(life uint64, changes []change) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.inUse || d.life != life {
		return errGone
	}
	for _, c := range changes {
		c(&d.synced)
	}
	return nil
}

func (d *Disk) snapshot() image {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.synced.clone()
}

func (d *Disk) take() (life uint64, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.inUse {
		return 0, keystore.ErrLocked
	}
	d.inUse = true
	d.life++
	return d.life, nil
}

func (d *Disk) release(life uint64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.life == life {
		d.inUse = false
	}
}

// An image is the state of a whole store. Its entries are never changed in
// place, but for runs.
type image struct {
	secret [32]byte
	epoch  keystore.Epoch
	// order numbers what is created and what changes state.
	order  uint64
	calls  map[keystore.Key]entry
	runs   map[runName]*runEntry
	fallow map[runName]fallow
	bodies map[keystore.BodyRef][]byte
	items  itemImage
}

// A change is one step that an operation makes on an image. It is made twice:
// on the live image at once, and on the disk's when it is synced.
type change func(*image)

// An entry is a call on record.
type entry struct {
	stored []byte
	state  keystore.State
	// created orders calls by their first begin, entered by when they came to
	// their state, since is when that was.
	created, entered uint64
	since            keystore.Instant
	bodies           []keystore.BodyRef
}

type runName struct{ namespace, name string }

func nameOf(k keystore.Key) runName { return runName{k.Namespace, k.Run} }

type runEntry struct {
	run     keystore.Run
	created uint64
	calls   []keystore.Key
	counts  [stateCount]int
	// plans are by turn. What is in them and in positions is never changed.
	plans     map[string][]byte
	positions map[positionName][]byte
}

type positionName struct {
	turn    string
	content keystore.Content
}

// A fallow is what stays of a run that was swept, if it ever had a lease: the next
// one of its name goes on from there.
type fallow struct {
	lease keystore.Lease
	since keystore.Instant
}

const stateCount = len(keystore.RunSummary{}.Calls)

func (m *image) clone() image {
	c := *m
	c.calls, c.bodies = maps.Clone(m.calls), maps.Clone(m.bodies)
	c.fallow, c.items = maps.Clone(m.fallow), m.items.clone()
	c.runs = make(map[runName]*runEntry, len(m.runs))
	for name, run := range m.runs {
		c.runs[name] = run.clone()
	}
	return c
}

// put places a call on record, in its run.
func (m *image) put(k keystore.Key, e entry, now keystore.Instant) {
	run := m.open(nameOf(k), now)
	m.order++
	e.created, e.entered, e.since = m.order, m.order, now
	if old, ok := m.calls[k]; ok {
		run.counts[old.state]--
		e.created = old.created
		if old.state == e.state {
			e.entered, e.since = old.entered, old.since
		}
		m.dropBodies(old.bodies, e.bodies)
	} else {
		run.calls = append(run.calls, k)
	}
	run.counts[e.state]++
	m.calls[k] = e
}

func (m *image) dropBodies(refs, kept []keystore.BodyRef) {
	for _, ref := range refs {
		if !slices.Contains(kept, ref) {
			delete(m.bodies, ref)
		}
	}
}

// bury ends a run: its calls become the given tombstones, its bodies go.
func (m *image) bury(name runName, tombs map[keystore.Key]entry, now keystore.Instant) {
	for k, tomb := range tombs {
		m.dropBodies(m.calls[k].bodies, nil)
		m.calls[k] = tomb
	}
	if lease := m.runs[name].run.Swept().Lease; lease.Fence != 0 {
		m.fallow[name] = fallow{lease, now}
	}
	delete(m.runs, name)
}

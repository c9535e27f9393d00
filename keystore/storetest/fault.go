package storetest

import (
	"fmt"
	"sync"

	"counterfoil/keystore"
)

// An Op is a kind of operation that a fault can strike.
type Op uint8

const (
	// Any is every operation but Sync.
	Any Op = iota
	// Open is OpenMemory.
	Open
	// Begin and Apply are the methods of those names.
	Begin
	Apply
	// StageWrite is each piece of a staged body.
	StageWrite
	// Read is Call, ReadBody, Run, Runs, Calls, Unsettled, Lease, Plan, Position,
	// ItemStore, Item and Items.
	Read
	// Sweep is the method of that name.
	Sweep
	// Sync is the making durable of one batch of operations, all of which
	// share its fate.
	Sync
	// PutRun, AcquireLease, RenewLease, ReleaseLease, PutPlan and Step are the
	// methods of those names.
	PutRun
	AcquireLease
	RenewLease
	ReleaseLease
	PutPlan
	Step
	// WriteItems is the method of that name, and PutItemStore.
	WriteItems
)

var opNames = [...]string{
	Any: "any", Open: "open", Begin: "begin", Apply: "apply", StageWrite: "stage_write", Read: "read", Sweep: "sweep", Sync: "sync",
	PutRun: "put_run", AcquireLease: "acquire_lease", RenewLease: "renew_lease", ReleaseLease: "release_lease", PutPlan: "put_plan", Step: "step",
	WriteItems: "write_items",
}

func (o Op) String() string {
	if int(o) < len(opNames) {
		return opNames[o]
	}
	return "invalid"
}

// A Moment says on which side of durability a fault falls.
type Moment uint8

const (
	// BeforeDurable: nothing of the operation is on record.
	BeforeDurable Moment = iota
	// AfterDurable: the operation is on record, and its acknowledgement is
	// lost.
	AfterDurable
)

// A Course says how a fault goes on.
type Course uint8

const (
	// Once: the nth operation fails, later ones do not.
	Once Course = iota
	// Lasting: the nth operation fails, and every later one of its kind.
	Lasting
	// Deadly: at the nth operation the store crashes.
	Deadly
)

// A Fault makes operations fail. The zero value fails the next operation of
// any kind once, with nothing of it on record.
type Fault struct {
	Op Op
	// Nth counts the operations of that kind from when the fault was armed; 0
	// counts as 1.
	Nth    int
	Moment Moment
	Course Course
	// Err is what the caller gets; nil means keystore.ErrUnavailable.
	Err error
}

// An Armed is a fault that waits for its operation.
type Armed struct {
	fault  Fault
	mu     sync.Mutex
	seen   int
	struck int
}

// Struck returns how many operations the fault has made fail. A test that
// raises Nth until a run is untouched ends when this is 0.
func (a *Armed) Struck() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.struck
}

func (a *Armed) strikes(op Op) bool {
	if a.fault.Op != op && (a.fault.Op != Any || op == Sync) {
		return false
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.seen++
	nth := max(a.fault.Nth, 1)
	if a.seen != nth && (a.fault.Course != Lasting || a.seen < nth) {
		return false
	}
	a.struck++
	return true
}

func (f Fault) err(op Op) error {
	cause := f.Err
	if cause == nil {
		cause = keystore.ErrUnavailable
	}
	return fmt.Errorf("%s failed by a test's fault: %w", op, cause)
}

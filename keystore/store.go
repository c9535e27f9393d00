package keystore

import (
	"context"
	"errors"
	"time"
)

// Errors of a [Store].
var (
	// ErrNotFound: nothing is on record under that name.
	ErrNotFound = errors.New("nothing is on record under that name")
	// ErrUnavailable: the store cannot take or give this now, and nothing of the
	// operation is on record, or it is not known whether it is. Trying again
	// later is right.
	ErrUnavailable = errors.New("the store is not available")
	// ErrFull: the reserve of free disk is reached; only what is in flight is
	// still taken. It wraps ErrUnavailable.
	ErrFull = wrapped{"the disk is full up to its reserve", ErrUnavailable}
	// ErrCorrupt: a record cannot be read back. Nothing is sent on its account.
	ErrCorrupt = errors.New("the record cannot be read")
	// ErrNewerFormat: the data was written by a newer version of this program.
	ErrNewerFormat = errors.New("the data was written by a newer version of this program")
	// ErrLocked: another process has the store open.
	ErrLocked = errors.New("the store is in use by another process")
	// ErrCursor: the cursor is of another list. It wraps ErrNotFound.
	ErrCursor = wrapped{"the cursor is not of this list: begin again without one", ErrNotFound}
	// ErrTooLarge: the operation can never be taken, whatever else happens.
	ErrTooLarge = errors.New("too large for the store")
)

type wrapped struct {
	text  string
	cause error
}

func (w wrapped) Error() string { return w.text }
func (w wrapped) Unwrap() error { return w.cause }

// A Store keeps the journal: whole domain operations, each atomic, and durable
// when it returns without an error. Durable means synced: it survives the loss
// of power, not only of the process. All methods may be called concurrently.
//
// Inside its atomic step a store runs Admit, Next and Sweep's rules as they
// are; it has no rules of its own. The time that goes on record is the store's
// own, never a caller's.
//
// An operation that fails with ErrUnavailable may or may not be on record; a
// caller reads back, or repeats it: Begin and Apply are safe to repeat, since
// both check what is on record first. For WriteItems see there.
//
// Records and slices that a store returns belong to the caller; those passed in
// must not be changed until the call has returned.
type Store interface {
	RunStore
	ItemStores

	// Begin decides about a call and records what follows, as Admit says: an
	// intent with its attempt, or that recovery gave up, or nothing. body holds
	// the intent's bytes and is kept only where an attempt from a fresh intent
	// is recorded.
	//
	// A pending attempt whose epoch is dead is first moved to in doubt, in the
	// same step.
	//
	// Errors: ErrUnavailable, ErrFull, ErrTooLarge, ErrCorrupt. After an error
	// nothing may be sent.
	Begin(ctx context.Context, q *Request, body []byte) (Admission, error)

	// Apply records an event of a call, as Next says. If the event has a
	// receipt, body holds its bytes, unless Receipt.Body already names a staged
	// body or says that it is missing. A plan that comes with it goes on record in
	// the same step, if the event settles the call and the turn's plan allows it; or
	// before, where it is too large for that, and without its calls' arguments if need
	// be.
	//
	// Apply is taken even when the disk's reserve is reached. Errors: ErrNotFound,
	// those of Next, ErrUnavailable, ErrCorrupt.
	Apply(ctx context.Context, k Key, e Event, body []byte) (*Record, error)

	// StageBody keeps a large body ahead of the operation that will name it.
	// A staged body that no operation named is dropped at the next start.
	StageBody(ctx context.Context) (Stage, error)

	// Call returns the record of a call. Errors: ErrNotFound, ErrUnavailable,
	// ErrCorrupt.
	Call(ctx context.Context, k Key) (*Record, error)

	// ReadBody hands the bytes of b to fn in order, in pieces of at most 1 MiB
	// that are valid only during the call. It stops at fn's first error and
	// returns it. Errors: ErrNotFound if the body is missing or its retention
	// is over, ErrUnavailable, ErrCorrupt if what is there is not what was kept.
	ReadBody(ctx context.Context, b Body, fn func(piece []byte) error) error

	// Run returns a run and its totals. Errors: ErrNotFound, ErrUnavailable.
	Run(ctx context.Context, namespace, run string) (RunSummary, error)

	// Runs lists the runs of a namespace in order of creation, and Calls the
	// records of a run's calls in order of their first begin.
	Runs(ctx context.Context, namespace string, p Page) (List[RunSummary], error)
	Calls(ctx context.Context, namespace, run string, p Page) (List[*Record], error)

	// Unsettled lists the calls, of all namespaces, whose state is s, oldest
	// first. s is Pending, InDoubt, Unknown or Held.
	Unsettled(ctx context.Context, s State, p Page) (List[*Record], error)

	// Sweep ends what is over, a bounded step at a time, and reports whether
	// there is more to do. A run goes atomically: bodies and records, leaving
	// tombstones, and its plans and positions with them. A run with anything
	// pending, in doubt, unknown or held stays, and so does one whose lease is
	// held.
	// Items and item stores whose time is up are there for nobody, swept or not;
	// Sweep frees what they take.
	Sweep(ctx context.Context, r Retention) (more bool, err error)

	// Facts returns what does not change while the store is open.
	Facts() Facts

	// Stats returns a snapshot for metrics.
	Stats() Stats

	// Close waits for what was taken and gives the store up. Operations that
	// come later fail with ErrUnavailable.
	Close() error
}

// A RunStore keeps what there is of a run besides its calls. It is part of every
// [Store]; what is said there holds for it.
//
// Inside its atomic steps a store runs Put, Acquire, Renew, Release, Check, Plan's
// rules and Step as they are.
type RunStore interface {
	// PutRun makes the run that q speaks of, or changes what q says of it.
	// isNew reports whether it was not on record. Errors: *Refused for
	// FlowVersionMismatch, ErrUnavailable, ErrFull, ErrCorrupt.
	PutRun(ctx context.Context, q *RunSpec) (sum RunSummary, isNew bool, err error)

	// AcquireLease gives out the lease of a run, which it makes if it is not on
	// record. Errors: *Refused for LeaseHeld, ErrUnavailable, ErrFull.
	AcquireLease(ctx context.Context, q *LeaseRequest) (Grant, error)

	// RenewLease prolongs a lease for ttl from now; 0 is as long as it was given
	// for. ReleaseLease gives it back; doing so again changes nothing. Errors:
	// *Refused for Fenced, ErrNotFound, ErrUnavailable. Neither is refused
	// because the disk's reserve is reached.
	RenewLease(ctx context.Context, namespace, run string, f Fence, ttl time.Duration) (Grant, error)
	ReleaseLease(ctx context.Context, namespace, run string, f Fence) error

	// Lease returns the newest lease; a Grant with Left 0 is over. Errors:
	// ErrNotFound if the run is not on record, ErrUnavailable.
	Lease(ctx context.Context, namespace, run string) (Grant, error)

	// PutPlan records a turn's plan and, as planned, its calls that are not on
	// record; those that are keep their record as it is. An equal plan is no
	// error, and isNew is false. One that was read out of a model's answer is joined
	// to what the turn has, as Run.Decided says, and is never refused. It makes the run if that is not on record, and
	// pins the guard's flow version if none is. The plan's CreatedAt is the
	// store's. Errors: *Refused for PlanConflict, Fenced,
	// FenceRequired and FlowVersionMismatch, ErrUnavailable, ErrFull,
	// ErrTooLarge.
	PutPlan(ctx context.Context, p *Plan, g Guard) (isNew bool, err error)

	// Plan returns a turn's plan. Errors: ErrNotFound, ErrUnavailable,
	// ErrCorrupt.
	Plan(ctx context.Context, namespace, run, turn string) (*Plan, error)

	// Position returns how far an agent without call ids has come with a content
	// in a turn; the zero Position if it has not begun. Errors: ErrUnavailable,
	// ErrCorrupt.
	Position(ctx context.Context, namespace, run, turn string, c Content) (Position, error)

	// Step moves the position of the call k, as the function Step says. Errors:
	// *Refused for Fenced, ErrNotFound if the call is not on record,
	// ErrUnavailable. It is not refused because the disk's reserve is reached.
	Step(ctx context.Context, k Key, o *Ordinal, m Move) error
}

// ItemStores keep state that outlives its agent. They are part of every [Store];
// what is said there holds for them.
type ItemStores interface {
	// PutItemStore makes an item store if it is not there; TTL and Isolation
	// count only then, and nothing else of s but its name counts. One whose time
	// is up is made anew: no item of the old one is in it. Errors:
	// ErrInvalidKey, ErrUnavailable, ErrFull.
	PutItemStore(ctx context.Context, s *ItemStore) (is ItemStore, isNew bool, err error)

	// ItemStore returns an item store. Errors: ErrNotFound if there is none or
	// its time is up, ErrUnavailable.
	ItemStore(ctx context.Context, namespace, name string) (ItemStore, error)

	// WriteItems makes all writes of a batch or none, and lets the item store's
	// TTL begin anew. The guard, the receipts and the conditions are checked in
	// the same atomic step, in that order. A run that is not on record is not
	// made. Errors: *Refused for FenceRequired, Fenced, FlowVersionMismatch,
	// ReceiptRequired, ItemExists and ETagMismatch, ErrNotFound if the item store
	// is not there, ErrInvalidKey if the store is PerUser and no user is named,
	// ErrUnavailable, ErrFull, ErrTooLarge, ErrCorrupt, and those of Validate.
	//
	// After ErrUnavailable the batch may be on record. Only conditions make it
	// safe to repeat: if it was made, the repetition is refused for ItemExists or
	// ETagMismatch, and reading tells; without them it would undo what others
	// have written since.
	WriteItems(ctx context.Context, b *Batch) ([]Written, error)

	// Item returns an item. Errors: ErrNotFound if it or its store is not there
	// or its time is up, ErrInvalidKey as for WriteItems, ErrUnavailable,
	// ErrCorrupt.
	Item(ctx context.Context, s Space, key string) (*Item, error)

	// Items lists a part of an item store in order of creation. A page may be
	// short, or empty, and have a cursor all the same: one call looks at
	// LookedAtMax items and ends a page of PageBytesMax. An item that cannot be
	// read is left out. Whatever is there all along is listed once, however the
	// store changes between two pages. Errors: ErrNotFound if the store is not
	// there, ErrCursor, ErrInvalidKey as for WriteItems, ErrUnavailable.
	Items(ctx context.Context, q *ItemQuery) (List[*Item], error)
}

// An Admission is what Begin came to.
type Admission struct {
	Verdict Verdict
	// Record is what is on record now, nil if there is nothing. With Send and
	// Resend its last attempt is the one to be sent.
	Record *Record
}

// A Stage takes a large body in pieces.
type Stage interface {
	// Write keeps a piece. Errors: ErrUnavailable, ErrFull.
	Write(ctx context.Context, piece []byte) error
	// Body names what was written so far; after it nothing more may be written.
	Body() Body
	// Discard gives the body up. After an operation has named the body it does
	// nothing.
	Discard(ctx context.Context)
}

// A Page says which part of a list is wanted.
type Page struct {
	// After is the cursor that the last list gave; empty for the first page.
	After string
	// Limit is how many items at most: 1 to 1000; 0 means 100.
	Limit int
}

// A List is one page of a list.
type List[T any] struct {
	Items []T
	// Next is the cursor of the next page, empty on the last.
	Next string
}

// A RunSummary is a run and what follows from its calls.
type RunSummary struct {
	Run
	// Calls counts the run's calls by state.
	Calls [numStates]int
}

// Total is how many calls the run has.
func (s *RunSummary) Total() int {
	total := 0
	for _, n := range s.Calls {
		total += n
	}
	return total
}

// Retention says when what is on record is over. Zero values mean the
// defaults of design section 4.
type Retention struct {
	// AfterEnd is how long a run stays after its end: 30 days by default.
	AfterEnd time.Duration
	// AfterChange is how long it stays after its last change at the latest: 90
	// days by default.
	AfterChange time.Duration
	// Tombstone is how long a tombstone stays: 400 days by default.
	Tombstone time.Duration
}

// WithDefaults returns r with its zero values replaced.
func (r Retention) WithDefaults() Retention {
	const day = 24 * time.Hour
	if r.AfterEnd == 0 {
		r.AfterEnd = 30 * day
	}
	if r.AfterChange == 0 {
		r.AfterChange = 90 * day
	}
	if r.Tombstone == 0 {
		r.Tombstone = 400 * day
	}
	return r
}

// Over reports whether a run's bodies and records are to go.
func (r Retention) Over(run *Run, now Instant) bool {
	if run.EndedAt != 0 && now >= max(run.EndedAt, run.TouchedAt).Add(r.AfterEnd) {
		return true
	}
	return now >= run.TouchedAt.Add(r.AfterChange)
}

// Facts is what does not change while a store is open.
type Facts struct {
	Epoch Epoch
	// Secret keys the hashes of credentials. It is made when the store is.
	Secret [32]byte
	// Doubtful is how many calls were pending when the epoch before ended, and
	// are in doubt since.
	Doubtful int
}

// Stats is a snapshot of a store.
type Stats struct {
	// Pending, InDoubt, Unknown and Held count calls.
	Pending, InDoubt, Unknown, Held int
	// OldestUnknown is when the call that has been unknown for longest became
	// so; 0 if there is none.
	OldestUnknown Instant
	// Full says that the disk's reserve is reached.
	Full bool
	// DiskBytes is what the store takes on disk, where it is known.
	DiskBytes int64
}

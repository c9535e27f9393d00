package journal

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"counterfoil/classify"
	"counterfoil/internal/crashpoint"
	"counterfoil/keystore"
	"counterfoil/providers"
)

// Bounds of the loop.
const (
	// WaitDefault is how long a request waits for an equal one in flight, or
	// for recovery; WaitMax the longest that Prefer: wait=N can ask for.
	WaitDefault = 30 * time.Second
	WaitMax     = 10 * time.Minute
	// WholeMax is how long an answer of known length may be to be read whole
	// before its head is passed on. Receipts beyond it are kept in chunks.
	WholeMax = 1 << 20
	// KeptMax is how long a receipt's body may be to be kept at all.
	KeptMax = 64 << 20
	// SendTries is how often within one attempt a request is tried that is
	// proven unsent.
	SendTries = 3
	// unpackMax is how many compressed requests are unpacked at once to be
	// compared.
	unpackMax = 2
)

// A Sender makes one attempt on the wire: it never repeats a request of which
// a byte has left.
type Sender interface {
	Send(ctx context.Context, r *classify.Request) *classify.Response
}

// An Upstream is a configured target, and all that is known about it.
type Upstream struct {
	Name string
	// Origin is its URL without a last slash: a resend to another one is no
	// resend.
	Origin string
	// Sender sends effects and reads, Finder lookups.
	Sender Sender
	Finder Sender
	// Adapter is nil where nothing is known about the provider.
	Adapter  *providers.Adapter
	Rules    classify.Rules
	Outcomes classify.Outcomes
	Secrets  *classify.Secrets
	Ignore   classify.Fields
	// Auth is a credential of the sidecar's own, added where a request bears no
	// field of that name. The zero Field is none.
	Auth classify.Field
	// Bind says what a replay is bound to.
	Bind Binding
	// FirstByte is how long an attempt waits for the head of its answer: as long
	// may the provider be at work.
	FirstByte time.Duration
	// PauseOnUnknown says that an unknown call pauses the effects of its run.
	PauseOnUnknown bool
	// RecordReads journals reads too.
	RecordReads bool
	// HoldDiverged holds new effects of an agent without call ids that has not
	// repeated all of its earlier ones.
	HoldDiverged bool
	// Canary is a read that shows whether lookups are permitted, as in GET
	// /v1/balance, relative to the URL; empty for none.
	Canary string
	// Plans says what becomes of the tool calls in a model's answer.
	Plans PlanReading

	// refused says why lookups are off; nil where they are not.
	refused atomic.Pointer[string]
}

// A Binding says whose replay is answered.
type Binding uint8

const (
	// BindNothing: whoever names the call.
	BindNothing Binding = iota
	// BindAuthorization: who sends the same credential as the first request.
	BindAuthorization
	// BindSubject: who the credential speaks for: issuer and subject of a
	// bearer JWT, the user of Basic credentials, else the whole credential.
	// The token is not verified here: it tells apart, it does not protect.
	BindSubject
	// BindShared: every credential that is used here speaks for one account, as
	// with tokens that are refreshed. Any of them is answered, and may repeat.
	BindShared
)

// A Config is what a Journal is made of.
type Config struct {
	Store     keystore.Store
	Upstreams []*Upstream
	// Now is the clock for deadlines and for when lookups were asked; nil means
	// time.Now.
	Now func() time.Time
	// Jitter returns a number in [0,1) for backoff; nil means none.
	Jitter   func() float64
	Observer Observer
}

// A Journal carries calls out. It is safe for concurrent use.
type Journal struct {
	store     keystore.Store
	secret    [32]byte
	epoch     keystore.Epoch
	upstreams map[string]*Upstream
	now       func() time.Time
	jitter    func() float64
	observe   Observer
	flights   flights
	lanes     lanes
	gate      gate
	keepers   keepers
	awaited   awaited
	late      chan struct{}
	closed    chan struct{}
	unpacking chan struct{}
}

// New returns a journal over an open store.
func New(cfg Config) (*Journal, error) {
	facts := cfg.Store.Facts()
	j := &Journal{
		store: cfg.Store, secret: facts.Secret, epoch: facts.Epoch,
		upstreams: make(map[string]*Upstream, len(cfg.Upstreams)),
		now:       cfg.Now, jitter: cfg.Jitter, observe: cfg.Observer,
		late: make(chan struct{}, lateMax), closed: make(chan struct{}), unpacking: make(chan struct{}, unpackMax),
	}
	if j.now == nil {
		j.now = time.Now
	}
	if j.jitter == nil {
		j.jitter = func() float64 { return 0 }
	}
	for _, u := range cfg.Upstreams {
		if u.Sender == nil || u.Secrets == nil {
			return nil, fmt.Errorf("upstream %s: sender and secrets are needed", u.Name)
		}
		j.upstreams[u.Name] = u
	}
	return j, nil
}

// A Call is what an agent asks for.
type Call struct {
	// Key is the call's. Where Ordinal is set, its Call is empty, and Do puts the
	// id there that it finds by counting.
	Key     keystore.Key
	Ordinal *Counted
	// Fence is the number of the lease that the agent holds; 0 if it names none.
	// FlowVersion is the version of the flow that it runs; empty if it does not
	// say.
	Fence       keystore.Fence
	FlowVersion string
	// OwnKey is the Idempotency-Key that the client chose itself, where that is
	// the call's whole identity: the provider gets it as it is. OwnKeyRaw is
	// its spelling in the header, quotes included.
	OwnKey    string
	OwnKeyRaw string
	// Request is what came, hop-by-hop and Counterfoil's own fields removed,
	// credentials still in it.
	Request classify.Request
	// Reading is what [Journal.Read] has made of the request; Do reads it itself
	// where it is nil.
	Reading *providers.Reading
	// Wait is how long to wait for an equal call in flight or for recovery; 0
	// is not at all.
	Wait time.Duration
	// HeldWait is how long to wait for a person's approval: as long as Wait, if
	// the client has asked for that itself, else 0. Nobody waits for a client
	// that has gone.
	HeldWait time.Duration
	// Alive reports whether the client is still there. It is called from other
	// goroutines, until Ended, and must not wait. Nil: it is there.
	Alive func() bool
}

func (c *Call) isAlive() bool { return c.Alive == nil || c.Alive() }

// A Question is what a request asks for at its upstream.
type Question struct {
	Reading *providers.Reading
	Class   classify.Class
	// Journaled says that the call goes on record; else it is passed through.
	Journaled bool
}

// Read finds out what r would do at its upstream, which must be a configured one.
// A Refusal says that it must not be sent.
func (j *Journal) Read(r *classify.Request) (Question, *providers.Refusal) {
	u := j.upstreams[r.Upstream]
	rd, refusal := u.Adapter.Read(r)
	q := Question{Reading: rd, Class: u.Rules.Class(r, rd.Class())}
	q.Journaled = !rd.Passes() && (q.Class != classify.Read || u.RecordReads)
	return q, refusal
}

// Pass sends a read on, and keeps nothing. A request proven unsent is tried
// again; the evidence of the last try is returned. The caller closes the body.
func (j *Journal) Pass(ctx context.Context, r *classify.Request, rd *providers.Reading) *classify.Response {
	u := j.upstreams[r.Upstream]
	out := *r
	out.Header = narrowed(rd.Overhears(), u.withAuth(r.Header))
	resp := j.send(ctx, u, &out)
	resp.Header = classify.EndToEnd(resp.Header)
	if resp.Evidence == classify.Answered {
		resp.Body = j.overheard(u.Name, rd, resp)
	}
	return resp
}

// Do carries a call out, or says what is known of it, or why not. It returns
// only when what it says is durable. ctx is the life of the process, not of the
// agent's connection: an agent that goes away does not cancel its call. s may
// be nil; then an answer that streams is kept first and answered from the
// store. Ended is to be called with every reply.
func (j *Journal) Do(ctx context.Context, c *Call, s Stream) *Reply {
	began := j.now()
	if !j.gate.enter() {
		return &Reply{Outcome: Refused, Refusal: &Refusal{
			Problem: Draining, Detail: "This sidecar is shutting down and sent nothing. Send the same key again, to the next one.", RetryAfter: time.Second,
		}}
	}
	defer j.gate.leave()
	w := j.workOn(c, s)
	if c.Ordinal != nil {
		if refusal := w.count(ctx); refusal != nil {
			return &Reply{Outcome: Refused, Refusal: refusal}
		}
	}
	if refusal := w.prepare(); refusal != nil {
		return &Reply{Outcome: Refused, Refusal: refusal, seat: w.seat}
	}
	w.flight = j.flights.join(c.Key)
	defer j.flights.leave(c.Key, w.flight)
	for {
		if reply := w.step(ctx); reply != nil {
			reply = w.reworded(ctx, w.planned(ctx, w.superseded(ctx, reply)))
			if reply.SentKey == "" {
				reply.SentKey = w.sentKey(reply.Record)
			}
			reply.seat, reply.Diverged = w.seat, w.diverged
			j.observe.done(w, reply, j.now().Sub(began))
			return reply
		}
	}
}

// ReadBody hands the stored bytes of a reply's body to fn in order.
func (j *Journal) ReadBody(ctx context.Context, b keystore.Body, fn func(piece []byte) error) error {
	return j.store.ReadBody(ctx, b, fn)
}

// Drain refuses new calls and waits until those in flight have their receipts,
// or ctx ends.
func (j *Journal) Drain(ctx context.Context) error {
	select {
	case <-j.gate.close():
		return nil
	case <-ctx.Done():
		return fmt.Errorf("waiting for calls in flight: %w", ctx.Err())
	}
}

// Close gives up receipts that still wait for the store. Call it once, after
// Drain and before the store is closed.
func (j *Journal) Close() {
	close(j.closed)
	j.keepers.close()
}

// step asks the store what may be done about the call, and does it. It returns
// nil where the store has to be asked again.
func (w *work) step(ctx context.Context) *Reply {
	if ctx.Err() != nil {
		return w.cutOff()
	}
	turn := w.flight.turn()
	crashpoint.Reach(crashpoint.BeginBefore)
	admission, orphan, err := w.begin(ctx)
	switch {
	case err != nil && ctx.Err() != nil:
		return w.cutOff()
	case err != nil:
		return w.storeTrouble(err)
	}
	if orphan {
		return w.disown(ctx, admission.Record)
	}
	w.noteDivergence(&admission.Verdict)
	switch v := admission.Verdict; v.Action {
	case keystore.Send, keystore.Resend:
		w.doubted = v.Action == keystore.Resend
		crashpoint.Reach(crashpoint.BeginAfter)
		return w.attempt(ctx, &admission)
	case keystore.Replay:
		return w.replay(admission.Record)
	case keystore.Ask:
		return w.askProvider(ctx, admission.Record, v.After, turn)
	case keystore.Wait:
		if v.Reason == keystore.Diverged {
			return w.awaitRepeats(ctx)
		}
		return w.wait(ctx, admission.Record, v, turn)
	case keystore.Stop:
		if w.awaitsApproval(ctx, v.Reason, turn) {
			return nil
		}
		return w.stop(ctx, admission.Record, v.Reason)
	}
	return w.storeTrouble(fmt.Errorf("verdict %d: %w", admission.Verdict.Action, keystore.ErrCorrupt))
}

// cutOff answers when the life of the process ends before the call does.
func (w *work) cutOff() *Reply {
	detail := "This sidecar is shutting down and sent nothing. Send the same key again, to the next one."
	if w.attempted {
		detail = "This sidecar is shutting down, and had to give up an attempt that may have had its effect. Send the same key again, to the next one: it finds out."
	}
	return w.refuse(nil, &Refusal{Problem: Draining, Detail: detail, RetryAfter: time.Second, EffectPossible: w.attempted || w.doubted, UpstreamStatus: w.upstreamStatus})
}

func (w *work) begin(ctx context.Context) (a keystore.Admission, orphan bool, err error) {
	w.flight.startBegin()
	a, err = w.store.Begin(ctx, &w.ask, w.kept)
	if err != nil {
		w.flight.endBegin(nil, w.epoch)
		return a, false, err
	}
	return a, w.flight.endBegin(&a, w.epoch), nil
}

// disown puts on record that nothing was sent for an attempt whose intent the
// store kept without acknowledging it.
func (w *work) disown(ctx context.Context, r *keystore.Record) *Reply {
	_, err := w.store.Apply(context.WithoutCancel(ctx), w.ask.Key, keystore.Event{
		Kind: keystore.SawUnsent, Attempt: r.AttemptsMade, Evidence: classify.Unsent, Outcome: classify.NotApplied,
		Reason: "the store did not acknowledge the intent, so nothing was sent",
	}, nil)
	if err != nil {
		return w.raced(err)
	}
	return nil
}

// storeTrouble answers for a store that cannot take or give. Nothing was sent
// on this request's account since the store was last asked.
func (w *work) storeTrouble(err error) *Reply {
	w.observe.trouble("the store refused an operation", w.ask.Key, err)
	refusal := &Refusal{Problem: JournalUnavailable, RetryAfter: time.Second, EffectPossible: w.attempted}
	switch {
	case w.attempted:
		refusal.Detail = "The journal cannot put on record now what came of the call, or what to do about it. Send the same key again; nothing is sent twice."
	case errors.Is(err, keystore.ErrFull):
		refusal.Detail = "The journal's disk is full up to its reserve, so nothing was sent. Free disk space, then send the same key again."
	case errors.Is(err, keystore.ErrTooLarge):
		return w.refuse(nil, &Refusal{Problem: InputTooLarge, Detail: "The request is larger than the journal can keep, so nothing was sent."})
	case errors.Is(err, keystore.ErrCorrupt):
		refusal.Detail = "The journal cannot read what it has on this call, so nothing was sent. An operator has to look at it."
		refusal.EffectPossible = true
	default:
		refusal.Detail = "The journal cannot take the call now. Send the same key again."
	}
	return w.refuse(nil, refusal)
}

func (w *work) refuse(r *keystore.Record, refusal *Refusal) *Reply {
	return &Reply{Outcome: Refused, Refusal: refusal, Record: r}
}

// gate counts what is in flight, and closes.
type gate struct {
	mu     sync.Mutex
	inside int
	closed bool
	empty  chan struct{}
	// shut is closed with the gate; nil until someone wants to know.
	shut chan struct{}
}

func (g *gate) enter() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.closed {
		g.inside++
	}
	return !g.closed
}

// stay counts something that goes on after its call has left, closed or not.
func (g *gate) stay() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.inside++
}

func (g *gate) leave() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.inside--; g.inside == 0 && g.closed {
		close(g.empty)
	}
}

// closing returns a channel that is closed once no one is let in any more.
func (g *gate) closing() <-chan struct{} {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.closingLocked()
}

func (g *gate) closingLocked() chan struct{} {
	if g.shut == nil {
		g.shut = make(chan struct{})
	}
	return g.shut
}

// close returns a channel that is closed once nothing is inside any more.
func (g *gate) close() <-chan struct{} {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.closed {
		g.closed, g.empty = true, make(chan struct{})
		close(g.closingLocked())
		if g.inside == 0 {
			close(g.empty)
		}
	}
	return g.empty
}

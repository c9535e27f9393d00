package journal

import (
	"time"

	"counterfoil/classify"
	"counterfoil/keystore"
)

// An Observer is told what is worth knowing. Nil functions are passed over. They
// are called on the path of the call, so they must be quick.
type Observer struct {
	// Done tells of each call once it is answered: the canonical line.
	Done func(Line)
	// Settled tells of a call that left doubt without a request of its agent's.
	Settled func(Settlement)
	// Diverged tells of an agent without call ids that sends a new effect, or
	// would, before it has repeated all of its earlier ones.
	Diverged func(k keystore.Key, upstream string)
	// Alarm tells of what an operator should look into.
	Alarm func(Alarm)
	// Trouble tells of what went wrong inside. The error holds no content.
	Trouble func(what string, k keystore.Key, err error)
}

// A Line is what one request for a call came to.
type Line struct {
	Key      keystore.Key
	Upstream string
	Method   string
	Class    classify.Class
	Outcome  Outcome
	// Problem is empty where the answer was a provider's.
	Problem  Problem
	State    keystore.State
	Attempts uint32
	// Sent says that this request made an attempt; Evidence and Judged are
	// its last one's.
	Sent     bool
	Evidence classify.Evidence
	Judged   classify.Outcome
	Status   int
	// Made counts the attempts that this request made, Resends those of them
	// that were resends.
	Made    int
	Lookups int
	Resends int
	Took    time.Duration
}

// A Settlement is what became of a call in doubt at start, or by recovery in
// the background.
type Settlement struct {
	Key      keystore.Key
	Upstream string
	// To is the state that the call is in now.
	To keystore.State
	// Why is what the call's history says, empty where it says nothing. It holds
	// nothing of the request but its method.
	Why              string
	Lookups, Resends int
}

func (o *Observer) settled(w *work, reply *Reply) {
	if o.Settled == nil || reply == nil || reply.Record == nil || reply.Record.State == keystore.InDoubt {
		return
	}
	s := Settlement{Key: w.ask.Key, Upstream: w.upstream.Name, To: reply.Record.State, Lookups: w.lookups, Resends: w.resends}
	if n := len(reply.Record.History); n > 0 && reply.Record.History[n-1].To == s.To {
		s.Why = reply.Record.History[n-1].Note
	}
	o.Settled(s)
}

// noteDivergence tells of a call that diverges, once.
func (w *work) noteDivergence(v *keystore.Verdict) {
	held := v.Action == keystore.Stop && v.Reason == keystore.Diverged
	if v.Diverges && !w.diverged && w.observe.Diverged != nil {
		w.observe.Diverged(w.ask.Key, w.upstream.Name)
	}
	w.diverged = w.diverged || v.Diverges || held
}

func (o *Observer) done(w *work, r *Reply, took time.Duration) {
	if o.Done == nil {
		return
	}
	line := Line{
		Key: w.ask.Key, Upstream: w.upstream.Name, Method: w.ask.Intent.Method, Class: w.ask.Class,
		Outcome: r.Outcome, Attempts: r.Attempts(), Sent: w.attempted, Evidence: w.lastEvidence, Judged: w.lastOutcome,
		Status: r.Status, Made: w.made, Lookups: w.lookups, Resends: w.resends, Took: took,
	}
	if r.Record != nil {
		line.State = r.Record.State
	}
	if r.Refusal != nil {
		line.Problem = r.Refusal.Problem
	}
	o.Done(line)
}

func (o *Observer) trouble(what string, k keystore.Key, err error) {
	if o.Trouble != nil {
		o.Trouble(what, k, err)
	}
}

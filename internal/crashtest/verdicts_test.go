package crashtest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"counterfoil/classify"
	"counterfoil/internal/fake"
	"counterfoil/internal/journal"
	"counterfoil/internal/upstream"
	"counterfoil/keystore"
	"counterfoil/keystore/badger"
	"counterfoil/providers"
	"counterfoil/providers/adapters"
	"counterfoil/providers/graphql"
	"counterfoil/providers/llm"
)

// A moment is where the sidecar dies in the table of verdicts.
type moment uint8

const (
	// beforeSend: the intent is durable, no byte has left.
	beforeSend moment = iota
	// sentAndLost: the request has left, and the provider never acted on it.
	sentAndLost
	// afterTheEffect: the provider has acted, the receipt is not durable.
	afterTheEffect
	// receiptDurable: the agent has not been told.
	receiptDurable
	numMoments
)

var momentNames = [numMoments]string{"before send", "sent, lost on the way", "after the effect", "receipt durable"}

// A verdict of the table, in words.
const (
	sentNow      = "sent"     // the provider showed that nothing had happened
	sentAgain    = "resent"   // the provider takes a second copy for the first
	foundThere   = "found"    // the provider showed the effect
	fromReceipt  = "replayed" // answered from the receipt
	leftUnknown  = "unknown"  // a person decides
	askedForEver = "in doubt" // neither; no adapter may come to this
)

// A machine is a clock, a folder, every provider, and the journals that live on
// the folder one after another.
type machine struct {
	*testing.T
	dir     string
	moment  moment
	known   *adapters.Catalogue
	now     atomic.Int64
	stands  []*stand
	ordeals []*ordeal
}

// An ordeal is one case at one provider.
type ordeal struct {
	stand *stand
	n     int
	op    *providers.Operation
	call  *journal.Call
	reply *journal.Reply
}

func (m *machine) clock() time.Time { return time.Unix(0, m.now.Load()) }

func newMachine(t *testing.T, at moment, specs ...fake.Spec) *machine {
	t.Helper()
	m := &machine{T: t, dir: t.TempDir(), moment: at, known: catalogue(t)}
	m.now.Store(time.Date(2026, 12, 1, 12, 0, 0, 0, time.UTC).UnixNano())
	befalls := fake.Answer
	if at == sentAndLost {
		befalls = fake.DropBefore
	}
	for _, spec := range specs {
		s := serveStand(t, spec, spec.Adapter, befalls)
		s.Ledger.Clock = m.clock
		m.stands = append(m.stands, s)
		for n, c := range spec.Cases {
			r := requestOf(c, s.name)
			r.Header = r.Header.Set(caseHeader, fmt.Sprint(n))
			m.ordeals = append(m.ordeals, &ordeal{stand: s, n: n, op: operationOf(t, bound(t, m.known, spec.Adapter), c), call: &journal.Call{
				Key: keystore.Key{Namespace: "default", Run: fmt.Sprintf("%s-%d", s.name, n), Turn: "1", Call: "1"}, Request: *r,
			}})
		}
	}
	return m
}

// A journalLife is one journal on the machine's folder.
type journalLife struct {
	store   *badger.Store
	journal *journal.Journal
	close   []func()
}

// live begins a journal. The senders are wrapped, unless wrap is nil.
func (m *machine) live(wrap func(journal.Sender) journal.Sender) *journalLife {
	m.Helper()
	store, err := badger.Open(m.Context(), badger.Config{Dir: m.dir, Now: m.clock, ReserveBytes: -1})
	if err != nil {
		m.Fatal(err)
	}
	l := &journalLife{store: store}
	var upstreams []*journal.Upstream
	for _, s := range m.stands {
		upstreams = append(upstreams, m.upstream(l, s, wrap))
	}
	if l.journal, err = journal.New(journal.Config{Store: store, Upstreams: upstreams, Now: m.clock}); err != nil {
		m.Fatal(err)
	}
	return l
}

func (m *machine) upstream(l *journalLife, s *stand, wrap func(journal.Sender) journal.Sender) *journal.Upstream {
	m.Helper()
	secrets, err := classify.NewSecrets(nil, nil)
	if err != nil {
		m.Fatal(err)
	}
	client, err := upstream.New(upstream.Config{URL: s.URL})
	if err != nil {
		m.Fatal(err)
	}
	finder, err := upstream.NewFinder(upstream.Config{URL: s.URL})
	if err != nil {
		m.Fatal(err)
	}
	l.close = append(l.close, client.Close, finder.Close)
	u := &journal.Upstream{Name: s.name, Origin: s.URL, Sender: client, Finder: finder, Adapter: bound(m.T, m.known, s.spec.Adapter), Secrets: secrets}
	if wrap != nil {
		u.Sender = wrap(client)
	}
	return u
}

func (l *journalLife) end() {
	l.journal.Close()
	for _, f := range l.close {
		f()
	}
}

// A dying sender is one of a sidecar that is about to die: it does what is to be
// done before, and comes to no end until its sidecar is dead.
type dyingSender struct {
	journal.Sender
	moment moment
	there  *sync.WaitGroup
	dead   <-chan struct{}
}

func (d dyingSender) Send(ctx context.Context, r *classify.Request) *classify.Response {
	if d.moment == receiptDurable {
		return d.Sender.Send(ctx, r)
	}
	if d.moment != beforeSend {
		if resp := d.Sender.Send(ctx, r); resp.Body != nil {
			_, _ = io.Copy(io.Discard, resp.Body)
			_ = resp.Body.Close()
		}
	}
	d.there.Done()
	<-d.dead
	return &classify.Response{Evidence: classify.Lost, Reason: "the test ended this sidecar"}
}

// firstLife sends every case, and dies at the moment.
func (m *machine) firstLife() {
	m.Helper()
	var there, agents sync.WaitGroup
	dead := make(chan struct{})
	l := m.live(func(s journal.Sender) journal.Sender { return dyingSender{s, m.moment, &there, dead} })
	if m.moment != receiptDurable {
		there.Add(len(m.ordeals))
	}
	for _, e := range m.ordeals {
		agents.Go(func() { e.reply = l.journal.Do(m.Context(), e.call, nil) })
	}
	there.Wait()
	if m.moment == receiptDurable {
		agents.Wait()
	}
	// From here on nothing gets on record, as of a process that is dead.
	if err := l.store.Close(); err != nil {
		m.Fatal(err)
	}
	close(dead)
	agents.Wait()
	l.end()
}

// roundsMax bounds how often the agent asks again, and with the longest waits
// of the adapters how much time passes.
const roundsMax = 200

// secondLife asks for every case until it has an answer, letting pass the time
// that it is told to wait.
func (m *machine) secondLife() {
	m.Helper()
	l := m.live(nil)
	defer func() {
		l.end()
		if err := l.store.Close(); err != nil {
			m.Error(err)
		}
	}()
	waiting := m.ordeals
	for round := 0; round < roundsMax && len(waiting) > 0; round++ {
		var still []*ordeal
		pause := time.Hour
		for _, e := range waiting {
			e.reply = l.journal.Do(m.Context(), e.call, nil)
			if e.reply.Refusal != nil && e.reply.Refusal.Problem == journal.InProgress {
				still = append(still, e)
				pause = min(pause, e.reply.Refusal.RetryAfter)
			}
		}
		m.now.Add(int64(pause))
		waiting = still
	}
}

// verdict says in a word what came of an ordeal.
func (m *machine) verdict(e *ordeal) string {
	m.Helper()
	tr := e.stand.trace(e.n)
	switch r := e.reply; {
	case r.Refusal != nil && r.Refusal.Problem == journal.UnknownOutcome:
		return leftUnknown
	case r.Refusal != nil && r.Refusal.Problem == journal.InProgress:
		return askedForEver
	case r.Refusal != nil:
		m.Errorf("%s of %s: refused as %s: %s", e.op.Name, e.stand.name, r.Refusal.Problem, r.Refusal.Detail)
		return string(r.Refusal.Problem)
	case r.Outcome == journal.Replayed:
		return fromReceipt
	case r.Outcome == journal.Executed:
		return sentNow
	case m.moment == beforeSend && tr.writes == 1, tr.writes > 1:
		return sentAgain
	}
	return foundThere
}

// played lives both lives, and returns the verdict on each ordeal.
func (m *machine) played() map[*ordeal]string {
	m.Helper()
	m.firstLife()
	m.secondLife()
	verdicts := map[*ordeal]string{}
	for _, e := range m.ordeals {
		verdicts[e] = m.verdict(e)
	}
	return verdicts
}

// check holds an ordeal's end against the provider's ledger.
func (m *machine) check(e *ordeal, verdict string) error {
	tr := e.stand.trace(e.n)
	happened := m.moment == afterTheEffect || m.moment == receiptDurable
	switch {
	case mayRepeat(e.op.Class):
		return nil
	case verdict == askedForEver:
		return fmt.Errorf("asked %d times without an end", roundsMax)
	case tr.effects > 1:
		return fmt.Errorf("%d effects of %d requests", tr.effects, tr.writes)
	case happened && verdict == sentNow:
		return errors.New("sent as if nothing had happened")
	case !happened && verdict == foundThere:
		return errors.New("found what never was")
	case verdict != leftUnknown && tr.effects != 1:
		return fmt.Errorf("%s, and %d effects", verdict, tr.effects)
	}
	return nil
}

// TestAdapterVerdicts plays every case of every provider through a death at
// each moment, and prints what comes of it.
func TestAdapterVerdicts(t *testing.T) {
	var columns [numMoments]map[string][]string
	for at := range numMoments {
		columns[at] = map[string][]string{}
		t.Run(momentNames[at], func(t *testing.T) {
			m := newMachine(t, at, fake.Specs()...)
			verdicts := m.played()
			for _, e := range m.ordeals {
				if err := m.check(e, verdicts[e]); err != nil {
					t.Errorf("%s of %s: %v", e.op.Name, e.stand.name, err)
				}
				if r := e.reply; at == afterTheEffect && r.Refusal == nil && !mayRepeat(e.op.Class) {
					sameObject(t, e.stand.name+" "+e.op.Name, e.stand.spec.Cases[e.n], e.stand.trace(e.n).answer, string(r.Bytes))
				}
				name := e.stand.spec.Adapter + " " + e.op.Name
				columns[at][name] = append(columns[at][name], verdicts[e])
			}
		})
	}
	if !t.Failed() {
		checkTable(t, columns)
	}
}

// TestAdapterLag: where lists and searches do not show the effect for as long as
// anyone asks, the call ends as unknown, or by the key; never in a second
// effect.
func TestAdapterLag(t *testing.T) {
	m := newMachine(t, afterTheEffect, fake.Specs()...)
	for _, s := range m.stands {
		s.Ledger.Lag = true
	}
	verdicts := m.played()
	for _, e := range m.ordeals {
		if err := m.check(e, verdicts[e]); err != nil {
			t.Errorf("%s of %s: %v", e.op.Name, e.stand.name, err)
		}
	}
}

// dialects is the Go that reads content, as the sidecar has it.
func dialects() providers.Dialects {
	return providers.Dialects{"graphql": graphql.New, "llm": llm.New}
}

package proxy

import (
	"context"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"counterfoil/internal/journal"
	"counterfoil/keystore"
	"counterfoil/keystore/storetest"
)

// A ledger is a provider's: each request has another effect and another answer.
type ledger struct {
	mu sync.Mutex
	n  int
	// arrived gets each request; where hold is not nil the answer waits for it.
	arrived chan struct{}
	hold    chan struct{}
	// fill makes answers longer, manner says how they come.
	fill   int
	manner string
	status int
}

func newLedger() *ledger { return &ledger{arrived: make(chan struct{}, 100), status: 201} }

func (l *ledger) play(w net.Conn, _ *heard) {
	l.mu.Lock()
	l.n++
	body, status, hold := fmt.Sprintf("%d:%s", l.n, strings.Repeat("x", l.fill)), l.status, l.hold
	l.mu.Unlock()
	l.arrived <- struct{}{}
	if hold != nil {
		<-hold
	}
	if l.manner != "chunked" {
		say(w, status, body, "Content-Type: text/plain")
		return
	}
	_, _ = io.WriteString(w, eventHead)
	for len(body) > 0 {
		piece := body[:min(len(body), 16<<10)]
		body = body[len(piece):]
		chunk(w, piece)
	}
	_, _ = io.WriteString(w, "0\r\n\r\n")
}

func (l *ledger) effects() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.n
}

// set changes how the provider answers.
func (l *ledger) set(change func(*ledger)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	change(l)
}

// step is what an agent without call ids sends.
func step(incarnation int, body string, fields ...string) string {
	return request("POST", fmt.Sprintf("/@job;i=%d/tickets/refunds", incarnation), body, fields...)
}

// act has a step answered.
func (st *stack) act(incarnation int, body string, fields ...string) *got {
	st.t.Helper()
	return ask(st.t, st.addr, step(incarnation, body, fields...))
}

// gets checks an answer by its outcome and the effect that it speaks of.
func (g *got) gets(t *testing.T, outcome string, effect int) {
	t.Helper()
	if n, _, _ := strings.Cut(g.body, ":"); g.outcome() != outcome || n != fmt.Sprint(effect) || g.broken {
		t.Errorf("got %d %s %.60q (broken %v), want %s with effect %d", g.status, g.outcome(), g.body, g.broken, outcome, effect)
	}
}

// Design 3.2: the ways to name an incarnation.
func TestOrdinalWaysToNameTheIncarnation(t *testing.T) {
	l := newLedger()
	st := start(t, setup{provider: provide(t, l.play), proxy: func(c *Config) { c.Run = "served" }})
	for i, raw := range []string{
		request("POST", "/@a;i=1/tickets/x", "{}"),
		request("POST", "/@b:t;i=0/tickets/x", "{}"),
		request("POST", "/@c/tickets/x", "{}", "Counterfoil-Incarnation: 1"),
		request("POST", "/tickets/x", "{}", "Counterfoil-Incarnation: 1", "Counterfoil-Run: d"),
		request("POST", "/tickets/x", "{}", "Counterfoil-Incarnation: 1"),
	} {
		g := ask(t, st.addr, raw)
		g.gets(t, "executed", i+1)
		ask(t, st.addr, raw).gets(t, "executed", i+2)
		l.set(func(l *ledger) { l.n = i + 1 })
	}
	ask(t, st.addr, request("POST", "/tickets/x", "{}", "Counterfoil-Run: r")).isProblem(t, MissingKey)
}

func TestOrdinalAFenceServesAsIncarnation(t *testing.T) {
	l := newLedger()
	var fence atomic.Uint64
	st := start(t, setup{provider: provide(t, l.play), proxy: func(c *Config) {
		c.Run, c.Fence = "served", func() keystore.Fence { return keystore.Fence(fence.Load()) }
	}})
	acquire := func(run string) keystore.Fence {
		g, err := st.store.AcquireLease(t.Context(), &keystore.LeaseRequest{Namespace: "default", Run: run, Owner: "w", TTL: deadline})
		if err != nil {
			t.Fatal(err)
		}
		return g.Fence
	}
	ask(t, st.addr, request("POST", "/tickets/x", "{}")).isProblem(t, MissingKey)
	for life := range 2 {
		fence.Store(uint64(acquire("served")))
		want := []string{"executed", "replayed"}[life]
		ask(t, st.addr, request("POST", "/tickets/x", "{}")).gets(t, want, 1)
		ask(t, st.addr, request("POST", fmt.Sprintf("/@served;f=%d/tickets/y", fence.Load()), "{}")).gets(t, want, 2)
		ask(t, st.addr, request("POST", "/tickets/z", "{}", fmt.Sprintf("Counterfoil-Fence: %d", fence.Load()))).gets(t, want, 3)
		if err := st.store.ReleaseLease(t.Context(), "default", "served", keystore.Fence(fence.Load())); err != nil {
			t.Fatal(err)
		}
	}
	// Another run has nothing of the served one's fence.
	ask(t, st.addr, request("POST", "/@other/tickets/x", "{}")).isProblem(t, MissingKey)
}

func TestOrdinalARestartedAgentMeetsItsReceipts(t *testing.T) {
	for name, change := range map[string]func(*ledger){
		"short":   func(*ledger) {},
		"long":    func(l *ledger) { l.fill = 40 << 10 },
		"stored":  func(l *ledger) { l.fill = 3 << 20 },
		"chunked": func(l *ledger) { l.fill, l.manner = 40<<10, "chunked" },
	} {
		t.Run(name, func(t *testing.T) {
			l := newLedger()
			change(l)
			st := start(t, setup{provider: provide(t, l.play)})
			var first [3]*got
			for i, body := range []string{"refund", "mail", "refund"} {
				first[i] = st.act(1, body)
				first[i].gets(t, "executed", i+1)
			}
			st = st.restart()
			for i, body := range []string{"refund", "mail", "refund"} {
				g := st.act(2, body)
				g.gets(t, "replayed", i+1)
				same(t, body, first[i], g)
			}
			st.act(2, "refund").gets(t, "executed", 4)
		})
	}
}

func TestOrdinalTwoEqualRequestsInParallelAreTwoCalls(t *testing.T) {
	l := newLedger()
	l.hold = make(chan struct{})
	st := start(t, setup{provider: provide(t, l.play)})
	one, two := dial(t, st.addr), dial(t, st.addr)
	one.say(step(1, "refund"))
	<-l.arrived
	two.say(step(1, "refund"))
	<-l.arrived
	close(l.hold)
	for _, c := range []*client{one, two} {
		if g, err := c.hear("POST"); err != nil || g.outcome() != "executed" {
			t.Errorf("%+v, %v", g, err)
		}
	}
	if n := st.records("job"); n != 2 || l.effects() != 2 {
		t.Errorf("%d calls, %d effects", n, l.effects())
	}
}

// leave sends a request, and leaves once it is at its provider.
func (st *stack) leave(l *ledger, raw string, leave func(*client)) {
	st.t.Helper()
	c := dial(st.t, st.addr)
	c.say(raw)
	<-l.arrived
	leave(c)
}

func hangUp(c *client) { _ = c.Close() }

func TestOrdinalATimeOutInFlightThenARepeatIsARetry(t *testing.T) {
	for name, leave := range map[string]func(*client){
		"closed":                   hangUp,
		"reset":                    func(c *client) { _ = c.Conn.(*net.TCPConn).SetLinger(0); _ = c.Close() },
		"closed, with more to say": func(c *client) { c.say("\r\n"); _ = c.Close() },
		"half":                     func(c *client) { _ = c.Conn.(*net.TCPConn).CloseWrite() },
	} {
		t.Run(name, func(t *testing.T) {
			l := newLedger()
			l.hold = make(chan struct{})
			st := start(t, setup{provider: provide(t, l.play)})
			st.leave(l, step(1, "refund"), leave)
			c := dial(t, st.addr)
			c.say(step(1, "refund"))
			eventually(t, "the repeat is there", deadline, func() bool { return st.busy() == 2 })
			close(l.hold)
			g, err := c.hear("POST")
			if err != nil {
				t.Fatal(err)
			}
			if n, _, _ := strings.Cut(g.body, ":"); n != "1" || l.effects() != 1 {
				t.Errorf("%s %q, %d effects", g.outcome(), g.body, l.effects())
			}
			st.act(1, "refund").gets(t, "executed", 2)
		})
	}
}

// busy counts the requests under way.
func (st *stack) busy() int {
	n := 0
	st.server.conns.Range(func(_, _ any) bool { n++; return true })
	return n
}

// An SDK that gave up before the provider had answered, and repeats when it has.
func TestOrdinalARepeatAfterTheAnswerWentNowhereIsARetry(t *testing.T) {
	for name, fill := range map[string]int{"short": 0, "long": 40 << 10, "stored": 3 << 20} {
		t.Run(name, func(t *testing.T) {
			l := newLedger()
			l.hold, l.fill = make(chan struct{}), fill
			st := start(t, setup{provider: provide(t, l.play)})
			st.leave(l, step(1, "refund"), hangUp)
			close(l.hold)
			eventually(t, "the call is over", deadline, func() bool { return st.busy() == 0 })
			st.act(1, "refund").gets(t, "replayed", 1)
			st.act(1, "refund").gets(t, "executed", 2)
		})
	}
}

// The connection breaks in the middle of an answer: of one that is new, and of
// one from the journal.
func TestOrdinalABrokenConnectionMidAnswerThenARepeatIsARetry(t *testing.T) {
	for _, manner := range []string{"length", "chunked"} {
		for incarnation := 1; incarnation <= 2; incarnation++ {
			t.Run(fmt.Sprint(manner, incarnation), func(t *testing.T) {
				l := newLedger()
				l.fill, l.manner = 8<<20, manner // more than sockets hold
				st := start(t, setup{provider: provide(t, l.play)})
				if incarnation == 2 {
					st.act(1, "refund").gets(t, "executed", 1)
				}
				c := dial(t, st.addr)
				c.say(step(incarnation, "refund"))
				if _, err := c.head(); err != nil {
					t.Fatal(err)
				}
				_ = c.Close()
				eventually(t, "the call is over", deadline, func() bool { return st.busy() == 0 })
				st.act(incarnation, "refund").gets(t, "replayed", 1)
				st.act(incarnation, "refund").gets(t, "executed", 2)
			})
		}
	}
}

func TestOrdinalAnAnswerReadToItsEndIsAnswered(t *testing.T) {
	// Each client hangs up at once when it has its answer, and the next follows.
	l := newLedger()
	st := start(t, setup{provider: provide(t, l.play)})
	for i := range 50 {
		st.act(1, "refund").gets(t, "executed", i+1)
	}
	for i := range 50 {
		st.act(2, "refund").gets(t, "replayed", i+1)
	}
}

func TestOrdinalAnSDKsInventedKeyIsOnlyATie(t *testing.T) {
	l := newLedger()
	p := provide(t, l.play)
	st := start(t, setup{provider: p})
	const key = "Idempotency-Key: stainless-node-retry-"
	st.act(1, "refund", key+"a").gets(t, "executed", 1)
	st.act(1, "refund", key+"a").gets(t, "replayed", 1)
	st.act(1, "refund", key+"b").gets(t, "executed", 2)
	st = st.restart() // the ties are on record
	st.act(1, "refund", key+"b").gets(t, "replayed", 2)
	// Another process of the SDK, with other keys.
	st.act(2, "refund", key+"c").gets(t, "replayed", 1)
	st.act(2, "refund", key+"d").gets(t, "replayed", 2)
	for _, h := range p.hits() {
		if strings.Contains(h.value("Idempotency-Key"), "stainless") {
			t.Errorf("the provider got the key %q", h.value("Idempotency-Key"))
		}
	}
	// Stripe's SDKs for other languages make up plain UUIDs.
	const stripe, uuid = "X-Stripe-Client-User-Agent: {}", "Idempotency-Key: 0b8f5ad4-6b5a-4d0e-9c1e-7d2f5a3b6c7"
	st.act(2, "charge", stripe, uuid+"0").gets(t, "executed", 3)
	st.act(2, "charge", stripe, uuid+"0").gets(t, "replayed", 3)
	st.act(3, "charge", stripe, uuid+"1").gets(t, "replayed", 3)
	l.set(func(l *ledger) { l.n = 2 })
	// The client's own is a call id, and so is a UUID that nobody is known to have
	// made up.
	st.act(3, "mail", uuid+"2").gets(t, "executed", 3)
	st.act(4, "mail", uuid+"2").gets(t, "replayed", 3)
	l.set(func(l *ledger) { l.n = 2 })
	for _, notRandom := range []string{"0b8f5ad4-6b5a-1d0e-9c1e-7d2f5a3b6c70", "0b8f5ad4-6b5a-4d0e-0c1e-7d2f5a3b6c70", "0b8f5ad496b5a-4d0e-9c1e-7d2f5a3b6c70", "0b8f5ad4-6b5a-4d0e-9c1e-7d2f5a3b6c7x", "order-77"} {
		if isRandomUUID(notRandom) {
			t.Errorf("%s counts as made up", notRandom)
		}
	}
	st.act(4, "refund", "Idempotency-Key: mine").gets(t, "executed", 3)
	st.act(5, "refund", "Idempotency-Key: mine").gets(t, "replayed", 3)
}

func TestOrdinalAnSDKsRetryHeadersAreKnown(t *testing.T) {
	const invocation = "Amz-Sdk-Invocation-Id: "
	for name, sets := range map[string][4][]string{
		"stainless": {{"X-Stainless-Retry-Count: 0"}, {"x-stainless-retry-count: 1"}, {"X-Stainless-Retry-Count: 0"}, {"X-Stainless-Retry-Count: 2"}},
		"aws": {
			{invocation + "u1", "Amz-Sdk-Request: attempt=1; max=3"}, {invocation + "u1", "Amz-Sdk-Request: attempt=2; max=3"},
			{invocation + "u2", "amz-sdk-request: attempt=1"}, {invocation + "u2", "amz-sdk-request: ttl=20200101T000000Z; attempt=3; max=3"},
		},
		"google": {
			{"X-Goog-Api-Client: gl-go/1 gccl/1 gccl-invocation-id/u1 gccl-attempt-count/1"}, {"x-goog-api-client: gccl-invocation-id/u1 gccl-attempt-count/2 gl-go/1"},
			{"X-Goog-Api-Client: gccl-invocation-id/u2 gccl-attempt-count/1"}, {"X-Goog-Api-Client: gccl-invocation-id/u2 gccl-attempt-count/2"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLedger()
			st := start(t, setup{provider: provide(t, l.play)})
			for i, want := range []struct {
				outcome string
				effect  int
			}{{"executed", 1}, {"replayed", 1}, {"executed", 2}, {"replayed", 2}} {
				st.act(1, "refund", sets[i]...).gets(t, want.outcome, want.effect)
			}
		})
	}
	for _, h := range [][]string{{"X-Stainless-Retry-Count", "x"}, {"Amz-Sdk-Request", "attempt=; max=1"}, {"X-Goog-Api-Client", "gccl-attempt-count/"}, {"X-Retry", "1"}} {
		if tie, isRetry := sdkRetry(headerOf(h...)); tie != "" || isRetry {
			t.Errorf("%q says %q, %v", h, tie, isRetry)
		}
	}
}

func TestOrdinalARefusalOfOursThenARepeatIsARetry(t *testing.T) {
	l := newLedger()
	p := provide(t, l.play)
	st := start(t, setup{provider: p, upstream: func(u *journal.Upstream) { u.PauseOnUnknown = false }})
	l.set(func(l *ledger) { l.status = 500 })
	for range 2 {
		st.act(1, "refund").isProblem(t, journal.UnknownOutcome)
	}
	if l.effects() != 1 {
		t.Errorf("%d effects", l.effects())
	}
}

func TestOrdinalA429ThenARepeatThenARestart(t *testing.T) {
	l := newLedger()
	st := start(t, setup{provider: provide(t, l.play)})
	for _, status := range []int{429, 401, 201} {
		l.set(func(l *ledger) { l.status = status })
		if g := st.act(1, "refund"); g.status != status || g.outcome() != "executed" {
			t.Errorf("%d %s, want %d", g.status, g.outcome(), status)
		}
	}
	st = st.restart()
	st.act(2, "refund").gets(t, "replayed", 3)
	if n := st.records("job"); n != 1 || l.effects() != 3 {
		t.Errorf("%d calls, %d requests", n, l.effects())
	}
}

func TestOrdinalAStaleIncarnationIsFenced(t *testing.T) {
	l := newLedger()
	st := start(t, setup{provider: provide(t, l.play)})
	st.act(1, "refund")
	st.act(2, "refund")
	for _, body := range []string{"refund", "mail"} {
		d := st.act(1, body).isProblem(t, journal.Fenced)
		if !strings.Contains(d.Detail, "number 2") || d.Run != "job" {
			t.Errorf("%+v", d)
		}
	}
}

func TestOrdinalDivergenceIsInTheAnswer(t *testing.T) {
	l := newLedger()
	var hold bool
	st := start(t, setup{provider: provide(t, l.play), upstream: func(u *journal.Upstream) { u.HoldDiverged = hold }})
	st.act(1, "refund")
	if g := st.act(2, "mail"); g.value("Counterfoil-Diverged") != "true" || g.outcome() != "executed" {
		t.Errorf("%d %q", g.status, g.fields)
	}
	if g := st.act(2, "refund"); g.value("Counterfoil-Diverged") != "" {
		t.Errorf("%q", g.fields)
	}
	hold = true
	st = st.restart()
	g := st.act(3, "fax")
	d := g.isProblem(t, journal.Diverged)
	if g.value("Counterfoil-Diverged") != "true" || g.outcome() != "held" || g.value("X-Should-Retry") != "false" || !strings.HasPrefix(d.Call, "auto-") {
		t.Errorf("%q %+v", g.fields, d)
	}
	if l.effects() != 2 {
		t.Errorf("%d effects", l.effects())
	}
}

// A read that is passed through is nobody's call, whatever it names.
func TestOrdinalReadsPass(t *testing.T) {
	l := newLedger()
	st := start(t, setup{provider: provide(t, l.play)})
	for i := range 2 {
		g := ask(t, st.addr, request("GET", "/@job;i=1/tickets/refunds", "", "Counterfoil-Fence: 77", "Counterfoil-Flow-Version: v9"))
		g.gets(t, "passthrough", i+1)
	}
	// One that is recorded is counted, and so a resumed run sees what it saw.
	record := func(incarnation int) *got {
		return ask(t, st.addr, request("GET", fmt.Sprintf("/@job;i=%d/tickets/refunds", incarnation), "", "Counterfoil-Record: true"))
	}
	record(1).gets(t, "executed", 3)
	record(1).gets(t, "executed", 4)
	record(2).gets(t, "replayed", 3)
	record(2).gets(t, "replayed", 4)
}

func TestFenceAndFlowVersionRefused(t *testing.T) {
	p := provide(t, created)
	st := start(t, setup{provider: p})
	long := strings.Repeat("v", 257)
	for _, raw := range []string{
		request("POST", "/tickets/x", "{}", "Counterfoil-Run: r", "Counterfoil-Call: c", "Counterfoil-Fence: 0"),
		request("POST", "/tickets/x", "{}", "Counterfoil-Run: r", "Counterfoil-Call: c", "Counterfoil-Fence: -1"),
		request("POST", "/tickets/x", "{}", "Counterfoil-Run: r", "Counterfoil-Call: c", "Counterfoil-Fence: +1"),
		request("POST", "/tickets/x", "{}", "Counterfoil-Run: r", "Counterfoil-Call: c", "Counterfoil-Fence: 1.5"),
		request("POST", "/tickets/x", "{}", "Counterfoil-Run: r", "Counterfoil-Call: c", "Counterfoil-Fence: "),
		request("POST", "/tickets/x", "{}", "Counterfoil-Run: r", "Counterfoil-Call: c", "Counterfoil-Fence: 1000000000000000000"),
		request("POST", "/tickets/x", "{}", "Counterfoil-Run: r", "Counterfoil-Call: c", "Counterfoil-Fence: 1", "Counterfoil-Fence: 2"),
		request("POST", "/tickets/x", "{}", "Counterfoil-Run: r", "Counterfoil-Call: c", "Counterfoil-Flow-Version: "),
		request("POST", "/tickets/x", "{}", "Counterfoil-Run: r", "Counterfoil-Call: c", "Counterfoil-Flow-Version: "+long),
		request("POST", "/tickets/x", "{}", "Counterfoil-Run: r", "Counterfoil-Call: c", "Counterfoil-Flow-Version: a", "Counterfoil-Flow-Version: b"),
		request("POST", "/@r;f=0/tickets/x", "{}"),
		request("POST", "/@r;f=/tickets/x", "{}"),
		request("POST", "/@r;f=1;f=1/tickets/x", "{}"),
		request("POST", "/@r;i=1;f=1;i=1/tickets/x", "{}"),
		request("POST", "/@r;g=1/tickets/x", "{}"),
		request("POST", "/@r;f=1;/tickets/x", "{}"),
	} {
		if d := ask(t, st.addr, raw).isProblem(t, InvalidKey); len(d.Detail) < 40 {
			t.Errorf("%q: %s", raw, d.Detail)
		}
	}
	if len(p.hits()) != 0 {
		t.Error("something was sent")
	}
}

func TestFenceInThePath(t *testing.T) {
	for path, want := range map[string]struct {
		fence       keystore.Fence
		incarnation int
		link        string
	}{
		"/@r;f=7/x":         {7, -1, "/@r;f=7"},
		"/@r:t;i=2;f=7/x":   {7, 2, "/@r:t;i=2;f=7"},
		"/@r:t:c;f=7;i=0/x": {7, 0, "/@r:t;f=7;i=0"},
		"/@r;i=2/x":         {0, 2, "/@r;i=2"},
	} {
		p, rest, err := cutIdentity(path)
		incarnation := -1
		if p.parts.incarnation != nil {
			incarnation = int(*p.parts.incarnation)
		}
		if err != nil || rest != "/x" || p.parts.fence != want.fence || incarnation != want.incarnation || p.segment != want.link {
			t.Errorf("%s: %+v %d %q %v", path, p, incarnation, rest, err)
		}
	}
}

// The store fails when the answer is about to end: the client gets a refusal, or
// an answer that does not end, and its repeat is the same call.
func TestOrdinalAStoreThatFailsEndsNoAnswer(t *testing.T) {
	for name, fill := range map[string]int{"short": 0, "long": 40 << 10, "stored": 3 << 20} {
		t.Run(name, func(t *testing.T) {
			l := newLedger()
			l.fill = fill
			st := start(t, setup{provider: provide(t, l.play)})
			st.act(1, "refund").gets(t, "executed", 1)
			st.failStep()
			g := st.act(2, "refund")
			if fill == 0 {
				g.isProblem(t, journal.JournalUnavailable)
			} else if !g.broken {
				t.Errorf("it ended: %d %s", g.status, g.outcome())
			}
			st.act(2, "refund").gets(t, "replayed", 1)
			st.act(2, "refund").gets(t, "executed", 2)
		})
	}
}

func (st *stack) failStep() { st.disk.Fail(storetest.Fault{Op: storetest.Step}) }

// An afterMove is a store that calls a function once after it has moved a
// position.
type afterMove struct {
	keystore.Store
	mu   sync.Mutex
	once func()
}

func (s *afterMove) Apply(ctx context.Context, k keystore.Key, e keystore.Event, body []byte) (*keystore.Record, error) {
	r, err := s.Store.Apply(ctx, k, e, body)
	if e.Answered != nil {
		s.moved()
	}
	return r, err
}

func (s *afterMove) Step(ctx context.Context, k keystore.Key, o *keystore.Ordinal, m keystore.Move) error {
	err := s.Store.Step(ctx, k, o, m)
	if m == keystore.Forth {
		s.moved()
	}
	return err
}

func (s *afterMove) moved() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.once != nil {
		s.once()
		s.once = nil
	}
}

// The client goes while its position is made durable: that is taken back.
func TestOrdinalAClientThatGoesDuringTheCommitHasNoAnswer(t *testing.T) {
	for name, fill := range map[string]int{"short": 0, "long": 40 << 10} {
		for incarnation := 1; incarnation <= 2; incarnation++ {
			t.Run(fmt.Sprint(name, incarnation), func(t *testing.T) {
				l := newLedger()
				l.fill = fill
				moves := &afterMove{}
				st := start(t, setup{provider: provide(t, l.play), store: func(s keystore.Store) keystore.Store { moves.Store = s; return moves }})
				if incarnation == 2 {
					st.act(1, "refund")
				}
				c, moved := dial(t, st.addr), make(chan struct{})
				moves.once = func() {
					defer close(moved)
					_ = c.Close()
					eventually(t, "the client is seen to be gone", deadline, func() bool {
						there := false
						st.server.conns.Range(func(other, _ any) bool { there = there || other.(*conn).present(); return true })
						return !there
					})
				}
				c.say(step(incarnation, "refund"))
				eventually(t, "the call is over", deadline, func() bool { <-moved; return st.busy() == 0 })
				st.act(incarnation, "refund").gets(t, "replayed", 1)
				st.act(incarnation, "refund").gets(t, "executed", 2)
			})
		}
	}
}

package admin

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"counterfoil/classify"
	"counterfoil/internal/journal"
	"counterfoil/internal/view"
	"counterfoil/keystore"
)

// refusalCounts is for how long an operation that the store refused makes the
// sidecar unready, unless the store takes one again before.
const refusalCounts = 10 * time.Second

// Metrics is everything that /metrics shows. Labels have few values: configured
// names and words of this program, never what a client sent. It is safe for
// concurrent use.
type Metrics struct {
	registry *prometheus.Registry
	handler  http.Handler

	executions, requests, attempts, resends, lookups, diverged, alarms *prometheus.CounterVec

	permitted *prometheus.GaugeVec
	offMu     sync.Mutex
	off       []string // upstreams whose lookups are not permitted, sorted

	requestSeconds *prometheus.HistogramVec
	commitSeconds  prometheus.Histogram
	commitOps      prometheus.Histogram
	commitBytes    prometheus.Histogram
	troubles       prometheus.Counter

	now func() time.Time
	// refusedAt is when the store last refused something, 0 if it has taken
	// something since, in nanoseconds since the Unix epoch.
	refusedAt atomic.Int64
}

// NewMetrics returns metrics with a registry of their own. version is the
// program's, now the clock for ages.
func NewMetrics(version string, now func() time.Time) *Metrics {
	m := &Metrics{registry: prometheus.NewRegistry(), now: now}
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
	}
	histogram := func(name, help string, buckets []float64) prometheus.HistogramOpts {
		return prometheus.HistogramOpts{Name: name, Help: help, Buckets: buckets}
	}
	m.executions = counter("counterfoil_executions_total",
		"Calls sent to a provider, by what came of it: applied, rejected, not_applied, ambiguous, or unsent where no byte left. Counted once per request that sent, not per attempt.",
		"upstream", "class", "outcome")
	m.requests = counter("counterfoil_requests_total",
		"Answers given to agents, by how each came about and, for a refusal, by its problem.",
		"upstream", "class", "outcome", "problem")
	m.attempts = counter("counterfoil_attempts_total", "Attempts made at calls, resends included.", "upstream")
	m.resends = counter("counterfoil_resends_total", "Attempts made under the same provider key while an earlier one was in doubt.", "upstream")
	m.lookups = counter("counterfoil_lookups_total", "Times a provider was asked whether an effect exists.", "upstream")
	m.diverged = counter("counterfoil_diverged_total",
		"New effects of agents without call ids that came, or were held, before all effects of their earlier incarnations had been repeated.", "upstream")
	m.alarms = counter("counterfoil_alarms_total",
		"What an operator should look into: duplicate, where a provider shows more than one effect of a call, and answer, where it says that something is wrong.", "upstream", "kind")
	m.permitted = prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "counterfoil_lookup_permitted",
		Help: "Whether the look at start found lookups at an upstream permitted: 1 or 0. Where it is 0, nothing is asked for lost calls."}, []string{"upstream"})
	m.requestSeconds = prometheus.NewHistogramVec(histogram("counterfoil_request_duration_seconds",
		"Time from a request to its answer, waits and recovery included.",
		[]float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300, 600}), []string{"class"})
	m.commitSeconds = prometheus.NewHistogram(histogram("counterfoil_commit_duration_seconds",
		"Time the journal took for one commit, its sync included.",
		[]float64{.0001, .00025, .0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 5}))
	m.commitOps = prometheus.NewHistogram(histogram("counterfoil_commit_operations",
		"Operations that one commit of the journal made durable together.", prometheus.ExponentialBuckets(1, 2, 11)))
	m.commitBytes = prometheus.NewHistogram(histogram("counterfoil_commit_bytes",
		"Bytes that one commit of the journal wrote.", prometheus.ExponentialBuckets(256, 4, 9)))
	m.troubles = prometheus.NewCounter(prometheus.CounterOpts{Name: "counterfoil_troubles_total",
		Help: "Things that went wrong inside the sidecar. The log says what."})
	m.registry.MustRegister(m.executions, m.requests, m.attempts, m.resends, m.lookups, m.diverged, m.alarms, m.permitted, m.requestSeconds,
		m.commitSeconds, m.commitOps, m.commitBytes, m.troubles, buildInfo(version),
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	m.handler = promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{MaxRequestsInFlight: 4, Timeout: storeTimeout})
	return m
}

func buildInfo(version string) prometheus.Collector {
	info := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "counterfoil_build_info", Help: "Always 1; its labels say what was built.",
		ConstLabels: prometheus.Labels{"version": version, "goversion": runtime.Version()},
	})
	info.Set(1)
	return info
}

// A Request is an answer given to an agent without the journal: a read passed
// through, or a refusal before the call was known.
type Request struct {
	// Upstream is a configured name, empty where the request named none.
	Upstream string
	// Class is 0 where it is not known.
	Class   classify.Class
	Outcome journal.Outcome
	// Problem is empty where the answer was a provider's.
	Problem journal.Problem
	Took    time.Duration
}

// RequestDone counts an answer that no Line tells of.
func (m *Metrics) RequestDone(r Request) {
	class := ""
	if r.Class != 0 {
		class = r.Class.String()
	}
	m.requests.WithLabelValues(r.Upstream, class, string(r.Outcome), string(r.Problem)).Inc()
	m.requestSeconds.WithLabelValues(class).Observe(r.Took.Seconds())
}

// LookupChecked notes whether lookups at an upstream are permitted.
func (m *Metrics) LookupChecked(upstream string, isPermitted bool) {
	value := 0.0
	if isPermitted {
		value = 1
	}
	m.permitted.WithLabelValues(upstream).Set(value)
	m.offMu.Lock()
	defer m.offMu.Unlock()
	at, found := slices.BinarySearch(m.off, upstream)
	switch {
	case isPermitted && found:
		m.off = slices.Delete(m.off, at, at+1)
	case !isPermitted && !found:
		m.off = slices.Insert(m.off, at, upstream)
	}
}

// notes are what should be looked into, in words.
func (m *Metrics) notes() []string {
	m.offMu.Lock()
	defer m.offMu.Unlock()
	var list []string
	for _, upstream := range m.off {
		list = append(list, "lookups of upstream "+upstream+" are not permitted: calls that are lost there will be unknown")
	}
	return list
}

// CallDone counts what a Line tells.
func (m *Metrics) CallDone(l *journal.Line) {
	m.RequestDone(Request{Upstream: l.Upstream, Class: l.Class, Outcome: l.Outcome, Problem: l.Problem, Took: l.Took})
	if l.Sent {
		outcome := l.Judged.String()
		if l.Evidence == classify.Unsent {
			outcome = l.Evidence.String()
		}
		m.executions.WithLabelValues(l.Upstream, l.Class.String(), outcome).Inc()
	}
	add(m.attempts, l.Upstream, l.Made)
	add(m.resends, l.Upstream, l.Resends)
	add(m.lookups, l.Upstream, l.Lookups)
}

func add(c *prometheus.CounterVec, upstream string, n int) {
	if n > 0 {
		c.WithLabelValues(upstream).Add(float64(n))
	}
}

// CommitObserved notes one durable commit of the store: how many operations and
// bytes it took, and how long.
func (m *Metrics) CommitObserved(ops, bytes int, took time.Duration) {
	m.commitSeconds.Observe(took.Seconds())
	m.commitOps.Observe(float64(ops))
	m.commitBytes.Observe(float64(bytes))
	m.refusedAt.Store(0)
}

// troubled notes what went wrong inside.
func (m *Metrics) troubled(err error) {
	m.troubles.Inc()
	if errors.Is(err, keystore.ErrUnavailable) {
		m.refusedAt.Store(m.now().UnixNano())
	}
}

// refusing reports whether the store refused what it was given just now.
func (m *Metrics) refusing() bool {
	refused := m.refusedAt.Load()
	return refused != 0 && m.now().Sub(time.Unix(0, refused)) < refusalCounts
}

func (m *Metrics) serve(w http.ResponseWriter, r *http.Request) { m.handler.ServeHTTP(w, r) }

// watch shows the figures of a store from now on. It can do so for one.
func (m *Metrics) watch(store keystore.Store) error {
	if err := m.registry.Register(newStoreCollector(store, m.now)); err != nil {
		return fmt.Errorf("showing the store's figures: %w", err)
	}
	return nil
}

// A storeCollector reads the store's figures when they are asked for.
type storeCollector struct {
	store                                 keystore.Store
	now                                   func() time.Time
	pending, inDoubt, unknown, held, full *prometheus.Desc
	oldestUnknown, oldestHeld, disk       *prometheus.Desc
}

func newStoreCollector(store keystore.Store, now func() time.Time) *storeCollector {
	desc := func(name, help string) *prometheus.Desc { return prometheus.NewDesc(name, help, nil, nil) }
	return &storeCollector{
		store: store, now: now,
		pending: desc("counterfoil_calls_pending", "Calls of which an attempt is under way."),
		inDoubt: desc("counterfoil_calls_in_doubt", "Calls whose effect may exist, with recovery not at its end."),
		unknown: desc("counterfoil_calls_unknown", "Calls whose effect may exist and that wait for a person."),
		oldestUnknown: desc("counterfoil_calls_unknown_oldest_age_seconds",
			"For how long the oldest unknown call has been waiting for a person; 0 if there is none."),
		held: desc("counterfoil_calls_held", "Calls that wait for an approval and were never sent."),
		oldestHeld: desc("counterfoil_calls_held_oldest_age_seconds",
			"For how long the oldest held call has been waiting for a person; 0 if there is none."),
		full: desc("counterfoil_store_full", "1 while the reserve of free disk is reached and new effects are refused, else 0."),
		disk: desc("counterfoil_store_disk_bytes", "What the journal takes on disk; 0 where it is not known."),
	}
}

// Describe sends what Collect will send.
func (c *storeCollector) Describe(to chan<- *prometheus.Desc) { prometheus.DescribeByCollect(c, to) }

// Collect sends one snapshot of the store.
func (c *storeCollector) Collect(to chan<- prometheus.Metric) {
	stats := c.store.Stats()
	gauge := func(d *prometheus.Desc, v float64) {
		to <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v)
	}
	gauge(c.pending, float64(stats.Pending))
	gauge(c.inDoubt, float64(stats.InDoubt))
	gauge(c.unknown, float64(stats.Unknown))
	gauge(c.held, float64(stats.Held))
	gauge(c.oldestUnknown, age(stats.OldestUnknown, c.now()).Seconds())
	gauge(c.oldestHeld, age(c.heldSince(stats.Held), c.now()).Seconds())
	gauge(c.disk, float64(stats.DiskBytes))
	full := 0.0
	if stats.Full {
		full = 1
	}
	gauge(c.full, full)
}

// heldSince is since when the oldest of so many held calls has been held; 0 if it
// cannot be read now.
func (c *storeCollector) heldSince(held int) keystore.Instant {
	if held == 0 {
		return 0
	}
	ctx, cancel := context.WithTimeout(context.Background(), readyTimeout)
	defer cancel()
	list, err := c.store.Unsettled(ctx, keystore.Held, keystore.Page{Limit: 1})
	if err != nil || len(list.Items) == 0 {
		return 0
	}
	return keystore.At(view.HeldSince(list.Items[0]))
}

// age is how long ago i was, never less than 0: the store's clock may be ahead.
func age(i keystore.Instant, now time.Time) time.Duration {
	if i == 0 {
		return 0
	}
	return max(0, now.Sub(i.Time()))
}

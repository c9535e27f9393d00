package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/url"
	"os"
	"os/signal"
	"runtime/debug"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/net/http/httpproxy"

	"counterfoil/classify"
	"counterfoil/internal/admin"
	"counterfoil/internal/config"
	"counterfoil/internal/journal"
	"counterfoil/internal/upstream"
	"counterfoil/keystore"
	"counterfoil/keystore/badger"
	"counterfoil/providers"
	"counterfoil/proxy"
)

const (
	// restartSlack is how much longer than the drain a sidecar that starts waits
	// for one that is about to end, as in a rolling restart.
	restartSlack = shutdownGrace + 10*time.Second
	// sweepPause is how long retention rests when nothing is left to do.
	sweepPause = 10 * time.Minute
	// memoryGoal is what the garbage collector aims to stay under, unless
	// GOMEMLIMIT says otherwise: compaction needs tens of MiB for a moment, and
	// without a goal twice that stays.
	memoryGoal = 320 << 20
	// shutdownGrace bounds what remains after the drain: what was cut off goes on
	// record, and the admin listener gives its last answers.
	shutdownGrace = 5 * time.Second
)

func newServeCommand(env clientEnv) *cobra.Command {
	var announce bool
	cmd := &cobra.Command{
		Use: "serve", Short: "Serve (what happens without a command)", Args: exactly(),
		Long: `Serves agents on one listener and operators on another until SIGTERM or SIGINT,
which let calls in flight end; a second one ends it at once.

All settings are variables, and fields of the file that COUNTERFOIL_CONFIG names:
see docs/configuration.md. COUNTERFOIL_UPSTREAMS is the one that it cannot do
without, there or as "upstreams" in the file.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := loadConfig(env)
			if err != nil {
				return err
			}
			limitMemory(env)
			s := &sidecar{cfg: cfg, log: newLogger(cfg, env.stderr), now: steadyClock(), readFile: env.readFile}
			if announce {
				s.announce = env.stdout
			}
			return s.run(cmd.Context())
		},
	}
	cmd.Flags().BoolVar(&announce, "announce", false, "print the data listener's address on standard output once ready")
	return cmd
}

func limitMemory(env clientEnv) {
	if _, set := env.environ()["GOMEMLIMIT"]; !set {
		debug.SetMemoryLimit(memoryGoal)
	}
}

// loadConfig reads what a sidecar that serves needs, and names every mistake.
func loadConfig(env clientEnv) (*config.Config, error) {
	known, err := knownProviders(env.readFile)
	if err != nil {
		return nil, err
	}
	cfg, err := config.LoadServe(env.environ(), env.readFile, known.mistakes)
	return cfg, misconfigured(err)
}

func misconfigured(err error) error {
	if err == nil {
		return nil
	}
	return usageError{fmt.Errorf("the configuration has mistakes:\n%w", err)}
}

func newLogger(cfg *config.Config, out io.Writer) *slog.Logger {
	options := &slog.HandlerOptions{Level: slog.Level(cfg.LogLevel)}
	if cfg.LogFormat == "json" {
		return slog.New(slog.NewJSONHandler(out, options))
	}
	return slog.New(slog.NewTextHandler(out, options))
}

// A sidecar is one life of the program, from an open store to a drained one.
type sidecar struct {
	cfg      *config.Config
	log      *slog.Logger
	announce io.Writer
	// readFile reads adapter files; known is what they and the built-in adapters
	// say.
	readFile func(string) ([]byte, error)
	known    *known
	// lockWait is how long to wait for another sidecar that has the directory;
	// 0 is restartWait.
	lockWait time.Duration
	// work is what a sidecar is there for that serves only as long as something
	// else goes on: it runs once all is ready, and its end is the sidecar's. Nil
	// is to serve until the end of run's context.
	work func(context.Context, keystore.Store, *listeners) error
	// fence is that of requests that name none; nil: they have none.
	fence func() keystore.Fence

	// now is the clock of all that is written and waited for.
	now     func() time.Time
	metrics *admin.Metrics
	admin   *admin.Server
	journal *journal.Journal
	proxy   *proxy.Server
	closers []func()
}

// run serves until ctx ends, then drains. Errors of closing are joined to what
// ended it.
func (s *sidecar) run(ctx context.Context) (err error) {
	outliveReaders()
	defer s.closeAll()
	upstreams, err := s.upstreams()
	if err != nil {
		return err
	}
	for _, w := range s.cfg.Warnings {
		s.log.Warn(w)
	}
	listeners, err := s.listen(ctx)
	if err != nil {
		return err
	}
	defer listeners.close()
	s.metrics = admin.NewMetrics(versionText(), s.now)
	store, err := s.openStore(ctx)
	if err != nil {
		return err
	}
	defer func() {
		s.closeAll() // the journal before its store
		err = errors.Join(err, store.Close())
	}()
	if err := s.build(store, upstreams, listeners); err != nil {
		return err
	}
	return s.serve(ctx, store, listeners)
}

// outliveReaders keeps this process from being killed for a line of its log that
// nobody reads any more, as behind "| head". The signal is taken and not ignored,
// since what is ignored stays so for an agent that is started.
func outliveReaders() {
	if !signal.Ignored(syscall.SIGPIPE) {
		signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
	}
}

// restartWait is how long to wait for what another sidecar still holds. Its
// drain is taken to be as long as this one's.
func (s *sidecar) restartWait() time.Duration { return time.Duration(s.cfg.Drain) + restartSlack }

func (s *sidecar) openStore(ctx context.Context) (keystore.Store, error) {
	began := time.Now()
	store, err := badger.Open(ctx, badger.Config{
		Dir: s.cfg.Data, Now: s.now, Logger: s.log.With("part", "badger"), LockWait: cmp.Or(s.lockWait, s.restartWait()), ReserveBytes: s.reserve(),
		Observe: badger.Observer{
			BatchCommitted: s.metrics.CommitObserved,
			CommitFailed:   func(err error) { s.log.Error("a batch could not be committed", "error", err) },
		},
	})
	if err != nil {
		return nil, fmt.Errorf("the journal of COUNTERFOIL_DATA: %w", err)
	}
	facts := store.Facts()
	s.log.Info("journal open", "data", s.cfg.Data, "epoch", uint64(facts.Epoch), "in_doubt_since_last_life", facts.Doubtful, "took", time.Since(began))
	return store, nil
}

// reserve is the configured reserve of free disk; the default one is left to the
// store, which takes less on a small file system.
func (s *sidecar) reserve() int64 {
	if s.cfg.Reserve == badger.ReserveDefault {
		return 0
	}
	return int64(s.cfg.Reserve)
}

// upstreams makes of each configured upstream what the journal needs. The error
// joins every mistake that the configuration does not show by itself.
func (s *sidecar) upstreams() ([]*journal.Upstream, error) {
	var list []*journal.Upstream
	var errs []error
	var err error
	if s.known == nil {
		if s.known, err = knownProviders(s.readFile); err != nil {
			return nil, err
		}
	}
	for _, u := range s.cfg.Upstreams {
		made, err := s.upstream(u)
		if err != nil {
			errs = append(errs, fmt.Errorf("upstreams.%s: %w", u.Name, err))
			continue
		}
		list = append(list, made)
	}
	return list, misconfigured(errors.Join(errs...))
}

func (s *sidecar) upstream(u *config.Upstream) (*journal.Upstream, error) {
	adapter, warnings, err := s.known.adapter(u)
	if err != nil {
		return nil, err
	}
	s.cfg.Warnings = append(s.cfg.Warnings, warnings...)
	target := upstream.Config{
		URL: u.URL, MaxConns: u.MaxConns, CAFile: u.CA, Proxy: s.proxyFunc(),
		Timeouts: upstream.Timeouts{Connect: u.Timeouts.Connect, FirstByte: u.Timeouts.FirstByte, Idle: u.Timeouts.Idle, Attempt: u.Timeouts.Attempt},
	}
	sender, err := upstream.New(target)
	if err != nil {
		return nil, err
	}
	s.closers = append(s.closers, sender.Close)
	finder, err := upstream.NewFinder(target)
	if err != nil {
		return nil, err
	}
	s.closers = append(s.closers, finder.Close)
	made := &journal.Upstream{
		Name: u.Name, Origin: strings.TrimSuffix(u.URL, "/"), Sender: sender, Finder: finder, Adapter: adapter,
		Rules: u.Compiled.Rules, Outcomes: u.Compiled.Outcomes, Secrets: u.Compiled.Secrets, Ignore: u.Compiled.Ignore,
		FirstByte: u.Timeouts.FirstByte, Bind: bindings[u.Bind], PauseOnUnknown: u.PauseOnUnknown == config.PauseRun, RecordReads: u.RecordReads,
		HoldDiverged: u.OnDivergence == config.HoldDivergence, Plans: planReadings[u.Plans], Canary: canaryOf(u, adapter),
	}
	adapter.Each(func(a *providers.Adapter) {
		if err == nil {
			made.Secrets, err = made.Secrets.With(a.Redact)
		}
	})
	if err != nil {
		return nil, err
	}
	if u.Auth.Header != "" {
		made.Auth = classify.Field{Name: u.Auth.Header, Value: string(u.Auth.Value)}
	}
	return made, nil
}

// bindings are the journal's words for the configuration's.
var bindings = map[config.Bind]journal.Binding{
	config.BindNothing: journal.BindNothing, config.BindAuthorization: journal.BindAuthorization, config.BindSubject: journal.BindSubject,
	config.BindShared: journal.BindShared,
}

// planReadings are the journal's words for the configuration's.
var planReadings = map[config.PlanReading]journal.PlanReading{
	config.EnforcePlans: journal.EnforcePlans, config.RecordPlans: journal.RecordPlans, config.IgnorePlans: journal.IgnorePlans,
}

// canaryOf is the read that shows whether lookups are permitted, relative to the
// upstream's URL: the configuration's, or the adapter's, whose paths begin at the
// host.
func canaryOf(u *config.Upstream, a *providers.Adapter) string {
	switch u.LookupCanary {
	case config.NoCanary:
		return ""
	case "":
		return a.Canary()
	}
	return string(u.LookupCanary)
}

func (s *sidecar) proxyFunc() func(*url.URL) (*url.URL, error) {
	p := httpproxy.Config{HTTPProxy: string(s.cfg.Proxy.HTTP), HTTPSProxy: string(s.cfg.Proxy.HTTPS), NoProxy: s.cfg.Proxy.No}
	return p.ProxyFunc()
}

// build wires journal, proxy and admin over an open store.
func (s *sidecar) build(store keystore.Store, upstreams []*journal.Upstream, l *listeners) (err error) {
	s.journal, err = journal.New(journal.Config{
		Store: store, Upstreams: upstreams, Now: s.now, Jitter: rand.Float64, Observer: admin.Observe(s.metrics, s.log),
	})
	if err != nil {
		return err
	}
	s.closers = append(s.closers, s.journal.Close)
	tokens := make(map[string]string, len(s.cfg.Tokens))
	for _, t := range s.cfg.Tokens {
		tokens[string(t.Token)] = t.Namespace
	}
	targets := make([]proxy.Upstream, 0, len(s.cfg.Upstreams))
	for _, u := range s.cfg.Upstreams {
		targets = append(targets, proxy.Upstream{Name: u.Name, URL: u.URL})
	}
	s.proxy, err = proxy.New(proxy.Config{
		Journal: s.journal, Records: store, Upstreams: targets, Tokens: tokens, Namespace: s.cfg.Namespace, Run: s.cfg.Run, Fence: s.fence,
		AllowedHosts: s.cfg.AllowedHosts, AdminURL: "http://" + l.admin.Addr().String(), Logger: s.log,
		Observe: func(a proxy.Aside) {
			s.metrics.RequestDone(admin.Request{Upstream: a.Upstream, Outcome: a.Outcome, Problem: a.Problem, Took: a.Took})
		},
	})
	if err != nil {
		return err
	}
	s.admin, err = admin.New(admin.Config{
		Listen: string(s.cfg.AdminListen), Token: string(s.cfg.AdminToken), AllowedHosts: s.cfg.AllowedHosts, Namespace: s.cfg.Namespace,
		Store: store, Calls: s.journal, Metrics: s.metrics, Logger: s.log,
	})
	return err
}

// serve runs everything until ctx ends or a listener fails, then ends it in
// order: no new calls, receipts of those in flight, listeners, store.
func (s *sidecar) serve(ctx context.Context, store keystore.Store, l *listeners) error {
	life, end := context.WithCancel(context.WithoutCancel(ctx))
	parts := newGroup(life)
	defer parts.wait()
	defer l.close() // one that was not served yet when all was told to end goes on otherwise
	defer end()

	parts.run("admin", func(context.Context) error { return s.admin.Serve(l.admin) })
	s.checkLookups(ctx)
	if err := s.journal.Scan(ctx); err != nil {
		return errors.Join(fmt.Errorf("going over the calls in doubt: %w", err), s.shutdown(end))
	}
	for _, d := range l.data {
		parts.run("data listener "+d.upstream, func(context.Context) error { return s.proxy.Serve(d.Listener, d.upstream) })
	}
	parts.run("recovery", func(ctx context.Context) error { s.journal.Recover(ctx); return nil })
	parts.run("retention", func(ctx context.Context) error { return s.sweep(ctx, store) })
	s.admin.Enter(admin.Serving)
	s.log.Info("serving", "version", versionText(), "config", s.cfg, "listen", l.data[0].Addr().String(), l.own(), "admin", l.admin.Addr().String()) //nolint:sloglint // own is a group
	if n := store.Stats().Unknown; n > 0 {
		s.log.Warn("calls wait for a person: run sidecar unknown", "unknown", n)
	}
	if s.announce != nil {
		fmt.Fprintln(s.announce, l.data[0].Addr())
	}
	return errors.Join(s.await(ctx, parts, store, l), s.shutdown(end))
}

// checkLookups finds out where lost calls could not be asked for, and says so.
func (s *sidecar) checkLookups(ctx context.Context) {
	for _, p := range s.journal.CheckLookups(ctx) {
		switch {
		case p.Refused != "":
			s.log.Warn("lookups are not permitted, so calls that are lost there will be unknown: give the upstream's credential leave to read", "upstream", p.Upstream, "because", p.Refused)
		case p.Unclear != "":
			s.log.Warn("it could not be found out whether lookups are permitted; they stay on", "upstream", p.Upstream, "because", p.Unclear)
		}
		s.metrics.LookupChecked(p.Upstream, p.Refused == "")
	}
}

// await returns when it is time to end: with nil if that was to be, with what
// failed otherwise.
func (s *sidecar) await(ctx context.Context, parts *group, store keystore.Store, l *listeners) error {
	if s.work == nil {
		select {
		case <-ctx.Done():
			return nil
		case err := <-parts.failed:
			return err
		}
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- s.work(ctx, store, l) }()
	select {
	case err := <-done:
		return err
	case err := <-parts.failed:
		cancel()
		return errors.Join(err, <-done)
	}
}

// shutdown drains within the configured bound. What is in flight then is cut
// off: it goes on record as lost, and is in doubt at the next start.
func (s *sidecar) shutdown(end context.CancelFunc) error {
	s.admin.Enter(admin.Draining)
	s.log.Info("draining", "at_most", time.Duration(s.cfg.Drain))
	bound, cancel := context.WithTimeout(context.Background(), time.Duration(s.cfg.Drain))
	defer cancel()
	drained := s.journal.Drain(bound)
	if drained != nil {
		s.log.Warn("the time to drain is over: calls in flight are cut off, and those that have no answer are in doubt", "after", time.Duration(s.cfg.Drain))
	}
	end()
	if err := s.proxy.Shutdown(bound); err != nil {
		s.log.Warn("clients did not take their last answers", "error", err)
	}
	grace, cancelGrace := context.WithTimeout(context.Background(), shutdownGrace)
	defer cancelGrace()
	if drained != nil {
		if err := s.journal.Drain(grace); err != nil {
			s.log.Warn("calls that were cut off are not on record: they are in doubt at the next start", "error", err)
		}
	}
	if err := s.admin.Shutdown(grace); err != nil {
		s.log.Warn("the admin listener is cut off", "error", err)
	}
	s.log.Info("ended")
	return nil
}

// sweep ends what retention says is over, a step at a time.
func (s *sidecar) sweep(ctx context.Context, store keystore.Store) error {
	retention := keystore.Retention{AfterEnd: s.cfg.Retention.AfterEnd, AfterChange: s.cfg.Retention.AfterChange, Tombstone: s.cfg.Retention.Tombstone}
	pause := min(sweepPause, max(time.Second, min(retention.AfterEnd, retention.AfterChange)/10))
	for {
		more, err := store.Sweep(ctx, retention)
		if err != nil && ctx.Err() == nil {
			s.log.Error("retention", "error", err)
		}
		rest := pause
		if more && err == nil {
			rest = 0
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(rest):
		}
	}
}

func (s *sidecar) closeAll() {
	for _, c := range s.closers {
		c()
	}
	s.closers = nil
}

// A group runs the parts of a process that go on side by side.
type group struct {
	ctx    context.Context
	done   chan struct{}
	count  int
	failed chan error
}

func newGroup(ctx context.Context) *group {
	return &group{ctx: ctx, done: make(chan struct{}), failed: make(chan error, 1)}
}

// run starts a part. The first one to fail is told in failed.
func (g *group) run(what string, part func(context.Context) error) {
	g.count++
	go func() {
		if err := part(g.ctx); err != nil {
			select {
			case g.failed <- fmt.Errorf("%s: %w", what, err):
			default:
			}
		}
		g.done <- struct{}{}
	}()
}

func (g *group) wait() {
	for range g.count {
		<-g.done
	}
}

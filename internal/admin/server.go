package admin

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	"golang.org/x/net/netutil"

	"counterfoil/internal/journal"
	"counterfoil/keystore"
)

// Bounds of the listener.
const (
	headerTimeout = 5 * time.Second
	readTimeout   = 30 * time.Second
	writeTimeout  = 60 * time.Second
	idleTimeout   = 2 * time.Minute
	// storeTimeout bounds what one request asks of the store, readyTimeout what
	// a question for readiness does.
	storeTimeout   = 10 * time.Second
	readyTimeout   = 2 * time.Second
	headerBytesMax = 64 << 10
	connectionsMax = 256
)

// A Config is what a Server is made of.
type Config struct {
	// Listen is the address that the listener is bound to, as configured. Its
	// host is allowed as Host. Beyond loopback it needs a Token.
	Listen string
	// Token is what everything but /live and /ready wants as Authorization:
	// Bearer. Empty means that nobody is asked.
	Token string
	// AllowedHosts are further names that Host and Origin may have.
	AllowedHosts []string
	// Namespace is meant where a request names none; empty means "default".
	Namespace string
	// Store, Calls and Metrics are needed.
	Store   keystore.Store
	Calls   Calls
	Metrics *Metrics
	// Logger gets a line for each decision; nil means none.
	Logger *slog.Logger
}

// Calls is what the listener wants of a [journal.Journal]; what is said there
// holds for it.
type Calls interface {
	Report(ctx context.Context, namespace, run string, p keystore.Page) (journal.Report, error)
	Approve(ctx context.Context, r *journal.Ruling) (*keystore.Record, error)
	Deny(ctx context.Context, r *journal.Ruling) (*keystore.Record, error)
}

// A Phase is where the sidecar's life stands.
type Phase uint32

const (
	// Starting: the calls in doubt have not been gone over yet.
	Starting Phase = iota
	// Serving: calls are taken.
	Serving
	// Draining: no new calls are taken.
	Draining
)

// A Server is the admin listener. It is safe for concurrent use.
type Server struct {
	store     keystore.Store
	calls     Calls
	metrics   *Metrics
	log       *slog.Logger
	namespace string
	guard     *guard
	phase     atomic.Uint32
	http      *http.Server
}

// New returns a server in phase Starting. It refuses an address beyond loopback
// without a token.
func New(cfg Config) (*Server, error) {
	if err := CheckBind(cfg.Listen, cfg.Token); err != nil {
		return nil, err
	}
	if cfg.Store == nil || cfg.Calls == nil || cfg.Metrics == nil {
		return nil, errors.New("admin listener: store, calls and metrics are needed")
	}
	s := &Server{
		store: cfg.Store, calls: cfg.Calls, metrics: cfg.Metrics, log: cfg.Logger,
		namespace: cfg.Namespace, guard: newGuard(&cfg),
	}
	if s.log == nil {
		s.log = slog.New(slog.DiscardHandler)
	}
	if s.namespace == "" {
		s.namespace = "default"
	}
	if err := cfg.Metrics.watch(cfg.Store); err != nil {
		return nil, fmt.Errorf("admin listener: %w", err)
	}
	s.http = &http.Server{
		Handler:           s.handler(),
		ReadHeaderTimeout: headerTimeout, ReadTimeout: readTimeout, WriteTimeout: writeTimeout, IdleTimeout: idleTimeout,
		MaxHeaderBytes: headerBytesMax,
		ErrorLog:       slog.NewLogLogger(s.log.Handler(), slog.LevelWarn),
	}
	return s, nil
}

// Enter says where the sidecar's life stands now.
func (s *Server) Enter(p Phase) { s.phase.Store(uint32(p)) }

// Serve answers on ln until Shutdown, and then returns nil. It closes ln.
func (s *Server) Serve(ln net.Listener) error {
	err := s.http.Serve(netutil.LimitListener(ln, connectionsMax))
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return fmt.Errorf("admin listener: %w", err)
}

// Shutdown takes no more requests and waits for those under way until ctx ends;
// then it cuts them off.
func (s *Server) Shutdown(ctx context.Context) error {
	if err := s.http.Shutdown(ctx); err != nil {
		return errors.Join(fmt.Errorf("admin listener: %w", err), s.http.Close())
	}
	return nil
}

// methods are what a path answers to.
type methods map[string]http.HandlerFunc

// handler is every path of the listener.
func (s *Server) handler() http.Handler {
	get := func(h http.HandlerFunc) methods { return methods{http.MethodGet: h} }
	mux := http.NewServeMux()
	for path, m := range map[string]methods{
		"/{$}":                              get(s.guarded(s.front)),
		"/live":                             get(s.live),
		"/ready":                            get(s.ready),
		"/metrics":                          get(s.guarded(s.metrics.serve)),
		"/api/v1/runs":                      get(s.api(s.runs)),
		"/api/v1/runs/{run}":                get(s.api(s.run)),
		"/api/v1/runs/{run}/recovery":       get(s.api(s.recovery)),
		"/api/v1/unknown":                   get(s.api(s.unknown)),
		"/api/v1/held":                      get(s.api(s.held)),
		"/api/v1/calls/{run}/{turn}/{call}": get(s.api(s.call)),
		"/api/v1/calls/resolve":             {http.MethodPost: s.api(s.resolve)},
		"/api/v1/calls/approve":             {http.MethodPost: s.api(s.approve)},
		"/api/v1/calls/deny":                {http.MethodPost: s.api(s.deny)},
	} {
		mux.HandleFunc(path, m.serve)
	}
	mux.HandleFunc("/", s.guarded(func(w http.ResponseWriter, r *http.Request) {
		writeRefusal(w, r, refuse(NotFound, "There is nothing at this path. The API is under /api/v1."))
	}))
	return mux
}

func (m methods) serve(w http.ResponseWriter, r *http.Request) {
	method := r.Method
	if method == http.MethodHead {
		method = http.MethodGet
	}
	if h := m[method]; h != nil {
		h(w, r)
		return
	}
	for allowed := range m {
		w.Header().Add("Allow", allowed)
	}
	writeRefusal(w, r, refuse(MethodNotAllowed, "Use the method that the header Allow names."))
}

func (s *Server) guarded(next http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if refusal := s.guard.admit(r); refusal != nil {
			writeRefusal(w, r, refusal)
			return
		}
		next(w, r)
	}
}

// api makes a handler of what answers with a value or an error.
func (s *Server) api(answer func(ctx context.Context, r *http.Request) (any, error)) http.HandlerFunc {
	return s.guarded(func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), storeTimeout)
		defer cancel()
		r.Body = http.MaxBytesReader(w, r.Body, orderBytesMax)
		v, err := answer(ctx, r)
		if err == nil {
			writeJSON(w, http.StatusOK, "application/json", v)
			return
		}
		refusal := refusalOf(err)
		if problems[refusal.problem].status >= http.StatusInternalServerError {
			s.log.ErrorContext(ctx, "an admin request failed", "path", r.URL.Path, "error", err)
		}
		writeRefusal(w, r, refusal)
	})
}

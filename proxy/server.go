package proxy

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"counterfoil/internal/journal"
	"counterfoil/keystore"

	"github.com/valyala/fasthttp"
	"golang.org/x/sync/semaphore"
)

// Bounds that are part of the protocol.
const (
	// BodyBytesMax is how long a request's body may be.
	BodyBytesMax = 10 << 20
	// HeadBytesMax is how long a request's head may be.
	HeadBytesMax = 64 << 10
	// bodyBytesSmall is how long a body may be without a share of the memory
	// for large ones.
	bodyBytesSmall = 256 << 10
)

// Records is what the agent API reads and writes: a [keystore.Store].
type Records interface {
	keystore.RunStore
	keystore.ItemStores

	Call(ctx context.Context, k keystore.Key) (*keystore.Record, error)
	ReadBody(ctx context.Context, b keystore.Body, fn func(piece []byte) error) error
	Run(ctx context.Context, namespace, run string) (keystore.RunSummary, error)
	Runs(ctx context.Context, namespace string, p keystore.Page) (keystore.List[keystore.RunSummary], error)
	Calls(ctx context.Context, namespace, run string, p keystore.Page) (keystore.List[*keystore.Record], error)
}

// An Upstream is a target that requests can name. The journal must know it too.
type Upstream struct {
	// Name is the first segment of its paths, and its label under .localhost.
	Name string
	// URL is its base, http or https. Links of the provider to it are rewritten
	// to lead through here.
	URL string
}

// A Config is what a Server is made of.
type Config struct {
	Journal *journal.Journal
	Records Records
	// Upstreams are the only targets that can be reached.
	Upstreams []Upstream
	// Tokens maps each token to its namespace. Empty means that none is asked
	// for, and Namespace is everybody's; "" there means "default".
	Tokens    map[string]string
	Namespace string
	// Run is the run of requests that name none; "" means that there is none.
	Run string
	// Fence is the fence of requests for Run that name none, 0 while there is
	// none; nil means that there never is. It is called for each such request.
	Fence func() keystore.Fence
	// AllowedHosts are names, besides loopback, *.localhost and the address
	// that the connection came to, that Host and Origin may have.
	AllowedHosts []string
	// AdminURL is where people act on what waits for them, such as
	// http://127.0.0.1:8101; "" means that problems do not say.
	AdminURL string
	Limits   Limits
	// Logger is told, at debug, what is refused here; nil means nobody.
	Logger *slog.Logger
	// Observe is told of each answer that the journal has no part in; nil means
	// nobody. It is called on the request's way, so it must be quick.
	Observe func(Aside)
}

// An Aside is an answer that the journal has no part in: a read passed through,
// or a refusal before any call was known.
type Aside struct {
	// Upstream is a configured name, empty where none was found.
	Upstream string
	Outcome  journal.Outcome
	// Problem is empty where the answer was a provider's.
	Problem journal.Problem
	Took    time.Duration
}

// Limits bound what clients can take. Zero means the default that each field
// names; negative ones are refused.
type Limits struct {
	// HeadTimeout bounds the reading of a request's head from its first byte,
	// and the wait for that byte on a new connection. Default 30 s.
	HeadTimeout time.Duration
	// BodyTimeout bounds the reading of a request's body. Default 2 min.
	BodyTimeout time.Duration
	// IdleTimeout is how long a connection may wait for its next request.
	// Default 3 min.
	IdleTimeout time.Duration
	// WriteTimeout bounds each write to a client: who takes nothing for that
	// long counts as gone. Default 30 s.
	WriteTimeout time.Duration
	// LargeBytes is how much memory bodies beyond 256 KiB may take together; at
	// least 10 MiB, and 64 MiB by default. LargeWait is how long a request waits
	// for its share; default 10 s.
	LargeBytes int64
	LargeWait  time.Duration
	// watchAfter is how long a read may take before anyone looks whether its
	// client is still there: 1 s but in tests.
	watchAfter time.Duration
}

func (l Limits) withDefaults() (Limits, error) {
	for _, f := range []struct {
		name  string
		value *time.Duration
		unset time.Duration
	}{
		{"head", &l.HeadTimeout, 30 * time.Second},
		{"body", &l.BodyTimeout, 2 * time.Minute},
		{"idle", &l.IdleTimeout, 3 * time.Minute},
		{"write", &l.WriteTimeout, 30 * time.Second},
		{"large", &l.LargeWait, 10 * time.Second},
		{"watch", &l.watchAfter, time.Second},
	} {
		if *f.value < 0 {
			return l, fmt.Errorf("%s time-out is negative: use a positive duration, or zero for %v", f.name, f.unset)
		}
		if *f.value == 0 {
			*f.value = f.unset
		}
	}
	if l.LargeBytes == 0 {
		l.LargeBytes = 64 << 20
	}
	if l.LargeBytes < BodyBytesMax {
		return l, fmt.Errorf("memory for large bodies is %d bytes: at least %d are needed for one", l.LargeBytes, BodyBytesMax)
	}
	return l, nil
}

// An origin is a configured upstream, taken apart.
type origin struct {
	name string
	// host is scheme, host and port, lower case, the scheme's port left out;
	// base is the path before every target, without a last slash.
	host, base string
}

// A Server is the data listener. It is safe for concurrent use.
type Server struct {
	journal   *journal.Journal
	records   Records
	origins   map[string]*origin
	names     string // theirs, as a refusal says them
	tokens    []token
	namespace string
	// manyNamespaces: the tokens are of more than one tenant.
	manyNamespaces bool
	run            string
	fence          func() keystore.Fence
	guard          guard
	adminURL       string
	limits         Limits
	large          *semaphore.Weighted
	log            *slog.Logger
	hush           hush
	observe        func(Aside)

	fast     fasthttp.Server
	conns    sync.Map // of *conn
	draining atomic.Bool
	// cut ends what still runs for clients when Shutdown's time is up.
	cut     context.CancelFunc
	scratch sync.Pool // of *[]byte, scratchBytes long
}

// A token is one that is configured, by its digest, so that comparing takes the
// same time whatever is presented.
type token struct {
	digest    [sha256.Size]byte
	namespace string
}

// New checks the configuration. The error joins every mistake.
func New(cfg Config) (*Server, error) {
	s := &Server{
		journal: cfg.Journal, records: cfg.Records, origins: make(map[string]*origin, len(cfg.Upstreams)),
		namespace: cfg.Namespace, run: cfg.Run, fence: cfg.Fence, guard: newGuard(cfg.AllowedHosts),
		adminURL: strings.TrimRight(cfg.AdminURL, "/"), log: cfg.Logger, observe: cfg.Observe,
	}
	var errs []error
	complain := func(what string, err error) {
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", what, err))
		}
	}
	if cfg.Journal == nil || cfg.Records == nil {
		errs = append(errs, errors.New("a data listener needs a journal and its records"))
	}
	if s.namespace == "" {
		s.namespace = "default"
	}
	complain("namespace", keystore.ValidatePart(s.namespace))
	switch {
	case s.run != "":
		complain("run", keystore.ValidatePart(s.run))
	case s.fence != nil:
		errs = append(errs, errors.New("a fence is of a run, and none is configured"))
	}
	var err error
	s.limits, err = cfg.Limits.withDefaults()
	complain("limits", err)
	for _, u := range cfg.Upstreams {
		complain("upstream "+u.Name, s.addUpstream(u))
	}
	names := make([]string, 0, len(cfg.Upstreams))
	for _, u := range cfg.Upstreams {
		names = append(names, u.Name)
	}
	s.names = listed(names)
	for t, namespace := range cfg.Tokens {
		if t == "" {
			errs = append(errs, errors.New("tokens: one is empty"))
		}
		complain("a token's namespace", keystore.ValidatePart(namespace))
		s.manyNamespaces = s.manyNamespaces || len(s.tokens) > 0 && s.tokens[0].namespace != namespace
		s.tokens = append(s.tokens, token{sha256.Sum256([]byte(t)), namespace})
	}
	if len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	if s.observe == nil {
		s.observe = func(Aside) {}
	}
	if s.log == nil {
		s.log = slog.New(slog.DiscardHandler)
	}
	s.large = semaphore.NewWeighted(s.limits.LargeBytes)
	s.scratch.New = func() any { b := make([]byte, scratchBytes); return &b }
	s.prepare()
	return s, nil
}

func (s *Server) addUpstream(u Upstream) error {
	if !isUpstreamName(u.Name) {
		return errors.New("a name is made of letters, digits, '-', '_' and '.', and does not begin with '-', '@' or '.'")
	}
	name := strings.ToLower(u.Name)
	if _, taken := s.origins[name]; taken {
		return errors.New("the name is used twice")
	}
	parsed, err := url.Parse(u.URL)
	if err != nil || parsed.Host == "" || parsed.Scheme != "http" && parsed.Scheme != "https" {
		return errors.New("its URL is not http or https with a host")
	}
	s.origins[name] = &origin{
		name: u.Name, host: originOf(parsed),
		base: strings.TrimSuffix(parsed.EscapedPath(), "/"),
	}
	return nil
}

func isUpstreamName(name string) bool {
	for i := range len(name) {
		c := name[i]
		if !(c >= '0' && c <= '9' || c|0x20 >= 'a' && c|0x20 <= 'z' || i > 0 && strings.IndexByte("-_.", c) >= 0) {
			return false
		}
	}
	return name != ""
}

// upstream returns the configured upstream of that name; case does not count,
// since it does not in a host.
func (s *Server) upstream(name string) *origin {
	if o := s.origins[name]; o != nil {
		return o
	}
	return s.origins[strings.ToLower(name)]
}

// prepare sets fasthttp up to read requests and leave everything else alone.
func (s *Server) prepare() {
	ctx, cut := context.WithCancel(context.Background())
	s.cut = cut
	s.fast = fasthttp.Server{
		Handler:      func(rc *fasthttp.RequestCtx) { s.serve(ctx, rc) },
		ErrorHandler: s.misread,
		HeaderReceived: func(h *fasthttp.RequestHeader) fasthttp.RequestConfig {
			if h.ContentLength() > BodyBytesMax {
				h.SetContentLength(0) // or fasthttp waits for its beginning before it asks us
			}
			return fasthttp.RequestConfig{ReadTimeout: s.limits.BodyTimeout}
		},
		ExpectHandler:                 s.expect,
		ReadTimeout:                   s.limits.HeadTimeout,
		IdleTimeout:                   s.limits.IdleTimeout,
		ReadBufferSize:                HeadBytesMax,
		WriteBufferSize:               512, // for what fasthttp writes, which goes nowhere
		MaxRequestBodySize:            BodyBytesMax,
		StreamRequestBody:             true,
		DisablePreParseMultipartForm:  true,
		DisableHeaderNamesNormalizing: true,
		NoDefaultServerHeader:         true,
		NoDefaultDate:                 true,
		NoDefaultContentType:          true,
		SecureErrorLogMessage:         true,
		Logger:                        silence{},
	}
}

// silence is fasthttp's logger: its messages may quote requests.
type silence struct{}

func (silence) Printf(string, ...any) {}

// Serve answers requests that come in at ln until Shutdown. upstream names the
// one whose own listener it is, "" means the common one. It may be called for
// several listeners at once, and owns ln.
func (s *Server) Serve(ln net.Listener, upstream string) error {
	if upstream != "" && s.upstream(upstream) == nil {
		return errors.Join(fmt.Errorf("listener of upstream %q: no upstream has that name", upstream), ln.Close())
	}
	err := s.fast.Serve(&listener{Listener: ln, server: s, upstream: upstream})
	if s.draining.Load() && (err == nil || errors.Is(err, net.ErrClosed) || errors.Is(err, io.EOF)) {
		return nil
	}
	return err
}

// partingMax is how long clients may take the answers that say that their
// requests were cut off.
const partingMax = time.Second

// Shutdown takes no new connections and waits for the requests under way. When
// ctx ends it cuts off those that are left: an attempt on the wire is lost, and
// its call in doubt, which the client is told. One second later it hangs up.
func (s *Server) Shutdown(ctx context.Context) error {
	s.draining.Store(true)
	// fasthttp would wait five seconds for what a new connection may say.
	s.hangUp(func(c *conn) bool { return !c.begun.Load() })
	parting, hangUp := context.WithCancel(context.WithoutCancel(ctx))
	defer hangUp()
	stop := context.AfterFunc(ctx, func() {
		s.cut()
		time.AfterFunc(partingMax, hangUp)
	})
	defer stop()
	err := s.fast.ShutdownWithContext(parting)
	s.cut()
	if err == nil {
		return nil
	}
	s.hangUp(func(*conn) bool { return true })
	return fmt.Errorf("waiting for requests under way: %w", err)
}

// hangUp closes the connections that are chosen.
func (s *Server) hangUp(chosen func(*conn) bool) {
	s.conns.Range(func(c, _ any) bool {
		if c := c.(*conn); chosen(c) { //nolint:forcetypeassert // it holds no other
			_ = c.Conn.Close()
		}
		return true
	})
}

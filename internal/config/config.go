package config

import (
	"fmt"
	"log/slog"
	"strings"
	"time"

	"counterfoil/classify"

	"go.yaml.in/yaml/v3"
)

// A Config is every setting, checked. Each field has a variable, a key of that
// name in the file, or both; the variable wins. The tags default and doc are
// what docs/configuration.md is printed from.
type Config struct {
	File         string    `env:"COUNTERFOIL_CONFIG" doc:"Path of the YAML file. No file is looked for without it."`
	Upstreams    Upstreams `env:"COUNTERFOIL_UPSTREAMS" yaml:"upstreams" doc:"The targets, as name=url, separated by commas; name=url@port gives one a listener of its own on that port, at the host of LISTEN. An upstream that the file has too keeps everything from there but its URL and listener. In the file: see below."`
	Listen       Address   `env:"COUNTERFOIL_LISTEN" yaml:"listen" default:"127.0.0.1:8100" doc:"Address of the data listener, ip:port; port 0 takes a free one."`
	AdminListen  Address   `env:"COUNTERFOIL_ADMIN_LISTEN" yaml:"admin_listen" default:"127.0.0.1:8101" doc:"Address of the admin listener. One that is not loopback needs ADMIN_TOKEN."`
	AllowedHosts Hosts     `env:"COUNTERFOIL_ALLOWED_HOSTS" yaml:"allowed_hosts" doc:"Host names that requests may name besides loopback, *.localhost and the bind address: names or IP addresses without a port, separated by commas (in the file also a list)."`
	Run          string    `env:"COUNTERFOIL_RUN" yaml:"run" doc:"The run of requests that name none: 1 to 256 bytes of UTF-8."`
	Mode         Mode      `env:"COUNTERFOIL_MODE" yaml:"mode" default:"enforce" doc:"enforce. (shadow is not supported yet.)"`
	Data         string    `env:"COUNTERFOIL_DATA" yaml:"data" doc:"Directory of the journal. By default counterfoil in $XDG_STATE_HOME, or ~/.local/state/counterfoil: the same wherever the program is started, since a journal that is not found again protects nothing. Two sidecars need two directories, and a new one has to be empty but for hidden files."`
	Store        Store     `env:"COUNTERFOIL_STORE" yaml:"store" default:"badger" doc:"badger. (A postgres:// URL is not supported yet.)"`
	Namespace    string    `env:"COUNTERFOIL_NAMESPACE" yaml:"namespace" default:"default" doc:"Namespace of calls where no tokens are configured: 1 to 256 bytes of UTF-8 without spaces, = and comma."`
	Tokens       Tokens    `env:"COUNTERFOIL_TOKENS" yaml:"tokens" doc:"Tokens of the data listener and the namespaces they open, as token=namespace, separated by commas. It is warned of tokens shorter than 16 characters. With none, requests need no token."`
	AdminToken   Secret    `env:"COUNTERFOIL_ADMIN_TOKEN" yaml:"admin_token" doc:"Bearer token of the admin listener."`
	Encryption   Secret    `env:"COUNTERFOIL_ENCRYPTION_KEY" yaml:"encryption_key" doc:"32 bytes in base64. Not supported yet: refused when set, since nothing would be sealed."`
	Retention    Retention `env:"COUNTERFOIL_RETENTION" yaml:"retention" default:"after_end=30d,after_change=90d,tombstone=400d" doc:"How long a run is kept after its end, after its last change at the latest, and its tombstones. What is left out keeps its default; one duration alone is after_end. In the file also a mapping of the three."`
	Reserve      Size      `env:"COUNTERFOIL_RESERVE" yaml:"reserve" default:"256MiB" doc:"Free disk below which new effects are refused, 1MiB to 1TiB."`
	Drain        Drain     `env:"COUNTERFOIL_DRAIN" yaml:"drain" default:"30s" doc:"How long calls in flight may take to end once the sidecar is told to stop, 0s to 1h; then they are cut off, and in doubt where they have no answer."`
	LogLevel     LogLevel  `env:"COUNTERFOIL_LOG_LEVEL" yaml:"log_level" default:"info" doc:"debug, info, warn or error."`
	LogFormat    LogFormat `env:"COUNTERFOIL_LOG_FORMAT" yaml:"log_format" default:"text" doc:"text or json."`
	Proxy        ProxySetting

	// Warnings are what is allowed and yet unwise, each with its place. Whoever
	// loads the config logs them.
	Warnings []string
}

// A ProxySetting is the proxy towards the upstreams, in the form in which
// golang.org/x/net/http/httpproxy takes it.
type ProxySetting struct {
	HTTPS Secret `env:"HTTPS_PROXY" doc:"Proxy for https upstreams, an http or https URL. Lower case works as well; upper case wins."`
	HTTP  Secret `env:"HTTP_PROXY" doc:"Proxy for http upstreams."`
	No    string `env:"NO_PROXY" doc:"Hosts that no proxy is used for, separated by commas. Loopback never uses one."`
}

// An Upstream is one target and what is known about it.
type Upstream struct {
	Name             string
	URL              string            `yaml:"url" doc:"Base URL, http or https, with an optional path. Without user, query and fragment."`
	Listen           Address           `yaml:"listen" doc:"A listener of its own: ip:port, or a port alone at the host of LISTEN. Paths there have no upstream in front."`
	Adapter          AdapterName       `yaml:"adapter" doc:"Which adapter says what the provider does: a built-in one by name (docs/providers), a file in the adapter language by its path (./mine.yaml, from the working directory), or none. The URL's host picks a built-in one if left out."`
	Auth             Auth              `yaml:"auth"`
	Bind             Bind              `yaml:"bind" doc:"What a replay is bound to: authorization (the same credential as the first request) or subject (who the credential speaks for). Nothing by default. A repeat after doubt always wants the same credential or subject, unless shared says that every credential used here speaks for one account."`
	Redact           Redact            `yaml:"redact"`
	Fingerprint      FingerprintFields `yaml:"fingerprint"`
	Outcomes         map[int]string    `yaml:"outcomes" doc:"What a status means here: applied, rejected, not_applied or ambiguous, as in {500: rejected}. The defaults are in guarantees.md."`
	WebhookSecret    Later             `yaml:"webhook_secret"`
	PauseOnUnknown   PauseScope        `yaml:"pause_on_unknown" default:"run" doc:"What an unknown call holds up: run (the other effects of its run too) or call (itself alone)."`
	LookupCanary     Canary            `yaml:"lookup_canary" doc:"A read that is sent once at start with auth, as in GET /v1/charges?limit=1: where it is not permitted, nothing is asked for lost calls, and that is said loudly. The adapter's own if left out; off for none."`
	TrustAnnotations bool              `yaml:"trust_annotations" default:"false" doc:"Take an MCP server at its word where it calls a tool read-only or idempotent."`
	Plans            PlanReading       `yaml:"plans" default:"enforce" doc:"What becomes of the tool calls in a model's answer, for a turn that was named: enforce (they are the turn's plan, and its effects have to be among them), record (they are shown, and nothing is refused) or off."`
	OnDivergence     Divergence        `yaml:"on_divergence" default:"report" doc:"What happens to a new effect of an agent without call ids that has not repeated all of its earlier ones: report (it is sent, and marked) or hold (a person looks first)."`
	RecordReads      bool              `yaml:"record_reads" default:"false" doc:"Journal reads too, so that a resumed run sees what it saw."`
	Timeouts         Timeouts          `yaml:"timeouts"`
	MaxConns         int               `yaml:"max_conns" default:"512" doc:"Connections open at once, idle ones included, 1 to 65535."`
	CA               string            `yaml:"ca" doc:"PEM file of certificates that are trusted besides the system's."`
	Rules            []Rule            `yaml:"rules"`
	Operations       Operations        `yaml:"operations" doc:"What the provider can do, in the adapter language: see docs/adapters.md."`

	// AdapterAt is where Adapter was written or could be, for the complaints of
	// who reads it. Its Text is empty.
	AdapterAt Complaint
	// Compiled is what the fields above come to.
	Compiled Compiled
}

// Auth is a credential of the sidecar's own for requests that bear none.
type Auth struct {
	Header string `yaml:"header" doc:"Header to add where a request has none of that name."`
	Value  Secret `yaml:"value" doc:"Its value. ${env:NAME} and ${file:/path} are replaced."`
}

// Redact names credentials besides the usual ones.
type Redact struct {
	Query   []string `yaml:"query" doc:"Query parameters whose values are secret, besides key, token, sig and the like."`
	Headers []string `yaml:"headers" doc:"Headers that are credentials, besides Authorization, Cookie, Proxy-Authorization and X-Api-Key."`
	Body    []string `yaml:"body" doc:"Strings in the body: JSON pointers such as /secret, and names of form fields."`
	Path    []string `yaml:"path" doc:"Patterns of paths that hold a secret, {} in its place, as in /bot{}/**."`
}

// FingerprintFields says what does not count when two requests are compared.
type FingerprintFields struct {
	Ignore []string `yaml:"ignore" doc:"JSON fields that do not count: a member's name, or a JSON pointer such as /meta/trace."`
}

// Timeouts bound the parts of an attempt.
type Timeouts struct {
	Connect   time.Duration `yaml:"connect" default:"5s" doc:"Name lookup, dialling and TLS together."`
	FirstByte time.Duration `yaml:"first_byte" default:"2m" doc:"From the request's last byte to the answer's head."`
	Idle      time.Duration `yaml:"idle" default:"5m" doc:"Each wait for progress on a body."`
	Attempt   time.Duration `yaml:"attempt" default:"1h" doc:"The whole attempt, its answer's body included."`
}

// A Rule says what class some requests are of, and whether a person has to
// approve them. One of the two is enough.
type Rule struct {
	When     When     `yaml:"when"`
	Class    string   `yaml:"class" doc:"read, decision, idempotent or effect. For keyed, write an operation with a guarantee."`
	Approval Approval `yaml:"approval" doc:"required: a person has to approve each of these effects before it is sent (sidecar held, approve and deny)."`
}

// When says which requests a rule is about.
type When struct {
	Method []string `yaml:"method" doc:"Methods, in upper case; any if left out."`
	Path   string   `yaml:"path" doc:"Path pattern, relative to the upstream: * within a segment, ** for any number of segments; any if left out. The first rule that matches decides."`
}

// Compiled is an upstream's settings as package classify takes them.
type Compiled struct {
	Rules    classify.Rules
	Outcomes classify.Outcomes
	Secrets  *classify.Secrets
	Ignore   classify.Fields
}

// Operations are an upstream's own adapter, not yet parsed. Node is nil where
// none is given. Source and Path are where it stands, for the complaints of who
// parses it.
type Operations struct {
	Node   *yaml.Node
	Source string
	Path   string
}

// Later marks a field that is known and does nothing yet. It is refused, since
// whoever sets it counts on it.
type Later struct{}

// Upstreams are in the order of the file, then of the variable. Names are
// unique.
type Upstreams []*Upstream

func (us Upstreams) find(name string) *Upstream {
	for _, u := range us {
		if u.Name == name {
			return u
		}
	}
	return nil
}

// LogValue shows what a log should: no secrets, not all details.
func (c *Config) LogValue() slog.Value {
	names := make([]string, len(c.Upstreams))
	for i, u := range c.Upstreams {
		names[i] = u.Name
	}
	return slog.GroupValue(
		slog.String("file", c.File),
		slog.String("upstreams", strings.Join(names, ",")),
		slog.String("listen", string(c.Listen)),
		slog.String("admin_listen", string(c.AdminListen)),
		slog.String("mode", string(c.Mode)),
		slog.String("store", string(c.Store)),
		slog.String("data", c.Data),
		slog.Int("tokens", len(c.Tokens)),
	)
}

func (c *Config) String() string { return fmt.Sprint(c.LogValue()) }

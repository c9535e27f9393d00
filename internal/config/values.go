package config

import (
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Mode says what is done with what the journal knows.
type Mode string

// Enforce answers from receipts and refuses what would be done twice.
const Enforce Mode = "enforce"

// UnmarshalText reads the mode's name.
func (m *Mode) UnmarshalText(text []byte) error {
	switch string(text) {
	case string(Enforce):
		*m = Enforce
		return nil
	case "shadow":
		return errors.New("shadow is not supported yet: use enforce")
	}
	return fmt.Errorf("%q is no mode: use enforce", text)
}

// Store is where the journal is kept.
type Store string

// Badger is the embedded store.
const Badger Store = "badger"

// UnmarshalText reads badger. What else stands there is not repeated: a
// database's URL holds a password.
func (s *Store) UnmarshalText(text []byte) error {
	switch {
	case string(text) == string(Badger):
		*s = Badger
		return nil
	case strings.HasPrefix(string(text), "postgres://"), strings.HasPrefix(string(text), "postgresql://"):
		return errors.New("PostgreSQL is not supported yet: use badger")
	}
	return errors.New("no known store: use badger")
}

// Bind says what a replay is bound to.
type Bind string

// The bindings; none by default.
const (
	BindNothing       Bind = ""
	BindAuthorization Bind = "authorization"
	BindSubject       Bind = "subject"
	BindShared        Bind = "shared"
)

// UnmarshalText reads the binding's name.
func (b *Bind) UnmarshalText(text []byte) error {
	*b = Bind(text)
	return oneOf(string(text), string(BindAuthorization), string(BindSubject), string(BindShared))
}

// PauseScope says what an unknown call holds up.
type PauseScope string

// The scopes.
const (
	PauseRun  PauseScope = "run"
	PauseCall PauseScope = "call"
)

// UnmarshalText reads the scope's name.
func (s *PauseScope) UnmarshalText(text []byte) error {
	*s = PauseScope(text)
	return oneOf(string(text), string(PauseRun), string(PauseCall))
}

// Divergence says what happens to a call that shows that an agent does not
// repeat its earlier steps.
type Divergence string

// The ways.
const (
	ReportDivergence Divergence = "report"
	HoldDivergence   Divergence = "hold"
)

// UnmarshalText reads the way's name.
func (d *Divergence) UnmarshalText(text []byte) error {
	*d = Divergence(text)
	return oneOf(string(text), string(ReportDivergence), string(HoldDivergence))
}

// AdapterName names what is known about a provider: a built-in adapter, or a
// file of the adapter language. Empty leaves it to the URL's host.
type AdapterName string

// NoAdapter is the word for none.
const NoAdapter AdapterName = "none"

// IsFile reports whether the name is the path of a file.
func (a AdapterName) IsFile() bool {
	return strings.ContainsAny(string(a), `/\`) || strings.HasSuffix(string(a), ".yaml") || strings.HasSuffix(string(a), ".yml")
}

var adapterName = regexp.MustCompile(`^[a-z0-9][a-z0-9-]{0,62}$`)

// UnmarshalText reads a name or a path.
func (a *AdapterName) UnmarshalText(text []byte) error {
	*a = AdapterName(text)
	if !a.IsFile() && !adapterName.Match(text) {
		return errors.New("no name of an adapter: write one such as stripe, the path of a file such as ./mine.yaml, or none")
	}
	return nil
}

// Canary is a read that shows whether lookups are permitted. Empty leaves it to
// the adapter.
type Canary string

// NoCanary is the word for none.
const NoCanary Canary = "off"

// UnmarshalText reads GET and a target, or off.
func (c *Canary) UnmarshalText(text []byte) error {
	*c = Canary(text)
	target, isGet := strings.CutPrefix(string(text), "GET /")
	if *c != NoCanary && (!isGet || strings.ContainsAny(target, " #{}") || strings.ContainsFunc(target, isControl)) {
		return errors.New(`write GET and a target relative to the url, as in "GET /v1/charges?limit=1", or off`)
	}
	return nil
}

// PlanReading says what becomes of the tool calls in a model's answer.
type PlanReading string

// The ways.
const (
	EnforcePlans PlanReading = "enforce"
	RecordPlans  PlanReading = "record"
	IgnorePlans  PlanReading = "off"
)

// UnmarshalText reads the way's name.
func (p *PlanReading) UnmarshalText(text []byte) error {
	*p = PlanReading(text)
	return oneOf(string(text), string(EnforcePlans), string(RecordPlans), string(IgnorePlans))
}

// Approval says whether a person has to agree first.
type Approval string

// ApprovalRequired holds a call until it is approved; the zero Approval asks
// nobody.
const ApprovalRequired Approval = "required"

// UnmarshalText reads required.
func (a *Approval) UnmarshalText(text []byte) error {
	*a = Approval(text)
	return oneOf(string(text), string(ApprovalRequired))
}

// LogFormat is how log lines are written.
type LogFormat string

// The formats.
const (
	LogText LogFormat = "text"
	LogJSON LogFormat = "json"
)

// UnmarshalText reads the format's name.
func (f *LogFormat) UnmarshalText(text []byte) error {
	*f = LogFormat(text)
	return oneOf(string(text), string(LogText), string(LogJSON))
}

// LogLevel is the least level that is logged.
type LogLevel slog.Level

// UnmarshalText reads the level's name, in lower or upper case.
func (l *LogLevel) UnmarshalText(text []byte) error {
	if err := oneOf(strings.ToLower(string(text)), "debug", "info", "warn", "error"); err != nil {
		return err
	}
	return (*slog.Level)(l).UnmarshalText(text)
}

func oneOf(text string, names ...string) error {
	if slices.Contains(names, text) {
		return nil
	}
	return fmt.Errorf("%q is none of %s", text, strings.Join(names, ", "))
}

// Size is a number of bytes.
type Size int64

// The bounds of a size.
const (
	sizeMin Size = 1 << 20
	sizeMax Size = 1 << 40
)

var sizeText = regexp.MustCompile(`^(\d{1,13})(B|KiB|MiB|GiB|TiB)?$`)

// UnmarshalText reads 256MiB and the like, 1MiB to 1TiB; a bare number is bytes.
func (s *Size) UnmarshalText(text []byte) error {
	m := sizeText.FindStringSubmatch(string(text))
	if m == nil {
		return fmt.Errorf("%q is no size: write a whole number and one of B, KiB, MiB, GiB, TiB, as in 256MiB", text)
	}
	n, _ := strconv.ParseInt(m[1], 10, 64)
	unit := map[string]Size{"": 1, "B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40}[m[2]]
	*s = min(Size(n), sizeMax+1) * unit
	if Size(n) > sizeMax/unit || *s < sizeMin {
		return fmt.Errorf("%q is out of range: from 1MiB to 1TiB is possible", text)
	}
	return nil
}

// Hosts are names that requests may give as Host, in lower case without a port.
type Hosts []string

// UnmarshalText reads names separated by commas.
func (h *Hosts) UnmarshalText(text []byte) error { return h.set(strings.Split(string(text), ",")) }

var hostName = regexp.MustCompile(`^[a-z0-9_]([a-z0-9_-]*[a-z0-9_])?(\.[a-z0-9_]([a-z0-9_-]*[a-z0-9_])?)*$`)

func (h *Hosts) set(names []string) error {
	var errs []error
	*h = nil
	for _, name := range names {
		host := strings.ToLower(strings.TrimSpace(name))
		bare := strings.TrimSuffix(strings.TrimPrefix(host, "["), "]")
		_, err := netip.ParseAddr(bare)
		if err != nil && (len(host) > 253 || !hostName.MatchString(host)) {
			errs = append(errs, fmt.Errorf("%q is no host: write a name or an IP address, without scheme, port and wildcard", name))
			continue
		}
		*h = append(*h, bare)
	}
	return errors.Join(errs...)
}

// A Token opens a namespace on the data listener.
type Token struct {
	Token     Secret
	Namespace string
}

// Tokens are unique.
type Tokens []Token

// UnmarshalText reads token=namespace,…. A namespace holds no "=", so the last
// one of an entry divides it.
func (ts *Tokens) UnmarshalText(text []byte) error {
	var errs []error
	*ts = nil
	for i, entry := range strings.Split(string(text), ",") {
		t, err := parseToken(strings.TrimSpace(entry))
		for _, other := range *ts {
			if err == nil && other.Token == t.Token {
				err = errors.New("the same token as an earlier one: each token opens one namespace")
			}
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("entry %d: %w", i+1, err))
			continue
		}
		*ts = append(*ts, t)
	}
	return errors.Join(errs...)
}

func parseToken(entry string) (Token, error) {
	i := strings.LastIndexByte(entry, '=')
	if i < 0 {
		return Token{}, errors.New("write token=namespace")
	}
	t := Token{Token: Secret(entry[:i]), Namespace: entry[i+1:]}
	if err := checkToken(t.Token); err != nil {
		return Token{}, err
	}
	if err := checkNamespace(t.Namespace); err != nil {
		return Token{}, fmt.Errorf("behind the last =: %w", err)
	}
	return t, nil
}

// checkNamespace allows what a part of a key may be, without what would be
// misread in a list.
func checkNamespace(name string) error {
	isBad := func(r rune) bool { return unicode.IsSpace(r) || !unicode.IsPrint(r) || r == '=' || r == ',' }
	if name == "" || len(name) > partBytesMax || !utf8.ValidString(name) || strings.ContainsFunc(name, isBad) {
		return fmt.Errorf("no name for a namespace: use 1 to %d bytes of UTF-8 without spaces, = and comma", partBytesMax)
	}
	return nil
}

// partBytesMax is how many bytes each part of a key may have.
const partBytesMax = 256

// checkToken asks for what can stand in a header.
func checkToken(token Secret) error {
	for i := range len(token) {
		if c := token[i]; c <= ' ' || c >= 0x7f {
			return errors.New("the token holds a character that cannot stand in a header: use printable ASCII without spaces")
		}
	}
	if token == "" {
		return errors.New("the token is empty")
	}
	return nil
}

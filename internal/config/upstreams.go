package config

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"reflect"
	"regexp"
	"strings"
	"time"

	"counterfoil/classify"
)

var upstreamName = regexp.MustCompile(`^[a-z0-9][a-z0-9._-]{0,62}$`)

func checkUpstreamName(name string) error {
	if !upstreamName.MatchString(name) {
		return errors.New("no name for an upstream: use 1 to 63 of a-z, 0-9 and . _ -, beginning with a letter or digit")
	}
	return nil
}

// listenSuffix is the @port behind a URL in the variable. Nothing else behind
// an @ is one: it would be read where a user's name and password stand.
var listenSuffix = regexp.MustCompile(`^(.*)@(\d{1,5})$`)

// mergeUpstreams reads name=url,name=url@port over what the file says.
func (l *loader) mergeUpstreams(text string) Upstreams {
	all := l.cfg.Upstreams
	seen := map[string]bool{}
	for i, entry := range strings.Split(text, ",") {
		name, target, ok := strings.Cut(strings.TrimSpace(entry), "=")
		p := place{source: "COUNTERFOIL_UPSTREAMS", path: name}
		numbered := place{source: p.source, path: fmt.Sprintf("entry %d", i+1)}
		switch {
		case !ok:
			l.complain(numbered, "no = in it: write name=url, separated by commas; a URL that holds a comma can stand in the file")
			continue
		case !upstreamName.MatchString(name):
			l.complainOf(numbered, checkUpstreamName(name))
			continue
		case seen[name]:
			l.complain(p, "given twice: keep one")
			continue
		case len(all) >= upstreamsMax:
			l.complain(p, "too many upstreams; at most %d are allowed", upstreamsMax)
			return all
		}
		seen[name] = true
		all = l.mergeUpstream(all, name, target)
	}
	return all
}

func (l *loader) mergeUpstream(all Upstreams, name, target string) Upstreams {
	u := all.find(name)
	path := "upstreams." + name
	p := place{source: "COUNTERFOIL_UPSTREAMS", path: name}
	if u == nil {
		u = &Upstream{Name: name}
		l.defaults(reflect.ValueOf(u).Elem())
		l.places[path] = p
		all = append(all, u)
	}
	u.URL = target
	l.places[path+".url"] = p
	if m := listenSuffix.FindStringSubmatch(target); m != nil {
		u.URL = m[1]
		l.complainOf(p, u.Listen.UnmarshalText([]byte(m[2])))
		l.places[path+".listen"] = p
	}
	return all
}

// checkUpstream checks what concerns one upstream alone, and compiles it.
func (l *loader) checkUpstream(u *Upstream) {
	path := "upstreams." + u.Name
	if u.URL == "" {
		l.follow(l.at(path+".url"), "missing: give the upstream's base URL, as in https://api.example.com/v1")
	} else {
		l.complainOf(l.at(path+".url"), checkURL(u.URL))
	}
	l.checkTimeouts(path+".timeouts", u.Timeouts)
	if u.MaxConns < 1 || u.MaxConns > 65535 {
		l.follow(l.at(path+".max_conns"), "%d is out of range: from 1 to 65535 is possible", u.MaxConns)
	}
	l.checkAuth(path+".auth", u.Auth)
	l.compile(path, u)
}

// checkURL never repeats the URL, which may hold a password.
func checkURL(text string) error {
	u, err := url.Parse(text)
	switch {
	case !strings.Contains(text, "://"):
		return errors.New("the scheme is missing: put http:// or https:// in front, as in http://127.0.0.1:9090")
	case err != nil:
		return errors.New("the URL cannot be read: write it like https://api.example.com/v1; a user or password has no place in it")
	case u.Scheme != "http" && u.Scheme != "https":
		return errors.New("the URL begins with neither http:// nor https://: no other scheme is supported")
	case u.User != nil:
		return errors.New("the URL holds a user or password: use auth instead (a listener of its own is @ and a port, as in https://api.example.com@8111)")
	case u.Hostname() == "":
		return errors.New("the URL has no host: write it like https://api.example.com/v1")
	case u.RawQuery != "" || u.ForceQuery || strings.Contains(text, "#"):
		return errors.New("the URL holds a query or fragment: leave it out")
	}
	return checkBasePath(u.EscapedPath())
}

func checkBasePath(path string) error {
	if path == "" || path == "/" {
		return nil
	}
	if _, err := classify.CompileMatch(nil, strings.TrimSuffix(path, "/")); err != nil {
		return fmt.Errorf("the URL's path: %w", err)
	}
	return nil
}

// attemptMax bounds all time-outs.
const attemptMax = 24 * time.Hour

func (l *loader) checkTimeouts(path string, t Timeouts) {
	for _, f := range []struct {
		name  string
		value time.Duration
	}{{"connect", t.Connect}, {"first_byte", t.FirstByte}, {"idle", t.Idle}, {"attempt", t.Attempt}} {
		if err := checkRange(f.value, time.Millisecond, attemptMax); err != nil {
			l.follow(l.at(path+"."+f.name), "%s", err)
		}
	}
}

var headerName = regexp.MustCompile("^[!#$%&'*+.^_`|~0-9A-Za-z-]{1,256}$")

func (l *loader) checkAuth(path string, a Auth) {
	switch {
	case a == (Auth{}):
		return
	case a.Header == "":
		l.follow(l.at(path), "header is missing: name the one that bears the credential, as in Authorization")
	case !headerName.MatchString(a.Header):
		l.complain(l.at(path+".header"), "no name of a header: write one like Authorization")
	case isOurs(a.Header):
		l.complain(l.at(path+".header"), "%s is not the upstream's to bear: name the header that the provider reads", a.Header)
	}
	switch {
	case a.Value == "":
		l.follow(l.at(path), `value is missing: give it, as in "Bearer ${env:NAME}"`)
	case strings.ContainsFunc(string(a.Value), isControl) || strings.TrimSpace(string(a.Value)) != string(a.Value):
		l.complain(l.at(path+".value"), "holds a line break, another control character, or a space at its end, which no header can: mend the variable or file")
	}
}

func isControl(r rune) bool { return r < ' ' && r != '\t' || r == 0x7f }

// isOurs names headers that say where a request goes or how it is framed.
func isOurs(name string) bool {
	for _, h := range []string{"Host", "Connection", "Content-Length", "Transfer-Encoding", "Te", "Trailer", "Upgrade", "Expect", "Idempotency-Key"} {
		if strings.EqualFold(h, name) {
			return true
		}
	}
	return strings.HasPrefix(strings.ToLower(name), "counterfoil-")
}

// compile makes of an upstream's fields what package classify wants, and
// complains of what it does not want.
func (l *loader) compile(path string, u *Upstream) {
	var err error
	u.Compiled.Outcomes, err = classify.ParseOutcomes(u.Outcomes)
	l.complainOf(l.at(path+".outcomes"), err)
	u.Compiled.Ignore, err = classify.ParseFields(u.Fingerprint.Ignore)
	l.complainOf(l.at(path+".fingerprint.ignore"), err)
	headers := u.Redact.Headers
	if headerName.MatchString(u.Auth.Header) {
		headers = append([]string{u.Auth.Header}, headers...)
	}
	u.Compiled.Secrets, err = classify.NewSecrets(u.Redact.Query, headers)
	if err == nil {
		u.Compiled.Secrets, err = u.Compiled.Secrets.With(classify.Redaction{Body: u.Redact.Body, Path: u.Redact.Path})
	}
	l.complainOf(l.at(path+".redact"), err)
	for i, r := range u.Rules {
		u.Compiled.Rules = append(u.Compiled.Rules, l.compileRule(fmt.Sprintf("%s.rules[%d]", path, i), r))
	}
}

func (l *loader) compileRule(path string, r Rule) classify.Rule {
	if len(r.When.Method) == 0 && r.When.Path == "" {
		l.follow(l.at(path), "when is missing: say which requests the rule is about, as in when: {method: [POST], path: /search/**}")
	}
	match, err := classify.CompileMatch(r.When.Method, r.When.Path)
	l.complainOf(l.at(path+".when"), err)
	class, known := classify.ParseClass(r.Class)
	switch {
	case r.Class == "" && r.Approval == "":
		l.follow(l.at(path), "class or approval is missing: the rule would do nothing")
	case r.Class != "" && !known:
		l.complain(l.at(path+".class"), "%q is none of read, decision, idempotent, effect", r.Class)
	case class == classify.Keyed:
		l.complain(l.at(path+".class"), "a rule cannot say how long the provider honours a key, so none is keyed: write an operation with class: keyed and guarantee: {retention: …} under operations")
	case r.Approval != "" && (class == classify.Read || class == classify.Decision):
		l.complain(l.at(path+".approval"), "a call of class %s changes nothing, so it is never held: leave approval out, or give the class that the requests have", class)
	}
	rule := classify.Rule{Match: match, Class: class}
	if r.Approval == ApprovalRequired {
		rule.Approval = classify.ApprovalRequired
	}
	return rule
}

// isOwn reports whether the URL leads to an address that the sidecar itself
// listens on.
func isOwn(target string, a Address) bool {
	u, err := url.Parse(target)
	if err != nil {
		return false
	}
	host, port := a.split()
	targetHost := u.Hostname()
	if targetHost == "localhost" {
		targetHost = "127.0.0.1"
	}
	if u.Port() != port || port == "0" {
		return false
	}
	here := Address(net.JoinHostPort(targetHost, port))
	return targetHost == host || covers(host, targetHost) && here.IsLoopback()
}

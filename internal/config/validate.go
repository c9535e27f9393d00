package config

import (
	"encoding/base64"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"unicode/utf8"
)

// validate checks what no single value shows, and gathers every mistake.
func (l *loader) validate() {
	c := l.cfg
	if c.Data == "" {
		c.Data = l.stateDirectory()
	}
	l.complainOf(l.at("run"), checkRun(c.Run))
	l.complainOf(l.at("namespace"), checkNamespace(c.Namespace))
	l.checkTokens()
	l.checkEncryption()
	l.checkRetention()
	l.checkProxy("HTTPS_PROXY", c.Proxy.HTTPS)
	l.checkProxy("HTTP_PROXY", c.Proxy.HTTP)
	for _, u := range c.Upstreams {
		l.checkUpstream(u)
	}
	l.checkListeners()
}

// checkServe looks for what a sidecar that serves cannot do without.
func (l *loader) checkServe() {
	if len(l.cfg.Upstreams) == 0 && !slices.ContainsFunc(l.complaints, mayHideUpstreams) {
		l.complain(place{source: "COUNTERFOIL_UPSTREAMS"}, "no upstream is configured: name at least one, as in tickets=http://127.0.0.1:9090")
	}
	if l.cfg.Data == "" {
		l.complain(place{source: "COUNTERFOIL_DATA"}, "not set, and neither XDG_STATE_HOME nor HOME says where the journal may be: set it to a directory")
	}
}

// mayHideUpstreams reports whether upstreams may be missing because of that
// mistake: it is theirs, or the file's as a whole.
func mayHideUpstreams(c *Complaint) bool {
	return c.Source == "COUNTERFOIL_CONFIG" || c.Source == "COUNTERFOIL_UPSTREAMS" || isWithin(c.Path, "upstreams") ||
		c.Path == "" && !strings.HasPrefix(c.Source, prefix)
}

// checkRun allows what a part of a key may be.
func checkRun(run string) error {
	if len(run) > partBytesMax || !utf8.ValidString(run) {
		return fmt.Errorf("no name for a run: use 1 to %d bytes of UTF-8", partBytesMax)
	}
	return nil
}

// tokenBytesMin is the length below which a token can be guessed by trying.
const tokenBytesMin = 16

func (l *loader) checkTokens() {
	c := l.cfg
	if c.AdminToken != "" {
		l.complainOf(l.at("admin_token"), checkToken(c.AdminToken))
		l.warnOfShort("admin_token", c.AdminToken)
	}
	for _, t := range c.Tokens {
		l.warnOfShort("tokens", t.Token)
	}
}

func (l *loader) warnOfShort(path string, token Secret) {
	if len(token) < tokenBytesMin {
		l.warn(l.at(path), "a token of %d characters can be guessed: use at least %d, as from openssl rand -hex 32", len(token), tokenBytesMin)
	}
}

func (l *loader) checkEncryption() {
	if l.cfg.Encryption == "" {
		return
	}
	key, err := base64.StdEncoding.DecodeString(string(l.cfg.Encryption))
	if err != nil || len(key) != 32 {
		l.complain(l.at("encryption_key"), "not 32 bytes in base64: make one with openssl rand -base64 32")
	}
	l.complain(l.at("encryption_key"), "sealing is not supported yet, and nothing would be encrypted: unset it, and protect the data directory by other means")
}

// checkProxy never repeats the proxy's URL, which may hold a password.
func (l *loader) checkProxy(variable string, proxy Secret) {
	if proxy == "" {
		return
	}
	text := string(proxy)
	if !strings.Contains(text, "://") {
		text = "http://" + text
	}
	u, err := url.Parse(text)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" {
		l.complain(place{source: variable}, "not the URL of an http or https proxy: write it like http://proxy.example.com:3128")
	}
}

// A listener is one address and the field that it stands in.
type listener struct {
	path    string
	address Address
}

// checkListeners completes the listeners' addresses and holds them against each
// other and against what protects them.
func (l *loader) checkListeners() {
	c := l.cfg
	c.Listen, c.AdminListen = c.Listen.onHost("127.0.0.1"), c.AdminListen.onHost("127.0.0.1")
	data := []listener{{"listen", c.Listen}}
	host, _ := c.Listen.split()
	for _, u := range c.Upstreams {
		if u.Listen = u.Listen.onHost(host); u.Listen != "" {
			data = append(data, listener{"upstreams." + u.Name + ".listen", u.Listen})
		}
	}
	l.checkClashes(append(data, listener{"admin_listen", c.AdminListen}))
	l.checkExposure(data)
	l.checkLoops(data)
	if !c.AdminListen.IsLoopback() && c.AdminToken == "" {
		l.complain(l.at("admin_listen"), "%s can be reached from outside: set COUNTERFOIL_ADMIN_TOKEN, or listen on loopback", c.AdminListen)
	}
}

func (l *loader) checkClashes(all []listener) {
	for i, a := range all {
		for _, b := range all[:i] {
			if a.address.clashes(b.address) {
				l.complain(l.at(a.path), "%s is taken by %s as well: give each listener a port of its own", a.address, l.at(b.path))
				break
			}
		}
	}
}

// checkExposure looks at data listeners that others than this machine reach.
// Without tokens anyone can read receipts there, which is warned of, and use
// the sidecar's own credentials, which is refused.
func (l *loader) checkExposure(data []listener) {
	if len(l.cfg.Tokens) > 0 {
		return
	}
	for _, d := range data {
		if d.address.IsLoopback() {
			continue
		}
		for _, u := range l.cfg.Upstreams {
			if u.Auth != (Auth{}) {
				l.complain(l.at(d.path), "%s can be reached from outside, and anyone there could use the credential of upstream %s: set COUNTERFOIL_TOKENS, or listen on loopback", d.address, u.Name)
				return
			}
		}
		l.warn(l.at(d.path), "%s can be reached from outside without a token: set COUNTERFOIL_TOKENS, or listen on loopback", d.address)
	}
}

// checkLoops refuses an upstream that is the sidecar itself.
func (l *loader) checkLoops(data []listener) {
	for _, u := range l.cfg.Upstreams {
		for _, d := range data {
			if isOwn(u.URL, d.address) {
				l.complain(l.at("upstreams."+u.Name+".url"), "leads back to the sidecar's own listener %s: give the provider's URL", d.address)
				break
			}
		}
	}
}

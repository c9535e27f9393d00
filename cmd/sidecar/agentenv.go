package main

import (
	"cmp"
	"fmt"
	"maps"
	"net"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"counterfoil/internal/config"
	"counterfoil/keystore"
)

// ownPrefix begins the settings of the sidecar itself. The agent gets none of
// them: it has no use for them, and some are secrets that it should not have.
const ownPrefix = "COUNTERFOIL_"

// An agentEnv is the environment that an agent is started with.
type agentEnv struct {
	inherited map[string]string
	bases     []baseVariable
}

// A baseVariable is set to the base URL of an upstream, and the path behind it.
type baseVariable struct{ name, upstream, path string }

// An agentEnvRequest is what agentEnv is made of.
type agentEnvRequest struct {
	environ   map[string]string
	upstreams config.Upstreams
	// own are NAME=UPSTREAM[/path], kept the names of variables to be left as
	// they are.
	own, kept []string
}

// newAgentEnv finds out which variables lead to upstreams. The error is about
// those that would lead past the sidecar, or are not of the form.
func newAgentEnv(q agentEnvRequest) (*agentEnv, error) {
	e := &agentEnv{inherited: map[string]string{}}
	for name, value := range q.environ {
		if !strings.HasPrefix(name, ownPrefix) {
			e.inherited[name] = value
		}
	}
	bypassProxy(e.inherited)
	if err := e.addOwn(q.own, q.upstreams); err != nil {
		return nil, err
	}
	for i := range sdkVariables {
		v := &sdkVariables[i]
		if slices.Contains(q.kept, v.name) || e.has(v.name) {
			continue
		}
		if err := e.addKnown(v, q.upstreams); err != nil {
			return nil, err
		}
	}
	return e, nil
}

func (e *agentEnv) has(name string) bool {
	return slices.ContainsFunc(e.bases, func(b baseVariable) bool { return b.name == name })
}

var variableName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)

// addOwn takes what --env asks for.
func (e *agentEnv) addOwn(own []string, upstreams config.Upstreams) error {
	for _, text := range own {
		name, target, _ := strings.Cut(text, "=")
		upstream, path, hasPath := strings.Cut(target, "/")
		switch {
		case !variableName.MatchString(name) || upstream == "":
			return usagef("--env %s: write NAME=UPSTREAM, or NAME=UPSTREAM/path, as in TICKETS_URL=tickets", text)
		case strings.HasPrefix(name, ownPrefix):
			return usagef("--env %s: what begins with %s is set by sidecar exec itself", text, ownPrefix)
		case e.has(name):
			return usagef("--env %s: %s is given twice", text, name)
		case find(upstreams, func(u *config.Upstream) bool { return u.Name == upstream }) == nil:
			return usagef("--env %s: there is no upstream %q; there are %s", text, upstream, upstreamNames(upstreams))
		}
		if hasPath {
			path = "/" + path
		}
		e.bases = append(e.bases, baseVariable{name, upstream, path})
	}
	return nil
}

func upstreamNames(upstreams config.Upstreams) string {
	var names []string
	for _, u := range upstreams {
		names = append(names, u.Name)
	}
	return strings.Join(names, ", ")
}

// addKnown sets the variable of an SDK if its provider is an upstream. One that
// is set already is led through the sidecar to the same place. Where that is no
// upstream the agent would go past the sidecar, and another place would get what
// is meant for that one, its credentials too: it is refused.
func (e *agentEnv) addKnown(v *sdkVariable, upstreams config.Upstreams) error {
	set := e.inherited[v.name]
	u, path := v.target(upstreams)
	if set == "" {
		if u != nil {
			e.bases = append(e.bases, baseVariable{v.name, u.Name, path})
		}
		return nil
	}
	if under, rest := upstreamOf(set, upstreams); under != nil {
		e.bases = append(e.bases, baseVariable{v.name, under.Name, rest})
		return nil
	}
	if u == nil {
		return nil
	}
	return usagef("%s is set in the environment, to what is no upstream: the agent would go past the sidecar. "+
		"Configure that URL as an upstream, unset the variable, set it with --env %s=%s%s, or leave it with --keep-env %s", v.name, v.name, u.Name, path, v.name)
}

// upstreamOf is the upstream that a URL lies under, and the rest of its path:
// the one with the longest base path if there are several.
func upstreamOf(text string, upstreams config.Upstreams) (best *config.Upstream, rest string) {
	target, err := url.Parse(text)
	if err != nil || target.Host == "" {
		return nil, ""
	}
	for _, u := range upstreams {
		at, err := url.Parse(u.URL)
		if err != nil || origin(at) != origin(target) {
			continue
		}
		behind, isUnder := strings.CutPrefix(strings.TrimSuffix(target.EscapedPath(), "/"), strings.TrimSuffix(at.EscapedPath(), "/"))
		if isUnder && (behind == "" || behind[0] == '/') && (best == nil || len(behind) < len(rest)) {
			best, rest = u, behind
		}
	}
	return best, rest
}

// origin is scheme, host and port, with the names of loopback as one.
func origin(u *url.URL) string {
	host := strings.ToLower(u.Hostname())
	if host == "localhost" {
		host = "127.0.0.1"
	}
	port := u.Port()
	if port == "" {
		port = map[string]string{"http": "80", "https": "443"}[u.Scheme]
	}
	return u.Scheme + "://" + net.JoinHostPort(host, port)
}

// bypassProxy keeps an agent's HTTP client, where it uses a proxy, from looking
// for its sidecar there. Some read one spelling of NO_PROXY, some the other.
func bypassProxy(environ map[string]string) {
	used := slices.ContainsFunc([]string{"HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"}, func(name string) bool { return environ[name] != "" })
	if !used {
		return
	}
	for name, other := range map[string]string{"NO_PROXY": environ["no_proxy"], "no_proxy": environ["NO_PROXY"]} {
		hosts := cmp.Or(environ[name], other)
		if hosts != "" {
			hosts += ","
		}
		environ[name] = hosts + "127.0.0.1"
	}
}

// A life is one start of the agent: at which sidecar, of which run, under which
// fence.
type life struct {
	url   string
	run   string
	fence keystore.Fence
}

// at returns the environment of a life, sorted, as name=value.
func (e *agentEnv) at(l life) []string {
	environ := maps.Clone(e.inherited)
	fence := strconv.FormatUint(uint64(l.fence), 10)
	environ["COUNTERFOIL_URL"], environ["COUNTERFOIL_RUN"] = l.url, l.run
	environ["COUNTERFOIL_FENCE"], environ["COUNTERFOIL_INCARNATION"] = fence, fence
	// In a path, "?" and "#" have a meaning too.
	run := strings.ReplaceAll(url.PathEscape(l.run), ":", "%3A")
	for _, b := range e.bases {
		environ[b.name] = fmt.Sprintf("%s/@%s;f=%s/%s%s", l.url, run, fence, b.upstream, b.path)
	}
	list := make([]string, 0, len(environ))
	for _, name := range slices.Sorted(maps.Keys(environ)) {
		list = append(list, name+"="+environ[name])
	}
	return list
}

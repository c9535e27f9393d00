package proxy

import (
	"slices"
	"strconv"
	"strings"

	"counterfoil/internal/journal"
)

// A route is where a request goes.
type route struct {
	// upstream is nil for what is the sidecar's own.
	upstream *origin
	// target is relative to the upstream's base, or what follows "/-".
	target string
	// link is what stands before a target in a link that leads back here, in
	// the form that the client used.
	link     string
	identity identity
}

// findRoute reads a request's target. The bytes that are passed on are the
// client's.
func (x *exchange) findRoute(target string) (route, *journal.Refusal) {
	host := x.header.Value("Host")
	path, err := originForm(target, host)
	if err != nil {
		return route{}, invalidPath(err)
	}
	if own, isOwn := cutSegmentNamed(path, "-"); isOwn {
		return route{target: own}, nil
	}
	id, rest, err := cutIdentity(path)
	if err != nil {
		return route{}, &journal.Refusal{Problem: InvalidKey, Detail: sentence(err) + " Write /@run:turn:call/ with each part percent-encoded."}
	}
	r := route{identity: id.parts, link: id.segment}
	if r.upstream = x.upstreamOfHost(host); r.upstream == nil {
		name, after := firstSegment(rest)
		if r.upstream = x.upstream(name); r.upstream == nil {
			return route{}, x.unknownUpstream(host, name)
		}
		r.link += "/" + name
		rest = after
	}
	r.target = rest
	if err := checkTarget(rest); err != nil {
		return route{}, invalidPath(err)
	}
	return r, nil
}

// unknownUpstream says which name was read where, and which ones there are.
func (x *exchange) unknownUpstream(host, name string) *journal.Refusal {
	var read string
	switch name {
	case "":
		read = "The path names no upstream."
	default:
		read = "The path begins with " + quoted(name) + ", which is no configured upstream."
	}
	if label, found := strings.CutSuffix(hostname(host), ".localhost"); found {
		read = "The host names " + quoted(label) + ", which is no configured upstream. " + read
	}
	return &journal.Refusal{Problem: journal.UnknownUpstream, Detail: read + " " + x.configured() + " Nothing was sent."}
}

// quoted shows what a client sent, as far as it makes sense to.
func quoted(s string) string {
	const most = 64
	if len(s) > most {
		return strconv.QuoteToASCII(s[:most]) + "…"
	}
	return strconv.QuoteToASCII(s)
}

// listed names the first of the upstreams, and says how many more there are.
func listed(names []string) string {
	const most = 10
	slices.Sort(names)
	text := strings.Join(names[:min(len(names), most)], ", ")
	if more := len(names) - most; more > 0 {
		text += " and " + strconv.Itoa(more) + " more"
	}
	return text
}

// configured says which upstreams there are and how to reach one.
func (x *exchange) configured() string {
	if x.names == "" {
		return "None is configured."
	}
	first, _, _ := strings.Cut(x.names, ", ")
	return "Configured: " + x.names + ". Write /" + first + "/… with the rest of the provider's path."
}

func invalidPath(err error) *journal.Refusal {
	return &journal.Refusal{Problem: InvalidPath, Detail: sentence(err) + " Nothing was sent."}
}

// upstreamOfHost is the upstream that the listener or the host {name}.localhost
// chooses, nil if neither does.
func (x *exchange) upstreamOfHost(host string) *origin {
	if x.conn.upstream != "" {
		return x.upstream(x.conn.upstream)
	}
	if name, found := strings.CutSuffix(hostname(host), ".localhost"); found {
		return x.origins[name]
	}
	return nil
}

// firstSegment splits "/name/rest?query" into name and "/rest?query". Rest has no
// path where nothing follows the name, not even a slash.
func firstSegment(path string) (name, rest string) {
	path, found := strings.CutPrefix(path, "/")
	if !found {
		return "", path
	}
	end := strings.IndexAny(path, "/?")
	if end < 0 {
		end = len(path)
	}
	return path[:end], path[end:]
}

func cutSegmentNamed(path, name string) (rest string, found bool) {
	first, rest := firstSegment(path)
	return rest, first == name
}

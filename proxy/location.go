package proxy

import (
	"net/url"
	"strings"
)

// relocate makes a link of the provider to itself lead through here again, in
// the form in which the client came. Links elsewhere, links out of the
// upstream's base path, which have no path here, and links relative to the
// present path stay as they are.
func (r *route) relocate(location string) string {
	var target string
	switch {
	case strings.HasPrefix(location, "//"):
		scheme, _, _ := strings.Cut(r.upstream.host, ":")
		return r.relocateAbsolute(scheme+":"+location, location)
	case strings.HasPrefix(location, "/"):
		target = location
	default:
		return r.relocateAbsolute(location, location)
	}
	return r.through(target, location)
}

// relocateAbsolute takes an absolute URL apart. unchanged is what it was.
func (r *route) relocateAbsolute(absolute, unchanged string) string {
	scheme, rest, found := strings.Cut(absolute, "://")
	if !found {
		return unchanged
	}
	end := strings.IndexAny(rest, "/?#")
	if end < 0 {
		end = len(rest)
	}
	u := url.URL{Scheme: scheme, Host: rest[:end]}
	if strings.IndexByte(u.Host, '@') >= 0 || originOf(&u) != r.upstream.host {
		return unchanged
	}
	if rest = rest[end:]; !strings.HasPrefix(rest, "/") {
		rest = "/" + rest
	}
	return r.through(rest, unchanged)
}

// through puts the client's own prefix in the place of the upstream's base path.
func (r *route) through(target, unchanged string) string {
	rest, found := strings.CutPrefix(target, r.upstream.base)
	if !found || rest != "" && strings.IndexByte("/?#", rest[0]) < 0 {
		return unchanged
	}
	if r.link == "" && !strings.HasPrefix(rest, "/") {
		rest = "/" + rest // the base itself has no path of its own here
	}
	if r.link == "" && strings.HasPrefix(rest, "//") {
		return unchanged // it would read as another host
	}
	return r.link + rest
}

// originOf is scheme, host and port, without a port that the scheme implies.
func originOf(u *url.URL) string {
	scheme, host := strings.ToLower(u.Scheme), strings.ToLower(u.Host)
	switch scheme {
	case "http":
		host = strings.TrimSuffix(host, ":80")
	case "https":
		host = strings.TrimSuffix(host, ":443")
	}
	return scheme + "://" + host
}

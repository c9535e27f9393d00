package llm

import (
	"strings"

	"counterfoil/classify"
	"counterfoil/providers"
)

// A dialect reads the requests of one upstream.
type dialect struct{ base string }

// New returns a dialect that recognises requests to models by path and body
// together, on any host. What fits one alone is none of it: another API may well
// have a POST /v1/messages.
func New(s providers.Settings) providers.Dialect { return &dialect{base: s.BasePath} }

// Read implements [providers.Dialect].
func (d *dialect) Read(r *classify.Request) (providers.Content, *providers.Refusal) {
	if r.Method != "POST" || r.Header.Has("Content-Encoding") {
		return nil, nil
	}
	path := d.base + strings.TrimSuffix(r.Path(), "/")
	for i := range apis {
		a := &apis[i]
		if !a.isAt(path) {
			continue
		}
		if q, ok := parseQuestion(path, r.Body); ok && a.fits(q) {
			return &content{api: a, class: a.class(q)}, nil
		}
		return nil, nil
	}
	return nil, nil
}

// Content is a request to a model.
type content struct {
	api   *api
	class classify.Class
}

// Kind is the API's name.
func (c *content) Kind() string { return c.api.name }

// Names is empty: what a model may call is no operation of its own.
func (c *content) Names() []string { return nil }

// Class is what the request does.
func (c *content) Class() classify.Class { return c.class }

// Watch implements [providers.Watchable].
func (c *content) Watch(h providers.Head) providers.Watcher {
	if c.api.reader == nil || h.Status < 200 || h.Status > 299 {
		return nil
	}
	return newWatcher(c.class, c.api.reader(), h)
}

package main

import (
	"net/url"
	"strings"

	"counterfoil/classify"
	"counterfoil/internal/config"
)

// sampleBytesMax bounds the body of a sample request.
const sampleBytesMax = 10 << 20

// A sample is a request that somebody wants explained.
type sample struct {
	upstream *config.Upstream
	request  classify.Request
}

// newSample reads METHOD and URL, header lines and a body (@file reads a file)
// as curl takes them. The upstream is the configured one whose URL the sample's
// begins with, or a target of the form /upstream/path names, or one made up for
// the sample's host.
func newSample(cfg *config.Config, readFile func(string) ([]byte, error), what, body string, headers []string) (*sample, error) {
	method, target, ok := strings.Cut(strings.TrimSpace(what), " ")
	if !ok || method != strings.ToUpper(method) {
		return nil, usagef(`--explain wants a method and a URL, as in --explain "POST https://api.stripe.com/v1/charges"`)
	}
	s := &sample{request: classify.Request{Method: method}}
	if err := s.findUpstream(cfg, readFile, strings.TrimSpace(target)); err != nil {
		return nil, err
	}
	s.request.Upstream = s.upstream.Name
	for _, h := range headers {
		name, value, ok := strings.Cut(h, ":")
		if !ok || strings.TrimSpace(name) == "" {
			return nil, usagef("%q is no header: write it as in -H 'Content-Type: application/json'", h)
		}
		s.request.Header = append(s.request.Header, classify.Field{Name: strings.TrimSpace(name), Value: strings.TrimSpace(value)})
	}
	return s, s.takeBody(body, readFile)
}

func (s *sample) takeBody(body string, readFile func(string) ([]byte, error)) error {
	s.request.Body = []byte(body)
	if name, isFile := strings.CutPrefix(body, "@"); isFile {
		text, err := readFile(name)
		if err != nil {
			return usagef("the sample's body cannot be read: %w", err)
		}
		s.request.Body = text
	}
	if len(s.request.Body) > sampleBytesMax {
		return usagef("the sample's body is longer than 10 MiB, which no call's may be")
	}
	if len(s.request.Body) > 0 && !s.request.Header.Has("Content-Type") {
		media := "application/x-www-form-urlencoded"
		if first := strings.TrimSpace(string(s.request.Body[:1])); first == "{" || first == "[" {
			media = "application/json"
		}
		s.request.Header = append(s.request.Header, classify.Field{Name: "Content-Type", Value: media})
	}
	return nil
}

func (s *sample) findUpstream(cfg *config.Config, readFile func(string) ([]byte, error), target string) error {
	if rest, ok := strings.CutPrefix(target, "/"); ok {
		name, _, _ := strings.Cut(rest, "/")
		for _, u := range cfg.Upstreams {
			if u.Name == name {
				s.upstream, s.request.Target = u, strings.TrimPrefix(rest, name)
				return nil
			}
		}
		return usagef("%q names no configured upstream: write the provider's whole URL, or /upstream/path", target)
	}
	at, err := url.Parse(target)
	if err != nil || at.Host == "" || at.Scheme != "https" && at.Scheme != "http" {
		return usagef("the sample's URL cannot be read: write it like https://api.stripe.com/v1/charges, or /upstream/path")
	}
	for _, u := range cfg.Upstreams {
		base := strings.TrimSuffix(u.URL, "/")
		if rest, ok := strings.CutPrefix(target, base); ok && (rest == "" || rest[0] == '/' || rest[0] == '?') {
			s.upstream, s.request.Target = u, rest
			return nil
		}
	}
	origin := at.Scheme + "://" + at.Host
	made, err := config.Load(map[string]string{"COUNTERFOIL_UPSTREAMS": "sample=" + origin}, readFile)
	if err != nil {
		return usageError{err}
	}
	s.upstream, s.request.Target = made.Upstreams[0], strings.TrimPrefix(target, origin)
	return nil
}

package classify

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// credentialHeaders are the request headers that are never kept in clear,
// whatever the config says: the standard ones, and those under which widely
// used APIs take a key or token.
var credentialHeaders = [...]string{
	"Authorization", "Cookie", "Proxy-Authorization", "X-Api-Key", "Counterfoil-Token",
	"Api-Key", "X-Goog-Api-Key", "X-Auth-Token", "X-Access-Token", "Private-Token", "X-Shopify-Access-Token", "X-Amz-Security-Token",
	"Apikey", "X-Api-Token", "X-Client-Secret", "Ocp-Apim-Subscription-Key", "DD-API-KEY", "DD-APPLICATION-KEY", "X-Vault-Token", "X-Figma-Token",
	"CF-Access-Client-Secret",
}

// secretParams are the query parameters whose values are never kept in clear.
var secretParams = [...]string{
	"key", "api_key", "apikey", "token", "access_token", "sig", "signature", "auth", "password", "secret", "code", "client_secret",
}

// Secrets say which parts of an upstream's requests are credentials. They never
// change and may be shared by goroutines.
type Secrets struct {
	// Params are the secret query parameters, for [PrintOptions] too.
	Params  Params
	headers []string
	body    secretParts
}

// A Redaction names credentials in requests. Body holds form fields, and JSON
// pointers to strings; Path holds patterns as of [CompileMatch] in which {}
// stands for the secret part of a segment: /bot{}/**.
type Redaction struct {
	Query, Headers, Body, Path []string
}

// With returns s and what an adapter says is secret besides. The error joins
// every mistake.
func (s *Secrets) With(r Redaction) (*Secrets, error) {
	more := &Secrets{Params: Params{names: slices.Clone(s.Params.names), paths: slices.Clone(s.Params.paths)}, headers: slices.Clone(s.headers), body: s.body}
	more.body.pointers, more.body.fields = slices.Clone(s.body.pointers), slices.Clone(s.body.fields)
	errs := more.add(r.Query, r.Headers)
	for _, name := range r.Body {
		errs = append(errs, more.body.add(name))
	}
	for _, pattern := range r.Path {
		p, err := compileSecretPath(pattern)
		errs = append(errs, err)
		more.Params.paths = append(more.Params.paths, p)
	}
	return more, errors.Join(errs...)
}

// NewSecrets adds an upstream's own query parameters and headers to those that
// are secret everywhere. Parameters are named as they read once
// percent-decoded. The error joins every mistake.
func NewSecrets(query, headers []string) (*Secrets, error) {
	s := &Secrets{headers: slices.Clone(credentialHeaders[:]), Params: Params{names: slices.Clone(secretParams[:])}}
	return s, errors.Join(s.add(query, headers)...)
}

func (s *Secrets) add(query, headers []string) (errs []error) {
	for _, name := range query {
		if strings.TrimSpace(name) == "" {
			errs = append(errs, errors.New("query parameter with an empty name: name the parameter to redact"))
		}
		s.Params.names = append(s.Params.names, strings.TrimSpace(name))
	}
	for _, name := range headers {
		if !isToken(name) {
			errs = append(errs, fmt.Errorf("header %q is no header name: write one like X-Tenant-Key", name))
		}
		s.headers = append(s.headers, name)
	}
	return errs
}

// IsCredential reports whether a header of that name is one. Case does not
// count. It can be handed to [Header.Without].
func (s *Secrets) IsCredential(name string) bool {
	for _, h := range s.headers {
		if strings.EqualFold(h, name) {
			return true
		}
	}
	return false
}

// HasSecrets reports whether the target has a secret parameter with a value.
func (s *Secrets) HasSecrets(target string) bool {
	for start, end := range s.Params.values(target) {
		if start < end {
			return true
		}
	}
	return false
}

package classify

import (
	"errors"
	"fmt"
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
}

// NewSecrets adds an upstream's own query parameters and headers to those that
// are secret everywhere. Parameters are named as they read once
// percent-decoded. The error joins every mistake.
func NewSecrets(query, headers []string) (*Secrets, error) {
	s := &Secrets{headers: credentialHeaders[:]}
	var errs []error
	names := secretParams[:]
	for _, name := range query {
		if strings.TrimSpace(name) == "" {
			errs = append(errs, errors.New("query parameter with an empty name: name the parameter to redact"))
		}
		names = append(names, strings.TrimSpace(name))
	}
	for _, name := range headers {
		if !isToken(name) {
			errs = append(errs, fmt.Errorf("header %q is no header name: write one like X-Tenant-Key", name))
		}
		s.headers = append(s.headers, name)
	}
	s.Params = Params{names}
	return s, errors.Join(errs...)
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

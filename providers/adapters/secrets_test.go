package adapters

import (
	"errors"
	"strings"
	"testing"

	"counterfoil/classify"
)

// No credential in a body for Plaid is kept: it is taken out, or the body is
// refused.
func TestPlaidKeepsNoCredential(t *testing.T) {
	all, err := Load()
	if err != nil {
		t.Fatal(err)
	}
	none, err := classify.NewSecrets(nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	secrets, err := none.With(all.Named("plaid").Redact)
	if err != nil {
		t.Fatal(err)
	}
	mac := func([]byte) string { return "mac" }
	for _, name := range []string{"secret", "client_id", "access_token", "public_token", "processor_token", "user_token", "asset_report_token"} {
		body, found, err := secrets.RedactBody(&classify.Request{Body: []byte(`{"` + name + `":"in clear","amount":"1"}`)}, mac)
		if err != nil || !found || strings.Contains(string(body), "in clear") || !strings.Contains(string(body), `"amount":"1"`) {
			t.Errorf("%s: %s, found %v, %v", name, body, found, err)
		}
	}
	_, _, err = secrets.RedactBody(&classify.Request{Body: []byte(`{"access_tokens":["in clear"]}`)}, mac)
	if !errors.Is(err, classify.ErrHiddenBody) {
		t.Errorf("a list of tokens: %v", err)
	}
}

package adapters

import (
	"testing"

	"counterfoil/classify"
	"counterfoil/internal/fake"
	"counterfoil/providers"
)

// What a provider answers to a key that it knows, one that is at work and one
// that came with another request, is taken for what it is.
func TestKeyAnswers(t *testing.T) {
	for _, tt := range []struct {
		spec      fake.Spec
		operation string
		status    int
		body      string
		want      providers.Judgement
		alarms    bool
	}{
		{fake.Resend(), "emails.send", 409, `{"name":"concurrent_idempotent_requests"}`, providers.Judgement{Outcome: classify.Ambiguous, InFlight: true}, false},
		{fake.Resend(), "emails.send", 409, `{"name":"invalid_idempotent_request"}`, providers.Judgement{Outcome: classify.Ambiguous}, true},
		{fake.Resend(), "emails.send", 400, `{"name":"invalid_idempotency_key"}`, providers.Judgement{}, false},
		{fake.Zendesk(), "tickets.create", 400, `{"error":"IdempotentRequestError"}`, providers.Judgement{Outcome: classify.Ambiguous}, true},
		{fake.Zendesk(), "tickets.create", 400, `{"error":{"title":"Invalid attribute"}}`, providers.Judgement{}, false},
		{fake.PayPal(), "orders.capture", 409, `{"name":"RESOURCE_CONFLICT","details":[{"issue":"PREVIOUS_REQUEST_IN_PROGRESS"}]}`, providers.Judgement{Outcome: classify.Ambiguous, InFlight: true}, false},
		{fake.PayPal(), "orders.capture", 409, `{"name":"RESOURCE_CONFLICT"}`, providers.Judgement{Outcome: classify.Ambiguous}, false},
		{fake.PayPal(), "orders.capture", 422, `{"details":[{"issue":"ORDER_ALREADY_CAPTURED"}]}`, providers.Judgement{Outcome: classify.Ambiguous}, false},
		{fake.PayPal(), "vault.setupTokens", 422, `{"details":[{"issue":"PAYPAL_REQUEST_ID_PREVIOUSLY_USED"}]}`, providers.Judgement{Outcome: classify.Ambiguous}, true},
		{fake.PayPal(), "orders.create", 422, `{"details":[{"issue":"MISSING_REQUIRED_PARAMETER"}]}`, providers.Judgement{}, false},
		{fake.Adyen(), "checkout", 422, `{"status":422,"errorCode":"704"}`, providers.Judgement{Outcome: classify.Ambiguous, InFlight: true}, false},
		{fake.Adyen(), "checkout", 409, `{"status":409,"errorCode":704}`, providers.Judgement{Outcome: classify.Ambiguous, InFlight: true}, false},
		{fake.Adyen(), "checkout", 503, `{"status":503,"errorCode":"703"}`, providers.Judgement{Outcome: classify.Ambiguous}, false},
		{fake.Adyen(), "checkout", 422, `{"status":422,"errorCode":"130"}`, providers.Judgement{}, false},
		{fake.Square(), "orders.create", 400, `{"errors":[{"code":"IDEMPOTENCY_KEY_REUSED"}]}`, providers.Judgement{Outcome: classify.Ambiguous}, true},
		{fake.Square(), "orders.create", 400, `{"errors":[{"code":"MISSING_REQUIRED_PARAMETER"}]}`, providers.Judgement{}, false},
		{fake.Telegram(), "act", 200, `{"ok":false}`, providers.Judgement{Outcome: classify.Ambiguous}, false},
		{fake.Telegram(), "act", 200, `{"ok":true,"result":{}}`, providers.Judgement{}, false},
	} {
		got := judged(t, tt.spec.Adapter, caseOf(t, tt.spec, tt.operation), tt.status, "application/json", tt.body)
		if got.Outcome != tt.want.Outcome || got.InFlight != tt.want.InFlight || got.Stuck || (got.Alarm != "") != tt.alarms {
			t.Errorf("%s %s: %d %s is %+v, not %+v", tt.spec.Adapter, tt.operation, tt.status, tt.body, got, tt.want)
		}
	}
}

// Adyen says itself whether the same key may be tried again.
func TestAdyenTransientErrors(t *testing.T) {
	all, err := Load()
	if err != nil {
		t.Fatal(err)
	}
	r := requestOf(caseOf(t, fake.Adyen(), "checkout"))
	rd, _ := all.Named("adyen").Read(r)
	for value, inFlight := range map[string]bool{"true": true, "false": false} {
		head := providers.Head{Status: 500, Header: classify.Header{{Name: "Transient-Error", Value: value}, {Name: "Content-Type", Value: "application/json"}}}
		got := providers.Judgement{}
		if w := rd.Watch(providers.Query{Key: marker, Marker: marker, Original: r}, head, false); w != nil {
			got = w.End(t.Context())
		}
		if got.InFlight != inFlight {
			t.Errorf("with transient-error: %s a 500 is %+v", value, got)
		}
	}
}

// A payment at Square is cancelled by the key that its maker gave it, so that one
// passes as it came.
func TestSquareKeysPass(t *testing.T) {
	all, err := Load()
	if err != nil {
		t.Fatal(err)
	}
	for _, operation := range []string{"payments.create", "payments.cancelByKey"} {
		r := requestOf(caseOf(t, fake.Square(), operation))
		rd, _ := all.Named("square").Read(r)
		stamped, _, err := rd.Stamp(r, providers.Stamps{Key: marker, Marker: marker})
		if err != nil {
			t.Fatal(err)
		}
		before, _ := classify.Locate(r.Body, []string{"idempotency_key"})
		after, _ := classify.Locate(stamped.Body, []string{"idempotency_key"})
		if got, want := string(stamped.Body[after.Start:after.End]), string(r.Body[before.Start:before.End]); !before.Found || got != want {
			t.Errorf("%s: the key %s is sent as %s", operation, want, got)
		}
	}
}

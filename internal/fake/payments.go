package fake

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"
)

// withHeader is h and one more field.
func withHeader(h http.Header, name, value string) http.Header {
	more := h.Clone()
	more.Set(name, value)
	return more
}

// keyedAPI is a provider that honours a key on every POST, and sets states
// otherwise.
func keyedAPI(adapter string, m memory, sets func(*http.Request, map[string]any) bool, cases []Case) Spec {
	return Spec{Adapter: adapter, Cases: cases, New: func(l *Ledger) http.Handler { return newKeyedAPI(l, m, sets) }}
}

func newKeyedAPI(l *Ledger, m memory, sets func(*http.Request, map[string]any) bool) http.HandlerFunc {
	state := &rest{ledger: l}
	m.ledger = l
	post := keyed(m, func(w http.ResponseWriter, r *http.Request, in map[string]any) {
		if r.Method != http.MethodPost || sets != nil && sets(r, in) {
			state.set(w, r, in)
			return
		}
		state.make(w, r, in)
	})
	return func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet {
			state.ServeHTTP(w, r)
			return
		}
		post(w, r)
	}
}

// payPalKeeps is PayPal's table of how long a request id is known; 0 where it is
// not looked at. Payments of v2 are 45 days in an older edition alone.
func payPalKeeps(path string) time.Duration {
	for prefix, keeps := range map[string]time.Duration{
		"/v2/checkout/orders": 6 * time.Hour, "/v2/payments/": 45 * 24 * time.Hour, "/v1/payments/": 30 * 24 * time.Hour, "/v1/checkout/orders": 10 * 365 * 24 * time.Hour,
		"/v1/billing/": 72 * time.Hour, "/v1/catalogs/": 72 * time.Hour, "/v3/vault/": 3 * time.Hour, "/v1/payment-experience/": 3 * time.Hour,
	} {
		if strings.HasPrefix(path, prefix) {
			return keeps
		}
	}
	return 0
}

// PayPal answers a key's second request with 200, and with what the first made.
func PayPal() Spec {
	own := func(name string) http.Header { return withHeader(asJSON(), "PayPal-Request-Id", "own-"+name) }
	post := func(operation, target string) Case {
		return Case{Operation: operation, Method: "POST", Target: target, Header: own(operation), Body: `{"amount":"1.00"}`, Deduplicates: true}
	}
	m := memory{key: header("PayPal-Request-Id"), keeps: payPalKeeps, again: 200, conflict: func(w http.ResponseWriter) {
		writeJSON(w, 422, map[string]any{"name": "UNPROCESSABLE_ENTITY", "details": []any{map[string]any{"issue": "PAYPAL_REQUEST_ID_PREVIOUSLY_USED"}}})
	}}
	isState := func(r *http.Request, _ map[string]any) bool {
		return strings.HasPrefix(r.URL.Path, "/v2/invoicing/invoices/")
	}
	made := func(l *Ledger) http.Handler {
		mux := http.NewServeMux()
		mux.Handle("/", newKeyedAPI(l, m, isState))
		notices := &rest{ledger: l} // an update of an invoice sends one each time
		mux.HandleFunc("PUT /v2/invoicing/invoices/{id}", func(w http.ResponseWriter, r *http.Request) { notices.make(w, r, readAny(r)) })
		return mux
	}
	return Spec{Adapter: "paypal", New: made, Cases: []Case{
		post("orders.create", "/v2/checkout/orders"), post("orders.authorize", "/v2/checkout/orders/O1/authorize"), post("orders.capture", "/v2/checkout/orders/O1/capture"),
		post("authorizations.capture", "/v2/payments/authorizations/A1/capture"), post("authorizations.reauthorize", "/v2/payments/authorizations/A1/reauthorize"),
		post("captures.refund", "/v2/payments/captures/C1/refund"), post("payouts.create", "/v1/payments/payouts"), post("payments.v1.execute", "/v1/payments/payment/P1/execute"),
		post("sales.v1.refund", "/v1/payments/sale/S1/refund"), post("captures.v1.refund", "/v1/payments/capture/C1/refund"), post("authorizations.v1.void", "/v1/payments/authorization/A1/void"),
		post("orders.v1.pay", "/v1/checkout/orders/O1/pay"), post("plans.create", "/v1/billing/plans"), post("subscriptions.create", "/v1/billing/subscriptions"),
		post("subscriptions.capture", "/v1/billing/subscriptions/S1/capture"), post("products.create", "/v1/catalogs/products"),
		post("vault.paymentTokens", "/v3/vault/payment-tokens"), post("vault.setupTokens", "/v3/vault/setup-tokens"), post("webProfiles.create", "/v1/payment-experience/web-profiles"),
		{Operation: "invoices.update", Method: "PUT", Target: "/v2/invoicing/invoices/1", Header: asJSON(), Body: `{"note":"x"}`},
		{Operation: "put", Method: "PUT", Target: "/v2/invoicing/templates/1", Header: asJSON(), Body: `{"note":"x"}`, Deduplicates: true},
		{Operation: "delete", Method: "DELETE", Target: "/v2/invoicing/invoices/2", Header: asJSON(), Deduplicates: true},
		{Operation: "other", Method: "POST", Target: "/v2/invoicing/invoices", Header: asJSON(), Body: `{}`},
	}}
}

// Adyen honours its Idempotency-Key for a week at least.
func Adyen() Spec {
	return keyedAPI("adyen", memory{key: header("Idempotency-Key"), keeps: hours(7 * 24)}, nil, []Case{
		{Operation: "checkout", Method: "POST", Target: "/checkout/v71/payments", Header: asJSON(), Body: `{"reference":"o-1"}`, Deduplicates: true},
		{Operation: "checkout.test", Method: "POST", Target: "/v71/paymentLinks", Header: asJSON(), Body: `{"reference":"o-1"}`, Deduplicates: true},
		{Operation: "live", Method: "POST", Target: "/pal/servlet/Payment/v68/payments/x", Header: asJSON(), Body: `{"reference":"o-1"}`, Deduplicates: true},
		{Operation: "delete", Method: "DELETE", Target: "/checkout/v71/storedPaymentMethods/1", Header: asJSON(), Deduplicates: true},
		{Operation: "other", Method: "POST", Target: "/pal/servlet/Payment/v68/cancel", Header: asJSON(), Body: `{}`, Deduplicates: true},
	})
}

// Checkout remembers its Cko-Idempotency-Key.
func Checkout() Spec {
	post := func(operation, target string) Case {
		return Case{Operation: operation, Method: "POST", Target: target, Header: withHeader(asJSON(), "Cko-Idempotency-Key", "own-"+operation), Body: `{"amount":100}`, Deduplicates: true}
	}
	return keyedAPI("checkout", memory{key: header("Cko-Idempotency-Key"), keeps: hours(24)}, nil, []Case{
		post("payments.request", "/payments"), post("contexts.request", "/payment-contexts"), post("payments.authorize", "/payments/p1/authorizations"),
		post("payments.cancel", "/payments/p1/cancellations"), post("payments.capture", "/payments/p1/captures"), post("payments.refund", "/payments/p1/refunds"),
		post("payments.void", "/payments/p1/voids"), post("transfers.create", "/transfers"),
		{Operation: "put", Method: "PUT", Target: "/workflows/1", Header: asJSON(), Body: `{"name":"x"}`, Deduplicates: true},
		{Operation: "delete", Method: "DELETE", Target: "/workflows/2", Header: asJSON(), Deduplicates: true},
		{Operation: "other", Method: "POST", Target: "/customers", Header: asJSON(), Body: `{}`},
	})
}

// plaidKeeps is how long Plaid knows a key of that path.
func plaidKeeps(path string) time.Duration {
	if path == "/wallet/transaction/execute" {
		return 24 * time.Hour
	}
	return 48 * time.Hour
}

// Plaid honours keys in the body of some requests, and lists transfers, of which
// an authorization makes one.
func Plaid() Spec {
	post := func(operation, target, body string, deduplicates bool) Case {
		h := withHeader(withHeader(asJSON(), "PLAID-CLIENT-ID", "c"), "PLAID-SECRET", "s")
		return Case{Operation: operation, Method: "POST", Target: target, Header: h, Body: body, Deduplicates: deduplicates}
	}
	return Spec{Adapter: "plaid", New: newPlaid, Reads: func(r *http.Request, _ []byte) bool { return strings.HasSuffix(r.URL.Path, "/list") }, Cases: []Case{
		post("transfer.authorize", "/transfer/authorization/create", `{"secret":"s","access_token":"a","amount":"1","idempotency_key":"own-1"}`, true),
		post("transfer.create", "/transfer/create", `{"access_token":"a","authorization_id":"x"}`, true),
		post("wallet.execute", "/wallet/transaction/execute", `{"secret":"s","idempotency_key":"own-2"}`, true),
		post("consent.execute", "/payment_initiation/consent/payment/execute", `{"secret":"s","idempotency_key":"own-3"}`, true),
		post("transfer.refund", "/transfer/refund/create", `{"secret":"s","transfer_id":"t","idempotency_key":"own-4"}`, true),
		post("other", "/transfer/cancel", `{"secret":"s","transfer_id":"t"}`, false),
	}}
}

func newPlaid(l *Ledger) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /transfer/create", keyed(memory{ledger: l, key: field("authorization_id")}, func(w http.ResponseWriter, _ *http.Request, in map[string]any) {
		made := map[string]any{"authorization_id": in["authorization_id"], "status": "pending", "created": l.Now().Format(time.RFC3339)}
		writeJSON(w, 200, map[string]any{"transfer": l.Add("transfers", made)})
	}))
	mux.HandleFunc("POST /transfer/list", func(w http.ResponseWriter, r *http.Request) {
		in := readAny(r)
		if r.Header.Get("Plaid-Secret") == "" && in["secret"] == nil {
			writeJSON(w, 400, map[string]any{"error_type": "INVALID_REQUEST", "error_code": "MISSING_FIELDS"})
			return
		}
		count, _ := in["count"].(float64)
		offset, _ := in["offset"].(float64)
		all := l.Visible("transfers")
		all = all[min(int(offset), len(all)):]
		writeJSON(w, 200, map[string]any{"transfers": all[:min(int(count), len(all))]})
	})
	mux.Handle("/", newKeyedAPI(l, memory{key: field("idempotency_key"), keeps: plaidKeeps}, nil))
	return mux
}

// Wise makes transfers and moves balances; what it answers a second time is not
// known, so it does not deduplicate here.
func Wise() Spec {
	return simple("wise", nil, []Case{
		{Operation: "transfers.create", Method: "POST", Target: "/v1/transfers", Header: asJSON(), Body: `{"targetAccount":1}`},
		{Operation: "transfers.fund", Method: "POST", Target: "/v3/profiles/1/transfers/2/payments", Header: asJSON(), Body: `{"type":"BALANCE"}`},
		{Operation: "balances.move", Method: "POST", Target: "/v2/profiles/1/balance-movements", Header: asJSON(), Body: `{"type":"CONVERSION"}`},
		{Operation: "balances.open", Method: "POST", Target: "/v4/profiles/1/balances", Header: asJSON(), Body: `{"currency":"EUR"}`},
		{Operation: "delete", Method: "DELETE", Target: "/v4/profiles/1/balances/9", Header: asJSON(), Deduplicates: true},
		{Operation: "other", Method: "POST", Target: "/v1/accounts", Header: asJSON(), Body: `{}`},
	})
}

// ModernTreasury finds payment orders by their metadata.
func ModernTreasury() Spec {
	return Spec{Adapter: "modern-treasury", New: func(l *Ledger) http.Handler {
		mux := http.NewServeMux()
		mux.HandleFunc("GET /api/payment_orders", func(w http.ResponseWriter, r *http.Request) {
			want := r.URL.Query().Get("metadata[cf]")
			writeJSON(w, 200, slices.DeleteFunc(l.Visible("/api/payment_orders"), func(o map[string]any) bool {
				meta, _ := o["metadata"].(map[string]any)
				return fmt.Sprint(orNone(meta["cf"])) != want
			}))
		})
		return &rest{ledger: l, routes: mux, sets: changes}
	}, Cases: []Case{
		{Operation: "paymentOrders.create", Method: "POST", Target: "/api/payment_orders", Header: asJSON(), Body: `{"type":"ach","amount":1}`},
		{Operation: "put", Method: "PUT", Target: "/api/counterparties/1", Header: asJSON(), Body: `{"name":"x"}`, Deduplicates: true},
		{Operation: "delete", Method: "DELETE", Target: "/api/counterparties/2", Header: asJSON(), Deduplicates: true},
		{Operation: "other", Method: "POST", Target: "/api/counterparties", Header: asJSON(), Body: `{"name":"y"}`},
	}}
}

// Square finds payments and orders by their reference. For how long it knows a key
// is not published, so it does not deduplicate here.
func Square() Spec {
	return Spec{Adapter: "square", New: func(l *Ledger) http.Handler {
		mux := http.NewServeMux()
		made := func(kind string, inner bool) http.HandlerFunc {
			return func(w http.ResponseWriter, r *http.Request) {
				in := readAny(r)
				if o, ok := in[kind].(map[string]any); ok && inner {
					in = o
				}
				delete(in, "idempotency_key")
				writeJSON(w, 200, map[string]any{kind: l.Add(kind+"s", fielded(in, map[string]any{"created_at": l.Now().Format(time.RFC3339)}))})
			}
		}
		mux.HandleFunc("POST /v2/payments", made("payment", false))
		mux.HandleFunc("POST /v2/orders", made("order", true))
		mux.HandleFunc("GET /v2/payments", func(w http.ResponseWriter, _ *http.Request) {
			writeJSON(w, 200, map[string]any{"payments": l.Visible("payments")})
		})
		mux.HandleFunc("POST /v2/orders/search", func(w http.ResponseWriter, _ *http.Request) {
			writeJSON(w, 200, map[string]any{"orders": l.Visible("orders")})
		})
		return &rest{ledger: l, routes: mux, sets: func(r *http.Request, _ map[string]any) bool {
			return r.Method == http.MethodPut && !strings.HasPrefix(r.URL.Path, "/v2/orders/") || r.URL.Path == "/v2/payments/cancel"
		}}
	}, Reads: func(r *http.Request, _ []byte) bool { return strings.HasSuffix(r.URL.Path, "/search") }, Cases: []Case{
		{Operation: "payments.create", Method: "POST", Target: "/v2/payments", Header: asJSON(), Body: `{"source_id":"cnon:x","idempotency_key":"sdk-made"}`},
		{Operation: "orders.create", Method: "POST", Target: "/v2/orders", Header: asJSON(), Body: `{"order":{"location_id":"L1"}}`},
		{Operation: "payments.cancelByKey", Method: "POST", Target: "/v2/payments/cancel", Header: asJSON(), Body: `{"idempotency_key":"k1"}`, Deduplicates: true},
		{Operation: "keyed", Method: "POST", Target: "/v2/refunds", Header: asJSON(), Body: `{"payment_id":"p","idempotency_key":"sdk-made"}`},
		{Operation: "orders.update", Method: "PUT", Target: "/v2/orders/o1", Header: asJSON(), Body: `{"order":{"version":1,"line_items":[{"name":"tea","quantity":"1"}]}}`},
		{Operation: "put", Method: "PUT", Target: "/v2/customers/1", Header: asJSON(), Body: `{"note":"x"}`, Deduplicates: true},
		{Operation: "delete", Method: "DELETE", Target: "/v2/customers/2", Header: asJSON(), Deduplicates: true},
		{Operation: "other", Method: "POST", Target: "/v2/customers", Header: asJSON(), Body: `{"given_name":"Ada"}`},
	}}
}

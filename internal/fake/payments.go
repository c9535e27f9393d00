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
func keyedAPI(adapter string, key func(*http.Request, map[string]any) string, sets func(*http.Request, map[string]any) bool, cases []Case) Spec {
	return Spec{Adapter: adapter, Cases: cases, New: func(l *Ledger) http.Handler {
		state := &rest{ledger: l}
		post := keyed(key, func(w http.ResponseWriter, r *http.Request, in map[string]any) {
			if r.Method != http.MethodPost || sets != nil && sets(r, in) {
				state.set(w, r, in)
				return
			}
			state.make(w, r, in)
		})
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Method == http.MethodGet {
				state.ServeHTTP(w, r)
				return
			}
			post(w, r)
		})
	}}
}

// PayPal answers a key's second request with 200, and with what the first made.
func PayPal() Spec {
	own := func(name string) http.Header { return withHeader(asJSON(), "PayPal-Request-Id", "own-"+name) }
	post := func(operation, target string) Case {
		return Case{Operation: operation, Method: "POST", Target: target, Header: own(operation), Body: `{"amount":"1.00"}`, Deduplicates: true}
	}
	return Spec{Adapter: "paypal", New: func(l *Ledger) http.Handler {
		made := map[string]map[string]any{}
		state := &rest{ledger: l}
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			in, key := readAny(r), r.Header.Get("PayPal-Request-Id")
			switch known := made[key]; {
			case r.Method == http.MethodPut || r.Method == http.MethodDelete:
				state.set(w, r, in)
			case known != nil && key != "":
				writeJSON(w, 200, known)
			default:
				made[key] = l.Add(r.URL.Path, fielded(in, map[string]any{"status": "COMPLETED"}))
				writeJSON(w, 201, made[key])
			}
		})
	}, Cases: []Case{
		post("orders.create", "/v2/checkout/orders"), post("orders.authorize", "/v2/checkout/orders/O1/authorize"), post("orders.capture", "/v2/checkout/orders/O1/capture"),
		post("authorizations.capture", "/v2/payments/authorizations/A1/capture"), post("authorizations.reauthorize", "/v2/payments/authorizations/A1/reauthorize"),
		post("captures.refund", "/v2/payments/captures/C1/refund"), post("payouts.create", "/v1/payments/payouts"), post("plans.create", "/v1/billing/plans"),
		post("subscriptions.create", "/v1/billing/subscriptions"), post("subscriptions.capture", "/v1/billing/subscriptions/S1/capture"), post("products.create", "/v1/catalogs/products"),
		post("vault.paymentTokens", "/v3/vault/payment-tokens"), post("vault.setupTokens", "/v3/vault/setup-tokens"),
		{Operation: "put", Method: "PUT", Target: "/v2/invoicing/invoices/1", Header: asJSON(), Body: `{"note":"x"}`, Deduplicates: true},
		{Operation: "delete", Method: "DELETE", Target: "/v2/invoicing/invoices/2", Header: asJSON(), Deduplicates: true},
		{Operation: "other", Method: "POST", Target: "/v2/invoicing/invoices", Header: asJSON(), Body: `{}`},
	}}
}

// Adyen honours its Idempotency-Key.
func Adyen() Spec {
	return keyedAPI("adyen", header("Idempotency-Key"), nil, []Case{
		{Operation: "checkout", Method: "POST", Target: "/checkout/v71/payments", Header: asJSON(), Body: `{"reference":"o-1"}`, Deduplicates: true},
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
	return keyedAPI("checkout", header("Cko-Idempotency-Key"), nil, []Case{
		post("payments.request", "/payments"), post("contexts.request", "/payment-contexts"), post("payments.authorize", "/payments/p1/authorizations"),
		post("payments.cancel", "/payments/p1/cancellations"), post("payments.capture", "/payments/p1/captures"), post("payments.refund", "/payments/p1/refunds"),
		post("payments.void", "/payments/p1/voids"), post("transfers.create", "/transfers"),
		{Operation: "put", Method: "PUT", Target: "/workflows/1", Header: asJSON(), Body: `{"name":"x"}`, Deduplicates: true},
		{Operation: "delete", Method: "DELETE", Target: "/workflows/2", Header: asJSON(), Deduplicates: true},
		{Operation: "other", Method: "POST", Target: "/customers", Header: asJSON(), Body: `{}`},
	})
}

// Plaid honours keys in the body of some requests.
func Plaid() Spec {
	post := func(operation, target, body string, deduplicates bool) Case {
		return Case{Operation: operation, Method: "POST", Target: target, Header: asJSON(), Body: body, Deduplicates: deduplicates}
	}
	return keyedAPI("plaid", field("idempotency_key"), func(r *http.Request, _ map[string]any) bool { return r.URL.Path == "/transfer/create" }, []Case{
		post("transfer.authorize", "/transfer/authorization/create", `{"secret":"s","access_token":"a","amount":"1","idempotency_key":"own-1"}`, true),
		post("transfer.create", "/transfer/create", `{"secret":"s","access_token":"a","authorization_id":"x"}`, true),
		post("wallet.execute", "/wallet/transaction/execute", `{"secret":"s","idempotency_key":"own-2"}`, true),
		post("consent.execute", "/payment_initiation/consent/payment/execute", `{"secret":"s","idempotency_key":"own-3"}`, true),
		post("transfer.refund", "/transfer/refund/create", `{"secret":"s","transfer_id":"t","idempotency_key":"own-4"}`, true),
		post("other", "/transfer/cancel", `{"secret":"s","transfer_id":"t"}`, false),
	})
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

// Square finds payments and orders by their reference.
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
		return &rest{ledger: l, routes: mux, sets: func(r *http.Request, in map[string]any) bool {
			return r.Method == http.MethodPut || r.URL.Path == "/v2/payments/cancel"
		}}
	}, Reads: func(r *http.Request, _ []byte) bool { return strings.HasSuffix(r.URL.Path, "/search") }, Cases: []Case{
		{Operation: "payments.create", Method: "POST", Target: "/v2/payments", Header: asJSON(), Body: `{"source_id":"cnon:x","idempotency_key":"sdk-made"}`},
		{Operation: "orders.create", Method: "POST", Target: "/v2/orders", Header: asJSON(), Body: `{"order":{"location_id":"L1"}}`},
		{Operation: "payments.cancelByKey", Method: "POST", Target: "/v2/payments/cancel", Header: asJSON(), Body: `{"idempotency_key":"k1"}`, Deduplicates: true},
		{Operation: "keyed", Method: "POST", Target: "/v2/refunds", Header: asJSON(), Body: `{"payment_id":"p","idempotency_key":"sdk-made"}`},
		{Operation: "put", Method: "PUT", Target: "/v2/customers/1", Header: asJSON(), Body: `{"note":"x"}`, Deduplicates: true},
		{Operation: "delete", Method: "DELETE", Target: "/v2/customers/2", Header: asJSON(), Deduplicates: true},
		{Operation: "other", Method: "POST", Target: "/v2/customers", Header: asJSON(), Body: `{"given_name":"Ada"}`},
	}}
}

package fake

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
)

// stripeObjects are v1's top-level objects that bear metadata and whose list
// can be narrowed by time, with the prefix of their ids.
var stripeObjects = [...]struct{ plural, object, prefix, body string }{
	{"charges", "charge", "ch", "amount=700&currency=eur&source=tok_visa"},
	{"checkout/sessions", "checkout.session", "cs", "mode=payment&success_url=https%3A%2F%2Fexample.org"},
	{"credit_notes", "credit_note", "cn", "invoice=in_1"},
	{"coupons", "coupon", "co", "percent_off=10&duration=once"},
	{"customers", "customer", "cus", "email=a%40example.org&metadata[order]=7"},
	{"file_links", "file_link", "link", "file=file_1"},
	{"invoiceitems", "invoiceitem", "ii", "customer=cus_1&amount=5&currency=eur"},
	{"invoices", "invoice", "in", "customer=cus_1"},
	{"payment_intents", "payment_intent", "pi", "amount=700&currency=eur"},
	{"payouts", "payout", "po", "amount=5&currency=eur"},
	{"plans", "plan", "plan", "amount=5&currency=eur&interval=month&product=prod_1"},
	{"prices", "price", "price", "currency=eur&unit_amount=5&product=prod_1"},
	{"products", "product", "prod", "name=Ticket"},
	{"promotion_codes", "promotion_code", "promo", "coupon=co_1"},
	{"refunds", "refund", "re", "charge=ch_1"},
	{"setup_intents", "setup_intent", "seti", "usage=off_session"},
	{"shipping_rates", "shipping_rate", "shr", "display_name=Post"},
	{"subscription_schedules", "subscription_schedule", "sub_sched", "customer=cus_1"},
	{"subscriptions", "subscription", "sub", "customer=cus_1&items[0][price]=price_1"},
	{"tax_rates", "tax_rate", "txr", "display_name=VAT&percentage=19&inclusive=true"},
	{"topups", "topup", "tu", "amount=5&currency=eur"},
	{"transfers", "transfer", "tr", "amount=5&currency=eur&destination=acct_1"},
}

// Of these sources the first attempt fails with a 500 that is on record under
// its key, with the charge made or not.
const (
	StripeFailsMade   = "tok_fails_made"
	StripeFailsUnmade = "tok_fails_unmade"
)

// How long keys are honoured.
const (
	stripeKeepsV1 = 24 * time.Hour
	stripeKeepsV2 = 30 * 24 * time.Hour
)

// stripe is https://docs.stripe.com/api: v1 keeps the first answer of a key for
// a day once execution began, v2 keeps what succeeded for 30.
type stripe struct {
	ledger *Ledger
	keys   map[string]stripeFirst
}

// A stripeFirst is the first request of a key, and its answer.
type stripeFirst struct {
	print  string
	status int
	body   []byte
	at     time.Time
}

func newStripe(l *Ledger) http.Handler {
	s := &stripe{ledger: l, keys: map[string]stripeFirst{}}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /v1/balance", func(w http.ResponseWriter, _ *http.Request) {
		writeJSON(w, 200, map[string]any{"object": "balance"})
	})
	mux.HandleFunc("POST /v1/", s.keyed(stripeKeepsV1, s.postV1))
	mux.HandleFunc("POST /v2/", s.keyed(stripeKeepsV2, s.postV2))
	mux.HandleFunc("DELETE /v2/", s.keyed(stripeKeepsV2, s.remove))
	mux.HandleFunc("DELETE /v1/", func(w http.ResponseWriter, r *http.Request) {
		status, body := s.remove(r, nil)
		writeJSON(w, status, body)
	})
	mux.HandleFunc("GET /v1/", s.get)
	return s.authorized(mux)
}

func stripeError(kind, code, text string) map[string]any {
	return map[string]any{"error": map[string]any{"type": kind, "code": code, "message": text}}
}

func (s *stripe) authorized(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") == "" {
			writeJSON(w, 401, stripeError("invalid_request_error", "", "You did not provide an API key."))
			return
		}
		next.ServeHTTP(w, r)
	})
}

// keyed answers a key that is known from its record. What failed before it was
// executed is not kept; of v2 nothing that failed is.
func (s *stripe) keyed(keeps time.Duration, do func(*http.Request, []byte) (int, any)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body) // it is in memory
		key, request := r.Header.Get("Idempotency-Key"), r.Method+" "+r.RequestURI+"\n"+string(body)
		first, known := s.keys[key]
		switch {
		case known && key != "" && s.ledger.Now().Sub(first.at) < keeps && first.print != request:
			writeJSON(w, 400, stripeError("idempotency_error", "", "Keys for idempotent requests can only be used with the same parameters they were first used with."))
			return
		case known && key != "" && s.ledger.Now().Sub(first.at) < keeps:
			w.Header().Set("Idempotent-Replayed", "true")
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(first.status)
			_, _ = w.Write(first.body)
			return
		}
		status, answer := do(r, body)
		if status < 300 || status >= 500 && keeps == stripeKeepsV1 {
			text, _ := json.Marshal(answer) // made of JSON's types
			s.keys[key] = stripeFirst{request, status, append(text, '\n'), s.ledger.Now()}
		}
		writeJSON(w, status, answer)
	}
}

func (s *stripe) postV1(r *http.Request, body []byte) (int, any) {
	r.Body = io.NopCloser(bytes.NewReader(body))
	form, ok := readForm(r)
	if !ok && len(body) > 0 {
		return 400, stripeError("invalid_request_error", "", "Invalid request: the body is no form.")
	}
	path := strings.TrimPrefix(r.URL.Path, "/v1/")
	for _, o := range stripeObjects {
		if path == o.plural {
			return s.create(o.plural, o.object, o.prefix, form)
		}
	}
	if form.Has("metadata[cf]") {
		return 400, stripeError("invalid_request_error", "parameter_unknown", "Received unknown parameter: metadata")
	}
	if path == "billing/meter_events" {
		return 200, s.ledger.Add(path, map[string]any{"object": "billing.meter_event", "event_name": form.Get("event_name"), "created": s.ledger.Now().Unix()})
	}
	return s.change(path, form)
}

// change is a POST to an object, or to an action of one.
func (s *stripe) change(path string, form url.Values) (int, any) {
	for _, o := range stripeObjects {
		rest, ok := strings.CutPrefix(path, o.plural+"/")
		id, action, _ := strings.Cut(rest, "/")
		if !ok || s.ledger.Get(o.plural, id) == nil {
			continue
		}
		made := s.ledger.Add("change", map[string]any{"of": id, "action": action})
		return 200, s.ledger.Put("answer", map[string]any{"id": id, "object": o.object, "change": made["id"], "description": form.Get("description")})
	}
	return 404, stripeError("invalid_request_error", "resource_missing", "No such object: "+path)
}

func (s *stripe) create(kind, object, prefix string, form url.Values) (int, any) {
	if kind == "charges" && (form.Get("amount") == "" || form.Get("currency") == "") {
		return 400, stripeError("invalid_request_error", "parameter_missing", "Missing required param: amount or currency.")
	}
	source := form.Get("source")
	if source == StripeFailsUnmade {
		return 500, stripeError("api_error", "", "An unknown error occurred.")
	}
	made := map[string]any{"id": fmt.Sprintf("%s_%d", prefix, s.ledger.Next()), "object": object, "created": s.ledger.Now().Unix(), "metadata": map[string]any{}}
	for name := range form {
		if inner, ok := strings.CutPrefix(name, "metadata["); ok {
			made["metadata"].(map[string]any)[strings.TrimSuffix(inner, "]")] = form.Get(name)
		} else if !strings.Contains(name, "[") {
			made[name] = form.Get(name)
		}
	}
	if kind == "subscriptions" {
		made["status"] = "active"
	}
	made = s.ledger.Add(kind, made)
	if source == StripeFailsMade {
		return 500, stripeError("api_error", "", "An unknown error occurred.")
	}
	return 200, made
}

func (s *stripe) postV2(r *http.Request, body []byte) (int, any) {
	r.Body = io.NopCloser(bytes.NewReader(body))
	object, ok := readJSON(r)
	switch {
	case r.Header.Get("Stripe-Version") == "":
		return 400, stripeError("invalid_request_error", "", "Stripe-Version is missing.")
	case !ok:
		return 400, stripeError("invalid_request_error", "", "The body is no JSON object.")
	}
	object["created"] = s.ledger.Now().Format(time.RFC3339)
	return 200, s.ledger.Add(strings.TrimPrefix(r.URL.Path, "/v2/"), object)
}

// remove deletes the object at the end of a path of v1 or v2.
func (s *stripe) remove(r *http.Request, _ []byte) (int, any) {
	path := r.URL.Path[len("/v1/"):]
	i := strings.LastIndexByte(path, '/')
	if i < 0 || !s.ledger.Remove(path[:i], path[i+1:]) {
		return 404, stripeError("invalid_request_error", "resource_missing", "No such object: "+path)
	}
	return 200, map[string]any{"id": path[i+1:], "deleted": true}
}

func (s *stripe) get(w http.ResponseWriter, r *http.Request) {
	path := strings.TrimPrefix(r.URL.Path, "/v1/")
	for _, o := range stripeObjects {
		if path == o.plural {
			s.list(w, r, o.plural)
			return
		}
		if id, ok := strings.CutPrefix(path, o.plural+"/"); ok && s.ledger.Get(o.plural, id) != nil {
			writeJSON(w, 200, s.ledger.Get(o.plural, id))
			return
		}
	}
	writeJSON(w, 404, stripeError("invalid_request_error", "resource_missing", "No such object: "+path))
}

// list answers the newest first, a page at a time.
func (s *stripe) list(w http.ResponseWriter, r *http.Request, kind string) {
	q := r.URL.Query()
	since, _ := strconv.ParseInt(q.Get("created[gte]"), 10, 64)
	limit, err := strconv.Atoi(q.Get("limit"))
	if err != nil {
		limit = 10
	}
	page, begun := []any{}, q.Get("starting_after") == ""
	all, more := s.ledger.Visible(kind), false
	for _, o := range slices.Backward(all) {
		switch {
		case !begun:
			begun = o["id"] == q.Get("starting_after")
		case o["created"].(int64) < since, !stripeShows(kind, o, q):
		case len(page) == limit:
			more = true
		default:
			page = append(page, o)
		}
	}
	writeJSON(w, 200, map[string]any{"object": "list", "url": r.URL.Path, "data": page, "has_more": more})
}

func stripeShows(kind string, o map[string]any, q url.Values) bool {
	if kind != "subscriptions" {
		return true
	}
	ended := o["status"] == "canceled"
	return (!ended || q.Get("status") == "all") && (!q.Has("customer") || o["customer"] == q.Get("customer"))
}

// Stripe is v1 and v2 of Stripe's API.
func Stripe() Spec {
	form := http.Header{"Authorization": {"Bearer sk_test_1"}, "Content-Type": {"application/x-www-form-urlencoded"}}
	v2 := http.Header{"Authorization": {"Bearer sk_test_1"}, "Content-Type": {"application/json"}, "Stripe-Version": {"2026-01-28.clover"}}
	customer := func(id string) func(l *Ledger) {
		return func(l *Ledger) {
			l.Put("customers", map[string]any{"id": id, "object": "customer", "created": int64(0)})
		}
	}
	s := Spec{Adapter: "stripe", New: newStripe, Cases: []Case{
		{Operation: "billing.meter_events.create", Method: "POST", Target: "/v1/billing/meter_events", Header: form, Body: "event_name=tokens&payload[value]=5", Deduplicates: true},
		{Operation: "v1.post", Method: "POST", Target: "/v1/customers/cus_old", Header: form, Body: "description=x", Setup: customer("cus_old"), Deduplicates: true},
		{Operation: "v1.delete", Method: "DELETE", Target: "/v1/customers/cus_gone", Header: form, Setup: customer("cus_gone"), Recovered: ".none", Deduplicates: true},
		{Operation: "v2.post", Method: "POST", Target: "/v2/core/event_destinations", Header: v2, Body: `{"name":"hook"}`, Deduplicates: true},
		{Operation: "v2.delete", Method: "DELETE", Target: "/v2/core/event_destinations/ed_old", Header: v2, Setup: func(l *Ledger) {
			l.Put("core/event_destinations", map[string]any{"id": "ed_old"})
		}, Deduplicates: true},
	}}
	for _, o := range stripeObjects {
		s.Cases = append(s.Cases, Case{
			Operation: strings.ReplaceAll(o.plural, "/", ".") + ".create", Method: "POST", Target: "/v1/" + o.plural, Header: form, Body: o.body, Deduplicates: true,
		})
	}
	return s
}

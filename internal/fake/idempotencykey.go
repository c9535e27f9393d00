package fake

import "net/http"

// IdempotencyKey is a provider of whom no more is known than that it honours an
// Idempotency-Key on POST and PATCH.
func IdempotencyKey() Spec {
	header := http.Header{"Content-Type": {"application/json"}}
	return Spec{Adapter: "idempotency-key", New: func(l *Ledger) http.Handler {
		made := map[string]map[string]any{}
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			key := r.Header.Get("Idempotency-Key")
			if key == "" || made[key] == nil {
				made[key] = l.Add("thing", map[string]any{"path": r.URL.Path})
			}
			writeJSON(w, 201, made[key])
		})
	}, Cases: []Case{
		{Operation: "any", Method: "POST", Target: "/orders", Header: header, Body: `{"item":7}`, Deduplicates: true},
		{Operation: "any", Method: "PATCH", Target: "/orders/1", Header: header, Body: `{"item":8}`, Deduplicates: true},
	}}
}

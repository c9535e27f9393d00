package fake

import (
	"fmt"
	"net/http"
	"reflect"
	"strings"
	"time"
)

// shopifyRemembers is how long a key of the directive is remembered.
const shopifyRemembers = 24 * time.Hour

// shopify is https://shopify.dev/docs/api/admin-graphql: some mutations bear the
// directive @idempotent, and have to.
type shopify struct {
	ledger *Ledger
	keys   map[string]shopifyKey
}

type shopifyKey struct {
	field, id string
	args      map[string]any
	at        time.Time
}

func newShopify(l *Ledger) http.Handler {
	s := &shopify{l, map[string]shopifyKey{}}
	server := &gqlServer{nullable: true, fields: map[string]func(gqlField) (any, *gqlError){
		"refundCreate": func(f gqlField) (any, *gqlError) { return s.once("refund", "Refund", f) },
		"inventoryAdjustQuantities": func(f gqlField) (any, *gqlError) {
			return s.once("inventoryAdjustmentGroup", "InventoryAdjustmentGroup", f)
		},
		"orderCreate": func(f gqlField) (any, *gqlError) {
			return map[string]any{"order": s.add("Order", f), "userErrors": []any{}}, nil
		},
		"shop": func(gqlField) (any, *gqlError) { return map[string]any{"name": "x"}, nil },
	}}
	server.refuse = func(r *http.Request, _ string, _ []gqlField) *gqlError {
		if !strings.HasSuffix(r.URL.Path, "/graphql.json") || r.Header.Get("X-Shopify-Access-Token") == "" {
			return gqlRefusal("access denied", "ACCESS_DENIED")
		}
		return nil
	}
	return server
}

func (s *shopify) add(kind string, f gqlField) map[string]any {
	return s.ledger.Add(kind, map[string]any{"id": fmt.Sprintf("gid://shopify/%s/%d", kind, s.ledger.Next()), "of": f.args})
}

// once does what its key has not done yet. What is answered again is the state as
// it is by then.
func (s *shopify) once(object, kind string, f gqlField) (any, *gqlError) {
	key, _ := f.directives["idempotent"]["key"].(string)
	if key == "" {
		return nil, gqlRefusal("The @idempotent directive is required", "BAD_REQUEST")
	}
	known, there := s.keys[key]
	if there && s.ledger.Now().Sub(known.at) < shopifyRemembers {
		if known.field != f.name || !reflect.DeepEqual(known.args, f.args) {
			return shopifyFailed(object, "IDEMPOTENCY_KEY_PARAMETER_MISMATCH", "The same idempotency key cannot be used with different operation parameters."), nil
		}
		return map[string]any{object: s.ledger.Get(kind, known.id), "userErrors": []any{}}, nil
	}
	made := s.add(kind, f)
	s.keys[key] = shopifyKey{f.name, fmt.Sprint(made["id"]), f.args, s.ledger.Now()}
	return map[string]any{object: made, "userErrors": []any{}}, nil
}

func shopifyFailed(object, code, message string) map[string]any {
	return map[string]any{object: nil, "userErrors": []any{map[string]any{"code": code, "message": message, "field": nil}}}
}

// Shopify is Shopify's Admin GraphQL API.
func Shopify() Spec {
	header := http.Header{"X-Shopify-Access-Token": {"shpat_1"}, "Content-Type": {"application/json"}}
	spec := Spec{Adapter: "shopify", New: newShopify, Reads: gqlReads}
	add := func(operation, version, document string, variables map[string]any, deduplicates bool) {
		spec.Cases = append(spec.Cases, Case{
			Operation: operation, Method: "POST", Target: "/admin/api/" + version + "/graphql.json", Header: header,
			Body: gqlBody(document, variables), Deduplicates: deduplicates,
		})
	}
	add("idempotent", "2026-04", `mutation($input: RefundInput!) { refundCreate(input: $input) @idempotent(key: "theirs-1") { refund { id } userErrors { field message code } } }`,
		map[string]any{"input": map[string]any{"orderId": "gid://shopify/Order/1"}}, true)
	add("idempotent", "2026-07", `mutation Adjust($input: InventoryAdjustQuantitiesInput!, $k: String!) { inventoryAdjustQuantities(input: $input) @idempotent(key: $k) { inventoryAdjustmentGroup { id } userErrors { message } } }`,
		map[string]any{"input": map[string]any{"name": "available", "reason": "correction"}, "k": "theirs-2"}, true)
	add("other", "2026-04", `mutation { orderCreate(order: {currency: EUR}) { order { id } userErrors { message } } }`, nil, false)
	return spec
}

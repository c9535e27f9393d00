package providers

import (
	"fmt"
	"strings"
	"testing"

	"counterfoil/classify"
)

// ofMany is an adapter of n operations, the last of which are of the kinds that
// matching costs most for.
func ofMany(b *testing.B, n int) *Adapter {
	b.Helper()
	var text strings.Builder
	text.WriteString("name: x\noperations:\n")
	for i := range n {
		fmt.Fprintf(&text, "  - {name: op%d, when: {method: [POST], path: /v1/things%d/*/parts}, class: effect, marker: {place: json, name: /metadata/cf, create: true}}\n", i, i)
	}
	text.WriteString(`
  - {name: refund, when: {method: [POST], path: "/**/orders/*/refunds", json: '.type == "full"'}, class: effect}
  - {name: rest, when: {method: [POST]}, class: effect, marker: {place: json, name: /metadata/cf, create: true}}
`)
	return mustParse(b, text.String())
}

var benchBody = `{"type":"part","amount":4200,"currency":"eur","description":"` + strings.Repeat("lorem ", 100) + `","items":[{"sku":"a","n":1},{"sku":"b","n":2}]}`

// What matching and classifying costs, by the number of operations.
func BenchmarkRead(b *testing.B) {
	for _, n := range []int{1, 10, 100, 1000} {
		a := ofMany(b, n)
		for _, bb := range []struct{ name, target string }{
			{"first", "/v1/things0/7/parts"}, {"last", fmt.Sprintf("/v1/things%d/7/parts", n-1)}, {"program", "/v1/orders/7/refunds"},
		} {
			r := postJSON(bb.target, benchBody)
			b.Run(fmt.Sprintf("of-%d/%s", n, bb.name), func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					rd, _ := a.Read(r)
					if rd.Class() != classify.Effect {
						b.Fatal("no effect")
					}
				}
			})
		}
	}
}

func BenchmarkStamp(b *testing.B) {
	a := ofMany(b, 1)
	r := postJSON("/v1/things0/7/parts", benchBody)
	rd, _ := a.Read(r)
	b.ReportAllocs()
	for b.Loop() {
		if _, _, err := rd.Stamp(r, Stamps{Key: sampleKey, Marker: sampleKey}); err != nil {
			b.Fatal(err)
		}
	}
}

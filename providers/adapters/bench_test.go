package adapters

import (
	"slices"
	"testing"
	"time"

	"counterfoil/internal/fake"
	"counterfoil/providers"
	"counterfoil/providers/graphql"
	"counterfoil/providers/llm"
	"counterfoil/providers/mcp"
)

// What it costs to find out what a request is, for every request of every provider
// of ours, with all adapters loaded. An upstream asks its own adapter only, so
// their number does not count.
func BenchmarkRead(b *testing.B) {
	all, err := Load()
	if err != nil {
		b.Fatal(err)
	}
	known := providers.Dialects{"graphql": graphql.New, "llm": llm.New, "mcp": mcp.New}
	for _, spec := range fake.Specs() {
		named := all.Named(spec.Adapter)
		if named == nil {
			b.Fatalf("no adapter %s", spec.Adapter)
		}
		a := named.For(known, providers.Settings{})
		b.Run(spec.Adapter, func(b *testing.B) {
			b.ReportAllocs()
			var took []time.Duration
			for b.Loop() {
				for _, c := range spec.Cases {
					r := requestOf(c)
					start := time.Now()
					rd, _ := a.Read(r)
					_ = rd.Class()
					took = append(took, time.Since(start))
				}
			}
			slices.Sort(took)
			b.ReportMetric(float64(took[len(took)/2]), "ns-median")
			b.ReportMetric(float64(took[len(took)*99/100]), "ns-p99")
		})
	}
}

package proxy

import (
	"fmt"
	"net"
	"testing"
)

// benchmark sends one raw request over and over, on one connection for each
// processor, through a whole stack whose provider answers 1 KiB.
func benchmark(b *testing.B, raw func(n int) string) {
	b.Helper()
	body := noise(1 << 10)
	p := provide(b, func(w net.Conn, _ *heard) { say(w, 200, body, "Content-Type: application/json") })
	st := start(b, setup{provider: p})
	b.ReportAllocs()
	b.ResetTimer()
	b.RunParallel(func(pb *testing.PB) {
		c := dial(b, st.addr)
		for n := 0; pb.Next(); n++ {
			c.say(raw(n))
			if g, err := c.hear("POST"); err != nil || g.status != 200 {
				b.Errorf("%+v, %v", g, err)
				return
			}
		}
	})
}

func BenchmarkRead(b *testing.B) {
	raw := request("GET", "/tickets/x", "")
	benchmark(b, func(int) string { return raw })
}

func BenchmarkReplay(b *testing.B) {
	raw := request("POST", "/tickets/x", `{"a":1}`, "Counterfoil-Run: r", "Counterfoil-Turn: t", "Counterfoil-Call: c")
	benchmark(b, func(int) string { return raw })
}

func BenchmarkEffect(b *testing.B) {
	benchmark(b, func(n int) string {
		return request("POST", "/tickets/x", `{"a":1}`, fmt.Sprintf("Counterfoil-Run: r%p", &n), "Counterfoil-Turn: t", fmt.Sprintf("Counterfoil-Call: %d", n))
	})
}

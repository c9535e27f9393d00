package proxy

import (
	"net"
	"testing"

	"counterfoil/internal/journal"
)

func TestAsidesAreTold(t *testing.T) {
	told := make(chan Aside, 8)
	p := provide(t, func(w net.Conn, _ *heard) { say(w, 200, "{}") })
	st := start(t, setup{provider: p, proxy: func(c *Config) { c.Observe = func(a Aside) { told <- a } }})
	for range 2 { // what the kit asked, to see that its listeners answer
		<-told
	}
	for _, row := range []struct {
		target string
		want   Aside
	}{
		{"/tickets/x", Aside{Upstream: "tickets", Outcome: journal.Passthrough}},
		{"/nobody/x", Aside{Outcome: journal.Refused, Problem: journal.UnknownUpstream}},
		{"/tickets/%2e%2e/x", Aside{Outcome: journal.Refused, Problem: InvalidPath}},
	} {
		st.get(row.target)
		got := <-told
		if got.Took <= 0 {
			t.Errorf("%s: took %s", row.target, got.Took)
		}
		if got.Took = 0; got != row.want {
			t.Errorf("%s: got %+v, want %+v", row.target, got, row.want)
		}
	}
	st.post("r", "1", "1", "/tickets/x", "{}")
	if len(told) > 0 {
		t.Errorf("a call was told as an aside: %+v", <-told)
	}
}

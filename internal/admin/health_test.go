package admin

import (
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"counterfoil/keystore"
	"counterfoil/keystore/storetest"
)

func TestReadiness(t *testing.T) {
	b := newBench(t, nil)
	observer := Observe(b.server.metrics, slog.New(slog.DiscardHandler))
	want := func(ready bool, reasons ...string) {
		t.Helper()
		a := b.get("/ready")
		got := decode[Readiness](t, a)
		ok := (a.status == 200) == ready && (a.status == 503) == !ready && got.Ready == ready && len(got.Reasons) == len(reasons)
		for i := 0; ok && i < len(reasons); i++ {
			ok = strings.HasPrefix(got.Reasons[i], reasons[i])
		}
		if !ok {
			t.Errorf("got %d %s, want ready %t %q", a.status, a.body, ready, reasons)
		}
		if a := b.get("/live"); a.status != 200 {
			t.Errorf("/live: %d", a.status)
		}
	}
	want(false, "starting")
	b.server.Enter(Serving)
	want(true)
	if body := b.get("/ready").body; strings.TrimSpace(body) != `{"ready":true,"reasons":[]}` {
		t.Errorf("ready is %s", body)
	}

	b.disk.SetFull(true)
	want(false, "the journal's disk is full")
	b.disk.SetFull(false)
	b.disk.Fail(storetest.Fault{Op: storetest.Read})
	want(false, "the journal cannot be read")
	want(true)

	refused := fmt.Errorf("begin: %w", keystore.ErrUnavailable)
	observer.Trouble("the store refused an operation", key("a"), refused)
	want(false, "the journal did not take")
	b.server.metrics.CommitObserved(1, 100, time.Millisecond)
	want(true)
	observer.Trouble("the store refused an operation", key("a"), refused)
	b.clock.Advance(refusalCounts - 1)
	want(false, "the journal did not take")
	b.clock.Advance(1)
	want(true)
	observer.Trouble("reading an intent's body", key("a"), errors.New("something else"))
	want(true)

	b.disk.SetFull(true)
	b.server.Enter(Draining)
	want(false, "draining", "the journal's disk is full")
}

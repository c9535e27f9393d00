package proxy

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"time"

	"counterfoil/internal/journal"
)

func TestHush(t *testing.T) {
	var h hush
	start := time.Unix(1e9, 0)
	for _, row := range []struct {
		after time.Duration
		p     journal.Problem
		more  int
		ok    bool
	}{
		{0, MissingKey, 0, true},
		{1, MissingKey, 0, false},
		{2, InvalidKey, 0, true},
		{hushFor - 1, MissingKey, 0, false},
		{hushFor, MissingKey, 2, true},
		{hushFor + 1, MissingKey, 0, false},
		{3 * hushFor, InvalidKey, 0, true},
	} {
		if more, ok := h.speak(row.p, start.Add(row.after)); more != row.more || ok != row.ok {
			t.Errorf("%s after %v: %d, %v", row.p, row.after, more, ok)
		}
	}
}

// An agent that is refused shows in the log as it is by default, once.
func TestRefusedAgentsAreWarnedOf(t *testing.T) {
	var log bytes.Buffer
	st := start(t, setup{provider: provide(t, created), proxy: func(c *Config) { c.Logger = slog.New(slog.NewTextHandler(&log, nil)) }})
	for range 3 {
		ask(t, st.addr, request("POST", "/tickets/x?q=s3cret", "{}")).isProblem(t, MissingKey)
	}
	ask(t, st.addr, request("POST", "/s3cret/x", "{}")).isProblem(t, journal.UnknownUpstream)
	st.get("/-/v1/runs/nobody").isProblem(t, NotFound)
	st.stop() // no more is written
	lines := strings.Split(strings.TrimSpace(log.String()), "\n")
	if len(lines) != 2 || !strings.Contains(lines[0], "level=WARN") || !strings.Contains(lines[0], "problem=missing-key") ||
		!strings.Contains(lines[1], "problem=unknown-upstream") || strings.Contains(log.String(), "s3cret") {
		t.Errorf("%q", lines)
	}
}

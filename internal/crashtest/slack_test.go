package crashtest

import (
	"bytes"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"testing"

	"counterfoil/internal/crashpoint"
	"counterfoil/internal/fake"
)

// TestSlackSecretsAreNotStored: the address of a webhook is its secret, and a
// token may be in a body. A sidecar that died with both in flight has neither
// on disk, and the agent's own repeat is known again.
func TestSlackSecretsAreNotStored(t *testing.T) {
	const address, token = "WebhookSecret0123456789", "xoxb-TokenSecret0123456789"
	spec := fake.Slack()
	spec.Cases = []fake.Case{
		{Operation: "webhook", Method: "POST", Target: "/services/T1/B1/" + address, Header: http.Header{"Content-Type": {"application/json"}}, Body: `{"text":"hello"}`},
		{Operation: "chat.postMessage", Method: "POST", Target: "/api/chat.postMessage", Header: http.Header{"Content-Type": {"application/x-www-form-urlencoded"}}, Body: "channel=C1&text=hello&token=" + token},
	}
	b := newBench(t)
	st := serveStand(t, spec, "slack", fake.CommitThenHang)
	b.configure(fmt.Sprintf("upstreams:\n  slack: {url: %q, adapter: slack, pause_on_unknown: call}\n", st.URL))
	k := &killing{bench: b, spec: spec, adapter: bound(t, catalogue(t), "slack"), stands: []*stand{st}}
	k.die(death{crashpoint.SendAfter, false}, st)
	err := filepath.WalkDir(filepath.Join(b.dir, "data"), func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := os.ReadFile(path)
		for _, secret := range []string{address, token} {
			if bytes.Contains(text, []byte(secret)) {
				t.Errorf("%s holds %s", filepath.Base(path), secret)
			}
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	heir := b.released()
	for n, c := range spec.Cases {
		// Nothing can be asked with a token that stands in a body.
		if r := heir.sendCase(st, n); r.outcome() != "unknown" || st.trace(n).effects != 1 {
			t.Errorf("%s: %s with %d effects, not unknown", c.Operation, r, st.trace(n).effects)
		}
	}
}

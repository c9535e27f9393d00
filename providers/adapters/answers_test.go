package adapters

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"counterfoil/classify"
	"counterfoil/internal/fake"
	"counterfoil/providers"
)

// judged is what the adapter makes of an answer to a case; 0 where the status
// decides.
func judged(t *testing.T, name string, c fake.Case, status int, contentType, body string) providers.Judgement {
	t.Helper()
	all, err := Load()
	if err != nil {
		t.Fatal(err)
	}
	r := requestOf(c)
	rd, _ := all.Named(name).Read(r)
	header := classify.Header{{Name: "Content-Type", Value: contentType}}
	w := rd.Watch(providers.Query{Key: marker, Marker: marker, Original: r}, providers.Head{Status: status, Header: header, Length: int64(len(body))}, false)
	if w == nil {
		return providers.Judgement{}
	}
	w.Write([]byte(body))
	return w.End(t.Context())
}

func caseOf(t *testing.T, spec fake.Spec, operation string) fake.Case {
	t.Helper()
	i := slices.IndexFunc(spec.Cases, func(c fake.Case) bool { return c.Operation == operation })
	if i < 0 {
		t.Fatalf("%s has no case of %s", spec.Adapter, operation)
	}
	return spec.Cases[i]
}

func TestSlackAnswers(t *testing.T) {
	post := caseOf(t, fake.Slack(), "chat.postMessage")
	for code, want := range map[string]classify.Outcome{
		"channel_not_found": classify.Rejected, "not_in_channel": classify.Rejected, "is_archived": classify.Rejected, "no_text": classify.Rejected,
		"msg_too_long": classify.Rejected, "restricted_action_read_only_channel": classify.Rejected, "invalid_blocks_format": classify.Rejected,
		"invalid_auth": classify.NotApplied, "not_authed": classify.NotApplied, "missing_scope": classify.NotApplied,
		"ratelimited": classify.NotApplied, "rate_limited": classify.NotApplied, "request_timeout": classify.NotApplied,
		"fatal_error": classify.Ambiguous, "internal_error": classify.Ambiguous, "service_unavailable": classify.Ambiguous,
		"duplicate_message_not_found": classify.Ambiguous, "whatever_comes_next": classify.Ambiguous, "already_reacted": classify.Ambiguous,
	} {
		if got := judged(t, "slack", post, 200, "application/json; charset=utf-8", fmt.Sprintf(`{"ok":false,"error":%q}`, code)); got.Outcome != want || got.Stuck {
			t.Errorf("%s is %s, not %s: %+v", code, got.Outcome, want, got)
		}
	}
	for body, want := range map[string]classify.Outcome{`{"ok":true}`: classify.Applied, `{"ok":false}`: classify.Ambiguous} {
		if got := judged(t, "slack", post, 200, "application/json", body); got.Outcome != want {
			t.Errorf("%s is %s, not %s: %+v", body, got.Outcome, want, got)
		}
	}
	if got := judged(t, "slack", caseOf(t, fake.Slack(), "reactions.add"), 200, "application/json", `{"ok":false,"error":"already_reacted"}`); got.Outcome != classify.Applied {
		t.Errorf("a reaction that is there already is %s", got.Outcome)
	}
	if got := judged(t, "slack", caseOf(t, fake.Slack(), "webhook"), 200, "text/html", "ok"); got.Outcome != 0 || got.Stuck {
		t.Errorf("a webhook's answer is %+v", got)
	}
}

func TestStripeAnswers(t *testing.T) {
	charge := caseOf(t, fake.Stripe(), "charges.create")
	if got := judged(t, "stripe", charge, 400, "application/json", `{"error":{"type":"idempotency_error"}}`); got.Outcome != classify.Ambiguous || got.Alarm == "" {
		t.Errorf("a key that was used for another request is %+v", got)
	}
	if got := judged(t, "stripe", charge, 409, "application/json", `{"error":{"type":"invalid_request_error","code":"idempotency_key_in_use"}}`); got.Outcome != classify.Ambiguous || !got.InFlight {
		t.Errorf("a key that is in use is %+v", got)
	}
	for _, body := range []string{`{"error":{"type":"invalid_request_error","code":"parameter_missing"}}`, `{"error":"odd"}`, `[]`} {
		if got := judged(t, "stripe", charge, 400, "application/json", body); got.Outcome != 0 || got.Stuck {
			t.Errorf("%s is %+v", body, got)
		}
	}
}

// A lookup goes as far as it says, and no further: behind that it proves
// nothing.
func TestPages(t *testing.T) {
	for _, tt := range []struct {
		spec      fake.Spec
		operation string
		others    int
		want      providers.Discovery
	}{
		{fake.Stripe(), "charges.create", 250, providers.Found},
		{fake.Stripe(), "charges.create", 600, providers.Inconclusive},
		{fake.Slack(), "chat.postMessage", 250, providers.Found},
		{fake.Slack(), "chat.postMessage", 400, providers.Inconclusive},
		{fake.GitHub(), "issues.create", 250, providers.Found},
		{fake.GitHub(), "issues.create", 400, providers.Inconclusive},
	} {
		t.Run(fmt.Sprintf("%s %s before %d others", tt.spec.Adapter, tt.operation, tt.others), func(t *testing.T) {
			all, err := Load()
			if err != nil {
				t.Fatal(err)
			}
			s, err := fake.Serve(tt.spec, nil)
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			c := caseOf(t, tt.spec, tt.operation)
			if c.Setup != nil {
				c.Setup(s.Ledger)
			}
			r := requestOf(c)
			rd, _ := all.Named(tt.spec.Adapter).Read(r)
			stamped, stamps, err := rd.Stamp(r, providers.Stamps{Key: marker, Marker: marker})
			if err != nil {
				t.Fatal(err)
			}
			began := time.Now()
			send(t, s, &stamped)
			plain := *r
			for i := range tt.others {
				plain.Header = r.Header.Set("Idempotency-Key", fmt.Sprint("other-", i))
				send(t, s, &plain)
			}
			f := search(t, s, rd, providers.Query{Key: stamps.Key, Marker: marker, SentAt: began, Original: &stamped})
			if f.Discovery != tt.want || f.Lasting != (tt.want == providers.Inconclusive) {
				t.Errorf("%s (%s), not %s", f.Discovery, f.Reason, tt.want)
			}
		})
	}
}

// An Enterprise server has the API below a path. What an upstream's URL has of
// it stands in no request, and in no lookup.
func TestGitHubEnterprise(t *testing.T) {
	all, err := Load()
	if err != nil {
		t.Fatal(err)
	}
	a := all.Named("github").For(nil, providers.Settings{BasePath: "/api/v3"})
	for _, tt := range []struct{ operation, want string }{
		{"issues.createComment", "/repos/o/r/issues/5/comments?"},
		{"repos.putContents", "/repos/o/r/contents/docs%2Fb.md?ref=main"},
		{"issues.updateComment", "/repos/o/r/issues/comments/910"},
	} {
		spec := fake.GitHub()
		slices.Reverse(spec.Cases) // of two, the plainer path
		r := requestOf(caseOf(t, spec, tt.operation))
		rd, _ := a.Read(r)
		if rd.Operation == nil || rd.Operation.Name != tt.operation {
			t.Fatalf("%s is read as %+v", tt.operation, rd.Operation)
		}
		got, _ := rd.Search(providers.Query{Key: marker, Marker: marker, SentAt: time.Now(), Original: r}).Next()
		if got == nil || !strings.HasPrefix(got.Target, tt.want) {
			t.Errorf("%s is looked up by %+v, not %s", tt.operation, got, tt.want)
		}
	}
}

package classify

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func mustSecrets(t testing.TB, query, headers []string) *Secrets {
	t.Helper()
	s, err := NewSecrets(query, headers)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func testMAC(value []byte) string {
	h := hmac.New(sha256.New, []byte("test key"))
	h.Write(value)
	return hex.EncodeToString(h.Sum(nil))[:16]
}

// starMAC makes expected targets legible.
func starMAC([]byte) string { return "*" }

func TestIsCredential(t *testing.T) {
	s := mustSecrets(t, nil, []string{"X-Tenant-Key"})
	for name, want := range map[string]bool{
		"Authorization": true, "authorization": true, "COOKIE": true, "Proxy-Authorization": true, "X-Api-Key": true, "x-api-key": true,
		"Counterfoil-Token": true, "x-tenant-key": true, "X-Tenant": false, "Accept": false, "": false, "Set-Cookie": false,
	} {
		if got := s.IsCredential(name); got != want {
			t.Errorf("%q: got %v, want %v", name, got, want)
		}
	}
	if mustSecrets(t, nil, nil).IsCredential("X-Tenant-Key") {
		t.Error("one upstream's header is another's credential")
	}
}

func TestNewSecretsSaysWhatToDo(t *testing.T) {
	_, err := NewSecrets([]string{" "}, []string{"X Key", ""})
	for _, hint := range []string{"empty name", `"X Key" is no header name`, `"" is no header name`} {
		if err == nil || !strings.Contains(err.Error(), hint) {
			t.Errorf("got %v, want a text with %q", err, hint)
		}
	}
}

func TestRedactTarget(t *testing.T) {
	s := mustSecrets(t, []string{"ticket_secret", "Sch\u00fcssel"}, nil)
	for _, row := range []struct{ target, want string }{
		{"/a", "/a"},
		{"/a?", "/a?"},
		{"/a?x=1&y", "/a?x=1&y"},
		{"/a?key=S", "/a?key=redacted-%2A"},
		{"/a?x=1&token=S&y=2", "/a?x=1&token=redacted-%2A&y=2"},
		{"/a?key=S&key=T", "/a?key=redacted-%2A&key=redacted-%2A"},
		{"/a?ticket_secret=S", "/a?ticket_secret=redacted-%2A"},
		{"/a?TICKET_SECRET=S", "/a?TICKET_SECRET=redacted-%2A"},
		{"/a?Key=S", "/a?Key=redacted-%2A"},
		{"/a?%6bey=S", "/a?%6bey=redacted-%2A"},
		{"/a?%4B%65%79=S", "/a?%4B%65%79=redacted-%2A"},
		{"/a?api%5Fkey=S", "/a?api%5Fkey=redacted-%2A"},
		{"/a?+key=S", "/a?+key=redacted-%2A"},
		{"/a?Sch%C3%BCssel=S", "/a?Sch%C3%BCssel=redacted-%2A"},
		{"/a?key=a=b?c/d#e;f", "/a?key=redacted-%2A"},
		{"/a?x=1;key=S;y=2&z", "/a?x=1;key=redacted-%2A;y=2&z"},
		{"/a?key=", "/a?key="},
		{"/a?key", "/a?key"},
		{"/a?&&key=S&", "/a?&&key=redacted-%2A&"},
		{"/key=S?x=1", "/key=S?x=1"},
		{"/a?monkey=1&keys=2&key2=3", "/a?monkey=1&keys=2&key2=3"},
		{"/a?ke%zzy=1&%=2", "/a?ke%zzy=1&%=2"},
	} {
		if got := s.RedactTarget(row.target, starMAC); got != row.want {
			t.Errorf("%q: got %q, want %q", row.target, got, row.want)
		}
		if got, want := s.HasSecrets(row.target), row.target != row.want; got != want {
			t.Errorf("%q: has secrets %v, want %v", row.target, got, want)
		}
		if got, err := s.RestoreTarget(row.want, row.target); err != nil || got != row.target {
			t.Errorf("restoring %q: got %q, %v", row.want, got, err)
		}
	}
	for _, name := range []string{"key", "api_key", "apikey", "token", "access_token", "sig", "signature", "auth", "password", "secret", "code"} {
		if got, want := s.RedactTarget("/a?"+name+"=S", starMAC), "/a?"+name+"=redacted-%2A"; got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

func TestRedactTargetHashesTheValueAsSent(t *testing.T) {
	var seen []string
	mustSecrets(t, nil, nil).RedactTarget("/a?key=a%20b&x=1&sig=c+d", func(v []byte) string { seen = append(seen, string(v)); return "" })
	if got, want := strings.Join(seen, "|"), "a%20b|c+d"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestRestoreTarget(t *testing.T) {
	s := mustSecrets(t, nil, nil)
	redacted := s.RedactTarget("/a?x=1&key=old&sig=old", testMAC)
	got, err := s.RestoreTarget(redacted, "/a?x=1&key=new&sig=newer")
	if want := "/a?x=1&key=new&sig=newer"; err != nil || got != want {
		t.Errorf("got %q, %v, want %q", got, err, want)
	}
	for _, fresh := range []string{
		"", "/a", "/b?x=1&key=old&sig=old", "/a?x=2&key=old&sig=old", "/a?x=1&sig=old&key=old", "/a?x=1&key=old", "/a?x=1&key=old&sig=old&y=1",
		"/a?x=1&Key=old&sig=old", "/a?x=1&key=old&sig", redacted + "&",
	} {
		got, err := s.RestoreTarget(redacted, fresh)
		if !errors.Is(err, ErrOtherTarget) || got != "" {
			t.Errorf("from %q: got %q, %v", fresh, got, err)
		}
		if err != nil && strings.Contains(err.Error(), "old") {
			t.Errorf("the error holds a secret: %v", err)
		}
	}
}

// restoring what was redacted gives back every byte, whatever the target, and
// a fingerprint takes both for one.
func checkRedaction(t interface{ Errorf(string, ...any) }, s *Secrets, target string) { //nolint:inamedparam // the parameters are those of fmt
	redacted := s.RedactTarget(target, testMAC)
	if got, err := s.RestoreTarget(redacted, target); err != nil || got != target {
		t.Errorf("%q became %q, restored %q, %v", target, redacted, got, err)
	}
	if s.HasSecrets(target) == (redacted == target) {
		t.Errorf("%q has secrets: %v, but became %q", target, s.HasSecrets(target), redacted)
	}
	o := &PrintOptions{SecretParams: s.Params}
	if Print(&Request{Target: target}, o) != Print(&Request{Target: redacted}, o) {
		t.Errorf("%q and %q have two fingerprints", target, redacted)
	}
}

func FuzzRedactTarget(f *testing.F) {
	for _, seed := range []string{"/a?x=1&key=S;token=2&%6bEy=3", "/?key=&;sig=1;&", "??key==&&", "/a?+key=%", "key=1", "/a?x;key=redacted-0"} {
		f.Add(seed)
	}
	s := mustSecrets(f, []string{"ticket_secret"}, nil)
	f.Fuzz(func(t *testing.T, target string) { checkRedaction(t, s, target) })
}

func TestRedactionOfGeneratedTargets(t *testing.T) {
	s := mustSecrets(t, nil, nil)
	pieces := []string{"key", "sig", "x", "=", "=", "&", ";", "?", "%6bey", "secretvalue", "%", "+", "#"}
	rapid.Check(t, func(t *rapid.T) {
		checkRedaction(t, s, "/a?"+strings.Join(rapid.SliceOfN(rapid.SampledFrom(pieces), 0, 12).Draw(t, "target"), ""))
	})
}

// No byte of a secret is left, wherever it stands.
func TestRedactionLeavesNoSecret(t *testing.T) {
	s := mustSecrets(t, nil, nil)
	rapid.Check(t, func(t *rapid.T) {
		before := rapid.StringMatching(`([xyz]=[0-9]*[&;]){0,3}`).Draw(t, "before")
		name := rapid.SampledFrom([]string{"key", "Token", "%73ig", "pass%77ord"}).Draw(t, "name")
		after := rapid.StringMatching(`(&[xyz]=[0-9]*){0,3}`).Draw(t, "after")
		got := s.RedactTarget("/a?"+before+name+"=SECRET"+after, testMAC)
		if strings.Contains(got, "SECRET") || !strings.HasPrefix(got, "/a?"+before+name+"=redacted-") || !strings.HasSuffix(got, after) {
			t.Fatalf("got %q", got)
		}
	})
}

func BenchmarkRedactTarget(b *testing.B) {
	s := mustSecrets(b, []string{"ticket_secret"}, nil)
	b.ReportAllocs()
	for b.Loop() {
		s.RedactTarget("/v1/charges?expand=customer&limit=10&order=asc&key=abc", starMAC)
	}
}

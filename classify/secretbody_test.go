package classify

import (
	"errors"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func bodySecrets(t testing.TB, body ...string) *Secrets {
	t.Helper()
	s, err := NewSecrets(nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	if s, err = s.With(Redaction{Body: body}); err != nil {
		t.Fatal(err)
	}
	return s
}

func hashed(value []byte) string {
	return "h" + strings.ToUpper(string(value[len(value)/2:len(value)/2+1]))
}

func jsonRequest(body string) *Request {
	return &Request{Method: "POST", Target: "/x", Header: Header{{"Content-Type", "application/json"}}, Body: []byte(body)}
}

func formRequest(body string) *Request {
	return &Request{Method: "POST", Target: "/x", Header: Header{{"Content-Type", "application/x-www-form-urlencoded; charset=utf-8"}}, Body: []byte(body)}
}

func TestRedactBody(t *testing.T) {
	s := bodySecrets(t, "/secret", "/a/token", "token")
	for _, tt := range []struct{ name, body, want string }{
		{"member", `{"secret": "abc", "n":1}`, `{"secret": "redacted-hB", "n":1}`},
		{"inner and outer", `{"a":{"token":"xyz"},"secret":"abc"}`, `{"a":{"token":"redacted-hY"},"secret":"redacted-hB"}`},
		{"not there", `{"n":1}`, `{"n":1}`},
		{"empty", `{"secret":""}`, `{"secret":""}`},
		{"a number is no credential", `{"secret":5}`, `{"secret":5}`},
		{"no object on the way", `{"a":[{"token":"xyz"}]}`, `{"a":[{"token":"xyz"}]}`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, _, err := s.RedactBody(jsonRequest(tt.body), func(v []byte) string { return hashed(v[1 : len(v)-1]) })
			if err != nil || string(got) != tt.want {
				t.Errorf("RedactBody(%s) = %s, %v; want %s", tt.body, got, err, tt.want)
			}
		})
	}
	got, found, err := s.RedactBody(formRequest("a=1&token=abc&x%5Btoken%5D=1&tok%65n=def"), hashed)
	if want := "a=1&token=redacted-hB&x%5Btoken%5D=1&tok%65n=redacted-hE"; err != nil || !found || string(got) != want {
		t.Errorf("RedactBody of a form = %s, %t, %v; want %s", got, found, err, want)
	}
}

// A secret that might hide is never kept: the call is refused instead.
func TestRedactBodyRefusesWhatHides(t *testing.T) {
	s := bodySecrets(t, "/secret", "token")
	gzipped := jsonRequest(`{"secret":"abc"}`)
	gzipped.Header = append(gzipped.Header, Field{"Content-Encoding", "gzip"})
	parts := jsonRequest("--x\r\n\r\nabc\r\n--x--")
	parts.Header = Header{{"Content-Type", "multipart/form-data; boundary=x"}}
	for name, r := range map[string]*Request{
		"compressed": gzipped, "in parts": parts, "twice": jsonRequest(`{"secret":"abc","secret":"def"}`), "an object": jsonRequest(`{"secret":{"v":"abc"}}`),
	} {
		if _, _, err := s.RedactBody(r, hashed); !errors.Is(err, ErrHiddenBody) {
			t.Errorf("%s: %v, want ErrHiddenBody", name, err)
		}
	}
}

func TestRestoreBody(t *testing.T) {
	s := bodySecrets(t, "/secret", "token")
	got, err := s.RestoreBody(jsonRequest(`{"n": 1.0, "secret":"redacted-h"}`), jsonRequest(`{"secret":"new","n":1}`))
	if want := `{"n": 1.0, "secret":"new"}`; err != nil || string(got) != want {
		t.Errorf("RestoreBody = %s, %v; want %s", got, err, want)
	}
	if _, err := s.RestoreBody(jsonRequest(`{"secret":"redacted-h"}`), jsonRequest(`{"n":1}`)); !errors.Is(err, ErrOtherBody) {
		t.Errorf("RestoreBody from a body without the secret: %v, want ErrOtherBody", err)
	}
	if got, err := s.RestoreBody(formRequest("a=1&token=redacted-h"), formRequest("token=new&a=1")); err != nil || string(got) != "a=1&token=new" {
		t.Errorf("RestoreBody of a form = %s, %v", got, err)
	}
}

// Restoring what was redacted with its own secrets gives the body back, and no
// secret is left in what was redacted or counts in the fingerprint.
func TestRedactRestoreProperty(t *testing.T) {
	s := bodySecrets(t, "/secret", "secret")
	rapid.Check(t, func(t *rapid.T) {
		secret := rapid.StringMatching(`[A-Z]{8,20}`).Draw(t, "secret")
		other := rapid.StringMatching(`[A-Z]{8,20}`).Draw(t, "other")
		request := func(v string) *Request { return jsonRequest(`{"a":[1, 2],"secret" : "` + v + `","z":"é"}`) }
		if rapid.Bool().Draw(t, "form") {
			request = func(v string) *Request { return formRequest("a=1&secret=" + v + "&z=2") }
		}
		r := request(secret)
		redacted, found, err := s.RedactBody(r, func([]byte) string { return "0123" })
		if err != nil || !found || strings.Contains(string(redacted), secret) {
			t.Fatalf("RedactBody(%s) = %s, %t, %v", r.Body, redacted, found, err)
		}
		kept := *r
		kept.Body = redacted
		if back, err := s.RestoreBody(&kept, r); err != nil || string(back) != string(r.Body) {
			t.Fatalf("RestoreBody = %s, %v; want %s", back, err, r.Body)
		}
		if Print(s.Blank(r), nil) != Print(s.Blank(request(other)), nil) {
			t.Fatal("another secret makes another fingerprint")
		}
	})
}

func TestSecretPath(t *testing.T) {
	s, err := NewSecrets(nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	s, err = s.With(Redaction{Path: []string{"/bot{}/**", "/services/{}/{}/{}", "/api/webhooks/*/{}"}})
	if err != nil {
		t.Fatal(err)
	}
	for target, want := range map[string]string{
		"/bot12:AB/sendMessage?x=1":    "/botredacted-m/sendMessage?x=1",
		"/services/T0/B0/abc":          "/services/redacted-m/redacted-m/redacted-m",
		"/api/webhooks/7/tok?token=q":  "/api/webhooks/7/redacted-m?token=redacted-m",
		"/bots/x":                      "/botredacted-m/x",
		"/other/bot1":                  "/other/bot1",
		"/file/bot12:AB/documents/a.x": "/file/bot12:AB/documents/a.x",
	} {
		got := s.RedactTarget(target, func([]byte) string { return "m" })
		if got != want {
			t.Errorf("RedactTarget(%s) = %s, want %s", target, got, want)
		}
		if back, err := s.RestoreTarget(got, target); err != nil || back != target {
			t.Errorf("RestoreTarget(%s) = %s, %v", got, back, err)
		}
	}
	for _, pattern := range []string{"/bot/**", "/**/{}", "/a{}b{}", "/a*{}", "x{}"} {
		if _, err := s.With(Redaction{Path: []string{pattern}}); err == nil {
			t.Errorf("With path %q: no error", pattern)
		}
	}
}

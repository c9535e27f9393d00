package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// What would become of a request is said offline, for configured upstreams and for
// hosts alone.
func TestExplain(t *testing.T) {
	file := filepath.Join(t.TempDir(), "counterfoil.yaml")
	adapter := filepath.Join(filepath.Dir(file), "mine.yaml")
	write := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(adapter, "name: mine\noperations:\n  - name: make\n    when: {method: [POST], path: /v1/make}\n    class: keyed\n    guarantee: {retention: 2h}\n")
	write(file, "upstreams:\n  mine:\n    url: http://127.0.0.1:1/v1\n    adapter: "+adapter+
		"\n    rules:\n      - {when: {method: [POST], path: /make}, approval: required}\n      - {when: {method: [POST], path: /ask}, class: read}\n")
	for _, tt := range []struct {
		args []string
		want []string
	}{
		{[]string{"POST https://api.stripe.com/v1/refunds", "-d", "charge=ch_1"}, []string{"stripe", "keyed", "header Idempotency-Key", "form metadata[cf]", "sent again under the same key, for 24h "}},
		{[]string{"POST http://127.0.0.1:1/v1/make", "-d", "{}"}, []string{"mine", "make", "a person has to approve", "for 2h "}},
		{[]string{"POST /mine/ask", "-d", "{}"}, []string{"read", "passed through"}},
		{[]string{"PUT https://nowhere.example/x"}, []string{"none matches", "idempotent", "10 minutes"}},
		{[]string{"POST https://nowhere.example/x"}, []string{"effect", "a person decides"}},
		{[]string{"GET https://nowhere.example/x", "--json"}, []string{`"class": "read"`}},
	} {
		args := append([]string{"check", "--explain"}, tt.args...)
		out, errs, code := sidecarOutput(t, []string{"COUNTERFOIL_CONFIG=" + file}, args...)
		for _, w := range tt.want {
			if code != 0 || !strings.Contains(out, w) {
				t.Errorf("%q: code %d, lacks %q:\n%s%s", args, code, w, out, errs)
			}
		}
	}
	for _, args := range [][]string{{"https://api.stripe.com/v1/refunds"}, {"POST api.stripe.com"}, {"POST /nosuch/x"}, {"POST /mine/make", "-d", "@/nowhere"}, {"POST /mine/make", "-H", "nonsense"}} {
		if _, errs, code := sidecarOutput(t, []string{"COUNTERFOIL_CONFIG=" + file}, append([]string{"check", "--explain"}, args...)...); code != 2 {
			t.Errorf("%q: code %d, %s", args, code, errs)
		}
	}
}

// What describes a request wants one.
func TestExplainFlagsWithoutARequest(t *testing.T) {
	for _, args := range [][]string{{"-d", "{}"}, {"-H", "A: b"}, {"--json"}, {"--explain", "", "--json"}} {
		if _, errs, code := sidecarOutput(t, nil, append([]string{"check"}, args...)...); code != 2 || !strings.Contains(errs, "--explain") {
			t.Errorf("%q: code %d, %s", args, code, errs)
		}
	}
}

// A mistake in an adapter's file stops the start, with its place.
func TestMistakesInAnAdaptersFile(t *testing.T) {
	dir := t.TempDir()
	adapter := filepath.Join(dir, "mine.yaml")
	if err := os.WriteFile(adapter, []byte("name: mine\noperations:\n  - name: make\n    class: keyed\n    lookup:\n      request: GET /x\n      found: \".id ==\"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "counterfoil.yaml")
	if err := os.WriteFile(file, []byte("upstreams:\n  a:\n    url: http://127.0.0.1:1\n    adapter: "+adapter+"\n  b:\n    url: http://127.0.0.1:2\n    adapter: nosuch\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, command := range []string{"check", "serve"} {
		_, errs, code := sidecarOutput(t, []string{"COUNTERFOIL_CONFIG=" + file}, command)
		for _, want := range []string{adapter + ":3: operations[0].guarantee: missing", adapter + ":7: operations[0].lookup.found: not a jq program", file + ":7: upstreams.b.adapter: there is no built-in adapter nosuch"} {
			if code != 2 || !strings.Contains(errs, want) {
				t.Errorf("%s: code %d, lacks %q:\n%s", command, code, want, errs)
			}
		}
	}
}

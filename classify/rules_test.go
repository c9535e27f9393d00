package classify

import "testing"

func rule(t testing.TB, method, path string, class Class) Rule {
	t.Helper()
	var methods []string
	if method != "" {
		methods = []string{method}
	}
	return Rule{Match: mustMatch(t, methods, path), Class: class}
}

func held(t testing.TB, method, path string) Rule {
	t.Helper()
	r := rule(t, method, path, 0)
	r.Approval = ApprovalRequired
	return r
}

func TestClassOfMethod(t *testing.T) {
	for method, want := range map[string]Class{
		"GET": Read, "HEAD": Read, "OPTIONS": Read, "TRACE": Read,
		"PUT": Idempotent, "DELETE": Idempotent,
		"POST": Effect, "PATCH": Effect, "QUERY": Effect, "PROPFIND": Effect, "get": Effect, "": Effect,
	} {
		if got := (Rules)(nil).Class(&Request{Method: method, Target: "/a"}, 0); got != want {
			t.Errorf("%q: got %v, want %v", method, got, want)
		}
	}
}

func TestRuleThenOperationThenMethod(t *testing.T) {
	rules := Rules{
		rule(t, "POST", "/search/**", Read),
		held(t, "POST", "/refunds"),
		rule(t, "POST", "/refunds", Keyed),
		rule(t, "GET", "/trigger", Effect),
		rule(t, "PUT", "/counters/*", Effect),
		rule(t, "", "/model", Decision),
	}
	for _, row := range []struct {
		method, target string
		operation      Class
		want           Class
		approval       Approval
	}{
		{"POST", "/search/x?y=1", 0, Read, NoApproval},
		{"POST", "/search/x", Effect, Read, NoApproval},
		{"POST", "/other", 0, Effect, NoApproval},
		{"POST", "/other", Keyed, Keyed, NoApproval},
		{"POST", "/other?/search/x", 0, Effect, NoApproval},
		// The first rule that matches decides, though it names no class.
		{"POST", "/refunds", 0, Effect, ApprovalRequired},
		{"POST", "/refunds", Keyed, Keyed, ApprovalRequired},
		{"GET", "/refunds", 0, Read, NoApproval},
		{"GET", "/trigger", 0, Effect, NoApproval},
		{"GET", "/trigger", Read, Effect, NoApproval},
		{"PUT", "/counters/1", 0, Effect, NoApproval},
		{"POST", "/model", 0, Decision, NoApproval},
	} {
		r := &Request{Method: row.method, Target: row.target}
		if got := rules.Class(r, row.operation); got != row.want {
			t.Errorf("%s %s, operation %v: got %v, want %v", row.method, row.target, row.operation, got, row.want)
		}
		if got := rules.Approval(r); got != row.approval {
			t.Errorf("%s %s: got approval %v, want %v", row.method, row.target, got, row.approval)
		}
	}
}

// A path that the provider may read otherwise gains nothing by how it is
// written.
func TestC67_AmbiguousPathGainsNoLaxerClass(t *testing.T) {
	lax := Rules{rule(t, "", "/safe/**", Read)}
	for _, path := range []string{
		"/safe/%2e%2e/danger", "/safe/%2E%2e/danger", "/safe/.%2e/danger", "/safe/../danger", "/safe/./x", "/safe/..", "/safe/.",
		"/safe/..%2fdanger", "/safe/..%2Fdanger", "/safe//danger", "/safe/..;/danger", "/safe/..;x=1/danger", "/safe/x;y=1",
		"/safe/..\\danger", "/safe/..%5cdanger", "/safe/%252e%252e/danger", "/safe/a%2Fb", "/safe/%61", "/safe/%7E", "/safe/a%00b", "/safe/a\x00b",
		"/safe/a%zz", "/safe/a%", "/safe/a%2", "/safe/a b", "/safe/a\tb", "/safe/a#b", "/safe/%0d%0a", "/safe/\x7f",
		"/safe/%c0%ae%c0%ae/danger", "/safe/%C0%AF", "/safe/%e0%80%ae", "/safe/\xc0\xae", "/safe/%ff",
	} {
		for method, want := range map[string]Class{"POST": Effect, "PATCH": Effect, "DELETE": Idempotent, "GET": Read} {
			r := &Request{Method: method, Target: path + "?q=1"}
			if got := lax.Class(r, 0); got != want {
				t.Errorf("%s %q by rule: got %v, want %v", method, path, got, want)
			}
			if got := (Rules)(nil).Class(r, Read); got != want {
				t.Errorf("%s %q by operation: got %v, want %v", method, path, got, want)
			}
		}
	}
}

func TestC67_PlainPathKeepsItsClass(t *testing.T) {
	lax := Rules{rule(t, "", "/safe/**", Read)}
	for _, path := range []string{
		"/safe", "/safe/", "/safe/a", "/safe/a%20b", "/safe/%E2%82%AC", "/safe/%e2%82%ac", "/safe/€", "/safe/user%40example.com", "/safe/a.b", "/safe/...", "/safe/.x",
		"/safe/x..", "/safe/a:b", "/safe/~x", "/safe/a+b", "/safe/a,b",
	} {
		if got := lax.Class(&Request{Method: "POST", Target: path}, 0); got != Read {
			t.Errorf("%q: got %v, want read", path, got)
		}
	}
}

// A rule that holds or hardens cannot be slipped past by another spelling.
func TestC67_StrictRuleHoldsEverySpelling(t *testing.T) {
	strict := Rules{
		{Match: mustMatch(t, nil, "/danger/x"), Class: Effect, Approval: ApprovalRequired},
		rule(t, "", "/**", Read),
	}
	for _, path := range []string{
		"/danger/x", "/danger/x/", "/%64anger/x", "//danger/x", "/danger//x", "/safe/../danger/x", "/safe/%2e%2e/danger/x", "/./danger/x",
		"/danger%2Fx", "/danger%2fx", "/danger\\x", "/danger%5Cx", "/danger/x;p=1", "/danger;p=1/x", "/safe/..;/danger/x", "/safe/..%2fdanger/x",
		"/danger/%78/", "/danger/x%2F",
	} {
		r := &Request{Method: "GET", Target: path}
		if got := strict.Class(r, Read); got != Effect {
			t.Errorf("%q: got %v, want effect", path, got)
		}
		if got := strict.Approval(r); got != ApprovalRequired {
			t.Errorf("%q: needs no approval", path)
		}
	}
	r := &Request{Method: "GET", Target: "/projects/group%2Fproject/issues"}
	if strict.Class(r, 0) != Read || strict.Approval(r) != NoApproval {
		t.Errorf("an unrelated path is held")
	}
}

func TestMethodOverrideMakesStricter(t *testing.T) {
	lax := Rules{rule(t, "POST", "/**", Read)}
	for _, row := range []struct {
		method, header, value string
		want                  Class
	}{
		{"POST", "X-Other", "DELETE", Read},
		{"POST", "x-http-method-override", "DELETE", Effect},
		{"POST", "X-HTTP-Method", "patch", Effect},
		{"POST", "X-Method-Override", "GET", Read},
		{"GET", "X-HTTP-Method-Override", "DELETE", Idempotent},
		{"GET", "X-HTTP-Method-Override", "POST", Effect},
		{"GET", "X-HTTP-Method-Override", "GET", Read},
	} {
		r := &Request{Method: row.method, Target: "/a", Header: Header{{row.header, row.value}}}
		if got := lax.Class(r, 0); got != row.want {
			t.Errorf("%s with %s: %s: got %v, want %v", row.method, row.header, row.value, got, row.want)
		}
	}
}

func FuzzClass(f *testing.F) {
	for _, path := range []string{"/safe/%2e%2e/danger", "/danger/x;a", "/safe/..%5cdanger", "/%", "", "//", "/safe/%25", "/a/./b/"} {
		f.Add(path)
	}
	rules := Rules{{Match: mustMatch(f, nil, "/danger/**"), Class: Effect, Approval: ApprovalRequired}, rule(f, "", "/**", Read)}
	f.Fuzz(func(t *testing.T, path string) {
		r := &Request{Method: "POST", Target: path}
		if got := rules.Class(r, 0); got != Effect && IsAmbiguous(r.Path()) {
			t.Errorf("%q is ambiguous and %v", path, got)
		}
		if rules.Approval(r) == ApprovalRequired && rules.Class(r, 0) != Effect {
			t.Errorf("%q is held as dangerous and %v", path, rules.Class(r, 0))
		}
		// What resolves below /danger is held; a second look changes nothing.
		if resolved := resolve(r.Path()); resolve(resolved) != resolved {
			t.Errorf("resolving %q is not final: %q", path, resolved)
		}
	})
}

func BenchmarkClass(b *testing.B) {
	rules := Rules{rule(b, "POST", "/search/**", Read), held(b, "POST", "/refunds"), rule(b, "PUT", "/counters/*", Effect)}
	for name, target := range map[string]string{"plain": "/v1/charges?expand=1", "ambiguous": "/v1/%2e%2e/charges"} {
		b.Run(name, func(b *testing.B) {
			r := &Request{Method: "POST", Target: target, Header: make(Header, 12)}
			b.ReportAllocs()
			for b.Loop() {
				rules.Class(r, 0)
			}
		})
	}
}

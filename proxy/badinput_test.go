package proxy

import (
	"fmt"
	"strings"
	"testing"

	"counterfoil/internal/journal"
)

// Issue 3, bad input: a 4xx problem that says what to do, and nothing changed.
func TestBadInputChangesNothing(t *testing.T) {
	long := strings.Repeat("x", 129)
	put := func(body string) [3]string { return [3]string{"PUT", "s/items/k", body} }
	batch := func(operations string) [3]string {
		return [3]string{"POST", "s/batch", `{"operations":` + operations + `}`}
	}
	const whole = `{"value":1}`
	rows := []struct {
		say    string // what the detail has to say
		ask    [3]string
		fields []string
	}{
		// Names over their limits, or no names.
		{"128", [3]string{"PUT", long, ""}, nil},
		{"128", [3]string{"PUT", "s/items/" + long, whole}, nil},
		{"128", [3]string{"PUT", "s/items/" + percent(strings.Repeat("ü", 129)), whole}, nil},
		{"UTF-8", [3]string{"PUT", "s/items/%FF", whole}, nil},
		{"percent-encode", [3]string{"PUT", "s/items/ü", whole}, nil},
		{"escape", [3]string{"PUT", "s/items/%2", whole}, nil},
		{"128", batch(`[{"op":"put","key":"` + long + `","value":1}]`), nil},
		{"empty", batch(`[{"op":"put","key":"","value":1}]`), nil},
		{"empty", batch(`[{"op":"put","value":1}]`), nil},
		{"surrogate", batch(`[{"op":"put","key":"\ud800","value":1}]`), nil},
		// Unknown members, by name, and what only looks like a known one.
		{`"extra"`, put(`{"value":1,"extra":2}`), nil},
		{`"Value"`, put(`{"Value":1}`), nil},
		{`"key"`, put(`{"key":"k","value":1}`), nil},
		{`"name"`, [3]string{"PUT", "new", `{"name":"x"}`}, nil},
		{`"operation"`, [3]string{"POST", "s/batch", `{"operation":[]}`}, nil},
		{`operations[1]: there is no member "ifmatch"`, batch(`[{"op":"put","key":"a","value":1},{"op":"put","key":"b","value":1,"ifmatch":"x"}]`), nil},
		{"twice", put(`{"value":1,"value":2}`), nil},
		{"twice", put(`{"value":1,"v\u0061lue":2}`), nil},
		{"twice", put(`{"value":1,"tags":{"a":"1","a":"2"}}`), nil},
		{"twice", [3]string{"POST", "s/batch", `{"operations":[{"op":"put","key":"a","value":1}],"operations":[]}`}, nil},
		// No JSON, or JSON of another kind.
		{"no member value", put(""), nil},
		{"no member value", put("{}"), nil},
		{"no member value", put(`{"tags":{}}`), nil},
		{"not an object", put("null"), nil},
		{"not an object", put("[1]"), nil},
		{"not an object", put(`"value"`), nil},
		{"not JSON", put(`{"value":1}}`), nil},
		{"not JSON", put(`{"value":1} {}`), nil},
		{"not JSON", put(`{"value":01}`), nil},
		{"not JSON", put(`{"value":NaN}`), nil},
		{"not JSON", put(`{"value":"a` + "\n" + `"}`), nil},
		{"not JSON", put(`{'value':1}`), nil},
		{"not JSON", put("\ufeff" + whole), nil},
		{"not JSON", put("value=1"), nil},
		{"not JSON", put(`{"value":1`), nil},
		{"UTF-8", put("{\"value\":\"\xff\"}"), nil},
		{"UTF-8", put("{\"value\":\"\xed\xa0\x80\"}"), nil},
		{"deep", put(`{"value":` + strings.Repeat(`[`, 20000) + strings.Repeat(`]`, 20000) + `}`), nil},
		{"Content-Encoding", put(whole), []string{"Content-Encoding: gzip"}},
		{"Content-Encoding", put(whole), []string{"Content-Encoding: identity", "Content-Encoding: gzip"}},
		{"tags", put(`{"value":1,"tags":[]}`), nil},
		{"null", put(`{"value":1,"tags":null}`), nil},
		{"not a string", put(`{"value":1,"tags":{"a":1}}`), nil},
		{"null", put(`{"value":1,"tags":{"a":null}}`), nil},
		{"true or false", [3]string{"PUT", "new", `{"user_isolation":1}`}, nil},
		{"true or false", [3]string{"PUT", "new", `{"user_isolation":"true"}`}, nil},
		{"not an object", [3]string{"PUT", "new", "[]"}, nil},
		{"not an array", batch("{}"), nil},
		{"operations[0] is a number", batch("[1]"), nil},
		{"no member operations", [3]string{"POST", "s/batch", "{}"}, nil},
		{"no member operations", [3]string{"POST", "s/batch", ""}, nil},
		{"1 to 100", batch("[]"), nil},
		{"put or delete", batch(`[{"op":"get","key":"a"}]`), nil},
		{"put or delete", batch(`[{"key":"a","value":1}]`), nil},
		{"not a string", batch(`[{"op":1,"key":"a","value":1}]`), nil},
		{"value", batch(`[{"op":"put","key":"a"}]`), nil},
		{"nothing else", batch(`[{"op":"delete","key":"there","value":1}]`), nil},
		{"nothing else", batch(`[{"op":"delete","key":"there","if_none_match":"*"}]`), nil},
		{"once", batch(`[{"op":"put","key":"a","value":1},{"op":"delete","key":"a"}]`), nil},
		// Times to live.
		{"ten years", put(`{"value":1,"ttl_seconds":0}`), nil},
		{"ten years", put(`{"value":1,"ttl_seconds":-1}`), nil},
		{"ten years", put(`{"value":1,"ttl_seconds":9223372036854775807}`), nil},
		{"whole number", put(`{"value":1,"ttl_seconds":1e99}`), nil},
		{"whole number", put(`{"value":1,"ttl_seconds":1.5}`), nil},
		{"whole number", put(`{"value":1,"ttl_seconds":99999999999999999999}`), nil},
		{"not a number", put(`{"value":1,"ttl_seconds":"60"}`), nil},
		{"null", put(`{"value":1,"ttl_seconds":null}`), nil},
		{"ten years", [3]string{"PUT", "new", `{"ttl_seconds":-5}`}, nil},
		{"ten years", [3]string{"PUT", "new", `{"ttl_seconds":315360001}`}, nil},
		{"ten years", batch(`[{"op":"put","key":"a","value":1,"ttl_seconds":0}]`), nil},
		// Tags.
		{"colon", put(`{"value":1,"tags":{"a:b":"c"}}`), nil},
		{"1 to 64", put(`{"value":1,"tags":{"":"c"}}`), nil},
		{"1 to 64", put(`{"value":1,"tags":{"` + strings.Repeat("k", 65) + `":"c"}}`), nil},
		{"surrogate", put(`{"value":1,"tags":{"a":"\udfff"}}`), nil},
		// Fences, flow versions and required calls.
		{"whole number", put(whole), []string{"Counterfoil-Run: r", "Counterfoil-Fence: seven"}},
		{"whole number", put(whole), []string{"Counterfoil-Run: r", "Counterfoil-Fence: -7"}},
		{"whole number", put(whole), []string{"Counterfoil-Run: r", "Counterfoil-Fence: 0"}},
		{"whole number", put(whole), []string{"Counterfoil-Run: r", "Counterfoil-Fence: 7.0"}},
		{"whole number", put(whole), []string{"Counterfoil-Run: r", "Counterfoil-Fence:"}},
		{"whole number", put(whole), []string{"Counterfoil-Run: r", "Counterfoil-Fence: 18446744073709551616"}},
		{"whole number", put(whole), []string{"Counterfoil-Run: r", "Counterfoil-Fence: 7", "Counterfoil-Fence: 8"}},
		{"Counterfoil-Run", put(whole), []string{"Counterfoil-Fence: 7"}},
		{"Counterfoil-Run", put(whole), []string{"Counterfoil-Flow-Version: v1"}},
		{"256", put(whole), []string{"Counterfoil-Run: r", "Counterfoil-Flow-Version: " + strings.Repeat("v", 257)}},
		{"Counterfoil-Requires", put(whole), []string{"Counterfoil-Requires: r:1"}},
		{"Counterfoil-Requires", put(whole), []string{"Counterfoil-Requires: r:1:1:1"}},
		{"Counterfoil-Requires", put(whole), []string{"Counterfoil-Requires:"}},
		{"Counterfoil-Requires", put(whole), []string{"Counterfoil-Requires: r:1:1,"}},
		{"Counterfoil-Requires", put(whole), []string{"Counterfoil-Requires: r::1"}},
		{"Counterfoil-Requires", put(whole), []string{"Counterfoil-Requires: r:1:%zz"}},
		{"Counterfoil-Requires", put(whole), []string{"Counterfoil-Requires: r:1:ü"}},
		{"at most 16", put(whole), []string{"Counterfoil-Requires: " + strings.Repeat("r:1:1,", 16) + "r:1:1"}},
		// Entity tags.
		{"double quotes", put(whole), []string{"If-Match: v1"}},
		{"If-Match", put(whole), []string{`If-None-Match: "v1"`}},
		{"exclude", put(whole), []string{`If-Match: "v1"`, "If-None-Match: *"}},
		{"only If-Match", [3]string{"DELETE", "s/items/there", ""}, []string{"If-None-Match: *"}},
		{"double quotes", [3]string{"DELETE", "s/items/there", ""}, []string{"If-Match: v1"}},
		{"if_match", batch(`[{"op":"put","key":"there","value":1,"if_match":"v1"}]`), nil},
		{"if_match", batch(`[{"op":"put","key":"there","value":1,"if_match":""}]`), nil},
		{"null", batch(`[{"op":"put","key":"there","value":1,"if_match":null}]`), nil},
		{"if_none_match", batch(`[{"op":"put","key":"there","value":1,"if_none_match":"\"v1\""}]`), nil},
		{"exclude", batch(`[{"op":"put","key":"there","value":1,"if_none_match":"*","if_match":"*"}]`), nil},
		{"if_match", batch(`[{"op":"put","key":"there","value":1}]`), []string{"If-Match: *"}},
		{"no version", [3]string{"PUT", "new", ""}, []string{"If-None-Match: *"}},
		// Queries.
		{`"dry_run"`, [3]string{"PUT", "s/items/k?dry_run=1", whole}, nil},
		{`"force"`, [3]string{"DELETE", "s/items/there?force", ""}, nil},
		{`"x"`, [3]string{"PUT", "new?x=1", ""}, nil},
		{`"x"`, [3]string{"POST", "s/batch?x=1", `{"operations":[{"op":"delete","key":"there"}]}`}, nil},
		{`"x"`, [3]string{"GET", "s?x=1", ""}, nil},
		{`"tags"`, [3]string{"GET", "s/items?tags=a:b", ""}, nil},
		{`"Limit"`, [3]string{"GET", "s/items?Limit=1", ""}, nil},
		{"limit", [3]string{"GET", "s/items?limit=0", ""}, nil},
		{"limit", [3]string{"GET", "s/items?limit=101", ""}, nil},
		{"limit", [3]string{"GET", "s/items?limit=-1", ""}, nil},
		{"limit", [3]string{"GET", "s/items?limit=ten", ""}, nil},
		{"limit", [3]string{"GET", "s/items?limit=", ""}, nil},
		{"twice", [3]string{"GET", "s/items?limit=1&limit=2", ""}, nil},
		{"order", [3]string{"GET", "s/items?order=newest", ""}, nil},
		{"order", [3]string{"GET", "s/items?order=", ""}, nil},
		{"keys_only", [3]string{"GET", "s/items?keys_only=1", ""}, nil},
		{"keys_only", [3]string{"GET", "s/items?keys_only", ""}, nil},
		{"key:value", [3]string{"GET", "s/items?tag=a", ""}, nil},
		{"key:value", [3]string{"GET", "s/items?tag=:b", ""}, nil},
		{"key:value", [3]string{"GET", "s/items?tag=", ""}, nil},
		{"two values", [3]string{"GET", "s/items?tag=a:b&tag=a:c", ""}, nil},
		{"at most 16", [3]string{"GET", "s/items?tag=1:&tag=2:&tag=3:&tag=4:&tag=5:&tag=6:&tag=7:&tag=8:&tag=9:&tag=10:&tag=11:&tag=12:&tag=13:&tag=14:&tag=15:&tag=16:&tag=17:", ""}, nil},
		{"128", [3]string{"GET", "s/items?prefix=" + long, ""}, nil},
		{"UTF-8", [3]string{"GET", "s/items?prefix=%FF", ""}, nil},
		{"query", [3]string{"GET", "s/items?prefix=%zz", ""}, nil},
		{"cursor", [3]string{"GET", "s/items?after=x", ""}, nil},
		{"cursor", [3]string{"GET", "s/items?after=AAAAAAAAAAAAAAAAAAAAAA", ""}, nil},
	}
	onBoth(t, func(s *shop) {
		t := s.t
		s.want(201, "PUT", "s", "")
		s.want(201, "PUT", "s/items/there", `{"value":{"a":1},"tags":{"a":"b"}}`)
		before := s.want(200, "GET", "s/items", "").body + s.want(200, "GET", "s", "").body
		for _, row := range rows {
			what := fmt.Sprintf("%s %.80s %.80s %.80q", row.ask[0], row.ask[1], row.ask[2], row.fields)
			g := s.do(row.ask[0], row.ask[1], row.ask[2], row.fields...)
			if g.value("Content-Type") != "application/problem+json" {
				t.Errorf("%s: %d %s", what, g.status, g.body)
				continue
			}
			d := g.problem(t)
			if name := strings.TrimPrefix(d.Type, problemType); name != string(journal.InvalidRequest) && name != string(InvalidKey) || d.Status != 400 || !strings.Contains(d.Detail, row.say) {
				t.Errorf("%s: %d %s, which does not say %q", what, d.Status, d.Detail, row.say)
			}
		}
		if after := s.want(200, "GET", "s/items", "").body + s.want(200, "GET", "s", "").body; after != before {
			t.Errorf("%s became %s", before, after)
		}
		s.do("GET", "new", "").isProblem(t, NotFound)
	})
}

package proxy

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"counterfoil/internal/journal"
	"counterfoil/internal/view"
	"counterfoil/keystore"
	"counterfoil/keystore/storetest"
)

// Design 3.7: If-None-Match: * creates, If-Match replaces that version, neither
// writes.
func TestPutCreatesReplacesAndWrites(t *testing.T) {
	onBoth(t, func(s *shop) {
		t := s.t
		s.want(201, "PUT", "s", "")
		before := s.now().Add(-time.Second)
		made := s.want(201, "PUT", "s/items/k", `{"value":1,"tags":{"a":"b"},"ttl_seconds":60}`, "If-None-Match: *").item(t)
		if made.Key != "k" || made.Value != nil || made.Tags["a"] != "b" || made.CreatedAt.Before(before) || !made.UpdatedAt.Equal(made.CreatedAt) || made.ExpiresAt.Sub(made.CreatedAt) != time.Minute {
			t.Errorf("%+v", made)
		}
		g := s.do("PUT", "s/items/k", `{"value":2}`, "If-None-Match: *")
		if d := g.isProblem(t, journal.ItemExists); d.ETag != made.ETag || g.value("ETag") != made.ETag || d.Operation != nil {
			t.Errorf("%+v %q", d, g.fields)
		}
		replaced := s.want(200, "PUT", "s/items/k", `{"value":3}`, "If-Match: "+made.ETag).item(t)
		if replaced.ETag == made.ETag || len(replaced.Tags) != 0 || !replaced.ExpiresAt.IsZero() || !replaced.CreatedAt.Equal(made.CreatedAt) {
			t.Errorf("%+v", replaced)
		}
		g = s.do("PUT", "s/items/k", `{"value":4}`, "If-Match: "+made.ETag)
		if d := g.isProblem(t, journal.ETagMismatch); d.ETag != replaced.ETag || g.value("ETag") != replaced.ETag {
			t.Errorf("%+v %q", d, g.fields)
		}
		g = s.do("PUT", "s/items/none", `{"value":4}`, "If-Match: "+made.ETag)
		if d := g.isProblem(t, journal.ETagMismatch); d.ETag != "" || g.value("ETag") != "" {
			t.Errorf("%+v %q", d, g.fields)
		}
		s.do("PUT", "s/items/none", `{"value":4}`, "If-Match: *").isProblem(t, journal.ETagMismatch)
		s.do("GET", "s/items/none", "").isProblem(t, NotFound)
		written := s.want(200, "PUT", "s/items/k", `{"value":5}`).item(t)
		if now := s.want(200, "GET", "s/items/k", "").item(t); string(now.Value) != "5" || now.ETag != written.ETag || written.ETag == replaced.ETag {
			t.Errorf("%+v after %+v", now, written)
		}
		s.do("PUT", "other/items/k", `{"value":1}`).isProblem(t, NotFound)
		s.do("GET", "other/items/k", "").isProblem(t, NotFound)
		s.do("GET", "other/items", "").isProblem(t, NotFound)
		s.do("DELETE", "other/items/k", "").isProblem(t, NotFound)
		s.do("POST", "other/batch", `{"operations":[{"op":"put","key":"k","value":1}]}`).isProblem(t, NotFound)
	})
}

// Design 3.7: GET answers value, tags, times and ETag; HEAD the same without the
// body.
func TestGetAndHead(t *testing.T) {
	onBoth(t, func(s *shop) {
		t := s.t
		s.want(201, "PUT", "s", "")
		tag := s.etag("s/items/k", `{"value":{"a":1},"tags":{"kind":"marker","n":""},"ttl_seconds":60}`)
		g := s.want(200, "GET", "s/items/k", "")
		i := g.item(t)
		if i.Key != "k" || string(i.Value) != `{"a":1}` || len(i.Tags) != 2 || i.Tags["kind"] != "marker" || i.ETag != tag || i.CreatedAt.IsZero() || i.UpdatedAt.IsZero() || i.ExpiresAt.IsZero() {
			t.Errorf("%+v", i)
		}
		h := s.want(200, "HEAD", "s/items/k", "")
		if h.value("ETag") != tag || h.value("Content-Length") != fmt.Sprint(len(g.body)) {
			t.Errorf("%q", h.fields)
		}
		if h := s.do("HEAD", "s/items/none", ""); h.status != 404 {
			t.Errorf("HEAD of nothing: %d", h.status)
		}
		s.want(200, "HEAD", "s/items", "")
		s.want(200, "HEAD", "s", "")
	})
}

// A value comes back as it was sent, byte for byte.
func TestValueIsKeptByteForByte(t *testing.T) {
	values := []string{
		"null", "true", "false", "0", "-0", "1.0", "1e400", "9007199254740993", "123456789012345678901234567890.10", `""`, `"a"`,
		`"\u00e9\u2028<>&'\/"`, "\"\u2028\u2029é<>&\"", `"\ud83e\uddfe"`, `"\ud800"`, `"\uDC00 \uD800x"`, `{"a":1,"a":2,"":{}}`, "[]", "{}", "[ 1 ,\t2\n, { \"a\" : [ ] } ]",
		`{"b":1,"a":{"__proto__":{"x":1}}}`, `{"lc":1,"type":"constructor","id":["os","system"]}`, strings.Repeat("[", depthMax) + strings.Repeat("]", depthMax), `"` + strings.Repeat("\u00fc", 1000) + `"`, `"]},{[\\\"\\"`,
	}
	onBoth(t, func(s *shop) {
		t := s.t
		s.want(201, "PUT", "s", "")
		for n, value := range values {
			path := fmt.Sprintf("s/items/k%02d", n)
			s.want(201, "PUT", path, " {\r\n \"tags\" : {} , \"value\" :\t"+value+" \n}\n")
			if g := s.want(200, "GET", path, ""); !strings.HasPrefix(g.body, fmt.Sprintf(`{"key":"k%02d","value":%s,"etag":"`, n, value)) {
				t.Errorf("%.100s came back as %.200s", value, g.body)
			}
		}
		list := s.want(200, "GET", "s/items?limit=100", "").body
		for _, value := range values {
			if !strings.Contains(list, `"value":`+value+`,"etag":`) {
				t.Errorf("%.100s is not in the list", value)
			}
		}
		if !json.Valid([]byte(list)) {
			t.Error("the list is no JSON")
		}
		if keys := s.want(200, "GET", "s/items?limit=100&keys_only=true", "").body; strings.Contains(keys, `"value"`) || !strings.Contains(keys, `"etag"`) {
			t.Errorf("keys only: %.300s", keys)
		}
	})
}

// Design 3.7: DELETE takes If-Match.
func TestDeleteTakesIfMatch(t *testing.T) {
	onBoth(t, func(s *shop) {
		t := s.t
		s.want(201, "PUT", "s", "")
		old := s.etag("s/items/k", `{"value":1}`)
		tag := s.etag("s/items/k", `{"value":2}`)
		g := s.do("DELETE", "s/items/k", "", "If-Match: "+old)
		if d := g.isProblem(t, journal.ETagMismatch); d.ETag != tag || g.value("ETag") != tag {
			t.Errorf("%+v", d)
		}
		if g := s.want(204, "DELETE", "s/items/k", "", "If-Match: "+tag); g.body != "" || g.value("Content-Length") != "" {
			t.Errorf("%+v", g)
		}
		s.do("DELETE", "s/items/k", "", "If-Match: "+tag).isProblem(t, journal.ETagMismatch)
		s.do("DELETE", "s/items/k", "", "If-Match: *").isProblem(t, journal.ETagMismatch)
		s.do("DELETE", "s/items/k", "").isProblem(t, NotFound)
		s.want(201, "PUT", "s/items/k", `{"value":3}`)
		s.want(204, "DELETE", "s/items/k", "")
	})
}

// Design 3.7: lists in order of creation, latest first with desc, tags joined by
// AND, 20 by default, a cursor to go on.
func TestListing(t *testing.T) {
	onBoth(t, func(s *shop) {
		t := s.t
		s.want(201, "PUT", "s", "")
		if items := s.list("s", ""); len(items) != 0 {
			t.Errorf("an empty store lists %v", items)
		}
		if g := s.want(200, "GET", "s/items", ""); g.body != "{\"items\":[]}\n" {
			t.Errorf("an empty list is %s", g.body)
		}
		var all []string
		for i := range 25 {
			key := fmt.Sprintf("%c%02d", 'z'-byte(i%3), i)
			all = append(all, key)
			s.want(201, "PUT", "s/items/"+key, fmt.Sprintf(`{"value":%d,"tags":{"mod":"%d","half":"%d","url":"a:b"}}`, i, i%3, i%2))
		}
		s.want(200, "PUT", "s/items/"+all[3], `{"value":"replaced","tags":{"mod":"0","half":"1"}}`) // keeps its place
		s.want(204, "DELETE", "s/items/"+all[5], "")
		s.want(201, "PUT", "s/items/"+all[5], `{"value":"anew","tags":{"mod":"2","half":"1"}}`) // is the newest now
		all = append(append(all[:5:5], all[6:]...), all[5])
		backwards := make([]string, len(all))
		for i, key := range all {
			backwards[len(all)-1-i] = key
		}
		for query, want := range map[string][]string{
			"": all, "order=asc": all, "order=desc": backwards, "order=desc&limit=7": backwards, "limit=1": all, "limit=100": all,
			"prefix=x": pick(all, func(k string) bool { return k[0] == 'x' }), "prefix=none": nil, "prefix=": all,
			"tag=mod:0":                         pick(all, func(k string) bool { return k[0] == 'z' }),
			"tag=mod:0&tag=half:1&limit=2":      {"z03", "z09", "z15", "z21"},
			"tag=mod:0&tag=mod:0&order=desc":    pick(backwards, func(k string) bool { return k[0] == 'z' }),
			"tag=mod:0&tag=half:1&prefix=z0":    {"z03", "z09"},
			"tag=mod:":                          nil,
			"tag=other:0":                       nil,
			"tag=url:a:b&prefix=z&limit=3":      pick(all, func(k string) bool { return k[0] == 'z' && k != "z03" }),
			"keys_only=true&order=desc&limit=9": backwards, "keys_only=false": all,
		} {
			if got := keysOf(s.list("s", query)); got != strings.Join(want, " ") {
				t.Errorf("%s lists %s, want %s", query, got, want)
			}
		}
		var l view.List[view.Item]
		if s.want(200, "GET", "s/items", "").into(t, &l); len(l.Items) != 20 || l.Next == "" {
			t.Errorf("a page of unsaid length has %d items, next %q", len(l.Items), l.Next)
		}
		for _, query := range []string{"order=desc&", "prefix=x&", "tag=mod:0&", "tag=mod:0&tag=half:1&"} {
			s.do("GET", "s/items?"+query+"after="+l.Next, "").isProblem(t, journal.InvalidRequest)
		}
		s.want(201, "PUT", "s2", "")
		s.do("GET", "s2/items?after="+l.Next, "").isProblem(t, journal.InvalidRequest)
		s.want(200, "GET", "s/items?limit=3&keys_only=true&after="+l.Next, "")
	})
}

func pick(all []string, is func(string) bool) (picked []string) {
	for _, s := range all {
		if is(s) {
			picked = append(picked, s)
		}
	}
	return picked
}

// A page ends early where its values are large, and says how to go on.
func TestLargeValuesEndAPage(t *testing.T) {
	onBoth(t, func(s *shop) {
		t := s.t
		s.want(201, "PUT", "s", "")
		value := `"` + strings.Repeat("x", keystore.ValueBytesMax-2) + `"`
		for i := range 12 {
			s.want(201, "PUT", fmt.Sprintf("s/items/%02d", i), `{"value":`+value+`}`)
		}
		var l view.List[view.Item]
		if s.want(200, "GET", "s/items", "").into(t, &l); len(l.Items) == 0 || len(l.Items) > 9 || l.Next == "" {
			t.Errorf("a page of large values has %d, next %q", len(l.Items), l.Next)
		}
		items := s.list("s", "")
		for i, item := range items {
			if item.Key != fmt.Sprintf("%02d", i) || string(item.Value) != value {
				t.Errorf("item %d is %s with %d bytes", i, item.Key, len(item.Value))
			}
		}
		if len(items) != 12 {
			t.Errorf("%d items", len(items))
		}
	})
}

// Design 3.7: a batch is one atomic commit.
func TestBatchIsOneCommit(t *testing.T) {
	onBoth(t, func(s *shop) {
		t := s.t
		s.want(201, "PUT", "s", "")
		kept := s.etag("s/items/kept", `{"value":0}`)
		gone := s.etag("s/items/gone", `{"value":0}`)
		var r struct {
			Results []view.Written `json:"results"`
		}
		s.want(200, "POST", "s/batch", fmt.Sprintf(`{"operations":[
			{"op":"put","key":"kept","value": [ 1 ] ,"if_match":%q},
			{"op":"put","key":"new","value":null,"tags":{"a":"b"},"ttl_seconds":60,"if_none_match":"*"},
			{"op":"delete","key":"gone","if_match":%q},
			{"op":"delete","key":"never"},
			{"op":"put","key":"free","value":2}]}`, kept, gone)).into(t, &r)
		for i, want := range []view.Written{{Op: "put", Key: "kept", Status: 200}, {Op: "put", Key: "new", Status: 201}, {Op: "delete", Key: "gone", Status: 204}, {Op: "delete", Key: "never", Status: 404}, {Op: "put", Key: "free", Status: 201}} {
			got := r.Results[i]
			if want.Op == "put" {
				want.ETag = s.want(200, "GET", "s/items/"+want.Key, "").item(t).ETag
			}
			if got != want {
				t.Errorf("operation %d: %+v, want %+v", i, got, want)
			}
		}
		if i := s.want(200, "GET", "s/items/new", "").item(t); string(i.Value) != "null" || i.Tags["a"] != "b" || i.ExpiresAt.IsZero() {
			t.Errorf("%+v", i)
		}
		if g := s.want(200, "GET", "s/items/kept", ""); !strings.Contains(g.body, `"value":[ 1 ],`) {
			t.Errorf("%s", g.body)
		}
		s.do("GET", "s/items/gone", "").isProblem(t, NotFound)
		before := s.want(200, "GET", "s/items", "").body
		g := s.do("POST", "s/batch", fmt.Sprintf(`{"operations":[{"op":"put","key":"x","value":1},{"op":"delete","key":"free"},{"op":"put","key":"kept","value":9,"if_match":%q}]}`, kept))
		if d := g.isProblem(t, journal.ETagMismatch); d.Operation == nil || *d.Operation != 2 || d.ETag != r.Results[0].ETag || g.value("ETag") != d.ETag {
			t.Errorf("%+v", d)
		}
		g = s.do("POST", "s/batch", `{"operations":[{"op":"put","key":"new","value":1,"if_none_match":"*"},{"op":"put","key":"x","value":1}]}`)
		if d := g.isProblem(t, journal.ItemExists); d.Operation == nil || *d.Operation != 0 || d.ETag != r.Results[1].ETag || !strings.Contains(g.body, `"operation":0`) {
			t.Errorf("%+v", d)
		}
		d := s.do("POST", "s/batch", fmt.Sprintf(`{"operations":[{"op":"delete","key":"free","if_match":"W/\"a\", %s"}]}`, strings.ReplaceAll(kept, `"`, `\"`))).isProblem(t, journal.ETagMismatch)
		if !strings.Contains(d.Detail, "weak") {
			t.Errorf("%+v", d)
		}
		if after := s.want(200, "GET", "s/items", "").body; after != before {
			t.Errorf("a refused batch changed\n%s into\n%s", before, after)
		}
	})
}

// Design 3.7: a write that requires a call is refused unless that call has a
// receipt.
func TestWriteRequiresReceipts(t *testing.T) {
	onBoth(t, func(s *shop) {
		t := s.t
		s.want(201, "PUT", "s", "")
		batch := `{"operations":[{"op":"put","key":"b","value":1}]}`
		tag := s.etag("s/items/there", `{"value":1}`)
		for _, requires := range []string{"r%2F1:1:a", "-:-:none", "r%2F1:1:b, r%2F1:1:a"} {
			field := "Counterfoil-Requires: " + requires
			d := s.do("PUT", "s/items/k", `{"value":1}`, field).isProblem(t, journal.ReceiptRequired)
			if !strings.Contains(d.Detail, strings.Split(requires, ",")[0]) {
				t.Errorf("%s: %s", requires, d.Detail)
			}
			s.do("POST", "s/batch", batch, field).isProblem(t, journal.ReceiptRequired)
			s.do("DELETE", "s/items/there", "", field).isProblem(t, journal.ReceiptRequired)
		}
		if items := s.list("s", ""); keysOf(items) != "there" || items[0].ETag != tag {
			t.Errorf("%v", items)
		}
		for _, call := range []string{"a", "b"} {
			if g := ask(t, s.addr, request("POST", "/tickets/x", "{}", "Counterfoil-Run: r%2F1", "Counterfoil-Turn: 1", "Counterfoil-Call: "+call)); g.status != 201 {
				t.Fatalf("%+v", g)
			}
		}
		s.want(201, "PUT", "s/items/k", `{"value":1}`, "Counterfoil-Requires: r%2f1:1:a , r%2F1:1:b")
		s.want(200, "POST", "s/batch", batch, "Counterfoil-Requires: r%2F1:1:a", "Counterfoil-Requires: r%2F1:1:b")
		s.want(204, "DELETE", "s/items/there", "", "Counterfoil-Requires: r%2F1:1:a")
		s.do("PUT", "s/items/k", `{"value":1}`, "Counterfoil-Requires: r%2F1:1:a", "Counterfoil-Requires: r%2F1:1:c").isProblem(t, journal.ReceiptRequired)
	})
}

// A batch of the most that a body holds is written whole.
func TestLargeBatch(t *testing.T) {
	onBoth(t, func(s *shop) {
		t := s.t
		s.want(201, "PUT", "s", "")
		var list []string
		for i := range 9 {
			list = append(list, fmt.Sprintf(`{"op":"put","key":"%d","value":"%s"}`, i, strings.Repeat("x", 1<<20-2)))
		}
		s.want(200, "POST", "s/batch", `{"operations":[`+strings.Join(list, ",")+`]}`)
		if got := keysOf(s.list("s", "keys_only=true")); got != "0 1 2 3 4 5 6 7 8" {
			t.Errorf("%s", got)
		}
	})
}

// Design 3.7: run and fence on a write make it fenced, whatever kind of write it
// is; design 3.6: once a run has had a lease, its writes need the fence.
func TestFencedWrites(t *testing.T) {
	onBoth(t, func(s *shop) {
		t := s.t
		s.want(201, "PUT", "s", "")
		s.want(201, "PUT", "s/items/there", `{"value":1}`, "Counterfoil-Run: r")
		lease := func(owner string) string {
			t.Helper()
			g, err := s.store.AcquireLease(t.Context(), &keystore.LeaseRequest{Namespace: "default", Run: "r", Owner: owner, TTL: time.Minute})
			if err != nil {
				t.Fatal(err)
			}
			return fmt.Sprintf("Counterfoil-Fence: %d", g.Fence)
		}
		refused := func(problem journal.Problem, fields ...string) {
			t.Helper()
			fields = append(fields, "Counterfoil-Run: r")
			before := s.want(200, "GET", "s/items", "").body
			s.do("PUT", "s/items/there", `{"value":2}`, fields...).isProblem(t, problem)
			s.do("PUT", "s/items/k", `{"value":2}`, fields...).isProblem(t, problem)
			s.do("DELETE", "s/items/there", "", fields...).isProblem(t, problem)
			s.do("POST", "s/batch", `{"operations":[{"op":"put","key":"k","value":2}]}`, fields...).isProblem(t, problem)
			if after := s.want(200, "GET", "s/items", "").body; after != before {
				t.Errorf("%s became %s", before, after)
			}
			s.want(200, "GET", "s/items/there", "", fields...) // reads are free
		}
		refused(journal.Fenced, "Counterfoil-Fence: 1")
		old := lease("w1")
		refused(journal.FenceRequired)
		s.want(200, "PUT", "s/items/there", `{"value":3}`, "Counterfoil-Run: r", old)
		if err := s.store.ReleaseLease(t.Context(), "default", "r", 1); err != nil {
			t.Fatal(err)
		}
		refused(journal.Fenced, old)
		newer := lease("w2")
		if newer == old {
			t.Fatalf("%s was given twice", old)
		}
		refused(journal.Fenced, old)
		// The fence is looked at before the conditions: who was replaced has
		// nothing to learn from them.
		s.do("PUT", "s/items/none", `{"value":2}`, "Counterfoil-Run: r", old, "If-Match: *").isProblem(t, journal.Fenced)
		s.want(200, "PUT", "s/items/there", `{"value":5}`, "Counterfoil-Run: r", newer)
		s.want(200, "POST", "s/batch", `{"operations":[{"op":"put","key":"there","value":6}]}`, "Counterfoil-Run: r", newer)
		s.want(200, "PUT", "s/items/there", `{"value":7}`) // names no run, so it is nobody's
		s.want(204, "DELETE", "s/items/there", "", "Counterfoil-Run: r", newer)
	})
}

// A sidecar that serves one run gives its writes that run's fence, and no other
// run's.
func TestWritesOfTheServedRun(t *testing.T) {
	var fence atomic.Uint64
	configure := func(c *Config) {
		c.Run, c.Fence = "served", func() keystore.Fence { return keystore.Fence(fence.Load()) }
	}
	onBoth(t, func(s *shop) {
		t := s.t
		fence.Store(0)
		s.want(201, "PUT", "s", "")
		lease := func(run string) keystore.Fence {
			t.Helper()
			g, err := s.store.AcquireLease(t.Context(), &keystore.LeaseRequest{Namespace: "default", Run: run, Owner: "w", TTL: time.Minute})
			if err != nil {
				t.Fatal(err)
			}
			return g.Fence
		}
		lease("other")
		old := lease("served")
		if err := s.store.ReleaseLease(t.Context(), "default", "served", old); err != nil {
			t.Fatal(err)
		}
		fence.Store(uint64(old))
		s.do("PUT", "s/items/k", `{"value":1}`).isProblem(t, journal.Fenced)
		fence.Store(uint64(lease("served")))
		s.want(201, "PUT", "s/items/k", `{"value":1}`)
		s.want(200, "PUT", "s/items/k", `{"value":1}`, "Counterfoil-Run: served")
		s.do("PUT", "s/items/k", `{"value":1}`, "Counterfoil-Run: other").isProblem(t, journal.FenceRequired)
		s.do("PUT", "s/items/k", `{"value":1}`, "Counterfoil-Fence: 1").isProblem(t, journal.Fenced)
		s.want(200, "PUT", "s/items/k", `{"value":1}`, "Counterfoil-Run: other", "Counterfoil-Fence: 1")
	}, configure)
}

// A write that names another version of the flow than the run is pinned to is
// refused.
func TestFlowVersionOfWrites(t *testing.T) {
	onBoth(t, func(s *shop) {
		t := s.t
		s.want(201, "PUT", "s", "")
		if _, _, err := s.store.PutRun(t.Context(), &keystore.RunSpec{Namespace: "default", Run: "r", FlowVersion: "v1"}); err != nil {
			t.Fatal(err)
		}
		s.do("PUT", "s/items/k", `{"value":1}`, "Counterfoil-Run: r", "Counterfoil-Flow-Version: v2").isProblem(t, journal.FlowVersionMismatch)
		s.do("GET", "s/items/k", "").isProblem(t, NotFound)
		s.want(201, "PUT", "s/items/k", `{"value":1}`, "Counterfoil-Run: r", "Counterfoil-Flow-Version: v1")
		s.want(200, "PUT", "s/items/k", `{"value":1}`, "Counterfoil-Run: r")
	})
}

// A write of which nobody can tell whether it was made says so; one that the disk
// has no room for was not made.
func TestWriteOfWhichNobodyCanTell(t *testing.T) {
	for what, row := range map[string]struct {
		fault        storetest.Fault
		isMade, safe bool
	}{
		"not made, and not known": {storetest.Fault{Op: storetest.WriteItems, Moment: storetest.BeforeDurable}, false, false},
		"made, and not known":     {storetest.Fault{Op: storetest.WriteItems, Moment: storetest.AfterDurable}, true, false},
		"disk full":               {storetest.Fault{Op: storetest.WriteItems, Moment: storetest.BeforeDurable, Err: keystore.ErrFull}, false, true},
	} {
		st := start(t, setup{provider: provide(t, created)})
		put := func(fields ...string) *got {
			return ask(t, st.addr, request("PUT", stores+"s/items/k", `{"value":1}`, fields...))
		}
		ask(t, st.addr, request("PUT", stores+"s", ""))
		st.disk.Fail(row.fault)
		d := put("If-None-Match: *").isProblem(t, journal.JournalUnavailable)
		if d.SafeNewKey != row.safe || strings.Contains(d.Detail, "If-None-Match") == row.safe {
			t.Errorf("%s: %+v", what, d)
		}
		if again := put("If-None-Match: *"); (again.status == 412) != row.isMade || (again.status == 201) == row.isMade {
			t.Errorf("%s: the repeat is answered %d %s", what, again.status, again.body)
		}
		st.disk.Fail(storetest.Fault{Op: storetest.Read})
		st.get(stores+"s/items/k").isProblem(t, journal.JournalUnavailable)
	}
}

// Pages with values share the memory for what is large; those without do not
// need it.
func TestPagesShareTheMemory(t *testing.T) {
	st := start(t, setup{provider: provide(t, created), proxy: func(c *Config) {
		c.Limits = Limits{LargeBytes: BodyBytesMax, LargeWait: time.Millisecond}
	}})
	ask(t, st.addr, request("PUT", stores+"s", ""))
	if !st.server.large.TryAcquire(BodyBytesMax) {
		t.Fatal("the memory is taken already")
	}
	st.get(stores+"s/items").isProblem(t, Overloaded)
	if g := st.get(stores + "s/items?keys_only=true"); g.status != 200 {
		t.Errorf("%d %s", g.status, g.body)
	}
	st.server.large.Release(BodyBytesMax)
	for range 10 {
		if g := st.get(stores + "s/items"); g.status != 200 {
			t.Errorf("%d %s", g.status, g.body)
		}
	}
}

// Whoever lists sees a batch whole or not at all.
func TestListsSeeWholeBatches(t *testing.T) {
	const rounds = 200
	onBoth(t, func(s *shop) {
		t := s.t
		s.want(201, "PUT", "s", "")
		s.atOnce(2, func(i int, c *client) {
			for round := range rounds {
				if i == 0 {
					c.ask(request("POST", stores+"s/batch", fmt.Sprintf(`{"operations":[{"op":"put","key":"a","value":%[1]d},{"op":"put","key":"b","value":%[1]d},{"op":"put","key":"made-%[1]d","value":0},{"op":"delete","key":"made-%[2]d"}]}`, round, round-1)))
					continue
				}
				var l view.List[view.Item]
				if c.ask(request("GET", stores+"s/items", "")).into(t, &l); len(l.Items) == 0 {
					continue
				}
				if len(l.Items) != 3 || l.Items[0].Key != "a" || !bytes.Equal(l.Items[0].Value, l.Items[1].Value) || l.Items[2].Key != "made-"+string(l.Items[0].Value) {
					t.Errorf("half a batch is listed: %s", keysOf(l.Items))
				}
			}
		})
		if items := s.list("s", ""); len(items) != 3 || string(items[0].Value) != fmt.Sprint(rounds-1) {
			t.Errorf("%s", keysOf(items))
		}
	})
}

// Design 3.7: append-only checkpoints are creates with keys that follow from the
// step, a marker is one key replaced by tag, the checkpoint comes before the
// marker. Then a worker that was cut off anywhere goes on without a gap and
// without a second checkpoint.
func TestCheckpointsThenMarker(t *testing.T) {
	const steps = 5
	onBoth(t, func(s *shop) {
		t := s.t
		s.want(201, "PUT", "s", "")
		s.want(201, "PUT", "s/items/marker", `{"value":0}`, "If-None-Match: *")
		// live does a worker's steps up to its death after so many writes, and
		// reports whether it came to its end.
		live := func(writes int) bool {
			marker := s.want(200, "GET", "s/items/marker", "").item(t)
			tag := marker.ETag
			var done int
			if err := json.Unmarshal(marker.Value, &done); err != nil {
				t.Fatal(err)
			}
			for step := done + 1; step <= steps; step++ {
				if writes--; writes < 0 {
					return false
				}
				g := s.do("PUT", fmt.Sprintf("s/items/checkpoint%%2F%d", step), fmt.Sprintf(`{"value":"state after %d"}`, step), "If-None-Match: *")
				if g.status != 201 {
					g.isProblem(t, journal.ItemExists) // an earlier life has made it
				}
				if writes--; writes < 0 {
					return false
				}
				tag = s.want(200, "PUT", "s/items/marker", fmt.Sprintf(`{"value":%d}`, step), "If-Match: "+tag).item(t).ETag
			}
			return true
		}
		lives := 1
		for !live(1 + lives%3) {
			if lives++; lives > 2*steps {
				t.Fatal("the worker does not get on")
			}
		}
		if got := keysOf(s.list("s", "prefix=checkpoint/")); got != "checkpoint/1 checkpoint/2 checkpoint/3 checkpoint/4 checkpoint/5" {
			t.Errorf("%s", got)
		}
		t.Logf("%d lives", lives)
	})
}

package proxy

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"counterfoil/classify"
	"counterfoil/internal/journal"
	"counterfoil/internal/upstream"
	"counterfoil/internal/view"
	"counterfoil/keystore"
	"counterfoil/keystore/badger"
	"counterfoil/keystore/storetest"
)

// A shop is a data listener on a store of either kind, with a clock that a test
// can put forward.
type shop struct {
	t     *testing.T
	addr  string
	store keystore.Store
	ahead atomic.Int64 // ns
}

func (s *shop) now() time.Time { return time.Now().Add(time.Duration(s.ahead.Load())) }

// onBoth runs a test on the in-memory store and on a real Badger folder.
func onBoth(t *testing.T, test func(s *shop), configure ...func(*Config)) {
	t.Helper()
	for name, open := range map[string]func(s *shop) (keystore.Store, error){
		"memory": func(s *shop) (keystore.Store, error) { return storetest.OpenMemory(storetest.NewDisk(), s.now) },
		"badger": func(s *shop) (keystore.Store, error) {
			return badger.Open(context.Background(), badger.Config{Dir: s.t.TempDir(), Now: s.now})
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := &shop{t: t}
			var err error
			if s.store, err = open(s); err != nil {
				t.Fatal(err)
			}
			s.serve(configure)
			test(s)
		})
	}
}

// serve starts the listener; upstream "tickets" is a provider that makes
// everything.
func (s *shop) serve(configure []func(*Config)) {
	p := provide(s.t, created)
	client, err := upstream.New(upstream.Config{URL: "http://" + p.addr})
	if err != nil {
		s.t.Fatal(err)
	}
	secrets, err := classify.NewSecrets(nil, nil)
	if err != nil {
		s.t.Fatal(err)
	}
	j, err := journal.New(journal.Config{Store: s.store, Upstreams: []*journal.Upstream{
		{Name: "tickets", Origin: "http://" + p.addr, Sender: client, Finder: client, Secrets: secrets, PauseOnUnknown: true},
	}})
	if err != nil {
		s.t.Fatal(err)
	}
	cfg := Config{Journal: j, Records: s.store, Upstreams: []Upstream{{Name: "tickets", URL: "http://" + p.addr}}}
	for _, f := range configure {
		f(&cfg)
	}
	server, err := New(cfg)
	if err != nil {
		s.t.Fatal(err)
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		s.t.Fatal(err)
	}
	var serving sync.WaitGroup
	serving.Go(func() {
		if err := server.Serve(ln, ""); err != nil {
			s.t.Errorf("serving: %v", err)
		}
	})
	s.addr = ln.Addr().String()
	ask(s.t, s.addr, request("GET", "/-/ready", "", "Connection: close")) // or Shutdown would not find it
	s.t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), deadline)
		defer cancel()
		if err := server.Shutdown(ctx); err != nil {
			s.t.Error(err)
		}
		serving.Wait()
		_ = j.Drain(ctx)
		j.Close()
		client.Close()
		if err := s.store.Close(); err != nil {
			s.t.Error(err)
		}
	})
}

const stores = "/-/v1/stores/"

// do asks for what is under /-/v1/stores/.
func (s *shop) do(method, path, body string, fields ...string) *got {
	s.t.Helper()
	g := ask(s.t, s.addr, request(method, stores+path, body, fields...))
	if cc := g.value("Cache-Control"); cc != "no-store" {
		s.t.Errorf("%s %s: Cache-Control is %q", method, path, cc)
	}
	if g.status < 400 && g.value("Content-Encoding")+g.value("Vary") != "" {
		s.t.Errorf("%s %s: %q", method, path, g.fields)
	}
	return g
}

// want asks, and checks the status.
func (s *shop) want(status int, method, path, body string, fields ...string) *got {
	s.t.Helper()
	g := s.do(method, path, body, fields...)
	if g.status != status {
		s.t.Fatalf("%s %s %.80s %q: %d %s, want %d", method, path, body, fields, g.status, g.body, status)
	}
	return g
}

// item reads one item out of an answer.
func (g *got) item(t *testing.T) view.Item {
	t.Helper()
	var i view.Item
	g.into(t, &i)
	if i.ETag != g.value("ETag") || len(g.values("ETag")) != 1 {
		t.Errorf("etag %q, header %q", i.ETag, g.values("ETag"))
	}
	return i
}

func (g *got) into(t *testing.T, v any) {
	t.Helper()
	if ct := g.value("Content-Type"); ct != "application/json" {
		t.Fatalf("Content-Type %q: %s", ct, g.body)
	}
	d := json.NewDecoder(strings.NewReader(g.body))
	d.DisallowUnknownFields()
	if err := d.Decode(v); err != nil {
		t.Fatalf("%s: %v", g.body, err)
	}
}

// list reads a whole listing, page by page.
func (s *shop) list(path, query string, fields ...string) (items []view.Item) {
	s.t.Helper()
	for after := ""; ; {
		var l view.List[view.Item]
		s.want(200, "GET", path+"/items?"+query+"&after="+url.QueryEscape(after), "", fields...).into(s.t, &l)
		items = append(items, l.Items...)
		if after = l.Next; after == "" {
			return items
		}
	}
}

func keysOf(items []view.Item) string {
	keys := make([]string, len(items))
	for i := range items {
		keys[i] = items[i].Key
	}
	return strings.Join(keys, " ")
}

// etag puts an item and returns its tag.
func (s *shop) etag(path, body string, fields ...string) string {
	s.t.Helper()
	g := s.do("PUT", path, body, fields...)
	if g.status != 200 && g.status != 201 {
		s.t.Fatalf("PUT %s: %d %s", path, g.status, g.body)
	}
	return g.item(s.t).ETag
}

// Design 3.7: PUT is get-or-create; both members count only the first time.
func TestStoreIsMadeOnce(t *testing.T) {
	onBoth(t, func(s *shop) {
		t := s.t
		s.do("GET", "s", "").isProblem(t, NotFound)
		before := s.now().Add(-time.Second)
		var made, again, seen view.ItemStore
		s.want(201, "PUT", "s", `{"ttl_seconds":3600,"user_isolation":true}`).into(t, &made)
		if made.Store != "s" || !made.UserIsolation || made.TTLSeconds != 3600 || made.CreatedAt.Before(before) || made.ExpiresAt.Sub(made.CreatedAt) != time.Hour {
			t.Errorf("%+v", made)
		}
		s.want(200, "PUT", "s", `{"ttl_seconds":60,"user_isolation":false}`).into(t, &again)
		s.want(200, "GET", "s", "").into(t, &seen)
		if again != made || seen != made {
			t.Errorf("made %+v, again %+v, seen %+v", made, again, seen)
		}
		for _, body := range []string{"", "  ", "{}", `{"user_isolation":false}`} {
			s.do("PUT", "plain", body)
		}
		g := s.want(200, "GET", "plain", "")
		var fields map[string]any
		if err := json.Unmarshal([]byte(g.body), &fields); err != nil || len(fields) != 3 || fields["user_isolation"] != false {
			t.Errorf("a store without a TTL shows %s", g.body)
		}
	})
}

// Design 3.7: a name is 1 to 128 characters and may hold "/", sent as %2F; so is
// a key. Every other character, too, and names are never folded into each other.
func TestEveryNameIsItsOwn(t *testing.T) {
	names := []string{
		"a", "A", "a/b", "/", "//", ".", "..", "...", "a/../b", "%", "%2F", "%252F", " ", "a b", "a+b", "a?b=c", "a#b", "a;i=1", "@run", "a:b:c", "a,b", `"q"`, `\`, "<&>'",
		"items", "batch", "stores", "\x01", "\x00", "\n", "ü", "u\u0308", "日本", "🧾", "\u200b", "\ufffd", "\u2028", strings.Repeat("x", 128), strings.Repeat("🧾", 128),
	}
	onBoth(t, func(s *shop) {
		t := s.t
		for i, name := range names {
			path := percent(name)
			s.want(201, "PUT", path, "")
			for j, key := range names {
				if i == 0 || j == i {
					s.want(201, "PUT", path+"/items/"+percent(key), fmt.Sprintf(`{"value":[%d,%d]}`, i, j))
				}
			}
		}
		for i, name := range names {
			var st view.ItemStore
			if s.want(200, "GET", percent(name), "").into(t, &st); st.Store != name {
				t.Errorf("store %q is shown as %q", name, st.Store)
			}
			for j, key := range names {
				if i == 0 || j == i {
					item := s.want(200, "GET", percent(name)+"/items/"+percent(key), "").item(t)
					if item.Key != key || string(item.Value) != fmt.Sprintf("[%d,%d]", i, j) {
						t.Errorf("%q in %q: %+v", key, name, item)
					}
				}
			}
		}
		if items := s.list("a", "limit=100"); len(items) != len(names) {
			t.Errorf("%d items are listed, not %d", len(items), len(names))
		}
		for _, prefix := range []string{"a", "/", "%", "日", "\x00", "🧾", strings.Repeat("x", 128)} {
			var want []string
			for _, name := range names {
				if strings.HasPrefix(name, prefix) {
					want = append(want, name)
				}
			}
			if got := keysOf(s.list("a", "prefix="+url.QueryEscape(prefix))); got != strings.Join(want, " ") {
				t.Errorf("prefix %q: %q, want %q", prefix, got, want)
			}
		}
	})
}

// percent spells every byte as an escape, so that no client folds it.
func percent(s string) string {
	var b strings.Builder
	for i := range len(s) {
		fmt.Fprintf(&b, "%%%02X", s[i])
	}
	return b.String()
}

// Design 3.7: the limits, each met and passed by one.
func TestStoreLimits(t *testing.T) {
	tags := func(n, valueBytes int) string {
		var members []string
		for i := range n {
			members = append(members, fmt.Sprintf(`"%064d":"%s"`, i, strings.Repeat("v", valueBytes)))
		}
		return "{" + strings.Join(members, ",") + "}"
	}
	operations := func(n int) string {
		var list []string
		for i := range n {
			list = append(list, fmt.Sprintf(`{"op":"put","key":"b%d","value":%d}`, i, i))
		}
		return `{"operations":[` + strings.Join(list, ",") + `]}`
	}
	value := func(bytes int) string { return `{"value":"` + strings.Repeat("x", bytes-2) + `"}` }
	onBoth(t, func(s *shop) {
		t := s.t
		s.want(201, "PUT", "s", `{"ttl_seconds":315360000}`)
		s.want(201, "PUT", "s1", `{"ttl_seconds":1}`)
		s.want(201, "PUT", "s/items/large", value(1<<20))
		d := s.do("PUT", "s/items/larger", value(1<<20+1)).isProblem(t, journal.InputTooLarge)
		if !strings.Contains(d.Detail, "1048576") {
			t.Errorf("%+v", d)
		}
		s.do("POST", "s/batch", `{"operations":[{"op":"put","key":"a","value":1},{"op":"put","key":"larger","value":"`+strings.Repeat("x", 1<<20)+`"}]}`).isProblem(t, journal.InputTooLarge)
		s.do("PUT", "s/items/larger", value(BodyBytesMax)).isProblem(t, journal.InputTooLarge)
		s.want(201, "PUT", "s/items/tags", `{"value":1,"tags":`+tags(16, 256)+`}`)
		s.do("PUT", "s/items/larger", `{"value":1,"tags":`+tags(17, 1)+`}`).isProblem(t, journal.InvalidRequest)
		s.do("PUT", "s/items/larger", `{"value":1,"tags":`+tags(1, 257)+`}`).isProblem(t, journal.InvalidRequest)
		s.want(201, "PUT", "s/items/ttl", `{"value":1,"ttl_seconds":315360000}`)
		s.do("PUT", "s/items/larger", `{"value":1,"ttl_seconds":315360001}`).isProblem(t, journal.InvalidRequest)
		s.do("PUT", "s/items/larger", `{"value":`+strings.Repeat("[", depthMax+1)+strings.Repeat("]", depthMax+1)+`}`).isProblem(t, journal.InvalidRequest)
		s.do("POST", "s/batch", `{"operations":[{"op":"put","key":"larger","value":`+strings.Repeat("[", depthMax+1)+strings.Repeat("]", depthMax+1)+`}]}`).isProblem(t, journal.InvalidRequest)
		s.want(200, "POST", "s/batch", operations(100))
		s.do("POST", "s/batch", operations(101)).isProblem(t, journal.InvalidRequest)
		s.want(200, "GET", "s/items?limit=100", "")
		s.do("GET", "s/items?limit=101", "").isProblem(t, journal.InvalidRequest)
		if items := s.list("s", "keys_only=true"); len(items) != 103 {
			t.Errorf("%d items", len(items))
		}
	})
}

// Design 3.7: a store's TTL slides with each write; an item's does not.
func TestTimesToLive(t *testing.T) {
	onBoth(t, func(s *shop) {
		t := s.t
		s.want(201, "PUT", "s", `{"ttl_seconds":100}`)
		s.want(201, "PUT", "s/items/short", `{"value":1,"ttl_seconds":70}`)
		forward := func(seconds int) { s.ahead.Add(int64(seconds) * int64(time.Second)) }
		forward(60)
		s.want(201, "PUT", "s/items/k", `{"value":1}`)
		forward(60)
		s.do("GET", "s/items/short", "").isProblem(t, NotFound)
		if got := keysOf(s.list("s", "")); got != "k" {
			t.Errorf("listed: %s", got)
		}
		s.want(201, "PUT", "s/items/short", `{"value":2}`, "If-None-Match: *")
		forward(99)
		s.want(200, "GET", "s/items/k", "") // a read does not slide it
		forward(2)
		for _, g := range []*got{s.do("GET", "s", ""), s.do("GET", "s/items/k", ""), s.do("GET", "s/items", ""), s.do("PUT", "s/items/k", `{"value":1}`)} {
			g.isProblem(t, NotFound)
		}
		s.want(201, "PUT", "s", "")
		if items := s.list("s", ""); len(items) != 0 {
			t.Errorf("a store that was made anew lists %v", items)
		}
	})
}

// Design 3.7: with user_isolation every request names a user, and sees only that
// user's items.
func TestUsersAreApart(t *testing.T) {
	onBoth(t, func(s *shop) {
		t := s.t
		s.want(201, "PUT", "s", `{"user_isolation":true}`)
		const batch = `{"operations":[{"op":"put","key":"k","value":1}]}`
		for _, g := range []*got{
			s.do("PUT", "s/items/k", `{"value":1}`), s.do("GET", "s/items/k", ""), s.do("DELETE", "s/items/k", ""), s.do("GET", "s/items", ""), s.do("POST", "s/batch", batch),
			s.do("GET", "s/items", "", "Counterfoil-User: a", "Counterfoil-User: b"), s.do("GET", "s/items", "", "Counterfoil-User: ü"), s.do("GET", "s/items", "", "Counterfoil-User: %zz"),
			s.do("GET", "s/items", "", "Counterfoil-User:"), s.do("GET", "s/items", "", "Counterfoil-User: "+strings.Repeat("u", 257)),
		} {
			if d := g.isProblem(t, journal.InvalidRequest); !strings.Contains(d.Detail, "Counterfoil-User") {
				t.Errorf("%+v", d)
			}
		}
		users := []string{"a", "A", "b", "a%2Fb", "%C3%BC", "a%00", strings.Repeat("u", 256)}
		tags := map[string]string{}
		for i, u := range users {
			tags[u] = s.want(201, "PUT", "s/items/k", fmt.Sprintf(`{"value":%d}`, i), "Counterfoil-User: "+u, "If-None-Match: *").item(t).ETag
			s.want(201, "PUT", "s/items/"+fmt.Sprintf("only-%d", i), `{"value":0}`, "Counterfoil-User: "+u)
		}
		var l view.List[view.Item]
		s.want(200, "GET", "s/items?limit=1", "", "Counterfoil-User: a").into(t, &l)
		for i, u := range users {
			if item := s.want(200, "GET", "s/items/k", "", "Counterfoil-User: "+u).item(t); string(item.Value) != fmt.Sprint(i) || item.ETag != tags[u] {
				t.Errorf("%s sees %+v", u, item)
			}
			if items := s.list("s", "limit=1", "Counterfoil-User: "+u); len(items) != 2 || items[1].Key != fmt.Sprintf("only-%d", i) {
				t.Errorf("%s lists %v", u, items)
			}
			if u != "a" {
				s.do("GET", "s/items/only-0", "", "Counterfoil-User: "+u).isProblem(t, NotFound)
				s.do("PUT", "s/items/k", `{"value":-1}`, "Counterfoil-User: "+u, "If-Match: "+tags["a"]).isProblem(t, journal.ETagMismatch)
				s.do("GET", "s/items?limit=1&after="+l.Next, "", "Counterfoil-User: "+u).isProblem(t, journal.InvalidRequest)
			}
		}
		s.want(204, "DELETE", "s/items/k", "", "Counterfoil-User: a")
		s.want(200, "GET", "s/items/k", "", "Counterfoil-User: b")
		// In a store that is shared the name makes no difference.
		s.want(201, "PUT", "shared", "")
		s.want(201, "PUT", "shared/items/k", `{"value":1}`, "Counterfoil-User: a")
		s.want(200, "GET", "shared/items/k", "", "Counterfoil-User: b")
		s.want(200, "GET", "shared/items/k", "")
	})
}

// Design 3.9: namespaces never see each other's stores.
func TestNamespacesAreApart(t *testing.T) {
	configure := func(c *Config) { c.Tokens = map[string]string{"t1": "one", "t2": "two", "t3": "two"} }
	onBoth(t, func(s *shop) {
		t := s.t
		as := func(token string) string { return "Counterfoil-Token: " + token }
		s.do("GET", "s", "").isProblem(t, Unauthorized)
		s.do("PUT", "s", "", as("wrong")).isProblem(t, Unauthorized)
		s.want(201, "PUT", "s", "", as("t1"))
		s.do("GET", "s", "", as("t2")).isProblem(t, NotFound)
		tag := s.etag("s/items/k", `{"value":1}`, as("t1"))
		s.do("GET", "s/items/k", "", as("t2")).isProblem(t, NotFound)
		s.want(201, "PUT", "s", "", as("t2"))
		s.do("GET", "s/items/k", "", as("t2")).isProblem(t, NotFound)
		s.do("PUT", "s/items/k", `{"value":1}`, as("t2"), "If-Match: "+tag).isProblem(t, journal.ETagMismatch)
		s.want(201, "PUT", "s/items/k", `{"value":2}`, as("t2"))
		s.want(200, "GET", "s/items/k", "", as("t3"))
		if item := s.want(200, "GET", "s/items/k", "", as("t1")).item(t); string(item.Value) != "1" {
			t.Errorf("%+v", item)
		}
		// A receipt of another tenant's call is none.
		ask(t, s.addr, request("POST", "/tickets/x", "{}", "Counterfoil-Run: r", "Counterfoil-Call: c", as("t1")))
		s.do("PUT", "s/items/k", `{"value":1}`, "Counterfoil-Requires: r:-:c", as("t2")).isProblem(t, journal.ReceiptRequired)
		s.want(200, "PUT", "s/items/k", `{"value":1}`, "Counterfoil-Requires: r:-:c", as("t1"))
	}, configure)
}

// Paths and methods of stores that do not exist.
func TestStorePathsAndMethods(t *testing.T) {
	onBoth(t, func(s *shop) {
		t := s.t
		s.want(201, "PUT", "s", "")
		for _, path := range []string{"", "s/", "s/items/", "s/items/a/b", "s/other", "s/batch/x", "//items/k", "s//k", "../stores/s"} {
			s.do("GET", path, "").isProblem(t, NotFound)
		}
		ask(t, s.addr, request("GET", "/-/v1/stores", "")).isProblem(t, NotFound)
		// However the path is spelt, names have their own limits.
		spelt := func(method, path, body string) *got {
			return ask(t, s.addr, request(method, "/-/v1/%73tores/"+path, body))
		}
		for _, long := range []string{strings.Repeat("x", 129), strings.Repeat("x", 300)} {
			spelt("PUT", long, "").isProblem(t, journal.InvalidRequest)
			spelt("GET", "s/items/"+long, "").isProblem(t, journal.InvalidRequest)
		}
		wide := percent(strings.Repeat("🧾", 128))
		if made, put := spelt("PUT", wide, ""), spelt("PUT", wide+"/items/%00", `{"value":1}`); made.status != 201 || put.status != 201 {
			t.Errorf("%+v, %+v", made, put)
		}
		for path, allow := range map[string]string{"s": "GET, HEAD, PUT", "s/items": "GET, HEAD", "s/items/k": "DELETE, GET, HEAD, PUT", "s/batch": "POST"} {
			g := s.do("PATCH", path, "{}")
			if g.isProblem(t, MethodNotAllowed); g.value("Allow") != allow {
				t.Errorf("%s: Allow is %q", path, g.value("Allow"))
			}
		}
	})
}

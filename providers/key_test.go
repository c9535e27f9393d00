package providers

import (
	"bytes"
	"reflect"
	"strings"
	"testing"

	"counterfoil/classify"
)

const secret = "hunter2"

func TestPlaceInHeaderReplacesAKeyThatAnSDKInvented(t *testing.T) {
	r := &classify.Request{
		Method: "POST", Target: "/a", Body: []byte("x"),
		Header: append(make(classify.Header, 0, 8),
			classify.Field{Name: "A", Value: "1"}, classify.Field{Name: "idempotency-key", Value: "stripe-node-retry-1"},
			classify.Field{Name: "B", Value: "2"}, classify.Field{Name: "IDEMPOTENCY-KEY", Value: "again"}),
	}
	before := append(classify.Header(nil), r.Header...)
	got, err := DefaultKey().Place(r, "k1")
	if err != nil {
		t.Fatal(err)
	}
	want := classify.Header{{Name: "A", Value: "1"}, {Name: "Idempotency-Key", Value: "k1"}, {Name: "B", Value: "2"}}
	if !reflect.DeepEqual(got.Header, want) {
		t.Errorf("got %v, want %v", got.Header, want)
	}
	if !reflect.DeepEqual(r.Header, before) {
		t.Errorf("the caller's header became %v", r.Header)
	}
	for _, key := range []string{"a\r\nX-Evil: 1", "a\x00", "a\x7f"} {
		if _, err := DefaultKey().Place(r, key); err == nil {
			t.Errorf("%q was placed", key)
		}
	}
}

func TestPlaceNowhereChangesNothing(t *testing.T) {
	r := &classify.Request{Method: "GET", Target: "/a?b", Body: []byte("x")}
	got, err := KeyPlacement{}.Place(r, "k")
	if err != nil || !reflect.DeepEqual(got, *r) {
		t.Errorf("got %v, %v", got, err)
	}
}

func TestPlaceInQueryKeepsEveryOtherByte(t *testing.T) {
	tests := []struct{ target, want string }{
		{"/a", "/a?request_id=k%2F1"},
		{"/a?", "/a?request_id=k%2F1"},
		{"/a?b=%7e&c", "/a?b=%7e&c&request_id=k%2F1"},
		{"/a?request_id=old&b=+1&request_id=older", "/a?request_id=k%2F1&b=+1"},
		{"/a?request%5Fid=old&x==", "/a?request_id=k%2F1&x=="},
		{"/a?%zz=1&&", "/a?%zz=1&&&request_id=k%2F1"},
	}
	for _, tt := range tests {
		got, err := KeyPlacement{InQuery, "request_id"}.Place(&classify.Request{Target: tt.target}, "k/1")
		if err != nil || got.Target != tt.want {
			t.Errorf("%s: got %s, %v; want %s", tt.target, got.Target, err, tt.want)
		}
	}
}

func TestPlaceInForm(t *testing.T) {
	form := classify.Header{{Name: "Content-Type", Value: "application/x-www-form-urlencoded; charset=utf-8"}}
	got, err := KeyPlacement{InForm, "ref"}.Place(&classify.Request{Header: form, Body: []byte("a=+%20&ref=x&b")}, "k 1")
	if want := "a=+%20&ref=k%201&b"; err != nil || string(got.Body) != want {
		t.Errorf("got %s, %v; want %s", got.Body, err, want)
	}
	for _, h := range []classify.Header{
		nil,
		{{Name: "Content-Type", Value: "multipart/form-data; boundary=x"}},
		append(form, classify.Field{Name: "Content-Encoding", Value: "gzip"}),
		append(form, classify.Field{Name: "Content-Digest", Value: "x"}),
	} {
		if _, err := (KeyPlacement{InForm, "ref"}).Place(&classify.Request{Header: h, Body: []byte("a=b")}, "k"); err == nil {
			t.Errorf("placed under %v", h)
		}
	}
}

func TestPlaceInJSONKeepsEveryOtherByte(t *testing.T) {
	tests := []struct{ name, pointer, body, want string }{
		{"empty object", "/key", ` { } `, ` {"key":"k\"1" } `},
		{"first", "/key", `{"n": 1.0e5, "u":"é\u00e9"}`, `{"key":"k\"1","n": 1.0e5, "u":"é\u00e9"}`},
		{"replaced string", "/key", `{"a":1, "key" : "old" ,"b":2}`, `{"a":1, "key" : "k\"1" ,"b":2}`},
		{"replaced number", "/key", "{\"key\":12 \n}", "{\"key\":\"k\\\"1\" \n}"},
		{"replaced object", "/key", `{"key":{"key":[1]}}`, `{"key":"k\"1"}`},
		{"inside", "/meta/key", `{"meta": {"x":[{"key":1}]},"key":3}`, `{"meta": {"key":"k\"1","x":[{"key":1}]},"key":3}`},
		{"escaped name", "/a~1b~0/key", `{"a/b~":{}}`, `{"a/b~":{"key":"k\"1"}}`},
		{"name spelt otherwise", "/key", `{"\u006bey":1}`, `{"\u006bey":"k\"1"}`},
		{"case counts", "/key", `{"Key":1}`, `{"key":"k\"1","Key":1}`},
	}
	for _, tt := range tests {
		body := []byte(tt.body)
		got, err := KeyPlacement{InJSON, tt.pointer}.Place(&classify.Request{Body: body}, `k"1`)
		if err != nil || string(got.Body) != tt.want {
			t.Errorf("%s: got %s, %v; want %s", tt.name, got.Body, err, tt.want)
		}
		if string(body) != tt.body {
			t.Errorf("%s: the caller's body became %s", tt.name, body)
		}
	}
}

func TestPlaceInJSONRefusesWhatItCannotKeepWhole(t *testing.T) {
	gz := classify.Header{{Name: "Content-Encoding", Value: "gzip"}}
	md5 := classify.Header{{Name: "Content-MD5", Value: "x"}}
	tests := []struct {
		name, pointer, body, key string
		header                   classify.Header
	}{
		{"not JSON", "/key", secret, "k", nil},
		{"cut", "/key", `{"a":"` + secret, "k", nil},
		{"empty", "/key", "", "k", nil},
		{"two documents", "/key", `{"a":"hunter2"}{}`, "k", nil},
		{"array", "/key", `["hunter2"]`, "k", nil},
		{"scalar", "/key", `"hunter2"`, "k", nil},
		{"no parent", "/meta/key", `{"a":"hunter2"}`, "k", nil},
		{"parent is an array", "/meta/0", `{"meta":["hunter2"]}`, "k", nil},
		{"name twice", "/key", `{"key":"hunter2","key":"b"}`, "k", nil},
		{"compressed", "/key", `{}`, "k", gz},
		{"digest", "/key", `{}`, "k", md5},
		{"key not UTF-8", "/key", `{}`, "\xff", nil},
		{"too deep", "/key", strings.Repeat("[", 100_000), "k", nil},
	}
	for _, tt := range tests {
		r := &classify.Request{Header: tt.header, Body: []byte(tt.body)}
		got, err := KeyPlacement{InJSON, tt.pointer}.Place(r, tt.key)
		if err == nil {
			t.Errorf("%s: got %s", tt.name, got.Body)
		} else if strings.Contains(err.Error(), secret) {
			t.Errorf("%s: the error tells the body: %v", tt.name, err)
		}
	}
}

func FuzzPlaceInJSON(f *testing.F) {
	f.Add([]byte(`{"a": {"key" :1 } }`))
	f.Add([]byte(`{"a":{}}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		k := KeyPlacement{InJSON, "/a/key"}
		once, err := k.Place(&classify.Request{Body: body}, "k1")
		if err != nil {
			return
		}
		twice, err := k.Place(&once, "k1")
		if err != nil || !bytes.Equal(once.Body, twice.Body) {
			t.Errorf("placing again gave %s and %v after %s", twice.Body, err, once.Body)
		}
		if v, err := bodyValue(&once, []string{"a", "key"}); err != nil || v != "k1" {
			t.Errorf("read back %q, %v from %s", v, err, once.Body)
		}
	})
}

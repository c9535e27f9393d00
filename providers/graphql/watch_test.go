package graphql

import (
	"bytes"
	"compress/gzip"
	"context"
	"testing"

	"counterfoil/classify"
	"counterfoil/providers"
)

func judged(t *testing.T, doc string, h providers.Head, body []byte) providers.Judgement {
	t.Helper()
	w := read(t, posted(doc, "")).Watch(h)
	if w == nil {
		return providers.Judgement{}
	}
	for i := range body {
		w.Write(body[i : i+1])
	}
	return w.End(context.Background())
}

func TestWatch(t *testing.T) {
	const (
		one = `mutation { a { x { id } userErrors { message } } }`
		two = `mutation { a { id } b: a { id } }`
	)
	for _, tt := range []struct {
		what, doc string
		body      string
		want      classify.Outcome
	}{
		{"data", one, `{"data":{"a":{"x":{"id":1},"userErrors":[]}}}`, classify.Applied},
		{"a scalar", one, `{"data":{"a":true}}`, classify.Applied},
		{"data, and null for errors", one, `{"data":{"a":{}},"errors":null}`, classify.Applied},
		{"a refusal", one, `{"errors":[{"message":"m","extensions":{"code":"GRAPHQL_VALIDATION_FAILED"}}]}`, classify.Rejected},
		{"a refusal with data", one, `{"data":{"a":null},"errors":[{"extensions":{"code":"BAD_USER_INPUT"}}]}`, classify.Rejected},
		{"a refusal and another error", one, `{"data":null,"errors":[{"extensions":{"code":"BAD_USER_INPUT"}},{}]}`, classify.Ambiguous},
		{"an error", one, `{"data":null,"errors":[{"extensions":{"code":"INTERNAL_SERVER_ERROR"}}]}`, classify.Ambiguous},
		{"an error with a number", one, `{"errors":[{"extensions":{"code":3}}]}`, classify.Ambiguous},
		{"an error below", one, `{"data":{"a":{"x":null}},"errors":[{"extensions":{"code":"BAD_USER_INPUT"}}]}`, classify.Ambiguous},
		{"nothing", one, `{"data":{}}`, classify.Ambiguous},
		{"null", one, `{"data":{"a":null}}`, classify.Ambiguous},
		{"both", two, `{"data":{"a":{"id":1},"b":{"id":2}}}`, classify.Applied},
		{"one of two", two, `{"data":{"a":{"id":1},"b":null},"errors":[{"extensions":{"code":"BAD_USER_INPUT"}}]}`, classify.Ambiguous},
		{"the payload's errors", one, `{"data":{"a":{"x":null,"userErrors":[{"message":"m"}]}}}`, classify.Rejected},
		{"the payload's errors and an object", one, `{"data":{"a":{"x":{"id":1},"userErrors":[{"message":"m"}]}}}`, classify.Ambiguous},
		{"the payload's errors alone", `mutation { a { userErrors { message } } }`, `{"data":{"a":{"userErrors":[{"message":"m"}]}}}`, classify.Ambiguous},
		{"another's page", one, `<html>`, classify.Ambiguous},
		{"a list", one, `[{"data":{"a":{}}}]`, classify.Ambiguous},
	} {
		got := judged(t, tt.doc, providers.Head{Status: 200}, []byte(tt.body))
		if got.Outcome != tt.want || (got.Reason == "") != (tt.want != classify.Ambiguous) {
			t.Errorf("%s: %+v, want %s", tt.what, got, tt.want)
		}
	}
}

func TestWatchCoded(t *testing.T) {
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	_, _ = z.Write([]byte(`{"data":{"a":{}}}`))
	_ = z.Close()
	head := func(coding string) providers.Head {
		return providers.Head{Status: 200, Header: classify.Header{{Name: "Content-Encoding", Value: coding}}}
	}
	const doc = `mutation { a { x } }`
	if j := judged(t, doc, head("gzip"), b.Bytes()); j.Outcome != classify.Applied {
		t.Errorf("gzip: %+v", j)
	}
	if j := judged(t, doc, head("br"), b.Bytes()); j.Outcome != classify.Ambiguous {
		t.Errorf("br: %+v", j)
	}
	if j := judged(t, doc, providers.Head{Status: 200}, make([]byte, judgedBytesMax+1)); j.Outcome != classify.Ambiguous {
		t.Errorf("long: %+v", j)
	}
	if j := judged(t, doc, providers.Head{Status: 500}, nil); j.Outcome != 0 {
		t.Errorf("a status that speaks for itself: %+v", j)
	}
}

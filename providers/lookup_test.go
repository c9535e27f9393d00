package providers

import (
	"reflect"
	"strings"
	"testing"

	"counterfoil/classify"
)

func lookupOf(t testing.TB, fields string) *Lookup {
	t.Helper()
	return mustParse(t, "[{name: a, class: effect, lookup: {"+fields+"}}]").Operations[0].Lookup
}

func asking(t testing.TB, request string) *Lookup {
	t.Helper()
	return lookupOf(t, `found: "$key == $key", request: "`+request+`"`)
}

func TestLookupFillsPlaceholdersPercentEncoded(t *testing.T) {
	original := &classify.Request{Body: []byte(
		`{"ref":"a/b?c#d\r\nX: %2e é","n":9007199254740993,"f":1.10 ,"yes":true,"meta":{"x/y":"deep"},"dots":".."}`)}
	q := Query{Key: "run-1:t:c", Run: "r 1", Turn: "-", Call: "c&d=e", Original: original}
	tests := []struct{ request, want string }{
		{"GET /effects/{key}", "/effects/run-1%3At%3Ac"},
		{"GET /e?run={run}&turn={turn}&call={call}", "/e?run=r%201&turn=-&call=c%26d%3De"},
		{"GET /e/{body.ref}", "/e/a%2Fb%3Fc%23d%0D%0AX%3A%20%252e%20%C3%A9"},
		{"GET /e?ref={body.ref}", "/e?ref=a%2Fb%3Fc%23d%0D%0AX%3A%20%252e%20%C3%A9"},
		{"GET /e/{body.n}/{body.f}/{body.yes}", "/e/9007199254740993/1.10/true"},
		{"GET /e/{body./meta/x~1y}", "/e/deep"},
		{"GET /e/a{key}b;p=%2F/x", "/e/arun-1%3At%3Acb;p=%2F/x"},
		{"GET /e?d={body.dots}", "/e?d=.."},
	}
	for _, tt := range tests {
		r, err := asking(t, tt.request).Request(q)
		if err != nil || r.Target != tt.want || r.Method != "GET" || r.Body != nil {
			t.Errorf("%s: got %+v, %v; want %s", tt.request, r, err, tt.want)
		}
	}
}

func TestLookupWithoutAValueIsNotAsked(t *testing.T) {
	long := strings.Repeat("a", targetBytesMax)
	body := `{"o":{},"l":[1],"z":null,"e":"","twice":"hunter2","twice":1,"dots":"..","dot":".","s":"hunter2"}`
	tests := []struct {
		request, body, wants string
		q                    Query
	}{
		{"GET /e/{key}", "", "{key}: it is empty", Query{}},
		{"GET /e/{body.gone}", body, "{body./gone}: the request's body does not hold it", Query{}},
		{"GET /e/{body./s/deeper}", body, "not a JSON object", Query{}},
		{"GET /e/{body.o}", body, "not a string", Query{}},
		{"GET /e/{body.l}", body, "not a string", Query{}},
		{"GET /e/{body.z}", body, "not a string", Query{}},
		{"GET /e/{body.e}", body, "empty", Query{}},
		{"GET /e/{body.twice}", body, "twice", Query{}},
		{"GET /e/{body.dots}", body, "leads elsewhere", Query{}},
		{"GET /e/{body.dot}/x", body, "leads elsewhere", Query{}},
		{"GET /e/{body.s}", "s=hunter2", "not plain JSON", Query{}},
		{"GET /e/{key}", "", "longer than", Query{Key: long}},
	}
	for _, tt := range tests {
		tt.q.Original = &classify.Request{Body: []byte(tt.body)}
		r, err := asking(t, tt.request).Request(tt.q)
		if err == nil {
			t.Errorf("%s: got %s", tt.request, r.Target)
			continue
		}
		if !strings.Contains(err.Error(), tt.wants) || strings.Contains(err.Error(), secret) {
			t.Errorf("%s: got %v, want %q", tt.request, err, tt.wants)
		}
	}
	if _, err := asking(t, "GET /e/{body.a}").Request(Query{}); err == nil {
		t.Error("a body was read out of no request")
	}
}

func TestLookupAsksAsTheOriginalDid(t *testing.T) {
	op := mustParse(t, `[{name: a, class: effect, key: {place: header, name: X-Request-Id},
		lookup: {request: "GET /e/{key}", found: ".a"}}]`).Operations[0]
	original := &classify.Request{
		Upstream: "tickets", Method: "POST", Target: "/tickets", Body: []byte("{}"),
		Header: classify.Header{
			{Name: "Authorization", Value: "Bearer x"}, {Name: "Stripe-Account", Value: "acct_1"}, {Name: "Accept", Value: "text/html"},
			{Name: "Content-Type", Value: "application/json"}, {Name: "Content-MD5", Value: "x"}, {Name: "X-HTTP-Method-Override", Value: "DELETE"},
			{Name: "x-request-id", Value: "k"}, {Name: "Idempotency-Key", Value: "k"}, {Name: "If-Match", Value: "x"},
			{Name: "Expect", Value: "100-continue"}, {Name: "Range", Value: "bytes=0-1"}, {Name: "Counterfoil-Run", Value: "r"},
			{Name: "Accept-Encoding", Value: "br"}, {Name: "Cookie", Value: "s=1"}, {Name: "Prefer", Value: "wait=3"},
		},
	}
	r, err := op.Lookup.Request(Query{Key: "k", Original: original})
	if err != nil {
		t.Fatal(err)
	}
	want := classify.Header{
		{Name: "Authorization", Value: "Bearer x"}, {Name: "Stripe-Account", Value: "acct_1"}, {Name: "Cookie", Value: "s=1"},
		{Name: "Accept", Value: "application/json"}, {Name: "Accept-Encoding", Value: "identity"},
	}
	if r.Upstream != "tickets" || !reflect.DeepEqual(r.Header, want) {
		t.Errorf("got %s %v, want %v", r.Upstream, r.Header, want)
	}
}

package providers

import (
	"bytes"
	"compress/gzip"
	"context"
	"reflect"
	"strings"
	"testing"
	"time"

	"counterfoil/classify"
)

func judging(t testing.TB, fields string) *Lookup {
	t.Helper()
	return lookupOf(t, `request: "GET /e/{key}", `+fields)
}

func zipped(t testing.TB, text string) []byte {
	t.Helper()
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	if _, err := w.Write([]byte(text)); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func TestJudge(t *testing.T) {
	const plain = `found: ".id != null", not_found: {status: [404]}`
	query := Query{Key: "k1", Run: "r", Turn: "t", Call: "c", Original: &classify.Request{Body: []byte(`{"ref":"hunter2"}`)}}
	coded := func(coding string) classify.Header {
		return classify.Header{{Name: "Content-Encoding", Value: coding}}
	}
	tests := []struct {
		name, fields string
		answer       Answer
		want         Discovery
		says         string
	}{
		{"found", plain, Answer{Status: 200, Body: []byte(`{"id":1}`)}, Found, ""},
		{"a 200 without it", plain, Answer{Status: 200, Body: []byte(`{"id":null}`)}, Absent, "does not show"},
		{"a status that means absence", plain, Answer{Status: 404, Body: []byte(`{"id":1}`)}, Absent, "answered 404"},
		{"404 that nobody vouched for", `found: ".id != null"`, Answer{Status: 404}, Inconclusive, "not_found does not list it"},
		{"410 that nobody vouched for", plain, Answer{Status: 410}, Inconclusive, "not_found"},
		{"401", plain, Answer{Status: 401}, Inconclusive, "credential"},
		{"403", plain, Answer{Status: 403}, Inconclusive, "credential"},
		{"429", plain, Answer{Status: 429}, Inconclusive, "429"},
		{"500", plain, Answer{Status: 500, Body: []byte(`{"id":1}`)}, Inconclusive, "500"},
		{"302", plain, Answer{Status: 302}, Inconclusive, "redirects"},
		{"202", plain, Answer{Status: 202, Body: []byte(`{"id":1}`)}, Inconclusive, "202"},
		{"206", plain, Answer{Status: 206, Body: []byte(`{"id":1}`)}, Inconclusive, "206"},
		{"no JSON", plain, Answer{Status: 200, Body: []byte(`<p>hunter2`)}, Inconclusive, "not JSON"},
		{"nothing", plain, Answer{Status: 200}, Inconclusive, "not JSON"},
		{"cut", plain, Answer{Status: 200, Body: []byte(`{"id":1`)}, Inconclusive, "not JSON"},
		{"two documents", plain, Answer{Status: 200, Body: []byte(`{"id":1} {"id":null}`)}, Inconclusive, "more than one"},
		{"another shape", plain, Answer{Status: 200, Body: []byte(`["hunter2"]`)}, Inconclusive, "failed on this answer"},
		{"gzip", plain, Answer{200, coded("gzip"), zipped(t, `{"id":1}`)}, Found, ""},
		{"broken gzip", plain, Answer{200, coded("gzip"), []byte(`{"id":1}`)}, Inconclusive, "gzip"},
		{"cut gzip", plain, Answer{200, coded("gzip"), zipped(t, `{"id":1}`)[:20]}, Inconclusive, "gzip"},
		{"brotli", plain, Answer{200, coded("br"), []byte(`{"id":1}`)}, Inconclusive, "content coding"},
		{"not a boolean", `found: ".id"`, Answer{Status: 200, Body: []byte(`{"id":"hunter2"}`)}, Inconclusive, "neither true nor false"},
		{"null", `found: ".id"`, Answer{Status: 200, Body: []byte(`{}`)}, Inconclusive, "neither true nor false"},
		{"no value", `found: ".[] | .a"`, Answer{Status: 200, Body: []byte(`[]`)}, Inconclusive, "yielded nothing"},
		{"two values", `found: ".[]"`, Answer{Status: 200, Body: []byte(`[true,true]`)}, Inconclusive, "more than one"},
		{"a value and a failure", `found: "true, error(.a)"`, Answer{Status: 200, Body: []byte(`{"a":"hunter2"}`)}, Inconclusive, "failed"},
		{"raised", `found: "error(.a)"`, Answer{Status: 200, Body: []byte(`{"a":"hunter2"}`)}, Inconclusive, "test.yaml:1: operations[0].lookup.found failed"},
		{"halted", `found: "halt_error"`, Answer{Status: 200, Body: []byte(`"hunter2"`)}, Inconclusive, "failed"},
		{"environment", `found: "(env|length) + ($ENV|length) == 0"`, Answer{Status: 200, Body: []byte(`{}`)}, Found, ""},
		{"by key", `found: "any(.[]; .k == $key)"`, Answer{Status: 200, Body: []byte(`[{"k":"k1"}]`)}, Found, ""},
		{"by identity", `found: "[$run,$turn,$call] == ."`, Answer{Status: 200, Body: []byte(`["r","t","c"]`)}, Found, ""},
		{"by request", `found: ".ref == $request.ref"`, Answer{Status: 200, Body: []byte(`{"ref":"hunter2"}`)}, Found, ""},
		{"big numbers differ", `found: ".n == 9007199254740993"`, Answer{Status: 200, Body: []byte(`{"n":9007199254740992}`)}, Absent, ""},
		{"response fails", plain + `, response: {body: ".a.b"}`, Answer{Status: 200, Body: []byte(`{"id":1,"a":"hunter2"}`)}, Inconclusive, "the effect exists, but"},
		{"response empty", plain + `, response: {body: "empty"}`, Answer{Status: 200, Body: []byte(`{"id":1}`)}, Inconclusive, "yielded nothing"},
		{"response twice", plain + `, response: {body: ".,."}`, Answer{Status: 200, Body: []byte(`{"id":1}`)}, Inconclusive, "more than one"},
		{"response too large", plain + `, response: {body: "[limit(40; repeat(1))] | reduce .[] as $_ (0; [.,.])"}`, Answer{Status: 200, Body: []byte(`{"id":1}`)}, Inconclusive, "too large"},
		{"response too deep", plain + `, response: {body: "reduce range(2000) as $_ (0; [.])"}`, Answer{Status: 200, Body: []byte(`{"id":1}`)}, Inconclusive, "nested too deep"},
		{"long", plain, Answer{Status: 200, Body: bytes.Repeat([]byte(" "), documentBytesMax+1)}, Inconclusive, "longer than 8388608"},
		{"gzip bomb", plain, Answer{200, coded("gzip"), zipped(t, strings.Repeat(" ", documentBytesMax+1))}, Inconclusive, "longer than 8388608"},
		{"as long as may be", plain, Answer{Status: 200, Body: append([]byte(`{"id":1}`), bytes.Repeat([]byte(" "), documentBytesMax-8)...)}, Found, ""},
		{"many values", plain, Answer{Status: 200, Body: []byte("[0" + strings.Repeat(",0", valuesMax) + "]")}, Inconclusive, "too many values"},
		{"deep for us", plain, Answer{Status: 200, Body: []byte(strings.Repeat("[", 1002) + strings.Repeat("]", 1002))}, Inconclusive, "nested too deep"},
		{"deep for anyone", plain, Answer{Status: 200, Body: []byte(strings.Repeat(`{"a":`, 200_000))}, Inconclusive, "not JSON"},
		{"long number", plain, Answer{Status: 200, Body: []byte(`{"id":` + strings.Repeat("9", 1001) + `}`)}, Inconclusive, "number too long"},
		{"endless exponent", `found: ".id + 1 > 0"`, Answer{Status: 200, Body: []byte(`{"id":1e999999999}`)}, Found, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := judging(t, tt.fields).Judge(t.Context(), query, tt.answer)
			if got.Discovery != tt.want || !strings.Contains(got.Reason, tt.says) {
				t.Errorf("got %v (%s), want %v (%s)", got.Discovery, got.Reason, tt.want, tt.says)
			}
			if (got.Discovery == Found) != (got.Answer.Status != 0) {
				t.Errorf("%v with the answer %v", got.Discovery, got.Answer)
			}
			if strings.Contains(got.Reason, secret) {
				t.Errorf("the reason tells the answer: %s", got.Reason)
			}
		})
	}
}

func TestJudgeNeedsTheRequestOnlyWhereAProgramReadsIt(t *testing.T) {
	l := judging(t, `found: ".ref == $request.ref"`)
	answer := Answer{Status: 200, Body: []byte(`{}`)}
	for _, original := range []*classify.Request{nil, {Body: []byte("a=b")}, {Header: classify.Header{{Name: "Content-Encoding", Value: "gzip"}}, Body: []byte("{}")}} {
		if got := l.Judge(t.Context(), Query{Original: original}, answer); got.Discovery != Inconclusive {
			t.Errorf("%v: got %v", original, got)
		}
	}
	l = judging(t, `found: "true"`)
	if got := l.Judge(t.Context(), Query{}, answer); got.Discovery != Found {
		t.Errorf("got %v", got)
	}
}

func TestProgramsThatLoopAreStopped(t *testing.T) {
	for _, program := range []string{"def f: f; f", "last(repeat(1))", "true, (def f: f; f)", "[range(1; infinite)] | true", "def f: 1 + f; f"} {
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
		got := judging(t, `found: "`+program+`"`).Judge(ctx, Query{}, Answer{Status: 200, Body: []byte("{}")})
		cancel()
		if got.Discovery != Inconclusive || !strings.Contains(got.Reason, "did not end in time") {
			t.Errorf("%s: got %v (%s)", program, got.Discovery, got.Reason)
		}
	}
}

// The caller may have set no limit of its own.
func TestProgramsThatLoopAreStoppedWithoutADeadline(t *testing.T) {
	got := judging(t, `found: "def f: f; f"`).Judge(context.Background(), Query{}, Answer{Status: 200, Body: []byte("{}")})
	if got.Discovery != Inconclusive || !strings.Contains(got.Reason, "did not end in time") {
		t.Errorf("got %v (%s)", got.Discovery, got.Reason)
	}
}

func TestTheReceiptIsTheLookupsAnswer(t *testing.T) {
	header := classify.Header{
		{Name: "Content-Type", Value: "application/vnd.x+json"}, {Name: "ETag", Value: `"1"`}, {Name: "Content-Length", Value: "9"},
		{Name: "Connection", Value: "close, X-Hop"}, {Name: "X-Hop", Value: "1"}, {Name: "Age", Value: "3"}, {Name: "Content-Digest", Value: "x"},
		{Name: "Last-Modified", Value: "y"}, {Name: "X-Request-Id", Value: "r1"}, {Name: "Set-Cookie", Value: "a=b"}, {Name: "Set-Cookie", Value: "c=d"},
	}
	with := func(extra ...classify.Field) classify.Header {
		return append(append(classify.Header{}, header...), extra...)
	}
	kept := classify.Header{{Name: "X-Request-Id", Value: "r1"}, {Name: "Set-Cookie", Value: "a=b"}, {Name: "Set-Cookie", Value: "c=d"}}
	describing := classify.Header{{Name: "Content-Type", Value: "application/vnd.x+json"}}
	const body = "{ \"id\": 9007199254740993,\r\n \"f\":1.10, \"b\":1, \"b\":2, \"s\":\"\\u00e9<\" }\n"
	tests := []struct {
		name, response string
		answer         Answer
		want           Answer
	}{
		{"unchanged by default", "", Answer{200, header, []byte(body)}, Answer{200, append(append(append(append(classify.Header{}, describing...),
			classify.Field{Name: "ETag", Value: `"1"`}, classify.Field{Name: "Content-Digest", Value: "x"}),
			classify.Field{Name: "Last-Modified", Value: "y"}), kept...), []byte(body)}},
		{"unchanged with a status", `, response: {status: 201, body: " . "}`, Answer{200, describing, []byte(body)}, Answer{201, describing, []byte(body)}},
		{"uncompressed", `, response: {body: "."}`, Answer{200, with(classify.Field{Name: "Content-Encoding", Value: "gzip"}), zipped(t, body)},
			Answer{200, append(append(append(classify.Header{}, describing...), classify.Field{Name: "Last-Modified", Value: "y"}), kept...), []byte(body)}},
		{"another body", `, response: {body: "{id, f, s, key: $key}"}`, Answer{200, header, []byte(body)},
			Answer{200, append(append(classify.Header{}, kept...), classify.Field{Name: "Content-Type", Value: "application/json"}),
				[]byte(`{"f":1.10,"id":9007199254740993,"key":"k1","s":"é<"}`)}},
		{"arithmetic on big numbers", `, response: {body: ".id + 1"}`, Answer{200, nil, []byte(`{"id":12345678901234567890123}`)},
			Answer{200, classify.Header{{Name: "Content-Type", Value: "application/json"}}, []byte(`12345678901234567890124`)}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := judging(t, `found: ".id != null"`+tt.response).Judge(t.Context(), Query{Key: "k1"}, tt.answer)
			if got.Discovery != Found || got.Reason != "" {
				t.Fatalf("got %v (%s)", got.Discovery, got.Reason)
			}
			if got.Answer.Status != tt.want.Status || string(got.Answer.Body) != string(tt.want.Body) {
				t.Errorf("got %d %s, want %d %s", got.Answer.Status, got.Answer.Body, tt.want.Status, tt.want.Body)
			}
			if !reflect.DeepEqual(got.Answer.Header, tt.want.Header) {
				t.Errorf("header: got %v, want %v", got.Answer.Header, tt.want.Header)
			}
		})
	}
}

func TestJudgeMayBeCalledConcurrently(t *testing.T) {
	l := judging(t, `found: "any(.[]; .k | test($key))", response: {body: "map(.k) | sort"}`)
	done := make(chan Finding)
	for range 8 {
		go func() {
			done <- l.Judge(t.Context(), Query{Key: "b"}, Answer{Status: 200, Body: []byte(`[{"k":"b"},{"k":"a"}]`)})
		}()
	}
	for range 8 {
		if got := <-done; string(got.Answer.Body) != `["a","b"]` {
			t.Errorf("got %v %s", got, got.Answer.Body)
		}
	}
}

func TestNamesOfWords(t *testing.T) {
	for got, want := range map[string]string{
		Found.String(): "found", Absent.String(): "absent", Inconclusive.String(): "inconclusive", Discovery(0).String(): "invalid",
		ByReplay.String(): "replay_key", ByLookup.String(): "lookup", Strategy(9).String(): "invalid",
		Strong.String(): "strong", Lagging.String(): "lag", Unproven.String(): "unknown", Freshness(9).String(): "invalid",
		InJSON.String(): "json", Where(0).String(): "invalid",
	} {
		if got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
}

func FuzzJudge(f *testing.F) {
	f.Add([]byte(`{"id":1}`), `.id != null`)
	f.Add([]byte(`[1e400,{"a":[]}]`), `.. | numbers`)
	f.Fuzz(func(t *testing.T, body []byte, source string) {
		found, err := compileProgram(Position{}, source)
		if err != nil {
			return
		}
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		l := &Lookup{found: found, body: found, status: 200}
		if got := l.Judge(ctx, Query{}, Answer{Status: 200, Body: body}); got.Discovery == 0 {
			t.Errorf("no discovery for %q and %s", body, source)
		}
	})
}

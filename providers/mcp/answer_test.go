package mcp

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"counterfoil/classify"
	"counterfoil/providers"

	"pgregory.net/rapid"
)

const (
	jsonMedia   = "application/json"
	streamMedia = "text/event-stream; charset=utf-8"
)

func headOf(status int, media string) providers.Head {
	return providers.Head{Status: status, Header: classify.Header{{Name: "Content-Type", Value: media}}, Length: -1}
}

// judged is what an answer to a call of id 1 shows.
func judged(t testing.TB, d providers.Dialect, media, answer string, fields ...string) providers.Judgement {
	t.Helper()
	w := readCall(t, d, posted(toolCall("1", `{"name":"a"}`), fields...)).Watch(headOf(200, media))
	w.Write([]byte(answer))
	return w.End(context.Background())
}

func TestJudgements(t *testing.T) {
	result := func(members string) string { return `{"jsonrpc":"2.0","id":1,"result":{` + members + `}}` }
	failed := func(id string, code int) string {
		return fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"error":{"code":%d,"message":"m"}}`, id, code)
	}
	for _, tt := range []struct {
		what, answer string
		want         classify.Outcome
	}{
		{"a result", result(`"content":[]`), classify.Applied},
		{"a result of another revision", result(`"resultType":"complete"`), classify.Applied},
		{"a tool's error", result(`"isError":true`), classify.Applied},
		{"a task", result(`"resultType":"task","taskId":"t"`), classify.Applied},
		{"input is wanted", result(`"resultType":"input_required"`), classify.NotApplied},
		{"an empty result", `{"jsonrpc":"2.0","id":1,"result":null}`, classify.Applied},
		{"parse error", failed("1", -32700), classify.NotApplied},
		{"invalid request", failed("1", -32600), classify.NotApplied},
		{"no such method", failed("1", -32601), classify.NotApplied},
		{"invalid params", failed("1", -32602), classify.NotApplied},
		{"header mismatch", failed("1", -32020), classify.NotApplied},
		{"a capability is missing", failed("1", -32021), classify.NotApplied},
		{"no such revision", failed("1", -32022), classify.NotApplied},
		{"the user has to go somewhere first", failed("1", -32042), classify.NotApplied},
		{"internal error", failed("1", -32603), classify.Ambiguous},
		{"an error of the server's own", failed("1", -32000), classify.Ambiguous},
		{"an error without a code", `{"jsonrpc":"2.0","id":1,"error":{}}`, classify.Ambiguous},
		{"another id", strings.Replace(result(""), `"id":1`, `"id":2`, 1), classify.Ambiguous},
		{"an id that is text", strings.Replace(result(""), `"id":1`, `"id":"1"`, 1), classify.Ambiguous},
		{"a request of the server's with that id", `{"jsonrpc":"2.0","id":1,"method":"ping"}`, classify.Ambiguous},
		{"no JSON", "<html>", classify.Ambiguous},
		{"nothing", "", classify.Ambiguous},
	} {
		if got := judged(t, New(providers.Settings{}), jsonMedia, tt.answer).Outcome; tt.answer != "" && got != tt.want {
			t.Errorf("%s, whole: %v, want %v", tt.what, got, tt.want)
		}
		stream := ": hi\n\ndata: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/progress\"}\n\ndata: " + tt.answer + "\n\n"
		if got := judged(t, New(providers.Settings{}), streamMedia, stream).Outcome; got != tt.want {
			t.Errorf("%s, streamed: %v, want %v", tt.what, got, tt.want)
		}
	}
	for answer, want := range map[string]classify.Outcome{failed("null", -32600): classify.NotApplied, failed("null", -32603): classify.Ambiguous, `{"jsonrpc":"2.0","id":null,"result":{}}`: classify.Ambiguous} {
		if got := judged(t, New(providers.Settings{}), jsonMedia, answer).Outcome; got != want {
			t.Errorf("%s: %v, want %v", answer, got, want)
		}
	}
	if got := judged(t, New(providers.Settings{}), streamMedia, "data: "+failed("null", -32600)+"\n\n").Outcome; got != classify.Ambiguous {
		t.Errorf("an error of nobody's on a stream: %v", got)
	}
}

// A message that is too long is not held in memory, and never taken for an answer.
func TestLongAnswers(t *testing.T) {
	long := `{"jsonrpc":"2.0","id":1,"result":{"x":"` + strings.Repeat("y", responseBytesMax) + `"}}`
	for media, answer := range map[string]string{jsonMedia: long, streamMedia: "id: 1\ndata: " + long + "\n\n"} {
		if got := judged(t, New(providers.Settings{}), media, answer); got.Outcome != classify.Ambiguous || got.Awaits != "" || !strings.Contains(got.Reason, "too long") {
			t.Errorf("%s: %+v", media, got)
		}
	}
}

// Only answers of success are judged by their content.
func TestWatchSeesSuccessOnly(t *testing.T) {
	d := New(providers.Settings{})
	for status, watches := range map[int]bool{200: true, 202: true, 302: false, 400: false, 404: false, 500: false} {
		if w := readCall(t, d, posted(toolCall("1", `{"name":"a"}`))).Watch(headOf(status, jsonMedia)); (w != nil) != watches {
			t.Errorf("%d: %v", status, w)
		}
	}
}

// spell finds one spelling of an id for all of its spellings, and no other's.
func TestSpelt(t *testing.T) {
	for _, same := range [][]string{
		{`1`, `1.0`, `1e0`, `10e-1`}, {`"1"`, `"\u0031"`}, {`"a/b+ü"`, `"a\/b\u002b\u00fc"`}, {`0`, `0.0`}, {`-7`, `-7.0`},
		{`9007199254740993`}, {`9007199254740992`}, {`"null"`}, {`null`}, {``}, {`1.5`, `15e-1`}, {`1e999`}, {`"\"1"`},
	} {
		for _, id := range same {
			if spelt([]byte(id)) != spelt([]byte(same[0])) {
				t.Errorf("%s is %q, %s is %q", id, spelt([]byte(id)), same[0], spelt([]byte(same[0])))
			}
		}
	}
	seen := map[string]string{}
	for _, id := range []string{`1`, `"1"`, `9007199254740993`, `9007199254740992`, `"9007199254740992"`, `null`, `"null"`, ``, `1.5`, `1e999`, `"\"1"`, `true`} {
		if other, is := seen[spelt([]byte(id))]; is {
			t.Errorf("%s and %s are one", id, other)
		}
		seen[spelt([]byte(id))] = id
	}
}

// resumed lets a stream pass that goes on after an event.
func resumed(t testing.TB, d providers.Dialect, session, after, stream string) (told []providers.Late) {
	t.Helper()
	r := &classify.Request{Method: "GET", Target: "/mcp", Header: classify.Header{{Name: "Last-Event-ID", Value: after}}}
	if session != "" {
		r.Header = append(r.Header, classify.Field{Name: "Mcp-Session-Id", Value: session})
	}
	content, refusal := d.Read(r)
	if refusal != nil {
		t.Fatalf("%+v", refusal)
	}
	w := content.(providers.Watchable).Watch(headOf(200, streamMedia))
	if w == nil {
		return nil
	}
	for at := 0; at < len(stream); at += 7 {
		w.Write([]byte(stream[at:min(len(stream), at+7)]))
		told = append(told, w.(providers.Teller).Told()...)
	}
	w.End(context.Background())
	return told
}

// An answer that comes late belongs to the call whose stream it ends: streams are
// told apart by their event ids and sessions, however often they are resumed.
func TestLateAnswers(t *testing.T) {
	const (
		session  = "Mcp-Session-Id: s"
		response = `{"jsonrpc":"2.0","id":1.0,"result":{"content":[]}}`
		last     = "id: x9\ndata: " + response + "\n\n"
	)
	d := New(providers.Settings{})
	first := judged(t, d, streamMedia, "id: x1\ndata:\n\n", session)
	other := judged(t, d, streamMedia, "id: y1\ndata: {\"method\":\"notifications/message\"}\n\nid: y2\n\n", session)
	if first.Awaits == "" || other.Awaits == "" || first.Awaits == other.Awaits {
		t.Fatalf("%q and %q", first.Awaits, other.Awaits)
	}
	for what, told := range map[string][]providers.Late{
		"another session": resumed(t, d, "t", "x1", last), "no session": resumed(t, d, "", "x1", last), "no event": resumed(t, d, "s", "", last),
		"an event of nobody's": resumed(t, d, "s", "z", last), "an event that was not the last": resumed(t, d, "s", "y1", last),
		"an error that may have come out of the tool": resumed(t, d, "s", "x1", "id: x5\ndata: {\"id\":1,\"error\":{\"code\":-32603}}\n\n"),
		"not ended":       resumed(t, d, "s", "x1", strings.TrimSuffix(last, "\n")),
		"of another type": resumed(t, d, "s", "x1", "data: {\"id\":1,\"method\":\"ping\"}\n\n"),
	} {
		if len(told) != 0 {
			t.Errorf("%s: %q", what, told)
		}
	}
	resumed(t, d, "s", "x1", "id: x2\ndata:\n\nid: x3\n\n")
	for what, tt := range map[string]struct{ after, want string }{
		"again from the first end": {"x1", first.Awaits}, "from the second": {"x3", first.Awaits}, "the other's": {"y2", other.Awaits},
	} {
		if told := resumed(t, d, "s", tt.after, last); len(told) != 1 || told[0].Token != tt.want || string(told[0].Body) != response {
			t.Errorf("%s: %q, want one of %q", what, told, tt.want)
		}
	}
}

// No answer is taken for one to a stream whose point of return is not known, and
// a stream that may not end is not one that a client comes back for.
func TestNothingIsAwaited(t *testing.T) {
	long := strings.Repeat("x", streamPointBytesMax+1)
	for what, tt := range map[string]struct{ media, answer, revision, after, want string }{
		"no event ids":           {streamMedia, "event: close\nretry: 10\ndata:\n\n", "2025-11-25", "", nowhere},
		"an id that is not over": {streamMedia, "id: 1\ndata: {}\n", "2025-11-25", "1", nowhere},
		"an id of many bytes":    {streamMedia, "id: " + long + "\n\n", "2025-11-25", long, nowhere},
		"no stream":              {jsonMedia, "id: 1\n\n", "2025-11-25", "1", ""},
		"the stateless revision": {streamMedia, "id: 1\ndata: {}\n\n", "2026-07-28", "1", ""},
	} {
		d := New(providers.Settings{})
		if j := judged(t, d, tt.media, tt.answer, "MCP-Protocol-Version: "+tt.revision); j.Outcome != classify.Ambiguous || j.Awaits != tt.want {
			t.Errorf("%s: %+v", what, j)
		}
		if told := resumed(t, d, "", tt.after, "data: {\"id\":1,\"result\":{}}\n\n"); len(told) != 0 {
			t.Errorf("%s: %q", what, told)
		}
	}
}

// However many streams are left, a bounded number is followed.
func TestStreamsAreBounded(t *testing.T) {
	s := &streams{}
	for i := range streamsMax + 100 {
		at := streamPoint{"s", fmt.Sprint(i)}
		s.follow(at, at)
	}
	if len(s.origins) != streamsMax {
		t.Errorf("%d", len(s.origins))
	}
	newest := streamPoint{"s", fmt.Sprint(streamsMax + 99)}
	if from, ok := s.origin(newest); !ok || from != newest {
		t.Error("the newest is forgotten")
	}
}

// Into what pieces an answer comes makes no difference, and what passes before the
// end is all of the stream but the event with the response and what follows.
func TestPiecesMakeNoDifference(t *testing.T) {
	const before = ": hi\r\n\r\nid: 1\ndata: {\"method\":\"notifications/progress\"}\n\n"
	const after = "event: message\r\ndata: {\"jsonrpc\":\"2.0\",\r\ndata: \"id\":1,\"result\":{}}\r\n\r\n: bye\n\n"
	rapid.Check(t, func(t *rapid.T) {
		content, _ := New(providers.Settings{}).Read(posted(toolCall("1", `{"name":"a"}`)))
		w := content.(*call).Watch(headOf(200, streamMedia))
		gate := w.(providers.Gated)
		passed := ""
		for at := 0; at < len(before+after); {
			n := min(len(before+after), at+rapid.IntRange(1, 40).Draw(t, "piece"))
			w.Write([]byte((before + after)[at:n]))
			passed += string(gate.Take())
			at = n
		}
		if j := w.End(context.Background()); j.Outcome != classify.Applied || passed != before || passed+string(gate.Rest()) != before+after {
			t.Fatalf("%v, passed %q, kept back %q", j, passed, gate.Rest())
		}
	})
}

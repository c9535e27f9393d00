package sse

import (
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func events(text string, splits ...int) []string {
	var got []string
	p := New(1000, func(e Event) { got = append(got, fmt.Sprintf("%s|%s|%s", e.Name, e.ID, e.Data)) }, func() { got = append(got, "too long") })
	at := 0
	for _, n := range splits {
		p.Write([]byte(text[at:n]))
		at = n
	}
	p.Write([]byte(text[at:]))
	return got
}

func TestEvents(t *testing.T) {
	for _, tt := range []struct {
		name, text string
		want       []string
	}{
		{"LF", "data: a\n\ndata:b\n\n", []string{"||a", "||b"}},
		{"CR LF", "event: x\r\ndata: a\r\n\r\n", []string{"x||a"}},
		{"CR", "id: 1\rdata: a\r\rdata: b\r\r", []string{"|1|a", "|1|b"}},
		{"lines joined", "data: a\ndata:\n" + "data:  b\n\n", []string{"||a\n\n b"}},
		{"comments and unknown fields", ": ping\n\nretry: 5\nother\ndata: a\n\n", []string{"||a"}},
		{"byte order mark", "\xef\xbb\xbfdata: a\n\n", []string{"||a"}},
		{"without data", "event: x\nid: 7\n\ndata: a\n\n", []string{"|7|a"}},
		{"not ended", "data: a\n\ndata: b\n", []string{"||a"}},
		{"id with NUL", "id: 1\nid: 2\x00\ndata: a\n\n", []string{"|1|a"}},
		{"emoji", "data: 🎟\n\n", []string{"||🎟"}},
		{"too long", "data: " + strings.Repeat("x", 2000) + "\ndata: y\n\ndata: z\n\n", []string{"too long", "||z"}},
	} {
		if got := events(tt.text); fmt.Sprint(got) != fmt.Sprint(tt.want) {
			t.Errorf("%s: got %q, want %q", tt.name, got, tt.want)
		}
	}
}

// Where the stream is cut into pieces makes no difference (C33).
func TestC33SplitsDoNotMatter(t *testing.T) {
	const text = "\xef\xbb\xbf: hi\r\nevent: a\r\ndata: one\r\ndata:two 🎟\r\n\r\nid: 7\rdata:x\r\rdata: y\n\n:ping\n\ndata: last\r\n\r\n"
	want := events(text)
	if len(want) != 4 {
		t.Fatalf("got %q", want)
	}
	rapid.Check(t, func(t *rapid.T) {
		var splits []int
		for at := 0; at < len(text); {
			at = min(len(text), at+rapid.IntRange(1, 9).Draw(t, "piece"))
			splits = append(splits, at)
		}
		if got := events(text, splits...); fmt.Sprint(got) != fmt.Sprint(want) {
			t.Fatalf("split at %v: got %q, want %q", splits, got, want)
		}
	})
}

// What a gate lets through and what it keeps back are the stream, and the event
// that tells the result is kept back whole.
func TestGate(t *testing.T) {
	const before, last = "\xef\xbb\xbf: hi\r\n\r\ndata: one\r\n\r\n:ping\n\ndata: two\r\r", "event: end\r\ndata: last\r\n\r\ndata: more\n\n"
	rapid.Check(t, func(t *rapid.T) {
		isLast := false
		g := NewGate(New(1000, func(e Event) { isLast = isLast || e.Name == "end" }, nil), func() bool { return isLast })
		passed := ""
		for at := 0; at < len(before+last); {
			n := min(len(before+last), at+rapid.IntRange(1, 9).Draw(t, "piece"))
			g.Write([]byte((before + last)[at:n]))
			passed += string(g.Take())
			at = n
		}
		if passed+string(g.Rest()) != before+last || len(passed) > len(before) || len(passed) < len(before)-1 {
			t.Fatalf("passed %q, kept back %q", passed, g.Rest())
		}
	})
}

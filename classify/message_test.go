package classify

import (
	"slices"
	"testing"
)

func TestC68_HeaderKeepsEveryLine(t *testing.T) {
	h := Header{{"Link", "a"}, {"X_Under", "1"}, {"link", "b"}, {"Empty", ""}}
	if got := h.Values("LINK"); !slices.Equal(got, []string{"a", "b"}) {
		t.Errorf("values: %q", got)
	}
	if h.Value("link") != "a" || h.Value("none") != "" || !h.Has("empty") || h.Has("X-Under") {
		t.Errorf("first values and presence are wrong in %v", h)
	}
	kept := h.Without(func(name string) bool { return name == "Link" })
	if want := (Header{{"X_Under", "1"}, {"link", "b"}, {"Empty", ""}}); !slices.Equal(kept, want) || len(h) != 4 {
		t.Errorf("without Link: %v of %v", kept, h)
	}
	if got, want := slices.Clone(h).Set("LINK", "c"), (Header{{"LINK", "c"}, {"X_Under", "1"}, {"Empty", ""}}); !slices.Equal(got, want) {
		t.Errorf("set: %v, want %v", got, want)
	}
	if got, want := kept.Set("New", "n"), append(slices.Clone(kept), Field{"New", "n"}); !slices.Equal(got, want) {
		t.Errorf("set anew: %v, want %v", got, want)
	}
}

func TestPathIsTheTargetWithoutItsQuery(t *testing.T) {
	for target, want := range map[string]string{"/a?b=/c?d": "/a", "/a": "/a", "/?": "/", "": "/"} {
		if got := (&Request{Target: target}).Path(); got != want {
			t.Errorf("%q: got %q, want %q", target, got, want)
		}
	}
}

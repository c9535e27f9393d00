package keystore

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"testing"
)

// byHand derives a provider key without the code under test: the prefixes byte
// by byte, and base 32 with digits of its own, five bits at a time.
func byHand(namespace, run, turn, call string) string {
	var b []byte
	for _, part := range []string{namespace, run, turn, call} {
		n := len(part)
		b = append(b, byte(n>>24), byte(n>>16), byte(n>>8), byte(n))
		b = append(b, part...)
	}
	sum := sha256.Sum256(b)
	var key []byte
	for bit := 0; bit < 120; bit += 5 {
		v := 0
		for i := bit; i < bit+5; i++ {
			v = v<<1 | int(sum[i/8]>>(7-i%8)&1)
		}
		key = append(key, "0123456789abcdefghijklmnopqrstuv"[v])
	}
	return string(key)
}

// TestProviderKeyVectors pins the keys of docs/format.md. They never change: a
// provider that honours keys must recognise a call for ever.
func TestProviderKeyVectors(t *testing.T) {
	for _, tc := range []struct {
		key      Key
		printed  string
		provider ProviderKey
		uuid     string
	}{
		{Key{"default", "ticket-77", "3", "create"}, "ticket-77:3:create", "qh4a9r2p2l5cokr0r1vjk8l6", "d448a4ec-5915-4acc-9360-d87f3a22a69b"},
		{Key{"acme", "Straße 1/2", "-", "a:b;c,d%e"}, "Stra%C3%9Fe%201%2F2:-:a%3Ab%3Bc%2Cd%25e", "2l9rkhaim2lah1biu63ootaq", "1553ba45-52b0-4aa8-8572-f1878c755ab6"},
	} {
		k := tc.key
		if got := k.String(); got != tc.printed {
			t.Errorf("printed: got %s, want %s", got, tc.printed)
		}
		if got := k.ProviderKey(); got != tc.provider || string(got) != byHand(k.Namespace, k.Run, k.Turn, k.Call) {
			t.Errorf("provider key of %s: got %s, pinned %s, by hand %s", k, got, tc.provider, byHand(k.Namespace, k.Run, k.Turn, k.Call))
		}
		if got := k.UUID(); got != tc.uuid || !uuidV4.MatchString(got) {
			t.Errorf("UUID of %s: got %s, pinned %s", k, got, tc.uuid)
		}
	}
}

var (
	uuidV4      = regexp.MustCompile(`^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$`)
	providerKey = regexp.MustCompile(`^[0-9a-v]{24}$`)
)

// trickyParts look alike once joined, escaped or cut.
var trickyParts = []string{
	"a", "b", "ab", "a:b", "a%3Ab", "a%3ab", ":", "%", "%25", "-", "--", "a ", " a", "a\x00", "\x00", "\x00\x00\x00\x01", "a\x00\x00\x00\x01b",
	"é", "e\u0301", "A", strings.Repeat("a", 256), strings.Repeat("a", 255), "a/b", "a;b", "a,b", "\x7f", "\u202e",
}

// TestNoTwoKeysCollide: distinct identities have distinct provider keys, UUIDs
// and printed forms.
func TestNoTwoKeysCollide(t *testing.T) {
	seen := map[string]Key{}
	var keys []Key
	for _, a := range trickyParts {
		for _, b := range trickyParts {
			keys = append(keys, Key{"n", a, b, "c"}, Key{"n", "r", a, b}, Key{a, b, "t", "c"}, Key{a, "r", "t", b}, Key{"n", a, "t", b})
		}
	}
	distinct := map[Key]bool{}
	for _, k := range keys {
		if distinct[k] {
			continue
		}
		distinct[k] = true
		if !providerKey.MatchString(string(k.ProviderKey())) {
			t.Fatalf("provider key %q", k.ProviderKey())
		}
		for _, form := range []string{string(k.ProviderKey()), k.UUID(), k.Namespace + "\n" + k.String()} {
			if other, ok := seen[form]; ok {
				t.Fatalf("%q and %q are both %s", k, other, form)
			}
			seen[form] = k
		}
	}
}

func TestInvalidKeys(t *testing.T) {
	for _, s := range []string{"", "a", "a:b", "a:b:c:d", "::", "a::c", ":b:c", "a:b:", "a:b:%", "a:b:%4", "a:b:%zz", "a:b:%4g", "%ff:b:c", "a:b:" + strings.Repeat("x", 257), "a:%C3:c"} {
		if k, err := ParseKey("default", s); !errors.Is(err, ErrInvalidKey) {
			t.Errorf("%q parses as %+v, %v", s, k, err)
		}
	}
	if _, err := ParseKey("", "a:b:c"); !errors.Is(err, ErrInvalidKey) {
		t.Errorf("no namespace: %v", err)
	}
	for name, k := range map[string]Key{
		"namespace": {"", "r", "t", "c"}, "run": {"n", "", "t", "c"}, "turn": {"n", "r", "\xff", "c"}, "call": {"n", "r", "t", strings.Repeat("é", 129)},
	} {
		if err := k.Validate(); !errors.Is(err, ErrInvalidKey) || !strings.HasPrefix(err.Error(), name+": ") {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := (Key{"n", strings.Repeat("é", 128), "t", "c"}).Validate(); err != nil {
		t.Errorf("256 bytes: %v", err)
	}
}

// FuzzKey: what is printed parses as the same key, nothing that may not stand
// bare in a header or path is in it, and what parses prints as the same call.
func FuzzKey(f *testing.F) {
	for _, part := range trickyParts {
		f.Add(part, "b", part)
	}
	f.Add("%41", "%2", "\xff")
	f.Fuzz(func(t *testing.T, run, turn, call string) {
		k := Key{"default", run, turn, call}
		printed := k.String()
		for i := range len(printed) {
			if c := printed[i]; c <= ' ' || c >= 0x7f || strings.IndexByte(";,/", c) >= 0 {
				t.Fatalf("%q prints as %q", k, printed)
			}
		}
		back, err := ParseKey("default", printed)
		if valid := k.Validate(); (err == nil) != (valid == nil) || err == nil && back != k {
			t.Fatalf("%q printed and parsed is %q, %v; valid: %v", k, back, err, valid)
		}
		if got := k.ProviderKey(); string(got) != byHand("default", run, turn, call) {
			t.Fatalf("provider key %s, by hand %s", got, byHand("default", run, turn, call))
		}
		free, err := ParseKey("default", run+":"+turn+":"+call)
		if err != nil {
			return
		}
		if again, err := ParseKey("default", free.String()); err != nil || again != free {
			t.Fatalf("%q printed and parsed is %q, %v", free, again, err)
		}
	})
}

func ExampleKey_String() {
	k := Key{Namespace: "default", Run: "ticket-77", Turn: "3", Call: "create ticket"}
	fmt.Println(k)
	// Output: ticket-77:3:create%20ticket
}

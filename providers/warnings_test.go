package providers

import (
	"strings"
	"testing"
)

func TestWarnings(t *testing.T) {
	a := mustParse(t, `
- name: create
  when: {method: [POST], path: "/tickets/**"}
  class: effect
  lookup:
    request: "GET /effects/{key}"
    found: ".id"
- name: comment
  when: {method: [POST], path: "/tickets/*/comments"}
  class: effect
- {name: change, when: {method: [PUT]}, class: idempotent}
- {name: both, when: {method: [POST, PUT], path: /tickets}, class: effect}
- {name: other, when: {method: [POST, PATCH], path: /tickets}, class: effect}
`)
	got := Warnings(a)
	want := []string{
		"test.yaml:5: operations[0].lookup: without consistency",
		"test.yaml:7: operations[0].lookup.found: only true and false count",
		"test.yaml:8: operations[1]: never matches, since create before it",
		"test.yaml:12: operations[3]: never matches, since create and change before it",
	}
	if len(got) != len(want) {
		t.Fatalf("got\n%s", strings.Join(got, "\n"))
	}
	for i := range want {
		if !strings.HasPrefix(got[i], want[i]) {
			t.Errorf("got %s, want %s…", got[i], want[i])
		}
	}
	if Warnings(nil) != nil || len(Warnings(tickets(t))) != 0 {
		t.Errorf("warned of what is right: %q", Warnings(tickets(t)))
	}
}

func TestWhatFoundMayYield(t *testing.T) {
	for source, warned := range map[string]bool{
		".id": true, ".": true, ".items[0].id": true, "1": true, `"x"`: true, "{a: 1}": true, "[.a]": true, ".a + 1": true, "(.id)": true,
		".id == $key": false, "any(.items[]; .ref == $key)": false, ".id != null and .a": false, ".id | not": false, "true": false,
		"if .id then true else false end": false, ".items | length > 0": false, `.id | test("x")`: false, ".a // false": false,
	} {
		p, err := compileProgram(Position{}, source)
		if err != nil {
			t.Fatal(source, err)
		}
		if got := p.yieldsNoTruth(); got != warned {
			t.Errorf("%s: warned %v", source, got)
		}
	}
}

package providers

import (
	"flag"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"counterfoil/classify"

	"go.yaml.in/yaml/v3"
)

var rewrite = flag.Bool("rewrite", false, "write what the tests got to testdata")

func parseText(t testing.TB, source, text string) (*Adapter, error) {
	t.Helper()
	var node yaml.Node
	if err := yaml.Unmarshal([]byte(text), &node); err != nil {
		t.Fatal(err)
	}
	return Parse(Position{Source: source}, &node)
}

func mustParse(t testing.TB, text string) *Adapter {
	t.Helper()
	a, err := parseText(t, "test.yaml", text)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func tickets(t testing.TB) *Adapter {
	t.Helper()
	text, err := os.ReadFile("testdata/tickets.yaml")
	if err != nil {
		t.Fatal(err)
	}
	return mustParse(t, string(text))
}

// Each file in testdata/mistakes has its complaints beside it.
func TestMistakesAreNamedWithTheirPlace(t *testing.T) {
	files, err := filepath.Glob("testdata/mistakes/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatal("no files", err)
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			a, err := parseText(t, filepath.Base(file), string(text))
			if err == nil || a != nil {
				t.Fatalf("got %v and no complaint", a)
			}
			golden(t, strings.TrimSuffix(file, ".yaml")+".want", err.Error()+"\n")
		})
	}
}

func golden(t *testing.T, file, got string) {
	t.Helper()
	if *rewrite {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("%s: got\n%s\nwant\n%s", file, got, want)
	}
}

func TestParseReadsEveryField(t *testing.T) {
	a := tickets(t)
	if a.Name != "tickets" || len(a.Operations) != 5 {
		t.Fatalf("got %q with %d operations", a.Name, len(a.Operations))
	}
	mail := a.Operations[2]
	if want := (Position{Source: "test.yaml", Line: 18, Path: "operations[2]"}); mail.At != want {
		t.Errorf("at: got %v, want %v", mail.At, want)
	}
	if mail.Name != "mail" || mail.Class != classify.Keyed || mail.Path != "/mail/*/send" ||
		!reflect.DeepEqual(mail.Methods, []string{"POST", "PUT"}) {
		t.Errorf("mail: got %+v", mail)
	}
	if want := (Placement{Place: "json", Name: "/meta/key"}); mail.Key.Placement != want {
		t.Errorf("key: got %v, want %v", mail.Key, want)
	}
	if mail.Retention != 90*time.Minute || mail.Quiesce != QuiesceUnsaid {
		t.Errorf("retention %v, quiesce %v", mail.Retention, mail.Quiesce)
	}
	want := Consistency{Kind: Lagging, Lag: time.Minute, MissesNeeded: 2, Spacing: 30 * time.Second}
	if mail.Lookup.Consistency != want {
		t.Errorf("consistency: got %+v, want %+v", mail.Lookup.Consistency, want)
	}
	if !strings.HasPrefix(mail.Lookup.String(), "GET /mail?ref={body.ref}") || mail.Lookup.At.Line != 23 {
		t.Errorf("lookup: got %s at %v", mail.Lookup, mail.Lookup.At)
	}
}

func TestWhatIsNotGivenHasADefault(t *testing.T) {
	a := tickets(t)
	recovers := [][]Strategy{{ByLookup}, {ByReplay}, {ByLookup, ByReplay}, nil, nil}
	for i, want := range recovers {
		if got := a.Operations[i].Recover; !reflect.DeepEqual(got, want) {
			t.Errorf("%s: recover got %v, want %v", a.Operations[i].Name, got, want)
		}
	}
	if got := a.Operations[0].Quiesce; got != 0 {
		t.Errorf("a quiesce of 0 became %v", got)
	}
	if got := a.Operations[1].Key; got.Place != "header" || got.Name != DefaultKey().Name {
		t.Errorf("key: got %v", got)
	}
	if got := a.Operations[3].Key; got != nil {
		t.Errorf("a read bears a key: %v", got)
	}
	bare := mustParse(t, `[{name: a, class: effect, lookup: {request: "GET /x/{key}", found: "true"}}]`).Operations[0]
	if want := (Consistency{Kind: Unproven, MissesNeeded: 1}); bare.Lookup.Consistency != want {
		t.Errorf("consistency: got %+v, want %+v", bare.Lookup.Consistency, want)
	}
}

func TestRecoverMayBeNothing(t *testing.T) {
	op := mustParse(t, `[{name: a, class: keyed, guarantee: {retention: 24h}, recover: []}]`).Operations[0]
	if len(op.Recover) != 0 {
		t.Errorf("got %v", op.Recover)
	}
}

// A configuration hands over a list from the middle of its own file.
func TestComplaintsBeginWithTheGivenPath(t *testing.T) {
	var node yaml.Node
	if err := yaml.Unmarshal([]byte("upstreams:\n  tickets:\n    operations:\n      - {name: a}\n"), &node); err != nil {
		t.Fatal(err)
	}
	list := node.Content[0].Content[1].Content[1].Content[1]
	_, err := Parse(Position{Source: "c.yaml", Path: "upstreams.tickets.operations"}, list)
	want := "c.yaml:4: upstreams.tickets.operations[0].class: missing; one of read, decision, keyed, idempotent, effect"
	if err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
	if _, err := Parse(Position{Source: "c.yaml"}, nil); err == nil {
		t.Error("no node was accepted")
	}
}

func TestAliasesAreFollowed(t *testing.T) {
	a := mustParse(t, "- &a {name: a, class: effect, quiesce: &q 5s}\n- {name: b, class: effect, quiesce: *q}\n")
	if got := a.Operations[1].Quiesce; got != 5*time.Second {
		t.Errorf("got %v", got)
	}
}

func FuzzParse(f *testing.F) {
	files, err := filepath.Glob("testdata/*/*.yaml")
	if err != nil {
		f.Fatal(err)
	}
	for _, file := range append(files, "testdata/tickets.yaml") {
		text, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(string(text))
	}
	f.Add("name: x\nhosts: ['*.x.y']\noperations:\n  - {name: a, class: effect, marker: {place: json, name: /a, create: true}}\n")
	f.Add("name: x\nredact: {path: ['/bot{}/**']}\nerrors: [{status: ['5xx'], outcome: in_flight}]\noperations: []\n")
	f.Add("&a [*a]")
	f.Add("operations: &a [{name: a, class: effect, when: *a}]")
	f.Fuzz(func(t *testing.T, text string) {
		var node yaml.Node
		if yaml.Unmarshal([]byte(text), &node) != nil {
			return
		}
		a, err := Parse(Position{Source: "fuzz.yaml"}, &node)
		if (a == nil) == (err == nil) {
			t.Fatalf("got %v and %v", a, err)
		}
		if a != nil {
			r := &classify.Request{Method: "POST", Target: "/a/b?c", Body: []byte(`{"a":{"b":"c"}}`)}
			rd, _ := a.Read(r)
			_, _, _ = rd.Stamp(r, Stamps{Key: sampleKey, Marker: sampleKey}) // it may have no place
		}
	})
}

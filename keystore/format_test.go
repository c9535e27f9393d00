package keystore

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"

	"counterfoil/classify"
)

// TestFormatPage holds the tables of docs/format.md against the structs and
// names in the code.
func TestFormatPage(t *testing.T) {
	path := filepath.Join(docs, "format.md")
	page, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	page = section(t, page, "fields", fieldTables(t))
	page = section(t, page, "numbers", numberTable())
	golden(t, path, page)
	for _, v := range []string{"the number of the format, now " + strconv.Itoa(Format) + " |", "`qh4a9r2p2l5cokr0r1vjk8l6`", "`d448a4ec-5915-4acc-9360-d87f3a22a69b`", "## Badger layout"} {
		if !bytes.Contains(page, []byte(v)) {
			t.Errorf("the page does not say %q", v)
		}
	}
}

// section returns the page with what stands between two marks replaced.
func section(t *testing.T, page []byte, name, text string) []byte {
	t.Helper()
	begin, end := "<!-- "+name+" -->\n", "<!-- end of "+name+" -->"
	before, rest, ok := bytes.Cut(page, []byte(begin))
	_, after, found := bytes.Cut(rest, []byte(end))
	if !ok || !found {
		t.Fatalf("the page has no section %s", name)
	}
	return []byte(string(before) + begin + text + end + string(after))
}

func fieldTables(t *testing.T) string {
	t.Helper()
	var b strings.Builder
	for _, typ := range storedTypes() {
		fmt.Fprintf(&b, "\n### %s\n\n| number | field | type | left out when zero |\n| --- | --- | --- | --- |\n", typ.Name())
		for _, f := range fieldsOf(t, typ) {
			fmt.Fprintf(&b, "| %d | %s | %s | %s |\n", f.number, f.name, f.kind, f.omitted)
		}
	}
	return b.String() + "\n"
}

// storedTypes lists the structs that a record, a run, a plan, a position or an item
// is made of, each after the one that first holds it.
func storedTypes() []reflect.Type {
	var types []reflect.Type
	seen := map[reflect.Type]bool{}
	var visit func(reflect.Type)
	visit = func(typ reflect.Type) {
		for typ.Kind() == reflect.Pointer || typ.Kind() == reflect.Slice {
			typ = typ.Elem()
		}
		if typ.Kind() != reflect.Struct || seen[typ] {
			return
		}
		seen[typ] = true
		types = append(types, typ)
		for field := range typ.Fields() {
			visit(field.Type)
		}
	}
	visit(reflect.TypeFor[Record]())
	visit(reflect.TypeFor[Run]())
	visit(reflect.TypeFor[Plan]())
	visit(reflect.TypeFor[Position]())
	visit(reflect.TypeFor[ItemStore]())
	visit(reflect.TypeFor[Item]())
	return types
}

type storedField struct {
	number              int
	name, kind, omitted string
}

// fieldsOf reads the numbers from the tags, in order, and fails where a field
// has none or shares one.
func fieldsOf(t *testing.T, typ reflect.Type) []storedField {
	t.Helper()
	byNumber := map[int]storedField{}
	most := 0
	for f := range typ.Fields() {
		parts := strings.Split(f.Tag.Get("cbor"), ",")
		n, err := strconv.Atoi(parts[0])
		if err != nil || len(parts) < 2 || parts[1] != "keyasint" {
			t.Fatalf("%s.%s has no number in its tag %q", typ.Name(), f.Name, f.Tag)
		}
		if other, taken := byNumber[n]; taken {
			t.Fatalf("%s.%s and %s share the number %d", typ.Name(), f.Name, other.name, n)
		}
		omitted := ""
		if len(parts) > 2 && (parts[2] == "omitempty" || parts[2] == "omitzero") {
			omitted = "yes"
		}
		byNumber[n] = storedField{n, f.Name, kindOf(f.Type), omitted}
		most = max(most, n)
	}
	fields := make([]storedField, 0, len(byNumber))
	for n := 1; n <= most; n++ {
		if f, ok := byNumber[n]; ok {
			fields = append(fields, f)
		}
	}
	return fields
}

// kindOf says how CBOR holds a field.
func kindOf(typ reflect.Type) string {
	name := typ.Name()
	switch typ.Kind() {
	case reflect.Pointer:
		return kindOf(typ.Elem())
	case reflect.Struct:
		return "map: " + name
	case reflect.Slice, reflect.Array:
		if typ.Elem().Kind() == reflect.Uint8 {
			return "byte string"
		}
		return "array of " + typ.Elem().Name()
	case reflect.Map:
		return "map of " + kindOf(typ.Key()) + " to " + kindOf(typ.Elem())
	case reflect.String:
		return named("text", name, "string")
	case reflect.Bool:
		return "bool"
	case reflect.Int, reflect.Int64:
		switch name {
		case "Instant":
			return "integer: nanoseconds since 1970"
		case "Duration":
			return "integer: nanoseconds"
		}
		return "integer"
	}
	return named("unsigned integer", name, "uint8", "uint32", "uint64")
}

func named(kind, name string, plain ...string) string {
	if slices.Contains(plain, name) {
		return kind
	}
	return kind + ": " + name
}

// numberTable lists the stored numbers with their names.
func numberTable() string {
	var b strings.Builder
	b.WriteString("\n| what | numbers |\n| --- | --- |\n")
	row := func(what string, from, to int, name func(int) string) {
		fmt.Fprintf(&b, "| %s |", what)
		for n := from; n <= to; n++ {
			fmt.Fprintf(&b, " %d %s", n, name(n))
			if n < to {
				b.WriteByte(',')
			}
		}
		b.WriteString(" |\n")
	}
	row("State", int(None), int(numStates)-1, func(n int) string { return State(n).String() })
	row("EventKind", int(noEvent)+1, int(numEvents)-1, func(n int) string { return EventKind(n).String() })
	row("Class", int(classify.Read), int(classify.Effect), func(n int) string { return classify.Class(n).String() })
	row("Evidence", int(classify.Unsent), int(classify.Lost), func(n int) string { return classify.Evidence(n).String() })
	row("Outcome", int(classify.Applied), int(classify.Ambiguous), func(n int) string { return classify.Outcome(n).String() })
	row("Source", int(FromAnswer), int(FromLateAnswer), func(n int) string { return Source(n).String() })
	row("Reason", int(KeyReused), int(numReasons)-1, func(n int) string { return Reason(n).String() })
	return b.String() + "\n"
}

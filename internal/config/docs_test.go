package config

import (
	"fmt"
	"os"
	"reflect"
	"strings"
	"testing"
)

const docsPath = "../../docs/configuration.md"

// The tables in the docs are printed from the structs: what a field is called,
// what it means and its default are said once.
func TestDocs(t *testing.T) {
	data, err := os.ReadFile(docsPath)
	if err != nil {
		t.Fatal(err)
	}
	doc := string(data)
	doc = printInto(t, doc, "variables", "\n"+variableTable())
	doc = printInto(t, doc, "upstreams", "\n"+upstreamTable())
	doc = printInto(t, doc, "later", strings.Join(laterFields(reflect.TypeFor[Upstream](), ""), ", "))
	if *rewrite {
		if err := os.WriteFile(docsPath, []byte(doc), 0o644); err != nil {
			t.Fatal(err)
		}
	} else if doc != string(data) {
		t.Error("docs/configuration.md does not say what the structs say: make docs prints it anew")
	}
}

// printInto replaces what stands between a mark and its end.
func printInto(t *testing.T, doc, name, text string) string {
	t.Helper()
	before, rest, found := strings.Cut(doc, "<!-- printed: "+name+" -->")
	_, after, closed := strings.Cut(rest, "<!-- end -->")
	if !found || !closed {
		t.Fatalf("%s has no place for %s", docsPath, name)
	}
	return before + "<!-- printed: " + name + " -->" + text + "<!-- end -->" + after
}

func variableTable() string {
	var b strings.Builder
	b.WriteString("| variable | in the file | default | meaning |\n| --- | --- | --- | --- |\n")
	for _, f := range variableFields(reflect.TypeFor[Config]()) {
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s |\n", f.Tag.Get("env"), code(f.Tag.Get("yaml")), code(f.Tag.Get("default")), f.Tag.Get("doc"))
	}
	return b.String()
}

func upstreamTable() string {
	var b strings.Builder
	b.WriteString("| field | default | meaning |\n| --- | --- | --- |\n")
	writeFields(&b, reflect.TypeFor[Upstream](), "")
	return b.String()
}

func writeFields(b *strings.Builder, t reflect.Type, path string) {
	for f := range t.Fields() {
		name := f.Tag.Get("yaml")
		switch {
		case name == "" || f.Type == reflect.TypeFor[Later]():
		case f.Tag.Get("doc") != "":
			fmt.Fprintf(b, "| `%s` | %s | %s |\n", path+name, code(f.Tag.Get("default")), f.Tag.Get("doc"))
		case f.Type.Kind() == reflect.Slice:
			writeFields(b, f.Type.Elem(), path+name+"[].")
		case f.Type.Kind() == reflect.Struct:
			writeFields(b, f.Type, path+name+".")
		}
	}
}

func laterFields(t reflect.Type, path string) []string {
	var names []string
	for f := range t.Fields() {
		name := f.Tag.Get("yaml")
		switch {
		case name == "":
		case f.Type == reflect.TypeFor[Later]():
			names = append(names, "`"+path+name+"`")
		case f.Type.Kind() == reflect.Slice && f.Type.Elem().Kind() == reflect.Struct:
			names = append(names, laterFields(f.Type.Elem(), path+name+"[].")...)
		}
	}
	return names
}

func code(text string) string {
	if text == "" {
		return ""
	}
	return "`" + text + "`"
}

// Every field that can be set says what it means.
func TestEveryFieldIsDocumented(t *testing.T) {
	for _, f := range variableFields(reflect.TypeFor[Config]()) {
		if f.Tag.Get("doc") == "" {
			t.Errorf("%s has no doc", f.Name)
		}
		name := strings.ToLower(strings.TrimPrefix(f.Tag.Get("env"), prefix))
		if key := f.Tag.Get("yaml"); key != "" && key != name {
			t.Errorf("%s is %s in the file and %s outside", f.Name, key, f.Tag.Get("env"))
		}
	}
	checkDocumented(t, reflect.TypeFor[Upstream](), "upstreams.<name>.")
}

func checkDocumented(t *testing.T, typ reflect.Type, path string) {
	t.Helper()
	for f := range typ.Fields() {
		inner := f.Type
		if inner.Kind() == reflect.Slice {
			inner = inner.Elem()
		}
		switch {
		case f.Tag.Get("yaml") == "" || f.Tag.Get("doc") != "" || f.Type == reflect.TypeFor[Later]():
		case inner.Kind() == reflect.Struct:
			checkDocumented(t, inner, path+f.Tag.Get("yaml")+".")
		default:
			t.Errorf("%s has no doc", path+f.Tag.Get("yaml"))
		}
	}
}

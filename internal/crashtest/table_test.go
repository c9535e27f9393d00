package crashtest

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"counterfoil/classify"
	"counterfoil/providers"
)

// tablePage is printed from the adapters and from what came of each case.
const tablePage = "../../docs/providers/README.md"

const tableHead = `# Providers

Printed by ` + "`go test ./internal/crashtest -run TestAdapterVerdicts -rewrite`" + ` from the adapters, and from what comes of each
operation when the sidecar dies at four moments of it, before a stand-in that behaves as the provider documents. A page for each
provider says in words what is safe, what is not, and what it needs.

Keys, markers and lookups are as the [adapter language](../adapters.md) has them. The window is how long a second copy is sent; what is looked
up stays findable. The verdicts: **found**, the lookup shows the effect, and the agent gets it; **resent**, the provider takes a second copy
for the first, or refuses it; **sent**, the lookup proves that nothing had happened; **replayed**, the receipt is answered; **unknown**, a
person decides. Reads pass through, and what a model answers may be asked for again.

| adapter | operation | class | key | marker | lookup | window | before send | sent, lost on the way | after the effect | receipt durable |
| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |
`

// printTable prints every operation of every adapter.
func printTable(t *testing.T, columns [numMoments]map[string][]string) string {
	t.Helper()
	var b strings.Builder
	b.WriteString(tableHead)
	for _, a := range catalogue(t).All {
		for i := range a.Operations {
			op := &a.Operations[i]
			cells := []string{adapterCell(a.Name), op.Name, op.Class.String(), keyCell(op), markerCell(op), lookupCell(op), windowCell(op)}
			for at := range numMoments {
				cells = append(cells, verdictCell(op, columns[at][a.Name+" "+op.Name]))
			}
			fmt.Fprintf(&b, "| %s |\n", strings.Join(cells, " | "))
		}
	}
	return b.String()
}

// adapterCell links to the page of the adapter, if it has one of its own.
func adapterCell(name string) string {
	if _, err := os.Stat("../../docs/providers/" + name + ".md"); err != nil {
		return name
	}
	return fmt.Sprintf("[%s](%s.md)", name, name)
}

func code(text string) string {
	return "`" + strings.ReplaceAll(text, "|", `\|`) + "`"
}

func keyCell(op *providers.Operation) string {
	switch {
	case op.ClientID != nil:
		return code(op.ClientID.String())
	case op.Key != nil:
		return code(op.Key.String())
	}
	return "–"
}

func markerCell(op *providers.Operation) string {
	var list []string
	for i := range op.Markers {
		list = append(list, code(op.Markers[i].String()))
	}
	if len(list) == 0 {
		return "–"
	}
	return strings.Join(list, ", ")
}

func lookupCell(op *providers.Operation) string {
	if op.Lookup == nil {
		return "–"
	}
	return code(op.Lookup.String()) + " (" + op.Lookup.Consistency.Kind.String() + ")"
}

func windowCell(op *providers.Operation) string {
	switch {
	case op.Retention > 0:
		return span(op.Retention)
	case op.Class == classify.Idempotent:
		return "10 min"
	}
	return "–"
}

// span prints a duration in the largest unit that it is a number of.
func span(d time.Duration) string {
	for _, unit := range []struct {
		of   time.Duration
		name string
	}{{24 * time.Hour, "d"}, {time.Hour, "h"}, {time.Minute, "min"}} {
		if d%unit.of == 0 && (d > unit.of || unit.of != 24*time.Hour) {
			return fmt.Sprintf("%d %s", d/unit.of, unit.name)
		}
	}
	return d.String()
}

// verdictCell is what came of an operation's cases, each verdict once.
func verdictCell(op *providers.Operation, verdicts []string) string {
	if len(verdicts) == 0 {
		if op.Class == classify.Read {
			return "passes"
		}
		return "–"
	}
	slices.Sort(verdicts)
	return strings.Join(slices.Compact(verdicts), ", ")
}

// checkTable holds the page against what was just seen.
func checkTable(t *testing.T, columns [numMoments]map[string][]string) {
	t.Helper()
	want := printTable(t, columns)
	if *rewrite {
		if err := os.WriteFile(tablePage, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	got, err := os.ReadFile(tablePage)
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != want {
		t.Errorf("docs/providers/README.md is not what the adapters do now: print it anew with -rewrite, and read what differs%s", firstDifference(string(got), want))
	}
}

// firstDifference shows the first line that differs.
func firstDifference(got, want string) string {
	a, b := strings.Split(got, "\n"), strings.Split(want, "\n")
	for i := range min(len(a), len(b)) {
		if a[i] != b[i] {
			return fmt.Sprintf("\n- %s\n+ %s", a[i], b[i])
		}
	}
	return fmt.Sprintf(": %d lines, not %d", len(a), len(b))
}

package keystore

import (
	"bufio"
	"fmt"
	"io"
)

// stateWords says what each state means and who moves a call out of it. They
// are the comments of the constants; a test holds the two against each other.
var stateWords = [numStates]string{
	None:      "nothing is on record. Begin, a plan or a hold moves it on.",
	Planned:   "a plan names the call, or an approval freed it. Begin moves it on.",
	Held:      "it waits for a person's approval; that person moves it on. It was never sent, or nothing came of it.",
	Pending:   "an attempt is under way. Its owner moves it on; if the owner dies, the next epoch does.",
	Open:      "nothing has happened, and trying again is right. The next begin sends.",
	InDoubt:   "the effect may exist, and recovery is not at its end. The replaying request or the scan at start moves it on.",
	Succeeded: "the effect exists, and the receipt says so. Final.",
	Rejected:  "nothing happened and nothing will. Final.",
	Unknown:   "the effect may exist, and recovery has nothing left to try. A person moves it on.",
	Abandoned: "a person gave the call up, or refused it. Final.",
	Expired:   "the tombstone of a final call whose retention is over.",
}

// WriteStates prints the life of a call as Markdown: its states, the table of
// transitions that [Next] follows, and a diagram of it.
func WriteStates(w io.Writer) error {
	b := bufio.NewWriter(w)
	fmt.Fprint(b, `# The states of a call

Printed from the table in keystore/machine.go; go test ./keystore -run TestStatesPage -rewrite prints it anew.

## States

| state | meaning, and who moves a call out of it |
| --- | --- |
`)
	for s := range numStates {
		fmt.Fprintf(b, "| `%s` | %s |\n", s, stateWords[s])
	}
	writeTransitions(b)
	writeDiagram(b)
	return b.Flush()
}

func writeTransitions(b *bufio.Writer) {
	fmt.Fprint(b, `
## Transitions

An event that a state does not list means nothing there and is refused. Of several lines for one state and event, the
first whose condition holds is taken; if none holds, the event is refused. Conditions bear the names of their guards.

| from | event | to | if |
| --- | --- | --- | --- |
`)
	eachRule(func(from State, event EventKind, r rule) {
		fmt.Fprintf(b, "| `%s` | `%s` | `%s` | %s |\n", from, event, r.to, condition(r.needs))
	})
}

func condition(g guard) string {
	if g == always {
		return ""
	}
	return fmt.Sprintf("`%s`: %s", guards[g].short, guards[g].name)
}

func writeDiagram(b *bufio.Writer) {
	fmt.Fprint(b, "\n## Diagram\n\n```mermaid\nstateDiagram-v2\n    [*] --> none\n")
	eachRule(func(from State, event EventKind, r rule) {
		label := event.String()
		if r.needs != always {
			label += " if " + guards[r.needs].short
		}
		fmt.Fprintf(b, "    %s --> %s: %s\n", from, r.to, label)
	})
	fmt.Fprint(b, "    expired --> [*]\n```\n")
}

// eachRule calls fn for every rule, in the order of states and events.
func eachRule(fn func(from State, event EventKind, r rule)) {
	for from := range numStates {
		for event := range numEvents {
			for _, r := range rules[from][event] {
				fn(from, event, r)
			}
		}
	}
}

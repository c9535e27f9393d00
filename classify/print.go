package classify

import (
	"bufio"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
)

// outcomeWords says what follows from each outcome of an attempt.
var outcomeWords = [...]string{
	Applied:    "The effect exists. The answer is the receipt, and is replayed.",
	Rejected:   "Nothing happened, and nothing will later. The answer is the receipt, and is replayed.",
	NotApplied: "Nothing happened. The answer is passed on and not kept: the next request with the key is sent.",
	Ambiguous:  "The effect may exist. Recovery begins.",
}

// WriteOutcomes prints, as Markdown, what [Judge] makes of statuses where neither
// the upstream's outcomes nor its adapter says otherwise.
func WriteOutcomes(w io.Writer) error {
	b := bufio.NewWriter(w)
	fmt.Fprint(b, "| outcome | statuses | what follows |\n| --- | --- | --- |\n")
	listed := map[Outcome][]int{}
	for _, status := range slices.Sorted(maps.Keys(statusOutcomes)) {
		o := statusOutcomes[status]
		listed[o] = append(listed[o], status)
	}
	for o := Applied; o <= Ambiguous; o++ {
		statuses := numbers(listed[o])
		switch o {
		case Applied:
			statuses = "2xx, " + statuses + "; 304 to GET and HEAD"
		case Ambiguous:
			statuses += ", 5xx and every other; no whole answer after a byte was sent"
		case Rejected, NotApplied:
		}
		fmt.Fprintf(b, "| `%s` | %s | %s |\n", o, statuses, outcomeWords[o])
	}
	fmt.Fprintf(b, "\nAfter an attempt in doubt %s may be that attempt's own trace, and are `ambiguous`; 404 and 410 to a DELETE are `applied`.\n",
		numbers(tracesOfDoubt[:]))
	return b.Flush()
}

func numbers(list []int) string {
	return strings.Trim(strings.ReplaceAll(fmt.Sprint(list), " ", ", "), "[]")
}

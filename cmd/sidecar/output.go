package main

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
	"unicode"
	"unicode/utf8"

	"counterfoil/internal/view"
	"counterfoil/keystore"
)

const (
	// targetWidth is how much of a target a table shows.
	targetWidth = 36
	reasonWidth = 96
)

// A table prints rows in aligned columns. Cells are made printable here, so
// that nothing on record can steer a terminal.
type table struct{ w *tabwriter.Writer }

func newTable(out io.Writer, titles ...string) table {
	t := table{tabwriter.NewWriter(out, 0, 8, 2, ' ', 0)}
	if len(titles) > 0 {
		t.row(titles...)
	}
	return t
}

func (t table) row(cells ...string) {
	for i, cell := range cells {
		cells[i] = printable(cell)
	}
	fmt.Fprintln(t.w, strings.TrimRight(strings.Join(cells, "\t"), "\t"))
}

// fact is a row of a name and its value, left out if the value is empty.
func (t table) fact(name, value string) {
	if value != "" {
		t.row(name, value)
	}
}

// printable escapes what a terminal could take for a command, or what would
// show text in another order than it has.
func printable(s string) string {
	if isPrintable(s) {
		return s
	}
	var b strings.Builder
	for i := 0; i < len(s); {
		r, size := utf8.DecodeRuneInString(s[i:])
		switch {
		case r == utf8.RuneError && size == 1, r < utf8.RuneSelf && !unicode.IsPrint(r):
			fmt.Fprintf(&b, `\x%02x`, s[i])
		case !unicode.IsPrint(r):
			fmt.Fprintf(&b, `\u%04x`, r)
		default:
			b.WriteRune(r)
		}
		i += size
	}
	return b.String()
}

func isPrintable(s string) bool {
	return utf8.ValidString(s) && strings.IndexFunc(s, func(r rune) bool { return !unicode.IsPrint(r) }) < 0
}

// clipped cuts what is too long for a column, and shows that it did.
func clipped(s string, width int) string {
	runes := []rune(s)
	if len(runes) <= width {
		return s
	}
	return string(runes[:width-1]) + "…"
}

// A clock prints times as seen from now.
type clock struct{ now time.Time }

// moment is a time in the zone of now, without the date if that is today.
func (c clock) moment(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	t = t.In(c.now.Location())
	if t.Year() == c.now.Year() && t.YearDay() == c.now.YearDay() {
		return t.Format("15:04:05")
	}
	return t.Format("2006-01-02 15:04:05")
}

// when is a time with its age.
func (c clock) when(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return c.moment(t) + " (" + c.age(t) + " ago)"
}

// age is how long ago t was, in the largest unit, rounded down.
func (c clock) age(t time.Time) string {
	const day = 24 * time.Hour
	d := c.now.Sub(t)
	switch {
	case d < time.Minute:
		return fmt.Sprintf("%ds", max(0, d/time.Second))
	case d < time.Hour:
		return fmt.Sprintf("%dm", d/time.Minute)
	case d < 2*day:
		return fmt.Sprintf("%dh", d/time.Hour)
	default:
		return fmt.Sprintf("%dd", d/day)
	}
}

// keyText is a call's key as resolve and show take it.
func keyText(c *view.Call) string { return printedKey(c.Run, c.Turn, c.Call) }

func printedKey(run, turn, call string) string {
	key := runText(run) + ":" + keystore.EncodePart(turn) + ":" + keystore.EncodePart(call)
	return strings.ReplaceAll(key, ":=", ":%3D") // or the parser of flags drops it behind -:
}

// runText is a run's name as show takes it: none looks like a flag.
func runText(run string) string {
	text := keystore.EncodePart(run)
	if rest, ok := strings.CutPrefix(text, "-"); ok && rest != "" {
		return "%2D" + rest
	}
	return text
}

func requestText(c *view.Call) string { return c.Method + " " + clipped(c.Target, targetWidth) }

// attemptsText is how many attempts there were, and what the last one showed.
func attemptsText(c *view.Call) string {
	if len(c.Attempts) == 0 {
		return fmt.Sprint(c.AttemptsMade)
	}
	last := c.Attempts[len(c.Attempts)-1]
	return fmt.Sprintf("%d %s", c.AttemptsMade, attemptText(&last))
}

func attemptText(a *view.Attempt) string {
	switch {
	case a.Evidence == "":
		return "under way"
	case a.Status != 0:
		return fmt.Sprintf("%s %d", a.Evidence, a.Status)
	}
	return a.Evidence
}

func totalsText(totals map[string]int) (calls int, text string) {
	var parts []string
	for _, state := range slices.Sorted(maps.Keys(totals)) {
		calls += totals[state]
		parts = append(parts, fmt.Sprintf("%d %s", totals[state], state))
	}
	return calls, strings.Join(parts, ", ")
}

// printMore says how a list goes on.
func (c *client) printMore(next string) {
	if next != "" {
		fmt.Fprintf(c.env.stdout, "\nThere are more: --after %s\n", printable(next))
	}
}

// printCall prints all that is known of one call.
func (c *client) printCall(call *view.Call) error {
	at := clock{c.env.now()}
	t := newTable(c.env.stdout)
	t.row("call", keyText(call))
	t.row("namespace", call.Namespace)
	t.row("state", call.State)
	t.fact("unknown since", at.when(call.Since))
	t.fact("because", call.Reason)
	t.fact("tool", call.Tool)
	t.fact("approved", approvalText(at, call.Approval))
	t.fact("class", call.Class)
	t.fact("upstream", strings.TrimSpace(call.Upstream+" "+call.Origin))
	t.fact("request", strings.TrimSpace(call.Method+" "+call.Target))
	if call.Class != "" { // else nothing says yet what it will be
		t.row("operation", cmp.Or(call.Operation, "none matched"))
	}
	t.row("provider key", call.Key)
	t.row("created", at.when(call.CreatedAt))
	t.row("changed", at.when(call.UpdatedAt))
	c.receiptFacts(t, at, call.Receipt)
	if err := t.w.Flush(); err != nil {
		return err
	}
	if err := c.printAttempts(at, call); err != nil {
		return err
	}
	return c.printHistory(at, call.History)
}

func approvalText(at clock, a *view.Approval) string {
	if a == nil {
		return ""
	}
	text := at.when(a.At) + " by " + a.Actor
	if !a.ExpiresAt.IsZero() {
		text += ", until " + at.moment(a.ExpiresAt)
	}
	return text
}

func (c *client) receiptFacts(t table, at clock, r *view.Receipt) {
	if r == nil {
		return
	}
	body := fmt.Sprintf("%d bytes", r.BodyBytes)
	if r.BodyMissing {
		body += ", not kept"
	}
	t.row("receipt", fmt.Sprintf("status %d, %s, from %s, %s", r.Status, body, r.Source, at.when(r.SettledAt)))
	for _, name := range slices.Sorted(maps.Keys(r.Headers)) {
		for _, value := range r.Headers[name] {
			t.row("", name+": "+clipped(value, reasonWidth))
		}
	}
}

func (c *client) printAttempts(at clock, call *view.Call) error {
	if len(call.Attempts) == 0 {
		return nil
	}
	fmt.Fprintln(c.env.stdout)
	t := newTable(c.env.stdout, "ATTEMPT", "BEGUN", "TOOK", "EVIDENCE", "OUTCOME", "WHY")
	for i := range call.Attempts {
		a := &call.Attempts[i]
		number := fmt.Sprint(a.Number)
		if a.Resend {
			number += " (resend)"
		}
		t.row(number, at.moment(a.BegunAt), tookText(a, call.History), attemptText(a), a.Outcome, clipped(a.Reason, reasonWidth))
	}
	return t.w.Flush()
}

// tookText is how long an attempt took. One whose process died ended when nobody
// looked: what is on record is when that was found out.
func tookText(a *view.Attempt, history []view.Change) string {
	if a.EndedAt.IsZero() {
		return ""
	}
	for i := range history {
		if history[i].Event == keystore.EpochDied.String() && history[i].At.Equal(a.EndedAt) {
			return "?"
		}
	}
	return a.EndedAt.Sub(a.BegunAt).Round(time.Millisecond).String()
}

func (c *client) printHistory(at clock, history []view.Change) error {
	if len(history) == 0 {
		return nil
	}
	fmt.Fprintln(c.env.stdout)
	t := newTable(c.env.stdout, "AT", "EVENT", "FROM", "TO", "BY", "NOTE")
	for _, h := range history {
		t.row(at.moment(h.At), h.Event, h.From, h.To, h.Actor, clipped(h.Note, reasonWidth))
	}
	return t.w.Flush()
}

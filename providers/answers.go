package providers

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"counterfoil/classify"
)

// judgedBytesMax bounds an answer that a program looks at.
const judgedBytesMax = 1 << 20

// An errorRow says what an answer means.
type errorRow struct {
	at       Position
	statuses []statusRange
	header   []named
	json     *program
	outcome  classify.Outcome
	inFlight bool
	alarm    string
}

type statusRange struct{ low, high int }

// errorRows reads what answers mean.
func (l *loader) errorRows(p place) []errorRow {
	if !p.given() {
		return nil
	}
	var rows []errorRow
	for _, item := range l.list(p) {
		f, ok := l.mapping(item, "status", "header", "json", "outcome", "alarm")
		if !ok {
			continue
		}
		row := errorRow{at: l.at(item), statuses: l.statuses(f["status"]), header: l.globs(f["header"], "header")}
		if f["json"].given() {
			row.json = l.program(f["json"], "a jq program over the answer that is true or false")
		}
		row.alarm, _ = l.text(f["alarm"])
		if !f["status"].given() && !f["header"].given() && !f["json"].given() {
			l.complain(item, "would hold for every answer; say which by status, header or json")
		}
		l.outcome(&row, f["outcome"])
		rows = append(rows, row)
	}
	return rows
}

const outcomesHint = "one of applied, rejected, not_applied, ambiguous, in_flight"

func (l *loader) outcome(row *errorRow, p place) {
	name, ok := l.required(p, outcomesHint)
	if !ok {
		return
	}
	if name == "in_flight" {
		row.outcome, row.inFlight = classify.Ambiguous, true
		return
	}
	if row.outcome, ok = classify.ParseOutcome(name); !ok {
		l.complain(p, "%q is no outcome; use %s", name, outcomesHint)
	}
}

func (l *loader) statuses(p place) []statusRange {
	if !p.given() {
		return nil
	}
	var list []statusRange
	for _, item := range l.list(p) {
		text := item.value().Value
		if class, ok := strings.CutSuffix(text, "xx"); ok && len(class) == 1 && class[0] >= '2' && class[0] <= '5' {
			low := int(class[0]-'0') * 100
			list = append(list, statusRange{low, low + 99})
			continue
		}
		n, err := strconv.Atoi(text)
		if err != nil || n < 200 || n > 599 {
			l.complain(item, `%q is no final status; write 200 to 599, or "5xx" for all of a kind`, text)
			continue
		}
		list = append(list, statusRange{n, n})
	}
	return list
}

// mayHold reports whether the row may hold for an answer with that head.
func (row *errorRow) mayHold(h *Head) bool {
	if row.statuses != nil && !slices.ContainsFunc(row.statuses, func(r statusRange) bool { return h.Status >= r.low && h.Status <= r.high }) {
		return false
	}
	for i := range row.header {
		n := &row.header[i]
		if !h.Header.Has(n.name) || !n.value.matches(h.Header.Value(n.name)) {
			return false
		}
	}
	return true
}

// rowsFor are the rows that may hold, in order, up to the first that needs no
// look at the body.
func (rd *Reading) rowsFor(h *Head) []*errorRow {
	var rows []*errorRow
	var own []errorRow
	if rd.Operation != nil {
		own = rd.Operation.errors
	}
	for _, list := range [...][]errorRow{own, rd.errors} {
		for i := range list {
			if !list[i].mayHold(h) {
				continue
			}
			rows = append(rows, &list[i])
			if list[i].json == nil {
				return rows
			}
		}
	}
	return rows
}

// NarrowsEncoding reports whether answers are judged by their content, so that
// they have to come in a coding that can be undone here: gzip, or none.
func (rd *Reading) NarrowsEncoding() bool {
	if _, ok := rd.Content.(Watchable); ok {
		return true
	}
	byContent := func(r errorRow) bool { return r.json != nil }
	return rd.Operation != nil && slices.ContainsFunc(rd.Operation.errors, byContent) || slices.ContainsFunc(rd.errors, byContent)
}

// Overhears reports whether something may be learnt from an answer that is none of
// the journal's business.
func (rd *Reading) Overhears() bool {
	_, ok := rd.Content.(Watchable)
	return ok && rd.Passes()
}

// Overhear returns what learns from such an answer, nil where nothing does. All
// other watchers judge, and may hold what they see: a read that is passed on has
// none.
func (rd *Reading) Overhear(h Head) Watcher {
	if w, ok := rd.Content.(Watchable); ok && rd.Passes() {
		return w.Watch(h)
	}
	return nil
}

// Watch returns what judges an answer to the request by its body, nil where its
// status says all.
func (rd *Reading) Watch(q Query, h Head, isResend bool) Watcher {
	var inner Watcher
	if w, ok := rd.Content.(Watchable); ok {
		inner = w.Watch(h)
	}
	w := &watcher{rd: rd, q: q, head: h, isResend: isResend, inner: inner, rows: rd.rowsFor(&h)}
	w.holds = slices.ContainsFunc(w.rows, func(r *errorRow) bool { return r.json != nil }) && !isStream(h.Header)
	again := isResend && rd.succeedsAgain(h.Status)
	if inner == nil && len(w.rows) == 0 && !again && !w.mayMeetItself() {
		return nil
	}
	return w
}

func (rd *Reading) succeedsAgain(status int) bool {
	return rd.Operation != nil && slices.Contains(rd.Operation.SuccessOnResend, status)
}

func isStream(h classify.Header) bool { return mediaType(h) == "text/event-stream" }

// A watcher judges by the adapter's rows what the dialect leaves open.
type watcher struct {
	rd       *Reading
	q        Query
	head     Head
	isResend bool
	inner    Watcher
	rows     []*errorRow
	holds    bool
	body     []byte
	tooLong  bool
	// passed is the last piece, where nothing keeps it back.
	passed []byte
}

func (w *watcher) Holds() bool { return w.holds || w.inner != nil && w.inner.Holds() }

func (w *watcher) Write(piece []byte) {
	if w.inner != nil {
		w.inner.Write(piece)
	}
	if _, gated := w.inner.(Gated); !gated {
		w.passed = piece
	}
	switch {
	case !w.holds || w.tooLong:
	case len(w.body)+len(piece) > judgedBytesMax:
		w.tooLong, w.body = true, nil
	default:
		w.body = append(w.body, piece...)
	}
}

// Take passes all of what the dialect does not keep back.
func (w *watcher) Take() []byte {
	if g, ok := w.inner.(Gated); ok {
		return g.Take()
	}
	passed := w.passed
	w.passed = nil
	return passed
}

// Rest is what the dialect keeps back.
func (w *watcher) Rest() []byte {
	if g, ok := w.inner.(Gated); ok {
		return g.Rest()
	}
	return nil
}

// Told hands on what the dialect has heard.
func (w *watcher) Told() []Late {
	if t, ok := w.inner.(Teller); ok {
		return t.Told()
	}
	return nil
}

// mayMeetItself reports whether the answer may be of a copy that found the id
// taken by the first one.
func (w *watcher) mayMeetItself() bool {
	return w.isResend && w.rd.Operation != nil && w.rd.Operation.ClientID != nil
}

func (w *watcher) End(ctx context.Context) Judgement {
	j := w.judge(ctx)
	refused := j.Outcome == classify.Rejected || j.Outcome == 0 && classify.StatusOutcome(w.head.Status) == classify.Rejected
	if refused && w.mayMeetItself() {
		j.Outcome, j.Reason = classify.Ambiguous, "a copy was refused, perhaps since its id is the first one's"
	}
	return j
}

func (w *watcher) judge(ctx context.Context) Judgement {
	var j Judgement
	if w.inner != nil {
		j = w.inner.End(ctx)
	}
	if w.isResend && w.rd.succeedsAgain(w.head.Status) {
		j.Outcome = classify.Applied
		return j
	}
	// What the adapter says of its provider counts before what its dialect says of
	// all.
	if said := w.byRows(ctx); said.Outcome != 0 {
		said.Decision = j.Decision
		return said
	}
	return j
}

func (w *watcher) byRows(ctx context.Context) Judgement {
	if w.tooLong {
		return Judgement{Outcome: classify.Ambiguous, Stuck: true, Reason: fmt.Sprintf("the answer is longer than the %d bytes that can be judged", judgedBytesMax)}
	}
	document, isJSON, err := w.document()
	if err != nil {
		return Judgement{Outcome: classify.Ambiguous, Stuck: true, Reason: "the answer " + err.Error()}
	}
	sc := &scope{q: &w.q, id: w.rd.id(w.q.Original), base: w.rd.basePath()}
	for _, row := range w.rows {
		if row.json != nil {
			if !isJSON {
				continue
			}
			v, err := row.json.run(ctx, document, sc.values(row.json))
			if err != nil {
				return Judgement{Outcome: classify.Ambiguous, Stuck: true, Reason: err.Error()}
			}
			if v != true {
				continue
			}
		}
		return Judgement{Outcome: row.outcome, InFlight: row.inFlight, Alarm: row.alarm, Reason: row.reason()}
	}
	return Judgement{}
}

// document is the answer's JSON. An answer that is something else says nothing to
// a program; one that cannot be read could say anything.
func (w *watcher) document() (v any, isJSON bool, err error) {
	if !w.holds || len(w.body) == 0 {
		return nil, false, nil
	}
	v, _, err = documentOf(Answer{Status: w.head.Status, Header: w.head.Header, Body: w.body})
	if errors.Is(err, classify.ErrNotJSON) {
		return nil, false, nil
	}
	return v, err == nil, err
}

func (row *errorRow) reason() string {
	if row.inFlight {
		return "the provider says that another copy of the request is at work"
	}
	return ""
}

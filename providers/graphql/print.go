package graphql

import (
	"bytes"
	"encoding/json"
	"slices"

	"counterfoil/classify"
)

// Print implements [providers.Printer]: white space, commas and comments of the
// document do not count, nor do members that say nothing: an operationName where
// there is one operation alone, variables and extensions that are null or empty.
func (c *query) Print(r *classify.Request) *classify.Request {
	q, err := c.d.open(r)
	if err != nil {
		return r
	}
	out := *r
	if q.env.isText {
		out.Body = []byte(q.doc.canonical)
		return &out
	}
	text, err := json.Marshal(q.doc.canonical)
	if err != nil {
		return r
	}
	type edit struct {
		span classify.Span
		with []byte
	}
	edits := []edit{{q.env.query, text}}
	if q.env.operationName.Found && len(q.doc.operations) == 1 {
		edits = append(edits, edit{q.env.operationName, []byte("null")})
	}
	for _, s := range []classify.Span{q.env.variables, q.env.extensions} {
		if s.Found && isEmpty(q.env.raw(s)) {
			edits = append(edits, edit{s, []byte("null")})
		}
	}
	slices.SortFunc(edits, func(a, b edit) int { return b.span.Start - a.span.Start })
	for _, e := range edits {
		out.Body = splice(out.Body, e.span.Start, e.span.End, e.with)
	}
	out.Body = withNulls(out.Body)
	return &out
}

func isEmpty(raw []byte) bool {
	return raw[0] == 'n' || raw[0] == '{' && len(bytes.Trim(raw, "{} \t\r\n")) == 0
}

// withNulls adds the members that a body may leave out, as null.
func withNulls(body []byte) []byte {
	e, err := readEnvelope(body)
	if err != nil {
		return body
	}
	var added []byte
	for _, m := range []struct {
		name string
		span classify.Span
	}{{"operationName", e.operationName}, {"variables", e.variables}, {"extensions", e.extensions}} {
		if !m.span.Found {
			added = append(added, `,"`+m.name+`":null`...)
		}
	}
	return splice(body, e.query.End, e.query.End, added)
}

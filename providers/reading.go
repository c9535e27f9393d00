package providers

import (
	"strings"

	"counterfoil/classify"
)

// A Reading is what an adapter says about one request. Its zero value is of a
// request about which nothing is known.
type Reading struct {
	// Operation is the first that matches, nil if none does.
	Operation *Operation
	// Content is what a dialect read, nil if none did.
	Content Content
	// Undecided says why it is not known which operation the request is, where a
	// program failed on it; empty where it is known.
	Undecided string

	// whole is the adapter that read it, part the one of its parts that has the
	// operation.
	whole, part *Adapter
	errors      []errorRow
}

// basePath is what the upstream's URL has of paths that begin at the host.
func (rd *Reading) basePath() string {
	if rd.part == nil {
		return ""
	}
	return rd.part.base
}

// Read finds out what r is. An adapter that is nil knows nothing. The Reading is
// never nil.
func (a *Adapter) Read(r *classify.Request) (*Reading, *Refusal) {
	rd := &Reading{whole: a}
	for part := a; part != nil; part = part.next {
		for _, d := range part.bound {
			if rd.Content != nil {
				break
			}
			content, refusal := d.Read(r)
			if refusal != nil {
				return rd, refusal
			}
			rd.Content = content
		}
		if rd.errors == nil {
			rd.errors = part.errors
		}
	}
	f := &facts{r: r, content: rd.Content}
	for part := a; part != nil; part = part.next {
		op := part.find(f)
		if f.failed != nil {
			rd.Undecided = f.failed.Error()
			return rd, nil
		}
		if op != nil {
			rd.Operation, rd.part, rd.errors = op, part, part.errors
			return rd, nil
		}
	}
	return rd, nil
}

// Recall reads a request on record, which was found to be the operation of that
// name: conditions are not asked again, since its secrets may be gone.
func (a *Adapter) Recall(r *classify.Request, operation string) *Reading {
	rd, _ := a.Read(r) // what must not be sent was not
	if operation == "" || rd.Operation != nil && rd.Operation.Name == operation {
		return rd
	}
	for part := a; part != nil; part = part.next {
		for i := range part.Operations {
			if part.Operations[i].Name == operation {
				return &Reading{Operation: &part.Operations[i], Content: rd.Content, whole: a, part: part, errors: part.errors}
			}
		}
	}
	return rd
}

// Class is what the request does, as far as operation or content say; 0 if they
// do not. Where a program could not say, it is the strictest that its method
// may be.
func (rd *Reading) Class() classify.Class {
	switch {
	case rd.Undecided != "":
		return classify.Effect
	case rd.Operation != nil && (rd.Operation.Class == classify.Read || rd.Operation.Class == classify.Decision) && rd.changes():
		return classify.Effect
	case rd.Operation != nil:
		return rd.Operation.Class
	case rd.Content != nil:
		return rd.Content.Class()
	}
	return 0
}

func (rd *Reading) changes() bool {
	c, ok := rd.Content.(Changer)
	return ok && c.Changes()
}

// SaysItReads reports whether the content itself says that the request changes
// nothing, whatever else is known of it.
func (rd *Reading) SaysItReads() bool {
	return rd.Content != nil && rd.Content.Class() == classify.Read
}

// Passes reports whether the request is none of the journal's business.
func (rd *Reading) Passes() bool {
	p, ok := rd.Content.(Passer)
	return ok && p.Passes()
}

// Identity is what the content says about whose call it is. The error is for
// the client.
func (rd *Reading) Identity() (Identity, error) {
	if i, ok := rd.Content.(Identifier); ok {
		return i.Identity()
	}
	return Identity{}, nil
}

// Reply makes of an answer on record the one that this request expects.
func (rd *Reading) Reply(a Answer) (Answer, error) {
	if p, ok := rd.Content.(Replier); ok {
		return p.Reply(a)
	}
	return a, nil
}

// IsReworded reports whether Reply may change an answer, so that it has to be
// at hand as a whole.
func (rd *Reading) IsReworded() bool {
	_, ok := rd.Content.(Replier)
	return ok
}

// Refuse words a refusal of the sidecar's own in the client's dialect; false
// where it has none.
func (rd *Reading) Refuse(problem []byte, text string) (Answer, bool) {
	if p, ok := rd.Content.(Refuser); ok {
		return p.Refuse(problem, text), true
	}
	return Answer{}, false
}

// ScopeOf returns what of the request says on whose behalf it is, in one text:
// the adapter's scope headers with their values. Empty is none.
func (a *Adapter) ScopeOf(h classify.Header) string {
	var b strings.Builder
	for part := a; part != nil; part = part.next {
		for _, name := range part.ScopeHeaders {
			for _, v := range h.Values(name) {
				b.WriteString(strings.ToLower(name) + "\x00" + v + "\x00")
			}
		}
	}
	return b.String()
}

// Match returns the first operation that r is, or nil if it is none.
func (a *Adapter) Match(r *classify.Request) *Operation {
	f := facts{r: r}
	return a.find(&f)
}

// find returns the first operation of this part that the request is.
func (a *Adapter) find(f *facts) *Operation {
	candidates, named := a.byMethod[f.r.Method]
	if !named {
		candidates = a.anyMethod
	}
	path := f.r.Path()
	if a.base != "" {
		path = a.base + path
	}
	for i := range candidates {
		c := &candidates[i]
		if !strings.HasPrefix(path, c.prefix) || !c.op.path.Matches(f.r.Method, path) {
			continue
		}
		if c.op.when.areNone() {
			return c.op
		}
		if f.scope == nil {
			f.scope = &scope{q: &Query{Original: f.r}}
		}
		f.scope.isBelow(a.base)
		if c.op.when.holds(f) {
			return c.op
		}
		if f.failed != nil {
			return nil
		}
	}
	return nil
}

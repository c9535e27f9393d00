package providers

import (
	"counterfoil/classify"
)

// A Reading is what an adapter says about one request. Its zero value is of a
// request about which nothing is known.
type Reading struct {
	// Operation is the first that matches, nil if none does.
	Operation *Operation
	// Content is what a dialect read, nil if none did.
	Content Content
}

// Read finds out what r is. An adapter that is nil knows nothing. The Reading is
// never nil.
func (a *Adapter) Read(r *classify.Request) (*Reading, *Refusal) {
	rd := &Reading{}
	if a == nil {
		return rd, nil
	}
	rd.Operation = a.Match(r)
	return rd, nil
}

// Class is what the request does, as far as operation or content say; 0 if they
// do not.
func (rd *Reading) Class() classify.Class {
	switch {
	case rd.Operation != nil:
		return rd.Operation.Class
	case rd.Content != nil:
		return rd.Content.Class()
	}
	return 0
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

// Print returns r as its fingerprint is to be taken: without what stamping
// replaces, and as its dialect has it.
func (rd *Reading) Print(r *classify.Request) *classify.Request {
	if p, ok := rd.Content.(Printer); ok {
		return p.Print(r)
	}
	return r
}

// Stamps are what a request bears of ours.
type Stamps struct {
	// Key is the provider key, or the client's own; after Stamp it is what was
	// placed. Marker is the call's provider key always: no client's choice is
	// hard enough to guess.
	Key, Marker string
}

// Stamp returns a copy of r that bears what the operation says, and what was
// placed as its key. It fails where something cannot go where it must: nothing
// may be sent then.
func (rd *Reading) Stamp(r *classify.Request, s Stamps) (classify.Request, Stamps, error) {
	placement := DefaultKey()
	if rd.Operation != nil && rd.Operation.Key != (KeyPlacement{}) {
		placement = rd.Operation.Key
	}
	out, err := placement.Place(r, s.Key)
	return out, s, err
}

// Watch returns what judges an answer to the request by its body, nil where its
// status says all.
func (rd *Reading) Watch(q Query, h Head, isResend bool) Watcher {
	if w, ok := rd.Content.(Watchable); ok {
		return w.Watch(h)
	}
	return nil
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

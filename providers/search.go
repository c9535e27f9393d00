package providers

import (
	"context"

	"counterfoil/classify"
)

// A Search is one asking of a lookup, page by page: send what Next returns,
// hand the whole answer to Take, until Next says that it is over. It is used by
// one goroutine.
type Search struct {
	lookup  *Lookup
	query   Query
	finding Finding
	over    bool
}

// Search begins to ask whether the call q was made.
func (rd *Reading) Search(q Query) *Search {
	return &Search{lookup: rd.Operation.Lookup, query: q}
}

// Next returns the request to send next, or false when the search is over.
func (s *Search) Next() (*classify.Request, bool) {
	if s.over {
		return nil, false
	}
	r, err := s.lookup.Request(s.query)
	if err != nil {
		s.over = true
		s.finding = inconclusive("%v", err)
		s.finding.Lasting = true
		return nil, false
	}
	return r, true
}

// Take judges the whole answer to the request that Next returned last.
func (s *Search) Take(ctx context.Context, a Answer) {
	s.over = true
	s.finding = s.lookup.Judge(ctx, s.query, a)
}

// Finding is what the search came to. It is to be asked once Next says that it
// is over.
func (s *Search) Finding() Finding { return s.finding }

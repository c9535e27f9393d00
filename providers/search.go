package providers

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"

	"counterfoil/classify"
)

// A Search is one asking of a lookup, page by page: send what Next returns,
// hand the whole answer to Take, until Next says that it is over. It is used by
// one goroutine.
type Search struct {
	rd      *Reading
	lookup  *Lookup
	scope   *scope
	base    string
	asked   string
	link    string
	pages   int
	finding Finding
	over    bool
	// isUnmarked says that what is looked for was not put into the request, so that
	// not finding it shows nothing.
	isUnmarked bool
}

// Search begins to ask whether the call q was made. Without an operation that has
// a lookup, as where the request on record is read otherwise than the one at hand,
// it is over at once and inconclusive for good.
func (rd *Reading) Search(q Query) *Search {
	if rd.Operation == nil || rd.Operation.Lookup == nil {
		s := &Search{rd: rd}
		s.endUndecided("nothing says how to ask for what the request on record was")
		return s
	}
	s := &Search{rd: rd, lookup: rd.Operation.Lookup}
	s.scope = &scope{q: &q, id: rd.id(q.Original), base: rd.basePath()}
	if q.Original != nil {
		s.base = rd.Operation.prefix(rd.basePath() + q.Original.Path())
	}
	s.isUnmarked = s.lookup.needsMarker && (q.Original == nil || !rd.bears(q.Original, q.Marker))
	if s.lookup.needsID && s.scope.id == "" {
		s.endUndecided("the request on record bears no id to look for")
	}
	return s
}

// Next returns the request to send next, or false when the search is over.
func (s *Search) Next() (*classify.Request, bool) {
	if s.over {
		return nil, false
	}
	s.scope.page = s.pages + 1
	r, err := s.request()
	if err == nil {
		s.asked = r.Target
		r.Target, err = withoutBase(r.Target, s.rd.basePath())
	}
	if err != nil {
		s.end(inconclusive("%v", err))
		s.finding.Lasting, s.finding.Stuck = true, isProgramFailure(err)
		return nil, false
	}
	return r, true
}

func (s *Search) request() (*classify.Request, error) {
	switch {
	case s.lookup.GraphQL != nil:
		seeker, ok := s.rd.Content.(Seeker)
		if !ok {
			return nil, errNoDialect
		}
		q := *s.scope.q
		q.ID = s.scope.id
		return s.inDialect(seeker, &q)
	case s.link != "":
		r, err := s.lookup.page(context.Background(), s.scope, s.base)
		if err == nil {
			r.Target = s.link
		}
		return r, err
	}
	return s.lookup.page(context.Background(), s.scope, s.base)
}

// inDialect sends a dialect's question where the call went, with its headers.
func (s *Search) inDialect(seeker Seeker, q *Query) (*classify.Request, error) {
	r, err := seeker.Seek(s.lookup, q)
	if err != nil {
		return nil, err
	}
	o := q.Original
	r.Upstream, r.Target = o.Upstream, s.rd.basePath()+o.Target
	media := r.Header.Value("Content-Type")
	r.Header = o.Header.Without(s.lookup.belongsToOriginal).Set("Accept", "application/json").Set("Accept-Encoding", "identity").Set("Content-Type", media)
	return r, nil
}

// withoutBase makes a target on the host one that is relative to the upstream's
// URL.
func withoutBase(target, base string) (string, error) {
	rest, ok := strings.CutPrefix(target, base)
	if !ok || base != "" && rest != "" && rest[0] != '/' && rest[0] != '?' {
		return "", errors.New("the lookup's path lies outside the upstream's url")
	}
	return rest, nil
}

func (s *Search) end(f Finding) {
	if s.isUnmarked && f.Discovery == Absent {
		f = inconclusive("the request on record does not bear the marker that the lookup goes by, so that not finding it shows nothing")
		f.Lasting = true
	}
	s.finding, s.over = f, true
}

// Take judges the whole answer to the request that Next returned last.
func (s *Search) Take(ctx context.Context, a Answer) {
	s.pages++
	if s.lookup.GraphQL != nil {
		s.takeInDialect(ctx, a)
		return
	}
	f, document := s.lookup.judge(ctx, s.scope, a)
	if f.Discovery != Absent || document == nil {
		s.end(f)
		return
	}
	if p := s.lookup.partial; p != nil {
		v, err := s.scope.run(ctx, p, document)
		switch {
		case err != nil:
			s.end(stuck(err))
			return
		case v == true:
			s.endUndecided("the lookup's answer does not show everything")
			return
		}
	}
	more, err := s.advance(ctx, a, document)
	switch {
	case err != nil:
		s.end(inconclusive("%v", err))
		s.finding.Lasting, s.finding.Stuck = true, isProgramFailure(err)
	case !more:
		s.end(f)
	case s.pages >= s.lookup.PagesMax:
		s.endUndecided(fmt.Sprintf("the effect is not on the first %d pages, and there are more", s.pages))
	}
}

func (s *Search) endUndecided(reason string) {
	s.end(inconclusive("%s", reason))
	s.finding.Lasting = true
}

func (s *Search) takeInDialect(ctx context.Context, a Answer) {
	seeker, ok := s.rd.Content.(Seeker)
	if !ok {
		s.endUndecided(errNoDialect.Error())
		return
	}
	if slices.Contains(s.lookup.notFound, a.Status) {
		s.end(Finding{Discovery: Absent, Reason: fmt.Sprintf("the lookup was answered %d", a.Status)})
		return
	}
	if l := s.lookup; l.absent != nil {
		if document, _, err := documentOf(a); err == nil {
			v, failed := s.scope.run(ctx, l.absent, document)
			switch {
			case failed != nil:
				s.end(stuck(failed))
				return
			case v == true:
				s.end(Finding{Discovery: Absent, Reason: "the lookup's answer says that there is no such thing"})
				return
			}
		}
	}
	if a.Status != 200 {
		s.end(inconclusive("the lookup was answered %d, which shows nothing%s", a.Status, hint(a.Status)))
		return
	}
	body, err := decoded(a)
	if err != nil {
		s.endUndecided("the lookup's answer cannot be read: " + err.Error())
		return
	}
	q := *s.scope.q
	q.ID = s.scope.id
	header := a.Header.Without(dropped(a.Header, newBody)).Set("Content-Type", "application/json")
	f := seeker.Sought(ctx, s.lookup, &q, Answer{Status: a.Status, Header: header, Body: body})
	if f.Discovery == Found {
		f.Answer.Header = header
	}
	s.end(f)
}

// errSamePage: what comes after that page, nobody can see.
var errSamePage = errors.New("a page of the lookup's answer leads to itself")

// isHere reports whether a host, with its port where it has one, is the provider's.
func (rd *Reading) isHere(host string) bool {
	if rd.part == nil || rd.part.host == "" || host == rd.part.host {
		return true
	}
	named := url.URL{Host: host}
	return rd.part.ServesHost(named.Hostname())
}

// advance finds the next page: false where there is none.
func (s *Search) advance(ctx context.Context, a Answer, document any) (more bool, err error) {
	switch {
	case s.lookup.byLink:
		next, err := nextLink(a.Header, s.asked, s.rd.isHere)
		if err != nil || next == "" {
			return false, err
		}
		if next == s.asked {
			return false, errSamePage
		}
		s.link = next
		return true, nil
	case s.lookup.next == nil:
		return false, nil
	}
	v, err := s.scope.run(ctx, s.lookup.next, document)
	if err != nil {
		return false, err
	}
	if v == nil || v == "" || v == false {
		return false, nil
	}
	text, ok := textOf(v)
	if !ok {
		return false, s.lookup.next.failure("yielded what is no cursor: neither text nor a number")
	}
	if before, _ := textOf(s.scope.next); s.scope.next != nil && before == text {
		return false, errSamePage
	}
	s.scope.next = v
	return true, nil
}

// Finding is what the search came to. It is to be asked once Next says that it
// is over.
func (s *Search) Finding() Finding { return s.finding }

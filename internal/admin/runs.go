package admin

import (
	"context"
	"net/http"
	"net/url"
	"slices"
	"strconv"

	"counterfoil/internal/view"
	"counterfoil/keystore"
)

// pageMax is how many items one page may have.
const pageMax = 1000

func (s *Server) runs(ctx context.Context, r *http.Request) (any, error) {
	q, err := s.query(r, "namespace", "limit", "after", "state", "label", "older_than", "newer_than")
	if err != nil {
		return nil, err
	}
	filter, err := view.ParseRunFilter(r.URL.Query(), s.metrics.now())
	if err != nil {
		return nil, refuse(InvalidRequest, "%s.", err)
	}
	list, err := view.ListRuns(ctx, s.store, q.namespace, q.page, &filter, view.Operator)
	if err != nil {
		return nil, q.mistake(err)
	}
	return list, nil
}

func (s *Server) run(ctx context.Context, r *http.Request) (any, error) {
	q, name, err := s.ofRun(r)
	if err != nil {
		return nil, err
	}
	run, err := s.store.Run(ctx, q.namespace, name)
	if err != nil {
		return nil, err
	}
	calls, err := s.store.Calls(ctx, q.namespace, name, q.page)
	if err != nil {
		return nil, q.mistake(err)
	}
	v, err := view.ShowRun(ctx, s.store, &run, view.Operator)
	if err != nil {
		return nil, err
	}
	v.Calls = view.ListOf(calls, viewCall)
	return v, nil
}

// ofRun reads the run that a path names, and which of its pages is asked for.
func (s *Server) ofRun(r *http.Request) (q query, name string, err error) {
	q, err = s.query(r, "namespace", "limit", "after")
	if err != nil {
		return q, "", err
	}
	name = r.PathValue("run")
	return q, name, keystore.ValidatePart(name)
}

// unknown lists the calls of all namespaces that wait for a person, the oldest
// first.
func (s *Server) unknown(ctx context.Context, r *http.Request) (any, error) {
	q, err := s.query(r, "limit", "after")
	if err != nil {
		return nil, err
	}
	list, err := s.store.Unsettled(ctx, keystore.Unknown, q.page)
	if err != nil {
		return nil, q.mistake(err)
	}
	return view.ListOf(list, viewCall), nil
}

func (s *Server) call(ctx context.Context, r *http.Request) (any, error) {
	q, err := s.query(r, "namespace")
	if err != nil {
		return nil, err
	}
	k := keystore.Key{Namespace: q.namespace, Run: r.PathValue("run"), Turn: r.PathValue("turn"), Call: r.PathValue("call")}
	if err := k.Validate(); err != nil {
		return nil, err
	}
	record, err := s.store.Call(ctx, k)
	if err != nil {
		return nil, err
	}
	return viewCall(record), nil
}

// front is where the link of a refusal leads: to the call that waits for a
// person. Without a call it says what there is.
func (s *Server) front(w http.ResponseWriter, r *http.Request) {
	named := r.URL.Query()
	if !named.Has("call") {
		writeJSON(w, http.StatusOK, "application/json", map[string]string{
			"runs": "/api/v1/runs", "unknown": "/api/v1/unknown", "held": "/api/v1/held", "metrics": "/metrics", "ready": "/ready",
		})
		return
	}
	namespace := named.Get("namespace")
	if namespace == "" {
		namespace = s.namespace
	}
	k, err := keystore.ParseKey(namespace, named.Get("call"))
	if err != nil {
		writeRefusal(w, r, refusalOf(err))
		return
	}
	http.Redirect(w, r, CallPath(k)+"?"+url.Values{"namespace": {k.Namespace}}.Encode(), http.StatusSeeOther) //nolint:gosec // CallPath begins with a path of this server
}

// A query is what a request's query asks for.
type query struct {
	namespace string
	page      keystore.Page
}

// query reads the parameters that a path knows, and refuses every other.
func (s *Server) query(r *http.Request, known ...string) (query, error) {
	q := query{namespace: s.namespace}
	values, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return q, refuse(InvalidRequest, "The query is not well formed: percent-encode its values.")
	}
	for name, v := range values {
		if !slices.Contains(known, name) {
			return q, refuse(InvalidRequest, "The query parameter %q is not known here; known are %q.", name, known)
		}
		if len(v) > 1 && name != "label" {
			return q, refuse(InvalidRequest, "The query names %s twice.", name)
		}
		if err := q.set(name, v[0]); err != nil {
			return q, err
		}
	}
	return q, nil
}

func (q *query) set(name, value string) error {
	switch name {
	case "namespace":
		q.namespace = value
		return keystore.ValidatePart(value)
	case "after":
		q.page.After = value
	case "limit":
		n, err := strconv.Atoi(value)
		if err != nil || n < 1 || n > pageMax {
			return refuse(InvalidRequest, "The limit is a number from 1 to %d.", pageMax)
		}
		q.page.Limit = n
	}
	return nil
}

// mistake tells a cursor that no list gave from a list that is not there: lists
// that are empty are no error.
func (q *query) mistake(err error) error {
	if q.page.After != "" && refusalOf(err).problem == NotFound {
		return refuse(InvalidRequest, "The cursor in after is none that this list gave: leave it out to begin anew.")
	}
	return err
}

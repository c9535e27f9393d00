package view

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"

	"counterfoil/keystore"
)

// Bounds on one page of a list of runs.
const (
	// scannedMax is how many runs are looked at for one page, pagesMax how often
	// the store is asked.
	scannedMax = 2000
	pagesMax   = 64
)

// A RunFilter says which runs are listed. The zero RunFilter lists all.
type RunFilter struct {
	// State is 0 for any.
	State keystore.RunState
	// Labels are those that a run must have, name and value; two values of one
	// name are none that a run can have.
	Labels [][2]string
	// Before and After bound when a run was created; 0 is no bound.
	Before, After keystore.Instant
}

// ParseRunFilter reads state, label, older_than and newer_than of a query. Its
// error's text is for clients.
func ParseRunFilter(query url.Values, now time.Time) (f RunFilter, err error) {
	if name := query.Get("state"); name != "" {
		var known bool
		if f.State, known = keystore.ParseRunState(name); !known {
			return f, fmt.Errorf("state: %q is none of active, paused", name)
		}
	}
	for _, label := range query["label"] {
		name, value, ok := strings.Cut(label, ":")
		if !ok || name == "" {
			return f, fmt.Errorf("label: %q is not name:value", label)
		}
		f.Labels = append(f.Labels, [2]string{name, value})
	}
	if f.Before, err = ago(query, "older_than", now); err != nil {
		return f, err
	}
	f.After, err = ago(query, "newer_than", now)
	return f, err
}

// ago is the time that a duration in the query lies back; 0 if there is none.
func ago(query url.Values, name string, now time.Time) (keystore.Instant, error) {
	text := query.Get(name)
	if text == "" {
		return 0, nil
	}
	d, err := time.ParseDuration(text)
	if err != nil || d < 0 {
		return 0, fmt.Errorf("%s: %q is no duration: write a number and a unit, as in 90s, 30m or 24h", name, text)
	}
	return keystore.At(now).Add(-d), nil
}

// matches reports whether a run is listed.
func (f *RunFilter) matches(s *keystore.RunSummary) bool {
	for _, label := range f.Labels {
		if has, ok := s.Labels[label[0]]; !ok || has != label[1] {
			return false
		}
	}
	return (f.State == 0 || f.State == stateOf(s)) &&
		(f.Before == 0 || s.CreatedAt < f.Before) && (f.After == 0 || s.CreatedAt > f.After)
}

// A RunLister is what a list of runs is read from: a [keystore.Store].
type RunLister interface {
	Runs(ctx context.Context, namespace string, p keystore.Page) (keystore.List[keystore.RunSummary], error)
	Lease(ctx context.Context, namespace, run string) (keystore.Grant, error)
}

// ListRuns shows one page of the runs that a filter lets through, in order of
// creation. It looks at a bounded number of runs, so that a page may be short,
// or empty, and have a cursor all the same.
func ListRuns(ctx context.Context, from RunLister, namespace string, p keystore.Page, f *RunFilter, who Audience) (*List[*Run], error) {
	wanted := p.Limit
	if wanted == 0 {
		wanted = 100
	}
	v := &List[*Run]{Items: []*Run{}}
	for pages, scanned := 0, 0; ; pages++ {
		p.Limit = wanted - len(v.Items)
		list, err := from.Runs(ctx, namespace, p)
		if err != nil {
			return nil, err
		}
		for i := range list.Items {
			if s := &list.Items[i]; f.matches(s) {
				run, err := ShowRun(ctx, from, s, who)
				if err != nil {
					return nil, err
				}
				v.Items = append(v.Items, run)
			}
		}
		p.After, v.Next = list.Next, list.Next
		if scanned += len(list.Items); list.Next == "" || len(v.Items) == wanted || scanned >= scannedMax || pages == pagesMax {
			return v, nil
		}
	}
}

// ShowRun shows a run with its lease, without its calls.
func ShowRun(ctx context.Context, from RunLister, s *keystore.RunSummary, who Audience) (*Run, error) {
	v := runOf(s, who)
	if s.Lease.Fence == 0 {
		return v, nil
	}
	grant, err := from.Lease(ctx, s.Namespace, s.Name)
	switch {
	case errors.Is(err, keystore.ErrNotFound): // its retention ended just now
		return v, nil
	case err != nil:
		return nil, fmt.Errorf("reading a run's lease: %w", err)
	}
	v.Lease = LeaseOf(&grant)
	return v, nil
}

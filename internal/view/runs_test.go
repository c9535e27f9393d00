package view

import (
	"context"
	"net/url"
	"strconv"
	"testing"
	"time"

	"counterfoil/keystore"
)

// many is a store of so many runs, of which every nth has a label.
type many struct {
	runs, nth    int
	asked, given int
}

func (m *many) Runs(_ context.Context, _ string, p keystore.Page) (l keystore.List[keystore.RunSummary], err error) {
	m.asked++
	at, err := strconv.Atoi("0" + p.After)
	if err != nil {
		return l, err
	}
	for ; at < m.runs && len(l.Items) < p.Limit; at++ {
		s := keystore.RunSummary{Run: keystore.Run{Name: strconv.Itoa(at), CreatedAt: keystore.Instant(at + 1)}}
		if at%m.nth == 0 {
			s.Labels = map[string]string{"k": "v"}
		}
		l.Items = append(l.Items, s)
		m.given++
	}
	if at < m.runs {
		l.Next = strconv.Itoa(at)
	}
	return l, nil
}

func (*many) Lease(context.Context, string, string) (keystore.Grant, error) {
	return keystore.Grant{}, keystore.ErrNotFound
}

// One page looks at a bounded number of runs, and page after page finds all.
func TestListRunsIsBounded(t *testing.T) {
	filter, err := ParseRunFilter(url.Values{"label": {"k:v"}}, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct{ runs, nth, limit int }{{9000, 9001, 10}, {9000, 7, 100}, {9000, 1, 1000}, {300, 100, 1}, {0, 1, 0}, {5000, 3, 0}} {
		m := &many{runs: tt.runs, nth: tt.nth}
		found := 0
		for page := (keystore.Page{Limit: tt.limit}); ; {
			m.asked, m.given = 0, 0
			l, err := ListRuns(t.Context(), m, "default", page, &filter, Agent)
			if err != nil {
				t.Fatal(err)
			}
			wanted := tt.limit
			if wanted == 0 {
				wanted = 100
			}
			if found += len(l.Items); len(l.Items) > wanted || m.given > scannedMax+wanted || m.asked > pagesMax+1 {
				t.Fatalf("%+v: a page of %d, after %d runs in %d steps", tt, len(l.Items), m.given, m.asked)
			}
			if page.After = l.Next; l.Next == "" {
				break
			}
		}
		if want := (tt.runs + tt.nth - 1) / tt.nth; found != want {
			t.Errorf("%+v: found %d, want %d", tt, found, want)
		}
	}
}

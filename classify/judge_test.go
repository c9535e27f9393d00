package classify

import (
	"strings"
	"testing"
)

func answered(status int) Answer { return Answer{Evidence: Answered, Status: status} }

// The table of design section 3.5, status by status.
func TestStatusOutcome(t *testing.T) {
	want := map[int]Outcome{}
	set := func(o Outcome, statuses ...int) {
		for _, s := range statuses {
			want[s] = o
		}
	}
	for s := 200; s <= 299; s++ {
		set(Applied, s)
	}
	set(Applied, 301, 302, 303)
	set(Rejected, 400, 402, 404, 405, 406, 409, 410, 411, 412, 413, 414, 415, 422, 423, 431, 451)
	set(NotApplied, 307, 308, 401, 403, 429)
	for status := -1; status <= 1000; status++ {
		expected := want[status]
		if expected == 0 {
			expected = Ambiguous
		}
		if got := StatusOutcome(status); got != expected {
			t.Errorf("%d: got %v, want %v", status, got, expected)
		}
		if got := Judge(answered(status), Circumstances{Method: "POST"}); got != expected {
			t.Errorf("judging %d: got %v, want %v", status, got, expected)
		}
	}
}

func TestJudge(t *testing.T) {
	own := Outcomes{500: Rejected, 404: Rejected, 409: Applied, 410: NotApplied, 200: Ambiguous, 422: Ambiguous, 429: Rejected}
	for _, row := range []struct {
		name   string
		answer Answer
		c      Circumstances
		want   Outcome
	}{
		{"unsent", Answer{Evidence: Unsent}, Circumstances{}, NotApplied},
		{"lost", Answer{Evidence: Lost}, Circumstances{}, Ambiguous},
		{"no evidence", Answer{Status: 200}, Circumstances{}, Ambiguous},
		{"lost with a status", Answer{Evidence: Lost, Status: 200}, Circumstances{}, Ambiguous},
		{"lost, whatever is claimed", Answer{Evidence: Lost, Status: 500, Adapter: Applied}, Circumstances{Outcomes: own}, Ambiguous},
		{"unsent, whatever is claimed", Answer{Evidence: Unsent, Status: 200, Adapter: Applied}, Circumstances{}, NotApplied},

		{"own meaning", answered(500), Circumstances{Outcomes: own}, Rejected},
		{"own meaning of success", answered(200), Circumstances{Outcomes: own}, Ambiguous},
		{"no own meaning", answered(503), Circumstances{Outcomes: own}, Ambiguous},
		{"adapter reads an error in a 200", Answer{Answered, 200, Rejected}, Circumstances{}, Rejected},
		{"adapter vouches for a 503", Answer{Answered, 503, NotApplied}, Circumstances{}, NotApplied},
		{"own meaning before the adapter", Answer{Answered, 500, Ambiguous}, Circumstances{Outcomes: own}, Rejected},

		{"304 to a read", answered(304), Circumstances{Method: "GET"}, Applied},
		{"304 to an effect", answered(304), Circumstances{Method: "POST"}, Ambiguous},

		{"own 404: rejected without doubt", answered(404), Circumstances{Outcomes: own}, Rejected},
		{"own 404: rejected after doubt", answered(404), Circumstances{Doubt: AfterDoubt, Outcomes: own}, Ambiguous},
		{"own 404: rejected after doubt, DELETE", answered(404), Circumstances{"DELETE", AfterDoubt, own}, Ambiguous},
		{"own 410: not applied after doubt", answered(410), Circumstances{"DELETE", AfterDoubt, own}, Ambiguous},
		{"own 409: applied after doubt", answered(409), Circumstances{Doubt: AfterDoubt, Outcomes: own}, Applied},
		{"own 422: ambiguous after doubt", answered(422), Circumstances{Doubt: AfterDoubt, Outcomes: own}, Ambiguous},
		{"adapter says rejected after doubt", Answer{Answered, 409, Rejected}, Circumstances{Doubt: AfterDoubt}, Ambiguous},
		{"adapter says applied after doubt", Answer{Answered, 409, Applied}, Circumstances{Doubt: AfterDoubt}, Applied},
		{"own meaning of other statuses after doubt", answered(429), Circumstances{Doubt: AfterDoubt, Outcomes: own}, Rejected},
	} {
		if got := Judge(row.answer, row.c); got != row.want {
			t.Errorf("%s: got %v, want %v", row.name, got, row.want)
		}
	}
}

func TestJudgeAfterDoubt(t *testing.T) {
	for status := 200; status <= 599; status++ {
		for _, method := range []string{"POST", "PUT", "PATCH", "DELETE"} {
			want := StatusOutcome(status)
			switch status {
			case 404, 410:
				want = Ambiguous
				if method == "DELETE" {
					want = Applied
				}
			case 409, 412, 422:
				want = Ambiguous
			}
			if got := Judge(answered(status), Circumstances{Method: method, Doubt: AfterDoubt}); got != want {
				t.Errorf("%s %d: got %v, want %v", method, status, got, want)
			}
		}
	}
}

func TestParseOutcomes(t *testing.T) {
	got, err := ParseOutcomes(map[int]string{500: "rejected", 409: "applied"})
	if err != nil || len(got) != 2 || got[500] != Rejected || got[409] != Applied {
		t.Errorf("got %v, %v", got, err)
	}
	_, err = ParseOutcomes(map[int]string{100: "rejected", 600: "applied", 500: "fine", 501: ""})
	for _, hint := range []string{"status 100", "status 600", "status 501", `"fine" is none of applied, rejected, not_applied, ambiguous`} {
		if err == nil || !strings.Contains(err.Error(), hint) {
			t.Errorf("got %v, want a text with %q", err, hint)
		}
	}
}

package crashtest

import (
	"net/http"
	"testing"
	"time"

	"counterfoil/internal/fake"
)

// createsOf keeps the cases of a spec whose adapter can look them up.
func createsOf(t *testing.T, spec fake.Spec) fake.Spec {
	t.Helper()
	a := bound(t, catalogue(t), spec.Adapter)
	var cases []fake.Case
	for _, c := range spec.Cases {
		if operationOf(t, a, c).Lookup != nil {
			cases = append(cases, c)
		}
	}
	spec.Cases = cases
	return spec
}

// TestStripeAfterADay: once Stripe no longer honours the key nothing is sent on
// the strength of it, and the list still knows.
func TestStripeAfterADay(t *testing.T) {
	for at, want := range map[moment]string{beforeSend: sentNow, sentAndLost: sentNow, afterTheEffect: foundThere} {
		t.Run(momentNames[at], func(t *testing.T) {
			m := newMachine(t, at, createsOf(t, fake.Stripe()))
			m.firstLife()
			m.now.Add(int64(25 * time.Hour))
			m.secondLife()
			for _, o := range m.ordeals {
				got := m.verdict(o)
				if err := m.check(o, got); err != nil || got != want {
					t.Errorf("%s: %s, not %s (%v)", o.op.Name, got, want, err)
				}
			}
		})
	}
}

// TestStripeKeepsItsFailures: a 500 that Stripe has on record under the key
// never changes. The list decides where it can; where it shows nothing, Stripe
// may yet bring the charge about.
func TestStripeKeepsItsFailures(t *testing.T) {
	header := http.Header{"Authorization": {"Bearer sk_test_1"}, "Content-Type": {"application/x-www-form-urlencoded"}}
	spec := fake.Stripe()
	spec.Cases = nil
	for _, source := range []string{fake.StripeFailsMade, fake.StripeFailsUnmade} {
		spec.Cases = append(spec.Cases, fake.Case{Operation: "charges.create", Method: "POST", Target: "/v1/charges", Header: header, Body: "amount=700&currency=eur&source=" + source})
	}
	m := newMachine(t, receiptDurable, spec)
	m.firstLife()
	m.secondLife()
	for n, want := range []string{foundThere, leftUnknown} {
		o := m.ordeals[n]
		tr := o.stand.trace(n)
		got := m.verdict(o)
		if got == fromReceipt {
			got = foundThere // by the first life
		}
		if got != want || tr.effects != 1-n {
			t.Errorf("%s: %s with %d effects of %d requests, not %s", spec.Cases[n].Body, got, tr.effects, tr.writes, want)
		}
	}
}

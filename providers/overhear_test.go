package providers

import (
	"testing"

	"counterfoil/classify"
)

// watched is content that watches answers; passes says whether the journal has no
// part in it.
type watched struct{ passes bool }

func (watched) Kind() string          { return "x" }
func (watched) Names() []string       { return nil }
func (watched) Class() classify.Class { return classify.Read }
func (w watched) Passes() bool        { return w.passes }
func (watched) Watch(Head) Watcher    { return &watcher{} }

// What is passed on as a read is watched by what learns from it alone. All other
// watchers judge, and hold what they see until somebody takes it.
func TestOverhear(t *testing.T) {
	row := errorRow{json: new(program)}
	for _, tt := range []struct {
		rd   Reading
		want bool
	}{
		{Reading{Content: watched{passes: true}}, true},
		{Reading{Content: watched{passes: false}}, false},
		{Reading{errors: []errorRow{row}}, false},
		{Reading{}, false},
	} {
		if got := tt.rd.Overhear(Head{Status: 200}) != nil; got != tt.want || tt.rd.Overhears() != tt.want {
			t.Errorf("%+v: watched %t, want %t", tt.rd, got, tt.want)
		}
	}
}

package main

import (
	"testing"
	"time"
)

func TestSteadyClockPassesAsTimeDoes(t *testing.T) {
	began := time.Now()
	now := steadyClock()
	last := now()
	if off := last.Sub(began); off < 0 || off > time.Second {
		t.Errorf("it starts %s off", off)
	}
	for last.Sub(began) < 20*time.Millisecond {
		next := now()
		if next.Before(last) || next.Sub(began) > time.Since(began)+time.Millisecond {
			t.Fatalf("from %s to %s after %s", last, next, time.Since(began))
		}
		last = next
	}
}

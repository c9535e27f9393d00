package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"counterfoil/internal/supervise"
	"counterfoil/keystore"
)

func TestRestartPolicy(t *testing.T) {
	for text, want := range map[string]restartPolicy{
		"no": {}, "on-failure": {onFailure: true}, "on-failure:1": {true, 1}, "on-failure:20": {true, 20},
	} {
		var got restartPolicy
		if err := got.Set(text); err != nil || got != want || got.String() != text {
			t.Errorf("%s: got %+v, %v", text, got, err)
		}
	}
	for _, text := range []string{"", "yes", "always", "on-failure:", "on-failure:0", "on-failure:-1", "on-failure:x", "no:3"} {
		if err := new(restartPolicy).Set(text); err == nil {
			t.Errorf("%q is taken", text)
		}
	}
}

func TestWhichEndsAreFollowedByARestart(t *testing.T) {
	for _, tc := range []struct {
		end  supervise.Exit
		want bool
	}{
		{supervise.Exit{}, false},
		{supervise.Exit{Code: 1}, true},
		{supervise.Exit{Code: 137}, true},
		{supervise.Exit{Signal: syscall.SIGKILL}, true},
		{supervise.Exit{Signal: syscall.SIGSEGV}, true},
		{supervise.Exit{Signal: syscall.SIGINT}, false},
		{supervise.Exit{Signal: syscall.SIGTERM}, false},
		{supervise.Exit{Signal: syscall.SIGHUP}, false},
		{supervise.Exit{Code: 130}, false},
		{supervise.Exit{Code: 143}, false},
	} {
		f := failures{policy: restartPolicy{onFailure: true}}
		if _, again := f.next(tc.end, 0, 0); again != tc.want {
			t.Errorf("%+v: again is %t", tc.end, again)
		}
		if _, again := (&failures{}).next(tc.end, 0, 0); again {
			t.Errorf("%+v: restarted under no", tc.end)
		}
	}
}

func TestTheDelayGrowsAndBeginsAnew(t *testing.T) {
	f := failures{policy: restartPolicy{onFailure: true, max: 12}, first: time.Second}
	crash := supervise.Exit{Code: 1}
	for i, step := range []struct {
		lived  time.Duration
		jitter float64
		want   time.Duration
	}{
		{0, 0, time.Second},
		{0, 0, 2 * time.Second},
		{59 * time.Second, 0, 4 * time.Second},
		{0, 1, 4 * time.Second},
		{0, 0.5, 12 * time.Second},
		{0, 0, 32 * time.Second},
		{0, 0, time.Minute},
		{0, 1, 30 * time.Second},
		{time.Minute, 0, time.Second},
		{0, 0, 2 * time.Second},
		{0, 0, 4 * time.Second},
		{0, 0, 8 * time.Second},
	} {
		if got, again := f.next(crash, step.lived, step.jitter); got != step.want || !again {
			t.Errorf("step %d: %s, %t; want %s", i, got, again, step.want)
		}
	}
	if _, again := f.next(crash, time.Hour, 0); again {
		t.Error("a thirteenth restart")
	}
	if got, _ := (&failures{policy: restartPolicy{onFailure: true}}).next(crash, 0, 1); got != 0 {
		t.Errorf("without a delay: %s", got)
	}
}

// Errors of sidecar exec and of its command have the codes that env has.
func TestExecExitCodes(t *testing.T) {
	for want, err := range map[int]error{
		0:   agentEnd(0),
		143: fmt.Errorf("x: %w", agentEnd(143)),
		125: errors.Join(keystore.ErrLocked),
		126: &supervise.CommandError{Err: &fs.PathError{Op: "exec", Path: "p", Err: syscall.ENOEXEC}},
		127: &supervise.CommandError{Err: &exec.Error{Name: "p", Err: exec.ErrNotFound}},
	} {
		if got := execExitCode(err); got != want {
			t.Errorf("%v: %d, want %d", err, got, want)
		}
	}
	if got := execExitCode(&supervise.CommandError{Err: &fs.PathError{Op: "exec", Path: "p", Err: syscall.ENOENT}}); got != 127 {
		t.Errorf("got %d", got)
	}
	if got := execExitCode(usagef("x")); got != 125 {
		t.Errorf("got %d", got)
	}
}

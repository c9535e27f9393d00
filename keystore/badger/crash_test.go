package badger

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"counterfoil/keystore"
)

// childDir names the directory on which a child process is to work.
const childDir = "COUNTERFOIL_BADGER_TEST_DIR"

// child makes calls until it is killed. It says what is durable, line by line,
// after the store has said so.
func child(dir string) int {
	s, err := Open(context.Background(), Config{Dir: dir})
	if err != nil {
		fmt.Println("error", err)
		return 1
	}
	fmt.Println("open", "-")
	said := make(chan string)
	for worker := range 16 {
		go func() {
			for i := 0; ; i++ {
				k := key(fmt.Sprintf("r%d", worker%4), fmt.Sprintf("%d-%d-%d", s.facts.Epoch, worker, i))
				if _, err := s.Begin(context.Background(), request(s, k), []byte("intent "+k.Call)); err != nil {
					said <- "error " + err.Error()
				}
				said <- "begun " + k.Run + "/" + k.Call
				if _, err := s.Apply(context.Background(), k, applied(1), []byte("receipt "+k.Call)); err != nil {
					said <- "error " + err.Error()
				}
				said <- "applied " + k.Run + "/" + k.Call
			}
		}()
	}
	for line := range said {
		fmt.Println(line)
	}
	return 0
}

func startChild(t *testing.T, dir string) (*exec.Cmd, *bufio.Scanner) {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), childDir+"="+dir)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cmd.Process.Kill() })
	lines := bufio.NewScanner(out)
	if !lines.Scan() || lines.Text() != "open -" {
		t.Fatalf("the child said %q", lines.Text())
	}
	return cmd, lines
}

// TestC89KillLosesNothingAcknowledged: after kill -9 the store opens with no
// manual steps, and has everything that the child said was durable.
func TestC89KillLosesNothingAcknowledged(t *testing.T) {
	dir := t.TempDir()
	saidBegun, saidApplied := map[string]bool{}, map[string]bool{}
	for round := range 3 {
		cmd, lines := startChild(t, dir)
		for n := 0; n < 300*(round+1) && lines.Scan(); n++ {
			note(t, lines.Text(), saidBegun, saidApplied)
		}
		cmd.Process.Kill()
		for lines.Scan() { // what it said before it died
			note(t, lines.Text(), saidBegun, saidApplied)
		}
		cmd.Wait()
	}
	s := openTest(t, Config{Dir: dir})
	for name := range saidBegun {
		run, call, _ := strings.Cut(name, "/")
		rec, err := s.Call(context.Background(), key(run, call))
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if got := readBody(t, s, rec.Intent.Body); got != "intent "+call {
			t.Errorf("%s: intent %q", name, got)
		}
		switch {
		case rec.State == keystore.Succeeded:
			if got := readBody(t, s, rec.Receipt.Body); got != "receipt "+call {
				t.Errorf("%s: receipt %q", name, got)
			}
		case saidApplied[name]:
			t.Errorf("%s: %s, and its receipt was acknowledged", name, rec.State)
		case rec.State != keystore.InDoubt:
			t.Errorf("%s: %s", name, rec.State)
		}
	}
	t.Logf("%d begun, %d applied, %d doubtful in the last epoch", len(saidBegun), len(saidApplied), s.Facts().Doubtful)
	recount(t, s)
}

func note(t *testing.T, line string, begun, applied map[string]bool) {
	t.Helper()
	what, name, whole := strings.Cut(line, " ")
	switch {
	case !whole: // cut off by the kill
	case what == "begun":
		begun[name] = true
	case what == "applied":
		applied[name] = true
	default:
		t.Fatalf("the child said %q", line)
	}
}

// recount checks everything that the store derives against the records.
func recount(t testing.TB, s *Store) {
	t.Helper()
	var counted [len(indexes)]int64
	list, err := s.Runs(context.Background(), "default", keystore.Page{Limit: 1000})
	if err != nil || list.Next != "" {
		t.Fatalf("runs: %v, next %q", err, list.Next)
	}
	for _, sum := range list.Items {
		var totals keystore.RunSummary
		for p := (keystore.Page{Limit: 1000}); ; {
			calls, err := s.Calls(context.Background(), "default", sum.Name, p)
			if err != nil {
				t.Fatal(err)
			}
			for _, rec := range calls.Items {
				totals.Calls[rec.State]++
				if i := indexOf(rec.State); i >= 0 {
					counted[i]++
				}
			}
			if p.After = calls.Next; p.After == "" {
				break
			}
		}
		if totals.Calls != sum.Calls {
			t.Errorf("run %s: %v on record, %v in the totals", sum.Name, totals.Calls, sum.Calls)
		}
	}
	for i, state := range indexes {
		var listed int64
		for p := (keystore.Page{Limit: 1000}); ; {
			calls, err := s.Unsettled(context.Background(), state, p)
			if err != nil {
				t.Fatal(err)
			}
			listed += int64(len(calls.Items))
			if p.After = calls.Next; p.After == "" {
				break
			}
		}
		if counted[i] != listed || counted[i] != s.counts[i].Load() {
			t.Errorf("%s: %d on record, %d listed, %d counted", state, counted[i], listed, s.counts[i].Load())
		}
	}
}

// TestC89SecondProcess: a directory in use is refused with what to do, and can
// be waited for.
func TestC89SecondProcess(t *testing.T) {
	dir := t.TempDir()
	cmd, lines := startChild(t, dir)
	_, err := Open(context.Background(), Config{Dir: dir})
	if !errors.Is(err, keystore.ErrLocked) || !strings.Contains(err.Error(), dir) || !strings.Contains(err.Error(), "stop the other") {
		t.Errorf("got %v", err)
	}
	opened := make(chan *Store, 1)
	go func() {
		s, err := Open(context.Background(), Config{Dir: dir, LockWait: 30 * time.Second})
		if err != nil {
			t.Error(err)
		}
		opened <- s
	}()
	if !lines.Scan() {
		t.Error("the child that held the directory ended")
	}
	cmd.Process.Kill()
	for lines.Scan() {
	}
	cmd.Wait()
	if s := <-opened; s != nil {
		recount(t, s)
		s.Close()
	}
}

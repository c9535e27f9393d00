package badger

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// childCalls says how many calls the child makes before it tells of it and
// waits to be killed.
const childCalls = "COUNTERFOIL_BADGER_TEST_CALLS"

// fillChild makes calls at full speed: a thousand to a run, with an intent of
// 200 bytes and a receipt of 1 KiB.
func fillChild(dir, count string) int {
	n, err := strconv.Atoi(count)
	if err != nil {
		fmt.Println("error", err)
		return 1
	}
	s, err := Open(context.Background(), Config{Dir: dir, ReserveBytes: -1})
	if err != nil {
		fmt.Println("error", err)
		return 1
	}
	var next atomic.Int64
	var peak atomic.Int64
	var group sync.WaitGroup
	for range 256 {
		group.Go(func() {
			for i := next.Add(1); i <= int64(n); i = next.Add(1) {
				if err := wholeCall(context.Background(), s, key(fmt.Sprint(i/1000), fmt.Sprint(i)), benchIntent, benchReceipt); err != nil {
					fmt.Println("error", err)
					os.Exit(1)
				}
				if i%1000 == 0 {
					peak.Store(max(peak.Load(), anonymousBytes()))
				}
			}
		})
	}
	group.Wait()
	begin := func(i int) {
		s.Begin(context.Background(), request(s, key("pending", fmt.Sprint(i))), benchIntent)
	}
	for i := range 100 {
		begin(i)
	}
	fmt.Println("filled", peak.Load())
	select {}
}

// anonymousBytes is the memory of this process that is not a file's, where the
// system tells.
func anonymousBytes() (kib int64) {
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(status)) {
		if _, err := fmt.Sscanf(line, "RssAnon: %d kB", &kib); err == nil {
			return kib << 10
		}
	}
	return 0
}

// fillAndKill has a child make n calls and kills it. It returns the child's
// peak of anonymous memory.
func fillAndKill(b *testing.B, dir string, n int) (peak int64) {
	b.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), childDir+"="+dir, childCalls+"="+fmt.Sprint(n))
	out, err := cmd.StdoutPipe()
	if err != nil {
		b.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		b.Fatal(err)
	}
	if _, err := fmt.Fscanf(out, "filled %d\n", &peak); err != nil {
		b.Errorf("the child did not fill the store: %v", err)
	}
	cmd.Process.Kill()
	cmd.Wait()
	return peak
}

// BenchmarkStart opens a store of b.N calls after kill -9, 100 of them pending:
// run it with -benchtime=1000000x.
func BenchmarkStart(b *testing.B) {
	dir := b.TempDir()
	peak := fillAndKill(b, dir, b.N)
	began := time.Now()
	s := mustOpen(b, Config{Dir: dir, ReserveBytes: -1})
	b.ReportMetric(float64(time.Since(began).Milliseconds()), "ms-to-open")
	b.ReportMetric(float64(peak)/(1<<20), "MiB-anonymous-filling")
	if got := s.Facts().Doubtful; got != 100 {
		b.Errorf("doubtful: %d, want 100", got)
	}
	runtime.GC()
	b.ReportMetric(float64(anonymousBytes())/(1<<20), "MiB-anonymous-open")
	s.Close()
}

// BenchmarkGrowth measures a call in a store that already has b.N of them; hold
// -benchtime=10000x against -benchtime=1000000x.
func BenchmarkGrowth(b *testing.B) {
	dir := b.TempDir()
	fillAndKill(b, dir, b.N)
	s := mustOpen(b, Config{Dir: dir, ReserveBytes: -1})
	defer s.Close()
	quiet(b, s.engine.db)
	const measured, callers = 20_000, 64
	var next atomic.Int64
	var group sync.WaitGroup
	began := time.Now()
	for range callers {
		group.Go(func() {
			for i := next.Add(1); i <= measured; i = next.Add(1) {
				if err := wholeCall(b.Context(), s, key(fmt.Sprintf("new %d", i/1000), fmt.Sprint(i)), benchIntent, benchReceipt); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	group.Wait()
	b.ReportMetric(measured/time.Since(began).Seconds(), "calls/s")
}

// TestC90MemoryIsBounded: many writers of long answers take what caches,
// memtables and their own bodies take, and no more. The limit makes the garbage
// collector keep up, so that what is measured is what is in use.
func TestC90MemoryIsBounded(t *testing.T) {
	defer debug.SetMemoryLimit(debug.SetMemoryLimit(200 << 20))
	s := openTest(t, Config{})
	const writers, each = 100, 20
	answer := noise(1, 64<<10)
	var peak atomic.Uint64
	var group sync.WaitGroup
	for w := range writers {
		group.Go(func() {
			for i := range each {
				if err := wholeCall(context.Background(), s, key(fmt.Sprint(w), fmt.Sprint(i)), benchIntent, answer); err != nil {
					t.Error(err)
					return
				}
				if i%5 == 0 {
					var m runtime.MemStats
					runtime.ReadMemStats(&m)
					peak.Store(max(peak.Load(), m.HeapInuse))
				}
			}
		})
	}
	group.Wait()
	const bound = 400 << 20
	if peak.Load() > bound {
		t.Errorf("the heap took %d MiB, at most %d are right", peak.Load()>>20, bound>>20)
	}
	remembered := 0
	err := s.do(t.Context(), func(v *view) (*step, error) {
		remembered = len(v.calls)
		return nil, nil
	})
	if err != nil || remembered != 0 {
		t.Errorf("%d finished calls are remembered, %v", remembered, err)
	}
	t.Logf("the heap took %d MiB at its peak", peak.Load()>>20)
}

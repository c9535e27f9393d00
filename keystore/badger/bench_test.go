package badger

import (
	"context"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dgraph-io/badger/v4"

	"counterfoil/keystore"
)

// A new folder flatters: only past some hundred MiB does the kernel back the
// write-ahead log as it will for the rest of the store's life. Each benchmark
// of writes brings its folder there first.
const longLived = 400 << 20

// noise returns bytes that do not compress.
func noise(seed uint64, n int) []byte {
	source := rand.New(rand.NewPCG(seed, 1))
	b := make([]byte, n)
	for i := 0; i+8 <= n; i += 8 {
		binary.LittleEndian.PutUint64(b[i:], source.Uint64())
	}
	return b
}

func longLivedStore(b *testing.B, t tuning) *Store {
	b.Helper()
	s := mustOpen(b, Config{tuning: t, ReserveBytes: -1})
	b.Cleanup(func() { s.Close() })
	value := noise(7, 512<<10)
	for written := 0; written < longLived; written += 2 * len(value) {
		steps := make([]func(v *view) (*step, error), 2)
		for i := range steps {
			steps[i] = func(v *view) (*step, error) { return putValue(v, value), nil }
		}
		for _, err := range s.doAll(b.Context(), steps) {
			if err != nil {
				b.Fatal(err)
			}
		}
	}
	quiet(b, s.engine.db)
	return s
}

// quiet waits until Badger has flushed and compacted what was written, so that
// what is measured is the writing and not what came before. There is nothing to
// be told by, so it polls.
func quiet(b *testing.B, db *badger.DB) {
	b.Helper()
	for range 300 {
		busy := false
		for _, level := range db.Levels() {
			busy = busy || level.Score >= 1
		}
		if !busy {
			return
		}
		time.Sleep(50 * time.Millisecond)
	}
	b.Log("Badger was still compacting after 15 s")
}

// putValue is the least that an operation can be: one new key.
func putValue(v *view, value []byte) *step {
	st := v.step()
	st.bytes = 0
	st.setPieces(v.s.nextNumber(), 0, value)
	return st
}

// spread runs b.N operations from so many callers.
func spread(b *testing.B, callers int, do func(caller, i int) error) (perSecond float64) {
	b.Helper()
	var next atomic.Int64
	var group sync.WaitGroup
	b.ResetTimer()
	began := time.Now()
	for c := range callers {
		group.Go(func() {
			for i := next.Add(1); i <= int64(b.N); i = next.Add(1) {
				if err := do(c, int(i)); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	group.Wait()
	perSecond = float64(b.N) / time.Since(began).Seconds()
	b.StopTimer()
	return perSecond
}

// BenchmarkGroupCommit holds the values (1 KiB that does not compress), the
// writers (256) and the folder's age constant, and compares our committer with
// Badger committing each write on its own, before and after in the same run. The
// peer has Badger's defaults but SyncWrites.
func BenchmarkGroupCommit(b *testing.B) {
	const writers = 256
	ours := longLivedStore(b, tuning{})
	peer := longLivedPeer(b)
	values := make([][]byte, writers)
	for i := range values {
		values[i] = noise(uint64(i), 1<<10)
	}
	b.Run("writers=256", func(b *testing.B) {
		before := peerRate(b, peer, values)
		grouped := spread(b, writers, func(c, _ int) error {
			return ours.do(b.Context(), func(v *view) (*step, error) { return putValue(v, values[c]), nil })
		})
		single := (before + peerRate(b, peer, values)) / 2
		b.ReportMetric(grouped, "writes/s")
		b.ReportMetric(single, "peer-writes/s")
		b.ReportMetric(grouped/single, "ratio")
	})
}

// peerTime is how long the peer is measured: it is slow, and needs no more.
const peerTime = time.Second

func longLivedPeer(b *testing.B) *badger.DB {
	b.Helper()
	db, err := badger.Open(badger.DefaultOptions(b.TempDir()).WithSyncWrites(true).WithLoggingLevel(badger.ERROR))
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { db.Close() })
	value := noise(8, 512<<10)
	for i := range longLived / len(value) {
		err := db.Update(func(txn *badger.Txn) error { return txn.Set(fmt.Appendf(nil, "fill-%09d", i), value) })
		if err != nil {
			b.Fatal(err)
		}
	}
	quiet(b, db)
	return db
}

func peerRate(b *testing.B, db *badger.DB, values [][]byte) float64 {
	b.Helper()
	var written atomic.Int64
	var group sync.WaitGroup
	began := time.Now()
	for c := range values {
		group.Go(func() {
			for time.Since(began) < peerTime {
				key := binary.BigEndian.AppendUint64([]byte{'k'}, uint64(written.Add(1)))
				if err := db.Update(func(txn *badger.Txn) error { return txn.Set(key, values[c]) }); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	group.Wait()
	return float64(written.Load()) / time.Since(began).Seconds()
}

// BenchmarkCall is a whole call, begun and finished: two durable operations,
// with an intent of 200 bytes and a receipt of 1 KiB.
func BenchmarkCall(b *testing.B) {
	for _, t := range []struct {
		name string
		tuning
	}{
		{"", tuning{}},
		{"badger-syncs/", tuning{badgerSyncs: true}},
		{"no-advice/", tuning{noAdvice: true}},
		{"memtable=64MiB/", tuning{memTableBytes: 64 << 20}},
		{"memtable=64MiB/no-advice/", tuning{memTableBytes: 64 << 20, noAdvice: true}},
	} {
		s := longLivedStore(b, t.tuning)
		for _, callers := range []int{1, 64, 256} {
			b.Run(fmt.Sprintf("%scallers=%d", t.name, callers), func(b *testing.B) {
				before := written(b)
				rate := spread(b, callers, func(c, i int) error {
					return wholeCall(b.Context(), s, key(fmt.Sprintf("%s-%d-%d", b.Name(), b.N, c), fmt.Sprint(i)), benchIntent, benchReceipt)
				})
				b.ReportMetric(rate, "calls/s")
				b.ReportMetric(float64(written(b)-before)/float64(b.N)/1024, "KiB-written/call")
			})
		}
		if err := s.Close(); err != nil {
			b.Fatal(err)
		}
	}
}

var benchIntent, benchReceipt = noise(1, 200), noise(2, 1<<10)

func wholeCall(ctx context.Context, s *Store, k keystore.Key, intent, receipt []byte) error {
	adm, err := s.Begin(ctx, request(s, k), intent)
	if err != nil {
		return err
	}
	if adm.Verdict.Action != keystore.Send {
		return fmt.Errorf("%s: verdict %s", k, adm.Verdict.Action)
	}
	_, err = s.Apply(ctx, k, applied(1), receipt)
	return err
}

// written is how many bytes this process has sent to disks, where the system
// tells.
func written(b *testing.B) (n int64) {
	b.Helper()
	stat, err := os.ReadFile("/proc/self/io")
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(stat)) {
		if _, err := fmt.Sscanf(line, "write_bytes: %d", &n); err == nil {
			return n
		}
	}
	return 0
}

// BenchmarkReplay is a begin that is answered from a receipt.
func BenchmarkReplay(b *testing.B) {
	s := mustOpen(b, Config{ReserveBytes: -1})
	b.Cleanup(func() { s.Close() })
	const calls = 1000
	for i := range calls {
		if err := wholeCall(b.Context(), s, key("r", fmt.Sprint(i)), benchIntent, benchReceipt); err != nil {
			b.Fatal(err)
		}
	}
	for _, callers := range []int{1, 64} {
		b.Run(fmt.Sprintf("callers=%d", callers), func(b *testing.B) {
			rate := spread(b, callers, func(_, i int) error {
				_, err := s.Begin(b.Context(), request(s, key("r", fmt.Sprint(i%calls))), benchIntent)
				return err
			})
			b.ReportMetric(rate, "replays/s")
		})
	}
}

// BenchmarkWriteItem replaces an item of 1 KiB by version, as a progress marker
// is; each caller has its own.
func BenchmarkWriteItem(b *testing.B) {
	s := mustOpen(b, Config{ReserveBytes: -1})
	b.Cleanup(func() { s.Close() })
	putStore(b, s, time.Hour)
	for _, callers := range []int{1, 64, 256} {
		b.Run(fmt.Sprintf("callers=%d", callers), func(b *testing.B) {
			versions := make([]keystore.ItemVersion, callers)
			for c := range callers {
				write(b, s, put(fmt.Sprint(c), "0"))
				i, err := s.Item(b.Context(), notes, fmt.Sprint(c))
				if err != nil {
					b.Fatal(err)
				}
				versions[c] = i.Version
			}
			rate := spread(b, callers, func(c, _ int) error {
				w := put(fmt.Sprint(c), string(benchReceipt))
				w.If.Versions = []keystore.ItemVersion{versions[c]}
				written, err := s.WriteItems(b.Context(), &keystore.Batch{Space: notes, Writes: []keystore.ItemWrite{w}})
				if err == nil {
					versions[c] = written[0].Item.Version
				}
				return err
			})
			b.ReportMetric(rate, "writes/s")
		})
	}
}

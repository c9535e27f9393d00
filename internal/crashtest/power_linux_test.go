//go:build powerloss

package crashtest

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"unsafe"
)

// The tests of this file cut the power: the journal lies on an ext4 of its own,
// in a file behind a loop device, which is shut down without writing back what
// was not synced. They need the right to mount (root), mkfs.ext4 and a loop
// device, so a build tag keeps them apart: make power.

// imageBytes is the size of the disk, which is sparse.
const imageBytes = 512 << 20

// A disk is a file system whose power can be cut.
type disk struct {
	*testing.T
	image, dir string
	mounted    bool
}

func newDisk(t *testing.T) *disk {
	t.Helper()
	base := t.TempDir()
	d := &disk{T: t, image: filepath.Join(base, "image"), dir: filepath.Join(base, "mnt")}
	f, err := os.Create(d.image)
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Truncate(imageBytes); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(d.dir, 0o700); err != nil {
		t.Fatal(err)
	}
	d.run("mkfs.ext4", "-q", "-F", d.image)
	d.mount()
	t.Cleanup(func() {
		if d.mounted {
			d.unmount()
		}
	})
	return d
}

func (d *disk) run(args ...string) {
	d.Helper()
	if out, err := exec.Command(args[0], args[1:]...).CombinedOutput(); err != nil {
		d.Fatalf("%v: %v: %s (these tests need root, mkfs.ext4 and a loop device)", args, err, out)
	}
}

// mount waits long before it writes back by itself, so that what is not synced
// is really lost.
func (d *disk) mount() {
	d.Helper()
	d.run("mount", "-o", "loop,commit=300", d.image, d.dir)
	d.mounted = true
}

func (d *disk) unmount() {
	d.Helper()
	d.run("umount", d.dir)
	d.mounted = false
}

// cut ends every write to the disk at this moment. What has not been synced
// stays unwritten for ever, ext4's own log included
// (EXT4_IOC_SHUTDOWN with EXT4_GOING_FLAGS_NOLOGFLUSH, linux/ext4.h).
func (d *disk) cut() {
	d.Helper()
	const shutdown, noLogFlush = 0x8004587d, uint32(2)
	f, err := os.Open(d.dir)
	if err != nil {
		d.Fatal(err)
	}
	defer f.Close()
	flag := noLogFlush
	if _, _, errno := syscall.Syscall(syscall.SYS_IOCTL, f.Fd(), shutdown, uintptr(unsafe.Pointer(&flag))); errno != 0 {
		d.Fatal("shutting the file system down:", errno)
	}
}

// restore is the power coming back.
func (d *disk) restore() {
	d.Helper()
	d.unmount()
	d.mount()
}

// poweredBench is a bench whose journal lies on such a disk.
func poweredBench(t *testing.T) (*bench, *disk) {
	t.Helper()
	d := newDisk(t)
	b := newBench(t)
	b.env = []string{"COUNTERFOIL_DATA=" + filepath.Join(d.dir, "data")}
	return b, d
}

// TestPowerLoss_DiskForgets shows that the disk of these tests does lose what
// was not synced, and keeps what was.
func TestPowerLoss_DiskForgets(t *testing.T) {
	d := newDisk(t)
	write := func(name string, sync bool) {
		f, err := os.Create(filepath.Join(d.dir, name))
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		if _, err := f.WriteString("written"); err != nil {
			t.Fatal(err)
		}
		if sync {
			if err := f.Sync(); err != nil {
				t.Fatal(err)
			}
		}
	}
	write("synced", true)
	write("unsynced", false)
	d.cut()
	d.restore()
	if b, err := os.ReadFile(filepath.Join(d.dir, "synced")); err != nil || string(b) != "written" {
		t.Errorf("what was synced reads %q, %v", b, err)
	}
	if b, err := os.ReadFile(filepath.Join(d.dir, "unsynced")); err == nil && len(b) > 0 {
		t.Errorf("what was not synced reads %q", b)
	}
}

// TestC81_PowerCutWithTheEffect: the power goes at the moment at which the
// provider has the request. The intent is there when it comes back.
func TestC81_PowerCutWithTheEffect(t *testing.T) {
	for kind, want := range afterKill {
		t.Run(kind, func(t *testing.T) {
			b, d := poweredBench(t)
			s, c := b.released(), things(kind, "plain")
			answered, release := s.held(c)
			d.cut()
			s.kill()
			release()
			if r := await(t, "the agent's end", answered); r.err == nil {
				t.Fatalf("answered after the power was cut: %s", r)
			}
			d.restore()
			s = b.released()
			r := s.ask(c)
			checkVerdict(t, b.provider, c, r, want)
			checkRepeat(t, s, c, r)
			s.kill()
		})
	}
}

// TestC81_PowerCutWithTheAnswer: the power goes at the moment at which the agent
// has the answer's end. The receipt is there when it comes back.
func TestC81_PowerCutWithTheAnswer(t *testing.T) {
	for _, answer := range []string{"plain", "chunked", "long"} {
		t.Run(answer, func(t *testing.T) {
			b, d := poweredBench(t)
			s, c := b.released(), things("none", answer)
			before := s.send(c)
			d.cut()
			checkVerdict(t, b.provider, c, before, verdict{"executed", 1, 1})
			s.kill()
			d.restore()
			s = b.released()
			checkRepeat(t, s, c, before)
			s.kill()
		})
	}
}

// TestC81_PowerCutWithTheWrite: the power goes at the moment at which the agent
// has the answer to a write of items. All of it is there when it comes back.
func TestC81_PowerCutWithTheWrite(t *testing.T) {
	value := func(n, bytes int) string { return `"` + strings.Repeat(fmt.Sprint(n), bytes) + `"` }
	for name, bytes := range map[string]int{"short": 10, "long": 100 << 10, "staged": 1<<20 - 2} {
		t.Run(name, func(t *testing.T) {
			b, d := poweredBench(t)
			s := b.released()
			if r := s.ofStores("PUT", "/-/v1/stores/s", ""); r.status != 201 {
				t.Fatal(r)
			}
			if r := s.ofStores("PUT", "/-/v1/stores/s/items/old", `{"value":1}`); r.status != 201 {
				t.Fatal(r)
			}
			operations := []string{`{"op":"delete","key":"old"}`}
			for n := range 9 {
				operations = append(operations, fmt.Sprintf(`{"op":"put","key":"%d","value":%s}`, n, value(n, bytes)))
			}
			r := s.ofStores("POST", "/-/v1/stores/s/batch", `{"operations":[`+strings.Join(operations, ",")+`]}`)
			d.cut()
			if r.status != 200 {
				t.Fatal(r)
			}
			s.kill()
			d.restore()
			s = b.released()
			if r := s.ofStores("GET", "/-/v1/stores/s/items/old", ""); r.status != 404 {
				t.Errorf("what was deleted: %s", r)
			}
			for n := range 9 {
				if r := s.ofStores("GET", fmt.Sprintf("/-/v1/stores/s/items/%d", n), ""); r.status != 200 || !strings.Contains(r.body, value(n, bytes)) {
					t.Errorf("item %d: %.200s", n, r)
				}
			}
			s.kill()
		})
	}
}

// powerRounds and powerCalls are how often TestC81b cuts the power, and how many
// calls there are in all.
const powerRounds, powerCalls = 20, 1000

// TestC81b_RandomPowerCuts: a thousand calls, the power cut in their midst twenty
// times. What was answered is replayed; the rest was never sent, is recovered or
// is unknown; no call has two effects.
func TestC81b_RandomPowerCuts(t *testing.T) {
	seed := drawn(t)
	dice := rand.New(rand.NewPCG(seed, 81))
	b, d := poweredBench(t)
	told := map[call]reply{}
	calls := make([]call, powerCalls)
	for i := range calls {
		calls[i] = invent(dice, "run-1", fmt.Sprint(i))
		calls[i].bytes *= 2 // so that the journal's logs fill up and are changed for new ones
	}
	perRound := powerCalls / powerRounds
	for round := range powerRounds {
		s := b.released()
		batch := calls[round*perRound : (round+1)*perRound]
		fresh := s.until(batch, 1+dice.IntN(perRound), d.cut)
		s.kill()
		d.restore()
		s = b.released()
		maps.Copy(told, fresh)
		for _, c := range calls[:(round+1)*perRound] {
			checkAfterPowerCut(t, b.provider, c, told[c], s.ask(c))
		}
		s.kill()
	}
	t.Logf("%d of %d calls were answered before the power was cut", len(told), powerCalls)
}

// until sends the calls side by side, cuts the power once so many are answered,
// and returns what was answered before. What is answered after it does not count:
// while a file system is being shut down, the kernel may call a sync done that was
// under way and never came to be (a bare loop of fdatasync saw that in 7 of 40
// cuts), and a machine without power answers nothing.
func (s *sidecar) until(batch []call, answers int, cut func()) map[call]reply {
	s.Helper()
	var mu sync.Mutex
	told := map[call]reply{}
	isCut := false
	enough := make(chan struct{})
	var agents sync.WaitGroup
	for _, c := range batch {
		agents.Go(func() {
			r := s.send(c)
			mu.Lock()
			defer mu.Unlock()
			if isCut || r.err != nil || r.problem() != "" {
				return
			}
			if told[c] = r; len(told) == answers {
				close(enough)
			}
		})
	}
	await(s.T, "enough answers", enough)
	mu.Lock()
	cut()
	isCut = true
	mu.Unlock()
	s.kill()
	agents.Wait()
	return told
}

func checkAfterPowerCut(t *testing.T, p *provider, c call, before, now reply) {
	t.Helper()
	e := p.effectOf(c.String())
	if e.count > 1 || len(e.keys) > 1 {
		t.Errorf("%s (%s): %d effects under %d keys", c, c.kind, e.count, len(e.keys))
	}
	switch {
	case before.status != 0:
		if now.outcome() != "replayed" {
			t.Errorf("%s (%s): was answered, and is now %s", c, c.kind, now)
		}
		sameAnswer(t, before, now)
	case now.problem() == "unknown-outcome" && c.kind == "none":
	case now.status != 201 || now.body != e.object || e.count != 1 || !slices.Contains([]string{"executed", "recovered", "replayed"}, now.outcome()):
		t.Errorf("%s (%s): %d effects, and %s", c, c.kind, e.count, now)
	}
}

package crashtest

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// syscalls are what the order of things is read from.
const syscalls = "fsync,fdatasync,sync_file_range,msync,mmap,munmap,read,readv,recvfrom,recvmsg,write,writev,sendto,sendmsg,sendfile,splice"

// TestC81a_SyncComesFirst reads from the kernel's own account that the intent is
// synced before the first byte of the request leaves, and the receipt before the
// answer's first byte, or before its last where it streams.
func TestC81a_SyncComesFirst(t *testing.T) {
	for _, answer := range []string{"plain", "chunked", "sse", "long"} {
		t.Run(answer, func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			s, trace := b.traced()
			c := things("none", answer)
			s.read(c)
			s.kill() // the tracer ends with it, and its file is whole
			made := readTrace(t, trace)
			checkOrder(t, b, s, made, answer == "plain")
			if raw, err := os.ReadFile(trace); t.Failed() && err == nil {
				t.Logf("the end of the trace:\n%s", raw[max(0, len(raw)-4000):])
			}
		})
	}
}

// traced starts a sidecar under strace, which writes to the file.
func (b *bench) traced() (s *sidecar, file string) {
	b.Helper()
	strace, err := exec.LookPath("strace")
	if err != nil {
		b.Fatal("this test reads system calls with strace, which is not installed: apt-get install strace")
	}
	file = filepath.Join(b.dir, "trace")
	s, line := b.launch("", strace, "-D", "-f", "-yy", "-s", "32", "-o", file, "-e", "trace="+syscalls, programs.released, "serve", "--announce")
	if line == "" {
		b.Fatalf("strace did not get the sidecar to start; it needs leave to use ptrace:\n%s", s.stderr)
	}
	s.base = "http://" + line
	return s, file
}

// read makes a call whose answer comes in two halves, and has the first half
// before the provider gives the second, where the answer streams.
func (s *sidecar) read(c call) {
	s.Helper()
	if c.answer == "plain" {
		checkVerdict(s.T, s.provider, c, s.send(c), verdict{"executed", 1, 1})
		return
	}
	hold := make(chan struct{})
	release := onceClose(s.T, hold)
	s.provider.befalls(first(mishap{holdMid: hold}))
	ctx, cancel := context.WithTimeout(s.Context(), patience)
	defer cancel()
	resp, err := s.client.Do(c.request(ctx, s.base))
	if err != nil {
		s.Fatal(err)
	}
	defer resp.Body.Close()
	half := make([]byte, pieceBytes)
	if _, err := io.ReadFull(resp.Body, half); err != nil {
		s.Fatal("the first piece was not passed on:", err)
	}
	release()
	rest, err := io.ReadAll(resp.Body)
	if want := s.provider.effectOf(c.String()).object; err != nil || string(half)+string(rest) != want {
		s.Fatalf("not what the ledger has: %d bytes, %v", len(half)+len(rest), err)
	}
}

// checkOrder holds a trace of one call against the order of docs/guarantees.md.
func checkOrder(t *testing.T, b *bench, s *sidecar, calls []syscallMade, isWhole bool) {
	t.Helper()
	client := "[" + strings.TrimPrefix(s.base, "http://") + "->"
	provider := "->" + b.provider.addr + "]"
	asked := firstOf(calls, func(c syscallMade) bool {
		return c.isReading() && c.on(client) && strings.Contains(c.text, `"POST /none`)
	})
	sent := firstOf(calls, func(c syscallMade) bool { return c.isWriting() && c.on(provider) })
	answered := lastOf(calls, func(c syscallMade) bool { return c.isReading() && c.on(provider) && c.result > 0 })
	told := firstOf(calls, func(c syscallMade) bool { return c.isWriting() && c.on(client) })
	ended := lastOf(calls, func(c syscallMade) bool { return c.isWriting() && c.on(client) })
	if asked == nil || sent == nil || answered == nil || told == nil || ended == nil {
		t.Fatalf("the trace of %d system calls lacks one: asked %v, sent %v, answered %v, told %v, ended %v", len(calls), asked, sent, answered, told, ended)
	}
	if told.start < sent.start {
		t.Errorf("the agent was told something before the request left: %s", told)
	}
	if !syncedBetween(calls, b, asked, sent) {
		t.Errorf("no sync of the journal lies between the request's coming, line %d, and its leaving, line %d", asked.end, sent.start)
	}
	if isWhole && !syncedBetween(calls, b, answered, told) {
		t.Errorf("no sync of the journal lies between the answer's coming, line %d, and its first byte's leaving, line %d", answered.end, told.start)
	}
	if !syncedBetween(calls, b, answered, ended) {
		t.Errorf("no sync of the journal lies between the answer's coming, line %d, and its last byte's leaving, line %d", answered.end, ended.start)
	}
	if !isWhole && told.start > answered.end {
		t.Error("an answer that streams was not passed on as it came")
	}
}

// TestC81a_SyncComesFirstInStores reads from the same account that whatever the
// agent API writes is synced before the first byte of its answer.
func TestC81a_SyncComesFirstInStores(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	s, trace := b.traced()
	long := `"` + strings.Repeat("x", 1<<20-2) + `"`
	writes := []struct {
		method, path, body string
		status             int
	}{
		{"PUT", "/-/v1/stores/s", "", 201},
		{"PUT", "/-/v1/stores/s/items/a", `{"value":1}`, 201},
		{"PUT", "/-/v1/stores/s/items/long", `{"value":` + long + `}`, 201},
		{"POST", "/-/v1/stores/s/batch", `{"operations":[{"op":"put","key":"b","value":1},{"op":"delete","key":"long"}]}`, 200},
		{"DELETE", "/-/v1/stores/s/items/b", "", 204},
		{"POST", "/-/v1/runs/r/lease", `{"owner":"w","ttl_seconds":60}`, 200},
		{"PUT", "/-/v1/runs/r/lease", `{"fence":1,"ttl_seconds":60}`, 200},
		{"PUT", "/-/v1/runs/r2", `{"labels":{"a":"b"}}`, 201},
		{"PUT", "/-/v1/runs/r2/turns/1", `{"decision":1,"calls":[{"id":"c","tool":"t","args":{}}]}`, 201},
		{"DELETE", "/-/v1/runs/r/lease?fence=1", "", 204},
	}
	for _, w := range writes {
		if r := s.ofStores(w.method, w.path, w.body); r.status != w.status {
			t.Fatalf("%s %s: %s", w.method, w.path, r)
		}
	}
	s.kill()
	made := readTrace(t, trace)
	client := "[" + strings.TrimPrefix(s.base, "http://") + "->"
	for _, w := range writes {
		begins := `"` + w.method + " " + w.path
		begins = begins[:min(len(begins), 1+32)] // strace shows so many bytes
		asked := firstOf(made, func(c syscallMade) bool { return c.isReading() && c.on(client) && strings.Contains(c.text, begins) })
		if asked == nil {
			t.Errorf("the trace of %d system calls does not show %s %s", len(made), w.method, w.path)
			continue
		}
		told := firstOf(made, func(c syscallMade) bool { return c.isWriting() && c.on(client) && c.start > asked.end })
		if told == nil || !syncedBetween(made, b, asked, told) {
			t.Errorf("%s %s: no sync of the journal lies between its coming, line %d, and its answer, %v", w.method, w.path, asked.end, told)
		}
	}
}

// syncedBetween reports whether a sync of a log of the journal began after the
// one and ended, with success, before the other began.
func syncedBetween(calls []syscallMade, b *bench, after, before *syscallMade) bool {
	for _, c := range calls {
		isSync := c.name == "fsync" || c.name == "fdatasync" || c.name == "msync" && strings.Contains(c.text, "MS_SYNC")
		if isSync && c.result == 0 && c.start > after.end && c.end < before.start && c.isOfLog(b.dir) {
			return true
		}
	}
	return false
}

// A syscallMade is one line of a trace, or two where it was interrupted: its
// number is that of the line where it began and ended.
type syscallMade struct {
	name, text string
	result     int64
	start, end int
	// file is the mapped file of an msync.
	file string
}

func (c *syscallMade) String() string {
	return fmt.Sprintf("line %d: %s(%s = %d", c.start, c.name, c.text, c.result)
}

// on reports whether the first argument is a connection whose ends hold s.
func (c *syscallMade) on(s string) bool {
	fd, _, _ := strings.Cut(c.text, ">, ")
	return strings.Contains(fd+">", "<TCP:") && strings.Contains(fd, s)
}

func (c *syscallMade) isReading() bool {
	return c.name == "read" || c.name == "readv" || c.name == "recvfrom" || c.name == "recvmsg"
}

func (c *syscallMade) isWriting() bool {
	switch c.name {
	case "write", "writev", "sendto", "sendmsg", "sendfile", "splice":
		return true
	}
	return false
}

var journalLog = regexp.MustCompile(`/data/[0-9]+\.(mem|vlog)>?`)

func (c *syscallMade) isOfLog(dir string) bool {
	text := c.text + c.file
	return strings.Contains(text, dir) && journalLog.MatchString(text)
}

var (
	wholeLine   = regexp.MustCompile(`^\d+ +([a-z_0-9]+)\((.*)\) += (-?\d+|0x[0-9a-f]+|\?)`)
	brokenLine  = regexp.MustCompile(`^(\d+) +([a-z_0-9]+)\((.*?),? *<unfinished \.\.\.>$`)
	resumedLine = regexp.MustCompile(`^(\d+) +<\.\.\. ([a-z_0-9]+) resumed>(.*)\) += (-?\d+|0x[0-9a-f]+|\?)`)
)

// readTrace reads a trace of many threads. A call that was interrupted takes two
// lines of it, and one that the kill cut short has no result.
func readTrace(t *testing.T, file string) []syscallMade {
	t.Helper()
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var calls []syscallMade
	begun := map[string]syscallMade{} // by thread
	maps := map[string]string{}       // files by address
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 1<<20)
	for n := 1; lines.Scan(); n++ {
		line := lines.Text()
		if m := brokenLine.FindStringSubmatch(line); m != nil {
			begun[m[1]] = syscallMade{name: m[2], text: m[3], start: n}
			continue
		}
		var c syscallMade
		var result string
		if m := resumedLine.FindStringSubmatch(line); m != nil {
			c = begun[m[1]]
			delete(begun, m[1])
			c.text += m[3]
			result = m[4]
		} else if m := wholeLine.FindStringSubmatch(line); m != nil {
			c, result = syscallMade{name: m[1], text: m[2], start: n}, m[3]
		} else {
			continue
		}
		c.end = n
		c.settle(result, maps)
		calls = append(calls, c)
	}
	if err := lines.Err(); err != nil {
		t.Fatal(err)
	}
	// What the kill cut short had begun none the less: its bytes may have left.
	for _, c := range begun {
		c.end = math.MaxInt
		calls = append(calls, c)
	}
	return calls
}

// settle notes the result, and keeps track of which file is mapped where.
func (c *syscallMade) settle(result string, maps map[string]string) {
	if _, err := fmt.Sscan(result, &c.result); err != nil {
		c.result = -1
	}
	address, _, _ := strings.Cut(c.text, ",")
	switch c.name {
	case "mmap":
		maps[result] = c.text
	case "munmap":
		delete(maps, address)
	case "msync":
		c.file = maps[address]
	}
}

func firstOf(calls []syscallMade, is func(syscallMade) bool) (first *syscallMade) {
	for i := range calls {
		if is(calls[i]) && (first == nil || calls[i].start < first.start) {
			first = &calls[i]
		}
	}
	return first
}

func lastOf(calls []syscallMade, is func(syscallMade) bool) (last *syscallMade) {
	for i := range calls {
		if is(calls[i]) && (last == nil || calls[i].start > last.start) {
			last = &calls[i]
		}
	}
	return last
}

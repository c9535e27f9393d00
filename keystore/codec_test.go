package keystore

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"counterfoil/classify"

	"github.com/fxamacker/cbor/v2"
)

// recordV1 is the record in testdata/record_v1.golden. It is never changed:
// fields that come later are not in it.
func recordV1() *Record {
	k := Key{Namespace: "default", Run: "ticket-77", Turn: "3", Call: "create ticket"}
	return &Record{
		Key: k, State: Succeeded, Class: classify.Keyed, Fingerprint: classify.Fingerprint{0: 1, 31: 2},
		Intent: Intent{
			Upstream: "tickets", Origin: "https://api.example.com", Method: "POST", Target: "/tickets?dry=0",
			Header:  classify.Header{{Name: "Content-Type", Value: "application/json"}, {Name: "X-Odd", Value: "\xff"}},
			Body:    Body{Bytes: 300000, SHA256: [32]byte{7}, Ref: 41},
			SentKey: string(k.ProviderKey()), Operation: "create",
		},
		Terms: Terms{Retention: 24 * time.Hour},
		Attempts: []Attempt{
			{Number: 1, Epoch: 4, Fence: 2, BegunAt: 1767323045000000001, EndedAt: 1767323046000000002, Evidence: classify.Lost, Outcome: classify.Ambiguous, Reason: "the connection was cut"},
			{Number: 2, Epoch: 5, Fence: 3, BegunAt: 1767323047000000003, EndedAt: 1767323048000000004, Evidence: classify.Answered, Outcome: classify.Applied, Status: 201, Resend: true},
		},
		AttemptsMade: 2,
		Receipt: &Receipt{
			Status: 201, Header: classify.Header{{Name: "Content-Type", Value: "application/json"}},
			Body:   Body{Bytes: 8, SHA256: [32]byte{8}, Inline: []byte(`{"id":1}`)},
			Source: FromResend, Attempt: 2, SettledAt: 1767323048000000004, CloseDelimited: true,
		},
		History:     []Change{{Event: EpochDied, From: Pending, To: InDoubt, At: 1767323046000000002, Actor: "ann", Note: "restart"}},
		FirstSentAt: 1767323045000000001, DoubtSince: 1767323046000000002, Misses: 1, LastMissAt: 1767323046500000000,
		Credential: "c2", Principal: "p1", Fence: 3, Version: 5, CreatedAt: 1767323045000000001, UpdatedAt: 1767323048000000004,
		LookupFailures: 2, FailingSince: 1767323046600000000, Denied: true,
	}
}

func runV1() *Run {
	return &Run{Namespace: "default", Name: "ticket-77", CreatedAt: 1767323045000000001, TouchedAt: 1767323048000000004, EndedAt: 1767323049000000005}
}

// laterV1 is the record in testdata/later_v1.golden, with what format 1 got later:
// terms of adapters, holds, and what a model's answer has cost.
func laterV1() *Record {
	r := recordV1()
	r.Terms = Terms{Retention: 24 * time.Hour, Conditional: true, Errors: ErrorsAreForgotten}
	r.Intent.Scope, r.Tool, r.HeldFor, r.ResendSpent, r.Stuck = "s1", "refund", ApprovalRequired, true, "a program failed"
	r.Approval = &Approval{Actor: "ann", At: 1767323045000000007, ExpiresAt: 1767323045000000008}
	r.Receipt.Usage = &Usage{Input: 20, Output: 9, CachedInput: 4, Reasoning: 1}
	return r
}

func planV1() *Plan {
	return &Plan{
		Namespace: "default", Run: "ticket-77", Turn: "3", Digest: [32]byte{9}, CreatedAt: 1767323045000000001, FromAnswer: true, Advisory: true,
		Decision: []byte(`{"text":"so be it"}`), Calls: []PlannedCall{{ID: "call_1", Tool: "refund", Args: []byte(`{"amount":5}`)}, {ID: "call_2"}},
	}
}

// TestGoldenV1: what the first format wrote is read for ever. -rewrite makes
// a file only where there is none.
func TestGoldenV1(t *testing.T) {
	testGolden(t, "testdata/record_v1.golden", "# A record and a run as format 1 stores them: recordV1 and runV1 in codec_test.go.\n# Kept for ever; a later format adds a file of its own.\n",
		[2]any{recordV1(), &Record{}}, [2]any{runV1(), &Run{}})
	testGolden(t, "testdata/later_v1.golden", "# A record and a plan with what format 1 got later: laterV1 and planV1 in codec_test.go.\n# Kept for ever; what comes still later adds a file of its own.\n",
		[2]any{laterV1(), &Record{}}, [2]any{planV1(), &Plan{}})
}

// testGolden holds what is in a file against pairs of what it means and an empty
// value of that type.
func testGolden(t *testing.T, path, head string, pairs ...[2]any) {
	t.Helper()
	if _, err := os.Stat(path); *rewrite && errors.Is(err, os.ErrNotExist) {
		page := head
		for _, p := range pairs {
			page += fmt.Sprintf("%x\n", stored(t, p[0]))
		}
		if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(page), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	page, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var lines [][]byte
	for line := range strings.Lines(string(page)) {
		if strings.HasPrefix(line, "#") {
			continue
		}
		b, err := hex.DecodeString(strings.TrimSpace(line))
		if err != nil {
			t.Fatal(err)
		}
		lines = append(lines, b)
	}
	if len(lines) != len(pairs) {
		t.Fatalf("%d values in %s, want %d", len(lines), path, len(pairs))
	}
	for i, p := range pairs {
		checkGolden(t, lines[i], p[1], p[0])
	}
}

func checkGolden(t *testing.T, b []byte, got, want any) {
	t.Helper()
	if err := codec(t).Decode(b, got); err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("the golden value decodes to\n%+v, want\n%+v", got, want)
	}
	if again := stored(t, want); Format == 1 && !bytes.Equal(again, b) {
		t.Errorf("encoding it again gives\n%x, want\n%x", again, b)
	}
}

// oneCodec is made once: making one costs far more than using it.
var oneCodec = sync.OnceValues(NewCodec)

func codec(t testing.TB) *Codec {
	t.Helper()
	c, err := oneCodec()
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// fill sets every field of v, in whatever depth, to something that is not zero.
func fill(v reflect.Value, n *uint64) {
	*n++
	switch v.Kind() {
	case reflect.Struct:
		for _, field := range v.Fields() {
			fill(field, n)
		}
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(v.Elem(), n)
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 2, 2))
		fill(v.Index(0), n)
		fill(v.Index(1), n)
	case reflect.Map:
		key, value := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
		fill(key, n)
		fill(value, n)
		v.Set(reflect.MakeMap(v.Type()))
		v.SetMapIndex(key, value)
	case reflect.Array:
		for i := range v.Len() {
			fill(v.Index(i), n)
		}
	case reflect.String:
		v.SetString(fmt.Sprint("s", *n))
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int, reflect.Int64:
		v.SetInt(int64(*n) * 1000003)
	case reflect.Uint8:
		v.SetUint(*n%4 + 1)
	case reflect.Uint32, reflect.Uint64:
		v.SetUint(*n * 1009 % (1 << 32))
	default:
		panic("a kind of field that this test does not know: " + v.Kind().String())
	}
}

func filledRecord() *Record {
	r, n := &Record{}, uint64(0)
	fill(reflect.ValueOf(r).Elem(), &n)
	r.State, r.AttemptsMade = Succeeded, r.Attempts[1].Number
	return r
}

// TestEveryFieldIsKept: what is encoded is decoded again, whatever field is
// added.
func TestEveryFieldIsKept(t *testing.T) {
	r, run, n := filledRecord(), &Run{}, uint64(0)
	fill(reflect.ValueOf(run).Elem(), &n)
	gotRecord, gotRun := &Record{}, &Run{}
	for _, pair := range [][2]any{{r, gotRecord}, {run, gotRun}} {
		if err := codec(t).Decode(stored(t, pair[0]), pair[1]); err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(pair[1], pair[0]) {
			t.Errorf("got  %+v\nwant %+v", pair[1], pair[0])
		}
	}
}

func TestDecodingSharesNothing(t *testing.T) {
	b, want := stored(t, recordV1()), recordV1()
	got := &Record{}
	if err := codec(t).Decode(b, got); err != nil {
		t.Fatal(err)
	}
	clear(b)
	if !reflect.DeepEqual(got, want) {
		t.Errorf("the record changed with the bytes that it was read from: %+v", got)
	}
}

func TestTruncatedIsCorrupt(t *testing.T) {
	b := stored(t, recordV1())
	for n := range b {
		if err := codec(t).Decode(b[:n], &Record{}); !errors.Is(err, ErrCorrupt) {
			t.Fatalf("the first %d of %d bytes: %v", n, len(b), err)
		}
	}
	if err := codec(t).Decode(append(b, 0), &Record{}); !errors.Is(err, ErrCorrupt) {
		t.Errorf("a byte too many: %v", err)
	}
}

func TestNewerIsRefused(t *testing.T) {
	b := stored(t, recordV1())
	b[0] = Format + 1
	err := codec(t).Decode(b, &Record{})
	if !errors.Is(err, ErrNewerFormat) || !strings.Contains(err.Error(), fmt.Sprint("format ", Format+1)) {
		t.Errorf("a newer format: %v", err)
	}
	newer := struct {
		Run
		Labels []string `cbor:"99,keyasint"`
	}{*runV1(), []string{"x"}}
	if err := codec(t).Decode(stored(t, newer), &Run{}); !errors.Is(err, ErrNewerFormat) {
		t.Errorf("a newer program's field: %v", err)
	}
}

// TestNonsenseIsCorrupt: damage never passes for a call that nothing is known
// about, which would be sent.
func TestNonsenseIsCorrupt(t *testing.T) {
	for _, b := range [][]byte{{}, {0}, {0, 0xa0}, {Format}, {Format, 0xa0}, {Format, 0xf6}, {Format, 0xf7}, {Format, 0x80}, {Format, 0x00}, {Format, 0xbf, 0xff}} {
		if err := codec(t).Decode(b, &Record{}); !errors.Is(err, ErrCorrupt) {
			t.Errorf("%x: %v", b, err)
		}
	}
	for name, damage := range map[string]func(*Record){
		"no state":                   func(r *Record) { r.State = None },
		"a state that is none":       func(r *Record) { r.State = numStates },
		"no class":                   func(r *Record) { r.Class = 0 },
		"a class that is none":       func(r *Record) { r.Class = classify.Effect + 1 },
		"no version":                 func(r *Record) { r.Version = 0 },
		"succeeded without receipt":  func(r *Record) { r.Receipt = nil },
		"rejected without receipt":   func(r *Record) { r.State, r.Receipt = Rejected, nil },
		"open with a receipt":        func(r *Record) { r.State = Open },
		"in doubt since never":       func(r *Record) { r.State, r.Receipt, r.DoubtSince = InDoubt, nil, 0 },
		"unknown since never":        func(r *Record) { r.State, r.Receipt, r.DoubtSince = Unknown, nil, 0 },
		"pending without an attempt": func(r *Record) { r.State, r.Receipt, r.Attempts = Pending, nil, nil },
		"no run":                     func(r *Record) { r.Key.Run = "" },
	} {
		r := recordV1()
		damage(r)
		if err := codec(t).Decode(stored(t, r), &Record{}); !errors.Is(err, ErrCorrupt) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestEncodingWhatCannotBe(t *testing.T) {
	if _, err := codec(t).Encode(make(chan int)); err == nil {
		t.Error("a channel was encoded")
	}
}

// FuzzRecord: decoding never panics, takes memory in proportion to its input,
// and what it accepts is encoded and decoded to the same again.
func FuzzRecord(f *testing.F) {
	f.Add(stored(f, recordV1()))
	f.Add(stored(f, filledRecord()))
	f.Add(stored(f, beginningOfTime()))
	for _, b := range greedy() {
		f.Add(b[:min(len(b), 64)])
	}
	c := codec(f)
	f.Fuzz(func(t *testing.T, b []byte) {
		r := &Record{}
		if err := decodeModestly(t, c, b, r); err != nil {
			if !errors.Is(err, ErrCorrupt) && !errors.Is(err, ErrNewerFormat) {
				t.Fatalf("an error that is neither corrupt nor newer: %v", err)
			}
			return
		}
		again, err := c.Encode(r)
		if err != nil {
			t.Fatal(err)
		}
		same := &Record{}
		if err := c.Decode(again, same); err != nil {
			t.Fatalf("what was accepted is refused once encoded: %v", err)
		}
		if third, err := c.Encode(same); err != nil || !bytes.Equal(again, third) {
			t.Fatalf("got  %x\nwant %x, %v", third, again, err)
		}
	})
}

// greedy are values that claim more than they hold, or hold what takes most
// memory for its length.
func greedy() [][]byte {
	nulls := bytes.Repeat([]byte{0xf6}, 1<<16-1)
	return [][]byte{
		{Format, 0xa1, 0x07, 0x9a, 0xff, 0xff, 0xff, 0xff},
		{Format, 0xa1, 0x07, 0x9b, 0x7f, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff},
		{Format, 0xa1, 0x09, 0x5b, 0x7f, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff},
		{Format, 0xbb, 0x7f, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff},
		append([]byte{Format, 0xa1, 0x07, 0x99, 0xff, 0xff}, nulls...),
		append([]byte{Format, 0xa1, 0x0a, 0x99, 0xff, 0xff}, nulls...),
		append([]byte{Format}, bytes.Repeat([]byte{0x81}, 1<<16)...),
	}
}

// decodeModestly decodes b, and fails where that takes memory out of
// proportion to its length.
func decodeModestly(t *testing.T, c *Codec, b []byte, r *Record) error {
	t.Helper()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	err := c.Decode(b, r)
	runtime.ReadMemStats(&after)
	if took, most := after.TotalAlloc-before.TotalAlloc, uint64(1<<20+512*len(b)); took > most {
		t.Fatalf("decoding %d bytes took %d bytes of memory, at most %d are allowed", len(b), took, most)
	}
	return err
}

func TestGreedyValues(t *testing.T) {
	for i, b := range greedy() {
		if err := decodeModestly(t, codec(t), b, &Record{}); !errors.Is(err, ErrCorrupt) {
			t.Errorf("greedy value %d: %v", i, err)
		}
	}
}

func beginningOfTime() *Record {
	r, _ := Next(nil, Event{Kind: Begun, Begin: beginning()}, 0)
	return r
}

// TestCoreDeterministic: equal records are equal bytes, with the shortest
// numbers and sorted keys (RFC 8949 section 4.2.1).
func TestCoreDeterministic(t *testing.T) {
	b := stored(t, recordV1())
	var m map[int]cbor.RawMessage
	if err := cbor.Unmarshal(b[1:], &m); err != nil {
		t.Fatal(err)
	}
	if b[0] != Format || !bytes.Equal(m[2], []byte{byte(Succeeded)}) || !bytes.Equal(m[8], []byte{2}) {
		t.Errorf("state is %x, attempts made %x", m[2], m[8])
	}
	for range 10 {
		if !bytes.Equal(stored(t, recordV1()), b) {
			t.Fatal("two encodings of one record differ")
		}
	}
}

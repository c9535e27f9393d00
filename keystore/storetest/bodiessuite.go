package storetest

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"math/rand/v2"

	"counterfoil/keystore"
)

// noise returns n bytes that do not compress, the same ones for one seed.
func noise(n int, seed byte) []byte {
	p := make([]byte, n)
	rand.NewChaCha8([32]byte{seed}).Read(p)
	return p
}

func testBodies(b *trial) {
	sizes := []int{0, 1, 1 << 10, 16 << 10, 16<<10 + 1, 64 << 10, 64<<10 + 1, 256 << 10, 1 << 20, 1<<20 + 1, 10 << 20}
	for i, n := range sizes {
		k := keyIn("bodies", string(rune('a'+i)))
		intent, answer := noise(n, 1), noise(n, 2)
		r := b.begin(b.request(k), intent).Record
		b.holds(r.Intent.Body, intent)
		r = b.apply(k, answered(keystore.SawApplied, 1), answer)
		b.holds(r.Receipt.Body, answer)
		b.holds(b.call(k).Intent.Body, intent)
	}
	b.crash()
	for i, n := range sizes {
		r := b.call(keyIn("bodies", string(rune('a'+i))))
		b.holds(r.Intent.Body, noise(n, 1))
		b.holds(r.Receipt.Body, noise(n, 2))
	}
	b.stopsReading(b.call(keyIn("bodies", string(rune('a'+len(sizes)-1)))).Receipt.Body)
}

// holds wants a body on record with these bytes, their number and digest.
func (b *trial) holds(body keystore.Body, want []byte) {
	b.Helper()
	if body.Missing || body.Bytes != int64(len(want)) || len(want) > 0 && body.SHA256 != sha256.Sum256(want) {
		b.Fatalf("a body of %d bytes is on record as %d bytes, missing %t, digest %x", len(want), body.Bytes, body.Missing, body.SHA256)
	}
	if got := b.bytes(body); !bytes.Equal(got, want) {
		b.Fatalf("a body of %d bytes was read back as %d others", len(want), len(got))
	}
}

func (b *trial) stopsReading(body keystore.Body) {
	b.Helper()
	enough, pieces := errors.New("enough"), 0
	err := b.store.ReadBody(context.Background(), body, func([]byte) error {
		pieces++
		return enough
	})
	b.wants(err, enough)
	if pieces != 1 {
		b.Fatalf("reading went on for %d pieces after an error", pieces)
	}
}

// stage keeps bytes in pieces of the given size.
func (b *trial) stage(p []byte, size int) keystore.Stage {
	b.Helper()
	s, err := b.store.StageBody(context.Background())
	if err != nil {
		b.Fatalf("staging: %v", err)
	}
	for len(p) > 0 {
		n := min(size, len(p))
		if err := s.Write(context.Background(), p[:n]); err != nil {
			b.Fatalf("staging: %v", err)
		}
		p = p[n:]
	}
	return s
}

func (b *trial) settleStaged(k keystore.Key, body keystore.Body) *keystore.Record {
	b.Helper()
	e := answered(keystore.SawApplied, 1)
	e.Receipt.Body = body
	return b.apply(k, e, nil)
}

func testStaged(b *trial) {
	ctx := context.Background()
	for _, call := range []string{"kept", "empty", "repeated"} {
		b.beginning(b.request(key(call)), keystore.Send)
	}
	want := noise(300<<10, 3)
	kept := b.stage(want, 7000)
	body := kept.Body()
	r := b.settleStaged(key("kept"), body)
	kept.Discard(ctx)
	b.holds(r.Receipt.Body, want)

	r = b.settleStaged(key("empty"), b.stage(nil, 1).Body())
	b.holds(r.Receipt.Body, nil)

	discarded := b.stage(want, 64<<10)
	gone := discarded.Body()
	discarded.Discard(ctx)
	discarded.Discard(ctx)
	b.wants(b.store.ReadBody(ctx, gone, func([]byte) error { return nil }), keystore.ErrNotFound)

	left := b.stage(want, 64<<10).Body()
	b.crash()
	b.wants(b.store.ReadBody(ctx, left, func([]byte) error { return nil }), keystore.ErrNotFound)
	b.holds(b.call(key("kept")).Receipt.Body, want)
	b.holds(b.call(key("empty")).Receipt.Body, nil)
}

// testLargeReceipt stages 64 MiB, the most that a receipt keeps, without
// holding it whole.
func testLargeReceipt(b *trial) {
	k := key("a")
	b.beginning(b.request(k), keystore.Send)
	s, err := b.store.StageBody(context.Background())
	if err != nil {
		b.Fatal(err)
	}
	source, piece, digest := rand.NewChaCha8([32]byte{4}), make([]byte, 1<<20), sha256.New()
	for range 64 {
		source.Read(piece)
		digest.Write(piece)
		if err := s.Write(context.Background(), piece); err != nil {
			b.Fatal(err)
		}
	}
	b.settleStaged(k, s.Body())
	b.crash()
	body := b.call(k).Receipt.Body
	if body.Bytes != 64<<20 || !bytes.Equal(body.SHA256[:], digest.Sum(nil)) {
		b.Fatalf("on record: %d bytes, digest %x", body.Bytes, body.SHA256)
	}
	digest.Reset()
	if err := b.store.ReadBody(context.Background(), body, func(p []byte) error {
		_, err := digest.Write(p)
		return err
	}); err != nil {
		b.Fatal(err)
	}
	if !bytes.Equal(body.SHA256[:], digest.Sum(nil)) {
		b.Fatal("64 MiB were read back as others")
	}
}

func testDigest(b *trial) {
	for i, n := range []int{100, 1 << 20} {
		k := keyIn("digest", string(rune('a'+i)))
		b.beginning(b.request(k), keystore.Send)
		body := b.apply(k, answered(keystore.SawApplied, 1), noise(n, 5)).Receipt.Body
		body.SHA256[0] ^= 1
		b.wants(b.store.ReadBody(context.Background(), body, func([]byte) error { return nil }), keystore.ErrCorrupt)
	}
	k := key("missing")
	b.beginning(b.request(k), keystore.Send)
	e := answered(keystore.SawApplied, 1)
	e.Receipt.Body = keystore.Body{Bytes: 70 << 20, SHA256: [32]byte{9}, Missing: true}
	if got := b.apply(k, e, nil).Receipt.Body; !got.Missing || got.Bytes != 70<<20 || got.SHA256 != ([32]byte{9}) {
		b.Fatalf("a body that was too large is on record as %+v", got)
	}
}

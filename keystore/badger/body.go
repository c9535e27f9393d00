package badger

import (
	"context"
	"crypto/sha256"
	"fmt"
	"hash"
	"slices"

	"counterfoil/keystore"
)

// An incoming body is one that an operation brings.
type incoming struct {
	body keystore.Body
	// bytes are still to be written; nil if the body is empty, inline or staged.
	bytes []byte
	// stage holds the pieces of a body too long for one operation.
	stage *stage
}

// receive takes a body in. Long ones are staged: their pieces are written
// before the operation that names them.
func (s *Store) receive(ctx context.Context, b []byte, inlineMax int) (incoming, error) {
	switch {
	case len(b) == 0:
		return incoming{}, nil
	case len(b) > BodyBytesMax:
		return incoming{}, fmt.Errorf("a body of %d bytes, at most %d are kept: %w", len(b), BodyBytesMax, keystore.ErrTooLarge)
	case len(b) > stageBytes:
		return s.receiveStaged(ctx, b)
	}
	in := incoming{body: keystore.Body{Bytes: int64(len(b)), SHA256: sha256.Sum256(b)}}
	if len(b) <= inlineMax {
		in.body.Inline = append([]byte(nil), b...)
	} else {
		in.bytes = b
	}
	return in, nil
}

func (s *Store) receiveStaged(ctx context.Context, b []byte) (incoming, error) {
	g := s.newStage()
	if err := g.Write(ctx, b); err != nil {
		g.Discard(ctx)
		return incoming{}, err
	}
	return incoming{body: g.Body(), stage: g}, nil
}

// release drops what was staged for an operation that did not name it.
func (in *incoming) release(ctx context.Context) {
	if in.stage != nil {
		in.stage.Discard(ctx)
	}
}

// place adds to the step what makes a body readable, and returns how the record
// names it.
func (st *step) place(in incoming) (keystore.Body, error) {
	body := in.body
	switch {
	case in.bytes != nil:
		n := st.v.s.nextNumber()
		body.Ref = keystore.BodyRef(n)
		st.setPieces(n, 0, in.bytes)
	case body.Ref != 0:
		return st.claim(body.Ref)
	}
	return body, nil
}

// claim makes a staged body a record's own, with what of it is not yet written.
func (st *step) claim(ref keystore.BodyRef) (keystore.Body, error) {
	g := st.v.s.stages.find(number(ref))
	if g == nil || slices.Contains(st.v.claimed, g) {
		return keystore.Body{}, fmt.Errorf("no body %d is staged: %w", ref, keystore.ErrNotFound)
	}
	if g.written > 0 {
		st.remove(stagedKey(g.id))
	}
	st.setPieces(g.id, g.written, g.buf)
	st.claimed = append(st.claimed, g)
	return g.named, nil
}

// setPieces writes b as the pieces of a body from the given one on.
func (st *step) setPieces(body number, from uint32, b []byte) {
	for i := 0; i*pieceBytes < len(b); i++ {
		st.set(pieceKey(body, from+uint32(i)), b[i*pieceBytes:min(len(b), (i+1)*pieceBytes)])
	}
}

// drop removes the pieces of a body.
func (st *step) drop(b keystore.Body) {
	if b.Ref == 0 {
		return
	}
	st.freed += b.Bytes
	for i := range pieces(b.Bytes) {
		st.remove(pieceKey(number(b.Ref), i))
	}
}

func pieces(bytes int64) uint32 { return uint32((bytes + pieceBytes - 1) / pieceBytes) }

// ReadBody implements [keystore.Store].
func (s *Store) ReadBody(ctx context.Context, b keystore.Body, fn func(piece []byte) error) error {
	switch {
	case b.Missing:
		return fmt.Errorf("the body was not kept: %w", keystore.ErrNotFound)
	case b.Bytes == 0:
		return nil
	}
	check := checker{sum: sha256.New(), fn: fn}
	if b.Ref == 0 {
		for rest := b.Inline; len(rest) > 0; rest = rest[min(len(rest), pieceBytes):] {
			if err := check.pass(rest[:min(len(rest), pieceBytes)]); err != nil {
				return err
			}
		}
		return check.end(b)
	}
	for i := range pieces(b.Bytes) {
		if err := ctx.Err(); err != nil {
			return tooLate(ctx)
		}
		piece, err := s.piece(number(b.Ref), i)
		if err != nil {
			return err
		}
		if err := check.pass(piece); err != nil {
			return err
		}
	}
	return check.end(b)
}

func (s *Store) piece(body number, i uint32) (piece []byte, err error) {
	err = s.read(func(r reader) error {
		piece, err = r.get(pieceKey(body, i))
		if piece == nil && err == nil {
			err = fmt.Errorf("body %d: %w", body, keystore.ErrNotFound)
		}
		return err
	})
	return piece, err
}

// A checker passes a body on and checks that it is what was kept.
type checker struct {
	sum   hash.Hash
	bytes int64
	fn    func(piece []byte) error
}

func (c *checker) pass(piece []byte) error {
	c.sum.Write(piece)
	c.bytes += int64(len(piece))
	return c.fn(piece)
}

func (c *checker) end(b keystore.Body) error {
	if c.bytes != b.Bytes || [32]byte(c.sum.Sum(nil)) != b.SHA256 {
		return fmt.Errorf("body %d: its bytes are not those that were kept: %w", b.Ref, keystore.ErrCorrupt)
	}
	return nil
}

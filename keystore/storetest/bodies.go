package storetest

import (
	"context"
	"crypto/sha256"
	"fmt"

	"counterfoil/keystore"
)

// pieceMax is the longest piece that ReadBody hands out.
const pieceMax = 1 << 20

// A stage is a body that no record names yet.
type stage struct {
	store *Memory
	ref   keystore.BodyRef
	bytes []byte
	ended bool
}

func (st *stage) named() keystore.Body {
	if len(st.bytes) == 0 {
		return keystore.Body{}
	}
	return keystore.Body{Bytes: int64(len(st.bytes)), SHA256: sha256.Sum256(st.bytes), Ref: st.ref}
}

// StageBody keeps a large body ahead of the operation that will name it.
func (s *Memory) StageBody(ctx context.Context) (keystore.Stage, error) {
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("staging a body: %w: %w", keystore.ErrUnavailable, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.gone {
		return nil, fmt.Errorf("staging a body: %w", errGone)
	}
	s.ref++
	st := &stage{store: s, ref: s.ref}
	s.staged[st.ref] = st
	return st, nil
}

func (st *stage) Write(ctx context.Context, piece []byte) error {
	if st.store.disk.isFull() {
		return fmt.Errorf("staging a body: %w", keystore.ErrFull)
	}
	return st.store.do(ctx, StageWrite, func() error {
		if st.ended || st.store.staged[st.ref] != st {
			return fmt.Errorf("writing to a staged body that has ended: %w", keystore.ErrUnavailable)
		}
		st.bytes = append(st.bytes, piece...)
		return nil
	})
}

func (st *stage) Body() keystore.Body {
	st.store.mu.Lock()
	defer st.store.mu.Unlock()
	st.ended = true
	return st.named()
}

func (st *stage) Discard(context.Context) {
	st.store.mu.Lock()
	defer st.store.mu.Unlock()
	if st.store.staged[st.ref] == st {
		delete(st.store.staged, st.ref)
	}
}

// ReadBody hands the bytes of b to fn in order.
func (s *Memory) ReadBody(ctx context.Context, b keystore.Body, fn func(piece []byte) error) error {
	var bytes []byte
	err := s.do(ctx, Read, func() (err error) {
		bytes, err = s.bytesOf(b)
		return err
	})
	if err != nil {
		return fmt.Errorf("reading a body: %w", err)
	}
	for len(bytes) > 0 {
		n := min(len(bytes), pieceMax)
		if err := fn(append([]byte(nil), bytes[:n]...)); err != nil {
			return err
		}
		bytes = bytes[n:]
	}
	return nil
}

func (s *Memory) bytesOf(b keystore.Body) ([]byte, error) {
	bytes := b.Inline
	switch {
	case b.Missing:
		return nil, errNoBody
	case b.Ref != 0:
		stored, ok := s.live.bodies[b.Ref]
		if staged := s.staged[b.Ref]; staged != nil {
			stored, ok = staged.bytes, true
		}
		if !ok {
			return nil, errNoBody
		}
		bytes = stored
	case b.Bytes == 0 && len(bytes) == 0:
		return nil, nil
	}
	if int64(len(bytes)) != b.Bytes || sha256.Sum256(bytes) != b.SHA256 {
		return nil, fmt.Errorf("the body is not what was kept: %w", keystore.ErrCorrupt)
	}
	return bytes, nil
}

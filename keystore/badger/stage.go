package badger

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"hash"
	"slices"
	"sync"
	"time"

	"counterfoil/keystore"
)

// A stage writes a long body ahead of the operation that names it, at most
// stageBytes at a time. A marker tells its pieces from those that a record
// owns.
type stage struct {
	s    *Store
	id   number
	sum  hash.Hash
	size int64
	// written is how many pieces are durable, buf what comes after them.
	written uint32
	buf     []byte
	// ended says that nothing more may be written, named is what Body gave out.
	ended bool
	named keystore.Body
}

// stages holds the staged bodies that may still be named.
type stages struct {
	mu   sync.Mutex
	byID map[number]*stage
}

func (s *stages) offer(g *stage) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.byID[g.id] = g
}

// find returns the stage of that number if it may be named, else nil.
func (s *stages) find(id number) *stage {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.byID[id]
}

func (s *stages) end(id number) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.byID, id)
}

// StageBody implements [keystore.Store].
func (s *Store) StageBody(context.Context) (keystore.Stage, error) {
	if s.isClosed() {
		return nil, fmt.Errorf("staging a body: %w", errClosed)
	}
	return s.newStage(), nil
}

func (s *Store) isClosed() bool {
	s.closing.RLock()
	defer s.closing.RUnlock()
	return s.closed
}

func (s *Store) newStage() *stage {
	return &stage{s: s, id: s.nextNumber(), sum: sha256.New()}
}

// Write implements [keystore.Stage].
func (g *stage) Write(ctx context.Context, piece []byte) error {
	if g.s.isClosed() {
		return errClosed
	}
	if g.size+int64(len(piece)) > BodyBytesMax {
		return fmt.Errorf("a body of more than %d bytes: %w", BodyBytesMax, keystore.ErrTooLarge)
	}
	if g.ended {
		return errStageEnded
	}
	for len(piece) > 0 {
		n := min(len(piece), stageBytes-len(g.buf))
		if err := g.take(ctx, piece[:n]); err != nil {
			return err
		}
		piece = piece[n:]
	}
	return nil
}

func (g *stage) take(ctx context.Context, piece []byte) error {
	g.buf = append(g.buf, piece...)
	g.sum.Write(piece)
	g.size += int64(len(piece))
	if len(g.buf) < stageBytes {
		return nil
	}
	return g.flush(ctx)
}

// flush makes the buffer durable. Only the last one is not full.
func (g *stage) flush(ctx context.Context) error {
	if len(g.buf) == 0 {
		return nil
	}
	err := g.s.do(ctx, func(v *view) (*step, error) {
		if g.s.space.room() != forAll {
			return nil, keystore.ErrFull
		}
		st := v.step()
		if g.written == 0 {
			st.set(stagedKey(g.id), nil)
		}
		st.setPieces(g.id, g.written, g.buf)
		return st, nil
	})
	if err != nil {
		return err
	}
	g.written += pieces(int64(len(g.buf)))
	g.buf = g.buf[:0]
	return nil
}

var errStageEnded = errors.New("nothing may be written to a staged body once it has been named or given up")

// Body implements [keystore.Stage]. What is not yet written goes with the
// operation that names the body.
func (g *stage) Body() keystore.Body {
	if g.size == 0 {
		g.ended = true
		return keystore.Body{}
	}
	if !g.ended {
		g.ended = true
		g.named = keystore.Body{Bytes: g.size, SHA256: [32]byte(g.sum.Sum(nil)), Ref: keystore.BodyRef(g.id)}
		g.s.stages.offer(g)
	}
	return g.named
}

// discardPatience bounds the wait of a Discard: what it leaves is dropped at
// the next start.
const discardPatience = 5 * time.Second

// Discard implements [keystore.Stage].
func (g *stage) Discard(ctx context.Context) {
	named := g.ended && g.s.stages.find(g.id) == nil
	g.ended = true
	if named {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), discardPatience)
	defer cancel()
	err := g.s.do(ctx, func(v *view) (*step, error) {
		if slices.Contains(v.claimed, g) {
			return nil, nil
		}
		g.s.stages.end(g.id)
		unnamed, err := v.has(stagedKey(g.id))
		if err != nil || !unnamed {
			// Nothing is written, or an operation whose commit seemed to fail
			// has named it.
			return nil, err
		}
		st := v.step()
		st.remove(stagedKey(g.id))
		for i := range g.written {
			st.remove(pieceKey(g.id, i))
		}
		return st, nil
	})
	if err != nil {
		g.s.config.Logger.Warn("a staged body is left until the next start", "error", err)
	}
}

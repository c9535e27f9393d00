package journal

import (
	"context"
	"crypto/sha256"
	"errors"
	"hash"
	"io"

	"counterfoil/classify"
	"counterfoil/internal/crashpoint"
	"counterfoil/keystore"
	"counterfoil/providers"
)

const (
	// pieceBytes is how much of an answer is read at a time.
	pieceBytes = 32 << 10
	// glanceMax is how much is read of an answer that is not kept, so that its
	// connection can be used again.
	glanceMax = 64 << 10
)

// An answer is what one attempt came to.
type answer struct {
	evidence classify.Evidence
	outcome  classify.Outcome
	reason   string
	// judgement is what the answer's content shows.
	judgement providers.Judgement

	status         int
	header         classify.Header
	closeDelimited bool
	// bytes is the whole body if it is at most WholeMax; beyond that staged
	// says where it is, or that it is missing.
	bytes  []byte
	staged keystore.Body
	// streamed says that the agent has the answer already, as far as it went;
	// gone, that it has not, since it took no more.
	streamed, gone bool
	// rest is the end of a streamed answer, which was kept back.
	rest []byte
}

// receive judges a response and takes its body. What the agent may have as it
// comes is passed on; its end waits for finish.
func (w *work) receive(ctx context.Context, r *keystore.Record, resp *classify.Response) answer {
	a := answer{evidence: resp.Evidence, reason: resp.Reason, status: resp.Status, closeDelimited: resp.CloseDelimited}
	if resp.Evidence != classify.Answered {
		a.outcome = w.judge(r, &a)
		a.status = 0
		return a
	}
	defer resp.Body.Close()
	a.header = classify.EndToEnd(resp.Header)
	a.outcome = w.judge(r, &a)
	watcher := w.watch(r, &a, resp.Length)
	if watcher != nil {
		resp.Body = &watchedBody{resp.Body, watcher}
	}
	holds := watcher != nil && watcher.Holds()
	if a.outcome == classify.Ambiguous && !holds {
		if _, err := io.CopyN(io.Discard, resp.Body, glanceMax); err != nil && err != io.EOF {
			a.reason = "the answer broke off"
			return a
		}
		if watcher != nil {
			a.judged(ctx, watcher)
			if judged := w.judge(r, &a); judged != classify.Applied && judged != classify.Rejected {
				a.outcome = judged // what is final needs its body, which was not kept
			}
		}
		return a
	}
	k := keeper{store: w.store, trouble: func(err error) { w.observe.trouble("keeping an answer's body", w.ask.Key, err) }}
	if err := w.take(ctx, r, resp, &a, &k, watcher); err != nil {
		k.discard(ctx)
		a.evidence, a.outcome = classify.Lost, classify.Ambiguous
		a.reason = "the answer broke off: " + err.Error()
		return a
	}
	if watcher != nil {
		a.judged(ctx, watcher)
		if gated, ok := watcher.(providers.Gated); ok && a.streamed {
			a.rest = gated.Rest()
		}
		if a.outcome = w.judge(r, &a); a.outcome == classify.Ambiguous {
			k.discard(ctx)
			return a
		}
	}
	a.bytes, a.staged = k.kept()
	return a
}

func (w *work) judge(r *keystore.Record, a *answer) classify.Outcome {
	doubt := classify.NoDoubt
	if r.DoubtSince != 0 {
		doubt = classify.AfterDoubt
	}
	outcome := classify.Judge(classify.Answer{Evidence: a.evidence, Status: a.status, Adapter: a.judgement.Outcome}, classify.Circumstances{
		Method: r.Intent.Method, Doubt: doubt, Outcomes: w.upstream.Outcomes,
	})
	if outcome == classify.Rejected && !keystore.RejectionCounts(r) {
		return classify.Ambiguous
	}
	return outcome
}

// heldBackMax bounds what is kept back of an answer until its receipt is durable.
// It is more than any event that a dialect reads, so that only what follows the
// event with the result can reach it.
const heldBackMax = 16 << 20

var errEndless = errors.New("more came after the result than can be kept back")

// take reads the body to its clean end, keeping it and passing it on.
func (w *work) take(ctx context.Context, r *keystore.Record, resp *classify.Response, a *answer, k *keeper, watcher providers.Watcher) error {
	holds := watcher != nil && watcher.Holds()
	if w.stream != nil && !holds && !(w.doubted && w.rd.IsReworded()) && (resp.Length < 0 || resp.Length > WholeMax) {
		a.streamed = true
		w.stream.Head(&Reply{Outcome: w.sentOutcome(), Record: r, SentKey: w.sentKey(r), Status: a.status, Header: a.header, Length: resp.Length, Diverged: w.diverged})
	}
	switch {
	case r.Intent.Method == "HEAD" || a.status == 204 || a.status == 304:
		return k.whole(resp.Body, 0) // the length speaks of a body that does not come
	case resp.Length >= 0 && resp.Length <= WholeMax:
		return k.whole(resp.Body, resp.Length)
	}
	return w.takePieces(ctx, resp.Body, a, k, watcher)
}

// takePieces takes a body of any length.
func (w *work) takePieces(ctx context.Context, body io.Reader, a *answer, k *keeper, watcher providers.Watcher) error {
	piece, back := make([]byte, pieceBytes), 0
	for {
		n, err := body.Read(piece)
		if n > 0 {
			k.add(ctx, piece[:n])
			passed := piece[:n]
			if gated, ok := watcher.(providers.Gated); ok {
				passed = gated.Take()
			}
			if back += n - len(passed); back > heldBackMax {
				return errEndless
			}
			if a.streamed && !a.gone {
				a.gone = w.stream.Write(passed) != nil
			}
			crashpoint.Reach(crashpoint.AnswerPiece)
		}
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// A keeper keeps a body: in memory up to WholeMax, then in the store up to
// KeptMax, then only its length and digest.
type keeper struct {
	store   keystore.Store
	trouble func(error)

	small   []byte
	stage   keystore.Stage
	bytes   int64
	digest  hash.Hash
	missing bool
}

// whole reads a body of a known length that is kept in memory, to its clean
// end.
func (k *keeper) whole(body io.Reader, length int64) error {
	k.small = make([]byte, length)
	for at := 0; at < len(k.small); {
		n, err := body.Read(k.small[at:min(len(k.small), at+pieceBytes)])
		if at += n; n > 0 {
			crashpoint.Reach(crashpoint.AnswerPiece)
		}
		if err == io.EOF && at == len(k.small) {
			return nil
		}
		if err != nil {
			return err
		}
	}
	var beyond [1]byte
	for {
		n, err := body.Read(beyond[:])
		switch {
		case n > 0:
			return errors.New("it is longer than its length")
		case err == io.EOF:
			return nil
		case err != nil:
			return err
		}
	}
}

func (k *keeper) add(ctx context.Context, piece []byte) {
	k.bytes += int64(len(piece))
	if k.digest == nil && k.bytes <= WholeMax {
		k.small = append(k.small, piece...)
		return
	}
	if k.digest == nil {
		k.digest = sha256.New()
		k.digest.Write(k.small)
		k.spill(ctx, k.small)
		k.small = nil
	}
	k.digest.Write(piece)
	k.spill(ctx, piece)
}

// spill stages a piece. A body that cannot be kept is missing; the answer is
// none the less known.
func (k *keeper) spill(ctx context.Context, piece []byte) {
	if k.missing {
		return
	}
	err := keystore.ErrTooLarge
	if k.bytes <= KeptMax {
		err = k.write(ctx, piece)
	}
	if err == nil {
		return
	}
	if k.bytes <= KeptMax {
		k.trouble(err)
	}
	k.discard(ctx)
	k.missing = true
}

func (k *keeper) write(ctx context.Context, piece []byte) (err error) {
	ctx = context.WithoutCancel(ctx)
	if k.stage == nil {
		if k.stage, err = k.store.StageBody(ctx); err != nil {
			return err
		}
	}
	return k.stage.Write(ctx, piece)
}

func (k *keeper) discard(ctx context.Context) {
	if k.stage != nil {
		k.stage.Discard(context.WithoutCancel(ctx))
		k.stage = nil
	}
}

// kept returns the body: its bytes if they are at hand, else where they are.
func (k *keeper) kept() ([]byte, keystore.Body) {
	switch {
	case k.digest == nil && k.small == nil:
		return []byte{}, keystore.Body{}
	case k.digest == nil:
		return k.small, keystore.Body{}
	case k.missing:
		return nil, keystore.Body{Bytes: k.bytes, SHA256: [32]byte(k.digest.Sum(nil)), Missing: true}
	}
	return nil, k.stage.Body()
}

func missingBody(body []byte) keystore.Body {
	return keystore.Body{Bytes: int64(len(body)), SHA256: sha256.Sum256(body), Missing: true}
}

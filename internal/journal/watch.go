package journal

import (
	"context"
	"errors"
	"io"
	"time"

	"counterfoil/classify"
	"counterfoil/keystore"
	"counterfoil/providers"
)

// watchTimeout bounds the programs that judge one answer.
const watchTimeout = 5 * time.Second

// watch returns what judges the answer by its content, nil where its head says
// all.
func (w *work) watch(r *keystore.Record, a *answer, length int64) providers.Watcher {
	isResend := false
	if n := r.Attempt(r.AttemptsMade); n != nil {
		isResend = n.Resend
	}
	return w.rd.Watch(w.query(r, &w.out), providers.Head{Status: a.status, Header: a.header, Length: length}, isResend)
}

// query is what programs may know of the call.
func (w *work) query(r *keystore.Record, original *classify.Request) providers.Query {
	return providers.Query{
		Key: r.Intent.SentKey, Marker: string(r.Key.ProviderKey()), Run: r.Key.Run, Turn: r.Key.Turn, Call: r.Key.Call,
		SentAt: r.FirstSentAt.Time(), Original: original,
	}
}

// judged ends the watching of an answer that has come whole, and takes the
// judgement over.
func (a *answer) judged(ctx context.Context, watcher providers.Watcher) {
	ctx, cancel := context.WithTimeout(ctx, watchTimeout)
	defer cancel()
	a.judgement = watcher.End(ctx)
	if a.judgement.Reason != "" {
		a.reason = a.judgement.Reason
	}
}

// watchedBody shows a body to a watcher as it is read.
type watchedBody struct {
	io.ReadCloser
	watcher providers.Watcher
}

func (b *watchedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if n > 0 {
		b.watcher.Write(p[:n])
	}
	return n, err
}

// overheard is the body of an answer that is passed on, from which something is
// learnt on the way: what tools there are.
func (j *Journal) overheard(upstream string, rd *providers.Reading, resp *classify.Response) io.ReadCloser {
	watcher := rd.Overhear(providers.Head{Status: resp.Status, Header: resp.Header, Length: resp.Length})
	if watcher == nil {
		return resp.Body
	}
	return &overheard{watchedBody: watchedBody{resp.Body, watcher}, left: resp.Length, late: func(l providers.Late) { j.lateAnswer(upstream, l) }}
}

// An overheard body ends its watching at its clean end: who knows the length does
// not read beyond it.
type overheard struct {
	watchedBody
	// left is how much is still to come, below 0 where that is not known.
	left   int64
	isOver bool
	// late takes what is heard of an earlier call.
	late func(providers.Late)
}

func (b *overheard) Read(p []byte) (int, error) {
	n, err := b.watchedBody.Read(p)
	if t, ok := b.watcher.(providers.Teller); ok {
		for _, l := range t.Told() {
			b.late(l)
		}
	}
	if b.left > 0 {
		b.left -= int64(n)
	}
	if (errors.Is(err, io.EOF) || b.left == 0) && !b.isOver {
		b.isOver = true
		ctx, cancel := context.WithTimeout(context.Background(), watchTimeout)
		defer cancel()
		b.watcher.End(ctx)
	}
	return n, err
}

// An Alarm is what an operator should look into.
type Alarm struct {
	Key      keystore.Key
	Upstream string
	// Kind is duplicate or answer.
	Kind string
	Text string
}

func (w *work) alarm(kind, text string) {
	if text != "" && w.observe.Alarm != nil {
		w.observe.Alarm(Alarm{Key: w.ask.Key, Upstream: w.upstream.Name, Kind: kind, Text: text})
	}
}

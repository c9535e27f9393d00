package proxy

import (
	"context"
	"errors"
	"io"
	"time"

	"counterfoil/internal/journal"
)

func nothing() {}

// readBody reads the whole body. Large ones share a bounded memory, from which
// release gives their part back.
func (x *exchange) readBody(ctx context.Context) (body []byte, release func(), refusal *journal.Refusal) {
	if !x.hasBody() || x.body == nil {
		return nil, nothing, nil
	}
	if x.bodyBytes >= 0 && x.bodyBytes <= bodyBytesSmall {
		body = make([]byte, x.bodyBytes)
		_, err := io.ReadFull(x.body, body)
		return body, nothing, unread(err)
	}
	if x.bodyBytes == -1 {
		body, err := io.ReadAll(io.LimitReader(x.body, bodyBytesSmall+1))
		if err != nil || len(body) <= bodyBytesSmall {
			return body, nothing, unread(err)
		}
		return x.readLarge(ctx, body, BodyBytesMax+1)
	}
	return x.readLarge(ctx, nil, int(x.bodyBytes))
}

// readLarge reads on to the end, or to most bytes, whichever is nearer. A whole
// share is taken at once: those who wait for more while they hold some could
// wait for each other.
func (x *exchange) readLarge(ctx context.Context, body []byte, most int) ([]byte, func(), *journal.Refusal) {
	release, refusal := x.takeLarge(ctx, int64(min(most, BodyBytesMax)))
	if refusal != nil {
		return nil, release, refusal
	}
	whole := make([]byte, len(body), most)
	copy(whole, body)
	whole, err := fill(whole, x.body)
	switch {
	case err != nil:
		return nil, release, unread(err)
	case len(whole) > BodyBytesMax:
		return nil, release, tooLarge
	case x.bodyBytes > int64(len(whole)):
		return nil, release, unread(io.ErrUnexpectedEOF)
	}
	return whole, release, nil
}

// takeLarge takes a share of the memory for what is large. release gives it back.
func (x *exchange) takeLarge(ctx context.Context, share int64) (release func(), refusal *journal.Refusal) {
	ctx, cancel := context.WithTimeout(ctx, x.limits.LargeWait)
	defer cancel()
	if x.large.Acquire(ctx, share) != nil {
		return nothing, &journal.Refusal{
			Problem: Overloaded, RetryAfter: time.Second,
			Detail: "Other large requests take all the memory that there is for them. Nothing was sent. Send the same key again.",
		}
	}
	return func() { x.large.Release(share) }, nil
}

// fill appends what comes, to the end or up to b's capacity.
func fill(b []byte, r io.Reader) ([]byte, error) {
	for len(b) < cap(b) {
		n, err := r.Read(b[len(b):cap(b)])
		b = b[:len(b)+n]
		if err == io.EOF {
			return b, nil
		}
		if err != nil {
			return b, err
		}
	}
	return b, nil
}

// unread is the refusal for a body that did not come whole.
func unread(err error) *journal.Refusal {
	switch {
	case err == nil:
		return nil
	case isTimeout(err):
		return timedOut
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return malformed("The body is shorter than the request says.")
	}
	return malformed("The body is not well-formed.")
}

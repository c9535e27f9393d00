package view

import (
	"context"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"time"
	"unicode/utf8"

	"counterfoil/keystore"
)

// HeldBodyMax is how much of a held call's body is shown.
const HeldBodyMax = 64 << 10

// A Held is a call that waits for a person, with what that person has to see to
// decide: what would be sent, but for its credentials.
type Held struct {
	Namespace string `json:"namespace"`
	Run       string `json:"run"`
	Turn      string `json:"turn"`
	Call      string `json:"call"`
	Tool      string `json:"tool,omitempty"`
	Key       string `json:"key"`
	// HeldFor is approval where a rule asks for it, divergence where the run
	// does not repeat its earlier steps.
	HeldFor  string    `json:"held_for"`
	Since    time.Time `json:"since"`
	Class    string    `json:"class"`
	Upstream string    `json:"upstream"`
	Origin   string    `json:"origin"`
	Method   string    `json:"method"`
	// Target has keyed hashes in the place of secret values.
	Target  string              `json:"target"`
	Headers map[string][]string `json:"headers,omitempty"`
	// Fingerprint is of the request that an approval is for.
	Fingerprint string `json:"fingerprint"`
	BodyBytes   int64  `json:"body_bytes"`
	BodySHA256  string `json:"body_sha256,omitempty"`
	// Body is the body if it is UTF-8, BodyBase64 if it is not; of a longer one
	// than HeldBodyMax its beginning, and BodyCut says so. BodyMissing says that
	// it was not kept.
	Body        string `json:"body,omitempty"`
	BodyBase64  string `json:"body_base64,omitempty"`
	BodyCut     bool   `json:"body_cut,omitempty"`
	BodyMissing bool   `json:"body_missing,omitempty"`
}

// Bodies are where bodies are read from: a [keystore.Store].
type Bodies interface {
	ReadBody(ctx context.Context, b keystore.Body, fn func(piece []byte) error) error
}

// HeldOf shows a held call.
func HeldOf(ctx context.Context, from Bodies, r *keystore.Record) (*Held, error) {
	in := &r.Intent
	v := &Held{
		Namespace: r.Key.Namespace, Run: r.Key.Run, Turn: r.Key.Turn, Call: r.Key.Call, Tool: r.Tool, Key: SentKey(r),
		HeldFor: heldFor(r), Since: HeldSince(r), Class: r.Class.String(), Upstream: in.Upstream, Origin: in.Origin,
		Method: in.Method, Target: in.Target, Headers: headers(in.Header), Fingerprint: r.Fingerprint.String(),
		BodyBytes: in.Body.Bytes,
	}
	if in.Body.Bytes == 0 {
		return v, nil
	}
	v.BodySHA256 = hex.EncodeToString(in.Body.SHA256[:])
	body, err := beginningOf(ctx, from, in.Body)
	switch {
	case errors.Is(err, keystore.ErrNotFound):
		v.BodyMissing = true
		return v, nil
	case err != nil:
		return nil, fmt.Errorf("reading the body of %s: %w", r.Key, err)
	}
	v.BodyCut = int64(len(body)) < in.Body.Bytes
	v.showBody(body)
	return v, nil
}

func heldFor(r *keystore.Record) string {
	if r.HeldFor == keystore.Diverged {
		return "divergence"
	}
	return "approval"
}

// An Approval is a person's leave to send a call, once.
type Approval struct {
	// Actor is who gave it, for operators.
	Actor string    `json:"actor,omitempty"`
	At    time.Time `json:"at"`
	// ExpiresAt is when it is over if the call is not begun; absent if never.
	ExpiresAt time.Time `json:"expires_at,omitzero"`
}

func approvalOf(a *keystore.Approval, who Audience) *Approval {
	if a == nil {
		return nil
	}
	v := &Approval{At: a.At.Time(), ExpiresAt: a.ExpiresAt.Time()}
	if who == Operator {
		v.Actor = a.Actor
	}
	return v
}

// HeldSince is since when a call is held.
func HeldSince(r *keystore.Record) time.Time {
	for _, passed := range slices.Backward(r.History) {
		if passed.To == keystore.Held {
			return passed.At.Time()
		}
	}
	return r.UpdatedAt.Time()
}

var errEnough = errors.New("enough was read")

// beginningOf reads at most HeldBodyMax bytes.
func beginningOf(ctx context.Context, from Bodies, b keystore.Body) ([]byte, error) {
	var body []byte
	err := from.ReadBody(ctx, b, func(piece []byte) error {
		body = append(body, piece[:min(len(piece), HeldBodyMax-len(body))]...)
		if len(body) == HeldBodyMax {
			return errEnough
		}
		return nil
	})
	if errors.Is(err, errEnough) {
		err = nil
	}
	return body, err
}

// showBody shows text as text. A cut may have split a character.
func (v *Held) showBody(body []byte) {
	text := body
	for i := 0; v.BodyCut && i < utf8.UTFMax && len(text) > 0 && !utf8.Valid(text); i++ {
		text = text[:len(text)-1]
	}
	if utf8.Valid(text) {
		v.Body = string(text)
		return
	}
	v.BodyBase64 = base64.StdEncoding.EncodeToString(body)
}

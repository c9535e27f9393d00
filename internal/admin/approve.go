package admin

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"time"

	"counterfoil/internal/journal"
	"counterfoil/internal/view"
	"counterfoil/keystore"
)

// ApprovalTTLMax bounds how long an approval may stand, in seconds: a year.
const ApprovalTTLMax = 365 * 24 * 60 * 60

// A Ruling is an operator's decision about a held call.
type Ruling struct {
	Run  string `json:"run"`
	Turn string `json:"turn"`
	Call string `json:"call"`
	// Namespace is the sidecar's own where it is left out.
	Namespace string `json:"namespace,omitempty"`
	// Note says why, in at most 4 KiB; Actor, which is needed, who, in at most
	// 512 bytes.
	Note  string `json:"note,omitempty"`
	Actor string `json:"actor"`
	// TTLSeconds, which comes with an approval alone, is for how long it stands
	// if the call is not begun: 1 to ApprovalTTLMax; left out, for ever.
	TTLSeconds *int64 `json:"ttl_seconds,omitempty"`
}

// held lists the held calls of all namespaces, the oldest first.
func (s *Server) held(ctx context.Context, r *http.Request) (any, error) {
	q, err := s.query(r, "limit", "after")
	if err != nil {
		return nil, err
	}
	list, err := s.store.Unsettled(ctx, keystore.Held, q.page)
	if err != nil {
		return nil, q.mistake(err)
	}
	v := &view.List[*view.Held]{Items: make([]*view.Held, len(list.Items)), Next: list.Next}
	for i, record := range list.Items {
		if v.Items[i], err = view.HeldOf(ctx, s.store, record); err != nil {
			return nil, err
		}
	}
	return v, nil
}

func (s *Server) approve(ctx context.Context, r *http.Request) (any, error) {
	ruling, err := s.readRuling(r, mayExpire)
	if err != nil {
		return nil, err
	}
	record, err := s.calls.Approve(ctx, ruling)
	return s.ruled(ctx, "an operator approved a held call", ruling, record, err)
}

func (s *Server) deny(ctx context.Context, r *http.Request) (any, error) {
	ruling, err := s.readRuling(r, forGood)
	if err != nil {
		return nil, err
	}
	record, err := s.calls.Deny(ctx, ruling)
	return s.ruled(ctx, "an operator refused a held call", ruling, record, err)
}

func (s *Server) ruled(ctx context.Context, what string, ruling *journal.Ruling, record *keystore.Record, err error) (any, error) {
	if errors.Is(err, journal.ErrNotHeld) {
		return nil, notHeld(record)
	}
	if err != nil {
		return nil, err
	}
	k := ruling.Key
	s.log.InfoContext(ctx, what, "namespace", k.Namespace, "run", k.Run, "turn", k.Turn, "call", k.Call,
		"actor", ruling.Actor, "ttl", ruling.TTL, "state", record.State.String())
	return viewCall(record), nil
}

func notHeld(r *keystore.Record) *refusal {
	detail := "Only a held call can be approved or denied."
	if r.State == keystore.Planned && r.Approval != nil {
		detail = "It was approved already, and its agent has not sent it since. If the approval is over, the agent's next request is held anew."
	}
	refusal := refuse(NotHeld, "The call is in state %s. %s Nothing was changed.", r.State, detail)
	refusal.record = r
	return refusal
}

// An expiry says whether a ruling can be over one day.
type expiry uint8

const (
	forGood expiry = iota
	mayExpire
)

func (s *Server) readRuling(r *http.Request, can expiry) (*journal.Ruling, error) {
	in := &Ruling{}
	if err := readOrder(r, in); err != nil {
		return nil, err
	}
	if in.Namespace == "" {
		in.Namespace = s.namespace
	}
	out := &journal.Ruling{
		Key:   keystore.Key{Namespace: in.Namespace, Run: in.Run, Turn: in.Turn, Call: in.Call},
		Actor: strings.TrimSpace(in.Actor), Note: in.Note,
	}
	if err := out.Key.Validate(); err != nil {
		return nil, err
	}
	if err := checkWords(in.Actor, in.Note); err != nil {
		return nil, err
	}
	switch ttl := in.TTLSeconds; {
	case ttl == nil:
	case can == forGood:
		return nil, refuse(InvalidRequest, "A denial is for good: leave ttl_seconds out.")
	case *ttl < 1 || *ttl > ApprovalTTLMax:
		return nil, refuse(InvalidRequest, "The ttl_seconds are a number from 1 to %d; leave them out for an approval without an end.", ApprovalTTLMax)
	default:
		out.TTL = time.Duration(*ttl) * time.Second
	}
	return out, nil
}

// recovery answers with what a restarted agent of the run would be told.
func (s *Server) recovery(ctx context.Context, r *http.Request) (any, error) {
	q, name, err := s.ofRun(r)
	if err != nil {
		return nil, err
	}
	report, err := s.calls.Report(ctx, q.namespace, name, q.page)
	if err != nil {
		return nil, q.mistake(err)
	}
	return view.RecoveryOf(&report), nil
}

package admin

import (
	"cmp"
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

const (
	// heldBytesMax is about how much of requests one page of held calls shows:
	// whoever sends the requests must not choose how much memory a page takes.
	heldBytesMax = 4 << 20
	// heldStep is how many calls are read before that is looked at.
	heldStep  = 16
	heldUsual = 100
)

// held lists the held calls of all namespaces, the oldest first. A page of large
// ones is short.
func (s *Server) held(ctx context.Context, r *http.Request) (any, error) {
	q, err := s.query(r, "limit", "after")
	if err != nil {
		return nil, err
	}
	v := &view.List[*view.Held]{Items: []*view.Held{}}
	for page, shown := q.page, 0; ; {
		page.Limit = min(heldStep, cmp.Or(q.page.Limit, heldUsual)-len(v.Items))
		list, err := s.store.Unsettled(ctx, keystore.Held, page)
		if err != nil {
			return nil, q.mistake(err)
		}
		for _, record := range list.Items {
			h, err := view.HeldOf(ctx, s.store, record)
			if err != nil {
				return nil, err
			}
			v.Items = append(v.Items, h)
			shown += h.Bytes()
		}
		page.After, v.Next = list.Next, list.Next
		if v.Next == "" || len(v.Items) >= cmp.Or(q.page.Limit, heldUsual) || shown >= heldBytesMax {
			return v, nil
		}
	}
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
	about := []any{"namespace", k.Namespace, "run", k.Run, "turn", k.Turn, "call", k.Call, "actor", ruling.Actor, "state", record.State.String()}
	if ruling.TTL > 0 {
		about = append(about, "ttl", ruling.TTL)
	}
	s.log.InfoContext(ctx, what, about...)
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

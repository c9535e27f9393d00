package admin

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"unicode/utf8"

	"counterfoil/classify"
	"counterfoil/keystore"
)

// Bounds of a decision.
const (
	// ReceiptBytesMax bounds the body of a receipt that an operator gives.
	ReceiptBytesMax = 1 << 20
	// orderBytesMax bounds the request: each byte of a body may take six in a
	// JSON string.
	orderBytesMax = 6*ReceiptBytesMax + 256<<10
	// receiptHeadersMax bounds how many header lines a receipt may bring,
	// headerBytesMax their bytes.
	receiptHeadersMax = 100
)

// A Decision is what an operator may say about an unknown call.
type Decision string

const (
	// Applied: the effect exists. The receipt is what the agent is answered
	// with, now and in every replay.
	Applied Decision = "applied"
	// NotApplied: nothing happened, and nothing will. The agent's next request
	// for the call sends it.
	NotApplied Decision = "not_applied"
	// Abandon: nobody needs to know any more. The call is never sent again.
	Abandon Decision = "abandon"
	// Recheck: recovery shall begin again.
	Recheck Decision = "recheck"
)

// decided names the event of each decision.
var decided = map[Decision]keystore.EventKind{
	Applied:    keystore.OperatorApplied,
	NotApplied: keystore.OperatorNotApplied,
	Abandon:    keystore.OperatorAbandoned,
	Recheck:    keystore.OperatorRecheck,
}

// A Resolution is an operator's decision about an unknown call.
type Resolution struct {
	Run  string `json:"run"`
	Turn string `json:"turn"`
	Call string `json:"call"`
	// Namespace is the sidecar's own where it is left out.
	Namespace string   `json:"namespace,omitempty"`
	Decision  Decision `json:"decision"`
	// Receipt comes with Applied only. Left out, it is status 200 without
	// headers and body.
	Receipt *GivenReceipt `json:"receipt,omitempty"`
	// Note says why, in at most 4 KiB; Actor, which is needed, who, in at most
	// 512 bytes.
	Note  string `json:"note,omitempty"`
	Actor string `json:"actor"`
}

// A GivenReceipt is the answer that an agent is to get for a call that a person
// found to be done.
type GivenReceipt struct {
	// Status is 200 to 599; 0 or left out means 200.
	Status int `json:"status,omitempty"`
	// Headers name each value or a list of values. Those that speak of one
	// connection or frame a body are dropped.
	Headers map[string]Values `json:"headers,omitempty"`
	// Body is text, BodyBase64 any bytes: one of them at most, up to 1 MiB.
	Body       string `json:"body,omitempty"`
	BodyBase64 []byte `json:"body_base64,omitempty"`
}

// Values are the values of one header. In JSON a single one may stand without
// its list.
type Values []string

// UnmarshalJSON reads a string or a list of strings.
func (v *Values) UnmarshalJSON(b []byte) error {
	var one string
	if json.Unmarshal(b, &one) == nil {
		*v = Values{one}
		return nil
	}
	var list []string
	if err := json.Unmarshal(b, &list); err != nil {
		return errors.New("a header is a string or a list of strings")
	}
	*v = list
	return nil
}

// resolve puts a decision on record. It is taken only while the call is
// unknown; the same decision again, as long as nothing has happened since,
// changes nothing and is answered alike.
func (s *Server) resolve(ctx context.Context, r *http.Request) (any, error) {
	in := &Resolution{}
	if err := readOrder(r, in); err != nil {
		return nil, err
	}
	if err := in.check(); err != nil {
		return nil, err
	}
	if in.Namespace == "" {
		in.Namespace = s.namespace
	}
	k := keystore.Key{Namespace: in.Namespace, Run: in.Run, Turn: in.Turn, Call: in.Call}
	if err := k.Validate(); err != nil {
		return nil, err
	}
	event, body, err := in.event()
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), storeTimeout)
	defer cancel()
	record, err := s.store.Apply(ctx, k, event, body)
	if errors.Is(err, keystore.ErrNoTransition) {
		return s.again(ctx, k, &event, body)
	}
	if err != nil {
		return nil, err
	}
	s.log.InfoContext(ctx, "an operator decided about an unknown call",
		"namespace", k.Namespace, "run", k.Run, "turn", k.Turn, "call", k.Call,
		"decision", string(in.Decision), "actor", in.Actor, "state", record.State.String())
	return viewCall(record), nil
}

// again answers a decision about a call that is not unknown.
func (s *Server) again(ctx context.Context, k keystore.Key, e *keystore.Event, body []byte) (any, error) {
	r, err := s.store.Call(ctx, k)
	if err != nil {
		return nil, err
	}
	if standsAlready(r, e, body) {
		return viewCall(r), nil
	}
	refusal := refuse(NotUnknown, "The call is in state %s, and only an unknown call can be decided about. Nothing was changed.", r.State)
	refusal.record = r
	return nil, refusal
}

// standsAlready reports whether the newest decision on record is the same, and
// nothing has moved the call since.
func standsAlready(r *keystore.Record, e *keystore.Event, body []byte) bool {
	i := len(r.History) - 1
	for i >= 0 && !isDecision(r.History[i].Event) {
		i--
	}
	if i < 0 || r.History[i].Event != e.Kind || r.History[i].To != r.State {
		return false
	}
	return e.Receipt == nil || sameReceipt(r.Receipt, e.Receipt, body)
}

func isDecision(k keystore.EventKind) bool {
	for _, event := range decided {
		if event == k {
			return true
		}
	}
	return false
}

func sameReceipt(kept, given *keystore.Receipt, body []byte) bool {
	if kept == nil || kept.Status != given.Status || !slices.Equal(kept.Header, given.Header) || kept.Body.Bytes != int64(len(body)) {
		return false
	}
	return len(body) == 0 || kept.Body.SHA256 == sha256.Sum256(body)
}

// readOrder reads the one JSON object of the request's body.
func readOrder(r *http.Request, in any) error {
	if err := wantJSON(r); err != nil {
		return err
	}
	raw, err := io.ReadAll(r.Body)
	if isTooLarge(err) {
		return refuse(InputTooLarge, "A decision has at most %d bytes, a receipt's body 1 MiB.", orderBytesMax)
	}
	if err != nil {
		return refuse(InvalidRequest, "The body broke off. Send it again.")
	}
	if !utf8.Valid(raw) {
		return refuse(InvalidRequest, "The body is not UTF-8. Send bytes that are not text as receipt.body_base64.")
	}
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.DisallowUnknownFields()
	if err := dec.Decode(in); err != nil {
		return refuse(InvalidRequest, "The body is not the JSON of a decision: %s.", strings.TrimPrefix(err.Error(), "json: "))
	}
	if _, err := dec.Token(); err != io.EOF {
		return refuse(InvalidRequest, "The body has more than one JSON value.")
	}
	return nil
}

func (in *Resolution) check() error {
	switch {
	case decided[in.Decision] == 0:
		return refuse(InvalidRequest, "The decision %q is none: say applied, not_applied, abandon or recheck.", in.Decision)
	case in.Receipt != nil && in.Decision != Applied:
		return refuse(InvalidRequest, "A receipt comes only with the decision applied.")
	}
	return checkWords(in.Actor, in.Note)
}

// checkWords checks who decides and why.
func checkWords(actor, note string) error {
	switch {
	case strings.TrimSpace(actor) == "":
		return refuse(InvalidRequest, "Say in actor who decides: it is kept with the call.")
	case len(actor) > keystore.ReasonBytesMax:
		return refuse(InvalidRequest, "The actor has at most %d bytes.", keystore.ReasonBytesMax)
	case len(note) > keystore.NoteBytesMax:
		return refuse(InvalidRequest, "The note has at most %d bytes.", keystore.NoteBytesMax)
	}
	return nil
}

// event is what the decision puts on record, and the body of its receipt.
func (in *Resolution) event() (keystore.Event, []byte, error) {
	e := keystore.Event{Kind: decided[in.Decision], Actor: in.Actor, Note: in.Note}
	if in.Decision != Applied {
		return e, nil, nil
	}
	given := in.Receipt
	if given == nil {
		given = &GivenReceipt{}
	}
	body, err := given.check()
	if err != nil {
		return e, nil, err
	}
	header, err := given.header()
	e.Receipt = &keystore.Receipt{Status: given.Status, Header: header}
	if given.Status == 0 {
		e.Receipt.Status = http.StatusOK
	}
	return e, body, err
}

func (g *GivenReceipt) check() ([]byte, error) {
	body := []byte(g.Body)
	if g.Body == "" {
		body = g.BodyBase64
	}
	switch {
	case g.Status != 0 && (g.Status < 200 || g.Status > 599):
		return nil, refuse(InvalidRequest, "The receipt's status is a final one, from 200 to 599.")
	case g.Body != "" && len(g.BodyBase64) > 0:
		return nil, refuse(InvalidRequest, "The receipt has a body or a body_base64, not both.")
	case len(body) > ReceiptBytesMax:
		return nil, refuse(InputTooLarge, "The receipt's body has at most %d bytes.", ReceiptBytesMax)
	case len(body) > 0 && (g.Status == http.StatusNoContent || g.Status == http.StatusNotModified):
		return nil, refuse(InvalidRequest, "A receipt with status %d has no body.", g.Status)
	}
	return body, nil
}

// header is the receipt's, in the order of the names.
func (g *GivenReceipt) header() (classify.Header, error) {
	var h classify.Header
	total := 0
	for _, name := range slices.Sorted(maps.Keys(g.Headers)) {
		for _, value := range g.Headers[name] {
			if !isFieldName(name) || !isFieldValue(value) {
				return nil, refuse(InvalidRequest, "The receipt's header %q is not one that HTTP can carry.", name)
			}
			h = append(h, classify.Field{Name: name, Value: value})
			total += len(name) + len(value)
		}
	}
	if len(h) > receiptHeadersMax || total > headerBytesMax {
		return nil, refuse(InputTooLarge, "A receipt has at most %d headers of %d bytes together.", receiptHeadersMax, headerBytesMax)
	}
	return classify.EndToEnd(h), nil
}

// isFieldName reports whether s is a token (RFC 9110 section 5.6.2).
func isFieldName(s string) bool {
	for i := range len(s) {
		c := s[i]
		isAlphanumeric := c|0x20 >= 'a' && c|0x20 <= 'z' || c >= '0' && c <= '9'
		if !isAlphanumeric && strings.IndexByte("!#$%&'*+-.^_`|~", c) < 0 {
			return false
		}
	}
	return s != ""
}

// isFieldValue reports whether s holds no control character but the tab (RFC
// 9110 section 5.5).
func isFieldValue(s string) bool {
	return strings.IndexFunc(s, func(r rune) bool { return r < ' ' && r != '\t' || r == 0x7f }) < 0
}

package admin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"

	"counterfoil/keystore"
)

// A Problem is a refusal of this listener by name. The names go over the wire:
// they are only ever added to.
type Problem string

// What this listener refuses. Names that the data listener has too mean the
// same here.
const (
	InvalidRequest       Problem = "invalid-request"
	InvalidKey           Problem = "invalid-key"
	Unauthorized         Problem = "unauthorized"
	HostNotAllowed       Problem = "host-not-allowed"
	NotFound             Problem = "not-found"
	MethodNotAllowed     Problem = "method-not-allowed"
	NotUnknown           Problem = "not-unknown"
	NotHeld              Problem = "not-held"
	InputTooLarge        Problem = "input-too-large"
	UnsupportedMediaType Problem = "unsupported-media-type"
	RecordUnreadable     Problem = "record-unreadable"
	JournalUnavailable   Problem = "journal-unavailable"
)

// problems says how each is answered.
var problems = map[Problem]struct {
	status int
	title  string
}{
	InvalidRequest:       {http.StatusBadRequest, "The request is not valid"},
	InvalidKey:           {http.StatusBadRequest, "The key is not valid"},
	Unauthorized:         {http.StatusUnauthorized, "The admin token is missing or wrong"},
	HostNotAllowed:       {http.StatusForbidden, "The host or origin is not allowed"},
	NotFound:             {http.StatusNotFound, "Nothing is on record under that name"},
	MethodNotAllowed:     {http.StatusMethodNotAllowed, "The method is not allowed here"},
	NotUnknown:           {http.StatusConflict, "The call is not unknown"},
	NotHeld:              {http.StatusConflict, "The call is not held"},
	InputTooLarge:        {http.StatusRequestEntityTooLarge, "The request is too large"},
	UnsupportedMediaType: {http.StatusUnsupportedMediaType, "The media type is not supported"},
	RecordUnreadable:     {http.StatusInternalServerError, "The record cannot be read"},
	JournalUnavailable:   {http.StatusServiceUnavailable, "The journal is not available"},
}

// A Document is the body of a refusal: a problem document (RFC 9457).
type Document struct {
	Type   string `json:"type"`
	Title  string `json:"title"`
	Status int    `json:"status"`
	// Detail says what to do next.
	Detail   string `json:"detail"`
	Instance string `json:"instance,omitempty"`
	// The call that the request named, and its state, where they are known.
	Namespace string `json:"namespace,omitempty"`
	Run       string `json:"run,omitempty"`
	Turn      string `json:"turn,omitempty"`
	Call      string `json:"call,omitempty"`
	Key       string `json:"key,omitempty"`
	State     string `json:"state,omitempty"`
}

// A refusal is an error that knows how it is to be answered.
type refusal struct {
	problem Problem
	detail  string
	record  *keystore.Record
}

func (r *refusal) Error() string { return r.detail }

func refuse(p Problem, format string, args ...any) *refusal {
	return &refusal{problem: p, detail: fmt.Sprintf(format, args...)}
}

// refusalOf says how an error is answered. What a store says about itself stays
// inside.
func refusalOf(err error) *refusal {
	var known *refusal
	switch {
	case errors.As(err, &known):
		return known
	case errors.Is(err, keystore.ErrInvalidKey):
		return refuse(InvalidKey, "%s. Each part of a key is 1 to %d bytes of UTF-8.", err, keystore.PartBytesMax)
	case errors.Is(err, keystore.ErrNotFound):
		return refuse(NotFound, "Nothing is on record under that name. Look at its spelling and its namespace.")
	case errors.Is(err, keystore.ErrTooLarge):
		return refuse(InputTooLarge, "The journal cannot keep something this large.")
	case errors.Is(err, keystore.ErrCorrupt), errors.Is(err, keystore.ErrNewerFormat):
		return refuse(RecordUnreadable, "The journal cannot read what it has. The sidecar's log says more.")
	case errors.Is(err, keystore.ErrUnavailable), errors.Is(err, context.DeadlineExceeded):
		return refuse(JournalUnavailable, "The journal does not answer now. Send the same again later: a decision is taken once.")
	}
	return refuse(JournalUnavailable, "Something went wrong inside. The sidecar's log says more.")
}

// writeRefusal is the one place that answers a request with a problem.
func writeRefusal(w http.ResponseWriter, req *http.Request, r *refusal) {
	form := problems[r.problem]
	d := Document{
		Type: "urn:counterfoil:problem:" + string(r.problem), Title: form.title, Status: form.status,
		Detail: r.detail, Instance: req.URL.EscapedPath(),
	}
	if r.record != nil {
		v := viewCall(r.record)
		d.Namespace, d.Run, d.Turn, d.Call, d.Key, d.State = v.Namespace, v.Run, v.Turn, v.Call, v.Key, v.State
	}
	if r.problem == Unauthorized {
		w.Header().Set("WWW-Authenticate", `Bearer realm="counterfoil admin"`)
	}
	writeJSON(w, form.status, "application/problem+json", d)
}

func writeJSON(w http.ResponseWriter, status int, mediaType string, v any) {
	h := w.Header()
	h.Set("Content-Type", mediaType)
	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v) //nolint:errchkjson // the client may be gone
}

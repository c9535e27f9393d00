package proxy

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"counterfoil/internal/journal"
)

// readJSON reads the body as one JSON document into v, which is a pointer to a
// struct, or leaves v alone if there is no body. A member that v does not have is
// refused by name. What v keeps of the body it must copy: release gives its
// memory back.
func (x *exchange) readJSON(ctx context.Context, v any) (release func(), err error) {
	body, release, err := x.readDocument(ctx)
	if err != nil || len(body) == 0 {
		return release, err
	}
	return release, decodeStrictly(body, v)
}

// readDocument reads the body, without the white space around it. It is empty
// where there is none.
func (x *exchange) readDocument(ctx context.Context) (body []byte, release func(), err error) {
	for _, coding := range x.header.Values("Content-Encoding") {
		if coding != "" && !strings.EqualFold(coding, "identity") {
			return nil, nothing, invalid("Content-Encoding: bodies are taken as they are, without a coding.")
		}
	}
	body, release, refusal := x.readBody(ctx)
	if refusal != nil {
		return nil, release, &refusalError{refusal}
	}
	x.bodyRead = true
	return trimSpace(body), release, nil
}

// decodeStrictly reads one JSON document (RFC 8259). The error is a refusal that
// names what is wrong.
func decodeStrictly(body []byte, v any) error {
	d := json.NewDecoder(bytes.NewReader(body))
	d.DisallowUnknownFields()
	if err := d.Decode(v); err != nil {
		return invalid("The body: %s.", explainJSON(err))
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return invalid("The body: there is more after the JSON document.")
	}
	return nil
}

// explainJSON says in a client's words what encoding/json says in Go's.
func explainJSON(err error) string {
	var kind *json.UnmarshalTypeError
	var syntax *json.SyntaxError
	switch {
	case errors.As(err, &kind) && kind.Field != "":
		return fmt.Sprintf("%s is a %s, which it cannot be", kind.Field, kind.Value)
	case errors.As(err, &kind):
		return "it is a " + kind.Value + ", not an object"
	case errors.As(err, &syntax):
		return fmt.Sprintf("it is not JSON at byte %d", syntax.Offset)
	case errors.Is(err, io.ErrUnexpectedEOF):
		return "it is cut off"
	}
	if name, found := strings.CutPrefix(err.Error(), "json: unknown field "); found {
		return "there is no member " + name + " here"
	}
	return "it cannot be read"
}

// invalid is the refusal of what a client sent to the agent API.
func invalid(format string, args ...any) error {
	return &refusalError{&journal.Refusal{Problem: journal.InvalidRequest, Detail: fmt.Sprintf(format, args...) + " Nothing was changed."}}
}

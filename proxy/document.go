package proxy

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"counterfoil/internal/journal"
)

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

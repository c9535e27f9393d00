package proxy

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"counterfoil/internal/journal"
)

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

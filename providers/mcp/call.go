package mcp

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"counterfoil/classify"
	"counterfoil/providers"
)

// A call is a tools/call.
type call struct {
	message  *message
	known    *tool
	trusts   bool
	streams  *streams
	revision string
	accepts  string
	session  string
}

// Kind is the JSON-RPC method.
func (c *call) Kind() string { return c.message.method }

// Names is the tool.
func (c *call) Names() []string { return []string{c.message.tool} }

// Class takes the server's word only where the configuration trusts it. A tool of
// which nothing is known may do anything.
func (c *call) Class() classify.Class {
	switch {
	case !c.trusts || c.known == nil:
		return classify.Effect
	case c.known.readOnly == yes:
		return classify.Read
	case c.known.idempotent == yes:
		return classify.Idempotent
	}
	return classify.Effect
}

// Changes takes the server's word, trusted or not, that a tool changes something:
// a hint may make a call safer.
func (c *call) Changes() bool {
	return c.known != nil && (c.known.readOnly == no || c.known.destructive == yes && c.known.readOnly != yes)
}

// Names under which a client may say in _meta whose call it is.
const (
	runMeta  = "counterfoil/run"
	turnMeta = "counterfoil/turn"
	callMeta = "counterfoil/call"
)

// Identity reads params._meta. The JSON-RPC id is no identity: each try has another.
func (c *call) Identity() (providers.Identity, error) {
	var id providers.Identity
	if c.message.meta == nil || c.message.meta[0] != '{' {
		return id, nil
	}
	all, ok := members(c.message.meta)
	if !ok {
		return id, errors.New("a name stands twice in params._meta")
	}
	for name, part := range map[string]*string{runMeta: &id.Run, turnMeta: &id.Turn, callMeta: &id.Call} {
		raw := all[name]
		if raw == nil {
			continue
		}
		if json.Unmarshal(raw, part) != nil || raw[0] != '"' || *part == "" || len(*part) > 256 || isMangled(*part) {
			return id, fmt.Errorf("%s in params._meta: write 1 to 256 bytes of text", name)
		}
	}
	return id, nil
}

// Print keeps tool and arguments alone: id, progress token and what the server
// asked for in between change with each try.
func (c *call) Print(r *classify.Request) *classify.Request {
	name, err := json.Marshal(c.message.tool)
	if err != nil {
		return r
	}
	arguments := c.message.arguments
	if arguments == nil {
		arguments = []byte("{}")
	}
	printed := *r
	printed.Header = classify.Header{{Name: "Content-Type", Value: "application/json"}}
	printed.Body = fmt.Appendf(nil, `{"tool":%s,"arguments":%s}`, name, arguments)
	return &printed
}

// Reply makes one message of an answer on record, with this request's id. What
// the server said and asked on the way belongs to the first try.
func (c *call) Reply(a providers.Answer) (providers.Answer, error) {
	response := responseIn(a)
	at, err := classify.Locate(response, []string{"id"})
	switch {
	case (err != nil || !at.Found) && (a.Status < 200 || a.Status > 299):
		return a, nil // refused by HTTP alone: nothing in it names the request
	case response == nil:
		return a, errors.New("it holds no response that could be given again")
	case err != nil || !at.Found:
		return a, errors.New("its response has no id")
	}
	body := bytes.Join([][]byte{response[:at.Start], c.message.id, response[at.End:]}, nil)
	return c.answer(a.Status, a.Header, body), nil
}

// answer gives a message in the form that the client takes: JSON, unless it takes
// nothing but events.
func (c *call) answer(status int, h classify.Header, body []byte) providers.Answer {
	h = h.Without(func(name string) bool {
		lower := strings.ToLower(name)
		return strings.HasPrefix(lower, "content-") || lower == "etag" || lower == "cache-control"
	})
	media := "application/json"
	if strings.Contains(c.accepts, "text/event-stream") && !strings.Contains(c.accepts, "application/json") && !strings.Contains(c.accepts, "*/*") {
		media = "text/event-stream"
		body = bytes.Join([][]byte{[]byte("event: message\ndata: "), bytes.ReplaceAll(bytes.ReplaceAll(body, []byte("\r"), nil), []byte("\n"), nil), []byte("\n\n")}, nil)
	}
	return providers.Answer{Status: status, Header: h.Set("Content-Type", media), Body: body}
}

// statelessRevision is the first in which results say of what kind they are.
const statelessRevision = "2026-07-28"

// Refuse words a refusal as the result of a tool that failed, which a model can
// read: a bare status would be taken for a broken transport.
func (c *call) Refuse(problem []byte, text string) providers.Answer {
	result := map[string]any{
		"content":           []map[string]string{{"type": "text", "text": text}},
		"structuredContent": json.RawMessage(bytes.TrimSpace(problem)),
		"isError":           true,
	}
	if c.revision >= statelessRevision {
		result["resultType"] = "complete"
	}
	body, err := json.Marshal(map[string]any{"jsonrpc": "2.0", "id": json.RawMessage(c.message.id), "result": result})
	if err != nil {
		body = []byte(`{"jsonrpc":"2.0","id":null,"error":{"code":-32603,"message":"refused"}}`)
	}
	return c.answer(200, classify.Header{{Name: "Cache-Control", Value: "no-store"}}, body)
}

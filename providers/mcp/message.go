package mcp

import (
	"bytes"
	"encoding/json"
	"strings"
	"unicode/utf8"

	"counterfoil/classify"
)

// messageBytesMax bounds a message that is read.
const messageBytesMax = 10 << 20

// A message is one JSON-RPC message of a client.
type message struct {
	method string
	// id is JSON as it was sent, nil for a notification.
	id []byte
	// name is what Mcp-Name mirrors: the tool, prompt or URI.
	name    string
	hasName bool

	// tool and arguments are a tools/call's; arguments is JSON, nil if none.
	tool      string
	arguments []byte
	meta      []byte
}

// A fault is what is wrong with a message; 0 is nothing.
type fault uint8

const (
	notJSON fault = iota + 1
	isBatch
	oddNames
	oddMembers
	noTool
	isCoded
	noID
)

// faults says how each is answered.
var faults = [...]struct {
	code int
	text string
}{
	notJSON:    {parseError, "The body is not one JSON value."},
	isBatch:    {invalidRequest, "The body is a batch. Send each message by itself: a batch has one identity for several calls."},
	oddNames:   {invalidRequest, "A name stands twice in the message, or in another case than the specification's, so that it can be read in two ways."},
	oddMembers: {invalidRequest, "The message has no method that is text, or params that are no object."},
	noTool:     {invalidParams, "A tools/call names its tool as params.name, and its arguments are an object."},
	isCoded:    {invalidRequest, "The body is compressed, which MCP does not know."},
	noID:       {invalidRequest, "A tools/call has an id that is text or a number."},
}

// parse reads a body strictly, whatever media type it claims: servers differ in
// which they take. Nil without a fault is what is no JSON-RPC.
func parse(r *classify.Request) (*message, fault) {
	if c := r.Header.Value("Content-Encoding"); c != "" && !strings.EqualFold(c, "identity") {
		return nil, isCoded
	}
	body := bytes.TrimLeft(bytes.TrimPrefix(r.Body, []byte("\xef\xbb\xbf")), " \t\r\n")
	looksJSON := len(body) > 0 && (body[0] == '{' || body[0] == '[')
	switch {
	case !looksJSON && !strings.Contains(strings.ToLower(r.Header.Value("Content-Type")), "json"):
		return nil, 0
	case len(body) == 0 || len(body) > messageBytesMax || !json.Valid(body) || !utf8.Valid(body):
		return nil, notJSON
	case body[0] == '[':
		return nil, isBatch
	case body[0] != '{' || len(body) != len(bytes.TrimLeft(r.Body, " \t\r\n")):
		return nil, notJSON
	}
	top, ok := members(body, "jsonrpc", "id", "method", "params", "result", "error")
	switch {
	case !ok:
		return nil, oddNames
	case top["method"] == nil && top["jsonrpc"] == nil:
		return nil, 0
	case top["method"] == nil:
		return &message{}, 0 // a response to the server
	}
	return request(top)
}

func request(top map[string]json.RawMessage) (*message, fault) {
	m := &message{}
	if json.Unmarshal(top["method"], &m.method) != nil || top["method"][0] != '"' {
		return nil, oddMembers
	}
	if id := top["id"]; id != nil && string(id) != "null" {
		m.id = id
	}
	var params map[string]json.RawMessage
	if raw := top["params"]; raw != nil && string(raw) != "null" {
		if raw[0] != '{' {
			if m.method == "tools/call" {
				return nil, oddMembers
			}
			return m, 0
		}
		var ok bool
		if params, ok = members(raw, "name", "arguments", "_meta", "uri"); !ok {
			return nil, oddNames
		}
	}
	m.meta = params["_meta"]
	for _, name := range []string{"name", "uri"} {
		if raw := params[name]; raw != nil && raw[0] == '"' && !m.hasName {
			m.hasName = json.Unmarshal(raw, &m.name) == nil
		}
	}
	if m.method != "tools/call" {
		return m, 0
	}
	return m.asCall(params)
}

func (m *message) asCall(params map[string]json.RawMessage) (*message, fault) {
	raw := params["name"]
	switch {
	case raw == nil || raw[0] != '"' || json.Unmarshal(raw, &m.tool) != nil || m.tool == "" || isMangled(m.tool):
		return nil, noTool
	case m.id == nil || m.id[0] == '{' || m.id[0] == '[' || m.id[0] == 't' || m.id[0] == 'f':
		return nil, noID
	}
	m.name, m.hasName = m.tool, true
	if a := params["arguments"]; a != nil && string(a) != "null" {
		if a[0] != '{' {
			return nil, noTool
		}
		if _, ok := members(a); !ok {
			return nil, oddNames
		}
		m.arguments = a
	}
	return m, 0
}

// isMangled reports whether text may be another text: half of a surrogate pair,
// which JSON can spell, is no text, and stands here as a replacement character.
func isMangled(text string) bool { return strings.ContainsRune(text, utf8.RuneError) }

// members returns the members of an object by name. It is false where one of the
// names stands there twice, or in another case: servers differ in which they
// take.
func members(object []byte, known ...string) (map[string]json.RawMessage, bool) {
	d := json.NewDecoder(bytes.NewReader(object))
	if _, err := d.Token(); err != nil {
		return nil, false
	}
	all := map[string]json.RawMessage{}
	for d.More() {
		token, err := d.Token()
		name, isText := token.(string)
		if err != nil || !isText {
			return nil, false
		}
		var value json.RawMessage
		if d.Decode(&value) != nil {
			return nil, false
		}
		for _, k := range known {
			if name != k && strings.EqualFold(name, k) {
				return nil, false
			}
		}
		if _, twice := all[name]; twice {
			return nil, false
		}
		all[name] = value
	}
	return all, true
}

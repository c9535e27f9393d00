package mcp

import (
	"encoding/base64"
	"fmt"
	"strings"

	"counterfoil/classify"
	"counterfoil/providers"
)

// JSON-RPC error codes of the specification, and of MCP 2026-07-28.
const (
	parseError      = -32700
	invalidRequest  = -32600
	methodNotFound  = -32601
	invalidParams   = -32602
	headerMismatch  = -32020
	missingFeature  = -32021
	unknownRevision = -32022
	// elicitFirst is MCP 2025-11-25's for a user who has to go somewhere first.
	elicitFirst = -32042
)

// New returns the dialect for one server. It learns from the lists of tools that
// pass what the server says about them.
func New(s providers.Settings) providers.Dialect {
	return &dialect{tools: &tools{}, streams: &streams{}, trusts: s.TrustAnnotations}
}

type dialect struct {
	tools   *tools
	streams *streams
	trusts  bool
}

// Read refuses what a server could read in another way than we do: batches, names
// that stand twice or in other case, and headers that contradict the body.
func (d *dialect) Read(r *classify.Request) (providers.Content, *providers.Refusal) {
	switch {
	case r.Method == "POST":
	case r.Method == "GET":
		return resuming{at: streamPoint{r.Header.Value("Mcp-Session-Id"), r.Header.Value("Last-Event-ID")}, streams: d.streams}, nil
	case r.Method == "DELETE" && r.Header.Has("Mcp-Session-Id"):
		return passing{}, nil // the end of a session
	default:
		return nil, nil
	}
	m, wrong := parse(r)
	switch {
	case wrong != 0:
		return nil, refusal(faults[wrong].code, faults[wrong].text, nil)
	case m == nil && isOAuth(r):
		return passing{}, nil
	case m == nil:
		return nil, nil
	}
	if text := contradiction(r.Header, m); text != "" {
		return nil, refusal(headerMismatch, text, m.id)
	}
	switch m.method {
	case "tools/call":
		return &call{
			message: m, known: d.tools.of(m.tool), trusts: d.trusts, streams: d.streams,
			revision: r.Header.Value("MCP-Protocol-Version"), accepts: r.Header.Value("Accept"), session: r.Header.Value("Mcp-Session-Id"),
		}, nil
	case "tools/list":
		return listing{passing{m.method}, d.tools}, nil
	}
	return passing{m.method}, nil
}

// isOAuth reports whether a request that is no JSON-RPC is one to an authorization
// server beside the MCP server: for a token (RFC 6749, a form), or to register a
// client (RFC 7591, JSON).
func isOAuth(r *classify.Request) bool {
	media, _, _ := strings.Cut(r.Header.Value("Content-Type"), ";")
	if strings.EqualFold(strings.TrimSpace(media), "application/x-www-form-urlencoded") {
		return strings.Contains(string(r.Body), "grant_type=") || strings.Contains(string(r.Body), "token=")
	}
	at, err := classify.Locate(r.Body, []string{"redirect_uris"})
	return err == nil && at.Found
}

// refusal is an answer of HTTP status 400 with a JSON-RPC error, as servers give
// it. An id that is not known is null.
func refusal(code int, text string, id []byte) *providers.Refusal {
	if id == nil {
		id = []byte("null")
	}
	body := fmt.Appendf(nil, `{"jsonrpc":"2.0","id":%s,"error":{"code":%d,"message":%q}}`, id, code, text+" Nothing was sent.")
	return &providers.Refusal{Reason: text, Answer: &providers.Answer{
		Status: 400, Header: classify.Header{{Name: "Content-Type", Value: "application/json"}}, Body: body,
	}}
}

// contradiction says in what the routing headers of revision 2026-07-28 and the
// body differ; "" if in nothing. Headers that are not there say nothing.
func contradiction(h classify.Header, m *message) string {
	for _, f := range [...]struct{ name, want string }{{"Mcp-Method", m.method}, {"Mcp-Name", m.name}} {
		values := h.Values(f.name)
		switch {
		case len(values) == 0 || f.name == "Mcp-Name" && m.name == "" && !m.hasName:
		case len(values) > 1:
			return "The header " + f.name + " stands there more than once."
		case plain(values[0]) != f.want:
			return "The header " + f.name + " says something else than the body."
		}
	}
	return ""
}

// plain undoes the form in which a header bears what is not ASCII.
func plain(value string) string {
	inner, ok := strings.CutPrefix(value, "=?base64?")
	if inner, isWhole := strings.CutSuffix(inner, "?="); ok && isWhole {
		if text, err := base64.StdEncoding.DecodeString(inner); err == nil {
			return string(text)
		}
	}
	return value
}

// passing is everything that the journal has no part in.
type passing struct{ method string }

func (p passing) Kind() string        { return p.method }
func (passing) Names() []string       { return nil }
func (passing) Class() classify.Class { return classify.Read }

// Passes says yes.
func (passing) Passes() bool { return true }

// listing is a tools/list, from whose answer the tools are learnt.
type listing struct {
	passing
	tools *tools
}

// Watch sees a whole answer, or a stream.
func (l listing) Watch(h providers.Head) providers.Watcher {
	if h.Status != 200 {
		return nil
	}
	return &listWatcher{collector: newCollector(h), tools: l.tools}
}

package llm

import (
	"encoding/json"
	"strings"

	"counterfoil/providers"
)

// A response reads OpenAI's Responses.
type response struct{ acc account }

func newResponse() reader { return &response{} }

func (r *response) account() *account { return &r.acc }

type responseEvent struct {
	Type     string         `json:"type"`
	Item     responseItem   `json:"item"`
	Response responseAnswer `json:"response"`
}

type responseAnswer struct {
	Status string          `json:"status"`
	Output []responseItem  `json:"output"`
	Error  json.RawMessage `json:"error"`
	Usage  *responseUsage  `json:"usage"`
}

// A responseItem may be a call of any of the tools that the agent runs.
type responseItem struct {
	Type      string          `json:"type"`
	CallID    string          `json:"call_id"`
	Name      string          `json:"name"`
	Arguments json.RawMessage `json:"arguments"`
	Input     *string         `json:"input"`
	Action    json.RawMessage `json:"action"`
	Operation json.RawMessage `json:"operation"`
}

type responseUsage struct {
	InputTokens        int64 `json:"input_tokens"`
	OutputTokens       int64 `json:"output_tokens"`
	InputTokensDetails struct {
		CachedTokens int64 `json:"cached_tokens"`
	} `json:"input_tokens_details"`
	OutputTokensDetails struct {
		ReasoningTokens int64 `json:"reasoning_tokens"`
	} `json:"output_tokens_details"`
}

func (r *response) event(_ string, data []byte) {
	var e responseEvent
	if string(data) == "[DONE]" {
		return // some servers add it
	}
	if !decode(data, &e) {
		r.acc.lose("an event is not JSON")
		return
	}
	switch e.Type {
	case "response.output_item.done":
		r.item(&e.Item)
	case "response.completed", "response.incomplete":
		r.end(&e.Response)
	case "response.failed":
		r.acc.isFailed = true
		r.end(&e.Response)
	case "error":
		r.acc.isFailed = true
	}
}

func (r *response) whole(body []byte) bool {
	var a responseAnswer
	if !decode(body, &a) {
		return false
	}
	r.acc.isFailed = a.Status == "failed" || a.Status == "" && has(a.Error)
	r.end(&a)
	return true
}

// end takes what a response says of itself at its end: all of its output. A
// server that leaves it out has told the items before.
func (r *response) end(a *responseAnswer) {
	r.acc.isEnded = true
	if u := a.Usage; u != nil {
		r.acc.usage = providers.Usage{
			Input: u.InputTokens, Output: u.OutputTokens,
			CachedInput: u.InputTokensDetails.CachedTokens, Reasoning: u.OutputTokensDetails.ReasoningTokens,
		}
	}
	if len(a.Output) == 0 {
		return
	}
	r.acc.restart()
	for i := range a.Output {
		r.item(&a.Output[i])
	}
}

// item adds the item if it is a call that the agent has to answer: those alone
// have a call_id.
func (r *response) item(i *responseItem) {
	kind, isCall := strings.CutSuffix(i.Type, "_call")
	if !isCall || i.CallID == "" {
		return
	}
	c := call{id: i.CallID, tool: i.Name}
	if c.tool == "" {
		c.tool = kind
	}
	switch {
	case i.Input != nil:
		c.args, c.isText = []byte(*i.Input), true
	case has(i.Arguments):
		c.args = unquoted(i.Arguments)
	case has(i.Action):
		c.args = i.Action
	case has(i.Operation):
		c.args = i.Operation
	}
	r.acc.add(c)
}

// unquoted returns the JSON that stands in a JSON string, or raw where it is no
// string.
func unquoted(raw json.RawMessage) []byte {
	var text string
	if json.Unmarshal(raw, &text) != nil {
		return raw
	}
	return []byte(text)
}

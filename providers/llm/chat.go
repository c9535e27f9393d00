package llm

import (
	"cmp"
	"encoding/json"

	"counterfoil/providers"
)

// A chat reads Chat Completions, which many servers offer, and the completions
// of before.
type chat struct {
	acc account
	// places are the calls by choice and index.
	places map[[2]int]int
}

func newChat() reader { return &chat{places: map[[2]int]int{}} }

func (c *chat) account() *account { return &c.acc }

type chatChunk struct {
	Choices []struct {
		Index   int         `json:"index"`
		Delta   chatMessage `json:"delta"`
		Message chatMessage `json:"message"`
	} `json:"choices"`
	Usage *chatUsage      `json:"usage"`
	Error json.RawMessage `json:"error"`
}

type chatMessage struct {
	ToolCalls []struct {
		Index    *int   `json:"index"`
		ID       string `json:"id"`
		Function struct {
			Name      string `json:"name"`
			Arguments string `json:"arguments"`
		} `json:"function"`
		Custom *struct {
			Name  string `json:"name"`
			Input string `json:"input"`
		} `json:"custom"`
	} `json:"tool_calls"`
	FunctionCall *struct {
		Name      string `json:"name"`
		Arguments string `json:"arguments"`
	} `json:"function_call"`
}

type chatUsage struct {
	PromptTokens        int64 `json:"prompt_tokens"`
	CompletionTokens    int64 `json:"completion_tokens"`
	PromptTokensDetails struct {
		CachedTokens int64 `json:"cached_tokens"`
	} `json:"prompt_tokens_details"`
	CompletionTokensDetails struct {
		ReasoningTokens int64 `json:"reasoning_tokens"`
	} `json:"completion_tokens_details"`
}

func (u *chatUsage) usage() providers.Usage {
	return providers.Usage{
		Input: u.PromptTokens, Output: u.CompletionTokens,
		CachedInput: u.PromptTokensDetails.CachedTokens, Reasoning: u.CompletionTokensDetails.ReasoningTokens,
	}
}

// legacyIndex is the place of a function_call, of which there is one.
const legacyIndex = -1

func (c *chat) event(name string, data []byte) {
	if string(data) == "[DONE]" {
		c.acc.isEnded = true
		return
	}
	var chunk chatChunk
	if !decode(data, &chunk) {
		c.acc.lose("an event is not JSON")
		return
	}
	c.acc.isFailed = c.acc.isFailed || name == "error"
	c.take(&chunk)
}

func (c *chat) whole(body []byte) bool {
	var chunk chatChunk
	if !decode(body, &chunk) {
		return false
	}
	c.acc.isEnded = true
	c.take(&chunk)
	return true
}

func (c *chat) take(chunk *chatChunk) {
	c.acc.isFailed = c.acc.isFailed || has(chunk.Error)
	if chunk.Usage != nil {
		c.acc.usage = chunk.Usage.usage()
	}
	for _, choice := range chunk.Choices {
		c.message(choice.Index, &choice.Delta)
		c.message(choice.Index, &choice.Message)
	}
}

func (c *chat) message(choice int, m *chatMessage) {
	if f := m.FunctionCall; f != nil {
		c.call([2]int{choice, legacyIndex}, call{tool: f.Name}, f.Arguments)
	}
	for i, t := range m.ToolCalls {
		at := [2]int{choice, i}
		if t.Index != nil {
			at[1] = *t.Index
		}
		if t.Custom != nil {
			c.call(at, call{id: t.ID, tool: t.Custom.Name, isText: true}, t.Custom.Input)
			continue
		}
		c.call(at, call{id: t.ID, tool: t.Function.Name}, t.Function.Arguments)
	}
}

// call adds to the call at a place, or begins it. Some servers give every call
// the index 0: another id is another call.
func (c *chat) call(at [2]int, told call, args string) {
	place, isKnown := c.places[at]
	if isKnown && place < len(c.acc.calls) {
		known := &c.acc.calls[place]
		if told.id == "" || known.id == "" || told.id == known.id {
			c.complete(known, told, args)
			return
		}
	}
	if begun := c.acc.add(told); begun != nil {
		c.places[at] = len(c.acc.calls) - 1
		c.acc.extend(begun, args)
	}
}

// complete adds what a later piece says. Only the first one has to name the
// call.
func (c *chat) complete(known *call, told call, args string) {
	known.id = cmp.Or(known.id, told.id)
	known.tool = cmp.Or(known.tool, told.tool)
	known.isText = known.isText || told.isText
	c.acc.extend(known, args)
}

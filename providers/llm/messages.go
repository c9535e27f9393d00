package llm

import (
	"encoding/json"

	"counterfoil/providers"
)

// Messages reads Anthropic's Messages.
type messages struct {
	acc account
	// places are the calls by the index of their block.
	places map[int]int
}

func newMessages() reader { return &messages{places: map[int]int{}} }

func (m *messages) account() *account { return &m.acc }

type messagesEvent struct {
	Type    string         `json:"type"`
	Index   int            `json:"index"`
	Message messagesAnswer `json:"message"`
	Block   messagesBlock  `json:"content_block"`
	Delta   struct {
		Type        string `json:"type"`
		PartialJSON string `json:"partial_json"`
	} `json:"delta"`
	Usage *messagesUsage `json:"usage"`
}

type messagesAnswer struct {
	Type    string          `json:"type"`
	Content []messagesBlock `json:"content"`
	Usage   *messagesUsage  `json:"usage"`
}

type messagesBlock struct {
	Type  string          `json:"type"`
	ID    string          `json:"id"`
	Name  string          `json:"name"`
	Input json.RawMessage `json:"input"`
}

// MessagesUsage has pointers: an event says only what is new since the last.
type messagesUsage struct {
	InputTokens          *int64 `json:"input_tokens"`
	OutputTokens         *int64 `json:"output_tokens"`
	CacheReadInputTokens *int64 `json:"cache_read_input_tokens"`
	OutputTokensDetails  struct {
		ThinkingTokens *int64 `json:"thinking_tokens"`
	} `json:"output_tokens_details"`
}

func (u *messagesUsage) update(to *providers.Usage) {
	if u == nil {
		return
	}
	set(&to.Input, u.InputTokens)
	set(&to.Output, u.OutputTokens)
	set(&to.CachedInput, u.CacheReadInputTokens)
	set(&to.Reasoning, u.OutputTokensDetails.ThinkingTokens)
}

func set(to, from *int64) {
	if from != nil {
		*to = *from
	}
}

func (m *messages) event(_ string, data []byte) {
	var e messagesEvent
	if !decode(data, &e) {
		m.acc.lose("an event is not JSON")
		return
	}
	switch e.Type {
	case "message_start":
		e.Message.Usage.update(&m.acc.usage)
	case "content_block_start":
		m.begin(e.Index, &e.Block)
	case "content_block_delta":
		m.extend(e.Index, e.Delta.PartialJSON)
	case "message_delta":
		e.Usage.update(&m.acc.usage)
	case "message_stop":
		m.acc.isEnded = true
	case "error":
		m.acc.isFailed = true
	}
}

func (m *messages) whole(body []byte) bool {
	var a messagesAnswer
	if !decode(body, &a) {
		return false
	}
	m.acc.isEnded, m.acc.isFailed = true, a.Type == "error"
	a.Usage.update(&m.acc.usage)
	for i := range a.Content {
		m.begin(i, &a.Content[i])
	}
	return true
}

// begin takes the block if it is a call that the agent has to answer. Those that
// Anthropic answers itself are server_tool_use.
func (m *messages) begin(index int, b *messagesBlock) {
	if b.Type != "tool_use" {
		return
	}
	if m.acc.add(call{id: b.ID, tool: b.Name, args: b.Input}) != nil {
		m.places[index] = len(m.acc.calls) - 1
	}
}

// extend adds a piece of the arguments, in place of the empty object that a
// block begins with in a stream.
func (m *messages) extend(index int, piece string) {
	place, isCall := m.places[index]
	if !isCall || piece == "" || place >= len(m.acc.calls) {
		return
	}
	c := &m.acc.calls[place]
	if string(c.args) == "{}" {
		c.args = nil
	}
	m.acc.extend(c, piece)
}

package fake

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
)

// Messages.

func readMessages(body []byte) (Question, error) {
	var b struct {
		Stream   bool `json:"stream"`
		Messages []struct {
			Role    string          `json:"role"`
			Content json.RawMessage `json:"content"`
		} `json:"messages"`
	}
	err := json.Unmarshal(body, &b)
	q := Question{API: "messages", IsStream: b.Stream}
	for _, m := range b.Messages {
		if m.Role == "assistant" {
			q.Steps++
			continue
		}
		var blocks []struct {
			Type      string          `json:"type"`
			ToolUseID string          `json:"tool_use_id"`
			Content   json.RawMessage `json:"content"`
		}
		_ = json.Unmarshal(m.Content, &blocks) // or a text
		for _, block := range blocks {
			if block.Type == "tool_result" {
				q.Results = append(q.Results, Result{block.ToolUseID, plainText(block.Content)})
			}
		}
		q.Task = cmp.Or(q.Task, plainText(m.Content))
	}
	return q, err
}

func sayMessages(nth int64, s Said) modelWire {
	m := messageWriter{reason: "end_turn"}
	head := modelObject{"id": fmt.Sprintf("msg_%d", nth), "type": "message", "role": "assistant", "model": "stand-in"}
	usage := func(output int) modelObject {
		return modelObject{"input_tokens": 20, "cache_read_input_tokens": 4, "cache_creation_input_tokens": 0, "output_tokens": output}
	}
	m.add("message_start", modelObject{"message": joined(head, modelObject{"content": []modelObject{}, "stop_reason": nil, "stop_sequence": nil, "usage": usage(1)})})
	m.add("ping", modelObject{})
	if s.Text != "" {
		m.block(modelObject{"type": "text", "text": ""}, modelObject{"type": "text", "text": s.Text}, "text_delta", "text", s.Text)
	}
	for i, u := range s.Uses {
		block := modelObject{"type": "tool_use", "id": saidID("toolu", nth, i), "name": u.Tool}
		m.reason = "tool_use"
		m.block(joined(block, modelObject{"input": modelObject{}}), joined(block, modelObject{"input": u.Args}), "input_json_delta", "partial_json", string(saidJSON(u.Args)))
	}
	m.add("message_delta", modelObject{"delta": modelObject{"stop_reason": m.reason, "stop_sequence": nil}, "usage": modelObject{"output_tokens": 9}})
	m.add("message_stop", modelObject{})
	return modelWire{
		answer:  joined(head, modelObject{"content": m.content, "stop_reason": m.reason, "stop_sequence": nil, "usage": usage(9)}),
		events:  m.events,
		failure: modelEvent{"error", modelObject{"type": "error", "error": modelObject{"type": "overloaded_error", "message": "Overloaded"}}},
	}
}

// A messageWriter gathers the events and the blocks of a message.
type messageWriter struct {
	events  []modelEvent
	content []modelObject
	reason  string
}

func (m *messageWriter) add(kind string, data modelObject) {
	m.events = append(m.events, modelEvent{kind, joined(data, modelObject{"type": kind})})
}

func (m *messageWriter) block(begun, done modelObject, kind, name, text string) {
	at := len(m.content)
	m.add("content_block_start", modelObject{"index": at, "content_block": begun})
	for _, half := range saidHalves(text) {
		m.add("content_block_delta", modelObject{"index": at, "delta": modelObject{"type": kind, name: half}})
	}
	m.add("content_block_stop", modelObject{"index": at})
	m.content = append(m.content, done)
}

// joined is one object that has the members of both.
func joined(a, b modelObject) modelObject {
	both := make(modelObject, len(a)+len(b))
	maps.Copy(both, a)
	maps.Copy(both, b)
	return both
}

package fake

import (
	"cmp"
	"encoding/json"
	"fmt"
)

// Chat Completions.

func readChat(body []byte) (Question, error) {
	var b struct {
		Stream   bool `json:"stream"`
		Messages []struct {
			Role       string          `json:"role"`
			Content    json.RawMessage `json:"content"`
			ToolCallID string          `json:"tool_call_id"`
		} `json:"messages"`
	}
	err := json.Unmarshal(body, &b)
	q := Question{API: "chat", IsStream: b.Stream}
	for _, m := range b.Messages {
		switch m.Role {
		case "user":
			q.Task = cmp.Or(q.Task, plainText(m.Content))
		case "assistant":
			q.Steps++
		case "tool":
			q.Results = append(q.Results, Result{m.ToolCallID, plainText(m.Content)})
		}
	}
	return q, err
}

func sayChat(nth int64, s Said) modelWire {
	id := fmt.Sprintf("chatcmpl-%d", nth)
	reason := "stop"
	if len(s.Uses) > 0 {
		reason = "tool_calls"
	}
	usage := modelObject{"prompt_tokens": 20, "completion_tokens": 9, "total_tokens": 29,
		"prompt_tokens_details": modelObject{"cached_tokens": 4}, "completion_tokens_details": modelObject{"reasoning_tokens": 2}}
	chunk := func(choices []modelObject, usage any) modelEvent {
		return modelEvent{data: modelObject{"id": id, "object": "chat.completion.chunk", "created": 1, "model": "stand-in", "choices": choices, "usage": usage}}
	}
	delta := func(d modelObject, reason any) modelEvent {
		return chunk([]modelObject{{"index": 0, "delta": d, "finish_reason": reason}}, nil)
	}
	events := []modelEvent{delta(modelObject{"role": "assistant", "content": ""}, nil)}
	for _, half := range saidHalves(s.Text) {
		events = append(events, delta(modelObject{"content": half}, nil))
	}
	uses := make([]modelObject, len(s.Uses))
	for i, u := range s.Uses {
		args := string(saidJSON(u.Args))
		uses[i] = modelObject{"id": saidID("call", nth, i), "type": "function", "function": modelObject{"name": u.Tool, "arguments": args}}
		begin := modelObject{"index": i, "id": saidID("call", nth, i), "type": "function", "function": modelObject{"name": u.Tool, "arguments": ""}}
		events = append(events, delta(modelObject{"tool_calls": []modelObject{begin}}, nil))
		for _, half := range saidHalves(args) {
			events = append(events, delta(modelObject{"tool_calls": []modelObject{{"index": i, "function": modelObject{"arguments": half}}}}, nil))
		}
	}
	message := modelObject{"role": "assistant", "content": s.Text, "refusal": nil}
	if len(uses) > 0 {
		message["tool_calls"] = uses
	}
	return modelWire{
		answer: modelObject{"id": id, "object": "chat.completion", "created": 1, "model": "stand-in", "usage": usage,
			"choices": []modelObject{{"index": 0, "message": message, "finish_reason": reason}}},
		events:  append(events, delta(modelObject{}, reason), chunk([]modelObject{}, usage), modelEvent{data: "[DONE]"}),
		failure: modelEvent{data: modelObject{"error": modelObject{"message": "overloaded", "type": "server_error", "code": nil}}},
	}
}

// Responses.

func readResponses(body []byte) (Question, error) {
	var b struct {
		Stream bool            `json:"stream"`
		Input  json.RawMessage `json:"input"`
	}
	err := json.Unmarshal(body, &b)
	q := Question{API: "responses", IsStream: b.Stream}
	var items []struct {
		Type    string          `json:"type"`
		Role    string          `json:"role"`
		Content json.RawMessage `json:"content"`
		CallID  string          `json:"call_id"`
		Output  json.RawMessage `json:"output"`
	}
	if json.Unmarshal(b.Input, &items) != nil {
		q.Task = plainText(b.Input)
		return q, err
	}
	wasResult := true
	for _, i := range items {
		switch {
		case i.Role == "user":
			q.Task = cmp.Or(q.Task, plainText(i.Content))
		case i.Type == "function_call_output":
			q.Results = append(q.Results, Result{i.CallID, plainText(i.Output)})
		case wasResult: // an answer's first item
			q.Steps++
		}
		wasResult = i.Role == "user" || i.Type == "function_call_output"
	}
	return q, err
}

func sayResponses(nth int64, s Said) modelWire {
	r := responseWriter{nth: nth}
	r.add("response.created", modelObject{"response": r.response("in_progress", nil)})
	if s.Text != "" {
		r.text(s.Text)
	}
	for _, u := range s.Uses {
		r.use(u)
	}
	usage := modelObject{"input_tokens": 20, "input_tokens_details": modelObject{"cached_tokens": 4}, "output_tokens": 9,
		"output_tokens_details": modelObject{"reasoning_tokens": 2}, "total_tokens": 29}
	whole := r.response("completed", usage)
	r.add("response.completed", modelObject{"response": whole})
	return modelWire{
		answer: whole, events: r.events,
		failure: modelEvent{"error", modelObject{"type": "error", "code": "server_error", "message": "overloaded", "param": nil, "sequence_number": len(r.events)}},
	}
}

// A responseWriter numbers the events and gathers the items of a response.
type responseWriter struct {
	nth    int64
	events []modelEvent
	output []modelObject
}

func (r *responseWriter) add(kind string, data modelObject) {
	data["type"], data["sequence_number"] = kind, len(r.events)
	r.events = append(r.events, modelEvent{kind, data})
}

func (r *responseWriter) response(status string, usage any) modelObject {
	return modelObject{"id": fmt.Sprintf("resp_%d", r.nth), "object": "response", "created_at": 1, "model": "stand-in", "status": status, "error": nil,
		"incomplete_details": nil, "instructions": nil, "metadata": modelObject{}, "parallel_tool_calls": true, "tool_choice": "auto", "tools": []modelObject{},
		"output": append([]modelObject{}, r.output...), "usage": usage}
}

// item adds one that begins, has pieces of a kind, and is done.
func (r *responseWriter) item(begun, done modelObject, pieces func(at modelObject)) {
	at := len(r.output)
	r.add("response.output_item.added", modelObject{"output_index": at, "item": begun})
	pieces(modelObject{"output_index": at, "item_id": done["id"]})
	r.add("response.output_item.done", modelObject{"output_index": at, "item": done})
	r.output = append(r.output, done)
}

func (r *responseWriter) text(text string) {
	id := saidID("msg", r.nth, len(r.output))
	message := func(status string, content ...modelObject) modelObject {
		return modelObject{"id": id, "type": "message", "role": "assistant", "status": status, "content": append([]modelObject{}, content...)}
	}
	part := func(text string) modelObject {
		return modelObject{"type": "output_text", "text": text, "annotations": []modelObject{}, "logprobs": []modelObject{}}
	}
	r.item(message("in_progress"), message("completed", part(text)), func(at modelObject) {
		member := func(name string, value any) modelObject {
			return modelObject{"output_index": at["output_index"], "item_id": at["item_id"], "content_index": 0, name: value, "logprobs": []modelObject{}}
		}
		r.add("response.content_part.added", member("part", part("")))
		for _, half := range saidHalves(text) {
			r.add("response.output_text.delta", member("delta", half))
		}
		r.add("response.output_text.done", member("text", text))
		r.add("response.content_part.done", member("part", part(text)))
	})
}

func (r *responseWriter) use(u Use) {
	args := string(saidJSON(u.Args))
	call := func(status, args string) modelObject {
		return modelObject{"id": saidID("fc", r.nth, len(r.output)), "type": "function_call", "status": status, "call_id": saidID("call", r.nth, len(r.output)), "name": u.Tool, "arguments": args}
	}
	r.item(call("in_progress", ""), call("completed", args), func(at modelObject) {
		member := func(name, value string) modelObject {
			return modelObject{"output_index": at["output_index"], "item_id": at["item_id"], name: value}
		}
		for _, half := range saidHalves(args) {
			r.add("response.function_call_arguments.delta", member("delta", half))
		}
		r.add("response.function_call_arguments.done", member("arguments", args))
	})
}

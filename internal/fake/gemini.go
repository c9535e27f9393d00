package fake

import (
	"cmp"
	"encoding/json"
)

// Gemini's generateContent.

func readGemini(body []byte) (Question, error) {
	var b struct {
		Contents []struct {
			Role  string `json:"role"`
			Parts []struct {
				Text             string `json:"text"`
				FunctionResponse *struct {
					ID       string          `json:"id"`
					Response json.RawMessage `json:"response"`
				} `json:"functionResponse"`
			} `json:"parts"`
		} `json:"contents"`
	}
	err := json.Unmarshal(body, &b)
	q := Question{API: "generateContent"}
	for _, c := range b.Contents {
		if c.Role == "model" {
			q.Steps++
			continue
		}
		for _, p := range c.Parts {
			q.Task = cmp.Or(q.Task, p.Text)
			if f := p.FunctionResponse; f != nil {
				q.Results = append(q.Results, Result{f.ID, string(f.Response)})
			}
		}
	}
	return q, err
}

func sayGemini(nth int64, s Said) modelWire {
	var parts []modelObject
	if s.Text != "" {
		parts = append(parts, modelObject{"text": s.Text})
	}
	for i, u := range s.Uses {
		parts = append(parts, modelObject{"functionCall": modelObject{"id": saidID("call", nth, i), "name": u.Tool, "args": u.Args}})
	}
	chunk := func(reason any, parts ...modelObject) modelObject {
		candidate := modelObject{"index": 0, "content": modelObject{"role": "model", "parts": append([]modelObject{}, parts...)}}
		if reason != nil {
			candidate["finishReason"] = reason
		}
		return modelObject{"candidates": []modelObject{candidate}, "modelVersion": "stand-in",
			"usageMetadata": modelObject{"promptTokenCount": 20, "candidatesTokenCount": 9, "cachedContentTokenCount": 4, "thoughtsTokenCount": 2, "totalTokenCount": 31}}
	}
	var events []modelEvent
	for _, p := range parts {
		events = append(events, modelEvent{data: chunk(nil, p)})
	}
	return modelWire{
		answer:  chunk("STOP", parts...),
		events:  append(events, modelEvent{data: chunk("STOP")}),
		failure: modelEvent{data: modelObject{"error": modelObject{"code": 503, "message": "overloaded", "status": "UNAVAILABLE"}}},
	}
}

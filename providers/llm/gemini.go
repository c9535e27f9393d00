package llm

import (
	"encoding/json"
	"maps"
	"slices"

	"counterfoil/providers"
)

// A gemini reads generateContent and streamGenerateContent, whose stream is
// events or one JSON list.
type gemini struct {
	acc account
	// finished says of each candidate whether it has a reason to be at its end.
	finished map[int]bool
}

// candidatesMax is far above the 8 that the API allows.
const candidatesMax = 64

func newGemini() reader { return &gemini{finished: map[int]bool{}} }

func (g *gemini) account() *account { return &g.acc }

type geminiChunk struct {
	Candidates []struct {
		Index   int `json:"index"`
		Content struct {
			Parts []geminiPart `json:"parts"`
		} `json:"content"`
		FinishReason string `json:"finishReason"`
	} `json:"candidates"`
	PromptFeedback struct {
		BlockReason string `json:"blockReason"`
	} `json:"promptFeedback"`
	UsageMetadata *geminiUsage    `json:"usageMetadata"`
	Error         json.RawMessage `json:"error"`
}

type geminiPart struct {
	FunctionCall *struct {
		ID           string          `json:"id"`
		Name         string          `json:"name"`
		Args         json.RawMessage `json:"args"`
		PartialArgs  json.RawMessage `json:"partialArgs"`
		WillContinue bool            `json:"willContinue"`
	} `json:"functionCall"`
}

type geminiUsage struct {
	PromptTokenCount        int64 `json:"promptTokenCount"`
	CandidatesTokenCount    int64 `json:"candidatesTokenCount"`
	CachedContentTokenCount int64 `json:"cachedContentTokenCount"`
	ThoughtsTokenCount      int64 `json:"thoughtsTokenCount"`
}

func (g *gemini) event(_ string, data []byte) {
	var chunk geminiChunk
	if !decode(data, &chunk) {
		g.acc.lose("an event is not JSON")
		return
	}
	g.take(&chunk)
}

// whole takes one answer, or a list of pieces of which the last ones have to say
// that the model is done.
func (g *gemini) whole(body []byte) bool {
	if first(body) != '[' {
		var chunk geminiChunk
		if !decode(body, &chunk) {
			return false
		}
		g.take(&chunk)
		g.acc.isEnded = true
		return true
	}
	var chunks []geminiChunk
	if !decode(body, &chunks) {
		return false
	}
	for i := range chunks {
		g.take(&chunks[i])
	}
	return true
}

// take reads a piece. A stream has no last event of its own: it is at its end
// when every candidate has a reason to be.
func (g *gemini) take(chunk *geminiChunk) {
	g.acc.isFailed = g.acc.isFailed || has(chunk.Error)
	if u := chunk.UsageMetadata; u != nil {
		g.acc.usage = providers.Usage{
			Input: u.PromptTokenCount, Output: u.CandidatesTokenCount,
			CachedInput: u.CachedContentTokenCount, Reasoning: u.ThoughtsTokenCount,
		}
	}
	for _, c := range chunk.Candidates {
		g.finish(c.Index, c.FinishReason != "")
		for i := range c.Content.Parts {
			g.part(&c.Content.Parts[i])
		}
	}
	isBlocked := chunk.PromptFeedback.BlockReason != ""
	g.acc.isEnded = isBlocked || len(g.finished) > 0 && !slices.Contains(slices.Collect(maps.Values(g.finished)), false)
}

func (g *gemini) finish(candidate int, isFinished bool) {
	if _, isKnown := g.finished[candidate]; isKnown || len(g.finished) < candidatesMax {
		g.finished[candidate] = g.finished[candidate] || isFinished
	}
}

func (g *gemini) part(p *geminiPart) {
	f := p.FunctionCall
	switch {
	case f == nil:
	case has(f.PartialArgs) || f.WillContinue:
		g.acc.lose("arguments of its tool calls come in parts that are not read")
	default:
		g.acc.add(call{id: f.ID, tool: f.Name, args: f.Args})
	}
}

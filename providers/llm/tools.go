package llm

import (
	"encoding/json"
	"slices"
	"strings"
)

// harmlessAtOpenAI are the tools of a response that change nothing outside:
// those that the agent runs, and those of OpenAI's own that search, compute in a
// sandbox without a network or draw. Any other, first of all mcp, may act.
var harmlessAtOpenAI = []string{
	"function", "custom", "apply_patch", "local_shell", "computer", "computer_use_preview",
	"file_search", "web_search", "web_search_preview", "code_interpreter", "image_generation", "tool_search",
}

func actsAtOpenAI(t tool) bool {
	name := t.text("type")
	switch name {
	case "namespace":
		return slices.ContainsFunc(listOf(t["tools"]), actsAtOpenAI)
	case "shell":
		return objectOf(t["environment"]).text("type") != "local"
	}
	// Web search bears its date behind its name.
	return !slices.Contains(harmlessAtOpenAI, name) && !strings.HasPrefix(name, "web_search_")
}

// harmlessAtAnthropic are the first parts of the names of tools that change
// nothing outside; a date follows. One without a type is the agent's own.
var harmlessAtAnthropic = []string{
	"web_search_", "web_fetch_", "code_execution_", "bash_", "text_editor_", "computer_", "memory_", "tool_search_tool_",
}

func actsAtAnthropic(t tool) bool {
	name := t.text("type")
	if name == "" && !has(t["type"]) || name == "custom" {
		return false
	}
	return !slices.ContainsFunc(harmlessAtAnthropic, func(p string) bool { return strings.HasPrefix(name, p) })
}

// harmlessAtGemini are the members of a tool that change nothing outside, in
// both spellings that the API takes.
var harmlessAtGemini = []string{
	"functiondeclarations", "googlesearch", "googlesearchretrieval", "googlemaps", "urlcontext", "codeexecution",
	"filesearch", "computeruse", "retrieval", "enterprisewebsearch",
}

func actsAtGemini(t tool) bool {
	for name, value := range t {
		plain := strings.ToLower(strings.ReplaceAll(name, "_", ""))
		if has(value) && !slices.Contains(harmlessAtGemini, plain) {
			return true
		}
	}
	return false
}

// A tool is what a request says of one.
type tool map[string]json.RawMessage

func (t tool) text(name string) string {
	var s string
	if json.Unmarshal(t[name], &s) != nil {
		return ""
	}
	return s
}

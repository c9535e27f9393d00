package llm

import (
	"strings"

	"counterfoil/classify"
)

// An api is one kind of request to a model.
type api struct {
	name string
	// suffixes are what the path ends in.
	suffixes []string
	// fits reports whether the body is of this API.
	fits func(*question) bool
	// class is what a request that fits does.
	class func(*question) classify.Class
	// reader makes what reads the answers to a decision; nil for reads.
	reader func() reader
}

func (a *api) isAt(path string) bool {
	for _, s := range a.suffixes {
		if strings.HasSuffix(path, s) {
			return true
		}
	}
	return false
}

// apis are tried in this order; one path is of one API alone.
var apis = [...]api{
	{"chat.completions", []string{"/chat/completions"}, fitsChat, always(classify.Decision), newChat},
	{"completions", []string{"/completions"}, fitsCompletions, always(classify.Decision), newChat},
	{"responses", []string{"/responses"}, fitsResponses, classOfResponse, newResponse},
	{"responses.input_tokens", []string{"/responses/input_tokens"}, fitsResponses, always(classify.Read), nil},
	{"embeddings", []string{"/embeddings"}, fitsInput, always(classify.Decision), newPlain},
	{"moderations", []string{"/moderations"}, fitsInput, always(classify.Decision), newPlain},
	{"messages", []string{"/messages"}, fitsMessages, classOfMessages, newMessages},
	{"messages.count_tokens", []string{"/messages/count_tokens"}, fitsCountTokens, always(classify.Read), nil},
	{"generateContent", []string{":generateContent", ":streamGenerateContent"}, fitsContents, classOfContents, newGemini},
	{"countTokens", []string{":countTokens"}, fitsGeminiCount, always(classify.Read), nil},
	{"embedContent", []string{":embedContent", ":batchEmbedContents"}, fitsEmbedContent, always(classify.Decision), newPlain},
}

func always(c classify.Class) func(*question) classify.Class {
	return func(*question) classify.Class { return c }
}

func effectIf(acts bool) classify.Class {
	if acts {
		return classify.Effect
	}
	return classify.Decision
}

func fitsChat(q *question) bool { return q.namesModel() && q.hasTurns() }

func fitsCompletions(q *question) bool {
	return q.namesModel() && (q.isText("prompt") || q.isList("prompt"))
}

func fitsResponses(q *question) bool {
	return fitsInput(q) || q.isObject("prompt")
}

// classOfResponse finds what outlives the answer: a job in the background, a
// conversation that grows, tools that OpenAI runs against others. Which tools a
// stored prompt has cannot be seen from here.
func classOfResponse(q *question) classify.Class {
	acts := q.isTrue("background") || q.isSet("conversation") || q.isSet("prompt")
	return effectIf(acts || q.anyTool(actsAtOpenAI))
}

func fitsInput(q *question) bool { return q.namesModel() && (q.isText("input") || q.isList("input")) }

func fitsMessages(q *question) bool {
	return q.namesModel() && q.hasTurns() && q.isNumber("max_tokens")
}

func fitsCountTokens(q *question) bool { return q.namesModel() && q.hasTurns() }

func classOfMessages(q *question) classify.Class {
	return effectIf(q.isFilled("mcp_servers") || q.anyTool(actsAtAnthropic))
}

func fitsContents(q *question) bool { return q.isList("contents") || q.isObject("contents") }

func classOfContents(q *question) classify.Class { return effectIf(q.anyTool(actsAtGemini)) }

func fitsGeminiCount(q *question) bool {
	return fitsContents(q) || q.isObject("generateContentRequest")
}

func fitsEmbedContent(q *question) bool { return q.isObject("content") || q.isList("requests") }

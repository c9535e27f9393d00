// Package llm reads what language models were asked and what they answered:
// OpenAI's Chat Completions and Responses, also as other servers offer them,
// Anthropic's Messages and Gemini's generateContent. [New] is where to start.
//
// A request that only makes a model think is a decision, and its answer is read
// for tool calls and usage as it comes. A request by which the provider itself
// acts or keeps work going (MCP servers, background responses, conversations) is
// an effect.
package llm

// Package llm reads what language models were asked and what they answered.
package llm

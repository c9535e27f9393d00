package proxy

import (
	"strconv"
	"strings"

	"counterfoil/classify"
)

// sdkRetry reads what SDKs say of their own tries of one call: something that
// all of them bear, and whether this is not the first.
//
//   - Those that Stainless generates, OpenAI's and Anthropic's among them, count
//     the tries before this one in X-Stainless-Retry-Count. Their idempotency keys
//     are seldom sent.
//   - AWS's count from 1 in Amz-Sdk-Request ("attempt=2; max=3"), and bear one
//     Amz-Sdk-Invocation-Id for each operation.
//   - Google's for Cloud Storage do both inside X-Goog-Api-Client
//     ("gccl-invocation-id/… gccl-attempt-count/2").
//
// Others say nothing that is known for sure.
func sdkRetry(h classify.Header) (tie string, isRetry bool) {
	for i := range h {
		f := &h[i]
		switch {
		case strings.EqualFold(f.Name, "X-Stainless-Retry-Count"):
			isRetry = isRetry || isOver(f.Value, 0)
		case strings.EqualFold(f.Name, "Amz-Sdk-Invocation-Id"):
			tie = f.Value
		case strings.EqualFold(f.Name, "Amz-Sdk-Request"):
			for param := range strings.SplitSeq(f.Value, ";") {
				n, found := strings.CutPrefix(strings.TrimSpace(param), "attempt=")
				isRetry = isRetry || found && isOver(n, 1)
			}
		case strings.EqualFold(f.Name, "X-Goog-Api-Client"):
			for token := range strings.FieldsSeq(f.Value) {
				if id, found := strings.CutPrefix(token, "gccl-invocation-id/"); found {
					tie = id
				}
				n, found := strings.CutPrefix(token, "gccl-attempt-count/")
				isRetry = isRetry || found && isOver(n, 1)
			}
		}
	}
	return tie, isRetry
}

// isOver reports whether s is a number beyond n.
func isOver(s string, n uint64) bool {
	v, err := strconv.ParseUint(strings.TrimSpace(s), 10, 32)
	return err == nil && v > n
}

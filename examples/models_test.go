package examples_test

import "testing"

// The SDKs of OpenAI and Anthropic, whole and streamed, through the sidecar.
func TestModels(t *testing.T) {
	sidecar := prepare(t, "models")
	t.Log(run(t, exampleMax, "models", nil, node22("models"), "run.mjs", "--sidecar", sidecar))
}

package demo

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
)

// plan is what the agent's model decided, once: two tools, then done.
var plan = [...]struct{ call, path, args string }{
	{"create_ticket", "/tickets", `{"title":"Printer on fire","customer":"ada@example.com"}`},
	{"send_email", "/mails", `{"to":"ada@example.com","subject":"We are on it"}`},
}

// RunAgent carries the plan out against base, the provider's address as the
// agent knows it, and writes a line for each call: its name, status, outcome
// and body. It knows of Counterfoil only that its calls have names. Any error
// is the end of it, as with a crash.
func RunAgent(ctx context.Context, base, run string, out io.Writer) error {
	for _, step := range plan {
		line, err := callTool(ctx, base+step.path, run, step.call, step.args)
		if err != nil {
			return fmt.Errorf("%s: %w", step.call, err)
		}
		fmt.Fprintln(out, line)
	}
	fmt.Fprintln(out, "done")
	return nil
}

func callTool(ctx context.Context, url, run, call, args string) (string, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, strings.NewReader(args))
	if err != nil {
		return "", err
	}
	// Idempotency-Key is left unset on purpose: net/http would repeat a request
	// that bears one.
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Counterfoil-Run", run)
	req.Header.Set("Counterfoil-Turn", "1")
	req.Header.Set("Counterfoil-Call", call)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, bodyMax))
	if err != nil {
		return "", err
	}
	if resp.StatusCode != http.StatusCreated {
		return "", fmt.Errorf("status %d: %s", resp.StatusCode, strings.TrimSpace(string(body)))
	}
	return fmt.Sprintf("%s %s %s", call, resp.Header.Get("Counterfoil-Outcome"), strings.TrimSpace(string(body))), nil
}

// The program model stands in for a model that settles a complaint: a ticket, two
// refunds at once, the ticket closed. It says something else each time it is
// asked: other words, other ids of its tool calls. It prints its address, and
// then each question as a line of JSON.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/signal"
	"sync"
	"syscall"

	"counterfoil/internal/fake"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run() error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	p := &plan{lines: json.NewEncoder(os.Stdout)}
	model := fake.Model{Decide: p.decide}
	return model.Serve(ctx, func(url string) { fmt.Fprintln(os.Stdout, url) })
}

// asked is a question as it is printed.
type asked struct {
	Task   string `json:"task"`
	API    string `json:"api"`
	Stream bool   `json:"stream"`
	Step   int    `json:"step"`
}

// A plan is what the model wants done, by what was done already.
type plan struct {
	mu    sync.Mutex
	lines *json.Encoder
}

func (p *plan) decide(q fake.Question) fake.Said {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.lines.Encode(asked{q.Task, q.API, q.IsStream, q.Steps}); err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
	said := fake.Said{Text: fmt.Sprintf("Let me see (mood %d).", q.Nth)}
	switch q.Steps {
	case 0:
		said.Uses = []fake.Use{{Tool: "open_ticket", Args: map[string]any{"title": "Broken: " + q.Task}}}
	case 1:
		said.Uses = []fake.Use{
			{Tool: "refund", Args: map[string]any{"order": "cups", "cents": 500}},
			{Tool: "refund", Args: map[string]any{"order": "saucers", "cents": 200}},
		}
	case 2:
		said.Uses = []fake.Use{{Tool: "close_ticket", Args: closing(q.Results)}}
	default:
		said.Text = fmt.Sprintf("All settled (mood %d).", q.Nth)
	}
	return said
}

// closing names the ticket and the refunds, as the tools' answers do.
func closing(results []fake.Result) map[string]any {
	ids := make([]string, len(results))
	for i, r := range results {
		var made struct {
			ID string `json:"id"`
		}
		_ = json.Unmarshal([]byte(r.Text), &made) // an answer without an id leaves it empty
		ids[i] = made.ID
	}
	if len(ids) == 0 {
		return map[string]any{}
	}
	return map[string]any{"id": ids[0], "refunds": ids[1:]}
}

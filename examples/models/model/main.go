// The program model stands in for OpenAI, Anthropic and Gemini. It prints its
// address, and then each question that it is asked as a line of JSON. The first
// word of a task can be what goes wrong the first time: cut, short, overloaded
// or unavailable.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/signal"
	"strings"
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
	s := &script{seen: map[string]bool{}, lines: json.NewEncoder(os.Stdout)}
	model := fake.Model{Decide: s.decide}
	return model.Serve(ctx, func(url string) { fmt.Fprintln(os.Stdout, url) })
}

// asked is a question as it is printed.
type asked struct {
	Task   string `json:"task"`
	API    string `json:"api"`
	Stream bool   `json:"stream"`
}

// A script is what the model says.
type script struct {
	mu    sync.Mutex
	seen  map[string]bool
	lines *json.Encoder
}

var faults = map[string]fake.Fault{
	"cut": fake.Cut, "short": fake.Short, "overloaded": fake.Overloaded, "unavailable": fake.Unavailable,
}

// decide asks for two tools at once, and talks about what they said.
func (s *script) decide(q fake.Question) fake.Said {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.lines.Encode(asked{q.Task, q.API, q.IsStream}); err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
	said := fake.Said{
		Text: fmt.Sprintf("Let me see (mood %d).", q.Nth),
		Uses: []fake.Use{
			{Tool: "refund", Args: map[string]any{"order": 7, "cents": 500}},
			{Tool: "mail", Args: map[string]any{"text": "Your money is on its way."}},
		},
	}
	if len(q.Results) > 0 {
		said = fake.Said{Text: fmt.Sprintf("All settled (mood %d).", q.Nth)}
	}
	first, _, _ := strings.Cut(q.Task, " ")
	if question := fmt.Sprint(q.API, q.IsStream, q.Task); !s.seen[question] {
		s.seen[question] = true
		said.Fault = faults[first]
	}
	return said
}

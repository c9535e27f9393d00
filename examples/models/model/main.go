// The program model stands in for OpenAI, Anthropic and Gemini. It prints its
// address, and then each question that it is asked as a line of JSON. The first
// word of a task can be what goes wrong the first time: cut, short, overloaded
// or unavailable.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"time"

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
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return fmt.Errorf("listening on loopback: %w", err)
	}
	fmt.Printf("http://%s\n", listener.Addr())
	s := &script{seen: map[string]bool{}, lines: json.NewEncoder(os.Stdout)}
	server := &http.Server{Handler: &fake.Model{Decide: s.decide}, ReadHeaderTimeout: 10 * time.Second}
	go func() {
		<-ctx.Done()
		_ = server.Close()
	}()
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serving: %w", err)
	}
	return nil
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
	_ = s.lines.Encode(map[string]any{"api": q.API, "stream": q.IsStream, "task": q.Task, "results": q.Results})
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

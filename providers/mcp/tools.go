package mcp

import (
	"context"
	"encoding/json"
	"sync"

	"counterfoil/providers"
)

const (
	// toolsMax bounds how many tools of one server are remembered.
	toolsMax = 4096
	// toolNameBytesMax bounds the name of one that is.
	toolNameBytesMax = 256
)

// A hint is what a server says about a tool, if it says anything.
type hint uint8

const (
	unsaid hint = iota
	yes
	no
)

func hintOf(b *bool) hint {
	switch {
	case b == nil:
		return unsaid
	case *b:
		return yes
	}
	return no
}

// A tool is what a server says about it: hints, which a client must not trust
// unless it trusts the server (MCP 2025-11-25, ToolAnnotations).
type tool struct{ readOnly, destructive, idempotent hint }

// tools are what is known about a server's, learnt from its lists. What it said
// last counts.
type tools struct {
	mu  sync.RWMutex
	all map[string]tool
}

func (t *tools) of(name string) *tool {
	t.mu.RLock()
	defer t.mu.RUnlock()
	if known, ok := t.all[name]; ok {
		return &known
	}
	return nil
}

func (t *tools) learn(name string, known tool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.all == nil {
		t.all = map[string]tool{}
	}
	if _, isKnown := t.all[name]; (isKnown || len(t.all) < toolsMax) && len(name) <= toolNameBytesMax {
		t.all[name] = known
	}
}

// A listWatcher learns from the answer to a tools/list.
type listWatcher struct {
	*collector
	tools *tools
}

// Holds is false: the list passes.
func (w *listWatcher) Holds() bool { return false }

func (w *listWatcher) Write(piece []byte) {
	w.each = w.read
	w.write(piece)
}

// End judges nothing.
func (w *listWatcher) End(context.Context) providers.Judgement {
	w.each = w.read
	w.end()
	return providers.Judgement{}
}

func (w *listWatcher) read(message []byte) {
	var list struct {
		Result struct {
			Tools []struct {
				Name        string `json:"name"`
				Annotations struct {
					ReadOnly    *bool `json:"readOnlyHint"`
					Destructive *bool `json:"destructiveHint"`
					Idempotent  *bool `json:"idempotentHint"`
				} `json:"annotations"`
			} `json:"tools"`
		} `json:"result"`
	}
	if json.Unmarshal(message, &list) != nil {
		return
	}
	for i := range list.Result.Tools {
		t := &list.Result.Tools[i]
		w.tools.learn(t.Name, tool{hintOf(t.Annotations.ReadOnly), hintOf(t.Annotations.Destructive), hintOf(t.Annotations.Idempotent)})
	}
}

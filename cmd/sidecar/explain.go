package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"strings"

	"counterfoil/classify"
	"counterfoil/internal/config"
	"counterfoil/providers"
)

// explainFlags describe a request that somebody wants explained.
type explainFlags struct {
	request, body string
	headers       []string
	asJSON        bool
}

// An explained request, as --json prints it.
type explained struct {
	Upstream  string   `json:"upstream"`
	Adapter   string   `json:"adapter,omitempty"`
	Operation string   `json:"operation,omitempty"`
	Defined   string   `json:"defined,omitempty"`
	Class     string   `json:"class"`
	Approval  bool     `json:"approval_required,omitempty"`
	Key       string   `json:"key,omitempty"`
	ClientID  string   `json:"client_id,omitempty"`
	Marker    string   `json:"marker,omitempty"`
	Recovery  []string `json:"recovery"`
	Notes     string   `json:"notes,omitempty"`
	Refused   string   `json:"refused,omitempty"`
}

// explain says what would become of a request, and asks nobody.
func explain(env clientEnv, f *explainFlags) error {
	known, err := knownProviders(env.readFile)
	if err != nil {
		return err
	}
	cfg, err := config.Load(env.environ(), env.readFile)
	if err != nil {
		return misconfigured(err)
	}
	s, err := newSample(cfg, env.readFile, f.request, f.body, f.headers)
	if err != nil {
		return err
	}
	adapter, _, err := known.adapter(s.upstream)
	if err != nil {
		return misconfigured(err)
	}
	e := explainSample(s, adapter)
	if f.asJSON {
		out := json.NewEncoder(env.stdout)
		out.SetIndent("", "  ")
		out.SetEscapeHTML(false)
		return out.Encode(e)
	}
	return e.print(env)
}

func explainSample(s *sample, adapter *providers.Adapter) *explained {
	rd, refusal := adapter.Read(&s.request)
	class := s.upstream.Compiled.Rules.Class(&s.request, rd.Class())
	x := rd.Explain(&s.request, class, max(providers.DefaultQuiesce, s.upstream.Timeouts.FirstByte))
	e := &explained{
		Upstream: s.upstream.Name + " -> " + s.upstream.URL, Operation: x.Operation, Defined: x.Defined, Class: class.String(),
		Approval: s.upstream.Compiled.Rules.Approval(&s.request) == classify.ApprovalRequired,
		Key:      x.Key, ClientID: x.ClientID, Marker: x.Marker, Recovery: x.Recovery, Notes: x.Notes,
	}
	var names []string
	adapter.Each(func(part *providers.Adapter) { names = append(names, cmp.Or(part.Name, "the upstream's operations")) })
	e.Adapter = strings.Join(names, ", then ")
	if refusal != nil {
		e.Refused, e.Recovery = refusal.Reason, []string{"it is refused, and nothing is sent"}
	}
	return e
}

func (e *explained) print(env clientEnv) error {
	t := newTable(env.stdout)
	t.row("upstream", e.Upstream)
	t.row("adapter", cmp.Or(e.Adapter, "none"))
	t.row("operation", cmp.Or(e.Operation, "none matches"))
	t.fact("written at", e.Defined)
	t.row("class", e.Class)
	if e.Approval {
		t.row("approval", "a person has to approve it first")
	}
	t.row("key", cmp.Or(e.Key, "none"))
	t.fact("id", e.ClientID)
	t.fact("marker", e.Marker)
	t.fact("refused", e.Refused)
	if err := t.w.Flush(); err != nil {
		return err
	}
	fmt.Fprintln(env.stdout, "if the call ends in doubt:")
	for i, step := range e.Recovery {
		fmt.Fprintf(env.stdout, "  %d. %s\n", i+1, printable(step))
	}
	if e.Notes != "" {
		fmt.Fprintln(env.stdout, "mind:", printable(e.Notes))
	}
	return nil
}

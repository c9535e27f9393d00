package main

import (
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"counterfoil/internal/admin"
	"counterfoil/internal/view"
	"counterfoil/keystore"
)

func newShowCommand(env clientEnv) *cobra.Command {
	c := &client{env: env}
	var turn, call string
	cmd := &cobra.Command{
		Use: "show RUN | RUN:TURN:CALL", Short: "Show a run with its calls, or one call with all that is known", Args: exactly("RUN or RUN:TURN:CALL"),
		Long: `Shows a run and its calls in order, or one call with its attempts, the head of its
receipt and its history. Names are written as the tables print them: special
characters percent-encoded.`,
		Example: "  sidecar show ticket-77\n  sidecar show ticket-77:3:send_email\n  sidecar show ticket-77 --turn 3 --call send_email",
		RunE: func(cmd *cobra.Command, args []string) error {
			k, err := c.shown(arguments(cmd, args)[0], turn, call, cmd.Flags().Changed("turn"))
			switch {
			case err != nil:
				return err
			case k.Call != "":
				return c.showCall(cmd, k)
			}
			return c.showRun(cmd, k.Run)
		},
	}
	c.addFlags(cmd)
	c.addNamespaceFlag(cmd)
	addKeyArgument(cmd)
	c.addPageFlags(cmd)
	cmd.Flags().StringVar(&turn, "turn", keystore.NoPart, "turn of the call, with --call")
	cmd.Flags().StringVar(&call, "call", "", "show this call of the run")
	return cmd
}

// shown is what the argument and the flags name: a call, or a run if Call is
// empty.
func (c *client) shown(arg, turn, call string, hasTurn bool) (keystore.Key, error) {
	switch {
	case strings.Contains(arg, ":") && (hasTurn || call != ""):
		return keystore.Key{}, usagef("name the call once: %s, or --turn and --call", arg)
	case strings.Contains(arg, ":"):
		return c.parseKey(arg)
	case call != "":
		return c.parseKey(arg + ":" + turn + ":" + call)
	case hasTurn:
		return keystore.Key{}, usagef("--turn goes with --call: name the call as well")
	}
	run, err := keystore.DecodePart(arg)
	if err == nil {
		err = keystore.ValidatePart(run)
	}
	if err != nil {
		return keystore.Key{}, usagef("run: %w", err)
	}
	return keystore.Key{Namespace: c.namespace, Run: run}, nil
}

// parseKey reads a key as the tables print it. Its namespace is that of the
// flag; empty means the sidecar's own.
func (c *client) parseKey(s string) (keystore.Key, error) {
	k, err := keystore.ParseKey("default", s)
	if err != nil {
		return k, usagef("%w", err)
	}
	k.Namespace = c.namespace
	return k, nil
}

func (c *client) showCall(cmd *cobra.Command, k keystore.Key) error {
	q := url.Values{}
	if k.Namespace != "" {
		q.Set("namespace", k.Namespace)
	}
	var call view.Call
	raw, err := c.get(cmd.Context(), admin.CallPath(k), q, &call)
	if err != nil {
		return fmt.Errorf("showing %s: %w", k, err)
	}
	if c.asJSON {
		return c.printJSON(raw)
	}
	return c.printCall(&call)
}

func (c *client) showRun(cmd *cobra.Command, name string) error {
	if err := c.checkLimit(); err != nil {
		return err
	}
	var run view.Run
	raw, err := c.get(cmd.Context(), admin.RunPath(name), c.query(), &run)
	if err != nil {
		return fmt.Errorf("showing run %s: %w", keystore.EncodePart(name), err)
	}
	if c.asJSON {
		return c.printJSON(raw)
	}
	return c.printRun(&run)
}

// runState says what a paused run waits for.
func runState(run *view.Run) string {
	if n := run.Totals[keystore.Unknown.String()]; run.State == "paused" {
		return fmt.Sprintf("paused: its other effects are refused until the unknown (%d) are decided about, unless their upstream says pause_on_unknown: call", n)
	}
	return run.State
}

func (c *client) printRun(run *view.Run) error {
	at := clock{c.env.now()}
	calls, states := totalsText(run.Totals)
	facts := newTable(c.env.stdout)
	facts.row("run", runText(run.Run))
	facts.row("namespace", run.Namespace)
	facts.row("state", runState(run))
	facts.row("calls", strings.TrimSuffix(fmt.Sprintf("%d: %s", calls, states), ": "))
	facts.fact("flow version", run.FlowVersion)
	facts.fact("labels", labelsText(run.Labels))
	facts.fact("budget", budgetText(run))
	facts.fact("lease", leaseText(run.Lease))
	facts.fact("replay", replayText(at, run.Replay))
	facts.row("created", at.when(run.CreatedAt))
	facts.row("changed", at.when(run.UpdatedAt))
	facts.fact("ended", at.when(run.EndedAt))
	if err := facts.w.Flush(); err != nil {
		return err
	}
	if run.Calls == nil || len(run.Calls.Items) == 0 {
		return nil
	}
	fmt.Fprintln(c.env.stdout)
	t := newTable(c.env.stdout, "CALL", "STATE", "CLASS", "UPSTREAM", "REQUEST", "ATTEMPTS", "CHANGED")
	for _, call := range run.Calls.Items {
		t.row(keyText(call), call.State, call.Class, call.Upstream, requestText(call), attemptsText(call), at.when(call.UpdatedAt))
	}
	if err := t.w.Flush(); err != nil {
		return err
	}
	c.printMore(run.Calls.Next)
	return nil
}

func labelsText(labels map[string]string) string {
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(labels)) {
		parts = append(parts, name+"="+labels[name])
	}
	return strings.Join(parts, ", ")
}

// budgetText is how much of a run's budget is used; empty if it has none.
func budgetText(run *view.Run) string {
	b := run.Budget
	if b == nil {
		return ""
	}
	var parts []string
	if b.Effects != nil {
		parts = append(parts, fmt.Sprintf("%d of %d effects begun", run.Begun.Effects, *b.Effects))
	}
	for _, upstream := range slices.Sorted(maps.Keys(b.Upstreams)) {
		parts = append(parts, fmt.Sprintf("%d of %d at %s", run.Begun.Upstreams[upstream], b.Upstreams[upstream], upstream))
	}
	return strings.Join(parts, ", ")
}

// replayText is how far an agent without call ids has come with its repeats.
func replayText(at clock, r *view.Replay) string {
	if r == nil {
		return ""
	}
	text := fmt.Sprintf("incarnation %d has repeated %d of %d earlier effects", r.Incarnation, r.Repeated, r.Earlier)
	if !r.DivergedAt.IsZero() {
		text += "; diverged " + at.when(r.DivergedAt)
	}
	return text
}

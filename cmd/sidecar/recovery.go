package main

import (
	"cmp"
	"fmt"

	"github.com/spf13/cobra"

	"counterfoil/internal/admin"
	"counterfoil/internal/view"
	"counterfoil/keystore"
)

func newRecoveryCommand(env clientEnv) *cobra.Command {
	c := &client{env: env}
	cmd := &cobra.Command{
		Use: "recovery RUN", Short: "Say what a restarted agent is to do, call by call", Args: exactly("RUN"),
		Long: `Says whether a run can be resumed, and for each of its calls, in order, what a
repeat would meet and why: send, replay, ask, resend, wait or stop. An agent gets
the same at /-/v1/runs/RUN/recovery.`,
		RunE: func(cmd *cobra.Command, args []string) error { return c.recovery(cmd, arguments(cmd, args)[0]) },
	}
	c.addFlags(cmd)
	c.addNamespaceFlag(cmd)
	addKeyArgument(cmd)
	c.addPageFlags(cmd)
	return cmd
}

func (c *client) recovery(cmd *cobra.Command, arg string) error {
	if err := c.checkLimit(); err != nil {
		return err
	}
	name, err := keystore.DecodePart(arg)
	if err == nil {
		err = keystore.ValidatePart(name)
	}
	if err != nil {
		return usagef("run: %w", err)
	}
	var report view.Recovery
	raw, err := c.get(cmd.Context(), admin.RunPath(name)+"/recovery", c.query(), &report)
	if err != nil {
		return fmt.Errorf("reporting on run %s: %w", keystore.EncodePart(name), err)
	}
	if c.asJSON {
		return c.printJSON(raw)
	}
	return c.printRecovery(&report)
}

// verdictTexts say what each verdict means.
var verdictTexts = map[string]string{
	"resume": "resume: repeat the calls in order",
	"wait":   "wait: a call is still under way, or it is too early to find out about one",
	"stop":   "stop: a person has to act before the run can go on",
}

func (c *client) printRecovery(r *view.Recovery) error {
	at := clock{c.env.now()}
	facts := newTable(c.env.stdout)
	facts.row("run", runText(r.Run))
	facts.row("verdict", cmp.Or(verdictTexts[r.Verdict], r.Verdict))
	facts.fact("flow version", r.FlowVersion)
	if err := facts.w.Flush(); err != nil || len(r.Calls) == 0 {
		return err
	}
	fmt.Fprintln(c.env.stdout)
	t := newTable(c.env.stdout, "TURN", "CALL", "TOOL", "STATE", "ACTION", "WHY")
	for _, s := range r.Calls {
		action := s.Action
		if !s.NotBefore.IsZero() {
			action += " until " + at.moment(s.NotBefore)
		}
		t.row(s.Turn, s.Call, s.Tool, s.State, action, s.Reason)
	}
	if err := t.w.Flush(); err != nil {
		return err
	}
	c.printMore(r.Next)
	return nil
}

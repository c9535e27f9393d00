package main

import (
	"counterfoil/internal/view"
	"fmt"

	"github.com/spf13/cobra"
)

func newUnknownCommand(env clientEnv) *cobra.Command {
	c := &client{env: env}
	cmd := &cobra.Command{
		Use: "unknown", Short: "List the calls that wait for a person, oldest first", Args: exactly(),
		Long: `Lists the calls of all namespaces whose effect may exist and of which nothing more
can be learned. Look at the provider, then decide with "sidecar resolve".`,
		RunE: func(cmd *cobra.Command, _ []string) error { return c.unknown(cmd) },
	}
	c.addFlags(cmd)
	c.addPageFlags(cmd)
	return cmd
}

func (c *client) unknown(cmd *cobra.Command) error {
	if err := c.checkLimit(); err != nil {
		return err
	}
	var list view.List[*view.Call]
	raw, err := c.get(cmd.Context(), "/api/v1/unknown", c.query(), &list)
	if err != nil {
		return fmt.Errorf("listing unknown calls: %w", err)
	}
	if c.asJSON {
		return c.printJSON(raw)
	}
	if len(list.Items) == 0 {
		fmt.Fprintln(c.env.stdout, "No unknown calls.")
		return nil
	}
	at := clock{c.env.now()}
	t := newTable(c.env.stdout, "CALL", "NAMESPACE", "UNKNOWN FOR", "UPSTREAM", "REQUEST", "PROVIDER KEY", "ATTEMPTS", "WHY")
	for _, call := range list.Items {
		t.row(keyText(call), call.Namespace, at.age(call.Since), call.Upstream, requestText(call), call.Key,
			attemptsText(call), clipped(call.Reason, reasonWidth))
	}
	if err := t.w.Flush(); err != nil {
		return err
	}
	c.printMore(list.Next)
	fmt.Fprintln(c.env.stdout, "\nDecide with: sidecar resolve CALL --namespace NAMESPACE --applied | --not-applied | --abandon | --recheck")
	return nil
}

package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"counterfoil/internal/view"
)

func newRunsCommand(env clientEnv) *cobra.Command {
	c := &client{env: env}
	cmd := &cobra.Command{
		Use: "runs", Short: "List the runs, oldest first", Args: exactly(),
		Long: `Lists the runs of a namespace in order of creation, with their calls by state.
Where the sidecar has tokens, its runs are in the tokens' namespaces: name one.`,
		RunE: func(cmd *cobra.Command, _ []string) error { return c.runs(cmd) },
	}
	c.addFlags(cmd)
	c.addNamespaceFlag(cmd)
	c.addPageFlags(cmd)
	return cmd
}

func (c *client) runs(cmd *cobra.Command) error {
	if err := c.checkLimit(); err != nil {
		return err
	}
	var list view.List[*view.Run]
	raw, err := c.get(cmd.Context(), "/api/v1/runs", c.query(), &list)
	if err != nil {
		return fmt.Errorf("listing runs: %w", err)
	}
	if c.asJSON {
		return c.printJSON(raw)
	}
	if len(list.Items) == 0 {
		where := "the sidecar's own namespace; --namespace names another"
		if c.namespace != "" {
			where = "namespace " + printable(c.namespace)
		}
		fmt.Fprintf(c.env.stdout, "No runs in %s.\n", where)
		return nil
	}
	at := clock{c.env.now()}
	t := newTable(c.env.stdout, "RUN", "NAMESPACE", "STATE", "CALLS", "BY STATE", "CREATED", "CHANGED")
	for _, r := range list.Items {
		calls, states := totalsText(r.Totals)
		t.row(runText(r.Run), r.Namespace, r.State, fmt.Sprint(calls), states, at.moment(r.CreatedAt), at.when(r.UpdatedAt))
	}
	if err := t.w.Flush(); err != nil {
		return err
	}
	c.printMore(list.Next)
	return nil
}

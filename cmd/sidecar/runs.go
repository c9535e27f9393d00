package main

import (
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"counterfoil/internal/view"
)

func newRunsCommand(env clientEnv) *cobra.Command {
	c, f := &client{env: env}, &runFilter{}
	cmd := &cobra.Command{
		Use: "runs", Short: "List the runs, oldest first", Args: exactly(),
		Long: `Lists the runs of a namespace in order of creation, with their calls by state.
Where the sidecar has tokens, its runs are in the tokens' namespaces: name one.`,
		Example: "  sidecar runs --state paused\n  sidecar runs --label team=billing --older-than 24h",
		RunE:    func(cmd *cobra.Command, _ []string) error { return c.runs(cmd, f) },
	}
	c.addFlags(cmd)
	c.addNamespaceFlag(cmd)
	c.addPageFlags(cmd)
	flags := cmd.Flags()
	flags.StringVar(&f.state, "state", "", "only runs in this state: active or paused")
	flags.StringArrayVar(&f.labels, "label", nil, "only runs with this label, as name=value; may be repeated")
	flags.DurationVar(&f.olderThan, "older-than", 0, "only runs that were created longer ago than this, as 24h")
	flags.DurationVar(&f.newerThan, "newer-than", 0, "only runs that were created since, as 30m")
	return cmd
}

// A runFilter is what the flags say about which runs are wanted.
type runFilter struct {
	state                string
	labels               []string
	olderThan, newerThan time.Duration
}

// addTo says it in the query.
func (f *runFilter) addTo(q url.Values) error {
	if f.state != "" {
		q.Set("state", f.state)
	}
	for _, label := range f.labels {
		name, value, ok := strings.Cut(label, "=")
		if !ok || name == "" {
			return usagef("--label is name=value, not %q", label)
		}
		q.Add("label", name+":"+value)
	}
	for name, d := range map[string]time.Duration{"older_than": f.olderThan, "newer_than": f.newerThan} {
		if d != 0 {
			q.Set(name, d.String())
		}
	}
	return nil
}

func (c *client) runs(cmd *cobra.Command, f *runFilter) error {
	if err := c.checkLimit(); err != nil {
		return err
	}
	query := c.query()
	if err := f.addTo(query); err != nil {
		return err
	}
	var list view.List[*view.Run]
	raw, err := c.get(cmd.Context(), "/api/v1/runs", query, &list)
	if err != nil {
		return fmt.Errorf("listing runs: %w", err)
	}
	if c.asJSON {
		return c.printJSON(raw)
	}
	if len(list.Items) == 0 && list.Next == "" {
		where := "the sidecar's own namespace; --namespace names another"
		if c.namespace != "" {
			where = "namespace " + printable(c.namespace)
		}
		fmt.Fprintf(c.env.stdout, "No runs in %s.\n", where)
		return nil
	}
	at := clock{c.env.now()}
	t := newTable(c.env.stdout, "RUN", "NAMESPACE", "STATE", "CALLS", "BY STATE", "LEASE", "VERSION", "CREATED", "CHANGED")
	for _, r := range list.Items {
		calls, states := totalsText(r.Totals)
		t.row(runText(r.Run), r.Namespace, r.State, fmt.Sprint(calls), states, leaseText(r.Lease), r.FlowVersion, at.moment(r.CreatedAt), at.when(r.UpdatedAt))
	}
	if err := t.w.Flush(); err != nil {
		return err
	}
	c.printMore(list.Next)
	return nil
}

// leaseText is who holds a run, and with which fence.
func leaseText(l *view.Lease) string {
	switch {
	case l == nil:
		return ""
	case !l.Held:
		return fmt.Sprintf("free (last %d)", l.Fence)
	}
	return fmt.Sprintf("%d %s", l.Fence, l.Owner)
}

package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"counterfoil/providers/adapters"
)

// newAdaptersCommand shows the built-in adapters.
func newAdaptersCommand(env clientEnv) *cobra.Command {
	return &cobra.Command{
		Use: "adapters [NAME]", Short: "List the built-in adapters, or print one", Args: cobra.MaximumNArgs(1),
		Long: `Lists the built-in adapters: what is known about providers. The host of an
upstream's URL picks one, or its field adapter names it. With a name, prints that
adapter in the adapter language, to start one of your own from.`,
		RunE: func(_ *cobra.Command, args []string) error {
			c, err := adapters.Load()
			if err != nil {
				return err
			}
			if len(args) == 0 {
				return listAdapters(env, c)
			}
			text, err := c.Text(args[0])
			if err != nil {
				return usageError{err}
			}
			_, err = env.stdout.Write(text)
			return err
		},
	}
}

func listAdapters(env clientEnv, c *adapters.Catalogue) error {
	t := newTable(env.stdout, "ADAPTER", "OPERATIONS")
	for _, a := range c.All {
		t.row(a.Name, fmt.Sprint(len(a.Operations)))
	}
	return t.w.Flush()
}

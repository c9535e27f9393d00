package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"counterfoil/internal/admin"
	"counterfoil/internal/config"
)

// newCheckCommand checks what a start would check, and starts nothing.
func newCheckCommand(env clientEnv) *cobra.Command {
	e := &explainFlags{}
	cmd := &cobra.Command{
		Use: "check", Short: "Check the configuration, offline, or explain a request", Args: exactly(),
		Long: `Reads the variables and the file that COUNTERFOIL_CONFIG names as "sidecar serve"
would, and says what it would serve, or every mistake with its place. It starts
nothing and asks nobody. It exits with 0 or 2.

With --explain it says what would become of a request: which operation of which
adapter it is, its class, where key and marker go, and how the call would be
recovered. The URL is the provider's, or /upstream/path; no upstream need be
configured for it.`,
		Example: `  sidecar check --explain 'POST https://api.stripe.com/v1/refunds' -d 'charge=ch_1&amount=500'
  sidecar check --explain 'POST /tickets/v1/tickets' -H 'Content-Type: application/json' -d @ticket.json`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			for _, name := range []string{"data", "header", "json"} {
				if cmd.Flags().Changed(name) && e.request == "" {
					return usagef("--%s belongs to a request: name it with --explain, as in --explain 'POST https://api.stripe.com/v1/charges'", name)
				}
			}
			if e.request != "" {
				return explain(env, e)
			}
			cfg, err := loadConfig(env)
			if err != nil {
				return err
			}
			s := &sidecar{cfg: cfg, readFile: env.readFile}
			defer s.closeAll()
			if _, err := s.upstreams(); err != nil {
				return err
			}
			describe(env.stdout, cfg)
			return nil
		},
	}
	cmd.Flags().StringVar(&e.request, "explain", "", "METHOD and URL of a request to explain")
	cmd.Flags().StringVarP(&e.body, "data", "d", "", "its body, or @file")
	cmd.Flags().StringArrayVarP(&e.headers, "header", "H", nil, "one of its header fields, as in 'Stripe-Version: 2026-01-28'")
	cmd.Flags().BoolVar(&e.asJSON, "json", false, "print JSON")
	return cmd
}

func describe(out io.Writer, cfg *config.Config) {
	for _, w := range cfg.Warnings {
		fmt.Fprintln(out, "warning:", w)
	}
	fmt.Fprintf(out, "data listener   %s\nadmin listener  %s\njournal         %s\n", cfg.Listen, cfg.AdminListen, cfg.Data)
	for _, u := range cfg.Upstreams {
		fmt.Fprintf(out, "upstream        %s -> %s", u.Name, u.URL)
		if u.Listen != "" {
			fmt.Fprintf(out, ", at %s", u.Listen)
		}
		fmt.Fprintln(out)
	}
	fmt.Fprintln(out, "The configuration is right.")
}

// newHealthCommand asks the admin listener whether the sidecar is ready, for
// container health checks where no other program is at hand.
func newHealthCommand(env clientEnv) *cobra.Command {
	c := &client{env: env}
	cmd := &cobra.Command{
		Use: "health", Short: "Ask a running sidecar whether it is ready", Args: exactly(),
		Long: "Asks a running sidecar whether it is ready. It needs no token, and exits with 0 or 1.",
		RunE: func(cmd *cobra.Command, _ []string) error { return c.health(cmd.Context()) },
	}
	c.addAdminFlag(cmd)
	return cmd
}

// healthTimeout bounds the question, for who asks every few seconds.
const healthTimeout = 3 * time.Second

func (c *client) health(ctx context.Context) error {
	base, err := c.base()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, healthTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, base+"/ready", nil)
	if err != nil {
		return usagef("%q is no address of an admin listener: %w", base, err)
	}
	resp, err := c.env.http.Do(req)
	if err != nil {
		return unreachable(base, err)
	}
	defer resp.Body.Close()
	var answer admin.Readiness
	err = json.NewDecoder(io.LimitReader(resp.Body, readinessBytesMax)).Decode(&answer)
	switch {
	case err != nil:
		return strangerAt(base, resp)
	case resp.StatusCode != http.StatusOK || !answer.Ready:
		return fmt.Errorf("the sidecar at %s is not ready: %s", base, printable(cmp.Or(strings.Join(answer.Reasons, "; "), resp.Status)))
	}
	return nil
}

package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/spf13/cobra"

	"counterfoil/internal/config"
)

// newCheckCommand checks what a start would check, and starts nothing.
func newCheckCommand(env clientEnv) *cobra.Command {
	return &cobra.Command{
		Use: "check", Short: "Check the configuration, offline", Args: exactly(),
		RunE: func(*cobra.Command, []string) error {
			cfg, err := loadConfig(env)
			if err != nil {
				return err
			}
			s := &sidecar{cfg: cfg}
			defer s.closeAll()
			if _, err := s.upstreams(); err != nil {
				return err
			}
			describe(env.stdout, cfg)
			return nil
		},
	}
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
	return &cobra.Command{
		Use: "health", Short: "Ask a running sidecar whether it is ready", Args: exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, cancel := context.WithTimeout(cmd.Context(), 3*time.Second)
			defer cancel()
			req, err := http.NewRequestWithContext(ctx, http.MethodGet, env.adminURL()+"/ready", nil)
			if err != nil {
				return usageError{err}
			}
			resp, err := http.DefaultClient.Do(req)
			if err != nil {
				return fmt.Errorf("no sidecar answers: %w", err)
			}
			defer resp.Body.Close()
			if resp.StatusCode != http.StatusOK {
				return fmt.Errorf("the sidecar is not ready (status %d)", resp.StatusCode)
			}
			return nil
		},
	}
}

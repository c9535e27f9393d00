package main

import (
	"fmt"
	"net"
	"net/http"
	"os"
	"time"

	"github.com/spf13/cobra"

	"counterfoil/internal/demo"
)

func newDemoCommand(env clientEnv) *cobra.Command {
	return &cobra.Command{
		Use: "demo", Short: "See a crash between effect and receipt, and no second effect", Args: exactly(),
		Long: `Starts a small provider, a sidecar and an agent as processes of their own, kills
the sidecar with SIGKILL after the effect and before the receipt, resumes the
agent, and shows the provider's ledger. Nothing leaves this machine, and nothing
is left behind.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			program, err := os.Executable()
			if err != nil {
				return fmt.Errorf("finding this program: %w", err)
			}
			return demo.Tell(cmd.Context(), demo.Story{Program: program, Out: env.stdout})
		},
	}
}

func newDemoProviderCommand(env clientEnv) *cobra.Command {
	return &cobra.Command{
		Use: "demo-provider", Short: "The provider of the demo", Args: exactly(), Hidden: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ln, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				return fmt.Errorf("listening: %w", err)
			}
			fmt.Fprintf(env.stdout, "http://%s\n", ln.Addr())
			server := &http.Server{Handler: demo.NewProvider().Handler(), ReadHeaderTimeout: 5 * time.Second}
			go func() {
				<-cmd.Context().Done()
				_ = server.Close() // the process ends
			}()
			return server.Serve(ln)
		},
	}
}

func newDemoAgentCommand(env clientEnv) *cobra.Command {
	return &cobra.Command{
		Use: "demo-agent BASE_URL RUN", Short: "The agent of the demo", Args: exactly("BASE_URL", "RUN"), Hidden: true,
		RunE: func(cmd *cobra.Command, args []string) error {
			return demo.RunAgent(cmd.Context(), args[0], args[1], env.stdout)
		},
	}
}

// Command sidecar is Counterfoil: an HTTP sidecar that keeps a receipt for
// every tool call that an AI agent makes, so that each has its effect at most
// once, through any crash.
package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"runtime/debug"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"counterfoil/keystore"
)

// version is set by the linker for a release: -ldflags "-X main.version=v1.2.3".
var version = ""

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // who asks a second time gets the end at once
	root := newRoot(osEnv())
	ran, err := root.ExecuteContextC(ctx)
	stop()
	if err == nil {
		return
	}
	if _, isAgents := errors.AsType[agentEnd](err); !isAgents {
		fmt.Fprintln(os.Stderr, "counterfoil:", err)
	}
	if ran != nil && ran.Name() == execName {
		os.Exit(execExitCode(err))
	}
	os.Exit(exitCode(err))
}

// newRoot is the whole command line. Without a command it serves.
func newRoot(env clientEnv) *cobra.Command {
	serve := newServeCommand(env)
	root := &cobra.Command{
		Use:   "sidecar",
		Short: "Counterfoil: at most one effect per tool call, through any crash",
		Long: `Counterfoil stands between an AI agent and the APIs that it calls. It keeps the
intent of every call before a byte leaves and the receipt before the agent is
told, so that a call has its effect at most once, whatever crashes.

Without a command it serves: COUNTERFOIL_UPSTREAMS=tickets=http://127.0.0.1:9090 sidecar`,
		Args:          aCommand,
		Version:       versionText(),
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE:          serve.RunE,
	}
	root.SuggestionsMinimumDistance = 2
	root.SetVersionTemplate("counterfoil {{.Version}}\n")
	root.SetOut(env.stdout)
	root.SetErr(env.stderr)
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return usageError{err} })
	root.AddCommand(
		serve, newExecCommand(env), newKeeperCommand(), newDemoCommand(env), newDemoProviderCommand(env), newDemoAgentCommand(env),
		newRunsCommand(env), newShowCommand(env), newUnknownCommand(env), newResolveCommand(env),
		newRecoveryCommand(env), newHeldCommand(env), newApproveCommand(env), newDenyCommand(env),
		newCheckCommand(env), newAdaptersCommand(env), newHealthCommand(env), newVersionCommand(env),
	)
	return root
}

// aCommand refuses a word that is no command, and names those that there are.
func aCommand(root *cobra.Command, words []string) error {
	if len(words) == 0 {
		return nil
	}
	var names []string
	for _, c := range root.Commands() {
		if c.IsAvailableCommand() {
			names = append(names, c.Name())
		}
	}
	meant := ""
	if near := root.SuggestionsFor(words[0]); len(near) > 0 {
		meant = ": did you mean " + near[0] + "?"
	}
	return usagef("%q is no command%s The commands are %s; see %s --help", words[0], cmp.Or(meant, "."), strings.Join(names, ", "), root.Name())
}

// usageError is a mistake in how the command was called.
type usageError struct{ error }

func (e usageError) Unwrap() error { return e.error }

// exitCode is 2 for a mistake in the call, 3 where another sidecar has the
// journal's folder, 1 for everything else.
func exitCode(err error) int {
	var usage usageError
	switch {
	case errors.As(err, &usage):
		return 2
	case errors.Is(err, keystore.ErrLocked):
		return 3
	}
	return 1
}

func newVersionCommand(env clientEnv) *cobra.Command {
	return &cobra.Command{
		Use: "version", Short: "Print the version", Args: exactly(),
		RunE: func(*cobra.Command, []string) error {
			_, err := fmt.Fprintln(env.stdout, "counterfoil", versionText())
			return err
		},
	}
}

// versionText is the release, or the commit that the binary was built from.
func versionText() string {
	if version != "" {
		return version
	}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	commit, changed := "development", ""
	for _, s := range info.Settings {
		switch {
		case s.Key == "vcs.revision":
			commit = "commit " + s.Value
		case s.Key == "vcs.modified" && s.Value == "true":
			changed = "-dirty"
		}
	}
	return commit + changed
}

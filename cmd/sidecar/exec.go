package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"

	"counterfoil/internal/config"
	"counterfoil/internal/supervise"
	"counterfoil/keystore"
)

// Exit codes of what is not the command's own end, as env and docker run have
// them.
const (
	exitFailed    = 125 // sidecar exec itself failed
	exitCannotRun = 126 // the command was found, and cannot be run
	exitNotFound  = 127 // there is no such command
)

const (
	graceMax        = time.Hour
	leaseWaitMax    = 24 * time.Hour
	restartDelayMax = time.Minute
)

// execName is the command's, keeperCommand that of the hidden one that stands between sidecar exec and the
// agent: see internal/supervise.
const (
	execName      = "exec"
	keeperCommand = "exec-keeper"
)

// execFlags are what the command line of sidecar exec says.
type execFlags struct {
	run, listen, adminListen string
	leaseTTL, leaseWait      time.Duration
	grace, restartDelay      time.Duration
	restart                  restartPolicy
	env, keepEnv             []string
}

func newExecCommand(env clientEnv) *cobra.Command {
	f := &execFlags{}
	cmd := &cobra.Command{
		Use:   execName + " --run RUN [flags] -- COMMAND [ARGUMENT...]",
		Short: "Run an agent as a child, with a sidecar that ends with it",
		Long: `Starts a sidecar for one run and an agent as its child, and ends with it.

The sidecar has the settings that "sidecar serve" has, but takes free ports on
loopback and logs warnings alone unless told otherwise. The agent gets
COUNTERFOIL_URL, COUNTERFOIL_RUN, COUNTERFOIL_FENCE, COUNTERFOIL_INCARNATION, and
the base-URL variables of known SDKs (OPENAI_BASE_URL and others, see
docs/exec.md) where their provider is an upstream. An agent that knows nothing of
Counterfoil is crash-safe with that: started again, it repeats its steps and meets
its own receipts.

The exit code is the agent's, or 128 and the signal's number if one killed it;
125 if sidecar exec itself failed, 126 if the command cannot be run, 127 if there
is none of that name.`,
		Example: `  export COUNTERFOIL_UPSTREAMS=openai=https://api.openai.com,tickets=https://tickets.example.com
  sidecar exec --run ticket-77 --env TICKETS_URL=tickets -- python3 agent.py
  sidecar exec --run nightly-2026-12-01 --restart on-failure:5 -- node agent.mjs`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return usagef("the command to run is missing: sidecar exec --run RUN -- COMMAND [ARGUMENT...]")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error { return runExec(cmd.Context(), env, f, args) },
	}
	f.add(cmd)
	return cmd
}

func (f *execFlags) add(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.SetInterspersed(false) // what follows the command is the command's
	flags.StringVar(&f.run, "run", "", "the run that the agent carries on (default $COUNTERFOIL_RUN)")
	flags.StringArrayVar(&f.env, "env", nil, "NAME=UPSTREAM[/path]: set a variable to the base URL of an upstream (repeatable)")
	flags.StringArrayVar(&f.keepEnv, "keep-env", nil, "NAME: leave a variable of a known SDK as it is (repeatable)")
	flags.Var(&f.restart, "restart", "no, or on-failure[:N]: start the agent again after a crash, N times at most")
	flags.DurationVar(&f.restartDelay, "restart-delay", time.Second, "wait before the first restart; each further one is twice as long, up to 1m")
	flags.DurationVar(&f.grace, "grace", 10*time.Second, "what is left of the agent may take this long to end after SIGTERM, before it is killed")
	flags.DurationVar(&f.leaseTTL, "lease-ttl", 30*time.Second, "the run's lease is given for this long, 1s to 24h, and renewed at a third of it")
	flags.DurationVar(&f.leaseWait, "lease-wait", time.Minute, "wait this long for another that holds the run, or the journal's directory")
	flags.StringVar(&f.listen, "listen", "", "address of the data listener (default $COUNTERFOIL_LISTEN, else a free port of 127.0.0.1)")
	flags.StringVar(&f.adminListen, "admin-listen", "", "address of the admin listener (default $COUNTERFOIL_ADMIN_LISTEN, else a free port of 127.0.0.1)")
}

// check refuses what is out of its range.
func (f *execFlags) check() error {
	if err := keystore.ValidatePart(f.run); f.run != "" && err != nil {
		return usagef("--run: %w", err)
	}
	if f.leaseTTL < keystore.LeaseTTLMin || f.leaseTTL > keystore.LeaseTTLMax {
		return usagef("--lease-ttl is a time from %s to %s, not %s", keystore.LeaseTTLMin, keystore.LeaseTTLMax, f.leaseTTL)
	}
	for _, d := range []struct {
		name       string
		value, max time.Duration
	}{{"grace", f.grace, graceMax}, {"lease-wait", f.leaseWait, leaseWaitMax}, {"restart-delay", f.restartDelay, restartDelayMax}} {
		if d.value < 0 || d.value > d.max {
			return usagef("--%s is a time from 0s to %s, not %s", d.name, d.max, d.value)
		}
	}
	return nil
}

// config loads the settings, over which the flags win.
func (f *execFlags) config(env clientEnv) (*config.Config, error) {
	environ := maps.Clone(env.environ())
	for name, value := range map[string]string{"COUNTERFOIL_RUN": f.run, "COUNTERFOIL_LISTEN": f.listen, "COUNTERFOIL_ADMIN_LISTEN": f.adminListen} {
		if value != "" {
			environ[name] = value
		}
	}
	known, err := knownProviders(env.readFile)
	if err != nil {
		return nil, err
	}
	cfg, err := config.LoadExec(environ, env.readFile, known.mistakes)
	if err != nil {
		return nil, misconfigured(err)
	}
	if cfg.Run == "" {
		return nil, usagef("which run is it? Name it with --run, the same whenever this work is started again, as in --run ticket-77")
	}
	if len(cfg.Tokens) > 0 {
		return nil, usagef("COUNTERFOIL_TOKENS is set, and an agent under sidecar exec sends no token: unset it; the data listener is on loopback, and serves one run")
	}
	return cfg, nil
}

func runExec(ctx context.Context, env clientEnv, f *execFlags, args []string) error {
	if err := f.check(); err != nil {
		return err
	}
	cfg, err := f.config(env)
	if err != nil {
		return err
	}
	agentEnv, err := newAgentEnv(agentEnvRequest{environ: env.environ(), upstreams: cfg.Upstreams, own: f.env, kept: f.keepEnv})
	if err != nil {
		return err
	}
	if _, err := exec.LookPath(args[0]); err != nil {
		return &supervise.CommandError{Err: err}
	}
	limitMemory(env)
	log := newLogger(cfg, env.stderr)
	x := &execution{
		flags: f, cfg: cfg, log: log, env: agentEnv, readFile: env.readFile, jitter: rand.Float64, keeper: keeperProgram,
		command: supervise.Command{Args: args, Grace: f.grace, Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr},
	}
	return x.run(ctx)
}

// keeperProgram is the command line of the agent's keeper: this very program, in
// this very version, though its file may have been replaced meanwhile.
func keeperProgram() ([]string, error) {
	const self = "/proc/self/exe"
	program, err := os.Executable()
	file, errFile := os.Stat(program)
	own, errOwn := os.Stat(self)
	switch {
	case errOwn == nil && (errFile != nil || !os.SameFile(file, own)):
		program = self
	case err != nil:
		return nil, fmt.Errorf("finding this program: %w", err)
	}
	return []string{program, keeperCommand}, nil
}

// run serves and supervises until the agent has ended for good.
func (x *execution) run(ctx context.Context) error {
	// The first signal ends main's context, and it is the agent's to end.
	ctx, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	x.relay = newRelay(cancel)
	defer x.relay.stop()
	s := &sidecar{cfg: x.cfg, log: x.log, now: steadyClock(), readFile: x.readFile, lockWait: max(x.flags.leaseWait, time.Nanosecond), work: x.work, fence: x.newestFence}
	err := s.run(ctx)
	asked, wasAsked := errors.AsType[askedToEnd](context.Cause(ctx))
	switch {
	case x.ended != nil:
		if err != nil {
			x.log.Error("the agent has ended; the sidecar did not end well", "error", err)
		}
		return *x.ended
	case wasAsked:
		return agentEnd(supervise.Exit{Signal: asked.signal}.Status())
	case errors.Is(err, keystore.ErrLocked):
		return fmt.Errorf("%w in COUNTERFOIL_DATA; or let the agent use the other one by its address, without sidecar exec", err)
	}
	return err
}

// agentEnd is an error that says nothing: the exit code is the agent's.
type agentEnd int

func (e agentEnd) Error() string { return "the agent ended with " + strconv.Itoa(int(e)) }

// execExitCode is the exit code of sidecar exec for an error.
func execExitCode(err error) int {
	var end agentEnd
	var command *supervise.CommandError
	switch {
	case errors.As(err, &end):
		return int(end)
	case !errors.As(err, &command):
		return exitFailed
	case errors.Is(err, exec.ErrNotFound), errors.Is(err, fs.ErrNotExist), errors.Is(err, exec.ErrDot):
		return exitNotFound
	}
	return exitCannotRun
}

// newestFence is the fence of the agent's present life.
func (x *execution) newestFence() keystore.Fence { return keystore.Fence(x.fence.Load()) }

// urlOf is where this machine reaches a listener.
func urlOf(l net.Listener) string {
	address, _ := l.Addr().(*net.TCPAddr)
	host := address.IP.String()
	if address.IP.IsUnspecified() {
		host = "127.0.0.1"
	}
	return "http://" + net.JoinHostPort(host, strconv.Itoa(address.Port))
}

// A restartPolicy says whether an agent that has failed is started again, and
// how often at most; 0 is for ever.
type restartPolicy struct {
	onFailure bool
	max       int
}

// Set reads no, on-failure or on-failure:N.
func (p *restartPolicy) Set(text string) error {
	kind, count, hasCount := strings.Cut(text, ":")
	*p = restartPolicy{onFailure: kind == "on-failure"}
	switch {
	case text == "no":
		return nil
	case !p.onFailure:
		return errors.New("write no, on-failure, or on-failure:N")
	case !hasCount:
		return nil
	}
	n, err := strconv.ParseUint(count, 10, 31)
	if err != nil || n == 0 {
		return errors.New("the number behind it is from 1 on, as in on-failure:5")
	}
	p.max = int(n)
	return nil
}

func (p *restartPolicy) String() string {
	switch {
	case !p.onFailure:
		return "no"
	case p.max == 0:
		return "on-failure"
	}
	return "on-failure:" + strconv.Itoa(p.max)
}

// Type is the word for the value in the help.
func (p *restartPolicy) Type() string { return "policy" }

func newKeeperCommand() *cobra.Command {
	return &cobra.Command{
		Use: keeperCommand, Short: "The keeper of sidecar exec's agent", Args: exactly(), Hidden: true,
		RunE: func(*cobra.Command, []string) error { return supervise.Keep(os.Environ()) },
	}
}

// An execution is one sidecar exec, from its first start of the agent to the
// last.
type execution struct {
	flags *execFlags
	cfg   *config.Config
	log   *slog.Logger
	env   *agentEnv
	// readFile reads adapter files.
	readFile func(string) ([]byte, error)
	command  supervise.Command // without environment and keeper
	keeper   func() ([]string, error)
	// jitter returns 0 to 1.
	jitter func() float64
	relay  *relay
	fence  atomic.Uint64
	// ended is how the agent ended for good.
	ended *agentEnd
}

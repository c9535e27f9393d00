package main

import (
	"counterfoil/internal/view"
	"fmt"
	"io"
	"os"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"counterfoil/internal/admin"
)

// An order is what the flags of resolve say.
type order struct {
	applied, notApplied, abandon, recheck bool

	status      int
	contentType string
	bodyFile    string
	note, actor string
}

func newResolveCommand(env clientEnv) *cobra.Command {
	c := &client{env: env}
	o := &order{}
	cmd := &cobra.Command{
		Use: "resolve RUN:TURN:CALL", Short: "Decide about an unknown call", Args: exactly("RUN:TURN:CALL"),
		Long: `Decides about a call whose outcome nobody could learn. Look at the provider first:
the call's provider key is in "sidecar unknown".

  --applied      the effect exists. The agent gets the receipt given here, now and
                 in every replay: status 200 with an empty body if none is given.
  --not-applied  nothing happened and nothing will: the agent's next request for
                 the call sends it.
  --abandon      nobody needs to know any more: the call is never sent again, and
                 the agent is told so.
  --recheck      recovery begins again, with the agent's next request or, where the
                 upstream has credentials of its own, by itself.

A decision is taken once and kept in the call's history.`,
		Example: `  sidecar resolve ticket-77:3:send_email --not-applied --note "not in the outbox"
  sidecar resolve ticket-77:3:charge --applied --status 201 --content-type application/json --body-file charge.json`,
		RunE: func(cmd *cobra.Command, args []string) error { return c.resolve(cmd, arguments(cmd, args)[0], o) },
	}
	c.addFlags(cmd)
	c.addNamespaceFlag(cmd)
	addKeyArgument(cmd)
	f := cmd.Flags()
	f.BoolVar(&o.applied, "applied", false, "the effect exists")
	f.BoolVar(&o.notApplied, "not-applied", false, "nothing happened and nothing will")
	f.BoolVar(&o.abandon, "abandon", false, "nobody needs to know any more")
	f.BoolVar(&o.recheck, "recheck", false, "recovery begins again")
	f.IntVar(&o.status, "status", 0, "status of the receipt, 200 to 599, with --applied (default 200)")
	f.StringVar(&o.contentType, "content-type", "", "Content-Type of the receipt, with --applied")
	f.StringVar(&o.bodyFile, "body-file", "", "file with the body of the receipt, at most 1 MiB; - is standard input; with --applied")
	f.StringVar(&o.note, "note", "", "why, kept in the call's history")
	f.StringVar(&o.actor, "actor", "", "who decides, kept in the call's history (default $USER)")
	return cmd
}

func (c *client) resolve(cmd *cobra.Command, key string, o *order) error {
	k, err := c.parseKey(key)
	if err != nil {
		return err
	}
	in := admin.Resolution{Run: k.Run, Turn: k.Turn, Call: k.Call, Namespace: k.Namespace, Note: o.note}
	if in.Decision, err = o.decision(); err != nil {
		return err
	}
	if in.Actor, err = c.actor(o.actor); err != nil {
		return err
	}
	givesReceipt := cmd.Flags().Changed("status") || o.contentType != "" || o.bodyFile != ""
	if givesReceipt && in.Decision != admin.Applied {
		return usagef("--status, --content-type and --body-file go with --applied only")
	}
	if givesReceipt {
		if in.Receipt, err = c.receipt(o); err != nil {
			return err
		}
	}
	var call view.Call
	raw, err := c.post(cmd.Context(), "/api/v1/calls/resolve", in, &call)
	if err != nil {
		return fmt.Errorf("resolving %s: %w", k, err)
	}
	if c.asJSON {
		return c.printJSON(raw)
	}
	return c.printCall(&call)
}

// decision is the one that the flags name.
func (o *order) decision() (admin.Decision, error) {
	var named []admin.Decision
	for _, flag := range []struct {
		given bool
		means admin.Decision
	}{{o.applied, admin.Applied}, {o.notApplied, admin.NotApplied}, {o.abandon, admin.Abandon}, {o.recheck, admin.Recheck}} {
		if flag.given {
			named = append(named, flag.means)
		}
	}
	if len(named) != 1 {
		return "", usagef("say one of --applied, --not-applied, --abandon and --recheck")
	}
	return named[0], nil
}

// actor is who decides: as given, else who is logged in.
func (c *client) actor(given string) (string, error) {
	for _, name := range []string{given, c.env.variables["USER"], c.env.variables["LOGNAME"]} {
		if name != "" {
			return name, nil
		}
	}
	return "", usagef("say who decides with --actor")
}

// receipt is what the agent is to be answered with.
func (c *client) receipt(o *order) (*admin.GivenReceipt, error) {
	r := &admin.GivenReceipt{Status: o.status}
	if o.status != 0 && (o.status < 200 || o.status > 599) {
		return nil, usagef("--status is a final status, from 200 to 599, not %d", o.status)
	}
	if o.contentType != "" {
		r.Headers = map[string]admin.Values{"Content-Type": {o.contentType}}
	}
	body, err := c.readBody(o.bodyFile)
	switch {
	case err != nil:
		return nil, err
	case utf8.Valid(body):
		r.Body = string(body)
	default:
		r.BodyBase64 = body
	}
	return r, nil
}

func (c *client) readBody(path string) ([]byte, error) {
	from := c.env.stdin
	switch path {
	case "":
		return nil, nil
	case "-":
	default:
		file, err := os.Open(path) //nolint:gosec // the operator names it
		if err != nil {
			return nil, usagef("--body-file: %w", err)
		}
		defer file.Close()
		from = file
	}
	body, err := io.ReadAll(io.LimitReader(from, admin.ReceiptBytesMax+1))
	if err != nil {
		return nil, fmt.Errorf("reading the receipt's body from %s: %w", path, err)
	}
	if len(body) > admin.ReceiptBytesMax {
		return nil, usagef("the receipt's body in %s has more than 1 MiB", path)
	}
	return body, nil
}

package main

import (
	"fmt"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"counterfoil/internal/admin"
	"counterfoil/internal/view"
)

// A ruling is what the flags of approve and deny say.
type ruling struct {
	note, actor string
	ttl         time.Duration
}

func newApproveCommand(env clientEnv) *cobra.Command {
	c, r := &client{env: env}, &ruling{}
	cmd := &cobra.Command{
		Use: "approve RUN:TURN:CALL", Short: "Let a held call be sent", Args: exactly("RUN:TURN:CALL"),
		Long: `Lets a call that waits for a person be sent. Look at what it would send first:
"sidecar held" shows it. The approval is for exactly that request, and is used
once: an agent that waits for it goes on at once, any other when it repeats the
call.`,
		Example: "  sidecar approve ticket-77:3:refund --note \"as agreed on the phone\" --ttl 1h",
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.rule(cmd, "approve", arguments(cmd, args)[0], r)
		},
	}
	c.addRulingFlags(cmd, r)
	cmd.Flags().DurationVar(&r.ttl, "ttl", 0, "for how long the approval stands if the call is not begun, as 30m or 24h (default: for ever)")
	return cmd
}

func newDenyCommand(env clientEnv) *cobra.Command {
	c, r := &client{env: env}, &ruling{}
	cmd := &cobra.Command{
		Use: "deny RUN:TURN:CALL", Short: "Refuse a held call for good", Args: exactly("RUN:TURN:CALL"),
		Long: `Refuses a call that waits for a person. It was never sent and never will be; the
agent is told so (403 denied).`,
		Example: "  sidecar deny ticket-77:3:refund --note \"twice the amount\"",
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.rule(cmd, "deny", arguments(cmd, args)[0], r)
		},
	}
	c.addRulingFlags(cmd, r)
	return cmd
}

func (c *client) addRulingFlags(cmd *cobra.Command, r *ruling) {
	c.addFlags(cmd)
	c.addNamespaceFlag(cmd)
	addKeyArgument(cmd)
	cmd.Flags().StringVar(&r.note, "note", "", "why, kept in the call's history")
	cmd.Flags().StringVar(&r.actor, "actor", "", "who decides, kept in the call's history (default $USER)")
}

// rule sends a ruling to the path of that name.
func (c *client) rule(cmd *cobra.Command, name, key string, r *ruling) error {
	k, err := c.parseKey(key)
	if err != nil {
		return err
	}
	in := admin.Ruling{Run: k.Run, Turn: k.Turn, Call: k.Call, Namespace: k.Namespace, Note: r.note}
	if in.Actor, err = c.actor(r.actor); err != nil {
		return err
	}
	if cmd.Flags().Changed("ttl") {
		seconds := int64(r.ttl / time.Second)
		if seconds < 1 || r.ttl%time.Second != 0 || seconds > admin.ApprovalTTLMax {
			return usagef("--ttl is whole seconds, from 1s to %s, not %s", strconv.Itoa(admin.ApprovalTTLMax/3600)+"h", r.ttl)
		}
		in.TTLSeconds = &seconds
	}
	var call view.Call
	raw, err := c.post(cmd.Context(), "/api/v1/calls/"+name, in, &call)
	if err != nil {
		return fmt.Errorf("%s %s: %w", name, k, err)
	}
	if c.asJSON {
		return c.printJSON(raw)
	}
	return c.printCall(&call)
}

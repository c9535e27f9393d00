package main

import (
	"encoding/base64"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"counterfoil/internal/view"
)

func newHeldCommand(env clientEnv) *cobra.Command {
	c := &client{env: env}
	cmd := &cobra.Command{
		Use: "held", Short: "List the calls that wait for an approval, oldest first", Args: exactly(),
		Long: `Lists the calls of all namespaces that a rule, or a run that does not repeat its
earlier steps, holds until a person has decided. None of them was sent. Each is
shown with what it would send; decide with "sidecar approve" and "sidecar deny".`,
		RunE: func(cmd *cobra.Command, _ []string) error { return c.held(cmd) },
	}
	c.addFlags(cmd)
	c.addPageFlags(cmd)
	return cmd
}

func (c *client) held(cmd *cobra.Command) error {
	if err := c.checkLimit(); err != nil {
		return err
	}
	var list view.List[*view.Held]
	raw, err := c.get(cmd.Context(), "/api/v1/held", c.query(), &list)
	if err != nil {
		return fmt.Errorf("listing held calls: %w", err)
	}
	if c.asJSON {
		return c.printJSON(raw)
	}
	if len(list.Items) == 0 {
		fmt.Fprintln(c.env.stdout, "No held calls.")
		return nil
	}
	for _, h := range list.Items {
		if err := c.printHeld(h); err != nil {
			return err
		}
	}
	c.printMore(list.Next)
	fmt.Fprintln(c.env.stdout, "Decide with: sidecar approve CALL --namespace NAMESPACE, or sidecar deny CALL --namespace NAMESPACE")
	return nil
}

// bodyShown is how much of a body a terminal is shown; --json has more.
const bodyShown = 2 << 10

func (c *client) printHeld(h *view.Held) error {
	at := clock{c.env.now()}
	t := newTable(c.env.stdout)
	t.row("call", printedKey(h.Run, h.Turn, h.Call))
	t.row("namespace", h.Namespace)
	t.fact("tool", h.Tool)
	t.row("held since", at.when(h.Since))
	t.row("because", heldFor(h))
	t.row("upstream", strings.TrimSpace(h.Upstream+" "+h.Origin))
	t.row("request", h.Method+" "+h.Target)
	t.row("fingerprint", h.Fingerprint)
	t.row("body", bodyText(h))
	if err := t.w.Flush(); err != nil {
		return err
	}
	text := h.Body
	if len(text) > bodyShown {
		text = strings.ToValidUTF8(text[:bodyShown], "") + "…"
	}
	for line := range strings.Lines(text) {
		fmt.Fprintln(c.env.stdout, "  "+printable(strings.TrimRight(line, "\r\n")))
	}
	_, err := fmt.Fprintln(c.env.stdout)
	return err
}

func heldFor(h *view.Held) string {
	if h.HeldFor == "divergence" {
		return "the run does not repeat its earlier steps"
	}
	return "a rule of its upstream asks for an approval"
}

func bodyText(h *view.Held) string {
	text := fmt.Sprintf("%d bytes", h.BodyBytes)
	switch {
	case h.BodyMissing:
		return text + ", not kept"
	case h.BodyBase64 != "":
		return text + fmt.Sprintf(", no text: --json has the first %d of them", base64.StdEncoding.DecodedLen(len(h.BodyBase64)))
	case h.BodyCut || len(h.Body) > bodyShown:
		return text + ", which begin:"
	}
	return text
}

package cli

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/sandbox-agent/sandbox-agent/internal/host/fault"
	"github.com/sandbox-agent/sandbox-agent/sandbox"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

type networkOptions struct {
	json  bool
	allow ruleList
}

func newNetworkCmd(a *App) *cobra.Command {
	o := &networkOptions{}
	cmd := &cobra.Command{
		Use: "network SANDBOX [full | restricted | none]", Short: "Tell or change what a sandbox without a task reaches, while it runs",
		Long: `Puts a sandbox onto another network at once: connections that it has are cut, commands and
endpoints go on. It stays so over a stop and a reset. Only a box can be restricted to what --allow names.
Without a network it tells the one that it has.`,
		Example: "  sandbox-agent network dev none\n  sandbox-agent network dev full\n  sandbox-agent network shop restricted --allow registry.npmjs.org --allow '*.debian.org'\n  sandbox-agent network dev",
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 1 || len(args) == 2 {
				return nil
			}
			return fault.New(workorder.ExitUsage, fmt.Errorf("%s needs a sandbox's name, and a network to change it", cmd.CommandPath()), "for example: sandbox-agent network dev none")
		},
		ValidArgsFunction: a.completeSandboxThen(string(sandbox.NetworkFull), string(sandbox.NetworkRestricted), string(sandbox.NetworkNone)),
		RunE: func(cmd *cobra.Command, args []string) error {
			to := ""
			if len(args) == 2 {
				to = args[1]
			}
			return o.do(cmd.Context(), a, args[0], sandbox.Network(to))
		},
	}
	cmd.Flags().Var(&o.allow, "allow", "what a restricted network reaches: a host, *.domain or address, with :port for another than 80 and 443 (repeatable)")
	cmd.Flags().BoolVar(&o.json, "json", false, "print a JSON document")
	return cmd
}

func (o *networkOptions) do(ctx context.Context, a *App, name string, to sandbox.Network) error {
	sb, done, err := a.sandbox(ctx, name)
	if err != nil {
		return err
	}
	defer done()
	var allow []string
	if o.allow != "" {
		allow = strings.Split(string(o.allow), ",")
	}
	if to == "" && len(allow) > 0 {
		return usage("--allow without a network: use restricted")
	}
	if to != "" {
		if err := sb.SetNetwork(ctx, to, allow...); err != nil {
			return sandboxError(err)
		}
		a.tellRenewed(sb)
		a.briefAnew(ctx, sb)
	}
	now := sb.Spec()
	if o.json {
		return a.json(struct {
			Name    string          `json:"name"`
			Network sandbox.Network `json:"network"`
			Allow   []string        `json:"allow,omitempty"`
		}{name, now.Network, now.Allow})
	}
	fmt.Fprintf(a.Stdout, "%s has network %s\n", name, now.Network)
	return nil
}

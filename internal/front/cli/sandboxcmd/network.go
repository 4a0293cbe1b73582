package sandboxcmd

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/sandbox-agent/sandbox-agent/internal/app"
	"github.com/sandbox-agent/sandbox-agent/internal/front/cmdutil"
	"github.com/sandbox-agent/sandbox-agent/sandbox"
)

type networkOptions struct {
	json  bool
	allow cmdutil.RuleList
}

// NewCmdNetwork makes the command.
func NewCmdNetwork(f *cmdutil.Factory) *cobra.Command {
	o := &networkOptions{}
	cmd := &cobra.Command{
		Use: "network SANDBOX [full | restricted | none]", Short: "Show or change a sandbox's network",
		Long: `Changes the network of a sandbox at once: open connections are closed, commands
and published ports stay. The change survives stop and reset. Without a mode it
prints the present one. Only sandboxes of the runtime box can be restricted. See
'help networks'. For a sandbox with the name of a command below, write
'network -- NAME'.`,
		Example: `  sandbox-agent network dev
  sandbox-agent network dev none
  sandbox-agent network shop restricted --allow registry.npmjs.org`,
		Args:              cmdutil.Args(1, 2, "a sandbox's name, and a network to change it", "for example: sandbox-agent network dev none"),
		ValidArgsFunction: f.CompleteSandboxThen(string(sandbox.NetworkFull), string(sandbox.NetworkRestricted), string(sandbox.NetworkNone)),
		RunE: func(cmd *cobra.Command, args []string) error {
			to := ""
			if len(args) == 2 {
				to = args[1]
			}
			return o.do(cmd.Context(), f, args[0], sandbox.NetworkMode(to))
		},
	}
	cmd.Flags().Var(&o.allow, "allow", "allow a `RULE` in a restricted network: HOST, *.DOMAIN or ADDRESS, with :PORT (repeatable)")
	cmd.Flags().BoolVar(&o.json, "json", false, "print JSON")
	return cmd
}

func (o *networkOptions) do(ctx context.Context, f *cmdutil.Factory, name string, to sandbox.NetworkMode) error {
	sb, done, err := f.Sandboxes().Get(ctx, name)
	if err != nil {
		return err
	}
	defer done()
	var allow []string
	if o.allow != "" {
		allow = strings.Split(string(o.allow), ",")
	}
	if to == "" && len(allow) > 0 {
		to = sandbox.NetworkRestricted
	}
	if to != "" {
		if err := sb.SetNetwork(ctx, to, allow...); err != nil {
			return app.SandboxError(err)
		}
		f.Sandboxes().NoteRecreated(sb)
		f.Agents().BriefAgain(ctx, sb)
	}
	now := sb.Spec()
	if o.json {
		return f.JSON(struct {
			Name    string              `json:"name"`
			Network sandbox.NetworkMode `json:"network"`
			Allow   []string            `json:"allow,omitempty"`
		}{name, now.Network, now.Allow})
	}
	fmt.Fprintf(f.Stdout, "%s has network %s\n", name, now.Network)
	return nil
}

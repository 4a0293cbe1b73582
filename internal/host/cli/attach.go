package cli

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/sandbox-agent/sandbox-agent/internal/host/fault"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

type attachOptions struct{ from int64 }

func newAttachCmd(a *App) *cobra.Command {
	o := &attachOptions{}
	cmd := &cobra.Command{
		Use: "attach SANDBOX [ID]", Short: "Show what a command in a sandbox's background prints",
		Long: `Shows what a command prints that ` + "`exec --background`" + ` has started, from its beginning, until it ends, and ends
with its exit code. An interrupt ends only the showing. Without an id it is the last one; an id can be shortened. The sandbox keeps the last 8 MB of
each command's output.`,
		Example: "  sandbox-agent attach dev\n  sandbox-agent attach dev Q7ZK --from 1000",
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 1 || len(args) == 2 {
				return nil
			}
			return fault.New(workorder.ExitUsage, fmt.Errorf("%s needs a sandbox's name, and an id where it is not the last command", cmd.CommandPath()), "`sandbox-agent ps` lists sandboxes")
		},
		ValidArgsFunction: a.completeSandboxes(false),
		RunE: func(cmd *cobra.Command, args []string) error {
			id := ""
			if len(args) == 2 {
				id = args[1]
			}
			return o.do(cmd.Context(), a, args[0], id)
		},
	}
	cmd.Flags().Int64Var(&o.from, "from", 0, "begin at that byte of the output")
	return cmd
}

func (o *attachOptions) do(ctx context.Context, a *App, name, id string) error {
	sb, done, err := a.sandbox(ctx, name)
	if err != nil {
		return err
	}
	defer done()
	if id == "" {
		all, err := sb.Commands(ctx)
		if err != nil {
			return sandboxError(err)
		}
		for _, c := range all {
			if c.Background {
				id = c.ID
			}
		}
		if id == "" {
			return fault.New(workorder.ExitNotFound, fmt.Errorf("sandbox %s knows no command of its background", name), "`sandbox-agent exec "+name+" --background -- COMMAND` starts one")
		}
	}
	p, err := sb.Attach(ctx, id, o.from)
	if err != nil {
		return sandboxError(err)
	}
	return a.waitFor(ctx, p, 0, a.Stdout, a.Stderr)
}

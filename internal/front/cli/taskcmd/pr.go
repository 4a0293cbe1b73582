package taskcmd

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/sandbox-agent/sandbox-agent/internal/front/cmdutil"
	"github.com/sandbox-agent/sandbox-agent/internal/text"
)

// NewCmdPR makes the command.
func NewCmdPR(f *cmdutil.Factory) *cobra.Command {
	cmd := &cobra.Command{
		Use: "pr", Short: "Open pull requests of tasks", Args: cmdutil.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newPROpenCmd(f))
	return cmd
}

type prOptions struct {
	draft, json bool
	base        string
}

func newPROpenCmd(f *cmdutil.Factory) *cobra.Command {
	o := &prOptions{}
	cmd := &cobra.Command{
		Use: "open TASK", Short: "Open or update the pull request of a task", Args: cmdutil.OneTask,
		ValidArgsFunction: f.CompleteTasks(false),
		Long: `Opens the pull request that the task itself could not open: the project does not
ask for one, the forge was unavailable, or there was no token. An open pull
request gets the body of the last attempt that proved the branch, and missing
replies to its reviewers. The token is the one for git: see 'help environment'.`,
		Example: `  sandbox-agent pr open T-A1B2C3D4
  sandbox-agent pr open A1B2 --draft --base release`,
		RunE: func(cmd *cobra.Command, args []string) error { return o.do(cmd.Context(), args[0], f) },
	}
	cmd.Flags().BoolVar(&o.draft, "draft", false, "open it as a draft")
	cmd.Flags().StringVar(&o.base, "base", "", "branch to merge into (default: the project's, or the task's base)")
	cmd.Flags().BoolVar(&o.json, "json", false, "print JSON")
	return cmd
}

func (o *prOptions) do(ctx context.Context, id string, f *cmdutil.Factory) error {
	out, err := f.Tasks().OpenPR(ctx, id, o.draft, o.base)
	for _, w := range out.Warnings {
		fmt.Fprintln(f.Stderr, "warning: "+text.Clean(w))
	}
	if err != nil || out.PR == nil {
		return err
	}
	if o.json {
		return f.JSON(out.PR)
	}
	fmt.Fprintf(f.Stdout, "#%d %s %s\n", out.PR.Number, text.Clean(out.PR.State), text.Clean(out.PR.URL))
	return nil
}

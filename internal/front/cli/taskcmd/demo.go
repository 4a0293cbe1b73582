package taskcmd

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/sandbox-agent/sandbox-agent/internal/app"
	"github.com/sandbox-agent/sandbox-agent/internal/front/cmdutil"
	"github.com/sandbox-agent/sandbox-agent/internal/text"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

type demoOptions struct {
	json bool
}

// NewCmdDemo makes the command.
func NewCmdDemo(f *cmdutil.Factory) *cobra.Command {
	o := &demoOptions{}
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "Run a whole task on a sample repository, without an account",
		Long: `Runs a whole task: a small repository with a service (Redis), a failing test,
and a scripted agent that fixes the code. It needs a Docker engine and nothing
else: no account, no key, no model. Missing images are built first, which takes
some minutes once.

The sample repository with the agent's branch is in the state directory
afterwards. Each call starts with a new one.`,
		Example: "  sandbox-agent demo\n  sandbox-agent demo --json",
		Args:    cmdutil.NoArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return o.do(cmd.Context(), f) },
	}
	cmd.Flags().BoolVar(&o.json, "json", false, "print events as JSON lines")
	return cmd
}

func (o *demoOptions) do(ctx context.Context, f *cmdutil.Factory) error {
	run := runOptions{json: o.json}
	t := run.tasks(f)
	d, err := app.Demo(ctx, t, func() (func(workorder.Event), func()) {
		view := f.NewView(f.Stdout, o.json)
		return view.Event, view.Close
	})
	if err := run.answer(ctx, f, t, d.TaskOutcome, err); err != nil || o.json {
		return err
	}
	diff, err := d.Diff(ctx)
	if err != nil {
		return err
	}
	fmt.Fprintln(f.Stdout)
	for line := range strings.Lines(diff) {
		fmt.Fprintln(f.Stdout, text.Clean(strings.TrimSuffix(line, "\n")))
	}
	return nil
}

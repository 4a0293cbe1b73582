package sandboxcmd

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/sandbox-agent/sandbox-agent/internal/app"
	"github.com/sandbox-agent/sandbox-agent/internal/front/cmdutil"
	"github.com/sandbox-agent/sandbox-agent/sandbox"
)

type stopOptions struct {
	timeout time.Duration
	json    bool
}

// NewCmdStop makes the command.
func NewCmdStop(f *cmdutil.Factory) *cobra.Command {
	o := &stopOptions{}
	cmd := &cobra.Command{
		Use: "stop TASK | SANDBOX...", Short: "Stop tasks or sandboxes", Args: cmdutil.Each(cmdutil.SomeTasks, app.CheckTask),
		ValidArgsFunction: f.CompleteEither(true),
		Long: `Stops tasks: the agent ends, its work is saved and pushed, and the result is
collected. A task that takes longer than --timeout is killed.

Stops standalone sandboxes with everything that runs in them. Their commands get
SIGTERM and have five seconds to end. The files stay, and the next command starts
the sandbox again.`,
		Example: "  sandbox-agent stop T-A1B2C3D4\n  sandbox-agent stop A1B2 --timeout 30s\n  sandbox-agent stop dev",
		RunE: func(cmd *cobra.Command, args []string) error {
			var errs []error
			for _, id := range args {
				errs = append(errs, o.do(cmd.Context(), id, f))
			}
			return errors.Join(errs...)
		},
	}
	cmdutil.DurationVar(cmd.Flags(), &o.timeout, "timeout", app.StopTimeout, "time that a task has to push its work; 0 kills it")
	cmd.Flags().BoolVar(&o.json, "json", false, "print the state of each as JSON")
	return cmd
}

func (o *stopOptions) do(ctx context.Context, id string, f *cmdutil.Factory) error {
	if o.timeout < 0 {
		return app.Usagef("--timeout must not be negative")
	}
	sb, done, err := f.Sandboxes().Either(ctx, id)
	if err != nil {
		return err
	}
	if sb != nil {
		defer done()
		return o.sandbox(ctx, sb, f)
	}
	s, err := f.Tasks().Stop(ctx, id, o.timeout)
	if err != nil {
		return err
	}
	return f.Done(o.json, s, "%s %s", s.TaskID, s.Status)
}

// sandbox stops a standalone sandbox.
func (o *stopOptions) sandbox(ctx context.Context, sb *sandbox.Sandbox, f *cmdutil.Factory) error {
	if err := sb.Stop(ctx); err != nil {
		return app.SandboxError(err)
	}
	repositories := f.Sandboxes().WarnOfRepositories(ctx, sb)
	if o.json {
		return f.JSON(struct {
			sandbox.Info
			NewRepositories []string `json:"new_repositories,omitempty"`
		}{sb.Info(), repositories})
	}
	fmt.Fprintln(f.Stdout, sb.Name()+" is stopped")
	return nil
}

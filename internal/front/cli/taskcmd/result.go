package taskcmd

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/sandbox-agent/sandbox-agent/internal/app"
	"github.com/sandbox-agent/sandbox-agent/internal/front/cmdutil"
	"github.com/sandbox-agent/sandbox-agent/internal/text"
)

type resultOptions struct {
	json, path, exitStatus bool
	attempt                int
}

// NewCmdResult makes the command.
func NewCmdResult(f *cmdutil.Factory) *cobra.Command {
	o := &resultOptions{}
	cmd := &cobra.Command{
		Use: "result TASK", Short: "Show the result of a task",
		Long: "Shows the result of a task, and collects it first where that has not been done.", Args: cmdutil.OneTask,
		ValidArgsFunction: f.CompleteTasks(false),
		Example: `  sandbox-agent result T-A1B2C3D4
  sandbox-agent result A1B2 --json | jq .status
  ls $(sandbox-agent result A1B2 --path)`,
		RunE: func(cmd *cobra.Command, args []string) error { return o.do(cmd.Context(), args[0], f) },
	}
	cmd.Flags().BoolVar(&o.json, "json", false, "print result.json")
	cmd.Flags().IntVar(&o.attempt, "attempt", 0, "number of an earlier attempt (default: the last)")
	cmd.Flags().BoolVar(&o.path, "path", false, "print the output directory")
	cmd.Flags().BoolVar(&o.exitStatus, "exit-status", false, "end with the task's exit code")
	return cmd
}

func (o *resultOptions) do(ctx context.Context, id string, f *cmdutil.Factory) error {
	if o.json && o.path {
		return app.Usagef("give --json or --path, not both")
	}
	rec, err := f.Tasks().Attempt(ctx, id, o.attempt)
	if err != nil {
		return err
	}
	if o.path {
		_, err = fmt.Fprintln(f.Stdout, rec.Dir)
	} else {
		var res app.TaskResult
		var stored []byte
		switch res, stored, err = app.ReadResult(rec); {
		case o.json && stored != nil:
			_, err = f.Stdout.Write(text.EscapeControls(stored))
		case err == nil:
			f.ShowResult(res, true)
		}
	}
	if err == nil && o.exitStatus {
		return cmdutil.Ended(rec.Status, rec.EndedBy)
	}
	return err
}

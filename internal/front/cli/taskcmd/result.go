package taskcmd

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/sandbox-agent/sandbox-agent/internal/app"
	"github.com/sandbox-agent/sandbox-agent/internal/exiterr"
	"github.com/sandbox-agent/sandbox-agent/internal/front/cmdutil"
	"github.com/sandbox-agent/sandbox-agent/internal/host/taskstore"
	"github.com/sandbox-agent/sandbox-agent/internal/text"
	"github.com/sandbox-agent/sandbox-agent/workorder"
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
	rec, err := o.show(ctx, id, f)
	if err == nil && o.exitStatus {
		return cmdutil.Ended(rec.Status, rec.EndedBy)
	}
	return err
}

func (o *resultOptions) show(ctx context.Context, id string, f *cmdutil.Factory) (*taskstore.Record, error) {
	if o.json && o.path {
		return nil, app.Usagef("give --json or --path, not both")
	}
	_, rec, err := f.Tasks().Find(ctx, id)
	if err != nil {
		return nil, err
	}
	if rec, err = f.Tasks().Collect(ctx, rec); err != nil {
		return nil, err
	}
	if rec, err = app.Attempt(rec, o.attempt); err != nil {
		return nil, err
	}
	if o.path {
		fmt.Fprintln(f.Stdout, rec.Dir)
		return rec, nil
	}
	b, err := os.ReadFile(filepath.Join(rec.Dir, workorder.ResultFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, exiterr.New(workorder.ExitNotFound, fmt.Errorf("the output of %s is no longer in %s", rec.TaskID, rec.Dir),
			"`sandbox-agent rm "+rec.TaskID+"` forgets the task")
	}
	if err != nil {
		return nil, fmt.Errorf("read result: %w", err)
	}
	if o.json {
		_, err := f.Stdout.Write(text.EscapeControls(b))
		return rec, err
	}
	res, err := workorder.DecodeResult(b)
	if err != nil {
		return nil, err
	}
	f.ShowResult(res, rec, true)
	return rec, nil
}

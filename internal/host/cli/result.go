package cli

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/sandbox-agent/sandbox-agent/internal/front/render"
	"github.com/sandbox-agent/sandbox-agent/internal/host/fault"
	"github.com/sandbox-agent/sandbox-agent/internal/host/store"
	"github.com/sandbox-agent/sandbox-agent/internal/text"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

type resultOptions struct {
	json, path, exitStatus bool
	attempt                int
}

func newResultCmd(a *App) *cobra.Command {
	o := &resultOptions{}
	cmd := &cobra.Command{
		Use: "result TASK", Short: "Show the result of a task",
		Long: "Shows the result of a task, and collects it first where that has not been done.", Args: oneTask,
		ValidArgsFunction: a.CompleteTasks(false),
		Example: `  sandbox-agent result T-A1B2C3D4
  sandbox-agent result A1B2 --json | jq .status
  ls $(sandbox-agent result A1B2 --path)`,
		RunE: func(cmd *cobra.Command, args []string) error { return o.do(cmd.Context(), args[0], a) },
	}
	cmd.Flags().BoolVar(&o.json, "json", false, "print result.json")
	cmd.Flags().IntVar(&o.attempt, "attempt", 0, "number of an earlier attempt (default: the last)")
	cmd.Flags().BoolVar(&o.path, "path", false, "print the output directory")
	cmd.Flags().BoolVar(&o.exitStatus, "exit-status", false, "end with the task's exit code")
	return cmd
}

func (o *resultOptions) do(ctx context.Context, id string, a *App) error {
	rec, err := o.show(ctx, id, a)
	if err == nil && o.exitStatus {
		return ended(rec.Status, rec.EndedBy)
	}
	return err
}

func (o *resultOptions) show(ctx context.Context, id string, a *App) (*store.Record, error) {
	if o.json && o.path {
		return nil, usage("give --json or --path, not both")
	}
	_, rec, err := a.task(ctx, id)
	if err != nil {
		return nil, err
	}
	if rec, err = a.collect(ctx, rec); err != nil {
		return nil, err
	}
	if rec, err = at(rec, o.attempt); err != nil {
		return nil, err
	}
	if o.path {
		fmt.Fprintln(a.Stdout, rec.Dir)
		return rec, nil
	}
	b, err := os.ReadFile(filepath.Join(rec.Dir, workorder.ResultFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fault.New(workorder.ExitNotFound, fmt.Errorf("the output of %s is no longer in %s", rec.TaskID, rec.Dir),
			"`sandbox-agent rm "+rec.TaskID+"` forgets the task")
	}
	if err != nil {
		return nil, fmt.Errorf("read result: %w", err)
	}
	if o.json {
		_, err := a.Stdout.Write(text.EscapeControls(b))
		return rec, err
	}
	res, err := workorder.DecodeResult(b)
	if err != nil {
		return nil, err
	}
	a.show(res, rec, true)
	return rec, nil
}

// summary ends a run: short, unless all is asked for.
func (a *App) summary(res *workorder.Result, rec *store.Record) { a.show(res, rec, a.Verbose) }

func (a *App) show(res *workorder.Result, rec *store.Record, all bool) {
	w, _ := termSize(a.Stdout)
	o := render.SummaryOptions{Color: a.color(a.Stdout), All: all, Width: w, Dir: rec.Dir, Kept: keptBox(rec), Number: rec.Number()}
	for _, f := range rec.Former {
		o.Former = append(o.Former, render.Attempt{Number: f.Number, Status: f.Status, EndedBy: f.EndedBy})
	}
	render.Summary(a.Stdout, res, o)
}

// keptBox is the container that was kept for inspection; empty if there is none.
func keptBox(rec *store.Record) string {
	if rec.Keep {
		return rec.Box
	}
	return ""
}

// collect collects a task whose own CLI has died.
func (a *App) collect(ctx context.Context, rec *store.Record) (*store.Record, error) {
	return a.Tasks().Collect(ctx, rec)
}

// task finds a task by id or prefix.
func (a *App) task(ctx context.Context, id string) (*store.Store, *store.Record, error) {
	return a.Tasks().Find(ctx, id)
}

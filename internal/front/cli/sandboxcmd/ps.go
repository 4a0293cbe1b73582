package sandboxcmd

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/sandbox-agent/sandbox-agent/internal/app"
	"github.com/sandbox-agent/sandbox-agent/internal/front/cmdutil"
	"github.com/sandbox-agent/sandbox-agent/internal/text"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// recent is how many finished tasks `ps` shows without --all.
const recent = 10

type psOptions struct{ all, json, sandboxes, allUsers bool }

// NewCmdPs makes the command.
func NewCmdPs(f *cmdutil.Factory) *cobra.Command {
	o := &psOptions{}
	cmd := &cobra.Command{
		Use: "ps", Aliases: []string{"ls"}, Short: "List tasks and sandboxes", Args: cmdutil.NoArgs,
		Example: "  sandbox-agent ps\n  sandbox-agent ps --all --json\n  sandbox-agent ps --sandboxes --json",
		RunE:    func(cmd *cobra.Command, _ []string) error { return o.do(cmd.Context(), f) },
	}
	cmd.Flags().BoolVarP(&o.all, "all", "a", false, "include all finished tasks")
	cmd.Flags().BoolVar(&o.sandboxes, "sandboxes", false, "list sandboxes only")
	cmd.Flags().BoolVar(&o.json, "json", false, "print a JSON list: tasks, then sandboxes, told apart by kind")
	cmd.Flags().BoolVar(&o.allUsers, "all-users", false, "include sandboxes of other state directories on this engine")
	cmd.MarkFlagsMutuallyExclusive("all", "sandboxes")
	return cmd
}

func (o *psOptions) do(ctx context.Context, f *cmdutil.Factory) error {
	if o.sandboxes {
		return listSandboxes(ctx, f, o.json, o.allUsers)
	}
	most := recent
	if o.all {
		most = math.MaxInt
	}
	list, err := f.Tasks().List(ctx, most)
	if err != nil {
		return err
	}
	if list.Damaged != nil {
		f.Warn(list.Damaged.Error())
		if h := app.Hint(list.Damaged); h != "" {
			f.Say("hint: " + h)
		}
	}
	rows := list.Tasks
	unknown := slices.ContainsFunc(rows, func(r app.TaskState) bool { return r.Status == app.StatusUnknown && r.Engine == "" })
	standalone, err := o.standalone(ctx, f, len(rows) == 0)
	switch {
	case list.Engine != nil && unknown:
		err = list.Engine
	case list.Engine != nil && err == nil:
		f.Warn(list.Engine.Error())
	}
	if o.json {
		all := make([]any, 0, len(rows)+len(standalone))
		for _, r := range rows {
			all = append(all, r)
		}
		for _, s := range standalone {
			all = append(all, s)
		}
		return errors.Join(f.JSON(all), err)
	}
	if len(standalone) > 0 && printSandboxes(f, standalone) == nil {
		fmt.Fprintln(f.Stdout)
	}
	return errors.Join(o.print(f, rows, list.Hidden), err)
}

// standalone returns the standalone sandboxes. An engine that does not answer is an error if one of them may be on it, or
// if there is nothing else to list.
func (o *psOptions) standalone(ctx context.Context, f *cmdutil.Factory, alone bool) ([]app.SandboxRow, error) {
	if f.OpenSandboxes == nil {
		return nil, nil
	}
	ctx, cancel := context.WithTimeout(ctx, app.EngineWait)
	defer cancel()
	all, err := f.Sandboxes().List(ctx, o.allUsers)
	if len(all) == 0 && !alone {
		return nil, nil
	}
	return all, err
}

func (o *psOptions) print(f *cmdutil.Factory, rows []app.TaskState, hidden int) error {
	if len(rows) == 0 {
		fmt.Fprintln(f.Stdout, "no tasks yet: start one with: sandbox-agent \"fix the flaky test\"")
		return nil
	}
	w := tabwriter.NewWriter(f.Stdout, 0, 4, 2, ' ', 0)
	fmt.Fprintln(w, "TASK\tPROJECT\tSTATUS\tAGE\tSTEP\tDESCRIPTION")
	resumable := false
	for _, r := range rows {
		resumable = resumable || r.Resumable
		if r.Status == string(workorder.StatusParked) && r.ResumeAt != nil {
			r.Status += " until " + text.Clock(*r.ResumeAt, time.Now())
		} else if r.Resumable {
			r.Status += " (resumable)"
		}
		if r.Engine != "" {
			r.Status += " (on another engine)"
		}
		if r.Kept {
			r.Status += " (kept)"
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\n", r.TaskID, text.Clean(r.Project), r.Status,
			text.Age(time.Since(r.CreatedAt)), text.Clean(r.Step), cmdutil.Clip(text.Clean(r.Task)))
	}
	if err := w.Flush(); err != nil {
		return err
	}
	if resumable {
		fmt.Fprintln(f.Stdout, "continue a resumable or parked task with: sandbox-agent continue TASK")
	}
	if hidden > 0 {
		fmt.Fprintf(f.Stdout, "and %d older ones: --all lists them\n", hidden)
	}
	return nil
}

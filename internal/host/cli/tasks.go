package cli

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/sandbox-agent/sandbox-agent/internal/host/engine"
	"github.com/sandbox-agent/sandbox-agent/internal/host/fault"
	"github.com/sandbox-agent/sandbox-agent/internal/host/launch"
	"github.com/sandbox-agent/sandbox-agent/internal/host/render"
	"github.com/sandbox-agent/sandbox-agent/internal/host/store"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// exitLeft is the exit code of following that was interrupted: what a shell says
// of a program that SIGINT ended. ExitInterrupted would say that of the task.
const exitLeft = 130

type logsOptions struct {
	follow, json bool
	attempt      int
}

func newLogsCmd(a *App) *cobra.Command {
	o := &logsOptions{}
	cmd := &cobra.Command{
		Use: "logs TASK", Short: "Show what happened in a task, or follow it", Args: oneTask,
		ValidArgsFunction: a.completeTasks(false),
		Long: `Logs shows the events of a task so far, or with --follow those to come as well. When the
task has ended, --follow collects its result and ends with the task's exit code (see
` + "`sandbox-agent --help`" + `), so that a script can wait for a detached task. An interrupt only ends
the following (exit code 130): the task goes on. ` + "`sandbox-agent stop`" + ` ends a task.`,
		Example: "  sandbox-agent logs T-A1B2C3D4\n  sandbox-agent logs -f A1B2",
		RunE:    func(cmd *cobra.Command, args []string) error { return a.runLogs(cmd.Context(), args[0], o) },
	}
	cmd.Flags().BoolVarP(&o.follow, "follow", "f", false, "follow to the end, and collect the result")
	cmd.Flags().IntVar(&o.attempt, "attempt", 0, "a former attempt, by its number (default: the last)")
	cmd.Flags().BoolVar(&o.json, "json", false, "print events as JSON lines")
	return cmd
}

func (a *App) runLogs(ctx context.Context, id string, o *logsOptions) error {
	st, rec, err := a.task(ctx, id)
	if err == nil {
		rec, err = at(rec, o.attempt)
	}
	if err != nil {
		return err
	}
	view := a.newView(o.json)
	defer view.r.Close()
	if rec.Collected {
		err := launch.Recorded(rec, view.event)
		if err == nil && o.follow {
			return ended(rec.Status, rec.EndedBy)
		}
		return err
	}
	be, err := a.open()
	if err != nil {
		return err
	}
	if o.follow {
		return a.follow(ctx, be, st, rec, view)
	}
	err = a.launcher(be, st, view.event).Replay(ctx, rec)
	if err != nil && ctx.Err() != nil {
		return &ending{exitLeft}
	}
	return err
}

// at is the record of an attempt of the task.
func at(rec *store.Record, attempt int) (*store.Record, error) {
	past, err := rec.At(attempt)
	return past, fault.New(workorder.ExitNotFound, err, "`sandbox-agent result "+rec.TaskID+"` lists the attempts")
}

// follow shows a run to its end and ends with its exit code.
func (a *App) follow(ctx context.Context, be *Backend, st *store.Store, rec *store.Record, view *view) error {
	view.told = true
	res, err := a.launcher(be, st, view.event).Watch(ctx, rec)
	view.r.Close()
	if err != nil && ctx.Err() != nil {
		return &ending{exitLeft} // leaving is no error, and the task goes on
	}
	if res != nil && !view.json {
		a.summary(res, rec)
	}
	if res != nil && err == nil {
		return ended(res.Status, res.EndedBy)
	}
	return err
}

// ended is the ending of a command that answers for a task: its exit code.
func ended(s workorder.Status, by workorder.EndedBy) error {
	if code := workorder.ExitCode(s, by); code != workorder.ExitOK {
		return &ending{code}
	}
	return nil
}

type resultOptions struct {
	json, path, exitStatus bool
	attempt                int
}

func newResultCmd(a *App) *cobra.Command {
	o := &resultOptions{}
	cmd := &cobra.Command{
		Use: "result TASK", Short: "Show the result of a task, collecting it if needed", Args: oneTask,
		ValidArgsFunction: a.completeTasks(false),
		Example:           "  sandbox-agent result T-A1B2C3D4\n  sandbox-agent result A1B2 --json | jq .status\n  ls $(sandbox-agent result A1B2 --path)",
		RunE:              func(cmd *cobra.Command, args []string) error { return a.runResult(cmd.Context(), args[0], o) },
	}
	cmd.Flags().BoolVar(&o.json, "json", false, "print result.json")
	cmd.Flags().IntVar(&o.attempt, "attempt", 0, "a former attempt, by its number (default: the last)")
	cmd.Flags().BoolVar(&o.path, "path", false, "print the folder of the output")
	cmd.Flags().BoolVar(&o.exitStatus, "exit-status", false, "end with the task's exit code")
	return cmd
}

func (a *App) runResult(ctx context.Context, id string, o *resultOptions) error {
	rec, err := a.showResult(ctx, id, o)
	if err == nil && o.exitStatus {
		return ended(rec.Status, rec.EndedBy)
	}
	return err
}

func (a *App) showResult(ctx context.Context, id string, o *resultOptions) (*store.Record, error) {
	if o.json && o.path {
		return nil, usage("give --json or --path, not both")
	}
	st, rec, err := a.task(ctx, id)
	if err != nil {
		return nil, err
	}
	if !rec.Collected {
		if rec, err = a.collect(ctx, st, rec); err != nil {
			return nil, err
		}
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
		return nil, fault.New(workorder.ExitNotFound, fmt.Errorf("the output of %s is no longer in %s", rec.TaskID, rec.Dir), "`sandbox-agent rm "+rec.TaskID+"` forgets the task")
	}
	if err != nil {
		return nil, fmt.Errorf("read result: %w", err)
	}
	if o.json {
		_, err := a.Stdout.Write(render.EscapeControls(b))
		return rec, err
	}
	res, err := workorder.DecodeResult(b)
	if err != nil {
		return nil, err
	}
	a.summary(res, rec)
	return rec, nil
}

func (a *App) summary(res *workorder.Result, rec *store.Record) {
	w, _ := termSize(a.Stdout)
	o := render.SummaryOptions{Color: a.color(a.Stdout), Width: w, Dir: rec.Dir, Kept: keptBox(rec), Number: rec.Number()}
	for _, f := range rec.Former {
		o.Former = append(o.Former, render.Attempt{Number: f.Number, Status: f.Status, EndedBy: f.EndedBy})
	}
	render.Summary(a.Stdout, res, o)
}

// keptBox is the container that was left for a look inside, or empty.
func keptBox(rec *store.Record) string {
	if rec.Keep {
		return rec.Box
	}
	return ""
}

// collect brings home a task whose own CLI is gone.
func (a *App) collect(ctx context.Context, st *store.Store, rec *store.Record) (*store.Record, error) {
	lock, err := st.TryLock(rec.TaskID)
	if errors.Is(err, store.ErrLocked) {
		return nil, running(rec.TaskID)
	}
	if err != nil {
		return nil, err
	}
	defer lock.Unlock()
	// Its former follower may have finished between our look and our lock.
	if rec, err = st.Load(rec.TaskID); err != nil || rec.Collected {
		return rec, err
	}
	be, err := a.open()
	if err != nil {
		return nil, err
	}
	_, err = a.launcher(be, st, nil).Collect(ctx, rec)
	if errors.Is(err, launch.ErrRunning) {
		return nil, running(rec.TaskID)
	}
	return rec, err
}

func running(id string) error {
	return fault.New(workorder.ExitGeneral, fmt.Errorf("task %s is still running", id), "follow it with `sandbox-agent logs -f "+id+"`")
}

type stopOptions struct {
	timeout time.Duration
	json    bool
}

func newStopCmd(a *App) *cobra.Command {
	o := &stopOptions{}
	cmd := &cobra.Command{
		Use: "stop TASK", Short: "Stop a task; the work so far is pushed", Args: oneTask,
		ValidArgsFunction: a.completeTasks(false),
		Long:              "Stop asks the box to end: the agent is stopped, its work is saved and pushed, and the\nresult is collected. What has not ended after --timeout is killed.",
		Example:           "  sandbox-agent stop T-A1B2C3D4\n  sandbox-agent stop A1B2 --timeout 30s",
		RunE:              func(cmd *cobra.Command, args []string) error { return a.runStop(cmd.Context(), args[0], o) },
	}
	cmd.Flags().DurationVar(&o.timeout, "timeout", engine.StopTimeout, "how long the box may take to land (0 kills it)")
	cmd.Flags().BoolVar(&o.json, "json", false, "print the task's state as JSON")
	return cmd
}

func (a *App) runStop(ctx context.Context, id string, o *stopOptions) error {
	if o.timeout < 0 {
		return usage("--timeout %s is negative", o.timeout)
	}
	st, rec, err := a.task(ctx, id)
	if err != nil {
		return err
	}
	// Who holds a task that is over is looking whether it can go on with it: what is to
	// be stopped is a moment away.
	wait, cancel := a.waiting(ctx, decideWait)
	defer cancel()
	for rec.Collected && st.Held(rec.TaskID) {
		if pause(wait, lockPause); wait.Err() != nil {
			return gaveUp(wait, st, rec.TaskID)
		}
		if rec, err = st.Load(rec.TaskID); err != nil {
			return err
		}
	}
	if !rec.Collected {
		be, err := a.open()
		if err != nil {
			return err
		}
		l := a.launcher(be, st, nil)
		if rec, err = a.settle(ctx, st, l, rec, o.timeout); err != nil {
			return err
		}
	}
	if o.json {
		return a.json(a.state(st, rec, nil, nil))
	}
	fmt.Fprintf(a.Stdout, "%s %s\n", rec.TaskID, rec.Status)
	return nil
}

// settle stops the task, also one whose box is just being started, and waits until
// it is collected: by its own CLI when that lives, else by us.
func (a *App) settle(ctx context.Context, st *store.Store, l *launch.Launcher, rec *store.Record, grace time.Duration) (*store.Record, error) {
	ctx, cancel := context.WithTimeout(ctx, grace+launch.CollectTimeout)
	defer cancel()
	stopped := false
	for {
		if !stopped {
			// Its command goes from one state to the next meanwhile, perhaps to the next attempt.
			fresh, err := st.Load(rec.TaskID)
			if err != nil {
				return nil, err
			}
			if !fresh.Collected {
				rec = fresh
			}
			if stopped, err = l.Stop(ctx, rec, grace); err != nil {
				return nil, err
			}
		}
		lock, err := st.TryLock(rec.TaskID)
		switch {
		case err == nil:
			fresh, err := st.Load(rec.TaskID)
			if err == nil && !fresh.Collected {
				_, err = l.Collect(ctx, fresh)
			}
			lock.Unlock()
			return fresh, err
		case !errors.Is(err, store.ErrLocked):
			return nil, err
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("wait for the other command to collect %s: %w", rec.TaskID, ctx.Err())
		case <-time.After(100 * time.Millisecond):
		}
	}
}

type rmOptions struct{ force bool }

func newRmCmd(a *App) *cobra.Command {
	o := &rmOptions{}
	cmd := &cobra.Command{
		Use: "rm TASK...", Short: "Forget tasks and delete their output",
		ValidArgsFunction: a.completeTasks(true),
		Long:              "Rm deletes what is known of a task: its record and its output folder. A box that still\nruns is only removed with --force, and one on another engine is only left with it; a task whose\nrecord is damaged is only forgotten with it. The branch it pushed stays, and the task's\nrefs on the remote do: docs/tasks.md has the git command that removes these.",
		Example:           "  sandbox-agent rm T-A1B2C3D4\n  sandbox-agent rm --force A1B2",
		RunE: func(cmd *cobra.Command, args []string) error {
			for _, id := range args {
				if err := a.runRm(cmd.Context(), id, o); err != nil {
					return err
				}
			}
			return nil
		},
	}
	cmd.Args = func(cmd *cobra.Command, args []string) error {
		if len(args) == 0 {
			return oneTask(cmd, args)
		}
		return nil
	}
	cmd.Flags().BoolVarP(&o.force, "force", "f", false, "also kill a box that runs, and leave one that is on another engine")
	return cmd
}

func (a *App) runRm(ctx context.Context, id string, o *rmOptions) error {
	st, rec, err := a.task(ctx, id)
	if damaged, ok := errors.AsType[*store.DamagedError](err); ok && o.force {
		return a.forget(ctx, st, damaged.TaskID)
	}
	if err != nil {
		return err
	}
	if !rec.Collected || slices.ContainsFunc(rec.Attempts(), func(t store.Attempt) bool { return t.Keep || t.Unsure }) {
		be, err := a.open()
		if err != nil {
			return err
		}
		l := a.launcher(be, st, nil)
		left, err := l.Discard(ctx, rec, o.force)
		if err != nil {
			if errors.Is(err, launch.ErrRunning) {
				return fault.New(workorder.ExitGeneral, err, "stop it first (`sandbox-agent stop "+rec.TaskID+"`) or use --force")
			}
			return err
		}
		if !rec.Collected {
			// Its own CLI, if it lives, collects now; the folder goes after it.
			if _, err := a.settle(ctx, st, l, rec, 0); err != nil && (!o.force || !errors.Is(err, launch.ErrElsewhere)) {
				return err
			}
		}
		for _, box := range left {
			fmt.Fprintln(a.Stderr, "warning: left behind: "+box+": `sandbox-agent gc` with that engine removes it when it has ended")
		}
	}
	if err := st.Remove(rec); err != nil {
		return err
	}
	fmt.Fprintln(a.Stdout, rec.TaskID)
	return nil
}

// forget removes all that is there of a task whose record is damaged. Where its
// output lies, when not in its folder, nobody knows any more.
func (a *App) forget(ctx context.Context, st *store.Store, id string) error {
	be, err := a.open()
	if err != nil {
		return err
	}
	lock, err := st.TryLock(id)
	if err != nil {
		return fault.New(workorder.ExitGeneral, err, "end that command first")
	}
	defer lock.Unlock()
	boxes, err := ownBoxes(ctx, be.Engine, st, map[string]string{workorder.LabelTask: id})
	if err != nil {
		return err
	}
	for _, b := range boxes {
		if err := be.Engine.Remove(ctx, b.ID); err != nil {
			return err
		}
	}
	if err := st.Remove(&store.Record{TaskID: id}); err != nil {
		return err
	}
	fmt.Fprintln(a.Stdout, id)
	return nil
}

// task finds a task by id or prefix.
func (a *App) task(ctx context.Context, id string) (*store.Store, *store.Record, error) {
	st, err := a.store()
	if err != nil {
		return nil, nil, err
	}
	rec, err := st.Find(id)
	if err == nil && rec.Moving != 0 {
		rec, err = a.mended(ctx, st, rec)
	}
	if errors.Is(err, store.ErrNotFound) {
		return st, nil, fault.New(workorder.ExitNotFound, err, "`sandbox-agent ps --all` lists the tasks of "+st.Dir())
	}
	return st, rec, err
}

// mended is the record of a task whose output a dead command was moving away. A
// living one has done so in a moment, and is waited for.
func (a *App) mended(ctx context.Context, st *store.Store, rec *store.Record) (*store.Record, error) {
	wait, cancel := a.waiting(ctx, moveWait)
	defer cancel()
	for rec.Moving != 0 {
		lock, err := st.TryLock(rec.TaskID)
		switch {
		case errors.Is(err, store.ErrLocked):
			if pause(wait, lockPause); wait.Err() != nil {
				return nil, gaveUp(wait, st, rec.TaskID)
			}
		case err != nil:
			return nil, err
		}
		if rec, err = st.Load(rec.TaskID); err == nil && lock != nil {
			err = st.Mend(rec)
		}
		if lock != nil {
			lock.Unlock()
		}
		if err != nil {
			return nil, err
		}
	}
	return rec, nil
}

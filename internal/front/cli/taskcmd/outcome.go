package taskcmd

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/sandbox-agent/sandbox-agent/internal/app"
	"github.com/sandbox-agent/sandbox-agent/internal/front/cmdutil"
	"github.com/sandbox-agent/sandbox-agent/internal/text"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// request asks for what the flags say.
func (o *runOptions) request() app.TaskRequest {
	r := app.TaskRequest{Flags: o.TaskFlags}
	r.Task = o.taskID
	return r
}

// tasks returns the use cases of tasks, which print what happens to a run with these flags.
func (o *runOptions) tasks(f *cmdutil.Factory) *app.Tasks { return f.TaskRuns(&o.TaskFlags, o.json) }

// answer prints the outcome of a command that names its task, and returns its exit code.
func (o *runOptions) answer(ctx context.Context, f *cmdutil.Factory, t *app.Tasks, out app.TaskOutcome, err error) error {
	switch {
	case out.Reported():
		return o.report(f, out)
	case out.Message != "":
		w := f.Stdout
		if o.json || o.Detach {
			w = f.Stderr // standard output has only events or the task id: scripts read it
		}
		fmt.Fprintln(w, out.Message)
		return nil
	case out.Followed() && o.Detach:
		fmt.Fprintln(f.Stdout, out.Task)
		return nil
	case out.Followed():
		return f.Followed(ctx, out.Follows(), o.json, err)
	}
	switch res := out.Result; {
	case err != nil:
		return err
	case o.DryRun:
		if review := out.Job.Order.Review; review != nil {
			showReview(f.Stderr, review)
		}
		return o.printRehearsal(f, t.Rehearse(ctx, out))
	case res == nil && out.Job.Detach && !o.json:
		fmt.Fprintln(f.Stdout, out.Task)
		return nil
	case res == nil:
		return nil
	case !o.json:
		if whole, err := t.Summarize(res); err == nil {
			f.Summary(whole)
		}
	}
	return cmdutil.Ended(out.Result.Status, out.Result.EndedBy)
}

// report reports the last attempt.
func (o *runOptions) report(f *cmdutil.Factory, out app.TaskOutcome) error {
	if parked := !out.Until.IsZero(); parked && !o.json {
		fmt.Fprintf(f.Stdout, "%s is parked until %s, when its provider's limit resets\n", out.Task, text.Clock(out.Until, time.Now()))
		if !out.IfExists {
			fmt.Fprintf(f.Stderr, "hint: `sandbox-agent continue %s --wait` waits for that, --now tries at once\n", out.Task)
		}
		return cmdutil.Ended(workorder.StatusParked, workorder.EndedByLimit)
	}
	res, err := out.Report()
	if err != nil {
		return err
	}
	if o.json {
		view := f.NewView(f.Stdout, true)
		view.Event(workorder.Event{Time: time.Now(), Type: workorder.EventResult, Status: string(res.Status), Result: res.Result})
		view.Close()
	} else {
		f.Summary(res)
	}
	return cmdutil.Ended(res.Status, res.EndedBy)
}

// printRehearsal prints the plan of a run, and everything that would refuse it before a sandbox starts. With --json it prints the work
// order in place of the plan, with what that was detected from.
func (o *runOptions) printRehearsal(f *cmdutil.Factory, r app.Rehearsal) error {
	for _, w := range r.Warnings {
		fmt.Fprintln(f.Stderr, "warning: "+text.Clean(w))
	}
	cmdutil.Advise(f.Stderr, r.Project)
	f.Notes(r.Notes)
	to := f.Stdout
	if o.json {
		to = f.Stderr
		if err := f.JSON(r.Document); err != nil {
			return err
		}
	}
	if _, err := io.WriteString(to, r.Plan); err != nil {
		return err
	}
	for _, err := range r.Refusals {
		fmt.Fprintln(f.Stderr, "error: this would not start: "+text.Clean(err.Error()))
		if hint := app.Hint(err); hint != "" {
			fmt.Fprintln(f.Stderr, "hint: "+text.Clean(hint))
		}
	}
	if len(r.Refusals) > 0 {
		return cmdutil.Exit(app.ExitCode(r.Refusals[0]))
	}
	return nil
}

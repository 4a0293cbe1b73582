package taskcmd

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"time"

	"github.com/sandbox-agent/sandbox-agent/internal/app"
	"github.com/sandbox-agent/sandbox-agent/internal/front/cmdutil"
	"github.com/sandbox-agent/sandbox-agent/internal/host/detect"
	"github.com/sandbox-agent/sandbox-agent/internal/host/launch/job"
	"github.com/sandbox-agent/sandbox-agent/internal/host/launch/outcome"
	"github.com/sandbox-agent/sandbox-agent/internal/host/resolve"
	"github.com/sandbox-agent/sandbox-agent/internal/host/tasks"
	"github.com/sandbox-agent/sandbox-agent/internal/host/taskstore"
	"github.com/sandbox-agent/sandbox-agent/internal/text"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// request asks for what the flags say.
func (o *runOptions) request() app.TaskRequest {
	return app.TaskRequest{Request: tasks.Request{Task: o.taskID}, Flags: o.Flags}
}

// tasks returns the use cases of tasks, which print what happens to a run with these flags.
func (o *runOptions) tasks(f *cmdutil.Factory) *app.Tasks { return f.TaskRuns(&o.Flags, o.json) }

// answer prints the outcome of a command that names its task, and returns its exit code.
func (o *runOptions) answer(ctx context.Context, f *cmdutil.Factory, t *app.Tasks, out app.TaskOutcome, err error) error {
	switch out.Kind {
	case tasks.ActionReport, tasks.ActionReportRemote:
		return o.report(f, out)
	case tasks.ActionNone:
		w := f.Stdout
		if o.json || o.Detach {
			w = f.Stderr // standard output has only events or the task id: scripts read it
		}
		fmt.Fprintln(w, out.Message)
		return nil
	case tasks.ActionFollow:
		if o.Detach {
			fmt.Fprintln(f.Stdout, out.Task)
			return nil
		}
		return f.Followed(ctx, out.Record, out.Result, o.json, err)
	}
	switch res := out.Result; {
	case err != nil:
		return err
	case o.DryRun:
		if review := out.Job.Order.Review; review != nil {
			showReview(f.Stderr, review)
		}
		return o.rehearse(ctx, f, t, out.Resolved)
	case res == nil && out.Job.Detach && !o.json:
		fmt.Fprintln(f.Stdout, out.Task)
		return nil
	case res == nil:
		return nil
	case !o.json:
		if st, err := f.Store(); err == nil {
			if rec, err := st.Load(res.TaskID); err == nil {
				f.Summary(res, rec)
			}
		}
	}
	return cmdutil.Ended(out.Result.Status, out.Result.EndedBy)
}

// report reports the last attempt.
func (o *runOptions) report(f *cmdutil.Factory, out app.TaskOutcome) error {
	res, rec := out.Result, out.Record
	if parked := !out.Until.IsZero(); parked && !o.json {
		fmt.Fprintf(f.Stdout, "%s is parked until %s, when its provider's limit resets\n", out.Task, text.Clock(out.Until, time.Now()))
		if out.Verb != tasks.Create {
			fmt.Fprintf(f.Stderr, "hint: `sandbox-agent continue %s --wait` waits for that, --now tries at once\n", out.Task)
		}
		return cmdutil.Ended(workorder.StatusParked, workorder.EndedByLimit)
	}
	if rec == nil {
		rec = &taskstore.Record{}
	} else {
		var err error
		if res, err = outcome.ReadResult(rec); err != nil {
			return err
		}
	}
	if o.json {
		view := f.NewView(f.Stdout, true)
		view.Event(workorder.Event{Time: time.Now(), Type: workorder.EventResult, Status: string(res.Status), Result: res})
		view.Close()
	} else {
		f.Summary(res, rec)
	}
	return cmdutil.Ended(res.Status, res.EndedBy)
}

// rehearse prints the plan of a run, or with --json its work order, and everything that would refuse it before a sandbox
// starts. It changes nothing and asks no remote.
func (o *runOptions) rehearse(ctx context.Context, f *cmdutil.Factory, t *app.Tasks, r *resolve.Resolved) error {
	for _, w := range r.Job.Warnings {
		fmt.Fprintln(f.Stderr, "warning: "+text.Clean(w))
	}
	cmdutil.Advise(f.Stderr, r.Project)
	f.Notes(r.Job.Notes)
	if err := o.printPlan(f, r); err != nil {
		return err
	}
	var first error
	for _, err := range []error{r.Untrusted, r.MissingSecrets(), t.Refuses(ctx, r.Job)} {
		if err == nil {
			continue
		}
		fmt.Fprintln(f.Stderr, "error: this would not start: "+text.Clean(err.Error()))
		if hint := cmdutil.Hint(err); hint != "" {
			fmt.Fprintln(f.Stderr, "hint: "+text.Clean(hint))
		}
		first = cmp.Or(first, err)
	}
	if first != nil {
		return cmdutil.Exit(cmdutil.ExitCode(first))
	}
	return nil
}

// printPlan prints the plan of a run. With --json standard output gets the work order, and what it was detected from.
func (o *runOptions) printPlan(f *cmdutil.Factory, r *resolve.Resolved) error {
	to, j := f.Stdout, r.Job
	if o.json {
		to = f.Stderr
		order := j.Order
		order.AttemptID = "" // only a started box has one
		plan := struct {
			workorder.Order
			*detect.Report
		}{Order: order}
		if r.Found != nil {
			plan.Report = r.Found.Report()
		}
		if err := f.JSON(plan); err != nil {
			return err
		}
	}
	_, err := io.WriteString(to, job.PlanText(j))
	return err
}

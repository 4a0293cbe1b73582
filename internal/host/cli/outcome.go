package cli

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
	"github.com/sandbox-agent/sandbox-agent/internal/host/store"
	"github.com/sandbox-agent/sandbox-agent/internal/host/tasks"
	"github.com/sandbox-agent/sandbox-agent/internal/text"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// request asks for what the flags say.
func (o *runOptions) request() app.TaskRequest {
	return app.TaskRequest{Asked: tasks.Asked{Task: o.taskID}, Flags: o.Flags}
}

// tasks are the tasks of this machine. o may be nil for commands that start no attempt.
func (a *App) tasks(o *runOptions) *app.Tasks {
	t := &app.Tasks{Env: a.env()}
	if o == nil {
		return t
	}
	t.Resolver = a.resolver(o.json)
	t.Show = func(ctx context.Context, job *job.Job) (func(workorder.Event), func()) { return o.show(ctx, a, job) }
	if !o.json || o.Rehearse {
		t.Found = func(d *detect.Draft) { showFound(a.Stderr, d, o.Rehearse) }
	}
	t.Waits = func(id string, w tasks.Action) {
		if w.Unknown {
			fmt.Fprintf(a.Stderr, "reset time of %s's rate limit unknown; retrying periodically\n", id)
		}
		fmt.Fprintf(a.Stderr, "%s is parked until %s; waiting\n", id, text.Clock(w.Until, time.Now()))
	}
	return t
}

// show shows the events of an attempt. The job is nil for one that runs already.
func (o *runOptions) show(ctx context.Context, a *App, job *job.Job) (event func(workorder.Event), done func()) {
	out := a.Stdout
	if job != nil && o.Detach && !o.json {
		out = a.Stderr // standard output is for the task id alone: scripts read it
	}
	view := a.NewView(out, o.json)
	view.Told = true
	if job != nil {
		view.Stopping = func() bool { return ctx.Err() != nil }
		view.Begin(job)
	}
	return view.Event, view.Close
}

// answer prints the outcome of a command that names its task, and returns its exit code.
func (o *runOptions) answer(ctx context.Context, a *App, t *app.Tasks, out app.TaskOutcome, err error) error {
	switch out.Do {
	case tasks.Report, tasks.ReportRemote:
		return o.report(a, out)
	case tasks.Nothing:
		w := a.Stdout
		if o.json || o.Detach {
			w = a.Stderr // standard output has only events or the task id: scripts read it
		}
		fmt.Fprintln(w, out.Says)
		return nil
	case tasks.Follow:
		if o.Detach {
			fmt.Fprintln(a.Stdout, out.Task)
			return nil
		}
		return a.followed(ctx, out.Record, out.Result, o.json, err)
	}
	switch res := out.Result; {
	case err != nil:
		return err
	case o.Rehearse:
		if review := out.Job.Order.Review; review != nil {
			showReview(a.Stderr, review)
		}
		return o.rehearse(ctx, a, t, out.Resolved)
	case res == nil && out.Job.Detach && !o.json:
		fmt.Fprintln(a.Stdout, out.Task)
		return nil
	case res == nil:
		return nil
	case !o.json:
		if st, err := a.store(); err == nil {
			if rec, err := st.Load(res.TaskID); err == nil {
				a.summary(res, rec)
			}
		}
	}
	return ended(out.Result.Status, out.Result.EndedBy)
}

// report reports the last attempt.
func (o *runOptions) report(a *App, out app.TaskOutcome) error {
	res, rec := out.Result, out.Record
	if parked := !out.Until.IsZero(); parked && !o.json {
		fmt.Fprintf(a.Stdout, "%s is parked until %s, when its provider's limit resets\n", out.Task, text.Clock(out.Until, time.Now()))
		if out.Verb != tasks.Create {
			fmt.Fprintf(a.Stderr, "hint: `sandbox-agent continue %s --wait` waits for that, --now tries at once\n", out.Task)
		}
		return ended(workorder.StatusParked, workorder.ByLimit)
	}
	if rec == nil {
		rec = &store.Record{}
	} else {
		var err error
		if res, err = outcome.ReadResult(rec); err != nil {
			return err
		}
	}
	if o.json {
		view := a.NewView(a.Stdout, true)
		view.Event(workorder.Event{Time: time.Now(), Type: workorder.EventResult, Status: string(res.Status), Result: res})
		view.Close()
	} else {
		a.summary(res, rec)
	}
	return ended(res.Status, res.EndedBy)
}

// rehearse prints the plan of a run, or with --json its work order, and everything that would refuse it before a sandbox
// starts. It changes nothing and asks no remote.
func (o *runOptions) rehearse(ctx context.Context, a *App, t *app.Tasks, r *resolve.Resolved) error {
	for _, w := range r.Job.Warnings {
		fmt.Fprintln(a.Stderr, "warning: "+text.Clean(w))
	}
	cmdutil.Advise(a.Stderr, r.Project)
	a.Notes(r.Job.Notes)
	if err := o.printPlan(a, r.Job); err != nil {
		return err
	}
	var first error
	for _, err := range []error{r.Untrusted, r.Lacks(), t.Refuses(ctx, r.Job)} {
		if err == nil {
			continue
		}
		fmt.Fprintln(a.Stderr, "error: this would not start: "+text.Clean(err.Error()))
		if hint := hint(err); hint != "" {
			fmt.Fprintln(a.Stderr, "hint: "+text.Clean(hint))
		}
		first = cmp.Or(first, err)
	}
	if first != nil {
		return cmdutil.Exit(exitCode(first))
	}
	return nil
}

// printPlan prints the plan of a run. With --json the work order takes its place on standard output.
func (o *runOptions) printPlan(a *App, j *job.Job) error {
	to := a.Stdout
	if o.json {
		to = a.Stderr
		order := j.Order
		order.AttemptID = "" // only a started box has one
		if err := a.json(order); err != nil {
			return err
		}
	}
	_, err := io.WriteString(to, job.PlanText(j))
	return err
}

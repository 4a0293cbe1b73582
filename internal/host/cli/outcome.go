package cli

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/sandbox-agent/sandbox-agent/internal/host/credentials"
	"github.com/sandbox-agent/sandbox-agent/internal/host/launch/job"
	"github.com/sandbox-agent/sandbox-agent/internal/host/launch/outcome"
	"github.com/sandbox-agent/sandbox-agent/internal/host/render"
	"github.com/sandbox-agent/sandbox-agent/internal/host/store"
	"github.com/sandbox-agent/sandbox-agent/internal/host/tasks"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// answer says what came of a command that names its task, and returns its exit code.
func (p *taskJob) answer(ctx context.Context, out tasks.Outcome, err error) error {
	a := p.a
	id, asJSON := p.asked.Task, p.o.json
	switch out.Do {
	case tasks.Report, tasks.ReportRemote:
		return p.report(out)
	case tasks.Nothing:
		w := a.Stdout
		if asJSON || p.o.detach {
			w = a.Stderr // a script takes events or the task id from standard output
		}
		fmt.Fprintln(w, out.Says)
		return nil
	case tasks.Follow:
		if p.o.detach {
			fmt.Fprintln(a.Stdout, id)
			return nil
		}
		return a.followed(ctx, out.Record, out.Result, asJSON, err)
	}
	switch res := out.Result; {
	case err != nil:
		return err
	case p.o.dryRun:
		if review := out.Job.Order.Review; review != nil {
			showReview(a.Stderr, review)
		}
		return p.r.rehearse(a)
	case res == nil && out.Job.Detach && !asJSON:
		fmt.Fprintln(a.Stdout, id)
		return nil
	case res == nil:
		return nil
	default:
		if rec, err := p.boxes.st.Load(res.TaskID); err == nil && !asJSON {
			a.summary(res, rec)
		}
		return ended(res.Status, res.EndedBy)
	}
}

// report tells of the last attempt.
func (p *taskJob) report(out tasks.Outcome) error {
	a, res, rec := p.a, out.Result, out.Record
	if parked := !out.Until.IsZero(); parked && !p.o.json {
		fmt.Fprintf(a.Stdout, "%s is parked until %s, when its provider's limit resets\n", p.asked.Task, render.Clock(out.Until, time.Now()))
		if p.asked.Verb != tasks.Create {
			fmt.Fprintf(a.Stderr, "hint: `sandbox-agent continue %s --wait` waits for that, --now tries at once\n", p.asked.Task)
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
	if p.o.json {
		view := a.newView(true)
		view.event(workorder.Event{Time: time.Now(), Type: workorder.EventResult, Status: string(res.Status), Result: res})
		view.r.Close()
	} else {
		a.summary(res, rec)
	}
	return ended(res.Status, res.EndedBy)
}

// sayWait says what is waited for.
func sayWait(a *App, id string, w tasks.Action) {
	if w.Unknown {
		fmt.Fprintf(a.Stderr, "nobody knows when the provider's limit of %s resets: it is tried again now and then\n", id)
	}
	fmt.Fprintf(a.Stderr, "%s is parked until %s; waiting\n", id, render.Clock(w.Until, time.Now()))
}

func (r *resolved) rehearse(a *App) error {
	order := r.job.Order
	order.AttemptID = "" // given to a box, and there is none
	if err := a.json(order); err != nil {
		return err
	}
	for _, w := range r.job.Warnings {
		fmt.Fprintln(a.Stderr, "warning: "+render.Clean(w))
	}
	if r.untrusted != nil {
		fmt.Fprintf(a.Stderr, "warning: this would not start: %s\nhint: %s\n", render.Clean(r.untrusted.Error()), render.Clean(hint(r.untrusted)))
	}
	advise(a.Stderr, r.project)
	if err := credentials.CheckSecrets(a.Getenv, r.project.Secrets); err != nil {
		fmt.Fprintln(a.Stderr, "warning: this would not start: "+render.Clean(err.Error()))
	}
	_, err := io.WriteString(a.Stderr, job.PlanText(r.job))
	return err
}

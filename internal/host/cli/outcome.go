package cli

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"time"

	"github.com/sandbox-agent/sandbox-agent/internal/host/launch/job"
	"github.com/sandbox-agent/sandbox-agent/internal/host/launch/outcome"
	"github.com/sandbox-agent/sandbox-agent/internal/host/launch"
	"github.com/sandbox-agent/sandbox-agent/internal/host/store"
	"github.com/sandbox-agent/sandbox-agent/internal/host/tasks"
	"github.com/sandbox-agent/sandbox-agent/internal/text"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// answer prints the outcome of a command that names its task, and returns its exit code.
func (p *taskJob) answer(ctx context.Context, out tasks.Outcome, err error) error {
	a := p.a
	id, asJSON := p.asked.Task, p.o.json
	switch out.Do {
	case tasks.Report, tasks.ReportRemote:
		return p.report(out)
	case tasks.Nothing:
		w := a.Stdout
		if asJSON || p.o.detach {
			w = a.Stderr // standard output has only events or the task id: scripts read it
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
		return p.rehearse(ctx)
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

// report reports the last attempt.
func (p *taskJob) report(out tasks.Outcome) error {
	a, res, rec := p.a, out.Result, out.Record
	if parked := !out.Until.IsZero(); parked && !p.o.json {
		fmt.Fprintf(a.Stdout, "%s is parked until %s, when its provider's limit resets\n", p.asked.Task, text.Clock(out.Until, time.Now()))
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

// sayWait prints the reason of a wait.
func sayWait(a *App, id string, w tasks.Action) {
	if w.Unknown {
		fmt.Fprintf(a.Stderr, "reset time of %s's rate limit unknown; retrying periodically\n", id)
	}
	fmt.Fprintf(a.Stderr, "%s is parked until %s; waiting\n", id, text.Clock(w.Until, time.Now()))
}

// rehearse prints the plan of a run, or with --json its work order, and everything that would refuse it before a sandbox starts. Nothing is changed, and no
// remote is asked.
func (p *taskJob) rehearse(ctx context.Context) error {
	a, r := p.a, p.r
	for _, w := range r.Job.Warnings {
		fmt.Fprintln(a.Stderr, "warning: "+text.Clean(w))
	}
	advise(a.Stderr, r.Project)
	a.notes(r.Job.Notes)
	if err := p.printPlan(); err != nil {
		return err
	}
	var first error
	for _, err := range []error{r.Untrusted, r.Lacks(), p.engineRefuses(ctx)} {
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
		return &ending{exitCode(first)}
	}
	return nil
}

// printPlan prints the plan of a run. With --json the work order takes its place on standard output.
func (p *taskJob) printPlan() error {
	to := p.a.Stdout
	if p.o.json {
		to = p.a.Stderr
		order := p.r.Job.Order
		order.AttemptID = "" // only a started box has one
		if err := p.a.json(order); err != nil {
			return err
		}
	}
	_, err := io.WriteString(to, job.PlanText(p.r.Job))
	return err
}

// engineRefuses says why the engine would not run the job.
func (p *taskJob) engineRefuses(ctx context.Context) error {
	be, err := p.a.open()
	if err != nil {
		return err
	}
	if _, err := launch.LookAtEngine(ctx, be.Engine, p.r.Job); err != nil {
		return err
	}
	return launch.LookAtImage(ctx, be.Engine, p.r.Job.Order.Image)
}

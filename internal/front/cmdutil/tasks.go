package cmdutil

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/sandbox-agent/sandbox-agent/internal/app"
	"github.com/sandbox-agent/sandbox-agent/internal/front/render"
	"github.com/sandbox-agent/sandbox-agent/internal/host/detect"
	"github.com/sandbox-agent/sandbox-agent/internal/host/launch/job"
	"github.com/sandbox-agent/sandbox-agent/internal/host/resolve"
	"github.com/sandbox-agent/sandbox-agent/internal/host/tasks"
	"github.com/sandbox-agent/sandbox-agent/internal/host/taskstore"
	"github.com/sandbox-agent/sandbox-agent/internal/text"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// showFound says what a repository without a project file was found to need, and from which lines.
func showFound(w io.Writer, d *detect.Draft, rehearsed bool) {
	if d == nil {
		return
	}
	fmt.Fprintln(w, "no project file; found in the repository:")
	findings := d.Findings()
	for _, f := range findings {
		fmt.Fprintln(w, "  "+text.Clean(f.String()))
	}
	if len(findings) == 0 {
		fmt.Fprintln(w, "  nothing")
	}
	for _, l := range d.Omitted {
		fmt.Fprintln(w, "  left out: "+text.Clean(fmt.Sprintf("%s (%s): %s", l.What, l.At, l.Reason)))
	}
	for _, c := range d.Suggested {
		fmt.Fprintln(w, "  suggested, not run: "+text.Clean(fmt.Sprintf("validate.%s: %s (%s)", c.Name, c.Command, c.At)))
	}
	if len(d.Validate) == 0 && !rehearsed { // a rehearsal says it of every project
		fmt.Fprintln(w, "warning: no check was found: nothing will judge the agent's work")
	}
	if !d.HasTest() {
		fmt.Fprintln(w, "hint: no test was found: `sandbox-agent project init --agent` lets an agent write a project file, and tries it")
	}
}

// TaskRuns returns the use cases of tasks, which print what happens to a run with these flags.
func (f *Factory) TaskRuns(flags *resolve.Flags, asJSON bool) *app.Tasks {
	t := &app.Tasks{Env: &f.Env, Resolver: f.Resolver(!asJSON)}
	t.Show = func(ctx context.Context, job *job.Job) (event func(workorder.Event), done func()) {
		out := f.Stdout
		if job != nil && flags.Detach && !asJSON {
			out = f.Stderr // standard output is for the task id alone: scripts read it
		}
		view := f.NewView(out, asJSON)
		view.Told = true
		if job != nil {
			view.Stopping = func() bool { return ctx.Err() != nil }
			view.Begin(job)
		}
		return view.Event, view.Close
	}
	if !asJSON || flags.DryRun {
		t.Found = func(d *detect.Draft) { showFound(f.Stderr, d, flags.DryRun) }
	}
	t.Waits = func(id string, w tasks.Action) {
		if w.Unknown {
			fmt.Fprintf(f.Stderr, "reset time of %s's rate limit unknown; retrying periodically\n", id)
		}
		fmt.Fprintf(f.Stderr, "%s is parked until %s; waiting\n", id, text.Clock(w.Until, time.Now()))
	}
	return t
}

// Summary ends a run: short, unless all is asked for.
func (f *Factory) Summary(res *workorder.Result, rec *taskstore.Record) {
	f.ShowResult(res, rec, f.Verbose)
}

// ShowResult prints a result.
func (f *Factory) ShowResult(res *workorder.Result, rec *taskstore.Record, all bool) {
	w, _ := TerminalSize(f.Stdout)
	o := render.SummaryOptions{Color: f.Color(f.Stdout), All: all, Width: w, Dir: rec.Dir, Kept: keptBox(rec), Number: rec.Number()}
	for _, row := range rec.PastAttempts {
		o.Former = append(o.Former, render.Attempt{Number: row.Number, Status: row.Status, EndedBy: row.EndedBy})
	}
	render.Summary(f.Stdout, res, o)
}

// keptBox is the container that was kept for inspection; empty if there is none.
func keptBox(rec *taskstore.Record) string {
	if rec.Keep {
		return rec.Box
	}
	return ""
}

// Followed ends a command that followed a task.
func (f *Factory) Followed(ctx context.Context, rec *taskstore.Record, res *workorder.Result, asJSON bool, err error) error {
	if err != nil && ctx.Err() != nil {
		return Interrupted(ctx) // to leave is not an error: the task goes on
	}
	if res != nil && !asJSON {
		f.Summary(res, rec)
	}
	if res != nil && err == nil {
		return Ended(res.Status, res.EndedBy)
	}
	return err
}

// Ended is the ending of a command that returns its task's exit code.
func Ended(s workorder.Status, by workorder.EndedBy) error {
	if code := workorder.ExitCode(s, by); code != workorder.ExitOK {
		return Exit(code)
	}
	return nil
}

package cmdutil

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/sandbox-agent/sandbox-agent/internal/app"
	"github.com/sandbox-agent/sandbox-agent/internal/front/render"
	"github.com/sandbox-agent/sandbox-agent/internal/text"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// showFound says what a repository without a project file was found to need, and from which lines.
func showFound(w io.Writer, found app.Findings, rehearsed bool) {
	fmt.Fprintln(w, "no project file; found in the repository:")
	for _, f := range found.Findings {
		fmt.Fprintln(w, "  "+text.Clean(f.String()))
	}
	if len(found.Findings) == 0 {
		fmt.Fprintln(w, "  nothing")
	}
	for _, l := range found.Omitted {
		fmt.Fprintln(w, "  left out: "+text.Clean(fmt.Sprintf("%s (%s): %s", l.What, l.At, l.Reason)))
	}
	for _, f := range found.Suggested {
		fmt.Fprintln(w, "  suggested, not run: "+text.Clean(f.String()))
	}
	if !found.HasCheck && !rehearsed { // a rehearsal says it of every project
		fmt.Fprintln(w, "warning: no check was found: nothing will judge the agent's work")
	}
	if !found.HasTest {
		fmt.Fprintln(w, "hint: no test was found: `sandbox-agent project init --agent` lets an agent write a project file, and tries it")
	}
}

// TaskRuns returns the use cases of tasks, which print what happens to a run with these flags.
func (f *Factory) TaskRuns(flags *app.TaskFlags, asJSON bool) *app.Tasks {
	t := &app.Tasks{Env: &f.Env, Resolver: f.Resolver(!asJSON)}
	t.Show = func(ctx context.Context, start *app.AttemptStart) (event func(workorder.Event), done func()) {
		out := f.Stdout
		if start != nil && flags.Detach && !asJSON {
			out = f.Stderr // standard output is for the task id alone: scripts read it
		}
		view := f.NewView(out, asJSON)
		view.Told = true
		if start != nil {
			view.Stopping = func() bool { return ctx.Err() != nil }
			view.Begin(start)
		}
		return view.Event, view.Close
	}
	if !asJSON || flags.DryRun {
		t.Found = func(found app.Findings) { showFound(f.Stderr, found, flags.DryRun) }
	}
	t.Waits = func(id string, until time.Time, guessed bool) {
		if guessed {
			fmt.Fprintf(f.Stderr, "reset time of %s's rate limit unknown; retrying periodically\n", id)
		}
		fmt.Fprintf(f.Stderr, "%s is parked until %s; waiting\n", id, text.Clock(until, time.Now()))
	}
	return t
}

// Summary ends a run: short, unless all is asked for.
func (f *Factory) Summary(res app.TaskResult) { f.ShowResult(res, f.Verbose) }

// ShowResult prints a result.
func (f *Factory) ShowResult(res app.TaskResult, all bool) {
	w, _ := TerminalSize(f.Stdout)
	o := render.SummaryOptions{Color: f.Color(f.Stdout), All: all, Width: w, Dir: res.Dir, Kept: res.Kept, Number: res.Number}
	for _, row := range res.Former {
		o.Former = append(o.Former, render.Attempt{Number: row.Number, Status: row.Status, EndedBy: row.EndedBy})
	}
	render.Summary(f.Stdout, res.Result, o)
}

// Followed ends a command that followed a task.
func (f *Factory) Followed(ctx context.Context, res app.TaskResult, asJSON bool, err error) error {
	if err != nil && ctx.Err() != nil {
		return Interrupted(ctx) // to leave is not an error: the task goes on
	}
	if res.Result != nil && !asJSON {
		f.Summary(res)
	}
	if res.Result != nil && err == nil {
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

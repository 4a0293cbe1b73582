package cli

import (
	"fmt"
	"io"
	"os"
	"path/filepath"

	"golang.org/x/term"

	"github.com/sandbox-agent/sandbox-agent/internal/host/credentials"
	"github.com/sandbox-agent/sandbox-agent/internal/host/launch"
	"github.com/sandbox-agent/sandbox-agent/internal/host/render"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// view shows a run on standard output: live on a terminal, as plain lines
// elsewhere, as JSON lines when asked.
type view struct {
	a    *App
	json bool
	r    render.Renderer
}

func (a *App) newView(asJSON bool) *view { return a.newViewOn(a.Stdout, asJSON) }

// newViewOn shows the run on w; a detached run's id is alone on standard output.
func (a *App) newViewOn(w io.Writer, asJSON bool) *view {
	mode, tty := render.Plain, isTerminal(w)
	o := render.Options{Color: a.color(w)}
	switch {
	case asJSON:
		mode = render.JSON
	case tty && a.Getenv("TERM") != "dumb":
		mode = render.TTY
		o.Width, o.Height = func() int { width, _ := termSize(w); return width }, func() int { _, height := termSize(w); return height }
	}
	return &view{a: a, json: asJSON, r: render.New(mode, w, o)}
}

// event shows an event. The host's own events say why something failed; people
// read that once, in the error or in the summary that follows.
func (v *view) event(e workorder.Event) {
	if e.Seq == 0 && !v.json {
		switch e.Type {
		case workorder.EventResult:
			return
		case workorder.EventStepFinished:
			e.Text = ""
		}
	}
	v.r.Event(e)
}

// begin says what is started, and what of the user's tree is not part of it.
func (v *view) begin(r *resolved) {
	o := &r.job.Order
	if !v.json && !r.job.Detach {
		where := ""
		if o.Repo != "" {
			where = " on " + render.Clean(credentials.Redacted(o.Repo))
		}
		fmt.Fprintf(v.a.Stdout, "%s  %s%s\n", o.TaskID, render.Clean(o.Project), where)
	}
	if r.local != nil && r.local.Dirty {
		v.r.Event(workorder.Event{Type: workorder.EventWarning, Text: "uncommitted changes in " + r.local.Path + " are not part of the run: it starts from the last commit of " + o.Branch})
	}
}

// end prints what came of it. After an error of ours there is no more to say
// than the error.
func (v *view) end(res *workorder.Result, job *launch.Job, err error) {
	v.r.Close()
	switch {
	case v.json || err != nil:
	case res == nil && job.Detach:
		fmt.Fprintln(v.a.Stdout, job.Order.TaskID)
	case res != nil:
		dir := filepath.Join(job.OutDir, res.TaskID)
		if job.OutDir == "" {
			dir = ""
			if st, err := v.a.store(); err == nil {
				dir = st.TaskDir(res.TaskID)
			}
		}
		v.a.summary(res, dir)
	}
}

func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

func termSize(w io.Writer) (width, height int) {
	if f, ok := w.(*os.File); ok {
		if w, h, err := term.GetSize(int(f.Fd())); err == nil {
			return w, h
		}
	}
	return 0, 0
}

func (a *App) color(w io.Writer) bool { return render.UseColor(isTerminal(w), a.Getenv) }

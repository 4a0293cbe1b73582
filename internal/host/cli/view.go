package cli

import (
	"fmt"
	"io"
	"strings"

	"github.com/sandbox-agent/sandbox-agent/internal/host/credentials"
	"github.com/sandbox-agent/sandbox-agent/internal/host/launch/job"
	"github.com/sandbox-agent/sandbox-agent/internal/host/render"
	"github.com/sandbox-agent/sandbox-agent/internal/text"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// view shows a run on standard output: live on a terminal, as plain lines elsewhere, as
// JSON lines on request.
type view struct {
	a    *App
	json bool
	r    render.Renderer
	// told reports that the summary, or the error, has the full reason at the end.
	told bool
	// stopping reports whether the user has stopped the run; nil if that is not known.
	stopping func() bool
}

func (a *App) newView(asJSON bool) *view { return a.newViewOn(a.Stdout, asJSON) }

// newViewOn shows the run on w. For a detached run, standard output has only its id.
func (a *App) newViewOn(w io.Writer, asJSON bool) *view {
	mode, tty := render.Plain, isTerminal(w)
	o := render.Options{Color: a.color(w), Verbose: a.Verbose || tty} // a terminal that cannot be drawn on is a terminal still
	switch {
	case asJSON:
		mode = render.JSON
	case tty && a.Getenv("TERM") != "dumb":
		mode = render.TTY
		o.Width, o.Height = func() int { width, _ := termSize(w); return width }, func() int { _, height := termSize(w); return height }
	}
	return &view{a: a, json: asJSON, r: render.New(mode, w, o)}
}

// event shows an event. The reason of a failure is printed in full once: at the end if a
// summary follows, and then only its beginning here.
func (v *view) event(e workorder.Event) {
	if v.json {
		v.r.Event(e)
		return
	}
	switch e.Type {
	case workorder.EventResult:
		if v.told && e.Result != nil {
			res := *e.Result
			res.Reasons, e.Result = nil, &res
		}
	case workorder.EventStepFinished, workorder.EventService, workorder.EventAgentError, workorder.EventAgentFinished:
		if e.Step() != workorder.StepPR || v.told { // no other event has the reason for a missing pull request
			e.Text = headline(e.Text)
		}
		if v.told && e.Seq == 0 {
			e.Text = ""
		}
	}
	if v.stopping != nil && v.stopping() {
		e = render.CutShort(e)
	}
	v.r.Event(e)
}

// headline is the beginning of a text that is printed in full elsewhere.
func headline(s string) string {
	const most = 120
	s, _, _ = strings.Cut(strings.TrimSpace(s), "\n")
	return text.Runes(s, most)
}

// begin prints the start of a run.
func (v *view) begin(job *job.Job) {
	o := &job.Order
	if !v.json && !job.Detach {
		where := ""
		if o.Repo != "" {
			where = " on " + text.Clean(credentials.Redacted(o.Repo))
		}
		fmt.Fprintf(v.a.Stdout, "%s  %s%s\n", o.TaskID, text.Clean(o.Project), where)
	}
	if !v.json {
		v.a.Notes(job.Notes)
	}
}

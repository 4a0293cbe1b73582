package cmdutil

import (
	"fmt"
	"io"
	"strings"

	"github.com/sandbox-agent/sandbox-agent/internal/app"
	"github.com/sandbox-agent/sandbox-agent/internal/front/render"
	"github.com/sandbox-agent/sandbox-agent/internal/text"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// View shows a run on standard output: live on a terminal, as plain lines elsewhere, as
// JSON lines on request.
type View struct {
	f    *Factory
	JSON bool
	r    render.Renderer
	// Told reports that the summary, or the error, has the full reason at the end.
	Told bool
	// Stopping, if non-nil, reports whether the user has stopped the run.
	Stopping func() bool
}

// NewView shows the run on w. For a detached run, standard output has only its id.
func (f *Factory) NewView(w io.Writer, asJSON bool) *View {
	mode, tty := render.Plain, IsTerminal(w)
	o := render.Options{Color: f.Color(w), Verbose: f.Verbose || tty} // a terminal that cannot be drawn on is a terminal still
	switch {
	case asJSON:
		mode = render.JSON
	case tty && f.Getenv("TERM") != "dumb":
		mode = render.TTY
		o.Width = func() int { width, _ := TerminalSize(w); return width }
		o.Height = func() int { _, height := TerminalSize(w); return height }
	}
	return &View{f: f, JSON: asJSON, r: render.New(mode, w, o)}
}

// Event shows an event. The reason of a failure is printed in full once: at the end if a
// summary follows, and then only its beginning here.
func (v *View) Event(e workorder.Event) {
	if v.JSON {
		v.r.Event(e)
		return
	}
	switch e.Type {
	case workorder.EventResult:
		if v.Told && e.Result != nil {
			res := *e.Result
			res.Reasons, e.Result = nil, &res
		}
	case workorder.EventStepFinished, workorder.EventService, workorder.EventAgentError, workorder.EventAgentFinished:
		if e.Step() != workorder.StepPR || v.Told { // no other event has the reason for a missing pull request
			e.Text = headline(e.Text)
		}
		if v.Told && e.Seq == 0 {
			e.Text = ""
		}
	}
	if v.Stopping != nil && v.Stopping() {
		e = render.CutShort(e)
	}
	v.r.Event(e)
}

// Close ends the view.
func (v *View) Close() { v.r.Close() }

// headline is the beginning of a text that is printed in full elsewhere.
func headline(s string) string {
	const most = 120
	s, _, _ = strings.Cut(strings.TrimSpace(s), "\n")
	return text.Runes(s, most)
}

// Begin prints the start of a run.
func (v *View) Begin(a *app.AttemptStart) {
	if v.JSON {
		return
	}
	if !a.Detach {
		where := ""
		if a.Repo != "" {
			where = " on " + text.Clean(a.Repo)
		}
		fmt.Fprintf(v.f.Stdout, "%s  %s%s\n", a.TaskID, text.Clean(a.Project), where)
	}
	v.f.Notes(a.Notes)
}

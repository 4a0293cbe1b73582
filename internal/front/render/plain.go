package render

import (
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// quietFor is the silence after which a log says what still runs: people, and services that end jobs without output, wait for minutes.
const quietFor = time.Minute

type plainRenderer struct {
	mu      sync.Mutex
	w       io.Writer
	o       Options
	start   time.Time
	gap     gap
	told    printedVerdicts
	kept    outputs
	running running
	printed time.Time // when the last line was
	end     func()
}

func newPlain(w io.Writer, o Options) Renderer {
	r := &plainRenderer{w: w, o: o, kept: outputs{}, printed: o.now()}
	r.end = o.every(quietFor/4, r.quiet)
	return r
}

func (r *plainRenderer) Close() { r.end() }

// quiet says what runs if nothing was said for long.
func (r *plainRenderer) quiet() {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := r.o.now()
	if text := r.running.text(now); text != "" && now.Sub(r.printed) >= quietFor {
		r.print(now, text)
	}
}

func (r *plainRenderer) print(at time.Time, text string) {
	r.printed = r.o.now()
	_, _ = fmt.Fprintf(r.w, "[%8.1fs] %s\n", max(at.Sub(r.start), 0).Seconds(), text) // a reader that has gone away is not an error
}

func (r *plainRenderer) Event(e workorder.Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	at := e.Time
	if at.IsZero() {
		at = r.o.now()
	}
	if r.start.IsZero() {
		r.start = at
	}
	e = bounded(e)
	lost := r.gap.next(e.Seq)
	text := plainText(e)
	if lost > 0 {
		text = fmt.Sprintf("(%d events are missing here) %s", lost, text)
	}
	again := r.told.repeats(e)
	lines := r.kept.note(e)
	r.running.note(e, r.o.now())
	if lost == 0 && (noise(e) || again || !r.o.Verbose && !essential(e)) || text == "" {
		return
	}
	if !r.o.Verbose {
		for _, l := range lines {
			r.print(at, oneLine(e.Name)+" | "+l)
		}
	}
	r.print(at, text)
}

// bounded cuts texts that are longer than the contract allows: a broken guest must not cost more than a correct one.
func bounded(e workorder.Event) workorder.Event {
	for _, s := range []*string{&e.Name, &e.Text, &e.Status, &e.Path, &e.By, &e.Fix} {
		if len(*s) > 2*workorder.MaxEventText {
			*s = (*s)[:2*workorder.MaxEventText]
		}
	}
	return e
}

// gap notices missing event numbers. Events of the host have no number.
type gap struct{ last int64 }

func (g *gap) next(seq int64) (lost int64) {
	if seq <= 0 {
		return 0
	}
	if g.last > 0 && seq > g.last+1 {
		lost = seq - g.last - 1
	}
	g.last = max(g.last, seq)
	return lost
}

func plainText(e workorder.Event) string {
	name, text, status := oneLine(e.Name), oneLine(e.Text), oneLine(e.Status)
	switch e.Type {
	case workorder.EventTask:
		return ""
	case workorder.EventReady:
		return words("sandbox ready", text)
	case workorder.EventStepStarted:
		return name + ": started"
	case workorder.EventStepFinished:
		if status == string(workorder.StepSkipped) {
			return name + ": skipped: " + text
		}
		return name + ": " + words(status, exit(e), spent(e), text)
	case workorder.EventService:
		return "service " + name + ": " + words(status, spent(e), text)
	case workorder.EventImageRequest:
		return "image " + name + ": asked from the host"
	case workorder.EventAgentStarted:
		return "agent: started " + words(name, text)
	case workorder.EventAgentText:
		return "agent: " + text
	case workorder.EventAgentTool:
		return "agent: tool " + words(name, text)
	case workorder.EventAgentToolResult:
		return "agent: tool result " + words(status, text)
	case workorder.EventAgentOutput:
		return "agent " + name + ": " + text
	case workorder.EventAgentUsage:
		if e.Usage == nil {
			return ""
		}
		return words("agent: usage", usage(*e.Usage))
	case workorder.EventAgentError:
		return "agent: error: " + text
	case workorder.EventAgentFinished:
		if status == statusCut {
			return "agent: " + words(status, spent(e))
		}
		return "agent: finished " + words(exit(e), spent(e), text)
	case workorder.EventValidateStarted:
		return "validate " + name + ": " + words("started", text)
	case workorder.EventValidateFinished:
		return "validate " + name + ": " + words(status, exit(e), spent(e), text)
	case workorder.EventOutput:
		return name + " | " + text
	case workorder.EventPush:
		return "push " + shortRef(e.Name) + ": " + words(status, short(e.Text))
	case workorder.EventCheckpoint:
		if status != "ok" {
			return "checkpoint: " + words(status, text)
		}
		return "checkpoint: " + words("saved", short(e.Text), spent(e))
	case workorder.EventLease:
		return "lease: " + words(status, text)
	case workorder.EventRestored:
		if status != "ok" {
			return "restore: " + words(status, text)
		}
		return "restored " + short(e.Text)
	case workorder.EventNotice:
		if status != "ok" {
			return "not sent to the agent: " + text
		}
		return "sent to the agent: " + text
	case workorder.EventHang:
		return "hang: " + words(status, text, oneLine(e.Path))
	case workorder.EventNetwork:
		return networkText(e)
	case workorder.EventGuard:
		return guardText(e)
	case workorder.EventConfigRestored:
		return restoredText(e)
	case workorder.EventWarning:
		return "warning: " + text
	case workorder.EventResult:
		if e.Result == nil {
			return "result"
		}
		return "result: " + words(oneLine(string(e.Result.Status)), oneLine(e.Result.Reasons.String()))
	}
	return words(oneLine(string(e.Type)), name, status, text)
}

func words(parts ...string) string {
	var kept []string
	for _, p := range parts {
		if p != "" {
			kept = append(kept, p)
		}
	}
	return strings.Join(kept, " ")
}

func exit(e workorder.Event) string {
	if e.ExitCode == nil {
		return ""
	}
	return fmt.Sprintf("exit %d", *e.ExitCode)
}

func spent(e workorder.Event) string {
	if e.DurationMS <= 0 {
		return ""
	}
	return "(" + took(millis(e.DurationMS)) + ")"
}

// long are the steps that can take many minutes, so a log says when one begins.
var long = map[workorder.StepName]bool{
	workorder.StepImage: true, workorder.StepServices: true, workorder.StepSetup: true, workorder.StepProof: true, workorder.StepRepair: true,
	workorder.StepRebase: true,
}

// essential reports whether an event is in a log that is not verbose: steps and failures. What the agent says and does, output of
// commands and all that went well beside the steps are not. A newer guest's own kinds of events are, since nothing is known of them.
func essential(e workorder.Event) bool {
	switch e.Type {
	case workorder.EventStepStarted:
		return long[e.Step()]
	case workorder.EventService:
		return e.Status == "failed"
	case workorder.EventPush, workorder.EventCheckpoint, workorder.EventRestored, workorder.EventNotice:
		return e.Status != "ok"
	case workorder.EventLease:
		return e.Status == "waiting" || e.Status == "lost"
	case workorder.EventNetwork:
		return e.Status == string(workorder.NetworkRefused)
	case workorder.EventReady, workorder.EventImageRequest, workorder.EventOutput,
		workorder.EventAgentText, workorder.EventAgentTool, workorder.EventAgentToolResult, workorder.EventAgentOutput, workorder.EventAgentUsage:
		return false
	}
	return true
}

// outputs keeps the last lines of each command's output, to be shown if its step fails.
type outputs map[string][]string

// note keeps a line of output, and returns those of a step that failed.
func (o outputs) note(e workorder.Event) []string {
	name := oneLine(e.Name)
	switch e.Type {
	case workorder.EventOutput:
		if _, known := o[name]; known || len(o) < maxTasks {
			o[name] = append(o[name][max(0, len(o[name])-keepOutput+1):], oneLine(e.Text))
		}
	case workorder.EventStepFinished:
		lines := o[name]
		delete(o, name)
		if e.Status == string(workorder.StepFailed) {
			return lines
		}
	}
	return nil
}

// running is the step that began last, until it ends, and what it said last.
type running struct {
	step  string
	since time.Time
	said  string
}

func (r *running) note(e workorder.Event, now time.Time) {
	switch e.Type {
	case workorder.EventStepStarted:
		at := e.Time
		if at.IsZero() || at.After(now) { // the clocks differ
			at = now
		}
		*r = running{step: oneLine(e.Name), since: at}
	case workorder.EventStepFinished:
		if oneLine(e.Name) == r.step {
			*r = running{}
		}
	case workorder.EventResult:
		*r = running{}
	case workorder.EventOutput, workorder.EventAgentText, workorder.EventAgentTool:
		r.said = plainText(e)
	}
}

// text says what runs; empty if nothing does.
func (r *running) text(now time.Time) string {
	if r.step == "" {
		return ""
	}
	text := r.step + ": running for " + elapsed(now.Sub(r.since))
	if r.said != "" {
		text += ": " + r.said
	}
	return text
}

// optional are the steps that most tasks do not have. That one of them was skipped says that the project does not ask for
// it, or that there was nothing to do, which is not worth a line; the skip of any other step is news.
var optional = map[workorder.StepName]bool{
	workorder.StepDocker: true, workorder.StepServices: true, workorder.StepPackages: true, workorder.StepTools: true,
	workorder.StepBaseline: true,
	workorder.StepSupabase: true, workorder.StepEnv: true, workorder.StepSetup: true, workorder.StepRepair: true, workorder.StepReply: true,
}

// noise reports whether an event is of no interest to a reader. The record has it.
func noise(e workorder.Event) bool {
	return e.Type == workorder.EventStepFinished && e.Status == string(workorder.StepSkipped) && optional[e.Step()]
}

// statusCut is the status of an item that the user's stop ended.
const statusCut = "cut short"

// CutShort shows a failed ending as cut short, if the user stopped the run: then the work
// did not fail. A stop does not end a push.
func CutShort(e workorder.Event) workorder.Event {
	bad := e.ExitCode != nil && *e.ExitCode != 0
	switch e.Type {
	case workorder.EventStepFinished:
		bad = e.Status == string(workorder.StepFailed) && e.Name != "push"
	case workorder.EventValidateFinished:
		bad = e.Status == "failed"
	case workorder.EventAgentFinished:
	default:
		return e
	}
	if bad {
		e.Status, e.ExitCode, e.Text = statusCut, nil, ""
	}
	return e
}

type verdict int

const (
	noVerdict verdict = iota
	good
	bad
)

// printedVerdicts remembers the printed verdicts of the agent and of the checks, as the steps of these names would repeat them. Of
// the checkpoints, one a minute, it lets through the first, those that fail, and the first good one after these.
type printedVerdicts struct {
	agent, validate verdict
	saved           bool
}

// repeats notes the event and reports whether it only repeats what was printed.
func (t *printedVerdicts) repeats(e workorder.Event) bool {
	switch e.Type {
	case workorder.EventAgentFinished:
		t.agent = good
		if e.ExitCode != nil && *e.ExitCode != 0 || e.Status == statusCut {
			t.agent = bad
		}
	case workorder.EventValidateFinished:
		v := good
		if e.Status != "passed" {
			v = bad
		}
		t.validate = max(t.validate, v)
	case workorder.EventCheckpoint:
		before := t.saved
		t.saved = e.Status == "ok"
		return before && t.saved
	case workorder.EventStepStarted:
		return e.Name == kindAgent || e.Name == kindValidate
	case workorder.EventStepFinished:
		said := noVerdict
		switch e.Name {
		case kindAgent:
			said = t.agent
		case kindValidate:
			said = t.validate
		}
		return said == bad || said == good && e.Status == string(workorder.StepDone)
	}
	return false
}

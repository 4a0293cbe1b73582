package render

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/sandbox-agent/sandbox-agent/internal/text"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

const (
	// tickEvery is how often running times are repainted: often enough to look alive.
	tickEvery = 100 * time.Millisecond
	// drawEvery bounds repaints when events flood in: the eye sees no more.
	drawEvery = 40 * time.Millisecond
	// maxPending bounds the lines that wait for the next repaint.
	maxPending = 64
	// maxTasks bounds the running tasks that are remembered.
	maxTasks = 64
	// maxLive bounds the live part, so that it fits small terminals.
	maxLive = 10
	// keepOutput is how many lines of a command's output are kept to be shown if it fails,
	// and liveOutput how many are shown while it runs.
	keepOutput = 12
	liveOutput = 2
	// maxTextLines bounds one message of the agent; the record has all of it.
	maxTextLines = 16
)

// task is a running step, service, check or command.
type task struct {
	kind, name string
	started    time.Time
	note       string   // its present activity
	output     []string // its last lines
}

// Kinds of tasks. Names are unique within a kind.
const (
	kindStep     = "step"
	kindService  = "service"
	kindAgent    = "agent"
	kindValidate = "validate"
)

// ttyRenderer prints finished items permanently and the running ones in a live part
// below. The lock protects its state from the ticker.
type ttyRenderer struct {
	mu      sync.Mutex
	o       Options
	screen  screen
	tasks   []*task
	usage   string
	saved   time.Time // time of the last checkpoint
	gap     gap
	told    printedVerdicts
	drawn   time.Time
	pending []string
	closed  bool
	stop    func()
}

func newTTY(w io.Writer, o Options) Renderer {
	r := &ttyRenderer{o: o, screen: screen{w: w}}
	r.stop = o.every(tickEvery, r.repaint)
	return r
}

func (r *ttyRenderer) Close() {
	r.mu.Lock()
	if r.closed {
		r.mu.Unlock()
		return
	}
	r.closed = true
	r.tasks = nil
	r.draw()
	r.mu.Unlock()
	r.stop()
}

func (r *ttyRenderer) repaint() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.closed && (len(r.pending) > 0 || len(r.tasks) > 0 || r.screen.live()) {
		r.draw()
	}
}

func (r *ttyRenderer) Event(e workorder.Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return
	}
	if lost := r.gap.next(e.Seq); lost > 0 {
		r.print(yellow, "! ", fmt.Sprintf("%d events are missing here", lost), 1)
	}
	r.apply(bounded(e))
	if now := r.o.now(); now.Sub(r.drawn) >= drawEvery || len(r.pending) >= maxPending {
		r.draw()
	}
}

// apply changes the state and prints permanent lines.
func (r *ttyRenderer) apply(e workorder.Event) {
	name, said := oneLine(e.Name), oneLine(e.Text)
	again := r.told.repeats(e)
	switch e.Type {
	case workorder.EventStepStarted:
		r.begin(kindStep, name, e.Time)
	case workorder.EventStepFinished:
		if again || noise(e) {
			r.end(kindStep, name)
			return
		}
		r.finish(kindStep, name, e, workorder.StepStatus(e.Status))
	case workorder.EventValidateStarted:
		r.begin(kindValidate, name, e.Time).note = said
	case workorder.EventValidateFinished:
		status := workorder.StepDone
		switch e.Status {
		case "passed":
		case statusCut:
			status = statusCut
		default:
			status = workorder.StepFailed
		}
		r.finish(kindValidate, name, e, status)
	case workorder.EventService:
		r.service(e, name, said)
	case workorder.EventOutput:
		if t := r.outputOf(name); t != nil {
			t.output = append(t.output[max(0, len(t.output)-keepOutput+1):], said)
		}
	case workorder.EventPush:
		if e.Status == "error" {
			r.print(yellow, "! ", "push "+shortRef(e.Name)+": "+said, 3)
		} else {
			r.print(dim, "↑ ", "pushed "+words(shortRef(e.Name), short(e.Text)), 1)
		}
	case workorder.EventCheckpoint:
		if e.Status == "ok" {
			r.saved = e.Time // shown beside the agent
		} else {
			r.print(yellow, "! ", plainText(e), 3)
		}
	case workorder.EventLease:
		if e.Status == "waiting" || e.Status == "lost" {
			r.print(yellow, "! ", plainText(e), 3)
		}
	case workorder.EventRestored, workorder.EventNotice:
		if e.Status == "ok" {
			r.print(cyan, "● ", plainText(e), 3)
		} else {
			r.print(yellow, "! ", plainText(e), 3)
		}
	case workorder.EventNetwork:
		if e.Status == string(workorder.NetworkRefused) {
			r.print(yellow, "! ", plainText(e), 3)
		} else {
			r.print(dim, "  ", plainText(e), 1)
		}
	case workorder.EventHang, workorder.EventGuard, workorder.EventConfigRestored:
		r.print(yellow, "! ", plainText(e), 3)
	case workorder.EventWarning:
		r.print(yellow, "! ", text.Clean(e.Text), maxTextLines)
	case workorder.EventResult:
		r.tasks = nil
		if e.Result != nil && len(e.Result.Reasons) > 0 {
			r.print(bold, "  ", "result: "+words(oneLine(string(e.Result.Status)), text.Clean(e.Result.Reasons.String())), maxTextLines)
		}
	case workorder.EventTask, workorder.EventReady, workorder.EventImageRequest:
		// The steps and services show it themselves.
	default:
		if strings.HasPrefix(string(e.Type), "agent.") {
			r.agent(e, name, said)
		} else if said := plainText(e); said != "" {
			r.print(dim, "  ", said, 1)
		}
	}
}

func (r *ttyRenderer) agent(e workorder.Event, name, said string) {
	switch e.Type {
	case workorder.EventAgentStarted:
		r.begin(kindAgent, kindAgent, e.Time)
		r.print(bold, "● ", words("agent", name, said), 1)
	case workorder.EventAgentText:
		r.print("", "  ", text.Clean(e.Text), maxTextLines)
	case workorder.EventAgentTool:
		r.note(words(name, said))
		r.print(cyan, "  → ", words(name, said), 1)
	case workorder.EventAgentToolResult:
		r.note("")
		if e.Status == "error" {
			r.print(red, "    ✗ ", said, 2)
		}
	case workorder.EventAgentOutput:
		r.print(dim, "  | ", said, 2)
	case workorder.EventAgentUsage:
		if e.Usage != nil {
			r.usage = usage(*e.Usage)
		}
	case workorder.EventAgentError:
		r.print(red, "✗ ", "agent: "+said, maxTextLines)
	case workorder.EventAgentFinished:
		r.end(kindAgent, kindAgent)
		mark, color, ended, code := "✓ ", green, "finished", ""
		if e.ExitCode != nil && *e.ExitCode != 0 {
			mark, color, code = "✗ ", red, exit(e)
		}
		if e.Status == statusCut {
			mark, color, ended = "- ", yellow, statusCut
		}
		r.print(color, mark, words("agent", ended, code, spent(e), said), 2)
	default:
		if said := plainText(e); said != "" {
			r.print(dim, "  ", said, 1)
		}
	}
}

func (r *ttyRenderer) service(e workorder.Event, name, text string) {
	switch e.Status {
	case "ready":
		r.end(kindService, name)
		r.print(green, "✓ ", words("service", name, "ready", spent(e)), 1)
	case "failed":
		r.end(kindService, name)
		r.print(red, "✗ ", words("service", name, "failed", spent(e), text), maxTextLines)
	default:
		t := r.find(kindService, name)
		if t == nil {
			t = r.begin(kindService, name, e.Time)
		}
		t.note = words(oneLine(e.Status), text)
	}
}

// finish prints a step's or check's ending, and its last output if it failed.
func (r *ttyRenderer) finish(kind, name string, e workorder.Event, status workorder.StepStatus) {
	t := r.end(kind, name)
	label := name
	if kind == kindValidate {
		label = "validate " + name
	}
	text := oneLine(e.Text)
	switch status {
	case workorder.StepFailed:
		r.print(red, "✗ ", words(label, exit(e), spent(e), text), maxTextLines)
		if t != nil {
			for _, l := range t.output {
				r.print(dim, "    ", l, 1)
			}
		}
	case statusCut:
		r.print(yellow, "- ", words(label, statusCut, spent(e)), 1)
	case workorder.StepSkipped:
		r.print(dim, "- ", words(label, "skipped:", text), 2)
	default:
		r.print(green, "✓ ", words(label, spent(e), text), 2)
	}
}

func (r *ttyRenderer) find(kind, name string) *task {
	for _, t := range r.tasks {
		if t.kind == kind && t.name == name {
			return t
		}
	}
	return nil
}

// outputOf is the task of a line of output: events name the step or check.
func (r *ttyRenderer) outputOf(name string) *task {
	if t := r.find(kindValidate, name); t != nil {
		return t
	}
	return r.find(kindStep, name)
}

func (r *ttyRenderer) note(s string) {
	if t := r.find(kindAgent, kindAgent); t != nil {
		t.note = s
	}
}

// begin adds a running task. In a record that is read late, at is in the past; a time in
// the future means that the clocks differ.
func (r *ttyRenderer) begin(kind, name string, at time.Time) *task {
	r.end(kind, name)
	now := r.o.now()
	if at.IsZero() || at.After(now) {
		at = now
	}
	if len(r.tasks) >= maxTasks {
		r.tasks = slices.Delete(r.tasks, 0, 1)
	}
	t := &task{kind: kind, name: name, started: at}
	r.tasks = append(r.tasks, t)
	return t
}

func (r *ttyRenderer) end(kind, name string) *task {
	t := r.find(kind, name)
	if t != nil {
		r.tasks = slices.DeleteFunc(r.tasks, func(o *task) bool { return o == t })
	}
	return t
}

func (r *ttyRenderer) print(color, mark, text string, limit int) {
	p := paint(r.o.Color)
	room := r.o.width() - 1 - columns(mark)
	lines := wrap(text, room, limit)
	if limit == 1 {
		lines = []string{cut(text, room)}
	}
	for i, l := range lines {
		lead := mark
		if i > 0 {
			lead = strings.Repeat(" ", columns(mark))
		}
		switch color {
		case red, yellow, dim:
			r.pending = append(r.pending, p.as(color, lead+l))
		case "":
			r.pending = append(r.pending, lead+l)
		default:
			r.pending = append(r.pending, p.as(color, lead)+l)
		}
	}
}

func (r *ttyRenderer) draw() {
	r.drawn = r.o.now()
	r.screen.draw(r.pending, r.liveLines(), r.o.width())
	r.pending = r.pending[:0]
}

func ago(saved, now time.Time) string {
	if saved.IsZero() {
		return ""
	}
	d := max(0, now.Sub(saved))
	if d < time.Minute {
		return fmt.Sprintf("saved %d s ago", d/time.Second)
	}
	return "saved " + elapsed(d) + " ago"
}

func (r *ttyRenderer) liveLines() []string {
	p := paint(r.o.Color)
	now, width := r.o.now(), r.o.width()-1
	limit := maxLive
	if r.o.Height != nil {
		if h := r.o.Height(); h > 0 {
			limit = max(1, min(maxLive, h-2))
		}
	}
	spin := []rune("⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏")[now.UnixMilli()/tickEvery.Milliseconds()%10]
	var lines []string
	tasks := slices.DeleteFunc(slices.Clone(r.tasks), func(t *task) bool {
		return t.kind == kindStep && slices.ContainsFunc(r.tasks, func(o *task) bool { return o.kind == t.name })
	})
	for i, t := range tasks {
		if len(lines) >= limit-1 && i < len(tasks)-1 {
			lines = append(lines, p.as(dim, cut(fmt.Sprintf("  and %d more", len(tasks)-i), width)))
			break
		}
		label := t.name
		if t.kind != kindStep && t.kind != kindAgent {
			label = t.kind + " " + t.name
		}
		rest := t.note
		if t.kind == kindAgent {
			rest = join(" · ", r.usage, ago(r.saved, now), rest)
		}
		head := cut(fmt.Sprintf("%s %s", label, elapsed(now.Sub(t.started))), width-2)
		tail := cut(rest, width-4-columns(head))
		if tail != "" {
			tail = "  " + p.as(dim, tail)
		}
		lines = append(lines, p.as(cyan, string(spin))+" "+head+tail)
		for _, l := range t.output[max(0, len(t.output)-liveOutput):] {
			if len(lines) < limit {
				lines = append(lines, p.as(dim, "    "+cut(l, width-4)))
			}
		}
	}
	return lines
}

// screen writes permanent lines above lines that are repainted. Each repaint is one write that overwrites in place,
// marked as a synchronised update for terminals that support it, so nothing flickers.
type screen struct {
	w    io.Writer
	last []int // columns of the painted live lines
	gone bool  // the reader has gone away
}

const (
	syncOn    = "\x1b[?2026h"
	syncOff   = "\x1b[?2026l"
	eraseLine = "\x1b[K"
	eraseDown = "\x1b[J"
)

func (s *screen) live() bool { return len(s.last) > 0 }

// draw replaces the live part by permanent lines and a new live part. Lines have no
// control characters except colours, and are shorter than the width.
func (s *screen) draw(stay, live []string, width int) {
	if s.gone || len(stay) == 0 && len(live) == 0 && len(s.last) == 0 {
		return
	}
	var b strings.Builder
	b.WriteString(syncOn)
	// A terminal that became narrower has wrapped the old lines into more rows.
	rows := 0
	for _, c := range s.last {
		rows += max(1, (c+width-1)/max(width, 1))
	}
	if rows > 0 {
		fmt.Fprintf(&b, "\r\x1b[%dA", rows)
	}
	for _, l := range stay {
		b.WriteString(l + eraseLine + "\n")
	}
	s.last = s.last[:0]
	for _, l := range live {
		b.WriteString(l + eraseLine + "\n")
		s.last = append(s.last, columns(stripColor(l)))
	}
	b.WriteString(eraseDown + syncOff)
	if _, err := io.WriteString(s.w, b.String()); err != nil {
		s.gone = true
	}
}

func stripColor(s string) string {
	var b strings.Builder
	for {
		before, after, found := strings.Cut(s, "\x1b[")
		b.WriteString(before)
		if !found {
			return b.String()
		}
		_, s, _ = strings.Cut(after, "m")
	}
}

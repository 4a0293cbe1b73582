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

// plainRenderer prints lines. The lock protects its state from the ticker.
type plainRenderer struct {
	mu      sync.Mutex
	w       io.Writer
	o       Options
	start   time.Time
	gap     gap
	told    told
	kept    outputs
	running running
	printed time.Time // when the last line was
	end     func()
}

// newPlain prints one line per event, with the time since the first.
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
	again := r.told.again(e)
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

// bounded cuts texts that are longer than the contract allows: a broken guest must not
// cost more than a correct one.
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

// plainText is an event in one line; empty if it shows nothing.
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

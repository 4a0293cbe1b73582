package sandboxcmd

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/sandbox-agent/sandbox-agent/internal/app"
	"github.com/sandbox-agent/sandbox-agent/internal/front/cmdutil"
	"github.com/sandbox-agent/sandbox-agent/internal/text"
	"github.com/sandbox-agent/sandbox-agent/sandbox"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

const (
	// maxLog bounds a line of a guest, in bytes: the guest is not trusted.
	maxLog = 4 << 10
	// historyPoll is how often --follow looks for new entries of the history.
	historyPoll = time.Second
)

// sandbox shows the log of a standalone sandbox.
func (o *logsOptions) sandbox(ctx context.Context, f *cmdutil.Factory, sb *sandbox.Sandbox) error {
	if o.attempt != 0 {
		return app.Usagef("--attempt is for tasks: %s is a sandbox", sb.Name())
	}
	var err error
	if o.json {
		err = sb.Logs(ctx, o.follow, text.WholeLines(maxLog, func(line []byte) { fmt.Fprintln(f.Stdout, text.Clean(string(line))) }))
	} else {
		err = o.readable(ctx, f, sb)
	}
	if err != nil && ctx.Err() != nil {
		return cmdutil.Interrupted(ctx)
	}
	return app.SandboxError(err)
}

// logEntry is a line of the readable log. A line of the guest that is no event has the time of the event before it, if any.
type logEntry struct {
	at   time.Time
	text string
}

// readable shows what the host has done to a sandbox and what its guest has reported, by time.
func (o *logsOptions) readable(ctx context.Context, f *cmdutil.Factory, sb *sandbox.Sandbox) error {
	history, seen, err := historyOf(ctx, f, sb.Name(), 0)
	if err != nil {
		return err
	}
	g := &guestLog{verbose: f.Verbose}
	if err := sb.Logs(ctx, false, text.WholeLines(maxLog, g.line)); err != nil {
		return err
	}
	all := slices.Concat(history, g.entries)
	slices.SortStableFunc(all, func(a, b logEntry) int { return a.at.Compare(b.at) })
	var mu sync.Mutex
	show := func(entries []logEntry) {
		mu.Lock()
		defer mu.Unlock()
		for _, e := range entries {
			at := strings.Repeat(" ", len(time.DateTime))
			if !e.at.IsZero() {
				at = e.at.Local().Format(time.DateTime)
			}
			fmt.Fprintf(f.Stdout, "%s  %s\n", at, text.Clean(e.text))
		}
	}
	show(all)
	if !o.follow {
		return nil
	}
	ctx, cancel := context.WithCancel(ctx)
	var polling sync.WaitGroup
	polling.Go(func() {
		for {
			select {
			case <-time.After(historyPoll):
			case <-ctx.Done():
				return
			}
			if history, seen, err = historyOf(ctx, f, sb.Name(), seen); err == nil { // a later poll may succeed
				show(history)
			}
		}
	})
	old := g.lines
	live := &guestLog{verbose: f.Verbose}
	err = sb.Logs(ctx, true, text.WholeLines(maxLog, func(line []byte) {
		live.line(line)
		if live.lines > old {
			show(live.entries)
		}
		live.entries = nil
	}))
	cancel()
	polling.Wait()
	return err
}

// historyOf returns what was done to a sandbox after the first entries, and how many there are now.
func historyOf(ctx context.Context, f *cmdutil.Factory, name string, after int) (entries []logEntry, n int, err error) {
	all, err := f.Sandboxes().History(ctx, name)
	if err != nil {
		return nil, after, err
	}
	for _, e := range all[min(after, len(all)):] {
		entries = append(entries, logEntry{e.At, historyLine(e)})
	}
	return entries, len(all), nil
}

func historyLine(e app.HistoryEvent) string {
	if e.Event != app.EventExecuted {
		return strings.TrimSpace("sandbox " + strings.ReplaceAll(e.Event, "_", " ") + " " + e.Detail)
	}
	switch {
	case e.Background:
		return "command " + e.Program + " started in the background"
	case e.Code == nil:
		return "command " + e.Program + " ended"
	}
	return fmt.Sprintf("command %s ended with %d (%s)", e.Program, *e.Code, time.Duration(e.Millis)*time.Millisecond)
}

// guestLog makes entries of what a guest prints.
type guestLog struct {
	verbose bool
	lines   int
	last    time.Time
	entries []logEntry
}

func (g *guestLog) line(line []byte) {
	g.lines++
	e, err := workorder.DecodeEvent(line)
	if err != nil || e.Type == "" {
		g.entries = append(g.entries, logEntry{g.last, string(line)})
		return
	}
	g.last = e.Time
	skipped := e.Type == workorder.EventStepFinished && e.Status == string(workorder.StepSkipped)
	if skipped && !g.verbose {
		return
	}
	words := []string{strings.Replace(string(e.Type), "step.", "step ", 1), e.Name, e.Status}
	if e.DurationMS > 0 {
		words = append(words, fmt.Sprintf("(%s)", time.Duration(e.DurationMS)*time.Millisecond))
	}
	empty := func(w string) bool { return w == "" }
	shown := strings.Join(slices.DeleteFunc(words, empty), " ")
	parts := slices.DeleteFunc([]string{shown, e.Text, e.By}, empty)
	g.entries = append(g.entries, logEntry{e.Time, strings.Join(parts, ": ")})
}

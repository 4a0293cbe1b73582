package sandbox

import (
	"context"
	"strings"
	"time"

	"github.com/sandbox-agent/sandbox-agent/internal/host/runtime"
	"github.com/sandbox-agent/sandbox-agent/internal/host/sandboxstore"
	"github.com/sandbox-agent/sandbox-agent/internal/text"
)

// noteEnds adds to the history which of the named sandboxes have ended without a command: by their own clock or from outside.
// The engine and the kernel report nothing to this program, so that the next command that sees a sandbox does it.
func (m *Manager) noteEnds(ctx context.Context, all ...Info) {
	var last map[string]sandboxstore.Event
	for _, i := range all {
		if !i.Own || i.Spec.Lifetime == LifetimeEphemeral || i.State != StateStopped && i.State != StateMissing {
			continue
		}
		if last == nil {
			last = m.creator.lastStates()
		}
		if last[i.Name].Runs() {
			m.creator.noteEnd(ctx, i.Name)
		}
	}
}

// lastStates returns the last event by sandbox that says whether the sandbox runs.
func (rs *records) lastStates() map[string]sandboxstore.Event {
	last := map[string]sandboxstore.Event{}
	if rs.state == "" {
		return last
	}
	all, _ := rs.kept.HistoryOfAll() // without a history nothing is missing in it
	for _, e := range all {
		if e.Runs() || e.Ends() {
			last[e.Sandbox] = e
		}
	}
	return last
}

// noteEnd notes the end of a sandbox, unless another command is creating or removing it, has noted it, or has started it
// meanwhile.
func (cr *creator) noteEnd(ctx context.Context, name string) {
	now, cancel := context.WithCancel(ctx)
	cancel() // it does not wait
	unlock, err := cr.lock(now, name)
	if err != nil {
		return
	}
	defer unlock()
	in, _, err := cr.byName(ctx, name)
	if err != nil || in != nil && (in.running || in.damaged != nil) || cr.incomplete(name) != nil {
		return
	}
	if in == nil {
		if in, err = cr.remember(ctx, name, ErrNotFound); err != nil {
			return
		}
	}
	if last := cr.lastStates()[name]; last.Runs() {
		in.note(sandboxstore.Event{Event: sandboxstore.EventEnded, Detail: whyEnded(ctx, in, last.At)})
	}
}

// guestEnds begins what a guest prints before it ends by itself.
const guestEnds = "the sandbox ends: "

// whyEnded says how a sandbox ended since a time, as far as its guest or its runtime knows.
func whyEnded(ctx context.Context, in *instance, since time.Time) string {
	r, id := in.at()
	if id == "" {
		return "removed from outside"
	}
	var out strings.Builder
	const lines = 20
	// Without a log, the runtime's state remains.
	_ = r.Logs(ctx, id, runtime.LogOptions{Since: since, Tail: lines, Stdout: &out, Stderr: &out})
	if i := strings.LastIndex(out.String(), guestEnds); i >= 0 {
		why, _, _ := strings.Cut(out.String()[i+len(guestEnds):], "\n")
		why, _, _ = strings.Cut(why, `"`) // of an event
		return text.Runes(text.Clean(why), maxMessage)
	}
	if exit, _, ok := strings.Cut(in.exit, ")"); ok { // such as "Exited (137) 2 seconds ago"
		return "from outside: " + text.Clean(strings.ToLower(exit[:1])+exit[1:]) + ")"
	}
	return "from outside"
}

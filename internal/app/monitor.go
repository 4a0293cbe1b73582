package app

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/sandbox-agent/sandbox-agent/internal/host/sandboxstore"
	"github.com/sandbox-agent/sandbox-agent/sandbox"
)

// Health of a sandbox, as a monitor reports it.
const (
	Healthy   = "healthy"
	Unhealthy = "unhealthy" // it runs and does not answer
	Restarted = "restarted"
)

// healthTime bounds the answer of a sandbox.
const healthTime = 10 * time.Second

// MonitorEvent is a change that a monitor has seen.
type MonitorEvent struct {
	At      time.Time `json:"at"`
	Sandbox string    `json:"sandbox"`
	State   string    `json:"state"`
	Error   string    `json:"error,omitempty"`
	Commit  string    `json:"commit,omitempty"`
}

// MonitorOptions say how sandboxes are watched.
type MonitorOptions struct {
	// Interval is the time between two checks.
	Interval time.Duration
	// Restart restarts sandboxes that ended unexpectedly.
	Restart bool
	// Once checks once.
	Once bool
	// Report receives each change.
	Report func(MonitorEvent)
}

// monitor watches sandboxes.
type monitor struct {
	MonitorOptions
	b    Sandboxes
	m    *sandbox.Manager
	kept *sandboxstore.Store
	last map[string]string // state by name
	// again has the time of the next allowed restart of each restarted sandbox.
	again map[string]pause
}

// pause grows with each start, up to maxPause.
type pause struct {
	until time.Time
	long  time.Duration
}

const maxPause = 30 * time.Minute

// Monitor watches the named sandboxes of the state directory until ctx ends. It commits changes in the clones of those without an idle
// timeout.
func (b Sandboxes) Monitor(ctx context.Context, o MonitorOptions) error {
	kept, err := b.Registry()
	if err != nil {
		return err
	}
	m, err := b.Manager(false)
	if err != nil {
		return err
	}
	defer m.Close()
	w := &monitor{o, b, m, kept, map[string]string{}, map[string]pause{}}
	tick := time.NewTicker(o.Interval)
	defer tick.Stop()
	for {
		if err := w.look(ctx); err != nil && ctx.Err() == nil {
			b.Warn(err.Error()) // an engine that does not answer now may answer later
		}
		if o.Once {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
	}
}

func (w *monitor) look(ctx context.Context) error {
	all, err := w.m.List(ctx)
	there := map[string]bool{}
	for _, i := range all {
		if !i.Own || i.State == sandbox.StateOtherEngine || i.State == sandbox.StateUnknown || i.Spec.Lifetime == sandbox.LifetimeEphemeral {
			continue
		}
		there[i.Name] = true
		w.one(ctx, i)
	}
	for name := range w.last {
		if !there[name] && err == nil {
			w.tell(MonitorEvent{Sandbox: name, State: sandboxstore.EventRemoved})
			delete(w.last, name)
		}
	}
	return err
}

func (w *monitor) one(ctx context.Context, i sandbox.Info) {
	e := MonitorEvent{Sandbox: i.Name, State: string(i.State)}
	if i.State == sandbox.StateRunning {
		e.State = Healthy
		commit, err := w.check(ctx, i)
		if e.Commit = commit; err != nil {
			e.State, e.Error = Unhealthy, err.Error()
		}
	} else if w.Restart && i.State != sandbox.StatePaused && w.mayRestart(i) {
		e.State = Restarted
		if err := w.start(ctx, i.Name); err != nil {
			e.State, e.Error = string(i.State), err.Error()
		} else {
			w.note(i.Name, sandboxstore.EventRestarted, "by the monitor")
		}
		long := min(max(2*w.again[i.Name].long, w.Interval), maxPause)
		w.again[i.Name] = pause{time.Now().Add(long), long}
	}
	if ctx.Err() != nil {
		return // it is the look that was ended, and not the sandbox
	}
	if e.State != w.last[i.Name] || e.Commit != "" {
		w.tell(e)
	}
	w.noteHealth(e)
	if w.last[i.Name] = e.State; e.State == Restarted {
		w.last[i.Name] = Healthy
	}
	if e.State == Healthy && time.Since(w.again[i.Name].until) > maxPause {
		delete(w.again, i.Name)
	}
}

// mayRestart reports whether a sandbox that was seen running has ended unexpectedly, and its pause is over.
func (w *monitor) mayRestart(i sandbox.Info) bool {
	before, again := w.last[i.Name], w.again[i.Name]
	seen := before == Healthy || before == Unhealthy || before == string(sandbox.StatePaused) || again.long > 0
	return seen && time.Now().After(again.until) && w.endedUnexpectedly(i)
}

// endedUnexpectedly reports whether a sandbox ended without a command or a timeout that stopped it.
func (w *monitor) endedUnexpectedly(i sandbox.Info) bool {
	if i.State == sandbox.StateStopped && (i.Spec.IdleTimeout > 0 || i.Spec.TTL > 0) {
		return false // it may have ended by its own clock
	}
	all, err := w.kept.History(i.Name)
	for _, e := range slices.Backward(all) {
		if e.Runs() || e.Ends() {
			return e.Event != sandboxstore.EventStopped && e.Event != sandboxstore.EventRemoved
		}
	}
	return err == nil
}

// noteHealth adds a change of health to the history.
func (w *monitor) noteHealth(e MonitorEvent) {
	switch before := w.last[e.Sandbox]; {
	case e.State == Unhealthy && before != Unhealthy:
		w.note(e.Sandbox, sandboxstore.EventHealthChanged, Unhealthy+": "+e.Error)
	case e.State == Healthy && before == Unhealthy:
		w.note(e.Sandbox, sandboxstore.EventHealthChanged, Healthy)
	}
}

// note adds to the history of a sandbox. A full disk must not stop the monitor.
func (w *monitor) note(name, event, detail string) {
	_ = w.kept.AppendEvent(sandboxstore.Event{At: time.Now().UTC(), Sandbox: name, Event: event, Detail: detail})
}

// check asks a sandbox for an answer, and commits what has changed in its clone.
func (w *monitor) check(ctx context.Context, i sandbox.Info) (commit string, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, healthTime, fmt.Errorf("it has not answered within %s", healthTime))
	defer cancel()
	sb, err := w.m.GetRunning(ctx, i.Name)
	if err != nil {
		return "", err
	}
	defer sb.Close()
	if _, err := sb.Status(ctx); err != nil {
		return "", errors.Join(context.Cause(ctx), err)
	}
	if i.Spec.BranchOf() != "" && i.Spec.IdleTimeout == 0 { // to look into it is to use it
		commit = w.b.Save(ctx, sb, sandbox.CommandRecord{})
	}
	return commit, nil
}

func (w *monitor) start(ctx context.Context, name string) error {
	sb, err := w.m.Get(ctx, name)
	if err != nil {
		return err
	}
	defer sb.Close()
	return sb.Resume(ctx)
}

func (w *monitor) tell(e MonitorEvent) {
	e.At = time.Now().UTC().Truncate(time.Second)
	w.Report(e)
}

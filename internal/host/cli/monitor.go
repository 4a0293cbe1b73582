package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/sandbox-agent/sandbox-agent/internal/host/registry"
	"github.com/sandbox-agent/sandbox-agent/internal/text"
	"github.com/sandbox-agent/sandbox-agent/sandbox"
)

const (
	monitorInterval = time.Minute
	leastInterval   = time.Second
	// healthTime is what a sandbox has to answer.
	healthTime = 10 * time.Second
)

// What the monitor says of a sandbox.
const (
	healthy   = "healthy"
	unhealthy = "unhealthy" // it runs and does not answer
	restarted = "restarted"
)

type monitorOptions struct {
	interval time.Duration
	restart  bool
	json     bool
	once     bool
}

func newMonitorCmd(a *App) *cobra.Command {
	o := &monitorOptions{}
	cmd := &cobra.Command{
		Use: "monitor", Short: "Watch sandboxes: commit changes, report exits, restart", Args: noArgs,
		Long: `Checks the named sandboxes of this state directory at each interval until it is
interrupted. It prints which are new, healthy, unresponsive, ended or removed,
each when that changes, and commits changes in the clones of those without
--idle. --auto-restart restarts sandboxes that ended unexpectedly, after pauses
that double up to half an hour. It does not restart what a command, --idle or
--ttl stopped.`,
		Example: "  sandbox-agent monitor\n  sandbox-agent monitor --interval 10s --auto-restart",
		RunE:    func(cmd *cobra.Command, _ []string) error { return o.do(cmd.Context(), a) },
	}
	f := cmd.Flags()
	durationVar(f, &o.interval, "interval", monitorInterval, "time between two checks")
	f.BoolVar(&o.restart, "auto-restart", false, "restart sandboxes that ended unexpectedly")
	f.BoolVar(&o.json, "json", false, "print each change as JSON")
	f.BoolVar(&o.once, "once", false, "check once and end")
	return cmd
}

// monitorEvent is a line of the monitor.
type monitorEvent struct {
	At      time.Time `json:"at"`
	Sandbox string    `json:"sandbox"`
	State   string    `json:"state"`
	Error   string    `json:"error,omitempty"`
	Commit  string    `json:"commit,omitempty"`
}

// monitor looks at sandboxes.
type monitor struct {
	*monitorOptions
	a    *App
	m    *sandbox.Manager
	kept *registry.Registry
	last map[string]string // state by name
	// again is when a sandbox that was started again may be once more, and after what pause.
	again map[string]pause
}

// pause grows with each start, up to maxPause.
type pause struct {
	until time.Time
	long  time.Duration
}

const maxPause = 30 * time.Minute

func (o *monitorOptions) do(ctx context.Context, a *App) error {
	if o.interval < leastInterval {
		return usage("--interval %s: use at least %s", o.interval, leastInterval)
	}
	st, err := a.store()
	if err != nil {
		return err
	}
	m, err := a.sandboxes()
	if err != nil {
		return err
	}
	defer m.Close()
	w := &monitor{o, a, m, registry.New(st.Dir()), map[string]string{}, map[string]pause{}}
	tick := time.NewTicker(o.interval)
	defer tick.Stop()
	for {
		if err := w.look(ctx); err != nil && ctx.Err() == nil {
			a.warn(err.Error()) // an engine that does not answer now may answer later
		}
		if o.once {
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
			w.tell(monitorEvent{Sandbox: name, State: registry.EventRemoved})
			delete(w.last, name)
		}
	}
	return err
}

func (w *monitor) one(ctx context.Context, i sandbox.Info) {
	e := monitorEvent{Sandbox: i.Name, State: string(i.State)}
	if i.State == sandbox.StateRunning {
		e.State = healthy
		commit, err := w.check(ctx, i)
		if e.Commit = commit; err != nil {
			e.State, e.Error = unhealthy, err.Error()
		}
	} else if before := w.last[i.Name]; w.restart && (before == healthy || before == unhealthy || w.again[i.Name].long > 0) && time.Now().After(w.again[i.Name].until) && w.unwished(i) {
		e.State = restarted
		if err := w.start(ctx, i.Name); err != nil {
			e.State, e.Error = string(i.State), err.Error()
		}
		long := min(max(2*w.again[i.Name].long, w.interval), maxPause)
		w.again[i.Name] = pause{time.Now().Add(long), long}
	}
	if ctx.Err() != nil {
		return // it is the look that was ended, and not the sandbox
	}
	if e.State != w.last[i.Name] || e.Commit != "" {
		w.tell(e)
	}
	if w.last[i.Name] = e.State; e.State == restarted {
		w.last[i.Name] = healthy
	}
	if e.State == healthy && time.Since(w.again[i.Name].until) > maxPause {
		delete(w.again, i.Name)
	}
}

// unwished reports whether a sandbox that does not run has ended by nobody's wish.
func (w *monitor) unwished(i sandbox.Info) bool {
	if i.State == sandbox.StateStopped && (i.Spec.IdleTimeout > 0 || i.Spec.TTL > 0) {
		return false // it may have ended by its own clock
	}
	all, err := w.kept.History(i.Name)
	if err != nil || len(all) == 0 {
		return err == nil
	}
	last := all[len(all)-1].Event
	return last != registry.EventStopped && last != registry.EventRemoved
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
		commit = w.a.Sandboxes().Save(ctx, sb, sandbox.CommandRecord{})
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

func (w *monitor) tell(e monitorEvent) {
	e.At = time.Now().UTC().Truncate(time.Second)
	if w.json {
		_ = json.NewEncoder(w.a.Stdout).Encode(e) // whoever reads no more is told no more
		return
	}
	line := fmt.Sprintf("%s  %s  %s", e.At.Local().Format(time.TimeOnly), e.Sandbox, e.State)
	if e.Commit != "" {
		line += fmt.Sprintf("  commit %.10s", e.Commit)
	}
	if e.Error != "" {
		line += "  " + text.Words(text.Clean(e.Error)) // a sandbox that says more lines adds none
	}
	fmt.Fprintln(w.a.Stdout, line)
}

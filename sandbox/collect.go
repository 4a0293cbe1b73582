package sandbox

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"time"

	"github.com/sandbox-agent/sandbox-agent/internal/host/registry"
	"github.com/sandbox-agent/sandbox-agent/internal/host/runtime"
)

// Action is what Collect does, as reports name it.
type Action string

// The actions.
const (
	// RemoveSandbox is of a container that a dead program made and never started, or of a session that has ended.
	RemoveSandbox Action = "remove sandbox"
	// KeepRecord writes what is kept of a sandbox that is there anew.
	KeepRecord Action = "keep record"
	// ForgetSandbox is of one whose container somebody has removed; only with Force: until then its next use makes it anew.
	ForgetSandbox Action = "forget sandbox"
	// EndEndpoints is of a sandbox that is not known any more.
	EndEndpoints Action = "end endpoints"
	// RemoveVolume is of a volume whose container somebody removed without it.
	RemoveVolume Action = "remove volume"
	// RemoveFork is of the image of a sandbox that is not any more.
	RemoveFork Action = "remove image of fork"
)

// Collected is one action that was carried out, or would be.
type Collected struct {
	Action Action `json:"action"`
	Target string `json:"target"`
	// NeedsForce reports that it is done with Force alone.
	NeedsForce bool `json:"needs_force,omitempty"`
}

// CollectOptions are how far Collect goes.
type CollectOptions struct {
	DryRun bool // only say what would be done
	Force  bool // also what takes away that a sandbox can be made anew
}

const (
	// neverStarted is the age at which a container that was created and not started has surely lost who made it.
	neverStarted = 5 * time.Minute
	// beingMade bounds the wait for a sandbox that another command makes or removes: it is let be.
	beingMade = 100 * time.Millisecond
)

// Collect removes what dead programs have left, and puts right what is kept of sandboxes: of those that were made with this state folder and are on this engine. What
// a living program uses is let be. With the error there is what was done.
func (m *Manager) Collect(ctx context.Context, o CollectOptions) ([]Collected, error) {
	c := &collector{m: m, o: o, done: []Collected{}, forgotten: map[string]bool{}, used: map[string]bool{}}
	if m.state == "" {
		return c.done, errNoState
	}
	owner, err := m.owner(false)
	if err != nil || owner == "" {
		return c.done, err
	}
	there := map[string]bool{}
	err = m.each(ctx, func(sb *Sandbox, b runtime.Box) (more bool) {
		there[sb.spec.Name], c.used[sb.from] = true, true
		if !sb.foreign && sb.damaged == nil {
			c.sandbox(ctx, sb, b)
		}
		return true
	})
	if err != nil { // what cannot be seen is not gone
		return c.done, errors.Join(append(c.errs, err)...)
	}
	c.folders(ctx, there)
	c.images(ctx, owner)
	c.volumes(ctx, owner)
	if !o.DryRun {
		sweepCopies()
	}
	return c.done, errors.Join(c.errs...)
}

type collector struct {
	m    *Manager
	o    CollectOptions
	done []Collected
	errs []error
	// forgotten are those of this round.
	forgotten map[string]bool
	// used are the snapshots of which there is a sandbox.
	used map[string]bool
}

// do carries out an action, unless it is only said.
func (c *collector) do(a Action, target string, f func() error) {
	if !c.o.DryRun {
		if err := f(); err != nil {
			c.errs = append(c.errs, fmt.Errorf("%s %s: %w", a, target, err))
			return
		}
	}
	c.done = append(c.done, Collected{Action: a, Target: target})
}

// sandbox looks at one that is there.
func (c *collector) sandbox(ctx context.Context, sb *Sandbox, b runtime.Box) {
	session := sb.spec.Lifetime == Session
	switch {
	case b.State == "created" && time.Since(b.Created) > neverStarted, session && b.State != "created" && !b.Live():
		c.do(RemoveSandbox, sb.spec.Name, func() error { return sb.Discard(ctx) })
	case session, b.State == "created":
	default:
		if _, err := c.m.kept.Load(sb.spec.Name); err != nil { // none, or a damaged one: its labels are the truth
			c.do(KeepRecord, sb.spec.Name, func() error { return c.m.keep(ctx, sb) })
		}
	}
}

// folders looks at what is kept of sandboxes that are not there.
func (c *collector) folders(ctx context.Context, there map[string]bool) {
	names, err := c.m.kept.Names()
	c.errs = append(c.errs, err)
	engines := map[string]string{}
	for _, name := range names {
		if there[name] || !ValidName(name) {
			continue
		}
		wait, cancel := context.WithTimeout(ctx, beingMade)
		unlock, err := c.m.kept.Lock(wait, name)
		cancel()
		if err != nil {
			continue
		}
		c.folder(ctx, name, engines)
		unlock()
	}
}

func (c *collector) folder(ctx context.Context, name string, engines map[string]string) {
	rec, err := c.m.kept.Load(name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		if made, begun := c.m.kept.Begun(name); begun && made.New {
			c.do(RemoveSandbox, name, func() error { return c.m.abandon(ctx, name) })
		}
		if c.m.hasEndpoints(name) {
			c.do(EndEndpoints, name, func() error { return c.m.endpoints(ctx, name) })
		}
		return
	case err != nil: // what was on which engine is not known any more
		c.forget(ctx, name)
		return
	}
	here, ok := engines[rec.Runtime]
	if !ok {
		if here, err = c.m.engine(ctx, Kind(rec.Runtime)); err != nil {
			c.errs = append(c.errs, err)
			return
		}
		engines[rec.Runtime] = here
	}
	switch {
	case here != rec.Engine: // it may be there
	default:
		c.forget(ctx, name)
	}
}

// volumes looks at volumes that no container has.
func (c *collector) volumes(ctx context.Context, owner string) {
	v, err := c.m.volumes()
	c.errs = append(c.errs, err)
	if v == nil {
		return
	}
	list, err := v.Volumes(ctx, map[string]string{labelOwner: owner})
	c.errs = append(c.errs, public(err))
	for _, left := range list {
		if time.Since(left.Created) > neverStarted { // a container that is being made has its volume first
			c.do(RemoveVolume, left.Name, func() error { return public(v.RemoveVolume(ctx, left.Name)) })
		}
	}
}

// forget forgets a sandbox that is not there, with Force alone.
func (c *collector) forget(ctx context.Context, name string) {
	if !c.o.Force {
		c.done = append(c.done, Collected{Action: ForgetSandbox, Target: name, NeedsForce: true})
		return
	}
	c.forgotten[name] = true
	c.do(ForgetSandbox, name, func() error {
		c.m.note(registry.Event{Sandbox: name, Event: registry.Removed})
		return errors.Join(c.m.endpoints(ctx, name), c.m.kept.Forget(name))
	})
}

// images looks at images of forks that are not there, and at those whose name another has now.
func (c *collector) images(ctx context.Context, owner string) {
	for _, p := range c.m.all {
		r, err := p.open()
		if err != nil {
			c.errs = append(c.errs, err)
			return
		}
		s, ok := r.(runtime.Snapshotter)
		if !ok {
			continue
		}
		list, err := s.Snapshots(ctx, map[string]string{labelOwner: owner})
		if err != nil {
			c.errs = append(c.errs, public(err))
			return
		}
		for _, i := range list {
			name := i.Labels[labelSnapshotOf]
			if c.used[i.Ref] || !strings.HasPrefix(i.Ref, forkRef) && i.Ref != i.ID || !c.forgotten[name] && time.Since(i.Created) < neverStarted { // a fork that is being made has its image first
				continue
			}
			if c.o.DryRun {
				c.done = append(c.done, Collected{Action: RemoveFork, Target: name})
			} else if err := s.RemoveSnapshot(ctx, i.Ref); err == nil {
				c.done = append(c.done, Collected{Action: RemoveFork, Target: name})
			} else if !errors.Is(err, runtime.ErrInUse) {
				c.errs = append(c.errs, fmt.Errorf("%s %s: %w", RemoveFork, name, public(err)))
			}
		}
	}
}

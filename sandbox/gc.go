package sandbox

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/sandbox-agent/sandbox-agent/internal/host/runtime"
	"github.com/sandbox-agent/sandbox-agent/internal/host/sandboxstore"
)

// GCKind is a kind of action of GC.
type GCKind = runtime.GCKind

// Actions of GC.
const (
	// GCRemoveSandbox removes a container that was created and never started, or a session that has ended.
	GCRemoveSandbox = runtime.GCRemoveSandbox
	// GCWriteRecord rewrites the record of an existing sandbox.
	GCWriteRecord = runtime.GCWriteRecord
	// GCForgetSandbox forgets a sandbox whose container was removed. It needs Force, since the next use would recreate the sandbox.
	GCForgetSandbox = runtime.GCForgetSandbox
	// GCCloseEndpoints closes the endpoints of an unknown sandbox.
	GCCloseEndpoints = runtime.GCCloseEndpoints
	// GCRemoveVolume removes a volume whose container was removed without it.
	GCRemoveVolume = runtime.GCRemoveVolume
	// GCRemoveForkImage removes the image of a fork that no longer exists.
	GCRemoveForkImage = runtime.GCRemoveForkImage
)

// GCAction is an action of GC that was, or with DryRun would be, carried out. Error is always empty: GC returns errors.
type GCAction = runtime.GCAction

// GCOptions are options of GC.
type GCOptions struct {
	DryRun bool // report actions without carrying them out
	Force  bool // also forget sandboxes that could be recreated
}

// beingMade bounds the wait for another command that creates or removes a sandbox. After it the sandbox is skipped.
const beingMade = 100 * time.Millisecond

// GC removes leftovers of dead programs and repairs the records of sandboxes, for the Manager's state directory
// and engine. It skips what a running program uses. On error it also returns the actions carried out so far.
func (m *Manager) GC(ctx context.Context, o GCOptions) ([]GCAction, error) {
	c := &collector{m: m.creator, o: o, done: []GCAction{}, forgotten: map[string]bool{}, used: map[string]bool{}}
	if m.creator.state == "" {
		return c.done, errNoState
	}
	owner, err := m.creator.owner(false)
	if err != nil || owner == "" {
		return c.done, err
	}
	there := map[string]bool{}
	err = m.creator.each(ctx, func(in *instance, b runtime.Instance) (more bool) {
		there[in.spec.Name], c.used[in.from] = true, true
		if !in.foreign && in.damaged == nil {
			c.sandbox(ctx, in, b)
		}
		return true
	})
	if err != nil { // unreachable is not missing
		return c.done, errors.Join(append(c.errs, err)...)
	}
	c.records(ctx, there)
	c.images(ctx, owner)
	c.volumes(ctx, owner)
	if !o.DryRun {
		sweepCopies(os.TempDir())
		sweepCopies(filepath.Join(m.creator.state, snapshotDir))
	}
	return c.done, errors.Join(c.errs...)
}

type collector struct {
	m         *creator
	o         GCOptions
	done      []GCAction
	errs      []error
	forgotten map[string]bool // sandboxes forgotten by this call
	used      map[string]bool // snapshots from which sandboxes were created
}

// do carries out an action, or only reports it in a dry run.
func (c *collector) do(a GCKind, target string, f func() error) {
	if !c.o.DryRun {
		if err := f(); err != nil {
			c.errs = append(c.errs, fmt.Errorf("%s %s: %w", a, target, err))
			return
		}
	}
	c.done = append(c.done, GCAction{Action: a, Target: target})
}

func (c *collector) sandbox(ctx context.Context, in *instance, b runtime.Instance) {
	session := in.spec.Lifetime == LifetimeEphemeral
	switch {
	case b.Leftover(time.Now()) && (session || b.State == "created"):
		c.do(GCRemoveSandbox, in.spec.Name, func() error { return in.discard(ctx) })
	case session, b.State == "created":
	default:
		if _, err := c.m.kept.Load(in.spec.Name); err != nil { // missing or damaged: the labels are authoritative
			c.do(GCWriteRecord, in.spec.Name, func() error { return c.m.keep(ctx, in) })
		}
	}
}

// records checks the records of missing sandboxes.
func (c *collector) records(ctx context.Context, there map[string]bool) {
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
		c.record(ctx, name, engines)
		unlock()
	}
}

func (c *collector) record(ctx context.Context, name string, engines map[string]string) {
	rec, err := c.m.kept.Load(name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		if made, begun := c.m.kept.Begun(name); begun && made.New {
			c.do(GCRemoveSandbox, name, func() error { return c.m.abandon(ctx, name) })
		}
		if c.m.hasEndpoints(name) {
			c.do(GCCloseEndpoints, name, func() error { return c.m.endpoints(ctx, name) })
		}
		return
	case err != nil: // its engine is unknown
		c.forget(ctx, name)
		return
	}
	here, ok := engines[rec.Runtime]
	if !ok {
		if here, err = c.m.all.engine(ctx, Runtime(rec.Runtime)); err != nil {
			c.errs = append(c.errs, err)
			return
		}
		engines[rec.Runtime] = here
	}
	if here == rec.Engine { // on another engine it may still exist
		c.forget(ctx, name)
	}
}

// volumes removes volumes without a container.
func (c *collector) volumes(ctx context.Context, owner string) {
	v, err := c.m.all.volumes()
	c.errs = append(c.errs, err)
	if v == nil {
		return
	}
	list, err := v.Volumes(ctx, map[string]string{labelOwner: owner})
	c.errs = append(c.errs, public(err))
	for _, left := range list {
		if time.Since(left.Created) > runtime.NeverStarted { // a new container's volume is created first
			c.do(GCRemoveVolume, left.Name, func() error { return public(v.RemoveVolume(ctx, left.Name)) })
		}
	}
}

// forget forgets a missing sandbox, only with Force.
func (c *collector) forget(ctx context.Context, name string) {
	if !c.o.Force {
		c.done = append(c.done, GCAction{Action: GCForgetSandbox, Target: name, NeedsForce: true})
		return
	}
	c.forgotten[name] = true
	c.do(GCForgetSandbox, name, func() error {
		c.m.note(sandboxstore.Event{Sandbox: name, Event: sandboxstore.EventRemoved})
		return errors.Join(c.m.endpoints(ctx, name), c.m.kept.Remove(name))
	})
}

// images removes images of forks that do not exist, and images that lost their name to another.
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
			if c.used[i.Ref] || !strings.HasPrefix(i.Ref, forkRef) && i.Ref != i.ID ||
				// A new fork's image is created before the fork.
				!c.forgotten[name] && time.Since(i.Created) < runtime.NeverStarted {
				continue
			}
			if c.o.DryRun {
				c.done = append(c.done, GCAction{Action: GCRemoveForkImage, Target: name})
			} else if err := s.RemoveSnapshot(ctx, i.Ref); err == nil {
				c.done = append(c.done, GCAction{Action: GCRemoveForkImage, Target: name})
			} else if !errors.Is(err, runtime.ErrInUse) {
				c.errs = append(c.errs, fmt.Errorf("%s %s: %w", GCRemoveForkImage, name, public(err)))
			}
		}
	}
}

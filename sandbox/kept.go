package sandbox

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"time"

	"github.com/sandbox-agent/sandbox-agent/internal/host/porter"
	"github.com/sandbox-agent/sandbox-agent/internal/host/registry"
	"github.com/sandbox-agent/sandbox-agent/internal/host/runtime"
	"github.com/sandbox-agent/sandbox-agent/internal/host/store"
	"github.com/sandbox-agent/sandbox-agent/internal/host/wireclient"
	"github.com/sandbox-agent/sandbox-agent/internal/host/worktree"
)

// errNoState means that nothing can be kept.
var errNoState = errors.New("there is no state folder: set HOME or SANDBOX_AGENT_STATE_DIR, or Options.StateDir")

// owner is what sets sandboxes of this state folder apart; for a first one it is drawn.
func (m *Manager) owner(first bool) (string, error) {
	if m.state == "" {
		return "", nil
	}
	o, err := store.New(m.state).Owner(first)
	return o.ID, err
}

// lock keeps others from making or removing the sandbox.
func (m *Manager) lock(ctx context.Context, name string) (unlock func(), err error) {
	if m.state == "" {
		return nil, fmt.Errorf("sandbox %s: %w", name, errNoState)
	}
	return m.kept.Lock(ctx, name)
}

// endpoints ends those of a sandbox.
func (m *Manager) endpoints(ctx context.Context, name string) error {
	return porter.End(ctx, m.kept.Dir(name))
}

// Forget removes what is left of a sandbox that cannot be found or used any more: one that is on another engine or of another version, whose record is damaged, or whose
// creation was interrupted. Its files go with it where they are on this machine.
func (m *Manager) Forget(ctx context.Context, name string) error {
	if err := checkName("sandbox", name); err != nil {
		return err
	}
	if m.state == "" {
		return fmt.Errorf("sandbox %s: %w", name, ErrNotFound)
	}
	left, _, err := m.byName(ctx, name)
	_, rerr := m.kept.Load(name)
	c, begun := m.kept.Begun(name)
	switch {
	case left == nil && errors.Is(rerr, fs.ErrNotExist) && !begun:
		return cmp.Or(err, fmt.Errorf("sandbox %s: %w", name, ErrNotFound))
	case left != nil && left.damaged == nil && !begun:
		return left.Discard(ctx)
	}
	unlock, err := m.kept.Lock(ctx, name)
	if err != nil {
		return err
	}
	defer unlock()
	if err := m.endpoints(ctx, name); err != nil {
		return err
	}
	if begun && c.New {
		return m.abandon(ctx, name)
	}
	if left != nil {
		left.drop()
		if err := left.r.Remove(ctx, left.id); err != nil {
			return public(err)
		}
	}
	if w := worktree.Find(m.state, name); w != nil {
		if err := w.Remove(ctx); err != nil {
			return err
		}
	}
	m.note(registry.Event{Sandbox: name, Event: registry.Removed})
	return m.kept.Forget(name)
}

// hasEndpoints reports whether some are kept of a sandbox.
func (m *Manager) hasEndpoints(name string) bool {
	k := porter.Porter{Dir: m.kept.Dir(name)}
	ports, err := k.Ports()
	return err != nil || len(ports) > 0 || porter.Alive(k.Dir)
}

// keep keeps what a sandbox is made of.
func (m *Manager) keep(ctx context.Context, sb *Sandbox) error {
	if m.state == "" {
		return errNoState
	}
	spec, err := json.Marshal(sb.Spec())
	if err != nil {
		return err
	}
	r, _ := sb.at()
	rec := registry.Record{Runtime: string(sb.spec.Runtime), Spec: spec, Created: time.Now().UTC()}
	if rec.Engine, rec.Host, err = identity(ctx, r); err != nil {
		return err
	}
	return m.kept.Keep(sb.spec.Name, rec)
}

// identity tells engines apart; a runtime without one has none.
func identity(ctx context.Context, r runtime.Stander) (id, host string, err error) {
	e, ok := r.(interface {
		Info(ctx context.Context) (runtime.Info, error)
	})
	if !ok {
		return "", "", nil
	}
	i, err := e.Info(ctx)
	if err != nil {
		return "", "", public(err)
	}
	return i.Identity(), i.Host, nil
}

// remember finds a sandbox by what is kept of it; notFound is the error where there is nothing.
func (m *Manager) remember(ctx context.Context, name string, notFound error) (*Sandbox, error) {
	if m.state == "" || !ValidName(name) {
		return nil, notFound
	}
	rec, err := m.kept.Load(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, notFound
	}
	if err != nil {
		return nil, err
	}
	for _, p := range m.all {
		if string(p.kind) != rec.Runtime {
			continue
		}
		r, err := p.open()
		if err != nil {
			return nil, err
		}
		id, host, err := identity(ctx, r)
		if err != nil {
			return nil, fmt.Errorf("sandbox %s: %w", name, err)
		}
		if id != rec.Engine {
			return nil, fmt.Errorf("sandbox %s: %w on the engine at %s: it is on another, which was at %s", name, ErrNotFound, host, rec.Host)
		}
		sb := &Sandbox{m: m, r: r, created: rec.Created}
		if err := json.Unmarshal(rec.Spec, &sb.spec); err != nil {
			return nil, fmt.Errorf("what is kept of sandbox %s is of another version: %w: `sandbox-agent down --force %s` forgets it", name, err, name)
		}
		sb.owner, err = m.owner(false)
		return sb, err
	}
	return nil, fmt.Errorf("sandbox %s: %w: it is of runtime %q, which is not here", name, ErrNotFound, rec.Runtime)
}

// recall adds what is kept of a sandbox whose own record is damaged, if that can be read: the branch that it has, for one.
func (m *Manager) recall(i *Info) {
	if m.state == "" {
		return
	}
	rec, err := m.kept.Load(i.Name)
	if err != nil {
		return
	}
	i.Created = rec.Created
	var spec Spec
	if json.Unmarshal(rec.Spec, &spec) == nil && spec.Name == i.Name {
		i.Spec, i.Image, i.Runtime = spec, spec.Image, Kind(rec.Runtime)
	}
}

// gone are the sandboxes of which there is no more than what is kept, beside those that are there. Of a runtime that does not answer, as lookErr says, they are
// not gone but unknown.
func (m *Manager) gone(ctx context.Context, there []Info, lookErr error) (all []Info, err error) {
	if m.state == "" {
		return nil, nil
	}
	names, err := m.kept.Names()
	if err != nil {
		return nil, err
	}
	engines := map[string]string{} // by runtime
	for _, name := range names {
		if slices.ContainsFunc(there, func(i Info) bool { return i.Name == name }) {
			continue
		}
		rec, err := m.kept.Load(name)
		if err != nil {
			continue // one without a record is being made, and of a damaged one there is nothing to tell
		}
		here, ok := engines[rec.Runtime]
		if !ok && lookErr == nil {
			if here, err = m.engine(ctx, Kind(rec.Runtime)); err != nil {
				lookErr = err
			}
			engines[rec.Runtime] = here
		}
		i := Info{Name: name, State: StateGone, Runtime: Kind(rec.Runtime), Created: rec.Created, Own: true}
		if err := json.Unmarshal(rec.Spec, &i.Spec); err != nil {
			i.Spec = Spec{} // of another version
		}
		i.Image = i.Spec.Image
		switch {
		case lookErr != nil && (rec.Engine != "" || !errors.Is(lookErr, ErrUnavailable)):
			i.State = StateUnknown
		case lookErr == nil && here != rec.Engine:
			i.State, i.Engine = StateElsewhere, rec.Host
		}
		all = append(all, i)
	}
	return all, lookErr
}

// engine is the identity of the engine of a kind; "" where it has none.
func (m *Manager) engine(ctx context.Context, k Kind) (string, error) {
	for _, p := range m.all {
		if p.kind != k {
			continue
		}
		r, err := p.open()
		if err != nil {
			return "", err
		}
		id, _, err := identity(ctx, r)
		return id, err
	}
	return "", nil
}

// renew makes a sandbox anew whose container is gone, or was never finished, unless another command just did. The turn to connect is the caller's.
func (sb *Sandbox) renew(ctx context.Context, why error) (*wireclient.Client, error) {
	unlock, err := sb.m.lock(ctx, sb.spec.Name)
	if err != nil {
		return nil, err
	}
	defer unlock()
	now, c, err := sb.m.reconnect(ctx, sb.spec.Name)
	if err != nil {
		return nil, err
	}
	sb.mu.Lock()
	defer sb.mu.Unlock()
	sb.r, sb.id, sb.from, sb.renewed = now.r, now.id, now.from, errors.Is(why, runtime.ErrNotFound) || errors.Is(why, errRenewing)
	sb.spec.Network, sb.spec.Allow = now.spec.Network, now.spec.Allow
	return c, nil
}

const (
	// removalTime bounds the wait for a removal by another program, until which the runtime lists the sandbox: an engine may have a full disk of layers to delete.
	removalTime = time.Minute
	removalPoll = 50 * time.Millisecond
)

// reconnect connects to a sandbox, which it recreates if it is missing or was never finished. The caller has the lock of its name, so nothing here may wait for it.
func (m *Manager) reconnect(ctx context.Context, name string) (*Sandbox, *wireclient.Client, error) {
	until := time.Now().Add(removalTime)
	for {
		now, c, err := m.again(ctx, name)
		if err == nil || !errors.Is(err, runtime.ErrNotFound) || time.Now().After(until) {
			return now, c, err
		}
		select {
		case <-ctx.Done():
			return nil, nil, context.Cause(ctx)
		case <-time.After(removalPoll):
		}
	}
}

// note adds to the history of a named sandbox. That it cannot be written, on a full disk, keeps nobody from working.
func (sb *Sandbox) note(e registry.Event) {
	if sb.spec.Lifetime != Session {
		e.Sandbox = sb.spec.Name
		sb.m.note(e)
	}
}

func (m *Manager) note(e registry.Event) {
	if m.state != "" {
		e.At = time.Now().UTC()
		_ = m.kept.Note(e)
	}
}

// Info is a row about the sandbox: as it was found, and used since by this program.
func (sb *Sandbox) Info() Info {
	sb.mu.Lock()
	defer sb.mu.Unlock()
	i := Info{Name: sb.spec.Name, State: StateStopped, Runtime: sb.spec.Runtime, Image: sb.spec.Image, Created: sb.created, Snapshot: sb.from, Spec: sb.spec}
	switch {
	case sb.damaged != nil:
		i.State, i.Error = StateDamaged, sb.damaged.Error()
	case sb.id == "":
		i.State = StateGone
	case sb.running || sb.c != nil:
		i.State = StateRunning
	}
	if i.Own = !sb.foreign; sb.foreign {
		i.Owner = ownerDir(sb.owner)
	}
	return i
}

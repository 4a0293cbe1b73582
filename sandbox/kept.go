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
	"github.com/sandbox-agent/sandbox-agent/internal/host/statedir"
	"github.com/sandbox-agent/sandbox-agent/internal/host/wireclient"
	"github.com/sandbox-agent/sandbox-agent/internal/host/worktree"
)

// errNoState means that no record can be stored.
var errNoState = errors.New("no state directory: set HOME or SANDBOX_AGENT_STATE_DIR, or Options.StateDir")

// owner returns the id of this state directory; with first it is created if missing.
func (m *Manager) owner(first bool) (string, error) {
	if m.state == "" {
		return "", nil
	}
	o, err := statedir.OwnerOf(m.state, first)
	return o.ID, err
}

// lock locks the sandbox's name against other commands that create or remove it.
func (m *Manager) lock(ctx context.Context, name string) (unlock func(), err error) {
	if m.state == "" {
		return nil, fmt.Errorf("sandbox %s: %w", name, errNoState)
	}
	return m.kept.Lock(ctx, name)
}

// endpoints closes the sandbox's endpoints.
func (m *Manager) endpoints(ctx context.Context, name string) error {
	return porter.End(ctx, m.kept.Dir(name))
}

// Forget removes the remains of a sandbox that cannot be found or used: one on another engine or of another version,
// with a damaged record or an interrupted creation. It deletes the sandbox's files if they are on the host.
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
	m.note(registry.Event{Sandbox: name, Event: registry.EventRemoved})
	return m.kept.Forget(name)
}

func (m *Manager) hasEndpoints(name string) bool {
	k := porter.Porter{Dir: m.kept.Dir(name)}
	ports, err := k.Ports()
	return err != nil || len(ports) > 0 || porter.Alive(k.Dir)
}

// keep stores the sandbox's record.
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

// identity returns the engine's id; "" for a runtime without an engine.
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

// remember finds a sandbox by its record; notFound is the error if there is none.
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
			return nil, fmt.Errorf("sandbox %s: %w on the engine at %s: it belongs to another engine, last seen at %s",
				name, ErrNotFound, host, rec.Host)
		}
		sb := &Sandbox{m: m, r: r, created: rec.Created}
		if err := json.Unmarshal(rec.Spec, &sb.spec); err != nil {
			return nil, fmt.Errorf(
				"the record of sandbox %s is of another version: %w: remove it with `sandbox-agent down --force %s`", name, err, name)
		}
		sb.owner, err = m.owner(false)
		return sb, err
	}
	return nil, fmt.Errorf("sandbox %s: %w: its runtime %q is not available here", name, ErrNotFound, rec.Runtime)
}

// recall fills in the stored record of a sandbox whose runtime record is damaged, if that can be read. It names the
// sandbox's branch, for one.
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
		i.Spec, i.Image, i.Runtime = spec, spec.Image, Runtime(rec.Runtime)
	}
}

// gone returns the sandboxes that have a record and are missing in their runtime. If the runtime does not answer
// (lookErr), their state is unknown.
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
			continue // without a record it is being created; a damaged one has no information
		}
		here, ok := engines[rec.Runtime]
		if !ok && lookErr == nil {
			if here, err = m.engine(ctx, Runtime(rec.Runtime)); err != nil {
				lookErr = err
			}
			engines[rec.Runtime] = here
		}
		i := Info{Name: name, State: StateMissing, Runtime: Runtime(rec.Runtime), Created: rec.Created, Own: true}
		if err := json.Unmarshal(rec.Spec, &i.Spec); err != nil {
			i.Spec = Spec{} // of another version
		}
		i.Image = i.Spec.Image
		switch {
		case lookErr != nil && (rec.Engine != "" || !errors.Is(lookErr, ErrUnavailable)):
			i.State = StateUnknown
		case lookErr == nil && here != rec.Engine:
			i.State, i.Engine = StateOtherEngine, rec.Host
		}
		all = append(all, i)
	}
	return all, lookErr
}

// engine returns the id of the engine of a kind; "" if it has none.
func (m *Manager) engine(ctx context.Context, k Runtime) (string, error) {
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

// renew recreates a sandbox whose container is missing or incomplete, unless another command has just done so. The
// caller holds the connection turn.
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
	// removalTime bounds the wait for a removal by another program, during which the runtime still lists the sandbox:
	// an engine may have to delete a disk full of layers.
	removalTime = time.Minute
	removalPoll = 50 * time.Millisecond
)

// reconnect connects to a sandbox, which it recreates if it is missing or incomplete. The caller holds the name's lock,
// so nothing here may wait for it.
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

// note adds to the history of a named sandbox. It ignores errors: a full disk must not stop the user's work.
func (sb *Sandbox) note(e registry.Event) {
	if sb.spec.Lifetime != LifetimeEphemeral {
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

// Info describes the sandbox as it was found and since used by this program.
func (sb *Sandbox) Info() Info {
	sb.mu.Lock()
	defer sb.mu.Unlock()
	i := Info{
		Name: sb.spec.Name, State: StateStopped, Runtime: sb.spec.Runtime, Image: sb.spec.Image, Created: sb.created,
		Snapshot: sb.from, Spec: sb.spec,
	}
	switch {
	case sb.damaged != nil:
		i.State, i.Error = StateDamaged, sb.damaged.Error()
	case sb.id == "":
		i.State = StateMissing
	case sb.running || sb.c != nil:
		i.State = StateRunning
	}
	if i.Own = !sb.foreign; sb.foreign {
		i.Owner = ownerDir(sb.owner)
	}
	return i
}

package sandbox

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"time"

	"github.com/sandbox-agent/sandbox-agent/internal/host/branch"
	"github.com/sandbox-agent/sandbox-agent/internal/host/portforward"
	"github.com/sandbox-agent/sandbox-agent/internal/host/runtime"
	"github.com/sandbox-agent/sandbox-agent/internal/host/sandboxstore"
	"github.com/sandbox-agent/sandbox-agent/internal/host/statedir"
	"github.com/sandbox-agent/sandbox-agent/internal/host/wireclient"
	"github.com/sandbox-agent/sandbox-agent/internal/host/worktree"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// records are the files about sandboxes in the state directory.
type records struct {
	state string // "" if there is none
	kept  *sandboxstore.Store
}

// errNoState means that no record can be stored.
var errNoState = errors.New("no state directory: set HOME or SANDBOX_AGENT_STATE_DIR, or Options.StateDir")

// owner returns the id of this state directory. With first it creates a missing one.
func (rs *records) owner(first bool) (string, error) {
	if rs.state == "" {
		return "", nil
	}
	o, err := statedir.OwnerOf(rs.state, first)
	return o.ID, err
}

// lock locks the sandbox's name against other commands that create or remove it.
func (rs *records) lock(ctx context.Context, name string) (unlock func(), err error) {
	if rs.state == "" {
		return nil, fmt.Errorf("sandbox %s: %w", name, errNoState)
	}
	return rs.kept.Lock(ctx, name)
}

// endpoints closes the sandbox's endpoints, and removes the socket of its relay.
func (rs *records) endpoints(ctx context.Context, name string) error {
	_ = os.Remove(rs.relay(name)) // a relay without its socket ends
	return portforward.End(ctx, rs.kept.Dir(name))
}

// RemoveRecord removes the remains of a sandbox that cannot be found or used: one on another engine or of another version,
// with a damaged record or an interrupted creation. It deletes the sandbox's files if they are on the host.
func (m *Manager) RemoveRecord(ctx context.Context, name string) error {
	cr := m.creator
	if err := checkName("sandbox", name); err != nil {
		return err
	}
	if cr.state == "" {
		return fmt.Errorf("sandbox %s: %w", name, ErrNotFound)
	}
	left, _, err := cr.byName(ctx, name)
	_, rerr := cr.kept.Load(name)
	c, begun := cr.kept.Begun(name)
	switch {
	case left == nil && errors.Is(rerr, fs.ErrNotExist) && !begun:
		return cmp.Or(err, fmt.Errorf("sandbox %s: %w", name, ErrNotFound))
	case left != nil && left.damaged == nil && !begun:
		return left.discard(ctx)
	}
	unlock, err := cr.kept.Lock(ctx, name)
	if err != nil {
		return err
	}
	defer unlock()
	if err := cr.endpoints(ctx, name); err != nil {
		return err
	}
	if begun && c.New {
		return cr.abandon(ctx, name)
	}
	if left != nil {
		left.conn.drop()
		if err := left.r.Remove(ctx, left.id); err != nil {
			return public(err)
		}
	}
	if w := worktree.Find(cr.state, name); w != nil {
		if err := w.Remove(ctx); err != nil {
			return err
		}
	}
	cr.note(sandboxstore.Event{Sandbox: name, Event: sandboxstore.EventRemoved})
	return cr.kept.Remove(name)
}

func (rs *records) hasEndpoints(name string) bool {
	k := portforward.Forwarder{Dir: rs.kept.Dir(name)}
	ports, err := k.Ports()
	return err != nil || len(ports) > 0 || portforward.Alive(k.Dir)
}

func (rs *records) keep(ctx context.Context, in *instance) error {
	if rs.state == "" {
		return errNoState
	}
	spec, err := json.Marshal(in.current())
	if err != nil {
		return err
	}
	r, _ := in.at()
	rec := sandboxstore.Record{Runtime: string(in.spec.Runtime), Spec: spec, Created: time.Now().UTC()}
	if rec.Engine, rec.Host, err = identity(ctx, r); err != nil {
		return err
	}
	return rs.kept.Save(in.spec.Name, rec)
}

// identity returns the engine's id and host; "" for a runtime without an engine.
func identity(ctx context.Context, r runtime.SandboxRuntime) (id, host string, err error) {
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
func (l *lookup) remember(ctx context.Context, name string, notFound error) (*instance, error) {
	if l.state == "" || !ValidName(name) {
		return nil, notFound
	}
	rec, err := l.kept.Load(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, notFound
	}
	if err != nil {
		return nil, err
	}
	p := l.all.find(Runtime(rec.Runtime))
	if p == nil {
		return nil, fmt.Errorf("sandbox %s: %w: its runtime %q is not available here", name, ErrNotFound, rec.Runtime)
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
	in := &instance{c: l.creator, r: r, created: rec.Created}
	if err := json.Unmarshal(rec.Spec, &in.spec); err != nil {
		return nil, fmt.Errorf(
			"the record of sandbox %s is of another version: %w: remove it with `sandbox-agent down --force %s`", name, err, name)
	}
	in.owner, err = l.owner(false)
	return in, err
}

// recall fills in the stored record of a sandbox whose runtime record is damaged, if that can be read. It names the
// sandbox's branch, for one.
func (rs *records) recall(i *Info) {
	if rs.state == "" {
		return
	}
	rec, err := rs.kept.Load(i.Name)
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
func (l *lookup) gone(ctx context.Context, there []Info, lookErr error) (all []Info, err error) {
	if l.state == "" {
		return nil, nil
	}
	names, err := l.kept.Names()
	if err != nil {
		return nil, err
	}
	engines := map[string]string{} // by runtime
	for _, name := range names {
		if slices.ContainsFunc(there, func(i Info) bool { return i.Name == name }) {
			continue
		}
		rec, err := l.kept.Load(name)
		if err != nil {
			continue // without a record it is being created; a damaged one has no information
		}
		here, ok := engines[rec.Runtime]
		if !ok && lookErr == nil {
			if here, err = l.all.engine(ctx, Runtime(rec.Runtime)); err != nil {
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

// engine returns the id of a runtime's engine; "" if it has none.
func (bs backends) engine(ctx context.Context, k Runtime) (string, error) {
	p := bs.find(k)
	if p == nil {
		return "", nil
	}
	r, err := p.open()
	if err != nil {
		return "", err
	}
	id, _, err := identity(ctx, r)
	return id, err
}

// renew recreates a sandbox whose container is missing or incomplete, unless another command has just done so. The
// caller holds the connection turn.
func (in *instance) renew(ctx context.Context, why error) (*wireclient.Client, error) {
	unlock, err := in.c.lock(ctx, in.spec.Name)
	if err != nil {
		return nil, err
	}
	defer unlock()
	now, c, err := in.c.reconnect(ctx, in.spec.Name)
	if err != nil {
		return nil, err
	}
	in.mu.Lock()
	defer in.mu.Unlock()
	in.r, in.id, in.from = now.r, now.id, now.from
	in.recreated = errors.Is(why, errRenewing) || errors.Is(why, runtime.ErrNotFound) && !in.unborn // another command may have completed it
	in.unborn = false
	in.spec.Network, in.spec.Allow = now.spec.Network, now.spec.Allow
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
func (cr *creator) reconnect(ctx context.Context, name string) (*instance, *wireclient.Client, error) {
	until := time.Now().Add(removalTime)
	for {
		now, c, err := cr.again(ctx, name)
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

func (rs *records) note(e sandboxstore.Event) {
	if rs.state != "" {
		e.At = time.Now().UTC()
		_ = rs.kept.AppendEvent(e)
	}
}

// branchOf returns the branch of a sandbox with this spec, to commit to.
func (rs *records) branchOf(s Spec, repo string) *branch.Branch {
	b := rs.branch(s.Name, repo)
	b.Author, _ = workorder.ParseIdentity(s.Author) // zero for ""
	return b
}

func (rs *records) branch(name, repo string) *branch.Branch {
	return branch.New(rs.state).Of(name, repo)
}

// cloned records the commit at which a clone for the sandbox is made.
func (rs *records) cloned(ctx context.Context, name, repo, base string) error {
	if rs.state == "" {
		return nil
	}
	return rs.branch(name, repo).Cloned(ctx, base)
}

package sandbox

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/sandbox-agent/sandbox-agent/internal/host/branch"
	"github.com/sandbox-agent/sandbox-agent/internal/host/localrepo"
	"github.com/sandbox-agent/sandbox-agent/internal/host/registry"
	"github.com/sandbox-agent/sandbox-agent/internal/host/runtime"
	"github.com/sandbox-agent/sandbox-agent/internal/host/wireclient"
	"github.com/sandbox-agent/sandbox-agent/internal/host/worktree"
)

// A named sandbox is complete when its clone is, and the work that it had before. What is about to be made is written first and removed last (registry.Creation): a
// command that finds it written while no other has the lock of the name makes the sandbox anew, since no command of the user's has run in what is there.

// errIncomplete is of a sandbox that a command would have to complete and must not start.
var errIncomplete = errors.New("its creation was interrupted: the next command in it completes it")

// errRenewing is the errIncomplete of a sandbox that was there before.
var errRenewing = fmt.Errorf("%w, with the work that was saved", errIncomplete)

// incomplete returns an errIncomplete where a named sandbox is being made, or the command that made it was killed.
func (m *Manager) incomplete(name string) error {
	if m.state == "" {
		return nil
	}
	c, begun := m.kept.Begun(name)
	switch {
	case begun && c.Restore:
		return errRenewing
	case begun:
		return errIncomplete
	}
	return nil
}

func (sb *Sandbox) incomplete() error {
	if sb.making || sb.foreign || sb.spec.Lifetime == Session {
		return nil
	}
	return sb.m.incomplete(sb.spec.Name)
}

// unfit is why no command may run in the sandbox as it is: errIncomplete or errFilesGone.
func (sb *Sandbox) unfit() error {
	if err := sb.incomplete(); err != nil {
		return err
	}
	if sb.filesGone() {
		return errFilesGone
	}
	return nil
}

// ready completes a sandbox whose creation was interrupted.
func (sb *Sandbox) ready(ctx context.Context) error {
	if err := sb.usable(); err != nil || sb.unfit() == nil {
		return err
	}
	return sb.Resume(ctx)
}

// begin writes what is about to be made.
func (m *Manager) begin(s Spec, c registry.Creation) error {
	spec, err := json.Marshal(s)
	if err != nil {
		return err
	}
	c.Record = registry.Record{Runtime: string(s.Runtime), Spec: spec, Created: time.Now().UTC()}
	return m.kept.Begin(s.Name, c)
}

// createNamed makes a named sandbox of a complete spec, of a snapshot if the creation names one. After an error there is none. The caller has the lock of its name.
func (m *Manager) createNamed(ctx context.Context, p *place, r runtime.Stander, s Spec, c registry.Creation) (*Sandbox, error) {
	if err := m.abandon(ctx, s.Name); err != nil {
		return nil, err
	}
	if err := m.taken(ctx, p, s.Name); err != nil {
		return nil, err
	}
	c.New = true
	if err := m.worktreeFree(ctx, s); err != nil {
		return nil, err // with nothing begun: what is begun is undone by the next command, with the worktree
	}
	if err := m.begin(s, c); err != nil {
		return nil, err
	}
	undo, err := m.addWorktree(ctx, &s)
	if err == nil && s.Worktree != "" {
		err = m.begin(s, c) // with its mounts
	}
	var sb *Sandbox
	if err == nil {
		sb, err = m.build(ctx, r, s, c)
	}
	if err == nil {
		return sb, nil
	}
	clean, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopGrace)
	defer cancel()
	if sb != nil {
		sb.drop()
		if rerr := r.Remove(clean, sb.id); rerr != nil { // the creation stays: the next command removes what is there of it
			return nil, errors.Join(err, public(rerr))
		}
	}
	return nil, errors.Join(err, undo(clean), m.kept.Complete(s.Name))
}

// taken returns an ErrExists where a sandbox has the name: of any runtime of this state directory, and on the same engine also of another one. A runtime that does not
// answer has none that could be used now.
func (m *Manager) taken(ctx context.Context, p *place, name string) error {
	own, other, _ := m.byName(ctx, name)
	err := fmt.Errorf("sandbox %s: %w", name, ErrExists)
	switch {
	case own != nil && own.damaged == nil && own.spec.Runtime != p.kind:
		return fmt.Errorf("%w, of runtime %s", err, own.spec.Runtime)
	case own != nil || other != nil && p.onEngine():
		return m.clash(ctx, name, err)
	}
	return nil
}

// build makes a sandbox whose creation has begun, and keeps what it is made of. With an error it returns the sandbox if that is there.
func (m *Manager) build(ctx context.Context, r runtime.Stander, s Spec, c registry.Creation) (*Sandbox, error) {
	sb, err := m.make(ctx, r, s, c.Snapshot)
	if err != nil {
		return sb, err
	}
	if err := m.keep(ctx, sb); err != nil {
		return sb, err
	}
	if c.Restore {
		// The context may end: who leaves now would leave a clone without the work for the next command to make anew.
		if _, err := sb.RestoreWork(context.WithoutCancel(ctx)); err != nil {
			return sb, err
		}
	}
	if err := m.kept.Complete(s.Name); err != nil {
		return sb, err
	}
	sb.making = false
	sb.note(registry.Event{Event: c.Event, Detail: c.Detail})
	return sb, nil
}

// complete makes a sandbox whose creation has begun, in place of what is there of it. The caller has the lock of its name.
func (m *Manager) complete(ctx context.Context, name string) (*Sandbox, error) {
	c, _ := m.kept.Begun(name)
	half, _, err := m.byName(ctx, name)
	if half == nil && err != nil {
		return nil, err
	}
	var s Spec
	if err := json.Unmarshal(c.Spec, &s); err != nil { // damaged: what is there says what it was to be
		if half == nil || half.damaged != nil {
			if half, err = m.remember(ctx, name, ErrNotFound); err != nil {
				return nil, errors.Join(err, m.kept.Complete(name))
			}
		}
		s, c = half.spec, registry.Creation{Snapshot: half.from, Restore: true, Event: registry.Renewed, Detail: half.spec.Image}
		if err := m.begin(s, c); err != nil {
			return nil, err
		}
	}
	p := m.place(s.Runtime)
	if p == nil {
		return nil, fmt.Errorf("sandbox %s: runtime %s: %w", name, s.Runtime, ErrUnsupported)
	}
	r, err := p.open()
	if err != nil {
		return nil, err
	}
	if half != nil && half.id != "" {
		half.drop()
		if err := half.r.Remove(ctx, half.id); err != nil {
			return nil, public(err)
		}
	}
	owner, err := m.owner(false)
	if err == nil { // a container that somebody else removed has left them
		err = m.removeVolumes(ctx, s.Runtime, name, owner)
	}
	if err != nil {
		return nil, err
	}
	if c.Restore && filepath.IsAbs(s.Repo) {
		s.Ref = currentBase(ctx, s)
	}
	return m.build(ctx, r, s, c)
}

// currentBase is the branch that a clone begins at whose work is restored: any other does where that one is gone.
func currentBase(ctx context.Context, s Spec) string {
	repo, err := localrepo.Open(ctx, s.Repo)
	if err != nil {
		return s.Ref // its error is told by who opens it next
	}
	if _, err := repo.Base(ctx, s.Ref); err != nil {
		if other, err := repo.Base(ctx, ""); err == nil {
			return other
		}
	}
	return s.Ref
}

// abandon removes what the killed command has left that made a new sandbox of the name, in which nobody has worked. The caller has the lock of the name.
func (m *Manager) abandon(ctx context.Context, name string) error {
	c, begun := m.kept.Begun(name)
	if !begun {
		return nil
	}
	if !c.New {
		return fmt.Errorf("sandbox %s: %w", name, ErrExists) // an earlier one is being made anew
	}
	half, _, err := m.byName(ctx, name)
	if half == nil && err != nil {
		return err
	}
	if half != nil {
		if err := errors.Join(half.r.Remove(ctx, half.id), m.removeForks(ctx, half.r, name, half.owner)); err != nil {
			return public(err)
		}
	}
	var s Spec
	if json.Unmarshal(c.Spec, &s) == nil && s.Worktree != "" {
		w := worktree.Of(m.state, name, s.Worktree)
		if _, err := os.Lstat(w.Tree()); err == nil {
			if err := w.Discard(ctx); err != nil {
				return err
			}
		}
	}
	return m.kept.Forget(name)
}

// again connects to the sandbox of a name: as another command has just made it, or made now where it is gone or was never finished. The caller has the lock of the name.
func (m *Manager) again(ctx context.Context, name string) (now *Sandbox, c *wireclient.Client, err error) {
	if m.incomplete(name) != nil {
		return connected(m.complete(ctx, name))
	}
	now, err = m.find(ctx, name)
	if err == nil {
		if c, err = now.connect(ctx, true); !errors.Is(err, runtime.ErrUnfinished) {
			return now, c, err
		}
		err = m.begin(now.spec, registry.Creation{Snapshot: now.from, Event: registry.Created, Detail: now.spec.Image})
	} else if errors.Is(err, ErrNotFound) {
		if now, err = m.remember(ctx, name, err); err == nil {
			err = m.begin(now.spec, registry.Creation{Restore: true, Event: registry.Renewed, Detail: now.spec.Image})
		}
	}
	if err != nil {
		return nil, nil, err
	}
	return connected(m.complete(ctx, name))
}

// connected is a sandbox that was just made, with its connection.
func connected(sb *Sandbox, err error) (*Sandbox, *wireclient.Client, error) {
	if err != nil {
		return nil, nil, err
	}
	c, _, _ := sb.seen()
	return sb, c, nil
}

// filesGone reports whether somebody has deleted the directory of this machine that has the sandbox's files.
func (sb *Sandbox) filesGone() bool {
	r, id := sb.at()
	if id == "" || sb.making || sb.spec.Lifetime == Session {
		return false
	}
	if sb.spec.Worktree != "" && worktree.Of(sb.m.state, sb.spec.Name, sb.spec.Worktree).Gone() {
		return true
	}
	local, ok := r.(runtime.LocalFiles)
	return ok && local.FilesGone(id)
}

// errFilesGone is of a sandbox that a command would have to repair and must not start.
var errFilesGone = errors.New("the directory with its files was deleted: the next command in it brings back what was saved")

// repair brings back the files of a sandbox whose directory was deleted, as they were saved last, and starts it anew. The turn to connect is the caller's.
func (sb *Sandbox) repair(ctx context.Context) (*wireclient.Client, error) {
	unlock, err := sb.m.lock(ctx, sb.spec.Name)
	if err != nil {
		return nil, err
	}
	defer unlock()
	now, err := sb.m.find(ctx, sb.spec.Name)
	if err != nil {
		return nil, err
	}
	if now.filesGone() {
		if err := now.refill(ctx); err != nil {
			return nil, err
		}
	}
	c, err := now.connect(ctx, true)
	if err != nil {
		return nil, err
	}
	sb.mu.Lock()
	defer sb.mu.Unlock()
	sb.r, sb.id, sb.renewed = now.r, now.id, true
	return c, nil
}

// refill makes the deleted directories of a sandbox anew, and fills them with what was saved.
func (sb *Sandbox) refill(ctx context.Context) error {
	s := sb.Spec()
	r, id := sb.at()
	// A sandbox that runs has the deleted directory, and could change what is made for another start.
	if err := r.Stop(ctx, id, s.Runtime.grace()); err != nil {
		return err
	}
	if s.Worktree != "" {
		b := branch.New(sb.m.state).Of(s.Name, s.Worktree)
		uid, gid := worktreeOwner(s.Name)
		if err := worktree.Of(sb.m.state, s.Name, s.Worktree).Rebuild(ctx, b.Head(ctx), b.Clone(ctx), uid, gid); err != nil {
			return fmt.Errorf("sandbox %s: %w", s.Name, err)
		}
	}
	clone := filepath.IsAbs(s.Repo)
	file := ""
	if clone {
		s.Ref = currentBase(ctx, s)
		bundle, base, remove, err := s.bundle(ctx)
		if err != nil {
			return err
		}
		defer remove()
		file = bundle
		if err := sb.m.cloned(ctx, s, base); err != nil {
			return err
		}
		if err := sb.m.begin(s, registry.Creation{Snapshot: sb.from, Restore: true, Event: registry.Renewed, Detail: s.Image}); err != nil {
			return err
		}
	}
	if err := r.StartAgain(ctx, id); err != nil {
		return err
	}
	if clone {
		sb.making, sb.from = true, ""
		defer func() { sb.making = false }()
		if err := sb.clone(ctx, file); err != nil {
			return err
		}
		if _, err := sb.RestoreWork(context.WithoutCancel(ctx)); err != nil {
			return err
		}
		if err := sb.m.kept.Complete(s.Name); err != nil {
			return err
		}
	}
	sb.note(registry.Event{Event: registry.Renewed, Detail: s.Image})
	return nil
}

package sandbox

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/sandbox-agent/sandbox-agent/internal/host/branch"
	"github.com/sandbox-agent/sandbox-agent/internal/host/localrepo"
	"github.com/sandbox-agent/sandbox-agent/internal/host/runtime"
	"github.com/sandbox-agent/sandbox-agent/internal/host/sandboxstore"
	"github.com/sandbox-agent/sandbox-agent/internal/host/wireclient"
	"github.com/sandbox-agent/sandbox-agent/internal/host/worktree"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// A named sandbox is complete when it has its clone and its saved work. sandboxstore.Creation is written before a sandbox is created and
// removed last. A command that finds one without a holder of the name's lock recreates the sandbox: no user command has run in it yet.

// errIncomplete means that a sandbox must be completed before use, by a command that may start it.
var errIncomplete = errors.New("creation interrupted: the next command in it completes it")

// errRenewing is the errIncomplete of a sandbox that existed before the interrupted creation.
var errRenewing = fmt.Errorf("%w, with its saved work", errIncomplete)

// incomplete returns an errIncomplete if a named sandbox is being created, or the command that created it was killed.
func (rs *records) incomplete(name string) error {
	if rs.state == "" {
		return nil
	}
	c, begun := rs.kept.Begun(name)
	switch {
	case begun && c.Restore:
		return errRenewing
	case begun:
		return errIncomplete
	}
	return nil
}

func (rs *records) begin(s Spec, c sandboxstore.Creation) error {
	spec, err := json.Marshal(s)
	if err != nil {
		return err
	}
	c.Record = sandboxstore.Record{Runtime: string(s.Runtime), Spec: spec, Created: time.Now().UTC()}
	return rs.kept.Begin(s.Name, c)
}

// createNamed creates a named sandbox from a complete spec, or from the creation's snapshot. It leaves none after an
// error. The caller holds the name's lock.
func (cr *creator) createNamed(
	ctx context.Context, p *backend, r runtime.SandboxRuntime, s Spec, c sandboxstore.Creation,
) (*instance, error) {
	if err := cr.abandon(ctx, s.Name); err != nil {
		return nil, err
	}
	if err := cr.taken(ctx, p, s.Name); err != nil {
		return nil, err
	}
	c.New = true
	if err := cr.worktreeFree(ctx, s); err != nil {
		return nil, err // before the creation is recorded: the next command would undo a recorded one, with its worktree
	}
	if err := cr.begin(s, c); err != nil {
		return nil, err
	}
	undo, err := cr.addWorktree(ctx, &s)
	if err == nil && s.Worktree != "" {
		err = cr.begin(s, c) // with its mounts
	}
	var in *instance
	if err == nil {
		in, err = cr.build(ctx, r, s, c)
	}
	if err == nil {
		return in, nil
	}
	clean, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopGrace)
	defer cancel()
	if in != nil {
		in.conn.drop()
		if rerr := r.Remove(clean, in.id); rerr != nil { // the creation record stays: the next command removes the rest
			return nil, errors.Join(err, public(rerr))
		}
	}
	return nil, errors.Join(err, undo(clean), cr.kept.Complete(s.Name))
}

// taken returns an ErrExists if the name is in use: in this state directory by any runtime, or on the same engine by
// another state directory. A runtime that does not answer is skipped.
func (l *lookup) taken(ctx context.Context, p *backend, name string) error {
	own, other, _ := l.byName(ctx, name)
	err := fmt.Errorf("sandbox %s: %w", name, ErrExists)
	switch {
	case own != nil && own.damaged == nil && own.spec.Runtime != p.kind:
		return fmt.Errorf("%w (runtime %s)", err, own.spec.Runtime)
	case own != nil || other != nil && p.onEngine():
		return l.clash(ctx, name, err)
	}
	return nil
}

// build creates a sandbox whose creation record exists, and stores its record. With an error it returns the sandbox if that exists.
func (cr *creator) build(ctx context.Context, r runtime.SandboxRuntime, s Spec, c sandboxstore.Creation) (*instance, error) {
	in, err := cr.make(ctx, r, s, c.Snapshot)
	if err != nil {
		return in, err
	}
	if err := cr.keep(ctx, in); err != nil {
		return in, err
	}
	if c.Restore {
		// A context that ended here would leave a clone without the work, to be recreated by the next command.
		if _, err := (&Branch{in: in}).Restore(context.WithoutCancel(ctx)); err != nil {
			return in, err
		}
	}
	if err := cr.kept.Complete(s.Name); err != nil {
		return in, err
	}
	in.making = false
	in.note(sandboxstore.Event{Event: c.Event, Detail: c.Detail})
	return in, nil
}

// complete recreates a sandbox whose creation was interrupted. The caller holds the name's lock.
func (cr *creator) complete(ctx context.Context, name string) (*instance, error) {
	c, _ := cr.kept.Begun(name)
	half, _, err := cr.byName(ctx, name)
	if half == nil && err != nil {
		return nil, err
	}
	var s Spec
	if err := json.Unmarshal(c.Spec, &s); err != nil { // damaged: use the labels of the existing sandbox
		if half == nil || half.damaged != nil {
			if half, err = cr.remember(ctx, name, ErrNotFound); err != nil {
				return nil, errors.Join(err, cr.kept.Complete(name))
			}
		}
		s, c = half.spec, sandboxstore.Creation{Snapshot: half.from, Restore: true, Event: sandboxstore.EventRecreated, Detail: half.spec.Image}
		if err := cr.begin(s, c); err != nil {
			return nil, err
		}
	}
	p := cr.all.find(s.Runtime)
	if p == nil {
		return nil, fmt.Errorf("sandbox %s: runtime %s: %w", name, s.Runtime, ErrUnsupported)
	}
	r, err := p.open()
	if err != nil {
		return nil, err
	}
	if half != nil && half.id != "" {
		half.conn.drop()
		_ = half.keepCalls(ctx) // a damaged box must not prevent its replacement
		if err := half.r.Remove(ctx, half.id); err != nil {
			return nil, public(err)
		}
	}
	owner, err := cr.owner(false)
	if err == nil { // volumes remain if a container was removed without them
		err = cr.all.removeVolumes(ctx, s.Runtime, name, owner)
	}
	if err != nil {
		return nil, err
	}
	if c.Restore && s.clonesLocal() {
		s.useCurrentBases(ctx)
	}
	return cr.build(ctx, r, s, c)
}

// useCurrentBases replaces base branches that do not exist any longer by the repository's default branch.
func (s *Spec) useCurrentBases(ctx context.Context) {
	s.Repos = slices.Clone(s.Repos)
	for i, r := range s.Repos {
		s.Repos[i].Ref = currentBase(ctx, r.Repo, r.Ref)
	}
	if s.Repo != "" {
		s.Ref = currentBase(ctx, s.Repo, s.Ref)
	}
}

func currentBase(ctx context.Context, path, ref string) string {
	repo, err := localrepo.Open(ctx, path)
	if err != nil {
		return ref // the next use reports the error
	}
	if _, err := repo.Base(ctx, ref); err != nil {
		if other, err := repo.Base(ctx, ""); err == nil {
			return other
		}
	}
	return ref
}

// abandon removes leftovers of a killed command that created a new sandbox, which is unused. The caller holds the name's lock.
func (cr *creator) abandon(ctx context.Context, name string) error {
	c, begun := cr.kept.Begun(name)
	if !begun {
		return nil
	}
	if !c.New {
		return fmt.Errorf("sandbox %s: %w", name, ErrExists) // an existing sandbox is being recreated
	}
	half, _, err := cr.byName(ctx, name)
	if half == nil && err != nil {
		return err
	}
	if half != nil {
		if err := errors.Join(half.r.Remove(ctx, half.id), removeForks(ctx, half.r, name, half.owner)); err != nil {
			return public(err)
		}
	}
	var s Spec
	if json.Unmarshal(c.Spec, &s) == nil && s.Worktree != "" {
		w := worktree.Of(cr.state, name, s.Worktree)
		if _, err := os.Lstat(w.Tree()); err == nil {
			if err := w.Discard(ctx); err != nil {
				return err
			}
		}
	}
	return cr.kept.Remove(name)
}

// again connects to a sandbox that another command has just created, or recreates it if it is missing or incomplete.
// The caller holds the name's lock.
func (cr *creator) again(ctx context.Context, name string) (now *instance, c *wireclient.Client, err error) {
	if cr.incomplete(name) != nil {
		return connected(cr.complete(ctx, name))
	}
	now, err = cr.find(ctx, name)
	if err == nil {
		if c, err = now.connect(ctx, true); !errors.Is(err, runtime.ErrNotStarted) {
			return now, c, err
		}
		err = cr.begin(now.spec, sandboxstore.Creation{Snapshot: now.from, Event: sandboxstore.EventCreated, Detail: now.spec.Image})
	} else if errors.Is(err, ErrNotFound) {
		if now, err = cr.remember(ctx, name, err); err == nil {
			err = cr.begin(now.spec, sandboxstore.Creation{Restore: true, Event: sandboxstore.EventRecreated, Detail: now.spec.Image})
		}
	}
	if err != nil {
		return nil, nil, err
	}
	return connected(cr.complete(ctx, name))
}

// errFilesGone means that a sandbox must be repaired before use, by a command that may start it.
var errFilesGone = errors.New("the directory with its files was deleted: the next command in it restores the saved files")

// repair restores the files of a sandbox whose directory was deleted from the last save, and restarts it. The caller
// holds the connection turn.
func (in *instance) repair(ctx context.Context) (*wireclient.Client, error) {
	unlock, err := in.c.lock(ctx, in.spec.Name)
	if err != nil {
		return nil, err
	}
	defer unlock()
	now, err := in.c.find(ctx, in.spec.Name)
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
	in.mu.Lock()
	defer in.mu.Unlock()
	in.r, in.id, in.recreated = now.r, now.id, true
	return c, nil
}

// refill recreates the deleted directories of a sandbox and fills them with the saved files.
func (in *instance) refill(ctx context.Context) error {
	s := in.current()
	r, id := in.at()
	// A running sandbox has the deleted directory open and could change the new one.
	if err := r.Stop(ctx, id, s.Runtime.grace()); err != nil {
		return err
	}
	if s.Worktree != "" {
		b := branch.New(in.c.state).Of(s.Name, s.Worktree)
		uid, gid := worktreeOwner(s.Name)
		w := worktree.Of(in.c.state, s.Name, s.Worktree)
		w.Author, _ = workorder.ParseIdentity(s.Author) // zero for ""
		if err := w.Rebuild(ctx, b.Head(ctx), b.Clone(ctx), uid, gid); err != nil {
			return fmt.Errorf("sandbox %s: %w", s.Name, err)
		}
	}
	clone := s.clonesLocal()
	var sources []cloneSource
	if clone {
		s.useCurrentBases(ctx)
		all, remove, err := s.bundles(ctx)
		if err != nil {
			return err
		}
		defer remove()
		sources = all
		for _, src := range all {
			if err := in.c.cloned(ctx, s.Name, src.Repo, src.base); err != nil {
				return err
			}
		}
		if err := in.c.begin(
			s, sandboxstore.Creation{Snapshot: in.from, Restore: true, Event: sandboxstore.EventRecreated, Detail: s.Image},
		); err != nil {
			return err
		}
	}
	release, err := in.c.reserve(ctx, s.Name)
	if err != nil {
		return err
	}
	defer release()
	if err := r.Start(ctx, id); err != nil {
		return err
	}
	if clone {
		in.making, in.from = true, ""
		defer func() { in.making = false }()
		if err := (&Branch{in: in}).cloneAll(ctx, sources); err != nil {
			return err
		}
		if _, err := (&Branch{in: in}).Restore(context.WithoutCancel(ctx)); err != nil {
			return err
		}
		if err := in.c.kept.Complete(s.Name); err != nil {
			return err
		}
	}
	in.note(sandboxstore.Event{Event: sandboxstore.EventRecreated, Detail: s.Image})
	return nil
}

// connected returns a sandbox that was just created, with its connection.
func connected(in *instance, err error) (*instance, *wireclient.Client, error) {
	if err != nil {
		return nil, nil, err
	}
	return in, in.conn.current(), nil
}

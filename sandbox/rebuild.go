package sandbox

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/sandbox-agent/sandbox-agent/internal/host/localrepo"
	"github.com/sandbox-agent/sandbox-agent/internal/host/sandboxstore"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// backTime bounds the rollback of a failed Rebuild. A box with services is slowest.
const backTime = 10 * time.Minute

// Rebuild recreates a named sandbox from another Spec and keeps its work: it saves a clone and restores it, and a worktree
// or a mount at CloneDir stays. A sandbox with none of these returns ErrNoClone. Name, kind, repository, branch and endpoints
// stay. Everything else is lost: files outside of CloneDir, ignored files of a clone, background commands. It checks
// beforehand whether the sandbox can be created and its files can be saved. If creation fails nevertheless, it recreates
// the sandbox from its old Spec. The returned sandbox replaces sb.
func (sb *Sandbox) Rebuild(ctx context.Context, s Spec) (*Sandbox, error) {
	in := sb.in
	old := in.current()
	if !old.clonesLocal() && !old.worksOnHost() || old.Lifetime != LifetimeNamed {
		return nil, fmt.Errorf("sandbox %s: %w", old.Name, ErrNoClone)
	}
	s.Name, s.Runtime, s.Repo, s.Ref, s.Worktree, s.Lifetime = old.Name, old.Runtime, old.Repo, old.Ref, old.Worktree, LifetimeNamed
	s.Repos = old.Repos
	s, err := in.c.rebuildable(ctx, s)
	if err != nil {
		return nil, err
	}
	if old.clonesLocal() {
		saved, err := sb.Branch().saveAll(ctx)
		if err = cmp.Or(err, saved.lost()); err != nil {
			return nil, fmt.Errorf("sandbox %s: %w", s.Name, err)
		}
	}
	creation := sandboxstore.Creation{Restore: true, Event: sandboxstore.EventCreated, Detail: s.Image}
	again, err := in.replace(ctx, s, creation)
	if err == nil {
		return again, nil
	}
	back, cancel := context.WithTimeout(context.WithoutCancel(ctx), backTime)
	defer cancel()
	old.Ref, old.Repos = s.Ref, s.Repos
	creation.Detail = old.Image
	_, berr := in.replace(back, old, creation)
	return nil, errors.Join(err, berr)
}

// worksOnHost reports whether the files at CloneDir are on this machine, and survive the sandbox.
func (s Spec) worksOnHost() bool {
	return s.Worktree != "" || slices.ContainsFunc(s.Mounts, func(m Mount) bool {
		return m.Target == CloneDir || strings.HasPrefix(m.Target, CloneDir+"/")
	})
}

// rebuildable completes the spec for Rebuild, or returns an error if no sandbox can be created from it.
func (cr *creator) rebuildable(ctx context.Context, asked Spec) (Spec, error) {
	s, err := asked.complete()
	if err == nil {
		err = s.guard(ctx)
	}
	if err != nil {
		return s, err
	}
	_, has, err := cr.all.choose(ctx, asked)
	if err != nil {
		return s, fmt.Errorf("sandbox %s: %w", s.Name, err)
	}
	s.Limits.hold(has)
	s.useCurrentBases(ctx) // any does, since the restored work replaces it
	for _, c := range s.Clones() {
		if s.Worktree != "" { // it stays
			break
		}
		repo, err := localrepo.Open(ctx, c.Repo)
		if err == nil {
			_, err = repo.Base(ctx, c.Ref)
		}
		if err != nil {
			return s, err
		}
	}
	if s.Runtime == RuntimeBox {
		if _, err := cr.envelope(ctx, s, workorder.NewTaskID()); err != nil {
			return s, fmt.Errorf("sandbox %s: %w", s.Name, err)
		}
	}
	return s, nil
}

// Reset recreates the sandbox from its Spec, without its files; its endpoints stay. The returned sandbox replaces sb.
// After an error the sandbox may exist only as a record.
func (sb *Sandbox) Reset(ctx context.Context) (*Sandbox, error) {
	s := sb.Spec()
	if err := sb.in.usable(); err != nil {
		return nil, err
	}
	if s.Lifetime == LifetimeEphemeral {
		if err := sb.in.discard(ctx); err != nil {
			return nil, err
		}
		return (&Manager{creator: sb.in.c}).Create(ctx, s)
	}
	if s.clonesLocal() {
		// First, so that a killed reset does not bring the work back.
		for _, c := range s.Clones() {
			if err := sb.in.c.branch(s.Name, c.Repo).StartOver(ctx); err != nil {
				return nil, err
			}
		}
	}
	return sb.in.replace(ctx, s, sandboxstore.Creation{Event: sandboxstore.EventCreated, Detail: s.Image})
}

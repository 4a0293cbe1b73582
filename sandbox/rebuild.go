package sandbox

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/sandbox-agent/sandbox-agent/internal/host/branch"
	"github.com/sandbox-agent/sandbox-agent/internal/host/localrepo"
	"github.com/sandbox-agent/sandbox-agent/internal/host/registry"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// backTime bounds the rollback of a failed Rebuild. A box with services is slowest.
const backTime = 10 * time.Minute

// RestoreWork restores the work that Save saved last into the clone of a recreated sandbox, so that its branch
// continues. It reports whether it did so: not if something was saved in the clone since, or if Reset recreated it.
// Commands on a missing sandbox restore its work before they begin.
func (sb *Sandbox) RestoreWork(ctx context.Context) (bool, error) {
	spec := sb.Spec()
	if !filepath.IsAbs(spec.Repo) {
		return false, nil
	}
	return branch.New(sb.m.state).Of(spec.Name, spec.Repo).Restore(ctx, sb.inside, CloneDir)
}

// Rebuild recreates a named sandbox with a clone from another Spec and keeps its work: it saves the clone and restores
// it. Name, kind, repository, branch and endpoints stay. Everything else is lost: files outside of the clone, ignored
// files, background commands. It checks beforehand whether the sandbox can be created and its files can be saved. If
// creation fails nevertheless, it recreates the sandbox from its old Spec. The returned sandbox replaces sb.
func (sb *Sandbox) Rebuild(ctx context.Context, s Spec) (*Sandbox, error) {
	old := sb.Spec()
	if !filepath.IsAbs(old.Repo) || old.Lifetime != LifetimeNamed {
		return nil, fmt.Errorf("sandbox %s: %w", old.Name, ErrNoClone)
	}
	s.Name, s.Runtime, s.Repo, s.Ref, s.Worktree, s.Lifetime = old.Name, old.Runtime, old.Repo, old.Ref, old.Worktree, LifetimeNamed
	s, err := sb.m.rebuildable(ctx, s)
	if err != nil {
		return nil, err
	}
	saved, err := sb.saveAll(ctx)
	if err = cmp.Or(err, saved.lost()); err != nil {
		return nil, fmt.Errorf("sandbox %s: %w", s.Name, err)
	}
	again, err := sb.replaceWithWork(ctx, s)
	if err == nil {
		return again, nil
	}
	back, cancel := context.WithTimeout(context.WithoutCancel(ctx), backTime)
	defer cancel()
	old.Ref = s.Ref
	_, berr := sb.replaceWithWork(back, old)
	return nil, errors.Join(err, berr)
}

// rebuildable completes the spec for Rebuild, or returns an error if no sandbox can be created from it.
func (m *Manager) rebuildable(ctx context.Context, asked Spec) (Spec, error) {
	s, err := asked.complete()
	if err == nil {
		err = s.guard(ctx)
	}
	if err != nil {
		return s, err
	}
	_, has, err := m.choose(ctx, asked)
	if err != nil {
		return s, fmt.Errorf("sandbox %s: %w", s.Name, err)
	}
	s.Limits.hold(has)
	repo, err := localrepo.Open(ctx, s.Repo)
	if err != nil {
		return s, err
	}
	if _, err := repo.Base(ctx, s.Ref); err != nil { // the branch is gone: any other does, since the restored work replaces it
		if s.Ref, err = repo.Base(ctx, ""); err != nil {
			return s, err
		}
	}
	if s.Runtime == RuntimeBox {
		if _, err := m.envelope(ctx, s, workorder.NewTaskID()); err != nil {
			return s, fmt.Errorf("sandbox %s: %w", s.Name, err)
		}
	}
	return s, nil
}

// replaceWithWork recreates the sandbox with its saved work.
func (sb *Sandbox) replaceWithWork(ctx context.Context, s Spec) (*Sandbox, error) {
	return sb.replace(ctx, s, registry.Creation{Restore: true, Event: registry.EventCreated, Detail: s.Image})
}

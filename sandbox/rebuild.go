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

// backTime bounds the way back of a Rebuild that failed: a box with services is the slowest.
const backTime = 10 * time.Minute

// RestoreWork brings the clone of a sandbox that was made anew to what Save had saved last, so that the branch goes on, and reports whether it did: not where something was saved in it since, nor where
// Reset made it. A command that finds its sandbox gone has that done before it begins.
func (sb *Sandbox) RestoreWork(ctx context.Context) (bool, error) {
	spec := sb.Spec()
	if !filepath.IsAbs(spec.Repo) {
		return false, nil
	}
	return branch.New(sb.m.state).Of(spec.Name, spec.Repo).Restore(ctx, sb.inside, CloneDir)
}

// Rebuild makes a named sandbox with a clone anew of another Spec, and keeps the work: what is in the clone is saved, and there again. Name, kind, repository and
// branch stay what they are, and so do endpoints. All else that was in it is gone: files outside of the clone, what git ignores, commands of the background. What keeps it from being made is
// looked for first, and so are files that cannot be saved; where it fails all the same, the sandbox is made anew as it was. The one that it returns takes this one's place.
func (sb *Sandbox) Rebuild(ctx context.Context, s Spec) (*Sandbox, error) {
	old := sb.Spec()
	if !filepath.IsAbs(old.Repo) || old.Lifetime != Named {
		return nil, fmt.Errorf("sandbox %s: %w", old.Name, ErrNoClone)
	}
	s.Name, s.Runtime, s.Repo, s.Ref, s.Worktree, s.Lifetime = old.Name, old.Runtime, old.Repo, old.Ref, old.Worktree, Named
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

// rebuildable completes a spec of which a sandbox can be made in another's place, or returns what keeps it from that.
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
	if _, err := repo.Base(ctx, s.Ref); err != nil { // the branch that it began at is gone: any other does, since the work takes its place
		if s.Ref, err = repo.Base(ctx, ""); err != nil {
			return s, err
		}
	}
	if s.Runtime == KindBox {
		if _, err := m.envelope(ctx, s, workorder.NewTaskID()); err != nil {
			return s, fmt.Errorf("sandbox %s: %w", s.Name, err)
		}
	}
	return s, nil
}

// replaceWithWork makes the sandbox anew, with what was saved.
func (sb *Sandbox) replaceWithWork(ctx context.Context, s Spec) (*Sandbox, error) {
	return sb.replace(ctx, s, registry.Creation{Restore: true, Event: registry.Created, Detail: s.Image})
}

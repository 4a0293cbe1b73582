package sandbox

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/sandbox-agent/sandbox-agent/internal/host/localrepo"
	"github.com/sandbox-agent/sandbox-agent/internal/host/runtime"
	"github.com/sandbox-agent/sandbox-agent/internal/host/worktree"
)

// addWorktree makes the worktree of a new sandbox, and completes the spec with it. undo takes it away again.
func (m *Manager) addWorktree(ctx context.Context, s *Spec) (undo func(context.Context) error, err error) {
	undo = func(context.Context) error { return nil }
	if s.Worktree == "" {
		return undo, nil
	}
	repo, err := localrepo.Open(ctx, s.Worktree)
	if err != nil {
		return undo, fmt.Errorf("sandbox %s: %w", s.Name, err)
	}
	if s.Ref, err = repo.Base(ctx, s.Ref); err != nil {
		return undo, fmt.Errorf("sandbox %s: %w", s.Name, err)
	}
	s.Worktree = repo.Path
	uid, gid := -1, -1
	if os.Geteuid() == 0 { // who is root on this machine as well is not to write in it
		uid = runtime.OwnerOf(s.Name)
		gid = uid
		if s.Runtime != KindJail && s.User == "" {
			s.User = fmt.Sprintf("%d:%d", uid, gid)
		}
	}
	w := worktree.Of(m.state, s.Name, s.Worktree)
	parts, err := w.Add(ctx, s.Ref, uid, gid)
	if err != nil {
		return undo, fmt.Errorf("sandbox %s: %w", s.Name, err)
	}
	for _, p := range parts {
		s.Mounts = append(s.Mounts, Mount(p))
	}
	s.Mounts = resolved(s.Mounts)
	if err := m.cloned(ctx, *s, w.Head(ctx)); err != nil {
		return undo, errors.Join(err, w.Discard(context.WithoutCancel(ctx)))
	}
	return w.Discard, nil
}

// moveWorktree moves the branch of a sandbox's worktree to the last commit of its own branch, also where an earlier save was killed before. That the user has moved it is
// said where there is a new commit.
func (sb *Sandbox) moveWorktree(ctx context.Context, to string, anew bool) error {
	s := sb.Spec()
	w := worktree.Of(sb.m.state, s.Name, s.Worktree)
	at := w.Head(ctx)
	if at == to {
		return nil
	}
	if localrepo.Git(s.Worktree).Run(ctx, "merge-base", "--is-ancestor", at, to) == nil {
		return w.Move(ctx, at, to)
	}
	if !anew {
		return nil
	}
	return fmt.Errorf("sandbox %s: the branch %s has commits of its own: it stays, and the sandbox's are in sandbox/%s", s.Name, w.Branch, s.Name)
}

// removeWorktree saves what is in the worktree, and removes it. What cannot be saved stays.
func (sb *Sandbox) removeWorktree(ctx context.Context) (after func() error) {
	s := sb.Spec()
	if s.Worktree == "" {
		return func() error { return nil }
	}
	w := worktree.Of(sb.m.state, s.Name, s.Worktree)
	if _, err := os.Stat(w.Tree()); err != nil { // its files are gone already
		return func() error { return w.Remove(ctx) }
	}
	saved, err := sb.saveAll(ctx)
	if err = cmp.Or(err, saved.lost()); err != nil {
		return func() error {
			return fmt.Errorf("sandbox %s: what has changed since the last commit stays in %s: `git worktree remove` removes it: %w", s.Name, w.Tree(), err)
		}
	}
	return func() error { return w.Remove(ctx) }
}

package sandbox

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/sandbox-agent/sandbox-agent/internal/host/branch"
	"github.com/sandbox-agent/sandbox-agent/internal/host/localrepo"
	"github.com/sandbox-agent/sandbox-agent/internal/host/runtime"
	"github.com/sandbox-agent/sandbox-agent/internal/host/worktree"
)

// worktreeFree returns what keeps the worktree of a new sandbox from being made.
func (m *Manager) worktreeFree(ctx context.Context, s Spec) error {
	if s.Worktree == "" {
		return nil
	}
	if err := worktree.Of(m.state, s.Name, s.Worktree).Free(ctx); err != nil {
		return fmt.Errorf("sandbox %s: %w", s.Name, err)
	}
	return nil
}

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
	uid, gid := worktreeOwner(s.Name)
	if uid >= 0 && s.Runtime != KindJail && s.User == "" {
		s.User = fmt.Sprintf("%d:%d", uid, gid)
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

// worktreeOwner is the user to whom the files of a sandbox's worktree belong; -1 is the caller.
func worktreeOwner(sandbox string) (uid, gid int) {
	if os.Geteuid() != 0 { // who is root on this machine as well is not to write in it
		return -1, -1
	}
	uid = runtime.OwnerOf(sandbox)
	return uid, uid
}

// moveWorktree moves the branch of a sandbox's worktree to the last commit of its own branch, also where an earlier save was killed before. A branch that the user has
// moved is an error where there is a new commit.
func (sb *Sandbox) moveWorktree(ctx context.Context, b *branch.Branch, committed bool) error {
	s := sb.Spec()
	w := worktree.Of(sb.m.state, s.Name, s.Worktree)
	if diverged, err := w.Follow(ctx, func() string { return b.Head(ctx) }); err != nil || !diverged || !committed {
		return err
	}
	return fmt.Errorf("sandbox %s: the branch %s has commits of its own: it stays, and the sandbox's are in sandbox/%s", s.Name, w.Branch, s.Name)
}

// removeWorktree saves what is in the worktree, and removes it. What cannot be saved stays.
func (sb *Sandbox) removeWorktree(ctx context.Context) (after func() error) {
	s := sb.Spec()
	if s.Worktree == "" || sb.foreign {
		return func() error { return nil }
	}
	w := worktree.Of(sb.m.state, s.Name, s.Worktree)
	if c, begun := sb.m.kept.Begun(s.Name); begun && c.New { // nobody has used it
		return func() error { return w.Discard(ctx) }
	}
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

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
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// worktreeFree returns an error if the worktree of a new sandbox cannot be created.
func (rs *records) worktreeFree(ctx context.Context, s Spec) error {
	if s.Worktree == "" {
		return nil
	}
	if err := worktree.Of(rs.state, s.Name, s.Worktree).Free(ctx); err != nil {
		return fmt.Errorf("sandbox %s: %w", s.Name, err)
	}
	return nil
}

// addWorktree creates the worktree of a new sandbox and completes the spec. undo removes it.
func (cr *creator) addWorktree(ctx context.Context, s *Spec) (undo func(context.Context) error, err error) {
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
	if uid >= 0 && s.Runtime != RuntimeJail && s.User == "" {
		s.User = fmt.Sprintf("%d:%d", uid, gid)
	}
	w := worktree.Of(cr.state, s.Name, s.Worktree)
	w.Author, _ = workorder.ParseIdentity(s.Author) // zero for ""
	parts, err := w.Add(ctx, s.Ref, uid, gid)
	if err != nil {
		return undo, fmt.Errorf("sandbox %s: %w", s.Name, err)
	}
	for _, p := range parts {
		s.Mounts = append(s.Mounts, Mount(p))
	}
	s.Mounts = resolved(s.Mounts)
	if err := cr.cloned(ctx, s.Name, s.Worktree, w.Head(ctx)); err != nil {
		return undo, errors.Join(err, w.Discard(context.WithoutCancel(ctx)))
	}
	return w.Discard, nil
}

// worktreeOwner returns the owner of the worktree's files; -1 means the caller.
func worktreeOwner(sandbox string) (uid, gid int) {
	if os.Geteuid() != 0 { // a sandbox's root must not be the host's root
		return -1, -1
	}
	uid = runtime.UIDFor(sandbox)
	return uid, uid
}

// moveWorktree moves the branch of a sandbox's worktree to the sandbox's last commit, also after an earlier save was
// killed. If the user has moved the branch and there is a new commit, it returns an error.
func (b *Branch) moveWorktree(ctx context.Context, to *branch.Branch, committed bool) error {
	s := b.in.current()
	w := worktree.Of(b.in.c.state, s.Name, s.Worktree)
	if diverged, err := w.Follow(ctx, func() string { return to.Head(ctx) }); err != nil || !diverged || !committed {
		return err
	}
	return fmt.Errorf("sandbox %s: branch %s has commits of its own and stays: the sandbox's commits are in sandbox/%s",
		s.Name, w.Branch, s.Name)
}

// removeWorktree saves the changes in the worktree and removes it. If they cannot be saved, it stays.
func (b *Branch) removeWorktree(ctx context.Context) (after func() error) {
	s := b.in.current()
	if s.Worktree == "" || b.in.foreign {
		return func() error { return nil }
	}
	w := worktree.Of(b.in.c.state, s.Name, s.Worktree)
	if c, begun := b.in.c.kept.Begun(s.Name); begun && c.New { // unused
		return func() error { return w.Discard(ctx) }
	}
	if _, err := os.Stat(w.Tree()); err != nil { // its files are gone already
		return func() error { return w.Remove(ctx) }
	}
	saved, err := b.saveAll(ctx)
	if err = cmp.Or(err, saved.lost()); err != nil {
		return func() error {
			return fmt.Errorf("sandbox %s: changes since the last commit stay in %s: remove it with `git worktree remove`: %w",
				s.Name, w.Tree(), err)
		}
	}
	return func() error { return w.Remove(ctx) }
}

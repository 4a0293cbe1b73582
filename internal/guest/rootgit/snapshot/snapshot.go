// Package snapshot makes commits of the current work tree, and extracts them into a work tree again.
package snapshot

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/sandbox-agent/sandbox-agent/internal/git"
	"github.com/sandbox-agent/sandbox-agent/internal/guest/rootgit/ledger"
	"github.com/sandbox-agent/sandbox-agent/internal/guest/rootgit/repos"
	"github.com/sandbox-agent/sandbox-agent/internal/guest/rootgit/settings"
	"github.com/sandbox-agent/sandbox-agent/internal/guest/rootgit/stage"
	"github.com/sandbox-agent/sandbox-agent/internal/guest/rootgit/worktree"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// Snapshots makes and restores checkpoints.
type Snapshots struct {
	repos    *repos.Repos
	book     *ledger.Book
	work     *worktree.Tree
	index    *stage.Index
	settings *settings.Settings

	// Lay is called with a new work tree that has no files yet, the base branch, and the commit that it will have. It may put files below the
	// tree, and returns git's index of them. Nil puts nothing there.
	Lay func(ctx context.Context, repo git.Repo, base, commit string) (index []byte, err error)

	restored fit // what Checkout put into the work tree

	large map[string]bool // reported files that are too large for a checkpoint
	quick bool            // the last complete snapshot took almost no time
}

// New returns a Snapshots.
func New(repos *repos.Repos, book *ledger.Book, work *worktree.Tree, index *stage.Index, settings *settings.Settings) *Snapshots {
	return &Snapshots{repos: repos, book: book, work: work, index: index, settings: settings}
}

// partError means that a snapshot lacks the named part of the work tree.
type partError struct{ err error }

func (e *partError) Error() string { return "the checkpoint is incomplete: " + e.err.Error() }
func (e *partError) Unwrap() error { return e.err }

// Take hashes the work tree: head and all files that are not ignored, except unchanged files
// of setup. A tree with a *partError has only the readable files.
func (s *Snapshots) Take(ctx context.Context, head string) (tree string, err error) {
	if err := s.index.PrepareSide(); err != nil {
		return "", err
	}
	s.work.Enter()
	limit := SnapTime
	if s.quick {
		limit = snapAgain
	}
	start := time.Now()
	snap, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	for try := 0; ; try++ {
		tree, err = s.hash(snap, head)
		var part *partError
		if err == nil || errors.As(err, &part) || try > 0 || snap.Err() != nil {
			break
		}
		// The agent may have deleted objects that only the separate index names (git gc --prune=now).
		s.index.Forget()
	}
	switch {
	case err == nil:
		s.quick = time.Since(start) < snapQuick
	case snap.Err() != nil && ctx.Err() == nil:
		s.work.Unpipe(ctx) // that may have been the cause
	}
	return tree, err
}

func (s *Snapshots) hash(ctx context.Context, head string) (string, error) {
	added, err := s.index.Stage(ctx, stage.CheckpointFile)
	if err != nil {
		return "", err
	}
	s.name(added.Large)
	setup, err := s.setupEntries(ctx, s.index.Side(), head)
	if err != nil {
		return "", err
	}
	settings, err := s.settings.Wanted(ctx, s.index.Side(), head)
	if err != nil {
		return "", err
	}
	index := stage.SideIndex
	t, err := s.index.Unfiltered(ctx, s.index.Side())
	if err != nil {
		return "", err
	}
	old, err := stage.AsHead(ctx, s.index.Side(), head, added.Out())
	if err != nil {
		return "", err
	}
	if setup = settings.Info() + setup + old; setup != "" {
		index = stage.BareIndex
		if err := s.index.CopyIndex(ctx, s.repos.SidePath(stage.SideIndex), s.repos.SidePath(stage.BareIndex)); err != nil {
			return "", err
		}
	}
	t.Env = append(t.Env, "GIT_INDEX_FILE="+s.repos.SidePath(index))
	if setup != "" {
		t.Stdin = setup
		if err := t.Run(ctx, "update-index", "--replace", "-z", "--index-info"); err != nil {
			return "", err
		}
		t.Stdin = ""
	}
	out, err := t.Output(ctx, "write-tree")
	if err != nil {
		return "", err
	}
	if added.Left != nil {
		return strings.TrimSpace(string(out)), &partError{added.Left}
	}
	return strings.TrimSpace(string(out)), nil
}

// name reports, once per file, that it is too large for a checkpoint.
func (s *Snapshots) name(large []string) {
	fresh := slices.DeleteFunc(slices.Clone(large), func(path string) bool { return s.large[path] })
	if len(fresh) == 0 {
		return
	}
	if s.large == nil {
		s.large = map[string]bool{}
	}
	for _, path := range fresh {
		s.large[path] = true
	}
	s.repos.Emit(workorder.Event{
		Type: workorder.EventWarning,
		Text: fmt.Sprintf(
			"files of more than %d MiB are not part of checkpoints, and are saved when they are committed: %s", stage.CheckpointFile>>20,
			worktree.Named(fresh),
		),
	})
}

// madeBy is the trailer of a checkpoint with the number of the attempt that made it.
const madeBy = "Attempt"

// Commit commits a snapshot to root's own store, where the agent cannot delete it.
func (s *Snapshots) Commit(ctx context.Context, tree, head string) (string, error) {
	out, err := s.repos.Outbox().Output(
		ctx, "commit-tree", "-p", head, "-m", fmt.Sprintf("Checkpoint of task %s\n\n%s: %d", s.repos.Order.TaskID, madeBy, s.book.Number()), tree,
	)
	if err != nil {
		return "", fmt.Errorf("write checkpoint: %w", err)
	}
	return strings.TrimSpace(string(out)), nil
}

const (
	// SnapTime bounds a snapshot: a hundred thousand new files take a minute. After a snapshot shorter than
	// snapQuick, one longer than snapAgain hangs, or is continued next time.
	SnapTime  = 3 * time.Minute
	snapQuick = 5 * time.Second
	snapAgain = 45 * time.Second
)

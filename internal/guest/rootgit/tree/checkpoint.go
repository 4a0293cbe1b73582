package tree

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/sandbox-agent/sandbox-agent/internal/git"
)

// Checkpointer makes and restores checkpoints.
type Checkpointer struct {
	*Tree

	// Lay is called with a new work tree without files, the base branch and the commit. It may put files below the
	// tree, and returns git's index of them. It may be nil.
	Lay func(ctx context.Context, repo git.Repo, base, commit string) (index []byte, err error)

	restored fit                      // what Checkout put into the work tree
	early    func() (git.Repo, error) // the clone that CloneEarly began; nil if there is none

	large map[string]bool // reported files that are too large for a checkpoint
	quick bool            // the last complete snapshot took almost no time
}

// partError means that a snapshot lacks the named part of the work tree.
type partError struct{ err error }

func (e *partError) Error() string { return "the checkpoint is incomplete: " + e.err.Error() }
func (e *partError) Unwrap() error { return e.err }

// HashTree hashes head and all files that are not ignored, except unchanged files of setup. A tree with a *partError
// has only the readable files.
func (s *Checkpointer) HashTree(ctx context.Context, head string) (tree string, err error) {
	if err := s.Index.prepareSide(); err != nil {
		return "", err
	}
	s.Work.restoreDirAccess()
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
		s.Index.Reset()
	}
	switch {
	case err == nil:
		s.quick = time.Since(start) < snapQuick
	case snap.Err() != nil && ctx.Err() == nil:
		s.Work.removePipes(ctx) // that may have been the cause
	}
	return tree, err
}

func (s *Checkpointer) hash(ctx context.Context, head string) (string, error) {
	added, err := s.Index.stage(ctx, checkpointFile)
	if err != nil {
		return "", err
	}
	s.name(added.large)
	setup, err := s.setupEntries(ctx, s.Index.repo(), head)
	if err != nil {
		return "", err
	}
	settings, err := s.Config.entriesFor(ctx, s.Index.repo(), head)
	if err != nil {
		return "", err
	}
	index := sideIndex
	t, err := s.Index.unfiltered(ctx, s.Index.repo())
	if err != nil {
		return "", err
	}
	old, err := asHead(ctx, s.Index.repo(), head, added.skipped())
	if err != nil {
		return "", err
	}
	if setup = settings.info() + setup + old; setup != "" {
		index = bareIndex
		if err := s.Index.copyIndex(ctx, s.Repos.SidePath(sideIndex), s.Repos.SidePath(bareIndex)); err != nil {
			return "", err
		}
	}
	t.Env = append(t.Env, "GIT_INDEX_FILE="+s.Repos.SidePath(index))
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
	if added.left != nil {
		return strings.TrimSpace(string(out)), &partError{added.left}
	}
	return strings.TrimSpace(string(out)), nil
}

// name reports, once per file, that it is too large for a checkpoint.
func (s *Checkpointer) name(large []string) {
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
	s.Repos.Warn(
		"files of more than %d MiB are not part of checkpoints, and are saved when they are committed: %s", checkpointFile>>20,
		Named(fresh),
	)
}

// madeBy is the trailer of a checkpoint with the number of the attempt that made it.
const madeBy = "Attempt"

// Commit commits a snapshot to root's own store, where the agent cannot delete it.
func (s *Checkpointer) Commit(ctx context.Context, tree, head string) (string, error) {
	out, err := s.Repos.Outbox().Output(
		ctx, "commit-tree", "-p", head, "-m", fmt.Sprintf("Checkpoint of task %s\n\n%s: %d", s.Repos.Order.TaskID, madeBy,
			s.Ledger.AttemptNumber()), tree,
	)
	if err != nil {
		return "", fmt.Errorf("write checkpoint: %w", err)
	}
	return strings.TrimSpace(string(out)), nil
}

const (
	// SnapTime bounds a snapshot. After a snapshot shorter than snapQuick, one longer than snapAgain hangs.
	SnapTime  = 3 * time.Minute
	snapQuick = 5 * time.Second
	snapAgain = 45 * time.Second
)

package save

import (
	"context"
	"strings"
	"time"

	"github.com/sandbox-agent/sandbox-agent/internal/guest/rootgit/remote"
)

// HeldBack returns the commit to push next to the branch: the rebased head, or the partial rebase, optionally
// with uncommitted changes on top. It is empty if there is none.
func (sv *Saver) HeldBack(ctx context.Context, uncommitted bool) (string, error) {
	if err := sv.repos.Reconnect(ctx); err != nil {
		return "", err
	}
	t, err := sv.heads.Tip(ctx, sv.book.State.BaseSHA)
	if err != nil {
		return "", err
	}
	if t.Head != sv.book.Start {
		return t.Head, nil
	}
	at := t.At
	if at == "" {
		at = t.Head
	}
	if uncommitted {
		tree, serr := sv.snapshots.Take(ctx, at)
		if tree == "" {
			return at, serr
		}
		out, err := sv.repos.Outbox().Output(ctx, "rev-parse", "--verify", "--quiet", "--end-of-options", at+"^{tree}")
		if err != nil {
			return "", err
		}
		if strings.TrimSpace(string(out)) != tree {
			if last := sv.last; last.tree == tree && last.head == at {
				return last.commit, serr
			}
			commit, err := sv.snapshots.Commit(ctx, tree, at)
			if err != nil {
				return at, err
			}
			sv.last = snapped{head: at, tree: tree, commit: commit, made: time.Now().UTC()}
			return commit, serr
		}
	}
	if at == sv.book.Start {
		return "", nil
	}
	return at, nil
}

// saveHeld is save while the branch is held.
func (sv *Saver) saveHeld(ctx, local context.Context, uncommitted bool, start time.Time) (s Saved) {
	cs := sv.pusher.Kept()
	sha, err := sv.HeldBack(local, uncommitted)
	s.SnapErr, s.Head, s.Tree = err, sha, sv.last.tree
	if sha != "" && sv.book.Refs[sv.book.Hold] != sha && !sv.pusher.Waits(remote.Change{Ref: sv.book.Hold, SHA: sha}) {
		cs = append(cs, remote.Change{Ref: sv.book.Hold, SHA: sha})
	}
	if len(cs) == 0 {
		return s
	}
	ctx, stop := context.WithTimeout(ctx, saveTime)
	defer stop()
	s.PushErr = sv.pusher.Rest(ctx, cs, nil, start)
	s.Pushed = s.PushErr == nil
	return s
}

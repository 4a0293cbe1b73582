package save

import (
	"cmp"
	"context"
	"time"

	"github.com/sandbox-agent/sandbox-agent/internal/guest/rootgit/remote"
	"github.com/sandbox-agent/sandbox-agent/internal/guest/rootgit/tree"
)

// SideCommit returns the commit to push next to the branch: the rebased head, or the partial rebase; empty if none.
func (sv *Saver) SideCommit(ctx context.Context, uncommitted bool) (string, error) {
	if err := sv.Repos.Reconnect(ctx); err != nil {
		return "", err
	}
	t, err := sv.AgentRefs.NextHead(ctx, sv.Ledger.State.BaseSHA)
	if err != nil {
		return "", err
	}
	if t.Head != sv.Ledger.Start {
		return t.Head, nil
	}
	at := cmp.Or(t.At, t.Head)
	if uncommitted {
		hash, serr := sv.Checkpoints.HashTree(ctx, at)
		if hash == "" {
			return at, serr
		}
		committed, err := tree.Hash(ctx, sv.Repos.Outbox(), at)
		if err != nil {
			return "", err
		}
		if committed != hash {
			if last := sv.last; last.tree == hash && last.head == at {
				return last.commit, serr
			}
			commit, err := sv.Checkpoints.Commit(ctx, hash, at)
			if err != nil {
				return at, err
			}
			sv.last = snapped{head: at, tree: hash, commit: commit, made: time.Now().UTC()}
			return commit, serr
		}
	}
	if at == sv.Ledger.Start {
		return "", nil
	}
	return at, nil
}

// saveHeld is save while the branch is held.
func (sv *Saver) saveHeld(ctx, local context.Context, uncommitted bool, start time.Time) (s Result) {
	cs := sv.Pusher.PendingRefs()
	sha, err := sv.SideCommit(local, uncommitted)
	s.SnapErr, s.Head, s.Tree = err, sha, sv.last.tree
	if sha != "" && sv.Ledger.Refs[sv.Ledger.Hold] != sha && !sv.Pusher.InBackoff(remote.Change{Ref: sv.Ledger.Hold, SHA: sha}) {
		cs = append(cs, remote.Change{Ref: sv.Ledger.Hold, SHA: sha})
	}
	if len(cs) == 0 {
		return s
	}
	ctx, stop := context.WithTimeout(ctx, saveTime)
	defer stop()
	s.PushErr = sv.Pusher.PushAccepted(ctx, cs, nil, start)
	s.Pushed = s.PushErr == nil
	return s
}

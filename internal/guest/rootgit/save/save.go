// Package save saves the work while the agent runs: commits, and checkpoints of uncommitted changes.
package save

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/sandbox-agent/sandbox-agent/internal/guest/rootgit/heads"
	"github.com/sandbox-agent/sandbox-agent/internal/guest/rootgit/ledger"
	"github.com/sandbox-agent/sandbox-agent/internal/guest/rootgit/push"
	"github.com/sandbox-agent/sandbox-agent/internal/guest/rootgit/remote"
	"github.com/sandbox-agent/sandbox-agent/internal/guest/rootgit/repos"
	"github.com/sandbox-agent/sandbox-agent/internal/guest/rootgit/snapshot"
	"github.com/sandbox-agent/sandbox-agent/internal/guest/rootgit/stage"
	"github.com/sandbox-agent/sandbox-agent/internal/guest/rootgit/stopping"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// Saver does one save; a Keeper repeats it.
type Saver struct {
	repos     *repos.Repos
	book      *ledger.Book
	index     *stage.Index
	heads     *heads.Heads
	snapshots *snapshot.Snapshots
	pusher    *push.Pusher
	stopping  *stopping.State

	last      snapped
	firstDone bool // see smallFirst
}

// New returns a Saver.
func New(
	repos *repos.Repos, book *ledger.Book, index *stage.Index, heads *heads.Heads, snapshots *snapshot.Snapshots, pusher *push.Pusher,
	stopping *stopping.State,
) *Saver {
	return &Saver{repos: repos, book: book, index: index, heads: heads, snapshots: snapshots, pusher: pusher, stopping: stopping}
}

// saveTime bounds one save's push of any size: a longer one is stuck.
const saveTime = 10 * time.Minute

// Saved is the outcome of one save.
type Saved struct {
	Tree, Head string
	// SnapErr and PushErr are the errors of the two parts; each part is done even if the other fails.
	SnapErr, PushErr error
	Pushed           bool // something reached the remote
}

// Save pushes commits and, with checkpoint, uncommitted work, over one
// connection. It opens none if nothing changed.
func (sv *Saver) Save(ctx context.Context, checkpoint bool) (s Saved) {
	if err := sv.book.Lock(ctx); err != nil {
		return Saved{SnapErr: err}
	}
	defer sv.book.Unlock()
	start := time.Now()
	local, cancel := context.WithTimeout(ctx, snapshot.SnapTime)
	defer cancel()
	if sv.book.Hold != "" {
		return sv.saveHeld(ctx, local, checkpoint, start)
	}
	sv.smallFirst(ctx)
	cs := sv.pusher.Kept()
	var cp *workorder.Checkpoint
	at, err := sv.commits(local, &s, &cs)
	var elsewhere error
	if err == nil {
		cs, elsewhere = sv.beside(local, cs, s.Head)
	}
	if err == nil && checkpoint {
		cp, err = sv.checkpoint(local, at, &s, &cs)
	} else if err == nil && sv.book.Committed && sv.onBranch(at, s.Head) {
		cs = append(cs, remote.Change{Ref: workorder.CheckpointRef(sv.repos.Order.TaskID), SHA: ""})
	}
	s.SnapErr = errors.Join(err, elsewhere)
	cs = slices.DeleteFunc(cs, func(c remote.Change) bool {
		return sv.book.Refs[c.Ref] == c.SHA || sv.pusher.Waits(c)
	})
	if len(cs) == 0 {
		return s
	}
	ctx, stop := context.WithTimeout(ctx, saveTime)
	defer stop()
	s.PushErr = sv.pusher.Rest(ctx, cs, cp, start)
	s.Pushed = s.PushErr == nil
	return s
}

// commits adds the change that moves the branch to the agent's head.
func (sv *Saver) commits(ctx context.Context, s *Saved, cs *[]remote.Change) (at string, err error) {
	if err := sv.repos.Reconnect(ctx); err != nil {
		return "", err
	}
	t, err := sv.heads.Tip(ctx, sv.book.State.BaseSHA)
	if err != nil {
		return "", err
	}
	s.Head = t.Head
	*cs, err = sv.pusher.Move(ctx, *cs, t.Head)
	if t.At == "" {
		t.At = t.Head // an unborn branch
	}
	return t.At, err
}

// beside adds the agent's commits on other branches and tags, and its stash. A detached
// HEAD is the checkpoint's parent and needs no ref.
func (sv *Saver) beside(ctx context.Context, cs []remote.Change, head string) ([]remote.Change, error) {
	others, err := sv.heads.Others(ctx, sv.book.State.BaseSHA, head, head)
	for _, o := range others[:min(len(others), heads.MaxRefs)] {
		cs = sv.pusher.Aside(ctx, cs, remote.Change{Ref: workorder.KeptRef(sv.repos.Order.TaskID, o.Ref), SHA: o.SHA, Name: o.Ref})
	}
	return cs, err
}

// checkpoint adds a snapshot of the work tree, or deletes one that is no longer needed
// because the branch is about to have all of it.
func (sv *Saver) checkpoint(ctx context.Context, at string, s *Saved, cs *[]remote.Change) (*workorder.Checkpoint, error) {
	ref := workorder.CheckpointRef(sv.repos.Order.TaskID)
	tree, err := sv.snapshots.Take(ctx, at)
	if tree == "" {
		return nil, err
	}
	s.Tree = tree
	if sv.book.Committed { // it was, and the agent continued
		sv.book.Committed = false
	}
	if sv.onBranch(at, s.Head) {
		out, terr := sv.repos.Outbox().Output(ctx, "rev-parse", "--verify", "--quiet", "--end-of-options", at+"^{tree}")
		if terr != nil {
			return nil, terr
		}
		if strings.TrimSpace(string(out)) == tree {
			*cs = append(*cs, remote.Change{Ref: ref, SHA: ""})
			return nil, err
		}
	}
	if last := sv.last; last.commit != "" && last.tree == tree && last.head == at {
		*cs = append(*cs, remote.Change{Ref: ref, SHA: last.commit}) // dropped again if the remote has it
		return &workorder.Checkpoint{SHA: last.commit, Tree: tree, At: last.made}, err
	}
	commit, cerr := sv.snapshots.Commit(ctx, tree, at)
	if cerr != nil {
		return nil, cerr
	}
	sv.last = snapped{head: at, tree: tree, commit: commit, made: time.Now().UTC().Truncate(time.Second)}
	*cs = append(*cs, remote.Change{Ref: ref, SHA: commit})
	return &workorder.Checkpoint{SHA: commit, Tree: tree, At: sv.last.made}, err
}

// onBranch reports whether the branch gets HEAD's commits.
func (sv *Saver) onBranch(at, head string) bool {
	return at == head && sv.book.Foreign == "" && !sv.pusher.WasRefused(workorder.BranchRef(sv.book.Branch()))
}

// snapped is the last snapshot that was committed.
type snapped struct {
	head, tree, commit string
	made               time.Time
}

// Package save saves the work while the agent runs: commits, and checkpoints of uncommitted changes.
package save

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"time"

	"github.com/sandbox-agent/sandbox-agent/internal/guest/rootgit/remote"
	"github.com/sandbox-agent/sandbox-agent/internal/guest/rootgit/tree"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// Saver does one save; an AutoSaver repeats it.
type Saver struct {
	*tree.Tree

	last      snapped
	firstDone bool // see pushSmallFirst
}

// saveTime bounds one save's push of any size: a longer one is stuck.
const saveTime = 10 * time.Minute

// Result is the outcome of one save.
type Result struct {
	Tree, Head string
	// SnapErr and PushErr are the errors of the two parts; each part is done even if the other fails.
	SnapErr, PushErr error
	Pushed           bool // something reached the remote
}

// Save pushes commits and, with checkpoint, uncommitted work. It opens no connection if nothing changed.
func (sv *Saver) Save(ctx context.Context, checkpoint bool) (s Result) {
	if err := sv.Ledger.Lock(ctx); err != nil {
		return Result{SnapErr: err}
	}
	defer sv.Ledger.Unlock()
	start := time.Now()
	local, cancel := context.WithTimeout(ctx, tree.SnapTime)
	defer cancel()
	if sv.Ledger.Hold != "" {
		return sv.saveHeld(ctx, local, checkpoint, start)
	}
	sv.pushSmallFirst(ctx)
	cs := sv.Pusher.PendingRefs()
	var cp *workorder.Checkpoint
	at, err := sv.commits(local, &s, &cs)
	var elsewhere error
	if err == nil {
		cs, elsewhere = sv.beside(local, cs, s.Head)
	}
	if err == nil && checkpoint {
		cp, err = sv.checkpoint(local, at, &s, &cs)
	} else if err == nil && sv.Ledger.Committed && sv.onBranch(at, s.Head) {
		cs = append(cs, remote.Change{Ref: workorder.CheckpointRef(sv.Repos.Order.TaskID), SHA: ""})
	}
	s.SnapErr = errors.Join(err, elsewhere)
	cs = slices.DeleteFunc(cs, func(c remote.Change) bool { return sv.Ledger.Refs[c.Ref] == c.SHA || sv.Pusher.InBackoff(c) })
	if len(cs) == 0 {
		return s
	}
	ctx, stop := context.WithTimeout(ctx, saveTime)
	defer stop()
	s.PushErr = sv.Pusher.PushAccepted(ctx, cs, cp, start)
	s.Pushed = s.PushErr == nil
	return s
}

// commits adds the change that moves the branch to the agent's head.
func (sv *Saver) commits(ctx context.Context, s *Result, cs *[]remote.Change) (at string, err error) {
	if err := sv.Repos.Reconnect(ctx); err != nil {
		return "", err
	}
	t, err := sv.AgentRefs.NextHead(ctx, sv.Ledger.State.BaseSHA)
	if err != nil {
		return "", err
	}
	s.Head = t.Head
	*cs, err = sv.Pusher.AddBranchMove(ctx, *cs, t.Head)
	if t.At == "" {
		t.At = t.Head // an unborn branch
	}
	return t.At, err
}

// beside adds the agent's commits on other branches and tags, and its stash.
func (sv *Saver) beside(ctx context.Context, cs []remote.Change, head string) ([]remote.Change, error) {
	others, err := sv.AgentRefs.OtherBranches(ctx, sv.Ledger.State.BaseSHA, head, head)
	for _, o := range others[:min(len(others), remote.MaxRefs)] {
		cs = sv.Pusher.AddSideRef(ctx, cs, remote.Change{Ref: workorder.KeptRef(sv.Repos.Order.TaskID, o.Ref), SHA: o.SHA, Name: o.Ref})
	}
	return cs, err
}

// checkpoint adds a snapshot of the work tree, or deletes one that the branch is about to have.
func (sv *Saver) checkpoint(ctx context.Context, at string, s *Result, cs *[]remote.Change) (*workorder.Checkpoint, error) {
	ref := workorder.CheckpointRef(sv.Repos.Order.TaskID)
	hash, err := sv.Checkpoints.HashTree(ctx, at)
	if hash == "" {
		return nil, err
	}
	s.Tree = hash
	if sv.Ledger.Committed { // it was, and the agent continued
		sv.Ledger.Committed = false
	}
	if sv.onBranch(at, s.Head) {
		committed, terr := tree.Hash(ctx, sv.Repos.Outbox(), at)
		if terr != nil {
			return nil, terr
		}
		if committed == hash {
			*cs = append(*cs, remote.Change{Ref: ref, SHA: ""})
			return nil, err
		}
	}
	if last := sv.last; last.commit != "" && last.tree == hash && last.head == at {
		*cs = append(*cs, remote.Change{Ref: ref, SHA: last.commit}) // dropped again if the remote has it
		return &workorder.Checkpoint{SHA: last.commit, Tree: hash, At: last.made}, err
	}
	commit, cerr := sv.Checkpoints.Commit(ctx, hash, at)
	if cerr != nil {
		return nil, cerr
	}
	sv.last = snapped{head: at, tree: hash, commit: commit, made: time.Now().UTC().Truncate(time.Second)}
	*cs = append(*cs, remote.Change{Ref: ref, SHA: commit})
	return &workorder.Checkpoint{SHA: commit, Tree: hash, At: sv.last.made}, err
}

// onBranch reports whether the branch gets HEAD's commits.
func (sv *Saver) onBranch(at, head string) bool {
	return at == head && sv.Ledger.Foreign == "" && !sv.Pusher.WasRefused(workorder.BranchRef(sv.Ledger.Branch()))
}

// snapped is the last snapshot that was committed.
type snapped struct {
	head, tree, commit string
	made               time.Time
}

// firstTime bounds pushSmallFirst; it is part of the minimum time of a landing.
const firstTime = workorder.LandGrace / 2

// SmallChangesRef returns the ref of the small changes; each attempt has its own.
func (sv *Saver) SmallChangesRef() string {
	return workorder.KeptRef(sv.Repos.Order.TaskID, "first-"+strconv.Itoa(sv.Ledger.AttemptNumber()))
}

// pushSmallFirst pushes small changes first if the box is being stopped and there are large ones.
func (sv *Saver) pushSmallFirst(ctx context.Context) {
	if !sv.Stop.Stopping() || sv.firstDone {
		return
	}
	sv.firstDone = true
	ctx, cancel := context.WithTimeout(ctx, firstTime)
	defer cancel()
	start := time.Now()
	commit, err := sv.Checkpoints.FirstCommit(ctx)
	if err == nil && commit != "" {
		err = sv.Pusher.PushAccepted(ctx, []remote.Change{{Ref: sv.SmallChangesRef(), SHA: commit}}, nil, start)
	}
	if err != nil {
		sv.Repos.Emit(workorder.Event{Type: workorder.EventPush, Name: sv.SmallChangesRef(), Status: "error", Text: err.Error()})
	}
}

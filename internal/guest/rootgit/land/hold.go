package land

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/sandbox-agent/sandbox-agent/internal/git"
	"github.com/sandbox-agent/sandbox-agent/internal/guest/rootgit/remote"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// HoldBranch keeps the branch on the remote unchanged until MoveBranch: pushes go to ref, a KeptRef, without
// checkpoints. Call it after Checkout and before AutoSaver.Begin.
func (ld *Lander) HoldBranch(ref string) error {
	if err := ld.Ledger.Load(); err != nil {
		return err
	}
	ld.Ledger.Hold = ref
	return ld.Ledger.Store()
}

// MoveBranch ends HoldBranch: the next push moves the branch to m.Head, only if the remote still has the branch's known
// head. The same push keeps the old head and records the new base. No AutoSaver may run.
func (ld *Lander) MoveBranch(m remote.RebaseResult) error {
	if err := ld.Ledger.Load(); err != nil {
		return err
	}
	if !git.ValidSHA(m.Head) || !git.ValidSHA(m.Base) {
		return fmt.Errorf("move %s: %q on %q are not commits", ld.Ledger.Branch(), m.Head, m.Base)
	}
	m.Beside = ld.Ledger.Hold
	ld.Ledger.Hold, ld.Ledger.Moved = "", &m
	ld.Ledger.KeepRef(m.Backup, m.OldHead)
	// Uncommitted changes now come from validation and are not landed.
	ld.Ledger.Committed = true
	return ld.Ledger.Store()
}

// landHeld is Land while the branch is held: this attempt's commits go to a ref next to it.
func (ld *Lander) landHeld(
	ctx, local context.Context, base, bundlePath string, end RecordAttempt,
) (l Result) {
	l.Head = ld.Ledger.Start
	var err error
	if l.Commits, err = remote.Log(local, ld.Repos.Outbox(), base, ld.Ledger.Start); err != nil {
		l.warn("read the branch's commits: %v", err)
	}
	l.Pushed = len(l.Commits) > 0 && ld.Ledger.Refs[workorder.BranchRef(ld.Ledger.Branch())] == ld.Ledger.Start
	sha, err := ld.Saver.SideCommit(local, true)
	if err != nil {
		l.warn("keep the unfinished rebase: %v", err)
	}
	cs := ld.Pusher.PendingRefs()
	if sha != "" {
		cs = append(cs, remote.Change{Ref: ld.Ledger.Hold, SHA: sha})
	}
	ld.Pusher.ResetRefused()
	ld.Heartbeat.Start(ctx)
	err = ld.tries(ctx, cs, ld.edit(&l, end))
	l.Checkpoint = ld.Ledger.Checkpoint
	if err == nil {
		if ld.Ledger.State.Lease == nil {
			ld.Heartbeat.StopAndDelete(ctx)
		}
		return l
	}
	l.warn("the task's state on the remote is out of date: %v", err)
	if sha == "" || ld.Ledger.Refs[ld.Ledger.Hold] == sha {
		return l
	}
	if err := ld.bundle(ctx, ld.Repos.Outbox(), base, []remote.Change{{Ref: ld.Ledger.Hold, SHA: sha}}, bundlePath); err != nil {
		l.warn("%v", err)
	} else {
		l.Bundle = bundlePath
	}
	return l
}

// SideRef returns the remote ref with the commits that the branch did not get; empty if there is none.
func (ld *Lander) SideRef() string {
	if ld.Ledger.Load() != nil {
		return ""
	}
	if ref := ld.Ledger.Hold; ref != "" && ld.Ledger.Refs[ref] != "" {
		return ref
	}
	if ld.Ledger.Moved == nil {
		return ""
	}
	for _, ref := range slices.Sorted(maps.Keys(ld.Ledger.Refs)) {
		if ld.Ledger.Refs[ref] == ld.Ledger.Moved.Head && strings.HasPrefix(ref, workorder.KeptRef(ld.Repos.Order.TaskID, "")) {
			return ref
		}
	}
	return ""
}

// superfluous adds the deletion of the ref next to the branch, if the branch gets its commits.
func (ld *Lander) superfluous(cs []remote.Change) []remote.Change {
	if first := ld.Saver.SmallChangesRef(); ld.Ledger.Committed && ld.Ledger.Refs[first] != "" {
		cs = append(slices.Clone(cs), remote.Change{Ref: first, SHA: ""}) // the branch has all of it
	}
	if m := ld.Ledger.Moved; m != nil && m.Beside != "" && ld.Ledger.Refs[m.Beside] == m.Head {
		return append(slices.Clone(cs), remote.Change{Ref: m.Beside, SHA: ""})
	}
	return cs
}

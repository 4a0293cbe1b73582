package land

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/sandbox-agent/sandbox-agent/internal/git"
	"github.com/sandbox-agent/sandbox-agent/internal/guest/rootgit/ledger"
	"github.com/sandbox-agent/sandbox-agent/internal/guest/rootgit/remote"
	"github.com/sandbox-agent/sandbox-agent/internal/guest/rootgit/repos"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// Hold keeps the branch on the remote unchanged until Move: pushes go to ref, a KeptRef, instead. There are
// no checkpoints meanwhile; ref also gets uncommitted work. Call it after Checkout and before Keeper.Begin.
func (ld *Lander) Hold(ref string) error {
	if err := ld.book.Load(); err != nil {
		return err
	}
	ld.book.Hold = ref
	return ld.book.Store()
}

// Move ends Hold: the next push moves the branch to m.Head, only if the remote still has the branch's known
// head. The same push keeps the old head and records the new base in the task's state. No Keeper may run.
func (ld *Lander) Move(m ledger.Moved) error {
	if err := ld.book.Load(); err != nil {
		return err
	}
	if !git.ValidSHA(m.Head) || !git.ValidSHA(m.Base) {
		return fmt.Errorf("move %s: %q on %q are not commits", ld.book.Branch(), m.Head, m.Base)
	}
	m.Beside = ld.book.Hold
	ld.book.Hold, ld.book.Moved = "", &m
	if ld.book.Keep == nil {
		ld.book.Keep = map[string]string{}
	}
	ld.book.Keep[m.Backup] = m.OldHead
	// Uncommitted changes now come from validation and are not landed.
	ld.book.Committed = true
	return ld.book.Store()
}

// landHeld is Land while the branch is held: the task stays as it was when the attempt began, and this
// attempt's commits go to a ref next to it.
func (ld *Lander) landHeld(
	ctx, local context.Context, base, bundlePath string, end func([]workorder.Commit, string) workorder.Attempt,
) (l Landed) {
	l.Head = ld.book.Start
	commits, err := ld.repos.Outbox().Log(local, base, ld.book.Start, repos.MaxCommits)
	if err != nil {
		l.Warnings = append(l.Warnings, "read the branch's commits: "+err.Error())
	}
	for _, c := range commits {
		l.Commits = append(l.Commits, workorder.Commit(c))
	}
	l.Pushed = len(l.Commits) > 0 && ld.book.Refs[workorder.BranchRef(ld.book.Branch())] == ld.book.Start
	sha, err := ld.saver.HeldBack(local, true)
	if err != nil {
		l.Warnings = append(l.Warnings, "keep the unfinished rebase: "+err.Error())
	}
	cs := ld.pusher.Kept()
	if sha != "" {
		cs = append(cs, remote.Change{Ref: ld.book.Hold, SHA: sha})
	}
	ld.pusher.Forgive()
	ld.heart.Live(ctx)
	err = ld.tries(ctx, cs, ld.edit(&l, end))
	l.Checkpoint = ld.book.Checkpoint
	if err == nil {
		if ld.book.State.Lease == nil {
			ld.heart.Fade(ctx)
		}
		return l
	}
	l.Warnings = append(l.Warnings, "the task's state on the remote is out of date: "+err.Error())
	if sha == "" || ld.book.Refs[ld.book.Hold] == sha {
		return l
	}
	if err := ld.bundle(ctx, ld.repos.Outbox(), base, []remote.Change{{Ref: ld.book.Hold, SHA: sha}}, bundlePath); err != nil {
		l.Warnings = append(l.Warnings, err.Error())
	} else {
		l.Bundle = bundlePath
	}
	return l
}

// Beside returns the remote ref with the commits that the held branch did not get, or refused; it is empty if
// there is none.
func (ld *Lander) Beside() string {
	if ld.book.Load() != nil {
		return ""
	}
	if ref := ld.book.Hold; ref != "" && ld.book.Refs[ref] != "" {
		return ref
	}
	if ld.book.Moved == nil {
		return ""
	}
	for _, ref := range slices.Sorted(maps.Keys(ld.book.Refs)) {
		if ld.book.Refs[ref] == ld.book.Moved.Head && strings.HasPrefix(ref, workorder.KeptRef(ld.repos.Order.TaskID, "")) {
			return ref
		}
	}
	return ""
}

// superfluous adds the deletion of the ref next to the branch, if the branch gets its commits.
func (ld *Lander) superfluous(cs []remote.Change) []remote.Change {
	if first := ld.saver.FirstRef(); ld.book.Committed && ld.book.Refs[first] != "" {
		cs = append(slices.Clone(cs), remote.Change{Ref: first, SHA: ""}) // the branch has all of it
	}
	if m := ld.book.Moved; m != nil && m.Beside != "" && ld.book.Refs[m.Beside] == m.Head {
		return append(slices.Clone(cs), remote.Change{Ref: m.Beside, SHA: ""})
	}
	return cs
}

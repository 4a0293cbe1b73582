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

// Hold keeps the branch on the remote as it is until Move: what there would be to push goes to ref, a KeptRef. There are
// no checkpoints meanwhile: uncommitted work is in what goes to ref. It is called after Checkout and before Keeper.Begin.
func (ld *Lander) Hold(ref string) error {
	if err := ld.book.Load(); err != nil {
		return err
	}
	ld.book.Hold = ref
	return ld.book.Store()
}

// Move ends Hold: the next push moves the branch to m.Head, only if the remote has what we saw there, and in the same step keeps the old
// head and notes the new base in the task's state. No Keeper may run.
func (ld *Lander) Move(m ledger.Moved) error {
	if err := ld.book.Load(); err != nil {
		return err
	}
	if !git.ValidSHA(m.Head) || !git.ValidSHA(m.Base) {
		return fmt.Errorf("move %s: %q on %q are no commits", ld.book.Branch(), m.Head, m.Base)
	}
	m.Beside = ld.book.Hold
	ld.book.Hold, ld.book.Moved = "", &m
	if ld.book.Keep == nil {
		ld.book.Keep = map[string]string{}
	}
	ld.book.Keep[m.Backup] = m.OldHead
	// Nothing else is to be taken along: what is uncommitted is validation's.
	ld.book.Committed = true
	return ld.book.Store()
}

// landHeld is Land while the branch is held: the task is as it was when the attempt began, and what there is of this attempt lies beside it.
func (ld *Lander) landHeld(ctx, local context.Context, base, bundlePath string, end func([]workorder.Commit, string) workorder.Attempt) (l Landed) {
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
	l.Warnings = append(l.Warnings, "what the remote has of the task is not up to date: "+err.Error())
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

// Beside is the ref of the remote that has what the branch was kept from, or what it refused; empty: there is none.
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

// superfluous adds that what lies beside the branch goes, where the branch gets it.
func (ld *Lander) superfluous(cs []remote.Change) []remote.Change {
	if first := ld.saver.FirstRef(); ld.book.Committed && ld.book.Refs[first] != "" {
		cs = append(slices.Clone(cs), remote.Change{Ref: first, SHA: ""}) // all of it is in the branch
	}
	if m := ld.book.Moved; m != nil && m.Beside != "" && ld.book.Refs[m.Beside] == m.Head {
		return append(slices.Clone(cs), remote.Change{Ref: m.Beside, SHA: ""})
	}
	return cs
}

package publish

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/sandbox-agent/sandbox-agent/internal/git"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// A rebase makes commits that are worth nothing until they are all there and were checked. While the branch is held,
// whatever saves or lands (a timer, a signal, rescue in another process) brings what there is to a ref beside it.

// Moved is a rebase that was found to be good.
type Moved struct {
	// Branch and Base are the new base branch and its commit, Head is the new head.
	Branch string `json:"branch"`
	Base   string `json:"base"`
	Head   string `json:"head"`
	// OldHead is what Head replaces, and Backup the ref that keeps it.
	OldHead string `json:"old_head"`
	Backup  string `json:"backup"`

	// Beside is where the branch was held until now.
	Beside string `json:"beside,omitempty"`
}

// backs reports whether a change is the backup, which goes where the branch goes.
func (m *Moved) backs(c change) bool { return m != nil && c.ref == m.Backup && c.sha == m.OldHead }

// Hold keeps the branch on the remote as it is until Move: what there would be to push goes to ref, a KeptRef. There are
// no checkpoints meanwhile: uncommitted work is in what goes to ref. It is called after Checkout and before Keeper.Begin.
func (p *Publisher) Hold(ref string) error {
	if err := p.load(); err != nil {
		return err
	}
	p.led.Hold = ref
	return p.store()
}

// Move ends Hold: the next push moves the branch to m.Head, only if the remote has what we saw there, and in the same step keeps the old
// head and notes the new base in the task's state. No Keeper may run.
func (p *Publisher) Move(m Moved) error {
	if err := p.load(); err != nil {
		return err
	}
	if !git.ValidSHA(m.Head) || !git.ValidSHA(m.Base) {
		return fmt.Errorf("move %s: %q on %q are no commits", p.branch(), m.Head, m.Base)
	}
	m.Beside = p.led.Hold
	p.led.Hold, p.led.Moved = "", &m
	if p.led.Keep == nil {
		p.led.Keep = map[string]string{}
	}
	p.led.Keep[m.Backup] = m.OldHead
	// Nothing else is to be taken along: what is uncommitted is validation's.
	p.led.Committed = true
	return p.store()
}

// rebase makes the new base the state's with the push that moves the branch, or after it.
func (p *Publisher) rebase(next *workorder.State, cs []change) {
	m := p.led.Moved
	if m == nil {
		return
	}
	branch := workorder.BranchRef(p.branch())
	there := p.led.Refs[branch] == m.Head
	for _, c := range cs {
		// A remote that takes refs one by one may still refuse the branch.
		there = there || c.ref == branch && c.sha == m.Head && !p.led.Apart
	}
	if there {
		next.BaseBranch, next.BaseSHA = m.Branch, m.Base
	}
}

// heldBack is what there is beside the branch: the moved commits, or where they are not complete the commits so far with, if
// asked, what is uncommitted on top. Empty: nothing.
func (p *Publisher) heldBack(ctx context.Context, uncommitted bool) (string, error) {
	if err := p.reconnect(ctx); err != nil {
		return "", err
	}
	t, err := p.tip(ctx, p.led.State.BaseSHA)
	if err != nil {
		return "", err
	}
	if t.head != p.led.Start {
		return t.head, nil
	}
	at := t.at
	if at == "" {
		at = t.head
	}
	if uncommitted {
		tree, serr := p.snapshot(ctx, at)
		if tree == "" {
			return at, serr
		}
		out, err := p.outbox().Output(ctx, "rev-parse", "--verify", "--quiet", "--end-of-options", at+"^{tree}")
		if err != nil {
			return "", err
		}
		if strings.TrimSpace(string(out)) != tree {
			if last := p.last; last.tree == tree && last.head == at {
				return last.commit, serr
			}
			commit, err := p.commitTree(ctx, tree, at)
			if err != nil {
				return at, err
			}
			p.last = snapped{head: at, tree: tree, commit: commit, made: time.Now().UTC()}
			return commit, serr
		}
	}
	if at == p.led.Start {
		return "", nil
	}
	return at, nil
}

// saveHeld is save while the branch is held.
func (p *Publisher) saveHeld(ctx, local context.Context, uncommitted bool, start time.Time) (s saved) {
	cs := p.kept()
	sha, err := p.heldBack(local, uncommitted)
	s.snapErr, s.head, s.tree = err, sha, p.last.tree
	if sha != "" && p.led.Refs[p.led.Hold] != sha && !p.waits(change{p.led.Hold, sha}) {
		cs = append(cs, change{p.led.Hold, sha})
	}
	if len(cs) == 0 {
		return s
	}
	ctx, stop := context.WithTimeout(ctx, saveTime)
	defer stop()
	s.pushErr = p.pushRest(ctx, cs, nil, start)
	s.pushed = s.pushErr == nil
	return s
}

// landHeld is Land while the branch is held: the task is as it was when the attempt began, and what there is of this attempt lies beside it.
func (p *Publisher) landHeld(ctx, local context.Context, base, bundlePath string, end func([]workorder.Commit, string) workorder.Attempt) (l Landed) {
	l.Head = p.led.Start
	commits, err := p.outbox().Log(local, base, p.led.Start, maxCommits)
	if err != nil {
		l.Warnings = append(l.Warnings, "read the branch's commits: "+err.Error())
	}
	for _, c := range commits {
		l.Commits = append(l.Commits, workorder.Commit(c))
	}
	l.Pushed = len(l.Commits) > 0 && p.led.Refs[workorder.BranchRef(p.branch())] == p.led.Start
	sha, err := p.heldBack(local, true)
	if err != nil {
		l.Warnings = append(l.Warnings, "keep the unfinished rebase: "+err.Error())
	}
	cs := p.kept()
	if sha != "" {
		cs = append(cs, change{p.led.Hold, sha})
	}
	p.refused = nil
	p.live(ctx)
	err = p.tries(ctx, cs, p.edit(&l, end))
	l.Checkpoint = p.led.Checkpoint
	if err == nil {
		if p.led.State.Lease == nil {
			p.fade(ctx)
		}
		return l
	}
	l.Warnings = append(l.Warnings, "what the remote has of the task is not up to date: "+err.Error())
	if sha == "" || p.led.Refs[p.led.Hold] == sha {
		return l
	}
	if err := p.bundle(ctx, p.outbox(), base, []change{{p.led.Hold, sha}}, bundlePath); err != nil {
		l.Warnings = append(l.Warnings, err.Error())
	} else {
		l.Bundle = bundlePath
	}
	return l
}

// Beside is the ref of the remote that has what the branch was kept from, or what it refused; empty: there is none.
func (p *Publisher) Beside() string {
	if p.load() != nil {
		return ""
	}
	if ref := p.led.Hold; ref != "" && p.led.Refs[ref] != "" {
		return ref
	}
	if p.led.Moved == nil {
		return ""
	}
	for _, ref := range slices.Sorted(maps.Keys(p.led.Refs)) {
		if p.led.Refs[ref] == p.led.Moved.Head && strings.HasPrefix(ref, workorder.KeptRef(p.Order.TaskID, "")) {
			return ref
		}
	}
	return ""
}

// superfluous adds that what lies beside the branch goes, where the branch gets it.
func (p *Publisher) superfluous(cs []change) []change {
	if first := p.firstRef(); p.led.Committed && p.led.Refs[first] != "" {
		cs = append(slices.Clone(cs), change{first, ""}) // all of it is in the branch
	}
	if m := p.led.Moved; m != nil && m.Beside != "" && p.led.Refs[m.Beside] == m.Head {
		return append(slices.Clone(cs), change{m.Beside, ""})
	}
	return cs
}

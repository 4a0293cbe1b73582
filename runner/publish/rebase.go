package publish

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"github.com/sandbox-agent/sandbox-agent/internal/git"
	"github.com/sandbox-agent/sandbox-agent/internal/proc"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// RebasePlan is which commits go where.
type RebasePlan struct {
	Onto             string // branch
	OldBase, NewBase string // where the task began, and the commit of Onto
	// Upstream..OldHead are the commits that move.
	Upstream, OldHead string
	Commits           int
	// Conflict is nil where git alone could move them all.
	Conflict *Conflict
}

// Nothing says why there is nothing to move, empty when there is.
func (r *RebasePlan) Nothing() string {
	switch {
	case r.Commits == 0:
		return "the task's branch has no commits of its own that could be moved"
	case r.Upstream == r.NewBase:
		return fmt.Sprintf("the task's branch is on the newest commit of %s already (%.12s)", r.Onto, r.NewBase)
	}
	return ""
}

// Conflict is where git needs somebody to decide.
type Conflict struct {
	Commit, Subject string // the one that is being moved
	Files           []string
	// Settings are files of agents' settings that the moved commits touch: no agent may start in the middle of them.
	Settings []string
}

// RebaseError is a rebase that is not begun.
type RebaseError struct {
	text string
	by   workorder.EndedBy
}

func (e *RebaseError) Error() string { return e.text }

// EndedBy is what this error ends a run by.
func (e *RebaseError) EndedBy() workorder.EndedBy { return e.by }

// maxForeign bounds the commits of others that a refusal names.
const maxForeign = 10

// PlanRebase finds out what is to be moved, and refuses where something would be lost or moved that nobody asked for. It is called after Checkout.
func (p *Publisher) PlanRebase(ctx context.Context, c *Claimed) (*RebasePlan, error) {
	if err := p.load(); err != nil {
		return nil, err
	}
	id := p.Order.TaskID
	if p.led.RestoredTree != "" || p.Order.Archive {
		return nil, &RebaseError{"the last attempt left work that is not committed, which a rebase could lose: `sandbox-agent continue " + id + "` goes on with it and commits it, then rebase", workorder.ByOrder}
	}
	r := &RebasePlan{Onto: cmp.Or(p.Order.Rebase.Onto, c.Base), OldBase: c.BaseSHA, OldHead: p.led.Start}
	var err error
	if r.NewBase, err = p.Mirror().Resolve(ctx, workorder.BranchRef(r.Onto)); err != nil {
		return nil, err
	}
	switch {
	case r.NewBase == "":
		return nil, &RebaseError{fmt.Sprintf("the remote %s has no branch %q to rebase onto: name another with --onto", p.Order.Repo, r.Onto), workorder.ByGit}
	case r.Onto == p.branch():
		return nil, &RebaseError{fmt.Sprintf("%s is the task's own branch: name another with --onto", r.Onto), workorder.ByOrder}
	}
	if err := p.upstream(ctx, r, c.Base); err != nil {
		return nil, err
	}
	if p.Order.Rebase.Foreign || r.Nothing() != "" {
		return r, nil
	}
	list, err := p.foreign(ctx, c, r)
	if err != nil || len(list) == 0 {
		return r, err
	}
	var b strings.Builder
	for i, f := range list {
		if i == maxForeign {
			fmt.Fprintf(&b, "; and %d more", len(list)-i)
			break
		}
		fmt.Fprintf(&b, "; %.12s %q by %s", f.SHA, oneLine(f.Subject), oneLine(f.Author))
	}
	return nil, &RebaseError{fmt.Sprintf("somebody else pushed %d commits to %s since the last attempt%s: --with-foreign moves them as well, `sandbox-agent continue %s` takes them up first", len(list), p.branch(), b.String(), id), workorder.ByGit}
}

// oneLine is what others wrote, for a message.
func oneLine(s string) string {
	s = strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return ' '
	}, strings.ToValidUTF8(s, "\uFFFD"))
	const most = 100
	if r := []rune(s); len(r) > most {
		s = string(r[:most-1]) + "…"
	}
	return s
}

// upstream finds where the task's own commits begin: the newest of what the branch shares with where the task began, its base branch as it
// is now, and the new base. A branch that took over its base by a merge shares more than where it began.
func (p *Publisher) upstream(ctx context.Context, r *RebasePlan, base string) error {
	m := p.outbox()
	tips := []string{r.NewBase, r.OldBase}
	if at, err := p.Mirror().Resolve(ctx, workorder.BranchRef(base)); err != nil {
		return err
	} else if at != "" {
		tips = append(tips, at)
	}
	r.Commits = math.MaxInt
	for _, tip := range tips {
		out, err := m.Output(ctx, "merge-base", tip, r.OldHead)
		if proc.ExitCode(err) == 1 {
			continue // they share nothing
		}
		if err != nil {
			return err
		}
		shared := strings.TrimSpace(string(out))
		n, err := p.count(ctx, shared, r.OldHead)
		if err != nil {
			return err
		}
		if n < r.Commits {
			r.Upstream, r.Commits = shared, n
		}
	}
	if r.Upstream == "" {
		return &RebaseError{fmt.Sprintf("%s and %s have no commit in common: there is nothing to rebase from", p.branch(), r.Onto), workorder.ByGit}
	}
	return nil
}

func (p *Publisher) count(ctx context.Context, from, to string) (int, error) {
	out, err := p.outbox().Output(ctx, "rev-list", "--count", from+".."+to, "--")
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(strings.TrimSpace(string(out)))
}

// foreign are the commits of the remote's branch that no attempt is known to have left there. Where a box was lost, which says nothing of its
// last pushes, commits by the task's own committer count as its.
func (p *Publisher) foreign(ctx context.Context, c *Claimed, r *RebasePlan) ([]git.Commit, error) {
	m := p.outbox()
	known, lost := "", false
	for _, a := range slices.Backward(c.State.Attempts) {
		if a.ID == p.Order.AttemptID {
			continue
		}
		if git.ValidSHA(a.HeadSHA) {
			known = a.HeadSHA
			break
		}
		lost = lost || a.Status == workorder.StatusLost
	}
	args := []string{"log", "-z", "--format=%H%x01%s%x01%an%x01%ce", "--max-count=" + strconv.Itoa(maxCommits), c.Head, "^" + r.NewBase, "^" + r.Upstream}
	if known != "" && m.Run(ctx, "cat-file", "-e", known+"^{commit}") == nil {
		args = append(args, "^"+known)
	}
	out, err := m.Output(ctx, append(args, "--")...)
	if err != nil {
		return nil, err
	}
	var list []git.Commit
	for rec := range strings.SplitSeq(string(out), "\x00") {
		f := strings.SplitN(strings.TrimPrefix(rec, "\n"), "\x01", 4)
		if len(f) != 4 || (lost || known == "") && f[3] == p.Order.Author.Email {
			continue
		}
		list = append(list, git.Commit{SHA: f[0], Subject: f[1], Author: f[2]})
	}
	return list, nil
}

// rebaser is the work tree with nothing that asks, signs, remembers or reorders. Nothing of the agent's has run in it yet.
func (p *Publisher) rebaser() git.Repo {
	t := p.tree()
	t.Env = append(t.Env, "GIT_EDITOR=true", "GIT_SEQUENCE_EDITOR=true")
	t.Env = append(t.Env, settings("commit.gpgSign", "false", "rerere.enabled", "false", "rebase.updateRefs", "false", "rebase.rebaseMerges", "false",
		"rebase.autoSquash", "false", "rebase.autoStash", "false", "rebase.missingCommitsCheck", "ignore", "merge.conflictStyle", "merge", "core.commentChar", "#")...)
	return t
}

// Rebase moves the commits in the work tree, as the agent's user. Merges are left out, the commits that they brought are moved one by
// one; so are commits that change nothing any more. A conflict leaves the rebase in progress.
func (p *Publisher) Rebase(ctx context.Context, r *RebasePlan) error {
	t := p.rebaser()
	err := t.Run(ctx, "rebase", "--quiet", "--merge", "--no-verify", "--no-gpg-sign", "--no-autosquash", "--no-autostash", "--no-fork-point",
		"--empty=drop", "--onto", r.NewBase, r.Upstream)
	if err == nil {
		return nil
	}
	if ctx.Err() != nil {
		return err
	}
	files, uerr := p.unmerged(ctx)
	if uerr != nil || len(files) == 0 {
		return errors.Join(err, uerr, t.Run(ctx, "rebase", "--abort"))
	}
	r.Conflict = &Conflict{Files: files}
	cs, err := t.Log(ctx, "", "REBASE_HEAD", 1)
	if err != nil || len(cs) == 0 {
		return errors.Join(errors.New("find out which commit conflicts"), err)
	}
	r.Conflict.Commit, r.Conflict.Subject = cs[0].SHA, cs[0].Subject
	if !p.Order.TrustBranchConfig {
		r.Conflict.Settings, err = p.touched(ctx, r)
	}
	return err
}

// unmerged are the files of the index that conflict.
func (p *Publisher) unmerged(ctx context.Context) ([]string, error) {
	var list []string
	err := p.tree().Each(ctx, func(rec string) {
		if _, path, ok := strings.Cut(rec, "\t"); ok {
			list = append(list, path)
		}
	}, "ls-files", "-z", "--unmerged")
	slices.Sort(list)
	return slices.Compact(list), err
}

// touched are the settings of agents that any of the moved commits changes.
func (p *Publisher) touched(ctx context.Context, r *RebasePlan) ([]string, error) {
	was, err := treeEntries(ctx, p.Mirror(), r.NewBase)
	if err != nil {
		return nil, err
	}
	guard, err := p.guard(ctx, was)
	if err != nil {
		return nil, err
	}
	var list []string
	err = p.outbox().Each(ctx, func(name string) {
		if name = strings.TrimPrefix(name, "\n"); name != "" && guard.has(path.Clean(name)) {
			list = append(list, name)
		}
	}, "log", "-z", "--format=", "--name-only", "--no-renames", "-m", r.Upstream+".."+r.OldHead, "--")
	slices.Sort(list)
	return slices.Compact(list), err
}

// Unfinished says what keeps a rebase from being done, empty when nothing does; head is what came of it. It believes nothing
// of what whoever resolved the conflicts says. It may be called beside a Keeper.
func (p *Publisher) Unfinished(ctx context.Context, r *RebasePlan) (head, why string, err error) {
	if err := p.op.take(ctx); err != nil {
		return "", "", err
	}
	defer p.op.give()
	if err := p.load(); err != nil {
		return "", "", err
	}
	if err := p.reconnect(ctx); err != nil {
		return "", "", err
	}
	files, err := p.unmerged(ctx)
	if err != nil {
		return "", "", err
	}
	switch {
	case len(files) > 0:
		return "", "conflicts are left in " + named(files), nil
	case p.inProgress():
		return "", "the rebase is still in progress", nil
	}
	t, err := p.tip(ctx, r.OldBase)
	if err != nil {
		return "", "", err
	}
	if t.head == r.OldHead {
		return "", "the branch " + p.branch() + " is as it was", nil
	}
	on, err := p.outbox().IsAncestor(ctx, r.NewBase, t.head)
	if err != nil {
		return "", "", err
	}
	if !on {
		return "", fmt.Sprintf("the branch %s at %.12s is not on %s (%.12s)", p.branch(), t.head, r.Onto, r.NewBase), nil
	}
	return t.head, "", nil
}

// inProgress reports whether git notes a rebase in the work tree.
func (p *Publisher) inProgress() bool {
	root, err := os.OpenRoot(p.Workspace)
	if err != nil {
		return false
	}
	defer root.Close()
	for _, dir := range []string{".git/rebase-merge", ".git/rebase-apply"} {
		if _, err := root.Lstat(dir); err == nil {
			return true
		}
	}
	return false
}

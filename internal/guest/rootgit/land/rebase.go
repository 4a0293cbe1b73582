package land

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

	"github.com/sandbox-agent/sandbox-agent/internal/git"
	"github.com/sandbox-agent/sandbox-agent/internal/guest/rootgit/claim"
	"github.com/sandbox-agent/sandbox-agent/internal/guest/rootgit/remote"
	"github.com/sandbox-agent/sandbox-agent/internal/guest/rootgit/tree"
	"github.com/sandbox-agent/sandbox-agent/internal/proc"
	"github.com/sandbox-agent/sandbox-agent/internal/text"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// Rebaser rebases the task's commits.
type Rebaser struct {
	*tree.Tree
}

// RebasePlan lists the commits to rebase and their destination.
type RebasePlan struct {
	Onto             string // branch
	OldBase, NewBase string // the task's first commit, and the head of Onto
	// Upstream..OldHead are the commits to rebase.
	Upstream, OldHead string
	Commits           int
	// Conflict is nil if git could rebase all of them.
	Conflict *Conflict
}

// Nothing returns why there is nothing to rebase; it is empty if there is.
func (r *RebasePlan) Nothing() string {
	switch {
	case r.Commits == 0:
		return "the task's branch has no commits of its own to rebase"
	case r.Upstream == r.NewBase:
		return fmt.Sprintf("the task's branch is on the newest commit of %s already (%.12s)", r.Onto, r.NewBase)
	}
	return ""
}

// Conflict is a commit that git cannot rebase by itself.
type Conflict struct {
	Commit, Subject string // the commit being rebased
	Files           []string
	// Settings lists files of agents' settings that the commits touch: no agent may start while they are partly rebased.
	Settings []string
}

// RebaseError means that the rebase was not started.
type RebaseError struct {
	text string
	by   workorder.EndedBy
}

func (e *RebaseError) Error() string { return e.text }

// EndedBy implements boot.EndedByer.
func (e *RebaseError) EndedBy() workorder.EndedBy { return e.by }

const (
	// maxForeign bounds the commits of others that a refusal lists.
	maxForeign = 10
	// maxTold bounds the quoted part of a subject or an author, in characters.
	maxTold = 100
)

// Plan finds the commits to rebase. It refuses if work would be lost or commits of others moved. Call it after Checkout.
func (rb *Rebaser) Plan(ctx context.Context, c *claim.Result) (*RebasePlan, error) {
	if err := rb.Ledger.Load(); err != nil {
		return nil, err
	}
	id := rb.Repos.Order.TaskID
	if rb.Ledger.RestoredTree != "" || rb.Repos.Order.Archive {
		return nil, &RebaseError{
			"the last attempt left uncommitted work, which a rebase could lose: `sandbox-agent continue " + id + "` resumes and commits it; " +
				"rebase after that",
			workorder.EndedByOrder,
		}
	}
	r := &RebasePlan{Onto: cmp.Or(rb.Repos.Order.Rebase.Onto, c.Base), OldBase: c.BaseSHA, OldHead: rb.Ledger.Start}
	var err error
	if r.NewBase, err = rb.Repos.Mirror().Resolve(ctx, workorder.BranchRef(r.Onto)); err != nil {
		return nil, err
	}
	switch {
	case r.NewBase == "":
		return nil, &RebaseError{
			fmt.Sprintf("the remote %s has no branch %q to rebase onto: name another with --onto", rb.Repos.Order.Repo, r.Onto),
			workorder.EndedByGit,
		}
	case r.Onto == rb.Ledger.Branch():
		return nil, &RebaseError{fmt.Sprintf("%s is the task's own branch: name another with --onto", r.Onto), workorder.EndedByOrder}
	}
	if err := rb.upstream(ctx, r, c.Base); err != nil {
		return nil, err
	}
	if rb.Repos.Order.Rebase.Foreign || r.Nothing() != "" {
		return r, nil
	}
	list, err := rb.foreign(ctx, c, r)
	if err != nil || len(list) == 0 {
		return r, err
	}
	var b strings.Builder
	for i, f := range list {
		if i == maxForeign {
			fmt.Fprintf(&b, "; and %d more", len(list)-i)
			break
		}
		fmt.Fprintf(&b, "; %.12s %q by %s", f.SHA, text.Name(f.Subject, maxTold), text.Name(f.Author, maxTold))
	}
	return nil, &RebaseError{
		fmt.Sprintf(
			"others pushed %d commits to %s since the last attempt%s: --include-others rebases them as well, `sandbox-agent continue %s` "+
				"includes them first",
			len(list), rb.Ledger.Branch(), b.String(), id,
		),
		workorder.EndedByGit,
	}
}

// upstream finds the start of the task's own commits: the newest commit that the branch shares with its first base
// commit, the current base branch, or the new base.
func (rb *Rebaser) upstream(ctx context.Context, r *RebasePlan, base string) error {
	m := rb.Repos.Outbox()
	tips := []string{r.NewBase, r.OldBase}
	if at, err := rb.Repos.Mirror().Resolve(ctx, workorder.BranchRef(base)); err != nil {
		return err
	} else if at != "" {
		tips = append(tips, at)
	}
	r.Commits = math.MaxInt
	for _, tip := range tips {
		out, err := m.Output(ctx, "merge-base", tip, r.OldHead)
		if proc.ExitCode(err) == 1 {
			continue // no common history
		}
		if err != nil {
			return err
		}
		shared := strings.TrimSpace(string(out))
		n, err := rb.count(ctx, shared, r.OldHead)
		if err != nil {
			return err
		}
		if n < r.Commits {
			r.Upstream, r.Commits = shared, n
		}
	}
	if r.Upstream == "" {
		return &RebaseError{
			fmt.Sprintf("%s and %s have no commit in common: rebase impossible", rb.Ledger.Branch(), r.Onto),
			workorder.EndedByGit,
		}
	}
	return nil
}

func (rb *Rebaser) count(ctx context.Context, from, to string) (int, error) {
	out, err := rb.Repos.Outbox().Output(ctx, "rev-list", "--count", from+".."+to, "--")
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(strings.TrimSpace(string(out)))
}

// foreign returns the commits of the remote's branch that no known attempt left there, by committer after a lost box.
func (rb *Rebaser) foreign(ctx context.Context, c *claim.Result, r *RebasePlan) ([]git.Commit, error) {
	m := rb.Repos.Outbox()
	known, lost := "", false
	for _, a := range slices.Backward(c.State.Attempts) {
		if a.ID == rb.Repos.Order.AttemptID {
			continue
		}
		if git.ValidSHA(a.HeadSHA) {
			known = a.HeadSHA
			break
		}
		lost = lost || a.Status == workorder.StatusLost
	}
	args := []string{
		"log", "-z", "--format=%H%x01%s%x01%an%x01%ce%x01%(trailers:key=Co-authored-by,valueonly,separator=%x2c)",
		"--max-count=" + strconv.Itoa(remote.MaxCommits), c.Head, "^" + r.NewBase, "^" + r.Upstream,
	}
	if known != "" && m.Run(ctx, "cat-file", "-e", known+"^{commit}") == nil {
		args = append(args, "^"+known)
	}
	out, err := m.Output(ctx, append(args, "--")...)
	if err != nil {
		return nil, err
	}
	var list []git.Commit
	for rec := range strings.SplitSeq(string(out), "\x00") {
		f := strings.SplitN(strings.TrimPrefix(rec, "\n"), "\x01", 5)
		if len(f) != 5 || (lost || known == "") && rb.own(f[3], f[4]) {
			continue
		}
		list = append(list, git.Commit{SHA: f[0], Subject: f[1], Author: f[2]})
	}
	return list, nil
}

// own reports whether a commit is the task's, by its committer and, if that is the user, the agent's trailer.
func (rb *Rebaser) own(committer, coAuthors string) bool {
	o := rb.Repos.Order
	return committer == o.Author.Email && (o.CoAuthor == nil || strings.Contains(coAuthors, o.CoAuthor.Email))
}

// rebaser returns the work tree with all prompts, signing, rerere and reordering off.
func (rb *Rebaser) rebaser() git.Repo {
	t := rb.Repos.Tree()
	t.Env = append(t.Env, "GIT_EDITOR=true", "GIT_SEQUENCE_EDITOR=true")
	t.Env = append(
		t.Env,
		remote.ConfigEnv(
			"commit.gpgSign", "false", "rerere.enabled", "false", "rebase.updateRefs", "false", "rebase.rebaseMerges", "false", "rebase.autoSquash",
			"false", "rebase.autoStash", "false", "rebase.missingCommitsCheck", "ignore", "merge.conflictStyle", "merge", "core.commentChar", "#",
		)...)
	return t
}

// Run rebases the commits in the work tree as the agent's user, without merges and empty commits. A conflict leaves it
// in progress.
func (rb *Rebaser) Run(ctx context.Context, r *RebasePlan) error {
	t := rb.rebaser()
	err := t.Run(ctx, "rebase", "--quiet", "--merge", "--no-verify", "--no-gpg-sign", "--no-autosquash", "--no-autostash", "--no-fork-point",
		"--empty=drop", "--onto", r.NewBase, r.Upstream)
	if err == nil {
		return nil
	}
	if ctx.Err() != nil {
		return err
	}
	files, uerr := rb.unmerged(ctx)
	if uerr != nil || len(files) == 0 {
		return errors.Join(err, uerr, t.Run(ctx, "rebase", "--abort"))
	}
	r.Conflict = &Conflict{Files: files}
	cs, err := t.Log(ctx, "", "REBASE_HEAD", 1)
	if err != nil || len(cs) == 0 {
		return errors.Join(errors.New("find the conflicting commit"), err)
	}
	r.Conflict.Commit, r.Conflict.Subject = cs[0].SHA, cs[0].Subject
	if !rb.Repos.Order.TrustBranchConfig {
		r.Conflict.Settings, err = rb.touched(ctx, r)
	}
	return err
}

func (rb *Rebaser) unmerged(ctx context.Context) ([]string, error) {
	var list []string
	err := rb.Repos.Tree().Each(ctx, func(rec string) {
		if _, path, ok := strings.Cut(rec, "\t"); ok {
			list = append(list, path)
		}
	}, "ls-files", "-z", "--unmerged")
	slices.Sort(list)
	return slices.Compact(list), err
}

// touched returns the agents' settings that any of the commits changes.
func (rb *Rebaser) touched(ctx context.Context, r *RebasePlan) ([]string, error) {
	was, err := tree.Entries(ctx, rb.Repos.Mirror(), r.NewBase)
	if err != nil {
		return nil, err
	}
	guard, err := rb.Config.NewConfigMatcher(ctx, was)
	if err != nil {
		return nil, err
	}
	var list []string
	err = rb.Repos.Outbox().Each(ctx, func(name string) {
		if name = strings.TrimPrefix(name, "\n"); name != "" && guard.Has(path.Clean(name)) {
			list = append(list, name)
		}
	}, "log", "-z", "--format=", "--name-only", "--no-renames", "-m", r.Upstream+".."+r.OldHead, "--")
	slices.Sort(list)
	return slices.Compact(list), err
}

// Unfinished returns why a rebase is not done, empty if it is; head is its result. It may be called while an AutoSaver runs.
func (rb *Rebaser) Unfinished(ctx context.Context, r *RebasePlan) (head, why string, err error) {
	if err := rb.Ledger.Lock(ctx); err != nil {
		return "", "", err
	}
	defer rb.Ledger.Unlock()
	if err := rb.Ledger.Load(); err != nil {
		return "", "", err
	}
	if err := rb.Repos.Reconnect(ctx); err != nil {
		return "", "", err
	}
	files, err := rb.unmerged(ctx)
	if err != nil {
		return "", "", err
	}
	switch {
	case len(files) > 0:
		return "", "conflicts are left in " + tree.Named(files), nil
	case rb.inProgress():
		return "", "the rebase is still in progress", nil
	}
	t, err := rb.AgentRefs.NextHead(ctx, r.OldBase)
	if err != nil {
		return "", "", err
	}
	if t.Head == r.OldHead {
		return "", "the branch " + rb.Ledger.Branch() + " is unchanged", nil
	}
	on, err := rb.Repos.Outbox().IsAncestor(ctx, r.NewBase, t.Head)
	if err != nil {
		return "", "", err
	}
	if !on {
		return "", fmt.Sprintf("the branch %s at %.12s is not on %s (%.12s)", rb.Ledger.Branch(), t.Head, r.Onto, r.NewBase), nil
	}
	return t.Head, "", nil
}

func (rb *Rebaser) inProgress() bool {
	root, err := os.OpenRoot(rb.Repos.Workspace)
	if err != nil {
		return false
	}
	defer root.Close()
	return slices.ContainsFunc([]string{".git/rebase-merge", ".git/rebase-apply"}, func(dir string) bool {
		_, err := root.Lstat(dir)
		return err == nil
	})
}

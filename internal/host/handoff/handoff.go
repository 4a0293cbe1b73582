// Package handoff gives the user a task's commits in a repository of this machine: compared with their base, checked out, or put into
// the work tree. Nothing of the branch runs: no hook, filter or diff driver that the repository's own configuration names.
package handoff

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/sandbox-agent/sandbox-agent/internal/git"
	"github.com/sandbox-agent/sandbox-agent/internal/host/branch"
	"github.com/sandbox-agent/sandbox-agent/internal/host/fault"
	"github.com/sandbox-agent/sandbox-agent/internal/host/localrepo"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// gitTime bounds one git command here: a checkout of a large tree on a cold disk is the slowest.
const gitTime = 5 * time.Minute

// Work is that of a task, as its result names it, or of a sandbox.
type Work struct {
	// Of names it, as "task T-A1B2C3D4".
	Of string
	// Branch is the local one for it.
	Branch string
	// Repo is its repository: a path, or a URL without a credential.
	Repo       string
	Base, Head string // commits
}

// Place is a repository of this machine that has the work.
type Place struct {
	Work
	repo *localrepo.Repo
	git  git.Repo
}

// Open finds the work: in its own repository where that is on this machine, else in the clone that dir lies in.
func Open(ctx context.Context, w Work, dir string) (*Place, error) {
	if w.Branch == "" || !git.ValidSHA(w.Head) || !git.ValidSHA(w.Base) {
		return nil, fault.New(workorder.ExitNotFound, fmt.Errorf("%s has no commits", w.Of), "`sandbox-agent result` says how a task ended")
	}
	at := w.Repo
	if !filepath.IsAbs(at) {
		at = dir
		if !cloneOf(ctx, dir, w.Repo) {
			return nil, fault.New(workorder.ExitUsage, fmt.Errorf("%s is no clone of %s, which %s worked on", dir, w.Repo, w.Of),
				"go to your clone of it")
		}
	}
	repo, err := localrepo.Open(ctx, at)
	if err != nil {
		return nil, err
	}
	p := &Place{Work: w, repo: repo, git: localrepo.Git(repo.Path)}
	p.git.Untrusted = true
	for _, sha := range []string{w.Base, w.Head} {
		if _, err := p.git.Output(ctx, "cat-file", "-e", sha+"^{commit}"); err != nil {
			return nil, fault.New(workorder.ExitGit, fmt.Errorf("%s does not have commit %s of %s", repo.Path, sha[:10], w.Of),
				"`git fetch` brings it, where the branch "+w.Branch+" was pushed")
		}
	}
	return p, nil
}

// Of reports whether a task of repo, a path or a URL, is one of the repository at top: its own, or what it is a clone of.
func Of(ctx context.Context, repo, top string) bool {
	if filepath.IsAbs(repo) {
		return localrepo.RepoRoot(repo) == top
	}
	return cloneOf(ctx, top, repo)
}

func cloneOf(ctx context.Context, dir, repo string) bool {
	return slices.ContainsFunc(localrepo.Remotes(ctx, dir), func(url string) bool { return localrepo.SameRemote(url, repo) })
}

// Diff writes what the task changed since its base, as a patch for `git apply`, whatever the user's configuration says
// of diffs. Options are those of `git diff-tree`.
func (p *Place) Diff(ctx context.Context, out io.Writer, options ...string) error {
	ctx, cancel := context.WithTimeout(ctx, gitTime)
	defer cancel()
	base, err := p.git.Output(ctx, "merge-base", p.Base, p.Head)
	if err != nil {
		return fault.New(workorder.ExitGit, fmt.Errorf("compare %s with its base: %w", p.Branch, err), "")
	}
	args := append([]string{"diff-tree", "-r", "-M", "--no-ext-diff", "--no-textconv", "--ignore-submodules=none"}, options...)
	if said, err := p.git.Stream(ctx, nil, out, time.Second, append(args, strings.TrimSpace(string(base)), p.Head, "--")...); err != nil {
		return fault.New(workorder.ExitGit, fmt.Errorf("compare %s with its base: %w: %s", p.Branch, err, strings.TrimSpace(said)), "")
	}
	return nil
}

// Log returns the commits since the base, newest first.
func (p *Place) Log(ctx context.Context) ([]branch.Entry, error) {
	all, err := branch.Log(ctx, p.git, p.Head, "^"+p.Base)
	return all, p.unread(err)
}

// Patch writes the commits since the base with their changes, newest first.
func (p *Place) Patch(ctx context.Context, out io.Writer) error {
	return p.unread(branch.Patch(ctx, p.git, out, p.Head, "^"+p.Base))
}

func (p *Place) unread(err error) error {
	if err == nil {
		return nil
	}
	return fault.New(workorder.ExitGit, fmt.Errorf("read the commits of %s: %w", p.Of, err), "")
}

// Checkout switches the work tree to the task's branch, which it makes or moves on to the task's last commit, and
// returns the name of what was checked out before.
func (p *Place) Checkout(ctx context.Context) (before string, err error) {
	if err := p.tree("check out " + p.Branch); err != nil {
		return "", err
	}
	ctx, cancel := context.WithTimeout(ctx, gitTime)
	defer cancel()
	if before = p.repo.Head; before == "" {
		out, err := p.git.Output(ctx, "rev-parse", "HEAD")
		if err != nil {
			return "", fmt.Errorf("check out %s: %w", p.Branch, err)
		}
		before = strings.TrimSpace(string(out))
	}
	at, err := p.git.Resolve(ctx, workorder.BranchRef(p.Branch))
	if err != nil {
		return "", fmt.Errorf("check out %s: %w", p.Branch, err)
	}
	within := func(a, b string) bool { return p.git.Run(ctx, "merge-base", "--is-ancestor", a, b) == nil }
	var on []string // what is checked out, one after the other
	switch {
	case at == "":
		on = []string{p.Head}
	case within(p.Head, at): // commits of the user's lie on top
		on = []string{at}
	case within(at, p.Head) && (p.made(ctx) || at != p.Base && within(p.Base, at)): // an earlier checkout's
		on = []string{at, p.Head}
	case within(at, p.Head):
		return "", fault.New(workorder.ExitGit, fmt.Errorf("check out %s: there is a branch of that name, which is not of %s", p.Branch, p.Of),
			"give the work another name, with -b; `sandbox-agent merge` brings it into the branch that is checked out")
	default:
		return "", fault.New(workorder.ExitGit, fmt.Errorf("check out %s: it is at %.10s here, which is not on one line with the task's last "+
			"commit %.10s", p.Branch, at, p.Head),
			"rename that branch, or look at the work alone: `git switch --detach "+p.Head+"`")
	}
	if err := p.keepUntracked(ctx, "check out "+p.Branch, on...); err != nil {
		return "", err
	}
	// Git itself refuses to overwrite uncommitted changes.
	if at == "" {
		if err = p.git.Run(ctx, "switch", "--quiet", "--no-track", "--create", p.Branch, p.Head); err == nil {
			err = p.git.Run(ctx, "config", p.mark(), p.Of)
		}
	} else {
		err = p.git.Run(ctx, "switch", "--quiet", p.Branch)
	}
	if err == nil && len(on) > 1 {
		err = p.git.Run(ctx, "merge", "--quiet", "--ff-only", p.Head)
	}
	if err != nil {
		return "", fault.New(workorder.ExitGit, fmt.Errorf("check out %s: %w", p.Branch, err),
			"where your changes are in the way, commit or stash them first; where another work tree has the branch, go there")
	}
	return before, nil
}

// mark is the setting of a branch that a checkout has made. It goes with the branch.
func (p *Place) mark() string { return "branch." + p.Branch + ".sandbox-agent" }

// made reports whether an earlier checkout of the work has made its branch here.
func (p *Place) made(ctx context.Context) bool {
	of, err := p.git.Output(ctx, "config", p.mark())
	return err == nil && strings.TrimSpace(string(of)) == p.Of
}

// ErrConflict is the error of Apply for changes that do not fit.
var ErrConflict = errors.New("the changes conflict")

// Apply puts the task's changes into index and work tree, merged with what is checked out, and commits nothing. It returns the files.
// It does all of it or nothing.
func (p *Place) Apply(ctx context.Context) (files []string, err error) {
	what := "apply " + p.Branch
	if err := p.tree(what); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, gitTime)
	defer cancel()
	tree, conflicts, err := p.merged(ctx)
	switch {
	case errors.Is(err, ErrConflict):
		return nil, fault.New(workorder.ExitGit, fmt.Errorf("%s: %w with HEAD in %s", what, err, strings.Join(conflicts, ", ")),
			"nothing was changed; `git merge "+p.Head+"` leaves the conflicts in the files")
	case err != nil:
		return nil, fmt.Errorf("%s: %w", what, err)
	}
	if err := p.keepUntracked(ctx, what, tree); err != nil {
		return nil, err
	}
	if err := p.git.Each(ctx, func(name string) { files = append(files, name) }, "diff", "--name-only", "-z", "HEAD", tree, "--"); err != nil {
		return nil, fmt.Errorf("%s: %w", what, err)
	}
	// As git merges a fast-forward: it refuses where an uncommitted change would be lost.
	if err := p.git.Run(ctx, "read-tree", "-m", "-u", "HEAD", tree); err != nil {
		return nil, fault.New(workorder.ExitGit, fmt.Errorf("%s: %w", what, err), "commit or stash your changes of these files first")
	}
	return files, nil
}

// merged is the tree of HEAD merged with the work. With ErrConflict it has the marks of conflicts in it, in the files that are returned.
func (p *Place) merged(ctx context.Context) (tree string, conflicts []string, err error) {
	out, err := p.git.Output(ctx, "merge-tree", "--write-tree", "--name-only", "--no-messages", "HEAD", p.Head)
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	switch {
	case err == nil:
		return lines[0], nil, nil
	case git.ValidSHA(lines[0]):
		return lines[0], lines[1:], ErrConflict
	}
	return "", nil, err
}

// Merge merges the work into what is checked out, in a commit of its own with that message; without is set where there
// is nothing that HEAD lacks. Uncommitted changes are put aside meanwhile. A conflict is ErrConflict, and left in the
// files as git leaves it.
func (p *Place) Merge(ctx context.Context, message string) (without bool, err error) {
	what := "merge " + p.Of
	if err := p.tree(what); err != nil {
		return false, err
	}
	ctx, cancel := context.WithTimeout(ctx, gitTime)
	defer cancel()
	// That comes first: what a merge has left that was killed is not up to date.
	if p.git.Run(ctx, "rev-parse", "--verify", "--quiet", "MERGE_HEAD") == nil {
		return false, fault.New(workorder.ExitGit, fmt.Errorf("%s: another merge is not concluded", what),
			"`git commit` concludes it, `git merge --abort` gives it up")
	}
	if p.git.Run(ctx, "merge-base", "--is-ancestor", p.Head, "HEAD") == nil {
		return true, nil
	}
	tree, _, err := p.merged(ctx)
	if err != nil && !errors.Is(err, ErrConflict) { // git is older than that command, or HEAD has no commit
		tree = p.Head
	}
	if err := p.keepUntracked(ctx, what, tree); err != nil {
		return false, err
	}
	if err := p.keepAside(ctx, what); err != nil {
		return false, err
	}
	aside, err := p.git.Resolve(ctx, "refs/stash")
	if err != nil {
		return false, fmt.Errorf("%s: %w", what, err)
	}
	if err := p.git.RunToEnd(ctx, "merge", "--quiet", "--no-ff", "--autostash", "--no-edit", "--no-gpg-sign", "--no-verify-signatures", "-m",
		message, p.Head); err != nil {
		if p.git.Run(ctx, "rev-parse", "--verify", "--quiet", "MERGE_HEAD") == nil {
			return false, fault.New(workorder.ExitGit, fmt.Errorf("%s: %w", what, ErrConflict),
				"resolve them and `git commit`, or `git merge --abort`")
		}
		return false, fault.New(workorder.ExitGit, fmt.Errorf("%s: %w", what, err), "")
	}
	if now, err := p.git.Resolve(ctx, "refs/stash"); err != nil || now != aside {
		return false, fault.New(workorder.ExitGit, errors.Join(fmt.Errorf("%s: "+
			"it is merged, but your uncommitted changes do not fit it, and are kept aside", what), err),
			"`git stash show -p` shows them; `git stash drop` after they are in the files")
	}
	return false, nil
}

// tree refuses a repository without a work tree.
func (p *Place) tree(what string) error {
	if p.repo.Bare {
		return fault.New(workorder.ExitUsage, fmt.Errorf("%s: %s has no work tree", what, p.repo.Path), "clone it, and do it there")
	}
	return nil
}

// Path is the top of the repository.
func (p *Place) Path() string { return p.repo.Path }

// Here is the current folder.
func Here() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", fmt.Errorf("find the current folder: %w", err)
	}
	return dir, nil
}

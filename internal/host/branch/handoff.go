package branch

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"time"

	"github.com/sandbox-agent/sandbox-agent/internal/exiterr"
	"github.com/sandbox-agent/sandbox-agent/internal/git"
	"github.com/sandbox-agent/sandbox-agent/internal/host/localrepo"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// checkoutTime bounds one git command on a work tree: a checkout of a large tree on a cold disk is the slowest.
const checkoutTime = 5 * time.Minute

// Source has the commits of a task or of a sandbox.
type Source struct {
	// Of names it, as "task T-A1B2C3D4".
	Of string
	// Branch is the local one for it.
	Branch string
	// Repo is its repository: a path, or a URL without a credential.
	Repo       string
	Base, Head string // commits
}

// Target is a repository of this machine that has the commits of a Source. It compares them with their base, checks them out, or puts
// them into the work tree. Nothing of the branch runs: no hook, filter or diff driver that the repository's own configuration names.
type Target struct {
	Source
	repo *localrepo.Repo
	git  git.Repo
}

// Target opens the source's own repository if that is on this machine, else the clone that dir is in.
func (s Source) Target(ctx context.Context, dir string) (*Target, error) {
	if s.Branch == "" || !git.ValidSHA(s.Head) || !git.ValidSHA(s.Base) {
		return nil, exiterr.New(workorder.ExitNotFound, fmt.Errorf("%s has no commits", s.Of), "`sandbox-agent result` says how a task ended")
	}
	at := s.Repo
	if !filepath.IsAbs(at) {
		at = dir
		if !localrepo.IsClone(ctx, dir, s.Repo) {
			return nil, exiterr.New(workorder.ExitUsage, fmt.Errorf("%s is no clone of %s, which %s worked on", dir, s.Repo, s.Of),
				"go to your clone of it")
		}
	}
	repo, err := localrepo.Open(ctx, at)
	if err != nil {
		return nil, err
	}
	t := &Target{Source: s, repo: repo, git: localrepo.Git(repo.Path)}
	t.git.Untrusted = true
	for _, sha := range []string{s.Base, s.Head} {
		if _, err := t.git.Output(ctx, "cat-file", "-e", sha+"^{commit}"); err != nil {
			return nil, exiterr.New(workorder.ExitGit, fmt.Errorf("%s does not have commit %s of %s", repo.Path, sha[:10], s.Of),
				"`git fetch` brings it, where the branch "+s.Branch+" was pushed")
		}
	}
	return t, nil
}

// Diff writes what the task changed since its base, as a patch for `git apply`, whatever the user's configuration says
// of diffs. Options are those of `git diff-tree`.
func (t *Target) Diff(ctx context.Context, out io.Writer, options ...string) error {
	ctx, cancel := context.WithTimeout(ctx, checkoutTime)
	defer cancel()
	base, err := t.git.Output(ctx, "merge-base", t.Base, t.Head)
	if err != nil {
		return exiterr.New(workorder.ExitGit, fmt.Errorf("compare %s with its base: %w", t.Branch, err), "")
	}
	args := append([]string{"diff-tree", "-r", "-M", "--no-ext-diff", "--no-textconv", "--ignore-submodules=none"}, options...)
	if said, err := t.git.Stream(ctx, nil, out, time.Second, append(args, strings.TrimSpace(string(base)), t.Head, "--")...); err != nil {
		return exiterr.New(workorder.ExitGit, fmt.Errorf("compare %s with its base: %w: %s", t.Branch, err, strings.TrimSpace(said)), "")
	}
	return nil
}

// Log returns the commits since the base, newest first.
func (t *Target) Log(ctx context.Context) ([]Entry, error) {
	all, err := Log(ctx, t.git, t.Head, "^"+t.Base)
	return all, t.unread(err)
}

// Patch writes the commits since the base with their changes, newest first.
func (t *Target) Patch(ctx context.Context, out io.Writer) error {
	return t.unread(Patch(ctx, t.git, out, t.Head, "^"+t.Base))
}

func (t *Target) unread(err error) error {
	if err == nil {
		return nil
	}
	return exiterr.New(workorder.ExitGit, fmt.Errorf("read the commits of %s: %w", t.Of, err), "")
}

// Checkout switches the work tree to the task's branch, which it makes or moves on to the task's last commit, and
// returns the name of what was checked out before.
func (t *Target) Checkout(ctx context.Context) (before string, err error) {
	if err := t.tree("check out " + t.Branch); err != nil {
		return "", err
	}
	ctx, cancel := context.WithTimeout(ctx, checkoutTime)
	defer cancel()
	if before = t.repo.Head; before == "" {
		out, err := t.git.Output(ctx, "rev-parse", "HEAD")
		if err != nil {
			return "", fmt.Errorf("check out %s: %w", t.Branch, err)
		}
		before = strings.TrimSpace(string(out))
	}
	at, err := t.git.Resolve(ctx, workorder.BranchRef(t.Branch))
	if err != nil {
		return "", fmt.Errorf("check out %s: %w", t.Branch, err)
	}
	within := func(a, b string) bool { return t.git.Run(ctx, "merge-base", "--is-ancestor", a, b) == nil }
	var on []string // what is checked out, one after the other
	switch {
	case at == "":
		on = []string{t.Head}
	case within(t.Head, at): // commits of the user's lie on top
		on = []string{at}
	case within(at, t.Head) && (t.made(ctx) || at != t.Base && within(t.Base, at)): // an earlier checkout's
		on = []string{at, t.Head}
	case within(at, t.Head):
		return "", exiterr.New(workorder.ExitGit, fmt.Errorf("check out %s: there is a branch of that name, which is not of %s", t.Branch, t.Of),
			"give the work another name, with -b; `sandbox-agent merge` brings it into the branch that is checked out")
	default:
		return "", exiterr.New(workorder.ExitGit, fmt.Errorf("check out %s: it is at %.10s here, which is not on one line with the task's last "+
			"commit %.10s", t.Branch, at, t.Head),
			"rename that branch, or look at the work alone: `git switch --detach "+t.Head+"`")
	}
	if err := t.keepUntracked(ctx, "check out "+t.Branch, on...); err != nil {
		return "", err
	}
	// Git itself refuses to overwrite uncommitted changes.
	if at == "" {
		if err = t.git.Run(ctx, "switch", "--quiet", "--no-track", "--create", t.Branch, t.Head); err == nil {
			err = t.git.Run(ctx, "config", t.mark(), t.Of)
		}
	} else {
		err = t.git.Run(ctx, "switch", "--quiet", t.Branch)
	}
	if err == nil && len(on) > 1 {
		err = t.git.Run(ctx, "merge", "--quiet", "--ff-only", t.Head)
	}
	if err != nil {
		return "", exiterr.New(workorder.ExitGit, fmt.Errorf("check out %s: %w", t.Branch, err),
			"where your changes are in the way, commit or stash them first; where another work tree has the branch, go there")
	}
	return before, nil
}

// mark is the setting of a branch that a checkout has made. It goes with the branch.
func (t *Target) mark() string { return "branch." + t.Branch + ".sandbox-agent" }

// made reports whether an earlier checkout of the work has made its branch here.
func (t *Target) made(ctx context.Context) bool {
	of, err := t.git.Output(ctx, "config", t.mark())
	return err == nil && strings.TrimSpace(string(of)) == t.Of
}

// ErrConflict is the error of Apply for changes that do not fit.
var ErrConflict = errors.New("the changes conflict")

// Apply puts the task's changes into index and work tree, merged with what is checked out, and commits nothing. It returns the files.
// It does all of it or nothing.
func (t *Target) Apply(ctx context.Context) (files []string, err error) {
	what := "apply " + t.Branch
	if err := t.tree(what); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, checkoutTime)
	defer cancel()
	tree, conflicts, err := t.merged(ctx)
	switch {
	case errors.Is(err, ErrConflict):
		return nil, exiterr.New(workorder.ExitGit, fmt.Errorf("%s: %w with HEAD in %s", what, err, strings.Join(conflicts, ", ")),
			"nothing was changed; `git merge "+t.Head+"` leaves the conflicts in the files")
	case err != nil:
		return nil, fmt.Errorf("%s: %w", what, err)
	}
	if err := t.keepUntracked(ctx, what, tree); err != nil {
		return nil, err
	}
	if err := t.git.Each(ctx, func(name string) { files = append(files, name) }, "diff", "--name-only", "-z", "HEAD", tree, "--"); err != nil {
		return nil, fmt.Errorf("%s: %w", what, err)
	}
	// As git merges a fast-forward: it refuses where an uncommitted change would be lost.
	if err := t.git.Run(ctx, "read-tree", "-m", "-u", "HEAD", tree); err != nil {
		return nil, exiterr.New(workorder.ExitGit, fmt.Errorf("%s: %w", what, err), "commit or stash your changes of these files first")
	}
	return files, nil
}

// merged is the tree of HEAD merged with the work. With ErrConflict it has the marks of conflicts in it, in the files that are returned.
func (t *Target) merged(ctx context.Context) (tree string, conflicts []string, err error) {
	out, err := t.git.Output(ctx, "merge-tree", "--write-tree", "--name-only", "--no-messages", "HEAD", t.Head)
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
func (t *Target) Merge(ctx context.Context, message string) (without bool, err error) {
	what := "merge " + t.Of
	if err := t.tree(what); err != nil {
		return false, err
	}
	ctx, cancel := context.WithTimeout(ctx, checkoutTime)
	defer cancel()
	// That comes first: what a merge has left that was killed is not up to date.
	if t.git.Run(ctx, "rev-parse", "--verify", "--quiet", "MERGE_HEAD") == nil {
		return false, exiterr.New(workorder.ExitGit, fmt.Errorf("%s: another merge is not concluded", what),
			"`git commit` concludes it, `git merge --abort` gives it up")
	}
	if t.git.Run(ctx, "merge-base", "--is-ancestor", t.Head, "HEAD") == nil {
		return true, nil
	}
	tree, _, err := t.merged(ctx)
	if err != nil && !errors.Is(err, ErrConflict) { // git is older than that command, or HEAD has no commit
		tree = t.Head
	}
	if err := t.keepUntracked(ctx, what, tree); err != nil {
		return false, err
	}
	if err := t.keepAside(ctx, what); err != nil {
		return false, err
	}
	aside, err := t.git.Resolve(ctx, "refs/stash")
	if err != nil {
		return false, fmt.Errorf("%s: %w", what, err)
	}
	if err := t.git.RunToEnd(ctx, "merge", "--quiet", "--no-ff", "--autostash", "--no-edit", "--no-gpg-sign", "--no-verify-signatures", "-m",
		message, t.Head); err != nil {
		if t.git.Run(ctx, "rev-parse", "--verify", "--quiet", "MERGE_HEAD") == nil {
			return false, exiterr.New(workorder.ExitGit, fmt.Errorf("%s: %w", what, ErrConflict),
				"resolve them and `git commit`, or `git merge --abort`")
		}
		return false, exiterr.New(workorder.ExitGit, fmt.Errorf("%s: %w", what, err), "")
	}
	if now, err := t.git.Resolve(ctx, "refs/stash"); err != nil || now != aside {
		return false, exiterr.New(workorder.ExitGit, errors.Join(fmt.Errorf("%s: "+
			"it is merged, but your uncommitted changes do not fit it, and are kept aside", what), err),
			"`git stash show -p` shows them; `git stash drop` after they are in the files")
	}
	return false, nil
}

// tree refuses a repository without a work tree.
func (t *Target) tree(what string) error {
	if t.repo.Bare {
		return exiterr.New(workorder.ExitUsage, fmt.Errorf("%s: %s has no work tree", what, t.repo.Path), "clone it, and do it there")
	}
	return nil
}

// Path returns the top of the repository.
func (t *Target) Path() string { return t.repo.Path }

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

// checkoutTime bounds one git command on a working tree. The slowest is the checkout of a large tree from a cold disk.
const checkoutTime = 5 * time.Minute

// Source has the commits of a task or of a sandbox.
type Source struct {
	Of         string // for messages: "task T-A1B2C3D4"
	Branch     string // local branch for the commits
	Repo       string // path, or URL without a credential
	Base, Head string // commits
}

// Target is a repository of this machine that has the commits of a Source. No hook, filter or diff driver that the
// repository's configuration names is run.
type Target struct {
	Source
	repo *localrepo.Repo
	git  git.Repo
}

// Target opens the source's repository if it is on this machine, else the clone that contains dir.
func (s Source) Target(ctx context.Context, dir string) (*Target, error) {
	if s.Branch == "" || !git.ValidSHA(s.Head) || !git.ValidSHA(s.Base) {
		return nil, exiterr.New(workorder.ExitNotFound, fmt.Errorf("%s has no commits", s.Of), "show how a task ended with: sandbox-agent result")
	}
	at := s.Repo
	if !filepath.IsAbs(at) {
		at = dir
		if !localrepo.IsClone(ctx, dir, s.Repo) {
			return nil, exiterr.New(workorder.ExitUsage, fmt.Errorf("%s is not a clone of %s, the repository of %s", dir, s.Repo, s.Of),
				"run the command in a clone of it")
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
				"if the branch "+s.Branch+" was pushed, fetch it with: git fetch")
		}
	}
	return t, nil
}

// Diff writes the changes since the base as a patch for `git apply`. The user's diff configuration has no effect. options
// are options of `git diff-tree`.
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

// Checkout switches the working tree to the source's branch, which it creates or fast-forwards to the last commit. It
// returns the branch, or commit, that was checked out before.
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
	var on []string // the commits to check out, in this order
	switch {
	case at == "":
		on = []string{t.Head}
	case within(t.Head, at): // the user added commits
		on = []string{at}
	case within(at, t.Head) && (t.made(ctx) || at != t.Base && within(t.Base, at)): // created by an earlier checkout
		on = []string{at, t.Head}
	case within(at, t.Head):
		return "", exiterr.New(workorder.ExitGit, fmt.Errorf("check out %s: a branch of that name exists and is not of %s", t.Branch, t.Of),
			"choose another name with -b, or merge into the current branch with: sandbox-agent merge")
	default:
		return "", exiterr.New(workorder.ExitGit, fmt.Errorf("check out %s: the local branch is at %.10s and has diverged from the "+
			"last commit %.10s", t.Branch, at, t.Head),
			"rename the local branch, or check out the commit alone with: git switch --detach "+t.Head)
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
			"commit or stash changes that are in the way; if another worktree has the branch, go there")
	}
	return before, nil
}

// mark is a config key of a branch that a checkout created. Git removes it with the branch.
func (t *Target) mark() string { return "branch." + t.Branch + ".sandbox-agent" }

// made reports whether an earlier checkout created the branch.
func (t *Target) made(ctx context.Context) bool {
	of, err := t.git.Output(ctx, "config", t.mark())
	return err == nil && strings.TrimSpace(string(of)) == t.Of
}

// ErrConflict means that changes conflict.
var ErrConflict = errors.New("merge conflict")

// Apply merges the changes into index and working tree without a commit, and returns the changed files. On an error,
// such as ErrConflict, it changes nothing.
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
			"nothing was changed; to get the conflicts into the files, run: git merge "+t.Head)
	case err != nil:
		return nil, fmt.Errorf("%s: %w", what, err)
	}
	if err := t.keepUntracked(ctx, what, tree); err != nil {
		return nil, err
	}
	if err := t.git.Each(ctx, func(name string) { files = append(files, name) }, "diff", "--name-only", "-z", "HEAD", tree, "--"); err != nil {
		return nil, fmt.Errorf("%s: %w", what, err)
	}
	// Like a fast-forward by git, this fails if an uncommitted change would be lost.
	if err := t.git.Run(ctx, "read-tree", "-m", "-u", "HEAD", tree); err != nil {
		return nil, exiterr.New(workorder.ExitGit, fmt.Errorf("%s: %w", what, err), "commit or stash your changes to these files first")
	}
	return files, nil
}

// merged returns the tree of HEAD merged with the commits. With ErrConflict, the tree has conflict markers in the returned files.
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

// Merge merges the commits into the checked-out branch, in a merge commit with message. without reports that HEAD has
// them already. Uncommitted changes are stashed meanwhile. After ErrConflict the conflicts are in the files, as git leaves them.
func (t *Target) Merge(ctx context.Context, message string) (without bool, err error) {
	what := "merge " + t.Of
	if err := t.tree(what); err != nil {
		return false, err
	}
	ctx, cancel := context.WithTimeout(ctx, checkoutTime)
	defer cancel()
	// This check comes first: after a killed merge HEAD may look up to date.
	if t.git.Run(ctx, "rev-parse", "--verify", "--quiet", "MERGE_HEAD") == nil {
		return false, exiterr.New(workorder.ExitGit, fmt.Errorf("%s: another merge is in progress", what),
			"conclude it with `git commit`, or abort it with `git merge --abort`")
	}
	if t.git.Run(ctx, "merge-base", "--is-ancestor", t.Head, "HEAD") == nil {
		return true, nil
	}
	tree, _, err := t.merged(ctx)
	if err != nil && !errors.Is(err, ErrConflict) { // git lacks merge-tree, or HEAD has no commit
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
				"resolve the conflicts and run `git commit`, or run `git merge --abort`")
		}
		return false, exiterr.New(workorder.ExitGit, fmt.Errorf("%s: %w", what, err), "")
	}
	if now, err := t.git.Resolve(ctx, "refs/stash"); err != nil || now != aside {
		return false, exiterr.New(workorder.ExitGit, errors.Join(fmt.Errorf("%s: "+
			"merged, but your uncommitted changes conflict with it and stay in the stash", what), err),
			"show them with `git stash show -p`; run `git stash drop` once they are in the files")
	}
	return false, nil
}

func (t *Target) tree(what string) error {
	if t.repo.Bare {
		return exiterr.New(workorder.ExitUsage, fmt.Errorf("%s: %s has no working tree", what, t.repo.Path),
			"clone the repository, and run the command there")
	}
	return nil
}

// Path returns the top of the repository.
func (t *Target) Path() string { return t.repo.Path }

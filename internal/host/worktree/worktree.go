// Package worktree makes real worktrees of the user's repository for sandboxes: the files are the user's to look at,
// and the git directory that the sandbox sees is its own, so that nothing in it writes hooks, settings or branches of
// the user's.
package worktree

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/sandbox-agent/sandbox-agent/internal/git"
	"github.com/sandbox-agent/sandbox-agent/internal/host/localrepo"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// Folder has the worktrees, in a state folder.
const Folder = "worktrees"

// Where a sandbox has its parts.
const (
	insideTree    = workorder.Workspace
	insideGit     = insideTree + ".git"
	insideObjects = insideTree + ".objects"
)

// IsPart reports whether a path of a sandbox is a Part's.
func IsPart(inside string) bool {
	return slices.Contains([]string{insideTree, insideTree + "/.git", insideGit, insideObjects}, inside)
}

// gitTime bounds one git command: a checkout of a large tree on a cold disk is the slowest.
const gitTime = 5 * time.Minute

// ErrBranchExists means that the branch of a worktree is there already.
var ErrBranchExists = errors.New("the branch is there already")

// Worktree is that of one sandbox.
type Worktree struct {
	// Repo is the user's repository, Branch the branch of the worktree in it.
	Repo, Branch string
	dir          string
}

// Mount is a folder or file of this machine in the sandbox.
type Mount struct {
	Source, Target string
	ReadOnly       bool
}

// Of is the worktree of a sandbox, whether it is there or not.
func Of(state, sandbox, repo string) *Worktree {
	return &Worktree{Repo: repo, Branch: "sandbox-" + sandbox, dir: filepath.Join(state, Folder, sandbox)}
}

// Find is the worktree of a sandbox of which nothing else is known, by what is there of it; nil where there is nothing.
func Find(state, sandbox string) *Worktree {
	w := Of(state, sandbox, "")
	if _, err := os.Lstat(w.dir); err != nil {
		return nil
	}
	// The tree's .git names the repository's own directory.
	pointer, _ := os.ReadFile(filepath.Join(w.Tree(), ".git")) // without it there are files alone
	at := strings.TrimSpace(strings.TrimPrefix(string(pointer), "gitdir: "))
	w.Repo, _, _ = strings.Cut(at, "/worktrees/")
	return w
}

// Tree is the folder with the files.
func (w *Worktree) Tree() string { return filepath.Join(w.dir, "tree") }

// own is the git directory that the sandbox sees.
func (w *Worktree) own() string { return filepath.Join(w.dir, "git") }

// Add makes it at a branch of the repository. Its files belong to the user uid:gid, where they are not the caller's own
// (-1). After an error there is none.
func (w *Worktree) Add(ctx context.Context, ref string, uid, gid int) (parts []Mount, err error) {
	ctx, cancel := context.WithTimeout(ctx, gitTime)
	defer cancel()
	what := "make a worktree of " + w.Repo
	user := localrepo.Git(w.Repo)
	if len(localrepo.AlternateDirs(ctx, w.Repo)) > 0 {
		return nil, fmt.Errorf("%s: it has objects of another repository: take a clone, by --repo", what)
	}
	base, err := (&localrepo.Repo{Path: w.Repo}).Commit(ctx, ref)
	if err == nil {
		err = w.Free(ctx)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", what, err)
	}
	if err := os.MkdirAll(filepath.Dir(w.dir), 0o711); err != nil {
		return nil, fmt.Errorf("%s: %w", what, err)
	}
	if err := os.RemoveAll(w.dir); err != nil { // without a tree nothing in it is the user's
		return nil, fmt.Errorf("%s: %w", what, err)
	}
	if err := os.Mkdir(w.dir, 0o711); err != nil { // commands of a jail are another user's
		return nil, fmt.Errorf("%s: %w", what, err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, w.remove(context.WithoutCancel(ctx), true))
		}
	}()
	if err := w.alone(ctx, func() error {
		return user.Run(ctx, "worktree", "add", "--quiet", "--no-track", "-b", w.Branch, w.Tree(), base)
	}); err != nil {
		return nil, fmt.Errorf("%s: %w", what, err)
	}
	if err := w.finish(ctx, base, uid, gid); err != nil {
		return nil, fmt.Errorf("%s: %w", what, err)
	}
	objects, err := path(ctx, user, "objects")
	if err != nil {
		return nil, fmt.Errorf("%s: %w", what, err)
	}
	return []Mount{
		{w.Tree(), insideTree, false},
		{filepath.Join(w.dir, "gitfile"), insideTree + "/.git", true},
		{w.own(), insideGit, false},
		{objects, insideObjects, true},
	}, nil
}

// Free returns an ErrBranchExists where there is something that Add would have to overwrite.
func (w *Worktree) Free(ctx context.Context) error {
	if _, err := os.Lstat(w.Tree()); err == nil {
		return fmt.Errorf("%w: %s has files of a sandbox that was not made whole, or could not be saved: look at them, then `git worktree "+
			"remove --force %s && git branch -D %s`", ErrBranchExists, w.Tree(), w.Tree(), w.Branch)
	}
	if w.Head(ctx) != "" {
		return fmt.Errorf("%w: %s: rename it, or give the sandbox another name", ErrBranchExists, w.Branch)
	}
	return nil
}

// finish makes what the sandbox sees of a worktree at a commit.
func (w *Worktree) finish(ctx context.Context, at string, uid, gid int) error {
	for _, step := range []func() error{
		func() error { return w.Guard(ctx) }, func() error { return w.fill(ctx, at) },
		func() error { return w.close(ctx) },
	} {
		if err := step(); err != nil {
			return err
		}
	}
	if uid < 0 {
		return nil
	}
	return give(uid, gid, w.Tree(), w.own(), filepath.Join(w.dir, "gitfile"))
}

// Gone reports whether files of the worktree were deleted without which the sandbox cannot use it.
func (w *Worktree) Gone() bool {
	for _, p := range []string{w.Tree(), filepath.Join(w.Tree(), ".git"), filepath.Join(w.own(), "HEAD"), filepath.Join(w.dir, "gitfile")} {
		if _, err := os.Lstat(p); errors.Is(err, fs.ErrNotExist) {
			return true
		}
	}
	return false
}

// Rebuild recreates the deleted parts of the worktree from its branch; where that was deleted, too, from the commit
// saved. Files that are there stay as they are. The name is that of the clone, as the sandbox's git directory has it.
func (w *Worktree) Rebuild(ctx context.Context, saved, name string, uid, gid int) error {
	ctx, cancel := context.WithTimeout(ctx, gitTime)
	defer cancel()
	what := "recreate the worktree of " + w.Repo
	user := localrepo.Git(w.Repo)
	at, args := w.Head(ctx), []string{"worktree", "add", "--quiet", "--force", w.Tree(), w.Branch}
	if at == "" {
		at, args = saved, []string{"worktree", "add", "--quiet", "--force", "--no-track", "-b", w.Branch, w.Tree(), saved}
	}
	if at == "" {
		return fmt.Errorf("%s: the branch %s is not there either", what, w.Branch)
	}
	if err := os.MkdirAll(w.dir, 0o711); err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	// A tree without its .git is no worktree: it is kept aside with its files.
	_, err := os.Lstat(filepath.Join(w.Tree(), ".git"))
	if errors.Is(err, fs.ErrNotExist) {
		if err = w.aside(); err == nil {
			err = user.Run(ctx, "worktree", "prune", "--expire", "now")
		}
		if err == nil {
			err = w.alone(ctx, func() error { return user.Run(ctx, args...) })
		}
	}
	if err == nil {
		err = w.finish(ctx, at, uid, gid)
	}
	if err == nil && name != "" {
		err = w.writeName(name, uid, gid)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	return nil
}

// writeName writes the name of the clone into the sandbox's git directory.
func (w *Worktree) writeName(name string, uid, gid int) error {
	root, err := os.OpenRoot(w.own())
	if err != nil {
		return err
	}
	defer root.Close()
	const file = "sandbox-agent"
	err = replace(root, file, name+"\n")
	if err == nil && uid >= 0 {
		err = root.Lchown(file, uid, gid)
	}
	return err
}

// aside moves a tree away that is in the way, unless it is empty: beside the worktree's directory, which goes with the sandbox.
func (w *Worktree) aside() error {
	err := os.Remove(w.Tree())
	if err == nil || errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return os.Rename(w.Tree(), w.dir+".before-"+time.Now().UTC().Format("20060102-150405.000"))
}

// path is one of a repository's own, absolute.
func path(ctx context.Context, r git.Repo, name string) (string, error) {
	out, err := r.Output(ctx, "-c", "safe.directory="+r.Dir, "rev-parse", "--git-path", name) // a tree may be the sandbox's user's
	p := strings.TrimSuffix(string(out), "\n")
	if !filepath.IsAbs(p) {
		p = filepath.Join(r.Dir, p)
	}
	return p, err
}

// fill makes the git directory that the sandbox sees: objects are the user's, read-only, and all else is its own.
func (w *Worktree) fill(ctx context.Context, base string) error {
	index, err := path(ctx, localrepo.Git(w.Tree()), "index")
	if err != nil {
		return err
	}
	known, err := os.ReadFile(index)
	if err != nil {
		return err
	}
	st, err := os.Stat(index)
	if err != nil {
		return err
	}
	name, email := localrepo.Identity(ctx, w.Repo)
	config := "[core]\n\trepositoryformatversion = 0\n\tbare = false\n[user]\n\tname = " + quote(name) + "\n\temail = " + quote(email) + "\n"
	sparse, settings, err := w.sparse(ctx)
	if err != nil {
		return err
	}
	files := map[string]string{
		"git/HEAD": "ref: refs/heads/" + w.Branch + "\n", "git/refs/heads/" + w.Branch: base + "\n",
		"git/objects/info/alternates": insideObjects + "\n", "git/index": string(known),
		"git/config": config + settings, "git/info/sparse-checkout": sparse, "gitfile": "gitdir: " + insideGit + "\n",
	}
	root, err := os.OpenRoot(w.dir)
	if err != nil {
		return err
	}
	defer root.Close()
	for file, content := range files {
		if err := replace(root, filepath.FromSlash(file), content); err != nil {
			return err
		}
	}
	// By its time git knows the files that may have changed since.
	return root.Chtimes(filepath.Join("git", "index"), st.ModTime(), st.ModTime())
}

// replace writes a new file in place of what has its name. A sandbox that had the directory can have left links there:
// none is followed out of it.
func replace(root *os.Root, name, content string) error {
	if err := root.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		return err
	}
	if err := root.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	f, err := root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return err
	}
	_, err = f.WriteString(content)
	return errors.Join(err, f.Close())
}

// sparse are the patterns of a worktree of a sparse repository, which are the user's, with their settings: what is
// written outside of them counts for a git that knows them.
func (w *Worktree) sparse(ctx context.Context) (patterns, settings string, err error) {
	tree := localrepo.Git(w.Tree())
	is := func(key string) bool {
		out, _ := tree.Output(ctx, "config", "--bool", key) // one that is not set is not
		return string(out) == "true\n"
	}
	if !is("core.sparseCheckout") {
		return "", "", nil
	}
	file, err := path(ctx, tree, "info/sparse-checkout")
	if err != nil {
		return "", "", err
	}
	known, err := os.ReadFile(file)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", "", err
	}
	return string(known), fmt.Sprintf("[core]\n\tsparseCheckout = true\n\tsparseCheckoutCone = %t\n", is("core.sparseCheckoutCone")), nil
}

// quote is a text as git's configuration has it.
func quote(s string) string {
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", " ").Replace(s) + `"`
}

// give gives folders to another user.
func give(uid, gid int, dirs ...string) error {
	for _, dir := range dirs {
		err := filepath.WalkDir(dir, func(p string, _ fs.DirEntry, err error) error {
			if err != nil {
				return err
			}
			return os.Lchown(p, uid, gid)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// Follow moves the worktree's branch on to the last commit of the sandbox's own branch, which its files are at. A
// branch to which the user has committed stays, and diverged is true.
func (w *Worktree) Follow(ctx context.Context, last func() string) (diverged bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, gitTime)
	defer cancel()
	err = w.alone(ctx, func() error { // one command after the other: the branch and the index move together
		from, to := w.Head(ctx), last()
		if from == to {
			return nil
		}
		if diverged = localrepo.Git(w.Repo).Run(ctx, "merge-base", "--is-ancestor", from, to) != nil; diverged {
			return nil
		}
		return w.move(ctx, from, to)
	})
	return diverged, err
}

func (w *Worktree) move(ctx context.Context, from, to string) error {
	user := localrepo.Git(w.Repo)
	if err := user.Run(ctx, "update-ref", "refs/heads/"+w.Branch, to, from); err != nil {
		return fmt.Errorf("move the branch %s of %s: %w", w.Branch, w.Repo, err)
	}
	// The index alone: no file of the sandbox's is looked at.
	if err := localrepo.Git(w.Tree()).Run(ctx, "-c", "safe.directory="+w.Tree(), "read-tree", to); err != nil {
		return fmt.Errorf("move the branch %s of %s: %w", w.Branch, w.Repo, err)
	}
	if err := w.close(ctx); err != nil {
		return fmt.Errorf("move the branch %s of %s: %w", w.Branch, w.Repo, err)
	}
	return nil
}

// close keeps the user's git out of submodules in the tree: their repositories are the sandbox's, and `git status`
// would run what they name.
func (w *Worktree) close(ctx context.Context) error {
	tree := localrepo.Git(w.Tree())
	var names strings.Builder
	err := tree.Each(ctx, func(record string) {
		if head, name, _ := strings.Cut(record, "\t"); strings.HasPrefix(head, "160000 ") {
			names.WriteString(name + "\x00")
		}
	}, "-c", "safe.directory="+w.Tree(), "ls-files", "--stage", "-z")
	if err != nil || names.Len() == 0 {
		return err
	}
	tree.Stdin = names.String()
	return tree.Run(ctx, "-c", "safe.directory="+w.Tree(), "update-index", "-z", "--skip-worktree", "--stdin")
}

// Head is the commit of the worktree's branch; "" where there is none.
func (w *Worktree) Head(ctx context.Context) string {
	at, _ := localrepo.Git(w.Repo).Resolve(ctx, "refs/heads/"+w.Branch) // of none there is none
	return at
}

// Discard removes the worktree with its unused branch.
func (w *Worktree) Discard(ctx context.Context) error { return w.remove(ctx, true) }

// Remove removes the worktree with its files. The branch stays with its commits.
func (w *Worktree) Remove(ctx context.Context) error { return w.remove(ctx, false) }

func (w *Worktree) remove(ctx context.Context, branch bool) error {
	ctx, cancel := context.WithTimeout(ctx, gitTime)
	defer cancel()
	what := "remove the worktree of " + w.Repo
	if err := os.RemoveAll(w.dir); err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	if _, err := os.Stat(w.Repo); err != nil {
		return nil // there is nothing that knows of it
	}
	user := localrepo.Git(w.Repo)
	if err := user.Run(ctx, "worktree", "prune", "--expire", "now"); err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	if branch && w.Head(ctx) != "" {
		if err := user.Run(ctx, "update-ref", "-d", "refs/heads/"+w.Branch); err != nil {
			return fmt.Errorf("%s: %w", what, err)
		}
	}
	return nil
}

// Package worktree creates worktrees of the user's repository for sandboxes. The sandbox gets a git directory of its
// own, so that it cannot write the user's hooks, settings or branches.
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

// Dir is the directory of worktrees in a state directory.
const Dir = "worktrees"

// Paths in the sandbox.
const (
	insideTree    = workorder.Workspace
	insideGit     = insideTree + ".git"
	insideObjects = insideTree + ".objects"
)

// IsPart reports whether a path in the sandbox is the target of one of Add's mounts.
func IsPart(inside string) bool {
	return slices.Contains([]string{insideTree, insideTree + "/.git", insideGit, insideObjects}, inside)
}

// gitTime bounds one git command; the slowest is a checkout of a large tree.
const gitTime = 5 * time.Minute

// ErrBranchExists means that the worktree's branch or directory exists already.
var ErrBranchExists = errors.New("the branch exists already")

// Worktree is the worktree of one sandbox.
type Worktree struct {
	Repo, Branch string             // the user's repository, and the worktree's branch in it
	Author       workorder.Identity // who commits in it; zero means the user, by the repository's settings
	dir          string
}

// Mount is a directory or file of this machine in the sandbox.
type Mount struct {
	Source, Target string
	ReadOnly       bool
}

// Of returns the worktree of a sandbox, which need not exist.
func Of(state, sandbox, repo string) *Worktree {
	return &Worktree{Repo: repo, Branch: "sandbox-" + sandbox, dir: filepath.Join(state, Dir, sandbox)}
}

// Find returns the worktree of a sandbox by its directory alone, or nil if there is none.
func Find(state, sandbox string) *Worktree {
	w := Of(state, sandbox, "")
	if _, err := os.Lstat(w.dir); err != nil {
		return nil
	}
	// The tree's .git names the repository's own directory.
	pointer, _ := os.ReadFile(filepath.Join(w.Tree(), ".git")) // without it Repo stays empty
	at := strings.TrimSpace(strings.TrimPrefix(string(pointer), "gitdir: "))
	w.Repo, _, _ = strings.Cut(at, "/worktrees/")
	return w
}

// Tree is the directory with the files.
func (w *Worktree) Tree() string { return filepath.Join(w.dir, "tree") }

// own is the git directory that the sandbox sees.
func (w *Worktree) own() string { return filepath.Join(w.dir, "git") }

// Add creates the worktree from ref. Its files belong to uid:gid, or to the caller if uid is -1. After an error nothing is left.
func (w *Worktree) Add(ctx context.Context, ref string, uid, gid int) (parts []Mount, err error) {
	ctx, cancel := context.WithTimeout(ctx, gitTime)
	defer cancel()
	what := "make a worktree of " + w.Repo
	user := localrepo.Git(w.Repo)
	if len(localrepo.AlternateDirs(ctx, w.Repo)) > 0 {
		return nil, fmt.Errorf("%s: it borrows objects of another repository: take a clone, with --repo", what)
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
	if err := os.RemoveAll(w.dir); err != nil { // Free found no tree with the user's files
		return nil, fmt.Errorf("%s: %w", what, err)
	}
	if err := os.Mkdir(w.dir, 0o711); err != nil { // a jail's commands run as another user
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

// Free returns ErrBranchExists if Add would overwrite something.
func (w *Worktree) Free(ctx context.Context) error {
	if _, err := os.Lstat(w.Tree()); err == nil {
		return fmt.Errorf("%w: %s has files of a sandbox that was incomplete or could not be saved: save what you need, then `git worktree "+
			"remove --force %s && git branch -D %s`", ErrBranchExists, w.Tree(), w.Tree(), w.Branch)
	}
	if w.Head(ctx) != "" {
		return fmt.Errorf("%w: %s: rename it, or give the sandbox another name", ErrBranchExists, w.Branch)
	}
	return nil
}

// finish creates what the sandbox sees of the worktree at a commit.
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

// Gone reports whether files were deleted that the sandbox needs.
func (w *Worktree) Gone() bool {
	parts := []string{w.Tree(), filepath.Join(w.Tree(), ".git"), filepath.Join(w.own(), "HEAD"), filepath.Join(w.dir, "gitfile")}
	return slices.ContainsFunc(parts, func(p string) bool {
		_, err := os.Lstat(p)
		return errors.Is(err, fs.ErrNotExist)
	})
}

// Rebuild recreates deleted parts of the worktree from its branch, or from the commit saved if the branch was deleted.
// Existing files stay. name is the clone's name in the sandbox's git directory.
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
		return fmt.Errorf("%s: its branch %s does not exist either", what, w.Branch)
	}
	if err := os.MkdirAll(w.dir, 0o711); err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	// A tree without .git is no worktree: keep its files aside.
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

// aside moves a tree that is not empty beside the worktree's directory, which is removed with the sandbox.
func (w *Worktree) aside() error {
	err := os.Remove(w.Tree())
	if err == nil || errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return os.Rename(w.Tree(), w.dir+".before-"+time.Now().UTC().Format("20060102-150405.000"))
}

// path returns the absolute path of a file of the repository's git directory.
func path(ctx context.Context, r git.Repo, name string) (string, error) {
	out, err := r.Output(ctx, "-c", "safe.directory="+r.Dir, "rev-parse", "--git-path", name) // the sandbox's user may own the tree
	p := strings.TrimSuffix(string(out), "\n")
	if !filepath.IsAbs(p) {
		p = filepath.Join(r.Dir, p)
	}
	return p, err
}

// fill creates the git directory that the sandbox sees: the user's objects, read-only, and files of its own.
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
	name, email := localrepo.Identity(ctx, w.Repo, w.Author)
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
	// By this time git finds the files that have changed since.
	return root.Chtimes(filepath.Join("git", "index"), st.ModTime(), st.ModTime())
}

// replace writes a new file in place of name. It follows no link that a sandbox may have left there.
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

// sparse returns the user's sparse-checkout patterns and settings, so that git in the sandbox applies them.
func (w *Worktree) sparse(ctx context.Context) (patterns, settings string, err error) {
	tree := localrepo.Git(w.Tree())
	is := func(key string) bool {
		out, _ := tree.Output(ctx, "config", "--bool", key) // fails if it is not set
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

// quote returns a value of git's configuration.
func quote(s string) string {
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", " ").Replace(s) + `"`
}

// give changes the owner of dirs and what is in them.
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

// Follow moves the worktree's branch to the last commit of the sandbox's own branch. If the user has committed to the
// branch, it stays, and diverged is true.
func (w *Worktree) Follow(ctx context.Context, last func() string) (diverged bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, gitTime)
	defer cancel()
	err = w.alone(ctx, func() error { // the branch and the index move together
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
	// read-tree changes only the index and reads no file of the sandbox.
	if err := localrepo.Git(w.Tree()).Run(ctx, "-c", "safe.directory="+w.Tree(), "read-tree", to); err != nil {
		return fmt.Errorf("move the branch %s of %s: %w", w.Branch, w.Repo, err)
	}
	if err := w.close(ctx); err != nil {
		return fmt.Errorf("move the branch %s of %s: %w", w.Branch, w.Repo, err)
	}
	return nil
}

// close marks submodules so that the user's `git status` does not enter them: the sandbox writes their repositories.
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

// Head is the commit of the worktree's branch, or "" if there is none.
func (w *Worktree) Head(ctx context.Context) string {
	at, _ := localrepo.Git(w.Repo).Resolve(ctx, "refs/heads/"+w.Branch)
	return at
}

// Discard removes the worktree and its unused branch.
func (w *Worktree) Discard(ctx context.Context) error { return w.remove(ctx, true) }

// Remove removes the worktree with its files. The branch stays.
func (w *Worktree) Remove(ctx context.Context) error { return w.remove(ctx, false) }

func (w *Worktree) remove(ctx context.Context, branch bool) error {
	ctx, cancel := context.WithTimeout(ctx, gitTime)
	defer cancel()
	what := "remove the worktree of " + w.Repo
	if err := os.RemoveAll(w.dir); err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	if _, err := os.Stat(w.Repo); err != nil {
		return nil // the repository was deleted
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

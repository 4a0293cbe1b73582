package tree

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/sandbox-agent/sandbox-agent/internal/git"
	"github.com/sandbox-agent/sandbox-agent/internal/guest/rootgit/remote"
)

// WorkTree is the agent's work tree.
type WorkTree struct {
	*remote.Remote

	base map[string]bool // the submodules of the task's base commit
}

// Git treats a repository inside the work tree as one entry and leaves its files out. To keep an agent's work, only
// submodules of the task's base stay submodules; any other repository's files are committed as ordinary files.

// diff lists the differences of the work tree from an index.
type diff struct {
	files []File   // to be added, smallest first
	drop  []string // to be removed
	// roots are the repositories inside the work tree whose files count as the task's.
	roots map[string]bool
	// outside are changed files of submodules, which the task's commits cannot contain.
	outside []string
	indexed map[string]bool // the paths of the index
}

// File is a path of the work tree, and its size in bytes.
type File struct {
	Path string
	Size int64
}

// foreignTime bounds the query of another repository for its files.
const foreignTime = 10 * time.Second

// gitlink is the mode of an entry that names a commit of another repository.
const gitlink = "160000"

// survey compares the work tree with the index of an unfiltered repository. It does not read unchanged files.
func (t *WorkTree) survey(ctx context.Context, raw git.Repo) (*diff, error) {
	changed, indexed := map[string]bool{}, map[string]bool{}
	var links []string
	// "? path" is not in the index; other lines are "letter mode id stage<tab>path", and H means that the index has the path.
	err := raw.Each(ctx, func(rec string) {
		if path, ok := strings.CutPrefix(rec, "? "); ok {
			changed[path] = true
			return
		}
		entry, path, _ := strings.Cut(rec, "\t")
		indexed[path] = true
		if entry == "" || entry[0] != 'H' && entry[0] != 'S' {
			changed[path] = true
		} else if strings.HasPrefix(entry[1:], " "+gitlink) {
			links = append(links, path)
		}
	}, "ls-files", "-z", "-t", "--stage", "--cached", "--others", "--modified", "--deleted", "--exclude-standard")
	if err != nil {
		return nil, err
	}
	submodules := t.submodules(ctx, links)
	f := &diff{indexed: indexed, roots: t.nested(changed, indexed, links, submodules)}
	l := t.newPathReader()
	inside := map[string]bool{}
	for root := range f.roots {
		if t.worktree(root) {
			// Its commits are on branches of the same repository; the branch must not get a copy of all of its files.
			f.outside = append(f.outside, t.dirt(ctx, root, false)...)
			continue
		}
		for _, path := range t.filesOf(ctx, root) {
			inside[path] = true
		}
	}
	for path := range inside {
		if !indexed[path] {
			changed[path] = true
		}
	}
	for path := range indexed {
		if !inside[path] && f.within(path) {
			f.drop = append(f.drop, path)
		}
	}
	for path := range changed {
		if f.within(path) && !inside[path] {
			continue
		}
		switch size, is := l.look(path, submodules[path]); {
		case is:
			f.files = append(f.files, File{path, size})
		case indexed[path]:
			f.drop = append(f.drop, path)
		}
	}
	for link := range submodules {
		f.outside = append(f.outside, t.dirt(ctx, link, true)...)
	}
	slices.SortFunc(f.files, func(a, b File) int { return cmp.Or(cmp.Compare(a.Size, b.Size), cmp.Compare(a.Path, b.Path)) })
	return f, nil
}

// within reports whether a path is a repository inside the work tree, or is in one.
func (f *diff) within(path string) bool { return under(f.roots, strings.TrimSuffix(path, "/")) }

// under reports whether a path is one of the roots or is below one.
func under(roots map[string]bool, path string) bool {
	for len(roots) > 0 && path != "." {
		if roots[path] {
			return true
		}
		path = filepath.Dir(path)
	}
	return false
}

// submodules returns the paths that are submodules in the task's base commit, or else in the index.
func (t *WorkTree) submodules(ctx context.Context, links []string) map[string]bool {
	if t.base != nil {
		return t.base
	}
	found := map[string]bool{}
	err := t.Ledger.Load()
	if err == nil {
		err = t.Repos.Mirror().Each(ctx, func(rec string) {
			if entry, path, ok := strings.Cut(rec, "\t"); ok && strings.HasPrefix(entry, gitlink) {
				found[path] = true
			}
		}, "ls-tree", "-r", "-z", t.Ledger.State.BaseSHA)
	}
	if err == nil {
		t.base = found
		return found
	}
	for _, path := range links {
		found[path] = true
	}
	return found
}

// nested finds the outermost repositories inside the work tree. A gitlink without files protects no work.
func (t *WorkTree) nested(changed, indexed map[string]bool, links []string, submodules map[string]bool) map[string]bool {
	all, seen := map[string]bool{}, map[string]bool{".": true}
	for _, paths := range []map[string]bool{changed, indexed} {
		for path := range paths {
			if dir, ok := strings.CutSuffix(path, "/"); ok {
				all[dir] = true
			}
			for dir := filepath.Dir(path); !seen[dir]; dir = filepath.Dir(dir) {
				seen[dir] = true
				if t.repository(dir) {
					all[dir] = true
				}
			}
		}
	}
	for _, link := range links {
		if t.filled(link) {
			all[link] = true
		}
	}
	roots := map[string]bool{}
	for root := range all {
		if !under(submodules, root) && !under(all, filepath.Dir(root)) {
			roots[root] = true
		}
	}
	return roots
}

func (t *WorkTree) repository(dir string) bool {
	st, err := os.Lstat(filepath.Join(t.Repos.Workspace, dir, ".git"))
	return err == nil && (st.IsDir() || st.Mode().IsRegular())
}

func (t *WorkTree) worktree(dir string) bool {
	f, err := t.peek(filepath.Join(dir, ".git"), 0)
	if err != nil {
		return false
	}
	defer f.Close()
	want := "gitdir: " + filepath.Join(t.Repos.Workspace, ".git/worktrees") + "/"
	got := make([]byte, len(want))
	st, err := f.Stat()
	if err != nil || !st.Mode().IsRegular() {
		return false
	}
	_, err = io.ReadFull(f, got)
	return err == nil && string(got) == want
}

func (t *WorkTree) filled(dir string) bool {
	f, err := t.peek(dir, syscall.O_DIRECTORY)
	if err != nil {
		return false
	}
	defer f.Close()
	names, err := f.Readdirnames(1)
	return err == nil && len(names) > 0
}

// peek opens a file of the work tree for reading as root: it opens nothing outside the work tree and never blocks.
func (t *WorkTree) peek(path string, flag int) (*os.File, error) {
	root, err := os.OpenRoot(t.Repos.Workspace)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	return root.OpenFile(path, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK|flag, 0)
}

// filesOf lists the files that a repository inside the work tree has committed or would commit.
func (t *WorkTree) filesOf(ctx context.Context, root string) (list []string) {
	ctx, cancel := context.WithTimeout(ctx, foreignTime)
	defer cancel()
	r := t.Repos.Tree()
	r.Dir = filepath.Join(t.Repos.Workspace, root)
	var own []string
	take := func(path string) { own = append(own, path) }
	err := os.ErrNotExist
	if t.repository(root) {
		err = r.Each(ctx, take, "ls-files", "-z", "--cached", "--others", "--exclude-standard")
	}
	if err != nil {
		// It is no longer a repository. With the task's repository and an empty index, all of its files are new.
		own, r.Tree = nil, false
		r.Env = append(r.Env, "GIT_INDEX_FILE="+t.Repos.SidePath("none"))
		if r.Each(
			ctx, take, "--git-dir="+filepath.Join(t.Repos.Workspace, ".git"), "--work-tree=.", "ls-files", "-z", "--others", "--exclude-standard",
		) != nil {
			return nil
		}
	}
	slices.Sort(own)
	for _, path := range slices.Compact(own) {
		if !filepath.IsLocal(path) {
			continue // from a forged index
		}
		full := filepath.Join(root, path)
		if st, err := os.Lstat(filepath.Join(t.Repos.Workspace, full)); err == nil && st.IsDir() {
			list = append(list, t.filesOf(ctx, full)...)
		} else if err == nil {
			list = append(list, full)
		}
	}
	return list
}

// dirt lists the files of another repository that differ from its commit and, with commits, those in unpushed commits.
func (t *WorkTree) dirt(ctx context.Context, dir string, commits bool) (list []string) {
	if !t.repository(dir) {
		if !t.filled(dir) {
			return nil // unchanged since the clone
		}
		return t.filesOf(ctx, dir)
	}
	ctx, cancel := context.WithTimeout(ctx, foreignTime)
	defer cancel()
	r := t.Repos.Tree()
	r.Dir = filepath.Join(t.Repos.Workspace, dir)
	add := func(path string) {
		if _, err := os.Lstat(filepath.Join(r.Dir, path)); path != "" && filepath.IsLocal(path) && err == nil {
			list = append(list, filepath.Join(dir, path))
		}
	}
	err := r.Each(ctx, func(rec string) { add(rec[min(len(rec), 3):]) }, // two letters and a space
		"status", "--porcelain", "-z", "--no-renames", "--untracked-files=all")
	if err == nil && commits {
		err = r.Each(ctx, add, "log", "-z", "--name-only", "--format=", "HEAD", "--not", "--remotes")
	}
	if err != nil {
		return []string{dir} // report the whole directory instead
	}
	slices.Sort(list)
	return slices.Compact(list)
}

// pathReader examines paths of a work tree, without following links.
type pathReader struct {
	root string
	dirs map[string]bool // verified real directories, by path
}

func (t *WorkTree) newPathReader() *pathReader {
	return &pathReader{root: t.Repos.Workspace, dirs: map[string]bool{}}
}

// look returns the size of the indexable content under a path; is reports whether there is any.
func (l *pathReader) look(path string, link bool) (size int64, is bool) {
	path = strings.TrimSuffix(path, "/")
	if !l.real(filepath.Dir(path)) {
		return 0, false
	}
	st, err := os.Lstat(filepath.Join(l.root, path))
	switch {
	case err != nil:
		return 0, false
	case st.Mode().IsRegular():
		return st.Size(), true
	case st.IsDir():
		return 0, link
	}
	return 0, st.Mode().Type() == os.ModeSymlink
}

func (l *pathReader) real(dir string) bool {
	if dir == "." {
		return true
	}
	is, known := l.dirs[dir]
	if !known {
		st, err := os.Lstat(filepath.Join(l.root, dir))
		is = err == nil && st.IsDir() && l.real(filepath.Dir(dir))
		l.dirs[dir] = is
	}
	return is
}

// Stamp identifies the state of a file without reading it.
func Stamp(path string) string {
	st, err := os.Lstat(path)
	if err != nil {
		return ""
	}
	return fmt.Sprint(st.ModTime().UnixNano(), st.Size(), st.Mode())
}

// changes calls f for each path of a diff-index or diff-tree, with git's record: ":mode-before mode-now id-before
// id-now status".
func changes(ctx context.Context, r git.Repo, f func(path, entry string), args ...string) error {
	entry := ""
	return r.Each(ctx, func(field string) {
		if entry == "" {
			entry = field
			return
		}
		f(field, entry)
		entry = ""
	}, args...)
}

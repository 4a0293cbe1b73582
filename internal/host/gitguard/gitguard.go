// Package gitguard finds the files in sandbox-writable directories from which git on this machine would take a program or a setting.
package gitguard

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/sandbox-agent/sandbox-agent/internal/git"
	"github.com/sandbox-agent/sandbox-agent/internal/host/localrepo"
	"github.com/sandbox-agent/sandbox-agent/internal/proc"
	"github.com/sandbox-agent/sandbox-agent/internal/text"
)

const (
	maxPaths = 100              // each path becomes at least one mount
	gitTime  = 30 * time.Second // of one git command
)

const readOnly = "mount the directory read-only, with :ro, or take a clone, with --repo"

// finder collects the paths in dirs that need protection.
type finder struct {
	ownHooks bool // the worktree's own settings turn hooks and core.fsmonitor off

	dirs  []string
	found []string
	repos []string // directories in which git works with a repository
	files map[string]bool
}

// Find returns the paths in dirs that a sandbox must not change: repositories, submodules that are not checked out, and
// the hooks, settings and programs that git's settings name. dirs are absolute and contain no links. It returns an error
// for what no mount can protect, such as a program that does not exist.
func Find(ctx context.Context, dirs []string) ([]string, error) {
	f := &finder{dirs: dirs, files: map[string]bool{}}
	for _, dir := range dirs {
		if err := f.around(dir); err != nil {
			return nil, err
		}
		if err := f.walk(dir); err != nil {
			return nil, err
		}
	}
	return f.result(ctx)
}

// Check returns an error if git would take something from dirs that is not within protected. It looks only at the
// repositories in protected and around dirs, not for new ones.
func Check(ctx context.Context, dirs, protected []string) error {
	f := &finder{dirs: dirs, files: map[string]bool{}}
	for _, dir := range dirs {
		if err := f.around(dir); err != nil {
			return err
		}
	}
	for _, path := range protected {
		if isGit(filepath.Base(path)) {
			f.repos = append(f.repos, filepath.Dir(path))
		} else if bare(path) {
			f.repos = append(f.repos, path)
		}
	}
	all, err := f.result(ctx)
	if err != nil {
		return err
	}
	for _, path := range all {
		if !slices.ContainsFunc(protected, func(p string) bool { return below(path, p) }) {
			return fmt.Errorf("git on this machine now uses %s, and the sandbox can write to it: `sandbox-agent reset` "+
				"recreates the sandbox with that path read-only", path)
		}
	}
	return nil
}

// Programs returns the files in a working tree that git's settings name, except for hooks and core.fsmonitor.
func Programs(ctx context.Context, tree string) ([]string, error) {
	tree, err := filepath.EvalSymlinks(tree)
	if err != nil {
		return nil, err
	}
	f := &finder{dirs: []string{tree}, files: map[string]bool{}, ownHooks: true}
	out, err := output(ctx, reader(tree), "config", "--list", "--null", "--show-origin", "--no-includes")
	if err == nil {
		err = f.settings(ctx, tree, tree, originEntries(string(out), tree))
	}
	return f.found, err
}

func (f *finder) result(ctx context.Context) ([]string, error) {
	if _, err := proc.Find("git"); err == nil {
		if err := f.own(); err != nil {
			return nil, err
		}
		if len(f.repos) == 0 {
			if err := f.global(ctx); err != nil {
				return nil, err
			}
		}
		done := map[string]bool{}
		for _, repo := range f.repos {
			if !done[repo] {
				done[repo] = true
				if err := f.repository(ctx, repo); err != nil {
					return nil, err
				}
			}
		}
	}
	slices.Sort(f.found)
	f.found = slices.Compact(f.found)
	all := slices.DeleteFunc(slices.Clone(f.found), func(path string) bool {
		return slices.ContainsFunc(f.found, func(other string) bool { return other != path && below(path, other) })
	})
	if len(all) > maxPaths {
		return nil, fmt.Errorf("it contains more than %d repositories: mount the ones you need, each by itself", maxPaths)
	}
	return all, nil
}

func (f *finder) around(dir string) error {
	if st, err := os.Stat(dir); err != nil || !st.IsDir() {
		dir = filepath.Dir(dir)
	}
	for ; ; dir = filepath.Dir(dir) {
		if bare(dir) {
			return errors.New("it is a bare repository or inside a .git directory, whose hooks and settings run on this machine: mount it " +
				"read-only, with :ro, or take a clone, with --repo")
		}
		if _, err := os.Lstat(filepath.Join(dir, ".git")); err == nil {
			f.repos = append(f.repos, dir)
		}
		if dir == filepath.Dir(dir) {
			return nil
		}
	}
}

func (f *finder) walk(top string) error {
	count := 0
	return filepath.WalkDir(top, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return fs.SkipDir // git cannot read it either
		case path == top:
			return nil
		case isGit(d.Name()):
			if d.Type()&fs.ModeSymlink != 0 {
				return fmt.Errorf("%s is a link, and the sandbox could change its target: %s", path, readOnly)
			}
			f.repos = append(f.repos, filepath.Dir(path))
		case d.IsDir() && bare(path):
			f.repos = append(f.repos, path)
		default:
			return nil
		}
		f.found = append(f.found, path)
		if count++; count > maxPaths {
			return fmt.Errorf("it contains more than %d repositories: mount the ones you need, each by itself", maxPaths)
		}
		if d.IsDir() {
			return fs.SkipDir
		}
		return nil
	})
}

// repository protects what one repository names. A repository that git cannot use runs nothing.
func (f *finder) repository(ctx context.Context, dir string) error {
	r := reader(dir)
	// This fails for a bare repository, after the first two lines.
	out, _ := output(ctx, r, "rev-parse", "--absolute-git-dir", "--git-common-dir", "--show-toplevel")
	lines := strings.Split(strings.TrimSuffix(string(out), "\n"), "\n")
	const dirs = 2
	if len(lines) < dirs {
		return nil
	}
	for _, own := range lines[:dirs] {
		if !filepath.IsAbs(own) {
			own = filepath.Join(dir, own)
		}
		if err := f.protect(own, "git keeps a repository there"); err != nil {
			return err
		}
	}
	top := ""
	if len(lines) > dirs {
		top = lines[dirs]
		if err := f.submodules(ctx, top); err != nil {
			return err
		}
	}
	out, err := output(ctx, r, "config", "--list", "--null", "--show-origin", "--no-includes")
	if err != nil {
		return fmt.Errorf("read the settings of %s: %w", dir, err)
	}
	return f.settings(ctx, dir, top, originEntries(string(out), dir))
}

// global protects what the settings of the user and the machine name.
func (f *finder) global(ctx context.Context) error {
	r := reader("/")
	r.Env = append(r.Env, "GIT_DIR=/nonexistent")
	out, err := output(ctx, r, "config", "--list", "--null", "--show-origin", "--no-includes")
	if err != nil {
		return fmt.Errorf("read git's settings: %w", err)
	}
	return f.settings(ctx, "/", "", originEntries(string(out), "/"))
}

// own protects the settings files of the user and the machine, even if they are empty or do not exist.
func (f *finder) own() error {
	files := []string{cmp.Or(os.Getenv("GIT_CONFIG_SYSTEM"), "/etc/gitconfig")}
	home, _ := os.UserHomeDir() // without one git reads no file there
	if file, only := os.LookupEnv("GIT_CONFIG_GLOBAL"); only {
		files = append(files, file)
	} else if home != "" {
		files = append(files, filepath.Join(home, ".gitconfig"),
			filepath.Join(cmp.Or(os.Getenv("XDG_CONFIG_HOME"), filepath.Join(home, ".config")), "git", "config"))
	}
	var errs []error
	for _, file := range files {
		errs = append(errs, f.protect(file, "git reads settings there (`"+text.Shell("mkdir", "-p", filepath.Dir(file))+" && "+text.Shell("touch",
			file)+"` makes an empty file)"))
	}
	return errors.Join(errs...)
}

// submodules protects existing and planned submodules, because git runs in each of them.
func (f *finder) submodules(ctx context.Context, top string) error {
	var paths []string
	link := func(record string) {
		if head, name, ok := strings.Cut(record, "\t"); ok && strings.HasPrefix(head, "160000 ") {
			paths = append(paths, name)
		}
	}
	r := reader(top)
	ctx, cancel := context.WithTimeout(ctx, gitTime)
	defer cancel()
	if err := r.Each(ctx, link, anybody("ls-files", "--stage", "-z")...); err != nil {
		return fmt.Errorf("read the index of %s: %w", top, err)
	}
	if r.Run(ctx, anybody("rev-parse", "--verify", "--quiet", "HEAD^{tree}")...) == nil { // there may be no commit yet
		if err := r.Each(ctx, link, anybody("ls-tree", "-r", "-z", "--full-tree", "HEAD")...); err != nil {
			return fmt.Errorf("read the last commit of %s: %w", top, err)
		}
	}
	for _, path := range paths {
		if err := f.submodule(filepath.Join(top, path)); err != nil {
			return err
		}
	}
	return f.planned(ctx, r, top)
}

func (f *finder) submodule(path string) error {
	for _, d := range f.dirs {
		if path == d {
			if _, err := os.Lstat(filepath.Join(path, ".git")); err != nil {
				return fmt.Errorf("it is the path of a submodule that is not checked out: check it out with `git submodule update --init`, or %s",
					readOnly)
			}
		}
		if path != d && below(d, path) {
			return nil // the submodule is outside of the mount
		}
	}
	if _, err := os.Lstat(filepath.Join(path, ".git")); err == nil {
		path = filepath.Join(path, ".git")
	}
	return f.protect(path, "a submodule is there")
}

// planned protects the paths that .gitmodules names.
func (f *finder) planned(ctx context.Context, r git.Repo, top string) error {
	file := filepath.Join(top, ".gitmodules")
	if st, err := os.Lstat(file); err != nil || !st.Mode().IsRegular() {
		return nil // git reads only a regular file
	}
	// This fails for a file without paths and for one that git cannot read.
	out, _ := output(ctx, r, "config", "--file", file, "--no-includes", "--null", "--get-regexp", `^submodule\..*\.path$`)
	for entry := range strings.SplitSeq(strings.TrimSuffix(string(out), "\x00"), "\x00") {
		_, path, _ := strings.Cut(entry, "\n")
		if !filepath.IsLocal(path) || filepath.Clean(path) == "." {
			continue
		}
		path = filepath.Join(top, path)
		if st, err := os.Lstat(path); err != nil || !st.IsDir() {
			continue // git looks there only for an entry of the index
		}
		if err := f.submodule(path); err != nil {
			return err
		}
	}
	return nil
}

// protect adds a path to the result if it is in one of dirs, by whichever link.
func (f *finder) protect(path, why string) error {
	if !filepath.IsAbs(path) {
		return nil
	}
	parts := strings.Split(strings.TrimPrefix(filepath.Clean(path), "/"), "/")
	for i := range len(parts) + 1 {
		prefix, err := filepath.EvalSymlinks("/" + filepath.Join(parts[:i]...))
		if err != nil {
			break
		}
		at := filepath.Join(prefix, filepath.Join(parts[i:]...))
		for _, d := range f.dirs {
			switch {
			case below(d, at):
				return fmt.Errorf("%s is or contains it: %s: mount it read-only, with :ro", at, why)
			case below(at, d):
				if err := f.add(d, at, why); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// add protects a path in dir. No mount can protect a link or a missing file.
func (f *finder) add(dir, path, why string) error {
	rel, err := filepath.Rel(dir, path)
	if err != nil {
		return err
	}
	at := dir
	for part := range strings.SplitSeq(rel, "/") {
		at = filepath.Join(at, part)
		if slices.Contains(f.found, at) {
			return nil
		}
		st, err := os.Lstat(at)
		switch {
		case err != nil:
			return fmt.Errorf("%s does not exist, and the sandbox could create it: %s: create it, or remove it from git's settings or index, or %s",
				path, why, readOnly)
		case st.Mode()&fs.ModeSymlink != 0:
			return fmt.Errorf("%s is a link, which the sandbox could replace: %s: %s", at, why, readOnly)
		}
	}
	f.found = append(f.found, path)
	return nil
}

// reader is a repository whose settings run nothing.
func reader(dir string) git.Repo { return localrepo.Git(dir) }

func output(ctx context.Context, r git.Repo, args ...string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, gitTime)
	defer cancel()
	return r.Output(ctx, anybody(args...)...)
}

// anybody allows any owner of the repository, since these git commands run no programs.
func anybody(args ...string) []string { return append([]string{"-c", "safe.directory=*"}, args...) }

// isGit ignores case, as some file systems do.
func isGit(name string) bool { return strings.EqualFold(name, ".git") }

// bare reports whether git treats the directory itself as a repository.
func bare(dir string) bool {
	has := func(name string) bool {
		_, err := os.Lstat(filepath.Join(dir, name))
		return err == nil
	}
	return has("HEAD") && (has("objects") && has("refs") || has("commondir"))
}

func below(path, dir string) bool {
	return path == dir || strings.HasPrefix(path, strings.TrimSuffix(dir, "/")+"/")
}

const (
	appearedTime = 10 * time.Second
	batch        = 1000 // entries of a directory that are read at once
)

// Appeared returns what makes repositories of directories in dirs outside of protected: each .git, and the HEAD of each
// bare repository. It returns at most 100 paths; all is false if there may be more.
func Appeared(ctx context.Context, dirs, protected []string) (found []string, all bool) {
	ctx, cancel := context.WithTimeout(ctx, appearedTime)
	defer cancel()
	rest := slices.Clone(dirs)
	seen := map[string]bool{} // dirs may be nested
	for len(rest) > 0 {
		dir := rest[len(rest)-1]
		rest = rest[:len(rest)-1]
		if seen[dir] || slices.ContainsFunc(protected, func(p string) bool { return below(dir, p) }) {
			continue
		}
		seen[dir] = slices.Contains(dirs, dir)
		if bare(dir) {
			found = append(found, filepath.Join(dir, "HEAD"))
		}
		repos, inner := names(ctx, dir, protected)
		found, rest = append(found, repos...), append(rest, inner...)
		if ctx.Err() != nil || len(found) > maxPaths {
			slices.Sort(found)
			return found[:min(len(found), maxPaths)], false
		}
	}
	slices.Sort(found)
	return found, true
}

// names returns each unprotected .git of a directory, and its subdirectories.
func names(ctx context.Context, dir string, protected []string) (repos, dirs []string) {
	f, err := os.OpenFile(dir, os.O_RDONLY|syscall.O_DIRECTORY|syscall.O_NOFOLLOW, 0)
	if err != nil {
		return nil, nil // git cannot read it either
	}
	defer f.Close()
	for ctx.Err() == nil && len(repos) <= maxPaths {
		entries, err := f.ReadDir(batch)
		for _, e := range entries {
			path := filepath.Join(dir, e.Name())
			switch {
			case isGit(e.Name()) && !slices.Contains(protected, path):
				repos = append(repos, path)
			case e.IsDir() && !isGit(e.Name()):
				dirs = append(dirs, path)
			}
		}
		if err != nil {
			break
		}
	}
	return repos, dirs
}

package localrepo

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/sandbox-agent/sandbox-agent/internal/exiterr"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// location is what git says of the repository of a directory.
type location struct {
	format              string // of its objects
	shallow, bare       bool
	gitDir, common, top string // top is "" for a bare repository and for a directory .git
}

// bounds verifies that git's repository for a directory is in that directory. In an unpacked archive, core.worktree, a file .git or
// commondir, or a link may name another repository of this machine, which would then be served and written to.
//
// A linked worktree and a submodule have their repository elsewhere. It must name them in turn, which an archive cannot arrange.
func bounds(ctx context.Context, path string) error {
	_, err := find(ctx, path)
	return err
}

const noTreeHint = "give the working tree, not its .git directory"

func find(ctx context.Context, path string) (p location, err error) {
	top := RepoRoot(path)
	out, err := gitOut(ctx, path, "rev-parse", "--show-object-format", "--is-shallow-repository", "--is-bare-repository",
		"--path-format=absolute", "--git-dir", "--git-common-dir")
	if err != nil {
		return p, exiterr.New(workorder.ExitGit, fmt.Errorf("open repository %s: %w", path, err), openHint(err))
	}
	if top == "" {
		return p, astray(path, "git finds a repository that is in no parent directory", "another repository")
	}
	lines := strings.SplitN(strings.TrimSuffix(out, "\n"), "\n", 5)
	if len(lines) < 5 {
		return p, fmt.Errorf("unexpected answer of git for repository %s: %q", top, out)
	}
	p = location{
		format: lines[0], shallow: lines[1] == "true", bare: lines[2] == "true",
		gitDir: resolved(lines[3]), common: resolved(lines[4]),
	}
	if !p.bare && p.gitDir != top { // a directory .git has no working tree: the error says so
		tree, err := gitOut(ctx, path, "rev-parse", "--show-toplevel")
		if err != nil {
			return p, exiterr.New(workorder.ExitGit, fmt.Errorf("open repository %s: %w", path, err), noTreeHint)
		}
		p.top = strings.TrimSuffix(tree, "\n")
		if tree := resolved(p.top); tree != top {
			return p, astray(top, "its working tree is "+tree, tree)
		}
	}
	return p, p.within(ctx, top)
}

// within verifies that the repository is in the directory top, or that it names top.
func (p location) within(ctx context.Context, top string) error {
	gitDir, common := p.gitDir, p.common
	switch {
	case Within(gitDir, top) && Within(common, top):
	case gitDir == common:
		if !namesTree(ctx, gitDir, top) {
			return astray(top, "its repository "+gitDir+" does not name this directory as its working tree (core.worktree)", gitDir)
		}
	default:
		back, err := os.ReadFile(filepath.Join(gitDir, "gitdir"))
		if filepath.Dir(gitDir) != filepath.Join(common, "worktrees") || err != nil ||
			linked(gitDir, string(back)) != filepath.Join(top, ".git") {
			return astray(top, "its repository "+common+" does not list this directory as a worktree", common)
		}
	}
	for _, dir := range []string{gitDir, common} {
		if to, err := leadsOut(dir, top, gitDir, common); err != nil {
			return exiterr.New(workorder.ExitGit, fmt.Errorf("examine repository %s: %w", top, err), "")
		} else if to != "" {
			return astray(top, "a link in "+dir+" leads to "+to, to)
		}
	}
	return nil
}

func astray(top, why, to string) error {
	return exiterr.New(workorder.ExitGit, fmt.Errorf("open repository %s: %s", top, why),
		"it may come from an archive: use "+to+" if you mean that repository, otherwise clone the repository again")
}

// namesTree reports whether the repository's configuration names top as its working tree.
func namesTree(ctx context.Context, gitDir, top string) bool {
	for _, name := range []string{"config.worktree", "config"} {
		out, err := gitOut(ctx, gitDir, "config", "--file", filepath.Join(gitDir, name), "core.worktree")
		if err == nil {
			return linked(gitDir, out) == top
		}
	}
	return false
}

// linked returns the target of a line in a file of a repository.
func linked(dir, line string) string {
	to := strings.TrimSuffix(line, "\n")
	if !filepath.IsAbs(to) {
		to = filepath.Join(dir, to)
	}
	if filepath.Base(to) == ".git" { // may be a file; do not resolve its name
		return filepath.Join(resolved(filepath.Dir(to)), ".git")
	}
	return resolved(to)
}

// storage are the files and directories of a repository that git reads.
var storage = []string{
	"HEAD", "config", "config.worktree", "commondir", "gitdir", "packed-refs", "shallow", "index", "info", "logs",
	"refs", "reftable", "objects",
}

// leadsOut returns the target of a link in a repository that is in none of the directories; "" if there is no such link.
func leadsOut(dir string, dirs ...string) (to string, err error) {
	for _, name := range storage {
		err := filepath.WalkDir(filepath.Join(dir, name), func(path string, d fs.DirEntry, err error) error {
			switch {
			case errors.Is(err, fs.ErrNotExist):
				return nil
			case err != nil:
				return err
			case d.Type()&fs.ModeSymlink == 0:
				return nil
			}
			end := resolved(path)
			for _, f := range dirs {
				if Within(end, f) {
					return nil
				}
			}
			to = end
			return fs.SkipAll
		})
		if err != nil || to != "" {
			return to, err
		}
	}
	return "", nil
}

// AlternateDirs returns the directories outside of the repository whose objects it uses without a copy (git clone --shared or
// --reference). Only the user can tell whether that is intended.
func AlternateDirs(ctx context.Context, path string) (dirs []string) {
	dirs, _ = borrowed(ctx, path) // Open reports an unreadable repository
	return dirs
}

func borrowed(ctx context.Context, path string) (dirs []string, err error) {
	ctx, cancel := context.WithTimeout(ctx, gitTimeout)
	defer cancel()
	if err := bounds(ctx, path); err != nil {
		return nil, err
	}
	out, err := gitOut(ctx, path, "count-objects", "-v")
	if err != nil {
		return nil, err
	}
	for line := range strings.Lines(out) {
		dir, ok := strings.CutPrefix(strings.TrimSuffix(line, "\n"), "alternate: ")
		if !ok {
			continue
		}
		if plain, err := strconv.Unquote(dir); err == nil {
			dir = plain
		}
		if dir = resolved(dir); !Within(dir, RepoRoot(path)) {
			dirs = append(dirs, dir)
		}
	}
	return dirs, nil
}

// resolved returns the path without links. A missing path is only cleaned.
func resolved(path string) string {
	if r, err := filepath.EvalSymlinks(path); err == nil {
		return r
	}
	if to, err := os.Readlink(path); err == nil {
		if !filepath.IsAbs(to) {
			to = filepath.Join(filepath.Dir(path), to)
		}
		return filepath.Clean(to)
	}
	return filepath.Clean(path)
}

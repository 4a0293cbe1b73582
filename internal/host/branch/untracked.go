package branch

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/sandbox-agent/sandbox-agent/internal/exiterr"
	"github.com/sandbox-agent/sandbox-agent/internal/text"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// emptyTree is git's id of the tree without entries, which every repository has.
const emptyTree = "4b825dc642cb6eb9a060e54bf8d69288fbee4904"

const maxNamed = 10

const gitlink = "160000"

// keepUntracked returns an error if writing one of the commits or trees into the working tree would overwrite an untracked
// file. Git itself protects untracked files, except ignored ones such as .env.
func (t *Target) keepUntracked(ctx context.Context, what string, targets ...string) error {
	from := "HEAD"
	if t.repo.Empty {
		from = emptyTree
	}
	added := map[string]bool{} // paths, with whether it is a submodule
	var lost []string
	for _, to := range targets {
		var change []string // modes, ids and status of the path that follows
		if err := t.git.Each(ctx, func(field string) {
			switch {
			case change == nil:
				change = strings.Fields(strings.TrimPrefix(field, ":"))
				return
			case change[4] == "A":
				added[field] = change[1] == gitlink
			case change[0] == gitlink: // git removes the submodule's directory with uncommitted files
				if in, err := os.ReadDir(t.file(field)); len(in) > 0 || err != nil && !errors.Is(err, fs.ErrNotExist) {
					lost = append(lost, field+"/")
				}
			}
			change = nil
		}, "diff-tree", "-r", "-z", "--raw", "--no-renames", "--diff-filter=AT", "--ignore-submodules=none", "--end-of-options", from,
			to); err != nil {
			return fmt.Errorf("%s: %w", what, err)
		}
	}
	inTheWay, err := t.inTheWay(ctx, added)
	if err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	return refuse(what, append(lost, inTheWay...))
}

// keepAside returns an error if stashing the user's changes, as `git merge --autostash` does, would lose files: it resets the working
// tree to HEAD, over untracked files and over changed files that are marked as unchanged (`git update-index --assume-unchanged`).
func (t *Target) keepAside(ctx context.Context, what string) error {
	replaced := map[string]bool{} // paths, with whether it is a submodule
	for _, args := range [][]string{{"--cached"}, nil} {
		var change []string // modes, ids and status of the path that follows
		if err := t.git.Each(ctx, func(field string) {
			if change == nil {
				change = strings.Fields(strings.TrimPrefix(field, ":"))
				return
			}
			replaced[field] = replaced[field] || change[0] == gitlink || change[1] == gitlink
			change = nil
		}, slices.Concat([]string{"diff-index", "-z", "--raw", "--no-renames"}, args, []string{"HEAD", "--"})...); err != nil {
			return fmt.Errorf("%s: %w", what, err)
		}
	}
	lost, err := t.inTheWay(ctx, replaced)
	if err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	assumed, err := t.assumed(ctx)
	if err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	return refuse(what, append(lost, assumed...))
}

// assumed lists the changed files that are marked as unchanged (`git update-index --assume-unchanged`).
func (t *Target) assumed(ctx context.Context) (changed []string, err error) {
	told := map[string]bool{}
	if err := t.git.Each(ctx, func(line string) {
		if tag, name, ok := strings.Cut(line, " "); ok && strings.ToLower(tag) == tag && tag != "s" { // s: skip-worktree, has no file
			told[name] = true
		}
	}, "ls-files", "-v", "-z"); err != nil || len(told) == 0 {
		return nil, err
	}
	out, err := t.git.Output(ctx, "rev-parse", "--git-path", "index")
	if err != nil {
		return nil, err
	}
	index := strings.TrimSuffix(string(out), "\n")
	if !filepath.IsAbs(index) {
		index = filepath.Join(t.repo.Path, index)
	}
	known, err := os.ReadFile(index)
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "sandbox-agent-index-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	r := t.git
	r.Env = append(slices.Clone(r.Env), "GIT_INDEX_FILE="+filepath.Join(dir, "index"))
	r.Stdin = strings.Join(slices.Collect(maps.Keys(told)), "\x00")
	if err := os.WriteFile(filepath.Join(dir, "index"), known, 0o600); err != nil {
		return nil, err
	}
	if err := r.Run(ctx, "update-index", "-z", "--no-assume-unchanged", "--stdin"); err != nil {
		return nil, err
	}
	r.Stdin = ""
	_ = r.Run(ctx, "update-index", "-q", "--refresh") // fails if a file has changed
	err = r.Each(ctx, func(name string) {
		if told[name] {
			changed = append(changed, name)
		}
	}, "diff-files", "-z", "--name-only")
	return changed, err
}

// refuse is the error for files that would be lost; nil if there are none.
func refuse(what string, lost []string) error {
	slices.Sort(lost)
	lost = slices.Compact(lost)
	if len(lost) == 0 {
		return nil
	}
	names := text.Printable(strings.Join(lost[:min(len(lost), maxNamed)], ", "))
	if more := len(lost) - maxNamed; more > 0 {
		names += fmt.Sprintf(" and %d more", more)
	}
	return exiterr.New(workorder.ExitGit, fmt.Errorf("%s: %w: %s", what, ErrUntracked, names),
		"nothing was changed: move or rename these files, then try again")
}

// ErrUntracked means that untracked files would be overwritten.
var ErrUntracked = errors.New("files in your working tree are untracked, ignored or assumed to be unchanged, and would be overwritten")

// inTheWay returns the files outside of the index that writing these paths would replace.
func (t *Target) inTheWay(ctx context.Context, added map[string]bool) (lost []string, err error) {
	there := map[string]bool{} // paths, with whether it is a directory
	dirs := map[string]bool{".": true}
	for name, submodule := range added {
		if at, dir := t.existing(name, dirs); at != "" && (!dir || !submodule) {
			there[at] = dir
		}
	}
	if len(there) == 0 {
		return nil, nil
	}
	tracked, fold, err := t.tracked(ctx)
	if err != nil {
		return nil, err
	}
	for at, dir := range there {
		if tracked[fold(at)] && !dir {
			continue // git checks it for changes
		}
		err := filepath.WalkDir(t.file(at), func(file string, d fs.DirEntry, err error) error {
			if err == nil && d.IsDir() {
				return nil
			}
			name, rerr := filepath.Rel(t.repo.Path, file)
			if rerr != nil {
				return rerr
			}
			if name = filepath.ToSlash(name); !tracked[fold(name)] {
				lost = append(lost, name) // also an unreadable directory
			}
			if d != nil && d.IsDir() {
				return fs.SkipDir
			}
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	return lost, nil
}

func (t *Target) file(name string) string {
	return filepath.Join(t.repo.Path, filepath.FromSlash(name))
}

// existing returns the existing part of a path: all of it, or up to the first component that is not a directory; dir
// reports whether that is one. It is "" if nothing exists. dirs caches the directories seen so far.
func (t *Target) existing(name string, dirs map[string]bool) (at string, dir bool) {
	for i, c := range name + "/" {
		if c != '/' {
			continue
		}
		at = name[:i]
		if i < len(name) && dirs[at] {
			continue
		}
		st, err := os.Lstat(t.file(at))
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return "", false
		case err != nil: // a directory that cannot be searched
			return path.Dir(at), false
		case !st.IsDir():
			return at, false
		}
		dirs[at] = true
	}
	return name, true
}

// tracked returns the paths of the index, folded by fold: a file system may ignore case.
func (t *Target) tracked(ctx context.Context) (paths map[string]bool, fold func(string) string, err error) {
	fold = func(s string) string { return s }
	if out, err := t.git.Output(ctx, "config", "--type=bool", "core.ignoreCase"); err == nil && strings.TrimSpace(string(out)) == "true" {
		fold = strings.ToLower
	}
	paths = map[string]bool{}
	err = t.git.Each(ctx, func(name string) { paths[fold(name)] = true }, "ls-files", "-z")
	return paths, fold, err
}

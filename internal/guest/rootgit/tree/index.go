package tree

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/sandbox-agent/sandbox-agent/internal/git"
	"github.com/sandbox-agent/sandbox-agent/internal/proc"
)

func (x *Index) repo() git.Repo {
	t := x.Repos.Tree()
	t.Env = append(t.Env, "GIT_INDEX_FILE="+x.Repos.SidePath(sideIndex))
	return t
}

const (
	// sideIndex is the index that is updated to the work tree.
	sideIndex = "index"
	// bareIndex is a copy without setup's leftovers, and with the branch's own agent settings.
	bareIndex = "without-setup"
)

// prepareSide creates the directory and removes the leftovers of a killed git.
func (x *Index) prepareSide() error {
	dir := x.Repos.SideDir()
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, os.ErrExist) {
		return fmt.Errorf("prepare checkpoint: %w", err)
	}
	if x.Repos.User != nil {
		if err := os.Lchown(dir, int(x.Repos.User.UID), int(x.Repos.User.GID)); err != nil {
			return fmt.Errorf("prepare checkpoint: %w", err)
		}
	}
	var err error
	for _, name := range []string{sideIndex, bareIndex, settingsIndex, firstIndex} {
		err = errors.Join(err, os.RemoveAll(filepath.Join(dir, name+".lock")))
	}
	return err
}

// seed copies the agent's index, whose stat data saves reading unchanged files, with its time.
func (x *Index) seed(ctx context.Context) error {
	own, err := x.ownIndex(ctx)
	if err != nil {
		return err
	}
	return x.copyIndex(ctx, own, x.Repos.SidePath(sideIndex))
}

func (x *Index) ownIndex(ctx context.Context) (string, error) {
	out, err := x.Repos.Tree().Output(ctx, "rev-parse", "--path-format=absolute", "--git-path", "index")
	return strings.TrimSuffix(string(out), "\n"), err
}

// replaceAgentIndex replaces the agent's index by the separate one after the agent's end, so that nothing is hashed again.
func (x *Index) replaceAgentIndex(ctx context.Context) error {
	if _, err := os.Lstat(x.Repos.SidePath(sideIndex)); err != nil {
		return nil // there was no checkpoint
	}
	if err := x.prepareSide(); err != nil {
		return err
	}
	a, err := x.adder(ctx, x.repo(), func() { _ = x.prepareSide() })
	if err != nil {
		return err
	}
	if _, err := x.sync(ctx, a); err != nil {
		return err
	}
	own, err := x.ownIndex(ctx)
	if err != nil {
		return err
	}
	return x.copyIndex(ctx, x.Repos.SidePath(sideIndex), own)
}

func (x *Index) copyIndex(ctx context.Context, from, to string) error {
	// A work tree without an index gets an empty one. After a kill, either the old or the new index is there.
	script := `rm -rf "$2.new"; if test -f "$1"; then
cp --preserve=timestamps -- "$1" "$2.new" && { test ! -d "$2" || rm -rf "$2"; } && mv -fT -- "$2.new" "$2"; else rm -rf "$2"; fi`
	if _, err := proc.Output(
		ctx, proc.Spec{Argv: []string{"/bin/sh", "-c", script, "sh", from, to}, Dir: "/", User: x.Repos.User},
	); err != nil {
		return fmt.Errorf("copy the index: %w", err)
	}
	return nil
}

// Reset makes the next snapshot start from scratch.
func (x *Index) Reset() {
	_ = os.RemoveAll(x.Repos.SidePath(sideIndex)) // one that stays is an error of the next snapshot
	x.synced = ""
}

// stage updates the separate index to the work tree, without files larger than most; 0 means without limit.
func (x *Index) stage(ctx context.Context, most int64) (*staged, error) {
	return x.update(ctx, most, false)
}

// stageNames is stage without storing the content of new files, which takes ten times as long.
func (x *Index) stageNames(ctx context.Context) error {
	_, err := x.update(ctx, 0, true)
	return err
}

// update stores the content of new files unless names is set.
func (x *Index) update(ctx context.Context, most int64, names bool) (*staged, error) {
	if _, err := os.Lstat(x.Repos.SidePath(sideIndex)); err != nil {
		if err := x.seed(ctx); err != nil {
			return nil, err
		}
	}
	t := x.repo()
	unlock := func() { _ = x.prepareSide() }
	added, err := x.add(ctx, t, most, unlock, names)
	if err != nil {
		return nil, err
	}
	x.roots = added.roots
	a, err := x.adder(ctx, t, unlock)
	if err != nil {
		return nil, err
	}
	left, err := x.sync(ctx, a)
	if left != nil {
		added.left = added.left.addSubmoduleFiles(left.Paths, left.Reason)
	}
	return added, err
}

// sync removes files that are ignored by now, and adds ignored files that were added by force.
func (x *Index) sync(ctx context.Context, a *adder) (*UncommittedError, error) {
	t := a.raw
	var ignored []string
	if err := t.Each(
		ctx, func(path string) { ignored = append(ignored, path) }, "ls-files", "-z", "--cached", "--ignored", "--exclude-standard",
	); err != nil {
		return nil, err
	}
	at := Stamp(filepath.Join(x.Repos.Workspace, ".git/index"))
	if len(ignored) == 0 && at != "" && at == x.synced {
		return nil, nil
	}
	theirs := map[string]bool{}
	if err := x.Repos.Tree().Each(ctx, func(path string) { theirs[path] = true }, "ls-files", "-z", "--cached"); err != nil {
		return nil, err
	}
	for _, path := range x.forced() {
		theirs[path] = true
	}
	// A repository inside the work tree has its own ignore rules.
	nested := func(path string) bool { return under(x.roots, path) }
	if drop := slices.DeleteFunc(ignored, func(path string) bool { return theirs[path] || nested(path) }); len(drop) > 0 {
		t.Stdin = strings.Join(drop, "\x00") + "\x00"
		if err := t.Run(ctx, "update-index", "--force-remove", "-z", "--stdin"); err != nil {
			return nil, err
		}
	}
	if err := t.Each(ctx, func(path string) { delete(theirs, path) }, "ls-files", "-z", "--cached"); err != nil {
		return nil, err
	}
	take := slices.DeleteFunc(slices.Collect(maps.Keys(theirs)), func(path string) bool { return nested(path) || !x.present(path) })
	var files []File
	large := map[string]bool{}
	for _, path := range take {
		if st, err := os.Lstat(filepath.Join(x.Repos.Workspace, path)); err == nil && st.Size() > smallFile {
			large[path] = true
		} else {
			files = append(files, File{Path: path})
		}
	}
	left := a.all(ctx, files)
	if len(large) > 0 {
		if err := x.borrow(ctx, t, large); err != nil {
			return left, err
		}
	}
	x.synced = at
	return left, nil
}

// borrow copies entries of the agent's index unchanged: a large file is hashed only once.
func (x *Index) borrow(ctx context.Context, t git.Repo, large map[string]bool) error {
	var b strings.Builder
	err := x.Repos.Tree().Each(ctx, func(rec string) {
		if _, path, _ := strings.Cut(rec, "\t"); large[path] {
			b.WriteString(rec + "\x00")
		}
	}, "ls-files", "-z", "--stage")
	if err != nil || b.Len() == 0 {
		return err
	}
	t.Stdin = b.String()
	return t.Run(ctx, "update-index", "-z", "--index-info")
}

// forced returns the ignored files that are part of the work all the same, or will be if the agent changes them.
func (x *Index) forced() (paths []string) {
	if x.Ledger.Load() == nil {
		paths = slices.Clone(x.Ledger.Forced)
	}
	was, _ := x.Checkpoints.setupRecord() // asSetupLeft reports the error
	for path, entry := range was {
		if isNew(entry) {
			paths = append(paths, path)
		}
	}
	return paths
}

// present reports whether the work tree has a file, a link or a nested repository at a path, with no link on the way.
func (x *Index) present(path string) bool {
	for i := range path {
		if path[i] != '/' {
			continue
		}
		if st, err := os.Lstat(filepath.Join(x.Repos.Workspace, path[:i])); err != nil || !st.IsDir() {
			return false
		}
	}
	full := filepath.Join(x.Repos.Workspace, path)
	st, err := os.Lstat(full)
	if err == nil && st.IsDir() { // the agent may have replaced a file by a directory
		_, err = os.Lstat(filepath.Join(full, ".git"))
	}
	return err == nil
}

// firstIndex is the index of the remote's branch with the small changes.
const firstIndex = "first"

const settingsIndex = "settings"

// asHead returns the input of `update-index --index-info` that gives paths of an index head's entries.
func asHead(ctx context.Context, t git.Repo, head string, paths []string) (string, error) {
	if len(paths) == 0 {
		return "", nil
	}
	old := make(map[string]bool, len(paths))
	for _, path := range paths {
		old[path] = true
	}
	var info strings.Builder
	err := changes(ctx, t, func(path, entry string) {
		// ":mode-before mode-now id-before id-now status"; mode 0 removes.
		if f := strings.Fields(strings.TrimPrefix(entry, ":")); old[path] && len(f) == 5 {
			info.WriteString(strings.TrimPrefix(f[0], "00000") + " " + f[2] + "\t" + path + "\x00")
		}
	}, "diff-index", "--cached", "--no-renames", "-z", head, "--")
	return info.String(), err
}

// with returns t with a copy of the agent's index and changed entries, which have no stat data.
func (x *Index) with(ctx context.Context, t git.Repo, info string) (git.Repo, error) {
	own, err := x.ownIndex(ctx)
	if err == nil {
		err = x.prepareSide()
	}
	if err == nil {
		err = x.copyIndex(ctx, own, x.Repos.SidePath(bareIndex))
	}
	if err != nil {
		return git.Repo{}, err
	}
	t.Env = append(slices.Clone(t.Env), "GIT_INDEX_FILE="+x.Repos.SidePath(bareIndex))
	t.Stdin = info
	err = t.Run(ctx, "update-index", "--replace", "-z", "--index-info")
	t.Stdin = ""
	return t, err
}

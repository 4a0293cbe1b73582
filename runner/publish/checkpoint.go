package publish

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/sandbox-agent/sandbox-agent/internal/git"
	"github.com/sandbox-agent/sandbox-agent/internal/proc"
)

// A checkpoint is the work tree as git would commit it now, without touching
// anything of the agent's: it is hashed with an index of our own, as the agent's
// user, and lies as loose objects in the agent's store until it is pushed.

// sideDir holds that index. It belongs to the agent's user, who alone reads and writes in it.
func (p *Publisher) sideDir() string { return filepath.Join(p.Dir, "side") }

// side is the work tree with our index.
func (p *Publisher) side(index string) git.Repo {
	t := p.tree()
	t.Env = append(t.Env, "GIT_INDEX_FILE="+p.sidePath(index))
	return t
}

const (
	sideIndex = "index"
	// bareIndex is a copy without what setup left.
	bareIndex = "without-setup"
)

// prepareSide makes the folder and clears what a killed git left in it.
func (p *Publisher) prepareSide() error {
	dir := p.sideDir()
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, os.ErrExist) {
		return fmt.Errorf("prepare checkpoint: %w", err)
	}
	if p.User != nil {
		if err := os.Lchown(dir, int(p.User.UID), int(p.User.GID)); err != nil {
			return fmt.Errorf("prepare checkpoint: %w", err)
		}
	}
	return errors.Join(os.RemoveAll(filepath.Join(dir, sideIndex+".lock")), os.RemoveAll(filepath.Join(dir, bareIndex+".lock")))
}

// seed begins our index as a copy of the agent's, whose knowledge of files that did not
// change saves reading them. The time of the copy is the original's: by it git knows which
// entries are too fresh to be believed.
func (p *Publisher) seed(ctx context.Context) error {
	own, err := p.ownIndex(ctx)
	if err != nil {
		return err
	}
	return p.copyIndex(ctx, own, p.sidePath(sideIndex))
}

// ownIndex is where the agent's index lies.
func (p *Publisher) ownIndex(ctx context.Context) (string, error) {
	out, err := p.tree().Output(ctx, "rev-parse", "--path-format=absolute", "--git-path", "index")
	return strings.TrimSuffix(string(out), "\n"), err
}

// handOver makes our index, brought up to date, the agent's, which is gone: what was
// hashed for a checkpoint need not be read again to be committed.
func (p *Publisher) handOver(ctx context.Context) error {
	if _, err := os.Lstat(p.sidePath(sideIndex)); err != nil {
		return nil // there was no checkpoint
	}
	if err := errors.Join(p.prepareSide(), p.stage(ctx)); err != nil {
		return err
	}
	own, err := p.ownIndex(ctx)
	if err != nil {
		return err
	}
	return p.copyIndex(ctx, p.sidePath(sideIndex), own)
}

func (p *Publisher) sidePath(name string) string { return filepath.Join(p.sideDir(), name) }

func (p *Publisher) copyIndex(ctx context.Context, from, to string) error {
	// A work tree without an index has one that is empty.
	// Whoever is killed in the middle leaves the old one or the new one.
	script := `rm -rf "$2.new"; if test -f "$1"; then
cp --preserve=timestamps -- "$1" "$2.new" && { test ! -d "$2" || rm -rf "$2"; } && mv -fT -- "$2.new" "$2"; else rm -rf "$2"; fi`
	if _, err := proc.Output(ctx, proc.Spec{Argv: []string{"/bin/sh", "-c", script, "sh", from, to}, Dir: "/", User: p.User}); err != nil {
		return fmt.Errorf("copy the index: %w", err)
	}
	return nil
}

// forget makes the next snapshot begin anew.
func (p *Publisher) forget() {
	_ = os.RemoveAll(p.sidePath(sideIndex)) // prepareSide would say what is wrong
	p.synced = ""
}

// partError says that a snapshot has the rest of the work tree.
type partError struct{ err error }

func (e *partError) Error() string { return "not everything is in the checkpoint: " + e.err.Error() }
func (e *partError) Unwrap() error { return e.err }

// snapshot hashes the work tree: head and everything that is not ignored, without what setup
// left and nobody changed. A tree and a *partError is what could be read.
func (p *Publisher) snapshot(ctx context.Context, head string) (tree string, err error) {
	if err := p.prepareSide(); err != nil {
		return "", err
	}
	for try := 0; ; try++ {
		tree, err = p.hash(ctx, head)
		var part *partError
		if err == nil || errors.As(err, &part) || try > 0 || ctx.Err() != nil {
			return tree, err
		}
		// The agent may have thrown away objects that only our index names (git gc --prune=now).
		p.forget()
	}
}

func (p *Publisher) hash(ctx context.Context, head string) (string, error) {
	addErr := p.stage(ctx)
	if addErr != nil && (ctx.Err() != nil || strings.Contains(addErr.Error(), "No space left on device")) {
		return "", addErr
	}
	setup, err := p.setupEntries(ctx, head)
	if err != nil {
		return "", err
	}
	index := sideIndex
	if setup != "" {
		index = bareIndex
		if err := p.copyIndex(ctx, p.sidePath(sideIndex), p.sidePath(bareIndex)); err != nil {
			return "", err
		}
		t := p.side(bareIndex)
		t.Stdin = setup
		if err := t.Run(ctx, "update-index", "-z", "--index-info"); err != nil {
			return "", err
		}
	}
	out, err := p.side(index).Output(ctx, "write-tree")
	if err != nil {
		return "", errors.Join(err, addErr)
	}
	if addErr != nil {
		return strings.TrimSpace(string(out)), &partError{addErr}
	}
	return strings.TrimSpace(string(out)), nil
}

// stage brings our index up to the work tree.
func (p *Publisher) stage(ctx context.Context) error {
	if _, err := os.Lstat(p.sidePath(sideIndex)); err != nil {
		if err := p.seed(ctx); err != nil {
			return err
		}
	}
	t := p.side(sideIndex)
	err := p.add(ctx, t, func() { _ = p.prepareSide() })
	if ctx.Err() != nil {
		return err
	}
	return errors.Join(err, p.sync(ctx, t))
}

// sync makes our index hold the paths that `git add` would leave as they were: out
// goes what is ignored by now, in comes what is ignored and was added by force.
func (p *Publisher) sync(ctx context.Context, t git.Repo) error {
	var ignored []string
	if err := t.Each(ctx, func(path string) { ignored = append(ignored, path) }, "ls-files", "-z", "--cached", "--ignored", "--exclude-standard"); err != nil {
		return err
	}
	at := stamp(filepath.Join(p.Workspace, ".git/index"))
	if len(ignored) == 0 && at != "" && at == p.synced {
		return nil
	}
	theirs := map[string]bool{}
	if err := p.tree().Each(ctx, func(path string) { theirs[path] = true }, "ls-files", "-z", "--cached"); err != nil {
		return err
	}
	for _, path := range p.forced() {
		theirs[path] = true
	}
	if drop := slices.DeleteFunc(ignored, func(path string) bool { return theirs[path] }); len(drop) > 0 {
		t.Stdin = strings.Join(drop, "\x00") + "\x00"
		if err := t.Run(ctx, "update-index", "--force-remove", "-z", "--stdin"); err != nil {
			return err
		}
	}
	if err := t.Each(ctx, func(path string) { delete(theirs, path) }, "ls-files", "-z", "--cached"); err != nil {
		return err
	}
	take := slices.DeleteFunc(slices.Collect(maps.Keys(theirs)), func(path string) bool { return !p.present(path) })
	if len(take) > 0 {
		// --remove: a file that is gone in this moment is no error.
		t.Stdin = strings.Join(take, "\x00") + "\x00"
		if err := t.Run(ctx, "update-index", "--add", "--remove", "-z", "--stdin"); err != nil {
			return err
		}
	}
	p.synced = at
	return nil
}

// forced are the ignored files that belong to the work all the same.
func (p *Publisher) forced() []string {
	if p.load() != nil {
		return nil
	}
	return p.led.Forced
}

// present reports whether the work tree has something under that path that an index can
// hold: a file, a link, a repository of its own, and no link on the way to it.
func (p *Publisher) present(path string) bool {
	for i := range path {
		if path[i] != '/' {
			continue
		}
		if st, err := os.Lstat(filepath.Join(p.Workspace, path[:i])); err != nil || !st.IsDir() {
			return false
		}
	}
	full := filepath.Join(p.Workspace, path)
	st, err := os.Lstat(full)
	if err == nil && st.IsDir() { // where a file was, the agent may have made a folder
		_, err = os.Lstat(filepath.Join(full, ".git"))
	}
	return err == nil
}

// stamp tells one state of a file from another, without reading it.
func stamp(path string) string {
	st, err := os.Lstat(path)
	if err != nil {
		return ""
	}
	return fmt.Sprint(st.ModTime().UnixNano(), st.Size(), st.Mode())
}

// madeBy is the trailer of a checkpoint with the number of the attempt that made it.
const madeBy = "Attempt"

// commitTree makes the commit of a snapshot. It lies in our own store, where the agent cannot lose it.
func (p *Publisher) commitTree(ctx context.Context, tree, head string) (string, error) {
	out, err := p.outbox().Output(ctx, "commit-tree", "-p", head, "-m", fmt.Sprintf("Checkpoint of task %s\n\n%s: %d", p.Order.TaskID, madeBy, p.number()), tree)
	if err != nil {
		return "", fmt.Errorf("write checkpoint: %w", err)
	}
	return strings.TrimSpace(string(out)), nil
}

// snapTime bounds a snapshot: a hundred thousand new files take a minute.
const snapTime = 3 * time.Minute

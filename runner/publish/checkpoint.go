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
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// A checkpoint is the work tree as git would commit it now, without touching
// anything of the agent's: it is hashed with an index of our own, as the agent's
// user, and lies as loose objects in the agent's store until it is pushed.

// sideDir holds that index. It belongs to the agent's user, who alone reads and writes in it.
func (p *Publisher) sideDir() string { return filepath.Join(p.Dir, "side") }

// side is the work tree with our index.
func (p *Publisher) side() git.Repo {
	t := p.tree()
	t.Env = append(t.Env, "GIT_INDEX_FILE="+p.sidePath(sideIndex))
	return t
}

const (
	sideIndex = "index"
	// bareIndex is a copy without what setup left, and with the branch's own settings of agents.
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
	var err error
	for _, name := range []string{sideIndex, bareIndex, settingsIndex, firstIndex} {
		err = errors.Join(err, os.RemoveAll(filepath.Join(dir, name+".lock")))
	}
	return err
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

// handOver makes our index, with all of its paths, the agent's, which is gone: what was
// hashed for a checkpoint need not be read again to be committed.
func (p *Publisher) handOver(ctx context.Context) error {
	if _, err := os.Lstat(p.sidePath(sideIndex)); err != nil {
		return nil // there was no checkpoint
	}
	if err := p.prepareSide(); err != nil {
		return err
	}
	a, err := p.adder(ctx, p.side(), func() { _ = p.prepareSide() })
	if err != nil {
		return err
	}
	if _, err := p.sync(ctx, a); err != nil {
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
	p.enter()
	limit := snapTime
	if p.quick {
		limit = snapAgain
	}
	start := time.Now()
	snap, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	for try := 0; ; try++ {
		tree, err = p.hash(snap, head)
		var part *partError
		if err == nil || errors.As(err, &part) || try > 0 || snap.Err() != nil {
			break
		}
		// The agent may have thrown away objects that only our index names (git gc --prune=now).
		p.forget()
	}
	switch {
	case err == nil:
		p.quick = time.Since(start) < snapQuick
	case snap.Err() != nil && ctx.Err() == nil:
		p.unpipe(ctx) // it may have been that
	}
	return tree, err
}

func (p *Publisher) hash(ctx context.Context, head string) (string, error) {
	added, err := p.stage(ctx, checkpointFile)
	if err != nil {
		return "", err
	}
	p.name(added.large)
	setup, err := p.setupEntries(ctx, p.side(), head)
	if err != nil {
		return "", err
	}
	settings, err := p.settingsWanted(ctx, p.side(), head)
	if err != nil {
		return "", err
	}
	index := sideIndex
	t, err := p.unfiltered(ctx, p.side())
	if err != nil {
		return "", err
	}
	if setup = settings.info() + setup; setup != "" {
		index = bareIndex
		if err := p.copyIndex(ctx, p.sidePath(sideIndex), p.sidePath(bareIndex)); err != nil {
			return "", err
		}
	}
	t.Env = append(t.Env, "GIT_INDEX_FILE="+p.sidePath(index))
	if setup != "" {
		t.Stdin = setup
		if err := t.Run(ctx, "update-index", "--replace", "-z", "--index-info"); err != nil {
			return "", err
		}
		t.Stdin = ""
	}
	out, err := t.Output(ctx, "write-tree")
	if err != nil {
		return "", err
	}
	if added.left != nil {
		return strings.TrimSpace(string(out)), &partError{added.left}
	}
	return strings.TrimSpace(string(out)), nil
}

// name says once of each file that it is too large for a checkpoint.
func (p *Publisher) name(large []string) {
	fresh := slices.DeleteFunc(slices.Clone(large), func(path string) bool { return p.large[path] })
	if len(fresh) == 0 {
		return
	}
	if p.large == nil {
		p.large = map[string]bool{}
	}
	for _, path := range fresh {
		p.large[path] = true
	}
	p.Emit(workorder.Event{Type: workorder.EventWarning, Text: fmt.Sprintf("files of more than %d MiB are no part of checkpoints, and are saved when they are committed: %s", checkpointFile>>20, named(fresh))})
}

// stage brings our index up to the work tree, without files that are larger than most; 0: with all.
func (p *Publisher) stage(ctx context.Context, most int64) (*staged, error) {
	if _, err := os.Lstat(p.sidePath(sideIndex)); err != nil {
		if err := p.seed(ctx); err != nil {
			return nil, err
		}
	}
	t := p.side()
	unlock := func() { _ = p.prepareSide() }
	added, err := p.add(ctx, t, most, unlock)
	if err != nil {
		return nil, err
	}
	p.roots = added.roots
	a, err := p.adder(ctx, t, unlock)
	if err != nil {
		return nil, err
	}
	left, err := p.sync(ctx, a)
	if left != nil {
		added.left = added.left.beyond(left.Paths, left.Why)
	}
	return added, err
}

// sync makes our index hold the paths that `git add` would leave as they were: out
// goes what is ignored by now, in comes what is ignored and was added by force.
func (p *Publisher) sync(ctx context.Context, a *adder) (*LeftError, error) {
	t := a.raw
	var ignored []string
	if err := t.Each(ctx, func(path string) { ignored = append(ignored, path) }, "ls-files", "-z", "--cached", "--ignored", "--exclude-standard"); err != nil {
		return nil, err
	}
	at := stamp(filepath.Join(p.Workspace, ".git/index"))
	if len(ignored) == 0 && at != "" && at == p.synced {
		return nil, nil
	}
	theirs := map[string]bool{}
	if err := p.tree().Each(ctx, func(path string) { theirs[path] = true }, "ls-files", "-z", "--cached"); err != nil {
		return nil, err
	}
	for _, path := range p.forced() {
		theirs[path] = true
	}
	// What a repository inside the work tree has is for its own rules to say.
	nested := func(path string) bool { return under(p.roots, path) }
	if drop := slices.DeleteFunc(ignored, func(path string) bool { return theirs[path] || nested(path) }); len(drop) > 0 {
		t.Stdin = strings.Join(drop, "\x00") + "\x00"
		if err := t.Run(ctx, "update-index", "--force-remove", "-z", "--stdin"); err != nil {
			return nil, err
		}
	}
	if err := t.Each(ctx, func(path string) { delete(theirs, path) }, "ls-files", "-z", "--cached"); err != nil {
		return nil, err
	}
	take := slices.DeleteFunc(slices.Collect(maps.Keys(theirs)), func(path string) bool { return nested(path) || !p.present(path) })
	var files []file
	large := map[string]bool{}
	for _, path := range take {
		if st, err := os.Lstat(filepath.Join(p.Workspace, path)); err == nil && st.Size() > smallFile {
			large[path] = true
		} else {
			files = append(files, file{path: path})
		}
	}
	left := a.all(ctx, files)
	if len(large) > 0 {
		if err := p.borrow(ctx, t, large); err != nil {
			return left, err
		}
	}
	p.synced = at
	return left, nil
}

// borrow takes entries of the agent's index as they are: hashing a large file once is enough.
func (p *Publisher) borrow(ctx context.Context, t git.Repo, large map[string]bool) error {
	var b strings.Builder
	err := p.tree().Each(ctx, func(rec string) {
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

const (
	// snapTime bounds a snapshot: a hundred thousand new files take a minute. One that comes after
	// one of less than snapQuick, and takes longer than snapAgain, hangs, or goes on next time where it was.
	snapTime  = 3 * time.Minute
	snapQuick = 5 * time.Second
	snapAgain = 45 * time.Second
)

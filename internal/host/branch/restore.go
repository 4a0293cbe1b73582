package branch

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"path"
	"strings"
	"time"
)

//go:embed restore.sh
var restoreScript string

// Restore resets a new clone to the branch's last commit, and reports whether it did. It does nothing without a branch,
// after StartOver, or if the clone was saved before. The clone becomes the branch's clone, from which the next Save
// continues. A killed Restore can be repeated.
func (b *Clone) Restore(ctx context.Context) (bool, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, saveTime, fmt.Errorf("the sandbox's files were not restored within %s", saveTime))
	defer cancel()
	if !exists(ctx, b.Branch) {
		return false, nil
	}
	unlock, err := b.lock(ctx)
	if err != nil {
		return false, err
	}
	defer unlock()
	what := "restore the work in sandbox " + b.Sandbox
	clone, err := b.open(ctx)
	if err != nil {
		return false, fmt.Errorf("%s: %w", what, err)
	}
	named := path.Join(b.cloneDir, ".git", "sandbox-agent")
	if clone == "" || b.in(ctx, []string{"test", "-s", named}, nil, io.Discard) == nil {
		return false, nil
	}
	head, base := b.Head(ctx), b.Base(ctx)
	if err := b.send(ctx, head, base, []string{"sh", "-c", restoreScript, "sh", b.cloneDir, head, clone, base}); err != nil {
		return false, fmt.Errorf("%s: %w", what, err)
	}
	return true, b.move(ctx, b.at(ctx), "", &record{head: head})
}

// send runs a command in the sandbox with the objects of a commit on its standard input, as a pack.
func (b *Clone) send(ctx context.Context, commit, base string, argv []string) error {
	revs := commit + "\n"
	// The user may have rewritten the base branch; the clone does not have that commit then.
	if b.in(ctx, []string{"git", "--git-dir=" + path.Join(b.cloneDir, ".git"), "cat-file", "-e", base + "^{commit}"}, nil, io.Discard) == nil {
		revs += "^" + base + "\n"
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	pr, pw := io.Pipe()
	defer pr.Close()
	go func() {
		const grace = time.Second
		said, err := b.git().Stream(ctx, strings.NewReader(revs), pw, grace, "pack-objects", "--revs", "--stdout", "--thin", "-q")
		if err != nil {
			err = fmt.Errorf("%w: %s", err, strings.TrimSpace(said))
		}
		pw.CloseWithError(err)
	}()
	return b.in(ctx, argv, pr, io.Discard)
}

// StartOver makes the next clone, which has no save yet, begin the branch. The previous commits stay on a ref.
func (b *Branch) StartOver(ctx context.Context) error {
	unlock, err := b.lock(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	if !exists(ctx, b) {
		return nil
	}
	if err := b.git().Run(ctx, "config", b.key("clone"), ""); err != nil {
		return fmt.Errorf("restart the branch of sandbox %s: %w", b.Sandbox, err)
	}
	return nil
}

// ErrTagExists means that the branch has a checkpoint of that name.
var ErrTagExists = errors.New("a checkpoint of that name exists")

// Tag marks the last save with a commit and with the tag SANDBOX/NAME in the bare repository. The tag survives the branch's deletion.
func (b *Branch) Tag(ctx context.Context, name string) (commit string, err error) {
	if !exists(ctx, b) {
		return "", fmt.Errorf("sandbox %s: %w", b.Sandbox, ErrNotFound)
	}
	unlock, err := b.lock(ctx)
	if err != nil {
		return "", err
	}
	defer unlock()
	what := fmt.Sprintf("create checkpoint %s of sandbox %s", name, b.Sandbox)
	tag := "refs/tags/" + b.Sandbox + "/" + name
	if b.resolve(ctx, tag) != "" {
		return "", fmt.Errorf("%s: %w", what, ErrTagExists)
	}
	at := b.at(ctx)
	if commit, err = b.commitTree(ctx, b.identity(ctx), at.tree, "Checkpoint "+line(name), at.head); err == nil {
		r := b.load(ctx, at)
		if at.inside != "" && r.of(at.inside) == at.head { // commits made in the sandbox follow the checkpoint
			r.add(at.inside, commit)
		}
		err = b.move(ctx, at, commit, r)
	}
	if err == nil {
		err = b.git().Run(ctx, "update-ref", tag, commit, zero(commit))
	}
	if err != nil {
		return "", fmt.Errorf("%s: %w", what, err)
	}
	return commit, remote{b}.publish(ctx)
}

// Title returns the purpose of the sandbox in the user's words; "" if not set.
func (b *Branch) Title(ctx context.Context) string {
	title, _ := b.line(ctx, "config", b.key("title")) // empty if not set
	return title
}

// SetTitle changes the sandbox's title.
func (b *Branch) SetTitle(ctx context.Context, title string) error {
	if !exists(ctx, b) {
		return fmt.Errorf("sandbox %s: %w", b.Sandbox, ErrNotFound)
	}
	unlock, err := b.lock(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	if err := b.git().Run(ctx, "config", b.key("title"), title); err != nil {
		return fmt.Errorf("set the title of sandbox %s: %w", b.Sandbox, err)
	}
	return nil
}

// Submodule returns the submodule that contains a path of the clone; "" if there is none. The branch cannot have such a path's changes.
func (b *Branch) Submodule(ctx context.Context, name string) string {
	var all []string
	for p := path.Clean(name); p != "." && p != "/"; p = path.Dir(p) {
		all = append(all, p)
	}
	for _, p := range all {
		out, _ := b.line(ctx, "--literal-pathspecs", "ls-tree", heads+b.Sandbox, "--", p) // empty if the path does not exist
		if strings.HasPrefix(out, "160000 ") {
			return p
		}
	}
	return ""
}
